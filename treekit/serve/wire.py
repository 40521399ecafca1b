"""Requests and answers of the Open Inference Protocol v2 as JSON, with or without bytes.

Read with types, never by the request's Content-Type, which clients leave out.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.serve.errors import InvalidRequestError
from treekit.serve.served import Served
from treekit.serve.tensors import Tensor, numpy_type

__all__ = ["InferRequest", "answer_json", "read_request", "tensors_of"]


class InputRequest(msgspec.Struct):
    """``$request_input`` of the protocol; `data` is read when its datatype is known."""

    name: str
    shape: list[int]
    datatype: str
    data: msgspec.Raw = msgspec.Raw()
    parameters: dict[str, bool | int | float | str | None] = {}


class OutputRequest(msgspec.Struct):
    """``$request_output``."""

    name: str
    parameters: dict[str, bool | int | float | str | None] = {}


class InferRequest(msgspec.Struct):
    """``$inference_request``."""

    inputs: list[InputRequest]
    id: str | None = None
    outputs: list[OutputRequest] | None = None
    parameters: dict[str, bool | int | float | str | None] = {}


_request = msgspec.json.Decoder(InferRequest)
_FLAT: dict[str, msgspec.json.Decoder[Any]] = {
    **dict.fromkeys(("FP16", "FP32", "FP64"), msgspec.json.Decoder(list[float | None])),
    **dict.fromkeys(
        ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
        msgspec.json.Decoder(list[int | None]),
    ),
    "BOOL": msgspec.json.Decoder(list[bool | None]),
    "BYTES": msgspec.json.Decoder(list[str | None]),
}


def read_request(body: bytes | bytearray) -> InferRequest:
    """The request in a JSON body.

    Raises
    ------
    InvalidRequestError
        If it is no JSON, or not what the protocol asks for.
    """
    try:
        return _request.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"the body is no inference request: {error}") from None


def tensors_of(request: InferRequest) -> list[Tensor]:
    """The tensors of a request whose data are all JSON.

    Raises
    ------
    InvalidRequestError
        Names the input, and what is wrong with its datatype, shape or data.
    """
    return [_tensor(given) for given in request.inputs]


def _tensor(given: InputRequest) -> Tensor:
    dtype = numpy_type(given.name, given.datatype)
    size = checked_size(given.name, given.shape)
    raw = given.data
    if not raw:
        raise InvalidRequestError(f"input {given.name!r} has no data")
    try:
        values = _FLAT[given.datatype].decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        values = _nested(given, error)
    if len(values) != size:
        raise InvalidRequestError(
            f"input {given.name!r} has {len(values)} values, and shape {given.shape} holds {size}"
        )
    return Tensor(given.name, given.datatype, _cells(given, values, dtype).reshape(given.shape))


def checked_size(name: str, shape: list[int]) -> int:
    """How many cells a shape has; InvalidRequestError for one that is none."""
    if not shape or any(length < 0 for length in shape):
        raise InvalidRequestError(
            f"input {name!r} has shape {shape}; a shape is one or more lengths, none negative"
        )
    return math.prod(shape)


def _nested(given: InputRequest, error: Exception) -> list[Any]:
    """The values of data that are nested as the shape is, in row-major order."""
    raise InvalidRequestError(f"input {given.name!r}: its data do not fit: {error}") from None


def _cells(given: InputRequest, values: list[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """(values,) of the datatype's type; with nulls float64, or objects."""
    if dtype.hasobject:
        cells = np.empty(len(values), dtype=object)
        cells[:] = values
        return cells
    if None in values:
        if given.datatype == "BOOL":
            return np.array(values, dtype=object)
        return np.array(values, dtype=np.float64)
    try:
        return np.array(values, dtype=dtype)
    except OverflowError as error:
        raise InvalidRequestError(f"input {given.name!r}: {error}") from None


_encode = msgspec.json.Encoder().encode


def answer_json(served: Served, request_id: str | None, outputs: list[Tensor]) -> bytes:
    """``$inference_response``, all data as JSON; NaN and infinities, which it lacks, are null."""
    answer: dict[str, Any] = {"model_name": served.name, "model_version": served.version}
    if request_id is not None:
        answer["id"] = request_id
    answer["outputs"] = [
        {
            "name": output.name,
            "datatype": output.datatype,
            "shape": output.cells.shape,
            "data": output.cells.ravel().tolist(),
        }
        for output in outputs
    ]
    return _encode(answer)
