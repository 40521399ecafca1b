"""Settings of a forest, compared over many tables: by validation, then once on test parts.

A quarter of each table is the test part, not used for choosing settings. The rest is
split anew in each round, four fifths for training and one fifth for validation; all
settings get the same rows. ``forest-settings`` compares a grid of settings on the
validation parts; ``forest-defaults`` trains on all but the test part and scores it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score

import treekit
from benchmarks.accuracy import Source, Table, divided, made, read
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register

CLASSES = {
    "adult": Source(("adult_train", "adult_test"), "income", 1590),
    "bank": Source(("bank_full",), "y", 1461),
    "credit_default": Source(("credit_default",), "class", 42477, ignore=("ID",)),
    "credit_data": Source(("credit_data",), "Status"),
    "online_shoppers": Source(("online_shoppers",), "Revenue"),
    "telco_churn": Source(("telco_churn",), "Churn", ignore=("customerID",)),
    "airbag": Source(("nass_cds_airbag",), "dead"),
    "titanic": Source(("titanic",), "survived"),
    "attrition": Source(("attrition",), "Attrition"),
    "phoneme": Source(("phoneme",), "class", 1489),
    "mammography": Source(("mammography",), "class", 310),
    "higgs7k": Source(("higgs7k_train", "higgs7k_test"), "label"),
    "credit-g": Source(("credit-g",), "class", 31),
    "diabetes": Source(("diabetes",), "class", 37),
    "sick": Source(("sick",), "Class", 38),
    "car": Source(("car",), "class"),
    "dna": Source(("dna",), "LABEL"),
    "vehicle": Source(("vehicle",), "Class", 54),
    "vowel": Source(("vowel",), "Class", 307),
    "segment": Source(("segment-challenge", "segment-test"), "class"),
}
NUMBERS = {
    "diamonds": Source(("diamonds",), "price", 42225, regression=True),
    "ames": Source(("ames",), "Sale_Price", regression=True),
    "abalone": Source(("abalone",), "Class_Rings", regression=True),
    "two_center": Source(
        ("two_center_regression_train", "two_center_regression_test"), "target", regression=True
    ),
    "housing": Source(("housing",), "class", 531, regression=True),
    "autompg": Source(("autompg",), "class", 196, regression=True),
    "hitters": Source(("hitters",), "Salary", regression=True),
    "bodyfat": Source(("bodyfat",), "class", regression=True),
    "cpu": Source(("cpu",), "class", regression=True),
    "servo": Source(("servo",), "class", regression=True),
    "autoprice": Source(("autoprice",), "class", regression=True),
}
"""Tables of at least 150 rows; tables without an OpenML id are read from a folder only."""

LEAVES = (1, 3, 5, 10)
MANY_ROWS = 5_000
"""Large and small tables are compared separately, as they may need different settings."""
GRID: dict[str, dict[str, Any]] = {
    f"{criterion}, leaves of {leaf}, {tried}": {
        "criterion": criterion, "min_weight_leaf": leaf, "max_features": tried,
    }
    for criterion, leaf, tried in itertools.product(
        ("gini", "entropy"), LEAVES, ("sqrt", "sqrt + 1")
    )
}  # fmt: skip
GRID_OF_NUMBERS: dict[str, dict[str, Any]] = {
    f"leaves of {leaf}, {tried:.2f} of the columns": {
        "min_weight_leaf": leaf, "max_features": tried,
    }
    for leaf, tried in itertools.product(LEAVES, (1.0, 0.67, 0.5, 0.33))
}  # fmt: skip
SCORES = ("auc", "log loss", "accuracy", "r2")
LOWER_IS_BETTER = ("log loss",)


def score(table: Table, model: Any, test: Any, classes: Any) -> dict[str, float]:
    """Score a fitted model on the second part: AUC, log loss and accuracy, or R squared."""
    truth = table.truths[1]
    if table.regression:
        return {"r2": float(r2_score(truth, model.predict(test)))}
    shares = model.predict_proba(test)
    several = {"multi_class": "ovr", "labels": classes} if len(classes) > 2 else {}
    return {
        "auc": float(roc_auc_score(truth, shares if several else shares[:, 1], **several)),
        "log loss": float(log_loss(truth, shares, labels=classes)),
        "accuracy": float(accuracy_score(truth, classes[shares.argmax(axis=1)])),
    }


def with_treekit(table: Table, trees: int, seed: int, settings: dict[str, Any]) -> dict[str, float]:
    """Train a forest of treekit and score it."""
    (known, new), (y, _) = table.frames, table.truths
    model = treekit.train(
        known.assign(_y=y), "_y", task="regression" if table.regression else "classification",
        ensemble="forest", trees=trees, seed=seed, n_jobs=2, oob=False,
        **numbered(settings, known.shape[1]),
    )  # fmt: skip
    classes = np.array(model.schema.classes) if not table.regression else None
    return score(table, model, new, classes)


def numbered(settings: dict[str, Any], columns: int) -> dict[str, Any]:
    """Replace "sqrt + 1", which `train` does not support, by the number of columns."""
    if settings.get("max_features") != "sqrt + 1":
        return settings
    return settings | {"max_features": min(int(columns**0.5) + 1, columns)}


def with_scikit_learn(table: Table, trees: int, seed: int) -> dict[str, float]:
    """Train a forest of scikit-learn, on codes, and score it."""
    forest = RandomForestRegressor if table.regression else RandomForestClassifier
    model = forest(trees, random_state=seed, n_jobs=2).fit(table.codes[0], table.truths[0])
    return score(table, model, table.codes[1], getattr(model, "classes_", None))


def tables_of(options: Options) -> Iterator[tuple[str, Any, Any, bool]]:
    """Yield the name, inputs and target of each table, and whether the target is a number."""
    if options.made:
        for name, parts in made().items():
            yield name, *parts
        return
    folder = options.tables_in or os.environ.get("TREEKIT_TABLES")
    for name, source in (CLASSES | NUMBERS).items():
        if name in options.tables:
            frame, target = read(source, Path(folder) if folder else None)
            if source.regression:
                frame, target = frame[~np.isnan(target)], target[~np.isnan(target)]
            yield name, frame, target, source.regression


def without_test_part(frame: Any, target: Any, regression: bool) -> tuple[Any, Any]:
    """Return the three quarters that are not the test part."""
    whole = divided(frame, target, regression, 0)
    return whole.frames[0], whole.truths[0]


def _compare(options: Options) -> Iterator[Entry]:
    """Yield means over tables of each score and its gain over the first setting, and wins."""
    found: dict[tuple[str, str, int], list[dict[str, float]]] = {}
    for _, frame, target, regression in tables_of(options):
        size = f"{MANY_ROWS:,} rows or more" if len(target) >= MANY_ROWS else "fewer rows"
        case = f"{'numbers' if regression else 'classes'}, {size}"
        grid = GRID_OF_NUMBERS if regression else GRID
        rest, known = without_test_part(frame, target, regression)
        for number in range(options.rounds):
            table = divided(rest, known, regression, number)
            for side, settings in grid.items():
                given = with_treekit(table, options.trees, number, settings)
                found.setdefault((case, side, number), []).append(given)
    for (case, side, number), scores in found.items():
        first = next(iter(GRID_OF_NUMBERS if case.startswith("numbers") else GRID))
        base = found[case, first, number]
        figures = {"tables": float(len(scores))}
        for name in scores[0]:
            values = np.array([one[name] for one in scores])
            gains = values - np.array([one[name] for one in base])
            figures[name] = float(values.mean())
            figures[f"{name} gain"] = float(gains.mean())
            better = gains < 0 if name in LOWER_IS_BETTER else gains > 0
            figures[f"{name} wins"] = float(better.sum())
        yield Entry(case, side, figures)


SIDES = {
    "sklearn": with_scikit_learn,
    "treekit, leaves of 1": lambda table, trees, seed: with_treekit(
        table, trees, seed, {"min_weight_leaf": 1}
    ),
    "treekit": lambda table, trees, seed: with_treekit(table, trees, seed, {}),
}


def _confirm(options: Options) -> Iterator[Entry]:
    for name, frame, target, regression in tables_of(options):
        table = divided(frame, target, regression, 0)
        for seed in range(options.rounds):
            for side in options.sides:
                yield Entry(name, side, SIDES[side](table, options.trees, seed))


_PARAMETERS = {
    "tables": Parameter((*CLASSES, *NUMBERS), (*CLASSES, *NUMBERS), "names of tables"),
    "tables_in": Parameter("", "", "folder of NAME.csv or NAME.csv.gz; empty: OpenML"),
    "made": Parameter(False, True, "use two generated tables instead"),
    "trees": Parameter(100, 3, "trees of a forest"),
}
_TITLES = (("auc", "AUC"), ("log loss", "log loss"), ("accuracy", "accuracy"), ("r2", "R²"))

register(
    Benchmark(
        "forest-settings", "settings of a forest, by validation over many tables", _compare,
        tuple(
            figure
            for key, title in _TITLES
            for figure in (
                Figure(key, title, ".4f", mean=True),
                Figure(f"{key} gain", "difference", "+.4f", mean=True),
                Figure(f"{key} wins", "tables better", ".1f", mean=True),
            )
        ),
        _PARAMETERS, own=("treekit",), rounds=3,
    )
)  # fmt: skip
register(
    Benchmark(
        "forest-defaults", "default forests on test parts not used to choose settings", _confirm,
        tuple(Figure(key, title, ".4f", mean=True) for key, title in _TITLES),
        _PARAMETERS, own=("treekit, leaves of 1", "treekit"), peers=("sklearn",), rounds=3,
    )
)  # fmt: skip
