"""Runners for every kind of artifact, rule text too, and the comparison with the model."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.data.schema import Schema
from treekit.errors import ModelFileError, VerificationError
from treekit.rules import parse_rules
from treekit.settings import suggestion
from treekit.verify.answers import Answers, answers_from_sums, describe_answer, differing
from treekit.verify.probe_values import decode_cells
from treekit.verify.report import ArtifactResult, Difference, Untried, hash_file
from treekit.verify.run_c import C_RUNTIMES, compare_c_structure, list_c_files
from treekit.verify.run_language import explain_missing_runner, list_language_runners
from treekit.verify.run_onnx import ONNX_RUNTIMES, compare_onnx_structure
from treekit.verify.run_python import PYTHON_RUNTIMES, compare_python_structure
from treekit.verify.run_sql import SQL_RUNTIMES
from treekit.verify.runtime import Job, OutOfTimeError, Runner, Runtime

# ---------------------------------------------------------------- rules


def run_rules(job: Job, rows: npt.NDArray[np.float64]) -> Iterator[tuple[str, Answers]]:
    """Read rule text and execute it, without the model."""
    path, schema = job.path, job.schema
    try:
        rules = parse_rules(path.read_bytes().decode())
    except (ModelFileError, UnicodeDecodeError) as error:
        raise VerificationError(f"{path.name!r} cannot be read: {error}") from error
    if rules.rounding is not None:
        raise VerificationError(
            f"{path.name!r} has thresholds shortened to {rules.rounding.digits} digits, which are "
            "exact for the rows of one table only; write the rules without --digits"
        )
    if (rules.schema.columns, rules.schema.outputs) != (schema.columns, schema.outputs):
        raise VerificationError(
            f"{path.name!r} differs from the model in columns or classes; export it again"
        )
    answered = ~rules.refused(rows)
    yield "rules", answers_from_sums(rules, rules.sums(rows[answered]), answered)


RULES_RUNTIMES = (Runtime("treekit", run_rules, lambda: __version__),)


# ---------------------------------------------------------------- runners

_RUNNERS = (
    Runner("onnx", ".onnx", ONNX_RUNTIMES, compare_structure=compare_onnx_structure),
    Runner("c", ".c", C_RUNTIMES, list_c_files, compare_structure=compare_c_structure),
    Runner("python", ".py", PYTHON_RUNTIMES, compare_structure=compare_python_structure),
    Runner("sql", ".sql", SQL_RUNTIMES),
    Runner("rules", ".rules.txt", RULES_RUNTIMES, has_rule_bounds=True),
)


def list_runners(templates: str | Path = "") -> tuple[Runner, ...]:
    """Return the runners for all kinds of artifacts, including languages of a template folder."""
    return (*_RUNNERS, *list_language_runners(templates))


def find_runner(path: Path, templates: str | Path = "") -> Runner:
    """Find the runner by the ending of a file name; `templates` as for `list_runners`.

    Raises
    ------
    VerificationError
        If there is none, or the folder `templates` does not exist.
    """
    known = list_runners(templates)
    for runner in known:
        if path.name.endswith(runner.suffix):
            return runner
    endings = ", ".join(dict.fromkeys(runner.suffix for runner in known))
    reasons = [f"supported endings: {endings}", *explain_missing_runner(path.name, templates)]
    raise VerificationError(f"verify cannot run {path.name!r}; {'; '.join(reasons)}")


# ---------------------------------------------------------------- choice of runtimes

ALL_RUNTIMES = "all"
"""Name that selects every runtime that the machine has."""


@dataclass(frozen=True)
class RuntimeChoice:
    """An artifact and the runtimes chosen for it.

    Attributes
    ----------
    path : Path
    runner : Runner
    runtimes : tuple of Runtime
    why_unavailable : str
        Why no runtime, or one requested by name, can run it; empty if all can.
    untried : tuple of Untried
        Other runtimes of its kind.
    """

    path: Path
    runner: Runner
    runtimes: tuple[Runtime, ...]
    why_unavailable: str
    untried: tuple[Untried, ...]


def choose_runtimes(
    paths: Sequence[Path],
    wanted: Collection[str],
    without: Collection[str],
    templates: str | Path = "",
) -> tuple[RuntimeChoice, ...]:
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
    kinds = [find_runner(path, templates) for path in paths]
    for path in paths:
        if not path.is_file():
            raise VerificationError(f"cannot verify {str(path)!r}: no such file")
    named, barred = (
        _check_runtime_names(wanted, templates),
        _check_runtime_names(without, templates),
    )
    return tuple(
        _choose_for_artifact(path, runner, named, barred)
        for path, runner in zip(paths, kinds, strict=True)
    )


def _check_runtime_names(given: Collection[str], templates: str | Path) -> set[str]:
    names = {given} if isinstance(given, str) else set(given)
    known = [runtime.name for runner in list_runners(templates) for runtime in runner.runtimes]
    for name in sorted(names):
        if name not in {*known, ALL_RUNTIMES}:
            raise VerificationError(
                f"unknown runtime {name!r}{suggestion(name, known) or ';'} "
                f"known: {', '.join(dict.fromkeys(known))}"
            )
    return names


def _choose_for_artifact(
    path: Path, runner: Runner, wanted: set[str], without: set[str]
) -> RuntimeChoice:
    lacking = {runtime.name: runtime.why_unavailable(path) for runtime in runner.runtimes}
    lacking |= {name: "excluded on request" for name in lacking if name in without}
    able = [runtime for runtime in runner.runtimes if not lacking[runtime.name]]
    named = wanted & set(lacking)
    if ALL_RUNTIMES in wanted:
        taken = able
    elif named:
        taken = [runtime for runtime in able if runtime.name in named]
    else:
        taken = able[:1]
    absent = [lacking[name] for name in lacking if lacking[name] and name in named]
    if not taken and not absent:
        absent = list(dict.fromkeys(lacking.values()))
    used = {runtime.name for runtime in taken}
    return RuntimeChoice(
        path, runner, tuple(taken), ", ".join(absent), tuple(_list_untried(path, lacking, used))
    )


def _list_untried(path: Path, lacking: dict[str, str], used: set[str]) -> Iterator[Untried]:
    for name, why in lacking.items():
        if name not in used:
            yield Untried(str(path), name, why or "not requested")


# ---------------------------------------------------------------- running
# Running one artifact on one runtime, block by block of rows, until its deadline.

_FIRST_BLOCK = 2_000
_LARGEST_BLOCK = 100_000
_BLOCK_GROWTH = 8
_SMALLEST_BLOCK = 100
"""Minimum rows of a block; fewer are not worth the start of a process."""


@dataclass(frozen=True)
class ReferenceRows:
    """Rows (rows, features) with the model's predictions, and a note of what was left out."""

    rows: npt.NDArray[np.float64]
    predictions: Answers
    note: str = ""

    def prepend_rows(self, first: ReferenceRows) -> ReferenceRows:
        """Return these rows with the rows of `first` in front."""
        wanted = Answers(
            np.concatenate([first.predictions.label, self.predictions.label]),
            np.concatenate([first.predictions.number, self.predictions.number]),
        )
        notes = "; ".join(filter(None, (first.note, self.note)))
        return ReferenceRows(np.concatenate([first.rows, self.rows]), wanted, notes)

    def select_rows(self, rows: npt.NDArray[np.int64]) -> ReferenceRows:
        """Select rows by number."""
        wanted = Answers(self.predictions.label[rows], self.predictions.number[rows])
        return ReferenceRows(self.rows[rows], wanted)


@dataclass
class _Comparison:
    """Results of the comparison so far."""

    compared: int = 0
    differing: set[int] = field(default_factory=set)
    first: tuple[int, Difference] | None = None


def run_artifact(
    path: Path,
    runner: Runner,
    runtime: Runtime,
    schema: Schema,
    reference: ReferenceRows,
    deadline: float,
) -> ArtifactResult:
    """Run one artifact in every way it can be called, until `deadline`.

    Rows are run in random order, so that rows left out for lack of time are
    spread over the model; the first block is always run.
    """
    files = {file.name: hash_file(file) for file in runner.list_files(path) if file.is_file()}
    found, note = _Comparison(), reference.note
    try:
        with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
            job = Job(path, schema, Path(folder), deadline)
            for block in _iter_blocks(len(reference.rows), deadline):
                _compare_block(job, runtime, reference, block, found)
    except OutOfTimeError as error:
        if not found.compared:
            return ArtifactResult(
                str(path), runner.kind, files, error=str(error), runtime=runtime.name
            )
    except VerificationError as error:
        return ArtifactResult(str(path), runner.kind, files, error=str(error), runtime=runtime.name)
    if found.compared < len(reference.rows):
        progress = f"{found.compared:,} of {len(reference.rows):,} rows were run on {runtime.name}"
        note = "; ".join(filter(None, (note, f"{progress} within the time budget")))
    return ArtifactResult(
        str(path),
        runner.kind,
        files,
        found.compared,
        len(found.differing),
        found.first[1] if found.first else None,
        note=note,
        runtime=runtime.name,
    )


def _iter_blocks(n_rows: int, deadline: float) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the numbers of the rows to run next, while more of them fit into the time."""
    order = np.arange(n_rows)
    if n_rows > _FIRST_BLOCK:
        order = np.random.default_rng(0).permutation(n_rows)
    done, size = 0, min(_FIRST_BLOCK, n_rows)
    while done < n_rows or done == n_rows == 0:
        began = time.monotonic()
        yield order[done : done + size]
        done += size
        if done >= n_rows:
            return
        # Includes the start of a process, so that the time of further rows is overestimated.
        seconds_per_row = (time.monotonic() - began) / size
        fits = (deadline - time.monotonic()) / max(seconds_per_row, 1e-9)
        if fits < _SMALLEST_BLOCK:
            return
        left = n_rows - done
        size = int(
            min(left, _LARGEST_BLOCK, fits if fits >= left else min(fits / 2, size * _BLOCK_GROWTH))
        )


def _compare_block(
    job: Job,
    runtime: Runtime,
    reference: ReferenceRows,
    block: npt.NDArray[np.int64],
    found: _Comparison,
) -> None:
    part, n_compared = reference.select_rows(block), 0
    for how, given in runtime.run(job, part.rows):
        n = len(given.label)
        n_compared = max(n_compared, n)
        wanted = Answers(part.predictions.label[:n], part.predictions.number[:n])
        wrong = differing(wanted, given)
        if not len(wrong):
            continue
        found.differing.update(block[wrong].tolist())
        row = int(wrong[block[wrong].argmin()])
        if found.first is None or block[row] < found.first[0]:
            shown = _make_difference(job.schema, part.rows[row], wanted, given, row, how)
            found.first = int(block[row]), shown
    found.compared += n_compared


def _make_difference(
    schema: Schema,
    row: npt.NDArray[np.float64],
    wanted: Answers,
    given: Answers,
    number: int,
    how: str,
) -> Difference:
    cells = dict(zip(schema.names, decode_cells(schema, row), strict=True))
    return Difference(
        how, cells, describe_answer(schema, wanted, number), describe_answer(schema, given, number)
    )
