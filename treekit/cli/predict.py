"""``treekit inspect`` and ``predict``: a model file and what it says."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treekit.cli.terminal import check_place, write_text
from treekit.cli.train import listed
from treekit.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from treekit.data.table import Table
    from treekit.model.model import Model

__all__ = [
    "answers",
    "inspect_command",
    "predict_command",
    "quality",
    "read_rows",
    "summed",
]


# ---------------------------------------------------------------- model

_ROWS_A_PIECE = 10_000
_ROWS_A_BLOCK = 200_000
"""Rows of a large file that are scored together."""

_output = click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Default: stdout."
)


@click.command("inspect", short_help="Say what a model file holds.")
@click.argument("model")
def inspect_command(model: str) -> None:
    """Say what the file MODEL holds: columns, policies, size, settings, provenance."""
    from treekit.cli.model_summary import print_inspection
    from treekit.model.model_file import load

    print_inspection(load(model))


@click.command("predict", short_help="Answer for each row of a table.")
@click.argument("model")
@click.argument("table")
@_output
@click.option("--proba", is_flag=True, help="Add each class's probability.")
@click.option(
    "--missing-marks",
    callback=listed,
    metavar="A,B,...",
    help="Texts that mean missing, instead of the model's own.",
)
@click.option(
    "--url",
    metavar="URL",
    help="Ask the server there, http://host:port or https://...; MODEL is a name on it.",
)
@click.option("--token-file", metavar="FILE", help="The server's bearer token, one line.")
@click.option("--ca-file", metavar="FILE", help="Authorities to trust for https, PEM.")
def predict_command(
    model: str,
    table: str,
    output: Path | None,
    proba: bool,
    missing_marks: list[str] | None,
    url: str | None,
    token_file: str | None,
    ca_file: str | None,
) -> None:
    """Write what MODEL says of each row of TABLE, as CSV.

    Each column is named as its target was; probabilities are in columns named
    TARGET=CLASS behind them.  Numbers are the shortest that read back to the same double.

    With --url the file is the same, to the byte, for models of treekit; of others, which an
    ONNX file has, the outputs are the columns.
    """
    if url is not None:
        _predict_there(model, table, output, proba, missing_marks, (url, token_file, ca_file))
        return
    for name, given in (("--token-file", token_file), ("--ca-file", ca_file)):
        if given is not None:
            raise click.UsageError(f"{name} is for a server; give its --url")
    from treekit.model.model_file import load

    if output is not None:
        check_place(output, model, table)
    loaded = load(model)
    if proba and loaded.schema.task == "regression":
        raise click.UsageError(f"{model!r} predicts a number, without classes; leave --proba out")
    marks = loaded.schema.missing_marks if missing_marks is None else missing_marks
    write_text(_answers(loaded, read_rows(table, marks), proba), output)


def _predict_there(
    name: str,
    table: str,
    output: Path | None,
    proba: bool,
    missing_marks: list[str] | None,
    server: tuple[str, str | None, str | None],
) -> None:
    """Ask the model of a name on a server: its URL, the file of its token, and whom to trust."""
    from treekit.serve.client import Client, read_token, remote_model

    url, token_file, ca_file = server
    if output is not None:
        check_place(output, *(given for given in (table, token_file, ca_file) if given))
    client = Client(url, None if token_file is None else read_token(token_file), ca_file)
    try:
        model = remote_model(client, name)
        if proba and not model.proba:
            raise click.UsageError(f"{name!r} has no classes that are known; leave --proba out")
        marks = model.marks if missing_marks is None else missing_marks
        lines = model.lines(read_rows(table, marks), proba=proba)
        write_text(map(_csv_lines, lines), output)
    finally:
        client.close()


def _answers(model: Model, table: Table, proba: bool) -> Iterator[str]:
    from treekit.data.schema import level_text

    outputs = model.schema.outputs
    header = [output.name for output in outputs]
    if proba:
        header += [f"{o.name}={level_text(label)}" for o in outputs for label in o.classes]
    yield _csv_lines([header])
    for block in table.blocks(_ROWS_A_BLOCK):
        sums = summed(model, block)
        for first in range(0, len(sums), _ROWS_A_PIECE):
            yield _lines(model, sums[first : first + _ROWS_A_PIECE], proba)


def _lines(model: Model, sums: npt.NDArray[np.int64], proba: bool) -> str:
    """What the model says of rows with these (rows, outputs) sums, a line each."""
    from treekit.model.scoring import decide, probabilities

    said = decide(model, sums)
    columns = said.T.tolist() if model.schema.more else [said.tolist()]
    if proba:
        shares = probabilities(model, sums)
        for block in shares if model.schema.more else [shares]:
            columns += block.T.tolist()
    return _csv_lines(list(zip(*columns, strict=True)))


class _Lines(list[str]):
    """Lines of a file."""

    write = list.append


def _csv_lines(rows: list[Any]) -> str:
    lines = _Lines()
    csv.writer(lines).writerows(rows)  # with a line end of "\n" it would leave "\r" without quotes
    return "".join([line[:-2] + "\n" for line in lines])


# ---------------------------------------------------------------- scoring
# A model asked about the rows of a file.


def summed(model: Model, table: Table) -> npt.NDArray[np.int64]:
    """(rows, outputs) int64: summed leaf units, the table's own marks of missing cells kept."""
    from treekit.data.encoding import encode_rows
    from treekit.model.scoring import sums

    matrix = encode_rows(
        table,
        model.schema,
        missing=model.missing,
        unknown=model.unknown,
        missing_marks=table.missing,
    )
    return sums(model, matrix)


def answers(model: Model, table: Table) -> npt.NDArray[Any]:
    """(rows,) labels or numbers."""
    from treekit.model.scoring import decide

    return decide(model, summed(model, table))


def quality(model: Model, table: Table) -> list[tuple[str, float]]:
    """``("accuracy", share)`` or ``("R squared", value)`` of each target, on rows that have it.

    Raises
    ------
    DataError
        If the table lacks a target, in a row or as a whole.
    """
    from treekit.training.tasks import refuse_answers

    refuse_answers(model, "accuracy or R squared")
    outputs = model.schema.outputs
    for output in outputs:
        table.index(output.name, "target column")
    given = answers(model, table).reshape(table.n_rows, -1)
    found = [_quality(model, table, k, given[:, k]) for k in range(len(outputs))]
    if len(outputs) == 1:
        return found
    return [
        (f"{name} of {o.name!r}", value) for o, (name, value) in zip(outputs, found, strict=True)
    ]


def _quality(model: Model, table: Table, k: int, given: npt.NDArray[Any]) -> tuple[str, float]:
    """The figure of target k, whose answers are `given` (rows,)."""
    import numpy as np

    from treekit.data.features import level_codes, numeric_cells
    from treekit.data.schema import level_text

    output = model.schema.outputs[k]
    target = output.name
    if model.schema.task == "classification":
        # As texts: a file knows no types, and a label that the model lacks is just wrong.
        texts = [level_text(label) or "" for label in output.classes]
        actual = level_codes(table, target, texts)
        gone = actual == -1
        right = actual == [texts.index(level_text(label) or "") for label in given.tolist()]
    else:
        number = numeric_cells(table, target).astype(np.float64)
        gone = np.isnan(number)
    if gone.any():
        raise DataError(
            f"the target {target!r} is missing in {int(gone.sum())} rows, the first is row "
            f"{int(gone.argmax())} (counting from 0); a test needs every target: drop those rows"
        )
    if model.schema.task == "classification":
        return "accuracy", float(right.mean())
    spread = float(((number - number.mean()) ** 2).sum())
    error = float(((number - given) ** 2).sum())
    return "R squared", 1.0 - error / spread if spread > 0 else 0.0


def read_rows(path: str, marks: Collection[str] | None) -> Table:
    """The table in a file; `marks` are texts that mean missing."""
    from treekit.cli.terminal import reading_progress
    from treekit.data.cells import MISSING_MARKS
    from treekit.data.table import read_table

    with reading_progress() as progress:
        return read_table(
            path, missing=MISSING_MARKS if marks is None else marks, progress=progress
        )
