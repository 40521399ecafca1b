"""Trees: valid and invalid ones, and the shape of deep ones."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference import evaluate
from tests.strategies import models
from treekit.data.schema import Column, Schema
from treekit.errors import ModelError
from treekit.export.c.layouts import pack_nodes
from treekit.export.lowering import leaf_table
from treekit.model import tree as tree_module
from treekit.model.builder import (
    Surrogate,
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    subset,
    threshold,
)
from treekit.model.fixed_point import compute_mass_bounds
from treekit.model.model import make_model
from treekit.model.model_file import load, save
from treekit.model.packing import pack_model
from treekit.model.scoring import sum_leaf_values
from treekit.model.tree import (
    FIELD_DTYPES,
    MAX_DEPTH,
    Split,
    Tree,
    concatenate_slices,
    concatenate_trees,
    iter_chunks,
    make_derived_columns,
    split_trees,
    take_slices,
)
from treekit.model.validation import check_forest, check_model, check_tree, check_trees

# ---------------------------------------------------------------- tree

SCHEMA = Schema(
    columns=(Column("age"), Column("colour", "nominal", ("red", "green", "blue"))),
    classes=("no", "yes"),
)
NUMBERS = Schema(columns=(Column("x"),), task="regression")


def every_kind() -> Tree:
    """Breadth order: 0 threshold, 1 subset, 2 multiway, 3 leaf, 4 missing, 5-9 leaves."""
    root = threshold(
        "age",
        2.5,
        subset(
            "colour",
            ["red"],
            leaf([1, 0]),
            is_missing("age", leaf([2, 0]), leaf([0, 3])),
            absent=["blue"],
        ),
        multiway(
            "colour", {"green": leaf([0, 1]), "red": leaf([4, 4]), "blue": leaf([1, 2])}, missing=1
        ),
        missing=0,
    )
    return build_tree(root, SCHEMA)


WIDE = Schema(
    columns=(Column("age"), Column("colour", "nominal", ("red", "green", "blue")), Column("size")),
    classes=("no", "yes"),
)


def with_terms_and_surrogates() -> Tree:
    """0 oblique, 1 threshold with two surrogates, 2-4 leaves."""
    instead = [Surrogate("size", 1.5, below=1), Surrogate("colour", levels={"red": 0, "blue": 1})]
    inner = threshold("age", 2.5, leaf([3, 0]), leaf([0, 2]), surrogates=instead)
    return build_tree(oblique({"size": -2.0, "age": 1.5}, 0.125, inner, leaf([1, 1])), WIDE)


def changed(tree: Tree, field: str, at, value) -> Tree:
    array = getattr(tree, field).copy()
    array[at] = value
    return replace(tree, **{field: array})


def chain(depth: int) -> Tree:
    node = leaf(0.0)
    for at in range(depth, 0, -1):
        node = threshold(0, float(at), leaf(float(at)), node)
    return build_tree(node, NUMBERS)


def slow_parents(tree: Tree) -> list[int]:
    parents = [-1] * tree.n_nodes
    for node in range(tree.n_nodes):
        for branch in range(tree.n_children[node]):
            parents[tree.first_child[node] + branch] = node
    return parents


def slow_depths(tree: Tree) -> list[int]:
    parents = slow_parents(tree)
    depths = [0] * tree.n_nodes
    for node in range(1, tree.n_nodes):
        depths[node] = depths[parents[node]] + 1
    return depths


def assert_same_tree(a: Tree, b: Tree) -> None:
    for name in FIELD_DTYPES:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_tree_built_by_hand_contains_every_kind_of_split():
    tree = every_kind()
    assert tree.kind.tolist() == [
        Split.THRESHOLD,
        Split.SUBSET,
        Split.MULTIWAY,
        Split.LEAF,
        Split.MISSING,
        *[Split.LEAF] * 5,
    ]
    assert tree.feature.tolist() == [0, 1, 1, -1, 0, -1, -1, -1, -1, -1]
    assert tree.first_child.tolist() == [1, 3, 5, -1, 8, -1, -1, -1, -1, -1]
    assert tree.n_children.tolist() == [2, 2, 3, 0, 2, 0, 0, 0, 0, 0]
    assert tree.missing.tolist() == [0, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert tree.branches(1).tolist() == [0, 1, -1]
    assert tree.branches(2).tolist() == [1, 0, 2]
    assert tree.branches(0).tolist() == []
    assert tree.leaves.tolist() == [3, 5, 6, 7, 8, 9]
    assert (tree.n_nodes, tree.n_leaves, tree.depth) == (10, 6, 3)


@pytest.mark.parametrize(
    ("highest", "dtype"), [(2, np.int8), (127, np.int8), (128, np.int16), (32_768, np.int32)]
)
def test_branches_have_the_smallest_sufficient_type(highest, dtype):
    given = [0, 1, -1, highest, 0, 2]
    for wide in (np.int16, np.int32, np.int64) if highest < 2**15 else (np.int32,):
        tree = replace(every_kind(), level_branch=np.array(given, wide))
        assert tree.level_branch.dtype == dtype
        assert tree.level_branch.tolist() == given


def test_inner_node_has_the_sum_of_its_leaf_values():
    tree = every_kind()
    assert tree.value[0].tolist() == [8, 10]
    assert tree.weight[0] == 18
    mean = build_tree(threshold("x", 0, leaf(2.0, weight=3), leaf(6.0, weight=1)), NUMBERS)
    assert mean.value[0].tolist() == [3.0]
    assert mean.weight[0] == 4


def test_the_arrays_of_a_tree_cannot_be_changed():
    tree = every_kind()
    for name in FIELD_DTYPES:
        with pytest.raises(ValueError, match="read-only"):
            getattr(tree, name)[:1] = 0


def test_with_value_does_not_change_the_original_tree():
    tree = every_kind()
    twice = tree.with_value(tree.value * 2)
    assert twice.value[0].tolist() == [16, 20]
    assert tree.value[0].tolist() == [8, 10]


MALFORMED = [
    ("kind", 3, Split.RULE + 1, "unknown kind"),
    ("kind", 3, 200, "unknown kind"),
    ("n_children", 3, 1, "leaf has children"),
    ("feature", 3, 0, "leaf has a split column"),
    ("n_children", 2, 0, "inner node has no children"),
    ("n_children", 2, -1, "inner node has no children"),
    ("n_children", 0, 3, "two-way split"),
    ("n_children", 0, 1, "two-way split"),
    ("first_child", 4, 4, "child does not come after its parent"),
    ("first_child", 4, 0, "child does not come after its parent"),
    ("first_child", 4, -1, "child does not come after its parent"),
    ("first_child", 4, 9, "child lies outside the tree"),
    ("first_child", 4, 2**31 - 1, "child lies outside the tree"),
    ("n_children", 2, 2**31 - 1, "child lies outside the tree"),
    ("first_child", 4, 7, "no parent or several"),
    ("first_child", 1, 5, "no parent or several"),
    ("n_children", 2, 2, "no parent or several"),
    ("missing", 0, 2, "missing values take an invalid branch"),
    ("missing", 2, 3, "missing values take an invalid branch"),
    ("missing", 1, -1, "missing values take an invalid branch"),
    ("feature", 0, 2, "a column that the schema does not have"),
    ("feature", 1, -1, "a column that the schema does not have"),
    ("threshold", 0, np.nan, "threshold is not finite"),
    ("threshold", 0, np.inf, "threshold is not finite"),
    ("threshold", 0, 0.1, "not a float32"),
    ("threshold", 0, 1e300, "not a float32"),
    ("feature", 0, 1, "threshold split uses a nominal column"),
    ("feature", 1, 0, "one branch entry for each category"),
    ("level_offsets", 1, 1, "one branch entry for each category"),
    ("level_offsets", 0, 1, "level_branch has shape"),
    ("level_offsets", -1, 7, "level_branch has shape"),
    ("level_offsets", -1, -1, "level_branch has shape"),
    ("level_branch", 0, 2, "a branch that does not exist"),
    ("level_branch", 3, 3, "a branch that does not exist"),
    ("level_branch", 0, -2, "a branch that does not exist"),
    ("value", (3, 0), np.nan, "node value is not finite"),
    ("value", (0, 1), np.inf, "node value is not finite"),
    ("value", (3, 0), -1, "class weight is negative"),
    ("weight", 3, -1, "node weight is negative"),
    ("weight", 3, np.nan, "node weight is negative or not finite"),
]


@pytest.mark.parametrize(("field", "at", "value", "words"), MALFORMED)
def test_a_malformed_tree_is_refused(field, at, value, words):
    tree = every_kind()
    check_tree(tree, SCHEMA)
    with pytest.raises(ModelError, match=words):
        check_tree(changed(tree, field, at, value), SCHEMA)
    with pytest.raises(ModelError, match=words):
        check_trees([tree, changed(tree, field, at, value), tree], SCHEMA)


@pytest.mark.parametrize("field", [name for name in FIELD_DTYPES if name != "kind"])
@pytest.mark.parametrize(
    ("tree", "schema"), [(every_kind(), SCHEMA), (with_terms_and_surrogates(), WIDE)]
)
def test_an_array_of_the_wrong_length_is_refused(field, tree, schema):
    array = getattr(tree, field)
    with pytest.raises(ModelError, match=field.partition("_")[0]):
        check_tree(
            replace(
                tree,
                **{
                    field: np.concatenate([array, array[:1] * 0, [0]])
                    if array.ndim == 1
                    else array[:-1]
                },
            ),
            schema,
        )


MALFORMED_WIDE = [
    ("kind", 0, Split.THRESHOLD, "only oblique splits have terms"),
    ("threshold", 0, np.inf, "threshold is not finite"),
    ("term_feature", 0, 2, "terms are not in column order"),
    ("term_feature", 1, 3, "a column that the schema does not have"),
    ("term_feature", 1, 1, "a term uses a nominal column"),
    ("feature", 0, 2, "is not that of its first term"),
    ("term_weight", 0, 0.0, "weight is 0"),
    ("term_weight", 0, 0.1, "not a float32"),
    ("term_weight", 0, np.nan, "not finite"),
    ("surrogate_offsets", 1, 1, "surrogates is not a threshold"),
    ("surrogate_feature", 0, 3, "a column that the schema does not have"),
    ("surrogate_feature", 0, 1, "threshold|branch entry"),
    ("surrogate_threshold", 0, 0.1, "not a float32"),
    ("surrogate_threshold", 0, np.nan, "not finite"),
    ("surrogate_below", 0, 2, "a surrogate has an invalid branch"),
    ("surrogate_level_branch", 0, 2, "a surrogate has an invalid branch"),
    ("surrogate_level_branch", 0, -2, "a surrogate has an invalid branch"),
]


@pytest.mark.parametrize(("field", "at", "value", "words"), MALFORMED_WIDE)
def test_malformed_terms_and_surrogates_are_refused(field, at, value, words):
    tree = with_terms_and_surrogates()
    check_tree(tree, WIDE)
    with pytest.raises(ModelError, match=words):
        check_tree(changed(tree, field, at, value), WIDE)


def test_an_oblique_split_needs_a_float32_model():
    schema = msgspec.structs.replace(WIDE, dtype="float64")
    with pytest.raises(ModelError, match="float32 model"):
        check_tree(with_terms_and_surrogates(), schema)


def test_surrogates_require_missing_surrogate():
    with pytest.raises(ModelError, match="missing='surrogate'"):
        make_model(WIDE, [with_terms_and_surrogates()])


def test_take_keeps_terms_and_surrogates_of_the_kept_nodes():
    tree = with_terms_and_surrogates()
    nodes = np.array([0, 1, 2, 3, 4])
    same = tree.take(nodes, np.zeros(5, dtype=bool))
    for name in FIELD_DTYPES:
        np.testing.assert_array_equal(getattr(same, name), getattr(tree, name))
    cut = tree.take(nodes[:3], np.array([False, True, False]))
    check_tree(cut, WIDE)
    assert cut.kind.tolist() == [Split.OBLIQUE, Split.LEAF, Split.LEAF]
    assert len(cut.surrogate_feature) == len(cut.surrogate_level_branch) == 0
    assert cut.term_weight.tolist() == [1.5, -2.0]


def test_take_may_replace_a_node_by_its_descendant():
    tree = with_terms_and_surrogates()
    raised = tree.take(np.array([0, 3, 4]), np.zeros(3, dtype=bool), np.array([1, 3, 4]))
    check_tree(raised, WIDE)
    assert raised.kind.tolist() == [Split.THRESHOLD, Split.LEAF, Split.LEAF]
    assert raised.surrogate_feature.tolist() == [2, 1]
    assert raised.first_child[0] == 1


def test_derived_columns_list_the_primary_split_before_surrogates():
    tree = with_terms_and_surrogates()
    model = make_model(WIDE, [tree, tree], missing="surrogate")
    derived = make_derived_columns(model)
    assert derived.n_columns == 4
    assert derived.column.tolist() == [0, 1, -1, -1, -1, 2, 3, -1, -1, -1]
    assert derived.test_start.tolist() == [0, 1, 4, 5, 8]
    assert derived.threshold[:3].tolist() == [0.125, 2.5, 1.5]
    assert derived.below[:4].tolist() == [0, 0, 1, 0]
    assert derived.term_start[:5].tolist() == [0, 2, 3, 4, 4]
    assert derived.term_feature[:4].tolist() == [0, 2, 0, 2]
    assert derived.term_weight[:4].tolist() == [1.5, -2.0, 1.0, 1.0]
    assert derived.level_feature[:4].tolist() == [-1, -1, -1, 1]
    assert derived.level_start[:5].tolist() == [0, 0, 0, 0, 3]
    assert derived.level_branch[:3].tolist() == [0, -1, 1]


def test_mass_bounds_are_proportional_to_branch_weights_without_gaps():
    tree = every_kind()
    bounds = compute_mass_bounds(tree)
    assert bounds[0].tolist() == [0, 2**24]
    for node in np.flatnonzero(tree.kind != Split.LEAF):
        children = slice(tree.first_child[node], tree.first_child[node] + tree.n_children[node])
        low, high = bounds[children].T
        assert [low[0], high[-1]] == [0, 2**24]
        np.testing.assert_array_equal(low[1:], high[:-1])
        share = tree.weight[children] / tree.weight[children].sum()
        assert np.abs((high - low) / 2**24 - share).max() < 2.0**-24


def test_values_of_another_number_of_classes_are_refused():
    tree = every_kind()
    with pytest.raises(ModelError, match=r"value has shape \(10, 3\), expected \(10, 2\)"):
        check_tree(tree.with_value(np.ones((10, 3))), SCHEMA)


def test_category_split_of_a_numeric_column_is_refused():
    schema = Schema(columns=(Column("age"),), classes=("no", "yes"))
    tree = build_tree(threshold("age", 1, leaf([1, 0]), leaf([0, 1])), schema)
    tree = changed(changed(tree, "kind", 0, Split.SUBSET), "threshold", 0, np.nan)
    with pytest.raises(ModelError, match="category split uses a numeric column"):
        check_tree(tree, schema)


def test_a_tree_without_nodes_is_refused():
    empty = {name: getattr(every_kind(), name)[:0] for name in FIELD_DTYPES}
    with pytest.raises(ModelError, match="at least one node"):
        check_tree(Tree(**empty), SCHEMA)


def test_double_threshold_is_accepted_for_float64_input():
    schema = Schema(columns=(Column("age"),), classes=("no", "yes"), dtype="float64")
    assert build_tree(threshold("age", 0.1, leaf([1, 0]), leaf([0, 1])), schema).n_leaves == 2


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (threshold("height", 1, leaf([1, 0]), leaf([0, 1])), "no column 'height'; columns: age"),
        (
            subset("colour", ["pink"], leaf([1, 0]), leaf([0, 1])),
            "'pink'.*not categories of column 'colour'",
        ),
        (leaf([1, 2, 3]), "3 values; the schema requires 2"),
        (leaf(1.0), "1 values; the schema requires 2"),
        (multiway("colour", {}), "inner node has no children"),
    ],
)
def test_a_hand_built_tree_that_does_not_fit_the_schema_is_refused(node, words):
    with pytest.raises(ModelError, match=words):
        build_tree(node, SCHEMA)


@pytest.mark.parametrize("depth", [900, MAX_DEPTH])
def test_deep_chains_are_built_checked_and_measured(depth):
    tree = chain(depth)
    assert tree.depth == depth
    assert tree.n_leaves == depth + 1
    assert tree.depths.tolist() == slow_depths(tree)
    assert tree.parent.tolist() == slow_parents(tree)


def test_a_tree_deeper_than_the_bound_is_refused():
    with pytest.raises(ModelError, match="deeper than 5000"):
        chain(MAX_DEPTH + 1)


@settings(max_examples=examples(50))
@given(models())
def test_parents_and_depths_equal_the_slow_ones(model):
    for tree in model.trees:
        assert tree.parent.tolist() == slow_parents(tree)
        assert tree.depths.tolist() == slow_depths(tree)
        assert tree.depth == max(slow_depths(tree))


@settings(max_examples=examples(50))
@given(models(max_trees=4))
def test_concatenated_trees_are_valid_and_split_into_the_same_trees(model):
    nodes, roots = concatenate_trees(model.trees)
    check_forest(nodes, roots, model.schema)
    assert roots.tolist()[-1] == model.n_nodes
    for a, b in zip(model.trees, split_trees(nodes, roots), strict=True):
        assert_same_tree(a, b)


@given(st.data())
def test_a_child_in_another_tree_is_refused(data):
    trees = [every_kind(), every_kind(), every_kind()]
    nodes, roots = concatenate_trees(trees)
    inner = data.draw(st.sampled_from(np.flatnonzero(nodes.kind != Split.LEAF).tolist()))
    elsewhere = data.draw(st.sampled_from([n for n in range(28) if n // 10 != inner // 10]))
    with pytest.raises(ModelError, match=r"parent|outside"):
        check_forest(changed(nodes, "first_child", inner, elsewhere), roots, SCHEMA)


def test_two_trees_that_swap_their_children_are_refused():
    schema = Schema(columns=(Column("x"),), classes=("a", "b"))
    one = build_tree(threshold(0, 0, leaf([1, 0]), leaf([0, 1])), schema)
    nodes, roots = concatenate_trees([one, one])
    with pytest.raises(ModelError, match="outside the tree"):
        check_forest(changed(nodes, "first_child", 0, 4), roots, schema)


@pytest.mark.parametrize("group", [1, 15, 10**6])
def test_trees_are_checked_in_groups_of_any_size(group, monkeypatch):
    monkeypatch.setattr(tree_module, "BATCH_NODES", group)
    tree, wrong = every_kind(), changed(every_kind(), "weight", 3, -1)
    check_trees([tree] * 5, SCHEMA)
    for at in range(5):
        with pytest.raises(ModelError, match="weight is negative"):
            check_trees([tree] * at + [wrong] + [tree] * (4 - at), SCHEMA)


def test_arrays_of_wrong_lengths_in_two_trees_are_refused():
    tree = every_kind()
    longer = replace(tree, weight=np.append(tree.weight, 1.0))
    shorter = replace(tree, weight=tree.weight[:-1])
    with pytest.raises(ModelError, match="weight has shape"):
        check_trees([longer, shorter], SCHEMA)


@pytest.mark.parametrize("roots", [[0], [0, 0, 10], [1, 10], [0, 9], [0, 11], [0, 5, 3, 10]])
def test_roots_that_do_not_cover_the_nodes_are_refused(roots):
    with pytest.raises(ModelError, match="at least one node"):
        check_forest(every_kind(), np.array(roots), SCHEMA)


def test_tree_units_are_stored_tree_after_tree():
    schema = Schema(columns=(Column("x"),), classes=("a", "b"))
    first = build_tree(threshold(0, 0, leaf([1, 0]), leaf([1, 3])), schema)
    model = make_model(schema, [first, build_tree(leaf([1, 1]), schema)])
    u = 2**23
    assert model.units.tolist() == [[u, 0], [u // 4, 3 * u // 4], [u // 2, u // 2]]
    assert model.leaf_offsets.tolist() == [0, 2, 3]
    assert model.tree_units(1).tolist() == [[u // 2, u // 2]]
    assert (model.n_trees, model.n_nodes, model.n_leaves, model.depth) == (2, 4, 3, 1)
    assert model.unit_total == 2**24


def test_models_and_trees_are_compared_by_identity():
    # Comparing arrays field by field has no truth value; a set must still work.
    tree = every_kind()
    model = make_model(SCHEMA, [tree])
    assert tree != every_kind()
    assert len({model, make_model(SCHEMA, [tree]), model}) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"missing": "guess"}, "unknown missing policy 'guess'"),
        ({"unknown": "guess"}, "unseen categories 'guess'"),
        ({"trees": []}, "at least one tree"),
        ({"trees": [build_tree(leaf([0, 0], weight=1), SCHEMA)]}, "not all zero"),
    ],
)
def test_inconsistent_model_arguments_are_refused(arguments, words):
    with pytest.raises(ModelError, match=words):
        make_model(**({"schema": SCHEMA, "trees": [every_kind()]} | arguments))


def test_empty_offset_arrays_are_shared_between_trees():
    stump = build_tree(threshold("age", 2.5, leaf([1, 0]), leaf([0, 1])), SCHEMA)
    starts = [stump.level_offsets, stump.term_offsets, stump.surrogate_offsets]
    own = replace(stump, level_offsets=np.zeros(4, np.int64)).level_offsets
    for start in [*starts, own]:
        assert start.tolist() == [0, 0, 0, 0]
        assert start.dtype == np.int64
        assert not start.flags.writeable
        assert np.shares_memory(start, starts[0])


# ---------------------------------------------------------------- level tables
# Branches of many levels: packed, checked, stored and read within the memory of what is made.

LEVELS = tuple(f"level {i}" for i in range(12_000))
LEVEL_TABLES_SCHEMA = Schema(columns=(Column("g", "nominal", LEVELS),), classes=("no", "yes"))


def many_levels(n_inner: int, seed: int, **more) -> Tree:
    """A complete tree, or nearly, of splits by 12,000 levels."""
    rng, n = np.random.default_rng(seed), 2 * n_inner + 1
    inner = np.arange(n) < n_inner
    fields = {
        "kind": np.where(inner, Split.SUBSET, Split.LEAF),
        "feature": np.where(inner, 0, -1),
        "threshold": np.full(n, np.nan),
        "first_child": np.where(inner, 2 * np.arange(n) + 1, -1),
        "n_children": np.where(inner, 2, 0),
        "missing": np.where(inner, rng.integers(0, 2, n), 0),
        "level_offsets": np.append(0, np.cumsum(np.where(inner, len(LEVELS), 0))),
        "level_branch": rng.integers(-1, 2, n_inner * len(LEVELS), dtype=np.int32),
        "value": rng.integers(1, 9, (n, 2)),
        "weight": np.ones(n),
        "gain": np.zeros(n),
    }
    return Tree(**(fields | more))


def peak_of(function) -> tuple[object, int]:
    """What a function returns, and the bytes that it took at most at a time."""
    function()  # what is imported meanwhile counts, too
    tracemalloc.start()
    result = function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, peak


@pytest.fixture(scope="module")
def model():
    """7.2 million branches of levels: 7 MB."""
    return make_model(LEVEL_TABLES_SCHEMA, [many_levels(200, seed) for seed in range(3)])


SPARE = 4_000_000
"""Bytes for what is worked on at once, whatever the size of the model."""


def test_packing_a_model_uses_little_extra_memory(model):
    packed, peak = peak_of(lambda: pack_model(model))
    assert packed.trees.table.nbytes == 3 * 200 * 12_001
    assert peak < packed.trees.table.nbytes + packed.trees.nodes.nbytes + SPARE


def test_exporting_packed_nodes_takes_less_memory_than_the_model(model):
    leaves = leaf_table(model.units)
    _, peak = peak_of(lambda: pack_nodes(model, leaves))
    assert peak < 3 * 200 * 12_001 * 9 // 8 + SPARE


def test_checking_a_model_uses_little_memory(model):
    _, peak = peak_of(lambda: check_model(model))
    assert peak < SPARE


def test_saving_and_loading_use_the_memory_of_file_and_model(model, tmp_path):
    path = tmp_path / "m.treekit"
    _, peak = peak_of(lambda: save(model, path))
    size = path.stat().st_size
    assert peak < 4 * size + SPARE
    loaded, peak = peak_of(lambda: load(path))
    branches = sum(tree.level_branch.nbytes for tree in model.trees)
    assert peak < size + branches + SPARE
    for mine, other in zip(model.trees, loaded.trees, strict=True):
        np.testing.assert_array_equal(mine.level_branch, other.level_branch)


def test_take_uses_the_memory_of_the_new_tree(model):
    tree = model.trees[0]
    nodes = np.arange(tree.n_nodes)
    same, peak = peak_of(lambda: tree.take(nodes, np.zeros(tree.n_nodes, np.bool_)))
    np.testing.assert_array_equal(same.level_branch, tree.level_branch)
    assert peak < tree.level_branch.nbytes + SPARE


@pytest.mark.parametrize("entry", [0, 70_000, 2_399_999])
@pytest.mark.parametrize("branch", [-2, 2, 256])  # 256 would be 0 in the type of the others
def test_invalid_branch_is_found_at_any_position(entry, branch):
    tree = many_levels(200, 0)
    wrong = tree.level_branch.astype(np.int32)
    wrong[entry] = branch
    with pytest.raises(ModelError, match="a category takes a branch that does not exist"):
        check_trees([many_levels(200, 0, level_branch=wrong)], LEVEL_TABLES_SCHEMA)


@pytest.mark.parametrize(
    ("missing", "n_branches"),
    [
        *(("direction", n) for n in (255, 256, 300)),
        ("fractional", 255),
        *(pytest.param("fractional", n, marks=pytest.mark.matrix) for n in (256, 300)),
    ],
)
def test_splits_of_more_branches_than_a_byte_counts_score_as_the_oracle(n_branches, missing):
    columns = (Column("g", "nominal", LEVELS[: n_branches + 2]),)
    schema = Schema(columns=columns, classes=("no", "yes"))
    parts = {LEVELS[i]: leaf([1 + i, 301 - i]) for i in range(n_branches)}
    model = make_model(schema, [build_tree(multiway("g", parts), schema)], missing=missing)
    rows = np.array([[0.0], [n_branches - 1], [n_branches], [np.nan], [254]], np.float32)
    width = 1 if n_branches <= 255 else 4
    assert pack_model(model).trees.table.itemsize == width
    expected = [evaluate.sums(model, row) for row in rows.tolist()]
    assert sum_leaf_values(model, rows).tolist() == [list(row) for row in expected]


def test_iter_chunks_bounds_the_total_size_of_a_chunk(monkeypatch):
    rng = np.random.default_rng(1)
    sizes = rng.integers(0, 5, 40)
    start = np.cumsum(np.append(0, sizes))
    array = rng.integers(0, 99, start[-1])
    owners = rng.permutation(40)
    monkeypatch.setattr("treekit.model.tree._CHUNK_ENTRIES", 4)
    expected = np.concatenate([array[start[i] : start[i + 1]] for i in owners])
    np.testing.assert_array_equal(concatenate_slices(array, start[owners], sizes[owners]), expected)
    np.testing.assert_array_equal(array[take_slices(start, owners)[0]], expected)
    parts = list(iter_chunks(sizes))
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(40))
    assert all(sizes[part].sum() <= 4 for part in parts)
    assert not list(iter_chunks(sizes[:0]))
