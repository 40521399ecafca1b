"""Tensors as the protocol's raw bytes: row-major, little-endian, without padding.

gRPC's ``raw_input_contents`` and the binary tensor extension of REST share them.  Of BYTES
each element is its length as a uint32, then its bytes, which are UTF-8 here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.serve.errors import InvalidRequestError
from treekit.serve.tensors import DATATYPES, Tensor, numpy_type

__all__ = ["from_raw", "shaped", "size_of", "text_of", "to_raw"]

_MOST_LENGTHS = 8
"""In a shape; a product of thousands of lengths would take a second to compute."""

_PREFIX = 4


def size_of(name: str, shape: Sequence[int]) -> int:
    """How many cells a shape has.

    Raises
    ------
    InvalidRequestError
        For none, negative or too many lengths.
    """
    if not 1 <= len(shape) <= _MOST_LENGTHS:
        raise InvalidRequestError(
            f"{name!r} has a shape of {len(shape)} lengths; give 1 to {_MOST_LENGTHS}"
        )
    if any(length < 0 for length in shape):
        raise InvalidRequestError(
            f"{name!r} has shape {list(shape)}; a length is not negative: give the number of rows"
        )
    return math.prod(shape)


def shaped(name: str, cells: npt.NDArray[Any], shape: Sequence[int]) -> npt.NDArray[Any]:
    """Cells of the right number in their shape; refuses what NumPy does: ``[0, 2**62]``."""
    try:
        return cells.reshape(tuple(shape))
    except ValueError:
        raise InvalidRequestError(
            f"{name!r} has shape {list(shape)}, which is larger than any array"
        ) from None


def from_raw(name: str, datatype: str, shape: Sequence[int], data: bytes) -> Tensor:
    """The tensor that bytes stand for; numbers are a view on them, read only.

    Raises
    ------
    InvalidRequestError
        Names the tensor, and what is wrong with datatype, shape or bytes.
    """
    dtype = numpy_type(name, datatype)
    size = size_of(name, shape)
    if datatype == "BYTES":
        return Tensor(name, datatype, shaped(name, _texts(name, shape, size, data), shape))
    if len(data) != size * dtype.itemsize:
        raise InvalidRequestError(
            f"{name!r} has {len(data)} bytes, and {datatype} of shape {list(shape)} takes "
            f"{size * dtype.itemsize}"
        )
    cells = np.frombuffer(data, dtype=np.uint8 if datatype == "BOOL" else dtype.newbyteorder("<"))
    if datatype == "BOOL":
        if (cells > 1).any():
            raise InvalidRequestError(f"{name!r} has a BOOL of {cells.max()}; each is 0 or 1")
        cells = cells.view(np.bool_)
    return Tensor(name, datatype, shaped(name, cells, shape))


def _texts(name: str, shape: Sequence[int], size: int, data: bytes) -> npt.NDArray[Any]:
    """(size,) str."""
    if len(data) < size * _PREFIX:  # before anything of this size is made
        raise InvalidRequestError(
            f"{name!r} has {len(data)} bytes, and BYTES of shape {list(shape)} take "
            f"{size * _PREFIX} for their lengths alone"
        )
    cells = np.empty(size, dtype=object)
    end = 0
    for number in range(size):
        start = end + _PREFIX
        end = start + int.from_bytes(data[end:start], "little")
        if end > len(data):
            raise InvalidRequestError(
                f"{name!r}: element {number} (counting from 0) goes beyond the {len(data)} bytes "
                "of the tensor; each is its length as a little-endian uint32, then its bytes"
            )
        cells[number] = text_of(name, number, data[start:end])
    if end != len(data):
        raise InvalidRequestError(
            f"{name!r} has {len(data)} bytes, and its {size} elements end at {end}"
        )
    return cells


def text_of(name: str, number: int, element: bytes) -> str:
    """The text of an element of BYTES; InvalidRequestError unless it is UTF-8."""
    try:
        return element.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"{name!r}: element {number} (counting from 0) is no UTF-8: {error.reason} at byte "
            f"{error.start}"
        ) from None


def to_raw(tensor: Tensor) -> bytes:
    """The bytes of a tensor of an answer; None among texts is the empty text."""
    if tensor.datatype == "BYTES":
        parts = []
        for text in tensor.cells.ravel().tolist():
            element = b"" if text is None else text.encode()
            parts += [len(element).to_bytes(_PREFIX, "little"), element]
        return b"".join(parts)
    dtype = DATATYPES[tensor.datatype].newbyteorder("<")
    return np.ascontiguousarray(tensor.cells, dtype=dtype).tobytes()
