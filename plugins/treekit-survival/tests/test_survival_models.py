"""Survival trees and forests on a real table: their accuracy, and exports without the package."""

import csv
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from treekit_survival import ROSSI, concordance, curves, curves_of, kaplan_meier

import treekit
from treekit import registry
from treekit.cli import main
from treekit.errors import DataError, SettingError
from treekit.testing import check_criterion

OWN = {"criterion": "log_rank", "criterion.event": "arrest"}
PROPORTIONAL = OWN | {"criterion": "relative_risk"}


@pytest.fixture(scope="module")
def rossi():
    with ROSSI.open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    table = dict(zip(header, np.array(rows, dtype=np.float64).T, strict=True))
    table["home"] = np.array(["Ōsaka", "Γ", "a,b", 'q"'])[np.arange(432) % 4]
    return table


def train(rossi, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it compiles
        return treekit.train(rossi, "week", **OWN | {"seed": 0} | settings)


def test_leaf_predicts_the_kaplan_meier_curve_of_its_rows(rossi):
    model = train(rossi, **{"criterion.bins": 0}, max_depth=1, min_weight_leaf=50)
    tree = model.trees[0]
    name = model.schema.names[tree.feature[0]]
    left = rossi[name] <= tree.threshold[0]
    said = curves(model, rossi)
    for side in (left, ~left):
        times, survival = kaplan_meier(rossi["week"][side], rossi["arrest"][side])
        assert said.at(times)[side] == pytest.approx(np.tile(survival, (side.sum(), 1)))
    assert np.unique(said.risk).size == 2
    assert concordance(rossi["week"], rossi["arrest"], said.risk) > 0.55


def test_root_split_has_the_largest_log_rank_statistic(rossi):
    from treekit_survival.samples import two_samples
    from treekit_survival.timeline import make_timeline

    model = train(rossi, **{"criterion.bins": 0}, max_depth=1, min_weight_leaf=20)
    line = make_timeline(rossi["week"], rossi["arrest"] == 1, None, 0)
    cells = line.place(rossi["week"], rossi["arrest"] == 1)
    parent = np.bincount(cells, minlength=line.cells).astype(float)
    best = {}
    for name in ("fin", "age", "race", "wexp", "mar", "paro", "prio"):
        for low in np.unique(rossi[name])[:-1]:
            left = rossi[name] <= low
            if 20 <= left.sum() <= 412:
                branch = np.bincount(cells[left], minlength=line.cells).astype(float)
                best[name, low] = two_samples(parent, np.stack([branch, parent - branch]), 1.0)
    (name, low), score = max(best.items(), key=lambda item: item[1])
    tree = model.trees[0]
    assert model.schema.names[tree.feature[0]] == name
    assert low <= tree.threshold[0] < low + 1
    assert tree.gain[0] == pytest.approx(score, rel=1e-12)


def simulated(rows, seed):
    """Simulate hazards that depend on x if `kind` is b, and never on z; a third is censored."""
    rng = np.random.default_rng(seed)
    x, z, kind = rng.normal(size=rows), rng.normal(size=rows), rng.integers(0, 2, rows)
    rate = np.exp(np.where(kind, 1.5 * x, 0.0))
    time, gone = rng.exponential(size=rows) / rate, rng.exponential(2.0, size=rows)
    table = {"x": x, "z": z, "kind": np.array(["a", "b"])[kind], "home": np.full(rows, "here")}
    return table | {"week": np.minimum(time, gone), "arrest": time <= gone}, rate


@pytest.mark.parametrize("own", [OWN, PROPORTIONAL], ids=["log_rank", "relative_risk"])
def test_forest_ranks_test_rows_nearly_as_the_true_rate(own):
    first, (rest, rate) = simulated(600, 1)[0], simulated(600, 2)
    forest = train(first, **own, ensemble="forest", trees=40, min_weight_leaf=15, n_jobs=2)
    said = curves(forest, rest)
    best = concordance(rest["week"], rest["arrest"], rate)
    assert concordance(rest["week"], rest["arrest"], said.risk) > best - 0.05 > 0.65
    assert (np.diff(said.survival, axis=1) <= 0).all()


@pytest.mark.parametrize("own", [OWN, PROPORTIONAL], ids=["log_rank", "relative_risk"])
def test_integer_weights_equal_repeated_rows_in_any_order(rossi, own):
    w = np.arange(432) % 3
    long = {name: np.repeat(cells, w) for name, cells in rossi.items()}
    order = np.random.default_rng(0).permutation(len(long["week"]))
    mixed = {name: cells[order] for name, cells in long.items()}
    settings = own | {"criterion.bins": 12, "max_depth": 4, "min_weight_leaf": 10}
    weighed = train(rossi | {"w": w}, **settings, weights="w")
    for other in (long, mixed):
        model = train(other, **settings)
        assert [o.name for o in model.schema.outputs] == [o.name for o in weighed.schema.outputs]
        assert np.array_equal(model.predict(rossi), weighed.predict(rossi))


@pytest.mark.parametrize("nominal", ["subset", "multiway"])
def test_categories_are_grouped_by_hazard(rossi, nominal):
    rng = np.random.default_rng(8)
    level = np.array(list("pqrs"))[rng.integers(0, 4, 600)]
    time = rng.exponential(size=600) * np.where(np.isin(level, ["p", "r"]), 0.2, 2.0)
    table = {"level": level, "week": time, "arrest": np.ones(600)}
    model = train(table, max_depth=1, nominal_splits=nominal)
    risk = dict(zip(level, curves(model, table).risk, strict=True))
    assert min(risk["p"], risk["r"]) > 3 * max(risk["q"], risk["s"])
    assert model.n_leaves == (2 if nominal == "subset" else 4)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_depth": 3, "min_weight_leaf": 20},
        {"ensemble": "forest", "trees": 5, "min_weight_leaf": 30, "criterion.bins": 6},
        PROPORTIONAL | {"max_depth": 3, "min_weight_leaf": 20},
    ],
    ids=["tree", "forest", "proportional"],
)
def test_exports_predict_curves_without_the_plugin_and_without_treekit(
    rossi, settings, run_alone, tmp_path: Path
):
    model = train(rossi, **settings)
    rows = {name: cells[:60].copy() for name, cells in rossi.items()}
    rows["age"][::7] = np.nan
    expected = model.predict(rows)
    del rows["week"], rows["arrest"]
    for answers in run_alone(model, rows).values():
        assert np.array_equal(answers, expected)
    text = treekit.export(model, "rules", tmp_path / "rossi.rules.txt")
    assert treekit.verify(model, text).equal


def test_model_file_is_read_without_the_plugin(rossi, tmp_path: Path):
    model = train(rossi, max_depth=2)
    path = tmp_path / "rossi.treekit"
    model.save(path)
    script = (
        "import json, sys; sys.modules['treekit_survival'] = None; import treekit; "
        "m = treekit.load(sys.argv[1]); names = [o.name for o in m.schema.outputs]; "
        "print(json.dumps([names, m.predict(sys.argv[2]).tolist()]))"
    )
    _write(rossi, tmp_path / "rows.csv")
    command = [sys.executable, "-W", "ignore", "-c", script, path, tmp_path / "rows.csv"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    names, said = json.loads(ran.stdout)
    assert np.array_equal(said, model.predict(rossi))
    assert np.array_equal(curves_of(said, names).survival, curves(model, rossi).survival)


def _write(table, path):
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(table)
        writer.writerows(zip(*(cells.tolist() for cells in table.values()), strict=True))


def test_command_line_trains_and_predicts(tmp_path: Path):
    model, said = tmp_path / "rossi.treekit", tmp_path / "said.csv"
    chosen = ["criterion=log_rank", "criterion.event=arrest", "max_depth=3"]
    settings = [part for setting in chosen for part in ("--set", setting)]
    for command in (
        ["train", ROSSI, "--target", "week", "-o", model, *settings],
        ["inspect", model],
        ["predict", model, ROSSI, "-o", said],
    ):
        ran = CliRunner().invoke(main, list(map(str, command)))
        assert ran.exit_code == 0, ran.output
    loaded = treekit.load(model)
    assert loaded.provenance["task"] == {"name": "survival", "target": "week", "event": "arrest"}
    with said.open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    assert [name.removeprefix("prediction of ") for name in header][:2] == ["risk", "S(4)"]
    assert np.array_equal(np.array(rows, float), loaded.predict(ROSSI))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"criterion.event": "gone"}, DataError, "gone"),
        ({"criterion.event": "home"}, DataError, "no recognised label of an event"),
        ({"criterion.bins": -1}, SettingError, "bins"),
        ({"criterion.occurred": "2"}, DataError, "occurred is '2', but event column 'arrest'"),
    ],
)
def test_invalid_tables_and_settings_are_refused(rossi, settings, error, message):
    with pytest.raises(error, match=message):
        train(rossi, **settings)


@pytest.mark.parametrize("name", ["log_rank", "relative_risk"])
def test_criteria_pass_the_contract_checks(name):
    report = check_criterion(name, strict=True)
    assert report.ok
    expected = {"doubling-weights-changes-nothing"} if name == "log_rank" else set()
    assert {verdict.law.name for verdict in report.declared} == expected


def test_criteria_are_registered_by_their_distribution():
    for name in ("log_rank", "relative_risk"):
        component = registry.list("criterion")[name]
        assert (component.plugin, component.distribution) == ("survival", "treekit-survival")
