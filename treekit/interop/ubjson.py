"""Universal Binary JSON (UBJSON draft 12), as XGBoost writes its models.

Containers are kept on a list, not by recursion: depth is bounded by `MAX_NESTING`,
sizes by the file, and nothing is allocated before it is seen to be there.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from treekit.errors import ModelFileError

__all__ = ["MAX_NESTING", "decode"]

MAX_NESTING = 64

_INTEGERS = {b"i": ">b", b"U": ">B", b"I": ">h", b"l": ">i", b"L": ">q"}
_NUMBERS = _INTEGERS | {b"d": ">f", b"D": ">d"}
_CONSTANTS = {b"Z": None, b"N": None, b"T": True, b"F": False}


class _Reader:
    """A place in the bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def take(self, n: int) -> bytes:
        """The next n bytes."""
        if n < 0 or n > len(self.content) - self.at:
            raise ModelFileError(f"the UBJSON is cut off or damaged at byte {self.at}")
        self.at += n
        return self.content[self.at - n : self.at]

    def marker(self) -> bytes:
        """The next byte that is not filled in."""
        marker = self.take(1)
        while marker == b"N":
            marker = self.take(1)
        return marker

    def peek(self) -> bytes:
        """The next byte, which stays."""
        return self.content[self.at : self.at + 1]

    def length(self) -> int:
        """A count: a marker of a whole number, and the number."""
        marker = self.marker()
        if marker not in _INTEGERS:
            raise ModelFileError(f"the UBJSON has no length where one must be, byte {self.at}")
        value = int(self.number(marker))
        if not 0 <= value <= len(self.content):
            raise ModelFileError(f"the UBJSON says a length of {value} at byte {self.at}")
        return value

    def number(self, marker: bytes) -> Any:
        """A number of the marker's type."""
        code = _NUMBERS[marker]
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def text(self) -> str:
        """A length, and UTF-8."""
        try:
            return self.take(self.length()).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ModelFileError(f"the UBJSON holds a text that is no UTF-8: {error}") from error

    def plain(self, marker: bytes) -> Any:
        """A value that holds no other."""
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker in _NUMBERS:
            return self.number(marker)
        if marker in (b"S", b"H"):
            return self.text()
        if marker == b"C":
            return self.take(1).decode("latin-1")
        raise ModelFileError(f"the UBJSON has an unknown marker {marker!r} at byte {self.at}")

    def header(self) -> tuple[bytes | None, int | None]:
        """The type and the count that a container may announce."""
        kind = None
        if self.peek() == b"$":
            self.take(1)
            kind = self.take(1)
        if self.peek() != b"#":
            if kind is not None:
                raise ModelFileError(f"the UBJSON has a type without a count at byte {self.at}")
            return None, None
        self.take(1)
        return kind, self.length()

    def typed(self, kind: bytes, count: int) -> list[Any]:
        """An array of numbers of one type."""
        if kind not in _NUMBERS:
            raise ModelFileError(f"the UBJSON has an array of type {kind!r}, not of numbers")
        dtype = np.dtype(_NUMBERS[kind])
        numbers: list[Any] = np.frombuffer(self.take(count * dtype.itemsize), dtype=dtype).tolist()
        return numbers


class _Container:
    """An object or an array that is being filled."""

    def __init__(self, values: dict[str, Any] | list[Any], left: int | None) -> None:
        self.values = values
        self.left = left
        self.key = ""

    def put(self, value: Any) -> None:
        """The next value."""
        if isinstance(self.values, dict):
            self.values[self.key] = value
        else:
            self.values.append(value)
        if self.left is not None:
            self.left -= 1

    def ended(self, reader: _Reader) -> bool:
        """Whether all its values are there."""
        if self.left is not None:
            return self.left == 0
        if reader.peek() == (b"}" if isinstance(self.values, dict) else b"]"):
            reader.take(1)
            return True
        return False


def decode(content: bytes) -> Any:
    """The value that some bytes of UBJSON hold.

    Returns
    -------
    dict, list, str, int, float, bool or None
        Typed arrays as lists.

    Raises
    ------
    ModelFileError
        If they are no UBJSON, are cut off, or nest deeper than `MAX_NESTING`.
    """
    reader = _Reader(content)
    outer = _Container([], 1)
    within = [outer]
    while within:
        top = within[-1]
        if top.ended(reader):
            within.pop()
            continue
        if isinstance(top.values, dict):
            top.key = reader.text()
        marker = reader.marker()
        if marker not in (b"{", b"["):
            top.put(reader.plain(marker))
            continue
        kind, count = reader.header()
        if kind is not None and marker == b"[":
            top.put(reader.typed(kind, count or 0))
            continue
        if kind is not None or len(within) > MAX_NESTING:
            raise ModelFileError(f"the UBJSON nests too deep, or an object is typed: {reader.at}")
        values: dict[str, Any] | list[Any] = {} if marker == b"{" else []
        top.put(values)
        within.append(_Container(values, count))
    return outer.values[0] if isinstance(outer.values, list) else None
