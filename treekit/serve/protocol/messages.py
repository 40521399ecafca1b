"""The objects of an inference request, as the protocol's JSON has them."""

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
from treekit.serve.models.tensors import Spec, Tensor, numpy_type
from treekit.serve.protocol.tensor_data import bytes_of, cells_of_bytes, cells_of_json, split_body

__all__ = [
    "EXTENSIONS",
    "InferRequest",
    "InputRequest",
    "OutputRequest",
    "Parameters",
    "answer_json",
    "answer_of",
    "constant_value",
    "finite_number",
    "malformed",
    "model_metadata",
    "read_constants",
    "read_request",
    "refuse_repeats",
    "server_metadata",
    "tensors_of",
]


# ---------------------------------------------------------------- requests

Parameters = dict[str, bool | int | float | str | None]

_ELSEWHERE = ("classification", "shared_memory_region", "shared_memory_byte_size")
"""Parameters of extensions that would change the answer and are not here."""


class InputRequest(msgspec.Struct):
    """``$request_input``; `data` is read when its datatype is known.

    Where a request has NaN or Infinity, `data` is a list (see `treekit.serve.protocol.messages`).
    """

    name: str
    shape: list[int]
    datatype: str
    data: msgspec.Raw = msgspec.Raw()
    parameters: Parameters = {}


class OutputRequest(msgspec.Struct):
    """``$request_output``."""

    name: str
    parameters: Parameters = {}


class InferRequest(msgspec.Struct):
    """``$inference_request``."""

    inputs: list[InputRequest]
    id: str | None = None
    outputs: list[OutputRequest] | None = None
    parameters: Parameters = {}

    @property
    def names(self) -> list[str] | None:
        """The outputs that are asked for, or None."""
        return [output.name for output in self.outputs] if self.outputs else None

    @property
    def quotes(self) -> int:
        """How many quotation marks the JSON of the request has, if nothing else is in it.

        Every member that was read has so many; one more in the text is a member that was
        not, because it is unknown or there twice (or it is within a text, or before a null).
        """
        marks = 2 + 2 * (self.outputs is not None) + 4 * (self.id is not None)
        for given in self.inputs:
            marks += 10 + 2 * bool(given.data)
            if given.datatype == "BYTES":  # others have none in their data, or are refused
                marks += bytes(given.data).count(b'"')
        marks += 4 * len(self.outputs or ())
        for _, parameters in self._parameters():
            texts = sum(isinstance(value, str) for value in parameters.values())
            marks += 2 + 2 * len(parameters) + 2 * texts
        return marks

    def check(self) -> None:
        """Refuse parameters that ask for what this server does not do.

        Raises
        ------
        InvalidRequestError
            Names the parameter, and whose it is.
        """
        for of, parameters in self._parameters():
            for name in _ELSEWHERE:
                if name in parameters:
                    raise InvalidRequestError(
                        f"{of} has the parameter {name!r}, of an extension that this server does "
                        "not have; leave it out"
                    )
            for name in ("binary_data", "binary_data_output"):
                if not isinstance(parameters.get(name, False), bool):
                    raise InvalidRequestError(
                        f"{of} has the parameter {name!r} = {shown(parameters[name])}; it is to "
                        "be true or false"
                    )

    def binary(self, name: str) -> bool:
        """Whether the output of this name is to come as bytes."""
        for output in self.outputs or ():
            if output.name == name and "binary_data" in output.parameters:
                return output.parameters["binary_data"] is True
        return self.parameters.get("binary_data_output") is True

    def _parameters(self) -> Iterator[tuple[str, Parameters]]:
        """All parameters that are given, each with the words for whose they are."""
        if self.parameters:
            yield "the request", self.parameters
        for given in self.inputs:
            if given.parameters:
                yield f"input {shown(given.name)}", given.parameters
        for output in self.outputs or ():
            if output.parameters:
                yield f"output {shown(output.name)}", output.parameters


# ---------------------------------------------------------------- wire
# Requests and answers of the Open Inference Protocol v2: JSON, with or without bytes after it.
#
# Read with types, never by the request's Content-Type, which clients leave out.
#
# What the protocol leaves open, and what is done here:
#
# - Members and parameters that are not known are passed over; parameters that ask for another
#   kind of answer (Triton's classification and shared memory) are refused by name.
# - A member twice in one object is refused: each reader takes another of the two.
# - null is a missing value, in requests and answers.  JSON has no NaN and no infinities, but
#   Triton's clients write them: a request may have NaN, which is read as null, and Infinity and
#   -Infinity.  An answer as JSON has null for them, and the output's parameter ``not_finite``
#   counts them; binary data have them as they are.

_NO_BYTES = memoryview(b"")
_request = msgspec.json.Decoder(InferRequest)


# ------------------------------------------------------------------------- requests


def read_request(body: bytes, length: bytes | None = None) -> tuple[InferRequest, memoryview]:
    """The request in a body, and the bytes of its tensors.

    Parameters
    ----------
    body : bytes
    length : bytes, optional
        The header `treekit.serve.protocol.tensor_data.LENGTH_HEADER`; None: all is JSON.

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


# ---------------------------------------------------------------- metadata
# What a server and a model say of themselves: the protocol's metadata, as plain values.

EXTENSIONS = ("binary_tensor_data", "model_repository")
"""Triton's, by its names."""


def server_metadata() -> dict[str, Any]:
    """``$metadata_server_response``."""
    return {"name": "treekit", "version": __version__, "extensions": EXTENSIONS}


def model_metadata(served: Served, versions: Sequence[str]) -> dict[str, Any]:
    """``$metadata_model_response``, and what it has no place for.

    Each output's parameter ``default`` says whether a request gets it that names none.  The
    model's parameters are the SHA-256 of its file, and the other forms of input there are, as
    text: the protocol's ``inputs`` are the one that all clients may use.  Of treekit's models
    they hold the schema, too, as text of JSON, and the policies, with which a client can code
    rows itself (`treekit.serve.client`).
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
            ", ".join(_text(spec) for spec in form) for form in served.other_inputs
        )
    return {
        "name": served.name,
        "versions": versions,
        "platform": served.platform,
        "inputs": [spec._asdict() for spec in served.inputs],
        "outputs": [
            {**spec._asdict(), "parameters": {"default": spec.name in served.usual}}
            for spec in served.outputs
        ],
        "parameters": parameters,
    }


def _text(spec: Spec) -> str:
    return f"{spec.name} {spec.datatype} {list(spec.shape)}"


# ---------------------------------------------------------------- malformed
# Bodies that msgspec refuses: those with NaN or Infinity are read, others refused in words.
#
# Slow ways: a body comes here when it is refused, or when it may be.

_MARKS = {
    b"\xef\xbb\xbf": "begins with a byte order mark",
    b"\xff\xfe": "is UTF-16 or UTF-32",
    b"\xfe\xff": "is UTF-16 or UTF-32",
}

_SLOW = 1 << 18
"""Bytes that Python's decoder reads for a better message: it holds all threads meanwhile."""

_CELLS = re.compile(rb"\[[-+0-9.eEaflnrstu,\s]*\]")
"""Lists of numbers, true, false and null: they have no names."""

_PLACE = re.compile(r"\$\.inputs\[(\d{1,9})\]")


def malformed(
    body: bytes, error: Exception, what: str = "inference request"
) -> InvalidRequestError:
    """The refusal of a body that is no JSON, or JSON of another form."""
    return InvalidRequestError(f"the body is no {what}: {_reason(body, error)}")


def _reason(body: bytes, error: Exception) -> str:
    if not body.strip():
        return "it is empty; send the protocol's JSON object"
    for mark, what in _MARKS.items():
        if body.startswith(mark):
            return f"it {what}; send UTF-8 without a mark"
    if b"\0" in body[:4]:
        return "it is UTF-16 or UTF-32; send UTF-8 without a mark"
    if isinstance(error, UnicodeDecodeError):
        return "a text in it is not UTF-8"
    if isinstance(error, RecursionError):
        return "its JSON is nested too deep"
    return f"{error}{_input_named(body, str(error))}"


def _input_named(body: bytes, text: str) -> str:
    """The name of the input that msgspec gives the place of."""
    place = _PLACE.search(text)
    if place is None or len(body) > _SLOW:
        return ""
    try:
        name = json.loads(body)["inputs"][int(place[1])]["name"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f" (input {shown(name)})"


def read_constants(body: bytes) -> Any:
    """Read JSON that may hold NaN, as null, and Infinity, as Triton's clients write them.

    Python's decoder takes them, msgspec does not.

    Raises
    ------
    InvalidRequestError
        For a body that is no JSON otherwise, or has a name twice in one object.
    """
    try:
        text = body.decode()
        found = json.loads(
            text, object_pairs_hook=_once, parse_float=finite_number, parse_constant=constant_value
        )
        if "\\ud" in text or "\\uD" in text:  # half a character: no answer could hold it
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise malformed(body, error) from None
    return found


def constant_value(text: str) -> float | None:
    """The value of NaN, which is missing, of Infinity or of -Infinity."""
    return None if text == "NaN" else float(text)


def finite_number(text: str) -> float:
    """The value of a decimal; InvalidRequestError if it is beyond the largest double."""
    value = float(text)
    if math.isinf(value):
        raise InvalidRequestError(
            f"the body holds {shown(text)}, beyond the largest number that computers take (1.8e308)"
        )
    return value


def refuse_repeats(body: bytes) -> None:
    """Refuse JSON with a name twice in one object: each reader takes another of the two.

    Raises
    ------
    InvalidRequestError
        Names it; so for what msgspec passes over and Python's decoder does not.
    """
    # Most of a large body is cells.  Without them equal names are still equal; the whole body
    # is asked where some are that were not, or that are none.
    with contextlib.suppress(ValueError, RecursionError, InvalidRequestError):
        json.loads(_CELLS.sub(b"[]", body), object_pairs_hook=_once)
        return
    try:
        json.loads(body, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise malformed(body, error) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InvalidRequestError(
            f"the body has {shown(twice)} twice in one object; give each name once"
        )
    return found
