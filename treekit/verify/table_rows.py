"""Comparison of artifacts with their model on the rows of a table, also over a cluster."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from treekit.data.encoding import encode_rows
from treekit.data.features import UNSEEN, encode_levels
from treekit.data.table import Table, read_table
from treekit.distributed.cluster import connect, count_threads, locate_part
from treekit.distributed.parquet_files import find_files, read_file
from treekit.errors import DataError, find_repeated
from treekit.model.model import Model
from treekit.model.scoring import sum_leaf_values
from treekit.verify.answers import answers_from_sums
from treekit.verify.report import ArtifactResult
from treekit.verify.run_artifact import (
    ReferenceRows,
    RuntimeChoice,
    concatenate_references,
    run_artifact,
)

_TASKS_PER_THREAD = 4
"""Shares of the files are small enough to even out their times."""

_BLOCK = 200_000
"""Number of rows compared by one run of an artifact."""


Choose = Callable[[Sequence[Path]], tuple[RuntimeChoice, ...]]
"""`choose_runtimes` with the runtimes of a user."""


def verify_table(
    model: Model,
    choices: Sequence[RuntimeChoice],
    choose: Choose,
    source: Any,
    cluster: Any,
    progress: Callable[[int, int], None] | None,
) -> tuple[ArtifactResult, ...]:
    """Compare artifacts with their model on each row of a table.

    Parameters
    ----------
    model : Model
    choices : sequence of RuntimeChoice
        The artifacts.
    choose : callable
        Chooses runtimes on a worker.
    source : table
        With a cluster: the name of Parquet files, as `find_files` takes it.
    cluster : distributed.Client or str, optional
        The artifacts are sent to its workers and run there.
    progress : callable, optional
        ``progress(done, total)`` after each file.

    Returns
    -------
    tuple of ArtifactResult
        Counts add up over the files; the first differing row has its file and number.
    """
    if cluster is None:
        name = str(source) if isinstance(source, (str, Path)) else "the table"
        table = read_table(source, missing=model.schema.missing_marks)
        return join_results(_compare_parts(model, choices, _divide(model, table, name)))
    files = find_files(source)
    paths = [choice.path for choice in choices]
    names = [path.name for path in paths]
    if (twice := find_repeated(names)) is not None:
        raise DataError(f"two artifacts are named {twice!r}; verify each in its own run")
    contents = {
        path.name: path.read_bytes()
        for choice in choices
        for path in (choice.path, *map(choice.path.with_suffix, choice.runner.companions))
        if path.is_file()
    }
    with connect(cluster) as engine:
        n_tasks = min(len(files.paths), _TASKS_PER_THREAD * count_threads(engine))
        ends = [len(files.paths) * k // n_tasks for k in range(n_tasks + 1)]
        sent, artifacts = engine.send(model), engine.send(contents)
        shares = [files.paths[a:b] for a, b in itertools.pairwise(ends)]
        tasks = [
            engine.submit(_verify_files, sent, artifacts, names, choose, share) for share in shares
        ]
        done = 0

        def count_files(k: int) -> None:
            nonlocal done
            done += len(shares[k])
            if progress is not None:
                progress(done, len(files.paths))

        engine.wait(tasks, count_files)
        found = engine.take(tasks)
        if not any(one.rows or one.error for part in found for one in part):
            raise DataError(f"the table {files.source!r} has no rows; give at least one row")
    places = {path.name: str(path) for path in paths}
    joined = join_results(found)
    return tuple(replace(one, path=places[Path(one.path).name]) for one in joined)


def join_results(parts: Iterable[Sequence[ArtifactResult]]) -> tuple[ArtifactResult, ...]:
    """Add up the results of parts of a table, in the order of its rows."""
    joined = []
    for one in zip(*parts, strict=True):
        first = next((part.first for part in one if part.first is not None), None)
        base = sorted(one, key=lambda part: (not part.error, not part.sha256))[0]
        joined.append(
            replace(
                base,
                rows=sum(part.rows for part in one),
                differing=sum(part.differing for part in one),
                first=first,
            )
        )
    return tuple(joined)


def _verify_files(
    model: Model,
    contents: Mapping[str, bytes],
    names: Sequence[str],
    choose: Choose,
    files: Sequence[str],
) -> tuple[ArtifactResult, ...]:
    """Compare artifacts, given by their contents, on the rows of some files."""
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        for name, content in contents.items():
            (Path(folder) / name).write_bytes(content)
        choices = choose([Path(folder) / name for name in names])
        return join_results(_compare_parts(model, choices, _read_parts(model, files)))


class _Part(NamedTuple):
    """Consecutive rows of a file, the first of which has the number `start`."""

    file: str
    start: int
    reference: ReferenceRows


def _divide(model: Model, table: Table, name: str) -> Iterator[_Part]:
    """Yield the parts of a table."""
    start = 0
    for block in table.iterate_blocks(_BLOCK):
        yield _Part(name, start, make_reference(model, block))
        start += block.n_rows


def _read_parts(model: Model, files: Sequence[str]) -> Iterator[_Part]:
    """Yield the rows of files."""
    schema = model.schema
    for file in files:
        content = read_file(file, schema.names)
        needed = [name for name in schema.names if name in content.column_names]
        try:
            table = read_table(content.select(needed), missing=schema.missing_marks)
            yield _Part(file, 0, make_reference(model, table))
        except DataError as error:
            raise locate_part(error, repr(file), content.num_rows) from None


def _compare_parts(
    model: Model, choices: Sequence[RuntimeChoice], parts: Iterable[_Part]
) -> Iterator[tuple[ArtifactResult, ...]]:
    """Yield the results on about `_BLOCK` rows each, as every run compiles the artifacts again."""
    pending: list[_Part] = []
    for part in parts:
        pending.append(part)
        if sum(len(one.reference.rows) for one in pending) >= _BLOCK:
            yield _compare_rows(model, choices, pending)
            pending = []
    if pending:
        yield _compare_rows(model, choices, pending)


def _compare_rows(
    model: Model, choices: Sequence[RuntimeChoice], parts: Sequence[_Part]
) -> tuple[ArtifactResult, ...]:
    reference = concatenate_references([part.reference for part in parts])
    found = []
    for choice in choices:
        path, runner = choice.path, choice.runner
        found += choice.list_failures()
        for runtime in choice.runtimes:
            result = ArtifactResult(str(path), runner.kind, {}, runtime=runtime.name)
            if len(reference.rows):
                result = run_artifact(path, runner, runtime, model.schema, reference, math.inf)
            found.append(_locate_first(result, parts))
    return tuple(found)


def _locate_first(result: ArtifactResult, parts: Sequence[_Part]) -> ArtifactResult:
    """Name the file of the first differing row, and number the row in it."""
    if result.first is None:
        return result
    number = result.first.number
    for part in parts:
        if number < len(part.reference.rows):
            first = replace(result.first, number=part.start + number, file=part.file)
            return replace(result, first=first)
        number -= len(part.reference.rows)
    return result


def make_reference(model: Model, table: Table) -> ReferenceRows:
    """Encode the rows of a table, with the predictions that artifacts must return.

    Rows that the model's policies reject must be refused.
    """
    schema = model.schema
    matrix = encode_rows(table, schema, missing="direction", unknown="missing").astype(np.float64)
    refused = np.zeros(len(matrix), dtype=np.bool_)
    if model.missing == "error":
        refused |= np.isnan(matrix).any(axis=1)
    for feature, column in enumerate(schema.columns):
        if column.kind == "nominal":
            unseen = (
                encode_levels(table, column.name, column.levels, rounds=column.rounds) == UNSEEN
            )
            if model.unknown == "error":
                refused |= unseen
            matrix[unseen, feature] = len(column.levels)  # a code that is no category
    sums = sum_leaf_values(model, matrix[~refused])
    return ReferenceRows(matrix, answers_from_sums(model, sums, ~refused))
