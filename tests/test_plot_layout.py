"""Tidy drawings: where nodes stand, and that it takes linear time."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.layout import tidy as slowly
from treekit.plot.layout import tidy


@st.composite
def shapes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """First child and number of children of each node of a tree of up to some 60 nodes."""
    first, count, at = [-1], [0], 0
    while at < len(first) and len(first) < 60:
        n = draw(st.sampled_from([0, 0, 1, 2, 2, 3, 5])) if at else draw(st.integers(0, 5))
        if n:
            first[at], count[at] = len(first), n
            first += [-1] * n
            count += [0] * n
        at += 1
    return first, count


@st.composite
def drawings(draw: st.DrawFn) -> tuple[list[int], list[int], list[float]]:
    first, count = draw(shapes())
    width = st.floats(1, 100, allow_subnormal=False)
    return first, count, draw(st.lists(width, min_size=len(first), max_size=len(first)))


def levels(first: list[int], count: list[int]) -> list[list[int]]:
    result, level = [], [0]
    while level:
        result.append(level)
        level = [c for v in level for c in range(first[v], first[v] + count[v])]
    return result


@given(drawings())
def test_nodes_stand_where_the_slow_way_puts_them(drawing):
    assert tidy(*drawing, 1.0, 3.0) == pytest.approx(slowly(*drawing, 1.0, 3.0), abs=1e-6)


@given(drawings())
def test_nodes_of_a_level_keep_their_order_and_their_distance(drawing):
    first, count, widths = drawing
    x = tidy(first, count, widths, 2.0)
    for level in levels(first, count):
        for a, b in itertools.pairwise(level):
            assert x[b] - x[a] >= (widths[a] + widths[b]) / 2 + 2.0 - 1e-6


@given(drawings())
def test_a_parent_stands_over_the_middle_of_its_children_and_nothing_left_of_zero(drawing):
    first, count, widths = drawing
    x = tidy(first, count, widths, 2.0)
    for node, n in enumerate(count):
        if n:
            assert x[node] == pytest.approx((x[first[node]] + x[first[node] + n - 1]) / 2)
    assert min(c - w / 2 for c, w in zip(x, widths, strict=True)) == pytest.approx(0, abs=1e-9)


@given(drawings())
def test_equal_subtrees_are_drawn_equally_wherever_they_hang(drawing):
    first, count, widths = drawing
    n = len(first)
    # Twice the same tree below one root: the levels of both stay side by side.
    order = [(node, copy) for level in levels(first, count) for copy in (0, 1) for node in level]
    place = {pair: at + 1 for at, pair in enumerate(order)}
    two_first = [1] + [place[first[v], c] if count[v] else -1 for v, c in order]
    two_count = [2] + [count[v] for v, _ in order]
    x = tidy(two_first, two_count, [1.0] + [widths[v] for v, _ in order], 2.0)
    for copy in (0, 1):
        shape = [x[place[v, copy]] - x[place[0, copy]] for v in range(n)]
        alone = tidy(first, count, widths, 2.0)
        assert shape == pytest.approx([a - alone[0] for a in alone], abs=1e-6)


def test_a_small_subtree_between_large_ones_shares_the_space():
    # Children 1 and 3 have wide subtrees; 2 stands in the middle, not beside its left sibling.
    first = [1, 4, -1, 7, -1, -1, -1, -1, -1, -1]
    count = [3, 3, 0, 3, 0, 0, 0, 0, 0, 0]
    x = tidy(first, count, [1.0] * 10, 1.0)
    assert x[2] == pytest.approx((x[1] + x[3]) / 2)
    assert x[4:] == pytest.approx([0.5, 2.5, 4.5, 6.5, 8.5, 10.5])


def test_a_chain_of_the_deepest_allowed_tree_is_drawn_without_recursion():
    depth = 5000
    first = [v + 1 if v % 2 == 0 and v < 2 * depth else -1 for v in range(2 * depth + 1)]
    count = [2 if f > 0 else 0 for f in first]
    x = tidy(first, count, [1.0] * len(first), 1.0)
    assert all(x[f + 1] - x[f] == pytest.approx(2.0) for f in first if f > 0)


class CountedList(list):
    """Counts how often an entry is read."""

    reads = 0

    def __getitem__(self, at):
        CountedList.reads += 1
        return super().__getitem__(at)


def comb(size: int, *, lean: int) -> list[int]:
    """First children where each node has a leaf and, on one side, the rest of the comb."""
    n = 2 * size + 1
    if lean:
        return [v + 1 if v % 2 == 0 and v < n - 1 else -1 for v in range(n)]
    return [1, *(v + 2 if v % 2 and v < n - 2 else -1 for v in range(1, n))]


def full(size: int) -> list[int]:
    """First children of a binary tree whose levels are all full."""
    return [2 * v + 1 if v < size else -1 for v in range(2 * size + 1)]


@pytest.mark.parametrize("shape", [lambda n: comb(n, lean=0), lambda n: comb(n, lean=1), full])
def test_the_work_grows_with_the_nodes_and_no_faster(shape):
    def reads(size: int) -> float:
        first = shape(size)
        CountedList.reads = 0
        tidy(first, CountedList(2 if f > 0 else 0 for f in first), [1.0] * len(first), 1.0)
        return CountedList.reads / size

    assert reads(4095) < 1.2 * reads(511)
