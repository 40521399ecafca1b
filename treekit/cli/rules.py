"""``treekit rules``, ``simplify`` and ``revise``: print, shorten and edit rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treekit.cli.options import (
    assignments_option,
    find_tree,
    language_option,
    marks_option,
    number_option,
    output_option,
    read_rows,
    table_option,
    text_output_option,
)
from treekit.cli.streams import INPUT, MODEL_OUTPUT, name_output
from treekit.cli.terminal import check_output_path, escape_text, write_text
from treekit.settings import parse_assignments

if TYPE_CHECKING:
    from treekit.model.model import Model


# ---------------------------------------------------------------- treekit rules


@click.command("rules", short_help="Print a model as rules.")
@click.argument("model", type=INPUT)
@text_output_option
@click.option(
    *("--as", "form"),
    metavar="FORM",
    help="text, markdown, html, json, csv, or a form of a plugin; 'treekit plugins' lists them.  "
    "Default: by the suffix of FILE (.md, .html, .json, .csv, ...); text without one.",
)
@language_option
@number_option("--tree", "Only the rules of this tree.", least=1)
@click.option(
    "--table",
    metavar="TABLE",
    type=INPUT,
    help="Measure the rules on this table, instead of the training rows.",
)
@table_option("--against", "Report the performance of each rule on TABLE.")
@click.option("--overlaps", is_flag=True, help="Report rules that overlap or are never reached.")
@click.option(
    "--decisions", is_flag=True, help="Merge rules with the same label; drops class shares."
)
@click.option("--title", default="", metavar="TEXT", help="Title of the document.")
@assignments_option("Setting of the form; may be repeated.")
@marks_option()
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
    from treekit.documents.files import check_replaceable
    from treekit.model.model_file import load

    if given["output"] is not None:
        check_output_path(given["output"], given["model"], given["table"], given["against"])
        check_replaceable(given["output"])
    given["form"] = _choose_form(given)
    model = load(given["model"])
    given["tree"] = find_tree(model, given["tree"])
    write_text(_generate_output(model, given), given["output"])


_REPORTS = {"against": "drift", "overlaps": "overlaps"}
"""Options that select a report, and its document form."""


def _choose_form(given: dict[str, Any]) -> str:
    """Return the format of the output: as given, of the report, or by the suffix of the file.

    Raises
    ------
    click.UsageError
        For options that cannot be combined.
    """
    from treekit.documents.files import infer_form

    reports = [name for name in _REPORTS if given[name]]
    if len(reports) == 2:
        raise click.UsageError("--against and --overlaps are two reports; choose one at a time")
    if reports and given["form"] not in (None, "text"):
        raise click.UsageError(f"--{reports[0]} writes a text report; leave --as out")
    form = given["form"] or "text"
    if given["form"] is None and given["output"] is not None and not reports:
        form = infer_form(given["output"])
    if given["table"] and form == "text" and not given["overlaps"]:
        raise click.UsageError(
            "rules as text contain no measures: use --table with --as markdown, html, json or "
            "csv, with --overlaps, or use --against instead"
        )
    return _REPORTS[reports[0]] if reports else form


def _generate_output(model: Model, given: dict[str, Any]) -> Iterator[str]:
    from treekit import registry
    from treekit.documents import make_listing, render_listing
    from treekit.model.model import hash_model
    from treekit.rules.language import load_language

    words, marks = load_language(given["lang"]), given["missing_marks"]
    form = given["form"]
    document = registry.get("document", form)
    settings = parse_assignments(document.settings, given["assignments"], f"form {form!r}")
    found = model.rules(decisions=given["decisions"])
    table = None if given["table"] is None else read_rows(given["table"], marks, model)
    tree = given["tree"]
    if form == "text":
        return found.text(tree, words)
    if given["against"]:
        table = read_rows(given["against"], marks, model)
    made = make_listing(
        found,
        table=table,
        tree=tree,
        words=words,
        title=given["title"],
        model=model,
        model_digest=hash_model(model),
        table_name=Path(given["table"] or "").name,
        measured=document.measured,
    )
    return render_listing(document, made, **settings)


# ---------------------------------------------------------------- treekit simplify


@click.command("simplify", short_help="Make a short rule list from a model.")
@click.argument("model", type=INPUT)
@click.argument("table", type=INPUT)
@output_option("Model file of the rule list to write.", "LIST", kind=MODEL_OUTPUT)
@click.option(
    "--method",
    default="c45rules",
    show_default=True,
    metavar="NAME",
    help="A simplifier; 'treekit plugins' lists them.",
)
@number_option("--rules", "Maximum number of rules.", least=1)
@assignments_option("Setting of the method; may be repeated.")
@table_option("--test", "Report on this table instead of the training one.")
@language_option
@marks_option()
def simplify_command(**given: Any) -> None:
    """Make a short rule list from MODEL and its training TABLE.

    The rule list is a model for 'treekit rules', 'predict', 'export' and 'verify'.  Its size,
    its agreement with MODEL and the accuracy of both are printed.

    \b
    Example:
      treekit simplify forest.treekit train.csv -o list.treekit --method sirus --rules 20
    """  # noqa: D301  # \b keeps click from rewrapping the lines
    from treekit import registry
    from treekit.model.model_file import load
    from treekit.rule_learning import simplify
    from treekit.rules.language import load_language

    words = load_language(given["lang"])
    check_output_path(given["output"], given["model"], given["table"], given["test"])
    model = load(given["model"])
    marks = given["missing_marks"]
    table = read_rows(given["table"], marks, model)
    test = None if given["test"] is None else read_rows(given["test"], marks, model)
    simplifier = registry.get("simplifier", given["method"])
    where = f"simplifier {simplifier.name!r}"
    settings = parse_assignments(simplifier.settings, given["assignments"], where)
    if given["rules"] is not None:
        settings["rules"] = given["rules"]
    learned = simplify(model, table, simplifier, test=test, **settings)
    learned.rules.model(provenance={"simplified": given["method"]}).save(given["output"])
    for line in learned.lines(words):
        click.echo(line)
    where = given["table"] if test is None else given["test"]
    click.echo(f"measured on the rows of {where!r}; written to {name_output(given['output'])}")


# ---------------------------------------------------------------- treekit revise


@click.command("revise", short_help="Turn rules edited by hand back into a model.")
@click.argument("model", type=INPUT)
@click.argument("rules", type=INPUT)
@output_option("Model file to write.", "NEW", kind=MODEL_OUTPUT)
@click.option(
    "--table",
    metavar="TABLE",
    type=INPUT,
    help="Show the effect of the edit on this table, and measure the new rules on it.",
)
@language_option
@marks_option()
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
    from treekit.comparison import compare_models
    from treekit.documents.files import load_edited_rules
    from treekit.model.model_file import load
    from treekit.rules.compare import compare_rules
    from treekit.rules.language import load_language
    from treekit.rules.revise import revise_and_match

    check_output_path(given["output"], given["model"], given["rules"], given["table"])
    model = load(given["model"])
    words = load_language(given["lang"])
    edited = load_edited_rules(given["rules"])
    table = None
    if given["table"] is not None:
        table = read_rows(given["table"], given["missing_marks"], model)
    after, found = revise_and_match(model, edited, table)
    rules = compare_rules(found.before, found.after, words)
    comparison = compare_models(model, after, rules, table, None, words)
    after.save(given["output"])
    for line in comparison.lines(most=None):
        click.echo(escape_text(line))
    click.echo(f"written to {name_output(given['output'])}")
