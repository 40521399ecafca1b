"""Requests, responses and metadata of the Open Inference Protocol v2 as JSON.

The structs encode and decode the messages, and describe them in ``/openapi.json``.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_args

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from treekit._version import __version__
from treekit.data.encoding import Absent
from treekit.data.table import suggest_names
from treekit.serve.cancellation import check_cancelled
from treekit.serve.errors import InvalidRequestError, TooLargeError, shown
from treekit.serve.models.tensors import DATATYPES, Tensor, check_datatype, input_error
from treekit.serve.protocol.tensor_data import (
    MAX_DIMENSIONS,
    decode_cells,
    encode_bytes,
    split_body,
)

if TYPE_CHECKING:
    from treekit.serve.models.served_model import Served

# ---------------------------------------------------------------- requests

Parameters = Annotated[
    dict[str, bool | int | float | str | None],
    Meta(
        description="Unknown parameters are ignored.  binary_data_size: bytes of an input "
        "after the JSON.  binary_data (of an output), binary_data_output: whether to return bytes "
        "after the JSON.  absent (of a request): error or missing, for columns without an input."
    ),
]

_UNSUPPORTED_PARAMETERS = ("classification", "shared_memory_region", "shared_memory_byte_size")
"""Parameters of unsupported extensions that would change the response."""

Datatype = Annotated[
    str,
    Meta(
        description="BF16 is not supported; send FP32.",
        extra_json_schema={"enum": list(DATATYPES)},
    ),
]

# Shapes and data are checked by `treekit.serve.protocol.tensor_data`, for gRPC too.
Shape = Annotated[
    list[int],
    Meta(
        extra_json_schema={
            "items": {"type": "integer", "minimum": 0},
            "minItems": 1,
            "maxItems": MAX_DIMENSIONS,
        }
    ),
]

InputData = Annotated[
    msgspec.Raw,
    Meta(
        description="Flat in row-major order, or nested according to the shape; null is a missing "
        "value.  NaN (read as null), Infinity and -Infinity are accepted.",
        extra_json_schema={"type": "array"},
    ),
]


class InputRequest(msgspec.Struct, omit_defaults=True):
    """An input; `data` is decoded when its datatype is known.

    `data` is a list if the request contains NaN or Infinity (see `_decode_with_constants`), and
    a list or bytes in requests over gRPC.
    """

    name: str
    shape: Shape
    datatype: Datatype
    data: InputData | UnsetType = UNSET
    parameters: Parameters = {}


class OutputRequest(msgspec.Struct, omit_defaults=True):
    """An output to return."""

    name: str
    parameters: Parameters = {}


class InferRequest(msgspec.Struct, omit_defaults=True):
    """Inference request of the protocol; by default all outputs with the parameter default."""

    inputs: Annotated[list[InputRequest], Meta(extra_json_schema={"minItems": 1})]
    id: str | None = None
    outputs: list[OutputRequest] | None = None
    parameters: Parameters = {}

    @property
    def absent(self) -> Absent:
        """Treatment of columns without an input."""
        return "missing" if self.parameters.get("absent") == "missing" else "error"

    @property
    def output_names(self) -> list[str] | None:
        """Names of the selected outputs, or None."""
        return [output.name for output in self.outputs] if self.outputs else None

    def check_parameters(self) -> None:
        """Reject parameters that are not supported.

        Raises
        ------
        InvalidRequestError
            If a parameter is unsupported; the message names it and its owner.
        """
        absent = self.parameters.get("absent", "error")
        if absent not in get_args(Absent):
            raise InvalidRequestError(
                f"the request has the parameter 'absent' = {shown(absent)}; it must be 'error' or "
                "'missing'"
            )
        owners = [("the request", self.parameters)]
        owners += [(f"input {shown(given.name)}", given.parameters) for given in self.inputs]
        owners += [(f"output {shown(own.name)}", own.parameters) for own in self.outputs or ()]
        for of, parameters in owners:
            for name, value in parameters.items():
                if name in _UNSUPPORTED_PARAMETERS:
                    raise InvalidRequestError(
                        f"{of} has the parameter {name!r} of an extension that this server does "
                        "not support; leave it out"
                    )
                if name in ("binary_data", "binary_data_output") and not isinstance(value, bool):
                    raise InvalidRequestError(
                        f"{of} has the parameter {name!r} = {shown(value)}; it must be true or "
                        "false"
                    )

    def is_binary(self, name: str) -> bool:
        """Return whether an output is requested as bytes."""
        for output in self.outputs or ():
            if output.name == name and "binary_data" in output.parameters:
                return output.parameters["binary_data"] is True
        return self.parameters.get("binary_data_output") is True


class IndexRequest(msgspec.Struct):
    """Request for the models of the repository, or only those that are ready."""

    ready: bool = False


class ControlRequest(msgspec.Struct):
    """Request to load or unload a model; models are loaded unchanged, without config or files."""

    parameters: dict[str, bool | int | float | str | None] = {}


# ---------------------------------------------------------------- responses


class ErrorResponse(msgspec.Struct):
    """Error of a request: value, rule and remedy."""

    error: str


class LiveServer(msgspec.Struct):
    """Whether the server is alive."""

    live: bool


class ReadyServer(msgspec.Struct):
    """Whether all models are served."""

    live: bool  # in the protocol's specification, probably by mistake
    ready: bool


class ReadyModel(msgspec.Struct):
    """Whether a model is served."""

    name: str
    ready: bool


class ServerMetadata(msgspec.Struct):
    """Name, version and extensions of the server."""

    name: str
    version: str
    extensions: tuple[str, ...]


class TensorMetadata(msgspec.Struct):
    """Name, datatype and shape; the parameter default marks outputs returned unrequested."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    parameters: dict[str, bool] | UnsetType = UNSET


class ModelMetadata(msgspec.Struct):
    """Description of a model; its parameters include the SHA-256 of its file."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    parameters: dict[str, str]


class ResponseOutput(msgspec.Struct):
    """An output; NaN and infinite values, counted by not_finite, are null in JSON."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    data: list[Any] | UnsetType = UNSET
    parameters: dict[str, int] | UnsetType = UNSET


class InferResponse(msgspec.Struct, kw_only=True):
    """Response to an inference request."""

    model_name: str
    model_version: str
    id: str | UnsetType = UNSET
    outputs: list[ResponseOutput]


class ControlResponse(msgspec.Struct):
    """Loaded versions of a model after a change."""

    name: str
    versions: tuple[str, ...]


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
_EXTRA_OBJECTS = 256
"""Objects of a request beyond its inputs, outputs and their parameters, such as unknown members."""

_MAX_MEMBERS = 16
"""Maximum members of its objects, on average."""

_encode_json = msgspec.json.Encoder().encode
_request_decoder = msgspec.json.Decoder(InferRequest)


# ------------------------------------------------------------------------- requests


class JsonLimits(NamedTuple):
    """Maximum objects, members and lists of a request, checked before it is decoded."""

    objects: int
    members: int
    lists: int

    def check(self, text: bytes) -> None:
        """Raise `TooLargeError` if JSON exceeds a limit."""
        for mark, what, most in zip((b"{", b":", b"["), self._fields, self, strict=True):
            # Mostly there are no more of the characters, in or outside of strings.
            if text.count(mark) > most and (found := _remove_strings(text).count(mark)) > most:
                raise TooLargeError(
                    f"the body has {found:,} JSON {what}, but the limit of this server for its "
                    f"models is {most:,}; send the rows in several requests"
                )


def _remove_strings(text: bytes) -> bytes:
    """Return JSON without the content of its strings."""
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    cells = np.frombuffer(plain, np.uint8)
    is_outside = np.cumsum(cells == ord('"'), dtype=np.uint8) % 2 == 0
    return bytes(cells[is_outside])


def make_json_limits(served: Served, rows: int) -> JsonLimits:
    """Return the limits of an inference request of at most `rows` rows for a model."""
    objects = _EXTRA_OBJECTS + 2 * (served.n_features + len(served.outputs))
    return JsonLimits(objects, _MAX_MEMBERS * objects, rows * served.n_features + 2 * objects)


def read_request(
    body: bytes, length: bytes | None = None, limits: JsonLimits | None = None
) -> tuple[InferRequest, memoryview]:
    """Decode the request in a body; return it and the bytes of its tensors.

    Parameters
    ----------
    body : bytes
    length : bytes, optional
        Header `treekit.serve.protocol.tensor_data.LENGTH_HEADER`; None if all is JSON.
    limits : JsonLimits, optional

    Raises
    ------
    InvalidRequestError
        If the body is not JSON or violates the protocol.
    TooLargeError
        If the JSON exceeds the limits.
    """
    text, rest = split_body(body, length)
    if limits is not None:
        limits.check(text)
    try:
        request = _request_decoder.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if b"NaN" not in text and b"Infinity" not in text:
            raise malformed_body_error(text, error) from None
        request = _decode_with_constants(text)
    else:
        # More quotation marks than in the decoded members: of members that were not decoded, as
        # they are unknown, null, or duplicates.
        if text.count(b'"') != _encode_json(request).count(b'"'):
            reject_duplicates(text)
    request.check_parameters()
    return request, rest


def _decode_with_constants(text: bytes) -> InferRequest:
    """Decode a request that contains NaN or Infinity; its data are lists, not raw JSON."""
    found = parse_json(text, "inference request")
    inputs = found.get("inputs") if isinstance(found, dict) else None
    data = [
        given.pop("data", UNSET) if isinstance(given, dict) else UNSET
        for given in (inputs if isinstance(inputs, list) else ())
    ]
    request: InferRequest = convert_request(found, InferRequest, "inference request")
    for given, own in zip(request.inputs, data, strict=True):
        given.data = own
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
        check_cancelled()
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
    name = given.name
    raw: Any = given.data
    check_datatype(name, given.datatype)
    if "binary_data_size" in given.parameters:
        size = given.parameters["binary_data_size"]
        if raw is not UNSET:
            raise input_error(name, "has both data and binary_data_size; give only one")
        if type(size) is not int or not 0 <= size <= len(rest):
            raise input_error(
                name,
                f"has binary_data_size {shown(size)}; {len(rest):,} bytes are left after the "
                "previous inputs and the JSON, whose length is given by the header "
                "Inference-Header-Content-Length",
            )
        raw, rest = rest[:size], rest[size:]
    if raw is UNSET:
        raise input_error(name, "has no data; give data, or binary_data_size and bytes")
    return Tensor(name, given.datatype, decode_cells(given, raw)), rest


# ------------------------------------------------------------------------- responses


def encode_response(
    served: Served, request: InferRequest, outputs: list[Tensor]
) -> tuple[bytes, int | None]:
    """Encode an inference response as requested; return it and the length of its JSON.

    The length is None if all of it is JSON.  The bytes of tensors follow in output order.
    """
    parts, descriptions = [], []
    for output in outputs:
        name, datatype, cells = output
        described = ResponseOutput(name, datatype, cells.shape)
        descriptions.append(described)
        if request.is_binary(name):
            parts.append(encode_bytes(output))
            described.parameters = {"binary_data_size": len(parts[-1])}
            continue
        described.data = cells.ravel().tolist()  # msgspec writes null for what is not finite
        if cells.dtype.kind == "f" and not np.isfinite(cells).all():
            described.parameters = {"not_finite": int((~np.isfinite(cells)).sum())}
    response = InferResponse(
        model_name=served.name, model_version=served.version, outputs=descriptions
    )
    if request.id is not None:
        response.id = request.id
    head = _encode_json(response)
    return b"".join((head, *parts)), len(head) if parts else None


# ---------------------------------------------------------------- metadata

SERVER_METADATA = ServerMetadata(
    "treekit",
    __version__,
    # Extensions by Triton's names.
    ("binary_tensor_data", "model_configuration", "model_repository", "statistics"),
)


_PRECISION_NOTE = (
    "numbers are float64, as float32 would merge values of the training table, such as large "
    "identifiers: send FP64; FP32 is accepted and has about seven digits"
)
"""Note on models of float64: clients may send FP32, which has lost digits when it arrives."""

_CODES_NOTE = " (a category is its position in the schema's levels; any other position is missing)"
"""What the last of `Served.other_inputs` holds if there are categories."""


def get_model_metadata(served: Served, versions: tuple[str, ...]) -> ModelMetadata:
    """Return the metadata of a model with additional parameters.

    The parameter ``default`` of an output is true if it is returned to requests that select no
    outputs.  The parameters of the model are the SHA-256 of its file and, as text, alternative
    forms of input; ``inputs`` is the form for all clients.  They include the schema as JSON text,
    the policies, and the columns that no tree tests, which requests need not have, so that a client
    can encode rows itself (`treekit.serve.client`), and a warning for models of float64.
    """
    return ModelMetadata(
        served.name,
        versions,
        served.platform,
        [TensorMetadata(*spec) for spec in served.inputs],
        [
            TensorMetadata(*spec, {"default": spec.name in served.default_outputs})
            for spec in served.outputs
        ],
        {
            "sha256": served.digest,
            "schema": _encode_json(served.model.schema).decode(),
            "missing": served.model.missing,
            "unknown": served.model.unknown,
            **({"precision": _PRECISION_NOTE} if served.model.schema.dtype == "float64" else {}),
            "untested": _encode_json(
                [served.model.schema.names[k] for k in np.flatnonzero(~served.model.tested)]
            ).decode(),
            "other_inputs": "; or ".join(
                ", ".join(f"{name} {datatype} {list(shape)}" for name, datatype, shape in form)
                for form in served.other_inputs
            )
            + _CODES_NOTE * bool(served.model.schema.nominal.any()),
        },
    )


# ---------------------------------------------------------------- malformed bodies
# Slow path for bodies that msgspec rejects: those with NaN or Infinity are decoded, others are
# rejected with an explanation.

_ENCODING_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")

_MAX_EXPLAINED_BYTES = 1 << 18
"""Maximum bytes decoded for a better message, as Python's decoder blocks all other threads."""

_NUMBER_LISTS = re.compile(rb"\[[-+0-9.eEaflnrstu,\s]*\]")
"""Lists of numbers, true, false and null, which contain no names."""

_PLACE = re.compile(r" - at `\$(.*)`$", re.DOTALL)
_STEPS = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN_FIELD = re.compile(r"unknown field `(.*?)`", re.DOTALL)

T = TypeVar("T")


def convert_request(value: Any, kind: Any, what: str = "request", *, strict: bool = True) -> Any:
    """Convert parsed JSON, or texts (if not `strict`), to a struct with ``forbid_unknown_fields``.

    Raises
    ------
    InvalidRequestError
        If a field is unknown, missing or invalid; the message names it, the rule and the value.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN_FIELD.search(str(error))
        if unknown is None:
            hint = f", got {shown(_find_value(value, str(error)))}; see /openapi.json"
        else:
            names = (get_args(kind) or (kind,))[0].__struct_fields__
            hint = f"; {suggest_names(unknown[1], names)}" if names else "; leave it out"
        raise InvalidRequestError(f"invalid {what}: {error!s:.300}{hint}") from None


def _find_value(value: Any, message: str) -> Any:
    """Return the part of a value at the place in a message of msgspec, such as ``$.rows[1]``."""
    place = _PLACE.search(message)
    for name, index in _STEPS.findall(place[1]) if place else ():
        value = value[name] if name else value[int(index)]
    return value


def malformed_body_error(
    body: bytes, error: Exception, what: str = "inference request"
) -> InvalidRequestError:
    """Return the error for a body that is not JSON or has the wrong structure."""
    if not isinstance(error, (UnicodeError, msgspec.ValidationError)):
        try:  # msgspec 0.23 reports invalid UTF-8 as any other error
            body.decode()
        except UnicodeDecodeError as wrong:
            error = wrong
    reason = str(error)
    if not body.strip():
        reason = "the body is empty; send a JSON object"
    elif body.startswith(_ENCODING_MARKS) or b"\0" in body[:4]:
        reason = "the body is UTF-16, UTF-32 or has a byte order mark; send UTF-8 without one"
    elif isinstance(error, UnicodeError):
        cause = getattr(error, "reason", error)
        reason = f"a string in the body is not UTF-8: {cause}"
    elif isinstance(error, RecursionError):
        reason = "the JSON is nested too deeply"
    elif "set_int_max_str_digits" in reason:
        reason = "the body contains an integer of thousands of digits"
    elif not isinstance(error, msgspec.ValidationError):
        reason = f"the body is not JSON: {error}"
    elif len(body) <= _MAX_EXPLAINED_BYTES:
        with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
            reason = f"{error}, got {shown(_find_value(json.loads(body), reason))}"
    return InvalidRequestError(f"invalid {what}: {reason}")


def parse_json(body: bytes, what: str = "request") -> Any:
    """Decode JSON with NaN (as null) and Infinity, as written by Triton's clients and Python.

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
            object_pairs_hook=make_unique_dict,
            parse_float=_parse_finite,
            parse_constant=lambda text: None if text == "NaN" else float(text),
        )
        if "\\ud" in text or "\\uD" in text:  # a lone surrogate cannot be encoded in a response
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise malformed_body_error(body, error, what) from None
    return found


def _parse_finite(text: str) -> float:
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
        json.loads(_NUMBER_LISTS.sub(b"[]", body), object_pairs_hook=make_unique_dict)
        return
    try:
        json.loads(body, object_pairs_hook=make_unique_dict)
    except (ValueError, RecursionError) as error:
        raise malformed_body_error(body, error) from None


def make_unique_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return pairs as a dict; InvalidRequestError if a name is a duplicate."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InvalidRequestError(
            f"the request has the duplicate name {shown(twice)}; give each name once"
        )
    return found
