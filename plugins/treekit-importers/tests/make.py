"""Make the files of the folder ``xgboost``: models, and predictions of XGBoost.

    PYTHONPATH=. python plugins/treekit-importers/tests/make.py [CASE ...]

The cases ``dropped*`` were made by XGBoost 3.4.1, which writes the weights of dropped
trees beside the trees; the others by 3.2.0.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from tests.foreign import beside, frame, make_classes
from tests.foreign.make import cells_of

FOLDER = Path(__file__).with_name("xgboost")

CASES: dict[str, tuple[bool, dict[str, Any]]] = {
    "binary": (True, {"objective": "binary:logistic"}),
    "onehot": (True, {"objective": "binary:logistic", "max_cat_to_onehot": 9}),
    "three": (True, {"objective": "multi:softprob", "num_class": 3}),
    "two": (False, {"objective": "multi:softprob", "num_class": 2}),
    "softmax": (False, {"objective": "multi:softmax", "num_class": 3}),
    "poisson": (False, {"objective": "count:poisson"}),
    "logistic": (False, {"objective": "reg:logistic"}),
    "absolute": (False, {"objective": "reg:absoluteerror"}),
    "dart": (False, {"objective": "binary:logistic", "booster": "dart", "rate_drop": 0.5}),
    "pruned": (False, {"objective": "binary:logistic", "gamma": 2.0, "tree_method": "exact"}),
    "forest": (False, {"objective": "reg:squarederror", "num_parallel_tree": 2, "subsample": 0.5}),
    "vector": (False, {"multi_strategy": "multi_output_tree", "tree_method": "hist"}),
    "quantiles": (False, {"objective": "reg:quantileerror", "quantile_alpha": [0.2, 0.8]}),
    "raw": (False, {"objective": "binary:logitraw"}),
    "hinge": (False, {"objective": "binary:hinge"}),
    "dropped": (True, {"objective": "multi:softprob", "num_class": 3, "rate_drop": 0.5}),
    "dropped_dart": (False, {"booster": "dart", "rate_drop": 0.5}),
    "dropped_vector": (False, {"multi_strategy": "multi_output_tree", "rate_drop": 0.5}),
}
BINARY = ("binary", "vector", "dart", "dropped")
"""Cases that are written as UBJSON, too."""


def thresholds(booster: xgboost.Booster) -> list[float]:
    learner = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]
    trees = learner.get("gbtree", learner)["model"]["trees"]
    return [number for tree in trees for number in tree["split_conditions"]]


def make(name: str, categories: bool, settings: dict[str, Any]) -> None:
    table = frame(300, categories=categories)
    y = make_classes(table)
    if settings.get("num_class") != 3:
        y = (y > 0).astype(int)
    if name.endswith("vector"):
        y = np.stack([y, make_classes(table), 1.5 * y], axis=1)
    data = xgboost.DMatrix(table, y, enable_categorical=True)
    booster = xgboost.train({"max_depth": 3, "seed": 1} | settings, data, 5)
    rows = beside(
        thresholds(booster), frame(40, 7, categories), ("height", "width"), infinite=False
    )
    asked = xgboost.DMatrix(rows, enable_categorical=True)
    margins = booster.predict(asked, output_margin=True)
    answers = {
        "xgboost": xgboost.__version__,
        "rows": cells_of(rows),
        "margins": margins.astype(float).tolist(),
        "predictions": booster.predict(asked).astype(float).tolist(),
    }
    booster.save_model(FOLDER / f"{name}.json")
    if name in BINARY:
        booster.save_model(FOLDER / f"{name}.ubj")
    (FOLDER / f"{name}.answers").write_text(json.dumps(answers, separators=(",", ":")))


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        make(case, *CASES[case])
