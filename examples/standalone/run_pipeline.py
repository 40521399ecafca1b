"""Score the raw rows of a CSV file with an ONNX pipeline: needs numpy and onnxruntime.

    python run_pipeline.py PIPELINE.onnx TABLE.csv

The pipeline has an input for each column that it uses, with the column's name and type.
An empty cell is NaN in a numeric column and None in a text column.
"""

import csv
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def read_inputs(path, inputs):
    """Return a tensor (rows, 1) for each input, by name."""
    with Path(path).open(encoding="utf-8", newline="") as stream:
        cells = list(csv.DictReader(stream))
    tensors = {}
    for one in inputs:
        column = [row[one.name] for row in cells]
        if one.type == "tensor(string)":
            values = np.array([cell or None for cell in column], dtype=object)
        else:
            values = np.array([cell or "nan" for cell in column], dtype=np.float64)
            values = values.astype(np.float32)
        tensors[one.name] = values[:, np.newaxis]
    return tensors


def main(pipeline, table):
    session = onnxruntime.InferenceSession(pipeline, providers=["CPUExecutionProvider"])
    tensors = read_inputs(table, session.get_inputs())
    labels, shares = session.run(["label", "probabilities"], tensors)
    for label, share in zip(labels, shares, strict=True):
        print(label, *(number.hex() for number in share.tolist()), sep="\t")


if __name__ == "__main__":
    main(*sys.argv[1:])
