"""Fast path for the most common requests: a few rows of numbers as JSON.

Converts a body to rows, sums and a response body without intermediate tensors.  Responses are
byte for byte those of the general path (`treekit.serve.protocol.messages`, then
`treekit.serve.models.treekit_model`); all other requests, including invalid ones, are left to it.
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

from treekit.data.schema import Column
from treekit.errors import DataError
from treekit.model.model import Model
from treekit.serve.models.tensors import TensorSpec

Sums = npt.NDArray[np.int64]
Cells = list[float | str | None]


class _InputMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    shape: list[int]
    datatype: str
    data: Cells


class _OutputMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str


class _RequestMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    inputs: list[_InputMessage]
    id: str | UnsetType = UNSET
    outputs: list[_OutputMessage] | UnsetType = UNSET


class QuickAnswer(NamedTuple):
    """Body of a response and its number of rows."""

    body: bytes
    rows: int


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
        self._sums, self._tensor = sums, tensor
        self._dtype = np.dtype(schema.dtype)
        # A double is rounded once for either type; FP32 for float64 would be rounded twice.
        self._accepted_datatypes = {"FP32", "FP64"} if schema.dtype == "float32" else {"FP64"}
        self._column_index = {column.name: place for place, column in enumerate(schema.columns)}
        self._category_codes = [_category_codes(column) for column in schema.columns]
        writers = _make_encoders(model, labels)
        self._encoders = {
            spec.name: (_encode_prefixes(spec), writers[spec.name]) for spec in specs if writers
        }
        head = b'{"model_name":%b,"model_version":%b,' % (_encode_json(name), _encode_json(version))
        self._head = head + _OUTPUTS_START

    def try_answer(self, body: bytes, most: int) -> QuickAnswer | None:
        """Return the response to a request of at most `most` rows, or None for the general path."""
        if not self._encoders:
            return None
        try:
            request = _decode_request(body)
            if body.count(b'"') != _count_quotes(request):
                return None  # duplicate members or escaped text
            rows = self._parse_rows(request.inputs, most)
            names = (
                self._encoders
                if request.outputs is UNSET
                else self._select_outputs(request.outputs)
            )
            if rows is None or names is None:
                return None
            response = self._encode_response(request.id, names, self._sums(rows), len(rows))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, DataError):
            return None
        except (struct.error, OverflowError, TypeError):
            # A null or text among numbers, or a number out of range, in request or response.
            return None
        return QuickAnswer(response, len(rows))

    def _parse_rows(self, inputs: list[_InputMessage], most: int) -> npt.NDArray[Any] | None:
        """Return rows (rows, features) from one tensor, or from one input per column."""
        first = inputs[0] if inputs else None
        if first is None or not first.shape or not 0 < first.shape[0] <= most:
            return None
        rows, width = first.shape[0], len(self._column_index)
        if len(inputs) == 1 and first.name == self._tensor and len(first.shape) == 2:
            values: Iterable[Any] = first.data
            right = first.shape[1] == width and first.datatype in self._accepted_datatypes
            if not right or len(first.data) != rows * width:
                return None
        else:
            columns = self._parse_columns(inputs, rows)
            if columns is None:
                return None
            values = (cell for row in zip(*columns, strict=True) for cell in row)
        cells = bytearray(rows * width * self._dtype.itemsize)
        # "=" raises OverflowError for doubles out of the range of FP32: general path, too.
        struct.pack_into(f"={rows * width}{self._dtype.char}", cells, 0, *values)
        return np.frombuffer(cells, self._dtype).reshape(rows, width)

    def _parse_columns(self, inputs: list[_InputMessage], rows: int) -> list[list[Any]] | None:
        """Return the cells of each column in schema order, with categories as codes."""
        columns: list[Any] = [None] * len(self._column_index)
        if len(inputs) != len(columns):
            return None
        for given in inputs:
            place = self._column_index.get(given.name, -1)
            if place < 0 or columns[place] is not None or len(given.data) != rows:
                return None
            if given.shape not in ([rows], [rows, 1]):
                return None
            codes = self._category_codes[place]
            if codes is None:
                if given.datatype not in self._accepted_datatypes:
                    return None
                columns[place] = given.data
                continue
            if given.datatype != "BYTES":
                return None
            columns[place] = [codes.get(cell) for cell in given.data]
        return columns

    def _select_outputs(self, outputs: list[_OutputMessage]) -> list[str] | None:
        names = [output.name for output in outputs]
        known = all(name in self._encoders for name in names)
        return names if names and known and len(set(names)) == len(names) else None

    def _encode_response(
        self, request_id: str | UnsetType, names: Iterable[str], total: Sums, rows: int
    ) -> bytes:
        parts = [self._head if request_id is UNSET else self._encode_head(request_id)]
        for name in names:
            before, write = self._encoders[name]
            parts += (
                b"%b%d%b" % (before[0], rows, before[1]) if rows > 1 else before[2],
                write(total),
            )
        parts[1] = parts[1][2:]  # no previous output to close: drop "},"
        parts.append(b"}]}")
        return b"".join(parts)

    def _encode_head(self, request_id: str) -> bytes:
        return (
            self._head[: -len(_OUTPUTS_START)]
            + b'"id":'
            + _encode_json(request_id)
            + b","
            + _OUTPUTS_START
        )


def _encode_prefixes(spec: TensorSpec) -> tuple[bytes, bytes, bytes]:
    """Encode the JSON before an output's data: until the row count, after it, and for one row."""
    until = b'},{"name":"%b","datatype":"%b","shape":[' % (
        spec.name.encode(),
        spec.datatype.encode(),
    )
    behind = b"".join(b",%d" % length for length in spec.shape[1:]) + b'],"data":'
    return until, behind, until + b"1" + behind


def _count_quotes(request: _RequestMessage) -> int:
    """Count the quotation marks of a body without duplicate members and quotes inside text."""
    quotes = 2
    if request.id is not UNSET:
        quotes += 4
    if request.outputs is not UNSET:
        quotes += 2 + 4 * len(request.outputs)
    for given in request.inputs:
        texts = sum(type(cell) is str for cell in given.data) if given.datatype == "BYTES" else 0
        quotes += 12 + 2 * texts
    return quotes


def _category_codes(column: Column) -> dict[Any, float] | None:
    """Return the code of each category; None for a numeric column."""
    if column.kind == "numeric":
        return None
    return {level: float(at) for at, level in enumerate(column.levels)}


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
