"""``treekit explain``: why a model answers one row as it does."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treekit.cli.terminal import check_place, shown, write_text
from treekit.cli.train import listed

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = [
    "explain_command",
    "plot_command",
]


# ---------------------------------------------------------------- explain

_EXAMPLES = """\b
Examples:
  treekit explain m.treekit --row 'age=39,workclass=Private'
  treekit explain m.treekit --table people.csv --row 17 --fixed age,sex --lang zh
"""


@click.command("explain", short_help="Say why a model answers a row as it does.", epilog=_EXAMPLES)
@click.argument("model")
@click.option(
    "--row",
    metavar="COL=VALUE,...|JSON|N",
    help="The row: cells as in a CSV line, a JSON object, or, with --table, its number from 0.",
)
@click.option(
    *("--set", "assignments"),
    multiple=True,
    metavar="COL=VALUE",
    help="A cell of the row, whatever its value holds; may be repeated.",
)
@click.option(
    "--table", metavar="TABLE", help="Rows: for --row N, and to measure changes of numbers by."
)
@click.option("--tree", metavar="N", type=click.IntRange(1), help="Tell the way through this tree.")
@click.option(
    "--changes",
    metavar="N",
    type=click.IntRange(0, 2),
    default=2,
    show_default=True,
    help="Most columns to change for another answer; 0: no search.",
)
@click.option("--wish", metavar="ANSWER", help="Answer to look for: a label, or such as '>= 10'.")
@click.option("--target", metavar="COL", help="Target that the wish is about.  [default: first]")
@click.option(
    "--fixed", callback=listed, metavar="A,B,...", help="Columns that must stay as they are."
)
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
@click.option(
    "--lang",
    metavar="en|zh|FILE",
    default="en",
    show_default=True,
    help="Language of the text, or a catalogue file (.toml).",
)
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Default: stdout."
)
def explain_command(
    model: str,
    row: str | None,
    assignments: tuple[str, ...],
    table: str | None,
    as_json: bool,
    lang: str,
    output: Path | None,
    tree: int | None,
    fixed: list[str] | None,
    **options: Any,
) -> None:
    """Say why MODEL answers a row as it does, and what would alter the answer.

    Columns that the row leaves out are missing.  Of a tree the way is told, node by
    node; of a forest the votes; of both what each column adds to the answer (Saabas
    2014), in integers that add up exactly, and the nearest change of one or two
    columns to another answer, which is searched exactly and predicted before it is
    said.
    """
    from treekit.explain import explain
    from treekit.model.model_file import load
    from treekit.rules.language import language

    if output is not None:
        check_place(output, model, *([] if table is None else [table]))
    words = language(lang)
    loaded = load(model)
    if tree is not None and tree > loaded.n_trees:
        raise click.UsageError(f"there is no tree {tree}; {model!r} has {loaded.n_trees}")
    rows = None if table is None else _rows(loaded, table)
    given = _row(loaded, row, assignments, rows)
    found = explain(
        loaded,
        given,
        tree=None if tree is None else tree - 1,
        fixed=fixed or (),
        table=rows,
        **options,
    )
    if as_json:
        text = json.dumps(found.plain(), ensure_ascii=False, indent=1, allow_nan=False)
        write_text([text, "\n"], output)
    elif output is not None or not sys.stdout.isatty():
        write_text([found.text(words)], output)
    else:
        for line, heading in found.lines(words):
            click.secho(shown(line), bold=heading or None)


def _rows(model: Model, table: str) -> Any:
    from treekit.cli.predict import read_rows

    return read_rows(table, model.schema.missing_marks)


def _row(model: Model, row: str | None, assignments: Sequence[str], rows: Any) -> Any:
    """The row that the options mean: a mapping, or a table of one row."""
    numbered = row is not None and row.strip().isdigit() and row.isascii()
    if rows is not None and numbered and row is not None:
        if assignments:
            raise click.UsageError("--set gives cells of a row of your own; leave --row N out")
        number = int(row)
        if number >= rows.n_rows:
            raise click.UsageError(f"there is no row {number}; the table has {rows.n_rows}, from 0")
        return next(_only(rows, number))
    cells: dict[str, Any] = {}
    if row is not None and row.lstrip().startswith("{"):
        cells = _json_cells(row)
    elif row is not None:
        cells = _once(_cells_of(row), "--row")
    cells |= _once(assignments, "--set")
    if not cells:
        names = ", ".join(f"{name}=..." for name in model.schema.names[:3])
        raise click.UsageError(f"say which row: --row '{names}', or --table TABLE --row N")
    return cells


def _only(rows: Any, number: int) -> Iterator[Any]:
    import numpy as np

    first = 0
    for block in rows.blocks(200_000):
        if number < first + block.n_rows:
            yield block.take(np.array([number - first]))
            return
        first += block.n_rows


def _cells_of(text: str) -> list[str]:
    try:
        return next(csv.reader([text], strict=True), [])
    except csv.Error as error:
        raise click.UsageError(
            f'--row {text!r}: {error}; write a=1,b=2 or "a=x,y",b=2, or use --set'
        ) from None


def _once(texts: Sequence[str], option: str) -> dict[str, str]:
    """Columns and their values, each column named once."""
    cells: dict[str, str] = {}
    for text in texts:
        name, value = _pair(text, option)
        if name in cells:
            raise click.UsageError(f"{option} names {name!r} twice; say its value once")
        cells[name] = value
    return cells


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        remedy = "with --table a number chooses a row" if text.strip().isdigit() else "as in age=39"
        raise click.UsageError(f"{option} {text!r} is no COLUMN=VALUE; {remedy}")
    return name.strip(), value


def _json_cells(text: str) -> dict[str, Any]:
    try:
        cells = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--row is no JSON object: {error}") from None
    for name, value in cells.items():
        if isinstance(value, list | dict):
            raise click.UsageError(f"--row: {name!r} holds {value!r}; a cell is one value")
    return dict(cells)


# ---------------------------------------------------------------- picture
# ``treekit plot``: a tree of a model file as a picture.


def _depth(_: click.Context, __: click.Parameter, value: str | None) -> int | str | None:
    """A number of levels, or None for ``all``; without one, as much as a page holds."""
    if value is None:
        return "auto"
    if value == "all":
        return None
    if not (value.isascii() and value.isdigit()):
        raise click.BadParameter(f"{value!r} is not a depth; give a number from 0, or 'all'")
    return int(value)


@click.command("plot", short_help="Draw a tree: .svg, or .dot for Graphviz.")
@click.argument("model")
@click.option(
    *("-o", "--output"),
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Picture to write; its ending, .svg or .dot, says in which form.",
)
@click.option(
    "--tree", metavar="N", type=click.IntRange(1), default=1, help="Tree of a forest.  [default: 1]"
)
@click.option(
    "--max-depth",
    metavar="N",
    callback=_depth,
    help="Deepest level to draw, the root being 0, or 'all'; default: as much as reads well.",
)
@click.option(
    "--lang",
    "language",
    type=click.Choice(["en", "zh"]),
    default="en",
    show_default=True,
    help="Of the picture's own words.",
)
def plot_command(model: str, output: Path, tree: int, max_depth: int | None, language: str) -> None:
    """Draw a tree of MODEL: questions, shares of the training rows, classes or values.

    What the picture leaves out stands in it: how many leaves a cut hides.
    """
    from treekit.model.model_file import load
    from treekit.plot import plot, suffix_of, written

    check_place(output, model)
    suffix = suffix_of(output)
    loaded = load(model)
    if tree > loaded.n_trees:
        raise click.UsageError(f"there is no tree {tree}; {model!r} has {loaded.n_trees}")
    picture = plot(loaded, tree=tree - 1, max_depth=max_depth, language=language)
    write_text([written(picture, suffix)], output)
