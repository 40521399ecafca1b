"""The handle for single rows says what `Model.predict` says, to the bit, and refuses alike."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.extremes import EXTREMES, extreme_rows, refused
from tests.tiers import by_size
from treekit.data.schema import Column, Schema
from treekit.errors import DataError, ModelError
from treekit.model.builder import Node, build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.model.scoring import decide, probabilities, sums


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
def test_a_row_alone_is_answered_as_in_a_table(name):
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
            sums(model, row[None])
        assert str(alone.value) == str(wanted.value)
    total = sums(model, rows[~wrong])
    answers = decide(model, total)
    assert [bits(score(row)) for row in rows[~wrong]] == [bits(own) for own in answers]
    if model.schema.task == "regression":
        with pytest.raises(ModelError, match="no class probabilities"):
            score.proba(np.zeros(model.schema.n_features, model.schema.dtype))
        return
    shares = probabilities(model, total)
    each = zip(*shares, strict=True) if isinstance(shares, list) else shares
    wanted = [bits(list(own)) if isinstance(own, tuple) else bits(own) for own in each]
    assert [bits(score.proba(row)) for row in rows[~wrong]] == wanted


def two_columns(**policies) -> Model:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    tree = threshold("x", 0.0, leaf([3, 1]), threshold("y", 1.0, leaf([1, 9]), leaf([1, 0])))
    return make_model(schema, [build_tree(tree, schema)], **policies)


def test_a_row_may_be_one_of_a_matrix_a_column_of_one_unaligned_or_read_only():
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
        ([0.0, 0.0], r"a plain array of float32, not list; use rows\(\)"),
        (np.zeros(2), "a plain array of float32, not ndarray of float64"),
        (np.zeros(2, np.int32), "not ndarray of int32"),
        (np.ma.zeros(2, np.float32), "not MaskedArray of float32"),
        (np.zeros(3, np.float32), r"shape \(3,\); the model needs \(2,\) or \(1, 2\)"),
        (np.zeros((2, 2), np.float32), r"shape \(2, 2\)"),
        (np.zeros((2, 1), np.float32), r"shape \(2, 1\)"),
        (np.float32(0), "not float32"),
    ],
)
def test_what_is_no_row_is_refused(row, words):
    score = two_columns().scorer()
    for ask in (score, score.proba):
        with pytest.raises(DataError, match=words):
            ask(row)


def test_a_handle_makes_rows_of_a_table_and_goes_to_another_process():
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
def test_nodes_of_64_bits_take_a_row_of_32():
    columns = range(20_000)
    schema = Schema(tuple(Column(f"x{i}") for i in columns), classes=(0, 1))
    model = make_model(schema, [build_tree(one_node_a_column(columns), schema)] * 2)
    assert model.packed.trees.nodes.dtype == np.uint64
    rows = np.random.default_rng(0).random((9, len(columns)), dtype=np.float32)
    score = model.scorer()
    assert [score(row) for row in rows] == decide(model, sums(model, rows)).tolist()


def test_many_threads_share_a_handle():
    model = two_columns()
    score = model.scorer()
    rows = np.random.default_rng(1).normal(size=(400, 2)).astype(np.float32)
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(score, rows))
    assert said == decide(model, sums(model, rows)).tolist()
