"""Parse blocks of a column of text as numbers by pyarrow.

The numbers are those of `treekit.data.cells.parse_numbers`, which parses what pyarrow reads
differently or not at all.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.cells import make_object_array, parse_numbers
from treekit.data.text_format import TextFormat


class NumberColumn:
    """Parser of one numeric column in blocks, with facts about all of them.

    Parameters
    ----------
    how : TextFormat
        Marks of missing values and notation of numbers.

    Attributes
    ----------
    n_rows : int
    has_missing : bool
        Whether a cell is missing.
    has_long_integers : bool
        Whether a number is at least 2**53 in magnitude, where float64 rounds integers.
    has_integers_only : bool
        Whether all cells are integers of 64 bits, none missing.
    may_be_typed : bool
        Whether pyarrow may parse the cells of further blocks as numbers, without their text.
    """

    def __init__(self, how: TextFormat) -> None:
        self.n_rows = 0
        self.has_missing = False
        self.has_integers_only = True
        self._is_simple = self.may_be_typed = how.is_plain and not how.has_number_marks
        self.has_long_integers = False
        self._how = how

    def parse(self, texts: Any) -> npt.NDArray[Any] | None:
        """Parse a block of texts, ``pyarrow.StringArray``; None if a cell is not a number.

        Returns
        -------
        (rows,) int64 or float64, or None
        """
        simple = self._is_simple and not self.has_missing
        numbers = self._parse_plain(texts) if simple else None
        if numbers is None:
            numbers = self._parse_marked(texts)
        if numbers is None:
            numbers = self._parse_slowly(texts)
        if numbers is not None:
            self.n_rows += len(numbers)
            self._count(numbers)
        return numbers

    def add(self, cells: Any) -> npt.NDArray[Any]:
        """Count a block parsed by pyarrow, ``pyarrow.Array``, and convert it to NumPy."""
        numbers = _to_numpy(cells)
        if numbers.dtype.kind == "f":
            numbers = numbers + 0.0  # zero has no sign
        self.n_rows += len(numbers)
        self._count(numbers)
        return numbers

    def _count(self, numbers: npt.NDArray[Any]) -> None:
        least, largest = numbers.min(), numbers.max()  # NaN if a cell is missing
        if numbers.dtype.kind != "i":
            self.has_integers_only = False
            if np.isnan(least):
                self.has_missing = True
                least, largest = np.fmin.reduce(numbers), np.fmax.reduce(numbers)
        self.has_long_integers |= bool(largest >= 2**53 or least <= -(2**53))

    @property
    def arrow_type(self) -> Any:
        """Type with which pyarrow parses the next block."""
        import pyarrow as pa

        return pa.int64() if self.has_integers_only else pa.float64()

    # ------------------------------------------------------------ numbers

    def _parse_plain(self, texts: Any) -> npt.NDArray[Any] | None:
        """Parse texts without marks of missing values."""
        import pyarrow as pa
        from pyarrow import compute

        data = texts.buffers()[2]
        letters = b"" if data is None else data.to_pybytes()
        if may_differ(letters):
            return None
        if self.has_integers_only:
            try:
                return _to_numpy(compute.cast(texts, pa.int64()))
            except pa.ArrowInvalid:
                if b"+" in letters:  # +7 is an integer, too
                    return None
        try:
            return _to_numpy(compute.cast(texts, pa.float64())) + 0.0  # zero has no sign
        except pa.ArrowInvalid:
            return None

    def _parse_marked(self, texts: Any) -> npt.NDArray[Any] | None:
        """Parse texts with blanks, plus signs, marks of missing values, or other notation."""
        import pyarrow as pa
        from pyarrow import compute

        trimmed = compute.ascii_trim_whitespace(texts)
        gone = compute.is_in(trimmed, value_set=pa.array(sorted(self._how.number_marks)))
        n_gone = compute.sum(gone).as_py() or 0
        known = trimmed if n_gone == 0 else trimmed.filter(compute.invert(gone))
        if not self._how.is_plain:
            known = self._how.convert_block(known)
        if known is None:
            return None
        numbers = self._parse_plain(compute.replace_substring_regex(known, r"^\+([0-9.])", r"\1"))
        if numbers is None or n_gone == 0:
            return numbers
        column = np.full(len(texts), np.nan)
        column[~_to_numpy(gone)] = numbers
        return column

    def _parse_slowly(self, texts: Any) -> npt.NDArray[Any] | None:
        coded = texts.dictionary_encode()
        distinct = coded.dictionary.to_pylist()
        numbers = parse_numbers(make_object_array(distinct), self._how)
        if numbers is None:
            return None
        codes = coded.indices.to_numpy()
        return np.asarray(numbers[codes])


def may_differ(text: bytes) -> bool:
    """Check for numbers that only pyarrow reads: 0x1F as an integer, and nan(1)."""
    # Searching one letter is much faster than a pattern.
    rare = any(text.find(letter) >= 0 for letter in (b"x", b"X", b"("))
    return rare and re.search(rb"0[xX]|[aA][nN]\(", text) is not None


def _to_numpy(array: Any) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers
