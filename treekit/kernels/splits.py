"""The splits of a finished tree, asked of rows of the coded table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import inlined, kernel
from treekit.kernels.found import MISSING
from treekit.kernels.fractional import mark
from treekit.kernels.oblique import OBLIQUE, project

__all__ = ["Splits", "mark_branches"]


class Splits(NamedTuple):
    """What a tree asks; see `treekit.model.tree.Tree`.

    Attributes
    ----------
    cut : (nodes,) int64
        The last code that goes to branch 0 of a THRESHOLD node, -1 elsewhere.
    terms : (2 * terms,) int32
        Of the oblique splits, as `treekit.kernels.oblique.project` takes them.
    surrogates : (surrogates + 1, 4) int64
        Column, last code that takes the branch below, that branch, and where its
        levels begin; the last row says where all levels end.
    """

    kind: npt.NDArray[np.uint8]
    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    cut: npt.NDArray[np.int64]
    first_child: npt.NDArray[np.int32]
    n_children: npt.NDArray[np.int32]
    missing: npt.NDArray[np.int32]
    level_start: npt.NDArray[np.int64]
    level_branch: npt.NDArray[np.int32]
    term_start: npt.NDArray[np.int64]
    terms: npt.NDArray[np.int32]
    surrogate_start: npt.NDArray[np.int64]
    surrogates: npt.NDArray[np.int64]
    surrogate_levels: npt.NDArray[np.int32]


@kernel
def mark_branches(splits, node, table, ids, begin, end, fractional, sides, branch_of):
    """Branch of each of the rows ``ids[begin:end]`` at the split of `node`.

    Parameters
    ----------
    fractional : bool
        Rows whose value is missing are marked with the number of branches, as
        they go down all of them; otherwise they take the branch of its first
        surrogate that knows one, or the split's missing way.
    sides : (all rows,) of the codes' type
        Working memory; may be empty for a tree without oblique splits.
    branch_of : (rows,) uint32
        Receives the branches, from position 0 on.
    """
    node = np.uint64(node)
    one = np.uint64(1)
    column = np.uint64(splits.feature[node])
    lost = np.int64(splits.missing[node])
    asked = splits.surrogate_start[node + one] > splits.surrogate_start[node]
    if asked or (fractional and splits.kind[node] != MISSING):
        lost = np.int64(splits.n_children[node])
    codes, n_codes, cut = table.codes[column], table.n_codes[column], splits.cut[node]
    levels = splits.level_branch[splits.level_start[node] : splits.level_start[node + one]]
    if splits.kind[node] == OBLIQUE:
        terms = splits.terms[2 * splits.term_start[node] : 2 * splits.term_start[node + one]]
        project(table, terms, splits.threshold[node], ids, begin, end, sides)
        codes, n_codes, cut = sides, np.uint32(2), np.int64(0)
    mark(codes, np.uint64(0), one, n_codes, cut, lost, levels, ids, begin, end, branch_of)
    if asked:
        for i in range(np.uint64(end - begin)):
            if np.int64(branch_of[i]) == lost:
                row = np.uint64(ids[np.uint64(begin) + i])
                branch_of[i] = np.uint32(_by_surrogate(splits, node, table, row))


@inlined
def _by_surrogate(splits, node, table, row):
    """The branch of the first surrogate that knows the row, or the missing way."""
    zero, one, two, three = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
    first, last = splits.surrogate_start[node], splits.surrogate_start[node + one]
    for k in range(np.uint64(first), np.uint64(last)):
        test = splits.surrogates[k]
        column = np.uint64(test[zero])
        code = np.int64(table.codes[column, row])
        if code >= np.int64(table.n_codes[column]):
            continue
        if test[three] == splits.surrogates[k + one, three]:
            return test[two] if code <= test[one] else 1 - test[two]
        branch = np.int64(splits.surrogate_levels[np.uint64(test[three] + code)])
        if branch >= 0:
            return branch
    return np.int64(splits.missing[node])
