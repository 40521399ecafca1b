"""Pictures of trees: their contents, their layout, and the escaping of names."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from treekit_plot import MOST_ENDS, Picture, plot
from treekit_plot.dot import quote_lines
from treekit_plot.layout import clip_text, compute_centres, estimate_text_width, wrap_text
from treekit_plot.picture import MAX_PATH_DEPTH
from treekit_plot.svg import INK, PAPER, _compute_luminance, class_colour, element, escaped, ink_on
from treekit_plot.wording import format_approximate, format_picture_label, format_rounded_percent

import treekit
from tests.examples import examples
from tests.export.test_all_targets import HOSTILE, hostile_model
from tests.reference.models import chain, mixed_schema, random_model
from tests.strategies import models
from treekit.cli import main
from treekit.data.schema import Column, Output, Schema
from treekit.errors import SettingError
from treekit.model.builder import (
    Surrogate,
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    subset,
    threshold,
)
from treekit.model.model import Model, make_model
from treekit.rules.language import load_language
from treekit.rules.wording import join_choices

sys.path.insert(0, str(Path(__file__).parent))
read_dot = import_module("read_dot").read_dot
slowly = import_module("plain_layout").tidy

# ---------------------------------------------------------------- plot

MELONS = Path(__file__).resolve().parents[3] / "examples" / "tables" / "watermelon"
SVG = "{http://www.w3.org/2000/svg}"
SCHEMA = Schema(
    (Column("density"), Column("color", "nominal", ("green", "black", "white")), Column("sugar")),
    target="good",
    classes=("no", "yes"),
)


def model_of(*roots, schema: Schema = SCHEMA, **policies) -> Model:
    return make_model(schema, [build_tree(root, schema) for root in roots], **policies)


def parsed(picture: Picture) -> ET.Element:
    return ET.fromstring(picture.svg())


def texts(picture: Picture) -> list[str]:
    """What a reader sees, text after text, tooltips left out."""
    return ["".join(text.itertext()) for text in parsed(picture).iter(f"{SVG}text")]


def hovers(picture: Picture) -> list[str]:
    titles = (group.find(f"{SVG}title") for group in parsed(picture).findall(f"{SVG}g"))
    return [title.text for title in titles if title is not None]


# ---------------------------------------------------------------- what a node says


def asked(root, **policies) -> tuple[str, list[tuple[str, str]]]:
    """The question of the root, and its branches with what follows them."""
    question = plot(model_of(root, **policies)).nodes[0].question
    assert question is not None
    return question.text, [(branch.label, branch.rest) for branch in question.branches]


NO, YES = leaf([3, 0]), leaf([0, 5])


def test_a_threshold_is_exact_and_states_the_branch_of_missing_values():
    at = float(np.float32(0.3815))
    assert asked(threshold("density", at, NO, YES, missing=0)) == (
        "density ≤ 0.3815",
        [("yes", "or missing"), ("no", "")],
    )


def test_categorical_split_lists_the_categories_of_its_first_branch():
    assert asked(subset("color", ["green", "black"], NO, YES)) == (
        "color is green or black",
        [("yes", ""), ("no", "or missing")],
    )


def test_multiway_branches_are_labelled_with_their_categories():
    split = multiway("color", {"green": NO, "white": YES, "black": NO}, missing=1)
    assert asked(split) == ("color = ?", [("green", ""), ("white", "or missing"), ("black", "")])


def test_missing_value_split_mentions_missing_values_once():
    assert asked(is_missing("color", NO, YES)) == (
        "color is missing",
        [("yes", ""), ("no", "")],
    )


def test_oblique_split_is_shown_as_a_weighted_sum():
    split = oblique({"density": -0.5, "sugar": 1.0}, 0.25, NO, YES)
    assert asked(split)[0] == "-0.5 × density + sugar ≤ 0.25"
    split = oblique({"density": 0.125, "sugar": -2.0}, -1e-9, NO, YES)
    assert asked(split)[0] == "0.125 × density − 2 × sugar ≤ -1e-09"


def test_surrogates_are_listed_below_the_split_condition():
    surrogates = [
        Surrogate("sugar", 0.125, below=1),
        Surrogate("color", levels={"green": 0, "white": 1}),
    ]
    model = model_of(
        threshold("density", 0.25, NO, YES, surrogates=surrogates), missing="surrogate"
    )
    picture = plot(model)
    assert picture.nodes[0].question.surrogates == ("sugar > 0.125", "color is green")
    assert "if missing: sugar > 0.125, and 1 more" in texts(picture)
    assert "if missing: color is green" in hovers(picture)[0]
    assert any("“if missing” decides" in note for note in picture.notes)


@pytest.mark.parametrize("missing", ["fractional", "error"])
def test_branches_do_not_mention_missing_values_if_neither_takes_them(missing: str):
    split = threshold("density", 0.25, NO, YES)
    assert asked(split, missing=missing)[1] == [("yes", ""), ("no", "")]
    (note,) = plot(model_of(split, missing=missing)).notes
    assert ("in proportion" if missing == "fractional" else "is refused") in note


def test_absent_categories_follow_missing_values_or_are_labelled_any_other():
    split = subset("color", ["green"], NO, YES, missing=1, absent=["white"])
    assert asked(split)[1] == [("yes", ""), ("no", "or missing")]
    assert asked(split, missing="error")[1] == [("yes", ""), ("no", "or any other")]


def test_tooltip_shows_the_complete_condition_of_a_branch():
    split = threshold("density", 0.25, subset("color", ["green"], NO, YES), is_missing(2, YES, NO))
    said = [text.splitlines()[0] for text in hovers(plot(model_of(split)))[1:]]
    assert said == [
        "density ≤ 0.25",
        "density > 0.25 or missing",
        "color is green",
        "color is black or white or missing",
        "sugar is missing",
        "sugar is known",
    ]


def test_a_leaf_without_training_rows_is_dashed_with_a_note():
    split = multiway("color", {"green": NO, "black": leaf([3, 5], weight=0), "white": YES})
    picture = plot(model_of(split))
    assert "no training rows" in texts(picture)
    assert [n.weight for n in picture.nodes] == [8, 3, 0, 5]
    frames = [
        group.findall(f"{SVG}rect")[1] for group in parsed(picture).findall(f"{SVG}g")
        if group.find(f"{SVG}title") is not None and group.find(f"{SVG}rect").get("rx") == "3"
    ]  # fmt: skip
    assert [frame.get("stroke-dasharray") for frame in frames] == [None, "4 3", None]


def test_shares_and_weights_equal_those_of_the_training_rows():
    picture = plot(model_of(threshold("density", 0.25, NO, YES)))
    shown = texts(picture)
    assert {"100% · 8", "37.5% · 3", "62.5% · 5"} <= set(shown)
    assert "37.5% of the training weight: 3 of 8" in hovers(picture)[1]


@settings(max_examples=examples(25))
@given(models())
def test_leaves_state_the_predictions_and_weights_of_the_rules(model: Model):
    for number in range(model.n_trees):
        picture = plot(model, tree=number, max_depth=None)
        leaves = {n.node: at for at, n in enumerate(picture.nodes) if n.question is None}
        (target,) = picture.targets
        rules = model.rules(join=False).of_tree(number)
        assert sorted(leaves) == sorted(rule.leaf for rule in rules)
        for rule in rules:
            answer = target.answers[leaves[rule.leaf]]
            if rule.label is None:
                assert float(answer.exact) == rule.value
            else:
                assert answer.text == format_picture_label(rule.label)


def test_leaf_shows_the_prediction_of_least_expected_cost():
    split = threshold("density", 0.25, leaf([4, 1]), leaf([9, 1]))
    picture = plot(model_of(split, costs=[[0, 1], [5, 0]]))
    assert [answer.text for answer in picture.targets[0].answers] == ["no", "yes", "no"]


def test_every_output_has_a_bar_and_a_line():
    schema = Schema(SCHEMA.columns, target="a", classes=("p", "q"), more=(Output("b", (1, 2, 3)),))
    split = threshold("density", 0.5, leaf([1, 2, 3, 0, 0], weight=3), leaf([4, 1, 0, 5, 0], 5))
    picture = plot(model_of(split, schema=schema))
    assert [target.name for target in picture.targets] == ["a", "b"]
    assert {"a: q", "b: 1", "a: p", "b: 2"} <= set(texts(picture))
    assert {"p", "q", "1", "2", "3"} <= set(texts(picture))


def test_rounded_predictions_are_marked_and_share_one_scale():
    schema = Schema(SCHEMA.columns, target="price", task="regression")
    split = threshold("density", 0.5, leaf(-2.5), threshold("sugar", 1, leaf(10), leaf(1 / 3)))
    (target,) = plot(model_of(split, schema=schema)).targets
    shown = [answer.text for answer in target.answers]
    assert shown[1] == "-2.5"
    assert shown[3:] == ["10", "≈ 0.33333"]
    assert target.answers[4].position == pytest.approx((1 / 3 + 2.5) / 12.5)
    assert float(target.answers[4].exact) == pytest.approx(1 / 3)


def test_predictions_near_the_float_limits_have_finite_positions():
    schema = Schema(SCHEMA.columns, task="regression", dtype="float64")
    split = threshold("density", 0.5, leaf(-1.5e308), leaf(1.7e308))
    (target,) = plot(model_of(split, schema=schema)).targets
    assert [answer.position for answer in target.answers][1:] == [0.0, 1.0]


def test_classes_beyond_the_palette_share_one_bar_with_their_total_weight():
    weights = [float(i) for i in range(1, 31)]
    schema = Schema(SCHEMA.columns, classes=tuple(f"c{i}" for i in range(30)))
    (target,) = plot(model_of(leaf(weights), schema=schema)).targets
    assert target.entries == (*(f"c{i}" for i in range(22, 30)), "other classes")
    assert target.answers[0].bars == (*weights[22:], sum(weights[:22]))
    assert (target.answers[0].text, target.answers[0].entry) == ("c29", 7)


# ---------------------------------------------------------------- how much is drawn


@settings(max_examples=examples(40))
@given(models(max_trees=1), st.integers(0, 5))
def test_max_depth_counts_the_hidden_leaves_of_each_cut(model: Model, depth: int):
    tree = model.trees[0]
    picture = plot(model, max_depth=depth)
    assert [n.node for n in picture.nodes] == np.flatnonzero(tree.depths <= depth).tolist()
    parent, below = tree.parent, np.zeros(tree.n_nodes, int)
    for leaf_node in tree.leaves:
        at = leaf_node
        while at >= 0:
            below[at] += 1
            at = parent[at]
    for n in picture.nodes:
        is_cut = n.depth == depth and tree.n_children[n.node] > 0
        assert n.hidden == (below[n.node] if is_cut else 0)
    drawn = sum(tree.n_children[n.node] == 0 for n in picture.nodes)
    assert drawn + sum(n.hidden for n in picture.nodes) == tree.n_leaves


def test_a_large_tree_is_cut_with_a_note():
    model = random_model(3, mixed_schema(), n_trees=2, n_splits=120)
    picture = plot(model)
    ends = sum(n.question is None for n in picture.nodes)
    depth = max(n.depth for n in picture.nodes)
    assert ends <= MOST_ENDS
    deeper = plot(model, max_depth=depth + 1)
    assert sum(n.question is None for n in deeper.nodes) > MOST_ENDS
    hidden = sum(n.hidden for n in picture.nodes)
    total = model.trees[0].n_leaves
    assert picture.notes[0] == (
        f"Cut at depth {depth}: {total - hidden} of {total} leaves are drawn."
    )
    assert (
        sum(int(n) for t in texts(picture) for n in re.findall(r"^… (\d+) more lea", t)) == hidden
    )


def test_small_tree_is_drawn_completely():
    picture = plot(model_of(threshold("density", 0.25, NO, YES)))
    assert not any("Cut" in note for note in picture.notes)


def bold(picture: Picture, tag: str) -> int:
    """Boxes, or edges, that are drawn as those of a marked way."""
    found = parsed(picture).iter(f"{SVG}{tag}")
    return sum(
        one.get("stroke") == INK and float(one.get("stroke-width", "0")) >= 3 for one in found
    )


def test_marking_a_node_highlights_its_path_from_the_root():
    model = random_model(5, mixed_schema(), n_trees=1, n_splits=12)
    tree = model.trees[0]
    for node in (0, int(tree.leaves[-1]), int(tree.leaves[2])):
        way = [node]
        while way[-1]:
            way.append(int(tree.parent[way[-1]]))
        picture = plot(model, marked=[node], max_depth=None)
        assert sorted(way) == [drawn.node for drawn in picture.nodes if drawn.marked]
        assert (bold(picture, "rect"), bold(picture, "path")) == (len(way), len(way) - 1)
        assert sum(hover.startswith("on the marked way\n") for hover in hovers(picture)) == len(way)
        assert picture.dot().count(f'color="{INK}", penwidth') == len(way)
    assert bold(plot(model, max_depth=None), "rect") == 0


def test_only_the_marked_path_and_its_siblings_are_drawn_in_a_large_tree():
    model = random_model(5, mixed_schema(), n_trees=1, n_splits=60)
    tree = model.trees[0]
    leaf_node = int(tree.leaves[len(tree.leaves) // 2])
    assert plot(model).notes[0].startswith("Cut at depth"), "too large to be drawn whole"
    picture = plot(model, marked=[leaf_node])
    assert picture.nodes == plot(model, marked=[leaf_node], max_depth="way").nodes
    way = {drawn.node for drawn in picture.nodes if drawn.marked}
    beside = {int(child) for child in range(1, tree.n_nodes) if int(tree.parent[child]) in way}
    assert {drawn.node for drawn in picture.nodes} == {0} | beside
    hidden = sum(drawn.hidden for drawn in picture.nodes)
    assert picture.notes[0] == (
        "Only the marked way and what branches off it is drawn: "
        f"{tree.n_leaves - hidden} of {tree.n_leaves} leaves."
    )
    asked = {drawn.node for drawn in picture.nodes if drawn.question}
    assert asked == way - set(tree.leaves.tolist())


def test_very_long_path_is_truncated_with_a_note():
    model = chain(MAX_PATH_DEPTH + 20, mixed_schema())
    tree = model.trees[0]
    deepest = int(np.argmax(tree.depths))
    picture = plot(model, marked=[deepest], language="zh")
    assert max(drawn.depth for drawn in picture.nodes) == MAX_PATH_DEPTH
    assert picture.notes[1] == f"标记的路径在深度 {MAX_PATH_DEPTH} 以下继续。"
    assert len(plot(model, marked=[deepest], max_depth=3).nodes) == 7, "a depth is a depth"


@pytest.mark.matrix
def test_a_deep_tree_is_drawn_completely_on_request():
    picture = plot(chain(1100, mixed_schema()), max_depth=None)
    assert len(picture.nodes) == 2201
    assert len(list(parsed(picture).iter(f"{SVG}path"))) == 2200
    assert len(read_dot(picture.dot())[1]) == 2200


def test_single_leaf_is_drawn():
    picture = plot(model_of(leaf([3, 5])))
    assert picture.notes == ()
    assert "yes" in texts(picture)


# ---------------------------------------------------------------- that it fits


def boxes(picture: Picture) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of each node's box."""
    found = []
    for group in parsed(picture).findall(f"{SVG}g"):
        if group.find(f"{SVG}title") is None:
            continue
        rect = next(r for r in group.findall(f"{SVG}rect") if r.get("stroke"))
        x, y, width, height = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
        found.append((x, y, x + width, y + height))
    return found


@settings(max_examples=examples(25))
@given(models())
def test_boxes_lie_within_the_picture_without_overlap(model: Model):
    picture = plot(model, max_depth=None)
    root = parsed(picture)
    width, height = float(root.get("width")), float(root.get("height"))
    found = boxes(picture)
    assert len(found) == len(picture.nodes)
    for left, top, right, bottom in found:
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    for i, a in enumerate(found):
        for b in found[:i]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_text_fits_its_box_by_the_estimated_width():
    picture = plot(hostile_model(), max_depth=None)
    groups = [g for g in parsed(picture).findall(f"{SVG}g") if g.find(f"{SVG}title") is not None]
    for group, (left, _, right, _) in zip(groups, boxes(picture), strict=True):
        for text in group.findall(f"{SVG}text"):
            if text.get("font-weight") == "bold":
                assert estimate_text_width(text.text, 13, bold=True) <= right - left


@pytest.mark.parametrize(
    ("text", "em"), [("瓜", 1.0), ("ㅎ", 1.0), ("🍉", 1.0), ("e\u0301", 0.65), ("\u0301", 0.0)]
)
def test_text_widths_respect_wide_and_combining_characters(text: str, em: float):
    assert estimate_text_width(text, 100) == pytest.approx(100 * em, abs=5)


@given(st.text(max_size=60), st.floats(20, 300))
def test_clipped_text_fits_and_is_a_prefix(text: str, width: float):
    short = clip_text(text, width, 13)
    assert estimate_text_width(short, 13) <= max(width, estimate_text_width("…", 13))
    assert short == text or text.startswith(short[:-1].rstrip())


@given(st.lists(st.text("abcW瓜", min_size=1, max_size=8), min_size=1, max_size=12))
def test_wrapped_text_is_complete_unless_it_ends_in_an_ellipsis(words: list[str]):
    text = " ".join(words)
    lines = wrap_text(text, 120, 13, 3)
    assert len(lines) <= 3
    assert all(estimate_text_width(line, 13) <= 120 for line in lines)
    if not any(line.endswith("…") for line in lines):
        assert " ".join(lines) == text


def test_wrapped_lines_are_about_equally_long():
    assert wrap_text("aaaa bbbb cccc d", estimate_text_width("aaaa bbbb cccc", 13), 13, 3) == [
        "aaaa bbbb",
        "cccc d",
    ]


# ---------------------------------------------------------------- colours


def contrast(a: str, b: str) -> float:
    low, high = sorted((_compute_luminance(a) + 0.05, _compute_luminance(b) + 0.05))
    return high / low


@pytest.mark.parametrize("entry", range(9))
def test_numbers_on_bars_have_sufficient_contrast(entry: int):
    assert contrast(class_colour(entry), ink_on(class_colour(entry))) >= 4.5


@pytest.mark.parametrize("entry", range(2))
def test_colours_of_the_first_classes_differ_in_grey(entry: int):
    assert contrast(class_colour(entry), class_colour(entry + 1)) >= 1.5


def test_a_picture_has_a_role_a_title_and_a_description():
    root = parsed(plot(model_of(threshold("density", 0.25, NO, YES))))
    assert root.get("role") == "img"
    assert [root[0].tag, root[1].tag] == [f"{SVG}title", f"{SVG}desc"]
    assert root[0].text == "Decision tree for good"
    assert root[1].text == "2 leaves, depth 1; density ≤ 0.25 asks first."


def test_picture_has_an_opaque_background():
    root = parsed(plot(model_of(NO)))
    paper = root.find(f"{SVG}rect")
    assert (paper.get("fill"), paper.get("width")) == (PAPER, root.get("width"))


# ---------------------------------------------------------------- hostile names

ALLOWED = {"svg", "title", "desc", "rect", "g", "path", "text", "tspan", "circle"}


def test_hostile_names_are_escaped():
    model = hostile_model()
    for tree in range(0, model.n_trees, 5):
        picture = plot(model, tree=tree)
        root = parsed(picture)
        assert {e.tag.removeprefix(SVG) for e in root.iter()} <= ALLOWED
        names = {name for e in root.iter() for name in e.attrib}
        assert not {name for name in names if "href" in name or name.startswith("on")}
        assert "style" not in names
        assert "id" not in names
        nodes, edges = read_dot(picture.dot())
        assert len(nodes) == len(picture.nodes) + 3
        assert len(edges) == len(picture.nodes) - 1


@pytest.mark.parametrize("name", [name for name in HOSTILE if len(name) < 100])
def test_names_are_shown_unchanged_or_quoted(name: str):
    shown = format_picture_label(name)
    assert shown.isprintable() or set(shown) - {c for c in shown if c.isprintable()} <= {
        "\u2068",
        "\u2069",
    }
    assert ET.fromstring(element("text", escaped(shown))).text == shown
    assert ET.fromstring(element("text", title=shown)).get("title") == shown
    label = read_dot(f"digraph tree {{ n0 [label={quote_lines(shown)}]; }}")[0]["n0"]["label"]
    assert label == shown


@given(st.text())
def test_any_text_is_escaped_for_xml_and_dot(text: str):
    legal = "".join(c if re.match(r"[\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", c)
                    else "\ufffd" for c in text)  # fmt: skip
    assert (ET.fromstring(element("text", escaped(text))).text or "") == legal
    assert ET.fromstring(element("text", title=text)).get("title") == legal
    shown = format_picture_label(text)
    label = read_dot(f"digraph tree {{ n0 [label={quote_lines(shown)}]; }}")[0]["n0"]["label"]
    assert label == shown
    ET.fromstring(element("text", escaped(shown)))


def test_names_that_would_be_misread_are_quoted():
    assert format_picture_label("a  b") == '"a  b"'
    assert format_picture_label(" a") == '" a"'
    assert format_picture_label("") == '""'
    assert format_picture_label("a\nb") == '"a\\nb"'
    assert format_picture_label("\u202egnirts") == '"\\u202egnirts"'
    assert format_picture_label("hours-per-week") == "hours-per-week"
    assert format_picture_label("色泽") == "色泽"


def test_right_to_left_names_do_not_move_numbers():
    assert format_picture_label("وزن") == "\u2068وزن\u2069"


def test_long_names_and_lists_are_truncated():
    assert len(format_picture_label("x" * 5000)) == 200
    english = load_language()
    assert join_choices(["aa", "bb", "cc"], english) == "aa, bb or cc"
    assert join_choices(["aa", "bb", "cc", "dd"], english, 8) == "aa, bb or 2 more"
    assert len(join_choices([f"level {i}" for i in range(9999)], english, 2000)) < 2100


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (-0.0, "0"), (123456.0, "123456"), (1234567.0, "≈ 1.2346e06"), (1e300, "1e300")],
)
def test_rounded_values_are_marked(value: float, text: str):
    assert format_approximate(value) == text


@pytest.mark.parametrize(("share", "text"), [(1, "100%"), (1 / 17, "5.88%"), (1e-6, "< 0.01%")])
def test_percentages_are_rounded(share: float, text: str):
    assert format_rounded_percent(share) == text


# ---------------------------------------------------------------- DOT


def test_dot_output_has_the_labels_of_the_picture():
    split = multiway("color", {"green": NO, "black": leaf([0, 1], weight=0), "white": YES})
    nodes, edges = read_dot(plot(model_of(split)).dot())
    assert nodes["n0"]["label"] == "color = ?\nyes\nno 3 · yes 6\n100% · 8"
    assert nodes["n3"]["label"] == "yes\nyes 5\n62.5% · 5"
    assert edges["n0", "n1"]["label"] == "green or missing"
    assert "dashed" in nodes["n2"]["style"]
    assert nodes["graph"]["label"].startswith("Decision tree for good\n")


def test_dot_of_hostile_names_is_read_as_graphviz_reads_it():
    text = plot(hostile_model(), tree=1).dot()
    assert text.startswith("digraph tree {\n")
    nodes, edges = read_dot(text)  # as strict as Graphviz
    assert len(edges) == 4
    assert {end for edge in edges for end in edge} <= set(nodes)


# ---------------------------------------------------------------- the front doors


def test_python_api_draws_writes_and_displays_pictures(tmp_path: Path):
    model = treekit.train(MELONS / "watermelon_3.0.csv", "好瓜", ignore=["编号"], seed=0)
    place = tmp_path / "deep" / "tree.svg"
    picture = plot(model, place, language="zh")
    assert place.read_text(encoding="utf-8") == picture.svg()
    plot(model, tmp_path / "tree.dot", language="zh")
    assert (tmp_path / "tree.dot").read_text(encoding="utf-8") == picture.dot()
    assert picture.title == "决策树: 好瓜"
    assert plot(model).svg() in model._repr_html_()
    assert "纹理" in picture.svg()


def test_a_forest_in_a_notebook_shows_its_first_tree_with_a_note():
    model = model_of(NO, threshold("density", 0.25, NO, YES))
    assert "Decision tree for good (tree 1 of 2)" in model._repr_html_()
    assert "tree 2 of 2" in plot(model, tree=1).title


def test_plot_accepts_fitted_estimators():
    x = np.array([[0.0], [1.0], [2.0], [3.0]])
    estimator = treekit.DecisionTreeClassifier(random_state=0).fit(x, ["a", "a", "b", "b"])
    assert plot(estimator).svg() == plot(estimator.model_).svg()
    with pytest.raises(TypeError, match="expected a Model or a fitted estimator"):
        plot("model.treekit")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tree": 1}, "there is no tree 1: trees are numbered from 0 to 0"),
        ({"tree": -1}, "no tree -1"),
        ({"max_depth": -1}, "max_depth of a picture is -1"),
        ({"max_depth": "way"}, "'way' (only if nodes are marked)"),
        ({"marked": [9]}, "there is no node 9: nodes are numbered from 0 to"),
        ({"marked": [-1]}, "there is no node -1"),
        ({"max_depth": "deep"}, "expected an integer >= 0, 'auto', 'way'"),
        ({"language": "fr"}, "unknown language 'fr'"),
        ({"path": "tree.png"}, "must end in .svg or .dot"),
    ],
)
def test_models_that_cannot_be_drawn_are_refused(options: dict, said: str):
    with pytest.raises(SettingError, match=re.escape(said)):
        plot(model_of(NO), **options)


def test_command_line_draws_pictures(tmp_path: Path):
    path = tmp_path / "m.treekit"
    split = threshold("density", 0.25, threshold("sugar", 0.5, NO, YES), YES)
    model = model_of(split, NO)
    model.save(path)

    def call(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, ["plot", str(path), *arguments], catch_exceptions=False)
        assert done.exit_code == code, done.output
        return " ".join(done.stderr.split())

    call("-o", str(tmp_path / "a.svg"))
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == plot(model).svg()
    call("-o", str(tmp_path / "a.dot"), "--tree", "2", "--lang", "zh")
    assert "第 2 棵, 共 2 棵" in (tmp_path / "a.dot").read_text(encoding="utf-8")
    call("-o", str(tmp_path / "b.svg"), "--max-depth", "1")
    assert "… 2 more leaves" in (tmp_path / "b.svg").read_text(encoding="utf-8")
    call("-o", str(tmp_path / "b.svg"), "--max-depth", "all")
    assert (tmp_path / "b.svg").read_text(encoding="utf-8") == plot(model).svg()
    assert "there is no tree 3" in call("-o", str(tmp_path / "c.svg"), "--tree", "3", code=2)
    assert "'x' is not a depth" in call("-o", str(tmp_path / "c.svg"), "--max-depth", "x", code=2)
    assert "must end in .svg or .dot" in call("-o", str(tmp_path / "c.png"), code=2)
    assert "is an input of this command" in call("-o", str(path), code=2)
    assert not (tmp_path / "c.svg").exists()


@pytest.mark.system
def test_drawing_needs_no_heavy_library():
    code = (
        "import sys, treekit_plot.draw; from treekit_plot.svg import write_svg;"
        "print({'numba', 'onnx', 'sklearn', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ---------------------------------------------------------------- plot layout
# Tidy drawings: where nodes stand, and that it takes linear time.


@st.composite
def shapes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """First child and number of children of each node of a tree of up to some 60 nodes."""
    first, count, at = [-1], [0], 0
    while at < len(first) and len(first) < 60:
        n = draw(st.sampled_from([0, 0, 1, 2, 2, 3, 5])) if at else draw(st.integers(0, 5))
        if n:
            first[at], count[at] = len(first), n
            first += [-1] * n
            count += [0] * n
        at += 1
    return first, count


@st.composite
def drawings(draw: st.DrawFn) -> tuple[list[int], list[int], list[float]]:
    first, count = draw(shapes())
    width = st.floats(1, 100, allow_subnormal=False)
    return first, count, draw(st.lists(width, min_size=len(first), max_size=len(first)))


def levels(first: list[int], count: list[int]) -> list[list[int]]:
    result, level = [], [0]
    while level:
        result.append(level)
        level = [c for v in level for c in range(first[v], first[v] + count[v])]
    return result


@given(drawings())
def test_node_positions_equal_the_slow_layout(drawing):
    assert compute_centres(*drawing, 1.0, 3.0) == pytest.approx(
        slowly(*drawing, 1.0, 3.0), abs=1e-6
    )


@given(drawings())
def test_nodes_of_a_level_keep_their_order_and_their_distance(drawing):
    first, count, widths = drawing
    x = compute_centres(first, count, widths, 2.0)
    for level in levels(first, count):
        for a, b in itertools.pairwise(level):
            assert x[b] - x[a] >= (widths[a] + widths[b]) / 2 + 2.0 - 1e-6


@given(drawings())
def test_parents_are_centred_over_children_and_positions_start_at_zero(drawing):
    first, count, widths = drawing
    x = compute_centres(first, count, widths, 2.0)
    for node, n in enumerate(count):
        if n:
            assert x[node] == pytest.approx((x[first[node]] + x[first[node] + n - 1]) / 2)
    assert min(c - w / 2 for c, w in zip(x, widths, strict=True)) == pytest.approx(0, abs=1e-9)


@given(drawings())
def test_equal_subtrees_are_drawn_equally_at_any_position(drawing):
    first, count, widths = drawing
    n = len(first)
    # Twice the same tree below one root: the levels of both stay side by side.
    order = [(node, copy) for level in levels(first, count) for copy in (0, 1) for node in level]
    place = {pair: at + 1 for at, pair in enumerate(order)}
    two_first = [1] + [place[first[v], c] if count[v] else -1 for v, c in order]
    two_count = [2] + [count[v] for v, _ in order]
    x = compute_centres(two_first, two_count, [1.0] + [widths[v] for v, _ in order], 2.0)
    for copy in (0, 1):
        shape = [x[place[v, copy]] - x[place[0, copy]] for v in range(n)]
        alone = compute_centres(first, count, widths, 2.0)
        assert shape == pytest.approx([a - alone[0] for a in alone], abs=1e-6)


def test_a_small_subtree_between_large_ones_shares_the_space():
    # Children 1 and 3 have wide subtrees; 2 stands in the middle, not beside its left sibling.
    first = [1, 4, -1, 7, -1, -1, -1, -1, -1, -1]
    count = [3, 3, 0, 3, 0, 0, 0, 0, 0, 0]
    x = compute_centres(first, count, [1.0] * 10, 1.0)
    assert x[2] == pytest.approx((x[1] + x[3]) / 2)
    assert x[4:] == pytest.approx([0.5, 2.5, 4.5, 6.5, 8.5, 10.5])


def test_a_chain_of_the_deepest_allowed_tree_is_drawn_without_recursion():
    depth = 5000
    first = [v + 1 if v % 2 == 0 and v < 2 * depth else -1 for v in range(2 * depth + 1)]
    count = [2 if f > 0 else 0 for f in first]
    x = compute_centres(first, count, [1.0] * len(first), 1.0)
    assert all(x[f + 1] - x[f] == pytest.approx(2.0) for f in first if f > 0)


class CountedList(list):
    """Counts how often an entry is read."""

    reads = 0

    def __getitem__(self, at):
        CountedList.reads += 1
        return super().__getitem__(at)


def comb(size: int, *, lean: int) -> list[int]:
    """First children where each node has a leaf and, on one side, the rest of the comb."""
    n = 2 * size + 1
    if lean:
        return [v + 1 if v % 2 == 0 and v < n - 1 else -1 for v in range(n)]
    return [1, *(v + 2 if v % 2 and v < n - 2 else -1 for v in range(1, n))]


def full(size: int) -> list[int]:
    """First children of a binary tree whose levels are all full."""
    return [2 * v + 1 if v < size else -1 for v in range(2 * size + 1)]


@pytest.mark.parametrize("shape", [lambda n: comb(n, lean=0), lambda n: comb(n, lean=1), full])
def test_layout_time_is_linear_in_the_number_of_nodes(shape):
    def reads(size: int) -> float:
        first = shape(size)
        CountedList.reads = 0
        compute_centres(
            first, CountedList(2 if f > 0 else 0 for f in first), [1.0] * len(first), 1.0
        )
        return CountedList.reads / size

    assert reads(4095) < 1.2 * reads(511)
