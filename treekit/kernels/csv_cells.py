"""Find the cells of CSV text, parse them as numbers, and code them as categories.

The kernels read UTF-8 bytes by the rules of Python's ``csv`` module (strict, double quotes)
and of ``float``.  What they are not certain to read alike they leave to their caller.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined, kernel, llvm_inlined
from treekit.kernels.function_pointers import find_highest_bit, multiply_high

_U = np.uint64
_QUOTE, _LF, _CR, _SPACE = (np.uint8(ord(mark)) for mark in '"\n\r ')
_ZERO, _PLUS, _MINUS, _POINT, _LOWER_E, _UPPER_E = (np.uint8(ord(mark)) for mark in "0+-.eE")

# ---------------------------------------------------------------- cells

ROWS_FOUND, MORE_TEXT_NEEDED, NOT_CERTAIN = range(3)
"""Results of `find_cells`: the buffers are full, the text ends in a row, or it is not a table."""


@kernel
def find_cells(text, first, last, separator, limit, starts, ends):
    """Find the cells of complete rows.

    Parameters
    ----------
    text : (bytes,) uint8
        UTF-8.
    first : uint64
        Where a row begins.
    last : bool
        Nothing follows `text` in the file.
    separator : uint8
    limit : uint64
        Maximum number of bytes of a cell.
    starts : (rows,) uint32
        Filled with the place of each row.
    ends : (rows, columns) uint32
        Filled with the place after each cell; the next cell begins one byte later.

    Returns
    -------
    n_rows, following, result : int
        `following` is the place after the last row.  Blank lines are skipped, except in a
        table of one column.
    """
    n = _U(len(text))
    n_columns = _U(ends.shape[1])
    n_rows, following = _U(0), _U(first)
    while n_rows < _U(len(starts)):
        i, column, ended = following, _U(0), False
        if i >= n:
            return n_rows, following, MORE_TEXT_NEEDED
        while not ended:
            begin = i
            if i < n and text[i] == _QUOTE:
                i += _U(1)
                while True:
                    while i < n and text[i] != _QUOTE:
                        i += _U(1)
                    if i >= n:  # the quote is not closed
                        long = last or i - begin > limit
                        return n_rows, following, NOT_CERTAIN if long else MORE_TEXT_NEEDED
                    i += _U(1)
                    if i >= n or text[i] != _QUOTE:
                        break
                    i += _U(1)
            else:
                while i < n and text[i] != separator and text[i] != _LF and text[i] != _CR:
                    i += _U(1)
            if column >= n_columns or i - begin > limit:
                return n_rows, following, NOT_CERTAIN
            if i >= n and not last:
                return n_rows, following, MORE_TEXT_NEEDED
            ends[n_rows, column] = i
            column += _U(1)
            if i >= n:
                ended = True
            elif text[i] == separator:
                i += _U(1)
            elif text[i] == _LF:
                ended = True
                i += _U(1)
            elif text[i] == _CR:
                ended = True
                i += _U(1)
                if i >= n and not last:  # a line feed may follow
                    return n_rows, following, MORE_TEXT_NEEDED
                if i < n and text[i] == _LF:
                    i += _U(1)
            else:  # text after a closing quote
                return n_rows, following, NOT_CERTAIN
        blank = column == 1 and _U(ends[n_rows, _U(0)]) == following
        if column == n_columns:
            starts[n_rows] = following
            n_rows += _U(1)
        elif not blank:
            return n_rows, following, NOT_CERTAIN
        following = i
    return n_rows, following, ROWS_FOUND


@llvm_inlined
def _get_place(starts, ends, row, column):
    """Return where a cell begins and ends, with its quotes."""
    begin = _U(starts[row]) if column == 0 else _U(ends[row, column - _U(1)]) + _U(1)
    return begin, _U(ends[row, column])


# ---------------------------------------------------------------- numbers

INTEGERS, FLOATS = range(2)
"""Types of a column of numbers."""

_TILE = 64


@kernel
def parse_cells(text, starts, ends, columns, marks, empty_is_missing, ints, floats, types, odd):
    """Parse the cells of columns as numbers.

    Parameters
    ----------
    text, starts, ends : arrays
        As filled by `find_cells`.
    columns : (selected,) int64
        Positions of the columns.
    marks : (marks,) float64
        Numbers that may mean missing.
    empty_is_missing : bool
        An empty cell is missing, not odd.
    ints, floats : (selected, rows) int64 and float64
        The same memory; filled with the numbers, by the type of the column.  Missing and odd
        cells are NaN.
    types : (selected,) uint8
        Filled with `INTEGERS` if all cells are integers of 64 bits, else `FLOATS`.
    odd : (selected, rows) bool
        Filled with True for cells that the caller must parse: other notations, words and
        marks.
    """
    n_rows = _U(ints.shape[1])
    types[:] = INTEGERS
    for tile in range(_U(0), n_rows, _U(_TILE)):  # so that the text of the rows stays cached
        stop = min(tile + _U(_TILE), n_rows)
        for c in range(_U(len(columns))):
            column = _U(columns[c])
            whole = types[c] == INTEGERS
            for row in range(tile, stop):
                begin, end = _get_place(starts, ends, row, column)
                if begin < end and text[begin] == _QUOTE:
                    begin, end = begin + _U(1), end - _U(1)
                kind, bits = _parse_number(text, begin, end)
                ints[c, row] = np.int64(bits)
                value = float(ints[c, row]) if kind == _INTEGER else floats[c, row]
                if kind == _EMPTY and not empty_is_missing:
                    kind = _ODD
                for m in range(_U(len(marks))):
                    if value == marks[m]:
                        kind = _ODD
                if whole and kind != _INTEGER:
                    whole = False
                    for before in range(row):
                        floats[c, before] = float(ints[c, before])
                if not whole:
                    floats[c, row] = value if kind in (_INTEGER, _FLOAT) else np.nan
                odd[c, row] = kind == _ODD
            types[c] = INTEGERS if whole else FLOATS


_ODD, _EMPTY, _INTEGER, _FLOAT = range(4)

_MAX_DIGITS = 19
"""Number of decimal digits that always fit in 64 bits."""


@inlined
def _read_digits(text, i, end, number):
    """Append the decimal digits from ``text[i]`` on to a number; return where they end, and it."""
    while i < end:
        digit = _U(text[i]) - _U(_ZERO)
        if digit > _U(9):  # also below, where it wraps around
            break
        number = number * _U(10) + digit
        i += _U(1)
    return i, number


@llvm_inlined
def _parse_number(text, begin, end):
    """Parse a cell as a decimal number.

    Returns
    -------
    kind : {_ODD, _EMPTY, _INTEGER, _FLOAT}
    bits : uint64
        Of an int64 or float64.
    """
    while begin < end and text[begin] == _SPACE:
        begin += _U(1)
    while end > begin and text[end - _U(1)] == _SPACE:
        end -= _U(1)
    if begin == end:
        return _EMPTY, _U(0)
    i = begin
    negative = text[i] == _MINUS
    if negative or text[i] == _PLUS:
        i += _U(1)
    digits = i
    i, number = _read_digits(text, i, end, _U(0))
    n_digits, n_fraction, whole = i - digits, _U(0), True
    if i < end and text[i] == _POINT:
        whole = False
        i += _U(1)
        fraction = i
        i, number = _read_digits(text, i, end, number)
        n_fraction = i - fraction
        n_digits += n_fraction
    if n_digits == 0:
        return _ODD, _U(0)
    if n_digits > _U(_MAX_DIGITS):
        j = digits
        while j < i and (text[j] == _ZERO or text[j] == _POINT):
            n_digits -= _U(text[j] == _ZERO)
            j += _U(1)
        if n_digits > _U(_MAX_DIGITS):
            return _ODD, _U(0)
    exponent = -np.int64(n_fraction)
    if i < end and (text[i] == _LOWER_E or text[i] == _UPPER_E):
        whole = False
        i += _U(1)
        below = i < end and text[i] == _MINUS
        if i < end and (below or text[i] == _PLUS):
            i += _U(1)
        if i == end or end - i > _U(4):
            return _ODD, _U(0)
        i, power = _read_digits(text, i, end, _U(0))
        exponent += -np.int64(power) if below else np.int64(power)
    if i != end:
        return _ODD, _U(0)
    if whole and number < _SIGN + _U(negative):
        return _INTEGER, _U(0) - number if negative else number
    if number == 0:
        bits = _U(0)
    elif exponent < _LEAST_POWER or exponent > _LARGEST_POWER:
        return _ODD, _U(0)
    else:
        bits = _round_decimal(number, exponent)
        if bits == _NOT_NORMAL:
            return _ODD, _U(0)
    return _FLOAT, bits | _SIGN if negative else bits


_SIGN = _U(1 << 63)
_NOT_NORMAL = ~_U(0)
_LEAST_POWER, _LARGEST_POWER = -325, 308


def _make_power(exponent: int) -> int:
    """Return the first 128 bits of a power of five, rounded up from -27 to -1."""
    power = 5 ** abs(exponent)
    if exponent < 0:
        return (1 << 127 + power.bit_length()) // power + (exponent >= -27)
    size = power.bit_length()
    return power << 128 - size if size <= 128 else power >> size - 128


_POWERS = np.array(
    [
        divmod(_make_power(exponent), 1 << 64)
        for exponent in range(_LEAST_POWER, _LARGEST_POWER + 1)
    ],
    dtype=np.uint64,
)
"""(powers, 2) uint64: high and low half of each power of five."""


@llvm_inlined
def _round_decimal(number, exponent):
    """Return the bits of the double nearest to ``number * 10**exponent``.

    The algorithm of Eisel and Lemire (Lemire 2021, *Number Parsing at a Gigabyte per
    Second*, algorithm 1).

    Parameters
    ----------
    number : uint64
        Not zero.
    exponent : int64
        From `_LEAST_POWER` to `_LARGEST_POWER`.

    Returns
    -------
    uint64
        `_NOT_NORMAL` for a subnormal or infinite result, or one that 128 bits of the power
        do not decide.
    """
    at = _U(exponent - _LEAST_POWER)
    shift = _U(63) - find_highest_bit(number)
    number <<= shift
    high = multiply_high(number, _POWERS[at, _U(0)])
    low = number * _POWERS[at, _U(0)]
    if high & _U(0x1FF) == _U(0x1FF):
        more = multiply_high(number, _POWERS[at, _U(1)])
        low += more
        if more > low:
            high += _U(1)
        if low == ~_U(0) and (exponent < -27 or exponent > 55):
            return _NOT_NORMAL
    upper = high >> _U(63)
    dropped = upper + _U(9)
    mantissa = high >> dropped
    binary = ((np.int64(217706) * exponent) >> np.int64(16)) + np.int64(1086)
    binary += np.int64(upper) - np.int64(shift)
    if binary <= 0:
        return _NOT_NORMAL
    tie = low <= _U(1) and mantissa & _U(3) == _U(1) and mantissa << dropped == high
    if tie and -4 <= exponent <= 23:
        mantissa &= ~_U(1)  # exactly between two doubles: round to the even one
    mantissa = (mantissa + (mantissa & _U(1))) >> _U(1)
    if mantissa >= _U(1 << 53):
        mantissa = _U(1 << 52)
        binary += 1
    if binary >= 0x7FF:
        return _NOT_NORMAL
    return (_U(binary) << _U(52)) | (mantissa & _U((1 << 52) - 1))


# ---------------------------------------------------------------- categories


@kernel
def code_cells(text, starts, ends, column, table, codes, firsts):
    """Number the distinct texts of a column, in the order of their first rows.

    Parameters
    ----------
    text, starts, ends : arrays
        As filled by `find_cells`.
    column : uint64
    table : (a power of two, more than rows) int32
        Working memory: a hash table of codes, -1 = free.
    codes : (rows,) int32
        Filled with the code of each cell.
    firsts : (rows,) int64
        Filled with the first row of each code.

    Returns
    -------
    int
        Number of distinct texts, as written: ``a`` and ``"a"`` are two.
    """
    mask = _U(len(table) - 1)
    n_distinct = _U(0)
    for row in range(_U(len(codes))):
        begin, end = _get_place(starts, ends, row, column)
        place = _U(0xCBF29CE484222325)  # FNV-1a
        for i in range(begin, end):
            place = (place ^ _U(text[i])) * _U(0x100000001B3)
        place = (place ^ (place >> _U(32))) & mask
        while table[place] >= 0:
            first, last = _get_place(starts, ends, _U(firsts[_U(table[place])]), column)
            i = _U(0)
            while first + i < last and begin + i < end and text[first + i] == text[begin + i]:
                i += _U(1)
            if first + i == last and begin + i == end:
                break
            place = (place + _U(1)) & mask
        else:
            table[place] = n_distinct
            firsts[n_distinct] = row
            n_distinct += _U(1)
        codes[row] = table[place]
    return n_distinct
