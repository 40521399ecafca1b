"""Statistics of a node's rows by code: every way against plain sums."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import pytest

from treekit.kernels.compile import Compiled, Linked
from treekit.kernels.node_statistics import CODE_OF, lanes_of, tally


@nb.njit(error_model="numpy")
def tallied(  # type: ignore[no-untyped-def]
    codes, first, step, n_codes, ids, cells, values, s, weight, work, words, counts, flat, lanes,
    sums,
):  # fmt: skip
    """`tally` as a search calls it: the codes present, and the width of lanes."""
    width = lanes_of(cells, values, np.uint64(len(ids)), np.uint64(s), weight, lanes)
    count = tally(
        codes, first, step, n_codes, ids, cells, values, np.uint64(s), work, words, counts, flat,
        width, lanes, sums,
    )  # fmt: skip
    return count, width


class Memory:
    """Working memory of one size, used time and again as a tree does."""

    def __init__(self, rows: int, codes: int, cells: int) -> None:
        self.work = np.empty((4, max(rows, 256) + 2), np.uint32)
        self.words = np.empty(max(2 * (codes // 64 + 1), 64), np.uint64)
        self.counts = np.empty(2050, np.uint32)
        self.flat = np.full((max(rows, 256) + 2) * cells, np.nan)
        self.lanes = np.empty(rows, np.uint64)
        self.packed = np.zeros(256, np.uint64)


def by_code(codes: Any, rows: Any) -> dict[int, list[float]]:
    """The oracle: a sum of rows for each code, in plain Python."""
    sums: dict[int, list[float]] = {}
    for code, row in zip(codes.tolist(), rows.tolist(), strict=True):
        own = sums.setdefault(code, [0.0] * len(row))
        for k, value in enumerate(row):
            own[k] += value
    return dict(sorted(sums.items()))


SIZES = (2, 3, 8, 9, 17, 60, 500, 700, 2500)
SPREADS = (1, 2, 7, 200, 255, 3_000, 60_000)


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32])
@pytest.mark.parametrize("kind", ["whole", "parts", "numbers"])
def test_every_way_adds_up_what_plain_sums_do(dtype: Any, kind: str) -> None:
    rng = np.random.default_rng(5)
    many, widths, ranges = 9_000, set(), set()
    for cells in (2, 3, 7) if kind != "numbers" else (2, 4):
        for spread in SPREADS:
            n_codes = min(spread, 255) if dtype == np.uint8 else spread
            memory = Memory(max(SIZES), n_codes, cells)
            table = rng.integers(0, n_codes + 1, (many, 3)).astype(dtype)
            column = table[:, 1]  # among others, down its column or along the lines
            for m in SIZES:
                ids = np.sort(rng.permutation(many)[:m]).astype(np.uint32)
                whole = rng.integers(1, 4, m).astype(float)
                if kind == "numbers":
                    own = np.empty(0, np.uint32)
                    values = np.column_stack([whole, rng.integers(-9, 9, (m, cells - 1)) / 8.0])
                    rows = values
                else:
                    own = rng.integers(0, cells, m).astype(np.uint32)
                    values = (whole if kind == "whole" else whole / 4.0)[:, None]
                    rows = np.zeros((m, cells))
                    rows[np.arange(m), own] = values[:, 0]
                place = (table.ravel(), 1, 3) if m % 2 else (table.T.ravel(), many, 1)
                count, width = tallied(
                    place[0], np.uint64(place[1]), np.uint64(place[2]), np.uint32(n_codes),
                    ids, own, values, cells, rows.sum(), memory.work,
                    memory.words, memory.counts, memory.flat, memory.lanes, memory.packed,
                )  # fmt: skip
                wanted = by_code(column[ids], rows)
                assert memory.work[CODE_OF, :count].tolist() == list(wanted)
                if count > 1:  # nobody needs statistics of a constant column
                    got = memory.flat[: count * cells].reshape(count, cells)
                    assert got.tolist() == list(wanted.values())
                assert not memory.packed.any()
                widths.add(int(width))
                ranges.add(count)
    assert len(ranges) > 20
    assert (max(widths) > 0) == (kind == "whole")
    assert 0 in widths or kind == "whole"


@pytest.mark.matrix
def test_lanes_are_left_where_a_sum_would_not_fit_one() -> None:
    for cells, bits in ((2, 32), (3, 21), (7, 9), (10, 6)):
        for weight, fits in ((2.0**bits - 1.0, True), (2.0**bits, False)):
            values = np.array([[weight - 1.0], [1.0]])
            own = np.array([0, cells - 1], np.uint32)
            memory = Memory(2, 255, cells)
            column = np.array([3, 4], np.uint8)
            count, width = tallied(
                column, np.uint64(0), np.uint64(1), np.uint32(255), np.arange(2, dtype=np.uint32),
                own, values, cells, weight, memory.work, memory.words, memory.counts,
                memory.flat, memory.lanes,
                memory.packed,
            )  # fmt: skip
            assert (width > 0) == fits
            assert count == 2
            assert memory.flat[0] == weight - 1.0
            assert memory.flat[2 * cells - 1] == 1.0


def test_a_loop_that_was_unrolled_once_may_be_unrolled_where_it_is_called() -> None:
    def squares(stats):  # type: ignore[no-untyped-def]
        total = 0.0
        for k in range(stats.shape[0]):
            total += stats[k] * stats[k]
        return total

    vector = nb.float64[::1]
    for kind, banned in ((Compiled, True), (Linked, False)):
        dispatcher: Any = kind(squares)
        dispatcher.compile((vector,))
        linked = dispatcher.overloads[(vector,)].library._get_module_for_linking()
        assert (", !llvm.loop !" in str(linked)) == banned
        assert dispatcher(np.array([1.0, 2.0])) == 5.0
