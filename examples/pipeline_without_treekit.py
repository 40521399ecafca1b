"""
Convert a scikit-learn pipeline to ONNX
=======================================

Convert a scikit-learn pipeline with a forest to ONNX; score raw rows without treekit.

::

    python examples/pipeline_without_treekit.py

The table has text and numbers, both with missing values. skl2onnx converts the complete
pipeline, as treekit registers its estimators. Labels and probabilities must equal the
pipeline's, bit for bit.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import skl2onnx
from isolated import EXAMPLES, answers, run_without_treekit
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from treekit import RandomForestClassifier
from treekit.data import DEMO_TARGET, demo_table

RUNNER = EXAMPLES / "standalone" / "run_pipeline.py"
FILLED = ["rectal_temperature", "pulse"]
NUMBERS = ["respiratory_rate", "packed_cell_volume", "total_protein"]
ONE_HOT = ["age", "temp_extremities", "mucous_membranes", "pain"]
LEVELS = ["abdomen", "peristalsis"]


def read_table(path):
    """Read numbers as float32, the type of skl2onnx's imputer, and text, with None for missing."""
    table = pd.read_csv(path)
    for name in FILLED + NUMBERS:
        table[name] = table[name].astype(np.float32)
    for name in ONE_HOT + LEVELS:
        text = table[name].astype(object)
        table[name] = text.where(text.notna(), None)
    return table


def make():
    """Return the transformer and a forest, which handles missing numbers and splits sets."""
    columns = ColumnTransformer(
        [
            ("filled", SimpleImputer(strategy="median"), FILLED),
            ("numbers", "passthrough", NUMBERS),
            ("one_hot", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ONE_HOT),
            (
                "levels",
                OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
                LEVELS,
            ),
        ]
    )
    return columns, RandomForestClassifier(n_estimators=30, random_state=0)


def main():
    table = read_table(demo_table())
    rows, wanted = table[FILLED + NUMBERS + ONE_HOT + LEVELS], table[DEMO_TARGET]
    columns, forest = make()
    width = columns.fit_transform(rows).shape[1]
    forest.set_params(categorical=[width - 2, width - 1])
    pipeline = make_pipeline(columns, forest).fit(rows, wanted)
    converted = skl2onnx.to_onnx(pipeline, rows, options={"zipmap": False})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "horses.onnx"
        path.write_bytes(converted.SerializeToString())
        labels, shares = answers(run_without_treekit(RUNNER, path, demo_table()))
    assert labels == pipeline.predict(rows).tolist()
    assert shares == pipeline.predict_proba(rows).tolist()
    print(f"{len(labels)} raw rows: predictions of ONNX equal the pipeline's, bit for bit")


if __name__ == "__main__":
    main()
