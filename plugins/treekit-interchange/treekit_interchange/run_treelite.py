"""Treelite checkpoints run by Treelite, in a process of its own: a damaged file may end it.

Treelite's sums are compared.  The outputs of votes are divided by their sum, and link functions
are those of treekit: see `treekit_interchange.treelite`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.model.links import Link, apply_link
from treekit.verify.answers import Answers
from treekit.verify.runtime import Job, Runner, Runtime

__all__ = ["TREELITE_RUNNER", "encode_rows"]

Doubles = npt.NDArray[np.float64]

_SINGLE_ROWS = 100
_PROGRAM = f"""
import io, sys
import numpy, treelite
model = treelite.Model.deserialize(sys.argv[1])
field = model.get_header_accessor().get_field
rows = numpy.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False)
head = {{"features": model.num_feature, "postprocessor": str(field("postprocessor"))}}
if model.num_feature == rows.shape[1]:
    predict = lambda some: treelite.gtil.predict(model, some, nthread=1, pred_margin=True)
    head["rows"] = predict(rows)
    single = [predict(rows[i : i + 1]) for i in range(min(len(rows), {_SINGLE_ROWS}))]
    head["single"] = numpy.concatenate([head["rows"][:0], *single])
numpy.savez(sys.stdout.buffer, **head)
"""
_LINKS: dict[str, Link] = {
    "identity": "identity",
    "exponential": "exp",
    "sigmoid": "sigmoid",
    "multiclass_ova": "sigmoid",
    "softmax": "softmax",
}
_VOTES = "identity_multiclass"


def encode_rows(schema: Schema, rows: Doubles) -> Doubles:
    """Return rows of numbers and codes as Treelite reads them: NaN for an unseen category."""
    is_code = (rows >= 0) & (rows < schema.n_levels) & (rows == np.floor(rows))
    return np.where(schema.nominal & ~is_code, np.nan, rows)


def _run_rows(job: Job, rows: Doubles) -> Iterator[tuple[str, Answers]]:
    """Predict rows in a batch, and some one at a time."""
    file = io.BytesIO()
    np.save(file, encode_rows(job.schema, rows))
    command = [sys.executable, "-c", _PROGRAM, job.path.resolve()]
    made = job.run_program(command, file.getvalue(), f"Treelite reading {job.path.name}")
    with np.load(io.BytesIO(made), allow_pickle=False) as outputs:
        postprocessor, features = str(outputs["postprocessor"]), int(outputs["features"])
        fits = features == job.schema.n_features
        for name, key in (("a batch", "rows"), ("single rows", "single")):
            answers = _decode_outputs(job.schema, outputs[key], postprocessor) if fits else None
            if answers is None:
                raise VerificationError(
                    f"{job.path.name!r} differs from the model in columns or classes; export it "
                    "again"
                )
            yield name, answers


def _decode_outputs(schema: Schema, sums: Any, postprocessor: str) -> Answers | None:
    """Convert outputs (rows, targets, values) to answers; None if the schema has others."""
    sizes = [b - a for a, b in itertools.pairwise(schema.blocks)]
    n, classifies = len(sums), schema.task == "classification"
    label = np.zeros((n, len(sizes)), dtype=np.int64)
    if classifies and postprocessor == "sigmoid" and sums.shape[1:] == (1, 1) and sizes == [2]:
        sums, link = np.concatenate([np.zeros((n, 1, 1)), sums], axis=2), "softmax"
    else:
        link = _LINKS.get(postprocessor, "identity")
    known = postprocessor in _LINKS or (classifies and postprocessor == _VOTES)
    if not known or sums.shape[1:] != (len(sizes), max(sizes)):
        return None
    parts = [sums[:, k, :size] for k, size in enumerate(sizes)]
    if classifies:
        label[:] = np.stack([part.argmax(axis=1) for part in parts], axis=1)
    if postprocessor == _VOTES:
        parts = [part / part.sum(axis=1, keepdims=True) for part in parts]
    numbers = np.concatenate(parts, axis=1)
    return Answers(label, apply_link(link, numbers, schema.blocks))


def _explain_unavailable(path: Path) -> str:  # noqa: ARG001
    return "" if importlib.util.find_spec("treelite") else "treelite is not installed"


TREELITE_RUNNER = Runner(
    "treelite",
    ".tl",
    (
        Runtime(
            "treelite",
            _run_rows,
            lambda: importlib.metadata.version("treelite"),
            _explain_unavailable,
        ),
    ),
    start=r"\x04\x00\x00\x00.{8}\x03\x03",
)
