"""Simulated experiment with known true effects.

The design of `sim_pte` of the R package uplift (Guelman 2014), written after its
documentation; it follows L. Tian, A. Alizadeh, A. Gentles and R. Tibshirani, "A simple
method for detecting interactions between a treatment and a large number of covariates",
arXiv:1212.2995, 2012.
"""

import math

import numpy as np

__all__ = ["simulate"]


def simulate(rows=1000, columns=20, correlation=0.0, noise=2**0.5, main=4.0, seed=0):
    """Simulate an experiment on normal columns, four of which change the treatment effect.

    ``y = [sum(b_j X_j) + T sum(g_j X_j) + noise * e > 0]`` with T = -1 or 1 (treated),
    g = (1/2, -1/2, 1/2, -1/2, 0, ...) and ``b_j = (-1)**(j + 1) / main`` for j from 3 to 10.

    Parameters
    ----------
    rows, columns : int
        At least ten columns.
    correlation : float
        Correlation of any two columns, from 0 to 1.
    noise : float
        Standard deviation of the error.
    main : float
        The larger, the smaller the main effects of the columns.
    seed : int

    Returns
    -------
    table : dict
        ``X1`` ..., ``treat`` ("control" or "treated") and ``y`` (0 or 1).
    effect : (rows,) float64
        True effect of the treatment on the probability of y.
    """
    rng = np.random.default_rng(seed)
    shared, own = rng.normal(size=(rows, 1)), rng.normal(size=(rows, columns))
    x = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own
    j = np.arange(1, columns + 1)
    moved = np.where(j <= 4, -0.5 * (-1.0) ** j, 0.0)
    base = np.where((j >= 3) & (j <= 10), -((-1.0) ** j) / main, 0.0)
    treated = rng.permutation(np.arange(rows) % 2 == 1)
    always, often = x @ base, x @ moved
    y = always + np.where(treated, often, -often) + noise * rng.normal(size=rows) > 0
    table = {f"X{k}": x[:, k - 1] for k in j}
    table |= {"treat": np.where(treated, "treated", "control"), "y": y.astype(int)}
    return table, _normal((always + often) / noise) - _normal((always - often) / noise)


def _normal(z):
    """Compute the standard normal distribution function."""
    return np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in z.tolist()])
