"""Where rows go in trees that ask sums, surrogates and rules, or divide rows at missing values.

Plain loops over every node's tests, in the order in which they are asked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treekit.kernels.compile import kernel

__all__ = [
    "FULL_MASS",
    "NODE",
    "RULE",
    "TERM",
    "TEST",
    "Routes",
    "answers_below",
    "ask",
    "branch_at",
    "descend",
    "reaches",
    "total_of",
]

# Numbers of `treekit.model.tree.Split`, which compiled code cannot read.
_LEAF, _MISSING, RULE = 0, 4, 6
_MASS_BITS = 24
FULL_MASS = 1 << _MASS_BITS


NODE = np.dtype(
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
