"""Forests on real tables with cells removed at random: what each way of missing values is worth.

Tables are those of `benchmarks.accuracy`, at most `rows` rows of each. The same cells are removed
for all sides, in training and test rows. Filled: numbers by the median, categories by the most
frequent one of the training rows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import roc_auc_score

import treekit
from benchmarks.accuracy import SOURCES, divided, made, read, score
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register

__all__ = ["fill", "remove"]

OWN = ("treekit, filled", "treekit", "treekit surrogate", "treekit fractional")


def remove(frame: pd.DataFrame, share: float, seed: int) -> pd.DataFrame:
    """Return a frame without a random share of its cells."""
    return frame.mask(np.random.default_rng(seed).random(frame.shape) < share)


def fill(known: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Fill the missing cells of `other` by medians and most frequent categories of `known`."""
    values = {
        name: column.mode().iloc[0] if column.dtype == "category" else column.median()
        for name, column in known.items()
    }
    return other.fillna(values)


def _tables(options: Options) -> Iterator[tuple[str, pd.DataFrame, Any, bool]]:
    if options.made:
        yield from ((name, *parts) for name, parts in made().items())
        return
    folder = options.tables_in or os.environ.get("TREEKIT_TABLES")
    for name in options.tables:
        frame, target = read(SOURCES[name], Path(folder) if folder else None)
        rows = np.random.default_rng(0).permutation(len(frame))[: options.rows]
        frame = frame.iloc[rows].reset_index(drop=True)
        yield name, frame, target[rows], SOURCES[name].regression


def _fit(side: str, table: Any, options: Options, seed: int) -> dict[str, float]:
    """Train a forest; return its CPU seconds, leaves, accuracy and area under the curve."""
    known, new = table.frames
    (truth, wanted), regression = table.truths, table.regression
    if side == "sklearn" or "filled" in side:
        new, known = fill(known, new), fill(known, known)
    start = time.process_time()
    if side == "sklearn":
        codes = [
            part.apply(lambda c: c.cat.codes if c.dtype == "category" else c).to_numpy(np.float32)
            for part in (known, new)
        ]
        kind = RandomForestRegressor if regression else RandomForestClassifier
        model = kind(options.trees, n_jobs=2, random_state=seed).fit(codes[0], truth)
        leaves, new = sum(one.get_n_leaves() for one in model.estimators_), codes[1]
    else:
        way = side.removeprefix("treekit").strip(" ,") or "direction"
        model = treekit.train(
            known.assign(_y=truth), "_y", ensemble="forest", trees=options.trees, seed=seed,
            missing="direction" if way == "filled" else way, min_weight_leaf=1, n_jobs=2,
            max_features="all" if regression else "sqrt",  # as scikit-learn's
            task="regression" if regression else "classification",
        )  # fmt: skip
        leaves = model.n_leaves
    figures = {"cpu": time.process_time() - start, "leaves": float(leaves)}
    figures["score"] = score(table, model.predict(new))
    if not regression:
        figures["auc"] = float(roc_auc_score(wanted, model.predict_proba(new)[:, 1]))
    return figures


def _run(options: Options) -> Iterator[Entry]:
    for name, frame, target, regression in _tables(options):
        for share in options.shares:
            for seed in range(options.rounds):
                table = divided(remove(frame, share, seed), target, regression, seed)
                for side in options.sides:
                    case = f"{name}, {share:.0%} of the cells removed"
                    yield Entry(case, side, _fit(side, table, options, seed))


register(
    Benchmark(
        "missing", "forests on real tables with cells removed: ways of missing values", _run,
        (
            Figure("score", "accuracy or R²", ".4f", mean=True, spread=True),
            Figure("auc", "area under the ROC curve", ".4f", mean=True, spread=True),
            Figure("leaves", "leaves", ",.0f", mean=True), Figure("cpu", "CPU s", ".1f"),
        ),
        {
            "tables": Parameter(tuple(SOURCES), tuple(SOURCES), "names of tables"),
            "tables_in": Parameter("", "", "folder of NAME.csv.gz; empty: OpenML"),
            "made": Parameter(False, True, "use two generated tables instead"),
            "rows": Parameter(8000, 300, "rows at most"),
            "shares": Parameter((0.0, 0.3), (0.3,), "shares of cells to remove"),
            "trees": Parameter(100, 3, "trees of a forest"),
        },
        own=OWN, peers=("sklearn",), rounds=3,
    )
)  # fmt: skip
