"""Client of the Open Inference Protocol v2 over HTTP, for ``treekit predict --url``.

Other programs should use tritonclient, kserve's client or a few lines of their own
(``examples/standalone/ask_server.py``).
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
from treekit.data.features import convert_to_numbers
from treekit.data.schema import Schema, level_text
from treekit.data.table import Table, suggest_names
from treekit.errors import DataError, SettingError, TreekitWarning
from treekit.serve.errors import InvalidRequestError, RemoteError, shown
from treekit.serve.models.tensors import Tensor, TensorSpec, get_numpy_type
from treekit.serve.protocol.tensor_data import LENGTH_HEADER, decode_byte_cells, encode_bytes

# ---------------------------------------------------------------- client

_LENGTH_HEADER = LENGTH_HEADER.decode()


class Client:
    """Client of one server.

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
        """Close the connection."""
        self._server.close()

    def get(self, *path: str) -> dict[str, Any]:
        """Fetch the JSON object at a path, given as unquoted parts.

        Raises
        ------
        RemoteError
            If the request fails; `status` is the HTTP status, 0 without a response.
        """
        _, _, body = self._server.send_request("GET", path, b"", {})
        return _parse_object(body)

    def infer(
        self, path: Sequence[str], inputs: Sequence[Tensor], outputs: Sequence[str]
    ) -> list[Tensor]:
        """Request outputs by name; tensors are sent and received as bytes, so values are exact.

        Raises
        ------
        RemoteError
            As `get`; also if the response does not match the request.
        """
        data = [encode_bytes(tensor) for tensor in inputs]
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
        headers = {_LENGTH_HEADER: str(len(head)), "Content-Type": "application/octet-stream"}
        _, response_headers, body = self._server.send_request(
            "POST", (*path, "infer"), b"".join((head, *data)), headers
        )
        try:
            found = _parse_outputs(body, response_headers.get(_LENGTH_HEADER))
            return [found[name] for name in outputs]
        except (InvalidRequestError, LookupError, TypeError, ValueError) as error:
            raise RemoteError(
                f"the response of {self.url} violates the protocol with binary data: {error!s:.300}"
            ) from error


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RemoteError(f"expected a JSON object from the server, got {shown(body[:80])}")
    return found


def _parse_outputs(body: bytes, head: str | None) -> dict[str, Tensor]:
    """Parse the tensors of a response by name; the bytes of all tensors follow the JSON."""
    end = len(body) if head is None else int(head)
    rest = memoryview(body)[end:]
    found = {}
    for output in json.loads(body[:end])["outputs"]:
        name, datatype, shape = output["name"], output["datatype"], output["shape"]
        size = output["parameters"]["binary_data_size"]
        if not 0 <= size <= len(rest):
            raise ValueError(f"{name!r} has binary_data_size {size}; {len(rest)} bytes are left")
        dtype = get_numpy_type(name, datatype)
        found[name] = Tensor(
            name, datatype, decode_byte_cells(name, datatype, shape, rest[:size], dtype)
        )
        rest = rest[size:]
    return found


# ---------------------------------------------------------------- connection
# HTTP connection with the standard library only: TLS, token, retries.

_CONNECT_SECONDS = 10.0
_RESPONSE_SECONDS = 120.0
_MAX_ATTEMPTS = 6
_MAX_WAIT_SECONDS = 30.0
_MAX_RESPONSE_BYTES = 1 << 28
"""Maximum bytes of a response, as the server may not be trusted."""

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_TOKEN_PATTERN = re.compile(r"[A-Za-z0-9._~+/=-]+")
"""RFC 6750, 2.1."""

HttpResponse = tuple[int, Mapping[str, str], bytes]


def read_token(path: str | Path) -> str:
    """Read the bearer token from a file with one line.

    Raises
    ------
    SettingError
        If the file cannot be read or does not contain a token.
    """
    try:
        token = Path(path).read_bytes()[: 1 << 16].decode("latin-1").strip()
    except OSError as error:
        raise SettingError(
            f"cannot read the token file {str(path)!r}: {error.strerror or error}"
        ) from error
    if not _TOKEN_PATTERN.fullmatch(token):
        raise SettingError(
            f"the token file {str(path)!r} does not contain a valid token: expected one line of "
            "letters, digits and ._~+/=-"
        )
    return token


class Connection:
    """Persistent connection to one server, re-established if it is lost.

    Parameters
    ----------
    url : str
        ``http://host:port`` or ``https://...``; a path is prepended to requested paths.
    token : str, optional
    ca_file : str, optional
        PEM file of trusted certificate authorities; default: those of the system.
    sleep : callable
        Function that waits between retries; for tests.

    Raises
    ------
    SettingError
        If the URL or the file is invalid.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        ca_file: str | Path | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        secure, host, port, self._prefix = _parse_url(url)
        self.url, self._sleep = url, sleep
        self._connection: http.client.HTTPConnection
        if secure:
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=_CONNECT_SECONDS, context=_make_ssl_context(ca_file)
            )
        elif ca_file is not None:
            raise SettingError(f"{url!r} does not use TLS; omit the CA file")
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=_CONNECT_SECONDS)
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
            if not secure and host not in _LOCAL_HOSTS:
                warnings.warn(
                    f"the token is sent to {host} unencrypted; use https://",
                    TreekitWarning,
                    stacklevel=2,
                )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def send_request(
        self, method: str, path: Sequence[str], body: bytes, headers: Mapping[str, str]
    ) -> HttpResponse:
        """Send a request, retrying while the server is busy; return status, headers and body.

        Parameters
        ----------
        method : str
        path : sequence of str
            Unquoted parts of the path.
        body : bytes
        headers : mapping

        Raises
        ------
        RemoteError
            If the status is not 200 or there is no response.
        """
        place = "/".join((self._prefix, *(quote(part, safe="") for part in path)))
        wait = 0.5
        for left in reversed(range(_MAX_ATTEMPTS)):
            status, response_headers, text = self._send_with_reconnect(
                method, place, body, {**self._headers, **headers}
            )
            if status == 200:
                break
            if status not in (429, 503) or not left:
                raise RemoteError(_error_message(self.url, status, text), status)
            retry_after = response_headers.get("retry-after", "")
            is_valid = retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 6
            self._sleep(min(float(retry_after) if is_valid else wait, _MAX_WAIT_SECONDS))
            wait *= 2
        return status, response_headers, text

    def _send_with_reconnect(
        self, method: str, place: str, body: bytes, headers: Mapping[str, str]
    ) -> HttpResponse:
        was_open = self._connection.sock is not None
        try:
            return self._exchange_message(method, place, body, headers)
        except (http.client.HTTPException, OSError) as error:
            self._connection.close()
            # A server may close an idle connection; the request was not processed, so retry.
            if not (was_open and isinstance(error, ConnectionError)):
                raise self._connection_error(error) from error
        try:
            return self._exchange_message(method, place, body, headers)
        except (http.client.HTTPException, OSError) as error:
            self._connection.close()
            raise self._connection_error(error) from error

    def _exchange_message(
        self, method: str, place: str, body: bytes, headers: Mapping[str, str]
    ) -> HttpResponse:
        connection = self._connection
        if connection.sock is None:
            connection.connect()
            connection.sock.settimeout(_RESPONSE_SECONDS)  # type: ignore[attr-defined]
        # The server may reject a request before it has arrived; the response has the reason.
        with contextlib.suppress(ConnectionError):
            connection.request(method, place, body or None, dict(headers))
        answer = connection.getresponse()
        text = answer.read(_MAX_RESPONSE_BYTES + 1)
        if len(text) > _MAX_RESPONSE_BYTES:
            connection.close()
            raise RemoteError(
                f"the response of {self.url} is longer than {_MAX_RESPONSE_BYTES:,} bytes"
            )
        if answer.length:  # fewer bytes than Content-Length
            raise ConnectionError("the response ended early")
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text

    def _connection_error(self, error: Exception) -> RemoteError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return RemoteError(
                f"the certificate of {self.url} is not trusted: {error.verify_message}; give the "
                "certificate of its CA with --ca-file"
            )
        if isinstance(error, ssl.SSLError):
            return RemoteError(f"TLS handshake with {self.url} failed: {error.reason or error}")
        if isinstance(error, TimeoutError):
            return RemoteError(f"{self.url} does not respond in time; check the URL")
        if isinstance(error, OSError):
            reason = error.strerror or str(error) or "the connection was lost"
            cut = isinstance(error, http.client.RemoteDisconnected) and not self.url.startswith(
                "https:"
            )
            also = " If it uses TLS, give a URL with https://" if cut else ""
            return RemoteError(
                f"cannot reach {self.url}: {reason}; is a server running there?{also}"
            )
        return RemoteError(
            f"{self.url} does not respond with HTTP: {shown(str(error))}; check the port, and "
            "http or https"
        )


def _parse_url(url: str) -> tuple[bool, str, int | None, str]:
    """Parse a URL; return whether it uses TLS, and its host, port and path."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise SettingError(f"invalid URL {url!r}: {error}; give http://host:port") from None
    if parts.scheme not in ("http", "https") or not host or not url.isprintable():
        raise SettingError(f"invalid server URL {url!r}; give http://host:port or https://")
    if parts.username is not None or parts.query or parts.fragment:
        raise SettingError(
            f"server URL {url!r} may only have host, port and path; give a token in a file"
        )
    return parts.scheme == "https", host, port, quote(parts.path.rstrip("/"), safe="/%")


def _make_ssl_context(ca_file: str | Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise SettingError(
            f"{str(ca_file)!r} is not a certificate file: {error.strerror or error}"
        ) from None


def _error_message(url: str, status: int, body: bytes) -> str:
    """Return the error message of a response."""
    try:
        text = json.loads(body)["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        text = None
    if not isinstance(text, str):
        text = f"{url} responded with status {status}"
    if status == 401:
        return f"{text}; give the token file with --token-file"
    return text[:2000]


# ---------------------------------------------------------------- tensors of tables


def table_to_inputs(table: Table, specs: Sequence[TensorSpec]) -> list[Tensor]:
    """Convert a table to the inputs of a model, matched by name.

    A single input that is not a column name takes all columns in order.

    Raises
    ------
    DataError
        If columns are missing or cells do not have the datatype of the input.
    """
    if len(specs) == 1 and specs[0].name not in table.names:
        return [_table_to_tensor(table, specs[0])]
    return [_column_to_tensor(table, spec) for spec in specs]


def _table_to_tensor(table: Table, spec: TensorSpec) -> Tensor:
    width = math.prod(spec.shape[1:])
    if len(spec.shape) > 2 or (width >= 0 and width != len(table.names)):
        raise DataError(
            f"the model takes one input {spec.name!r} of shape {list(spec.shape)}, but the table "
            f"has {len(table.names)} columns; give the model's columns in order"
        )
    cells = [_convert_column(table, name, spec.datatype) for name in table.names]
    stacked = np.stack(cells, axis=1) if len(spec.shape) == 2 else cells[0]
    return Tensor(spec.name, spec.datatype, stacked)


def _column_to_tensor(table: Table, spec: TensorSpec) -> Tensor:
    if len(spec.shape) not in (1, 2) or math.prod(spec.shape[1:]) not in (1, -1):
        raise DataError(
            f"the model's input {spec.name!r} has shape {list(spec.shape)}, which is not a table "
            "column; use another client"
        )
    if spec.name not in table.names:
        raise DataError(
            f"the table has no column {spec.name!r}, which the model needs; "
            f"{suggest_names(spec.name, table.names)}"
        )
    cells = _convert_column(table, spec.name, spec.datatype)
    return Tensor(spec.name, spec.datatype, cells.reshape(-1, *[1] * (len(spec.shape) - 1)))


def _convert_column(table: Table, name: str, datatype: str) -> npt.NDArray[Any]:
    """Return a column as an array (rows,) of the datatype; missing strings are empty."""
    dtype = get_numpy_type(name, datatype)
    if dtype.hasobject:
        texts = np.empty(table.n_rows, dtype=object)
        texts[:] = [
            level_text(cell) or "" for cell in table.cells[table.find_column(name)].tolist()
        ]
        return texts
    typed = table.get_typed_cells(name)
    numbers = typed if typed.dtype.kind in "iu" else convert_to_numbers(table, name)
    with np.errstate(over="ignore", invalid="ignore"):
        cells: npt.NDArray[Any] = numbers.astype(dtype)
    if dtype.kind != "f":
        wrong = cells != numbers
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                f"column {name!r} has value {numbers[row]} in row {table.first_row + row} "
                f"(counting from 0), which is not of the input's datatype {datatype}"
            )
    return cells


def outputs_to_columns(outputs: Sequence[Tensor]) -> tuple[list[str], list[list[Any]]]:
    """Convert outputs to columns; those of a 2-d output are named ``name[k]``."""
    names: list[str] = []
    columns: list[list[Any]] = []
    for output in outputs:
        wide = output.cells.reshape(len(output.cells), math.prod(output.shape[1:]))
        width = wide.shape[1]
        names += [f"{output.name}[{k}]" for k in range(width)] if width != 1 else [output.name]
        columns += wide.T.tolist()
    return names, columns


# ---------------------------------------------------------------- remote models
# The metadata of treekit models contain the schema: rows are encoded here, exactly as by
# ``treekit predict``, and sent as numbers, so that predictions are identical.

_MAX_PART_ROWS = 10_000
_MAX_PART_BYTES = 4 << 20
"""Maximum bytes per request; halved if the server rejects it as too large."""

_BLOCK_ROWS = 200_000
"""Rows of a large file encoded together."""

Lines = list[Sequence[Any]]


class RemoteModel(Protocol):
    """Model on a server."""

    missing_marks: tuple[str, ...] | None
    """Strings that denote missing values, if known."""

    has_probabilities: bool
    """Whether the model can add probabilities."""

    def predict_lines(self, table: Table, *, proba: bool = False) -> Iterator[Lines]:
        """Yield the column names, then the predictions in blocks of rows.

        Raises
        ------
        RemoteError
            If the server rejects rows or becomes unreachable.
        DataError
            If the table does not match the model.
        """


def open_remote_model(client: Client, name: str) -> RemoteModel:
    """Return the newest version of a model on the server.

    Raises
    ------
    RemoteError
        If the server does not have the model or is unreachable.
    """
    path = ["v2", "models", name]
    metadata = client.get(*path)
    try:
        versions = metadata.get("versions") or []
        if versions:  # all parts of a table are predicted by the same version
            path += ["versions", str(versions[0])]
            metadata = client.get(*path)
        parameters = metadata.get("parameters") or {}
        if "schema" in parameters:
            return _RemoteTreekitModel(client, path, parameters)
        return _RemoteForeignModel(client, path, metadata)
    except (LookupError, TypeError, AttributeError, ValueError, msgspec.MsgspecError) as error:
        raise RemoteError(
            f"invalid metadata of model {name!r} from {client.url}: {error}"
        ) from error


class _RemoteTreekitModel:
    """treekit model on a server."""

    def __init__(self, client: Client, path: Sequence[str], parameters: dict[str, Any]) -> None:
        self._client, self._path = client, path
        self._schema = schema = msgspec.json.decode(parameters["schema"], type=Schema)
        self._missing = parameters["missing"]
        self._unknown = parameters["unknown"]
        self.missing_marks: tuple[str, ...] | None = schema.missing_marks
        self.has_probabilities = schema.task == "classification"

    def predict_lines(self, table: Table, *, proba: bool = False) -> Iterator[Lines]:
        """Yield the lines of `RemoteModel.predict_lines`, equal to those of ``treekit predict``."""
        outputs = self._schema.outputs
        header = [output.name for output in outputs]
        if proba:
            header += [f"{o.name}={level_text(label)}" for o in outputs for label in o.classes]
        yield [header]
        names = self._list_output_names(proba)
        for block in table.iterate_blocks(_BLOCK_ROWS):
            matrix = encode_rows(
                block,
                self._schema,
                missing=self._missing,
                unknown=self._unknown,
                missing_marks=block.missing,
            )
            datatype = "FP32" if self._schema.dtype == "float32" else "FP64"

            def slice_rows(
                rows: slice, matrix: Any = matrix, datatype: str = datatype
            ) -> list[Tensor]:
                return [Tensor("input", datatype, matrix[rows])]

            for tensors in _infer_in_parts(
                self._client, self._path, len(matrix), slice_rows, names
            ):
                columns: list[Any] = []
                for tensor in tensors:
                    wide = tensor.cells.reshape(len(tensor.cells), math.prod(tensor.shape[1:]))
                    columns += wide.T.tolist()
                if len(columns) != len(header):
                    raise RemoteError(
                        f"the server returned {len(columns)} columns, but its schema has "
                        f"{len(header)}"
                    )
                yield list(zip(*columns, strict=True))

    def _list_output_names(self, proba: bool) -> list[str]:
        """Return the outputs to request, in column order."""
        if not self.has_probabilities:
            return ["value"]
        ends = [f"_{k}" for k in range(len(self._schema.outputs))] if self._schema.more else [""]
        names = [f"label{end}" for end in ends]
        return names + [f"probabilities{end}" for end in ends] if proba else names


class _RemoteForeignModel:
    """Model known only by its inputs and outputs."""

    missing_marks: tuple[str, ...] | None = None
    has_probabilities = False

    def __init__(self, client: Client, path: Sequence[str], metadata: dict[str, Any]) -> None:
        self._client, self._path = client, path
        self._inputs = [_parse_spec(given) for given in metadata["inputs"]]
        usual = [o for o in metadata["outputs"] if (o.get("parameters") or {}).get("default", True)]
        self._outputs = [_parse_spec(given) for given in usual]

    def predict_lines(self, table: Table, *, proba: bool = False) -> Iterator[Lines]:
        """Yield the lines of `RemoteModel.predict_lines`; each output is one column or several."""
        del proba
        names = [spec.name for spec in self._outputs]
        headed = False
        for block in table.iterate_blocks(_BLOCK_ROWS):
            tensors = table_to_inputs(block, self._inputs)

            def slice_rows(rows: slice, tensors: list[Tensor] = tensors) -> list[Tensor]:
                return [tensor._replace(cells=tensor.cells[rows]) for tensor in tensors]

            for outputs in _infer_in_parts(
                self._client, self._path, block.n_rows, slice_rows, names
            ):
                header, columns = outputs_to_columns(outputs)
                if not headed:
                    yield [header]
                    headed = True
                yield list(zip(*columns, strict=True))
        if not headed:
            yield [names]


def _parse_spec(given: dict[str, Any]) -> TensorSpec:
    return TensorSpec(str(given["name"]), str(given["datatype"]), tuple(map(int, given["shape"])))


def _infer_in_parts(
    client: Client,
    path: Sequence[str],
    n_rows: int,
    part: Callable[[slice], list[Tensor]],
    names: Sequence[str],
) -> Iterator[list[Tensor]]:
    """Request the outputs of rows in parts that the server accepts."""
    first, most = 0, _MAX_PART_ROWS
    while first < n_rows:
        inputs = part(slice(first, min(first + most, n_rows)))
        rows = len(inputs[0].cells)
        size = sum(tensor.cells.nbytes for tensor in inputs)
        if size > _MAX_PART_BYTES and rows > 1:
            most = max(math.floor(rows * _MAX_PART_BYTES / size), 1)
            inputs = part(slice(first, first + most))
            rows = len(inputs[0].cells)
        try:
            outputs = client.infer(path, inputs, names)
        except RemoteError as error:
            if error.status == 413 and rows > 1:
                most = rows // 2
                continue
            if error.status == 404:
                raise RemoteError(
                    f"{error}: the model was replaced during prediction; retry", 404
                ) from error
            raise
        for tensor in outputs:
            if len(tensor.cells) != rows:
                raise RemoteError(
                    f"the server returned {len(tensor.cells)} rows of {tensor.name!r}, "
                    f"expected {rows}"
                )
        yield outputs
        first += rows
