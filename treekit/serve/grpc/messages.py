"""Messages of the protocol, created at import from the included description.

They are in a separate descriptor pool, so that a process may also import tritonclient's messages
of the same names.  Unlike generated modules they work with any version of the protobuf runtime.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from treekit.serve.cancellation import check_cancelled
from treekit.serve.errors import InvalidRequestError, TooLargeError, shown
from treekit.serve.models.tensors import Tensor, check_datatype, input_error
from treekit.serve.protocol import messages
from treekit.serve.protocol.tensor_data import MAX_DIMENSIONS, encode_bytes

# ---------------------------------------------------------------- messages

DESCRIPTION_FILE = Path(__file__).with_name("inference.binpb")
"""Compiled ``inference.proto``, a ``FileDescriptorSet``."""

SERVICE_NAME = "inference.GRPCInferenceService"

POOL = DescriptorPool()
(_file,) = FileDescriptorSet.FromString(DESCRIPTION_FILE.read_bytes()).file
POOL.AddSerializedFile(_file.SerializeToString())


def get_message_class(name: str) -> Any:
    """Return the class of a message, such as ``ModelInferRequest``."""
    return GetMessageClass(POOL.FindMessageTypeByName(f"inference.{name}"))


def get_method_classes() -> dict[str, tuple[Any, Any]]:
    """Return the request and response classes of each method of the service."""
    return {
        method.name: (GetMessageClass(method.input_type), GetMessageClass(method.output_type))
        for method in POOL.FindServiceByName(SERVICE_NAME).methods
    }


# ---------------------------------------------------------------- limits
# The runtime of protobuf builds all messages of a request: 14 MB may be a million of them.

_TENSOR_FIELDS = frozenset({5, 6})
"""``inputs`` and ``outputs`` of a ``ModelInferRequest``."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}


def check_fields(data: bytes, most: int) -> None:
    """Reject an encoded message with many fields, before it is decoded.

    Fields of the message are counted, and those of inputs and outputs, without their contents.

    Raises
    ------
    TooLargeError
        If there are more than `most`.
    """
    count, ends, at = 0, [len(data)], 0
    while ends:
        if at >= ends[-1]:
            at = ends.pop()
            continue
        count += 1
        if count > most:
            raise TooLargeError(
                f"the message has more than {most:,} fields, the limit for the models of this "
                "server: give each input and output once, without unknown parameters"
            )
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _read_varint(data, at)
        elif kind == _BYTES:
            size, at = _read_varint(data, at)
            if len(ends) == 1 and tag >> 3 in _TENSOR_FIELDS:
                ends.append(min(at + size, len(data)))
            else:
                at += size
        else:  # 0: the start or end of a group, or of no meaning: the decoder refuses it
            at += _FIXED_SIZES.get(kind, 0)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and the place after it."""
    number = shift = 0
    while at < len(data):
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80 or shift >= 70:
            break
    return number, at


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


def decode_tensors(request: Any, rows: int) -> list[Tensor]:
    """Convert the inputs of a ``ModelInferRequest``.

    Parameters
    ----------
    request : message
    rows : int
        Maximum rows.

    Raises
    ------
    InvalidRequestError
        If datatype, shape, elements or parameters are invalid; the message names the input.
    TooLargeError
        If there are more than `rows` rows.
    """
    return messages.decode_tensors(_convert_request(request), rows=rows)


def _convert_request(request: Any) -> messages.InferRequest:
    """Convert a ``ModelInferRequest`` to a request of the JSON protocol with decoded data."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise InvalidRequestError(
            f"raw_input_contents has {len(raw)} tensors for {len(request.inputs)} inputs; give "
            "one for each, in the same order"
        )
    inputs = []
    for number, given in enumerate(request.inputs):
        check_cancelled()
        if len(given.shape) > MAX_DIMENSIONS:
            raise input_error(
                given.name,
                f"has a shape of {len(given.shape):,}; a shape has 1 to {MAX_DIMENSIONS} lengths",
            )
        if raw and given.contents.ListFields():
            raise input_error(given.name, "has both contents and raw_input_contents; give only one")
        data = raw[number] if raw else _list_values(given)
        shape, parameters = list(given.shape), get_parameters(given)
        parameters.pop("binary_data_size", None)  # of the JSON protocol
        inputs.append(
            messages.InputRequest(given.name, shape, given.datatype, data, parameters)  # type: ignore[arg-type]
        )
    outputs = [messages.OutputRequest(own.name, get_parameters(own)) for own in request.outputs]
    converted = messages.InferRequest(inputs, outputs=outputs, parameters=get_parameters(request))
    converted.check_parameters()
    return converted


def get_parameters(message: Any) -> messages.Parameters:
    """Return the parameters of a message as a dict."""
    found = {}
    for name, parameter in message.parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        found[name] = getattr(parameter, kind) if kind else None
    return found


def _list_values(given: Any) -> list[Any]:
    """Return the elements of an input in the field of its datatype."""
    name, datatype = given.name, given.datatype
    check_datatype(name, datatype)
    field = _CONTENT_FIELDS.get(datatype)
    if field is None:
        problem = f"is {datatype}, which has no field in contents; send it in raw_input_contents"
        raise input_error(name, problem)
    for filled, _ in given.contents.ListFields():
        if filled.name != field:
            problem = f"is {datatype}, but has contents in {filled.name}; send them in {field}"
            raise input_error(name, problem)
    values = list(getattr(given.contents, field))
    if datatype != "BYTES":
        return values
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError as error:
        problem = f"has the element {shown(error.object)}, which is not UTF-8: {error.reason}"
        raise input_error(name, problem) from None


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
