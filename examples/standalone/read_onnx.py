"""Score a CSV file with an ONNX model: needs numpy and onnxruntime, not treekit.

    python read_onnx.py MODEL.onnx TABLE.csv

The model's metadata holds the columns in order, and the categories of each in the order
of their codes.
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def read_rows(path, columns):
    """Read a table as float32: numbers, category codes, NaN for empty cells and unseen values."""
    with Path(path).open(encoding="utf-8", newline="") as stream:
        cells = list(csv.DictReader(stream))
    matrix = np.full((len(cells), len(columns)), np.nan, dtype=np.float32)
    for j, column in enumerate(columns):
        code = {level: number for number, level in enumerate(column["levels"])}
        for i, row in enumerate(cells):
            cell = row[column["name"]]
            if column["kind"] == "nominal":
                matrix[i, j] = code.get(cell, np.nan)
            elif cell:
                matrix[i, j] = float(cell)
    return matrix


def main(model, table):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    schema = json.loads(session.get_modelmeta().custom_metadata_map["treekit.schema"])
    rows = read_rows(table, schema["columns"])
    labels, shares = session.run(["label", "probabilities"], {"X": rows})
    for label, share in zip(labels, shares, strict=True):
        print(label, *(number.hex() for number in share.tolist()), sep="\t")


if __name__ == "__main__":
    main(*sys.argv[1:])
