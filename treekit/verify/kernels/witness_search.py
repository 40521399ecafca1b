"""Search for rows that reach coverage goals: change a row until it has an outcome at a node.

A goal (`GOAL_DTYPE`) is a node, one of its tests and an outcome.  A row that reaches the
node is copied; the values of the node's earlier tests are made unknown (for a
rule, all other conditions are satisfied); then the test is given the outcome.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treekit.kernels.compile import kernel
from treekit.rules.kernels import (
    enter_branch,
    enter_next_branch,
    has_known_values,
    has_values,
    leave_branch,
)
from treekit.verify.kernels.reachability import (
    FULL_MASS,
    RULE,
    compute_reaching_mass,
    evaluate_test,
    find_branch,
    find_branch_of_value,
    step_towards,
    step_up,
    sum_leaf_units_below,
    sum_terms,
)

# ---------------------------------------------------------------- probe rows
# Rows that reach the nodes of a tree and take each branch.

# Values of `treekit.model.tree.Split`, which compiled code cannot read.
_LEAF = 0
_THRESHOLD = 1
MAX_WRONG_BRANCHES = 8
"""Maximum number of wrong branches of a multiway split that are compared with the right one."""


@kernel
def _make_candidate(
    walk: Any, probing: Any, node: int, number: int, n_known: int, rng: Any
) -> tuple[bool, float]:
    """Return whether a candidate can reach a split, and its value.

    Candidates are the categories, or the two numbers next to the threshold, or for
    MISSING splits any number; then missing, and an unseen category.
    """
    f = walk.nodes[node].feature
    column = walk.columns[f]
    known = column.no_known == 0
    if number == n_known:
        return column.no_missing == 0, np.nan
    if number > n_known:
        allowed = column.no_missing == 0 and column.nominal and probing.unseen
        return allowed, float(column.n_levels)
    if column.nominal:
        return known and walk.barred[column.first_level + number] == 0, float(number)
    if walk.nodes[node].kind == _THRESHOLD:
        value = probing.around[probing.place[node], number]
        return known and column.low < value <= column.high, value
    return has_known_values(column), draw_number(probing, f, column.low, column.high, rng)


@kernel
def _enter_split_box(
    walk: Any, probing: Any, depth: int, node: int, number: int, plan: Any, tally: Any, rng: Any
) -> tuple[int, int]:
    """Restrict the box to rows whose prediction shows one wrong turn, if there are any.

    Returns
    -------
    n_planned : int
        Number of rows to add, with the values of the split's column in `plan`; -1 after the last
        pair of a value and a wrong branch.
    top : int
        Number of frames of the stack in use.
    """
    split = walk.nodes[node]
    column = walk.columns[split.feature]
    at_threshold = split.kind == _THRESHOLD
    n_known = column.n_levels if column.nominal else 2 if at_threshold else 1
    n_wrong = max(1, min(split.n_children - 1, MAX_WRONG_BRANCHES))
    candidate, step = number // n_wrong, number % n_wrong
    if candidate > n_known + 1:
        return np.int64(-1), depth
    allowed, value = _make_candidate(walk, probing, node, candidate, n_known, rng)
    if not allowed:
        return np.int64(0), depth
    # An unseen category takes the missing branch of every node.
    meaning = np.nan if candidate >= n_known else value
    right = find_branch_of_value(walk.nodes, walk.level_branch, node, meaning)
    wrong = (right + 1 + step) % split.n_children
    result, top = enter_revealing_box(walk, probing, depth, node, meaning, wrong, rng)
    tally[result] += 1
    n_planned = _plan_value(plan, 0, split.feature, value)
    for around in range(2, probing.around.shape[1] if at_threshold and candidate < n_known else 2):
        x = probing.around[probing.place[node], around]
        rounded = np.float64(np.float32(x)) if probing.narrow else x
        inside = (rounded > column.low or column.low == -np.inf) and rounded <= column.high
        if inside and (rounded <= split.threshold) == (right == 0):
            n_planned = _plan_value(plan, n_planned, split.feature, x)
    return n_planned, top


@kernel
def _plan_value(plan: Any, at: int, feature: int, value: float) -> int:
    """Write a column and its value to the plan at a position; return the next position."""
    plan[at, 0], plan[at, 1] = feature, value
    return at + 1


@kernel
def _enter_leaf_box(walk: Any, probing: Any, number: int, plan: Any) -> int:
    """Restrict the box of a leaf to a variant; return the number of rows to add, -1 after the last.

    Variants 0 to 2: all columns at their upper bounds, at their lower bounds, or missing where
    that is allowed.  Variant 3: the full box, from which each row leaves in one column.
    """
    if number > (3 if probing.at_bounds else 0):
        return np.int64(-1)
    if number == 2 and not probing.missing:
        return np.int64(0)
    n_planned = np.int64(0)
    for f in range(len(walk.columns) if probing.at_bounds else 0):
        column = walk.columns[f]
        if number == 3:
            if column.asked > 0:
                n_planned = _plan_values_outside(column, f, probing, plan, n_planned)
        elif number == 2 and column.no_missing == 0:
            column.no_known += 1
        elif column.asked > 0 and has_known_values(column):
            column.no_missing += 1
            if column.nominal:
                continue
            if column.high < np.inf and (number == 0 or column.low == -np.inf):
                column.low = step_towards(column.high, -np.inf, probing.narrow)
            elif column.low > -np.inf:
                column.high = step_towards(column.low, np.inf, probing.narrow)
    return n_planned if number == 3 else _plan_value(plan, n_planned, np.int64(-1), 0.0)


@kernel
def _plan_values_outside(column: Any, f: int, probing: Any, plan: Any, at: int) -> int:
    """Plan the values outside of a leaf's box in column `f`, and each category inside."""
    for level in range(column.n_levels if column.nominal else 0):
        at = _plan_value(plan, at, f, float(level))
    if not column.nominal and column.high < np.inf:
        at = _plan_value(plan, at, f, step_towards(column.high, np.inf, probing.narrow))
    if not column.nominal and column.low > -np.inf:
        at = _plan_value(plan, at, f, column.low)
    if not column.nominal and column.no_known > 0:
        at = _plan_value(plan, at, f, 0.0)
    if column.no_missing > 0 and probing.missing:
        at = _plan_value(plan, at, f, np.nan)
    return at


@kernel
def _mark_node(walk: Any, after: Any, at: int, can: Any) -> None:
    """Mark the outcomes of a node that some input reaches."""
    can.node[at] = True
    node = walk.nodes[at]
    if node.kind == _LEAF:
        return
    column = walk.columns[node.feature]
    can.missing[at] = column.no_missing == 0
    if column.no_known > 0:
        return
    if node.kind == _THRESHOLD:
        can.at[at] = column.low < node.threshold <= column.high
        can.above[at] = column.low < after[at] <= column.high
    for level in range(node.n_levels):
        can.level[node.level_start + level] = walk.barred[column.first_level + level] == 0


@kernel
def _copy_columns(source: Any, target: Any) -> None:
    """Copy the columns of a box; a loop compiles 2 s faster than the assignment of a slice."""
    for f in range(len(source)):
        target[f] = source[f]


@kernel
def write_rows(
    after: Any, can: Any, tally: Any, walk: Any, probing: Any, pending: Any, rows: Any, rng: Any
) -> int:
    """Add rows that reach nodes of one tree, and mark the nodes and outcomes that inputs can reach.

    Parameters
    ----------
    after : (nodes,) float64
        The next number of the input type above each threshold.
    can : treekit.verify.kernels.reachability.TreeCoverage
        Output: outcomes that some input reaches; all False before.
    tally : (3,) int64
        Output, added to: wrong turns that a row reveals; that no row can reveal;
        and those for which the search was stopped.
    walk : treekit.rules.kernels.TreeWalk
        At the root before and after; room for three times the depth.
    probing : ProbeSettings
    pending : PendingRows
        Of all trees; changed.
    rows : (capacity, features) float64
        Output.
    rng : numpy.random.Generator

    Returns
    -------
    int
        Number of nodes left out because of `max_rows`.
    """
    # For numba a literal 0 has its own type: functions called with it compile twice (measured).
    depth, node, n_left_out = np.int64(0), np.int64(0), 0
    saved = walk.columns.copy()
    plan = np.empty((len(walk.barred) + 3 * len(saved) + probing.around.shape[1], 2))
    while node >= 0:
        _mark_node(walk, after, node, can)
        is_leaf = walk.nodes[node].kind == _LEAF
        fits = pending.count[0] + probing.needed[node] <= probing.max_rows
        n_left_out += not fits
        number = np.int64(0)
        n_planned = np.int64(0 if fits and probing.needed[node] > 0 else -1)
        while n_planned >= 0:
            top = depth
            if is_leaf:
                _copy_columns(walk.columns, saved)
                n_planned = _enter_leaf_box(walk, probing, number, plan)
            else:
                n_planned, top = _enter_split_box(
                    walk, probing, depth, node, number, plan, tally, rng
                )
            for at in range(n_planned):
                shared = number != 2 or not is_leaf  # nearly no row has all values missing
                feature, value = int(plan[at, 0]), plan[at, 1]
                add_row(walk, probing, shared, feature, value, pending, rows, rng)
            while top > depth:
                top -= 1
                _leave_frame(walk, top)
            if is_leaf:
                _copy_columns(saved, walk.columns)
            number += 1
        if not is_leaf:
            walk.stack[depth].node, walk.stack[depth].tried = node, -1
            depth += 1
        node, depth = enter_next_branch(walk, depth)
    return n_left_out


# ---------------------------------------------------------------- changes of a row
# Change single values of a row so that a test has a given outcome.
#
# A sum of rounded additions is monotone in each of its numbers, so that the two
# neighbouring numbers between which it crosses its threshold are found exactly,
# by bisection over the numbers of the input type.

_N_NEIGHBOURS = 16
"""Number of neighbours of one number that are tried while another is fitted to each."""


class FloatBits(NamedTuple):
    """Buffers to convert numbers of the input type to their bits; see `make_bits`."""

    narrow: Any
    infinity: Any
    word32: Any
    float32: Any
    word64: Any
    float64: Any


def make_bits(narrow: bool) -> FloatBits:
    """Return an integer of each size, a float view of each, and the bits of infinity."""
    # One type for both sizes: the loops compile once.
    word32, word64 = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int64)
    infinity = np.int64(0xFF << 23 if narrow else 0x7FF << 52)
    return FloatBits(
        narrow, infinity, word32, word32.view(np.float32), word64, word64.view(np.float64)
    )


@kernel
def _decode_number(key: int, bits: Any) -> float:
    """Return the number of the input type at a position in their order; 0 is at position 0.

    `bits` are integers and float views of the same memory: int32 and float32 if
    `narrow`, else 64 bits.
    """
    if bits.narrow:
        bits.word32[0] = abs(key)
        size = np.float64(bits.float32[0])
    else:
        bits.word64[0] = abs(key)
        size = bits.float64[0]
    return size if key >= 0 else -size


@kernel
def round_to_input(x: float, bits: Any) -> float:
    """Return the nearest number of the input type."""
    return np.float64(np.float32(x)) if bits.narrow else x


@kernel
def _bisect_term(routes: Any, test: int, at: int, row: Any, bits: Any) -> tuple[int, int]:
    """Return the positions of the neighbours of term `at` between which the test changes.

    First the one at or below the threshold; both are equal if the test does not change.
    """
    feature, rising = routes.terms[at].feature, routes.terms[at].weight > 0
    low, high = -bits.infinity, bits.infinity
    threshold = routes.tests[test].threshold
    for key in (low, high):
        row[feature] = _decode_number(key, bits)
        if ((sum_terms(routes, test, row) <= threshold) == rising) != (key == low):
            return low, low
    while low + 1 < high:
        middle = (low >> 1) + (high >> 1) + (low & high & 1)  # low + high may overflow
        row[feature] = _decode_number(middle, bits)
        if (sum_terms(routes, test, row) <= threshold) == rising:
            low = middle
        else:
            high = middle
    return (low, high) if rising else (high, low)


@kernel
def move_to_threshold(
    routes: Any, test: int, above: bool, sharp: bool, term: int, row: Any, rng: Any, bits: Any
) -> bool:
    """Move the sum of a linear test as close to its threshold as possible, on one side.

    One number is changed: `term` or, if negative, a random one.  If `sharp`, a second
    one is fitted to each neighbour of the first, so that the sum may equal the
    threshold to the last bit.
    """
    first = routes.term_offsets[test]
    count = routes.term_offsets[test + 1] - first
    if term < 0:
        term = int(rng.random() * count)
    feature = routes.terms[first + term].feature
    other = first + (term + 1 + int(rng.random() * (count - 1))) % count
    if sharp and rng.random() < 0.5:
        row[routes.terms[other].feature] = 0.0  # small numbers have the finest steps
    neighbours = _bisect_term(routes, test, first + term, row, bits)
    if neighbours[0] == neighbours[1]:
        return False
    row[feature] = _decode_number(neighbours[1 if above else 0], bits)
    if sharp:
        _fit_second_term(routes, test, above, first + term, neighbours[0], other, row, bits)
    return True


@kernel
def _fit_second_term(
    routes: Any, test: int, above: bool, at: int, key: int, other: int, row: Any, bits: Any
) -> None:
    """Choose the neighbour of term `at`, at position `key`, with which `other` fits best.

    Both values are written to `row`.
    """
    best_at, best_other = row[routes.terms[at].feature], row[routes.terms[other].feature]
    threshold = routes.tests[test].threshold
    nearest = abs(sum_terms(routes, test, row) - threshold)
    for step in range(_N_NEIGHBOURS):
        row[routes.terms[at].feature] = _decode_number(key + step - _N_NEIGHBOURS // 2, bits)
        neighbours = _bisect_term(routes, test, other, row, bits)
        if neighbours[0] == neighbours[1]:
            continue
        row[routes.terms[other].feature] = _decode_number(neighbours[1 if above else 0], bits)
        gap = abs(sum_terms(routes, test, row) - threshold)
        if gap < nearest:
            nearest = gap
            best_at, best_other = row[routes.terms[at].feature], row[routes.terms[other].feature]
    row[routes.terms[at].feature], row[routes.terms[other].feature] = best_at, best_other


@kernel
def is_fault_visible(
    routes: Any, test: int, term: int, towards: float, single: bool, row: Any
) -> bool:
    """Check whether an error of one last bit in a sum sends the row to the other side.

    The error is in the weight of a term, a float32 if `single`, else a double;
    or, for ``term < 0``, in the threshold, a double.  `towards` is infinite.
    """
    threshold = routes.tests[test].threshold
    is_below = sum_terms(routes, test, row) <= threshold
    if term < 0:
        threshold = np.nextafter(threshold, towards)
    first = routes.term_offsets[test]
    total = 0.0
    for at in range(first, routes.term_offsets[test + 1]):
        weight = routes.terms[at].weight
        if at == first + term:
            weight = step_towards(weight, towards, single)
        total += weight * row[routes.terms[at].feature]
    return (total <= threshold) != is_below


@kernel
def satisfy_condition(routes: Any, test: int, row: Any, missing: bool, rng: Any, bits: Any) -> None:
    """Satisfy a condition of a rule, if it fails.

    A number is set next to the threshold, so that the other bound of an interval still holds.
    """
    if evaluate_test(routes, test, row) < 0:
        return
    condition = routes.tests[test]
    feature = condition.level_feature
    if feature >= 0:
        code = _draw_category_without_branch(routes, test, rng)
        if code >= 0:
            row[feature] = code
            return
    else:
        feature = routes.terms[routes.term_offsets[test]].feature
        if condition.below < 0:
            row[feature] = condition.threshold
            return
        if condition.above < 0:
            row[feature] = step_towards(condition.threshold, np.inf, bits.narrow)
            return
    if missing and condition.lost < 0:
        row[feature] = np.nan


@kernel
def _draw_category_without_branch(routes: Any, test: int, rng: Any) -> int:
    """Draw a category for which a test on categories is unknown; -1 = there is none."""
    first = routes.level_offsets[test]
    count = routes.level_offsets[test + 1] - first
    start = int(rng.random() * count) if count > 0 else 0
    for step in range(count):
        code = (start + step) % count
        if routes.level_branch[first + code] < 0:
            return np.int64(code)
    return np.int64(-1)


@kernel
def make_unknown(routes: Any, test: int, row: Any, missing: bool, rng: Any) -> None:
    """Make a test unknown: a missing value, a category without a branch, or inf - inf."""
    feature = routes.tests[test].level_feature
    if feature >= 0:
        code = _draw_category_without_branch(routes, test, rng)
        if missing and (rng.random() < 0.6 or code < 0):
            row[feature] = np.nan
        elif code >= 0:
            row[feature] = code
        return
    first = routes.term_offsets[test]
    count = routes.term_offsets[test + 1] - first
    at = first + int(rng.random() * count)
    if missing and (count == 1 or rng.random() < 0.7):
        row[routes.terms[at].feature] = np.nan
    elif count > 1:
        other = first + (at - first + 1) % count
        row[routes.terms[at].feature] = np.inf * np.sign(routes.terms[at].weight)
        row[routes.terms[other].feature] = -np.inf * np.sign(routes.terms[other].weight)


# ---------------------------------------------------------------- coverage goals

AT_MOST, ABOVE, LEVEL, UNKNOWN, SET, ANY = range(6)
"""Kinds of goals.

A sum next to the threshold, on either side; a category; nothing known; a given value; any.
"""

REACHED, REVEALING, REVEALING_FLOAT32, REVEALING_FLOAT64 = 1, 2, 3, 4
"""Outcomes of a search.

REACHED: the row reaches the goal.  REVEALING: a wrong turn there also changes the prediction.
REVEALING_FLOAT32: an error of the last bit of a float32 weight does, too; REVEALING_FLOAT64: of a
float64 weight.
"""

GOAL_DTYPE = np.dtype(
    [
        *((name, np.int64) for name in ("node", "target", "test", "goal", "step", "term")),
        ("value", np.float64),
        ("sharp", np.bool_),
    ]
)
"""A coverage goal.

``target`` is the node that the row must reach, whatever branch ``node`` takes; ``step``
leads from the right branch to the wrong one; ``value`` is the code of a category, or
the value of a SET goal.  With ``sharp``, an error of one last bit in a sum's ``term``
(-1 = in the threshold), towards the infinite ``value``, must change the prediction, from
either side of the threshold; or, for UNKNOWN, an error in the shares of a fractional
instance.
"""


@kernel
def _change_row(
    routes: Any, wish: Any, row: Any, spare: Any, missing: bool, rng: Any, bits: Any
) -> bool:
    """Change a row towards a goal; return False if that is impossible."""
    if wish.test < 0:
        feature = routes.nodes[wish.node].feature
        if wish.goal == UNKNOWN:
            row[feature] = np.nan
        elif np.isnan(row[feature]):
            row[feature] = spare[feature]
        return True
    column = routes.nodes[wish.node].asks
    first = routes.test_offsets[column]
    last = routes.test_offsets[column + 1] if wish.goal == UNKNOWN else wish.test
    if routes.nodes[wish.node].kind == RULE:  # all other conditions must be satisfied
        for test in range(first, routes.test_offsets[column + 1]):
            satisfy_condition(routes, test, row, missing, rng, bits)
    else:
        for test in range(first, last):
            make_unknown(routes, test, row, missing, rng)
    if wish.goal == UNKNOWN:
        return True
    if wish.goal == LEVEL:
        row[routes.tests[wish.test].level_feature] = wish.value
        return True
    if routes.tests[wish.test].level_feature >= 0:  # SET: a category outside the vocabulary
        row[routes.tests[wish.test].level_feature] = np.nan
        return True
    for at in range(routes.term_offsets[wish.test], routes.term_offsets[wish.test + 1]):
        feature = routes.terms[at].feature
        if not np.isfinite(row[feature]):
            row[feature] = spare[feature]
    if wish.goal == SET:
        row[routes.terms[routes.term_offsets[wish.test]].feature] = round_to_input(wish.value, bits)
        return True
    above = wish.goal == ABOVE
    return move_to_threshold(routes, wish.test, above, wish.sharp, wish.term, row, rng, bits)


@kernel
def _is_goal_reached(routes: Any, wish: Any, row: Any) -> bool:
    """Check whether a row that reaches the node has the goal's outcome there."""
    branch = find_branch(routes, wish.node, row)
    if wish.test < 0:
        return branch == (0 if wish.goal == UNKNOWN else 1)
    if wish.goal == UNKNOWN:
        return branch < 0
    column = routes.nodes[wish.node].asks
    for test in range(routes.test_offsets[column], wish.test):
        if evaluate_test(routes, test, row) >= 0:
            return False
    if wish.goal in (AT_MOST, ABOVE):
        total = sum_terms(routes, wish.test, row)
        at_most = total <= routes.tests[wish.test].threshold
        return not np.isnan(total) and at_most == (wish.goal == AT_MOST)
    return True


@kernel
def _is_wrong_turn_visible(routes: Any, wish: Any, row: Any, stack: Any, answers: Any) -> bool:
    """Check whether a wrong turn of the row at the node would change the tree's prediction."""
    node = wish.node
    branch = find_branch(routes, node, row)
    right = routes.nodes[node].missing if branch < 0 else branch
    wrong = (right + wish.step) % routes.nodes[node].n_children
    sum_leaf_units_below(routes, node, row, stack, answers[0])
    sum_leaf_units_below(routes, routes.nodes[node].first_child + wrong, row, stack, answers[1])
    for k in range(answers.shape[1]):
        if answers[0, k] != answers[1, k]:
            return True
    return False


@kernel
def _grade_outcome(routes: Any, wish: Any, row: Any, mass: int) -> int:
    """Return the outcome of a revealing row: whether it also reveals errors of one last bit."""
    if not wish.sharp:
        return REVEALING
    if wish.goal == UNKNOWN:
        return REVEALING_FLOAT64 if mass == FULL_MASS else REVEALING
    if not is_fault_visible(routes, wish.test, wish.term, wish.value, True, row):
        return REVEALING
    return (
        REVEALING_FLOAT64
        if is_fault_visible(routes, wish.test, wish.term, wish.value, False, row)
        else REVEALING_FLOAT32
    )


@kernel
def reach_goals(
    routes: Any, goals: Any, rows: Any, spare: Any, missing: bool, rng: Any,
    bits: Any, outcome: Any,
) -> None:  # fmt: skip
    """Change each row to reach its goal, if possible.

    Parameters
    ----------
    routes : treekit.verify.kernels.reachability.RoutingTables
    goals : (wishes,) GOAL_DTYPE
    rows : (wishes, features) float64
        Rows that reach the goals' nodes, of the input type; changed.
    spare : (wishes, features) float64
        Known values for columns that need one.
    missing : bool
        Whether rows may have missing values.
    rng : numpy.random.Generator
    bits : FloatBits
    outcome : (wishes,) int64
        Output: 0, `REACHED`, `REVEALING`, `REVEALING_FLOAT32` or `REVEALING_FLOAT64`.
    """
    stack = np.empty((len(routes.nodes) + 1, 2), dtype=np.int64)
    path = np.empty(len(routes.nodes), dtype=np.int64)
    answers = np.empty((2, routes.units.shape[1]), dtype=np.int64)
    for i in range(len(goals)):
        wish, row = goals[i], rows[i]
        outcome[i] = 0
        if not _change_row(routes, wish, row, spare[i], missing, rng, bits):
            continue
        mass = compute_reaching_mass(routes, wish.target, wish.node, row, path)
        if mass == 0 or not _is_goal_reached(routes, wish, row):
            continue
        outcome[i] = REACHED
        if _is_wrong_turn_visible(routes, wish, row, stack, answers):
            outcome[i] = _grade_outcome(routes, wish, row, mass)
        if wish.goal == SET:
            feature = routes.tests[wish.test].level_feature
            if feature < 0:
                feature = routes.terms[routes.term_offsets[wish.test]].feature
            row[feature] = wish.value


# ---------------------------------------------------------------- rows that reveal wrong turns
# A row that merely reaches a split does not verify it: if both branches give that row
# the same prediction, a wrong turn goes unnoticed.  So for each value that a split
# could send the wrong way, a search over pairs of leaves, one below the right branch
# and one below a wrong one, looks for a row whose predictions differ.  It is complete
# up to a budget: if it ends without a row, no such row exists.

_SHOWN, _NEVER_SHOWN, _GIVEN_UP = 0, 1, 2


class ProbeSettings(NamedTuple):
    """Settings of the probes of a tree.

    Attributes
    ----------
    needed : (nodes,) int64
        Maximum number of rows of each node; 0 = add none.
    max_rows : int
        Maximum number of all rows.
    place : (nodes,) int64
        A leaf's row of `units`; a probed split's row of `around`.
    units : (leaves, outputs) int64
    around : (splits, candidates) float64
        The threshold, the next number of the input type above it, then other
        values around it; NaN = none.
    pool : (thresholds, 2) float64
        The thresholds of all trees, ascending in each column, and the next
        number of the input type above each.
    pool_offsets : (features + 1,) int64
    unseen : bool
        Whether a category outside the vocabulary is accepted, as missing.
    narrow : bool
        Whether numbers are rounded to float32.
    missing : bool
        Whether missing values are accepted.
    at_bounds : bool
        Whether rows are just inside and just outside of each bound of the leaves' boxes.
    budget : int
        Pairs of leaves to compare before a search is stopped.
    """

    needed: Any
    max_rows: Any
    place: Any
    units: Any
    around: Any
    pool: Any
    pool_offsets: Any
    unseen: Any
    narrow: Any
    missing: Any
    at_bounds: Any
    budget: Any


@kernel
def draw_number(probing: Any, f: int, low: float, high: float, rng: Any) -> float:
    """Draw a number in ``(low, high]``.

    If possible, it is a threshold or the next number above one.
    """
    start, end = probing.pool_offsets[f], probing.pool_offsets[f + 1]
    thresholds = probing.pool[start:end, 0]
    first = np.searchsorted(thresholds, low, side="right")
    last = np.searchsorted(thresholds, high, side="right")
    if first < last:
        k = first + int(rng.random() * (last - first))
        if thresholds[k] < high and rng.random() < 0.5:
            return probing.pool[start + k, 1]
        return thresholds[k]
    if first > 0:  # no threshold in the interval
        return probing.pool[start + first - 1, 1]
    return np.floor(rng.random() * 7.0) - 3.0


class PendingRows(NamedTuple):
    """Ring buffer of the last rows, whose values are not drawn yet: more nodes may share them.

    Row k is in slot ``k % window``.  Of each column, a row has the values that are in all of
    the boxes, sets of values allowed per column, that it was restricted to.

    Attributes
    ----------
    low, high : (features, window) float64
        Least and greatest number, inclusive.
    open : (words, window) uint64
        Bit sets of allowed categories: level k of a column is bit ``k % 64`` of word ``k // 64``
        of that column.
    first_word : (features + 1,) int64
        Offsets of the words of each column.
    takes_missing : (features, window) bool
    is_fixed : (features, window) bool
        Whether the column is fixed to the value in `values`.
    values : (features, window) float64
    fits, some : (window,) bool
        Working memory.
    count : (1,) int64
        Number of rows begun.
    """

    low: Any
    high: Any
    open: Any
    first_word: Any
    takes_missing: Any
    is_fixed: Any
    values: Any
    fits: Any
    some: Any
    count: Any


@kernel
def add_row(
    walk: Any, probing: Any, shared: bool, fixed: int, value: float,
    pending: Any, rows: Any, rng: Any,
) -> None:  # fmt: skip
    """Add a row within the box, with column `fixed` (-1: none) set to `value`.

    If `shared`, a compatible pending row is restricted to the box instead, if there is one.
    """
    slot = np.int64(-1)
    if shared and pending.count[0] > 0:
        slot = _find_slot(walk, pending, fixed, value, probing.narrow)
    if slot < 0:
        count, window = pending.count[0], len(pending.fits)
        slot = count % window
        if count >= window:
            draw_row(walk, probing, pending, slot, rows[count - window], rng)
        for f in range(len(walk.columns)):
            pending.low[f, slot], pending.high[f, slot] = -np.inf, np.inf
            pending.takes_missing[f, slot] = probing.missing
            pending.is_fixed[f, slot] = False
        for word in range(len(pending.open)):
            pending.open[word, slot] = ~np.uint64(0)
        pending.count[0] += 1
    _restrict_row(walk, pending, slot, fixed, value, probing.narrow)
    if fixed >= 0:
        pending.is_fixed[fixed, slot], pending.values[fixed, slot] = True, value


@kernel
def _describe_values(
    column: Any, is_fixed: bool, value: float, narrow: bool
) -> tuple[bool, bool, float, float]:
    """Return whether a column may be missing or known, and its least and greatest number."""
    if not is_fixed:
        low = step_up(column.low, narrow)
        return column.no_missing == 0, column.no_known == 0, low, column.high
    missing = np.isnan(value) or (column.nominal and not 0 <= value < column.n_levels)
    x = np.float64(np.float32(value)) if narrow else value
    return missing, not missing, x, x


@kernel
def _pack_levels(column: Any, barred: Any, first_level: int, level: int) -> Any:
    """Return the bits of `level`, or if negative of all open ones, of 64 levels."""
    bits = np.uint64(0)
    for number in range(first_level, min(first_level + 64, column.n_levels)):
        if number == level or (level < 0 and barred[column.first_level + number] == 0):
            bits |= np.uint64(1) << np.uint64(number - first_level)
    return bits


# In the two kernels below, loops over the pending rows have no branches, so that LLVM
# vectorizes them; arrays are taken from their tuple once, as numba counts each reference.


@kernel
def _find_slot(walk: Any, pending: Any, fixed: int, value: float, narrow: bool) -> int:
    """Find the slot of a pending row compatible with the box and `value`; -1 if there is none."""
    columns, barred, first_word = walk.columns, walk.barred, pending.first_word
    lows, highs, words, absent = pending.low, pending.high, pending.open, pending.takes_missing
    is_fixed, values, fits, some = pending.is_fixed, pending.values, pending.fits, pending.some
    for k in range(len(fits)):
        fits[k] = k < pending.count[0]
    for f in range(len(columns)):
        column = columns[f]
        if f != fixed and column.asked == 0:
            continue
        missing, known, low, high = _describe_values(column, f == fixed, value, narrow)
        level = np.int64(value) if f == fixed and known else np.int64(-1)
        for k in range(len(fits)):
            some[k] = missing & absent[f, k]
        if known and column.nominal:
            for word in range(first_word[f], first_word[f + 1]):
                bits = _pack_levels(column, barred, 64 * (word - first_word[f]), level)
                for k in range(len(fits)):
                    some[k] |= (words[word, k] & bits) != 0
        elif known:
            for k in range(len(fits)):
                some[k] |= max(lows[f, k], low) <= min(highs[f, k], high)
        if f == fixed:
            for k in range(len(fits)):
                same = (values[f, k] == value) & (value != 0)  # zeros differ by their sign
                some[k] &= (not is_fixed[f, k]) | same
        for k in range(len(fits)):
            fits[k] &= some[k]
    for k in range(len(fits)):
        if fits[k]:
            return np.int64(k)
    return np.int64(-1)


@kernel
def _restrict_row(
    walk: Any, pending: Any, slot: int, fixed: int, value: float, narrow: bool
) -> None:
    """Restrict a pending row to the box, with column `fixed` set to `value`."""
    columns, barred, first_word = walk.columns, walk.barred, pending.first_word
    lows, highs, words, absent = pending.low, pending.high, pending.open, pending.takes_missing
    for f in range(len(columns)):
        column = columns[f]
        if f != fixed and column.asked == 0 and column.no_known == 0:
            continue
        missing, known, low, high = _describe_values(column, f == fixed, value, narrow)
        level = np.int64(value) if f == fixed and known else np.int64(-1)
        absent[f, slot] &= missing
        lows[f, slot] = max(lows[f, slot], low) if known else np.inf
        highs[f, slot] = min(highs[f, slot], high) if known else -np.inf
        for word in range(first_word[f], first_word[f + 1]):
            bits = _pack_levels(column, barred, 64 * (word - first_word[f]), level)
            words[word, slot] &= bits if known else np.uint64(0)


@kernel
def draw_row(walk: Any, probing: Any, pending: Any, slot: int, row: Any, rng: Any) -> None:
    """Draw the values of a pending row."""
    for f in range(len(row)):
        nominal, n_levels = walk.columns[f].nominal, walk.columns[f].n_levels
        low, high, first = pending.low[f, slot], pending.high[f, slot], pending.first_word[f]
        known = low <= high and not nominal
        for word in range(first, pending.first_word[f + 1]):
            known |= pending.open[word, slot] != 0
        if pending.is_fixed[f, slot]:
            row[f] = pending.values[f, slot]
        elif pending.takes_missing[f, slot] and (not known or rng.random() < 0.1):
            row[f] = np.nan
        elif nominal:
            level = int(rng.random() * n_levels)
            while (pending.open[first + level // 64, slot] >> np.uint64(level % 64)) & 1 == 0:
                level = (level + 1) % n_levels
            row[f] = level
        else:
            below = step_towards(low, -np.inf, probing.narrow)
            row[f] = draw_number(probing, f, below, high, rng)


@kernel
def draw_pending_rows(walk: Any, probing: Any, pending: Any, rows: Any, rng: Any) -> int:
    """Draw the values of all pending rows; return the number of all rows."""
    count, window = pending.count[0], len(pending.fits)
    for k in range(max(count - window, 0), count):
        draw_row(walk, probing, pending, k % window, rows[k], rng)
    return count


@kernel
def enter_revealing_box(
    walk: Any, probing: Any, depth: int, node: int, value: float, wrong: int, rng: Any
) -> tuple[int, int]:
    """Restrict the box to rows at `node` with `value` whose prediction shows branch `wrong`.

    Depth-first over the leaves below the correct branch and, for each, those
    below the wrong one, within one box.  Nodes on the fixed column have
    a single possible branch.  `depth` frames of the stack are in use and kept.

    Returns
    -------
    result : int
        Whether the prediction differs; if not, the box is that of the node.
    top : int
        Number of frames of the stack in use.
    """
    f = walk.nodes[node].feature
    first_child = walk.nodes[node].first_child
    nodes, levels, right = walk.nodes, walk.level_branch, np.int64(-1)
    at = first_child + find_branch_of_value(nodes, levels, node, value)
    top, pairs = depth, 0
    result = _NEVER_SHOWN
    while True:
        while walk.nodes[at].kind != _LEAF and walk.nodes[at].feature == f:
            at = nodes[at].first_child + find_branch_of_value(nodes, levels, at, value)
        if walk.nodes[at].kind != _LEAF:
            frame = walk.stack[top]
            frame.node, frame.tried = at, 0
            frame.first = int(rng.random() * walk.nodes[at].n_children)
            frame.phase = 0 if right < 0 else 1
            top += 1
        elif right < 0:
            right, at = at, first_child + wrong
            continue
        else:
            pairs += 1
            a, b = probing.place[right], probing.place[at]
            for k in range(probing.units.shape[1]):
                if probing.units[a, k] != probing.units[b, k]:
                    result = _SHOWN
            if result != _SHOWN and pairs >= probing.budget:
                result = _GIVEN_UP
            if result != _NEVER_SHOWN:
                break
        top, at, right = _enter_next_branch(walk, depth, top, right)
        if top == depth:
            break
    return result, top


@kernel
def _leave_frame(walk: Any, depth: int) -> None:
    """Undo the branch that the frame tried last."""
    frame = walk.stack[depth]
    n = walk.nodes[frame.node].n_children
    leave_branch(walk, frame.node, (frame.first + frame.tried - 1) % n, depth)


@kernel
def _enter_next_branch(walk: Any, depth: int, top: int, right: int) -> tuple[int, int, int]:
    """Enter the next possible branch of the top frame; ``top == depth`` if none is left."""
    while top > depth:
        frame = walk.stack[top - 1]
        node = walk.nodes[frame.node]
        if frame.tried > 0:
            _leave_frame(walk, top - 1)
        if frame.phase == 0:
            right = -1
        while frame.tried < node.n_children:
            branch = (frame.first + frame.tried) % node.n_children
            frame.tried += 1
            enter_branch(walk, frame.node, branch, top - 1)
            if has_values(walk.columns[node.feature]):
                return top, node.first_child + branch, right
            _leave_frame(walk, top - 1)
        top -= 1
    return top, -1, right
