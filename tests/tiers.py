"""Marks for test parameters of the matrix tier."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

__all__ = ["LARGE", "by_size", "later"]

later = partial(pytest.param, marks=pytest.mark.matrix)
"""Test parameters run in the matrix tier only; others belong to the first tier."""

LARGE = frozenset({
    *("thousand_classes", "five_thousand_trees", "deep_right", "deep_left"),
    *("two_thousand_features", "many_levels_each"),
})  # fmt: skip
"""Slowest extreme models, with many nodes or columns."""


def by_size(cases: Iterable[Any]) -> list[Any]:
    """Mark the cases with a large model for the matrix tier.

    A case is the name of a model, or a tuple that starts with one.
    """
    return [
        pytest.param(*values, marks=pytest.mark.matrix) if values[0] in LARGE else case
        for case in cases
        for values in [case if isinstance(case, tuple) else (case,)]
    ]
