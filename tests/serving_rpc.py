"""Test servers over gRPC and TLS, and scripted faulty servers, on free ports."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from treekit.serve.scheduling import Service
from treekit.serve.settings import ServeSettings

LOOP = "the event loop"
"""Name of the event loop's thread."""


@contextmanager
def grpc_server(
    service: Service,
    check_token: Callable[[bytes | None], None] | None = None,
    note: Callable[[Any], None] | None = None,
    **settings: Any,
) -> Iterator[int]:
    """Run a gRPC server on its own event loop; yields its port."""
    from treekit.serve.grpc import start_grpc

    with event_loop() as run:
        given = ServeSettings(("-",), grpc_port=0, limits=service.limits, **settings)
        server, port = run(start_grpc(service, given, check_token, note))
        try:
            yield port
        finally:
            run(server.stop(0))


@contextmanager
def event_loop() -> Iterator[Callable[[Any], Any]]:
    """Run an event loop in a thread; yields a function that runs a coroutine on it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=LOOP, daemon=True)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@contextmanager
def app_server(app: Any, **options: Any) -> Iterator[int]:
    """Run a uvicorn server of an ASGI application; yields its port."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_config=None, lifespan="off", **options
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server stopped during start-up"
            thread.join(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def scripted_server(*connections: Sequence[bytes]) -> Iterator[int]:
    """Run a server that sends these bytes regardless of the requests; yields its port.

    Each connection has its own responses, one per request, and is then closed.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)

        def run() -> None:
            for answers in connections:
                taken, _ = listening.accept()
                with taken:
                    taken.settimeout(20)
                    for answer in answers:
                        asked = b""
                        while b"\r\n\r\n" not in asked and (part := taken.recv(1 << 16)):
                            asked += part
                        taken.sendall(answer)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(20)


def certificate(folder: Path) -> tuple[str, str]:
    """Create a self-signed certificate for this machine and its key, as PEM files."""
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key
