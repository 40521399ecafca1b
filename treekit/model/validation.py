"""Check that trees and models are well formed.

Vectorized checks, linear in nodes: children after their parent, one parent per
node, indices in range, thresholds finite and of the input type, one branch per
category, values finite, depth within `MAX_DEPTH`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ModelError
from treekit.model.json_values import to_json
from treekit.model.tree import (
    MAX_DEPTH,
    NODE_ENTRIES,
    PER_NODE_FIELDS,
    SURROGATE_ENTRIES,
    Split,
    Tree,
    batch_trees,
    concatenate_trees,
    has_no_entries,
    node_depths,
)

if TYPE_CHECKING:
    from treekit.model.model import Model


# ---------------------------------------------------------------- trees


def check_model(model: Model) -> None:
    """Raise `ModelError` unless an imported model could be a result of `make_model`."""
    if not isinstance(model.schema, Schema):
        raise ModelError(f"a model's schema must be a Schema, got {type(model.schema).__name__}")
    trees: object = model.trees
    if not isinstance(trees, tuple) or not all(isinstance(tree, Tree) for tree in trees):
        raise ModelError("a model's trees must be a tuple of Tree")
    _raise_unless(len(trees) > 0, "a model needs at least one tree")
    check_trees(model.trees, model.schema, model.margins)
    check_policies(model)
    check_units(model, sum(tree.n_leaves for tree in model.trees))
    to_json(model.settings)
    to_json(model.provenance)


def check_tree(tree: Tree, schema: Schema, margins: bool = False) -> None:
    """Raise `ModelError` unless `tree` is well formed for `schema`."""
    check_forest(tree, np.array([0, tree.n_nodes]), schema, margins)


def check_trees(trees: Sequence[Tree], schema: Schema, margins: bool = False) -> None:
    """Check each tree like `check_tree`, as fast as one tree with as many nodes."""
    for group in batch_trees(trees):
        for tree in group:  # before `join`, which hides wrong lengths of single trees
            _check_shapes(tree, schema)
        check_forest(*concatenate_trees(group), schema, margins)


def check_forest(
    nodes: Tree, roots: npt.NDArray[np.int64], schema: Schema, margins: bool = False
) -> None:
    """Check concatenated trees (`concatenate_trees`) like `check_tree`, all at once.

    With `margins` class values may be negative.

    Raises
    ------
    ModelError
        If a tree is malformed, or has no node.
    """
    in_order = len(roots) > 1 and roots[0] == 0 and roots[-1] == nodes.n_nodes
    _raise_unless(in_order and bool(np.all(np.diff(roots) >= 1)), "a tree needs at least one node")
    _check_shapes(nodes, schema)
    leaf = nodes.kind == Split.LEAF
    inner = np.flatnonzero(~leaf)
    _raise_unless(nodes.kind <= Split.RULE, "a node has an unknown kind of split")
    _check_structure(nodes, roots, leaf, inner)
    features = nodes.feature[inner]
    _raise_unless(
        (features >= 0) & (features < schema.n_features),
        "a split uses a column that the schema does not have",
    )
    _check_thresholds(nodes, schema)
    _check_level_splits(nodes, schema)
    _check_oblique_terms(nodes, schema)
    _check_surrogates(nodes, schema)
    _check_rules(nodes, roots, schema)
    _raise_unless(np.isfinite(nodes.value), "a node value is not finite")
    weights_ok = np.all(np.isfinite(nodes.weight) & (nodes.weight >= 0))
    _raise_unless(weights_ok, "a node weight is negative or not finite")
    if schema.task == "classification" and not margins:
        _raise_unless(nodes.value >= 0, "a class weight is negative")
    depths = node_depths(nodes, roots[:-1], MAX_DEPTH)
    if np.any(~leaf[depths == MAX_DEPTH]):
        if np.any(nodes.kind == Split.RULE):
            raise ModelError(f"a list has more than {MAX_DEPTH} rules, the maximum: remove some")
        raise ModelError(f"a tree is deeper than {MAX_DEPTH}, the maximum: set max_depth")


def _raise_unless(condition: Any, message: str) -> None:
    """Raise `ModelError` unless a condition, or each of an array, is true."""
    if not np.all(condition):
        raise ModelError(message)


def _check_shapes(nodes: Tree, schema: Schema) -> None:
    for name, shape in _get_expected_shapes(nodes, schema).items():
        if getattr(nodes, name).shape != shape:
            raise ModelError(f"{name} has shape {getattr(nodes, name).shape}, expected {shape}")


def _get_expected_shapes(nodes: Tree, schema: Schema) -> dict[str, tuple[int, ...]]:
    n, surrogates = nodes.n_nodes, len(nodes.surrogate_feature)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(PER_NODE_FIELDS, (n,))
    shapes |= {"value": (n, schema.n_values), "surrogate_level_offsets": (surrogates + 1,)}
    for start, names in (NODE_ENTRIES | SURROGATE_ENTRIES).items():
        shapes.setdefault(start, (n + 1,))
        shapes |= dict.fromkeys(names, (_count_entries(getattr(nodes, start)),))
    return shapes


def _count_entries(start: npt.NDArray[np.int64]) -> int:
    """Return the last of the CSR offsets `start`; -1 if they are invalid."""
    if has_no_entries(start, len(start) - 1 if start.ndim == 1 else -1):
        return 0
    ascending = (
        start.ndim == 1 and len(start) and start[0] == 0 and bool(np.all(np.diff(start) >= 0))
    )
    return int(start[-1]) if ascending else -1


def _check_structure(
    nodes: Tree,
    roots: npt.NDArray[np.int64],
    leaf: npt.NDArray[np.bool_],
    inner: npt.NDArray[np.int64],
) -> None:
    _raise_unless(nodes.n_children[leaf] == 0, "a leaf has children")
    _raise_unless(nodes.feature[leaf] == -1, "a leaf has a split column")
    counts = nodes.n_children[inner].astype(np.int64)
    first = nodes.first_child[inner].astype(np.int64)
    _raise_unless(counts >= 1, "an inner node has no children")
    two = nodes.kind[inner] != Split.MULTIWAY
    _raise_unless(counts[two] == 2, "a two-way split does not have two children")
    _raise_unless(first > inner, "a child does not come after its parent")
    end = np.repeat(roots[1:], np.diff(roots))[inner]
    _raise_unless(first + counts <= end, "a child lies outside the tree")
    # Number of parents of each node: opened minus closed ranges of children.
    cover = np.bincount(first, minlength=nodes.n_nodes + 1)
    cover -= np.bincount(first + counts, minlength=nodes.n_nodes + 1)
    parents = np.cumsum(cover)[:-1]
    parents[roots[:-1]] += 1
    _raise_unless(parents == 1, "a node has no parent or several")
    missing = nodes.missing[inner]
    _raise_unless((missing >= 0) & (missing < counts), "missing values take an invalid branch")


def _check_thresholds(tree: Tree, schema: Schema) -> None:
    at = tree.kind == Split.THRESHOLD
    _check_input_type(tree.threshold[at], schema, "a threshold")
    nominal = schema.nominal[tree.feature[at]]
    _raise_unless(not np.any(nominal), "a threshold split uses a nominal column")


def _check_input_type(values: npt.NDArray[np.float64], schema: Schema, what: str) -> None:
    """Raise `ModelError` unless values are finite numbers of the model's input type."""
    _raise_unless(np.isfinite(values), f"{what} is not finite")
    if schema.dtype == "float32":
        with np.errstate(over="ignore"):
            rounded = values.astype(np.float32)
        _raise_unless(rounded == values, f"{what} is not a float32, the model's input type")


def _check_level_splits(tree: Tree, schema: Schema) -> None:
    sets = (tree.kind == Split.SUBSET) | (tree.kind == Split.MULTIWAY)
    if not sets.any() and tree.level_offsets[-1] == 0:
        return
    expected = np.zeros(tree.n_nodes, dtype=np.int64)
    expected[sets] = schema.n_levels[tree.feature[sets]]
    _raise_unless(
        np.array_equal(np.diff(tree.level_offsets), expected),
        "a node does not have one branch entry for each category of its column",
    )
    _raise_unless(schema.nominal[tree.feature[sets]], "a category split uses a numeric column")
    owners, branch = np.flatnonzero(expected), tree.level_branch
    if len(owners):
        highest = np.maximum.reduceat(branch, tree.level_offsets[owners])
        inside = branch.min() >= -1 and bool(np.all(highest < tree.n_children[owners]))
        _raise_unless(inside, "a category takes a branch that does not exist")


def _check_oblique_terms(tree: Tree, schema: Schema) -> None:
    oblique = tree.kind == Split.OBLIQUE
    if not oblique.any() and tree.term_offsets[-1] == 0:
        return
    counts = np.diff(tree.term_offsets)
    _raise_unless((counts > 0) == oblique, "only oblique splits have terms")
    _raise_unless(schema.dtype == "float32", "an oblique split requires a float32 model")
    _raise_unless(np.isfinite(tree.threshold[oblique]), "a threshold is not finite")
    feature = tree.term_feature
    _raise_unless(
        (feature >= 0) & (feature < schema.n_features),
        "a term uses a column that the schema does not have",
    )
    _raise_unless(not np.any(schema.nominal[feature]), "a term uses a nominal column")
    first = np.zeros(len(feature), dtype=np.bool_)
    first[tree.term_offsets[:-1][oblique]] = True
    _raise_unless((np.diff(feature) > 0) | first[1:], "terms are not in column order")
    _raise_unless(
        np.array_equal(tree.feature[oblique], feature[first]),
        "the feature of an oblique split is not that of its first term",
    )
    _check_input_type(tree.term_weight, schema, "a term's weight")
    _raise_unless(tree.term_weight != 0, "a term's weight is 0")


def _check_surrogates(tree: Tree, schema: Schema) -> None:
    if tree.surrogate_offsets[-1] == 0:  # offsets ascend, so there are no surrogates
        return
    may_have_surrogates = (
        (tree.kind == Split.THRESHOLD) | (tree.kind == Split.SUBSET) | (tree.kind == Split.RULE)
    )
    _raise_unless(
        may_have_surrogates | (np.diff(tree.surrogate_offsets) == 0),
        "a node with surrogates is not a threshold split, subset split or rule",
    )
    feature = tree.surrogate_feature
    _raise_unless(
        (feature >= 0) & (feature < schema.n_features),
        "a surrogate uses a column that the schema does not have",
    )
    nominal = schema.nominal[feature]
    _check_input_type(tree.surrogate_threshold[~nominal], schema, "a surrogate's threshold")
    branches = np.stack([tree.surrogate_below, tree.surrogate_above, tree.surrogate_lost])
    _raise_unless((branches >= -1) & (branches <= 1), "a surrogate has an invalid branch")
    _raise_unless(
        np.array_equal(np.diff(tree.surrogate_level_offsets), schema.n_levels[feature]),
        "a surrogate does not have one branch entry for each category of its column",
    )
    branch = tree.surrogate_level_branch
    inside = branch.min(initial=0) >= -1 and branch.max(initial=0) <= 1
    _raise_unless(inside, "a surrogate has an invalid branch")


def _check_rules(tree: Tree, roots: npt.NDArray[np.int64], schema: Schema) -> None:
    """Check that rules are chains of one-sided conditions, and surrogates are two-sided."""
    rule = tree.kind == Split.RULE
    counts = np.diff(tree.surrogate_offsets)
    of_rule = np.repeat(rule, counts)
    surrogate = ~of_rule
    two_sided = (
        (tree.surrogate_below[surrogate] >= 0)
        & (tree.surrogate_above[surrogate] == 1 - tree.surrogate_below[surrogate])
        & (tree.surrogate_lost[surrogate] == -1)
    )
    _raise_unless(two_sided, "a surrogate must have opposite branches below and above")
    at = np.flatnonzero(rule)
    if not len(at):
        return
    first = tree.first_child[at]
    _raise_unless(counts[at] > 0, "a rule other than the last has no conditions")
    _raise_unless(tree.missing[at] == 0, "the missing branch of a rule must be 0")
    inner = tree.kind != Split.LEAF
    alone = np.add.reduceat(inner & ~rule, roots[:-1]) == 0
    chained = alone | (np.add.reduceat(rule, roots[:-1]) == 0)
    _raise_unless(chained, "rules must be a chain: a tree of rules has other splits")
    _raise_unless(not np.any(inner[first]), "rules must be a chain: branch 0 is not a leaf")
    first_columns = tree.surrogate_feature[tree.surrogate_offsets[at]]
    named = bool(np.array_equal(tree.feature[at], first_columns))
    _raise_unless(named, "the feature of a rule is not that of its first condition")
    # Conditions on nominal columns do not use below and above.
    numeric = of_rule & ~schema.nominal[tree.surrogate_feature]
    levels = np.repeat(of_rule, np.diff(tree.surrogate_level_offsets))
    for branches in (
        tree.surrogate_below[numeric],
        tree.surrogate_above[numeric],
        tree.surrogate_lost[of_rule],
        tree.surrogate_level_branch[levels],
    ):
        _raise_unless(branches != 0, "a condition of a rule gives branch 0")


# ---------------------------------------------------------------- policies and units

MAX_COST = 2**14
"""Largest misclassification cost: sums of votes times costs stay within 62 bits."""

# Of `make_model` at least -960, which `treekit.model.model_file` may lower by 24.
_LOWEST_EXPONENT, _HIGHEST_EXPONENT = -984, 1024


def check_policies(model: Model) -> None:
    """Raise `ModelError` unless the policies are known and fit the trees and the schema.

    Policies are the settings `missing`, `unknown`, `voting`, `combine`, `link` and `costs`.
    """
    check_header(model)
    with_surrogates = [tree for tree in model.trees if len(tree.surrogate_feature)]
    rules = [tree for tree in with_surrogates if Split.RULE in tree.kind]
    if len(rules) < len(with_surrogates) and model.missing != "surrogate":
        raise ModelError(
            f"trees with surrogates require missing='surrogate', got {model.missing!r}"
        )
    if not rules:
        return
    if model.missing == "fractional":
        raise ModelError("rules do not support missing='fractional': use missing='direction'")
    if any(tree.n_leaves > 1 and Split.RULE not in tree.kind for tree in model.trees):
        raise ModelError("a model of rules has other splits: all trees must be rule lists")


def check_header(model: Any) -> None:
    """Raise `ModelError` unless the policies of a model or rule list fit its schema."""
    schema = model.schema
    for what, value, known in (
        ("missing policy", model.missing, ("direction", "fractional", "surrogate", "error")),
        ("policy for unseen categories", model.unknown, ("missing", "error")),
        ("voting", model.voting, ("soft", "hard")),
        ("combination of trees", model.combine, ("mean", "sum")),
        ("link", model.link, ("identity", "exp", "sigmoid", "softmax")),
    ):
        if value not in known:
            raise ModelError(f"unknown {what} {value!r}; known: {', '.join(known)}")
    if schema.task == "regression" and (model.voting == "hard" or model.costs is not None):
        raise ModelError("hard voting and costs require classification")
    if not isinstance(model.exponent, int) and (
        schema.task == "classification" or len(model.exponent) != schema.n_values
    ):
        raise ModelError(
            f"{len(model.exponent)} fixed-point exponents are given; give one, or one for each "
            f"number of {len(schema.outputs)} targets"
        )
    _check_link_function(model)
    if model.costs is None:
        return
    if schema.more:
        raise ModelError("costs require a model with one output")
    k = len(schema.classes)
    if model.costs.shape != (k, k) or model.costs.dtype != np.int64:
        raise ModelError(f"costs must be a {k} x {k} matrix of integers, got {model.costs.shape}")
    if np.any(np.diagonal(model.costs) != 0):
        raise ModelError("the cost of a correct prediction must be 0")
    if np.any((model.costs < 0) | (model.costs > MAX_COST)):
        raise ModelError(f"costs must be between 0 and {MAX_COST}")


def _check_link_function(model: Any) -> None:
    schema = model.schema
    links: tuple[str, ...] = ("identity", "exp", "sigmoid")
    if model.combine == "sum" and model.missing == "fractional":
        raise ModelError("combine='sum' does not support missing='fractional': use 'direction'")
    if schema.task == "classification":
        links = ("softmax", "sigmoid") if model.margins else ("identity",)
        if model.margins and (model.costs is not None or model.voting == "hard"):
            raise ModelError("hard voting and costs require votes, but combine='sum' adds margins")
        if model.margins and (schema.more or len(schema.classes) < 2):
            raise ModelError("margins require one output with two or more classes")
    if model.link not in links:
        raise ModelError(
            f"the link {model.link!r} does not fit this task and combine={model.combine!r}; "
            f"use one of {', '.join(links)}"
        )


def check_units(model: Model, n_leaves: int) -> None:
    """Check the shape, sums and range of the fixed-point leaf values, as set by `make_model`."""
    schema, units = model.schema, model.units
    if units.shape != (n_leaves, schema.n_values) or units.dtype != np.int64:
        raise ModelError(f"units has shape {units.shape}, expected {(n_leaves, schema.n_values)}")
    if schema.task == "classification" and not model.margins:
        total = model.units_each
        fits = model.exponent == 0 and bool(np.all((units >= 0) & (units <= total)))
        sums = np.add.reduceat(units, schema.blocks[:-1], axis=1)
        if not fits or not bool(np.all(sums == total)):
            raise ModelError(f"the votes of a leaf do not sum to {total} units")
        return
    if not all(_LOWEST_EXPONENT <= own <= _HIGHEST_EXPONENT for own in model.exponents):
        raise ModelError(f"the fixed-point exponent {model.exponent} is out of range")
    bound = model.grid.bound
    if not bool(np.all((units >= -bound) & (units <= bound))):
        raise ModelError(f"a fixed-point leaf value exceeds the maximum {bound.min()}")
    if not np.array_equal(units.astype(np.float64).astype(np.int64), units):
        raise ModelError("a fixed-point leaf value has more than 53 significant bits")
    if model.combine == "sum":
        # At most 100,000 integers within 2**53: float sums are accurate enough here.
        largest = np.maximum.reduceat(np.abs(units), model.leaf_offsets[:-1], axis=0)
        if np.any(largest.sum(axis=0, dtype=np.float64) > bound):
            raise ModelError(
                f"the sum of fixed-point leaf values exceeds the maximum {bound.min()}"
            )
