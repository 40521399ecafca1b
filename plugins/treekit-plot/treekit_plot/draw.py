"""Draw a tree by Python, and as documents."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from treekit.data.table import read_table
from treekit.documents import Listing
from treekit.errors import DataError, ExportError, SettingError
from treekit.model.model import Model, as_model
from treekit.model.model_file import replace_atomically
from treekit.rules.language import Language, load_language, load_phrases
from treekit_plot.picture import MarkedRow, MaxDepth, NodeRows, Picture, make_picture
from treekit_plot.wording import format_picture_label


def plot(
    model: Any,
    path: str | Path | None = None,
    *,
    tree: int = 0,
    max_depth: MaxDepth = "auto",
    language: str | Language = "en",
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
    language : {"en", "zh"} or Language
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
    model = as_model(model)
    if not 0 <= tree < model.n_trees:
        raise SettingError(
            f"there is no tree {tree}: trees are numbered from 0 to {model.n_trees - 1}"
        )
    suffix = "" if path is None else _find_suffix(Path(path))
    picture = make_picture(
        model,
        tree,
        max_depth,
        load_phrases(load_language(language), __package__),
        marked,
        None if row is None else _read_row(model, tree, row),
        None if table is None else NodeRows(model, tree, table),
    )
    if path is not None:
        with replace_atomically(path) as file:
            file.write((picture.svg() if suffix == ".svg" else picture.dot()).encode())
    return picture


def _read_row(model: Model, tree: int, row: Any) -> MarkedRow:
    """Read a row and find the leaves that it reaches."""
    from treekit.explain.explain import trace_tree
    from treekit.explain.row import read_row

    found = read_row(model, row, absent="missing")
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


def _find_suffix(path: Path) -> str:
    """Return the suffix of a picture file; raise `SettingError` for any other."""
    suffix = path.suffix.lower()
    if suffix not in (".svg", ".dot"):
        raise SettingError(
            f"{str(path)!r} is not a picture file: its name must end in .svg or .dot"
        )
    return suffix


# ---------------------------------------------------------------- documents


def render_svg(listing: Listing, **settings: Any) -> Iterator[str]:
    """Yield a tree of the model of `listing` as SVG."""
    yield _draw_tree(listing, **settings).svg()


def render_dot(listing: Listing, **settings: Any) -> Iterator[str]:
    """Yield a tree of the model of `listing` in the DOT language."""
    yield _draw_tree(listing, **settings).dot()


def get_model(listing: Listing) -> Model:
    """Return the model of a listing; raise `SettingError` if it has none."""
    if listing.model is None:
        raise SettingError(
            "a picture shows a model, but only rules are given (labels without values, or an "
            "edited list); draw the model"
        )
    return listing.model


def _draw_tree(
    listing: Listing,
    *,
    max_depth: int | str,
    marked: str,
    row: str | None,
    max_boxes: int | None,
) -> Picture:
    """Draw the tree of a listing, by default the first.

    Raises
    ------
    ExportError
        If the picture would have more than `max_boxes` nodes.
    """
    picture = plot(
        get_model(listing),
        tree=listing.tree or 0,
        max_depth=None if max_depth == "all" else max_depth,  # type: ignore[arg-type]
        language=listing.language,
        marked=_parse_nodes(marked),
        row=None if row is None else _parse_row(row, listing),
        table=listing.table,
    )
    if max_boxes is not None and len(picture.nodes) > max_boxes:
        raise ExportError(
            f"the picture would have {len(picture.nodes):,} boxes, but the limit is {max_boxes}; "
            "draw it with `treekit plot`"
        )
    return picture


def _parse_nodes(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if wrong := [part for part in parts if not (part.isascii() and part.isdigit())]:
        raise SettingError(f"{wrong[0]!r} is not a node; give numbers separated by commas")
    return list(map(int, parts))


def _parse_row(text: str, listing: Listing) -> Any:
    """Return the row that a setting gives: a mapping, or a table of one row."""
    if text.isascii() and text.strip().isdigit():
        if listing.table is None:
            raise SettingError(f"row {text} is the number of a row in the table; give a table")
        rows = read_table(listing.table, missing=get_model(listing).schema.missing_marks)
        if int(text) >= rows.n_rows:
            raise SettingError(
                f"there is no row {text}; rows are numbered from 0 to {rows.n_rows - 1}"
            )
        return rows.take(np.array([int(text)]))
    try:
        cells = json.loads(text)
    except (ValueError, RecursionError):
        cells = None
    if not isinstance(cells, dict):
        raise SettingError(
            f"row {text!r} is neither a JSON object of cells by column nor the number of a row"
        )
    return cells
