"""Compile or import exported source, and run it."""

from __future__ import annotations

import ctypes
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.runtimes import need
from treekit.export.c import export_c
from treekit.export.languages import language_exporter
from treekit.export.literals import identifier, list_shipped_folders
from treekit.model.model import Model

__all__ = ["STRICT", "Compiled", "compile_c", "compile_together", "export_python", "import_python"]

export_python = partial(language_exporter(list_shipped_folders()[0] / "python").export, form="full")
"""Function that writes the Python file of a model."""

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wtrigraphs"]


class Compiled:
    """Compiled model; see the header written by `export_c`."""

    def __init__(self, library: Path, prefix: str, model: Model, cells: str = "double") -> None:
        self.library, self.prefix, self.model = ctypes.CDLL(str(library)), prefix, model
        self.cells = cells

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        found = getattr(self.library, f"{self.prefix}_{name}")
        found.restype, found.argtypes = result, arguments
        return found

    @property
    def number(self) -> Any:
        """Type of the predicted numbers."""
        if self.cells in ("double", "float"):
            return np.float64
        votes = self.model.schema.task == "classification" and not self.model.margins
        narrow = votes and self.model.missing != "fractional" and self.model.unit_total < 2**31
        return np.int32 if narrow else np.int64

    def rows(self, rows: Sequence[Sequence[float]] | np.ndarray) -> np.ndarray:
        """Convert rows to the model's input type."""
        x = np.array(rows, dtype=np.float64)
        if self.cells == "double":
            return x
        with np.errstate(over="ignore", under="ignore"):
            single = x.astype(np.float32)
        if self.cells == "float":
            return single
        numbers = single if self.cells == "uint32_t" else x
        bits = numbers.view(np.dtype(f"u{numbers.itemsize}"))
        word = ctypes.c_uint32 if self.cells == "uint32_t" else ctypes.c_uint64
        key = self.function("key", word, word)
        keys = np.array([[key(b) for b in row] for row in bits.tolist()], bits.dtype)
        for f in np.flatnonzero(self.model.schema.nominal):
            known = (x[:, f] >= 0) & (x[:, f] < 2**31) & (x[:, f] == np.floor(x[:, f]))
            codes = np.where(known, x[:, f], 2**31).astype(bits.dtype)
            keys[:, f] = np.where(np.isnan(x[:, f]), keys[:, f], codes)
        return keys

    def answers(self, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return labels (rows, labels), -1 = rejected, and numbers, unwritten for rejected rows."""
        x, schema = self.rows(rows), self.model.schema
        n_labels = len(schema.outputs) if schema.task == "classification" else 1
        labels = np.full((len(x), n_labels), 99, dtype=np.intc)
        out = np.full((len(x), schema.n_values), -77, dtype=self.number)
        pointer = ctypes.c_void_p
        batch = self.function(
            "predict_batch", ctypes.c_size_t, pointer, ctypes.c_size_t, pointer, pointer
        )
        refused = batch(x.ctypes.data, len(x), labels.ctypes.data, out.ctypes.data)
        assert refused == np.count_nonzero(labels[:, 0] == -1)
        return labels, out

    def leaves(self, rows: Any) -> np.ndarray:
        """Return the leaf node of each row in each tree as (rows, trees), -1 if rejected."""
        x = self.rows(rows)
        nodes = np.full((len(x), self.model.n_trees), -1, dtype=np.intc)
        leaf = self.function("leaf", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        for row, own in zip(x, nodes, strict=True):
            refused = leaf(row.ctypes.data, own.ctypes.data) != 0
            assert refused == (own[0] == -1)
        return nodes

    def run(self, rows: Sequence[Sequence[float]]) -> tuple[list[Any], list[list[float]]]:
        """Return labels (-1 = rejected; lists for several targets) and outputs (NaN = rejected)."""
        labels, out = self.answers(rows)
        several = bool(self.model.schema.more) and self.model.schema.task == "classification"
        numbers = np.where(labels[:, :1] == -1, np.nan, out)
        return (labels if several else labels[:, 0]).tolist(), numbers.tolist()


def compile_c(
    model: Model, folder: Path, name: str = "m", optimise: str = "-O0", **settings: Any
) -> Compiled:
    """Export, compile with strict flags and without warnings, and load; skip without gcc."""
    need("gcc")
    for file, content in export_c(model, name, **({"form": "full"} | settings)).items():
        (folder / file).write_bytes(content)
    # Use a new name each time: overwriting a loaded library can crash the process.
    library = folder / f"{name}-{secrets.token_hex(4)}.so"
    command = ["gcc", *STRICT, optimise, "-shared", "-fPIC", f"{name}.c", "-o", library.name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    assert done.stderr == ""
    return Compiled(library, identifier(name, "model"), model)


def compile_together(
    sources: Mapping[str, tuple[Model, Mapping[str, Any]]], folder: Path, optimise: str = "-O0"
) -> dict[str, Compiled]:
    """Compile many models, each with its settings, in one compiler run to save time.

    The keys are the names of the files.
    """
    need("gcc")
    for name, (model, settings) in sources.items():
        for file, content in export_c(model, name, **({"form": "full"} | dict(settings))).items():
            (folder / file).write_bytes(content)
    (folder / "all.c").write_text("".join(f'#include "{name}.c"\n' for name in sources))
    library = folder / f"all-{secrets.token_hex(4)}.so"
    command = ["gcc", *STRICT, "-Wshadow", optimise, "-shared", "-fPIC", "all.c", "-o"]
    done = subprocess.run(
        [*command, library.name], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:4000]
    assert done.stderr == ""
    return {
        name: Compiled(library, identifier(name, "model"), model, _cells_of(folder / f"{name}.h"))
        for name, (model, _) in sources.items()
    }


def _cells_of(header: Path) -> str:
    """Read the type of input cells from a header."""
    return header.read_text().split('_INPUT "')[1].split('"')[0]


def import_python(model: Model, **settings: Any) -> dict[str, Any]:
    """Run the exported module in an empty namespace and return the namespace."""
    (source,) = export_python(model, "m", **settings).values()
    namespace: dict[str, Any] = {"__name__": "exported"}
    exec(compile(source.decode("ascii"), "m.py", "exec"), namespace)
    return namespace
