"""A controllable model behind the application, in this process or on a port."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from treekit.data.schema import Column, Schema
from treekit.model.builder import build_tree, leaf
from treekit.model.model import make_model
from treekit.serve.http import logs
from treekit.serve.http.app import HttpApp, make_app
from treekit.serve.http.logs import LineHandler
from treekit.serve.models.repository import Repository
from treekit.serve.models.served_model import Served
from treekit.serve.models.tensors import Tensor, TensorSpec
from treekit.serve.scheduling import Runner, Service
from treekit.serve.settings import Limits, ServeSettings

INFER = "/v2/models/twice/infer"


class Twice(Served):
    """Model that doubles its inputs in a thread; `meanwhile` is called before it returns."""

    def __init__(self, name: str = "twice", version: str = "1") -> None:
        self.name, self.version = name, version
        self.digest, self.platform = "d" * 64, "treekit"
        self.inputs = (TensorSpec("x", "FP64", (-1,)),)
        self.outputs = (TensorSpec("y", "FP64", (-1,)), TensorSpec("why", "FP64", (-1,)))
        self.default_outputs = ("y",)
        self.explanation_outputs, self.other_inputs = frozenset({"why"}), ()
        schema = Schema((Column("x"),), task="regression")
        self.model = make_model(schema, [build_tree(leaf([0.0]), schema)])
        self.visits_per_row, self.n_features = 1e9, 1
        self.meanwhile: Callable[[], None] = lambda: None

    def parse_inputs(self, tensors: Sequence[Tensor], absent: str = "error") -> Any:
        return np.asarray(tensors[0].cells)

    def compute_outputs(self, batch: Any, wanted: Sequence[str]) -> list[Tensor]:
        self.meanwhile()
        return [Tensor(name, "FP64", batch * 2) for name in wanted]


def service_of(*models: Twice, folder: Path, **limits: Any) -> Service:
    """Create a service with these models, loaded; their files in the folder are empty."""
    by_name = {model.name: model for model in models}
    for name in by_name:
        (folder / f"{name}.treekit").touch()
    repository = Repository([folder], lambda data, path, name, *_: by_name[name])
    repository.refresh()
    return Service(repository, Runner(Limits(**limits)))


class Lines:
    """Collected lines of the log, until others collect them."""

    def __init__(self) -> None:
        self.data = b""
        self.handler: LineHandler | None = None

    def _take(self, data: bytes) -> int:
        self.data += data
        return len(data)

    def collect(self, mode: str = "json", write: Callable[[bytes], int] | None = None) -> None:
        self.handler = LineHandler(mode, write=write or self._take)
        logger = logging.getLogger("treekit.serve")
        for former in logger.handlers[:]:
            logger.removeHandler(former)
            former.close()
        logger.addHandler(self.handler)
        logger.setLevel(logging.INFO)
        logs._request_handlers[:] = [self.handler]

    @property
    def text(self) -> list[str]:
        assert self.handler is not None
        self.handler.flush()
        return self.data.decode().splitlines()

    @property
    def json(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text]


def make_gate_app(service: Service, lines: Lines | None = None, **settings: Any) -> HttpApp:
    """Create the application of a service, as `treekit serve` with these settings does."""
    asked = ServeSettings(("-",), limits=service.limits, **({"log": "quiet"} | settings))
    if lines is not None:
        lines.collect(asked.log)
    return make_app(service, asked)


def rows(*numbers: float, outputs: Sequence[str] = ()) -> dict[str, Any]:
    """Make the body of a request."""
    body: dict[str, Any] = {
        "inputs": [{"name": "x", "shape": [len(numbers)], "datatype": "FP64", "data": numbers}]
    }
    return body | {"outputs": [{"name": name} for name in outputs]} if outputs else body


def ask(app: Any, method: str, path: str, host: str = "localhost", **request: Any) -> Any:
    """Send a request with host name `host` to an application in this process."""
    return asyncio.run(ask_async(app, method, path, host, **request))


async def ask_async(app: Any, method: str, path: str, host: str = "localhost", **kw: Any) -> Any:
    transport = httpx.ASGITransport(app=app, client=("192.0.2.7", 4242))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        return await client.request(method, path, **kw)


@contextmanager
def on_port(app: Any, limits: Limits, loop: str = "auto", most: int | None = None) -> Iterator[int]:
    """Run a server as `treekit serve` does, in a thread; yields its port."""
    import uvicorn

    from treekit.serve.process.worker import make_config

    settings = ServeSettings(("-",), limits=limits)
    config = make_config(app, settings, host="127.0.0.1", port=0, loop=loop)
    config.limit_concurrency = most or config.limit_concurrency
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(15)
        assert not thread.is_alive(), "the server did not stop"


def connect(port: int, seconds: float = 10.0) -> socket.socket:
    """Connect to a server on this machine."""
    return socket.create_connection(("127.0.0.1", port), seconds)


def until_closed(connection: socket.socket) -> bytes:
    """Receive until the server closes the connection; raise TimeoutError if it does not."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def send_bytes(port: int, request: bytes, seconds: float = 10.0) -> bytes:
    """Send bytes and receive the response, after which the server must close the connection."""
    with connect(port, seconds) as connection:
        connection.sendall(request)
        return until_closed(connection)
