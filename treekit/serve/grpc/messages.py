"""Messages of the protocol, created at import from the included description.

They are in a separate descriptor pool, so that a process may also import tritonclient's messages
of the same names.  Unlike generated modules they work with any version of the protobuf runtime.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from treekit.serve.errors import InvalidRequestError, TooLargeError, shown
from treekit.serve.models.tensors import Tensor, get_numpy_type
from treekit.serve.protocol.tensor_data import check_shape, decode_byte_cells, encode_bytes

# ---------------------------------------------------------------- messages

DESCRIPTION_FILE = Path(__file__).with_name("inference.binpb")
"""Compiled ``inference.proto``, written by `treekit.serve.grpc.describe`."""

SERVICE_NAME = "inference.GRPCInferenceService"

_pool = DescriptorPool()
_pool.AddSerializedFile(DESCRIPTION_FILE.read_bytes())


def get_message_class(name: str) -> Any:
    """Return the class of a message, such as ``ModelInferRequest``."""
    return GetMessageClass(_pool.FindMessageTypeByName(f"inference.{name}"))


def get_method_classes() -> dict[str, tuple[Any, Any]]:
    """Return the request and response classes of each method of the service."""
    return {
        method.name: (GetMessageClass(method.input_type), GetMessageClass(method.output_type))
        for method in _pool.FindServiceByName(SERVICE_NAME).methods
    }


# ---------------------------------------------------------------- tensor contents

_CONTENT_FIELDS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Field with the elements of each datatype; FP16 has no field and is raw."""

_FIELD_TYPES = {"int_contents": np.int32, "uint_contents": np.uint32}
"""NumPy type of fields that also contain narrower types."""


def decode_tensors(request: Any, rows: int) -> list[Tensor]:
    """Convert the inputs of a ``ModelInferRequest``.

    Parameters
    ----------
    request : message
    rows : int
        Maximum rows, checked before elements are read.

    Raises
    ------
    InvalidRequestError
        If datatype, shape or elements of an input are invalid; the message names the input.
    TooLargeError
        If there are more than `rows` rows.
    """
    raw = request.raw_input_contents
    for given in request.inputs:
        _check_input(given, rows)
    if not raw:
        return [_decode_typed(given) for given in request.inputs]
    if len(raw) != len(request.inputs):
        raise InvalidRequestError(
            f"raw_input_contents has {len(raw)} tensors for {len(request.inputs)} inputs; give "
            "one for each, in the same order"
        )
    for given in request.inputs:
        if given.contents.ListFields():
            raise InvalidRequestError(
                f"input {shown(given.name)} has both contents and raw_input_contents; give only one"
            )
    return [_decode_raw(given, data) for given, data in zip(request.inputs, raw, strict=True)]


def _check_input(given: Any, rows: int) -> None:
    """Check the number of rows and the parameters of an input."""
    if given.shape and given.shape[0] > rows:
        raise TooLargeError(
            f"input {shown(given.name)} has {given.shape[0]:,} rows; this server takes {rows:,} at "
            "once: send them in parts"
        )
    check_parameters(f"input {shown(given.name)}", given.parameters)


def check_parameters(of: str, parameters: Iterable[str]) -> None:
    """Reject parameters that are not supported.

    Raises
    ------
    InvalidRequestError
        If a parameter is unsupported; the message names it and its owner.
    """
    for name in parameters:
        if name == "classification" or name.startswith("shared_memory_"):
            raise InvalidRequestError(
                f"{of} has the parameter {shown(name)} of an extension that this server does not "
                "support; leave it out"
            )


def _decode_raw(given: Any, data: bytes) -> Tensor:
    name, datatype, shape = given.name, given.datatype, list(given.shape)
    dtype = get_numpy_type(shown(name), datatype)
    cells = decode_byte_cells(name, datatype, shape, memoryview(data), dtype)
    return Tensor(name, datatype, cells)


def _decode_typed(given: Any) -> Tensor:
    name, datatype, shape = given.name, given.datatype, list(given.shape)
    dtype = get_numpy_type(shown(name), datatype)
    field = _CONTENT_FIELDS.get(datatype)
    if field is None:
        raise InvalidRequestError(
            f"input {shown(name)} is {datatype}, which has no field in contents; send it in "
            "raw_input_contents"
        )
    for filled, _ in given.contents.ListFields():
        if filled.name != field:
            raise InvalidRequestError(
                f"input {shown(name)} is {datatype}, but has contents in {filled.name}; send them "
                f"in {field}"
            )
    size = check_shape(name, shape)
    values = getattr(given.contents, field)
    if len(values) != size:
        raise InvalidRequestError(
            f"input {shown(name)} has {len(values)} values, but shape {shown(shape)} requires "
            f"{size}"
        )
    if datatype == "BYTES":
        cells = np.empty(size, dtype=object)
        cells[:] = [_decode_string(name, number, value) for number, value in enumerate(values)]
    else:
        wide = np.fromiter(values, dtype=_FIELD_TYPES.get(field, dtype), count=size)
        cells = _narrow_cells(name, datatype, wide, dtype)
    return Tensor(name, datatype, cells.reshape(shape))


def _decode_string(name: str, number: int, element: bytes) -> str:
    try:
        return element.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"input {shown(name)} has an element {number} (counting from 0) that is not UTF-8: "
            f"{error.reason}"
        ) from None


def _narrow_cells(
    name: str, datatype: str, cells: npt.NDArray[Any], dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Convert cells to a narrower type, which must represent all of them."""
    narrow = cells.astype(dtype, copy=False)
    if narrow.dtype != cells.dtype:
        wrong = narrow != cells
        if wrong.any():
            raise InvalidRequestError(
                f"input {shown(name)} has value {cells[wrong][0]}, out of the range of {datatype}"
            )
    return narrow


def add_outputs(answer: Any, outputs: list[Tensor], *, raw: bool) -> None:
    """Add the outputs to a ``ModelInferResponse``.

    Parameters
    ----------
    answer : message
    outputs : list of Tensor
    raw : bool
        Whether to add them as bytes instead of typed fields; implied if an output has no field.
    """
    raw = raw or any(output.datatype not in _CONTENT_FIELDS for output in outputs)
    for output in outputs:
        tensor = answer.outputs.add(name=output.name, datatype=output.datatype, shape=output.shape)
        if raw:
            answer.raw_output_contents.append(encode_bytes(output))
            continue
        values = output.cells.ravel().tolist()
        if output.datatype == "BYTES":
            values = [text.encode() for text in values]
        getattr(tensor.contents, _CONTENT_FIELDS[output.datatype]).extend(values)
