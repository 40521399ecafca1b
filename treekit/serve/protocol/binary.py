"""Tensors as bytes: Triton's binary tensor extension.

A body is JSON, then the bytes of the tensors that say so by ``binary_data_size``, in the
order of the JSON; the header ``Inference-Header-Content-Length`` gives the bytes of JSON.
Cells are little-endian, in row-major order; BOOL a byte of 0 or 1; an element of BYTES a
length of four bytes and as many bytes of UTF-8.  NaN is a missing number.

https://github.com/triton-inference-server/server, ``docs/protocol/extension_binary_data.md``
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.serve.errors import InvalidRequestError, shown
from treekit.serve.models.tensors import Tensor
from treekit.serve.protocol.values import checked_size

__all__ = ["LENGTH_HEADER", "bytes_of", "cells_of_bytes", "split_body"]

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
