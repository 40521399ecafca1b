"""Client of the Open Inference Protocol v2 over HTTP, for ``treekit predict --url``.

Other programs should use tritonclient, kserve's client or a few lines of their own
(``examples/standalone/ask_server.py``).
"""

from __future__ import annotations

import math
import ssl
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.data.encoding import Absent, encode_rows
from treekit.data.schema import Schema, level_text
from treekit.data.table import Table
from treekit.errors import MissingExtraError, SettingError, TreekitWarning
from treekit.serve.errors import InvalidRequestError, RemoteError, shown
from treekit.serve.models.tensors import Tensor
from treekit.serve.protocol.messages import (
    ErrorResponse,
    InferRequest,
    InputRequest,
    OutputRequest,
    Parameters,
    decode_tensors,
)
from treekit.serve.protocol.tensor_data import LENGTH_HEADER, encode_bytes, split_body

try:
    import httpx
except ImportError as missing:
    raise MissingExtraError("httpx", "client") from missing

# ---------------------------------------------------------------- client

_CONNECT_SECONDS = 10.0
_RESPONSE_SECONDS = 120.0
_MAX_ATTEMPTS = 6
_MAX_WAIT_SECONDS = 30.0
_MAX_RESPONSE_BYTES = 1 << 28
"""Maximum bytes of a response, as the server may not be trusted."""

_LENGTH_HEADER = LENGTH_HEADER.decode()
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class _Response(msgspec.Struct):
    """Response, whose outputs have the form of the inputs of a request."""

    outputs: list[InputRequest]


class Client:
    """Client of one server, with a persistent connection.

    Parameters
    ----------
    url : str
        ``http://host:port`` or ``https://...``; a path is prepended to requested paths.
    token : bytes, optional
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
        token: bytes | None = None,
        ca_file: str | Path | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        parsed = _parse_url(url)
        secure = parsed.scheme == "https"
        if ca_file is not None and not secure:
            raise SettingError(f"{url!r} does not use TLS; omit the CA file")
        self.url, self._sleep = url, sleep
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token.decode()}"
            if not secure and parsed.host not in _LOCAL_HOSTS:
                warnings.warn(
                    f"the token is sent to {parsed.host} unencrypted; use https://",
                    TreekitWarning,
                    stacklevel=2,
                )
        self._http = httpx.Client(
            base_url=parsed,
            headers=headers,
            timeout=httpx.Timeout(_RESPONSE_SECONDS, connect=_CONNECT_SECONDS),
            verify=_make_ssl_context(ca_file) if secure else False,
            trust_env=False,
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def get(self, *path: str) -> dict[str, Any]:
        """Fetch the JSON object at a path, given as unquoted parts.

        Raises
        ------
        RemoteError
            If the request fails; `status` is the HTTP status, 0 without a response.
        """
        _, body = self._send_request("GET", path)
        try:
            found: dict[str, Any] = msgspec.json.decode(body, type=dict)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise RemoteError(
                f"expected a JSON object from the server, got {shown(body[:80])}"
            ) from None
        return found

    def infer(self, path: Sequence[str], tensor: Tensor, outputs: Sequence[str]) -> list[Tensor]:
        """Request outputs by name; tensors are sent and received as bytes, so values are exact.

        Raises
        ------
        RemoteError
            As `get`; also if the response does not match the request.
        """
        data = encode_bytes(tensor)
        size: Parameters = {"binary_data_size": len(data)}
        given = InputRequest(tensor.name, list(tensor.shape), tensor.datatype, parameters=size)
        wanted = [OutputRequest(name, {"binary_data": True}) for name in outputs]
        head = msgspec.json.encode(InferRequest([given], outputs=wanted))
        headers = {_LENGTH_HEADER: str(len(head)), "Content-Type": "application/octet-stream"}
        response_headers, body = self._send_request("POST", (*path, "infer"), head + data, headers)
        length = response_headers.get(_LENGTH_HEADER)
        try:
            text, rest = split_body(body, None if length is None else length.encode())
            response = InferRequest(msgspec.json.decode(text, type=_Response).outputs)
            found = {output.name: output for output in decode_tensors(response, rest)}
            return [found[name] for name in outputs]
        except (InvalidRequestError, LookupError, ValueError, RecursionError) as error:
            raise RemoteError(
                f"the response of {self.url} violates the protocol with binary data: {error!s:.300}"
            ) from error

    def _send_request(
        self,
        method: str,
        path: Sequence[str],
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[Mapping[str, str], bytes]:
        """Send a request, retrying while the server is busy; return headers and body."""
        place = "/".join(quote(part, safe="") for part in path)
        wait = 0.5
        for left in reversed(range(_MAX_ATTEMPTS)):
            try:
                with self._http.stream(method, place, content=body, headers=headers) as response:
                    text = self._read_body(response)
            except httpx.HTTPError as error:
                raise self._connection_error(error) from error
            if response.status_code == 200:
                break
            if response.status_code not in (429, 503) or not left:
                message = _error_message(self.url, response.status_code, text)
                raise RemoteError(message, response.status_code)
            retry_after = response.headers.get("retry-after", "")
            is_valid = retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 6
            self._sleep(min(float(retry_after) if is_valid else wait, _MAX_WAIT_SECONDS))
            wait *= 2
        return response.headers, text

    def _read_body(self, response: httpx.Response) -> bytes:
        text = bytearray()
        for part in response.iter_raw():
            text += part
            if len(text) > _MAX_RESPONSE_BYTES:
                raise RemoteError(
                    f"the response of {self.url} is longer than {_MAX_RESPONSE_BYTES:,} bytes"
                )
        return bytes(text)

    def _connection_error(self, error: httpx.HTTPError) -> RemoteError:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            remedy = "give the certificate of its CA with --ca-file"
        else:
            remedy = "is a server running there, with http or https as in the URL?"
        reason = str(error) or type(error).__name__
        return RemoteError(f"no valid response from {self.url}: {reason:.300}; {remedy}")


def _parse_url(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise SettingError(f"invalid URL {url!r}: {error}; give http://host:port") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise SettingError(f"invalid server URL {url!r}; give http://host:port or https://")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise SettingError(
            f"server URL {url!r} may only have host, port and path; give a token in a file"
        )
    return parsed


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
        text = msgspec.json.decode(body, type=ErrorResponse).error
    except (msgspec.DecodeError, ValueError, RecursionError):
        text = f"{url} responded with status {status}"
    if status == 401:
        return f"{text}; give the token file with --token-file"
    return text[:2000]


# ---------------------------------------------------------------- remote models
# The metadata of treekit models contain the schema: rows are encoded here, exactly as by
# ``treekit predict``, and sent as numbers, so that predictions are identical.

_MAX_PART_ROWS = 10_000
_MAX_PART_BYTES = 4 << 20
"""Maximum bytes per request; halved if the server rejects it as too large."""

_BLOCK_ROWS = 200_000
"""Rows of a large file encoded together."""

Lines = list[Sequence[Any]]


class RemoteModel:
    """Newest version of a treekit model on a server.

    Parameters
    ----------
    client : Client
    name : str

    Attributes
    ----------
    missing_marks : tuple of str
        Strings that denote missing values.
    has_probabilities : bool
        Whether the model can add probabilities.

    Raises
    ------
    RemoteError
        If the server does not have the model or is unreachable.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._path = client, ["v2", "models", name]
        metadata = client.get(*self._path)
        try:
            versions = metadata.get("versions") or []
            if versions:  # all parts of a table are predicted by the same version
                self._path += ["versions", str(versions[0])]
                metadata = client.get(*self._path)
            parameters = metadata.get("parameters") or {}
            self._schema = msgspec.json.decode(parameters["schema"], type=Schema)
            self._policies = {name: parameters[name] for name in ("missing", "unknown")}
            untested = msgspec.json.decode(parameters.get("untested", "[]"), type=list[str])
            self._tested = ~np.isin(np.array(self._schema.names), untested)
        except (LookupError, TypeError, AttributeError, ValueError, msgspec.MsgspecError) as error:
            raise RemoteError(
                f"invalid metadata of model {name!r} from {client.url}: {error!r:.300}; for models "
                "of other servers than treekit's use tritonclient"
            ) from error
        self.missing_marks = self._schema.missing_marks
        self.has_probabilities = self._schema.task == "classification"

    def predict_lines(
        self, table: Table, *, proba: bool = False, absent: Absent = "error"
    ) -> Iterator[Lines]:
        """Yield the column names, then the predictions, equal to those of ``treekit predict``.

        Raises
        ------
        RemoteError
            If the server rejects rows or becomes unreachable.
        DataError
            If the table does not match the model.
        """
        outputs = self._schema.outputs
        header = [output.name for output in outputs]
        if proba:
            header += [f"{o.name}={level_text(label)}" for o in outputs for label in o.classes]
        yield [header]
        names = self._list_output_names(proba)
        for block in table.iterate_blocks(_BLOCK_ROWS):
            matrix = encode_rows(
                block, self._schema, **self._policies, missing_marks=block.missing, absent=absent,
                tested=self._tested,
            )  # fmt: skip
            for tensors in self._infer_in_parts(matrix, names):
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
        schema, kinds = self._schema, ("label", "probabilities")[: 1 + proba]
        ends = [f"_{k}" for k in range(len(schema.outputs))] if schema.more else [""]
        return [f"{kind}{end}" for kind in kinds for end in ends]

    def _infer_in_parts(
        self, matrix: npt.NDArray[np.floating[Any]], names: Sequence[str]
    ) -> Iterator[list[Tensor]]:
        """Request the outputs of encoded rows in parts that the server accepts."""
        datatype = "FP32" if self._schema.dtype == "float32" else "FP64"
        row_bytes = max(matrix.itemsize * matrix.shape[1], 1)
        first, most = 0, min(_MAX_PART_ROWS, max(_MAX_PART_BYTES // row_bytes, 1))
        while first < len(matrix):
            part = matrix[first : first + most]
            try:
                outputs = self._client.infer(self._path, Tensor("input", datatype, part), names)
            except RemoteError as error:
                if error.status == 413 and len(part) > 1:
                    most = len(part) // 2
                    continue
                if error.status == 404:
                    raise RemoteError(
                        f"{error}: the model was replaced during prediction; retry", 404
                    ) from error
                raise
            for tensor in outputs:
                if len(tensor.cells) != len(part):
                    raise RemoteError(
                        f"the server returned {len(tensor.cells)} rows of {tensor.name!r}, "
                        f"expected {len(part)}"
                    )
            yield outputs
            first += len(part)
