"""Options that several commands share, and the tables that they name."""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from treekit.progress import show_progress

if TYPE_CHECKING:
    from treekit.data.table import Table
    from treekit.model.model import Model


_F = TypeVar("_F", bound=Callable[..., Any])


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
    help_text: str, metavar: str = "FILE", *, required: bool = True
) -> Callable[[_F], _F]:
    """Return the option ``-o``: the file to write."""
    return click.option(
        *("-o", "--output"),
        required=required,
        metavar=metavar,
        type=click.Path(path_type=Path),
        help=help_text,
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
    return click.option(name, metavar="FILE", type=click.Path(path_type=Path), help=help_text)


def row_option(help_text: str) -> Callable[[_F], _F]:
    """Return the option ``--row``."""
    return click.option("--row", metavar="COL=VALUE,...|JSON|N", help=help_text)


text_output_option = output_option("File to write.  [default: standard output]", required=False)


def marks_option(default: str = "those of the model") -> Callable[[_F], _F]:
    """Return the option ``--missing-marks``."""
    return click.option(
        "--missing-marks",
        callback=parse_list,
        metavar="A,B,...",
        help=f"Texts that mean missing, instead of {default}.",
    )


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
    click.option("--criterion", metavar="NAME", help="Split criterion: gini, entropy, ..."),
    click.option("--splitter", metavar="NAME", help="Split search: auto, exact, histogram, ..."),
    click.option("--pruner", metavar="NAME", help="Pruner: cost_complexity, reduced_error, ..."),
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
    marks_option("the default ones (NA, NaN, null, ?, ...)"),
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
    """Read the table in a file, with a progress bar.

    Parameters
    ----------
    marks : collection of str, or None
        Texts that mean missing; None: those of `model`, or the default ones.
    """
    from treekit.data.schema import MISSING_MARKS
    from treekit.data.table import read_table

    if marks is None:
        marks = MISSING_MARKS if model is None else model.schema.missing_marks
    with show_progress("reading", counted=False) as progress:
        return read_table(path, missing=marks, progress=progress)


def find_tree(model: Model, number: int | None) -> int | None:
    """Return the index of a tree numbered from 1; raise `click.UsageError` if there is none."""
    if number is not None and number > model.n_trees:
        raise click.UsageError(
            f"there is no tree {number}; trees are numbered from 1 to {model.n_trees}"
        )
    return None if number is None else number - 1
