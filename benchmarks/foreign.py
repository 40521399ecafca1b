"""Models of other libraries, read by treekit: how many answers differ, and by how much.

    python -m benchmarks.foreign
    python -m benchmarks.foreign --trees 10 --rows 300

Each library fits its models and answers rows of every threshold and its two
float32 neighbours, with missing, unseen and (where it takes them) infinite
values; treekit reads the model and answers the same rows.  A library that is
not installed is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import treekit
from tests.foreign import beside, dyed, frame

Floats = npt.NDArray[np.float64]


class Found(NamedTuple):
    """What one comparison showed; margins relative to the largest."""

    rows: int
    labels: int
    margins: float
    shares: float


def main(arguments: Sequence[str] | None = None) -> dict[str, Found]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--rows", type=int, default=2000)
    given = parser.parse_args(arguments)
    found = {}
    print("| model | rows | labels that differ | margins | probabilities |")
    print("|---|---|---|---|---|")
    for classes in (2, 3):
        for name, one in compared(given.trees, given.rows, classes):
            told = f"{name}, {classes} classes"
            found[told] = one
            print(
                f"| {told} | {one.rows:,} | {one.labels} | {one.margins:.1e} | {one.shares:.1e} |"
            )
    return found


def compared(trees: int, rows: int, classes: int) -> Iterator[tuple[str, Found]]:
    table = frame(rows)
    y = np.minimum(dyed(table), classes - 1)
    makers: dict[str, tuple[str, Callable[..., Found]]] = {
        "LightGBM": ("lightgbm", _lightgbm),
        "XGBoost": ("xgboost", _xgboost),
        "scikit-learn HistGradientBoosting": ("sklearn", _histogram),
    }
    for name, (library, make) in makers.items():
        if importlib.util.find_spec(library) is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield name, make(table, y, trees)


def _lightgbm(table: Any, y: Any, trees: int) -> Found:
    import lightgbm

    few = {"verbose": -1, "min_data_per_group": 5, "num_threads": 2}
    fitted = lightgbm.LGBMClassifier(n_estimators=trees, **few).fit(table, y)
    nodes = fitted.booster_.trees_to_dataframe()
    asked = nodes[(nodes["decision_type"] == "<=")]["threshold"].astype(float)
    rows = _rows(asked, table, infinite=True)
    return _compared(fitted, rows, fitted.predict(rows, raw_score=True))


def _xgboost(table: Any, y: Any, trees: int) -> Found:
    import xgboost

    fitted = xgboost.XGBClassifier(n_estimators=trees, enable_categorical=True).fit(table, y)
    nodes = fitted.get_booster().trees_to_dataframe()
    asked = nodes["Split"].dropna().astype(float)
    rows = _rows(asked, table, infinite=False).astype(dict(table.dtypes))
    return _compared(fitted, rows, fitted.predict(rows, output_margin=True))


def _histogram(table: Any, y: Any, trees: int) -> Found:
    from sklearn.ensemble import HistGradientBoostingClassifier

    fitted = HistGradientBoostingClassifier(max_iter=trees, categorical_features="from_dtype")
    fitted.fit(table, y)
    every = [one.nodes for stage in fitted._predictors for one in stage]
    asked = np.concatenate([nodes["num_threshold"][nodes["is_leaf"] == 0] for nodes in every])
    rows = _rows(asked, table, infinite=True)
    return _compared(fitted, rows, fitted.decision_function(rows))


def _rows(thresholds: Any, table: Any, *, infinite: bool) -> Any:
    return beside(thresholds, table, ("height", "width"), infinite)


def _compared(fitted: Any, rows: Any, margins: Floats) -> Found:
    model = treekit.read_model(fitted)
    raw = treekit.read_model(fitted, answer="margins")
    ours, theirs = raw.predict(rows), margins.astype(np.float64)
    return Found(
        rows=len(rows),
        labels=int(np.sum(model.predict(rows) != fitted.predict(rows))),
        margins=float(np.abs(ours - theirs).max() / np.abs(theirs).max()),
        shares=float(np.abs(model.predict_proba(rows) - fitted.predict_proba(rows)).max()),
    )


if __name__ == "__main__":
    main()
