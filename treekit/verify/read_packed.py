"""Reading back packed nodes of C source.

See ``templates/c/table.jinja`` for what a node is, and `treekit.export.c.layouts`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError

__all__ = ["ReadNodes", "depths_of", "most_of", "packed_nodes"]

Array = npt.NDArray[Any]

_MASK = re.compile(r"_CELL\(test\) \(\(uint32_t\)\(\(test\) >> 2\) & (\d{1,10})u\)$", re.MULTILINE)
_SHIFT = re.compile(r"_STEP\(test\) \(\(uint32_t\)\(\(test\) >> (\d{1,2})\)\)$", re.MULTILINE)


@dataclass(frozen=True)
class ReadNodes:
    """Packed nodes, taken apart.

    Attributes
    ----------
    leaf, wrap, levels : (nodes,) bool
    key : (nodes,) uint64
        Of leaves what they say.
    cell, child : (nodes,) int64
        The branches lead to `child` and the node after it.
    root : (trees,) int64
    """

    leaf: Array
    wrap: Array
    levels: Array
    key: Array
    cell: Array
    child: Array
    root: Array


def packed_nodes(text: str, arrays: dict[str, Array], schema: Schema) -> ReadNodes:
    """All nodes of all trees, leaves included.

    Raises
    ------
    VerificationError
        If the source walks otherwise, or a test is none that treekit writes.
    """
    mask, shift = _MASK.search(text), _SHIFT.search(text)
    if mask is None or shift is None:
        raise VerificationError("a walk that is not treekit's")
    words = arrays["nodes"]
    if words.dtype == np.uint8:
        words = words.view("<u8").astype(np.uint64)
    if re.search(r"^#define \w+_TEST\(at\) \(\(uint32_t\)", text, re.MULTILINE):
        key, test = words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)
    else:
        key, test = words[0::2], words[1::2]
    step = (test >> np.uint64(int(shift[1]))).astype(np.int64)
    nodes = ReadNodes(
        leaf=step == 0,
        wrap=(test & np.uint64(1)).astype(np.bool_),
        levels=(test >> np.uint64(1) & np.uint64(1)).astype(np.bool_),
        key=key,
        cell=(test >> np.uint64(2) & np.uint64(int(mask[1]))).astype(np.int64),
        child=np.arange(len(key)) + step,
        root=arrays["roots"],
    )
    _check(nodes, schema)
    return nodes


def _check(nodes: ReadNodes, schema: Schema) -> None:
    """Refuse what the walk would take otherwise than `ReadNodes` says."""
    asks = ~nodes.leaf
    if np.any(nodes.cell[asks] >= schema.n_features):
        raise VerificationError("of C source verify reads no sums, surrogates and rules")
    # A leaf asks as well, and stays: nothing but the cell that is always 0 is never more.
    moves = nodes.wrap | nodes.levels | (nodes.cell != schema.n_features)
    most = most_of(schema)
    by_key = asks & ~nodes.levels
    if (
        np.any(nodes.leaf & moves)
        or np.any(nodes.levels & ~nodes.wrap)  # without a place for missing ones
        or np.any(nodes.key > most)
        or np.any(by_key & ~nodes.wrap & (nodes.key == most))
    ):
        raise VerificationError("a test that treekit does not write")


def most_of(schema: Schema) -> np.uint64:
    """The largest key, which a missing value has."""
    return np.uint64(2**32 - 1 if schema.dtype == "float32" else 2**64 - 1)


def depths_of(nodes: ReadNodes, n_branches: Array) -> Array:
    """(trees,) int64: steps from each root to its deepest leaf.

    Parameters
    ----------
    n_branches : (nodes,) int64
        Of nodes that ask.
    """
    n_nodes = len(nodes.leaf)
    depth = np.zeros(len(nodes.root), dtype=np.int64)
    tree, at = np.arange(len(depth)), nodes.root
    while np.any(asks := ~nodes.leaf[at]):
        tree, at = tree[asks], at[asks]
        depth[tree] += 1
        size = n_branches[at]
        branch = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        reached = np.repeat(nodes.child[at], size) + branch
        # Once each: a table that is damaged may lead to one node in many ways.
        tree, at = np.divmod(np.unique(np.repeat(tree, size) * n_nodes + reached), n_nodes)
    return depth
