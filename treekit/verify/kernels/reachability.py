"""Outcomes of tests that inputs can reach, and those that rows have.

The inputs that reach a node are a box; see `treekit.rules.kernels`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treekit.kernels.compile import kernel
from treekit.rules.kernels import enter_next_branch, has_known_values

# ---------------------------------------------------------------- reachable outcomes
# With oblique splits and surrogates.
#
# The box of a node contains every input that reaches it; with sums and surrogates it may
# contain more: what it excludes is impossible, what it contains is possibly not.  Sums
# of rounded additions are monotone in each number: the corners of a box bound them exactly.

# Values of `treekit.model.tree.Split`, which compiled code cannot read.
_LEAF = 0
_THRESHOLD = 1
_MISSING = 4


class ReachableOutcomes(NamedTuple):
    """Outcomes that inputs can reach; see `ModelCoverage`.

    Attributes
    ----------
    node, unknown : (nodes,) bool
    side, near : (tests, 2) bool
        Linear tests: whether a sum can be on that side of the threshold, and whether it
        can be the number on that side that is closest to the threshold.
    level : (level entries,) bool
    entered : (nodes,) bool
        Whether an input can take the branch from the parent to the node.
    """

    node: Any
    unknown: Any
    side: Any
    near: Any
    level: Any
    entered: Any


@kernel
def step_towards(x: float, to: float, narrow: bool) -> float:
    """Return the next number towards `to`, of float32 if `narrow`, else of float64."""
    if narrow:
        return np.float64(np.nextafter(np.float32(x), np.float32(to)))
    return np.nextafter(x, to)


@kernel
def step_up(x: float, narrow: bool) -> float:
    """Return the next number of the input type; -inf, the bound of an open interval, stays."""
    return x if x == -np.inf else step_towards(x, np.inf, narrow)


@kernel
def _is_tested_before(routes: Any, first: int, test: int, feature: int, code: int) -> bool:
    """Check whether an earlier test of the node covers a column, or one of its categories."""
    for other in range(first, test):
        if routes.tests[other].level_feature < 0:
            at = routes.term_offsets[other]
            if routes.term_offsets[other + 1] == at + 1 and routes.terms[at].feature == feature:
                return True
        elif routes.tests[other].level_feature == feature and code >= 0:
            if routes.level_branch[routes.level_offsets[other] + code] >= 0:
                return True
    return False


@kernel
def _mark_category_test(walk: Any, routes: Any, at: int, first: int, test: int, can: Any) -> bool:
    """Mark the outcomes of a test on categories; return whether it can be unknown."""
    feature = routes.tests[test].level_feature
    column = walk.columns[feature]
    of_rule, lost = routes.nodes[at].kind == RULE, routes.tests[test].lost
    unknown = column.no_missing == 0 and lost < 0
    if column.no_missing == 0 and lost >= 0:
        can.entered[routes.nodes[at].first_child + lost] = True
    start = routes.level_offsets[test]
    for entry in range(start, routes.level_offsets[test + 1]):
        code = entry - start
        if column.no_known > 0 or walk.barred[column.first_level + code] > 0:
            continue
        if not of_rule and _is_tested_before(routes, first, test, feature, code):
            continue
        can.level[entry] = True
        branch = routes.level_branch[entry]
        if branch >= 0:
            can.entered[routes.nodes[at].first_child + branch] = True
        else:
            unknown = True
    return unknown


@kernel
def _mark_linear_test(
    walk: Any, routes: Any, span: Any, at: int, first: int, test: int, narrow: bool, can: Any
) -> bool:
    """Mark the outcomes of a linear test; return whether it can be unknown."""
    low = high = 0.0
    known, unknown = True, False
    of_rule = routes.nodes[at].kind == RULE
    rises = falls = both = 0  # terms that can be infinite
    for term in range(routes.term_offsets[test], routes.term_offsets[test + 1]):
        feature, weight = routes.terms[term].feature, routes.terms[term].weight
        column = walk.columns[feature]
        known &= has_known_values(column)
        known &= of_rule or not _is_tested_before(routes, first, test, feature, -1)
        unknown |= column.no_missing == 0
        least, most = step_up(column.low, narrow), column.high
        if weight < 0:
            least, most = most, least
        low, high = low + weight * least, high + weight * most
        rises += weight * most == np.inf
        falls += weight * least == -np.inf
        both += weight * most == np.inf and weight * least == -np.inf
    # Infinities of opposite signs, whose sum is unknown, need two terms.
    unknown |= rises > 0 and falls > 0 and not (rises == 1 and falls == 1 and both == 1)
    low = -np.inf if np.isnan(low) else low
    high = np.inf if np.isnan(high) else high
    threshold = routes.tests[test].threshold
    above = step_up(threshold, narrow)
    at_most = low <= threshold
    more = high > threshold
    if test == first:
        at_most &= span.low < threshold or span.low == -np.inf
        more &= span.high > threshold
    can.side[test, 0], can.side[test, 1] = known and at_most, known and more
    can.near[test, 0] = can.side[test, 0] and high >= threshold
    can.near[test, 1] = can.side[test, 1] and low <= above
    silent = _mark_entered(routes, at, routes.tests[test].below, can.side[test, 0], can)
    silent |= _mark_entered(routes, at, routes.tests[test].above, can.side[test, 1], can)
    return silent | _mark_entered(routes, at, routes.tests[test].lost, unknown, can)


@kernel
def _mark_entered(routes: Any, at: int, branch: int, some: bool, can: Any) -> bool:
    """Mark a branch as entered if `some` inputs take it; return `some` if there is no branch."""
    if branch < 0:
        return some
    can.entered[routes.nodes[at].first_child + branch] |= some
    return False


@kernel
def _mark_node(walk: Any, routes: Any, node: int, at: int, narrow: bool, can: Any) -> None:
    """Mark the outcomes of a node that some inputs may reach."""
    can.node[at] = True
    if routes.nodes[at].kind == _LEAF:
        return
    span = walk.columns[walk.nodes[node].feature]
    child, column = routes.nodes[at].first_child, routes.nodes[at].asks
    if column < 0:
        can.unknown[at] = can.entered[child] = span.no_missing == 0
        can.entered[child + 1] = has_known_values(span)
        return
    first, unknown = routes.test_offsets[column], True
    for test in range(first, routes.test_offsets[column + 1]):
        if not unknown:
            break
        if routes.tests[test].level_feature >= 0:
            unknown = _mark_category_test(walk, routes, at, first, test, can)
        else:
            unknown = _mark_linear_test(walk, routes, span, at, first, test, narrow, can)
    can.unknown[at] = unknown
    if unknown and not routes.fractional:
        can.entered[child + routes.nodes[at].missing] = True
    elif unknown:
        for branch in range(routes.nodes[at].n_children):
            some = routes.nodes[child + branch].share_end > routes.nodes[child + branch].share_start
            can.entered[child + branch] |= some


@kernel
def mark_reachable(walk: Any, routes: Any, root: int, narrow: bool, can: Any) -> None:
    """Mark the outcomes that inputs can reach in one tree.

    Parameters
    ----------
    walk : treekit.rules.kernels.TreeWalk
        At the root before and after.  Sums and surrogate outcomes are further
        columns after those of the model.
    routes : RoutingTables
    root : int
        The tree's first node in `routes`.
    narrow : bool
        Whether numbers are float32.
    can : ReachableOutcomes
        Output; all False before.
    """
    depth, node = np.int64(0), np.int64(0)
    while node >= 0:
        _mark_node(walk, routes, node, root + node, narrow, can)
        if walk.nodes[node].kind != _LEAF:
            walk.stack[depth].node, walk.stack[depth].tried = node, -1
            depth += 1
        node, depth = enter_next_branch(walk, depth)
        while node >= 0 and not can.entered[root + node]:
            node, depth = enter_next_branch(walk, depth)


# ---------------------------------------------------------------- coverage by rows


class TreeCoverage(NamedTuple):
    """Outcomes that rows reached in one tree.

    Attributes
    ----------
    node : (nodes,) bool
        Reached at all: for a split's child, that branch was taken.
    at, above : (nodes,) bool
        THRESHOLD: reached with exactly the threshold, with the next number above it.
    missing : (nodes,) bool
        A split reached with a missing value.
    level : (level entries of the tree,) bool
        A split on categories reached with that category.
    """

    node: Any
    at: Any
    above: Any
    missing: Any
    level: Any


@kernel
def mark_rows(nodes: Any, level_branch: Any, after: Any, cells: Any, marks: Any) -> None:
    """Route rows through one tree, and mark the outcomes.

    Parameters
    ----------
    nodes : (nodes,) treekit.rules.kernels.NODE_DTYPE
    level_branch : (entries,) int32
    after : (nodes,) float64
        The next number of the input type above each threshold.
    cells : (rows, features) float64
        Numbers of the input type, codes of categories; NaN = missing.
    marks : TreeCoverage
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
            elif node.kind == _THRESHOLD:
                marks.at[at] |= x == node.threshold
                marks.above[at] |= x == after[at]
            elif node.kind != _MISSING:
                marks.level[node.level_start + int(x)] = True
            at = node.first_child + find_branch_of_value(nodes, level_branch, at, x)
        marks.node[at] = True


@kernel
def find_branch_of_value(nodes: Any, level_branch: Any, at: int, value: float) -> int:
    """Return the branch that `value`, a number of the input type or a code, takes."""
    node = nodes[at]
    if node.kind == _MISSING:
        return 0 if np.isnan(value) else 1
    if node.kind == _THRESHOLD:
        if np.isnan(value):
            return node.missing
        return 0 if value <= node.threshold else 1
    if 0 <= value < node.n_levels:
        goes = level_branch[node.level_start + int(value)]
        if goes >= 0:
            return goes
    return node.missing


# ---------------------------------------------------------------- coverage by rows, all trees
# With oblique splits and surrogates: records the outcome of every test evaluated, which
# scoring does not report.


class ModelCoverage(NamedTuple):
    """Outcomes that rows reached; rows by number, -1 = none.

    Attributes
    ----------
    node : (nodes,) int64
        The last row that reached a node.
    side : (tests, 2) int64
        Linear tests: of the rows at or below the threshold, and of those
        above, the row with the nearest sum.
    nearest : (tests, 2) float64
        Those sums.
    level : (level entries,) int64
        A row with that category at a test on categories.
    unknown : (nodes,) int64
        A row for which no test of the node gave a branch.
    """

    node: Any
    side: Any
    nearest: Any
    level: Any
    unknown: Any


@kernel
def _record_tests(routes: Any, at: int, row: Any, number: int, touched: Any) -> int:
    """Evaluate the tests of a node in order and record the outcomes; return the branch, or -1."""
    column = routes.nodes[at].asks
    if column < 0:
        branch = find_branch(routes, at, row)
        if branch == 0:
            touched.unknown[at] = number
        return branch
    for test in range(routes.test_offsets[column], routes.test_offsets[column + 1]):
        branch = evaluate_test(routes, test, row)
        feature = routes.tests[test].level_feature
        total = np.nan if feature >= 0 else sum_terms(routes, test, row)
        if feature >= 0:
            code = row[feature]
            first = routes.level_offsets[test]
            if code >= 0 and code < routes.level_offsets[test + 1] - first:
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
def trace_rows(routes: Any, roots: Any, rows: Any, first: int, touched: Any) -> None:
    """Route rows, numbered from `first`, through every tree.

    Parameters
    ----------
    routes : RoutingTables
    roots : (trees + 1,) int64
    rows : (rows, features) float64
        Numbers of the input type, codes of categories, NaN = missing.
    first : int
    touched : ModelCoverage
        Output, added to.
    """
    stack = np.empty((len(routes.nodes) + 1, 2), dtype=np.int64)
    for r in range(len(rows)):
        for tree in range(len(roots) - 1):
            stack[0, 0], stack[0, 1] = roots[tree], FULL_MASS
            stack_size = 1
            while stack_size > 0:
                stack_size -= 1
                at, mass = stack[stack_size, 0], stack[stack_size, 1]
                touched.node[at] = first + r
                if routes.nodes[at].kind != _LEAF:
                    branch = _record_tests(routes, at, rows[r], first + r, touched)
                    stack_size = push_children(routes, at, branch, mass, stack, stack_size)


@kernel
def find_one_step_flips(
    routes: Any, tests: Any, sides: Any, rows: Any, narrow: bool, flips: Any
) -> None:
    """Check whether one step of a single number moves each sum across its threshold.

    Parameters
    ----------
    tests, sides : (sums,) int64
        Linear tests; 0 = the row is at or below the threshold, 1 = above.
    rows : (sums, features) float64
    flips : (sums,) bool
        Output.
    """
    for i in range(len(tests)):
        test, row = tests[i], rows[i].copy()
        for term in range(routes.term_offsets[test], routes.term_offsets[test + 1]):
            feature = routes.terms[term].feature
            original = row[feature]
            rising = (routes.terms[term].weight > 0) == (sides[i] == 0)
            row[feature] = step_towards(original, np.inf if rising else -np.inf, narrow)
            if (sum_terms(routes, test, row) <= routes.tests[test].threshold) == (sides[i] == 1):
                flips[i] = True
            row[feature] = original


# ---------------------------------------------------------------- routing
# Routing of single rows through all kinds of splits, including oblique splits, surrogates,
# rules and fractional instances: plain loops over every node's tests, in order.

RULE = 6
_MASS_BITS = 24
FULL_MASS = 1 << _MASS_BITS


ROUTE_NODE_DTYPE = np.dtype(
    [
        *((name, np.int64) for name in ("kind", "feature", "first_child", "n_children")),
        *((name, np.int64) for name in ("missing", "parent", "asks", "share_start", "share_end")),
    ]
)
"""A node, as in `treekit.model.tree.Tree`; children and parents are numbered across all trees.

``asks`` is the index of its tests in `treekit.model.tree.make_node_tests`, -1 = none;
the shares delimit the part that it receives of a fractional instance.
"""

TEST_DTYPE = np.dtype(
    [
        ("threshold", np.float64),
        *((name, np.int64) for name in ("below", "above", "lost", "level_feature")),
    ]
)
TERM_DTYPE = np.dtype([("feature", np.int64), ("weight", np.float64)])


class RoutingTables(NamedTuple):
    """All trees of a model, concatenated, and the tests of their nodes.

    Attributes
    ----------
    nodes : (nodes,) NODE
    tests : (T,) TEST
    terms : (terms,) TERM
    test_offsets, term_offsets, level_offsets, level_branch
        As in `treekit.model.tree.DerivedColumns`; also the tests and terms.
    units : (nodes, values) int64
        Integer values of the leaves; 0 elsewhere.
    fractional : bool
        Whether rows become fractional instances where no test of a node is known.
    part_bits : int
        The bits of `treekit.model.fixed_point.multiply_by_mass`.
    """

    nodes: Any
    tests: Any
    terms: Any
    test_offsets: Any
    term_offsets: Any
    level_offsets: Any
    level_branch: Any
    units: Any
    fractional: Any
    part_bits: Any


@kernel
def sum_terms(routes: Any, test: int, row: Any) -> float:
    """Return the sum that a linear test compares; NaN = unknown."""
    total = 0.0
    for at in range(routes.term_offsets[test], routes.term_offsets[test + 1]):
        total += routes.terms[at].weight * row[routes.terms[at].feature]
    return total


@kernel
def evaluate_test(routes: Any, test: int, row: Any) -> int:
    """Return the branch of one test, after checking category codes; -1 = unknown."""
    feature = routes.tests[test].level_feature
    if feature < 0:
        total = sum_terms(routes, test, row)
        if np.isnan(total):
            return routes.tests[test].lost
        if total <= routes.tests[test].threshold:
            return routes.tests[test].below
        return routes.tests[test].above
    first = routes.level_offsets[test]
    code = row[feature]
    if code >= 0 and code < routes.level_offsets[test + 1] - first and code == np.floor(code):
        return np.int64(routes.level_branch[first + int(code)])
    return routes.tests[test].lost


@kernel
def find_branch(routes: Any, node: int, row: Any) -> int:
    """Return the branch that a row takes at an inner node; -1 if no test is known."""
    column = routes.nodes[node].asks
    if column < 0:  # MISSING; numbers that are not codes count as missing
        return 0 if np.isnan(row[routes.nodes[node].feature]) else 1
    for test in range(routes.test_offsets[column], routes.test_offsets[column + 1]):
        branch = evaluate_test(routes, test, row)
        if branch >= 0:
            return branch
    return -1


@kernel
def _compute_part(routes: Any, child: int, mass: int) -> int:
    """Return a child's part of the mass of a row at its parent."""
    high, low = routes.nodes[child].share_end, routes.nodes[child].share_start
    return (mass * high >> _MASS_BITS) - (mass * low >> _MASS_BITS)


@kernel
def compute_reaching_mass(routes: Any, node: int, free: int, row: Any, path: Any) -> int:
    """Return the mass of a row at a node, if node `free` sends it there completely.

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
        branch = find_branch(routes, above, row)
        if branch < 0 and routes.fractional:
            mass = _compute_part(routes, child, mass)
            if mass == 0:
                return mass
            continue
        if branch < 0:
            branch = routes.nodes[above].missing
        if routes.nodes[above].first_child + branch != child:
            return np.int64(0)
    return mass


@kernel
def sum_leaf_units_below(routes: Any, node: int, row: Any, stack: Any, answer: Any) -> None:
    """Sum the integer leaf values of a row of full mass below a node.

    `stack` (nodes, 2) int64 is working memory; `answer` (values,) int64 is the output.
    """
    answer[:] = 0
    bits = routes.part_bits
    lower = (np.int64(1) << bits) - 1
    stack[0, 0], stack[0, 1] = node, FULL_MASS
    stack_size = 1
    while stack_size > 0:
        stack_size -= 1
        at, mass = stack[stack_size, 0], stack[stack_size, 1]
        if routes.nodes[at].kind == _LEAF:
            times = mass if routes.fractional else 1
            for k in range(len(answer)):
                value = routes.units[at, k]
                answer[k] += (value >> bits) * times + ((value & lower) * times >> bits)
            continue
        stack_size = push_children(
            routes, at, find_branch(routes, at, row), mass, stack, stack_size
        )


@kernel
def push_children(routes: Any, at: int, branch: int, mass: int, stack: Any, held: int) -> int:
    """Push the children that a row goes to onto the stack; return its size."""
    first = routes.nodes[at].first_child
    if branch >= 0 or not routes.fractional:
        stack[held, 0] = first + (routes.nodes[at].missing if branch < 0 else branch)
        stack[held, 1] = mass
        return held + 1
    for child in range(first, first + routes.nodes[at].n_children):
        part = _compute_part(routes, child, mass)
        if part > 0:
            stack[held, 0], stack[held, 1] = child, part
            held += 1
    return held
