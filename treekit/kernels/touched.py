"""What happens to rows on their way through trees that ask sums and surrogates.

The scorer does not say; here every test that is asked is noted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treekit.kernels.compile import kernel
from treekit.kernels.routes import FULL_MASS, ask, branch_at, descend, total_of

__all__ = ["Touched", "are_next", "follow"]

# Number of `treekit.model.tree.Split.LEAF`, which compiled code cannot read.
_LEAF = 0


class Touched(NamedTuple):
    """What rows touch; rows by number, -1 = none.

    Attributes
    ----------
    node : (nodes,) int64
        The last row that reached a node.
    side : (tests, 2) int64
        Linear tests: of the rows at or below the threshold, and of those
        above, one with the nearest sum.
    nearest : (tests, 2) float64
        Those sums.
    level : (level entries,) int64
        A row that a test by levels saw with that level.
    unknown : (nodes,) int64
        A row to which nothing that the node asks said a branch.
    """

    node: Any
    side: Any
    nearest: Any
    level: Any
    unknown: Any


@kernel
def _touch(routes: Any, at: int, row: Any, number: int, touched: Any) -> int:
    """Ask the tests of a node in order and note what happens; the branch, or -1."""
    column = routes.nodes[at].asks
    if column < 0:
        branch = branch_at(routes, at, row)
        if branch == 0:
            touched.unknown[at] = number
        return branch
    for test in range(routes.test_start[column], routes.test_start[column + 1]):
        branch = ask(routes, test, row)
        feature = routes.tests[test].level_feature
        total = np.nan if feature >= 0 else total_of(routes, test, row)
        if feature >= 0:
            code = row[feature]
            first = routes.level_start[test]
            if code >= 0 and code < routes.level_start[test + 1] - first:
                touched.level[first + int(code)] = number
        elif not np.isnan(total):
            side = 0 if total <= routes.tests[test].threshold else 1
            old = touched.nearest[test, side]
            nearer = total > old if side == 0 else total < old
            if touched.side[test, side] < 0 or nearer:
                touched.side[test, side], touched.nearest[test, side] = number, total
        if branch >= 0:
            return branch
    touched.unknown[at] = number
    return -1


@kernel
def follow(routes: Any, roots: Any, rows: Any, first: int, touched: Any) -> None:
    """Route rows, numbered from `first`, through every tree.

    Parameters
    ----------
    routes : Routes
    roots : (trees + 1,) int64
    rows : (rows, features) float64
        Numbers of the input type, codes of levels, NaN = missing.
    first : int
    touched : Touched
        Output, added to.
    """
    stack = np.empty((len(routes.nodes) + 1, 2), dtype=np.int64)
    for r in range(len(rows)):
        for tree in range(len(roots) - 1):
            stack[0, 0], stack[0, 1] = roots[tree], FULL_MASS
            held = 1
            while held > 0:
                held -= 1
                at, mass = stack[held, 0], stack[held, 1]
                touched.node[at] = first + r
                if routes.nodes[at].kind != _LEAF:
                    branch = _touch(routes, at, rows[r], first + r, touched)
                    held = descend(routes, at, branch, mass, stack, held)


@kernel
def are_next(routes: Any, tests: Any, sides: Any, rows: Any, narrow: bool, found: Any) -> None:
    """Whether one step of one number takes each sum to the other side of its threshold.

    Parameters
    ----------
    tests, sides : (sums,) int64
        Linear tests; 0 = the row is at or below the threshold, 1 = above.
    rows : (sums, features) float64
    found : (sums,) bool
        Output.
    """
    for i in range(len(tests)):
        test, row = tests[i], rows[i].copy()
        for term in range(routes.term_start[test], routes.term_start[test + 1]):
            feature = routes.terms[term].feature
            kept = row[feature]
            rising = (routes.terms[term].weight > 0) == (sides[i] == 0)
            to = np.inf if rising else -np.inf
            if narrow:
                row[feature] = np.nextafter(np.float32(kept), np.float32(to))
            else:
                row[feature] = np.nextafter(kept, to)
            if (total_of(routes, test, row) <= routes.tests[test].threshold) == (sides[i] == 1):
                found[i] = True
            row[feature] = kept
