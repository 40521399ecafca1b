"""Conversion of tensor data between JSON or bytes and arrays.

JSON data are flat or nested lists, decoded by msgspec and converted by NumPy without Python loops.
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

# ---------------------------------------------------------------- JSON data

MAX_DIMENSIONS = 8
"""Maximum dimensions of a shape, and so the maximum depth of nested data."""

_MAX_CELLS = 2**48

Values = list[Any]


def check_shape(name: str, shape: list[int]) -> int:
    """Return the number of cells of a shape; InvalidRequestError if it is invalid."""
    if not 0 < len(shape) <= MAX_DIMENSIONS or min(shape) < 0:
        raise InvalidRequestError(
            f"input {shown(name)} has shape {shown(shape)}; a shape has 1 to {MAX_DIMENSIONS} "
            "lengths, none of them negative, the number of rows first"
        )
    if math.prod(length or 1 for length in shape) > _MAX_CELLS:  # NumPy rejects [0, 2**62]
        raise InvalidRequestError(
            f"input {shown(name)} has shape {shown(shape)}, which is too large for an array"
        )
    return math.prod(shape)


def decode_json_cells(
    name: str, datatype: str, shape: list[int], raw: msgspec.Raw | Values, dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Decode the cells of input `name` from JSON.

    Parameters
    ----------
    name, datatype : str
    shape : list of int
        Shape in the request.
    raw : msgspec.Raw or list
        Well-formed JSON, or the list decoded from JSON with NaN or Infinity.
    dtype : dtype
        NumPy type of `datatype`.

    Returns
    -------
    array of `shape`
        Cells as in `treekit.serve.models.tensors.Tensor`.

    Raises
    ------
    InvalidRequestError
        If the data do not match the datatype, range, nesting or shape.
    """
    size = check_shape(name, shape)
    values = _decode_values(name, datatype, shape, raw)
    if len(values) != size:
        raise InvalidRequestError(
            f"input {shown(name)} has {len(values):,} values, but its shape {shown(shape)} "
            f"requires {size:,}"
        )
    if dtype.kind == "f":
        return _values_to_floats(name, datatype, values, dtype).reshape(shape)
    has_null = None in values if isinstance(raw, list) else b"null" in bytes(raw)
    return _values_to_array(name, datatype, values, dtype, has_null).reshape(shape)


# ------------------------------------------------------------------ JSON to values

_CELL_TYPES: dict[str, type] = {
    **dict.fromkeys(("FP16", "FP32", "FP64"), float),
    **dict.fromkeys(("INT8", "INT16", "INT32", "INT64"), int),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32", "UINT64"), int),
    "BOOL": bool,
    "BYTES": str,
}
_OPENING = re.compile(rb"[\[ \t\r\n]*")


@lru_cache
def _make_decoder(cell: type, depth: int) -> msgspec.json.Decoder[Any]:
    nested: Any = list[cell | None]  # type: ignore[valid-type]
    for _ in range(depth - 1):
        nested = list[nested]
    return msgspec.json.Decoder(nested)


def _decode_values(name: str, datatype: str, shape: list[int], raw: msgspec.Raw | Values) -> Values:
    """Decode the values in row-major order."""
    depth = _nesting_depth(raw)
    if depth not in (1, len(shape)):
        kind = f"nested {depth} deep" if depth else "that are not a list"
        raise InvalidRequestError(
            f"input {shown(name)} has data {kind}; give one flat list, or lists "
            f"nested according to its shape {shape}"
        )
    try:
        decoder = _make_decoder(_CELL_TYPES[datatype], depth)
        values: Values = (
            msgspec.convert(raw, decoder.type) if isinstance(raw, list) else decoder.decode(raw)
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(
            f"input {shown(name)} has data that are not {datatype}: {_explain_error(error)}"
        ) from None
    return values if depth == 1 else _flatten_lists(name, shape, values)


def _nesting_depth(raw: msgspec.Raw | Values) -> int:
    """Return the nesting depth of lists before the first value."""
    if isinstance(raw, msgspec.Raw):
        opening = _OPENING.match(memoryview(raw))
        return opening.group().count(b"[") if opening else 0
    depth = 0
    item: Any = raw
    while isinstance(item, list):
        depth, item = depth + 1, item[0] if item else None
    return depth


def _flatten_lists(name: str, shape: list[int], values: Values) -> Values:
    """Flatten nested lists and check their lengths against the shape."""
    lists = [values]
    for place, length in enumerate(shape):
        if not set(map(len, lists)) <= {length}:
            wrong = next(found for found in map(len, lists) if found != length)
            raise InvalidRequestError(
                f"input {shown(name)} has a list of length {wrong:,} at depth {place + 1}, but "
                f"its shape {shape} requires length {length:,}"
            )
        lists = list(chain.from_iterable(lists))
    return lists


def _explain_error(error: Exception) -> str:
    """Return the message of msgspec, with a remedy where possible."""
    if isinstance(error, UnicodeDecodeError):
        return "a string is not UTF-8"
    text = str(error)
    if "out of range" in text:
        return f"{text}; it does not fit into 64 bits"
    if "got `str`" in text:
        return f"{text}; write numbers without quotes, and null for a missing value"
    if "Expected `str | null`" in text:
        return f"{text}; write every cell in quotes, also numbers, and null for a missing value"
    return text


# --------------------------------------------------------------- values to an array


def _values_to_array(
    name: str, datatype: str, values: Values, dtype: np.dtype[Any], has_null: bool
) -> npt.NDArray[Any]:
    """Convert integers, booleans or strings to an array (values,), with nulls as in `Tensor`."""
    if dtype.kind == "O" or (dtype.kind == "b" and has_null):
        cells = np.empty(len(values), dtype=object)
        cells[:] = values
        return cells
    known = [value for value in values if value is not None] if has_null else values
    try:
        cells = np.array(known, dtype=dtype)
    except OverflowError:
        raise _range_error(name, datatype, min(known), max(known), np.iinfo(dtype)) from None
    return np.array(values, dtype=np.float64) if len(known) < len(values) else cells


def _values_to_floats(
    name: str, datatype: str, values: Values, dtype: np.dtype[Any]
) -> npt.NDArray[np.floating[Any]]:
    """Convert values to doubles, then round to the type; null is NaN."""
    doubles = np.array(values, dtype=np.float64)
    if dtype == np.float64:
        return doubles
    with np.errstate(over="ignore", under="ignore"):
        cells: npt.NDArray[np.floating[Any]] = doubles.astype(dtype)
    infinite = np.isinf(cells)
    if infinite.any():
        infinite &= np.isfinite(doubles)
    if infinite.any():  # a number became infinite
        found = doubles[np.isfinite(doubles)]
        raise _range_error(name, datatype, found.min(), found.max(), np.finfo(dtype))
    return cells


def _range_error(
    name: str, datatype: str, low: Any, high: Any, limits: np.iinfo[Any] | np.finfo[Any]
) -> InvalidRequestError:
    return InvalidRequestError(
        f"input {shown(name)} has values from {low!s:.80} to {high!s:.80}, out of the range of "
        f"{datatype}, {limits.min} to {limits.max}"
    )


# ---------------------------------------------------------------- binary data
# Triton's binary tensor extension.
#
# A body is JSON, then the bytes of the tensors with parameter ``binary_data_size``, in the
# order of the JSON; the header ``Inference-Header-Content-Length`` gives the length of the JSON.
# Cells are little-endian, in row-major order; a BOOL is a byte of 0 or 1; an element of BYTES is
# a length of four bytes followed by that many bytes of UTF-8.  NaN is a missing number.
#
# https://github.com/triton-inference-server/server, ``docs/protocol/extension_binary_data.md``

LENGTH_HEADER = b"inference-header-content-length"
"""Name of the header in ASGI scopes."""

_LENGTH_FORMAT = struct.Struct("<I")


def split_body(body: bytes, length: bytes | None) -> tuple[bytes, memoryview]:
    """Split a body into its JSON and the bytes after it.

    Parameters
    ----------
    body : bytes
    length : bytes, optional
        Value of `LENGTH_HEADER`; None if all is JSON.

    Raises
    ------
    InvalidRequestError
        If the header is not a valid length.
    """
    if length is None:
        return body, memoryview(b"")
    # At most 19 digits, to bound int() of untrusted text.
    if not (length.isdigit() and len(length) < 20) or int(length) > len(body):
        raise InvalidRequestError(
            f"the header Inference-Header-Content-Length is {shown(length.decode('latin-1'))}; "
            f"expected the length of the JSON at the start of the body of {len(body):,} bytes"
        )
    end = int(length)
    return body[:end], memoryview(body)[end:]


def decode_byte_cells(
    name: str, datatype: str, shape: list[int], data: bytes | memoryview, dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Decode the cells of input `name` from bytes, as a copy.

    Parameters
    ----------
    name, datatype : str
    shape : list of int
    data : bytes or memoryview
        Exactly the bytes of the input.
    dtype : dtype
        NumPy type of `datatype`.

    Returns
    -------
    array of `shape`

    Raises
    ------
    InvalidRequestError
        If the number of bytes does not match the shape, or bytes are not valid cells.
    """
    size = check_shape(name, shape)
    if dtype.kind == "O":
        return _decode_strings(name, size, data).reshape(shape)
    if len(data) != size * dtype.itemsize:
        raise InvalidRequestError(
            f"input {shown(name)} has {len(data):,} bytes of data; shape {shown(shape)} of "
            f"{datatype} requires {size * dtype.itemsize:,}"
        )
    if dtype.kind == "b":
        flags = np.frombuffer(data, dtype=np.uint8)
        if flags.max(initial=0) > 1:
            place = int((flags > 1).argmax())
            raise InvalidRequestError(
                f"input {shown(name)} has the byte {flags[place]} as value {place} (counting "
                "from 0); a BOOL is 0 or 1"
            )
    # A copy: aligned, in native byte order, and without a reference to the body.
    cells = np.frombuffer(data, dtype=dtype.newbyteorder("<")).astype(dtype)
    return cells.reshape(shape)


def _decode_strings(name: str, size: int, data: bytes | memoryview) -> npt.NDArray[Any]:
    """Decode the elements of BYTES as strings."""
    raw, texts = bytes(data), []
    end = 0
    try:
        for _ in range(size):
            start = end + _LENGTH_FORMAT.size
            end = start + _LENGTH_FORMAT.unpack_from(raw, end)[0]
            texts.append(raw[start:end].decode())
    except struct.error:
        end = -1
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"element {len(texts)} (counting from 0) of input {shown(name)} is not UTF-8: "
            f"{error.reason}"
        ) from None
    if end != len(raw):
        raise InvalidRequestError(
            f"input {shown(name)} has {len(raw):,} bytes of data, which are not {size:,} elements "
            "of BYTES; each is a 4-byte little-endian length followed by that many bytes"
        )
    cells = np.empty(size, dtype=object)
    cells[:] = texts
    return cells


def encode_bytes(tensor: Tensor) -> bytes:
    """Encode the cells of an output as bytes."""
    cells = tensor.cells
    if tensor.datatype != "BYTES":
        return cells.astype(cells.dtype.newbyteorder("<"), copy=False).tobytes()
    parts = []
    for text in cells.ravel().tolist():
        data = text.encode()
        parts += [_LENGTH_FORMAT.pack(len(data)), data]
    return b"".join(parts)


# ---------------------------------------------------------------- decompression
# Compressed bodies are limited to the same size as plain ones.

_WINDOW_BITS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
"""``wbits`` of zlib for each coding; deflate is the zlib format (RFC 9110, section 8.4.1)."""


def decompress_body(body: bytes, coding: bytes, most: int) -> bytes:
    """Decompress a body according to its ``Content-Encoding``.

    Parameters
    ----------
    body : bytes
    coding : bytes
        Value of the header.
    most : int
        Maximum bytes of the result.

    Raises
    ------
    UnsupportedError
        If the coding is not supported, or there are several.
    InvalidRequestError
        If the bytes are invalid, truncated, or followed by other data.
    TooLargeError
        If the result would exceed `most` bytes.
    """
    name = coding.strip().lower()
    if name in (b"", b"identity"):
        return body
    if name not in _WINDOW_BITS:
        raise UnsupportedError(
            f"unsupported Content-Encoding {coding[:40].decode('latin-1')!r}; this server accepts "
            "a single gzip or deflate coding, and plain bodies"
        )
    stream = zlib.decompressobj(_WINDOW_BITS[name])
    try:
        plain = stream.decompress(body, most + 1)
    except zlib.error as error:
        raise InvalidRequestError(f"the body is not {name.decode()}: {error}") from None
    if len(plain) > most:
        raise TooLargeError(
            f"the decompressed body is longer than {most:,} bytes, the limit of this server; send "
            "it in parts"
        )
    if not stream.eof or stream.unused_data:
        raise InvalidRequestError(
            f"the body is not a single, complete {name.decode()} stream; send one"
        )
    return plain
