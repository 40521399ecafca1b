"""``treekit importances``: feature importances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from treekit.cli.terminal import print_table
from treekit.cli.train import parse_list

if TYPE_CHECKING:
    from treekit.model.model import Model
    from treekit.training.importance import Importances

__all__ = ["importances_command"]


@click.command("importances", short_help="Print feature importances.")
@click.argument("model")
@click.argument("table", required=False)
@click.option(
    "--out-of-bag",
    is_flag=True,
    help="Score each tree on its out-of-bag rows; TABLE must be the training table.",
)
@click.option(
    "--repeats",
    metavar="N",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Number of shuffles of each column.",
)
@click.option(
    "--seed",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of the shuffles.",
)
@click.option("--weights", metavar="COL", help="Column of row weights.")
@click.option(
    "--missing-marks",
    callback=parse_list,
    metavar="A,B,...",
    help="Texts that mean missing, instead of the model's own.",
)
def importances_command(
    model: str, table: str | None, missing_marks: list[str] | None, **options: Any
) -> None:
    """Print the share of each column in the gain of MODEL's splits, largest first.

    With a TABLE that contains the target, also print permutation importances, and sort by
    them: the decrease of the score (accuracy, or R squared) on TABLE when the column is
    shuffled, with its standard error.
    """
    from treekit.cli.predict import read_rows
    from treekit.model.model_file import load
    from treekit.training.importance import gain_importances, permutation_importances

    loaded = load(model)
    names, gains = loaded.schema.names, gain_importances(loaded)
    if table is None:
        if options["out_of_bag"] or options["weights"] is not None:
            raise click.UsageError("--out-of-bag and --weights need a TABLE; give one")
        order = (-gains).argsort(kind="stable").tolist()
        print_table(["column", "gain"], [(names[f], f"{gains[f]:.4f}") for f in order])
        return
    marks = loaded.schema.missing_marks if missing_marks is None else missing_marks
    found = permutation_importances(loaded, read_rows(table, marks), **options)
    _print_importances(loaded, found, gains.tolist())
    if options["out_of_bag"]:
        click.echo("(mean of the single trees, each on its out-of-bag rows)")


def _print_importances(model: Model, found: Importances, gains: list[float]) -> None:
    name = {"accuracy": "accuracy", "r2": "R squared"}[found.measure]
    rows = zip(model.schema.names, found.mean, found.standard_error, gains, strict=True)
    ordered = sorted(rows, key=lambda row: (-row[1], -row[3]))
    print_table(
        ["column", f"{name} decrease", "standard error", "gain"],
        [(column, *(f"{number:.4f}" for number in numbers)) for column, *numbers in ordered],
    )
    click.echo(f"\n{name}: {found.score:.4f}")
