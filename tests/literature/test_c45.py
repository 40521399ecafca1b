"""C4.5 by ordinary settings, compared with a textbook and Weka's J48.

Zhou, *Machine Learning* (2016), chapter 4: table 4.4 (watermelon 2.0 alpha, with
missing values).  J48 is Weka's C4.5; ``tests/tables/j48.json`` contains its results
for the tables beside it.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treekit
from treekit.components.criteria import make_gain_ratio
from treekit.model.model import Model

TABLES = Path(__file__).parents[1] / "tables"
MELONS = Path(__file__).parents[2] / "examples" / "tables" / "watermelon"

FRACTIONAL: dict[str, Any] = {
    "splitter": "exact",
    "nominal_splits": "multiway",
    "missing": "fractional",
    "empty_branches": True,
    "dtype": "float64",
    "seed": 0,
}
J48: dict[str, Any] = FRACTIONAL | {
    "criterion": "gain_ratio",
    "criterion.slack": 1e-3,
    "criterion.mdl": True,
    "criterion.many_levels": 0.3,
    "criterion.tolerance": 1e-6,
    "thresholds": "value_below",
    "numeric_side": "c45",
    "resolution": 1e-5,
}


def train_on(name: str, **settings: Any) -> Model:
    schema = json.loads((TABLES / f"{name}.schema.json").read_text(encoding="utf-8"))
    declared = {c["name"]: c["values"] for c in schema["columns"] if c["type"] == "nominal"}
    classes = declared.pop(schema["target"])
    return treekit.train(
        TABLES / f"{name}.csv", schema["target"], levels=declared, classes=classes, **settings
    )


RUNS = json.loads((TABLES / "j48.json").read_text(encoding="utf-8"))["runs"]


@pytest.mark.kernels
@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run['data']} {run['options']}")
def test_trees_equal_weka_j48(run: dict[str, Any]) -> None:
    options = run["options"].split()
    settings = J48 | {"min_weight_leaf": float(options[options.index("-M") + 1])}
    confidence = None if "-U" in options else float(options[options.index("-C") + 1])
    settings |= {"pruner": "error_based", "pruner.confidence": confidence}
    if "-B" in options:
        settings |= {"nominal_splits": "one_vs_rest", "criterion.level_by": "ratio"}
    if "-J" in options:
        settings["criterion.mdl"] = False
    model = train_on(run["data"], **settings)
    assert (model.n_leaves, model.n_nodes) == (run["leaves"], run["nodes"])
    with (TABLES / f"{run['data']}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    truth = [row[model.schema.target] for row in rows]
    said = model.predict(TABLES / f"{run['data']}.csv")
    assert sum(a == b for a, b in zip(said, truth, strict=True)) == run["correct"]
    if "second_class" in run:
        shares = model.predict_proba(TABLES / f"{run['data']}.csv")[:, 1]
        np.testing.assert_allclose(shares, run["second_class"], atol=1e-4)


@pytest.mark.kernels
def test_algorithm_c45_with_the_documented_settings_equals_j48() -> None:
    # `treekit.training.settings`
    j48 = {"criterion.tolerance": 1e-6, "min_gain": 0.0, "pruner.limit": "j48", "dtype": "float64"}
    binary = {"nominal_splits": "one_vs_rest", "criterion.level_by": "ratio"}
    run = next(r for r in RUNS if (r["data"], r["options"]) == ("labor", "-B -C 0.25 -M 2"))
    model = train_on("labor", algorithm="c45", seed=0, **j48, **binary)
    assert (model.n_leaves, model.n_nodes) == (run["leaves"], run["nodes"])
    shares = model.predict_proba(TABLES / "labor.csv")[:, 1]
    np.testing.assert_allclose(shares, run["second_class"], atol=1e-4)


@pytest.mark.kernels
@pytest.mark.parametrize(("column", "gain"), [("color", 0.252), ("texture", 0.424)])
def test_gains_of_table_4_4_count_the_known_rows_and_their_share(column: str, gain: float) -> None:
    # Page 87.
    names = ["color", "root", "sound", "texture", "navel", "touch"]
    model = treekit.train(
        MELONS / "watermelon_2.0_alpha_en.csv",
        "good",
        ignore=[name for name in ["id", *names] if name not in (column,)],
        criterion="entropy",
        max_depth=1,
        **FRACTIONAL,
    )
    assert round(float(model.trees[0].gain[0]), 3) == gain


@pytest.mark.kernels
def test_table_4_4_is_split_by_texture_with_fractional_instances() -> None:
    # Page 88: 7/15, 5/15 and 3/15 of melon 8 (and 10) go down the three branches.
    model = treekit.train(
        MELONS / "watermelon_2.0_alpha_en.csv",
        "good",
        ignore=["id"],
        criterion="entropy",
        max_depth=1,
        **FRACTIONAL,
    )
    tree = model.trees[0]
    assert model.schema.names[tree.feature[0]] == "texture"
    np.testing.assert_allclose(
        sorted(tree.weight[1:]), [3 + 2 * 3 / 15, 5 + 2 * 5 / 15, 7 + 2 * 7 / 15]
    )


def test_one_vs_rest_category_is_chosen_by_gain_or_by_ratio() -> None:
    """Rows of p, q, r: 2, 6, 6, of which 0, 2, 5 are good.

    Against the rest, p has gain 0.165 and split information 0.592, r gain 0.204 and
    split information 0.985, in bits.
    """
    column = ["p"] * 2 + ["q"] * 6 + ["r"] * 6
    good = ["n"] * 2 + ["y"] * 2 + ["n"] * 4 + ["y"] * 5 + ["n"]
    for level_by, alone in (("gain", "r"), ("ratio", "p")):
        model = treekit.train(
            {"a": column, "good": good}, "good", criterion="gain_ratio", max_depth=1,
            nominal_splits="one_vs_rest", **{"criterion.level_by": level_by},
        )  # fmt: skip
        branch_of = model.trees[0].branches(0)
        assert [level for level, b in zip("pqr", branch_of, strict=True) if b == 0] == [alone]


def ratio(parent: list[float], children: list[list[float]], **settings: Any) -> float:
    functions = make_gain_ratio(**settings)
    assert functions.score is not None
    return functions.score(np.array(parent), np.array(children))


def test_missing_branch_is_optional_in_the_split_information() -> None:
    # Quinlan 1993, p. 29: one of 14 rows misses outlook; the gain is 0.199 bits, the
    # split information with the fourth branch 1.809 bits.
    branches = [[2.0, 3.0], [3.0, 0.0], [3.0, 2.0]]
    counted = ratio([9.0, 5.0], branches)
    assert round(counted, 3) == round(0.199 / 1.809, 3)
    known = np.array([5, 3, 5]) / 13
    information = -(known * np.log2(known)).sum()
    assert ratio([9.0, 5.0], branches, missing_branch=False) == pytest.approx(
        counted * 1.809 / information, rel=1e-3
    )


def choice(gains: list[float], scores: list[float], levels: list[float], **settings: Any) -> int:
    choose = make_gain_ratio(**settings).extras.choose
    assert choose is not None
    return choose(np.array(gains), np.array(scores), np.array(levels))


def test_column_slightly_below_the_average_gain_is_chosen_within_the_slack() -> None:
    offers = ([0.2, 0.2009], [0.9, 0.1], [0.0, 0.0])
    assert choice(*offers) == 1
    assert choice(*offers, slack=1e-3) == 0


def test_many_level_columns_are_left_out_of_the_average_unless_all_are() -> None:
    offers = ([0.9, 0.2, 0.1], [0.2, 0.8, 0.9], [0.5, 0.1, 0.1])
    assert choice(*offers) == 0  # the average is 0.4
    assert choice(*offers, many_levels=0.3) == 1  # it is 0.15
    assert choice(*offers, many_levels=0.1) == 0


def test_nominal_columns_without_gain_lower_the_average_numeric_ones_do_not() -> None:
    gains, scores = [0.4, 0.3, 0.0], [0.5, 0.8, 0.0]
    assert choice(gains, scores, [0.1, 0.1, 0.1]) == 1
    assert choice(gains, scores, [0.1, 0.1, 0.0]) == 0


def test_ratios_within_the_tolerance_are_ties() -> None:
    offers = ([0.2, 0.2], [0.5, 0.5 + 5e-7], [0.1, 0.1])
    assert choice(*offers) == 1
    assert choice(*offers, tolerance=1e-6) == 0
    assert choice([0.0], [0.0], [0.1]) == 0
    assert choice([0.0], [0.0], [0.1], tolerance=1e-6) == -1


def table_of_steps() -> dict[str, list[Any]]:
    """16 numbers of two classes; the first two cuts from below gain most."""
    return {"x": list(range(16)), "y": ["a", "b"] + ["a"] * 7 + ["b"] * 7}


def test_mdl_penalty_of_a_numeric_split_is_the_log_of_its_candidates() -> None:
    plain = {"criterion": "gain_ratio", "max_depth": 1, "seed": 0}
    free = treekit.train(table_of_steps(), "y", **plain).trees[0]
    paid = treekit.train(table_of_steps(), "y", **plain, **{"criterion.mdl": True}).trees[0]
    assert free.gain[0] - paid.gain[0] == pytest.approx(np.log2(15) / 16)
    few = treekit.train(
        table_of_steps(), "y", **plain, **{"criterion.mdl": True}, min_weight_leaf=5
    ).trees[0]
    assert free.gain[0] - few.gain[0] == pytest.approx(np.log2(7) / 16)


def test_numeric_column_is_not_split_if_the_penalty_exceeds_its_gain() -> None:
    table = {"x": list(range(8)), "y": list("abababab")}
    settings: dict[str, Any] = {"criterion": "gain_ratio", "max_depth": 1, "seed": 0}
    assert treekit.train(table, "y", **settings).n_leaves == 2
    assert treekit.train(table, "y", **settings, **{"criterion.mdl": True}).n_leaves == 1


@pytest.mark.matrix
def test_numeric_side_c45_requires_a_tenth_of_the_class_weight_up_to_25() -> None:
    def smallest_side(rows: int, **settings: Any) -> float:
        x = [min(row, 250) + 0.5 for row in range(rows)]  # codes of 8 bits
        table = {"x": x, "y": ["a"] * 2 + ["b"] * (rows - 2)}
        tree = treekit.train(table, "y", max_depth=1, splitter="exact", seed=0, **settings).trees[0]
        return float(tree.weight[1:].min())

    assert smallest_side(200) == 2
    assert smallest_side(200, numeric_side="c45") == 10
    assert smallest_side(900, numeric_side="c45") == 25
    assert smallest_side(200, numeric_side="c45", min_weight_leaf=30) == 30
    assert smallest_side(30, numeric_side="c45", min_weight_leaf=2) == 2


@pytest.mark.parametrize(
    # In doubles the middle of 3.6 and 3.8 is below 3.7; that of 1.6 and 1.8 is 1.7.
    ("dtype", "resolution"),
    [("float64", 0.0), ("float64", 1e-5), ("float32", 1e-5)],
)
@pytest.mark.parametrize(("low", "value", "high"), [(3.6, 3.7, 3.8), (1.6, 1.7, 1.8)])
def test_value_equal_to_the_rounded_midpoint_is_the_threshold(
    low: float, value: float, high: float, dtype: str, resolution: float
) -> None:
    table = {
        "a": ["p"] * 6 + ["q"] * 6,
        "x": [low] * 3 + [high] * 3 + [value] * 6,
        "y": ["no"] * 3 + ["yes"] * 3 + ["maybe"] * 6,
    }
    # Seen only if the held-out row of the value goes to the left, as it would in the model.
    held = {"a": ["p", "p"], "x": [value, high], "y": ["no", "yes"]}
    model = treekit.train(
        table, "y", criterion="entropy", thresholds="value_below", resolution=resolution,
        dtype=dtype, splitter="exact", seed=0, validation=held,
        pruner="reduced_error", **{"pruner.prune_ties": True},
    )  # fmt: skip
    asked = model.trees[0].threshold
    assert asked[~np.isnan(asked)].tolist() == [float(np.dtype(dtype).type(value))]
    assert model.predict(held).tolist() == held["y"]


def test_numeric_side_c45_is_refused_for_regression() -> None:
    with pytest.raises(treekit.SettingError, match="numeric_side='leaf'"):
        treekit.train({"x": [1, 2], "y": [0.5, 1.5]}, "y", numeric_side="c45")


def test_negative_min_gain_allows_splits_without_gain() -> None:
    table = {"a": ["x", "x", "y", "y"] * 2, "b": ["x", "y"] * 4, "good": ["n", "y", "y", "n"] * 2}
    settings: dict[str, Any] = {"nominal_splits": "multiway", "seed": 0}
    for criterion in ("entropy", "gain_ratio"):
        settings["criterion"] = criterion
        assert treekit.train(table, "good", **settings).n_leaves == 1
        model = treekit.train(table, "good", **settings, min_gain=-1e-3)
        assert model.n_leaves == 4
        assert list(model.predict(table)) == table["good"]


@pytest.mark.kernels
def test_fractional_instances_have_an_out_of_bag_score() -> None:
    forest = J48 | {"ensemble": "forest", "trees": 8, "criterion.mdl": False}
    model = train_on("labor", **forest)
    oob = model.provenance["oob"]
    assert oob["rows"] > 50
    assert 0.6 < oob["accuracy"] <= 1.0
    assert train_on("labor", **forest, n_jobs=2).provenance["oob"] == oob


@pytest.mark.kernels
def test_fractional_regression_predicts_a_mean_of_leaf_values() -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random(250) < 0.3, np.nan, rng.normal(size=250))
    y = np.where(np.isnan(x), 0.0, x) + rng.normal(size=250)
    model = treekit.train(
        {"x": x, "z": rng.choice(list("pqrst"), 250), "y": y},
        "y",
        missing="fractional",
        max_depth=4,
        seed=0,
    )
    tree = model.trees[0]
    leaves = tree.leaves
    mean = (tree.value[leaves, 0] * tree.weight[leaves]).sum() / 250
    assert mean == pytest.approx(y.mean())
    assert tree.weight[leaves].sum() == 250.0
    missing = replace(model, trees=model.trees).predict({"x": [np.nan], "z": ["r"]})
    assert tree.value[leaves].min() < missing[0] < tree.value[leaves].max()
