"""Checks of the bytes of CSV files: the same for pieces of any length."""

from __future__ import annotations

import re
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from treekit.data.csv_files import _TextChecks

CELLS = [
    "0",
    "-0",
    "7",
    "-7.0",
    "2.50",
    "-01",
    "007",
    "+1",
    "1e5",
    "a0",
    "1-01",
    "0.125",
    " 3",
    "x.0",
]
ODD = re.compile(r"[+-]?0[0-9].*|\+[0-9.].*|.*[0-9][eE][0-9].*|.*\.[0-9]+0")


@given(
    rows=st.lists(st.lists(st.sampled_from(CELLS), min_size=2, max_size=2)),
    piece=st.integers(1, 20),
)
def test_text_checks_are_equal_for_any_piece_size(rows, piece):
    checks = _TextChecks(",")
    with mock.patch("treekit.data.csv_files._PIECE", piece):
        checks.look_at_numbers("".join(f"{a},{b}\n" for a, b in rows).encode())
    cells = [cell for row in rows for cell in row]
    assert checks.has_odd_numbers == any(map(ODD.fullmatch, cells))
    if not checks.has_odd_numbers:
        assert checks.has_padding == (" 3" in cells)
        assert checks.n_point_zero == sum(cell.endswith(".0") for cell in cells)
