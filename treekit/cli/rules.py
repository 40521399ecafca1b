"""``treekit rules``, ``simplify`` and ``revise``: print, shorten and edit rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treekit.cli.predict import read_rows
from treekit.cli.terminal import check_output_path, escape_text, write_text
from treekit.cli.train import parse_list

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


# ---------------------------------------------------------------- treekit rules

language_option = click.option(
    *("--lang", "lang"),
    default="en",
    show_default=True,
    metavar="CODE",
    help="Language of the text: en, zh, or a catalogue file (.toml).",
)


def _check_form(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """Check the name of an output form; the forms are imported only when one is given."""
    del ctx
    from treekit.documents import FORMS

    if name is not None and name not in FORMS:
        known = "; ".join(f"{form} ({what.summary})" for form, what in FORMS.items())
        raise click.BadParameter(f"unknown form {name!r}; known: {known}", param=param)
    return name


@click.command("rules", short_help="Print a model as rules.")
@click.argument("model")
@click.option(
    *("-o", "--output"),
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File to write.  [default: standard output]",
)
@click.option(
    *("--as", "form"),
    callback=_check_form,
    metavar="FORM",
    help="text, markdown, html, json, csv, sql, sql-duckdb, sql-postgres, dmn, pmml or "
    "pmml-rules.  Default: by the suffix of FILE (.md, .html, .json, .csv, .sql, .dmn, .pmml), "
    "else text.",
)
@language_option
@click.option("--tree", metavar="N", type=click.IntRange(1), help="Only the rules of this tree.")
@click.option(
    "--table",
    metavar="TABLE",
    help="Measure the rules on this table, instead of the training rows.",
)
@click.option("--against", metavar="TABLE", help="Report the performance of each rule on TABLE.")
@click.option("--overlaps", is_flag=True, help="Report rules that overlap or are never reached.")
@click.option(
    "--decisions", is_flag=True, help="Merge rules with the same label; drops class shares."
)
@click.option(
    "--digits",
    metavar="N",
    type=click.IntRange(1, 17),
    help="Round thresholds to N digits, or more if a row of --table would change its rule.",
)
@click.option("--title", default="", metavar="TEXT", help="Title of the document.")
@click.option(
    "--missing-marks",
    callback=parse_list,
    metavar="A,B,...",
    help="Texts that mean missing in tables, instead of those of the model.",
)
def rules_command(**given: Any) -> None:
    """Print MODEL as readable rules: one for each leaf, or those of a rule list.

    Rules of all trees, as text, are an exact copy of the model: 'treekit verify' can run
    them.  'treekit simplify' makes a short rule list from a tree or a forest; 'treekit
    revise' turns rules edited by hand back into a model.

    \b
    Examples:
      treekit rules m.treekit --lang zh
      treekit rules m.treekit -o rules.html --table new.csv
      treekit rules m.treekit --against new.csv
    """  # noqa: D301  # \b keeps click from rewrapping the lines
    from treekit.model.model_file import load

    given["form"] = _choose_form(given)
    _check_options(given)
    tables = filter(None, (given["table"], given["against"]))
    if given["output"] is not None:
        check_output_path(given["output"], given["model"], *tables)
    model = load(given["model"])
    if given["tree"] is not None and given["tree"] > model.n_trees:
        raise click.UsageError(
            f"there is no tree {given['tree']}; {given['model']!r} has {model.n_trees}"
        )
    write_text(_generate_output(model, given), given["output"])


def _choose_form(given: dict[str, Any]) -> str:
    """Return the given form, or the one of the output's suffix; reports are text."""
    from treekit.documents.files import infer_form

    if given["form"] is not None or given["output"] is None or _list_reports(given):
        return given["form"] or "text"
    return infer_form(given["output"])


def _list_reports(given: dict[str, Any]) -> list[str]:
    return [name for name in ("against", "overlaps") if given[name]]


def _check_options(given: dict[str, Any]) -> None:
    """Raise `click.UsageError` for options that cannot be combined."""
    reports = _list_reports(given)
    if len(reports) == 2:
        raise click.UsageError("--against and --overlaps are two reports; choose one at a time")
    if reports and given["form"] != "text":
        raise click.UsageError(f"--{reports[0]} writes a text report; leave --as out")
    if given["table"] and given["form"] == "text" and not (given["digits"] or given["overlaps"]):
        raise click.UsageError(
            "rules as text contain no measures: use --table with --as markdown, html, json or "
            "csv, with --digits or --overlaps, or use --against instead"
        )
    if given["digits"] is not None and given["table"] is None:
        raise click.UsageError("--digits needs rows that must keep their rules: add --table")


def _read_table(given: dict[str, Any], model: Model, name: str) -> Table:
    marks = given["missing_marks"]
    return read_rows(given[name], model.schema.missing_marks if marks is None else marks)


def _generate_output(model: Model, given: dict[str, Any]) -> Iterator[str]:
    from treekit.documents import make_listing, render_listing
    from treekit.rules import overlapping_rules, rounded, rules_against
    from treekit.rules.language import load_language
    from treekit.verify.report import hash_model

    words = load_language(given["lang"])
    found = model.rules(decisions=given["decisions"])
    table = None if given["table"] is None else _read_table(given, model, "table")
    if given["digits"] is not None and table is not None:
        found = rounded(found, given["digits"], _encode_matrix(model, table))
    tree = None if given["tree"] is None else given["tree"] - 1
    if given["overlaps"]:
        return iter([overlapping_rules(found, tree, table=table).text(words)])
    if given["against"]:
        return iter([rules_against(found, _read_table(given, model, "against")).text(words)])
    if given["form"] == "text":
        return found.text(tree, words)
    made = make_listing(
        found,
        table=table,
        tree=tree,
        words=words,
        title=given["title"],
        model=model,
        model_digest=hash_model(model),
        table_name=Path(given["table"] or "").name,
    )
    return render_listing(given["form"], made)


def _encode_matrix(model: Model, table: Table) -> npt.NDArray[np.float64]:
    """Encode rows for the model, also those that its policies reject."""
    from treekit.data.encoding import encode_rows

    return encode_rows(table, model.schema, missing_marks=table.missing)


# ---------------------------------------------------------------- treekit simplify


@click.command("simplify", short_help="Make a short rule list from a model.")
@click.argument("model")
@click.argument("table")
@click.option(
    *("-o", "--output"),
    required=True,
    metavar="LIST",
    type=click.Path(path_type=Path),
    help="Model file of the rule list to write.",
)
@click.option(
    "--method",
    type=click.Choice(["c45rules", "sirus", "rulefit"]),
    default="c45rules",
    show_default=True,
    help="c45rules: an ordered list; the first matching rule predicts.  sirus: the most frequent "
    "paths of the trees; the mean of their rules predicts.  rulefit: a weighted sum of few rules.",
)
@click.option(
    "--rules",
    metavar="N",
    type=click.IntRange(1),
    help="Maximum number of rules.  [default: 10 for sirus, 20 for rulefit]",
)
@click.option("--test", metavar="TABLE", help="Report on this table instead of the training one.")
@language_option
@click.option(
    "--missing-marks",
    callback=parse_list,
    metavar="A,B,...",
    help="Texts that mean missing in tables, instead of those of the model.",
)
def simplify_command(**given: Any) -> None:
    """Make a short rule list from MODEL and its training TABLE.

    The rule list is a model for 'treekit rules', 'predict', 'export' and 'verify'.  Its size,
    its agreement with MODEL and the accuracy of both are printed.

    \b
    Example:
      treekit simplify forest.treekit train.csv -o list.treekit --method sirus --rules 20
    """  # noqa: D301  # \b keeps click from rewrapping the lines
    from treekit.model.model_file import load
    from treekit.rules.language import load_language

    words = load_language(given["lang"])
    check_output_path(
        given["output"], *filter(None, (given["model"], given["table"], given["test"]))
    )
    model = load(given["model"])
    marks = given["missing_marks"]
    marks = model.schema.missing_marks if marks is None else marks
    table = read_rows(given["table"], marks)
    test = None if given["test"] is None else read_rows(given["test"], marks)
    learned = _learn_rules(given["method"], model, table, given["rules"], test)
    learned.rules.model(provenance={"simplified": given["method"]}).save(given["output"])
    for line in learned.lines(words):
        click.echo(line)
    where = given["table"] if test is None else given["test"]
    click.echo(f"measured on the rows of {where!r}; written to {str(given['output'])!r}")


def _learn_rules(
    method: str, model: Model, table: Table, rules: int | None, test: Table | None
) -> LearnedList:
    from treekit.kernels.compile import announce_compilation

    most: dict[str, Any] = {} if rules is None else {"rules": rules}
    with announce_compilation():
        if method == "c45rules":
            from treekit.rule_learning.c45rules import c45rules

            return c45rules(model, table, test=test, **most)
        if method == "sirus":
            from treekit.rule_learning.sirus import sirus

            return sirus(table, model=model, test=test, **most)
        from treekit.rule_learning.rulefit import rulefit

        return rulefit(table, model=model, test=test, **most)


# ---------------------------------------------------------------- treekit revise


@click.command("revise", short_help="Turn rules edited by hand back into a model.")
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
    help="Show the effect of the edit on this table, and measure the new rules on it.",
)
@language_option
@click.option(
    "--missing-marks",
    callback=parse_list,
    metavar="A,B,...",
    help="Texts that mean missing in the table, instead of those of the model.",
)
def revise_command(**given: Any) -> None:
    """Turn RULES, the edited text or JSON rules of MODEL, back into a model.

    Conditions, predictions and the order of rules may be changed, and rules added or
    deleted; rule and node numbers, supports and class shares may be omitted.  In each tree
    the first matching rule then predicts; if only predictions were changed, the trees are
    kept.  The changes are printed.

    \b
    Example:
      treekit rules m.treekit -o rules.txt   (then edit rules.txt)
      treekit revise m.treekit rules.txt -o new.treekit --table rows.csv
    """  # noqa: D301  # \b keeps click from rewrapping the lines
    from treekit.documents.files import load_edited_rules
    from treekit.model.model_file import load
    from treekit.rules.language import load_language
    from treekit.rules.revise import changed, edits, revise_and_match

    check_output_path(
        given["output"], *filter(None, (given["model"], given["rules"], given["table"]))
    )
    model = load(given["model"])
    words = load_language(given["lang"])
    edited = load_edited_rules(given["rules"], words)
    table = None
    if given["table"] is not None:
        marks = given["missing_marks"]
        table = read_rows(given["table"], model.schema.missing_marks if marks is None else marks)
    after, found = revise_and_match(model, edited, table)
    lines = list(edits(found.before, found.after, words)) or [words.say("edit_none")]
    if table is not None:
        for change in changed(model, after, table):
            lines += change.lines(words)
    after.save(given["output"])
    for line in lines:
        click.echo(escape_text(line))
    click.echo(f"written to {str(given['output'])!r}")
