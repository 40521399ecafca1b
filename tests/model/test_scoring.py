"""The compiled scorer equals the slow oracle in every bit for every kind of tree."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.extremes import EXTREMES, extreme_rows, refused
from tests.reference import evaluate
from tests.strategies import ALL_KINDS, matrices, models
from tests.tiers import by_size
from treekit.data.schema import Column, Schema
from treekit.errors import DataError, ModelError
from treekit.kernels.feature_codes import GROUP_SIZE
from treekit.model import scoring as scorer
from treekit.model.builder import (
    Node,
    Surrogate,
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    subset,
    threshold,
)
from treekit.model.model import Model, make_model
from treekit.model.scoring import compute_probabilities, predict_from_sums, sum_leaf_values
from treekit.model.tree import Split, Tree

# ---------------------------------------------------------------- predict

SLOW = settings(
    deadline=None,
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
NAN = math.nan


def oracle_sums(model: Model, matrix: np.ndarray) -> np.ndarray:
    rows = [evaluate.sums(model, row) for row in matrix.tolist()]
    return np.array(rows, dtype=np.int64).reshape(len(matrix), model.schema.n_values)


def mixed_model(**policies) -> Model:
    schema = Schema(
        columns=(Column("age"), Column("colour", "nominal", ("red", "green", "blue"))),
        classes=("no", "yes"),
    )
    first = threshold(
        "age",
        30.5,
        subset("colour", ["red"], leaf([3, 1]), leaf([0, 2]), missing=0, absent=["blue"]),
        multiway("colour", {"green": leaf([5, 0]), "red": leaf([1, 1])}, missing=1),
        missing=0,
    )
    second = is_missing("age", leaf([1, 8]), leaf([2, 3]))
    return make_model(schema, [build_tree(t, schema) for t in (first, second)], **policies)


def random_tree(rng: np.random.Generator, schema: Schema, n_inner: int) -> Tree:
    """An irregular tree of threshold and missing-or-not splits, in breadth order."""
    n = 2 * n_inner + 1
    kind = np.zeros(n, dtype=np.uint8)
    open_leaves, first_child = [0], np.full(n, -1)
    for made in range(n_inner):
        # A child comes after its parent because nodes are numbered as they are opened.
        chosen = int(rng.integers(len(open_leaves)))
        open_leaves[chosen], open_leaves[-1] = open_leaves[-1], open_leaves[chosen]
        node = open_leaves.pop()
        kind[node] = Split.MISSING if rng.random() < 0.1 else Split.THRESHOLD
        first_child[node] = 2 * made + 1
        open_leaves += [2 * made + 1, 2 * made + 2]
    inner, at = kind != Split.LEAF, kind == Split.THRESHOLD
    draw = rng.normal(size=n).astype(np.float32).astype(np.float64)
    return Tree(
        kind=kind,
        feature=np.where(inner, rng.integers(0, schema.n_features, n), -1),
        threshold=np.where(at, draw, np.nan),
        first_child=first_child,
        n_children=np.where(inner, 2, 0),
        missing=np.where(at, rng.integers(0, 2, n), 0),
        level_offsets=np.zeros(n + 1),
        level_branch=np.zeros(0),
        value=rng.integers(1, 9, (n, schema.n_values)),
        weight=np.ones(n),
        gain=np.zeros(n),
    )


def numeric_schema(n_features: int, dtype: str = "float32", n_classes: int = 3) -> Schema:
    columns = tuple(Column(f"x{i}") for i in range(n_features))
    return Schema(columns=columns, classes=tuple(range(n_classes)), dtype=dtype)


def random_matrix(rng: np.random.Generator, n: int, n_features: int) -> np.ndarray:
    matrix = rng.normal(size=(n, n_features)).astype(np.float32)
    matrix[rng.random(matrix.shape) < 0.2] = np.nan
    return matrix


@SLOW
@given(st.data())
def test_sums_of_any_model_equal_the_oracles(data):
    model = data.draw(models(kinds=ALL_KINDS))
    matrix = data.draw(matrices(model))
    expected = oracle_sums(model, matrix)
    np.testing.assert_array_equal(scorer.sum_leaf_values(model, matrix), expected)
    # More than a group of rows.
    many = np.repeat(matrix, GROUP_SIZE, axis=0)
    np.testing.assert_array_equal(
        scorer.sum_leaf_values(model, many), np.repeat(expected, GROUP_SIZE, axis=0)
    )


@SLOW
@given(st.data())
def test_predictions_of_any_model_equal_the_oracle(data):
    model = data.draw(models(kinds=ALL_KINDS))
    matrix = data.draw(matrices(model))
    schema = model.schema
    sums = scorer.sum_leaf_values(model, matrix)
    answers = (
        scorer.predict_from_sums(model, sums).reshape(len(matrix), len(schema.outputs)).tolist()
    )
    expected = [evaluate.predict(model, row) for row in matrix.tolist()]
    expected = expected if schema.more else [[answer] for answer in expected]
    if schema.task == "regression":
        assert answers == expected
        return
    classes = [output.classes for output in schema.outputs]
    assert answers == [[c[k] for c, k in zip(classes, ks, strict=True)] for ks in expected]
    found = scorer.compute_probabilities(model, sums)
    found = np.concatenate(found, axis=1) if schema.more else found
    assert found.tolist() == [evaluate.probabilities(model, row) for row in matrix.tolist()]


@SLOW
@given(st.data())
def test_leaf_indices_equal_the_oracle(data):
    model = data.draw(models(kinds=ALL_KINDS))
    matrix = data.draw(matrices(model))
    found = scorer.leaf_indices(model, matrix)
    rows = [
        [
            int(np.searchsorted(tree.leaves, node)) + int(offset)
            for tree, node, offset in zip(model.trees, nodes, model.leaf_offsets, strict=False)
        ]
        for nodes in found
    ]
    assert rows == [evaluate.leaf_rows(model, row) for row in matrix.tolist()]
    assert all(
        tree.kind[node] == Split.LEAF
        for ns in found
        for tree, node in zip(model.trees, ns, strict=True)
    )


def test_oblique_sums_are_doubles_and_undefined_sums_take_the_missing_branch():
    schema = numeric_schema(2, n_classes=2)
    for side in (0, 1):
        root = oblique({0: 1.0, 1: -1.0}, 2.0**-40, leaf([1, 0]), leaf([0, 1]), side)
        model = make_model(schema, [build_tree(root, schema)])
        rows = [[1.0, 1.0], [2.0**-40, 0.0], [2.0**-39, 0.0], [np.inf, 1.0], [1.0, np.inf]]
        rows += [[np.inf, np.inf], [NAN, 1.0], [1.0, NAN]]
        expected = [0, 0, 1, 1, 0, side, side, side]
        found = scorer.predict_from_sums(
            model, scorer.sum_leaf_values(model, np.array(rows))
        ).tolist()
        assert found == expected


def test_first_surrogate_with_a_known_value_decides():
    schema = Schema(
        (Column("a"), Column("b"), Column("c", "nominal", ("x", "y", "z"))), classes=("no", "yes")
    )
    others = [Surrogate("c", levels={"x": 0, "y": 1}), Surrogate("b", at=5.0, below=1)]
    root = threshold("a", 1.0, leaf([1, 0]), leaf([0, 1]), 1, others)
    model = make_model(schema, [build_tree(root, schema)], missing="surrogate")
    rows = [[1, 9, 1], [NAN, 9, 1], [NAN, 1, 0], [NAN, 5, 2], [NAN, 6, NAN], [NAN, NAN, 2]]
    found = scorer.predict_from_sums(model, scorer.sum_leaf_values(model, np.array(rows)))
    assert found.tolist() == ["no", "yes", "no", "yes", "no", "yes"]


def test_fractional_instances_are_split_in_proportion_to_branch_weights():
    schema = Schema((Column("c", "nominal", ("x", "y", "z")), Column("n")), classes=("no", "yes"))
    below = threshold("n", 0.5, leaf([3, 0]), leaf([0, 1]))
    root = multiway("c", {"x": below, "y": leaf([0, 4])})
    model = make_model(schema, [build_tree(root, schema)], missing="fractional")
    rows = np.array([[NAN, 0.0], [NAN, NAN], [2.0, 1.0], [0.0, NAN], [1.0, NAN]])
    shares = scorer.compute_probabilities(model, scorer.sum_leaf_values(model, rows))
    assert shares[:, 0].tolist() == [0.5, 0.375, 0.0, 0.75, 0.0]
    assert scorer.leaf_indices(model, rows)[:, 0].tolist() == [2, 2, 2, 3, 2]


def test_leaf_index_of_equal_fractions_is_the_first_leaf():
    schema = numeric_schema(2, n_classes=2)
    below = threshold(1, 0.0, leaf([2, 0]), leaf([0, 2]))
    root = threshold(0, 0.0, below, is_missing(1, leaf([3, 1]), leaf([1, 1])))
    model = make_model(schema, [build_tree(root, schema)], missing="fractional")
    rows = np.array([[NAN, NAN], [NAN, 1.0], [0.0, NAN]])
    # Breadth first, the leaves are 3 and 4 to the left, 5 and 6 to the right.
    masses = [evaluate.leaf_masses(model, row) for row in rows.tolist()]
    assert masses[2] == {0: 2**23, 1: 2**23}
    assert scorer.leaf_indices(model, rows)[:, 0].tolist() == [5, 6, 3]


def test_the_label_of_least_expected_cost_may_have_few_votes():
    schema = numeric_schema(1, n_classes=2)
    root = threshold(0, 0.0, leaf([9, 1]), leaf([99, 1]))
    model = make_model(schema, [build_tree(root, schema)], costs=[[0, 1], [20, 0]])
    sums = scorer.sum_leaf_values(model, np.array([[0.0], [1.0]]))
    assert scorer.predict_from_sums(model, sums).tolist() == [1, 0]
    assert scorer.compute_probabilities(model, sums)[:, 1] == pytest.approx([0.1, 0.01], abs=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_rows", [1, 7, 8, 9, 255, 256, 257, 600])
def test_every_block_size_and_remainder_equals_the_oracle(dtype, n_rows):
    rng = np.random.default_rng(n_rows)
    schema = numeric_schema(5, dtype)
    model = make_model(schema, [random_tree(rng, schema, n) for n in (0, 1, 40, 90, 3)])
    matrix = random_matrix(rng, n_rows, 5).astype(dtype)
    np.testing.assert_array_equal(scorer.sum_leaf_values(model, matrix), oracle_sums(model, matrix))


def test_threads_do_not_change_the_sums_or_the_leaves():
    rng = np.random.default_rng(0)
    schema = numeric_schema(6)
    model = make_model(schema, [random_tree(rng, schema, 50) for _ in range(5)])
    matrix = random_matrix(rng, 3000, 6)
    alone = scorer.sum_leaf_values(model, matrix)
    np.testing.assert_array_equal(scorer.sum_leaf_values(model, matrix, n_threads=3), alone)
    np.testing.assert_array_equal(
        scorer.leaf_indices(model, matrix, n_threads=3), scorer.leaf_indices(model, matrix)
    )


@pytest.mark.matrix
def test_forest_larger_than_the_cache_equals_the_oracle():
    rng = np.random.default_rng(1)
    schema = numeric_schema(4)
    model = make_model(schema, [random_tree(rng, schema, 80_000) for _ in range(2)])
    assert model.packed[0].nodes.nbytes > 1 << 20
    matrix = random_matrix(rng, 300, 4)
    np.testing.assert_array_equal(scorer.sum_leaf_values(model, matrix), oracle_sums(model, matrix))


def test_wide_nodes_for_many_columns_and_children_equal_the_oracle():
    rng = np.random.default_rng(2)
    schema = numeric_schema(20_000)
    model = make_model(schema, [random_tree(rng, schema, 40_000)])
    assert model.packed[0].nodes.dtype == np.uint64
    matrix = random_matrix(rng, 12, 20_000)
    np.testing.assert_array_equal(scorer.sum_leaf_values(model, matrix), oracle_sums(model, matrix))


@pytest.mark.parametrize("depth", [900, pytest.param(5000, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("n_rows", [3, 40])
def test_deep_chains_equal_the_oracle(depth, n_rows):
    schema = numeric_schema(1, n_classes=2)
    node = leaf([0, 1])
    for at in range(depth, 0, -1):
        node = threshold(0, float(at), leaf([at, 1]), node)
    model = make_model(schema, [build_tree(node, schema)])
    matrix = np.linspace(-1, depth + 2, n_rows).reshape(-1, 1)
    matrix[0] = np.nan
    np.testing.assert_array_equal(scorer.sum_leaf_values(model, matrix), oracle_sums(model, matrix))


def test_inputs_are_rounded_to_the_models_type_first():
    schema = numeric_schema(1, n_classes=2)
    model = make_model(schema, [build_tree(threshold(0, 1.0, leaf([1, 0]), leaf([0, 1])), schema)])
    just_above = np.array([[1.0 + 1e-12], [1e300], [-1e300]])
    assert scorer.predict_from_sums(model, scorer.sum_leaf_values(model, just_above)).tolist() == [
        0,
        1,
        0,
    ]


def test_strided_and_transposed_matrices_are_scored_like_copies():
    rng = np.random.default_rng(3)
    schema = numeric_schema(3)
    model = make_model(schema, [random_tree(rng, schema, 20)])
    wide = random_matrix(rng, 40, 6)
    view = wide[::2, ::2]
    expected = scorer.sum_leaf_values(model, view.copy())
    np.testing.assert_array_equal(scorer.sum_leaf_values(model, view), expected)
    np.testing.assert_array_equal(scorer.sum_leaf_values(model, np.asfortranarray(view)), expected)


def test_no_rows_give_no_sums():
    model = mixed_model()
    assert scorer.sum_leaf_values(model, np.empty((0, 2), np.float32)).shape == (0, 2)
    assert scorer.leaf_indices(model, np.empty((0, 2), np.float32)).shape == (0, 2)


@pytest.mark.matrix  # kernels for arrays that may not be written are compiled for it alone
def test_read_only_matrices_are_scored():
    matrix = np.zeros((20, 2), np.float32)
    matrix.flags.writeable = False
    assert scorer.sum_leaf_values(mixed_model(), matrix).shape == (20, 2)


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.zeros((3, 3), np.float32), r"\(3, 3\).*\(rows, 2\)"),
        (np.zeros(2, np.float32), r"\(2,\)"),
        (np.zeros((3, 2), np.int64), "float32 or float64"),
        ([[1.0, 2.0]], "float32 or float64"),
    ],
)
def test_a_matrix_of_the_wrong_shape_or_type_is_refused(matrix, words):
    with pytest.raises(DataError, match=words):
        scorer.sum_leaf_values(mixed_model(), matrix)


def test_n_threads_0_is_refused():
    with pytest.raises(DataError, match="n_threads is 0"):
        scorer.sum_leaf_values(mixed_model(), np.zeros((3, 2)), n_threads=0)


@pytest.mark.parametrize(
    ("policies", "row", "words"),
    [
        ({"missing": "error"}, [NAN, 0], "row 1: column 'age' is missing"),
        ({"missing": "error"}, [1, NAN], "row 1: column 'colour' is missing"),
        ({"missing": "error"}, [1, 7], "row 1: column 'colour' is missing"),
        ({"unknown": "error"}, [1, 3], "row 1: 3.0 is not a code of column 'colour'"),
        ({"unknown": "error"}, [1, 0.5], "row 1: 0.5 is not a code"),
        ({"unknown": "error"}, [1, -1], "row 1: -1.0 is not a code"),
    ],
)
def test_error_policies_name_the_row_and_column(policies, row, words):
    model = mixed_model(**policies)
    matrix = np.array([[1.0, 0.0], row])
    with pytest.raises(evaluate.Refused):
        evaluate.sums(model, row)
    with pytest.raises(DataError, match=words):
        scorer.sum_leaf_values(model, matrix)


def test_unknown_error_accepts_missing_values():
    model = mixed_model(unknown="error")
    matrix = np.array([[NAN, NAN], [1.0, 2.0]])
    np.testing.assert_array_equal(scorer.sum_leaf_values(model, matrix), oracle_sums(model, matrix))


def test_equal_votes_predict_the_first_class_in_schema_order():
    schema = Schema(columns=(Column("x"),), classes=("z", "a", "m"))
    model = make_model(schema, [build_tree(leaf(w), schema) for w in ([0, 1, 0], [0, 0, 1])])
    assert scorer.predict_from_sums(
        model, scorer.sum_leaf_values(model, np.zeros((1, 1)))
    ).tolist() == ["a"]


@pytest.mark.parametrize(
    "classes",
    [
        (False, True),
        (3, -1),
        (2**70, -1),
        (2**63, -1),
        (0.5, -0.0),
        ("no", "yes"),
        ("ends in NUL\0", "b"),
        ("好", "🎉"),
    ],
)
def test_predicted_labels_keep_value_and_type(classes):
    schema = Schema(columns=(Column("x"),), classes=classes)
    tree = build_tree(threshold(0, 0.0, leaf([1, 0]), leaf([0, 1])), schema)
    model = make_model(schema, [tree])
    labels = scorer.predict_from_sums(
        model, scorer.sum_leaf_values(model, np.array([[0.0], [1.0]]))
    ).tolist()
    assert labels == list(classes)
    assert [type(label) for label in labels] == [type(label) for label in classes]


def test_a_regression_model_has_no_probabilities():
    schema = Schema(columns=(Column("x"),), task="regression")
    model = make_model(schema, [build_tree(leaf(2.5), schema)])
    with pytest.raises(ModelError, match="no class probabilities"):
        scorer.compute_probabilities(model, np.zeros((1, 1), np.int64))


def test_tables_are_encoded_and_scored():
    model = mixed_model()
    table = {"colour": ["blue", None, "violet"], "age": [30.0, None, 99.0]}
    codes = np.array([[30.0, 2], [NAN, NAN], [99.0, NAN]])
    assert (
        model.predict(table).tolist()
        == scorer.predict_from_sums(model, oracle_sums(model, codes)).tolist()
    )
    np.testing.assert_array_equal(
        model.predict_proba(table), oracle_sums(model, codes) / model.unit_total
    )


# ---------------------------------------------------------------- scorer
# The handle for single rows says what `Model.predict` says, to the bit, and refuses alike.


def bits(answer) -> list:
    """An answer that may be compared: numbers by their bits, labels with their types."""
    if isinstance(answer, list):
        return [bits(own) for own in answer]
    if isinstance(answer, np.ndarray) and answer.dtype == np.float64:
        return answer.view(np.int64).tolist()
    answer = answer.tolist() if isinstance(answer, (np.ndarray, np.generic)) else answer
    if isinstance(answer, float):
        return np.float64(answer).view(np.int64).item()
    return answer


@pytest.mark.parametrize("name", by_size(EXTREMES))
def test_a_single_row_is_predicted_as_in_a_table(name):
    model = EXTREMES[name]()
    score = model.scorer()
    with np.errstate(over="ignore"):
        rows = extreme_rows(model, most=40).astype(model.schema.dtype)
    rows = rows[np.random.default_rng(0).permutation(len(rows))[:40]]
    wrong = refused(model, rows)
    for row in rows[wrong]:
        with pytest.raises(DataError) as alone:
            score(row)
        with pytest.raises(DataError) as wanted:
            sum_leaf_values(model, row[None])
        assert str(alone.value) == str(wanted.value)
    total = sum_leaf_values(model, rows[~wrong])
    answers = predict_from_sums(model, total)
    assert [bits(score(row)) for row in rows[~wrong]] == [bits(own) for own in answers]
    if model.schema.task == "regression":
        with pytest.raises(ModelError, match="no class probabilities"):
            score.proba(np.zeros(model.schema.n_features, model.schema.dtype))
        return
    shares = compute_probabilities(model, total)
    each = zip(*shares, strict=True) if isinstance(shares, list) else shares
    wanted = [bits(list(own)) if isinstance(own, tuple) else bits(own) for own in each]
    assert [bits(score.proba(row)) for row in rows[~wrong]] == wanted


def two_columns(**policies) -> Model:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    tree = threshold("x", 0.0, leaf([3, 1]), threshold("y", 1.0, leaf([1, 9]), leaf([1, 0])))
    return make_model(schema, [build_tree(tree, schema)], **policies)


def test_scorer_accepts_rows_of_any_memory_layout():
    score = two_columns().scorer()
    row = np.array([1.0, 0.5], np.float32)
    frozen = row.copy()
    frozen.flags.writeable = False
    strided = np.zeros((2, 3), np.float32)
    strided[:, 1] = row
    shifted = np.frombuffer(b"\0" + row.tobytes(), np.float32, offset=1)
    for same in (row, row[None], frozen, strided[:, 1], np.asfortranarray(row[None]), shifted):
        assert score(same) == "yes"
        assert bits(score.proba(same)) == bits(score.proba(row))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([0.0, 0.0], r"a plain array of float32, got list; encode a table with rows\(\)"),
        (np.zeros(2), "a plain array of float32, got ndarray of float64"),
        (np.zeros(2, np.int32), "got ndarray of int32"),
        (np.ma.zeros(2, np.float32), "got MaskedArray of float32"),
        (np.zeros(3, np.float32), r"shape \(3,\); the model requires \(2,\) or \(1, 2\)"),
        (np.zeros((2, 2), np.float32), r"shape \(2, 2\)"),
        (np.zeros((2, 1), np.float32), r"shape \(2, 1\)"),
        (np.float32(0), "got float32"),
    ],
)
def test_invalid_rows_are_refused(row, words):
    score = two_columns().scorer()
    for ask in (score, score.proba):
        with pytest.raises(DataError, match=words):
            ask(row)


def test_scorer_encodes_tables_and_is_pickled():
    colour = Column("colour", "nominal", ("blue", "red"))
    schema = Schema((Column("x"), colour), classes=("no", "yes"))
    tree = threshold("x", 0.0, leaf([3, 1]), subset("colour", ["red"], leaf([1, 9]), leaf([1, 0])))
    model = make_model(schema, [build_tree(tree, schema)])
    table = {"colour": ["red", None, "green", "blue"], "x": [1.0, 2.0, 0.0, np.nan]}
    score = pickle.loads(pickle.dumps(model.scorer()))
    rows = score.rows(table)
    assert rows.dtype == score.dtype == np.float32
    assert [score(row) for row in rows] == model.predict(table).tolist()
    assert repr(score) == "<Scorer of rows (2,) of float32>"


def one_node_a_column(columns: range) -> Node:
    if not columns:
        return leaf([1, 1])
    middle = len(columns) // 2
    low, high = one_node_a_column(columns[:middle]), one_node_a_column(columns[middle + 1 :])
    if len(columns) == 1:
        low, high = leaf([columns[0] % 5, 1]), leaf([1, columns[0] % 3])
    return threshold(columns[middle], 0.5, low, high)


@pytest.mark.matrix
def test_scorer_with_64_bit_nodes_accepts_float32_rows():
    columns = range(20_000)
    schema = Schema(tuple(Column(f"x{i}") for i in columns), classes=(0, 1))
    model = make_model(schema, [build_tree(one_node_a_column(columns), schema)] * 2)
    assert model.packed.trees.nodes.dtype == np.uint64
    rows = np.random.default_rng(0).random((9, len(columns)), dtype=np.float32)
    score = model.scorer()
    assert [score(row) for row in rows] == predict_from_sums(
        model, sum_leaf_values(model, rows)
    ).tolist()


def test_many_threads_share_a_scorer():
    model = two_columns()
    score = model.scorer()
    rows = np.random.default_rng(1).normal(size=(400, 2)).astype(np.float32)
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(score, rows))
    assert said == predict_from_sums(model, sum_leaf_values(model, rows)).tolist()
