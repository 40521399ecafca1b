"""The direction in which the levels of a column differ most in their classes."""

from __future__ import annotations

import math

import numpy as np

from treekit.kernels.compile import inlined

__all__ = ["first_component"]

DIGITS = 2.0**24
"""Scores are kept to so many parts of the largest."""

ROUNDS = 30
"""Steps of the power iteration; where two components are as large, either will do."""


@inlined
def first_component(rows, count, scaled, keys):
    """Score of each level on the first principal component of their class shares.

    Levels in the order of these scores (Coppersmith, Hong and Hosking 1999,
    section 4) come close to the best subset of several classes.

    Parameters
    ----------
    rows : (levels, classes) float64
        Weights of the classes.
    count : int
        Levels.
    scaled : bool
        Divide the deviation of a class by the root of its overall share, as
        chi-squared does: closer for entropy; the plain one is for Gini.
    keys : (levels,) float64
        Receives the scores.

    Cost: levels x classes x `ROUNDS`, by the power iteration.
    """
    n, cells = np.uint64(count), np.uint64(rows.shape[1])
    apart = np.empty((count, rows.shape[1]))
    weights, mean = np.zeros(count), np.zeros(rows.shape[1])
    total = 0.0
    for i in range(n):
        for k in range(cells):
            weights[i] += rows[i, k]
            mean[k] += rows[i, k]
        total += weights[i]
    farthest, most = np.uint64(0), -1.0
    for i in range(n):
        distance = 0.0
        for k in range(cells):
            share = mean[k] / total
            apart[i, k] = 0.0
            if share > 0.0:
                apart[i, k] = rows[i, k] / weights[i] - share
                if scaled:
                    apart[i, k] /= math.sqrt(share)
            distance += apart[i, k] * apart[i, k]
        if weights[i] * distance > most * (1.0 + 1e-9):
            farthest, most = i, weights[i] * distance
    direction, turned = apart[farthest].copy(), np.empty(rows.shape[1])
    for _ in range(ROUNDS):
        for k in range(cells):
            turned[k] = 0.0
        for i in range(n):
            along = 0.0
            for k in range(cells):
                along += apart[i, k] * direction[k]
            for k in range(cells):
                turned[k] += weights[i] * along * apart[i, k]
        largest = 0.0
        for k in range(cells):
            largest = max(largest, abs(turned[k]))
        if largest == 0.0:
            break  # all levels alike
        for k in range(cells):
            direction[k] = turned[k] / largest
    largest = 0.0
    for i in range(n):
        keys[i] = 0.0
        for k in range(cells):
            keys[i] += apart[i, k] * direction[k]
        largest = max(largest, abs(keys[i]))
    if largest > 0.0:
        for i in range(n):  # scores that differ by rounding are equal
            keys[i] = np.rint(keys[i] / largest * DIGITS)
