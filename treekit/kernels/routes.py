"""Where rows go in trees that ask sums and surrogates, or divide rows at missing values.

Plain loops over every node's tests, in the order in which they are asked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treekit.kernels.compile import kernel

__all__ = [
    "FULL_MASS",
    "Routes",
    "answers_below",
    "ask",
    "branch_at",
    "descend",
    "reaches",
    "total_of",
]

# Numbers of `treekit.model.tree.Split`, which compiled code cannot read.
_LEAF, _MISSING = 0, 4
_MASS_BITS = 24
FULL_MASS = 1 << _MASS_BITS


class Routes(NamedTuple):
    """All trees of a model, joined, and what their nodes ask.

    Attributes
    ----------
    kind, feature, first_child, n_children, missing, parent : (nodes,) int64
        As in `treekit.model.tree.Tree`; children and parents count from the
        first node of all, -1 above a root.
    asks : (nodes,) int64
        Tests of a node in `treekit.model.derived.asked`; -1 = none.
    shares : (nodes, 2) int64
        Bounds of the part that a node gets of a row that divides.
    divides : bool
    test_start, threshold, below, term_start, term_feature, term_weight
    level_feature, level_start, level_branch
        As in `treekit.model.derived.DerivedColumns`.
    units : (nodes, values) int64
        Integers of the leaves; 0 elsewhere.
    """

    kind: Any
    feature: Any
    first_child: Any
    n_children: Any
    missing: Any
    parent: Any
    asks: Any
    shares: Any
    divides: Any
    test_start: Any
    threshold: Any
    below: Any
    term_start: Any
    term_feature: Any
    term_weight: Any
    level_feature: Any
    level_start: Any
    level_branch: Any
    units: Any


@kernel
def total_of(routes: Any, test: int, row: Any) -> float:
    """The sum that a linear test compares; NaN = unknown."""
    total = 0.0
    for at in range(routes.term_start[test], routes.term_start[test + 1]):
        total += routes.term_weight[at] * row[routes.term_feature[at]]
    return total


@kernel
def ask(routes: Any, test: int, row: Any) -> int:
    """The branch that one test says; -1 = unknown.  Codes of levels are checked here."""
    feature = routes.level_feature[test]
    if feature < 0:
        total = total_of(routes, test, row)
        if np.isnan(total):
            return -1
        below = routes.below[test]
        return below if total <= routes.threshold[test] else 1 - below
    first = routes.level_start[test]
    code = row[feature]
    if code >= 0 and code < routes.level_start[test + 1] - first and code == np.floor(code):
        return routes.level_branch[first + int(code)]
    return -1


@kernel
def branch_at(routes: Any, node: int, row: Any) -> int:
    """The branch that a row takes at an inner node; -1 if nothing asked there is known."""
    column = routes.asks[node]
    if column < 0:  # MISSING; any number that is no code counts as missing
        return 0 if np.isnan(row[routes.feature[node]]) else 1
    for test in range(routes.test_start[column], routes.test_start[column + 1]):
        branch = ask(routes, test, row)
        if branch >= 0:
            return branch
    return -1


@kernel
def _part_of(routes: Any, child: int, mass: int) -> int:
    """What a child gets of the mass of a row that divides at its parent."""
    high, low = routes.shares[child, 1], routes.shares[child, 0]
    return (mass * high >> _MASS_BITS) - (mass * low >> _MASS_BITS)


@kernel
def reaches(routes: Any, node: int, free: int, row: Any, path: Any) -> int:
    """The mass of a row that reaches a node if all of it goes there from node `free`.

    `path` has room for the depth of the node.
    """
    depth, at = 0, node
    while routes.parent[at] >= 0:
        path[depth] = at
        depth += 1
        at = routes.parent[at]
    mass = np.int64(FULL_MASS)
    while depth > 0:
        depth -= 1
        child = path[depth]
        above = routes.parent[child]
        if above == free:
            continue
        branch = branch_at(routes, above, row)
        if branch < 0 and routes.divides:
            mass = _part_of(routes, child, mass)
            if mass == 0:
                return mass
        elif routes.first_child[above] + (routes.missing[above] if branch < 0 else branch) != child:
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
        if routes.kind[at] == _LEAF:
            for k in range(len(answer)):
                answer[k] += routes.units[at, k] * (mass if routes.divides else 1)
            continue
        held = descend(routes, at, branch_at(routes, at, row), mass, stack, held)


@kernel
def descend(routes: Any, at: int, branch: int, mass: int, stack: Any, held: int) -> int:
    """Put the children that a row goes to on the stack."""
    first = routes.first_child[at]
    if branch >= 0 or not routes.divides:
        stack[held, 0] = first + (routes.missing[at] if branch < 0 else branch)
        stack[held, 1] = mass
        return held + 1
    for child in range(first, first + routes.n_children[at]):
        part = _part_of(routes, child, mass)
        if part > 0:
            stack[held, 0], stack[held, 1] = child, part
            held += 1
    return held
