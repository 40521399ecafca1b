"""Options that several commands share, and the tables that they name."""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import click

from treekit.cli.streams import INPUT, OutputPath, TextOutputPath
from treekit.progress import show_progress

if TYPE_CHECKING:
    from treekit.data.table import Table
    from treekit.model.model import Model


_F = TypeVar("_F", bound=Callable[..., Any])

_OUTPUT = OutputPath()


def parse_list(ctx: click.Context, param: click.Parameter, text: str | None) -> list[str] | None:
    """Split text at commas, except within quotes as on a CSV line."""
    del ctx
    if text is None:
        return None
    try:
        return [cell.strip() for cell in next(csv.reader([text], strict=True), [""])]
    except csv.Error as error:
        raise click.BadParameter(f'{text!r}: {error}; write a,b or "a,b",c', param=param) from None


def output_option(
    help_text: str,
    metavar: str = "FILE",
    *,
    required: bool = True,
    kind: Any = _OUTPUT,
) -> Callable[[_F], _F]:
    """Return the option ``-o``: the file to write, or ``-``."""
    return click.option(
        *("-o", "--output"), required=required, metavar=metavar, type=kind, help=help_text
    )


def assignments_option(help_text: str, metavar: str = "KEY=VALUE") -> Callable[[_F], _F]:
    """Return the option ``--set``, which may be repeated."""
    return click.option(*("--set", "assignments"), multiple=True, metavar=metavar, help=help_text)


def number_option(
    name: str,
    help_text: str,
    default: int | None = None,
    *,
    least: int = 0,
    most: int | None = None,
    metavar: str = "N",
) -> Callable[[_F], _F]:
    """Return an option for an integer from `least` to `most`."""
    return click.option(
        name,
        metavar=metavar,
        type=click.IntRange(least, most),
        default=default,
        show_default=True,
        help=help_text,
    )


def file_option(name: str, help_text: str) -> Callable[[_F], _F]:
    """Return an option for another file to write."""
    return click.option(name, metavar="FILE", type=_OUTPUT, help=help_text)


def table_option(option: str, help_text: str, name: str | None = None) -> Callable[[_F], _F]:
    """Return an option for another table to read."""
    names = (option,) if name is None else (option, name)
    return click.option(*names, metavar="TABLE", type=INPUT, help=help_text)


def row_option(help_text: str) -> Callable[[_F], _F]:
    """Return the option ``--row``."""
    return click.option("--row", metavar="COL=VALUE,...|JSON|N", help=help_text)


text_output_option = output_option(
    "File to write.  [default: standard output]", required=False, kind=TextOutputPath()
)


def marks_option(default: str = "those of the model") -> Callable[[_F], _F]:
    """Return the option ``--missing-marks``."""
    return click.option(
        "--missing-marks",
        callback=parse_list,
        metavar="A,B,...",
        help=f"Texts that mean missing, instead of {default}.",
    )


absent_option = click.option(
    "--absent",
    type=click.Choice(["error", "missing"]),
    default="error",
    show_default=True,
    help="Whether a column that a tree tests but the rows do not have is an error, or missing.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

language_option = click.option(
    *("--lang", "lang"),
    default="en",
    show_default=True,
    metavar="en|zh",
    help="Language of the text.",
)


def _combine_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that adds `options` to a command in the given order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def _make_component_option(kind: str, help_text: str) -> Callable[[_F], _F]:
    """Return an option for a component, whose names the shell completes."""

    def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        from treekit import registry

        del ctx, param
        return [name for name in registry.list(kind) if name.startswith(incomplete)]

    return click.option(f"--{kind}", metavar="NAME", help=help_text, shell_complete=complete_name)


settings_options = _combine_options(
    click.option(
        "--algorithm",
        metavar="NAME",
        help="Preset of settings: id3, c45, cart, stump, bagging, random_forest, extra_trees.",
    ),
    click.option(
        "--ensemble", metavar="tree|forest", help="A single tree (default), or a random forest."
    ),
    click.option("--trees", metavar="N", help="Number of trees of a forest."),
    _make_component_option("criterion", "Split criterion: gini, entropy, ..."),
    _make_component_option("splitter", "Split search: auto, exact, histogram, ..."),
    _make_component_option("pruner", "Pruner: cost_complexity, reduced_error, ..."),
    click.option("--max-depth", metavar="N", help="Maximum depth; a root alone has depth 0."),
    click.option("--max-leaves", metavar="N", help="Maximum number of leaves."),
    click.option("--min-weight-leaf", metavar="W", help="Minimum weight (rows) of a leaf."),
    click.option("--max-features", metavar="N|SHARE|sqrt|all", help="Columns tried at each node."),
    click.option(
        "--missing",
        metavar="NAME",
        help="Where rows with a missing cell go: direction, surrogate, fractional, error.",
    ),
    click.option("--seed", metavar="N", help="Random seed."),
    assignments_option(
        "Any setting; those of a component as criterion.KEY=VALUE.  May be repeated."
    ),
)
"""Options for the most common training settings."""

table_options = _combine_options(
    click.option(
        "--nominal", multiple=True, metavar="COL", help="Read COL as categories.  May be repeated."
    ),
    click.option(
        "--numeric", multiple=True, metavar="COL", help="Read COL as numbers.  May be repeated."
    ),
    click.option(
        "--ignore", multiple=True, metavar="COL", help="Do not use COL as input.  May be repeated."
    ),
    click.option(
        "--weights",
        metavar="COL",
        help="Column of row weights: whole numbers count "
        "copies of rows; others are relative, scaled to mean 1.",
    ),
    click.option(
        "--task",
        type=click.Choice(["classification", "regression"]),
        help="Task.  [default: inferred from the target]",
    ),
    click.option(
        "--classes",
        callback=parse_list,
        metavar="A,B,...",
        help="All class labels in order; ties go to the first.",
    ),
    marks_option("the default ones (NA, NaN, null, ?, ...; among numbers also NULL, N/A, ...)"),
    click.option("--decimal", metavar="CHAR", help="Decimal mark of numbers.  [default: .]"),
    click.option("--thousands", metavar="CHAR", help="Mark between groups of digits."),
    click.option(
        "--schema",
        metavar="FILE",
        type=INPUT,
        help="Read columns as this JSON says, of 'treekit columns --json'; other options go first.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(["auto", "float32", "float64"]),
        default="auto",
        show_default=True,
        help="Type of numeric inputs; auto: float32, unless a column would lose precision.",
    ),
)
"""Options for reading a training table."""


cluster_option = click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Dask cluster to use, tcp://HOST:PORT, or local:N for N processes of this machine.",
)


def read_rows(path: str, marks: Collection[str] | None, model: Model | None = None) -> Table:
    """Read the table in a file as a model's training table was read, with a progress bar.

    Parameters
    ----------
    marks : collection of str, or None
        Texts that mean missing; None: those of `model`, or the default ones.
    """
    from treekit.data.text_format import TextFormat

    how = TextFormat() if model is None else model.schema.text_format
    return read_training_rows(
        path,
        {
            "missing_marks": how.marks if marks is None else marks,
            "decimal": how.decimal,
            "thousands": how.thousands,
        },
    )


def read_training_rows(path: str, reading: dict[str, Any]) -> Table:
    """Read the table in a file by reading options, with a progress bar."""
    from treekit.data.table import read_table

    with show_progress("reading", counted=False) as progress:
        return read_table(
            path,
            missing=reading["missing_marks"],
            decimal=reading["decimal"],
            thousands=reading["thousands"],
            progress=progress,
        )


def get_reading_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options by which a command reads a training table: `table_options`, merged."""
    from treekit.data.column_report import merge_declaration

    names = ("nominal", "numeric", "ignore", "weights", "classes", "dtype", "task")
    own = {name: given[name] for name in (*names, "missing_marks", "decimal", "thousands")}
    return merge_declaration(given["schema"], given["targets"], own)


def find_tree(model: Model, number: int | None) -> int | None:
    """Return the index of a tree numbered from 1; raise `click.UsageError` if there is none."""
    if number is not None and number > model.n_trees:
        raise click.UsageError(
            f"there is no tree {number}; trees are numbered from 1 to {model.n_trees}"
        )
    return None if number is None else number - 1
