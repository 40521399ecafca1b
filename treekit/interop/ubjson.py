"""Decoder of Universal Binary JSON (UBJSON draft 12), the format of XGBoost's models.

Containers are kept on a stack instead of recursion: depth is limited by `MAX_NESTING`,
sizes by the file, and memory is only allocated for data that is present.
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
    """Reader of the bytes from a position."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def take(self, n: int) -> bytes:
        """Read the next n bytes."""
        if n < 0 or n > len(self.content) - self.at:
            raise ModelFileError(f"the UBJSON is truncated or damaged at byte {self.at}")
        self.at += n
        return self.content[self.at - n : self.at]

    def marker(self) -> bytes:
        """Read the next marker, skipping no-ops."""
        marker = self.take(1)
        while marker == b"N":
            marker = self.take(1)
        return marker

    def peek(self) -> bytes:
        """Return the next byte without consuming it."""
        return self.content[self.at : self.at + 1]

    def length(self) -> int:
        """Read a length: an integer marker and the integer."""
        marker = self.marker()
        if marker not in _INTEGERS:
            raise ModelFileError(f"the UBJSON lacks a length at byte {self.at}")
        value = int(self.number(marker))
        if not 0 <= value <= len(self.content):
            raise ModelFileError(f"the UBJSON has an invalid length {value} at byte {self.at}")
        return value

    def number(self, marker: bytes) -> Any:
        """Read a number of the marker's type."""
        code = _NUMBERS[marker]
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def text(self) -> str:
        """Read a length and UTF-8 text."""
        try:
            return self.take(self.length()).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ModelFileError(f"the UBJSON has text that is not UTF-8: {error}") from error

    def plain(self, marker: bytes) -> Any:
        """Read a value that is not a container."""
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
        """Read the optional type and count of a container."""
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
        """Read an array of numbers of one type."""
        if kind not in _NUMBERS:
            raise ModelFileError(f"the UBJSON has an array of non-numeric type {kind!r}")
        dtype = np.dtype(_NUMBERS[kind])
        numbers: list[Any] = np.frombuffer(self.take(count * dtype.itemsize), dtype=dtype).tolist()
        return numbers


class _Container:
    """An object or array that is being read."""

    def __init__(self, values: dict[str, Any] | list[Any], left: int | None) -> None:
        self.values = values
        self.left = left
        self.key = ""

    def put(self, value: Any) -> None:
        """Add the next value."""
        if isinstance(self.values, dict):
            self.values[self.key] = value
        else:
            self.values.append(value)
        if self.left is not None:
            self.left -= 1

    def ended(self, reader: _Reader) -> bool:
        """Return whether all values have been read, consuming an end marker."""
        if self.left is not None:
            return self.left == 0
        if reader.peek() == (b"}" if isinstance(self.values, dict) else b"]"):
            reader.take(1)
            return True
        return False


def decode(content: bytes) -> Any:
    """Decode UBJSON.

    Returns
    -------
    dict, list, str, int, float, bool or None
        Typed arrays as lists.

    Raises
    ------
    ModelFileError
        If `content` is not UBJSON, is truncated, or is nested deeper than `MAX_NESTING`.
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
            raise ModelFileError(
                f"the UBJSON is nested too deep, or has a typed object, at byte {reader.at}"
            )
        values: dict[str, Any] | list[Any] = {} if marker == b"{" else []
        top.put(values)
        within.append(_Container(values, count))
    return outer.values[0] if isinstance(outer.values, list) else None
