"""Make the files of the folder ``catboost``: models, and predictions of CatBoost.

    PYTHONPATH=. python plugins/treekit-importers/tests/make_catboost.py [CASE ...]

They were made by CatBoost 1.2.10.  Of ``model_info``, which holds all settings of the
training, the parts that are not read are left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import catboost
import numpy as np

from tests.foreign import beside, frame, make_classes

FOLDER = Path(__file__).with_name("catboost")

CASES: dict[str, dict[str, Any]] = {
    "binary": {"loss_function": "Logloss"},
    "named": {"loss_function": "Logloss", "nan_mode": "Max"},
    "three": {"loss_function": "MultiClass"},
    "each": {"loss_function": "MultiClassOneVsAll"},
    "poisson": {"loss_function": "Poisson"},
    "several": {"loss_function": "MultiRMSE", "nan_mode": "Max"},
    "uncertain": {"loss_function": "RMSEWithUncertainty"},
    "leafwise": {"loss_function": "MultiClass", "grow_policy": "Lossguide", "max_leaves": 5},
    "depthwise": {"loss_function": "RMSE", "grow_policy": "Depthwise"},
    "scaled": {"loss_function": "Quantile:alpha=0.3"},
    "ctr": {"loss_function": "Logloss", "one_hot_max_size": 2, "max_ctr_complexity": 1},
}
WITHOUT_CATEGORIES = ("several", "uncertain", "scaled")


def make_table(n: int, seed: int = 0, categories: bool = True) -> Any:
    """Make a frame whose categories are texts and integers, never missing."""
    table = frame(n, seed, categories)
    if categories:
        table["soil"] = table["soil"].astype(object).fillna("né日ant")
        table["zone"] = table["zone"].astype(int)
    return table


def make_rows(borders: list[float], categories: bool) -> Any:
    """Rows at, and next to, all borders; some categories are unseen."""
    rows = beside(borders, make_table(40, 7, categories), ("height", "width"), infinite=False)
    if categories:
        rows.loc[::9, "soil"] = "peat"
        rows.loc[::8, "zone"] = 77
    return rows


def list_cells(rows: Any) -> dict[str, Any]:
    """Return the cells of each column, None for a missing number."""
    return {
        name: rows[name].astype(object).where(rows[name].notna(), None).tolist() for name in rows
    }


def fit(name: str) -> tuple[catboost.CatBoost, Any, Any]:
    """Return a model, its training rows, and rows to answer."""
    categories = name not in WITHOUT_CATEGORIES
    table = make_table(300, categories=categories)
    y: Any = make_classes(table)
    if name in ("binary", "named", "ctr"):
        y = np.where(y > 0, "yes", "no") if name == "named" else (y > 0).astype(int)
    if name == "several":
        y = np.stack([np.where(table["height"].isna(), 5, y), 2.0 * y], axis=1)
    settings: dict[str, Any] = {"iterations": 4, "depth": 3, "one_hot_max_size": 20}
    settings |= {"thread_count": 1, "random_seed": 1, "allow_writing_files": False}
    names = ["soil", "zone"] if categories else []
    made = catboost.CatBoost(settings | CASES[name])
    made.fit(catboost.Pool(table, y, cat_features=names), verbose=False)
    if name == "scaled":
        made.set_scale_and_bias(2.5, -0.125)
    borders = [border for own in made.get_borders().values() for border in own]
    return made, table, make_rows(borders, categories)


def shorten(info: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of the information on a model that are read."""
    kept = {key: info[key] for key in ("class_params", "catboost_version_info") if key in info}
    return kept | {"params": {"loss_function": info["params"]["loss_function"]}}


def make(name: str) -> None:
    model, table, rows = fit(name)
    path = FOLDER / f"{name}.json"
    model.save_model(str(path), format="json")
    content = json.loads(path.read_text())
    content["model_info"] = shorten(content["model_info"])
    path.write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=False))
    if name == "ctr":
        return
    answers = {
        "catboost": catboost.__version__,
        "rows": list_cells(rows),
        "categories": {
            column: sorted(map(str, table[column].unique()))
            for column in ("soil", "zone")
            if column in table
        },
        "margins": np.asarray(model.predict(rows, prediction_type="RawFormulaVal")).tolist(),
    }
    loss = CASES[name]["loss_function"]
    if loss in ("Logloss", "MultiClass", "MultiClassOneVsAll"):
        answers["shares"] = model.predict(rows, prediction_type="Probability").tolist()
        answers["labels"] = model.predict(rows, prediction_type="Class").ravel().tolist()
    if loss == "Poisson":
        answers["numbers"] = model.predict(rows, prediction_type="Exponent").tolist()
    (FOLDER / f"{name}.answers").write_text(json.dumps(answers, separators=(",", ":")))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for case in sys.argv[1:] or CASES:
        make(case)
