"""A client of the Open Inference Protocol v2 over HTTP.

What ``treekit predict --url`` needs and no more: programs have tritonclient and kserve's
client, or ten lines of their own (``examples/standalone/ask_server.py``).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import re
import ssl
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.data.encoding import encode_rows
from treekit.data.features import numeric_cells
from treekit.data.schema import Schema, level_text
from treekit.data.table import Table, near_names
from treekit.errors import DataError, SettingError, TreekitWarning
from treekit.serve.errors import InvalidRequestError, RemoteError, shown
from treekit.serve.models.tensors import Spec, Tensor, numpy_type
from treekit.serve.protocol.tensor_data import LENGTH_HEADER, bytes_of, cells_of_bytes

__all__ = [
    "Client",
    "Connection",
    "Remote",
    "columns_said",
    "inputs_of",
    "read_token",
    "remote_model",
]


# ---------------------------------------------------------------- client
# A client of the protocol: rows of a table to a model on a server.

_HEAD = LENGTH_HEADER.decode()


class Client:
    """Asks one server.

    Parameters and errors are those of `treekit.serve.client.Connection`.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        ca_file: str | Path | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.url = url
        self._server = Connection(url, token, ca_file, sleep)

    def close(self) -> None:
        """Give the connection up."""
        self._server.close()

    def get(self, *path: str) -> dict[str, Any]:
        """The JSON object at a path, whose parts are given as they are.

        Raises
        ------
        RemoteError
            If there is none; `status` is that of the answer, 0 without one.
        """
        _, _, body = self._server.ask("GET", path, b"", {})
        return _object(body)

    def infer(
        self, path: Sequence[str], inputs: Sequence[Tensor], outputs: Sequence[str]
    ) -> list[Tensor]:
        """The outputs of these names for inputs, as bytes both ways: what is sent is exact.

        Raises
        ------
        RemoteError
            As `get`; also for an answer that is not what was asked for.
        """
        data = [bytes_of(tensor) for tensor in inputs]
        head = json.dumps(
            {
                "inputs": [
                    {
                        "name": tensor.name,
                        "datatype": tensor.datatype,
                        "shape": tensor.shape,
                        "parameters": {"binary_data_size": len(part)},
                    }
                    for tensor, part in zip(inputs, data, strict=True)
                ],
                "outputs": [
                    {"name": name, "parameters": {"binary_data": True}} for name in outputs
                ],
            }
        ).encode()
        headers = {_HEAD: str(len(head)), "Content-Type": "application/octet-stream"}
        _, said, body = self._server.ask("POST", (*path, "infer"), b"".join((head, *data)), headers)
        try:
            found = _outputs(body, said.get(_HEAD))
            return [found[name] for name in outputs]
        except (InvalidRequestError, LookupError, TypeError, ValueError) as error:
            raise RemoteError(
                f"{self.url} gave an answer that is none of the protocol with binary data: "
                f"{error!s:.300}"
            ) from error


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RemoteError(f"the server answered {shown(body[:80])}, which is no JSON object")
    return found


def _outputs(body: bytes, head: str | None) -> dict[str, Tensor]:
    """The tensors of an answer by name; each has its bytes after the JSON."""
    end = len(body) if head is None else int(head)
    rest = memoryview(body)[end:]
    found = {}
    for output in json.loads(body[:end])["outputs"]:
        name, datatype, shape = output["name"], output["datatype"], output["shape"]
        size = output["parameters"]["binary_data_size"]
        if not 0 <= size <= len(rest):
            raise ValueError(f"{name!r} has {size} of {len(rest)} bytes")
        dtype = numpy_type(name, datatype)
        found[name] = Tensor(
            name, datatype, cells_of_bytes(name, datatype, shape, rest[:size], dtype)
        )
        rest = rest[size:]
    return found


# ---------------------------------------------------------------- connection
# A connection to a server over HTTP, of the standard library alone: TLS, token, tries.

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 120.0
_TRIES = 6
_LONGEST_WAIT = 30.0
_MOST_BYTES = 1 << 28
"""Of an answer: who answers may be anybody."""

_LOCAL = ("localhost", "127.0.0.1", "::1")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
"""RFC 6750, 2.1."""

Answer = tuple[int, Mapping[str, str], bytes]


def read_token(path: str | Path) -> str:
    """The bearer token in a file of one line.

    Raises
    ------
    SettingError
        If the file cannot be read, or holds none.
    """
    try:
        token = Path(path).read_bytes()[: 1 << 16].decode("latin-1").strip()
    except OSError as error:
        raise SettingError(
            f"cannot read the token file {str(path)!r}: {error.strerror or error}"
        ) from error
    if not _TOKEN.fullmatch(token):
        raise SettingError(
            f"the token file {str(path)!r} holds no token: it is one line of letters, digits "
            "and ._~+/=- alone"
        )
    return token


class Connection:
    """One connection to one server, kept between requests and made anew where it was lost.

    Parameters
    ----------
    url : str
        ``http://host:port`` or ``https://...``; a path goes before those that are asked.
    token : str, optional
    ca_file : str, optional
        PEM of the authorities that are trusted; default: those of the system.
    sleep : callable
        How to wait; for tests.

    Raises
    ------
    SettingError
        For a URL or a file that is none.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        ca_file: str | Path | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        secure, host, port, self._prefix = _place(url)
        self.url, self._sleep = url, sleep
        self._connection: http.client.HTTPConnection
        if secure:
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=_CONNECT_SECONDS, context=_trusting(ca_file)
            )
        elif ca_file is not None:
            raise SettingError(f"{url!r} is without TLS; leave the authorities' file out")
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=_CONNECT_SECONDS)
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
            if not secure and host not in _LOCAL:
                warnings.warn(
                    f"the token goes to {host} as it is, for all between to read; ask https://",
                    TreekitWarning,
                    stacklevel=2,
                )

    def close(self) -> None:
        """Give the connection up."""
        self._connection.close()

    def ask(
        self, method: str, path: Sequence[str], body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        """Status 200, the headers and the body of the answer; a busy server is asked again.

        Parameters
        ----------
        method : str
        path : sequence of str
            Its parts, as they are.
        body : bytes
        headers : mapping

        Raises
        ------
        RemoteError
            For another status, or without an answer.
        """
        place = "/".join((self._prefix, *(quote(part, safe="") for part in path)))
        wait = 0.5
        for left in reversed(range(_TRIES)):
            status, said, text = self._once(method, place, body, {**self._headers, **headers})
            if status == 200:
                break
            if status not in (429, 503) or not left:
                raise RemoteError(_reason(self.url, status, text), status)
            asked = said.get("retry-after", "")
            known = asked.isascii() and asked.isdigit() and len(asked) < 6
            self._sleep(min(float(asked) if known else wait, _LONGEST_WAIT))
            wait *= 2
        return status, said, text

    def _once(self, method: str, place: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        kept = self._connection.sock is not None
        try:
            return self._exchange(method, place, body, headers)
        except (http.client.HTTPException, OSError) as error:
            self._connection.close()
            # A server may close a connection that it has kept for a while; nothing is lost.
            if not (kept and isinstance(error, ConnectionError)):
                raise self._unreached(error) from error
        try:
            return self._exchange(method, place, body, headers)
        except (http.client.HTTPException, OSError) as error:
            self._connection.close()
            raise self._unreached(error) from error

    def _exchange(self, method: str, place: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        connection = self._connection
        if connection.sock is None:
            connection.connect()
            connection.sock.settimeout(_ANSWER_SECONDS)  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionError):  # it may refuse before all has arrived: why?
            connection.request(method, place, body or None, dict(headers))
        answer = connection.getresponse()
        text = answer.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            connection.close()
            raise RemoteError(f"the answer of {self.url} is longer than {_MOST_BYTES:,} bytes")
        if answer.length:  # bytes that were promised and did not come
            raise ConnectionError("the answer ended early")
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text

    def _unreached(self, error: Exception) -> RemoteError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return RemoteError(
                f"the certificate of {self.url} is not accepted: {error.verify_message}; give "
                "the file of who signed it, by --ca-file"
            )
        if isinstance(error, ssl.SSLError):
            return RemoteError(f"{self.url} speaks no TLS that is known: {error.reason or error}")
        if isinstance(error, TimeoutError):
            return RemoteError(f"{self.url} does not answer in time; is it the right place?")
        if isinstance(error, OSError):
            reason = error.strerror or str(error) or "the connection was lost"
            cut = isinstance(error, http.client.RemoteDisconnected) and not self.url.startswith(
                "https:"
            )
            also = " If it speaks TLS, its URL begins with https://" if cut else ""
            return RemoteError(
                f"cannot reach {self.url}: {reason}; is a server running there?{also}"
            )
        return RemoteError(
            f"what answers at {self.url} speaks no HTTP: {shown(str(error))}; is it the right "
            "port, and http or https?"
        )


def _place(url: str) -> tuple[bool, str, int | None, str]:
    """Whether with TLS, host, port and path of a URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise SettingError(f"{url!r} is no URL: {error}; give http://host:port") from None
    if parts.scheme not in ("http", "https") or not host or not url.isprintable():
        raise SettingError(f"{url!r} is no URL of a server; give http://host:port, or https://")
    if parts.username is not None or parts.query or parts.fragment:
        raise SettingError(f"{url!r} has more than host, port and path; a token is given in a file")
    return parts.scheme == "https", host, port, quote(parts.path.rstrip("/"), safe="/%")


def _trusting(ca_file: str | Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise SettingError(
            f"{str(ca_file)!r} is no file of certificates: {error.strerror or error}"
        ) from None


def _reason(url: str, status: int, body: bytes) -> str:
    """What the server says of its refusal."""
    try:
        text = json.loads(body)["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        text = None
    if not isinstance(text, str):
        text = f"{url} answered with status {status}"
    if status == 401:
        return f"{text}; give its file by --token-file"
    return text[:2000]


# ---------------------------------------------------------------- foreign
# Columns of a table as the inputs of whatever model, and its outputs as columns.


def inputs_of(table: Table, specs: Sequence[Spec]) -> list[Tensor]:
    """The inputs of a model, by their names; a single one may take all columns in their order.

    Raises
    ------
    DataError
        If the table has no such columns, or cells that are not of their type.
    """
    if len(specs) == 1 and specs[0].name not in table.names:
        return [_whole(table, specs[0])]
    return [_one(table, spec) for spec in specs]


def _whole(table: Table, spec: Spec) -> Tensor:
    width = math.prod(spec.shape[1:])
    if len(spec.shape) > 2 or (width >= 0 and width != len(table.names)):
        raise DataError(
            f"the model takes one input {spec.name!r} of shape {list(spec.shape)}, and the table "
            f"has {len(table.names)} columns; give those that it takes, in its order"
        )
    cells = [_cells(table, name, spec.datatype) for name in table.names]
    stacked = np.stack(cells, axis=1) if len(spec.shape) == 2 else cells[0]
    return Tensor(spec.name, spec.datatype, stacked)


def _one(table: Table, spec: Spec) -> Tensor:
    if len(spec.shape) not in (1, 2) or math.prod(spec.shape[1:]) not in (1, -1):
        raise DataError(
            f"the model's input {spec.name!r} has shape {list(spec.shape)}, which is no column "
            "of a table; ask it by a client of your own"
        )
    if spec.name not in table.names:
        raise DataError(
            f"the table has no column {spec.name!r}, which the model needs; "
            f"{near_names(spec.name, table.names)}"
        )
    cells = _cells(table, spec.name, spec.datatype)
    return Tensor(spec.name, spec.datatype, cells.reshape(-1, *[1] * (len(spec.shape) - 1)))


def _cells(table: Table, name: str, datatype: str) -> npt.NDArray[Any]:
    """(rows,) of a column as the datatype has them; missing texts are empty."""
    dtype = numpy_type(name, datatype)
    if dtype.hasobject:
        texts = np.empty(table.n_rows, dtype=object)
        texts[:] = [level_text(cell) or "" for cell in table.cells[table.index(name)].tolist()]
        return texts
    typed = table.column(name)
    numbers = typed if typed.dtype.kind in "iu" else numeric_cells(table, name)
    with np.errstate(over="ignore", invalid="ignore"):
        cells: npt.NDArray[Any] = numbers.astype(dtype)
    if dtype.kind != "f":
        wrong = cells != numbers
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                f"column {name!r} holds {numbers[row]} in row {table.first_row + row} (counting "
                f"from 0), and the model takes {datatype} there"
            )
    return cells


def columns_said(outputs: Sequence[Tensor]) -> tuple[list[str], list[list[Any]]]:
    """Names and cells of the columns that outputs are: a wide one has its places in brackets."""
    names: list[str] = []
    columns: list[list[Any]] = []
    for output in outputs:
        wide = output.cells.reshape(len(output.cells), math.prod(output.shape[1:]))
        width = wide.shape[1]
        names += [f"{output.name}[{k}]" for k in range(width)] if width != 1 else [output.name]
        columns += wide.T.tolist()
    return names, columns


# ---------------------------------------------------------------- remote
# Models on a server, asked about the rows of a table.
#
# Of treekit's models the server's metadata hold the schema: rows are coded here, as
# ``treekit predict`` codes them, and sent as numbers, so that each answer is the same.

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
