"""Make the files of this folder: models of other libraries, and their predictions.

    python -m tests.foreign.make

They were made by skops 0.16 with scikit-learn 1.9.
"""

from __future__ import annotations

import json
from typing import Any

import skops.io
from sklearn.ensemble import (
    BaggingClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier

from tests.foreign import FOLDER, frame, make_classes


def cells_of(rows: Any) -> dict[str, Any]:
    columns = {}
    for column in rows:
        cells = rows[column].astype(object).where(rows[column].notna(), None)
        columns[column] = cells.tolist()
    return columns


ESTIMATORS = {
    "forest": RandomForestRegressor(n_estimators=3, max_depth=4, random_state=0),
    "boosted": GradientBoostingClassifier(n_estimators=2, max_depth=2, random_state=0),
    "histogram": HistGradientBoostingClassifier(
        max_iter=3, max_leaf_nodes=6, categorical_features="from_dtype"
    ),
    "bag": BaggingClassifier(DecisionTreeClassifier(max_depth=3), n_estimators=2, random_state=0),
}


def make_skops(name: str, estimator: Any) -> None:
    table, rows = frame(200, 1, name == "histogram"), frame(80, 2, name == "histogram")
    if name == "boosted":
        table, rows = table.fillna(0.0), rows.fillna(0.0)
    estimator.fit(table, make_classes(table))
    skops.io.dump(estimator, FOLDER / f"sklearn_{name}.skops")
    asked = estimator.predict_proba if hasattr(estimator, "predict_proba") else estimator.predict
    answers = {"rows": cells_of(rows), "predictions": asked(rows).tolist()}
    (FOLDER / f"sklearn_{name}.answers").write_text(json.dumps(answers, separators=(",", ":")))


if __name__ == "__main__":
    for name, one in ESTIMATORS.items():
        make_skops(name, one)
