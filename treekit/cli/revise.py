"""``treekit revise``: rules that were edited by hand become a model again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treekit.cli.files import check_place
from treekit.cli.rules import language_option
from treekit.cli.scoring import read_rows
from treekit.cli.terminal import shown
from treekit.cli.train import listed
from treekit.errors import DataError

if TYPE_CHECKING:
    from treekit.rules.language import Language
    from treekit.rules.rulelist import RuleList

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
@click.option("--table", metavar="TABLE", help="Show what the edit changes on these rows.")
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
    rule that fits then answers.  What the edit changed is printed.
    """
    from treekit.model.store import load
    from treekit.rules.changed import changed, edits
    from treekit.rules.language import language
    from treekit.rules.revised import revised

    check_place(given["output"], *filter(None, (given["model"], given["rules"], given["table"])))
    model = load(given["model"])
    words = language(given["lang"])
    after = revised(model, _edited(given["rules"], words))
    lines = list(edits(model.rules(), after.rules(), words))
    if given["table"] is not None:
        marks = given["missing_marks"]
        marks = model.schema.missing_marks if marks is None else marks
        for change in changed(model, after, read_rows(given["table"], marks)):
            lines += change.lines(words)
    after.save(given["output"])
    for line in lines:
        click.echo(shown(line))
    click.echo(f"written to {str(given['output'])!r}")


def _edited(path: str, words: Language) -> RuleList:
    """The rules in a file: JSON, by its name, or text."""
    from treekit.forms.read_json import read_json
    from treekit.rules.edited import read_edited
    from treekit.rules.language import known_languages

    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path!r} is no text in UTF-8; save it as such") from error
    if Path(path).suffix.lower() == ".json":
        return read_json(text)
    # The first line names a language that treekit brings.
    return read_edited(text, words if words.code not in known_languages() else None)
