"""Exported source, compiled or imported, and run."""

from __future__ import annotations

import ctypes
import secrets
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treekit.export.c import c_prefix, export_c
from treekit.export.python import export_python
from treekit.model.ensemble import Model

__all__ = ["STRICT", "Compiled", "compile_c", "import_python"]

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wtrigraphs"]


class Compiled:
    """A compiled model; see the header that `export_c` writes."""

    def __init__(self, library: Path, prefix: str, model: Model) -> None:
        self.library, self.prefix, self.model = ctypes.CDLL(str(library)), prefix, model

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        found = getattr(self.library, f"{self.prefix}_{name}")
        found.restype, found.argtypes = result, arguments
        return found

    def run(self, rows: Sequence[Sequence[float]]) -> tuple[list[Any], list[list[float]]]:
        """Labels (-1 = refused; a list of them for several) and outputs (NaN where refused)."""
        x = np.array(rows, dtype=np.float64)
        schema = self.model.schema
        several = bool(schema.more) and schema.task == "classification"
        shape = (len(x), len(schema.outputs)) if several else len(x)
        labels = np.full(shape, 99, dtype=np.intc)
        out = np.full((len(x), self.model.schema.n_values), np.nan)
        pointer = ctypes.c_void_p
        batch = self.function(
            "predict_batch", ctypes.c_size_t, pointer, ctypes.c_size_t, pointer, pointer
        )
        refused = batch(x.ctypes.data, len(x), labels.ctypes.data, out.ctypes.data)
        assert refused == np.count_nonzero(labels.reshape(len(x), -1)[:, :1] == -1)
        return labels.tolist(), out.tolist()


def compile_c(
    model: Model, folder: Path, name: str = "m", optimise: str = "-O0", **settings: Any
) -> Compiled:
    """Export, compile without a warning under strict flags, and load."""
    for file, content in export_c(model, name, **settings).items():
        (folder / file).write_bytes(content)
    # A loaded library must never be written again under its own name.
    library = folder / f"{name}-{secrets.token_hex(4)}.so"
    command = ["gcc", *STRICT, optimise, "-shared", "-fPIC", f"{name}.c", "-o", library.name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    assert done.stderr == ""
    return Compiled(library, c_prefix(name), model)


def import_python(model: Model, **settings: Any) -> dict[str, Any]:
    """The names of the exported module, run in an empty namespace."""
    (source,) = export_python(model, "m", **settings).values()
    namespace: dict[str, Any] = {"__name__": "exported"}
    exec(compile(source.decode("ascii"), "m.py", "exec"), namespace)
    return namespace
