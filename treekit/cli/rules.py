"""``treekit rules``: a model as rules, their forms, and how they fare on other rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treekit.cli.predict import read_rows
from treekit.cli.terminal import check_place, shown, write_text
from treekit.cli.train import listed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from treekit.data.table import Table
    from treekit.model.model import Model
    from treekit.rule_learning.report import LearnedList

__all__ = [
    "language_option",
    "revise_command",
    "rules_command",
    "simplify_command",
]


# ---------------------------------------------------------------- rules

language_option = click.option(
    *("--lang", "lang"),
    default="en",
    show_default=True,
    metavar="CODE",
    help="Language of the words: en, zh, or a catalogue file that ends with .toml.",
)


def _forms(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """The name of a form; the forms are known when one is asked for."""
    del ctx
    from treekit.documents import FORMS

    if name is not None and name not in FORMS:
        known = "; ".join(f"{form} ({what.summary})" for form, what in FORMS.items())
        raise click.BadParameter(f"{name!r} is no form; there are: {known}", param=param)
    return name


@click.command("rules", short_help="Print a model as rules.")
@click.argument("model")
@click.option(
    *("-o", "--output"),
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Default: stdout.",
)
@click.option(
    *("--as", "form"),
    callback=_forms,
    metavar="FORM",
    help="text, markdown, html, json, csv, sql, sql-duckdb, sql-postgres, dmn, pmml or "
    "pmml-rules.  Default: by the suffix of FILE (.md, .html, .json, .csv, .sql, .dmn, .pmml), "
    "else text.",
)
@language_option
@click.option("--tree", metavar="N", type=click.IntRange(1), help="Only those of one tree.")
@click.option(
    "--table",
    metavar="TABLE",
    help="Rows to measure the rules on, in the place of those of training.",
)
@click.option("--against", metavar="TABLE", help="Report how each rule fares on these rows.")
@click.option("--overlaps", is_flag=True, help="Report rules that overlap or are never reached.")
@click.option("--decisions", is_flag=True, help="Join rules of one label; their shares are lost.")
@click.option(
    "--digits",
    metavar="N",
    type=click.IntRange(1, 17),
    help="Round thresholds, where no row of --table changes its rule by it.",
)
@click.option("--title", default="", metavar="TEXT", help="Heading of a document.")
@click.option(
    "--missing-marks",
    callback=listed,
    metavar="A,B,...",
    help="Texts that mean missing in tables, instead of the model's own.",
)
def rules_command(**given: Any) -> None:
    """Print MODEL as rules that people read: one for each leaf, or those of a rule list.

    The text of all trees executes exactly: 'treekit verify' proves it.  'treekit simplify'
    makes a short list of rules from a tree or a forest; 'treekit revise' reads rules back
    that were edited by hand.

    \b
    Examples:
      treekit rules m.treekit --lang zh
      treekit rules m.treekit -o rules.html --table new.csv
      treekit rules m.treekit --against new.csv
    """  # noqa: D301  # click's mark of lines that stay
    from treekit.model.model_file import load

    given["form"] = _form(given)
    _check(given)
    tables = filter(None, (given["table"], given["against"]))
    if given["output"] is not None:
        check_place(given["output"], given["model"], *tables)
    model = load(given["model"])
    if given["tree"] is not None and given["tree"] > model.n_trees:
        raise click.UsageError(
            f"there is no tree {given['tree']}; {given['model']!r} has {model.n_trees}"
        )
    write_text(_pieces(model, given), given["output"])


def _form(given: dict[str, Any]) -> str:
    """The form asked for, or that the suffix of the output says; reports are text."""
    from treekit.documents.files import form_of

    if given["form"] is not None or given["output"] is None or _reports(given):
        return given["form"] or "text"
    return form_of(given["output"])


def _reports(given: dict[str, Any]) -> list[str]:
    return [name for name in ("against", "overlaps") if given[name]]


def _check(given: dict[str, Any]) -> None:
    """Refuse options that say nothing together."""
    reports = _reports(given)
    if len(reports) == 2:
        raise click.UsageError("--against and --overlaps are two reports; ask for one at a time")
    if reports and given["form"] != "text":
        raise click.UsageError(f"--{reports[0]} writes a report as text; leave --as out")
    if given["table"] and given["form"] == "text" and not (given["digits"] or given["overlaps"]):
        raise click.UsageError(
            "the text says what executes, and no measures: --table needs --as markdown, html, "
            "json or csv, or one of --digits, --overlaps and --against"
        )
    if given["digits"] is not None and given["table"] is None:
        raise click.UsageError("--digits needs the rows that must keep their rules: add --table")


def _table(given: dict[str, Any], model: Model, name: str) -> Table:
    marks = given["missing_marks"]
    return read_rows(given[name], model.schema.missing_marks if marks is None else marks)


def _pieces(model: Model, given: dict[str, Any]) -> Iterator[str]:
    from treekit.documents import listing, written
    from treekit.rules import overlapping_rules, rounded, rules_against
    from treekit.rules.language import language
    from treekit.verify.report import model_sha256

    words = language(given["lang"])
    found = model.rules(decisions=given["decisions"])
    table = None if given["table"] is None else _table(given, model, "table")
    if given["digits"] is not None and table is not None:
        found = rounded(found, given["digits"], _matrix(model, table))
    tree = None if given["tree"] is None else given["tree"] - 1
    if given["overlaps"]:
        return iter([overlapping_rules(found, tree, table=table).text(words)])
    if given["against"]:
        return iter([rules_against(found, _table(given, model, "against")).text(words)])
    if given["form"] == "text":
        return found.text(tree, words)
    made = listing(
        found,
        table=table,
        tree=tree,
        words=words,
        title=given["title"],
        model=model,
        model_digest=model_sha256(model),
        table_name=Path(given["table"] or "").name,
    )
    return written(given["form"], made)


def _matrix(model: Model, table: Table) -> npt.NDArray[np.float64]:
    """Rows as the model reads them; those that a policy refuses, too."""
    from treekit.data.encoding import encode_rows

    return encode_rows(table, model.schema, missing_marks=table.missing)


# ---------------------------------------------------------------- simplify
# ``treekit simplify``: a short list of rules in the place of a model.


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


# ---------------------------------------------------------------- revise
# ``treekit revise``: rules that were edited by hand become a model again.


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
