"""Linear algebra of small dense matrices, in one order of operations on every machine.

The results do not depend on a library of the machine, and the library of kernels needs none.
"""

from __future__ import annotations

import math

import numpy as np

from treekit.kernels.compile import kernel


@kernel
def sum_products(a, b):
    """Return the dot product of two (n,) float64 arrays, of four interleaved sums."""
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    n = np.uint64(len(a))
    whole = n - n % np.uint64(4)
    for i in range(np.uint64(0), whole, np.uint64(4)):
        first += a[i] * b[i]
        second += a[i + np.uint64(1)] * b[i + np.uint64(1)]
        third += a[i + np.uint64(2)] * b[i + np.uint64(2)]
        fourth += a[i + np.uint64(3)] * b[i + np.uint64(3)]
    for i in range(whole, n):
        first += a[i] * b[i]
    return (first + second) + (third + fourth)


@kernel
def multiply_by_vector(matrix, vector):
    """Return ``matrix @ vector``, (rows,) float64, of a C-contiguous matrix."""
    product = np.empty(len(matrix))
    for i in range(np.uint64(len(matrix))):
        product[i] = sum_products(matrix[i], vector)
    return product


@kernel
def compute_weighted_gram(rows, weights):
    """Return ``(rows * weights) @ rows.T``, (n, n) float64, of a C-contiguous (n, m) matrix."""
    n = np.uint64(len(rows))
    gram, weighted = np.empty((n, n)), np.empty(rows.shape[1])
    for a in range(n):
        for i in range(np.uint64(len(weighted))):
            weighted[i] = rows[a, i] * weights[i]
        for b in range(a + np.uint64(1)):
            gram[a, b] = gram[b, a] = sum_products(weighted, rows[b])
    return gram


@kernel
def solve(matrix, right):
    """Return the solution of ``matrix @ x = right``, (n,) float64.

    Gaussian elimination with partial pivoting (Golub and Van Loan 2013, *Matrix Computations*,
    section 3.4).  `matrix` (n, n) and `right` (n,), float64, are overwritten.  If a pivot is 0, the
    result is not finite.
    """
    n = np.uint64(len(matrix))
    one = np.uint64(1)
    for k in range(n):
        pivot = k
        for i in range(k + one, n):
            if abs(matrix[i, k]) > abs(matrix[pivot, k]):
                pivot = i
        for j in range(n):
            matrix[k, j], matrix[pivot, j] = matrix[pivot, j], matrix[k, j]
        right[k], right[pivot] = right[pivot], right[k]
        for i in range(k + one, n):
            factor = matrix[i, k] / matrix[k, k]
            for j in range(k, n):
                matrix[i, j] -= factor * matrix[k, j]
            right[i] -= factor * right[k]
    solution = np.empty(n)
    for step in range(n):
        i = n - one - step
        value = right[i]
        for j in range(i + one, n):
            value -= matrix[i, j] * solution[j]
        solution[i] = value / matrix[i, i]
    return solution


MAX_SWEEPS = 50
"""Maximum number of sweeps over all pairs; matrices of hundreds of rows take about ten."""


@kernel
def find_eigenvectors(matrix):
    """Return the unit eigenvectors of a symmetric matrix as rows, (n, n) float64.

    They are in descending order of their eigenvalues, and the entry of a row that is largest in
    absolute value is positive.  Cyclic Jacobi rotations (Golub and Van Loan 2013, section 8.5)
    overwrite `matrix`, (n, n) float64.
    """
    n, one = np.uint64(len(matrix)), np.uint64(1)
    vectors = np.zeros((n, n))
    for j in range(n):
        vectors[j, j] = 1.0
    for _ in range(MAX_SWEEPS):
        outside, inside = 0.0, 0.0
        for i in range(n):
            inside += matrix[i, i] * matrix[i, i]
            for j in range(i):
                outside += matrix[i, j] * matrix[i, j]
        if not outside > 1e-30 * inside:
            break
        for p in range(n):
            for q in range(p + one, n):
                _rotate(matrix, vectors, p, q)
    order = np.argsort(-np.diag(matrix), kind="mergesort")
    ordered = np.empty((n, n))
    for k in range(n):
        at, largest = np.uint64(order[k]), np.uint64(0)
        for j in range(n):
            if abs(vectors[at, j]) > abs(vectors[at, largest]):
                largest = j
        sign = -1.0 if vectors[at, largest] < 0.0 else 1.0
        for j in range(n):
            ordered[k, j] = sign * vectors[at, j]
    return ordered


@kernel
def _rotate(matrix, vectors, p, q):
    """Rotate rows and columns p and q, so that ``matrix[p, q]`` becomes 0."""
    if matrix[p, q] == 0.0:
        return
    theta = (matrix[q, q] - matrix[p, p]) / (2.0 * matrix[p, q])
    t = 1.0 / (abs(theta) + math.sqrt(theta * theta + 1.0))
    t = -t if theta < 0.0 else t
    c = 1.0 / math.sqrt(t * t + 1.0)
    s = t * c
    for j in range(np.uint64(len(matrix))):
        left, right = matrix[j, p], matrix[j, q]
        matrix[j, p], matrix[j, q] = c * left - s * right, s * left + c * right
    for j in range(np.uint64(len(matrix))):
        left, right = matrix[p, j], matrix[q, j]
        matrix[p, j], matrix[q, j] = c * left - s * right, s * left + c * right
        left, right = vectors[p, j], vectors[q, j]
        vectors[p, j], vectors[q, j] = c * left - s * right, s * left + c * right
    matrix[p, q] = matrix[q, p] = 0.0
