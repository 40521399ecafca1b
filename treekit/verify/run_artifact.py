"""Runners for every kind of artifact, and the comparison of their predictions with the model's."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.settings import suggestion
from treekit.verify.answers import Answers, differing, said
from treekit.verify.probe_values import cells_of
from treekit.verify.read_c import structure_of_c
from treekit.verify.read_onnx import structure_of_onnx
from treekit.verify.read_python import structure_of_python
from treekit.verify.report import ArtifactResult, Difference, Untried, file_sha256
from treekit.verify.run_c import C_RUNTIMES, c_files
from treekit.verify.run_language import language_runners, why_no_runner
from treekit.verify.run_onnx import ONNX_RUNTIMES
from treekit.verify.run_python import PYTHON_RUNTIMES
from treekit.verify.run_rules import RULES_RUNTIMES
from treekit.verify.run_sql import SQL_RUNTIMES
from treekit.verify.runtime import Job, OutOfTimeError, Runner, Runtime

__all__ = [
    "ALL",
    "Chosen",
    "Questions",
    "choose",
    "run_artifact",
    "runner_of",
    "runners",
]


# ---------------------------------------------------------------- runners

_RUNNERS = (
    Runner("onnx", ".onnx", ONNX_RUNTIMES, structure=structure_of_onnx),
    Runner("c", ".c", C_RUNTIMES, c_files, structure=structure_of_c),
    Runner("python", ".py", PYTHON_RUNTIMES, structure=structure_of_python),
    Runner("sql", ".sql", SQL_RUNTIMES),
    Runner("rules", ".rules.txt", RULES_RUNTIMES, states_rules=True),
)


def runners(templates: str | Path = "") -> tuple[Runner, ...]:
    """Return the runners for all kinds of artifacts, including languages of a template folder."""
    return (*_RUNNERS, *language_runners(templates))


def runner_of(path: Path, templates: str | Path = "") -> Runner:
    """Find the runner by the ending of a file name; `templates` as for `runners`.

    Raises
    ------
    VerificationError
        If there is none, or the folder `templates` does not exist.
    """
    known = runners(templates)
    for runner in known:
        if path.name.endswith(runner.suffix):
            return runner
    endings = ", ".join(dict.fromkeys(runner.suffix for runner in known))
    reasons = [f"supported endings: {endings}", *why_no_runner(path.name, templates)]
    raise VerificationError(f"verify cannot run {path.name!r}; {'; '.join(reasons)}")


# ---------------------------------------------------------------- choice of runtimes

ALL = "all"
"""Name that selects every runtime that the machine has."""


@dataclass(frozen=True)
class Chosen:
    """An artifact and the runtimes chosen for it.

    Attributes
    ----------
    path : Path
    runner : Runner
    runtimes : tuple of Runtime
    lacking : str
        Why no runtime, or one requested by name, can run it; empty if all can.
    untried : tuple of Untried
        Other runtimes of its kind.
    """

    path: Path
    runner: Runner
    runtimes: tuple[Runtime, ...]
    lacking: str
    untried: tuple[Untried, ...]


def choose(
    paths: Sequence[Path],
    wanted: Collection[str],
    without: Collection[str],
    templates: str | Path = "",
) -> tuple[Chosen, ...]:
    """Choose runtimes for each artifact.

    Parameters
    ----------
    paths : sequence of Path
    wanted, without : collection of str
        Names of runtimes, or `ALL`.  Kinds without a requested runtime use the
        first available one.
    templates : str or Path
        Folder of additional languages.

    Raises
    ------
    VerificationError
        If a file does not exist, or its kind or the name of a runtime is unknown.
    """
    kinds = [runner_of(path, templates) for path in paths]
    for path in paths:
        if not path.is_file():
            raise VerificationError(f"cannot verify {str(path)!r}: no such file")
    named, barred = _names(wanted, templates), _names(without, templates)
    return tuple(
        _choose(path, runner, named, barred) for path, runner in zip(paths, kinds, strict=True)
    )


def _names(given: Collection[str], templates: str | Path) -> set[str]:
    names = {given} if isinstance(given, str) else set(given)
    known = [runtime.name for runner in runners(templates) for runtime in runner.runtimes]
    for name in sorted(names):
        if name not in {*known, ALL}:
            raise VerificationError(
                f"unknown runtime {name!r}{suggestion(name, known) or ';'} "
                f"known: {', '.join(dict.fromkeys(known))}"
            )
    return names


def _choose(path: Path, runner: Runner, wanted: set[str], without: set[str]) -> Chosen:
    lacking = {runtime.name: runtime.lacking(path) for runtime in runner.runtimes}
    lacking |= {name: "excluded on request" for name in lacking if name in without}
    able = [runtime for runtime in runner.runtimes if not lacking[runtime.name]]
    named = wanted & set(lacking)
    if ALL in wanted:
        taken = able
    elif named:
        taken = [runtime for runtime in able if runtime.name in named]
    else:
        taken = able[:1]
    absent = [lacking[name] for name in lacking if lacking[name] and name in named]
    if not taken and not absent:
        absent = list(dict.fromkeys(lacking.values()))
    used = {runtime.name for runtime in taken}
    return Chosen(
        path, runner, tuple(taken), ", ".join(absent), tuple(_untried(path, lacking, used))
    )


def _untried(path: Path, lacking: dict[str, str], used: set[str]) -> Iterator[Untried]:
    for name, why in lacking.items():
        if name not in used:
            yield Untried(str(path), name, why or "not requested")


# ---------------------------------------------------------------- running
# Running one artifact on one runtime, block by block of rows, until its deadline.

_FIRST = 2_000
_LARGEST = 100_000
_GROWTH = 8
_LEAST = 100
"""Minimum rows of a block; fewer are not worth the start of a process."""


@dataclass(frozen=True)
class Questions:
    """Rows (rows, features) with the model's predictions, and a note of what was left out."""

    rows: npt.NDArray[np.float64]
    wanted: Answers
    note: str = ""

    def behind(self, first: Questions) -> Questions:
        """Return these rows with the rows of `first` in front."""
        wanted = Answers(
            np.concatenate([first.wanted.label, self.wanted.label]),
            np.concatenate([first.wanted.number, self.wanted.number]),
        )
        notes = "; ".join(filter(None, (first.note, self.note)))
        return Questions(np.concatenate([first.rows, self.rows]), wanted, notes)

    def part(self, rows: npt.NDArray[np.int64]) -> Questions:
        """Select rows by number."""
        wanted = Answers(self.wanted.label[rows], self.wanted.number[rows])
        return Questions(self.rows[rows], wanted)


@dataclass
class _Found:
    """Results of the comparison so far."""

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
    """Run one artifact in every way it can be called, until `deadline`.

    Rows are run in random order, so that rows left out for lack of time are
    spread over the model; the first block is always run.
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
        progress = f"{found.compared:,} of {len(questions.rows):,} rows were run on {runtime.name}"
        note = "; ".join(filter(None, (note, f"{progress} within the time budget")))
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
    """Yield the numbers of the rows to run next, while more of them fit into the time."""
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
        # Includes the start of a process, so that the time of further rows is overestimated.
        seconds_per_row = (time.monotonic() - began) / size
        fits = (deadline - time.monotonic()) / max(seconds_per_row, 1e-9)
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
    part, n_compared = questions.part(block), 0
    for how, given in runtime.run(job, part.rows):
        n = len(given.label)
        n_compared = max(n_compared, n)
        wanted = Answers(part.wanted.label[:n], part.wanted.number[:n])
        wrong = differing(wanted, given)
        if not len(wrong):
            continue
        found.wrong.update(block[wrong].tolist())
        row = int(wrong[block[wrong].argmin()])
        if found.first is None or block[row] < found.first[0]:
            shown = _difference(job.schema, part.rows[row], wanted, given, row, how)
            found.first = int(block[row]), shown
    found.compared += n_compared


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
