"""What each node asks, in one form: a list of questions, of which the first answer decides.

A threshold, a set of levels, "missing or not" and a sum of columns are one question
each; surrogates are questions behind it, and the conditions of a rule are questions
that answer only where they fail.  If none answers, the row goes the node's missing way.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from treekit.data.schema import Schema
from treekit.model.tree import Split, Tree

__all__ = ["SILENT", "Node", "Question", "TreeNodes", "answer", "thresholds_of"]

SILENT = -1
"""The branch of a question that does not answer."""


class Question(NamedTuple):
    """One question about one column, or about a weighted sum of numeric columns.

    Attributes
    ----------
    columns : tuple of int
        More than one in a sum only.
    weights : tuple of float
        The sum is ``0.0 + w0 * x0 + w1 * x1 + ...`` in double, in this order.  Empty for
        questions about levels.
    threshold : float
    below, above : int
        Branch of a number, or sum, at most the threshold, and of a larger one.
    lost : int
        Branch of what is missing: NaN, a sum that is NaN, no code of a level.
    branches : tuple of int
        Nominal columns: branch of each level.

    Branches are `SILENT` where the question does not answer.
    """

    columns: tuple[int, ...]
    weights: tuple[float, ...] = ()
    threshold: float = math.inf
    below: int = 0
    above: int = 1
    lost: int = SILENT
    branches: tuple[int, ...] = ()


class Node(NamedTuple):
    """An inner node.

    Attributes
    ----------
    kind : Split
    questions : tuple of Question
        In the order in which a row is asked.
    children : range
        Node of each branch.
    missing : int
        Branch of a row that no question answers for, unless it divides.
    """

    kind: Split
    questions: tuple[Question, ...]
    children: range
    missing: int


class TreeNodes:
    """The nodes of a tree, read one by one and kept."""

    def __init__(self, tree: Tree, schema: Schema) -> None:
        self._tree, self._schema = tree, schema
        self._read: dict[int, Node | None] = {}

    def __getitem__(self, number: int) -> Node | None:
        """An inner node, or None for a leaf."""
        if number not in self._read:
            self._read[number] = self._node(number)
        return self._read[number]

    def _node(self, number: int) -> Node | None:
        tree = self._tree
        kind = Split(int(tree.kind[number]))
        if kind == Split.LEAF:
            return None
        first = int(tree.first_child[number])
        children = range(first, first + int(tree.n_children[number]))
        own = () if kind == Split.RULE else (self._own(number, kind),)
        behind = range(*tree.surrogate_start[number : number + 2].tolist())
        questions = own + tuple(map(self._surrogate, behind))
        return Node(kind, questions, children, int(tree.missing[number]))

    def _own(self, number: int, kind: Split) -> Question:
        tree, column = self._tree, int(self._tree.feature[number])
        if kind == Split.OBLIQUE:
            terms = slice(*tree.term_start[number : number + 2].tolist())
            columns, weights = tree.term_feature[terms], tree.term_weight[terms]
            at = float(tree.threshold[number])
            return Question(tuple(columns.tolist()), tuple(weights.tolist()), at)
        if kind == Split.THRESHOLD:
            return Question((column,), (1.0,), float(tree.threshold[number]))
        if kind == Split.MISSING:
            levels = len(self._schema.columns[column].levels)
            if self._schema.columns[column].kind == "nominal":
                return Question((column,), lost=0, branches=(1,) * levels)
            return Question((column,), (1.0,), below=1, above=1, lost=0)
        return Question((column,), branches=tuple(tree.branches(number).tolist()))

    def _surrogate(self, at: int) -> Question:
        tree, column = self._tree, int(self._tree.surrogate_feature[at])
        lost = int(tree.surrogate_lost[at])
        if self._schema.columns[column].kind == "nominal":
            levels = slice(*tree.surrogate_level_start[at : at + 2].tolist())
            branches = tuple(tree.surrogate_level_branch[levels].tolist())
            return Question((column,), lost=lost, branches=branches)
        sides = int(tree.surrogate_below[at]), int(tree.surrogate_above[at])
        return Question((column,), (1.0,), float(tree.surrogate_threshold[at]), *sides, lost)


def answer(question: Question, row: list[float]) -> int:
    """The branch that a question sends an encoded row to; `SILENT` = it does not answer.

    Parameters
    ----------
    question : Question
    row : (features,) list of float
        Numbers of the model's input type, codes of levels, NaN = missing.
    """
    if not question.weights:
        code = row[question.columns[0]]
        known = 0 <= code < len(question.branches) and code == math.floor(code)
        return question.branches[int(code)] if known else question.lost
    total = 0.0
    for column, weight in zip(question.columns, question.weights, strict=True):
        total += weight * row[column]
    if total != total:
        return question.lost
    return question.below if total <= question.threshold else question.above


def thresholds_of(trees: tuple[Tree, ...], schema: Schema) -> list[np.ndarray]:
    """For each column the distinct thresholds that it is compared with, ascending.

    Those of sums of columns are none of a column's.
    """
    asked, at = [], []
    for tree in trees:
        own = tree.kind == Split.THRESHOLD
        asked += [tree.feature[own], tree.surrogate_feature]
        at += [tree.threshold[own], tree.surrogate_threshold]
    columns, values = np.concatenate(asked), np.concatenate(at)
    numeric = ~schema.nominal[columns]
    order = np.argsort(columns[numeric], kind="stable")
    columns, values = columns[numeric][order], values[numeric][order]
    ends = np.searchsorted(columns, np.arange(schema.n_features + 1))
    parts = [values[a:b] for a, b in itertools.pairwise(ends.tolist())]
    return [np.unique(part) for part in parts]
