"""Sparse matrices train and predict as the dense matrices of the same cells."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import treekit
from treekit import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreesClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from treekit.data import sparse as sparse_columns
from treekit.data.features import find_loss
from treekit.data.sparse import SparseColumns
from treekit.data.table import read_table

FORMATS = (sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array, sparse.csc_array)


def make_sparse(rows: int = 300, columns: int = 40) -> tuple[Any, Any]:
    """Return a CSR matrix with missing and negative cells, and a target that depends on it."""
    x = sparse.random(rows, columns, density=0.1, format="csr", random_state=0)
    x.data = (x.data * 2 - 1).astype(np.float32)
    x.data[::17] = np.nan
    dense = np.nan_to_num(x.toarray())
    return x, dense[:, :8].sum(axis=1) + 0.3 * dense[:, 8]


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeClassifier(random_state=0),
        DecisionTreeRegressor(random_state=0),
        RandomForestClassifier(5, random_state=0, oob_score=True),
        pytest.param(RandomForestRegressor(5, random_state=0), marks=pytest.mark.matrix),
        pytest.param(ExtraTreesClassifier(5, random_state=0), marks=pytest.mark.matrix),
        pytest.param(
            DecisionTreeClassifier(splitter="histogram", random_state=0), marks=pytest.mark.matrix
        ),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("ignore:.*in the bag of every tree:treekit.TreekitWarning")
def test_sparse_and_dense_matrix_train_and_predict_equally(
    estimator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = make_sparse()
    y = y > 0 if "Classifier" in type(estimator).__name__ else y
    monkeypatch.setattr(sparse_columns, "_BLOCK_CELLS", 40 * 70)  # several blocks of rows
    own = estimator.fit(x, y)
    nodes, said = own.apply(x), own.predict(x)
    digest = own.model_.provenance["training_table"]
    for form in FORMATS:
        assert np.array_equal(own.predict(form(x)), said)
    assert np.array_equal(own.predict(x.toarray()), said)
    dense = estimator.fit(x.toarray(), y)
    assert dense.model_.provenance["training_table"] == digest
    assert np.array_equal(dense.apply(x.toarray()), nodes)
    assert np.array_equal(dense.predict(x), said)


@given(
    st.lists(
        st.lists(
            st.sampled_from([0.0, 0.0, -0.0, 1.0, -2.5, np.nan, 1e-40]), min_size=3, max_size=3
        ),
        min_size=1,
        max_size=8,
    )
)
def test_sparse_columns_have_the_cells_of_the_dense_matrix(rows: list[list[float]]) -> None:
    dense = np.array(rows)
    columns = SparseColumns(sparse.coo_matrix(dense))
    assert len(columns) == 3
    for j in range(3):
        np.testing.assert_array_equal(columns[j], dense[:, j])
    np.testing.assert_array_equal(columns[-1], dense[:, 2])
    np.testing.assert_array_equal(columns.take([0])[0], dense[:1, 0])
    parts = [part.to_dense() for _, part in columns.iterate_blocks()]
    np.testing.assert_array_equal(np.concatenate(parts), dense)


def test_duplicate_entries_of_a_sparse_matrix_are_summed() -> None:
    twice = sparse.csc_matrix(([1.0, 2.0, 4.0], [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    assert SparseColumns(twice)[0].tolist() == [3.0, 0.0]


@given(st.lists(st.floats(width=64, allow_nan=False, allow_infinity=False), max_size=12))
def test_repeated_zeros_do_not_change_the_choice_of_float32(values: list[float]) -> None:
    few = np.array([*values, 0.0])
    assert find_loss(few) == find_loss(np.append(few, np.zeros(40)))


def test_predicting_a_sparse_matrix_uses_little_memory() -> None:
    x = sparse.random(200, 3000, density=0.01, format="csr", random_state=0)
    model = DecisionTreeClassifier(max_depth=3).fit(x, np.arange(200) % 2)
    tall = sparse.vstack([x] * 100, format="csr")
    tracemalloc.start()
    model.predict(tall)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < tall.shape[0] * tall.shape[1] * 4 / 2  # half of the dense matrix of float32


def test_invalid_sparse_matrices_are_refused() -> None:
    x, y = make_sparse()
    model = DecisionTreeClassifier().fit(x, y > 0)
    with pytest.raises(ValueError, match="X has 39 features, but DecisionTreeClassifier"):
        model.predict(x[:, :39])
    wrong = x.copy()
    wrong.data[5] = np.inf
    with pytest.raises(treekit.DataError, match="infinite in row"):
        DecisionTreeClassifier().fit(wrong, y > 0)
    with pytest.raises(treekit.DataError, match=r"shape \(0, 4\) is not a table"):
        read_table(sparse.csr_matrix((0, 4)))
    with pytest.raises(ValueError, match="contains NaN"):
        DecisionTreeClassifier(missing="error").fit(x, y > 0)
