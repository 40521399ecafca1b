"""Requests and answers of the Open Inference Protocol v2: JSON, with or without bytes after it.

Read with types, never by the request's Content-Type, which clients leave out.

What the protocol leaves open, and what is done here:

- Members and parameters that are not known are passed over; parameters that ask for another
  kind of answer (Triton's classification and shared memory) are refused by name.
- A member twice in one object is refused: each reader takes another of the two.
- null is a missing value, in requests and answers.  JSON has no NaN and no infinities, but
  Triton's clients write them: a request may have NaN, which is read as null, and Infinity and
  -Infinity.  An answer as JSON has null for them, and the output's parameter ``not_finite``
  counts them; binary data have them as they are.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from treekit.serve.errors import InvalidRequestError, TooLargeError, shown
from treekit.serve.models.served import Served
from treekit.serve.models.tensors import Tensor, numpy_type
from treekit.serve.protocol.binary import bytes_of, cells_of_bytes, split_body
from treekit.serve.protocol.malformed import malformed, read_constants, refuse_repeats
from treekit.serve.protocol.requests import InferRequest, InputRequest
from treekit.serve.protocol.values import cells_of_json

__all__ = ["InferRequest", "answer_json", "answer_of", "read_request", "tensors_of"]

_NO_BYTES = memoryview(b"")
_request = msgspec.json.Decoder(InferRequest)


# ------------------------------------------------------------------------- requests


def read_request(body: bytes, length: bytes | None = None) -> tuple[InferRequest, memoryview]:
    """The request in a body, and the bytes of its tensors.

    Parameters
    ----------
    body : bytes
    length : bytes, optional
        The header `treekit.serve.protocol.binary.LENGTH_HEADER`; None: all is JSON.

    Raises
    ------
    InvalidRequestError
        If it is no JSON, or not what the protocol asks for.
    """
    text, rest = split_body(body, length)
    try:
        request = _request.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if b"NaN" not in text and b"Infinity" not in text:
            raise malformed(text, error) from None
        request = _request_with_constants(text)
    else:
        if text.count(b'"') != request.quotes:
            refuse_repeats(text)
    request.check()
    return request, rest


def _request_with_constants(text: bytes) -> InferRequest:
    """The request in JSON with NaN or Infinity; data that hold numbers are lists already."""
    found = read_constants(text)
    inputs = found.get("inputs") if isinstance(found, dict) else None
    lists: dict[int, list[Any]] = {}
    for place, given in enumerate(inputs if isinstance(inputs, list) else ()):
        data = given.get("data") if isinstance(given, dict) else None
        if isinstance(data, list) and data:
            lists[place] = given.pop("data")
        elif isinstance(given, dict) and "data" in given:
            given["data"] = msgspec.Raw(msgspec.json.encode(data))
    try:
        request = msgspec.convert(found, InferRequest)
    except msgspec.ValidationError as error:
        raise malformed(text, error) from None
    for place, data in lists.items():
        request.inputs[place].data = data  # type: ignore[assignment]  # see `InputRequest`
    return request


def tensors_of(
    request: InferRequest, rest: memoryview = _NO_BYTES, rows: int | None = None
) -> list[Tensor]:
    """The tensors of a request.

    Parameters
    ----------
    request : InferRequest
    rest : memoryview
        The bytes after the JSON.
    rows : int, optional
        More are refused before data are read.

    Raises
    ------
    InvalidRequestError
        Names the input, and what is wrong with its datatype, shape or data.
    TooLargeError
        If there are more rows.
    """
    tensors = []
    for given in request.inputs:
        if rows is not None and given.shape and given.shape[0] > rows:
            raise TooLargeError(
                f"input {shown(given.name)} has shape {shown(given.shape)}; this server takes "
                f"{rows:,} rows at once: send them in parts"
            )
        tensor, rest = _tensor(given, rest)
        tensors.append(tensor)
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise InvalidRequestError("an input is given twice; give each name once")
    if rest:
        raise InvalidRequestError(
            f"the body has {len(rest):,} bytes after the data of its last input; give each "
            "binary input's bytes as its parameter binary_data_size"
        )
    return tensors


def _tensor(given: InputRequest, rest: memoryview) -> tuple[Tensor, memoryview]:
    """The tensor of one input, and the bytes that are not its own."""
    name, datatype, shape, raw = given.name, given.datatype, given.shape, given.data
    dtype = numpy_type(name, datatype)
    if "binary_data_size" in given.parameters:
        size = given.parameters["binary_data_size"]
        if raw:
            raise InvalidRequestError(
                f"input {shown(name)} has both data and binary_data_size; give one of them"
            )
        if type(size) is not int or not 0 <= size <= len(rest):
            raise InvalidRequestError(
                f"input {shown(name)} has binary_data_size {shown(size)}; {len(rest):,} bytes "
                "are left after the JSON of the body and the inputs before it, whose end the "
                "header Inference-Header-Content-Length tells"
            )
        cells = cells_of_bytes(name, datatype, shape, rest[:size], dtype)
        return Tensor(name, datatype, cells), rest[size:]
    if not raw:
        raise InvalidRequestError(
            f"input {shown(name)} has no data; give data, or binary_data_size and bytes"
        )
    return Tensor(name, datatype, cells_of_json(name, datatype, shape, raw, dtype)), rest


# -------------------------------------------------------------------------- answers

_encode = msgspec.json.Encoder().encode


def answer_json(served: Served, request_id: str | None, outputs: list[Tensor]) -> bytes:
    """``$inference_response``, all data as JSON."""
    return _head(served, request_id, [_in_json(output) for output in outputs])


def answer_of(
    served: Served, request: InferRequest, outputs: list[Tensor]
) -> tuple[bytes, int | None]:
    """``$inference_response`` as the request wants it, and how many bytes of it are JSON.

    None: all are.  The bytes of tensors follow in the order of the outputs.
    """
    binary = [request.binary(output.name) for output in outputs]
    if not any(binary):
        return answer_json(served, request.id, outputs), None
    parts, said = [], []
    for output, as_bytes in zip(outputs, binary, strict=True):
        if as_bytes:
            data = bytes_of(output)
            parts.append(data)
            said.append(_said(output) | {"parameters": {"binary_data_size": len(data)}})
        else:
            said.append(_in_json(output))
    head = _head(served, request.id, said)
    return b"".join((head, *parts)), len(head)


def _head(served: Served, request_id: str | None, outputs: list[dict[str, Any]]) -> bytes:
    answer: dict[str, Any] = {"model_name": served.name, "model_version": served.version}
    if request_id is not None:
        answer["id"] = request_id
    answer["outputs"] = outputs
    return _encode(answer)


def _said(output: Tensor) -> dict[str, Any]:
    return {"name": output.name, "datatype": output.datatype, "shape": output.cells.shape}


def _in_json(output: Tensor) -> dict[str, Any]:
    said = _said(output)
    cells = output.cells
    said["data"] = cells.ravel().tolist()  # msgspec writes null for what is not finite
    if cells.dtype.kind == "f":
        lost = cells.size - int(np.count_nonzero(np.isfinite(cells)))
        if lost:
            said["parameters"] = {"not_finite": lost}
    return said
