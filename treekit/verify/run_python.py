"""Running Python artifacts in processes that see nothing but the standard library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.verify.answers import Answers
from treekit.verify.unseen import unseen_text

__all__ = ["run_python"]

_DRIVER = Path(__file__).with_name("python_driver.py")
_ROWS_A_PROCESS = 5000
_OTHER_COLUMNS = 86
"""Exit code of the driver; as good as any that nothing else uses."""


def run_python(
    path: Path, schema: Schema, rows: npt.NDArray[np.float64]
) -> Iterator[tuple[str, Answers]]:
    """Call ``predict`` and ``predict_proba`` on rows with the text of categories."""
    n_parts = max(min(os.cpu_count() or 1, len(rows) // _ROWS_A_PROCESS), 1)
    parts = np.array_split(rows, n_parts)
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        started = [
            _start(path, schema, part, Path(folder) / str(i)) for i, part in enumerate(parts)
        ]
        told = [process.communicate()[1] for process, _ in started]
        answers = [
            _answers(path, schema, len(part), process, text, out)
            for part, (process, out), text in zip(parts, started, told, strict=True)
        ]
    label = np.concatenate([some.label for some in answers])
    yield "rows with text", Answers(label, np.concatenate([some.number for some in answers]))


def _start(
    path: Path, schema: Schema, rows: npt.NDArray[np.float64], folder: Path
) -> tuple[subprocess.Popen[bytes], Path]:
    folder.mkdir()
    job = {
        "artifact": str(path.resolve()),
        "rows": str(folder / "rows"),
        "answers": str(folder / "answers"),
        "classes": [output.classes for output in schema.outputs],
        "values": schema.n_values,
        "features": schema.names,
        "levels": [
            (column.levels, unseen_text(column)) if column.kind == "nominal" else (None, "")
            for column in schema.columns
        ],
    }
    (folder / "rows").write_bytes(rows.tobytes())
    (folder / "job").write_text(json.dumps(job), encoding="utf-8")
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-I", "-S", "-B", str(_DRIVER), str(folder / "job")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    return process, folder / "answers"


def _answers(
    path: Path,
    schema: Schema,
    n_rows: int,
    process: subprocess.Popen[bytes],
    told: bytes,
    out: Path,
) -> Answers:
    other = f"{path.name!r} has other columns or classes than the model"
    if process.returncode == _OTHER_COLUMNS:
        raise VerificationError(other)
    if process.returncode != 0 or not out.is_file():
        lines = told.decode(errors="replace").strip().splitlines() or ["no message"]
        raise VerificationError(
            f"{path.name!r} failed with exit code {process.returncode}: {lines[-1]}"
        )
    content = out.read_bytes()
    n_outputs = len(schema.outputs)
    if len(content) != 8 * n_rows * (n_outputs + schema.n_values):
        raise VerificationError(f"{other}: it does not give {schema.n_values} numbers a row")
    label = np.frombuffer(content, dtype=np.int64, count=n_rows * n_outputs)
    number = np.frombuffer(content, dtype=np.float64, offset=8 * n_rows * n_outputs)
    return Answers(label.reshape(n_rows, n_outputs), number.reshape(n_rows, schema.n_values))
