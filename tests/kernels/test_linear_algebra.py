"""Small dense matrices: the results of numpy, to rounding."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from treekit.kernels.linear_algebra import (
    compute_weighted_gram,
    find_eigenvectors,
    multiply_by_vector,
    solve,
    sum_products,
)

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(0, 40))
def test_sums_of_products_equal_numpy(seed: int, n: int) -> None:
    a, b = np.random.default_rng(seed).normal(size=(2, n))
    assert np.isclose(sum_products(a, b), a @ b, rtol=0, atol=1e-12 * (1 + np.abs(a) @ np.abs(b)))


@given(SEEDS, st.integers(1, 6), st.integers(1, 30))
def test_matrix_products_equal_numpy(seed: int, n: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    rows, weights, vector = rng.normal(size=(n, m)), rng.random(m), rng.normal(size=m)
    assert np.allclose(multiply_by_vector(rows, vector), rows @ vector, atol=1e-12)
    gram = compute_weighted_gram(rows, weights)
    assert np.allclose(gram, (rows * weights) @ rows.T, atol=1e-12)
    assert (gram == gram.T).all()


@given(SEEDS, st.integers(1, 8))
def test_linear_systems_are_solved_as_by_numpy(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, right = rng.normal(size=(n, n)) + np.eye(n) * rng.integers(0, 3), rng.normal(size=n)
    found = solve(matrix.copy(), right.copy())
    scale = np.abs(found).max() * np.linalg.cond(matrix)
    assert np.allclose(found, np.linalg.solve(matrix, right), rtol=0, atol=1e-13 * n * scale)


def test_zero_pivots_are_exchanged_and_singular_systems_are_not_finite() -> None:
    swapped = np.array([[0.0, 2.0], [1.0, 0.0]])
    assert solve(swapped, np.array([2.0, 3.0])).tolist() == [3.0, 1.0]
    assert not np.isfinite(solve(np.ones((2, 2)), np.array([1.0, 2.0]))).all()


@given(SEEDS, st.integers(1, 12), st.integers(1, 12))
def test_eigenvectors_equal_numpy(seed: int, n: int, rank: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(n, rank))
    matrix = rows @ rows.T
    values = np.sort(np.linalg.eigvalsh(matrix))[::-1]
    found = find_eigenvectors(matrix.copy())
    assert np.allclose(found @ found.T, np.eye(n), atol=1e-10)
    assert np.allclose(found @ matrix, values[:, None] * found, atol=1e-9 * (1 + values[0]))
    largest = np.abs(found).argmax(axis=1)
    assert (found[np.arange(n), largest] > 0.0).all()


def test_eigenvectors_of_a_diagonal_matrix_are_axes_in_descending_order() -> None:
    found = find_eigenvectors(np.diag([1.0, 3.0, 2.0]))
    assert found.tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
