"""The loop that changes a row until it does what is wished of it at a node.

A wish names a node, one of its tests and an outcome.  A row that reaches the
node is copied; what the node asks before that test is made unknown (of a rule,
all other conditions are met); then the test is made to say what is wished (see
`treekit.kernels.changes`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treekit.kernels.changes import hide, hold, rounded, shows_fault, to_threshold
from treekit.kernels.compile import kernel
from treekit.kernels.routes import (
    FULL_MASS,
    RULE,
    answers_below,
    ask,
    branch_at,
    reaches,
    total_of,
)

__all__ = [
    "ABOVE",
    "ANY",
    "AT_MOST",
    "EXACT",
    "LEVEL",
    "REACHED",
    "SET",
    "SHARP",
    "TELLS",
    "UNKNOWN",
    "WISH",
    "grant",
]

AT_MOST, ABOVE, LEVEL, UNKNOWN, SET, ANY = range(6)
"""Goals: a sum next to the threshold on either side; a level; nothing known; a given value; any."""

REACHED, TELLS, SHARP, EXACT = 1, 2, 3, 4
"""Outcomes: it came true; a wrong turn there would show in the answer; also the last bit would,
of a weight as a float32; and as a double."""

WISH = np.dtype(
    [
        *((name, np.int64) for name in ("node", "target", "test", "goal", "step", "term")),
        ("value", np.float64),
        ("sharp", np.bool_),
    ]
)
"""One wish.

``target`` is what the row must reach, whatever branch ``node`` takes; ``step``
leads from the right branch to the wrong one; ``value`` is a level's code, or
SET's.  With ``sharp``, the last bit of a sum's ``term`` (-1 = of the
threshold), towards the infinite ``value``, is to show, from either side of the
threshold; or, for UNKNOWN, that of the shares of a row that divides.
"""


@kernel
def _change(
    routes: Any, wish: Any, row: Any, spare: Any, missing: bool, rng: Any, bits: Any
) -> bool:
    """Change a row as wished; False if it cannot be."""
    if wish.test < 0:
        feature = routes.nodes[wish.node].feature
        if wish.goal == UNKNOWN:
            row[feature] = np.nan
        elif np.isnan(row[feature]):
            row[feature] = spare[feature]
        return True
    column = routes.nodes[wish.node].asks
    first = routes.test_start[column]
    last = routes.test_start[column + 1] if wish.goal == UNKNOWN else wish.test
    if routes.nodes[wish.node].kind == RULE:  # all other conditions are to be met
        for test in range(first, routes.test_start[column + 1]):
            hold(routes, test, row, missing, rng, bits)
    else:
        for test in range(first, last):
            hide(routes, test, row, missing, rng)
    if wish.goal == UNKNOWN:
        return True
    if wish.goal == LEVEL:
        row[routes.tests[wish.test].level_feature] = wish.value
        return True
    if routes.tests[wish.test].level_feature >= 0:  # SET: a category outside the vocabulary
        row[routes.tests[wish.test].level_feature] = np.nan
        return True
    for at in range(routes.term_start[wish.test], routes.term_start[wish.test + 1]):
        feature = routes.terms[at].feature
        if not np.isfinite(row[feature]):
            row[feature] = spare[feature]
    if wish.goal == SET:
        row[routes.terms[routes.term_start[wish.test]].feature] = rounded(wish.value, bits)
        return True
    above = wish.goal == ABOVE
    return to_threshold(routes, wish.test, above, wish.sharp, wish.term, row, rng, bits)


@kernel
def _came_true(routes: Any, wish: Any, row: Any) -> bool:
    """Whether a row that reaches the node does there what is wished."""
    branch = branch_at(routes, wish.node, row)
    if wish.test < 0:
        return branch == (0 if wish.goal == UNKNOWN else 1)
    if wish.goal == UNKNOWN:
        return branch < 0
    column = routes.nodes[wish.node].asks
    for test in range(routes.test_start[column], wish.test):
        if ask(routes, test, row) >= 0:
            return False
    if wish.goal in (AT_MOST, ABOVE):
        total = total_of(routes, wish.test, row)
        at_most = total <= routes.tests[wish.test].threshold
        return not np.isnan(total) and at_most == (wish.goal == AT_MOST)
    return True


@kernel
def _tells(routes: Any, wish: Any, row: Any, stack: Any, answers: Any) -> bool:
    """Whether the answer of the tree would be another if the node sent the row the wrong way."""
    node = wish.node
    branch = branch_at(routes, node, row)
    right = routes.nodes[node].missing if branch < 0 else branch
    wrong = (right + wish.step) % routes.nodes[node].n_children
    answers_below(routes, node, row, stack, answers[0])
    answers_below(routes, routes.nodes[node].first_child + wrong, row, stack, answers[1])
    for k in range(answers.shape[1]):
        if answers[0, k] != answers[1, k]:
            return True
    return False


@kernel
def _sharpness(routes: Any, wish: Any, row: Any, mass: int) -> int:
    """The outcome of a wish that tells: whether a last bit would, of a sum or of shares."""
    if not wish.sharp:
        return TELLS
    if wish.goal == UNKNOWN:
        return EXACT if mass == FULL_MASS else TELLS
    if not shows_fault(routes, wish.test, wish.term, wish.value, True, row):
        return TELLS
    return EXACT if shows_fault(routes, wish.test, wish.term, wish.value, False, row) else SHARP


@kernel
def grant(
    routes: Any, wishes: Any, rows: Any, spare: Any, missing: bool, rng: Any,
    bits: Any, outcome: Any,
) -> None:  # fmt: skip
    """Change each row so that its wish comes true, if that succeeds.

    Parameters
    ----------
    routes : treekit.kernels.routes.Routes
    wishes : (wishes,) WISH
    rows : (wishes, features) float64
        Rows that reach the wishes' nodes, of the input type; changed.
    spare : (wishes, features) float64
        Known values for columns that need one.
    missing : bool
        Whether rows may have missing values.
    rng : numpy.random.Generator
    bits : treekit.kernels.changes.Bits
    outcome : (wishes,) int64
        Output: 0, `REACHED`, `TELLS`, `SHARP` or `EXACT`.
    """
    stack = np.empty((len(routes.nodes) + 1, 2), dtype=np.int64)
    path = np.empty(len(routes.nodes), dtype=np.int64)
    answers = np.empty((2, routes.units.shape[1]), dtype=np.int64)
    for i in range(len(wishes)):
        wish, row = wishes[i], rows[i]
        outcome[i] = 0
        if not _change(routes, wish, row, spare[i], missing, rng, bits):
            continue
        mass = reaches(routes, wish.target, wish.node, row, path)
        if mass == 0 or not _came_true(routes, wish, row):
            continue
        outcome[i] = REACHED
        if _tells(routes, wish, row, stack, answers):
            outcome[i] = _sharpness(routes, wish, row, mass)
        if wish.goal == SET:
            feature = routes.tests[wish.test].level_feature
            if feature < 0:
                feature = routes.terms[routes.term_start[wish.test]].feature
            row[feature] = wish.value
