"""Tensors of the Open Inference Protocol: names, datatypes, shapes and values.

Internal form of tensors sent as JSON or bytes (`treekit.serve.protocol`) or as protocol buffers
(`treekit.serve.grpc`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.serve.errors import InvalidRequestError, shown

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
"""NumPy type of each supported datatype of the protocol."""


class TensorSpec(NamedTuple):
    """Name, datatype and shape of an input or output; -1 in a shape is the number of rows."""

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
        Values of the datatype's NumPy type; BYTES are ``str``.  A null in a request is NaN for
        numbers (integers become float64), None in an object array for BOOL and BYTES.
    """

    name: str
    datatype: str
    cells: npt.NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array, the number of rows first."""
        return self.cells.shape


def get_numpy_type(name: str, datatype: str) -> np.dtype[Any]:
    """Return the NumPy type for the datatype of input `name`.

    Raises
    ------
    InvalidRequestError
        If the protocol or this server does not have the datatype.
    """
    try:
        return DATATYPES[datatype]
    except KeyError:
        remedy = "; send it as FP32" if datatype == "BF16" else ""
        raise InvalidRequestError(
            f"input {shown(name)} has datatype {shown(datatype)}, which this server does not "
            f"support{remedy}; supported: {', '.join(DATATYPES)}"
        ) from None
