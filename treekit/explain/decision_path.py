"""Decision path of a row through a tree: the test, the decision and the children at each node."""

from __future__ import annotations

import itertools
import math
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.model.tree import Split, Tree

# ---------------------------------------------------------------- walk

DecisionReason = Literal["answered", "surrogate", "lost", "divided", "held", "failed"]
"""What decided at a node.

``answered``: the node's own question.  ``surrogate``: a surrogate.  ``lost``: no question
applied, and the row took the branch for missing values.  ``divided``: no question applied,
and the row was split among all branches.  ``held``, ``failed``: the conditions of a rule.
"""


class Passage(NamedTuple):
    """A row, or a fractional instance, at an inner node.

    Attributes
    ----------
    node_id : int
        The node.
    node : Node
    reason : DecisionReason
    question_index : int
        Index of the question that decided; -1 if none did.
    child_masses : tuple of (int, int)
        Children and the mass that each gets.
    mass : int
        Mass that reaches the node, as a part of `Model.mass`.
    """

    node_id: int
    node: InnerNode
    reason: DecisionReason
    question_index: int
    child_masses: tuple[tuple[int, int], ...]
    mass: int


def trace_row(
    nodes: TreeNodes, row: list[float], mass: int, bounds: npt.NDArray[np.int64] | None
) -> tuple[list[Passage], list[tuple[int, int]]]:
    """Return the passages of a row (parents first, left before right) and the leaves it reaches.

    Parameters
    ----------
    nodes : TreeNodes
    row : (features,) list of float
        Encoded.
    mass : int
        Mass of the row.
    bounds : (nodes, 2) int64, optional
        From `treekit.model.fixed_point.compute_mass_bounds`, for fractional instances.

    Returns
    -------
    passages : list of Passage
    leaves : list of (int, int)
        Leaves and the positive mass that ends in each.
    """
    passages: list[Passage] = []
    leaves: list[tuple[int, int]] = []
    stack = [(0, mass)]
    while stack:
        number, part = stack.pop()
        node = nodes[number]
        if node is None:
            leaves.append((number, part))
            continue
        passage = _pass_node(number, node, row, part, bounds)
        passages.append(passage)
        stack += [(child, some) for child, some in reversed(passage.child_masses) if some]
    return passages, leaves


def _pass_node(
    number: int, node: InnerNode, row: list[float], mass: int, bounds: npt.NDArray[np.int64] | None
) -> Passage:
    for place, question in enumerate(node.tests):
        branch = find_branch(question, row)
        if branch != NO_BRANCH:
            why: DecisionReason = "surrogate" if place else "answered"
            if node.kind == Split.RULE:
                why = "failed"
            return Passage(number, node, why, place, ((node.children[branch], mass),), mass)
    if node.kind == Split.RULE:
        return Passage(
            number, node, "held", -1, ((node.children[node.missing_branch], mass),), mass
        )
    if bounds is None:
        return Passage(
            number, node, "lost", -1, ((node.children[node.missing_branch], mass),), mass
        )
    return Passage(number, node, "divided", -1, tuple(split_mass(node, mass, bounds)), mass)


def split_mass(node: InnerNode, mass: int, bounds: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the children of a node that splits a fractional instance, with the mass of each."""
    found = []
    for child in node.children:
        low, high = bounds[child].tolist()
        found.append((child, (mass * high >> 24) - (mass * low >> 24)))
    return found


def list_deciding_columns(passage: Passage, row: list[float]) -> tuple[int, ...]:
    """Return the columns that decided at a node.

    If a question applied: its columns.  If none did, missing values decided: the columns of the
    node's own question without a value, or all of them if each has one (unseen category,
    infinities that cancel).  A rule that holds depends on all of its conditions.
    """
    if passage.question_index >= 0:
        return passage.node.tests[passage.question_index].columns
    if passage.reason == "held":
        columns = (c for question in passage.node.tests for c in question.columns)
        return tuple(dict.fromkeys(columns))
    own = passage.node.tests[0]
    gone = tuple(column for column in own.columns if not _has_value(own, row[column]))
    return gone or own.columns


def _has_value(question: SplitTest, x: float) -> bool:
    return x == x if question.weights else 0 <= x < len(question.branches)


# ---------------------------------------------------------------- questions
# All splits in one form: a list of tests, of which the first that applies decides.
#
# A threshold, a set of categories, "missing or not" and a sum of columns are one test each;
# surrogates are further tests, and the conditions of a rule are tests that apply only if they
# fail.  If none applies, the row takes the node's branch for missing values.

NO_BRANCH = -1
"""Branch of a test that does not apply."""


class SplitTest(NamedTuple):
    """Test of one column, or of a weighted sum of numeric columns.

    Attributes
    ----------
    columns : tuple of int
        More than one only for sums.
    weights : tuple of float
        The sum is ``0.0 + w0 * x0 + w1 * x1 + ...`` in double, in this order.  Empty for
        tests of categories.
    threshold : float
    below, above : int
        Branch of a number, or sum, at most the threshold, and of a larger one.
    missing_branch : int
        Branch of missing values: NaN, a sum that is NaN, or no code of a category.
    branches : tuple of int
        Nominal columns: branch of each category.

    Branches are `SILENT` where the test does not apply.
    """

    columns: tuple[int, ...]
    weights: tuple[float, ...] = ()
    threshold: float = math.inf
    below: int = 0
    above: int = 1
    missing_branch: int = NO_BRANCH
    branches: tuple[int, ...] = ()


class InnerNode(NamedTuple):
    """An inner node: its tests, and the nodes to which they lead.

    Attributes
    ----------
    kind : Split
    tests : tuple of SplitTest
        In order of evaluation.
    children : range
        Node of each branch.
    missing_branch : int
        Branch of a row to which no test applies, unless it is split fractionally.
    """

    kind: Split
    tests: tuple[SplitTest, ...]
    children: range
    missing_branch: int


class TreeNodes:
    """Nodes of a tree, read on demand and cached."""

    def __init__(self, tree: Tree, schema: Schema) -> None:
        self._tree, self._schema = tree, schema
        self._cached_nodes: dict[int, InnerNode | None] = {}

    def __getitem__(self, number: int) -> InnerNode | None:
        """Return an inner node, or None for a leaf."""
        if number not in self._cached_nodes:
            self._cached_nodes[number] = self._read_node(number)
        return self._cached_nodes[number]

    def _read_node(self, number: int) -> InnerNode | None:
        tree = self._tree
        kind = Split(int(tree.kind[number]))
        if kind == Split.LEAF:
            return None
        first = int(tree.first_child[number])
        children = range(first, first + int(tree.n_children[number]))
        own = () if kind == Split.RULE else (self._read_primary_test(number, kind),)
        behind = range(*tree.surrogate_offsets[number : number + 2].tolist())
        questions = own + tuple(map(self._read_surrogate, behind))
        return InnerNode(kind, questions, children, int(tree.missing[number]))

    def _read_primary_test(self, number: int, kind: Split) -> SplitTest:
        tree, column = self._tree, int(self._tree.feature[number])
        if kind == Split.OBLIQUE:
            terms = slice(*tree.term_offsets[number : number + 2].tolist())
            columns, weights = tree.term_feature[terms], tree.term_weight[terms]
            at = float(tree.threshold[number])
            return SplitTest(tuple(columns.tolist()), tuple(weights.tolist()), at)
        if kind == Split.THRESHOLD:
            return SplitTest((column,), (1.0,), float(tree.threshold[number]))
        if kind == Split.MISSING:
            levels = len(self._schema.columns[column].levels)
            if self._schema.columns[column].kind == "nominal":
                return SplitTest((column,), missing_branch=0, branches=(1,) * levels)
            return SplitTest((column,), (1.0,), below=1, above=1, missing_branch=0)
        return SplitTest((column,), branches=tuple(tree.branches(number).tolist()))

    def _read_surrogate(self, at: int) -> SplitTest:
        tree, column = self._tree, int(self._tree.surrogate_feature[at])
        lost = int(tree.surrogate_lost[at])
        if self._schema.columns[column].kind == "nominal":
            levels = slice(*tree.surrogate_level_offsets[at : at + 2].tolist())
            branches = tuple(tree.surrogate_level_branch[levels].tolist())
            return SplitTest((column,), missing_branch=lost, branches=branches)
        sides = int(tree.surrogate_below[at]), int(tree.surrogate_above[at])
        return SplitTest((column,), (1.0,), float(tree.surrogate_threshold[at]), *sides, lost)


def find_branch(question: SplitTest, row: list[float]) -> int:
    """Return the branch of an encoded row; `SILENT` if the question does not apply.

    Parameters
    ----------
    question : Question
    row : (features,) list of float
        Numbers of the model's input type, codes of categories, NaN = missing.
    """
    if not question.weights:
        code = row[question.columns[0]]
        known = 0 <= code < len(question.branches) and code == math.floor(code)
        return question.branches[int(code)] if known else question.missing_branch
    total = 0.0
    for column, weight in zip(question.columns, question.weights, strict=True):
        total += weight * row[column]
    if total != total:
        return question.missing_branch
    return question.below if total <= question.threshold else question.above


def list_thresholds(trees: tuple[Tree, ...], schema: Schema) -> list[np.ndarray]:
    """Return the distinct thresholds of each column, ascending.

    Thresholds of oblique splits are not included.
    """
    features, at = [], []
    for tree in trees:
        own = tree.kind == Split.THRESHOLD
        features += [tree.feature[own], tree.surrogate_feature]
        at += [tree.threshold[own], tree.surrogate_threshold]
    columns, values = np.concatenate(features), np.concatenate(at)
    numeric = ~schema.nominal[columns]
    order = np.argsort(columns[numeric], kind="stable")
    columns, values = columns[numeric][order], values[numeric][order]
    ends = np.searchsorted(columns, np.arange(schema.n_features + 1))
    parts = [values[a:b] for a, b in itertools.pairwise(ends.tolist())]
    return [np.unique(part) for part in parts]
