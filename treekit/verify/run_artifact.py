"""Runners for every kind of artifact, those of plugins too, and the comparison with the model."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit._version import __version__
from treekit.contracts import Exporter
from treekit.data.schema import Schema
from treekit.errors import ModelFileError, TreekitError, VerificationError
from treekit.model.model import Model
from treekit.rules import RuleList, joined_rules, parse_rules, rules
from treekit.rules.language import FIRST_LINE
from treekit.settings import suggestion
from treekit.verify.answers import (
    Answers,
    answers_from_sums,
    concatenate_answers,
    describe_answer,
    differing,
    take_answers,
)
from treekit.verify.probe_values import decode_cells
from treekit.verify.report import NOT_REQUESTED, ArtifactResult, Difference, Untried, hash_file
from treekit.verify.run_c import C_RUNTIMES, is_fresh_c
from treekit.verify.run_language import explain_missing_runner, list_language_runners
from treekit.verify.run_onnx import ONNX_RUNTIMES, is_fresh_onnx, load_onnx_runtime
from treekit.verify.runtime import Job, OutOfTimeError, Runner, Runtime

# ---------------------------------------------------------------- rules


def run_rules(job: Job, rows: npt.NDArray[np.float64]) -> Iterator[tuple[str, Answers]]:
    """Read rule text and execute it, without the model."""
    path, schema = job.path, job.schema
    try:
        found = _parse_bytes(path.read_bytes())
    except (ModelFileError, UnicodeDecodeError) as error:
        raise VerificationError(f"{path.name!r} cannot be read: {error}") from error
    if (found.schema.columns, found.schema.outputs) != (schema.columns, schema.outputs):
        raise VerificationError(
            f"{path.name!r} differs from the model in columns or classes; export it again"
        )
    answered = ~found.refused(rows)
    yield "rules", answers_from_sums(found, found.sums(rows[answered]), answered)


@lru_cache(maxsize=1)  # the rows of a file are run in several blocks
def _parse_bytes(text: bytes) -> RuleList:
    """Parse the bytes of a rule text."""
    return parse_rules(text.decode())


def is_fresh_rules(path: Path, model: Model) -> bool:
    """Return whether a file of rules has the bytes of a new export.

    The parser accepts a text only as treekit writes it, so that it is enough to compare the
    rules, joined or not.
    """
    try:
        content = path.read_bytes()
        found = _parse_bytes(content)
    except (ModelFileError, UnicodeDecodeError, OSError):
        return False
    current = content.startswith(FIRST_LINE.encode())
    return current and any(found.has_same_text(make(model)) for make in (joined_rules, rules))


RULES_RUNTIMES = (Runtime("treekit", run_rules, lambda: __version__),)


# ---------------------------------------------------------------- runners

_RUNNERS = (
    Runner(
        *("onnx", ".onnx", ONNX_RUNTIMES),
        start=r"\x08.\x12.treekit",
        is_fresh=is_fresh_onnx,
    ),
    Runner(
        *("c", ".c", C_RUNTIMES, (".h",)),
        start=r'(?:\s|/\*(?:(?!\*/).)*\*/)*+#include "',
        is_fresh=is_fresh_c,
    ),
    Runner(
        *("rules", ".rules.txt", RULES_RUNTIMES),
        start=r"(?:\xef\xbb\xbf)?treekit rules, format ",
        has_rule_bounds=True,
        is_fresh=is_fresh_rules,
    ),
)

_HEAD_BYTES = 1 << 16
"""Bytes of a file in which its start is looked for, after a long comment."""


def list_runners(templates: str | Path = "") -> tuple[Runner, ...]:
    """Return the runners for all kinds of artifacts, including languages of a template folder.

    A runner of a plugin that fails is left out.
    """
    return (*_RUNNERS, *list_language_runners(templates), *_make_plugin_runners()[0])


def _make_plugin_runners() -> tuple[list[Runner], list[str]]:
    """Return the runners that exporters bring, and why others could not be made."""
    runners: list[Runner] = []
    faults: list[str] = []
    for component in registry.components("exporter"):
        record = component.record
        if not isinstance(record, Exporter) or record.runner is None:
            continue
        try:
            runner = registry.call(record, record.runner)
        except TreekitError as error:
            faults.append(str(error))
            continue
        if isinstance(runner, Runner):
            runners.append(runner)
        else:
            who, got = registry.described(record), type(runner).__name__
            faults.append(f"runner of {who} returned {got}, expected a treekit.verify Runner")
    return runners, faults


def find_runner(path: Path, templates: str | Path = "") -> Runner:
    """Find the runner of a file; `templates` as for `list_runners`.

    The start of the file decides; if it is that of no kind, the ending of its name.

    Raises
    ------
    VerificationError
        If there is none, or the folder `templates` does not exist.
    """
    known, head = list_runners(templates), _read_head(path)
    if head.startswith(b"PK\x03\x04") and b"treekit-model" in head:
        raise VerificationError(
            f"{path.name!r} is a treekit model, not an artifact of one; compare models with "
            "treekit diff"
        )
    by_name = [runner for runner in known if path.name.endswith(runner.suffix)]
    by_start = [
        runner
        for runner in known
        if runner.start and re.match(runner.start.encode(), head, re.DOTALL)
    ]
    named = [runner for runner in by_name if runner in by_start or not (by_start and runner.start)]
    if found := named or by_start:
        return found[0]
    endings = ", ".join(dict.fromkeys(runner.suffix for runner in known))
    absence = registry.explain_absence("exporter", path.suffix[1:])
    reasons = [absence, *_make_plugin_runners()[1], *explain_missing_runner(path.name, templates)]
    reasons = [f"supported endings: {endings}", *filter(None, reasons)]
    raise VerificationError(f"verify cannot run {path.name!r}; {'; '.join(reasons)}")


def _read_head(path: Path) -> bytes:
    """Return the first bytes of a file; none if there is no such file."""
    try:
        with path.open("rb") as stream:
            return stream.read(_HEAD_BYTES)
    except OSError:
        return b""


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
        Runtimes that will run the artifact.
    why_unavailable : str
        Reason why no runtime, or a requested one, is available; empty if all are.
    untried : tuple of Untried
        Other runtimes for this kind of artifact, which will not run it.
    """

    path: Path
    runner: Runner
    runtimes: tuple[Runtime, ...]
    why_unavailable: str
    untried: tuple[Untried, ...]

    def list_failures(self) -> list[ArtifactResult]:
        """Return one result with the error if `why_unavailable` is set; otherwise an empty list."""
        if not self.why_unavailable:
            return []
        error = f"{self.path.name!r} cannot be run here: {self.why_unavailable}"
        return [ArtifactResult(str(self.path), self.runner.kind, {}, error=error)]


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
        Names of runtimes, or `ALL_RUNTIMES`; ``module:function`` is a user's own for ONNX.
        Kinds without a requested runtime use the first available one.
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
    named, barred = ({one} if isinstance(one, str) else set(one) for one in (wanted, without))
    own = tuple(load_onnx_runtime(name) for name in sorted(named) if ":" in name)
    kinds = [
        replace(runner, runtimes=runner.runtimes + own) if runner.kind == "onnx" else runner
        for runner in kinds
    ]
    known = [runtime.name for runner in list_runners(templates) for runtime in runner.runtimes]
    known += [runtime.name for runtime in own]
    if unknown := sorted((named | barred) - {*known, ALL_RUNTIMES}):
        raise VerificationError(
            f"unknown runtime {unknown[0]!r}{suggestion(unknown[0], known) or ';'} "
            f"known: {', '.join(dict.fromkeys(known))}"
        )
    return tuple(
        _choose_for_artifact(path, runner, named, barred)
        for path, runner in zip(paths, kinds, strict=True)
    )


def _choose_for_artifact(
    path: Path, runner: Runner, wanted: set[str], without: set[str]
) -> RuntimeChoice:
    lacking = {
        runtime.name: "excluded on request"
        if runtime.name in without
        else NOT_REQUESTED
        if runtime.only_if_named and runtime.name not in wanted
        else runtime.why_unavailable(path)
        for runtime in runner.runtimes
    }
    able = [runtime for runtime in runner.runtimes if not lacking[runtime.name]]
    named = wanted & lacking.keys()
    if ALL_RUNTIMES in wanted:
        taken = able
    elif named:
        taken = [runtime for runtime in able if runtime.name in named]
    else:
        taken = able[:1]
    absent = [why for name, why in lacking.items() if why and name in named]
    if not taken and not absent:
        absent = [why for why in dict.fromkeys(lacking.values()) if why != NOT_REQUESTED]
    used = {runtime.name for runtime in taken}
    asked = lacking.keys() if ALL_RUNTIMES in wanted else named | without
    untried = [
        Untried(str(path), name, why if name in asked else NOT_REQUESTED)
        for name, why in lacking.items()
        if name not in used
    ]
    return RuntimeChoice(path, runner, tuple(taken), ", ".join(absent), tuple(untried))


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


def concatenate_references(parts: Sequence[ReferenceRows]) -> ReferenceRows:
    """Concatenate rows and their predictions, and join their notes."""
    return ReferenceRows(
        np.concatenate([part.rows for part in parts]),
        concatenate_answers([part.predictions for part in parts]),
        "; ".join(filter(None, [part.note for part in parts])),
    )


_WrongAnswer = tuple[str, Answers, Answers, int]
"""Way of calling, wanted and given answers, and the row's number in both."""


def run_artifact(
    path: Path,
    runner: Runner,
    runtime: Runtime,
    schema: Schema,
    reference: ReferenceRows,
    deadline: float,
    fresh: bool = False,
) -> ArtifactResult:
    """Run one artifact in every way it can be called, until `deadline`; see `Job` for `fresh`.

    Rows are run in random order, so that rows left out for lack of time are
    spread over the model; the first block is always run.
    """
    files = [path, *(path.with_suffix(suffix) for suffix in runner.companions)]
    digests = {file.name: hash_file(file) for file in files if file.is_file()}
    result = ArtifactResult(str(path), runner.kind, digests, runtime=runtime.name)
    compared, n_rows, note = 0, len(reference.rows), reference.note
    wrong: dict[int, _WrongAnswer] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
            job = Job(path, schema, Path(folder), deadline, fresh)
            for block in _iter_blocks(n_rows, deadline):
                compared += _compare_block(job, runtime, reference, block, wrong)
    except VerificationError as error:
        if not (isinstance(error, OutOfTimeError) and compared):
            return replace(result, error=str(error))
    if compared < n_rows:
        progress = f"{compared:,} of {n_rows:,} rows were run on {runtime.name}"
        note = "; ".join(filter(None, (note, f"{progress} within the time budget")))
    first = None
    if wrong:
        how, wanted, given, row = wrong[min(wrong)]
        cells = decode_cells(schema, reference.rows[min(wrong)])
        first = Difference(
            how,
            dict(zip(schema.names, cells, strict=True)),
            describe_answer(schema, wanted, row),
            describe_answer(schema, given, row),
            min(wrong),
        )
    return replace(result, rows=compared, differing=len(wrong), first=first, note=note)


def _iter_blocks(n_rows: int, deadline: float) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the numbers of the rows to run next, while more of them fit into the time."""
    order = np.arange(n_rows)
    if n_rows > _FIRST_BLOCK:
        order = np.random.default_rng(0).permutation(n_rows)
    done, size = 0, min(_FIRST_BLOCK, n_rows)
    while True:
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
    wrong: dict[int, _WrongAnswer],
) -> int:
    """Run a block of rows, and add the differing ones to `wrong`; return the number compared."""
    predictions, n_compared = take_answers(reference.predictions, block), 0
    for how, given in runtime.run(job, reference.rows[block]):
        n = len(given.label)
        n_compared = max(n_compared, n)
        wanted = take_answers(predictions, slice(n))
        for row in differing(wanted, given).tolist():
            wrong.setdefault(int(block[row]), (how, wanted, given, row))
    return n_compared
