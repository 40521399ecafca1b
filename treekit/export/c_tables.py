"""Constant tables of C source, and how many bytes they take.

Large tables are arrays of plain integers: a compiler holds some 200 bytes for
each element, whatever its type, and a structure with a double in it takes ten
times the memory and the time of one 64-bit integer (measured, gcc 12, clang 14).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError
from treekit.export.literals import Code

__all__ = ["CTable", "c_table", "hex_table", "narrow", "struct_table"]

_MOST = 2**31 - 1
_BLOCK = 1 << 16  # numbers whose texts are in memory at a time
_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_TYPES = {np.dtype(f"{sign}{n}"): n for sign in "iu" for n in (1, 2, 4, 8)}


@dataclass(frozen=True, slots=True)
class CTable:
    """A constant array.

    Attributes
    ----------
    name : Code
        What comes after the prefix and an underscore.
    type : Code
    count : int
        Elements, at least one.
    numbers : Code
        The initialiser.
    size : int
        Bytes.
    """

    name: Code
    type: Code
    count: int
    numbers: Code
    size: int


def c_table(name: str, numbers: npt.NDArray[Any]) -> CTable:
    """The table of an array of integers or finite doubles, each of the array's type.

    A table that would be empty has one 0 that nobody reads.
    """
    numbers = _some(numbers)
    text = Code(",\n".join(", ".join(row) for row in _rows(numbers, 8)))
    return CTable(Code(name), _type(numbers.dtype), len(numbers), text, numbers.nbytes)


def hex_table(name: str, numbers: npt.NDArray[np.uint64]) -> CTable:
    """The table of an array of 64-bit integers, in hexadecimal: written as fast as it is read."""
    numbers = _some(numbers)
    texts = []
    for at in range(0, len(numbers), _BLOCK):
        part = numbers[at : at + _BLOCK]
        text = np.empty((len(part), 20), dtype=np.uint8)
        text[:] = np.frombuffer(b"0x" + 16 * b"0" + b", ", dtype=np.uint8)
        places = np.arange(60, -1, -4, dtype=np.uint64)
        text[:, 2:18] = _DIGITS[(part[:, None] >> places) & np.uint64(15)]
        text[3::4, 19] = ord("\n")
        texts.append(text.tobytes().decode("ascii"))
    written = "".join(texts)[:-2]
    return CTable(Code(name), _type(numbers.dtype), len(numbers), Code(written), numbers.nbytes)


def struct_table(name: str, type_: str, columns: Sequence[npt.NDArray[Any]]) -> CTable:
    """The table of structures of integers, one array for each member, all of one length."""
    columns = [_some(column) for column in columns]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    # Without the letter a decimal beyond 2**63 has no type.
    form = "{" + ", ".join("%du" if c.dtype.kind == "u" else "%d" for c in columns) + "}"
    text = Code(",\n".join(map(form.__mod__, rows)))
    size = np.dtype(
        {"names": [str(i) for i in range(len(columns))], "formats": [c.dtype for c in columns]},
        align=True,
    ).itemsize
    count = len(columns[0])
    return CTable(Code(name), Code(type_), count, text, count * size)


def narrow(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same integers in the narrowest type that holds them, unsigned if none is negative."""
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    kinds = "u" if low >= 0 else "i"
    for width in (1, 2, 4, 8):
        info = np.iinfo(f"{kinds}{width}")
        if info.min <= low and high <= info.max:
            return numbers.astype(info.dtype)
    raise ExportError("a table holds integers beyond 64 bits")


def _some(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if len(numbers) > _MOST:
        raise ExportError(f"the model needs more than {_MOST} table entries: train fewer trees")
    return numbers if len(numbers) else np.zeros(1, numbers.dtype)


def _type(dtype: np.dtype[Any]) -> Code:
    if dtype == np.float64:
        return Code("double")
    return Code(f"{'u' if dtype.kind == 'u' else ''}int{8 * _TYPES[dtype]}_t")


def _rows(numbers: npt.NDArray[Any], per_line: int) -> Iterator[list[str]]:
    """Texts of the numbers, some at a time: Python's own take 20 times their memory."""
    for at in range(0, len(numbers), _BLOCK):
        texts = list(map(repr, numbers[at : at + _BLOCK].tolist()))
        for first in range(0, len(texts), per_line):
            yield texts[first : first + per_line]
