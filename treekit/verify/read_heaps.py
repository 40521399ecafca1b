"""Reading back complete trees of C source, as nodes that name their children.

See ``templates/c/heap.jinja`` for what a node is.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.export.c.layouts import EIGHT
from treekit.verify.read_packed import ReadNodes, most_of

__all__ = ["heap_nodes"]

Array = npt.NDArray[Any]


def heap_nodes(text: str, arrays: dict[str, Array], schema: Schema) -> ReadNodes:
    """All places of all trees, and behind them the ends, which are leaves.

    A leaf above the last level, which its places repeat, becomes a leaf there.

    Raises
    ------
    VerificationError
        If the source walks otherwise, or a test is none that treekit writes.
    """
    key, test = _words(text, arrays["heap"], schema)
    ends = arrays["ends"]
    place, child = _children(arrays["starts"], arrays["depths"], len(key), len(ends))
    number = (test >> np.uint64(3)).astype(np.int64)
    column, left = (number - 1) // 2, number % 2 == 0
    asks = place & (number > 0)
    levels = place & (test & np.uint64(1)).astype(np.bool_)
    _check(asks, levels, key, test, column, left, schema)
    # Of a left cell that is more than a key: the cell after missing's place is more than the next.
    key = key + (asks & left & ~levels & (key > 0))
    no, zero = np.zeros(len(ends), np.bool_), np.zeros(len(ends), np.int64)
    return ReadNodes(
        leaf=np.append(~asks, ~no),
        wrap=np.append(asks & left, no),
        levels=np.append(levels, no),
        key=np.append(np.where(asks, key, _said(asks, place, child, ends)), ends.astype(np.uint64)),
        cell=np.append(np.where(asks, column, 0), zero),
        child=np.append(child, len(key) + np.arange(len(ends))),
        root=arrays["starts"] + np.where(arrays["depths"] > 0, 1, len(key)),
    )


def _check(
    asks: Array, levels: Array, key: Array, test: Array, column: Array, left: Array, schema: Schema
) -> None:
    if np.any(column[asks] >= schema.n_features):
        raise VerificationError("a cell that no row has")
    by_key = asks & ~levels
    of_codes = by_key & schema.nominal[np.where(asks, column, 0)]
    most = most_of(schema)
    if (
        np.any((test & np.uint64(6)) > 0)
        or np.any(levels & ~(asks & left))
        or np.any(by_key & (key >= most))
        or np.any(of_codes & left & (key > 0))
    ):
        raise VerificationError("a test that treekit does not write")


def _words(text: str, words: Array, schema: Schema) -> tuple[Array, Array]:
    """Key and test of each place."""
    cell = re.search(r"^#define \w+_CELL\(test\) \(\(test\) >> 3\)$", text, re.MULTILINE)
    eight = re.search(
        r"^#define \w+_OF_EIGHT\(test\) \(\(test\)( & ~7u)?\) /\*", text, re.MULTILINE
    )
    if cell is None or eight is None:
        raise VerificationError("a walk that is not treekit's")
    if schema.dtype == "float32":
        key, test = words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)
    else:
        key, test = words[0::2], words[1::2]
    if eight[1] is None and np.any(test & np.uint64(7)):
        raise VerificationError("questions to levels that batches take for cells")
    return key, test


def _children(starts: Array, depths: Array, places: int, ends: int) -> tuple[Array, Array]:
    """(places,) whether a walk comes there, and the first child; ends follow the places."""
    if np.any(depths < 0) or np.any(depths > 40):
        raise VerificationError("trees of another depth")
    size = 1 << depths
    if np.any(starts != np.cumsum(size) - size) or size.sum() != places or places != ends:
        raise VerificationError("trees that do not follow each other")
    by_turns = depths[: len(depths) // EIGHT * EIGHT].reshape(-1, EIGHT)
    if np.any(by_turns != by_turns[:, :1]):
        raise VerificationError("trees of other depths than those that a row walks by turns")
    start, end = np.repeat(starts, size), np.repeat(size, size)
    own = np.arange(places) - start
    child = start + 2 * own + np.where(2 * own >= end, places - end, 0)
    return own > 0, child


def _said(asks: Array, place: Array, child: Array, ends: Array) -> Array:
    """(places,) uint64: of places that ask nothing, what the end to which they lead says.

    Raises
    ------
    VerificationError
        If one leads to a place that asks.
    """
    n = len(child)
    at = np.where(place & ~asks, child, n)
    while np.any(inner := at < n):
        at[inner] = np.where(asks[at[inner]], n + len(ends), child[at[inner]])
    if np.any(at == n + len(ends)):
        raise VerificationError("a test below one that asks nothing")
    return np.asarray(ends[at - n].astype(np.uint64))
