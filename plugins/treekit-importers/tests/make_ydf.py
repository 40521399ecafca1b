"""Make the folders in ``ydf``: models, and predictions of YDF.

    PYTHONPATH=. python plugins/treekit-importers/tests/make_ydf.py [CASE ...]

They were made by YDF 0.16.1.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import ydf

from tests.foreign import beside, frame, make_classes

FOLDER = Path(__file__).with_name("ydf")

_REGRESSION = {"task": ydf.Task.REGRESSION}
_SPARSE = {"split_axis": "SPARSE_OBLIQUE"}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "winners": (ydf.RandomForestLearner, {"bootstrap_training_dataset": False}),
    "pairs": (ydf.RandomForestLearner, {}),
    "shares": (ydf.RandomForestLearner, {"winner_take_all": False}),
    "means": (ydf.RandomForestLearner, _REGRESSION),
    "tree": (ydf.CartLearner, {}),
    "binary": (ydf.GradientBoostedTreesLearner, {}),
    "three": (ydf.GradientBoostedTreesLearner, {"max_depth": 3}),
    "sums": (ydf.GradientBoostedTreesLearner, _REGRESSION),
    "poisson": (ydf.GradientBoostedTreesLearner, _REGRESSION | {"loss": "POISSON"}),
    "steps": (ydf.RandomForestLearner, _REGRESSION | {"discretize_numerical_columns": True}),
    "oblique": (ydf.RandomForestLearner, _SPARSE),
}


def make_table(n: int, seed: int = 0) -> Any:
    """Make a frame with texts, of which "" is missing, and booleans."""
    table = frame(n, seed)
    table["soil"] = table["soil"].astype(object).fillna("")
    table["zone"] = table["zone"].astype(int).astype(str)
    table["wide"] = table["width"] > 0
    return table


def iter_thresholds(model: Any) -> Iterator[float]:
    for tree in model.iter_trees():
        todo = [tree.root]
        while todo:
            node = todo.pop()
            condition = getattr(node, "condition", None)
            if condition is not None:
                todo += [node.neg_child, node.pos_child]
                if isinstance(getattr(condition, "threshold", None), float):
                    yield condition.threshold


def make_rows(model: Any) -> Any:
    """Rows at, and next to, all thresholds; some categories are unseen."""
    columns = ("height", "width", "rooms")
    rows = beside(list(iter_thresholds(model)), make_table(40, 7), columns, infinite=False)
    rows["wide"] = rows["wide"].astype(bool)
    rows.loc[::9, "soil"] = "peat"
    return rows


def fit(name: str) -> tuple[Any, Any]:
    """Return a model, and rows to answer."""
    table = make_table(200)
    y: Any = make_classes(table)
    if name in ("pairs", "binary"):
        y = np.where(y > 0, "yes", "no")
    if name == "poisson":
        y = y.astype(float)
    table["y"] = y
    learner, settings = CASES[name]
    sizes = {} if learner is ydf.CartLearner else {"num_trees": 4}
    settings = {"max_depth": 4, "num_threads": 1, **sizes, **settings}
    model = learner(label="y", **settings).train(table)
    return model, make_rows(model)


def list_cells(rows: Any) -> dict[str, Any]:
    """Return the cells of each column, None for a missing one."""
    rows = rows.assign(soil=rows["soil"].replace("", None))
    return {
        name: rows[name].astype(object).where(rows[name].notna(), None).tolist() for name in rows
    }


def make(name: str) -> None:
    model, rows = fit(name)
    path = FOLDER / name
    shutil.rmtree(path, ignore_errors=True)
    model.save(str(path))
    if name == "oblique":
        return
    answers = {
        "ydf": ydf.__version__,
        "rows": list_cells(rows),
        "predictions": np.asarray(model.predict(rows)).tolist(),
    }
    if model.task() == ydf.Task.CLASSIFICATION:
        answers["labels"] = np.asarray(model.predict_class(rows)).tolist()
    (FOLDER / f"{name}.answers").write_text(json.dumps(answers, separators=(",", ":")))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    ydf.verbose(0)
    for case in sys.argv[1:] or CASES:
        make(case)
