"""CART compared with rpart 4.1.19 (Therneau and Atkinson) on classic tables.

rpart's ``cp = 0`` is cost-complexity pruning with alpha 0: splits that do not reduce
the training risk are pruned.  rpart requires nominal surrogates to be wrong on two rows,
where its manual says that they send two rows to each branch (`nominal_surrogates`).
Where both branches of a split have equal weight, rpart leaves rows without a known
surrogate at the node (without surrogates, all of them); CART sends them on.
`tests/tables/README.md` names the sources.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treekit
from tests.tiers import later
from treekit.model.model import Model

TABLES = Path(__file__).parents[1] / "tables"
RUNS = json.loads((TABLES / "rpart.json").read_text())["runs"]
NUMBERS = ("iris", "cpu")
"""Tables without categories: surrogates of numbers alone have kernels of their own."""
TARGET = {"iris": "class", "breast-cancer": "Class", "cpu": "class", "labor": "class"}
CRITERION = {"gini": "gini", "information": "entropy", None: "squared_error"}


def name_of(run: dict[str, Any]) -> str:
    kind = run.get("split", run.get("method", ""))
    style = "-known" if run.get("surrogatestyle") else ""
    return f"{run['data']}-{kind}-{run['minsplit']}-{run.get('cp', 'sequence')}{style}"


def cart(run: dict[str, Any], alpha: float) -> Model:
    """CART under the settings of a run, pruned at `alpha` (share of all training weight)."""
    name, levels = run["data"], {}
    if (TABLES / f"{name}.schema.json").exists():
        columns = json.loads((TABLES / f"{name}.schema.json").read_text())["columns"]
        levels = {c["name"]: c["values"] for c in columns if c["type"] == "nominal"}
    classes = levels.pop(TARGET[name], None)
    return treekit.train(
        TABLES / f"{name}.csv", TARGET[name], levels=levels or None, classes=classes,
        dtype="float64", criterion=CRITERION[run.get("split")], splitter="exact",
        missing="surrogate", surrogates=5, nominal_surrogates="rpart", max_depth=30,
        surrogate_agreement="known" if run.get("surrogatestyle") else "all",
        min_weight_split=run["minsplit"], min_weight_leaf=run["minbucket"],
        pruner="cost_complexity", **{"pruner.alpha": alpha},
    )  # fmt: skip


def root_risk(model: Model) -> float:
    """Training risk of the root alone, as a share of all training weight."""
    value, weight = model.trees[0].value[0], model.trees[0].weight[0]
    if model.schema.task == "classification":
        return float(1 - value.max() / weight)
    y = np.loadtxt(TABLES / "cpu.csv", delimiter=",", skiprows=1)[:, -1]
    return float(((y - y.mean()) ** 2).mean())


def leaf_contents(model: Model) -> list[list[float]]:
    """Class weights, or weight and mean, of every leaf in order."""
    tree = model.trees[0]
    rows = tree.value[tree.leaves]
    if model.schema.task == "regression":
        rows = np.column_stack([tree.weight[tree.leaves], rows])
    return sorted(rows.tolist())


def has_ties(run: dict[str, Any]) -> bool:
    """Entropy gains that are equal but for rounding, between which rpart picks by rounding."""
    return bool(run["data"] == "breast-cancer" and run.get("split") == "information"
                and run["minsplit"] == 2)  # fmt: skip


@pytest.mark.matrix
def runs_with(key: str) -> list[Any]:
    """The runs that have a key, as parameters; those of numbers alone belong to the matrix tier."""
    return [
        later(run) if run["data"] in NUMBERS else run
        for run in RUNS
        if key in run and not (key == "train_prob" and has_ties(run))
    ]


@pytest.mark.kernels
@pytest.mark.parametrize("run", runs_with("leaves"), ids=name_of)
def test_number_of_leaves_and_training_error_equal_rpart(run: dict[str, Any]) -> None:
    alpha = run["cp"] * root_risk(cart(run, 1e9)) if run["cp"] else 0.0
    model = cart(run, alpha)
    tree = model.trees[0]
    assert tree.n_leaves == run["leaves"]
    if "leaf_contents" in run and not has_ties(run):
        want = np.array(run["leaf_contents"], float)
        np.testing.assert_allclose(leaf_contents(model), want, rtol=1e-6, atol=1e-6)
    if "train_correct" in run:
        assert tree.value[tree.leaves].max(axis=1).sum() == run["train_correct"]
    else:
        table = np.loadtxt(TABLES / "cpu.csv", delimiter=",", skiprows=1)
        error = model.predict(table[:, :-1]) - table[:, -1]
        assert np.sqrt((error**2).mean()) == pytest.approx(run["train_rmse"], abs=1e-6)


@pytest.mark.kernels
@pytest.mark.parametrize("run", runs_with("train_prob"), ids=name_of)
def test_probabilities_of_rows_with_missing_values_equal_rpart(run: dict[str, Any]) -> None:
    """Many rows have missing values: surrogates send them."""
    model = cart(run, 0.0)
    shares = model.predict_proba(TABLES / f"{run['data']}.csv")[:, 1]
    np.testing.assert_allclose(shares, run["train_prob"], atol=1e-6)


@pytest.mark.kernels
@pytest.mark.parametrize("run", runs_with("cptable"), ids=name_of)
def test_sequence_of_pruned_trees_equals_the_cptable_of_rpart(run: dict[str, Any]) -> None:
    """Pruned a little above each CP, as many splits are left as rpart's table says."""
    risk = root_risk(cart(run, 1e9))
    errors = []
    for cp, _, _ in run["cptable"]:  # printed to six digits
        tree = cart(run, (cp + 1e-6) * risk).trees[0]
        errors.append([tree.n_leaves - 1, _relative_error(run, tree, risk)])
    want = [[splits, error] for _, splits, error in run["cptable"]]
    np.testing.assert_allclose(errors, want, atol=2e-6)


def _relative_error(run: dict[str, Any], tree: Any, risk: float) -> float:
    leaves, weight = tree.leaves, tree.weight[0]
    if "split" in run:
        wrong = tree.weight[leaves].sum() - tree.value[leaves].max(axis=1).sum()
        return float(wrong / weight / risk)
    y = np.loadtxt(TABLES / "cpu.csv", delimiter=",", skiprows=1)[:, -1]
    between = tree.weight[leaves] @ (tree.value[leaves, 0] - y.mean()) ** 2 / weight
    return float(1 - between / risk)
