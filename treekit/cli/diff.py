"""``treekit diff``: compare two models."""

from __future__ import annotations

from typing import Any

import click

from treekit.cli.options import (
    file_option,
    json_option,
    language_option,
    marks_option,
    read_rows,
    table_option,
)
from treekit.cli.streams import INPUT, name_output
from treekit.cli.terminal import check_output_path, escape_text, write_text


@click.command("diff", short_help="Compare the rules and predictions of two models.")
@click.argument("before", type=INPUT)
@click.argument("after", type=INPUT)
@table_option("--table", "Compare predictions on this table, and scores if it has the target.")
@click.option("--by", metavar="COL", help="Compare each category of COL on its own, too.")
@json_option
@file_option("--html", "Also write an HTML page.")
@language_option
@marks_option("those of BEFORE")
def diff_command(**given: Any) -> None:
    """Show what changes from the model BEFORE to the model AFTER.

    These are the rules added, removed and changed, with the changed conditions marked; and on a
    table the rows whose prediction changes, and the scores of both models with the difference and
    its 95% interval.

    \b
    Example:
      treekit diff old.treekit new.treekit --table test.csv --by region --html diff.html
    """  # noqa: D301  # \b keeps click from rewrapping the lines
    from treekit.comparison import compare
    from treekit.model.model_file import load

    html, table, by = given["html"], given["table"], given["by"]
    if by is not None and table is None:
        raise click.UsageError("--by needs --table")
    if html is not None:
        check_output_path(html, given["before"], given["after"], table)
    before, after = load(given["before"]), load(given["after"])
    rows = None if table is None else read_rows(table, given["missing_marks"], before)
    found = compare(before, after, rows, by=by, lang=given["lang"])
    if html is not None:
        write_text([found.to_html()], html)
    if given["as_json"]:
        click.echo(found.to_json(), nl=False)
        return
    for line in found.lines():
        style = {"-": "red", "+": "green"}.get(line.lstrip()[:1])
        click.secho(escape_text(line), fg=style if line.startswith("  ") else None)
    if html is not None:
        click.echo(f"\nwritten to {name_output(html)}")
