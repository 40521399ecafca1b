"""``treekit simplify``: a short list of rules in the place of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treekit.cli.files import check_place
from treekit.cli.rules import language_option
from treekit.cli.scoring import read_rows
from treekit.cli.train import listed

if TYPE_CHECKING:
    from treekit.data.table import Table
    from treekit.model.model import Model
    from treekit.rule_learning.report import LearnedList

__all__ = ["simplify_command"]


@click.command("simplify", short_help="Make a short list of rules from a model.")
@click.argument("model")
@click.argument("table")
@click.option(
    *("-o", "--output"),
    required=True,
    metavar="LIST",
    type=click.Path(path_type=Path),
    help="Model file of the list to write.",
)
@click.option(
    "--method",
    type=click.Choice(["c45rules", "sirus", "rulefit"]),
    default="c45rules",
    show_default=True,
    help="c45rules: ordered, the first rule that fits answers.  sirus: the paths that most "
    "trees have; their mean answers.  rulefit: few rules with weights, which are added.",
)
@click.option(
    "--rules",
    metavar="N",
    type=click.IntRange(1),
    help="So many rules at most: by default 10 of sirus, 20 of rulefit.",
)
@click.option("--test", metavar="TABLE", help="Report on these rows, not on those of TABLE.")
@language_option
@click.option(
    "--missing-marks",
    callback=listed,
    metavar="A,B,...",
    help="Texts that mean missing in tables, instead of the model's own.",
)
def simplify_command(**given: Any) -> None:
    """Make a short list of rules from MODEL and the TABLE that it was trained on.

    The list is a model: 'treekit rules', 'predict', 'export' and 'verify' take it.  How far
    it agrees with MODEL, and how right both are, is printed beside its size.

    \b
    Example:
      treekit simplify forest.treekit train.csv -o list.treekit --method sirus --rules 20
    """  # noqa: D301  # click's mark of lines that stay
    from treekit.model.model_file import load
    from treekit.rules.language import language

    words = language(given["lang"])
    check_place(given["output"], *filter(None, (given["model"], given["table"], given["test"])))
    model = load(given["model"])
    marks = given["missing_marks"]
    marks = model.schema.missing_marks if marks is None else marks
    table = read_rows(given["table"], marks)
    test = None if given["test"] is None else read_rows(given["test"], marks)
    learned = _learned(given["method"], model, table, given["rules"], test)
    learned.rules.model(provenance={"simplified": given["method"]}).save(given["output"])
    for line in learned.lines(words):
        click.echo(line)
    where = given["table"] if test is None else given["test"]
    click.echo(f"measured on the rows of {where!r}; written to {str(given['output'])!r}")


def _learned(
    method: str, model: Model, table: Table, rules: int | None, test: Table | None
) -> LearnedList:
    from treekit.kernels.compile import compile_notice

    most: dict[str, Any] = {} if rules is None else {"rules": rules}
    with compile_notice():
        if method == "c45rules":
            from treekit.rule_learning.c45rules import c45rules

            return c45rules(model, table, test=test, **most)
        if method == "sirus":
            from treekit.rule_learning.sirus import sirus

            return sirus(table, model=model, test=test, **most)
        from treekit.rule_learning.rulefit import rulefit

        return rulefit(table, model=model, test=test, **most)
