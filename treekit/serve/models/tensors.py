"""Tensors of the Open Inference Protocol: names, datatypes, shapes and cells.

What crosses the wire, as JSON or bytes (`treekit.serve.protocol`) or as protocol buffers
(`treekit.serve.grpc`), is one of these on the inner side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.serve.errors import InvalidRequestError, shown

__all__ = ["DATATYPES", "Spec", "Tensor", "datatype_of", "numpy_type"]

DATATYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(object),
}
"""The protocol's datatypes and NumPy's; those that are not here are refused by name."""


class Spec(NamedTuple):
    """What a model takes, or gives: -1 in a shape is the number of rows."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class Tensor(NamedTuple):
    """A named array.

    Attributes
    ----------
    name : str
    datatype : str
        One of `DATATYPES`.
    cells : array of the tensor's shape
        Of the datatype's NumPy type; BYTES are ``str``.  Where a request has nulls: NaN for
        numbers (integers are float64 then), objects with None for BOOL and BYTES.
    """

    name: str
    datatype: str
    cells: npt.NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes, the number of rows first."""
        return self.cells.shape


def numpy_type(name: str, datatype: str) -> np.dtype[Any]:
    """NumPy's type for the datatype of input `name`.

    Raises
    ------
    InvalidRequestError
        For a datatype that the protocol or this server does not have.
    """
    try:
        return DATATYPES[datatype]
    except KeyError:
        remedy = "; send it as FP32" if datatype == "BF16" else ""
        raise InvalidRequestError(
            f"input {shown(name)} has datatype {shown(datatype)}, which this server does not "
            f"have{remedy}; known: {', '.join(DATATYPES)}"
        ) from None


def datatype_of(dtype: np.dtype[Any]) -> str:
    """The protocol's name for a type of NumPy: text and objects are BYTES."""
    return _NAMES.get(dtype, "BYTES")


_NAMES = {dtype: name for name, dtype in DATATYPES.items()}
