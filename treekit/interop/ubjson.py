"""Decoder of Universal Binary JSON (UBJSON draft 12), the format of XGBoost's models.

Containers are kept on a stack instead of recursion: depth is limited by `MAX_NESTING`,
sizes by the file, and memory is only allocated for data that is present.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from treekit.errors import ModelFileError

__all__ = ["MAX_NESTING", "decode_ubjson"]

MAX_NESTING = 64

_INTEGER_CODES = {b"i": ">b", b"U": ">B", b"I": ">h", b"l": ">i", b"L": ">q"}
_NUMBER_CODES = _INTEGER_CODES | {b"d": ">f", b"D": ">d"}
_CONSTANTS = {b"Z": None, b"N": None, b"T": True, b"F": False}


class _Reader:
    """Reader of the bytes from a position."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.position = 0

    def read_bytes(self, n: int) -> bytes:
        """Read the next n bytes."""
        if n < 0 or n > len(self.content) - self.position:
            raise ModelFileError(f"the UBJSON is truncated or damaged at byte {self.position}")
        self.position += n
        return self.content[self.position - n : self.position]

    def read_marker(self) -> bytes:
        """Read the next marker, skipping no-ops."""
        marker = self.read_bytes(1)
        while marker == b"N":
            marker = self.read_bytes(1)
        return marker

    def peek_byte(self) -> bytes:
        """Return the next byte without consuming it."""
        return self.content[self.position : self.position + 1]

    def read_length(self) -> int:
        """Read a length: an integer marker and the integer."""
        marker = self.read_marker()
        if marker not in _INTEGER_CODES:
            raise ModelFileError(f"the UBJSON lacks a length at byte {self.position}")
        value = int(self.read_number(marker))
        if not 0 <= value <= len(self.content):
            raise ModelFileError(
                f"the UBJSON has an invalid length {value} at byte {self.position}"
            )
        return value

    def read_number(self, marker: bytes) -> Any:
        """Read a number of the marker's type."""
        code = _NUMBER_CODES[marker]
        return struct.unpack(code, self.read_bytes(struct.calcsize(code)))[0]

    def read_text(self) -> str:
        """Read a length and UTF-8 text."""
        try:
            return self.read_bytes(self.read_length()).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ModelFileError(f"the UBJSON has text that is not UTF-8: {error}") from error

    def read_scalar(self, marker: bytes) -> Any:
        """Read a value that is not a container."""
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker in _NUMBER_CODES:
            return self.read_number(marker)
        if marker in (b"S", b"H"):
            return self.read_text()
        if marker == b"C":
            return self.read_bytes(1).decode("latin-1")
        raise ModelFileError(f"the UBJSON has an unknown marker {marker!r} at byte {self.position}")

    def read_container_header(self) -> tuple[bytes | None, int | None]:
        """Read the optional type and count of a container."""
        kind = None
        if self.peek_byte() == b"$":
            self.read_bytes(1)
            kind = self.read_bytes(1)
        if self.peek_byte() != b"#":
            if kind is not None:
                raise ModelFileError(
                    f"the UBJSON has a type without a count at byte {self.position}"
                )
            return None, None
        self.read_bytes(1)
        return kind, self.read_length()

    def read_typed_array(self, kind: bytes, count: int) -> list[Any]:
        """Read an array of numbers of one type."""
        if kind not in _NUMBER_CODES:
            raise ModelFileError(f"the UBJSON has an array of non-numeric type {kind!r}")
        dtype = np.dtype(_NUMBER_CODES[kind])
        numbers: list[Any] = np.frombuffer(
            self.read_bytes(count * dtype.itemsize), dtype=dtype
        ).tolist()
        return numbers


class _Container:
    """An object or array that is being read."""

    def __init__(self, values: dict[str, Any] | list[Any], left: int | None) -> None:
        self.values = values
        self.n_remaining = left
        self.key = ""

    def add_value(self, value: Any) -> None:
        """Add the next value."""
        if isinstance(self.values, dict):
            self.values[self.key] = value
        else:
            self.values.append(value)
        if self.n_remaining is not None:
            self.n_remaining -= 1

    def is_complete(self, reader: _Reader) -> bool:
        """Return whether all values have been read, consuming an end marker."""
        if self.n_remaining is not None:
            return self.n_remaining == 0
        if reader.peek_byte() == (b"}" if isinstance(self.values, dict) else b"]"):
            reader.read_bytes(1)
            return True
        return False


def decode_ubjson(content: bytes) -> Any:
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
        if top.is_complete(reader):
            within.pop()
            continue
        if isinstance(top.values, dict):
            top.key = reader.read_text()
        marker = reader.read_marker()
        if marker not in (b"{", b"["):
            top.add_value(reader.read_scalar(marker))
            continue
        kind, count = reader.read_container_header()
        if kind is not None and marker == b"[":
            top.add_value(reader.read_typed_array(kind, count or 0))
            continue
        if kind is not None or len(within) > MAX_NESTING:
            raise ModelFileError(
                f"the UBJSON is nested too deep, or has a typed object, at byte {reader.position}"
            )
        values: dict[str, Any] | list[Any] = {} if marker == b"{" else []
        top.add_value(values)
        within.append(_Container(values, count))
    return outer.values[0] if isinstance(outer.values, list) else None
