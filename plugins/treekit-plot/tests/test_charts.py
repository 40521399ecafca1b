"""Charts and histograms: their numbers, and the escaping of names."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.calibration import calibration_curve
from treekit_plot import (
    plot,
    plot_calibration,
    plot_importances,
    plot_pruning_path,
    plot_roc,
)
from treekit_plot.charts import (
    Axis,
    Chart,
    Series,
    compute_intervals,
    make_axis,
    make_count_axis,
    make_name_axis,
)
from treekit_plot.picture import MAX_CATEGORIES, N_BINS

import treekit
from tests.export.test_all_targets import HOSTILE
from treekit.cli import main
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.schema import Column, Schema
from treekit.data.table import read_table
from treekit.errors import DataError, SettingError
from treekit.evaluation import evaluate_model
from treekit.model.builder import build_tree, leaf, multiway, oblique, subset, threshold
from treekit.model.model import Model, make_model
from treekit.training.importance import Importances

SVG = "{http://www.w3.org/2000/svg}"
ALLOWED = {"svg", "title", "desc", "rect", "g", "path", "text", "tspan", "circle"}
NO, YES = leaf([3, 0]), leaf([0, 5])
SCHEMA = Schema(
    (Column("density"), Column("color", "nominal", ("green", "black", "white")), Column("sugar")),
    target="good",
    classes=("no", "yes"),
)


def model_of(root, schema: Schema = SCHEMA, **policies) -> Model:
    return make_model(schema, [build_tree(root, schema)], **policies)


def check_markup(svg: str) -> ET.Element:
    root = ET.fromstring(svg)
    assert {e.tag.removeprefix(SVG) for e in root.iter()} <= ALLOWED
    names = {name for e in root.iter() for name in e.attrib}
    assert not {name for name in names if "href" in name or name.startswith("on")}
    assert not names & {"style", "id"}
    return root


def texts(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in check_markup(svg).iter(f"{SVG}text")]


# ---------------------------------------------------------------- histograms

ROWS = {
    "density": [0.1, 0.2, 0.25, 0.26, 0.9, None],
    "color": ["green", "black", "white", "green", "black", None],
    "sugar": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "good": ["no", "no", "yes", "yes", "yes", "no"],
}


def histogram_of(root, table=ROWS, **options):
    return plot(model_of(root), table=table, **options).nodes[0].histogram


def test_histogram_bins_do_not_cross_the_threshold():
    found = histogram_of(threshold("density", 0.25, NO, YES))
    left = round(found.split_at * len(found.bars))
    assert found.split_at * len(found.bars) == pytest.approx(left)
    sides = [np.sum(part, axis=0).tolist() for part in (found.bars[:left], found.bars[left:])]
    assert sides == [[2, 1], [0, 2]]
    assert (found.ends, found.missing) == (("0.1", "0.9"), 1)


def test_categories_are_grouped_by_their_branch():
    found = histogram_of(subset("color", ["black", "white"], NO, YES))
    assert found.ends == ("black", "white", "green")
    assert found.bars == ((1, 1), (0, 1), (1, 1))
    assert found.split_at == pytest.approx(2 / 3)
    split = multiway("color", {"white": NO, "green": YES, "black": NO})
    assert histogram_of(split).ends == ("white", "green", "black")


def test_a_split_of_several_columns_has_no_histogram():
    assert histogram_of(oblique({"density": 1.0, "sugar": 1.0}, 0.5, NO, YES)) is None


def test_categories_with_the_largest_weight_are_drawn():
    names = tuple(f"c{i}" for i in range(30))
    schema = Schema((Column("c", "nominal", names),), target="good", classes=("no", "yes"))
    root = subset("c", list(names[:15]), NO, YES)
    cells = [name for i, name in enumerate(names) for _ in range(i + 1)]
    table = {"c": cells, "good": ["no"] * len(cells)}
    found = plot(model_of(root, schema), table=table).nodes[0].histogram
    assert sorted(found.ends) == sorted(names[-MAX_CATEGORIES:])


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=False, width=32), min_size=1, max_size=40),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
)
def test_bars_and_missing_values_sum_to_the_rows_of_the_node(values: list[float], at: float):
    n = len(values)
    table = {
        "density": np.array(values),
        "color": ["green"] * n,
        "sugar": [0.0] * n,
        "good": ["no", "yes"] * (n // 2) + ["no"] * (n % 2),
    }
    picture = plot(model_of(threshold("density", at, NO, YES)), table=table)
    check_markup(picture.svg())
    found = picture.nodes[0].histogram
    known = [v for v in values if not math.isnan(v)]
    if found is None:
        assert not known
        return
    assert len(found.bars) <= N_BINS + 2
    assert sum(map(sum, found.bars)) == len(known)
    assert found.missing == n - len(known)
    left = round(found.split_at * len(found.bars))
    assert sum(map(sum, found.bars[:left])) == sum(v <= at for v in known)


def test_each_node_counts_the_rows_that_reach_it():
    tree = treekit.train(demo_table(), DEMO_TARGET, max_depth=4, seed=0)
    picture = plot(tree, table=demo_table(), max_depth=None)
    drawn = [node for node in picture.nodes if node.histogram]
    assert len(drawn) > 3
    for node in drawn:
        counted = sum(map(sum, node.histogram.bars)) + node.histogram.missing
        assert counted == node.weight  # every row has weight 1 in training


def test_a_regression_counts_rows_without_classes():
    x = np.linspace(0, 1, 50)
    model = treekit.train({"x": x, "y": (x > 0.4) * 1.0}, "y", seed=0)
    found = plot(model, table={"x": x, "y": x}).nodes[0].histogram
    assert {len(bar) for bar in found.bars} == {1}
    assert sum(map(sum, found.bars)) == 50


def test_several_targets_are_counted_without_classes():
    table = {"x": [0.0, 1, 2, 3] * 5, "a": list("ppqq") * 5, "b": list("rsss") * 5}
    model = treekit.train(table, ["a", "b"], seed=0, min_weight_leaf=1)
    picture = plot(model, table=table)
    check_markup(picture.svg())
    assert {len(bar) for bar in picture.nodes[0].histogram.bars} == {1}
    assert sum(map(sum, picture.nodes[0].histogram.bars)) == 20


def test_row_with_a_missing_value_marks_every_branch_of_fractional_instances():
    model = model_of(threshold("density", 0.25, NO, YES), missing="fractional")
    picture = plot(model, row={"sugar": 1.0}, table=ROWS)
    assert [node.marked for node in picture.nodes] == [True, True, True]
    found = picture.nodes[0].histogram
    assert (sum(map(sum, found.bars)), found.missing, found.row_at) == (5, 1, None)


def test_the_table_of_a_picture_needs_the_columns_of_the_model():
    with pytest.raises(DataError, match="good"):
        histogram_of(threshold("density", 0.25, NO, YES), {"density": [1.0]})


# ---------------------------------------------------------------- the path of a row


def test_the_path_of_a_row_is_marked_and_shows_its_values():
    root = threshold("density", 0.25, NO, subset("color", ["green"], NO, YES))
    picture = plot(model_of(root), row={"density": 0.5, "color": "black"}, table=ROWS)
    assert [node.marked for node in picture.nodes] == [True, False, True, False, True]
    assert [node.cell for node in picture.nodes] == ["0.5", "", "black", "", ""]
    seen = texts(picture.svg())
    assert {"this row: 0.5", "this row: black"} <= set(seen)
    assert "this row: 0.5" in picture.dot()
    number, color = (picture.nodes[at].histogram.row_at for at in (0, 2))
    assert picture.nodes[0].histogram.split_at < number < 1
    assert color == pytest.approx(0.75)  # of green | black


def test_missing_cell_of_the_row_is_labelled_missing():
    picture = plot(model_of(threshold("density", 0.25, NO, YES)), row={"sugar": 1.0})
    assert picture.nodes[0].cell == "missing"
    assert sum(node.marked for node in picture.nodes) == 2


def test_a_row_that_the_model_refuses_is_an_error():
    model = model_of(threshold("density", 0.25, NO, YES), missing="error")
    with pytest.raises(DataError, match=r"refuses the row: column 'density' is absent"):
        plot(model, row={"sugar": 1.0, "color": "green"})


# ---------------------------------------------------------------- curves


@pytest.fixture(scope="module")
def tree() -> Model:
    return treekit.train(demo_table(), DEMO_TARGET, pruner="cost_complexity", seed=0)


def test_roc_curve_equals_scikit_learn(tree: Model):
    chart = plot_roc(evaluate_model(tree, demo_table()))
    (curve,) = (series for series in chart.series if series.name)
    truth = read_table(demo_table()).get_typed_cells(DEMO_TARGET) == "yes"
    share = tree.predict_proba(demo_table())[:, 1]
    false, true, _ = metrics.roc_curve(truth, share)
    assert curve.points == tuple(zip(false.tolist(), true.tolist(), strict=True))
    assert curve.name == "yes"
    area = metrics.roc_auc_score(truth, share)
    assert np.trapezoid(*np.array(curve.points).T[::-1]) == pytest.approx(area)
    assert any(f"Area under the curve: {area:.3f}" in note for note in chart.notes)
    assert any("training scores" in note for note in chart.notes)
    observed, predicted = calibration_curve(truth, share, n_bins=10, strategy="quantile")
    chart = plot_calibration(evaluate_model(tree, demo_table()))
    (curve,) = (series for series in chart.series if series.name)
    assert curve.points == tuple(zip(predicted.tolist(), observed.tolist(), strict=True))


def test_roc_curve_is_refused_for_regression():
    model = treekit.train({"x": [1.0, 2, 3, 4], "y": [1.5, 2, 3, 4]}, "y", seed=0)
    found = evaluate_model(model, {"x": [1.0, 2], "y": [1.0, 2]})
    for draw in (plot_roc, plot_calibration):
        with pytest.raises(SettingError, match="needs classes, but the target is a number"):
            draw(found)


# ---------------------------------------------------------------- importances


def test_intervals_are_of_the_mean_over_permutations():
    from scipy.stats import t

    drops = np.array([[0.1, 0.2, 0.15], [0.0, 0.0, 0.0]])
    found = Importances(("a", "b"), "accuracy", 0.9, drops)
    low, high = compute_intervals(found)
    wanted = t.interval(0.95, 2, drops[0].mean(), drops[0].std(ddof=1) / math.sqrt(3))
    assert (low[0], high[0]) == pytest.approx(wanted)
    assert (low[1], high[1]) == (0, 0)
    single = Importances(("a", "b"), "r2", 0.9, drops[:, :1])
    assert np.isnan(compute_intervals(single)).all()
    assert "intervals" not in plot_importances(single).notes[0]
    assert plot_importances(found).series[0].intervals[0] == pytest.approx(wanted)


def test_importance_bars_are_sorted_and_omitted_columns_are_counted(tree: Model):
    gains = treekit.gain_importances(tree)
    chart = plot_importances(tree, most=3)
    values = [value for value, _ in chart.series[0].points]
    assert values == sorted(gains.tolist(), reverse=True)[:3]
    assert chart.notes == (f"{len(gains) - 3} more columns with smaller importances.",)
    with pytest.raises(TypeError, match="expected a Model or a fitted estimator"):
        plot_importances("model.treekit")


# ---------------------------------------------------------------- the pruning path


def test_the_pruning_path_marks_the_chosen_tree(tree: Model):
    sequence = tree.provenance["pruner"]["sequence"]
    guide, training, judged = plot_pruning_path(tree).series
    assert {x for x, _ in guide.points} == {tree.n_leaves}
    assert training.points == tuple(zip(sequence["leaves"], sequence["risk"], strict=True))
    assert [y for _, y in judged.points] == sequence["cv_risk"]
    widths = [(high - low) / 2 for low, high in judged.intervals]
    assert widths == pytest.approx(sequence["cv_standard_error"])


def test_long_pruning_path_is_drawn_as_a_line():
    rng = np.random.default_rng(0)
    x = rng.random(200)
    table = {"x": x, "y": x + rng.normal(0, 0.3, 200)}
    model = treekit.train(table, "y", pruner="cost_complexity", seed=0)
    _, training, judged = plot_pruning_path(model).series
    assert len(training.points) > 25
    assert {training.kind, judged.kind} == {"line"}
    root = check_markup(plot_pruning_path(model).svg())
    assert len([e for e in root.iter(f"{SVG}path") if e.get("fill-opacity")]) == 1
    assert not list(root.iter(f"{SVG}circle"))


def test_a_tree_that_was_not_pruned_has_no_path():
    with pytest.raises(SettingError, match="pruner='cost_complexity'"):
        plot_pruning_path(model_of(NO))


# ---------------------------------------------------------------- axes and markup


@given(
    st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=9),
    st.booleans(),
)
def test_axis_ticks_enclose_all_values(values: list[float], zero: bool):
    axis = make_axis("x", values, zero=zero)
    slack = 1e-6 * (axis.high - axis.low)
    assert axis.low - slack <= min(values) <= max(values) <= axis.high + slack
    assert 2 <= len(axis.ticks) <= 9
    assert (axis.ticks[0][0], axis.ticks[-1][0]) == (axis.low, axis.high)


@given(st.floats(1, 1e9))
def test_axis_of_counts_has_integer_ticks(largest: float):
    axis = make_count_axis("leaves", largest)
    places = [axis.place(value) for value, _ in axis.ticks]
    assert places[0] == 0
    assert places == sorted(places)
    assert axis.place(largest) <= 1


def chart_of(text: str) -> Chart:
    bars = Series(text, ((0.5, 0.0),), kind="bars", intervals=((0.25, math.nan),))
    axis = Axis(text, 0, 1, ((0.5, text),))
    return Chart(text, text, axis, make_name_axis([text]), (bars,), (text,))


@pytest.mark.parametrize("name", [name for name in HOSTILE if len(name) < 100 and name.strip()])
def test_hostile_names_are_escaped_in_charts(name: str):
    label = f"{name}!"  # some names are missing values where they are cells
    columns = (Column(name), Column("x", "nominal", (label, "b")))
    schema = Schema(columns, target="y", classes=(label, "yes"))
    root = threshold(name, 0.25, NO, subset("x", [label], NO, YES))
    model = model_of(root, schema)
    table = {name: [0.1, 0.3, 0.4], "x": [label, "b", label], "y": [label, "yes", "yes"]}
    picture = plot(model, table=table, row={name: 0.5, "x": label})
    assert picture.nodes[2].histogram.row_at is not None
    check_markup(picture.svg())
    check_markup(plot_importances(model).svg())
    check_markup(plot_roc(evaluate_model(model, table)).svg())


@given(st.text())
def test_any_text_gives_well_formed_charts(text: str):
    check_markup(chart_of(text).svg())


class Label(NamedTuple):
    label: str
    roc: list[tuple[float, float]]
    calibration: list[tuple[float, float]]


class Scored(NamedTuple):
    title: str
    warning: str
    scores: dict
    classes: list[Label]


@given(st.lists(st.text(), min_size=2, max_size=11), st.text())
def test_any_label_gives_well_formed_curves(labels: list[str], title: str):
    points = [(0.0, 0.0), (0.5, 0.75), (1.0, 1.0)]
    found = Scored(title, "", {}, [Label(label, points, points) for label in labels])
    for draw in (plot_roc, plot_calibration):
        check_markup(draw(found).svg())


def test_a_notebook_shows_charts_as_pictures(tree: Model):
    chart = plot_importances(tree)
    assert chart._repr_svg_() == chart.svg()
    assert chart.svg() in chart._repr_html_()
    root = check_markup(chart.svg())
    assert (root.get("role"), root[0].text) == ("img", "Feature importances")
    assert "abdomen" in texts(chart.svg())


def test_the_command_line_draws_charts(tree: Model, tmp_path: Path):
    path, table = tmp_path / "m.treekit", str(demo_table())
    tree.save(path)

    def call(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, ["plot", str(path), *arguments], catch_exceptions=False)
        assert done.exit_code == code, done.output
        return " ".join(done.stderr.split())

    out = tmp_path / "a.svg"
    drawn = {
        "importances": plot_importances(tree),
        "pruning-path": plot_pruning_path(tree),
    }
    for name, chart in drawn.items():
        call("--of", name, "-o", str(out))
        assert out.read_text(encoding="utf-8") == chart.svg()
    found = evaluate_model(tree, demo_table())
    for name, chart in (("roc", plot_roc(found)), ("calibration", plot_calibration(found))):
        call("--of", name, "--table", table, "-o", str(out))
        assert out.read_text(encoding="utf-8") == chart.svg()
    call("--of", "importances", "--table", table, "-o", str(out))
    assert "Permutation importances" in out.read_text(encoding="utf-8")
    call("--table", table, "--row", "3", "-o", str(out))
    assert "this row: " in out.read_text(encoding="utf-8")
    call("--row", "pain=depressed", "-o", str(out))
    assert "this row: depressed" in out.read_text(encoding="utf-8")
    assert "needs rows with the target" in call("--of", "roc", "-o", str(out), code=2)
    assert "is written as .svg" in call("--of", "roc", "-o", str(tmp_path / "a.dot"), code=2)
    told = call("--of", "pruning-path", "--table", table, "-o", str(out), code=2)
    assert "--table is not used" in told
    told = call("--of", "roc", "--table", table, "--row", "1", "-o", str(out), code=2)
    assert "--row is for --of tree" in told
