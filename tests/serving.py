"""Servers for tests: in this process, or on a free port in a thread of it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from treekit.serve.app import make_app
from treekit.serve.repository import Repository
from treekit.serve.running import Runner
from treekit.serve.service import Service
from treekit.serve.settings import Limits


def service_of(*sources: str | Path, control: bool = False, **limits: Any) -> Service:
    """A service of model files and folders, loaded."""
    repository = Repository(sources)
    repository.refresh()
    return Service(repository, Runner(Limits(**limits)), control=control)


def client_of(app: Any) -> httpx.AsyncClient:
    """An HTTP client of an application in this process; its faults reach the test."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
    return httpx.AsyncClient(transport=transport, base_url="http://treekit.test")


@contextlib.contextmanager
def on_a_port(service: Service) -> Iterator[str]:
    """Serve over HTTP from a thread; gives "host:port"."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = uvicorn.Config(make_app(service), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        end = time.monotonic() + 20
        while not server.started:
            assert thread.is_alive(), "the server ended before it began"
            assert time.monotonic() < end, "the server did not start in time"
            time.sleep(0.01)
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
        service.runner.close()
