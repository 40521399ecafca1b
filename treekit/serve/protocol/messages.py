"""Requests, responses and metadata of the Open Inference Protocol v2 as JSON."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from treekit._version import __version__
from treekit.serve.errors import InvalidRequestError, TooLargeError, shown
from treekit.serve.models.served_model import Served
from treekit.serve.models.tensors import Tensor, TensorSpec, get_numpy_type
from treekit.serve.protocol.tensor_data import (
    decode_byte_cells,
    decode_json_cells,
    encode_bytes,
    split_body,
)

# ---------------------------------------------------------------- requests

Parameters = dict[str, bool | int | float | str | None]

_UNSUPPORTED_PARAMETERS = ("classification", "shared_memory_region", "shared_memory_byte_size")
"""Parameters of unsupported extensions that would change the response."""


class InputRequest(msgspec.Struct):
    """``$request_input``; `data` is decoded later, when its datatype is known.

    `data` is a list if the request contains NaN or Infinity (see `_decode_with_constants`).
    """

    name: str
    shape: list[int]
    datatype: str
    data: msgspec.Raw = msgspec.Raw()
    parameters: Parameters = {}


class OutputRequest(msgspec.Struct):
    """Requested output, ``$request_output`` in the protocol."""

    name: str
    parameters: Parameters = {}


class InferRequest(msgspec.Struct):
    """``$inference_request``."""

    inputs: list[InputRequest]
    id: str | None = None
    outputs: list[OutputRequest] | None = None
    parameters: Parameters = {}

    @property
    def output_names(self) -> list[str] | None:
        """Names of the selected outputs, or None."""
        return [output.name for output in self.outputs] if self.outputs else None

    @property
    def n_quotes(self) -> int:
        """Number of quotation marks in the JSON of the decoded members.

        More of them in the body indicate a member that was not decoded, because it is unknown
        or a duplicate (or quotation marks inside a string, or a member that is null).
        """
        marks = 2 + 2 * (self.outputs is not None) + 4 * (self.id is not None)
        for given in self.inputs:
            marks += 10 + 2 * bool(given.data)
            if given.datatype == "BYTES":  # data of other types have none, or are rejected
                marks += bytes(given.data).count(b'"')
        marks += 4 * len(self.outputs or ())
        for _, parameters in self._iterate_parameters():
            texts = sum(isinstance(value, str) for value in parameters.values())
            marks += 2 + 2 * len(parameters) + 2 * texts
        return marks

    def check_parameters(self) -> None:
        """Reject parameters that are not supported.

        Raises
        ------
        InvalidRequestError
            If a parameter is unsupported; the message names it and its owner.
        """
        for of, parameters in self._iterate_parameters():
            for name in _UNSUPPORTED_PARAMETERS:
                if name in parameters:
                    raise InvalidRequestError(
                        f"{of} has the parameter {name!r} of an extension that this server does "
                        "not support; leave it out"
                    )
            for name in ("binary_data", "binary_data_output"):
                if not isinstance(parameters.get(name, False), bool):
                    raise InvalidRequestError(
                        f"{of} has the parameter {name!r} = {shown(parameters[name])}; it must "
                        "be true or false"
                    )

    def is_binary(self, name: str) -> bool:
        """Return whether an output is requested as bytes."""
        for output in self.outputs or ():
            if output.name == name and "binary_data" in output.parameters:
                return output.parameters["binary_data"] is True
        return self.parameters.get("binary_data_output") is True

    def _iterate_parameters(self) -> Iterator[tuple[str, Parameters]]:
        """Yield all non-empty parameters with a description of their owner."""
        if self.parameters:
            yield "the request", self.parameters
        for given in self.inputs:
            if given.parameters:
                yield f"input {shown(given.name)}", given.parameters
        for output in self.outputs or ():
            if output.parameters:
                yield f"output {shown(output.name)}", output.parameters


# ---------------------------------------------------------------- encoding and decoding
# Requests and responses are JSON, optionally followed by bytes.  The Content-Type of a request is
# ignored, as clients omit it.
#
# Choices where the protocol is silent:
#
# - Unknown members and parameters are ignored; parameters that request another kind of response
#   (Triton's classification and shared memory) are rejected by name.
# - Duplicate members of an object are rejected, as parsers disagree on which one to use.
# - null is a missing value in requests and responses.  JSON has no NaN and no infinities, but
#   Triton's clients write them: a request may contain NaN, which is read as null, and Infinity and
#   -Infinity.  A JSON response has null for them and their number in the output's parameter
#   ``not_finite``; binary data contain them unchanged.

_EMPTY = memoryview(b"")
_request_decoder = msgspec.json.Decoder(InferRequest)


# ------------------------------------------------------------------------- requests


def read_request(body: bytes, length: bytes | None = None) -> tuple[InferRequest, memoryview]:
    """Decode the request in a body; return it and the bytes of its tensors.

    Parameters
    ----------
    body : bytes
    length : bytes, optional
        Header `treekit.serve.protocol.tensor_data.LENGTH_HEADER`; None if all is JSON.

    Raises
    ------
    InvalidRequestError
        If the body is not JSON or violates the protocol.
    """
    text, rest = split_body(body, length)
    try:
        request = _request_decoder.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if b"NaN" not in text and b"Infinity" not in text:
            raise malformed_body_error(text, error) from None
        request = _decode_with_constants(text)
    else:
        if text.count(b'"') != request.n_quotes:
            reject_duplicates(text)
    request.check_parameters()
    return request, rest


def _decode_with_constants(text: bytes) -> InferRequest:
    """Decode a request that contains NaN or Infinity; its data are lists, not raw JSON."""
    found = decode_with_constants(text)
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
        raise malformed_body_error(text, error) from None
    for place, data in lists.items():
        request.inputs[place].data = data  # type: ignore[assignment]  # see `InputRequest`
    return request


def decode_tensors(
    request: InferRequest, rest: memoryview = _EMPTY, rows: int | None = None
) -> list[Tensor]:
    """Decode the tensors of a request.

    Parameters
    ----------
    request : InferRequest
    rest : memoryview
        Bytes after the JSON.
    rows : int, optional
        Maximum rows, checked before data are decoded.

    Raises
    ------
    InvalidRequestError
        If the datatype, shape or data of an input are invalid; the message names the input.
    TooLargeError
        If there are more than `rows` rows.
    """
    tensors = []
    for given in request.inputs:
        if rows is not None and given.shape and given.shape[0] > rows:
            raise TooLargeError(
                f"input {shown(given.name)} has shape {shown(given.shape)}; this server takes "
                f"{rows:,} rows at once: send them in parts"
            )
        tensor, rest = _decode_tensor(given, rest)
        tensors.append(tensor)
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise InvalidRequestError("duplicate input; give each name once")
    if rest:
        raise InvalidRequestError(
            f"the body has {len(rest):,} bytes after the data of its last input; give the size of "
            "each binary input as its parameter binary_data_size"
        )
    return tensors


def _decode_tensor(given: InputRequest, rest: memoryview) -> tuple[Tensor, memoryview]:
    """Decode one input; return its tensor and the remaining bytes."""
    name, datatype, shape, raw = given.name, given.datatype, given.shape, given.data
    dtype = get_numpy_type(name, datatype)
    if "binary_data_size" in given.parameters:
        size = given.parameters["binary_data_size"]
        if raw:
            raise InvalidRequestError(
                f"input {shown(name)} has both data and binary_data_size; give only one"
            )
        if type(size) is not int or not 0 <= size <= len(rest):
            raise InvalidRequestError(
                f"input {shown(name)} has binary_data_size {shown(size)}; {len(rest):,} bytes "
                "are left after the previous inputs and the JSON, whose length is given by the "
                "header Inference-Header-Content-Length"
            )
        cells = decode_byte_cells(name, datatype, shape, rest[:size], dtype)
        return Tensor(name, datatype, cells), rest[size:]
    if not raw:
        raise InvalidRequestError(
            f"input {shown(name)} has no data; give data, or binary_data_size and bytes"
        )
    return Tensor(name, datatype, decode_json_cells(name, datatype, shape, raw, dtype)), rest


# ------------------------------------------------------------------------- responses

_encode_json = msgspec.json.Encoder().encode


def encode_json_response(served: Served, request_id: str | None, outputs: list[Tensor]) -> bytes:
    """Encode an ``$inference_response`` with all data as JSON."""
    return _encode_head(served, request_id, [_output_to_json(output) for output in outputs])


def encode_response(
    served: Served, request: InferRequest, outputs: list[Tensor]
) -> tuple[bytes, int | None]:
    """Encode an ``$inference_response`` as requested; return it and the length of its JSON.

    The length is None if all of it is JSON.  The bytes of tensors follow in output order.
    """
    binary = [request.is_binary(output.name) for output in outputs]
    if not any(binary):
        return encode_json_response(served, request.id, outputs), None
    parts, descriptions = [], []
    for output, as_bytes in zip(outputs, binary, strict=True):
        if as_bytes:
            data = encode_bytes(output)
            parts.append(data)
            descriptions.append(
                _describe_output(output) | {"parameters": {"binary_data_size": len(data)}}
            )
        else:
            descriptions.append(_output_to_json(output))
    head = _encode_head(served, request.id, descriptions)
    return b"".join((head, *parts)), len(head)


def _encode_head(served: Served, request_id: str | None, outputs: list[dict[str, Any]]) -> bytes:
    answer: dict[str, Any] = {"model_name": served.name, "model_version": served.version}
    if request_id is not None:
        answer["id"] = request_id
    answer["outputs"] = outputs
    return _encode_json(answer)


def _describe_output(output: Tensor) -> dict[str, Any]:
    return {"name": output.name, "datatype": output.datatype, "shape": output.cells.shape}


def _output_to_json(output: Tensor) -> dict[str, Any]:
    described = _describe_output(output)
    cells = output.cells
    described["data"] = cells.ravel().tolist()  # msgspec writes null for what is not finite
    if cells.dtype.kind == "f":
        lost = cells.size - int(np.count_nonzero(np.isfinite(cells)))
        if lost:
            described["parameters"] = {"not_finite": lost}
    return described


# ---------------------------------------------------------------- metadata

EXTENSIONS = ("binary_tensor_data", "model_repository")
"""Supported extensions, by Triton's names."""


def get_server_metadata() -> dict[str, Any]:
    """Return the ``$metadata_server_response``."""
    return {"name": "treekit", "version": __version__, "extensions": EXTENSIONS}


def get_model_metadata(served: Served, versions: Sequence[str]) -> dict[str, Any]:
    """Return the ``$metadata_model_response`` with additional parameters.

    The parameter ``default`` of an output is true if it is returned to requests that select no
    outputs.  The parameters of the model are the SHA-256 of its file and, as text, alternative
    forms of input; ``inputs`` is the form for all clients.  For treekit models they include the
    schema as JSON text and the policies, so that a client can encode rows itself
    (`treekit.serve.client`).
    """
    parameters = {"sha256": served.digest}
    if served.model is not None:
        parameters |= {
            "schema": msgspec.json.encode(served.model.schema).decode(),
            "missing": served.model.missing,
            "unknown": served.model.unknown,
        }
    if served.other_inputs:
        parameters["other_inputs"] = "; or ".join(
            ", ".join(_format_spec(spec) for spec in form) for form in served.other_inputs
        )
    return {
        "name": served.name,
        "versions": versions,
        "platform": served.platform,
        "inputs": [spec._asdict() for spec in served.inputs],
        "outputs": [
            {**spec._asdict(), "parameters": {"default": spec.name in served.default_outputs}}
            for spec in served.outputs
        ],
        "parameters": parameters,
    }


def _format_spec(spec: TensorSpec) -> str:
    return f"{spec.name} {spec.datatype} {list(spec.shape)}"


# ---------------------------------------------------------------- malformed bodies
# Slow path for bodies that msgspec rejects: those with NaN or Infinity are decoded, others are
# rejected with an explanation.

_ENCODING_MARKS = {
    b"\xef\xbb\xbf": "begins with a byte order mark",
    b"\xff\xfe": "is UTF-16 or UTF-32",
    b"\xfe\xff": "is UTF-16 or UTF-32",
}

_MAX_EXPLAINED_BYTES = 1 << 18
"""Maximum bytes decoded for a better message, as Python's decoder blocks all other threads."""

_NUMBER_LISTS = re.compile(rb"\[[-+0-9.eEaflnrstu,\s]*\]")
"""Lists of numbers, true, false and null, which contain no names."""

_INPUT_INDEX = re.compile(r"\$\.inputs\[(\d{1,9})\]")


def malformed_body_error(
    body: bytes, error: Exception, what: str = "inference request"
) -> InvalidRequestError:
    """Return the error for a body that is not JSON or has the wrong structure."""
    return InvalidRequestError(f"invalid {what}: {_explain_error(body, error)}")


def _explain_error(body: bytes, error: Exception) -> str:
    if not body.strip():
        return "the body is empty; send a JSON object of the protocol"
    for mark, what in _ENCODING_MARKS.items():
        if body.startswith(mark):
            return f"the body {what}; send UTF-8 without a byte order mark"
    if b"\0" in body[:4]:
        return "the body is UTF-16 or UTF-32; send UTF-8 without a byte order mark"
    if isinstance(error, UnicodeDecodeError):
        return "a string in the body is not UTF-8"
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    return f"{error}{_format_input_name(body, str(error))}"


def _format_input_name(body: bytes, text: str) -> str:
    """Return the name of the input whose index is in a message of msgspec."""
    place = _INPUT_INDEX.search(text)
    if place is None or len(body) > _MAX_EXPLAINED_BYTES:
        return ""
    try:
        name = json.loads(body)["inputs"][int(place[1])]["name"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f" (input {shown(name)})"


def decode_with_constants(body: bytes) -> Any:
    """Decode JSON with NaN (as null) and Infinity, as written by Triton's clients.

    Python's decoder accepts them, msgspec does not.

    Raises
    ------
    InvalidRequestError
        If the body is otherwise not JSON, or has duplicate names in an object.
    """
    try:
        text = body.decode()
        found = json.loads(
            text,
            object_pairs_hook=_unique_pairs,
            parse_float=parse_finite,
            parse_constant=parse_constant,
        )
        if "\\ud" in text or "\\uD" in text:  # a lone surrogate cannot be encoded in a response
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise malformed_body_error(body, error) from None
    return found


def parse_constant(text: str) -> float | None:
    """Return None (missing) for NaN, and the value of Infinity and -Infinity."""
    return None if text == "NaN" else float(text)


def parse_finite(text: str) -> float:
    """Parse a decimal number; InvalidRequestError if it exceeds the largest double."""
    value = float(text)
    if math.isinf(value):
        raise InvalidRequestError(
            f"the body contains {shown(text)}, which exceeds the largest double (1.8e308)"
        )
    return value


def reject_duplicates(body: bytes) -> None:
    """Reject JSON with duplicate names in an object, as parsers disagree on which one to use.

    Raises
    ------
    InvalidRequestError
        If a name is a duplicate, or if Python's decoder rejects what msgspec accepts.
    """
    # Most of a large body is numeric data, which is removed first.  The complete body is checked
    # only if that finds a duplicate or fails.
    with contextlib.suppress(ValueError, RecursionError, InvalidRequestError):
        json.loads(_NUMBER_LISTS.sub(b"[]", body), object_pairs_hook=_unique_pairs)
        return
    try:
        json.loads(body, object_pairs_hook=_unique_pairs)
    except (ValueError, RecursionError) as error:
        raise malformed_body_error(body, error) from None


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InvalidRequestError(
            f"the body has the duplicate name {shown(twice)} in one object; give each name once"
        )
    return found
