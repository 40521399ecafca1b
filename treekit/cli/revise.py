"""``treekit revise``: rules that were edited by hand become a model again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from treekit.cli.files import check_place
from treekit.cli.rules import language_option
from treekit.cli.scoring import read_rows
from treekit.cli.terminal import shown
from treekit.cli.train import listed

__all__ = ["revise_command"]


@click.command("revise", short_help="Read rules that were edited by hand back as a model.")
@click.argument("model")
@click.argument("rules")
@click.option(
    *("-o", "--output"),
    required=True,
    metavar="NEW",
    type=click.Path(path_type=Path),
    help="Model file to write.",
)
@click.option(
    "--table",
    metavar="TABLE",
    help="Show what the edit changes on these rows, and measure the new rules on them.",
)
@language_option
@click.option(
    "--missing-marks",
    callback=listed,
    metavar="A,B,...",
    help="Texts that mean missing in the table, instead of the model's own.",
)
def revise_command(**given: Any) -> None:
    """Read RULES, text or JSON of MODEL that was edited by hand, back as a model.

    Conditions, answers and the order of rules may be changed, and rules added or deleted;
    numbers of rules and nodes, supports and shares may be left out.  In each tree the first
    rule that fits then answers; where answers alone were changed, the trees stay.  What the
    edit changed is printed.

    \b
    Example:
      treekit rules m.treekit -o rules.txt   (then edit rules.txt)
      treekit revise m.treekit rules.txt -o new.treekit --table rows.csv
    """  # noqa: D301  # click's mark of lines that stay
    from treekit.documents.files import edited_rules
    from treekit.model.model_file import load
    from treekit.rules.language import language
    from treekit.rules.revise import changed, edits, revision

    check_place(given["output"], *filter(None, (given["model"], given["rules"], given["table"])))
    model = load(given["model"])
    words = language(given["lang"])
    edited = edited_rules(given["rules"], words)
    table = None
    if given["table"] is not None:
        marks = given["missing_marks"]
        table = read_rows(given["table"], model.schema.missing_marks if marks is None else marks)
    after, found = revision(model, edited, table)
    lines = list(edits(found.before, found.after, words)) or [words.say("edit_none")]
    if table is not None:
        for change in changed(model, after, table):
            lines += change.lines(words)
    after.save(given["output"])
    for line in lines:
        click.echo(shown(line))
    click.echo(f"written to {str(given['output'])!r}")
