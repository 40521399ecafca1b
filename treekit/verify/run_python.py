"""Execution of Python artifacts in processes of their own, and comparison with a fresh export."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treekit.errors import VerificationError
from treekit.export.languages import language_exporter
from treekit.export.literals import list_shipped_folders
from treekit.model.model import Model
from treekit.verify.answers import Answers, concatenate_answers
from treekit.verify.probe_values import make_unseen_text
from treekit.verify.runtime import FailedError, Job, Runtime
from treekit.verify.tree_equivalence import (
    NOT_FRESH,
    StructureComparison,
    compare_with_export,
    find_source_settings,
    normalize_line_ends,
)


def compare_python_structure(path: Path, model: Model) -> StructureComparison:
    """Compare the file with the one that this version of treekit writes for the model."""
    settings = find_source_settings(normalize_line_ends(path.read_bytes()).decode(errors="replace"))
    if settings is None:
        return NOT_FRESH
    shipped = list_shipped_folders()[0]  # even if this machine is configured for others
    export = language_exporter(shipped / "python").export
    return compare_with_export(
        path, lambda: export(model, path.stem, templates=str(shipped), **settings)
    )


_DRIVER = Path(__file__).with_name("python_driver.py")
_ROWS_PER_PROCESS = 5000
_MISMATCH = "differs from the model in columns or classes"
_MISMATCH_CODE = 86
"""Exit code of the driver; any code without another meaning."""


def run_python(job: Job, rows: npt.NDArray[np.float64]) -> Iterator[tuple[str, Answers]]:
    """Call ``predict`` and ``predict_proba`` on rows with the text of categories."""
    n_parts = max(min(os.cpu_count() or 1, len(rows) // _ROWS_PER_PROCESS), 1)
    parts = np.array_split(rows, n_parts)
    with ThreadPoolExecutor(n_parts) as pool:
        answers = list(
            pool.map(lambda number: _predict_part(job, parts[number], number), range(n_parts))
        )
    yield "rows with text", concatenate_answers(answers)


def _predict_part(job: Job, rows: npt.NDArray[np.float64], number: int) -> Answers:
    """Predict rows in a separate process."""
    schema, folder = job.schema, job.folder / str(number)
    folder.mkdir(exist_ok=True)
    description = {
        "artifact": str(job.path.resolve()),
        "rows": str(folder / "rows"),
        "answers": str(folder / "answers"),
        "classes": [output.classes for output in schema.outputs],
        "values": schema.n_values,
        "features": schema.names,
        "levels": [
            (column.levels, make_unseen_text(column)) if column.kind == "nominal" else (None, "")
            for column in schema.columns
        ],
    }
    (folder / "rows").write_bytes(rows.tobytes())
    (folder / "job").write_text(json.dumps(description), encoding="utf-8")
    (folder / "answers").unlink(missing_ok=True)
    try:
        job.run_program([sys.executable, "-I", "-S", "-B", _DRIVER, folder / "job"])
    except FailedError as failed:
        if failed.code == _MISMATCH_CODE:
            raise VerificationError(f"{job.path.name!r} {_MISMATCH}") from None
        raise
    return _read_answers(job, len(rows), folder / "answers")


def _read_answers(job: Job, n_rows: int, out: Path) -> Answers:
    schema, n_outputs = job.schema, len(job.schema.outputs)
    if not out.is_file():
        raise VerificationError(f"{job.path.name!r} ended before it wrote predictions")
    content = out.read_bytes()
    n_numbers = len(content) // (8 * n_rows) - n_outputs  # 0 if it returns labels alone
    if len(content) != 8 * n_rows * (n_outputs + n_numbers) or n_numbers not in (
        0,
        schema.n_values,
    ):
        raise VerificationError(
            f"{job.path.name!r} {_MISMATCH}: expected {schema.n_values} numbers a row"
        )
    label = np.frombuffer(content, dtype=np.int64, count=n_rows * n_outputs)
    number = np.frombuffer(content, dtype=np.float64, offset=8 * n_rows * n_outputs)
    return Answers(label.reshape(n_rows, n_outputs), number.reshape(n_rows, n_numbers))


PYTHON_RUNTIMES = (Runtime("python", run_python, platform.python_version),)
