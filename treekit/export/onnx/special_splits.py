"""Oblique splits, surrogates and fractional instances as plain ONNX operators.

Derived columns are computed for every row, in the model's input dtype.  Sums are chains
of Mul and Add in double, term by term: the order of a MatMul is unspecified, and
products of float32 numbers are exact in double only one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.export.onnx.graph import Graph
from treekit.model.fixed_point import MASS, compute_mass_bounds, split_wide_units
from treekit.model.model import Model
from treekit.model.tree import (
    MAX_DEPTH,
    DerivedColumns,
    Split,
    Tree,
    concatenate_trees,
    expand_slices,
)

# ---------------------------------------------------------------- onnx derived


def add_derived_columns(graph: Graph, derived: DerivedColumns, codes: str) -> str:
    """Append the derived columns to the columns of `codes` (N, features).

    Return the name of (N, features + D); derived columns are 0.0, 1.0, or NaN if unknown.
    """
    linear = np.flatnonzero(derived.level_feature < 0)
    levels = np.flatnonzero(derived.level_feature >= 0)
    counts = np.diff(derived.term_start)[linear]
    parts, order = [], []
    for count in np.unique(counts).tolist():
        order.append(linear[counts == count])
        parts.append(_add_linear_tests(graph, derived, order[-1], count, codes))
    if len(levels):
        parts.append(_add_level_tests(graph, derived, levels, codes))
        order.append(levels)
    place = np.argsort(np.concatenate(order))  # position of each test in the parts
    tests = graph.add_operator("Concat", parts, "tests", axis=1) if len(parts) > 1 else parts[0]
    sides = _add_first_known(graph, derived, tests, place)
    return graph.add_operator("Concat", [codes, sides], "with_derived", axis=1)


def _add_linear_tests(
    graph: Graph, derived: DerivedColumns, tests: npt.NDArray[np.int64], count: int, codes: str
) -> str:
    """Add (N, tests): the side of the threshold of each sum of `count` terms."""
    name = f"sums_of_{count}"
    total = ""
    for term in range(count):
        at = derived.term_start[tests] + term
        own = derived.term_feature[at]
        x = graph.add_selection(codes, f"{name}_column_{term}", own, f"{name}_x_{term}")
        weight = graph.add_constant(f"{name}_weight_{term}", derived.term_weight[at])
        exact = graph.add_cast(x, np.float64, f"{name}_exact_{term}")
        part = graph.add_operator("Mul", [exact, weight], f"{name}_part_{term}")
        total = graph.add_operator("Add", [total, part], f"{name}_total_{term}") if total else part
    threshold = graph.add_constant(f"{name}_threshold", derived.threshold[tests])
    lost = _replace_no_branch(graph, derived.lost[tests])
    below, above, unknown = (
        graph.add_constant(f"{name}_below", _replace_no_branch(graph, derived.below[tests])),
        graph.add_constant(f"{name}_above", _replace_no_branch(graph, derived.above[tests])),
        graph.add_constant(f"{name}_unknown", lost[0] if np.isnan(lost).all() else lost),
    )
    is_below = graph.add_operator("LessOrEqual", [total, threshold], f"{name}_is_below")
    is_known = graph.add_operator("Equal", [total, total], f"{name}_is_known")
    side = graph.add_operator("Where", [is_below, below, above], f"{name}_side")
    return graph.add_operator("Where", [is_known, side, unknown], name)


def _replace_no_branch(graph: Graph, branches: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert branches to the type of the columns, NaN for no branch."""
    return np.where(branches < 0, np.nan, branches).astype(graph.real)


def _add_level_tests(
    graph: Graph, derived: DerivedColumns, tests: npt.NDArray[np.int64], codes: str
) -> str:
    """Add (N, tests): the branch of the row's category in each test, NaN if it has none."""
    branches, start = _replace_no_branch(graph, derived.level_branch), derived.level_start
    replies = [branches[start[test] : start[test + 1]] for test in tests.tolist()]
    lost = _replace_no_branch(graph, derived.lost[tests])
    return graph.add_lookup(codes, derived.level_feature[tests], replies, lost, "level_tests")


def _add_first_known(
    graph: Graph, derived: DerivedColumns, tests: str, place: npt.NDArray[np.int64]
) -> str:
    """Add (N, D): the first test of each derived column that is not NaN."""
    first, last = derived.test_start[:-1], derived.test_start[1:] - 1
    name = ""
    for step in range(int((last - first).max()) + 1):
        # A column with fewer tests repeats its last one.
        at = place[np.minimum(first + step, last)]
        asked = graph.add_selection(tests, f"test_{step}_of", at, f"test_{step}")
        if not name:
            name = asked
            continue
        known = graph.add_operator("Equal", [name, name], f"known_before_{step}")
        name = graph.add_operator("Where", [known, name, asked], f"known_after_{step}")
    return name


# ---------------------------------------------------------------- onnx fractional instances
# Integer masses, level by level.
#
# A row starts with the mass 2**24 at every root.  A node passes it to the
# branch that the row takes or, if the row's value is missing, to every branch
# the part between its bounds (`treekit.model.fixed_point`).  Masses are integers in
# double: products and sums of votes are below 2**53, and numbers have three parts, so that all
# are exact, as in every other artifact.  Not int64, which some runtimes compute in 32 bits: their
# products overflow, while numbers in double are rounded there.  Memory: rows x nodes of one level
# of depth, or rows x leaves.

_NO_BRANCH = -1.0


@dataclass(frozen=True)
class _Traversal:
    """A model's trees, concatenated, and the name of the tensor of the columns they test."""

    graph: Graph
    nodes: Tree
    n_features: int
    columns: str
    derived: npt.NDArray[np.int64]


def add_masses(
    graph: Graph, model: Model, columns: str, derived: npt.NDArray[np.int64]
) -> tuple[str, npt.NDArray[np.int64]]:
    """Add the traversal of all trees, and ``exact_sums`` (N, values) double.

    Return the name of the masses (N, leaves) double, and the row of `Model.units` of each leaf.

    Parameters
    ----------
    columns : str
        (N, features + derived); codes are clean.
    derived : (nodes,) int64
        Derived column of each node of the concatenated trees, -1 = none.
    """
    nodes, roots = concatenate_trees(model.trees)
    walk = _Traversal(graph, nodes, model.schema.n_features, columns, derived)
    bounds = np.concatenate([compute_mass_bounds(tree) for tree in model.trees])
    row_of_leaf = np.cumsum(nodes.kind == Split.LEAF) - 1
    graph.add_constant("whole_mass", float(MASS))
    graph.add_constant("none", 0.0)
    graph.add_number("first_branch", 0)
    graph.add_number("second_branch", 1)
    graph.add_number("no_branch", _NO_BRANCH)
    level = roots[:-1]
    mass = _add_root_masses(graph, columns, len(level))
    leaf_rows, leaf_masses = [], []
    for depth in range(MAX_DEPTH + 1):
        is_leaf = nodes.kind[level] == Split.LEAF
        if is_leaf.any():
            at, name = np.flatnonzero(is_leaf), f"leaf_mass_{depth}"
            leaf_masses.append(graph.add_selection(mass, f"leaves_at_{depth}", at, name))
            leaf_rows.append(row_of_leaf[level[is_leaf]])
        if is_leaf.all():
            break
        mass, level = _add_child_masses(walk, mass, level, bounds, depth)
    row = np.concatenate(leaf_rows)
    every = leaf_masses[0]
    if len(leaf_masses) > 1:
        every = graph.add_operator("Concat", leaf_masses, "leaf_masses", axis=1)
    if model.part_bits:
        _add_number_sums(graph, every, model.units[row])
    else:
        graph.add_constant("units", model.units[row].astype(np.float64))
        graph.add_operator("MatMul", [every, "units"], "exact_sums")
    return every, row


def _add_number_sums(graph: Graph, masses: str, units: npt.NDArray[np.int64]) -> None:
    """Add ``exact_sums``: of each number v at a leaf of mass m, ``floor(v * m / 2**24)``.

    v has three parts: multiples of 2**36 and of 2**30, of which the terms are integers, and a rest
    whose product with a mass is within 2**53.  Sums of terms are exact, also those of two parts
    together; see `MAX_TREES`.
    """
    high, rest = np.hsplit(split_wide_units(units, 2**36), 2)
    middle, low = np.hsplit(split_wide_units(rest, 2**30) / MASS, 2)
    graph.add_constant("high_units", high / MASS)
    graph.add_constant("middle_units", middle)
    graph.add_constant("ones", np.ones((len(units), 1)))
    graph.add_operator("MatMul", [masses, "high_units"], "high_sums")
    graph.add_operator("MatMul", [masses, "middle_units"], "middle_sums")
    sums = []
    for k, own in enumerate(low.T):
        graph.add_constant(f"low_units_{k}", own.copy())
        graph.add_operator("Mul", [masses, f"low_units_{k}"], f"low_products_{k}")
        graph.add_operator("Floor", [f"low_products_{k}"], f"low_parts_{k}")
        sums.append(graph.add_operator("MatMul", [f"low_parts_{k}", "ones"], f"low_sums_{k}"))
    all_low = sums[0]
    if len(sums) > 1:
        all_low = graph.add_operator("Concat", sums, "low_sums", axis=1)
    graph.add_operator("Add", ["middle_sums", all_low], "lower_sums")
    graph.add_operator("Add", ["high_sums", "lower_sums"], "exact_sums")


def add_largest_leaves(graph: Graph, model: Model, masses: str, row: npt.NDArray[np.int64]) -> str:
    """Add the leaf of each tree with the largest mass, the first of equal ones; see `add_masses`.

    Return the name of (N, trees) int64: rows of `Model.units`.
    """
    counts = np.diff(model.leaf_offsets)
    # A tree with fewer leaves is padded with its first one, which never wins in the padding.
    own = np.arange(counts.max())
    rows = model.leaf_offsets[:-1, None] + np.where(own < counts[:, None], own, 0)
    graph.add_selection(masses, "masses_of_trees", np.argsort(row)[rows], "masses_by_tree")
    graph.add_constant("first_leaf", model.leaf_offsets[:-1])
    graph.add_first_maximum("masses_by_tree", "largest_leaf", axis=2)
    return graph.add_operator("Add", ["largest_leaf", "first_leaf"], "reached_leaves")


def _add_root_masses(graph: Graph, columns: str, n_trees: int) -> str:
    """Add (N, trees) double: the complete mass at every root."""
    graph.add_constant("row_count_start", [0])
    graph.add_constant("row_count_end", [1])
    graph.add_constant("tree_count", [n_trees])
    graph.add_operator("Shape", [columns], "shape")
    graph.add_operator("Slice", ["shape", "row_count_start", "row_count_end"], "row_count")
    graph.add_operator("Concat", ["row_count", "tree_count"], "root_shape", axis=0)
    return graph.add_operator("Expand", ["whole_mass", "root_shape"], "root_mass")


def _add_child_masses(
    walk: _Traversal,
    mass: str,
    level: npt.NDArray[np.int64],
    bounds: npt.NDArray[np.int64],
    depth: int,
) -> tuple[str, npt.NDArray[np.int64]]:
    """Add the masses of the next level (N, children) double from the `mass` (N, level) of this one.

    Return their name, and the nodes of the next level.
    """
    graph, nodes, name = walk.graph, walk.nodes, f"child_{depth}"
    inner = np.flatnonzero(nodes.kind[level] != Split.LEAF)
    parents = level[inner]
    counts = nodes.n_children[parents]
    parent = np.repeat(np.arange(len(parents)), counts)
    children = expand_slices(nodes.first_child[parents], counts)
    own = children - nodes.first_child[parents][parent]
    branch = _add_branches(walk, parents, f"branch_{depth}")
    given = graph.add_selection(mass, f"{name}_from", inner[parent], f"{name}_given")
    taken = graph.add_selection(branch, f"{name}_asks", parent, f"{name}_taken")
    graph.add_constant(f"{name}_branch", own.astype(graph.real))
    for side, bound in zip(("low", "high"), bounds[children].T / MASS, strict=True):
        graph.add_constant(f"{name}_{side}", bound)
        graph.add_operator("Mul", [given, f"{name}_{side}"], f"{name}_{side}_share")
        graph.add_operator("Floor", [f"{name}_{side}_share"], f"{name}_{side}_part")
    graph.add_operator("Sub", [f"{name}_high_part", f"{name}_low_part"], f"{name}_part")
    graph.add_operator("Equal", [taken, f"{name}_branch"], f"{name}_is_taken")
    graph.add_operator("Equal", [taken, "no_branch"], f"{name}_is_missing")
    graph.add_operator("Where", [f"{name}_is_missing", f"{name}_part", "none"], f"{name}_or_part")
    graph.add_operator("Where", [f"{name}_is_taken", given, f"{name}_or_part"], name)
    return name, children


def _add_branches(walk: _Traversal, parents: npt.NDArray[np.int64], name: str) -> str:
    """Add (N, parents): the branch that each row takes at each node, -1 = missing."""
    kind = walk.nodes.kind[parents]
    by_level = (kind == Split.SUBSET) | (kind == Split.MULTIWAY)
    by_level &= walk.derived[parents] < 0
    if by_level.all():
        return _add_level_branches(walk, parents, name)
    if not by_level.any():
        return _add_threshold_branches(walk, parents, name)
    parts = [
        _add_level_branches(walk, parents[by_level], f"{name}_by_level"),
        _add_threshold_branches(walk, parents[~by_level], f"{name}_by_order"),
    ]
    place = np.argsort(np.concatenate([np.flatnonzero(by_level), np.flatnonzero(~by_level)]))
    both = walk.graph.add_operator("Concat", parts, f"{name}_parts", axis=1)
    return walk.graph.add_selection(both, f"{name}_place", place, name)


def _add_level_branches(walk: _Traversal, parents: npt.NDArray[np.int64], name: str) -> str:
    nodes = walk.nodes
    replies = list(map(nodes.branches, parents.tolist()))
    features = nodes.feature[parents].astype(np.int64)
    missing = walk.graph.real.type(_NO_BRANCH)
    return walk.graph.add_lookup(walk.columns, features, replies, missing, name)


def _add_threshold_branches(walk: _Traversal, parents: npt.NDArray[np.int64], name: str) -> str:
    """Add the branches of thresholds, derived columns (1 if above 0) and missing-value tests."""
    graph, nodes = walk.graph, walk.nodes
    derived = walk.derived[parents]
    asks_missing = nodes.kind[parents] == Split.MISSING
    feature = np.where(derived >= 0, walk.n_features + derived, nodes.feature[parents])
    bound = np.where((derived >= 0) | asks_missing, 0.0, nodes.threshold[parents])
    x = graph.add_selection(walk.columns, f"{name}_feature", feature, f"{name}_x")
    graph.add_constant(f"{name}_bound", bound.astype(graph.real))
    graph.add_constant(f"{name}_unknown", np.where(asks_missing, 0, _NO_BRANCH).astype(graph.real))
    graph.add_constant(f"{name}_always", asks_missing)  # whatever is known takes branch 1
    graph.add_operator("Greater", [x, f"{name}_bound"], f"{name}_is_above")
    graph.add_operator("Or", [f"{name}_is_above", f"{name}_always"], f"{name}_right")
    graph.add_operator("Where", [f"{name}_right", "second_branch", "first_branch"], f"{name}_side")
    graph.add_operator("Equal", [x, x], f"{name}_known")
    return graph.add_operator("Where", [f"{name}_known", f"{name}_side", f"{name}_unknown"], name)
