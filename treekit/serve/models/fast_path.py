"""Fast path for the most common request: one JSON tensor of numbers and the default outputs.

Converts a body to rows, sums and a response body without intermediate tensors, which takes a
quarter of the time of the general path (``benchmarks/serving.py``; to switch it off, leave
`Served.fast_path` None).  Responses are byte for byte those of the general path
(`treekit.serve.protocol.messages`, then `treekit.serve.models.served_model`); all other requests,
including invalid ones, are left to it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET, UnsetType

from treekit.errors import DataError
from treekit.model.model import Model
from treekit.serve.models.tensors import TensorSpec

Sums = npt.NDArray[np.int64]


class _InputMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    shape: tuple[int, int]
    datatype: str
    data: list[float]


class _RequestMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    inputs: tuple[_InputMessage]
    id: str | UnsetType = UNSET


class QuickAnswer(NamedTuple):
    """Body of a response and its number of rows."""

    body: bytes
    rows: int


_QUOTES = 14
"""Quotation marks of a request without id, duplicate members, and quotes inside of strings."""

_OUTPUTS_START = b'"outputs":['
_decode_request = msgspec.json.Decoder(_RequestMessage).decode
_encode_json = msgspec.json.Encoder().encode

EncodeOutput = Callable[[Sums], bytes]
"""Function that encodes one output as JSON from the sums of rows (rows, values)."""


class FastPath:
    """Fast path of one model.

    Parameters
    ----------
    name, version : str
        Model name and version in responses.
    model : Model
    specs : iterable of TensorSpec
        Default outputs.
    labels : iterable
        Label of each class; empty for regression models.
    tensor : str
        Name of the input with all columns.
    sums : callable
        Function from (rows, features) to sums (rows, values); raises DataError for rejected rows.
    """

    def __init__(
        self,
        name: str,
        version: str,
        model: Model,
        specs: Iterable[TensorSpec],
        labels: Iterable[Any],
        tensor: str,
        sums: Callable[[npt.NDArray[Any]], Sums],
    ) -> None:
        schema = model.schema
        self._sums, self._tensor, self._width = sums, tensor, schema.n_features
        self._dtype = np.dtype(schema.dtype)
        # A double is rounded once for either type; FP32 for float64 would be rounded twice.
        self._accepted_datatypes = {"FP32", "FP64"} if schema.dtype == "float32" else {"FP64"}
        encoders = _make_encoders(model, labels)
        self._encoders = [
            (*_encode_prefix(spec), encoders[spec.name]) for spec in specs if encoders
        ]
        head = b'{"model_name":%b,"model_version":%b,' % (_encode_json(name), _encode_json(version))
        self._head = head

    def try_answer(self, body: bytes, most: int) -> QuickAnswer | None:
        """Return the response to a request of at most `most` rows, or None for the general path."""
        if not self._encoders:
            return None
        try:
            request = _decode_request(body)
            if body.count(b'"') != _QUOTES + 4 * (request.id is not UNSET):
                return None
            rows = self._parse_rows(request.inputs[0], most)
            if rows is None:
                return None
            response = self._encode_response(request.id, self._sums(rows))
        # Also a number out of range, in request or response.
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, DataError, OverflowError):
            return None
        return QuickAnswer(response, len(rows))

    def _parse_rows(self, given: _InputMessage, most: int) -> npt.NDArray[Any] | None:
        """Return rows (rows, features) from a tensor with all columns."""
        (rows, width), data = given.shape, given.data
        if (
            given.name != self._tensor
            or width != self._width
            or given.datatype not in self._accepted_datatypes
            or not 0 < rows <= most
            or len(data) != rows * width
        ):
            return None
        # "=" raises OverflowError for doubles out of the range of FP32.
        cells = bytearray(struct.pack(f"={len(data)}{self._dtype.char}", *data))
        return np.frombuffer(cells, self._dtype).reshape(rows, width)

    def _encode_response(self, request_id: str | UnsetType, total: Sums) -> bytes:
        parts = [self._head]
        if request_id is not UNSET:
            parts.append(b'"id":%b,' % _encode_json(request_id))
        separator, rows = _OUTPUTS_START, len(total)
        for before, behind, encode in self._encoders:
            parts.append(b"%b%b%d%b%b}" % (separator, before, rows, behind, encode(total)))
            separator = b","
        parts.append(b"]}")
        return b"".join(parts)


def _encode_prefix(spec: TensorSpec) -> tuple[bytes, bytes]:
    """Encode the JSON of an output until the row count, and from there to its data."""
    before = b'{"name":%b,"datatype":%b,"shape":[' % (
        _encode_json(spec.name),
        _encode_json(spec.datatype),
    )
    return before, b"".join(b",%d" % length for length in spec.shape[1:]) + b'],"data":'


def _make_encoders(model: Model, labels: Iterable[Any]) -> dict[str, EncodeOutput]:
    """Return an encoder for each default output; empty for models without fast path."""
    schema = model.schema
    if schema.more or model.margins or model.link != "identity" or model.label_costs is not None:
        return {}
    if schema.task == "regression":
        divisor, exponent = model.divisor, model.exponent
        return {
            "value": lambda total: _encode_json(
                [math.ldexp(own / divisor, exponent) for own in total[:, 0].tolist()]
            )
        }
    texts, whole = [_encode_json(label) for label in labels], model.unit_total

    def encode_labels(total: Sums) -> bytes:
        if len(total) == 1:
            own: list[int] = total[0].tolist()
            return b"[%b]" % texts[own.index(max(own))]
        return b"[%b]" % b",".join([texts[code] for code in total.argmax(axis=1).tolist()])

    def encode_probabilities(total: Sums) -> bytes:
        return _encode_json([own / whole for own in total.ravel().tolist()])

    return {"label": encode_labels, "probabilities": encode_probabilities}
