"""Models on a server, asked about the rows of a table.

Of treekit's models the server's metadata hold the schema: rows are coded here, as
``treekit predict`` codes them, and sent as numbers, so that each answer is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from treekit.data.encoding import encode_rows
from treekit.data.schema import Schema, level_text
from treekit.data.table import Table
from treekit.serve.client.client import Client
from treekit.serve.client.foreign import columns_said, inputs_of
from treekit.serve.errors import RemoteError
from treekit.serve.models.tensors import Spec, Tensor

__all__ = ["Remote", "remote_model"]

_ROWS = 10_000
_BYTES = 4 << 20
"""Of a part of the rows that is sent at once; a server that takes less says so."""

_ROWS_A_BLOCK = 200_000
"""Of a large file, coded together."""

Lines = list[Sequence[Any]]


class Remote(Protocol):
    """A model on a server."""

    marks: tuple[str, ...] | None
    """Texts that mean missing, if it says so."""

    proba: bool
    """Whether it has probabilities to add."""

    def lines(self, table: Table, *, proba: bool = False) -> Iterator[Lines]:
        """Names of columns, then what the model says of each row, some rows at a time.

        Raises
        ------
        RemoteError
            If the server refuses rows, or cannot be reached any more.
        DataError
            If the table is not one for the model.
        """


def remote_model(client: Client, name: str) -> Remote:
    """The model of this name, in the version that is the newest now.

    Raises
    ------
    RemoteError
        If the server has none, or cannot be reached.
    """
    path = ["v2", "models", name]
    told = client.get(*path)
    try:
        versions = told.get("versions") or []
        if versions:  # all parts of a table are answered by one
            path += ["versions", str(versions[0])]
            told = client.get(*path)
        known = told.get("parameters") or {}
        if "schema" in known:
            return _Treekit(client, path, known)
        return _Foreign(client, path, told)
    except (LookupError, TypeError, AttributeError, ValueError, msgspec.MsgspecError) as error:
        raise RemoteError(f"what {client.url} tells of {name!r} cannot be used: {error}") from error


class _Treekit:
    """One of treekit's."""

    def __init__(self, client: Client, path: Sequence[str], known: dict[str, Any]) -> None:
        self._client, self._path = client, path
        self._schema = schema = msgspec.json.decode(known["schema"], type=Schema)
        self._missing = known["missing"]
        self._unknown = known["unknown"]
        self.marks: tuple[str, ...] | None = schema.missing_marks
        self.proba = schema.task == "classification"

    def lines(self, table: Table, *, proba: bool = False) -> Iterator[Lines]:
        """As `Remote.lines`; exactly the rows of ``treekit predict``."""
        outputs = self._schema.outputs
        header = [output.name for output in outputs]
        if proba:
            header += [f"{o.name}={level_text(label)}" for o in outputs for label in o.classes]
        yield [header]
        names = self._names(proba)
        for block in table.blocks(_ROWS_A_BLOCK):
            matrix = encode_rows(
                block,
                self._schema,
                missing=self._missing,
                unknown=self._unknown,
                missing_marks=block.missing,
            )
            datatype = "FP32" if self._schema.dtype == "float32" else "FP64"

            def part(rows: slice, matrix: Any = matrix, datatype: str = datatype) -> list[Tensor]:
                return [Tensor("input", datatype, matrix[rows])]

            for said in _asked(self._client, self._path, len(matrix), part, names):
                columns: list[Any] = []
                for tensor in said:
                    wide = tensor.cells.reshape(len(tensor.cells), math.prod(tensor.shape[1:]))
                    columns += wide.T.tolist()
                if len(columns) != len(header):
                    raise RemoteError(
                        f"the server answered {len(columns)} columns, and the schema that it "
                        f"told has {len(header)}"
                    )
                yield list(zip(*columns, strict=True))

    def _names(self, proba: bool) -> list[str]:
        """The outputs that make the columns, in their order."""
        if not self.proba:
            return ["value"]
        ends = [f"_{k}" for k in range(len(self._schema.outputs))] if self._schema.more else [""]
        names = [f"label{end}" for end in ends]
        return names + [f"probabilities{end}" for end in ends] if proba else names


class _Foreign:
    """A model of which the server tells inputs and outputs alone."""

    marks: tuple[str, ...] | None = None
    proba = False

    def __init__(self, client: Client, path: Sequence[str], told: dict[str, Any]) -> None:
        self._client, self._path = client, path
        self._inputs = [_spec(given) for given in told["inputs"]]
        usual = [o for o in told["outputs"] if (o.get("parameters") or {}).get("default", True)]
        self._outputs = [_spec(given) for given in usual]

    def lines(self, table: Table, *, proba: bool = False) -> Iterator[Lines]:
        """As `Remote.lines`; each output is a column, or as many as it is wide."""
        del proba
        names = [spec.name for spec in self._outputs]
        headed = False
        for block in table.blocks(_ROWS_A_BLOCK):
            tensors = inputs_of(block, self._inputs)

            def part(rows: slice, tensors: list[Tensor] = tensors) -> list[Tensor]:
                return [tensor._replace(cells=tensor.cells[rows]) for tensor in tensors]

            for said in _asked(self._client, self._path, block.n_rows, part, names):
                header, columns = columns_said(said)
                if not headed:
                    yield [header]
                    headed = True
                yield list(zip(*columns, strict=True))
        if not headed:
            yield [names]


def _spec(given: dict[str, Any]) -> Spec:
    return Spec(str(given["name"]), str(given["datatype"]), tuple(map(int, given["shape"])))


def _asked(
    client: Client,
    path: Sequence[str],
    n_rows: int,
    part: Callable[[slice], list[Tensor]],
    names: Sequence[str],
) -> Iterator[list[Tensor]]:
    """The outputs for rows, asked in parts as large as the server takes."""
    first, most = 0, _ROWS
    while first < n_rows:
        inputs = part(slice(first, min(first + most, n_rows)))
        rows = len(inputs[0].cells)
        size = sum(tensor.cells.nbytes for tensor in inputs)
        if size > _BYTES and rows > 1:
            most = max(math.floor(rows * _BYTES / size), 1)
            inputs = part(slice(first, first + most))
            rows = len(inputs[0].cells)
        try:
            said = client.infer(path, inputs, names)
        except RemoteError as error:
            if error.status == 413 and rows > 1:
                most = rows // 2
                continue
            if error.status == 404:
                raise RemoteError(
                    f"{error}: the model was replaced while it was asked; ask again", 404
                ) from error
            raise
        for tensor in said:
            if len(tensor.cells) != rows:
                raise RemoteError(
                    f"the server answered {len(tensor.cells)} rows of {tensor.name!r} to {rows}"
                )
        yield said
        first += rows
