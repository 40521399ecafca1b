"""The loop that finds what inputs can do in trees that ask sums and surrogates.

The box of a node (see `treekit.kernels.boxes`) holds every input that reaches
it; where sums and surrogates are asked it may hold more, so that what it
excludes is impossible, and what it allows may be.  Sums of rounded additions
are monotone in each number: the corners of a box bound them exactly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treekit.kernels.boxes import enter, has_known, leave, possible
from treekit.kernels.compile import kernel
from treekit.kernels.routes import RULE

__all__ = ["Can", "can_touch"]

# Number of `treekit.model.tree.Split.LEAF`, which compiled code cannot read.
_LEAF = 0


class Can(NamedTuple):
    """What inputs can touch; see `treekit.kernels.touched.Touched`.

    Attributes
    ----------
    node, unknown : (nodes,) bool
    side, near : (tests, 2) bool
        Linear tests: either side of the threshold, and right beside it.
    level : (level entries,) bool
    enter : (nodes,) bool
        What the node above lets through.
    """

    node: Any
    unknown: Any
    side: Any
    near: Any
    level: Any
    enter: Any


@kernel
def _up(x: float, narrow: bool) -> float:
    """The next number of the input type; -inf, the bound of an open interval, stays."""
    if x == -np.inf:
        return x
    if narrow:
        return np.float64(np.nextafter(np.float32(x), np.float32(np.inf)))
    return np.nextafter(x, np.inf)


@kernel
def _asked_before(routes: Any, first: int, test: int, feature: int, code: int) -> bool:
    """Whether an earlier test of the node knows all that is known of a column, or this level."""
    for other in range(first, test):
        if routes.tests[other].level_feature < 0:
            at = routes.term_start[other]
            if routes.term_start[other + 1] == at + 1 and routes.terms[at].feature == feature:
                return True
        elif routes.tests[other].level_feature == feature and code >= 0:
            if routes.level_branch[routes.level_start[other] + code] >= 0:
                return True
    return False


@kernel
def _note_levels(walk: Any, routes: Any, at: int, first: int, test: int, can: Any) -> bool:
    """Mark what a test by levels can see; whether it can be unknown."""
    feature = routes.tests[test].level_feature
    column = walk.columns[feature]
    of_rule, lost = routes.nodes[at].kind == RULE, routes.tests[test].lost
    unknown = column.no_missing == 0 and lost < 0
    if column.no_missing == 0 and lost >= 0:
        can.enter[routes.nodes[at].first_child + lost] = True
    start = routes.level_start[test]
    for entry in range(start, routes.level_start[test + 1]):
        code = entry - start
        if column.no_known > 0 or walk.barred[column.first_level + code] > 0:
            continue
        if not of_rule and _asked_before(routes, first, test, feature, code):
            continue
        can.level[entry] = True
        branch = routes.level_branch[entry]
        if branch >= 0:
            can.enter[routes.nodes[at].first_child + branch] = True
        else:
            unknown = True
    return unknown


@kernel
def _note_sum(
    walk: Any, routes: Any, own: Any, at: int, first: int, test: int, narrow: bool, can: Any
) -> bool:
    """Mark what a linear test can see; whether it can be unknown."""
    low = high = 0.0
    known, unknown = True, False
    of_rule = routes.nodes[at].kind == RULE
    rises = falls = both = 0  # terms that can be infinite
    for term in range(routes.term_start[test], routes.term_start[test + 1]):
        feature, weight = routes.terms[term].feature, routes.terms[term].weight
        column = walk.columns[feature]
        known &= has_known(column)
        known &= of_rule or not _asked_before(routes, first, test, feature, -1)
        unknown |= column.no_missing == 0
        least, most = _up(column.low, narrow), column.high
        if weight < 0:
            least, most = most, least
        low, high = low + weight * least, high + weight * most
        rises += weight * most == np.inf
        falls += weight * least == -np.inf
        both += weight * most == np.inf and weight * least == -np.inf
    # Infinities that cancel need two terms.
    unknown |= rises > 0 and falls > 0 and not (rises == 1 and falls == 1 and both == 1)
    low = -np.inf if np.isnan(low) else low
    high = np.inf if np.isnan(high) else high
    threshold = routes.tests[test].threshold
    above = _up(threshold, narrow)
    at_most = low <= threshold
    more = high > threshold
    if test == first:
        at_most &= own.low < threshold or own.low == -np.inf
        more &= own.high > threshold
    can.side[test, 0], can.side[test, 1] = known and at_most, known and more
    can.near[test, 0] = can.side[test, 0] and high >= threshold
    can.near[test, 1] = can.side[test, 1] and low <= above
    silent = _enter(routes, at, routes.tests[test].below, can.side[test, 0], can)
    silent |= _enter(routes, at, routes.tests[test].above, can.side[test, 1], can)
    return silent | _enter(routes, at, routes.tests[test].lost, unknown, can)


@kernel
def _enter(routes: Any, at: int, branch: int, some: bool, can: Any) -> bool:
    """Let inputs into a branch, if there are some; whether some are told no branch."""
    if branch < 0:
        return some
    can.enter[routes.nodes[at].first_child + branch] |= some
    return False


@kernel
def _note(walk: Any, routes: Any, node: int, at: int, narrow: bool, can: Any) -> None:
    """Mark what inputs can do at a node that some may reach."""
    can.node[at] = True
    if routes.nodes[at].kind == _LEAF:
        return
    own = walk.columns[walk.nodes[node].feature]
    child, column = routes.nodes[at].first_child, routes.nodes[at].asks
    if column < 0:
        can.unknown[at] = can.enter[child] = own.no_missing == 0
        can.enter[child + 1] = has_known(own)
        return
    first, unknown = routes.test_start[column], True
    for test in range(first, routes.test_start[column + 1]):
        if not unknown:
            break
        if routes.tests[test].level_feature >= 0:
            unknown = _note_levels(walk, routes, at, first, test, can)
        else:
            unknown = _note_sum(walk, routes, own, at, first, test, narrow, can)
    can.unknown[at] = unknown
    if unknown and not routes.divides:
        can.enter[child + routes.nodes[at].missing] = True
    elif unknown:
        for branch in range(routes.nodes[at].n_children):
            some = routes.nodes[child + branch].share_end > routes.nodes[child + branch].share_start
            can.enter[child + branch] |= some


@kernel
def can_touch(walk: Any, routes: Any, root: int, narrow: bool, can: Any) -> None:
    """Mark what inputs can touch in one tree.

    Parameters
    ----------
    walk : treekit.kernels.boxes.Walk
        At the root, and left there.  Sums stand as columns of their own behind
        the model's, and so does what surrogates say.
    routes : treekit.kernels.routes.Routes
    root : int
        The tree's first node in `routes`.
    narrow : bool
        Whether numbers are float32.
    can : Can
        Output; all False before.
    """
    depth, node, none = np.int64(0), np.int64(0), np.int64(-1)
    while node >= 0:
        _note(walk, routes, node, root + node, narrow, can)
        if walk.nodes[node].kind != _LEAF:
            walk.stack[depth].node, walk.stack[depth].tried = node, -1
            depth += 1
        node = none
        while depth > 0 and node < 0:
            frame = walk.stack[depth - 1]
            above = walk.nodes[frame.node]
            if frame.tried >= 0:
                leave(walk, frame.node, frame.tried, depth - 1)
            frame.tried += 1
            if frame.tried == above.n_children:
                depth -= 1
                continue
            enter(walk, frame.node, frame.tried, depth - 1)
            child = above.first_child + frame.tried
            if can.enter[root + child] and possible(walk.columns[above.feature]):
                node = child
