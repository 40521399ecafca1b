"""``treekit columns``: show how the columns of a table are read."""

from __future__ import annotations

import warnings
from typing import Any

import click

from treekit.cli.options import get_reading_options, read_training_rows, table_options
from treekit.cli.streams import INPUT
from treekit.cli.terminal import print_table
from treekit.errors import TreekitWarning


@click.command("columns", short_help="Show how the columns of a table are read.")
@click.argument("table", type=INPUT)
@click.option(
    *("--target", "targets"),
    multiple=True,
    metavar="COL",
    help="Column to predict.  May be repeated.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON that 'treekit train --schema' reads."
)
@table_options
def columns_command(**given: Any) -> None:
    """Show how each column of TABLE is read: kind, type, values, missing cells, warnings.

    Save the output of --json, edit it, and pass it to 'treekit train --schema': it declares
    the kinds of columns, the order of categories, the marks of missing values and the notation
    of numbers.
    """
    from treekit.data import column_report

    options = get_reading_options(given)
    table = read_training_rows(given["table"], options)
    names = ("nominal", "numeric", "levels", "task", "missing_marks", "decimal", "thousands")
    ignore = [*options["ignore"], *([options["weights"]] if options["weights"] else [])]
    found = column_report.columns(
        table,
        given["targets"],
        **{name: options.get(name) for name in names},
        ignore=ignore,
    )
    if given["as_json"]:
        click.echo(found.to_json(), nl=False)
        return
    print_table(column_report.HEAD, found.list_rows())
    for text in found.list_warnings():
        warnings.warn(text, TreekitWarning, stacklevel=2)
