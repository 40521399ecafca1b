"""A client of the Open Inference Protocol v2 over HTTP.

What ``treekit predict --url`` needs and no more: programs have tritonclient and kserve's
client, or ten lines of their own (``examples/standalone/ask_server.py``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from treekit.serve.client.connection import Connection, read_token
from treekit.serve.errors import InvalidRequestError, RemoteError, shown
from treekit.serve.models.tensors import Tensor, numpy_type
from treekit.serve.protocol.binary import LENGTH_HEADER, bytes_of, cells_of_bytes

__all__ = ["Client", "read_token"]

_HEAD = LENGTH_HEADER.decode()


class Client:
    """Asks one server.

    Parameters and errors are those of `treekit.serve.client.connection.Connection`.
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
