"""``treekit plot``: a tree of a model file as a picture."""

from __future__ import annotations

from pathlib import Path

import click

from treekit.cli.files import check_place, write_text

__all__ = ["plot_command"]


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
