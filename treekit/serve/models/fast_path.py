"""Fast path for the most common requests: numbers and categories as JSON, and the default outputs.

Converts a body to rows, sums and a response body without intermediate tensors, which takes a
quarter of the time of the general path, and a fifth for one input per column
(``benchmarks/serving.py``; to switch it off, leave `Served.fast_path` None).  Responses are byte
for byte those of the general path (`treekit.serve.protocol.messages`, then
`treekit.serve.models.served_model`); all other requests, including invalid ones, are left to it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET, UnsetType

from treekit.errors import DataError
from treekit.model.model import Model
from treekit.model.row_scorer import Scorer
from treekit.model.scoring import sum_leaf_values
from treekit.serve.models.tensors import TensorSpec

Sums = npt.NDArray[np.int64]


class _InputMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    shape: list[int]
    datatype: str
    data: list[float]


class _RequestMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    inputs: list[_InputMessage]
    id: str | UnsetType = UNSET


class _MixedInputMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    shape: list[int]
    datatype: str
    data: list[float | str]


class _MixedRequestMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    inputs: list[_MixedInputMessage]
    id: str | UnsetType = UNSET


_END = b"}]}"
"""End of a response after the data of its last output."""

_INPUT_QUOTES = 12
"""Quotation marks of an input without duplicate members, and quotes inside of strings."""

_TEXT = frozenset({"BYTES"})

_decode_request = msgspec.json.Decoder(_RequestMessage).decode
_decode_mixed_request = msgspec.json.Decoder(_MixedRequestMessage).decode
_encode_json = msgspec.json.Encoder().encode


_UNUSUAL = (
    *(msgspec.DecodeError, RecursionError, UnicodeDecodeError, DataError),
    OverflowError,  # a number out of range, in request or response
    struct.error,  # a text among numbers
)
"""Errors of requests that are left to the general path."""


class FastPath:
    """Fast path of one model.

    Parameters
    ----------
    name, version : str
        Model name and version in responses.
    model : Model
    score : Scorer
    specs : iterable of TensorSpec
        Default outputs.
    labels : iterable
        Label of each class; empty for regression models.
    tensor : str
        Name of the input with all columns.
    categories : sequence of dict or None
        Code of each text of a column that is a category; None for numeric columns.
    """

    def __init__(
        self,
        name: str,
        version: str,
        model: Model,
        score: Scorer,
        specs: Iterable[TensorSpec],
        labels: Iterable[Any],
        tensor: str,
        categories: Sequence[dict[str, int] | None],
    ) -> None:
        schema = model.schema
        self._model, self._score, self._tensor = model, score, tensor
        self._width, self._dtype = schema.n_features, score.dtype
        self._categories = dict(zip(schema.names, categories, strict=True))
        is_mixed = any(own is not None for own in categories)
        self._decode: Any = _decode_mixed_request if is_mixed else _decode_request
        # A double is rounded once for either type; FP32 for float64 would be rounded twice.
        self._accepted_datatypes = {"FP32", "FP64"} if schema.dtype == "float32" else {"FP64"}
        has_margins = model.margins or model.link != "identity"
        self._is_applicable = not (schema.more or has_margins or model.label_costs is not None)
        self._has_labels = schema.task == "classification"
        self._divisor = model.unit_total if self._has_labels else model.divisor
        self._labels = [_encode_json(label) for label in labels]
        self._head, self._format = _make_format(name, version, specs)
        # Responses to one row up to the data of the last output, by class.
        self._starts = []
        if self._is_applicable:
            given: list[tuple[int | bytes, ...]] = [(1, b"")]
            if self._has_labels:
                given = [(1, b"[%b]" % label, 1, b"") for label in self._labels]
            self._starts = [(self._format % own).removesuffix(_END) for own in given]
        self._pack_row = struct.Struct(f"={self._width}{self._dtype.char}").pack_into
        # Memory for one row: its cells, the same as an array (features,), and its sums (values,).
        self._buffers: list[tuple[bytearray, npt.NDArray[Any], Sums]] = []

    def try_answer(self, body: bytes, most: int) -> tuple[bytes, int] | None:
        """Return the response to a request and its rows, or None for the general path.

        Parameters
        ----------
        body : bytes
        most : int
            Maximum number of rows.
        """
        if not self._is_applicable:
            return None
        try:
            request = self._decode(body)
            inputs, request_id = request.inputs, request.id
            quotes = 2 + _INPUT_QUOTES * len(inputs) + 4 * (request_id is not UNSET)
            if len(inputs) == 1 and inputs[0].name == self._tensor:
                rows, data = self._list_tensor_cells(inputs[0])
            else:
                rows, data = self._list_column_cells(inputs)
                quotes += 2 * rows * sum(own.datatype in _TEXT for own in inputs)
            if body.count(b'"') != quotes:
                return None
            if not 0 < rows <= most or len(data) != rows * self._width:
                return None
            response = self._answer_row(data) if rows == 1 else self._answer_rows(rows, data)
        except _UNUSUAL:
            return None
        head = self._head
        if request_id is not UNSET:
            head += b'"id":%b,' % _encode_json(request_id)
        return head + response, rows

    def _list_tensor_cells(self, given: Any) -> tuple[int, Sequence[float]]:
        """Return the number of rows of a tensor and its cells, row by row; 0 if not applicable."""
        if (
            len(given.shape) != 2
            or given.shape[1] != self._width
            or given.datatype not in self._accepted_datatypes
        ):
            return 0, ()
        return given.shape[0], given.data

    def _list_column_cells(self, inputs: list[Any]) -> tuple[int, Sequence[float]]:
        """Return the number of rows of inputs and their cells, row by row; 0 if not applicable.

        A text that is no category, and so may be a mark, missing or unseen, is not applicable.
        """
        by_name = {given.name: given for given in inputs}
        if not len(by_name) == len(inputs) == self._width:
            return 0, ()
        rows, columns = inputs[0].shape[:1], []
        if not rows:
            return 0, ()
        for name, codes in self._categories.items():
            given = by_name.get(name)
            if (
                given is None
                or given.shape not in (rows, [*rows, 1])
                or given.datatype not in (self._accepted_datatypes if codes is None else _TEXT)
                or len(given.data) != rows[0]
            ):
                return 0, ()
            data = given.data if codes is None else list(map(codes.get, given.data))
            if codes is not None and None in data:
                return 0, ()
            columns.append(data)
        return rows[0], list(chain.from_iterable(zip(*columns, strict=True)))

    def _answer_row(self, data: Sequence[float]) -> bytes:
        """Return the response to one row after its head and id."""
        try:
            buffer = self._buffers.pop()  # so that no two threads use the same one
        except IndexError:
            memory = bytearray(self._width * self._dtype.itemsize)
            sums = np.empty(self._model.units.shape[1], np.int64)
            buffer = memory, np.frombuffer(memory, self._dtype), sums
        cells, row, total = buffer
        # "=" raises OverflowError for doubles out of the range of FP32.
        self._pack_row(cells, 0, *data)
        first = self._score.sum_new_row(row, total)
        numbers = self._divide_sums(total.tolist())
        self._buffers.append(buffer)
        return self._starts[first] + _encode_json(numbers) + _END

    def _answer_rows(self, rows: int, data: Sequence[float]) -> bytes:
        """Return the response to several rows after its head and id."""
        cells: Any = np.empty((rows, self._width), self._dtype)
        struct.pack_into(f"={len(data)}{self._dtype.char}", cells, 0, *data)
        total = sum_leaf_values(self._model, cells)
        numbers = _encode_json(self._divide_sums(total.ravel().tolist()))
        if not self._has_labels:
            return self._format % (rows, numbers)
        texts = b",".join([self._labels[code] for code in total.argmax(axis=1).tolist()])
        return self._format % (rows, b"[%b]" % texts, rows, numbers)

    def _divide_sums(self, total: list[int]) -> list[float]:
        """Return the probabilities or numbers for sums."""
        divisor = self._divisor
        shares: list[float] = [float(units) / divisor for units in total]
        if self._has_labels:
            return shares
        (exponent,) = self._model.exponents
        return [math.ldexp(own, exponent) for own in shares]


def _make_format(name: str, version: str, specs: Iterable[TensorSpec]) -> tuple[bytes, bytes]:
    """Return the start of a response and, after its id, the format of the rest.

    The format takes the number of rows and the data of each output.
    """
    outputs = []
    for spec in specs:
        own = b'{"name":%b,"datatype":%b,"shape":[' % tuple(map(_encode_json, spec[:2]))
        lengths = b"".join(b",%d" % length for length in spec.shape[1:])
        outputs.append(own.replace(b"%", b"%%") + b"%d" + lengths + b'],"data":%b}')
    head = b'{"model_name":%b,"model_version":%b,' % (_encode_json(name), _encode_json(version))
    return head, b'"outputs":[%b]}' % b",".join(outputs)
