"""Derived columns for oblique splits, rules and splits with surrogates.

A derived column holds the branch that a row takes, 0.0 or 1.0, or NaN if none of its
tests gives a branch.  Appended to the raw columns it reduces such a node to the plain
threshold split ``x' <= 0``.  A derived column is an ordered list of tests; the first
test that gives a branch decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.model.concatenated import concatenate_trees
from treekit.model.tree import Split, Tree, concatenate_slices, iter_chunks, take_slices

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = [
    "DerivedColumns",
    "make_derived_columns",
    "make_node_tests",
]


class DerivedColumns(NamedTuple):
    """The D derived columns of a model, with T tests in total.

    Attributes
    ----------
    column : (nodes,) int64
        Derived column of each node of the concatenated trees; -1 = a plain node.
    test_start : (D + 1,) int64
        Offsets of the tests of each column.
    threshold : (T,) float64
        Linear tests: threshold of ``0.0 + w0 * x0 + w1 * x1 + ...``, computed in double
        over inputs of the model's type; a NaN sum takes `lost`.
    below, above : (T,) int64
        Linear tests: branch where the sum is at most the threshold, and where it is
        larger; -1 = no branch.
    lost : (T,) int64
        Branch of a sum that is NaN, or of a category that is missing or outside the
        vocabulary; -1 = no branch.
    term_start : (T + 1,) int64
        Offsets of the terms of each linear test; a test of categories has none.
    term_feature : (terms,) int64
    term_weight : (terms,) float64
    level_feature : (T,) int64
        Column of a test of categories; -1 for linear tests.
    level_start : (T + 1,) int64
        Offsets of the branches of each test of categories.
    level_branch : (levels,) int32
        Branch of each category; -1 = no branch.
    """

    column: npt.NDArray[np.int64]
    test_start: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.float64]
    below: npt.NDArray[np.int64]
    above: npt.NDArray[np.int64]
    lost: npt.NDArray[np.int64]
    term_start: npt.NDArray[np.int64]
    term_feature: npt.NDArray[np.int64]
    term_weight: npt.NDArray[np.float64]
    level_feature: npt.NDArray[np.int64]
    level_start: npt.NDArray[np.int64]
    level_branch: npt.NDArray[np.int32]

    @property
    def n_columns(self) -> int:
        """D, the number of derived columns."""
        return len(self.test_start) - 1


def make_derived_columns(model: Model) -> DerivedColumns:
    """Return the derived columns of a model's trees in node order, none for plain trees."""
    if not any(map(_has_derived_nodes, model.trees)):
        # Do not concatenate all trees: that would double the memory of a large forest.
        nodes, _ = concatenate_trees(model.trees[:1])
        column = np.full(sum(tree.n_nodes for tree in model.trees), -1)
        return _make_columns(nodes, np.empty(0, np.int64), model.schema.nominal)._replace(
            column=column
        )
    nodes, _ = concatenate_trees(model.trees)
    has_tests = (nodes.kind == Split.OBLIQUE) | (np.diff(nodes.surrogate_offsets) > 0)
    return _make_columns(nodes, np.flatnonzero(has_tests), model.schema.nominal)


def _has_derived_nodes(tree: Tree) -> bool:
    """Return whether a tree has a node that needs a derived column."""
    return len(tree.surrogate_feature) > 0 or bool((tree.kind == Split.OBLIQUE).any())


def make_node_tests(model: Model) -> DerivedColumns:
    """Return the tests of all inner nodes as derived columns, except MISSING nodes.

    Branches of categories are those of the node: a MULTIWAY node may have more than two.
    """
    nodes, _ = concatenate_trees(model.trees)
    has_tests = (nodes.kind != Split.LEAF) & (nodes.kind != Split.MISSING)
    return _make_columns(nodes, np.flatnonzero(has_tests), model.schema.nominal)


def _make_columns(
    nodes: Tree, owners: npt.NDArray[np.int64], nominal_columns: npt.NDArray[np.bool_]
) -> DerivedColumns:
    """Make a derived column for each of the nodes `owners`."""
    surrogates = np.diff(nodes.surrogate_offsets)
    column = np.full(nodes.n_nodes, -1)
    column[owners] = np.arange(len(owners))
    has_own_test = nodes.kind[owners] != Split.RULE  # a rule has only its conditions, no own test
    sizes = has_own_test + surrogates[owners]
    test_start = np.cumsum(np.append(0, sizes))
    own = np.zeros(test_start[-1], dtype=np.bool_)  # a node's own test comes first
    own[test_start[:-1][has_own_test]] = True
    behind, _ = take_slices(nodes.surrogate_offsets, owners)
    owners = owners[has_own_test]

    def merge_tests(
        of_nodes: npt.NDArray[np.generic], of_surrogates: npt.NDArray[np.generic]
    ) -> Any:
        merged = np.empty(len(own), dtype=np.result_type(of_nodes, of_surrogates))
        merged[own], merged[~own] = of_nodes, of_surrogates
        return merged

    feature = merge_tests(nodes.feature[owners], nodes.surrogate_feature[behind]).astype(np.int64)
    nominal = nominal_columns[feature]
    terms, term_counts = _find_terms(nodes, owners, own, nominal)
    term_feature = np.repeat(feature, term_counts)
    term_weight = np.ones(len(term_feature))
    oblique = np.repeat(
        merge_tests(np.diff(nodes.term_offsets)[owners] > 0, np.zeros(len(behind), bool)),
        term_counts,
    )
    term_feature[oblique] = nodes.term_feature[terms]
    term_weight[oblique] = nodes.term_weight[terms]
    level_start, level_branch = _collect_level_branches(nodes, owners, behind, own)
    return DerivedColumns(
        column=column,
        test_start=test_start,
        threshold=merge_tests(nodes.threshold[owners], nodes.surrogate_threshold[behind]),
        below=merge_tests(np.zeros(len(owners), np.int64), nodes.surrogate_below[behind]),
        above=merge_tests(np.ones(len(owners), np.int64), nodes.surrogate_above[behind]),
        lost=merge_tests(np.full(len(owners), -1), nodes.surrogate_lost[behind]),
        term_start=np.cumsum(np.append(0, term_counts)),
        term_feature=term_feature,
        term_weight=term_weight,
        level_feature=np.where(nominal, feature, -1),
        level_start=level_start,
        level_branch=level_branch,
    )


def _collect_level_branches(
    nodes: Tree,
    owners: npt.NDArray[np.int64],
    surrogates: npt.NDArray[np.int64],
    own: npt.NDArray[np.bool_],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Collect the category branches of each test: of `owners` where `own`, else of `surrogates`."""
    sizes, first = (np.empty(len(own), np.int64) for _ in range(2))
    for tests, start, at in (
        (own, nodes.level_offsets, owners),
        (~own, nodes.surrogate_level_offsets, surrogates),
    ):
        first[tests], sizes[tests] = start[at], start[at + 1] - start[at]
    level_start = np.cumsum(np.append(0, sizes))
    level_branch = np.empty(level_start[-1], np.int32)
    for part in iter_chunks(sizes):
        mine, counts, starts = own[part], sizes[part], first[part]
        of_own = np.repeat(mine, counts)
        branch = level_branch[level_start[part.start] : level_start[part.stop]]
        branch[of_own] = concatenate_slices(nodes.level_branch, starts[mine], counts[mine])
        branch[~of_own] = concatenate_slices(
            nodes.surrogate_level_branch, starts[~mine], counts[~mine]
        )
    return level_start, level_branch


def _find_terms(
    nodes: Tree,
    owners: npt.NDArray[np.int64],
    own: npt.NDArray[np.bool_],
    nominal: npt.NDArray[np.bool_],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the positions of the oblique terms, and the number of terms of each test."""
    terms, _ = take_slices(nodes.term_offsets, owners)
    counts = np.where(nominal, 0, 1)
    oblique = np.diff(nodes.term_offsets)[owners]
    counts[np.flatnonzero(own)[oblique > 0]] = oblique[oblique > 0]
    return terms, counts
