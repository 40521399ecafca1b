"""Fixtures shared by the plugins' tests: run exported models without treekit or the plugin."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import treekit

ONNX = """
import sys
sys.modules["treekit"] = None  # makes every later import of treekit fail
import numpy, onnxruntime
model, rows, answers = sys.argv[1:]
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
said = session.run(None, {"X": numpy.load(rows).astype(numpy.float32)})
numpy.save(answers, said[-1])
assert not [name for name in sys.modules if name.startswith("treekit_")]
"""

PYTHON = """
import json, runpy, sys
scorer = runpy.run_path(sys.argv[1])
answer = scorer.get("predict_proba") or scorer["predict"]
for row in json.load(sys.stdin):
    print(*(float(number).hex() for number in answer(row)))
"""

C = r"""
#include <stdio.h>
#include "model.h"

int main(void)
{
    double x[MODEL_FEATURES], out[MODEL_OUTPUTS];

    for (;;) {
        for (int f = 0; f < MODEL_FEATURES; f++)
            if (scanf("%la", &x[f]) != 1)
                return 0;
        model_predict(x, out);
        for (int k = 0; k < MODEL_OUTPUTS; k++)
            printf("%a%c", out[k], k + 1 < MODEL_OUTPUTS ? ' ' : '\n');
    }
}
"""


@pytest.fixture
def run_alone(tmp_path):
    """Return ``run_alone(model, table)``, which scores exports without treekit or the plugin.

    It returns a dictionary from target (``onnx``, ``c``, ``python``) to an array
    (rows, outputs) of numbers or class shares.
    """

    def run(model, table):
        paths = {
            target: treekit.export(model, target, tmp_path / f"model{suffix}", **settings)[0]
            for target, suffix, settings in (
                ("onnx", ".onnx", {}),
                ("c", ".c", {"form": "full"}),
                ("python", ".py", {"form": "full"}),
            )
        }
        rows = _codes(model, table)
        return {
            "onnx": _run_onnx(paths["onnx"], rows),
            "c": _run_c(paths["c"], rows),
            "python": _run_python(paths["python"], model, table),
        }

    return run


def _codes(model, table):
    """Return the table as (rows, columns) float64, categories as codes; NaN is missing."""
    rows = []
    for column in model.schema.columns:
        cells = np.asarray(table[column.name])
        if column.levels:
            code = {level: number for number, level in enumerate(column.levels)}
            cells = [code.get(cell, np.nan) for cell in cells.tolist()]
        rows.append(np.asarray(cells, dtype=np.float64))
    return np.column_stack(rows)


def _run_onnx(path, rows):
    given, said = path.parent / "rows.npy", path.parent / "said.npy"
    np.save(given, rows)
    subprocess.run([sys.executable, "-c", ONNX, path, given, said], check=True)
    return np.load(said)


def _run_c(path, rows):
    main, program = path.parent / "main.c", path.parent / "score"
    main.write_text(C, encoding="utf-8")
    compiler = os.environ.get("CC", "gcc")
    subprocess.run([compiler, "-std=c99", "-O1", main, path, "-o", program], check=True)
    lines = "\n".join(" ".join(map(float.hex, row)) for row in rows.tolist())
    return _numbers(subprocess.run(program, input=lines, check=True, **_TALKING).stdout)


def _run_python(path, model, table):
    names = model.schema.names
    columns = [np.asarray(table[name]).tolist() for name in names]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    bare = [sys.executable, "-I", "-S", "-c", PYTHON, path]
    return _numbers(subprocess.run(bare, input=json.dumps(rows), check=True, **_TALKING).stdout)


_TALKING = {"stdout": subprocess.PIPE, "encoding": "utf-8"}


def _numbers(text):
    return np.array([[float.fromhex(cell) for cell in line.split()] for line in text.splitlines()])
