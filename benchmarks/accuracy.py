"""Accuracy on real tables compared with scikit-learn: pruned trees, forests, extra trees.

Tables come from OpenML through scikit-learn, or from files NAME.csv.gz in a folder
(``--tables-in``, or TREEKIT_TABLES); at toy size, two tables are generated. Each round
splits a table anew, three quarters for training; all sides get the same rows. treekit
gets the original table, and also the matrix that scikit-learn gets: nominal columns as
codes in the order of their names, missing values as NaN. The matrix is searched exactly
and by histogram, which shows the effect of 255 bins per column.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import fetch_openml
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import treekit
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register

ALPHAS, FOLDS = 12, 4
"""Number of pruning strengths in scikit-learn's cross-validation, and of its folds."""


@dataclass(frozen=True)
class Source:
    """A table: its files in a folder, its target and its OpenML id (0: none)."""

    files: tuple[str, ...]
    target: str
    openml: int = 0
    regression: bool = False
    ignore: tuple[str, ...] = ()


SOURCES = {
    "adult": Source(("adult_train", "adult_test"), "income", 1590),
    "bank": Source(("bank_full",), "y", 1461),
    "credit_default": Source(("credit_default",), "class", 42477, ignore=("ID",)),
    "diamonds": Source(("diamonds",), "price", 42225, regression=True),
}


@dataclass(frozen=True)
class Table:
    """A table split by a seed.

    Attributes
    ----------
    frames : pair of DataFrame
        Training and test rows; nominal columns are categories.
    codes : pair of (rows, columns) float32
    truths : pair of (rows,) array
    regression : bool
    """

    frames: tuple[pd.DataFrame, pd.DataFrame]
    codes: tuple[Any, Any]
    truths: tuple[Any, Any]
    regression: bool


def read(source: Source, folder: Path | None) -> tuple[pd.DataFrame, Any]:
    """Read the inputs of a table, text as categories, and its target."""
    if folder is None and not source.openml:
        raise FileNotFoundError(
            f"{source.files[0]} is not on OpenML: give a folder that has it by --tables-in"
        )
    if folder is None:
        frame, target = fetch_openml(data_id=source.openml, return_X_y=True, as_frame=True)
    else:
        parts = [pd.read_csv(_path(folder, name)) for name in source.files]
        frame = pd.concat(parts, ignore_index=True)
        target = frame.pop(source.target)
    frame = frame.drop(columns=list(source.ignore), errors="ignore")
    text = frame.select_dtypes(exclude="number").columns
    frame = frame.astype(dict.fromkeys(text, "category"))
    kind = float if source.regression else str
    return frame, target.to_numpy().astype(kind)


def _path(folder: Path, name: str) -> Path:
    """Find a table's file, compressed or not, anywhere below a folder."""
    found = [*folder.rglob(f"{name}.csv.gz"), *folder.rglob(f"{name}.csv")]
    if not found:
        raise FileNotFoundError(f"{folder} contains neither {name}.csv nor {name}.csv.gz")
    return found[0]


def divided(frame: pd.DataFrame, target: Any, regression: bool, seed: int) -> Table:
    """Split off a quarter of the rows for testing, stratified by class."""
    rows = np.arange(len(frame))
    train, test = train_test_split(
        rows, test_size=0.25, random_state=seed, stratify=None if regression else target
    )
    codes = np.column_stack(
        [
            column.cat.codes.to_numpy(np.float32) if column.dtype == "category" else column
            for _, column in frame.items()
        ]
    ).astype(np.float32)
    nominal = np.array([column.dtype == "category" for _, column in frame.items()])
    codes[:, nominal] = np.where(codes[:, nominal] < 0, np.nan, codes[:, nominal])
    return Table(
        (frame.iloc[train], frame.iloc[test]),
        (codes[train], codes[test]),
        (target[train], target[test]),
        regression,
    )


def score(table: Table, answers: Any) -> float:
    """Compute accuracy or R squared."""
    truth = table.truths[1]
    if not table.regression:
        return float((answers == truth).mean())
    return float(1 - ((answers - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())


def scikit_learn(kind: str, table: Table, trees: int, seed: int) -> float:
    (x, new), (y, _) = table.codes, table.truths
    common = {"random_state": seed}
    if kind == "pruned tree":
        model = DecisionTreeRegressor if table.regression else DecisionTreeClassifier
        path = model(**common).cost_complexity_pruning_path(x, y).ccp_alphas
        alphas = np.unique(np.quantile(path, np.linspace(0, 1, ALPHAS, endpoint=False)))
        top = path[path > 0]
        if len(top):
            alphas = np.union1d(alphas, np.geomspace(top.min(), top.max(), ALPHAS))
        search = GridSearchCV(
            model(**common), {"ccp_alpha": np.maximum(alphas, 0.0)}, cv=FOLDS, n_jobs=2
        )
        return score(table, search.fit(x, y).predict(new))
    models = {
        ("forest", False): RandomForestClassifier,
        ("forest", True): RandomForestRegressor,
        ("extra trees", False): ExtraTreesClassifier,
        ("extra trees", True): ExtraTreesRegressor,
    }
    forest = models[kind, table.regression](trees, n_jobs=2, **common)
    return score(table, forest.fit(x, y).predict(new))


def with_treekit(
    frames: Callable[[Table], tuple[Any, Any]], splitter: str = "auto"
) -> Callable[..., float]:
    """Return a side that trains treekit on the part of a table that `frames` selects."""

    def run(kind: str, table: Table, trees: int, seed: int) -> float:
        known, new = frames(table)
        settings: dict[str, Any] = {"seed": seed, "splitter": splitter}
        if kind == "pruned tree":
            settings |= {"pruner": "cost_complexity"}
        else:
            settings |= {"ensemble": "forest", "trees": trees, "n_jobs": 2, "oob": False}
            settings |= {"max_features": "all" if table.regression else "sqrt"}
        if kind == "extra trees":
            settings |= {"splitter": "random", "bootstrap": False}
        task = "regression" if table.regression else "classification"
        model = treekit.train(known.assign(_y=table.truths[0]), "_y", task=task, **settings)
        return score(table, model.predict(new))

    return run


def as_matrix(table: Table) -> tuple[pd.DataFrame, pd.DataFrame]:
    names = [f"x{i}" for i in range(table.codes[0].shape[1])]
    return tuple(pd.DataFrame(part, columns=names) for part in table.codes)


SIDES: dict[str, Callable[..., float]] = {
    "sklearn": scikit_learn,
    "treekit, same matrix": with_treekit(as_matrix, "exact"),
    "treekit histogram, same matrix": with_treekit(as_matrix, "histogram"),
    "treekit": with_treekit(lambda table: table.frames),
}
KINDS = ("pruned tree", "forest", "extra trees")


def made() -> dict[str, tuple[pd.DataFrame, Any, bool]]:
    """Generate two small tables: classes with missing values, and numbers."""
    rng = np.random.default_rng(0)
    job = rng.choice(["admin", "retired", "student"], 300)
    age = rng.integers(18, 90, 300)
    frame = pd.DataFrame({"age": age, "job": pd.Categorical(job)})
    price = age * 20.0 + (job == "admin")
    bank = frame.copy()
    bank.loc[::9, "job"] = None
    return {
        "made, classes": (bank, np.where(age > 50, "yes", "no"), False),
        "made, numbers": (frame, price, True),
    }


def _tables(options: Options) -> Iterator[tuple[str, pd.DataFrame, Any, bool]]:
    if options.made:
        for name, parts in made().items():
            yield name, *parts
        return
    folder = options.tables_in or os.environ.get("TREEKIT_TABLES")
    for name in options.tables:
        source = SOURCES[name]
        yield name, *read(source, Path(folder) if folder else None), source.regression


def _run(options: Options) -> Iterator[Entry]:
    for name, frame, target, regression in _tables(options):
        for seed in range(options.rounds):
            table = divided(frame, target, regression, seed)
            for kind in KINDS:
                found: dict[str, float] = {}
                for side in options.sides:
                    if kind == "extra trees" and "histogram" in side:
                        continue  # extra trees draw thresholds without histograms
                    found[side] = SIDES[side](kind, table, options.trees, seed)
                    figures = {"score": found[side]}
                    if side != "sklearn" and "sklearn" in found:
                        figures["difference"] = found[side] - found["sklearn"]
                    yield Entry(f"{name}, {kind}", side, figures)


register(
    Benchmark(
        "accuracy", "real tables: pruned trees, forests, extra trees and scikit-learn's", _run,
        (
            Figure("score", "accuracy or R²", ".4f", mean=True),
            Figure("difference", "difference", "+.4f", mean=True, spread=True),
        ),
        {
            "tables": Parameter(tuple(SOURCES), tuple(SOURCES), "names of tables"),
            "tables_in": Parameter("", "", "folder of NAME.csv.gz; empty: OpenML"),
            "made": Parameter(False, True, "use two generated tables instead"),
            "trees": Parameter(100, 3, "trees of a forest"),
        },
        own=("treekit, same matrix", "treekit histogram, same matrix", "treekit"),
        peers=("sklearn",), rounds=3,
    )
)  # fmt: skip
