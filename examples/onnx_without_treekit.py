"""
Run an ONNX model without treekit
=================================

Run an exported ONNX model in a process that cannot import treekit.

::

    python examples/onnx_without_treekit.py

The table has categories and missing values. Labels and probabilities must equal the
model's, bit for bit.
"""

import tempfile
from pathlib import Path

from isolated import EXAMPLES, answers, run_without_treekit

import treekit
from treekit.data import DEMO_TARGET, demo_table

READER = EXAMPLES / "standalone" / "read_onnx.py"


def main():
    table = demo_table()
    model = treekit.train(table, DEMO_TARGET, ensemble="forest", trees=30, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        (path,) = treekit.export(model, "onnx", Path(folder) / "horses.onnx")
        labels, shares = answers(run_without_treekit(READER, path, table))
    assert labels == model.predict(table).tolist()
    assert shares == model.predict_proba(table).tolist()
    print(f"{len(labels)} rows: predictions of ONNX equal the model's, bit for bit")


if __name__ == "__main__":
    main()
