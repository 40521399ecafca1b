"""Running one artifact on one runtime, block of rows by block of rows, until its time is over."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.verify.answers import Answers, differing, said
from treekit.verify.certificate import file_sha256
from treekit.verify.report import ArtifactResult, Difference
from treekit.verify.runtime import Job, OutOfTimeError, Runner, Runtime
from treekit.verify.unseen import cells_of

__all__ = ["Questions", "run_artifact"]

_FIRST = 2_000
_LARGEST = 100_000
_GROWTH = 8
_LEAST = 100
"""A block of fewer rows is not worth the start of a process."""


@dataclass(frozen=True)
class Questions:
    """Rows (rows, features), what the model answers, and what was left out of them, in words."""

    rows: npt.NDArray[np.float64]
    wanted: Answers
    note: str = ""

    def behind(self, first: Questions) -> Questions:
        """The questions `first`, then these."""
        wanted = Answers(
            np.concatenate([first.wanted.label, self.wanted.label]),
            np.concatenate([first.wanted.number, self.wanted.number]),
        )
        notes = "; ".join(filter(None, (first.note, self.note)))
        return Questions(np.concatenate([first.rows, self.rows]), wanted, notes)

    def part(self, rows: npt.NDArray[np.int64]) -> Questions:
        """Some of them."""
        wanted = Answers(self.wanted.label[rows], self.wanted.number[rows])
        return Questions(self.rows[rows], wanted)


@dataclass
class _Found:
    """What was compared so far."""

    compared: int = 0
    wrong: set[int] = field(default_factory=set)
    first: tuple[int, Difference] | None = None


def run_artifact(
    path: Path,
    runner: Runner,
    runtime: Runtime,
    schema: Schema,
    questions: Questions,
    deadline: float,
) -> ArtifactResult:
    """Ask one artifact, in every way it can be called, until `deadline`.

    Rows are asked in an order of no pattern, so that what is left out for lack
    of time is spread over the model; the first block is asked in any case.
    """
    files = {file.name: file_sha256(file) for file in runner.files(path) if file.is_file()}
    found, note = _Found(), questions.note
    try:
        with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
            job = Job(path, schema, Path(folder), deadline)
            for block in _blocks(len(questions.rows), deadline):
                _compare(job, runtime, questions, block, found)
    except OutOfTimeError as error:
        if not found.compared:
            return ArtifactResult(
                str(path), runner.kind, files, error=str(error), runtime=runtime.name
            )
    except VerificationError as error:
        return ArtifactResult(str(path), runner.kind, files, error=str(error), runtime=runtime.name)
    if found.compared < len(questions.rows):
        asked = f"{found.compared:,} of {len(questions.rows):,} rows were asked on {runtime.name}"
        note = "; ".join(filter(None, (note, f"{asked} within the budget of time")))
    return ArtifactResult(
        str(path),
        runner.kind,
        files,
        found.compared,
        len(found.wrong),
        found.first[1] if found.first else None,
        note=note,
        runtime=runtime.name,
    )


def _blocks(n_rows: int, deadline: float) -> Iterator[npt.NDArray[np.int64]]:
    """Numbers of rows to ask next, as long as more of them fit into the time."""
    order = np.arange(n_rows)
    if n_rows > _FIRST:
        order = np.random.default_rng(0).permutation(n_rows)
    done, size = 0, min(_FIRST, n_rows)
    while done < n_rows or done == n_rows == 0:
        began = time.monotonic()
        yield order[done : done + size]
        done += size
        if done >= n_rows:
            return
        # What starting a process takes is counted as if each row took its part: careful.
        a_row = (time.monotonic() - began) / size
        fits = (deadline - time.monotonic()) / max(a_row, 1e-9)
        if fits < _LEAST:
            return
        left = n_rows - done
        size = int(min(left, _LARGEST, fits if fits >= left else min(fits / 2, size * _GROWTH)))


def _compare(
    job: Job,
    runtime: Runtime,
    questions: Questions,
    block: npt.NDArray[np.int64],
    found: _Found,
) -> None:
    asked, answered = questions.part(block), 0
    for how, given in runtime.run(job, asked.rows):
        n = len(given.label)
        answered = max(answered, n)
        wanted = Answers(asked.wanted.label[:n], asked.wanted.number[:n])
        wrong = differing(wanted, given)
        if not len(wrong):
            continue
        found.wrong.update(block[wrong].tolist())
        row = int(wrong[block[wrong].argmin()])
        if found.first is None or block[row] < found.first[0]:
            shown = _difference(job.schema, asked.rows[row], wanted, given, row, how)
            found.first = int(block[row]), shown
    found.compared += answered


def _difference(
    schema: Schema,
    row: npt.NDArray[np.float64],
    wanted: Answers,
    given: Answers,
    number: int,
    how: str,
) -> Difference:
    cells = dict(zip(schema.names, cells_of(schema, row), strict=True))
    return Difference(how, cells, said(schema, wanted, number), said(schema, given, number))
