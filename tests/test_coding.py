"""Columns as codes: the kernels give what sorting lists gives, whatever the values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.examples import examples
from tests.reference.coding import code_column
from tests.test_kernel_style import signed_in
from treekit.data import binning as matrix
from treekit.data import out_of_core as room
from treekit.data.binning import make_table
from treekit.kernels import feature_codes as kernels

FEW = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, -2.5, 1e-45, -1e-45, 3e38, -3e38, np.nan])
CELLS = st.one_of(FEW, st.floats(allow_infinity=False, width=32))
WEIGHTS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])


@st.composite
def tables(draw):
    """A numeric column of each type, and weights or none."""
    n = draw(st.integers(1, 60))
    columns = [draw(hnp.arrays(dtype, n, elements=CELLS)) for dtype in (np.float32, np.float64)]
    weights = draw(st.none() | hnp.arrays(np.float64, n, elements=WEIGHTS))
    return columns, weights


@given(tables(), st.none() | st.integers(2, 255))
@settings(max_examples=examples(150))
def test_codes_and_their_values_are_those_of_sorted_lists(table, max_bins):
    columns, weights = table
    if max_bins is not None and weights is None and max_bins < 20:
        columns = [np.concatenate([column, column + 1]) for column in columns]
    coding = "exact" if max_bins is None else "histogram"
    coded = make_table(
        columns, np.zeros(2, np.int64), np.zeros(2, bool), coding,
        max_bins=max_bins or 255, weights=weights,
    )  # fmt: skip
    for f, column in enumerate(columns):
        own = None if weights is None else weights.tolist()
        codes, low, high = code_column(column.astype(float).tolist(), max_bins, own)
        start, n = coded.value_start[f], coded.n_codes[f]
        assert coded.codes[f].tolist() == codes
        assert coded.low[start : start + n].tolist() == low
        assert coded.high[start : start + n].tolist() == high


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("coding", ["exact", "histogram"])
def test_long_columns_are_coded_alike_by_any_number_of_threads(dtype, coding):
    rng = np.random.default_rng(0)
    columns = [
        rng.normal(size=3000).astype(dtype),
        np.exp(20 * rng.normal(size=3000)).astype(dtype)[::-1],
        np.where(rng.random(3000) < 0.3, np.nan, rng.integers(-300, 300, 3000)).astype(dtype),
        rng.integers(-1, 400, 3000).astype(np.int32),
    ]
    n_levels, nominal = np.array([0, 0, 0, 400]), np.array([False, False, False, True])
    one, two = (make_table(columns, n_levels, nominal, coding, n_jobs=jobs) for jobs in (1, 2))
    for a, b in zip(one, two, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    for f, column in enumerate(columns[:3]):
        expected = code_column(column.astype(float).tolist(), 255 if coding != "exact" else None)
        assert one.codes[f].tolist() == expected[0]
    assert one.codes[3].tolist() == np.where(columns[3] < 0, 400, columns[3]).tolist()
    assert one.codes.dtype == np.uint32


def test_read_only_and_strided_columns_need_no_other_kernel():
    wide = np.arange(12.0).reshape(4, 3)
    wide.flags.writeable = False
    seen = []
    for columns in ([column.copy() for column in wide.T], list(wide.T)):
        coded = make_table(columns, np.zeros(3, np.int64), np.zeros(3, bool), "histogram")
        assert coded.codes.tolist() == [[0, 1, 2, 3]] * 3
        seen.append(len(kernels.sort_keys.overloads))
    assert seen[0] == seen[1]


def test_codes_that_memory_cannot_hold_lie_in_a_file(monkeypatch):
    columns = [np.arange(300.0), np.arange(300.0) % 7]
    arguments = (columns, np.zeros(2, np.int64), np.zeros(2, bool), "exact")
    inside = make_table(*arguments)
    monkeypatch.setattr(room, "_free_memory", lambda: 600)
    mapped = make_table(*arguments)
    assert isinstance(mapped.codes.base, np.memmap)
    assert not isinstance(inside.codes.base, np.memmap)
    np.testing.assert_array_equal(inside.codes, mapped.codes)


@pytest.mark.matrix
def test_subscripts_of_the_coding_kernels_are_unsigned():
    columns = [np.arange(5, dtype=np.float32), np.arange(5.0)]
    for coding in ("exact", "histogram"):
        make_table(columns, np.zeros(2, np.int64), np.zeros(2, bool), coding)
    found, checked = signed_in(kernels)
    assert not found
    assert checked
    assert matrix.MAX_BINS == 255
