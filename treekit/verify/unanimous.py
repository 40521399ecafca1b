"""More rows for leaves that were seen only where all trees agree.

In float32 the votes of one row sum to at most 2**24, and the next whole number
is no float32: where every vote goes to one class, an artifact with one vote
too many rounds it away.  It shows in any row in which some other tree votes
otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from treekit.model.fixed_point import UNITS
from treekit.model.model import Model
from treekit.model.scoring import leaf_indices, sums
from treekit.model.tree import Split

__all__ = ["divided_rows"]

Array = npt.NDArray[np.float64]
RowsOf = Callable[[int, npt.NDArray[np.bool_]], Array]

_ROUNDS = 32
_ROWS = 50_000


def divided_rows(model: Model, rows: Array, rows_of: RowsOf) -> Array:
    """Rows in which the votes are divided, for leaves that `rows` show only with all votes.

    Parameters
    ----------
    model : Model
    rows : (rows, features) float64
        Reach every leaf that can be reached.
    rows_of : callable
        ``rows_of(tree, wanted)``: a row, drawn anew each time, for each wanted
        node (a mask) of a tree.
    """
    votes = model.schema.task == "classification" and not model.margins
    if not votes or model.unit_total != UNITS["float32"]:
        return rows[:0]
    blocks = itertools.pairwise(model.schema.blocks)
    return np.concatenate([_of_output(model, slice(*block), rows, rows_of) for block in blocks])


def _of_output(model: Model, block: slice, rows: Array, rows_of: RowsOf) -> Array:
    """`divided_rows` for one output, whose classes are a block of the sums."""
    found = [rows[:0]]
    doubtful = [
        (tree.kind == Split.LEAF) & reached
        for tree, reached in zip(model.trees, _leaves(model, rows), strict=True)
    ]
    for leaves, sure in zip(doubtful, _leaves(model, _divided(model, block, rows)), strict=True):
        np.logical_and(leaves, ~sure, out=leaves)
    # A single tree cannot divide its votes at a pure leaf: nothing to be found.
    for _ in range(_ROUNDS if model.n_trees > 1 else 0):
        asked = [(t, leaves) for t, leaves in enumerate(doubtful) if leaves.any()]
        if not asked:
            break
        drawn = np.concatenate([rows_of(t, leaves) for t, leaves in asked])
        drawn = _divided(model, block, drawn)
        found.append(drawn)
        for leaves, sure in zip(doubtful, _leaves(model, drawn), strict=True):
            np.logical_and(leaves, ~sure, out=leaves)
    return np.concatenate(found)


def _divided(model: Model, block: slice, rows: Array) -> Array:
    """The rows in which no class of an output has every vote."""
    most: npt.NDArray[np.int64] = sums(model, rows)[:, block].max(axis=1, initial=0)
    return rows[most < model.unit_total]


def _leaves(model: Model, rows: Array) -> Iterator[npt.NDArray[np.bool_]]:
    """For each tree, (nodes,) bool: the leaves that rows reach."""
    reached = [np.zeros(tree.n_nodes, dtype=np.bool_) for tree in model.trees]
    for at in range(0, len(rows), _ROWS):
        ends = leaf_indices(model, rows[at : at + _ROWS])
        for tree, mask in enumerate(reached):
            mask[ends[:, tree]] = True
    yield from reached
