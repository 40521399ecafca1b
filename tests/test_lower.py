"""Lowered trees answer what the n-ary trees answer, in one plain form."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference import evaluate
from tests.reference.models import chain, mixed_schema, probe_rows, random_model
from treekit.errors import ExportError
from treekit.export.lower import LoweredTree, Step, lower, require_depth
from treekit.model.build import build_tree, leaf, multiway, subset, threshold
from treekit.model.ensemble import Model, make_model

SCHEMA = mixed_schema()
A, B, C = leaf([3, 1]), leaf([1, 3]), leaf([0, 7])


def walk(tree: LoweredTree, model: Model, row: list[float]) -> int:
    """The plain reading of what a lowered node means."""
    node = 0
    while tree.kind[node] != Step.LEAF:
        feature = tree.feature[node]
        x = row[feature]
        column = model.schema.columns[feature]
        if column.kind == "nominal":
            missing = x not in range(len(column.levels))
        else:
            x = evaluate.to_float32(x) if model.schema.dtype == "float32" else x
            missing = x != x
        if tree.kind[node] == Step.LE:
            yes = tree.missing_yes[node] if missing else x <= tree.threshold[node]
        elif tree.kind[node] == Step.IN:
            yes = not missing and x in tree.codes(node)
        else:
            yes = missing
        node = tree.yes[node] if yes else tree.no[node]
    return int(tree.leaf[node])


def one(root) -> LoweredTree:
    return lower(make_model(SCHEMA, [build_tree(root, SCHEMA)]))[0]


@pytest.mark.parametrize("seed", range(8))
def test_every_row_ends_in_the_leaf_of_the_definition(seed):
    schema = mixed_schema(dtype=("float32", "float64")[seed % 2])
    model = random_model(seed, schema, n_splits=60)
    lowered = lower(model)
    for row in probe_rows(model):
        assert [walk(tree, model, row) for tree in lowered] == evaluate.leaf_rows(model, row)


@pytest.mark.parametrize("seed", range(4))
def test_nodes_are_in_pre_order_with_the_yes_branch_first(seed):
    for tree in lower(random_model(seed, SCHEMA, n_splits=60)):
        seen, todo, deepest = [], [(0, 0)], 0
        while todo:
            node, depth = todo.pop()
            seen.append(node)
            deepest = max(deepest, depth)
            if tree.kind[node] != Step.LEAF:
                assert tree.yes[node] == node + 1
                todo += [(tree.no[node], depth + 1), (tree.yes[node], depth + 1)]
        assert seen == list(range(tree.n_nodes))
        assert deepest == tree.depth


def test_a_multiway_split_is_a_chain_that_ends_in_the_missing_branch():
    tree = one(multiway("colour", {"blue": A, "red": B, "green": C}, missing=1))
    assert tree.kind.tolist() == [Step.IN, Step.LEAF, Step.IN, Step.LEAF, Step.LEAF]
    assert [tree.codes(0).tolist(), tree.codes(2).tolist()] == [[2], [1]]
    assert tree.leaf.tolist() == [-1, 0, -1, 2, 1]


def test_a_branch_that_no_level_takes_is_dropped():
    tree = one(subset("colour", [], A, B, missing=1))
    assert tree.kind.tolist() == [Step.LEAF]
    assert tree.leaf.tolist() == [1]


def test_levels_that_a_node_never_saw_are_in_no_set():
    tree = one(subset("colour", ["red"], A, B, missing=0, absent=["blue"]))
    assert tree.codes(0).tolist() == [1]
    assert tree.leaf.tolist() == [-1, 1, 0]


def test_a_threshold_keeps_its_missing_side():
    assert one(threshold("age", 2.5, A, B, missing=0)).missing_yes.tolist() == [True, False, False]
    assert one(threshold("age", 2.5, A, B, missing=1)).missing_yes.tolist() == [False] * 3


def test_leaves_of_later_trees_follow_those_of_earlier_ones():
    model = random_model(3, SCHEMA, n_trees=4)
    used = np.concatenate([tree.leaf[tree.leaf >= 0] for tree in lower(model)])
    assert len(np.unique(used)) == len(used)
    assert used.max() < len(model.units)


def test_arrays_are_read_only():
    tree = one(threshold("age", 2.5, A, B))
    with pytest.raises(ValueError, match="read-only"):
        tree.threshold[0] = 3.0


def test_a_tree_at_the_depth_bound_is_lowered():
    (tree,) = lower(chain(5000, SCHEMA))
    assert tree.depth == 5000
    require_depth((tree,), "x")


def test_a_tree_that_a_chain_of_sets_makes_too_deep_is_refused_by_name():
    node = A
    for _ in range(1700):
        node = (
            multiway(
                "colour",
                {
                    "red": B,
                    "green": C,
                    "blue": A,
                },
                missing=0,
            )
            if (node is A)
            else subset(
                "colour", ["red"], multiway("colour", {"red": B, "green": C, "blue": node}), A
            )
        )
    trees = lower(make_model(SCHEMA, [build_tree(node, SCHEMA)]))
    assert trees[0].depth > 5000
    with pytest.raises(ExportError, match="onnx handles trees up to 5000 binary splits deep"):
        require_depth(trees, "onnx")
