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


def input_error(name: str, problem: str) -> InvalidRequestError:
    """Return the error for an input of a request."""
    return InvalidRequestError(f"input {shown(name)} {problem}")


def check_datatype(name: str, datatype: str) -> None:
    """Raise `InvalidRequestError` if this server does not have the datatype of input `name`."""
    if datatype not in DATATYPES:
        remedy = "; send it as FP32" if datatype == "BF16" else ""
        raise input_error(
            name,
            f"has datatype {shown(datatype)}, which this server does not support{remedy}; "
            f"supported: {', '.join(DATATYPES)}",
        )
