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
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.data.cells import make_object_array
from treekit.serve.errors import InvalidRequestError, TooLargeError, UnsupportedError, shown
from treekit.serve.models.tensors import DATATYPES, Tensor, input_error

if TYPE_CHECKING:
    from treekit.serve.protocol.messages import InputRequest

# ---------------------------------------------------------------- JSON data

MAX_DIMENSIONS = 8
"""Maximum dimensions of a shape, and so the maximum depth of nested data."""

_MAX_CELLS = 2**48

Values = list[Any]
Bytes = bytes | memoryview


def decode_cells(given: InputRequest, raw: msgspec.Raw | Values | Bytes) -> npt.NDArray[Any]:
    """Decode the cells of an input from JSON or bytes.

    Parameters
    ----------
    given : InputRequest
        Input of a supported datatype.
    raw : msgspec.Raw, list, bytes or memoryview
        Well-formed JSON; the list decoded from JSON with NaN or Infinity; or exactly the bytes of
        the input.

    Returns
    -------
    array of the input's shape
        Cells as in `treekit.serve.models.tensors.Tensor`; a copy.

    Raises
    ------
    InvalidRequestError
        If the data do not match the datatype, range, nesting or shape, or the shape is invalid.
    """
    shape = given.shape
    if not 0 < len(shape) <= MAX_DIMENSIONS or min(shape) < 0:
        raise input_error(
            given.name,
            f"has shape {shown(shape)}; a shape has 1 to {MAX_DIMENSIONS} lengths, none of them "
            "negative, the number of rows first",
        )
    if math.prod(length or 1 for length in shape) > _MAX_CELLS:  # NumPy rejects [0, 2**62]
        raise input_error(given.name, f"has shape {shown(shape)}, which is too large for an array")
    decode: Any = _decode_bytes if isinstance(raw, bytes | memoryview) else _decode_json
    cells: npt.NDArray[Any] = decode(given, raw, DATATYPES[given.datatype], math.prod(shape))
    return cells.reshape(shape)


# ------------------------------------------------------------------ JSON to values

_CELL_TYPES: dict[str, type] = {"f": float, "i": int, "u": int, "b": bool, "O": str}
"""Type of a JSON value by kind of the NumPy type."""

_OPENING = re.compile(rb"[\[ \t\r\n]*")


def _decode_json(
    given: InputRequest, raw: msgspec.Raw | Values, dtype: np.dtype[Any], size: int
) -> npt.NDArray[Any]:
    values = _decode_values(given, raw, dtype)
    if len(values) != size:
        raise input_error(
            given.name,
            f"has {len(values):,} values, but its shape {shown(given.shape)} requires {size:,}",
        )
    if dtype.kind == "f":
        return _values_to_floats(given, values, dtype)
    has_null = None in values if isinstance(raw, list) else b"null" in bytes(raw)
    return _values_to_array(given, values, dtype, has_null)


@lru_cache
def _make_decoder(cell: type, depth: int) -> msgspec.json.Decoder[Any]:
    nested: Any = list[cell | None]  # type: ignore[valid-type]
    for _ in range(depth - 1):
        nested = list[nested]
    return msgspec.json.Decoder(nested)


def _decode_values(given: InputRequest, raw: msgspec.Raw | Values, dtype: np.dtype[Any]) -> Values:
    """Decode the values in row-major order."""
    depth = _nesting_depth(raw)
    if depth not in (1, len(given.shape)):
        kind = f"nested {depth} deep" if depth else "that are not a list"
        raise input_error(
            given.name,
            f"has data {kind}; give one flat list, or lists nested according to its shape "
            f"{given.shape}",
        )
    try:
        decoder = _make_decoder(_CELL_TYPES[dtype.kind], depth)
        values: Values = (
            msgspec.convert(raw, decoder.type) if isinstance(raw, list) else decoder.decode(raw)
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"has data that are not {given.datatype}: {_explain_error(error)}"
        raise input_error(given.name, problem) from None
    return values if depth == 1 else _flatten_lists(given, values)


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


def _flatten_lists(given: InputRequest, values: Values) -> Values:
    """Flatten nested lists and check their lengths against the shape."""
    lists = [values]
    for place, length in enumerate(given.shape, 1):
        wrong = next((found for found in map(len, lists) if found != length), None)
        if wrong is not None:
            raise input_error(
                given.name,
                f"has a list of length {wrong:,} at depth {place}, but its shape {given.shape} "
                f"requires length {length:,}",
            )
        lists = list(chain.from_iterable(lists))
    return lists


def _explain_error(error: Exception) -> str:
    """Return the message of msgspec, with a remedy where possible."""
    if isinstance(error, UnicodeDecodeError):
        return "a string is not UTF-8"
    text = str(error)
    for part, remedy in _REMEDIES.items():
        if part in text:
            return f"{text}; {remedy}"
    return text


_REMEDIES = {
    "out of range": "it does not fit into 64 bits",
    "got `str`": "write numbers without quotes, and null for a missing value",
    "Expected `str | null`": "write every cell in quotes, also numbers, and null for a missing "
    "value",
}
"""Remedies by a part of msgspec's message."""

# --------------------------------------------------------------- values to an array


def _values_to_array(
    given: InputRequest, values: Values, dtype: np.dtype[Any], has_null: bool
) -> npt.NDArray[Any]:
    """Convert integers, booleans or strings to an array (values,), with nulls as in `Tensor`."""
    if dtype.kind == "O" or (dtype.kind == "b" and has_null):
        return make_object_array(values)
    known = [value for value in values if value is not None] if has_null else values
    try:
        cells = np.array(known, dtype=dtype)
    except OverflowError:
        raise _range_error(given, min(known), max(known), np.iinfo(dtype)) from None
    return np.array(values, dtype=np.float64) if len(known) < len(values) else cells


def _values_to_floats(
    given: InputRequest, values: Values, dtype: np.dtype[Any]
) -> npt.NDArray[np.floating[Any]]:
    """Convert values to doubles, then round to the type; null is NaN."""
    doubles = np.array(values, dtype=np.float64)
    if dtype == np.float64:
        return doubles
    with np.errstate(over="ignore", under="ignore"):
        cells: npt.NDArray[np.floating[Any]] = doubles.astype(dtype)
    if (np.isinf(cells) & np.isfinite(doubles)).any():  # a number became infinite
        found = doubles[np.isfinite(doubles)]
        raise _range_error(given, found.min(), found.max(), np.finfo(dtype))
    return cells


def _range_error(
    given: InputRequest, low: Any, high: Any, limits: np.iinfo[Any] | np.finfo[Any]
) -> InvalidRequestError:
    return input_error(
        given.name,
        f"has values from {low!s:.80} to {high!s:.80}, out of the range of {given.datatype}, "
        f"{limits.min} to {limits.max}",
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


def _decode_bytes(
    given: InputRequest, data: Bytes, dtype: np.dtype[Any], size: int
) -> npt.NDArray[Any]:
    if dtype.kind == "O":
        return _decode_strings(given.name, size, data)
    if len(data) != size * dtype.itemsize:
        raise input_error(
            given.name,
            f"has {len(data):,} bytes of data; shape {shown(given.shape)} of {given.datatype} "
            f"requires {size * dtype.itemsize:,}",
        )
    if dtype.kind == "b":
        flags = np.frombuffer(data, dtype=np.uint8)
        if flags.max(initial=0) > 1:
            place = int((flags > 1).argmax())
            raise input_error(
                given.name,
                f"has the byte {flags[place]} as value {place} (counting from 0); a BOOL is 0 or 1",
            )
    # A copy: aligned, in native byte order, and without a reference to the body.
    return np.frombuffer(data, dtype=dtype.newbyteorder("<")).astype(dtype)


def _decode_strings(name: str, size: int, data: Bytes) -> npt.NDArray[Any]:
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
        raise input_error(
            name,
            f"has {len(raw):,} bytes of data, which are not {size:,} elements of BYTES; each is a "
            "4-byte little-endian length followed by that many bytes",
        )
    return make_object_array(texts)


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


_PIECE_BYTES = 1 << 16
_MAX_MEMBERS = 1000
"""Members of gzip in a body: tools that compress in parallel write one for each 64 KB or more."""


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
        If the bytes are invalid, truncated, or followed by other data; gzip may have members.
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
    try:
        return _decompress_members(body, name, most)
    except zlib.error as error:
        raise InvalidRequestError(f"the body is not {name.decode()}: {error}") from None


def _decompress_members(body: bytes, name: bytes, most: int) -> bytes:
    """Decompress the members of gzip one after the other, or the one stream of deflate."""
    stream, n_members = zlib.decompressobj(_WINDOW_BITS[name]), 1
    plain = bytearray()
    for start in range(0, len(body), _PIECE_BYTES):  # what follows a member is copied
        piece = body[start : start + _PIECE_BYTES]
        while piece:
            if stream.eof:
                n_members += 1
                if name == b"deflate":
                    raise InvalidRequestError(
                        "the body has data after its deflate stream; send one"
                    )
                if n_members > _MAX_MEMBERS:
                    raise InvalidRequestError(
                        f"the body has more than {_MAX_MEMBERS:,} members of gzip; send one"
                    )
                stream = zlib.decompressobj(_WINDOW_BITS[name])
            plain += stream.decompress(piece, most + 1 - len(plain))
            if len(plain) > most:
                raise TooLargeError(
                    f"the decompressed body is longer than {most:,} bytes, the limit of this "
                    "server; send it in parts"
                )
            piece = stream.unused_data
    if not stream.eof:
        raise InvalidRequestError(f"the body is not a complete {name.decode()} stream; send all")
    return bytes(plain)
