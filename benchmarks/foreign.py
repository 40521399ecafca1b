"""Models of other libraries, imported by treekit: number and size of prediction differences.

Each library fits its models and predicts rows with every threshold and its two float32
neighbours, with missing, unseen and (if supported) infinite values; treekit imports the
model and predicts the same rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import treekit
from benchmarks import sides
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register
from tests.foreign import beside, frame, make_classes

Floats = npt.NDArray[np.float64]


class Found(NamedTuple):
    """Result of one comparison; margins relative to the largest."""

    rows: int
    labels: int
    margins: float
    shares: float


MAKERS: dict[str, tuple[str, str]] = {
    "lightgbm": ("LightGBM", "_lightgbm"),
    "xgboost": ("XGBoost", "_xgboost"),
    "sklearn": ("scikit-learn HistGradientBoosting", "_histogram"),
}


def _run(options: Options) -> Iterator[Entry]:
    table = frame(options.rows)
    for classes in (2, 3):
        y = np.minimum(make_classes(table), classes - 1)
        for library, (name, make) in MAKERS.items():
            if library not in options.sides:
                continue
            case = f"{name}, {classes} classes"
            needed = [library] if library == "sklearn" else [library, "treekit boosting"]
            if absent := [side for side in needed if sides.absent(side)]:
                yield Entry(case, absent[0], failed=sides.absent(absent[0]))
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = globals()[make](table, y, options.trees)
            yield Entry(case, "treekit", found._asdict())


def _lightgbm(table: Any, y: Any, trees: int) -> Found:
    import lightgbm

    few = {"verbose": -1, "min_data_per_group": 5, "num_threads": 2}
    fitted = lightgbm.LGBMClassifier(n_estimators=trees, **few).fit(table, y)
    nodes = fitted.booster_.trees_to_dataframe()
    thresholds = nodes[(nodes["decision_type"] == "<=")]["threshold"].astype(float)
    rows = _rows(thresholds, table, infinite=True)
    return _compared(fitted, rows, fitted.predict(rows, raw_score=True))


def _xgboost(table: Any, y: Any, trees: int) -> Found:
    import xgboost

    fitted = xgboost.XGBClassifier(n_estimators=trees, enable_categorical=True).fit(table, y)
    nodes = fitted.get_booster().trees_to_dataframe()
    thresholds = nodes["Split"].dropna().astype(float)
    rows = _rows(thresholds, table, infinite=False).astype(dict(table.dtypes))
    return _compared(fitted, rows, fitted.predict(rows, output_margin=True))


def _histogram(table: Any, y: Any, trees: int) -> Found:
    from sklearn.ensemble import HistGradientBoostingClassifier

    fitted = HistGradientBoostingClassifier(max_iter=trees, categorical_features="from_dtype")
    fitted.fit(table, y)
    every = [one.nodes for stage in fitted._predictors for one in stage]
    thresholds = np.concatenate([nodes["num_threshold"][nodes["is_leaf"] == 0] for nodes in every])
    rows = _rows(thresholds, table, infinite=True)
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


register(
    Benchmark(
        "foreign", "imported models of other libraries: predictions that differ", _run,
        (
            Figure("rows", "rows", ",.0f"), Figure("labels", "labels that differ", ",.0f"),
            Figure("margins", "margins", ".1e"), Figure("shares", "probabilities", ".1e"),
        ),
        {
            "rows": Parameter(2000, 120, "training rows of the libraries"),
            "trees": Parameter(100, 3, "boosting rounds"),
        },
        peers=tuple(MAKERS), rounds=1,
    )
)  # fmt: skip
