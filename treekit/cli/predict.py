"""``treekit inspect`` and ``predict``: show a model file, and predict rows of a table."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treekit.cli.json_reports import make_inspect_report, print_json
from treekit.cli.options import (
    absent_option,
    cluster_option,
    json_option,
    marks_option,
    read_rows,
)
from treekit.cli.streams import INPUT, STREAM
from treekit.cli.terminal import check_output_path, escape_text, write_text
from treekit.errors import DataError
from treekit.progress import show_progress

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from treekit.data.encoding import Absent
    from treekit.data.table import Table
    from treekit.model.model import Model


# ---------------------------------------------------------------- inspect and predict

_ROWS_PER_PIECE = 10_000
"""Number of rows formatted as CSV at once."""
_ROWS_PER_BLOCK = 200_000
"""Number of rows of a large file scored at once."""


@click.command("inspect", short_help="Show the contents of a model file.")
@click.argument("model", type=INPUT)
@json_option
def inspect_command(model: str, as_json: bool) -> None:
    """Show the columns, policies, size, digests, settings and provenance of MODEL.

    model_sha256 is the digest of all that determines predictions, as in certificates and exported
    files; file_sha256 is that of the model file.  training_table.sha256 is the digest of the
    encoded cells and the names of inputs and targets, the same for any order of the rows.
    """
    import hashlib

    from treekit.cli.model_summary import print_inspection
    from treekit.model.model_file import load

    loaded = load(model)
    with Path(model).open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if as_json:
        print_json(make_inspect_report(loaded, digest))
    else:
        print_inspection(loaded, digest)


@click.command("predict", short_help="Predict the rows of a table.")
@click.argument("model", type=INPUT)
@click.argument("table", type=INPUT)
@click.option(  # text, as `Path` would change a URL
    *("-o", "--output"), metavar="FILE", help="File to write.  [default: standard output]"
)
@click.option("--proba", is_flag=True, help="Add the probability of each class.")
@marks_option()
@absent_option
@click.option(
    "--url",
    metavar="URL",
    help="Send rows to a server, http://host:port or https://...; MODEL is a name on it.",
)
@click.option("--token-file", metavar="FILE", help="File with the server's bearer token.")
@click.option("--ca-file", metavar="FILE", help="PEM file of certificate authorities for https.")
@cluster_option
def predict_command(**given: Any) -> None:
    """Predict each row of TABLE with MODEL, and write the predictions as CSV.

    Prediction columns have the names of the targets; columns TARGET=CLASS with
    probabilities follow.  Numbers have the fewest digits that identify the double.
    TABLE need not have the columns that no tree tests.

    With --url a treekit model on a server predicts; the output is identical, byte for byte.

    With --cluster the workers predict TABLE, a Parquet file, a folder, a pattern such as
    'rows/*.parquet', or a URL.  The output is a new folder, or its URL, of a Parquet file
    per input file, with the same index.
    """
    if given["url"] is not None and given["cluster"] is not None:
        raise click.UsageError("--url and --cluster exclude each other; leave one out")
    if given["output"] == STREAM:
        given["output"] = None
    path = (
        None if given["output"] is None or given["cluster"] is not None else Path(given["output"])
    )
    if given["url"] is not None:
        _predict_remotely(given, path)
        return
    for name in ("token_file", "ca_file"):
        if given[name] is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} is for a server; add --url")
    from treekit.model.model_file import load

    if path is not None:
        check_output_path(path, given["model"], given["table"])
    model, proba = load(given["model"]), given["proba"]
    if proba and model.schema.task == "regression":
        raise click.UsageError(
            f"{given['model']!r} predicts a number, not classes; leave --proba out"
        )
    if given["cluster"] is not None:
        _predict_on_cluster(model, given)
        return
    rows = read_rows(given["table"], given["missing_marks"], model)
    write_text(_join_header(_iterate_predictions(model, rows, proba, given["absent"])), path)


def _predict_on_cluster(model: Model, given: dict[str, Any]) -> None:
    from treekit.distributed.parquet_files import find_files
    from treekit.distributed.score_files import predict_files

    output = given["output"]
    options = {name: given[name] for name in ("proba", "absent")}
    options["marks"] = given["missing_marks"]
    if output is None:
        raise click.UsageError("--cluster writes a folder; name it with -o")
    files = find_files(given["table"])
    with show_progress("files") as progress:
        predict_files(model, files, output, given["cluster"], **options, progress=progress)
    click.echo(f"{escape_text(repr(output))}: {len(files.paths):,} files", err=True)


def _predict_remotely(given: dict[str, Any], output: Path | None) -> None:
    """Predict with a model on a server."""
    from treekit.serve.client import Client, RemoteModel
    from treekit.serve.settings import read_token

    name, table, token_file = given["model"], given["table"], given["token_file"]
    if output is not None:
        check_output_path(output, table, token_file, given["ca_file"])
    token = None if token_file is None else read_token(token_file)
    client = Client(given["url"], token, given["ca_file"])
    try:
        model = RemoteModel(client, name)
        if given["proba"] and not model.has_probabilities:
            raise click.UsageError(f"{name!r} gives no class probabilities; leave --proba out")
        marks = given["missing_marks"]
        rows = read_rows(table, model.missing_marks if marks is None else marks)
        lines = model.predict_lines(rows, proba=given["proba"], absent=given["absent"])
        write_text(_join_header(map(_format_csv, lines)), output)
    finally:
        client.close()


def _join_header(pieces: Iterator[str]) -> Iterator[str]:
    """Yield the header together with the first predictions: if these fail, nothing is written."""
    yield next(pieces) + next(pieces, "")
    yield from pieces


def _iterate_predictions(model: Model, table: Table, proba: bool, absent: Absent) -> Iterator[str]:
    from treekit.data.schema import level_text

    outputs = model.schema.outputs
    header = [output.name for output in outputs]
    if proba:
        header += [f"{o.name}={level_text(label)}" for o in outputs for label in o.classes]
    yield _format_csv([header])
    for block in table.iterate_blocks(_ROWS_PER_BLOCK):
        sums = sum_leaf_values(model, block, absent)
        for first in range(0, len(sums), _ROWS_PER_PIECE):
            yield _format_predictions(model, sums[first : first + _ROWS_PER_PIECE], proba)


def _format_predictions(model: Model, sums: npt.NDArray[np.int64], proba: bool) -> str:
    """Format predictions as CSV lines, from summed leaf values (rows, outputs)."""
    from treekit.model.scoring import compute_probabilities, predict_from_sums

    predicted = predict_from_sums(model, sums)
    columns = predicted.T.tolist() if model.schema.more else [predicted.tolist()]
    if proba:
        shares = compute_probabilities(model, sums)
        for block in shares if model.schema.more else [shares]:
            columns += block.T.tolist()
    return _format_csv(list(zip(*columns, strict=True)))


class _LineWriter(list[str]):
    """A list of lines that `csv.writer` can write to."""

    write = list.append


def _format_csv(rows: list[Any]) -> str:
    lines = _LineWriter()
    csv.writer(lines).writerows(rows)  # with lineterminator="\n" a "\r" would not be quoted
    return "".join([line[:-2] + "\n" for line in lines])


# ---------------------------------------------------------------- scoring


def sum_leaf_values(model: Model, table: Table, absent: Absent = "error") -> npt.NDArray[np.int64]:
    """Sum the leaf values of each row, in fixed-point units.

    Cells are missing if they equal one of `Table.missing`, the marks used to read the table.

    Returns
    -------
    (rows, outputs) int64
    """
    from treekit.model.scoring import encode_table, sum_leaf_values

    matrix = encode_table(model, table, absent=absent, missing_marks=table.missing)
    return sum_leaf_values(model, matrix)


def compute_scores(model: Model, table: Table) -> list[tuple[str, float]]:
    """Compute ``("accuracy", share)`` or ``("R squared", value)`` for each target.

    Raises
    ------
    DataError
        If the table lacks a target column, or a target cell is missing.
    """
    import numpy as np

    from treekit.data.features import convert_to_numbers, encode_levels
    from treekit.data.schema import level_text
    from treekit.model.links import convert_sums
    from treekit.model.scoring import compute_label_codes
    from treekit.training.importance import compute_score
    from treekit.training.tasks import check_scorable

    check_scorable(model, "accuracy or R squared")
    outputs, votes = model.schema.outputs, model.schema.task == "classification"
    for output in outputs:
        table.find_column(output.name, "target column")
    sums = sum_leaf_values(model, table)
    predicted = compute_label_codes(model, sums) if votes else convert_sums(model, sums)
    name = "accuracy" if votes else "R squared"
    found = []
    for k, output in enumerate(outputs):
        if votes:
            # Compared as text: files have no types, and labels unknown to the model count as wrong.
            texts = [level_text(label) or "" for label in output.classes]
            actual = encode_levels(table, output.name, texts)
            gone = actual == -1
        else:
            actual = convert_to_numbers(table, output.name).astype(np.float64)
            gone = np.isnan(actual)
        if gone.any():
            raise DataError(
                f"the target {output.name!r} is missing in {int(gone.sum())} rows, first in row "
                f"{int(gone.argmax())} (counting from 0); drop these rows"
            )
        score = compute_score(model.schema.task, actual, predicted[:, k], None)
        found.append((name if len(outputs) == 1 else f"{name} of {output.name!r}", score))
    return found
