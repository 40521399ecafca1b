"""Compile generated source within limits and call it through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.apart import Failed

__all__ = ["Compiled", "adapter", "build"]

FLAGS = ("-O2", "-fPIC")
C, CPP = ("gcc", "-std=c99"), ("g++", "-std=c++20")
TIMED = """
import resource, subprocess, sys
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CPU, (most, most))
done = subprocess.run(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
sys.exit(done.returncode != 0)
"""
"""Program that runs a compiler within a CPU limit and prints its CPU seconds and peak MB."""
_OWN = """
#include "m.h"
size_t ask(const CELL *x, size_t rows, ANSWER *out)
{
    size_t row;
    for (row = 0; row < rows; row++)
        (void)m_predict(x + row * M_FEATURES, out + row * M_OUTPUTS);
    return rows;
}
size_t ask_batch(const CELL *x, size_t rows, ANSWER *out)
{
    return m_predict_batch(x, rows, NULL, out);
}
"""
_M2CGEN = """
#include <stddef.h>
void score(double *input, double *output);
size_t ask(double *x, size_t rows, double *out)
{
    size_t row;
    for (row = 0; row < rows; row++)
        score(x + row * %(features)d, out + row * %(outputs)d);
    return rows;
}
"""
_TL2CGEN = """
#include <stddef.h>
#include "header.h"
size_t ask(double *x, size_t rows, double *out)
{
    union Entry cells[%(features)d];
    size_t row;
    int i;
    for (row = 0; row < rows; row++) {
        for (i = 0; i < %(features)d; i++)
            cells[i].fvalue = x[row * %(features)d + i];
        predict(cells, 0, out + row * %(outputs)d);
    }
    return rows;
}
"""
_YDF = """
#include <cstddef>
#include "made.h"
extern "C" size_t ask(const float *x, size_t rows, double *out)
{
    for (size_t row = 0; row < rows; row++, x += %(features)d) {
        made::Instance one;
        %(copies)s
        const float said = made::Predict(one);
        out[row * 2] = 1 - said;
        out[row * 2 + 1] = said;
    }
    return rows;
}
"""
"""Adapter for YDF, whose source returns the share of the second of two classes."""


def adapter(kind: str, features: int, outputs: int) -> str:
    """Return source that scores many rows by a model's source.

    `kind` is a peer's name, or the type of the cells of treekit's rows.
    """
    if kind in ("double", "float", "uint32_t"):
        return _OWN.replace("CELL", kind).replace(
            "ANSWER", "int32_t" if kind == "uint32_t" else "double"
        )
    copies = " ".join(f"one.x{i} = x[{i}];" for i in range(features))
    peers = {"m2cgen": _M2CGEN, "tl2cgen": _TL2CGEN, "ydf C++": _YDF}
    return peers[kind] % {"features": features, "outputs": outputs, "copies": copies}


@dataclass(frozen=True)
class Compiled:
    """Compiled source of one side.

    Attributes
    ----------
    library : CDLL
    cells : {"double", "float", "uint32_t"}
        Type of the cells of a row.
    outputs : int
    figures : dict
        Costs of writing and compiling.
    """

    library: ctypes.CDLL
    cells: str
    outputs: int
    figures: dict[str, float]

    def ask(self, rows: Any, function: str = "ask") -> Any:
        """Score `rows`, converted by `wanted`: (rows, outputs)."""
        out = np.zeros((len(rows), self.outputs), np.int32 if self.cells == "uint32_t" else float)
        call = getattr(self.library, function)
        call.restype = ctypes.c_size_t
        call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        call(rows.ctypes.data, len(rows), out.ctypes.data)
        return out

    def timed(self, rows: Any, function: str) -> float:
        """Return CPU microseconds per row."""
        start = time.process_time()
        self.ask(rows, function)
        return (time.process_time() - start) / len(rows) * 1e6

    def wanted(self, rows: Any) -> Any:
        """Convert rows of doubles to the side's cell type."""
        if self.cells == "double":
            return np.ascontiguousarray(rows, dtype=np.float64)
        single = np.ascontiguousarray(rows, dtype=np.float32)
        if self.cells == "float":
            return single
        key = self.library.m_key
        key.restype, key.argtypes = ctypes.c_uint32, (ctypes.c_uint32,)
        distinct, inverse = np.unique(single.view(np.uint32), return_inverse=True)
        keys = np.array([key(b) for b in distinct.tolist()], np.uint32)
        return np.ascontiguousarray(keys[inverse].reshape(rows.shape))


def build(folder: Path, kind: str, features: int, outputs: int, seconds: float) -> Compiled:
    """Compile the source in a folder; raise `Failed` if that fails or takes too long.

    The source is ``m.c`` in C, compiled separately from its adapter, or ``made.h`` in
    C++, which the adapter includes.
    """
    source, (compiler, dialect) = "m.c", C
    if kind == "ydf C++":
        source, (compiler, dialect) = "adapter.cc", CPP
    beside = folder / ("adapter.cc" if compiler == "g++" else "adapter.c")
    beside.write_text(adapter(kind, features, outputs), encoding="utf-8")
    figures = {"source": sum(p.stat().st_size for p in folder.glob("m*.[ch]")) / 1e6}
    command = [sys.executable, "-c", TIMED, f"{seconds:.0f}", compiler, dialect, *FLAGS]
    done = subprocess.run(
        [*command, "-c", source, "-o", "m.o"], cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    figures["compile"], figures["compile_mb"] = map(float, done.stdout.split())
    if done.returncode != 0:
        late = figures["compile"] > 0.9 * seconds
        raise Failed(f"more than {seconds:.0f} s to compile" if late else "does not compile")
    size = subprocess.run(["size", "m.o"], cwd=folder, check=True, capture_output=True, text=True)
    figures["compiled"] = int(size.stdout.splitlines()[1].split()[3]) / 1024
    parts = ["m.o"] if compiler == "g++" else ["adapter.c", "m.o"]
    link = [compiler, dialect, *FLAGS, "-shared", *parts, "-o", "m.so"]
    subprocess.run(link, cwd=folder, check=True)
    cells = {"m2cgen": "double", "tl2cgen": "double", "ydf C++": "float"}.get(kind, kind)
    return Compiled(ctypes.CDLL(str(folder / "m.so")), cells, outputs, figures)
