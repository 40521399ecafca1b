"""Parse blocks of a column of text as numbers by pyarrow.

The numbers are those of `treekit.data.cells.parse_numbers`, which parses what pyarrow reads
differently or not at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.cells import make_object_array, parse_numbers
from treekit.data.text_format import TextFormat


class NumberColumn:
    """What is known of the texts of a column of numbers, which is read in blocks.

    Parameters
    ----------
    how : TextFormat
        Marks of missing values and notation of numbers.

    Attributes
    ----------
    n_rows : int
    n_missing : int
        Number of missing cells.
    n_whole : int
        Number of cells that are integers.
    has_long_integers : bool
        Whether a number may be an integer that float64 rounds.
    has_integers_only : bool
        Whether all cells are integers of 64 bits, none missing.
    is_plain : bool
        Whether the text of each cell is the shortest of an integer.
    """

    def __init__(self, how: TextFormat) -> None:
        self.n_rows = self.n_missing = self.n_whole = 0
        self.has_integers_only = self.is_plain = True
        self.has_long_integers = False
        self._how = how
        # Numbers in another notation, and marks that are numbers, are looked at one by one.
        self._is_simple = how.is_plain and not how.has_number_marks

    def parse(self, texts: Any) -> npt.NDArray[Any] | None:
        """Parse a block of texts, ``pyarrow.StringArray``; None if a cell is not a number.

        Returns
        -------
        (rows,) int64 or float64, or None
        """
        numbers = self._parse_plain(texts) if self._is_simple and not self.n_missing else None
        if numbers is None:
            numbers = self._parse_marked(texts)
        if numbers is None:
            numbers = self._parse_slowly(texts)
        if numbers is not None:
            self.n_rows += len(numbers)
            self.has_long_integers |= bool(((numbers >= 2**53) | (numbers <= -(2**53))).any())
            if numbers.dtype.kind == "i":
                # Every other text of an integer is longer.
                at = np.frombuffer(texts.buffers()[1], np.int32)
                n_letters = at[texts.offset + len(texts)] - at[texts.offset]
                self.is_plain &= int(n_letters) == _count_digits(numbers)
                self.n_whole += len(numbers)
            else:
                self.has_integers_only = self.is_plain = False
                self.n_whole += int(np.count_nonzero(numbers == np.floor(numbers)))
        return numbers

    # ------------------------------------------------------------ numbers

    def _parse_plain(self, texts: Any) -> npt.NDArray[Any] | None:
        """Parse texts without marks of missing values."""
        import pyarrow as pa
        from pyarrow import compute

        data = texts.buffers()[2]
        letters = b"" if data is None else memoryview(data)
        if self.has_integers_only:
            try:
                # pyarrow reads 0x1F as an integer, and nan(1) as a number.
                if _holds(letters, b"xX"):
                    return None
                return _to_numpy(compute.cast(texts, pa.int64()))
            except pa.ArrowInvalid:
                pass
        try:
            if _holds(letters, b"("):
                return None
            # Of a column without a sign of zero in some blocks (integers), all zeros are positive.
            return _to_numpy(compute.cast(texts, pa.float64())) + 0.0
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
        self.n_missing += n_gone
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


def _count_digits(numbers: npt.NDArray[np.int64]) -> int:
    """Return the number of characters of integers in their shortest notation."""
    low, high = int(numbers.min()), int(numbers.max())
    n = len(numbers)
    power = 10
    while power <= high or -power >= low:
        n += int(np.count_nonzero(numbers >= power)) if power <= high else 0
        n += int(np.count_nonzero(numbers <= -power)) if -power >= low else 0
        power *= 10
    return n + (int(np.count_nonzero(numbers < 0)) if low < 0 else 0)


def _holds(letters: Any, some: bytes) -> bool:
    """Check whether a buffer has one of the characters `some`."""
    text = bytes(letters)
    return any(text.find(some[i : i + 1]) >= 0 for i in range(len(some)))


def _to_numpy(array: Any) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers
