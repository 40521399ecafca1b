"""Every kind of artifact that verify runs."""

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
    """Every kind of artifact that can be run, the languages of a folder of templates too."""
    return (*_RUNNERS, *language_runners(templates))


def runner_of(path: Path, templates: str | Path = "") -> Runner:
    """Find the runner by the ending of a file name; `templates` as for `runners`.

    Raises
    ------
    VerificationError
        If there is none, or the folder `templates` is absent.
    """
    known = runners(templates)
    for runner in known:
        if path.name.endswith(runner.suffix):
            return runner
    endings = ", ".join(dict.fromkeys(runner.suffix for runner in known))
    said = [f"it runs files that end in {endings}", *why_no_runner(path.name, templates)]
    raise VerificationError(f"verify cannot run {path.name!r}; {'; '.join(said)}")


# ---------------------------------------------------------------- chosen
# Which runtimes an artifact runs on, and why not on the others.

ALL = "all"
"""What to ask for to run an artifact on every runtime that the machine has."""


@dataclass(frozen=True)
class Chosen:
    """One artifact, and what it runs on.

    Attributes
    ----------
    path : Path
    runner : Runner
    runtimes : tuple of Runtime
    lacking : str
        Why it runs on none, or not on one that was asked for by name; empty if it does.
    untried : tuple of Untried
        The other runtimes of its kind.
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
        Names of runtimes, or `ALL`.  Kinds of which none is wanted by name
        take the first that can run.
    templates : str or Path
        A folder of languages besides those that are known.

    Raises
    ------
    VerificationError
        If a file is absent, or of no kind that is known, or a name is.
    """
    kinds = [runner_of(path, templates) for path in paths]
    for path in paths:
        if not path.is_file():
            raise VerificationError(f"there is no file {str(path)!r} to verify")
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
    lacking |= {name: "left out, as asked" for name in lacking if name in without}
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
            yield Untried(str(path), name, why or "not asked for")


# ---------------------------------------------------------------- running
# Running one artifact on one runtime, block of rows by block of rows, until its time is over.

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
