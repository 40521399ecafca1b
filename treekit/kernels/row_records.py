"""Rows of a growing tree as records: codes of all columns, then the statistics of the row.

Splitting a node moves whole records, so that the rows of a node lie side by side: a pass over
one of its columns reads memory in order, and needs no row numbers.

A record begins with the row's codes, a byte each, and the number of its class.  A short record
has the row's weight as one more byte; a long one has the row's statistics as doubles.  Records
are padded to a multiple of `RECORD_WORDS` words of 8 bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import inlined, kernel, llvm_inlined
from treekit.kernels.function_pointers import borrow_arrays, copy_words
from treekit.kernels.partition_rows import assign_branches
from treekit.kernels.records import Rows

RECORD_WORDS = 4
"""Records are padded to a multiple of this number of words, which are moved at once."""

MAX_RECORD_WORDS = 32
"""Number of words up to which moving records is faster than moving row numbers."""

MAX_LANE_WEIGHT = 2.0**31
"""Weight of a node above which it has no lanes; see `treekit.kernels.node_statistics`."""

NO_RECORDS, PLAIN, SHORT, LONG = range(4)
"""Forms of records: none, row numbers move; short, class and weight are a byte each; long.

Those of `PLAIN` are short, of a plain table, and weigh less than `MAX_LANE_WEIGHT` in all.
"""

FORM, STEP, CELL, FIRST_VALUE, N_WORDS = range(5)
"""Places in a layout: form; bytes of a record; place of its cell, and of its first double; words.
"""


class Records(NamedTuple):
    """Records of the rows of one tree; the first three arrays share memory.

    Attributes
    ----------
    words : (rows * words of a record,) uint64
    codes : uint8
    values : float64
    spare : like `words`
        Working memory.
    layout : (5,) uint64
        `FORM`, `STEP`, `CELL`, `FIRST_VALUE`, `N_WORDS`.
    """

    words: npt.NDArray[np.uint64]
    codes: npt.NDArray[np.uint8]
    values: npt.NDArray[np.float64]
    spare: npt.NDArray[np.uint64]
    layout: npt.NDArray[np.uint64]


class RecordTable(NamedTuple):
    """Codes of all rows of a table, row by row, from which trees copy their records.

    Attributes
    ----------
    words : (rows, words) uint64
    n_columns : int
    is_plain : bool
        Whether every split is a cut that is scored in a batch; see `treekit.grow.recipe.Recipe`.
    """

    words: npt.NDArray[np.uint64]
    n_columns: int
    is_plain: bool


def allocate_words(n_rows: int, n_words: int) -> npt.NDArray[np.uint64]:
    """Return uninitialised (rows, words) that begin at a cache line."""
    room = np.empty(n_rows * n_words + 8, np.uint64)
    start = (-room.ctypes.data % 64) // 8
    return room[start : start + n_rows * n_words].reshape(n_rows, n_words)


def _pad(n_bytes: int) -> int:
    """Return the number of words of a record of at least `n_bytes`."""
    return -(-n_bytes // (8 * RECORD_WORDS)) * RECORD_WORDS


def count_record_bytes(n_columns: int, n_values: int) -> int:
    """Return the bytes of a long record."""
    return 8 * _pad(8 * (-(-(n_columns + 1) // 8) + n_values))


def make_record_table(codes: npt.NDArray[np.uint8], is_plain: bool) -> RecordTable | None:
    """Return the records of a code matrix (columns, rows); None if they would be too long."""
    n_columns, n_rows = codes.shape
    n_words = _pad(n_columns + 2)
    if n_words > MAX_RECORD_WORDS:
        return None
    words = allocate_words(n_rows, n_words)
    places = words.view(np.uint8)
    for first in range(0, n_rows, _BLOCK_ROWS):  # blocks of rows that fit into the cache
        block = slice(first, first + _BLOCK_ROWS)
        places[block, :n_columns] = codes[:, block].T
        places[block, n_columns:] = 0
    return RecordTable(words, n_columns, is_plain)


_BLOCK_ROWS = 2048
_LARGEST = 255


def gather_records(table: RecordTable, rows: Rows) -> Records:
    """Return the records of rows of a table.

    They are short if rows have classes and their weights are integers from 0 to 255.
    """
    ids, cells, values = rows
    n_columns = table.n_columns
    first_value = -(-(n_columns + 1) // 8)
    n_words, form = _pad(8 * (first_value + values.shape[1])), LONG
    if len(cells) and _are_short(values[:, 0]):
        is_plain = table.is_plain and values.sum() < MAX_LANE_WEIGHT
        n_words, form = table.words.shape[1], PLAIN if is_plain else SHORT
    words, spare = (allocate_words(len(ids), n_words).reshape(-1) for _ in range(2))
    layout = np.array([form, 8 * n_words, n_columns, first_value, n_words], np.uint64)
    records = Records(words, words.view(np.uint8), words.view(np.float64), spare, layout)
    fill_records(records, table.words, ids, cells, values)
    return records


@kernel
def _are_short(weights):
    """Check whether all weights are integers from 0 to 255."""
    are_short = True
    for i in range(np.uint64(len(weights))):
        weight = weights[i]
        are_short &= (weight >= 0.0) & (weight <= _LARGEST) & (np.floor(weight) == weight)
    return are_short


@inlined
def read_layout(layout):
    """Return the numbers of a layout."""
    return (
        layout[np.uint64(FORM)], layout[np.uint64(STEP)], layout[np.uint64(CELL)],
        layout[np.uint64(FIRST_VALUE)], layout[np.uint64(N_WORDS)],
    )  # fmt: skip


@kernel
def fill_records(records, table, ids, cells, values):
    """Fill records by the rows `ids` of a record table, their cells and their statistics."""
    form, step, cell, first_value, n_words = read_layout(records.layout)
    one = np.uint64(1)
    common = min(n_words, np.uint64(table.shape[1]))
    for i in range(np.uint64(len(ids))):
        row, at = np.uint64(ids[i]), i * n_words
        for w in range(common):
            records.words[at + w] = table[row, w]
        if len(cells) > 0:
            records.codes[i * step + cell] = cells[i]
        if form == np.uint64(LONG):
            for k in range(np.uint64(values.shape[1])):
                records.values[at + first_value + k] = values[i, k]
        else:
            records.codes[i * step + cell + one] = np.uint64(values[i, np.uint64(0)])


@llvm_inlined
def unpack_records(records, begin, end, cells, values):
    """Write cells and statistics of records[begin:end] to the same places of `cells`, `values`."""
    records = borrow_arrays(records)
    form, step, cell, first_value, n_words = read_layout(records.layout)
    codes, doubles = records.codes, records.values
    zero, one, has_cells = np.uint64(0), np.uint64(1), len(cells) > 0
    if form == np.uint64(PLAIN):
        return
    at = np.uint64(begin) * step + cell
    if form == np.uint64(SHORT):
        for i in range(np.uint64(begin), np.uint64(end)):
            cells[i] = codes[at]
            values[i, zero] = codes[at + one]
            at += step
        return
    for i in range(np.uint64(begin), np.uint64(end)):
        if has_cells:
            cells[i] = codes[at]
            at += step
        for k in range(np.uint64(values.shape[1])):
            values[i, k] = doubles[i * n_words + first_value + k]


@llvm_inlined
def sum_records(records, begin, end, n_values, has_cells, stats):
    """Sum the statistics of records[begin:end] into `stats`; return their weight."""
    records = borrow_arrays(records)
    form, step, cell, first_value, n_words = read_layout(records.layout)
    codes, doubles = records.codes, records.values
    zero, one, s = np.uint64(0), np.uint64(1), np.uint64(len(stats))
    for k in range(s):
        stats[k] = 0.0
    at = np.uint64(begin) * step + cell
    if form != np.uint64(LONG):
        if s == np.uint64(2):
            whole, second = np.int64(0), np.int64(0)
            for _ in range(np.uint64(end - begin)):
                row_weight = np.int64(codes[at + one])
                whole += row_weight
                second += row_weight * np.int64(codes[at])
                at += step
            stats[zero], stats[one] = np.float64(whole - second), np.float64(second)
            return np.float64(whole)
        for _ in range(np.uint64(end - begin)):
            stats[np.uint64(codes[at])] += np.float64(codes[at + one])
            at += step
    else:
        place = np.uint64(begin) * n_words + first_value
        for _ in range(np.uint64(end - begin)):
            if has_cells:
                stats[np.uint64(codes[at])] += doubles[place]
                at += step
            else:
                for k in range(np.uint64(n_values)):
                    stats[k] += doubles[place + k]
            place += n_words
    if not has_cells:
        return stats[zero]
    weight = 0.0
    for k in range(s):
        weight += stats[k]
    return weight


# ---------------------------------------------------------------- partition


@llvm_inlined
def partition_records(route, branches, records, ids, begin, end, branch_of, offsets):
    """Reorder records[begin:end] by branch; as `treekit.kernels.partition_rows.partition_rows`.

    The column of `route` is one of the records, and `ids` are the numbers from 0 on.
    """
    route, records = borrow_arrays(route), borrow_arrays(records)
    if branches == 2:
        _partition_in_two(route, records, begin, end, offsets)
        return
    assign_branches(route, route.missing, ids, begin, end, branch_of)
    _distribute_records(records, branch_of, branches, begin, end, offsets)


@inlined
def _partition_in_two(route, records, begin, end, offsets):
    """Move left records down in place and right ones through `spare`, branch-free."""
    codes, first, step, n_codes = route.column
    levels, words, spare = route.levels, records.words, records.spare
    size = records.layout[np.uint64(N_WORDS)]
    zero, m = np.uint64(0), np.uint64(end - begin)
    at, source = first + np.uint64(begin) * step, np.uint64(begin) * size
    left, right = source, zero
    if len(levels) > 0:
        for _ in range(m):
            code = np.int64(codes[at])
            side = route.missing
            if code < np.int64(n_codes):
                side = np.int64(levels[np.uint64(code)])
                side = side if side >= 0 else route.missing
            left, right = _move_record(words, spare, size, source, left, right, np.uint64(side))
            source += size
            at += step
    else:
        # Codes from `lowest` on go right, but not those of missing values that go left.
        lowest = np.uint64(route.cut + 1)
        n_right = (np.uint64(n_codes) if route.missing == 0 else ~zero) - lowest
        for _ in range(m):
            side = np.uint64(np.uint64(codes[at]) - lowest < n_right)
            left, right = _move_record(words, spare, size, source, left, right, side)
            source += size
            at += step
    for w in range(right):
        words[left + w] = spare[w]
    offsets[0], offsets[1], offsets[2] = begin, end - np.int64(right // size), end


@inlined
def _move_record(words, spare, size, source, left, right, side):
    """Copy a record to both places, and move on that of its side."""
    copy_words(words, source, words, left, spare, right)
    for w in range(np.uint64(RECORD_WORDS), size, np.uint64(RECORD_WORDS)):
        copy_words(words, source + w, words, left + w, spare, right + w)
    goes_right = np.uint64(0) - side
    return left + (size & ~goes_right), right + (size & goes_right)


@inlined
def _distribute_records(records, branch_of, branches, begin, end, offsets):
    words, spare, size = records.words, records.spare, records.layout[np.uint64(N_WORDS)]
    start, n_branches, one = np.uint64(begin) * size, np.uint64(branches), np.uint64(1)
    for b in range(n_branches + one):
        offsets[b] = 0
    for i in range(np.uint64(end - begin)):
        offsets[np.uint64(branch_of[i]) + one] += 1
    for b in range(n_branches):
        offsets[b + one] += offsets[b]
    for i in range(np.uint64(end - begin)):
        branch = np.uint64(branch_of[i])
        to = np.uint64(offsets[branch]) * size
        offsets[branch] += 1
        for w in range(size):
            spare[to + w] = words[start + i * size + w]
    for w in range(np.uint64(end - begin) * size):
        words[start + w] = spare[w]
    for j in range(n_branches):  # now each is the end of its branch
        offsets[n_branches - j] = offsets[n_branches - j - one] + begin
    offsets[0] = begin
