"""Lowered trees answer what the n-ary trees answer, in one plain form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference import evaluate
from tests.reference.models import chain, mixed_schema, probe_rows, random_model
from tests.strategies import ALL_KINDS, matrices, models
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError
from treekit.export.lowering import LoweredTree, Step, lower, require_depth
from treekit.model.builder import (
    Surrogate,
    build_tree,
    leaf,
    multiway,
    oblique,
    subset,
    threshold,
)
from treekit.model.derived_features import DerivedColumns, derive
from treekit.model.model import Model, make_model

SCHEMA = mixed_schema()
SLOW = settings(
    deadline=None,
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
A, B, C = leaf([3, 1]), leaf([1, 3]), leaf([0, 7])


def walk(tree: LoweredTree, model: Model, row: list[float]) -> int:
    """The plain reading of what a lowered node means."""
    node = 0
    while tree.kind[node] != Step.LEAF:
        feature = tree.feature[node]
        x = row[feature]
        derived = feature >= model.schema.n_features
        column = Column("derived") if derived else model.schema.columns[feature]
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


@pytest.mark.parametrize("seed", range(4))
def test_every_row_ends_in_the_leaf_of_the_definition(seed):
    schema = mixed_schema(dtype=("float32", "float64")[seed % 2])
    model = random_model(seed, schema, n_splits=60)
    lowered = lower(model)
    for row in probe_rows(model):
        assert [walk(tree, model, row) for tree in lowered] == evaluate.leaf_rows(model, row)


def test_an_oblique_split_asks_a_derived_column():
    schema = Schema((Column("a"), Column("b")), classes=("no", "yes"))
    root = threshold("a", 1.0, A, oblique({"a": 1.0, "b": -2.0}, 3.5, B, C, missing=0))
    (tree,) = lower(make_model(schema, [build_tree(root, schema)]))
    assert tree.kind.tolist() == [Step.LE, Step.LEAF, Step.LE, Step.LEAF, Step.LEAF]
    assert tree.feature.tolist() == [0, -1, 2, -1, -1]
    assert tree.threshold[[0, 2]].tolist() == [1.0, 0.0]
    assert tree.missing_yes.tolist() == [False, False, True, False, False]


def test_a_split_with_surrogates_asks_a_derived_column_of_its_own():
    schema = mixed_schema()
    others = [Surrogate("age", at=2.0)]
    first = threshold("size", 1.0, A, B, surrogates=others)
    second = subset("colour", ["red"], A, B, missing=0, surrogates=others)
    model = make_model(
        schema, [build_tree(t, schema) for t in (first, second)], missing="surrogate"
    )
    trees = lower(model)
    assert [tree.feature[0] for tree in trees] == [schema.n_features, schema.n_features + 1]
    assert [tree.kind[0] for tree in trees] == [Step.LE, Step.LE]
    assert [len(tree.set_codes) for tree in trees] == [0, 0]


@SLOW
@given(st.data())
def test_derived_columns_behind_the_row_make_every_tree_a_plain_one(data):
    model = data.draw(models(kinds=ALL_KINDS - {"fractional"}))
    rows = data.draw(matrices(model)).tolist()
    lowered, columns = lower(model), derive(model)
    for row in rows:
        wide = row + [derived_value(model, columns, d, row) for d in range(columns.n_columns)]
        assert [walk(tree, model, wide) for tree in lowered] == evaluate.leaf_rows(model, row)


def derived_value(model: Model, columns: DerivedColumns, number: int, row: list[float]) -> float:
    """The plain reading of what a derived column is."""
    for test in range(columns.test_start[number], columns.test_start[number + 1]):
        branch = columns.lost[test]
        if (feature := columns.level_feature[test]) >= 0:
            levels = columns.level_branch[columns.level_start[test] : columns.level_start[test + 1]]
            if row[feature] in range(len(levels)):
                branch = levels[int(row[feature])]
        else:
            total = 0.0
            for term in range(columns.term_start[test], columns.term_start[test + 1]):
                x = row[columns.term_feature[term]]
                x = evaluate.to_float32(x) if model.schema.dtype == "float32" else x
                total += columns.term_weight[term].item() * x
            if total == total:
                side = columns.below if total <= columns.threshold[test] else columns.above
                branch = side[test]
        if branch >= 0:
            return float(branch)
    return float("nan")


def test_rows_that_divide_are_refused_by_name():
    model = make_model(SCHEMA, [build_tree(A, SCHEMA)], missing="fractional")
    with pytest.raises(ExportError, match="'fractional': rows divide"):
        lower(model)


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
