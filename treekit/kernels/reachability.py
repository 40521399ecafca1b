"""What reaches a node of a tree, kept up to date while a loop walks the tree.

It is a product of one set a column: an interval or some levels, and whether
missing values are in it.  So a node can be reached exactly if none of these
sets is empty, and a row that reaches it takes any member of each.

Nodes, columns and the stack are arrays of records: a kernel that is handed
twenty single arrays takes 30 s to compile, with five it takes a few (measured).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import kernel

__all__ = [
    "COLUMN",
    "FRAME",
    "FULL_MASS",
    "NODE",
    "ROUTE_NODE",
    "RULE",
    "TERM",
    "TEST",
    "Can",
    "Marks",
    "Routes",
    "Touched",
    "Walk",
    "answers_below",
    "are_next",
    "ask",
    "branch_at",
    "can_touch",
    "descend",
    "enter",
    "follow",
    "has_known",
    "leave",
    "make_walk",
    "mark",
    "possible",
    "reaches",
    "total_of",
]


# ---------------------------------------------------------------- boxes

# Numbers of `treekit.model.tree.Split`, which compiled code cannot read.
_THRESHOLD = 1
_MISSING = 4

NODE = np.dtype(
    [
        *((name, np.int64) for name in ("kind", "feature", "first_child", "n_children")),
        *((name, np.int64) for name in ("missing", "level_start", "n_levels")),
        ("threshold", np.float64),
    ]
)
"""One node, as in `treekit.model.tree.Tree`; ``n_levels`` of its entries in `level_branch`.

A negative ``missing`` stands for every branch: missing values divide.
"""

COLUMN = np.dtype(
    [
        *((name, np.float64) for name in ("low", "high")),
        *((name, np.int64) for name in ("no_missing", "no_known", "asked", "n_open")),
        *((name, np.int64) for name in ("first_level", "n_levels")),
        ("nominal", np.bool_),
    ]
)
"""What is left of one column.

Known numbers lie in ``low < x <= high``.  ``no_missing``, ``no_known`` and
``asked`` count the splits on the way that keep missing values out, keep known
values out, and ask the column at all; ``n_open`` the levels that none keeps out.
"""

FRAME = np.dtype(
    [*((name, np.int64) for name in ("node", "first", "tried", "phase")), ("saved", np.float64)]
)
"""One split on the way: the first branch tried, how many were, and the bound it replaced."""


class Walk(NamedTuple):
    """One tree and the box of the current node.

    Attributes
    ----------
    nodes : (nodes,) NODE
    level_branch : (entries,) int32
    columns : (features,) COLUMN
    barred : (levels of all columns,) int64
        How many splits keep a level out; a column's start at ``first_level``.
    stack : (depth,) FRAME
    """

    nodes: Any
    level_branch: Any
    columns: Any
    barred: Any
    stack: Any


def make_walk(
    tree: Any, n_levels: npt.NDArray[np.int64], nominal: Any, bar: Any, room: int
) -> Walk:
    """Stand at the root of a `treekit.model.tree.Tree`, with a stack of `room` frames.

    All values reach it, missing ones only where `bar`, one for all columns or
    one for each, is 0.
    """
    nodes = np.zeros(tree.n_nodes, dtype=NODE)
    for name in ("kind", "feature", "first_child", "n_children", "missing", "threshold"):
        nodes[name] = getattr(tree, name)
    nodes["level_start"], nodes["n_levels"] = tree.level_start[:-1], np.diff(tree.level_start)
    columns = np.zeros(len(n_levels), dtype=COLUMN)
    columns["low"], columns["high"], columns["no_missing"] = -np.inf, np.inf, bar
    columns["n_levels"] = columns["n_open"] = n_levels
    columns["first_level"] = np.cumsum(n_levels) - n_levels
    columns["nominal"] = nominal
    barred = np.zeros(int(n_levels.sum()), dtype=np.int64)
    return Walk(nodes, tree.level_branch, columns, barred, np.zeros(room, dtype=FRAME))


@kernel
def enter(walk: Any, above: int, branch: int, depth: int) -> None:
    """Narrow the box to what takes `branch` at node `above`."""
    node = walk.nodes[above]
    column = walk.columns[node.feature]
    column.asked += 1
    if node.kind == _MISSING:
        if branch == 0:
            column.no_known += 1
        else:
            column.no_missing += 1
        return
    if node.missing != branch and node.missing >= 0:
        column.no_missing += 1
    if node.kind == _THRESHOLD:
        if branch == 0:
            walk.stack[depth].saved = column.high
            column.high = min(column.high, node.threshold)
        else:
            walk.stack[depth].saved = column.low
            column.low = max(column.low, node.threshold)
        return
    for level in range(node.n_levels):
        goes = walk.level_branch[node.level_start + level]
        goes = node.missing if goes < 0 else goes
        if goes != branch and goes >= 0:
            column.n_open -= walk.barred[column.first_level + level] == 0
            walk.barred[column.first_level + level] += 1


@kernel
def leave(walk: Any, above: int, branch: int, depth: int) -> None:
    """Undo `enter`."""
    node = walk.nodes[above]
    column = walk.columns[node.feature]
    column.asked -= 1
    if node.kind == _MISSING:
        if branch == 0:
            column.no_known -= 1
        else:
            column.no_missing -= 1
        return
    if node.missing != branch and node.missing >= 0:
        column.no_missing -= 1
    if node.kind == _THRESHOLD:
        if branch == 0:
            column.high = walk.stack[depth].saved
        else:
            column.low = walk.stack[depth].saved
        return
    for level in range(node.n_levels):
        goes = walk.level_branch[node.level_start + level]
        goes = node.missing if goes < 0 else goes
        if goes != branch and goes >= 0:
            walk.barred[column.first_level + level] -= 1
            column.n_open += walk.barred[column.first_level + level] == 0


@kernel
def has_known(column: Any) -> bool:
    """Whether any known value of a column is in the box."""
    some = column.n_open > 0 if column.nominal else column.low < column.high
    return column.no_known == 0 and some


@kernel
def possible(column: Any) -> bool:
    """Whether any value of a column, missing included, is in the box."""
    return column.no_missing == 0 or has_known(column)


# ---------------------------------------------------------------- reachable
# The loop that finds what inputs can do in trees that ask sums and surrogates.
#
# The box of a node (see `treekit.kernels.reachability`) holds every input that reaches
# it; where sums and surrogates are asked it may hold more, so that what it
# excludes is impossible, and what it allows may be.  Sums of rounded additions
# are monotone in each number: the corners of a box bound them exactly.

# Number of `treekit.model.tree.Split.LEAF`, which compiled code cannot read.
_LEAF = 0


class Can(NamedTuple):
    """What inputs can touch; see `treekit.kernels.reachability.Touched`.

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
    walk : treekit.kernels.reachability.Walk
        At the root, and left there.  Sums stand as columns of their own behind
        the model's, and so does what surrogates say.
    routes : treekit.kernels.reachability.Routes
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


# ---------------------------------------------------------------- coverage
# The loop that routes rows through a tree and marks what they touch.


class Marks(NamedTuple):
    """What rows touched in one tree.

    Attributes
    ----------
    node : (nodes,) bool
        Reached at all: for a split's child, that side of the split was taken.
    at, above : (nodes,) bool
        THRESHOLD: reached with exactly the threshold, with the next number above it.
    missing : (nodes,) bool
        A split reached with a missing value.
    level : (level entries of the tree,) bool
        A level split reached with that level.
    """

    node: Any
    at: Any
    above: Any
    missing: Any
    level: Any


@kernel
def mark(nodes: Any, level_branch: Any, after: Any, cells: Any, marks: Any) -> None:
    """Route rows through one tree.

    Parameters
    ----------
    nodes : (nodes,) treekit.kernels.reachability.NODE
    level_branch : (entries,) int32
    after : (nodes,) float64
        The next number of the input type above each threshold.
    cells : (rows, features) float64
        Numbers of the input type, codes of levels; NaN = missing.
    marks : Marks
        Output, added to.
    """
    for r in range(len(cells)):
        at = 0
        while nodes[at].kind != _LEAF:
            node = nodes[at]
            marks.node[at] = True
            x = cells[r, node.feature]
            if np.isnan(x):
                marks.missing[at] = True
                branch = 0 if node.kind == _MISSING else node.missing
            elif node.kind == _MISSING:
                branch = 1
            elif node.kind == _THRESHOLD:
                marks.at[at] |= x == node.threshold
                marks.above[at] |= x == after[at]
                branch = 0 if x <= node.threshold else 1
            else:
                entry = node.level_start + int(x)
                marks.level[entry] = True
                branch = level_branch[entry]
                if branch < 0:
                    branch = node.missing
            at = node.first_child + branch
        marks.node[at] = True


# ---------------------------------------------------------------- touched
# What happens to rows on their way through trees that ask sums and surrogates.
#
# The scorer does not say; here every test that is asked is noted.


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


# ---------------------------------------------------------------- routes
# Where rows go in trees that ask sums, surrogates and rules, or divide rows at missing values.
#
# Plain loops over every node's tests, in the order in which they are asked.

RULE = 6
_MASS_BITS = 24
FULL_MASS = 1 << _MASS_BITS


ROUTE_NODE = np.dtype(
    [
        *((name, np.int64) for name in ("kind", "feature", "first_child", "n_children")),
        *((name, np.int64) for name in ("missing", "parent", "asks", "share_start", "share_end")),
    ]
)
"""One node, as in `treekit.model.tree.Tree`; children and parents count from the first node of all.

``asks`` numbers its tests in `treekit.model.derived_features.asked`, -1 = none; the shares bound
the
part that it gets of a row that divides.
"""

TEST = np.dtype(
    [
        ("threshold", np.float64),
        *((name, np.int64) for name in ("below", "above", "lost", "level_feature")),
    ]
)
TERM = np.dtype([("feature", np.int64), ("weight", np.float64)])


class Routes(NamedTuple):
    """All trees of a model, joined, and what their nodes ask.

    Attributes
    ----------
    nodes : (nodes,) NODE
    tests : (T,) TEST
    terms : (terms,) TERM
    test_start, term_start, level_start, level_branch
        As in `treekit.model.derived_features.DerivedColumns`, and so is what is above.
    units : (nodes, values) int64
        Integers of the leaves; 0 elsewhere.
    divides : bool
        Whether rows divide where nothing that is asked is known.
    """

    # Records in few arrays: with twenty arrays the loops took a quarter longer to compile.
    nodes: Any
    tests: Any
    terms: Any
    test_start: Any
    term_start: Any
    level_start: Any
    level_branch: Any
    units: Any
    divides: Any


@kernel
def total_of(routes: Any, test: int, row: Any) -> float:
    """The sum that a linear test compares; NaN = unknown."""
    total = 0.0
    for at in range(routes.term_start[test], routes.term_start[test + 1]):
        total += routes.terms[at].weight * row[routes.terms[at].feature]
    return total


@kernel
def ask(routes: Any, test: int, row: Any) -> int:
    """The branch that one test says; -1 = nothing.  Codes of levels are checked here."""
    feature = routes.tests[test].level_feature
    if feature < 0:
        total = total_of(routes, test, row)
        if np.isnan(total):
            return routes.tests[test].lost
        if total <= routes.tests[test].threshold:
            return routes.tests[test].below
        return routes.tests[test].above
    first = routes.level_start[test]
    code = row[feature]
    if code >= 0 and code < routes.level_start[test + 1] - first and code == np.floor(code):
        return np.int64(routes.level_branch[first + int(code)])
    return routes.tests[test].lost


@kernel
def branch_at(routes: Any, node: int, row: Any) -> int:
    """The branch that a row takes at an inner node; -1 if nothing asked there says one."""
    column = routes.nodes[node].asks
    if column < 0:  # MISSING; any number that is no code counts as missing
        return 0 if np.isnan(row[routes.nodes[node].feature]) else 1
    for test in range(routes.test_start[column], routes.test_start[column + 1]):
        branch = ask(routes, test, row)
        if branch >= 0:
            return branch
    return -1


@kernel
def _part_of(routes: Any, child: int, mass: int) -> int:
    """What a child gets of the mass of a row that divides at its parent."""
    high, low = routes.nodes[child].share_end, routes.nodes[child].share_start
    return (mass * high >> _MASS_BITS) - (mass * low >> _MASS_BITS)


@kernel
def reaches(routes: Any, node: int, free: int, row: Any, path: Any) -> int:
    """The mass of a row that reaches a node if all of it goes there from node `free`.

    `path` has room for the depth of the node.
    """
    depth, at = 0, node
    while routes.nodes[at].parent >= 0:
        path[depth] = at
        depth += 1
        at = routes.nodes[at].parent
    mass = np.int64(FULL_MASS)
    while depth > 0:
        depth -= 1
        child = path[depth]
        above = routes.nodes[child].parent
        if above == free:
            continue
        branch = branch_at(routes, above, row)
        if branch < 0 and routes.divides:
            mass = _part_of(routes, child, mass)
            if mass == 0:
                return mass
            continue
        if branch < 0:
            branch = routes.nodes[above].missing
        if routes.nodes[above].first_child + branch != child:
            return np.int64(0)
    return mass


@kernel
def answers_below(routes: Any, node: int, row: Any, stack: Any, answer: Any) -> None:
    """The integers that a row of full mass gets below a node.

    `stack` (nodes, 2) int64 is room to work in; `answer` (values,) int64 is written.
    """
    answer[:] = 0
    stack[0, 0], stack[0, 1] = node, FULL_MASS
    held = 1
    while held > 0:
        held -= 1
        at, mass = stack[held, 0], stack[held, 1]
        if routes.nodes[at].kind == _LEAF:
            for k in range(len(answer)):
                answer[k] += routes.units[at, k] * (mass if routes.divides else 1)
            continue
        held = descend(routes, at, branch_at(routes, at, row), mass, stack, held)


@kernel
def descend(routes: Any, at: int, branch: int, mass: int, stack: Any, held: int) -> int:
    """Put the children that a row goes to on the stack."""
    first = routes.nodes[at].first_child
    if branch >= 0 or not routes.divides:
        stack[held, 0] = first + (routes.nodes[at].missing if branch < 0 else branch)
        stack[held, 1] = mass
        return held + 1
    for child in range(first, first + routes.nodes[at].n_children):
        part = _part_of(routes, child, mass)
        if part > 0:
            stack[held, 0], stack[held, 1] = child, part
            held += 1
    return held
