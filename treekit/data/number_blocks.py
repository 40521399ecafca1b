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
    may_be_typed : bool
        Whether pyarrow may parse the cells of further blocks as numbers, without their text.
    """

    def __init__(self, how: TextFormat) -> None:
        self.n_rows = self.n_missing = self.n_whole = 0
        self.has_integers_only = True
        self.may_be_typed = how.is_plain and not how.has_number_marks
        self.has_long_integers = False
        self._how = how

    def parse(self, texts: Any) -> npt.NDArray[Any] | None:
        """Parse a block of texts, ``pyarrow.StringArray``; None if a cell is not a number.

        Returns
        -------
        (rows,) int64 or float64, or None
        """
        numbers = (
            self._parse_plain(texts)
            if self._how.is_plain and not self._how.has_number_marks and not self.n_missing
            else None
        )
        if numbers is None:
            numbers = self._parse_marked(texts)
        if numbers is None:
            numbers = self._parse_slowly(texts)
        if numbers is not None:
            self.n_rows += len(numbers)
            self._count(numbers)
        return numbers

    def add(self, cells: Any) -> npt.NDArray[Any]:
        """Return a block of numbers that pyarrow has parsed, ``pyarrow.Array``."""
        self.n_missing += cells.null_count
        numbers = _to_numpy(cells)
        if numbers.dtype.kind == "f":
            numbers = numbers + 0.0  # zero has no sign
        self.n_rows += len(numbers)
        self._count(numbers)
        return numbers

    def _count(self, numbers: npt.NDArray[Any]) -> None:
        self.has_long_integers |= bool(((numbers >= 2**53) | (numbers <= -(2**53))).any())
        if numbers.dtype.kind == "i":
            self.n_whole += len(numbers)
        else:
            self.has_integers_only = False
            self.n_whole += int(np.count_nonzero(numbers == np.floor(numbers)))

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
        letters = b"" if data is None else memoryview(data)
        if self.has_integers_only:
            try:
                # pyarrow reads 0x1F as an integer, and nan(1) as a number.
                if _holds(letters, b"xX"):
                    return None
                return _to_numpy(compute.cast(texts, pa.int64()))
            except pa.ArrowInvalid:
                if _holds(letters, b"+"):  # +7 is an integer, too
                    return None
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


def _holds(letters: Any, some: bytes) -> bool:
    """Check whether a buffer has one of the characters `some`."""
    text = bytes(letters)
    return any(text.find(some[i : i + 1]) >= 0 for i in range(len(some)))


def _to_numpy(array: Any) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers
