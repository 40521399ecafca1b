"""Bins found by counting keys in partitions equal those found by sorting the column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from treekit.data.binning import encode_columns
from treekit.distributed.bins_by_counting import BinSearch, assign_codes, count_digits, decode_keys

SPECIAL = [0.0, -0.0, 1e-45, -1e-45, 5e-324, np.nan, 3.4e38, -3.4e38]


def find_bins(parts: list[Any], weights: list[Any], dtype: Any, max_bins: int) -> tuple[Any, ...]:
    """Return the codes of all rows, and the least and the largest value of each bin."""
    search = BinSearch(dtype, max_bins)
    while search.shift is not None:
        search.add_counts(
            [
                count_digits(part, own, max_bins, search.prefixes, search.shift)
                for part, own in zip(parts, weights, strict=True)
            ]
        )
    codes = [np.empty(len(part), np.uint8) for part in parts]
    lowest = [
        assign_codes(part, own, search.high, code)
        for part, own, code in zip(parts, weights, codes, strict=True)
    ]
    low = decode_keys(np.min(lowest, axis=0), dtype)
    return np.concatenate(codes), low, decode_keys(search.high, dtype)


@settings(max_examples=examples(150), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n_rows=st.integers(1, 700),
    n_values=st.sampled_from([1, 2, 5, 30, 254, 255, 256, 1000]),
    max_bins=st.sampled_from([2, 3, 7, 30, 254, 255]),
    dtype=st.sampled_from([np.float32, np.float64]),
    scale=st.sampled_from([1.0, 1e-42, 1e30]),
    heavy=st.booleans(),
    weighted=st.booleans(),
    special=st.booleans(),
)
def test_bins_by_counting_equal_bins_by_sorting(
    seed: int, n_rows: int, n_values: int, max_bins: int, dtype: Any, scale: float, heavy: bool,
    weighted: bool, special: bool,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    values = rng.normal(size=n_values) * scale
    if special:
        values = np.append(values, SPECIAL)
    column = rng.choice(values, n_rows).astype(dtype)
    if heavy:  # a value heavier than a bin, often the largest
        column[rng.random(n_rows) < 0.6] = rng.choice([column[0], np.fmax.reduce(column)])
    weights = rng.integers(0, 4, n_rows).astype(float) if weighted else None
    expected = encode_columns(
        [column], np.array([0]), np.array([False]), "histogram", max_bins=max_bins, weights=weights
    )
    parts = np.split(np.arange(n_rows), np.sort(rng.integers(0, n_rows + 1, 3)))
    own = [None if weights is None else weights[part] for part in parts]
    codes, low, high = find_bins([column[part] for part in parts], own, dtype, max_bins)
    np.testing.assert_array_equal(codes, expected.codes[0])
    np.testing.assert_array_equal(low, expected.low)
    np.testing.assert_array_equal(high, expected.high)


@pytest.mark.parametrize("max_bins", [2, 255])
def test_a_column_without_values_has_no_bins(max_bins: int) -> None:
    column = np.full(5, np.nan, np.float32)
    codes, low, high = find_bins([column[:2], column[2:]], [None, None], np.float32, max_bins)
    assert (codes.tolist(), len(low), len(high)) == ([0] * 5, 0, 0)
