"""The data of a tensor as JSON: flat, or nested as the shape is, to an array.

Every cell is decoded by msgspec and converted by NumPy, none by Python.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.serve.errors import InvalidRequestError, TooLargeError, UnsupportedError, shown
from treekit.serve.models.tensors import Tensor

__all__ = [
    "LENGTH_HEADER",
    "MOST_DIMENSIONS",
    "bytes_of",
    "cells_of_bytes",
    "cells_of_json",
    "checked_size",
    "inflated",
    "split_body",
]


# ---------------------------------------------------------------- values

MOST_DIMENSIONS = 8
"""Lengths of a shape, and so the depth of nested data."""

_MOST_CELLS = 2**48

Values = list[Any]


def checked_size(name: str, shape: list[int]) -> int:
    """How many cells a shape has, of any size; InvalidRequestError for one that is none."""
    if not 0 < len(shape) <= MOST_DIMENSIONS or min(shape) < 0:
        raise InvalidRequestError(
            f"input {shown(name)} has shape {shown(shape)}; a shape is 1 to {MOST_DIMENSIONS} "
            "lengths, the number of rows first, none of them negative"
        )
    if math.prod(length or 1 for length in shape) > _MOST_CELLS:  # [0, 2**62]: NumPy has none
        raise InvalidRequestError(
            f"input {shown(name)} has shape {shown(shape)}, which is larger than any array"
        )
    return math.prod(shape)


def cells_of_json(
    name: str, datatype: str, shape: list[int], raw: msgspec.Raw | Values, dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """The cells of input `name`.

    Parameters
    ----------
    name, datatype : str
    shape : list of int
        As the request has it.
    raw : msgspec.Raw or list
        Well-formed JSON, or the list that was read from JSON with NaN or Infinity.
    dtype : dtype
        NumPy's for `datatype`.

    Returns
    -------
    array of `shape`
        As `treekit.serve.models.tensors.Tensor` has them.

    Raises
    ------
    InvalidRequestError
        For data of another type, range, nesting or number.
    """
    size = checked_size(name, shape)
    values = _values(name, datatype, shape, raw)
    if len(values) != size:
        raise InvalidRequestError(
            f"input {shown(name)} has {len(values):,} values in its data, and its shape "
            f"{shown(shape)} holds {size:,}"
        )
    if dtype.kind == "f":
        return _floats(name, datatype, values, dtype).reshape(shape)
    has_null = None in values if isinstance(raw, list) else b"null" in bytes(raw)
    return _array(name, datatype, values, dtype, has_null).reshape(shape)


# ------------------------------------------------------------------ JSON to values

_CELL: dict[str, type] = {
    **dict.fromkeys(("FP16", "FP32", "FP64"), float),
    **dict.fromkeys(("INT8", "INT16", "INT32", "INT64"), int),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32", "UINT64"), int),
    "BOOL": bool,
    "BYTES": str,
}
_OPENING = re.compile(rb"[\[ \t\r\n]*")


@lru_cache
def _decoder(cell: type, depth: int) -> msgspec.json.Decoder[Any]:
    nested: Any = list[cell | None]  # type: ignore[valid-type]
    for _ in range(depth - 1):
        nested = list[nested]
    return msgspec.json.Decoder(nested)


def _values(name: str, datatype: str, shape: list[int], raw: msgspec.Raw | Values) -> Values:
    """The values in row-major order."""
    depth = _depth(raw)
    if depth not in (1, len(shape)):
        kind = f"nested {depth} deep" if depth else "that are no list"
        raise InvalidRequestError(
            f"input {shown(name)} has data {kind}; give one flat list, or lists "
            f"nested as its shape {shape} is"
        )
    try:
        decoder = _decoder(_CELL[datatype], depth)
        values: Values = (
            msgspec.convert(raw, decoder.type) if isinstance(raw, list) else decoder.decode(raw)
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(
            f"input {shown(name)} has data that are no {datatype}: {_reason(error)}"
        ) from None
    return values if depth == 1 else _flattened(name, shape, values)


def _depth(raw: msgspec.Raw | Values) -> int:
    """How many lists begin before the first value."""
    if not isinstance(raw, list):
        opening = _OPENING.match(memoryview(raw))
        return opening.group().count(b"[") if opening else 0
    depth = 0
    item: Any = raw
    while isinstance(item, list):
        depth, item = depth + 1, item[0] if item else None
    return depth


def _flattened(name: str, shape: list[int], values: Values) -> Values:
    """The values of nested lists, each level as long as the shape says."""
    lists = [values]
    for place, length in enumerate(shape):
        if not set(map(len, lists)) <= {length}:
            wrong = next(found for found in map(len, lists) if found != length)
            raise InvalidRequestError(
                f"input {shown(name)} has a list of {wrong:,} at depth {place + 1} of its data, "
                f"and its shape {shape} has {length:,} there; give all lists that length"
            )
        lists = list(chain.from_iterable(lists))
    return lists


def _reason(error: Exception) -> str:
    """What msgspec says, with a remedy where there is one."""
    if isinstance(error, UnicodeDecodeError):
        return "a text is not UTF-8"
    text = str(error)
    if "out of range" in text:
        return f"{text}; it is larger than any number of 64 bits"
    if "got `str`" in text:
        return f"{text}; write numbers without quotes, and null for a missing value"
    return text


# --------------------------------------------------------------- values to an array


def _array(
    name: str, datatype: str, values: Values, dtype: np.dtype[Any], has_null: bool
) -> npt.NDArray[Any]:
    """(values,) integers, flags or texts; with nulls as `Tensor` has them."""
    if dtype.kind == "O" or (dtype.kind == "b" and has_null):
        cells = np.empty(len(values), dtype=object)
        cells[:] = values
        return cells
    known = [value for value in values if value is not None] if has_null else values
    try:
        cells = np.array(known, dtype=dtype)
    except OverflowError:
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        place = next(
            place
            for place, value in enumerate(values)
            if value is not None and not least <= value <= most
        )
        raise _beyond(name, datatype, place, values[place], (least, most)) from None
    return np.array(values, dtype=np.float64) if len(known) < len(values) else cells


def _floats(
    name: str, datatype: str, values: Values, dtype: np.dtype[Any]
) -> npt.NDArray[np.floating[Any]]:
    """Doubles, then rounded, as numbers in decimal are read everywhere; null is NaN."""
    doubles = np.array(values, dtype=np.float64)
    if dtype == np.float64:
        return doubles
    with np.errstate(over="ignore", under="ignore"):
        cells: npt.NDArray[np.floating[Any]] = doubles.astype(dtype)
    infinite = np.isinf(cells)
    if infinite.any():
        infinite &= np.isfinite(doubles)
    if infinite.any():  # a number became infinite
        place, most = int(infinite.argmax()), float(np.finfo(dtype).max)
        raise _beyond(name, datatype, place, values[place], (-most, most))
    return cells


def _beyond(
    name: str, datatype: str, place: int, value: Any, limits: tuple[float, float]
) -> InvalidRequestError:
    return InvalidRequestError(
        f"input {shown(name)} holds {shown(value)} as value {place} (counting from 0), beyond "
        f"datatype {datatype}, which goes from {limits[0]} to {limits[1]}"
    )


# ---------------------------------------------------------------- binary
# Tensors as bytes: Triton's binary tensor extension.
#
# A body is JSON, then the bytes of the tensors that say so by ``binary_data_size``, in the
# order of the JSON; the header ``Inference-Header-Content-Length`` gives the bytes of JSON.
# Cells are little-endian, in row-major order; BOOL a byte of 0 or 1; an element of BYTES a
# length of four bytes and as many bytes of UTF-8.  NaN is a missing number.
#
# https://github.com/triton-inference-server/server, ``docs/protocol/extension_binary_data.md``

LENGTH_HEADER = b"inference-header-content-length"
"""Name of the header, as ASGI has it."""

_LENGTH = struct.Struct("<I")


def split_body(body: bytes, length: bytes | None) -> tuple[bytes, memoryview]:
    """The JSON of a body, and the bytes after it.

    Parameters
    ----------
    body : bytes
    length : bytes, optional
        What `LENGTH_HEADER` says; None: all is JSON.

    Raises
    ------
    InvalidRequestError
        If the header is no number of bytes that the body has.
    """
    if length is None:
        return body, memoryview(b"")
    # 19 digits: int() of untrusted text is bounded
    if not (length.isdigit() and len(length) < 20) or int(length) > len(body):
        raise InvalidRequestError(
            f"the header Inference-Header-Content-Length is {shown(length.decode('latin-1'))}; "
            f"it is to be the bytes of JSON at the start of the body, which has {len(body):,}"
        )
    end = int(length)
    return body[:end], memoryview(body)[end:]


def cells_of_bytes(
    name: str, datatype: str, shape: list[int], data: memoryview, dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """The cells of input `name`, in memory of their own.

    Parameters
    ----------
    name, datatype : str
    shape : list of int
    data : memoryview
        All of the input's bytes, and no more.
    dtype : dtype
        NumPy's for `datatype`.

    Returns
    -------
    array of `shape`

    Raises
    ------
    InvalidRequestError
        If there are more or fewer bytes than the shape needs, or some that are no cells.
    """
    size = checked_size(name, shape)
    if dtype.kind == "O":
        return _texts(name, shape, size, data)
    if len(data) != size * dtype.itemsize:
        raise InvalidRequestError(
            f"input {shown(name)} has {len(data):,} bytes of data; shape {shown(shape)} of "
            f"{datatype} takes {size * dtype.itemsize:,}"
        )
    if dtype.kind == "b":
        flags = np.frombuffer(data, dtype=np.uint8)
        if flags.max(initial=0) > 1:
            place = int((flags > 1).argmax())
            raise InvalidRequestError(
                f"input {shown(name)} holds the byte {flags[place]} as value {place} (counting "
                "from 0); a BOOL is 0 or 1"
            )
    # A copy: aligned, of this machine's order, and the body may go.
    cells = np.frombuffer(data, dtype=dtype.newbyteorder("<")).astype(dtype)
    return cells.reshape(shape)


def _texts(name: str, shape: list[int], size: int, data: memoryview) -> npt.NDArray[Any]:
    """Elements of BYTES as texts."""
    if size * _LENGTH.size > len(data):
        raise InvalidRequestError(
            f"input {shown(name)} has {len(data):,} bytes of data; shape {shown(shape)} of BYTES "
            f"takes {size * _LENGTH.size:,} for the lengths of its elements alone"
        )
    raw, texts = bytes(data), []
    unpack, width, bytes_there = _LENGTH.unpack_from, _LENGTH.size, len(data)
    end = 0
    try:
        for _ in range(size):
            start = end + width
            end = start + unpack(raw, end)[0]
            if end > bytes_there:
                raise struct.error
            texts.append(raw[start:end].decode())
    except struct.error:
        raise InvalidRequestError(
            f"input {shown(name)} has {len(raw):,} bytes of data, which end within element "
            f"{len(texts)} (counting from 0); an element of BYTES is its length, 4 bytes "
            "little-endian, and as many bytes"
        ) from None
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"input {shown(name)} has an element {len(texts)} (counting from 0) that is no UTF-8: "
            f"{error.reason}"
        ) from None
    if end != len(raw):
        raise InvalidRequestError(
            f"input {shown(name)} has {len(raw):,} bytes of data, and its {size:,} elements end "
            f"after {end:,}"
        )
    cells = np.empty(size, dtype=object)
    cells[:] = texts
    return cells.reshape(shape)


def bytes_of(tensor: Tensor) -> bytes:
    """The cells of an output as the extension has them."""
    cells = tensor.cells
    if tensor.datatype != "BYTES":
        return cells.astype(cells.dtype.newbyteorder("<"), copy=False).tobytes()
    parts = []
    for text in cells.ravel().tolist():
        data = text.encode()
        parts += [_LENGTH.pack(len(data)), data]
    return b"".join(parts)


# ---------------------------------------------------------------- inflate
# Compressed bodies of requests, inflated within the bound of plain ones.

_WINDOW = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
"""zlib's ``wbits`` of each coding; deflate is zlib's format (RFC 9110, section 8.4.1)."""


def inflated(body: bytes, coding: bytes, most: int) -> bytes:
    """The body that a ``Content-Encoding`` stands for.

    Parameters
    ----------
    body : bytes
    coding : bytes
        The header.
    most : int
        Bytes of the result; no more are made.

    Raises
    ------
    UnsupportedError
        For another coding, or several.
    InvalidRequestError
        If the bytes are not of that coding, end early, or go on after its end.
    TooLargeError
        If there would be more.
    """
    name = coding.strip().lower()
    if name in (b"", b"identity"):
        return body
    if name not in _WINDOW:
        raise UnsupportedError(
            f"the body has Content-Encoding {coding[:40].decode('latin-1')!r}; this server takes "
            "gzip and deflate, one at a time, and plain bodies"
        )
    stream = zlib.decompressobj(_WINDOW[name])
    try:
        plain = stream.decompress(body, most + 1)
    except zlib.error as error:
        raise InvalidRequestError(f"the body is not {name.decode()}: {error}") from None
    if len(plain) > most:
        raise TooLargeError(
            f"the body is longer than {most:,} bytes when inflated, which is what this server "
            "takes; send it in parts"
        )
    if not stream.eof:
        raise InvalidRequestError(f"the body ends before its {name.decode()} does; send all of it")
    if stream.unused_data:
        raise InvalidRequestError(
            f"the body goes on after the end of its {name.decode()}; send one stream"
        )
    return plain
