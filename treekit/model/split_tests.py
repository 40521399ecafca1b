"""The tests of a tree's nodes: all kinds of split in one form.

A threshold, a set of categories, "missing or not" and a sum of columns are one test each;
surrogates are further tests, and the conditions of a rule are tests that apply only if they
fail.  The first test that applies decides; if none does, the row takes the node's branch for
missing values.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from treekit.data.schema import Schema
from treekit.model.tree import Split, Tree

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

    Branches are `NO_BRANCH` where the test does not apply.
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


class TreeNodes(dict[int, InnerNode | None]):
    """Nodes of a tree by number, read on demand; None for leaves."""

    def __init__(self, tree: Tree, schema: Schema) -> None:
        super().__init__()
        self._tree, self._schema = tree, schema

    def __missing__(self, number: int) -> InnerNode | None:
        tree = self._tree
        kind = Split(int(tree.kind[number]))
        node = None
        if kind != Split.LEAF:
            first = int(tree.first_child[number])
            children = range(first, first + int(tree.n_children[number]))
            own = () if kind == Split.RULE else (self._read_primary_test(number, kind),)
            further = range(*tree.surrogate_offsets[number : number + 2].tolist())
            tests = own + tuple(map(self._read_surrogate, further))
            node = InnerNode(kind, tests, children, int(tree.missing[number]))
        self[number] = node
        return node

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


def find_branch(test: SplitTest, row: list[float]) -> int:
    """Return the branch of an encoded row; `NO_BRANCH` if the test does not apply.

    Parameters
    ----------
    test : SplitTest
    row : (features,) list of float
        Numbers of the model's input type, codes of categories, NaN = missing.
    """
    if not test.weights:
        code = row[test.columns[0]]
        known = 0 <= code < len(test.branches) and code == math.floor(code)
        return test.branches[int(code)] if known else test.missing_branch
    total = 0.0
    for column, weight in zip(test.columns, test.weights, strict=True):
        total += weight * row[column]
    if total != total:
        return test.missing_branch
    return test.below if total <= test.threshold else test.above


@dataclass(frozen=True)
class BranchCondition:
    """The values for which a test sends a row to a branch, with names.

    Attributes
    ----------
    columns : tuple of str
    weights : tuple of float
        Weights of a sum; empty for one column.
    low, high : float
        Numbers: ``low < x <= high``.
    levels : tuple of str, optional
        Nominal columns: accepted categories; None if the test does not list any.
    known, missing : bool
        Whether any known value is accepted, and whether a missing one is.
    """

    columns: tuple[str, ...]
    weights: tuple[float, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    levels: tuple[str, ...] | None = None
    known: bool = True
    missing: bool = False


def describe_branch(test: SplitTest, branch: int, schema: Schema) -> BranchCondition:
    """Return the condition that holds on a branch of a test."""
    names = tuple(schema.names[column] for column in test.columns)
    missing = test.missing_branch == branch
    if not test.weights:
        levels = schema.columns[test.columns[0]].levels
        fits = tuple(level for level, to in zip(levels, test.branches, strict=True) if to == branch)
        if test.missing_branch >= 0 and {*test.branches, 1} == {1}:  # known or missing
            return BranchCondition(names, known=branch == 1, missing=missing)
        every = branch == NO_BRANCH and 0 < len(fits) == len(levels)
        accepted = None if every else fits
        return BranchCondition(names, levels=accepted, known=bool(fits), missing=missing)
    low = test.threshold if test.below != branch else -math.inf
    high = test.threshold if test.above != branch else math.inf
    weights = () if test.weights == (1.0,) else test.weights
    return BranchCondition(names, weights, low, high, known=low < high, missing=missing)


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
