"""Draw trees (SVG, or DOT for Graphviz), importances, ROC and calibration curves, pruning paths.

>>> treekit.plot(model, "tree.svg", table="train.csv")  # with histograms of the split columns
>>> picture = model.plot(row={"age": 39})  # the decision path of a row, displayed in a notebook
>>> from treekit.plot import plot_importances, plot_roc
>>> plot_roc(treekit.evaluate(model, "test.csv")).save("roc.svg")
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treekit.errors import DataError, SettingError
from treekit.plot.charts import (
    Chart,
    plot_calibration,
    plot_importances,
    plot_pruning_path,
    plot_roc,
)
from treekit.plot.picture import MOST_ENDS, MarkedRow, MaxDepth, Picture
from treekit.rules.wording import format_picture_label

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = [
    "MOST_ENDS",
    "SUFFIXES",
    "Chart",
    "Picture",
    "plot",
    "plot_calibration",
    "plot_importances",
    "plot_pruning_path",
    "plot_roc",
    "suffix_of",
    "written",
]

SUFFIXES = (".svg", ".dot")


def plot(
    model: Any,
    path: str | Path | None = None,
    *,
    tree: int = 0,
    max_depth: MaxDepth = "auto",
    language: str = "en",
    marked: Collection[int] = (),
    row: Any = None,
    table: Any = None,
) -> Picture:
    """Draw one tree of a model.

    Parameters
    ----------
    model : Model or fitted treekit estimator
    path : str or Path, optional
        File to write, ``.svg`` or ``.dot``; missing folders are created.
    tree : int
        Index of the tree, from 0.
    max_depth : int, "auto", "way" or None
        Maximum depth to draw; the root has depth 0.  None draws the complete tree.  ``auto``
        stops at the deepest level with at most `MOST_ENDS` ends (leaves and omitted subtrees).
        For an omitted subtree, the picture shows the number of leaves.
    language : {"en", "zh"}
        Language of the picture; names of columns and classes are not translated.
    marked : collection of int
        Nodes whose paths from the root are drawn with thicker lines.  ``way`` draws only these
        paths and the first node of each branch off them; so does ``auto`` if the tree is too
        large to draw completely.
    row : mapping, (features,) array, or table of one row, optional
        Row whose decision path is drawn with thicker lines and its value at each split; for
        the forms of a row, see `treekit.explain.explain`.
    table : table, optional
        Rows with the target, such as the training table.  Each split on one column gets a
        histogram of the rows that reach it, stacked by class; row weights are ignored.

    Returns
    -------
    Picture

    Raises
    ------
    DataError
        If the row or the table cannot be read.
    SettingError
        For an invalid tree, node, depth, language or format.
    TypeError
        If `model` is neither a `Model` nor a fitted estimator.
    OSError
        If the file cannot be written; an existing file is then unchanged.
    """
    from treekit.model.model import as_model
    from treekit.model.model_file import replace_atomically
    from treekit.plot.picture import NodeRows, make_picture
    from treekit.rules.language import load_language

    model = as_model(model)
    if not 0 <= tree < model.n_trees:
        raise SettingError(
            f"there is no tree {tree}: trees are numbered from 0 to {model.n_trees - 1}"
        )
    suffix = "" if path is None else suffix_of(Path(path))
    picture = make_picture(
        model,
        tree,
        max_depth,
        load_language(language),
        marked,
        None if row is None else _read_row(model, tree, row),
        None if table is None else NodeRows(model, tree, table),
    )
    if path is not None:
        with replace_atomically(path) as file:
            file.write(written(picture, suffix).encode())
    return picture


def _read_row(model: Model, tree: int, row: Any) -> MarkedRow:
    """Read a row and find the leaves that it reaches."""
    from treekit.explain.explain import trace_tree
    from treekit.explain.row import read_row

    found = read_row(model, row)
    for cell in found.cells:
        if cell.refused:
            raise DataError(
                f"the model refuses the row: column {cell.column!r} is {cell.state}; give the "
                "column a value seen in training"
            )
    leaves = trace_tree(model, tree, found.codes).leaves
    known = {
        place: format_picture_label(cell.text)
        for place, cell in enumerate(found.cells)
        if cell.text is not None
    }
    return MarkedRow(tuple(leaf for leaf, _ in leaves), found.codes, known)


def written(picture: Picture, suffix: str) -> str:
    """Return the text of a picture file with the given suffix."""
    return picture.svg() if suffix == ".svg" else picture.dot()


def suffix_of(path: Path) -> str:
    """Return the suffix of a picture file; raise `SettingError` for any other."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise SettingError(
            f"{str(path)!r} is not a picture file: its name must end in .svg or .dot"
        )
    return suffix
