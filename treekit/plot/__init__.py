"""A tree as a picture: SVG for people, DOT for Graphviz.

>>> treekit.plot(model, "tree.svg")
>>> picture = model.plot(tree=2, max_depth=4)  # a notebook shows it
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
        File to write, ``.svg`` or ``.dot``; missing folders are made.
    tree : int
        Which tree, from 0.
    max_depth : int, "auto", "way" or None
        Deepest level to draw, the root being 0; None: everything.  ``auto``
        stops at the deepest level that has at most `MOST_ENDS` ends.
        The picture says what it leaves out.
    language : {"en", "zh"}
        Of the few words that are not the model's own.
    marked : collection of int
        Nodes of the tree: the ways from the root to them are drawn bolder.  ``way`` draws
        only these and what branches off them; so does ``auto`` where it would cut the tree.

    Returns
    -------
    Picture

    Raises
    ------
    SettingError
        If there is no such tree, node, depth, language or format.
    TypeError
        If there is no model in what is given as one.
    OSError
        If the file cannot be written; an existing one is then as it was.
    """
    from treekit.model.model import model_of
    from treekit.model.model_file import replacing
    from treekit.plot.picture import make_picture
    from treekit.plot.wording import language_named

    model = model_of(model)
    if not 0 <= tree < model.n_trees:
        raise SettingError(f"there is no tree {tree}; the model has {model.n_trees}, from 0")
    suffix = "" if path is None else suffix_of(Path(path))
    picture = make_picture(model, tree, max_depth, language_named(language), marked)
    if path is not None:
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as file:
            file.write(written(picture, suffix).encode())
    return picture


def written(picture: Picture, suffix: str) -> str:
    """The text of a file with this ending."""
    return picture.svg() if suffix == ".svg" else picture.dot()


def suffix_of(path: Path) -> str:
    """The ending of a picture's file; a `SettingError` for any other."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise SettingError(f"{str(path)!r} is no picture; its name must end in .svg or .dot")
    return suffix
