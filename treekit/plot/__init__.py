"""Pictures of trees: SVG, or DOT for Graphviz.

>>> treekit.plot(model, "tree.svg")
>>> picture = model.plot(tree=2, max_depth=4)  # displayed in a notebook
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from treekit.errors import SettingError
from treekit.plot.picture import MOST_ENDS, MaxDepth, Picture

__all__ = ["MOST_ENDS", "SUFFIXES", "Picture", "plot", "suffix_of", "written"]

SUFFIXES = (".svg", ".dot")


def plot(
    model: Any,
    path: str | Path | None = None,
    *,
    tree: int = 0,
    max_depth: MaxDepth = "auto",
    language: str = "en",
    marked: Collection[int] = (),
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
        stops at the deepest level with at most `MOST_ENDS` ends.
        The picture states what it omits.
    language : {"en", "zh"}
        Language of all text that is not part of the model.
    marked : collection of int
        Nodes of the tree, whose decision paths from the root are drawn bolder.  ``way`` draws
        only these paths and their other branches; so does ``auto`` if it would cut the tree.

    Returns
    -------
    Picture

    Raises
    ------
    SettingError
        For an invalid tree, node, depth, language or format.
    TypeError
        If `model` is neither a `Model` nor a fitted estimator.
    OSError
        If the file cannot be written; an existing file is then unchanged.
    """
    from treekit.model.model import as_model
    from treekit.model.model_file import replace_atomically
    from treekit.plot.picture import make_picture
    from treekit.rules.language import load_language

    model = as_model(model)
    if not 0 <= tree < model.n_trees:
        raise SettingError(
            f"there is no tree {tree}: trees are numbered from 0 to {model.n_trees - 1}"
        )
    suffix = "" if path is None else suffix_of(Path(path))
    picture = make_picture(model, tree, max_depth, load_language(language), marked)
    if path is not None:
        with replace_atomically(path) as file:
            file.write(written(picture, suffix).encode())
    return picture


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
