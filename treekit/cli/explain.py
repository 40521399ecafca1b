"""``treekit explain``, ``plot`` and ``importances``: predictions, trees, columns."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from treekit.cli.json_reports import Importance, ImportancesReport, print_json
from treekit.cli.options import (
    absent_option,
    assignments_option,
    find_tree,
    json_option,
    language_option,
    marks_option,
    number_option,
    output_option,
    parse_list,
    read_rows,
    row_option,
    text_output_option,
)
from treekit.cli.streams import INPUT, OutputPath
from treekit.cli.terminal import check_output_path, escape_text, print_table, write_text

if TYPE_CHECKING:
    from treekit.data.table import Table
    from treekit.model.model import Model


# ---------------------------------------------------------------- treekit explain

_EXAMPLES = """\b
Examples:
  treekit explain m.treekit --row 'age=39,workclass=Private' --absent missing
  treekit explain m.treekit --table people.csv --row 17 --fixed age,sex --lang zh
"""


@click.command("explain", short_help="Explain the prediction for one row.", epilog=_EXAMPLES)
@click.argument("model", type=INPUT)
@row_option("The row: cells as in a CSV line, a JSON object, or its number in --table, from 0.")
@assignments_option("Cell of the row; the value is used literally.  May be repeated.", "COL=VALUE")
@click.option(
    "--table",
    metavar="TABLE",
    type=INPUT,
    help="Table for --row N; also used to scale changes of numeric columns.",
)
@number_option("--tree", "Show the decision path of this tree.", least=1)
@number_option(
    "--changes",
    "Maximum number of columns that a counterfactual changes; 0: no search.  [default: 2]",
    most=2,
)
@click.option(
    "--wish",
    metavar="ANSWER",
    help="Prediction that a counterfactual must reach: a label, or a bound such as '>= 10'.",
)
@click.option("--target", metavar="COL", help="Target of --wish.  [default: first]")
@click.option(
    "--fixed",
    callback=parse_list,
    metavar="A,B,...",
    help="Columns that counterfactuals must not change.",
)
@absent_option
@click.option("--json", "as_json", is_flag=True, help="Print all details as JSON.")
@language_option
@text_output_option
def explain_command(**given: Any) -> None:
    """Explain the prediction of MODEL for one row.

    Columns that no tree tests may be left out.  The output contains the decision path of a
    tree, or the votes of a forest; and the feature contributions (Saabas 2014), integers that
    add up, with the bias, exactly to the raw prediction.  The plugin treekit-counterfactuals
    adds a counterfactual: the smallest change of one or two columns that changes the prediction.
    """
    from treekit.explain import explain
    from treekit.model.model_file import load
    from treekit.rules.language import load_language

    output, table = given["output"], given["table"]
    if output is not None:
        check_output_path(output, given["model"], table)
    words = load_language(given["lang"])
    model = load(given["model"])
    tree = find_tree(model, given["tree"])
    rows = None if table is None else read_rows(table, None, model)
    row = _parse_row(model, given["row"], given["assignments"], rows)
    names = [name for name in ("fixed", "changes", "wish", "target") if given[name] is not None]
    options = {name: given[name] for name in names}
    found = explain(model, row, tree=tree, table=rows, absent=given["absent"], **options)
    if given["as_json"]:
        text = json.dumps(found.plain(), ensure_ascii=False, indent=1, allow_nan=False)
        write_text([text, "\n"], output)
    elif output is not None or not sys.stdout.isatty():
        write_text([found.text(words)], output)
    else:
        for line, heading in found.lines(words):
            click.secho(escape_text(line), bold=heading or None)


def _parse_row(model: Model, row: str | None, assignments: Sequence[str], rows: Any) -> Any:
    """Return the row given by the options: a mapping, or a table of one row."""
    numbered = row is not None and row.strip().isdigit() and row.isascii()
    if rows is not None and numbered and row is not None:
        if assignments:
            raise click.UsageError("--set and --row N cannot be combined; leave one of them out")
        return _select_row(rows, int(row))
    cells: dict[str, Any] = {}
    if row is not None and row.lstrip().startswith("{"):
        cells = _parse_json_row(row)
    elif row is not None:
        cells = _parse_pairs(_split_cells(row), "--row")
    cells |= _parse_pairs(assignments, "--set")
    if not cells:
        names = ", ".join(f"{name}=..." for name in model.schema.names[:3])
        raise click.UsageError(f"no row is given; use --row '{names}', or --table TABLE --row N")
    return cells


def _select_row(rows: Table, number: int) -> Table:
    import numpy as np

    if number >= rows.n_rows:
        raise click.UsageError(
            f"there is no row {number}; rows are numbered from 0 to {rows.n_rows - 1}"
        )
    return rows.take(np.array([number]))


def _split_cells(text: str) -> list[str]:
    try:
        return next(csv.reader([text], strict=True), [])
    except csv.Error as error:
        raise click.UsageError(
            f'--row {text!r}: {error}; write a=1,b=2 or "a=x,y",b=2, or use --set'
        ) from None


def _parse_pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Parse columns and their values; raise if a column is repeated."""
    cells: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            numbered = text.strip().isdigit()
            remedy = (
                "add --table to choose a row by number" if numbered else "write it as in age=39"
            )
            raise click.UsageError(f"{option} {text!r} is not COLUMN=VALUE; {remedy}")
        if name in cells:
            raise click.UsageError(f"{option} names {name!r} twice; give one value")
        cells[name] = value
    return cells


def _parse_json_row(text: str) -> dict[str, Any]:
    try:
        cells = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--row is not a JSON object: {error}") from None
    for name, value in cells.items():
        if isinstance(value, list | dict):
            raise click.UsageError(f"--row: {name!r} is {value!r}; a cell must be a single value")
    return dict(cells)


# ---------------------------------------------------------------- treekit plot


def _parse_depth(_: click.Context, __: click.Parameter, value: str | None) -> int | str:
    """Parse a depth: an integer, ``all``, or ``auto`` by default."""
    if value in (None, "all"):
        return value or "auto"
    if not (value.isascii() and value.isdigit()):
        raise click.BadParameter(f"{value!r} is not a depth; give an integer >= 0, or 'all'")
    return int(value)


_PICTURES = ("tree", "importances", "roc", "calibration", "pruning-path")

_PLOT_EXAMPLES = """\b
Examples:
  treekit plot m.treekit --table train.csv -o tree.svg
  treekit plot m.treekit --row 'age=39,workclass=Private' -o path.svg
  treekit plot m.treekit --of roc --table test.csv -o roc.svg
"""


@click.command("plot", short_help="Draw a tree, importances or curves.", epilog=_PLOT_EXAMPLES)
@click.argument("model", type=INPUT)
@output_option(
    "Picture to write; the suffix selects the format: .svg, or for a tree .dot.",
    kind=OutputPath(".svg"),
)
@click.option(
    *("--of", "picture"),
    type=click.Choice(_PICTURES),
    default="tree",
    show_default=True,
    help="What to draw.",
)
@click.option(
    "--table",
    metavar="TABLE",
    type=INPUT,
    help="Table with the target, for histograms at the splits or permutation importances; "
    "required for roc and calibration.",
)
@row_option("Draw the decision path of a row, given as in `treekit explain`.")
@marks_option()
@number_option("--tree", "Number of the tree in a forest.  [default: 1]", least=1)
@click.option(
    "--max-depth",
    metavar="N",
    callback=_parse_depth,
    help="Maximum depth to draw, where the root has depth 0, or 'all'.  [default: as much as is "
    "readable]",
)
@click.option(
    *("--lang", "language"),
    type=click.Choice(["en", "zh"]),
    default="en",
    show_default=True,
    help="Language of the texts in a tree.",
)
def plot_command(**given: Any) -> None:
    """Draw a tree of MODEL, with its splits, shares of training rows, and classes or values.

    For an omitted subtree, the picture shows the number of leaves.  Draw another chart of MODEL
    with --of.  The plugin treekit-plot draws.
    """
    from treekit import registry
    from treekit.documents import make_listing, render_listing
    from treekit.model.model_file import load

    output, table, row = (given[name] for name in ("output", "table", "row"))
    check_output_path(output, given["model"], table)
    document = registry.get("document", _choose_picture(given))
    model = load(given["model"])
    rows = None if table is None else read_rows(table, given["missing_marks"], model)
    settings = {}
    if given["picture"] == "tree":
        settings["max_depth"] = given["max_depth"]
    if row is not None:
        cells = _parse_row(model, row, (), rows)
        settings["row"] = json.dumps(cells) if isinstance(cells, dict) else row.strip()
    tree, words = find_tree(model, given["tree"]), given["language"]
    listing = make_listing(
        model, table=rows, tree=tree, words=words, measured=False, with_rules=False
    )
    write_text(render_listing(document, listing, **settings), output)


def _choose_picture(given: dict[str, Any]) -> str:
    """Return the document to write; raise `click.UsageError` for options that do not fit."""
    output, picture = given["output"], given["picture"]
    suffix = output.suffix.lower()
    if suffix not in (".svg", ".dot"):
        raise click.UsageError(
            f"{str(output)!r} is not a picture file: its name must end in .svg or .dot"
        )
    if picture == "tree":
        return str(suffix[1:])
    if suffix != ".svg":
        raise click.UsageError(f"--of {picture} is written as .svg; rename {output.name!r}")
    for name in ("row", "tree"):
        if given[name] is not None:
            raise click.UsageError(f"--{name} is for --of tree; leave it out")
    return str(picture)


# ---------------------------------------------------------------- importances


@click.command("importances", short_help="Print feature importances.")
@click.argument("model", type=INPUT)
@click.argument("table", required=False, type=INPUT)
@click.option(
    "--out-of-bag",
    is_flag=True,
    help="Score each tree on its out-of-bag rows; TABLE must be the training table.",
)
@number_option("--repeats", "Number of shuffles of each column.", 5, least=1)
@number_option("--seed", "Seed of the shuffles.", 0)
@click.option("--weights", metavar="COL", help="Column of row weights.")
@marks_option()
@json_option
def importances_command(
    model: str,
    table: str | None,
    missing_marks: list[str] | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the share of each column in the gain of MODEL's splits, largest first.

    With a TABLE that contains the target, also print permutation importances, and sort by
    them: the decrease of the score (accuracy, or R squared) on TABLE when the column is
    shuffled, with its standard error.
    """
    from treekit.model.model_file import load
    from treekit.training.importance import gain_importances, permutation_importances

    loaded = load(model)
    names, gains = loaded.schema.names, gain_importances(loaded).tolist()
    if table is None:
        if options["out_of_bag"] or options["weights"] is not None:
            raise click.UsageError("--out-of-bag and --weights need a TABLE; give one")
        rows = [Importance(*row, None, None) for row in zip(names, gains, strict=True)]
        report = ImportancesReport(sorted(rows, key=lambda row: -row.gain), None, None)
    else:
        rows_of_table = read_rows(table, missing_marks, loaded)
        found = permutation_importances(loaded, rows_of_table, **options)
        cells = zip(names, gains, found.mean.tolist(), found.standard_error.tolist(), strict=True)
        rows = sorted(
            (Importance(*row) for row in cells), key=lambda row: (-(row.decrease or 0.0), -row.gain)
        )
        report = ImportancesReport(rows, found.measure, found.score)
    if as_json:
        print_json(report)
        return
    _print_importances(report)
    if options["out_of_bag"]:
        click.echo("(mean of the single trees, each on its out-of-bag rows)")


def _print_importances(report: ImportancesReport) -> None:
    if report.measure is None:
        print_table(["column", "gain"], [(row.column, f"{row.gain:.4f}") for row in report.columns])
        return
    name = {"accuracy": "accuracy", "r2": "R squared"}[report.measure]
    print_table(
        ["column", f"{name} decrease", "standard error", "gain"],
        [
            (one.column, *(f"{x:.4f}" for x in (one.decrease, one.standard_error, one.gain)))
            for one in report.columns
        ],
    )
    click.echo(f"\n{name}: {report.score:.4f}")
