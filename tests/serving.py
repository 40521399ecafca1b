"""Servers for tests: in threads of this process, on ports that are free."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from treekit.serve.repository import Repository
from treekit.serve.running import Runner
from treekit.serve.service import Service
from treekit.serve.settings import Limits, ServeSettings


def make_service(*sources: Path, control: bool = False, **limits: Any) -> Service:
    """The service of model files and folders, loaded."""
    repository = Repository(sources)
    repository.refresh()
    return Service(repository, Runner(Limits(**limits)), control=control)


@contextmanager
def http_server(app: Any, **options: Any) -> Iterator[int]:
    """The port of a uvicorn server of an ASGI application."""
    import uvicorn

    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_config=None, access_log=False, lifespan="off", **options
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            thread.join(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def grpc_server(
    service: Service, check_token: Callable[[bytes | None], None] | None = None, **settings: Any
) -> Iterator[int]:
    """The port of a gRPC server on an event loop of its own."""
    from treekit.serve.rpc import start_grpc

    with event_loop() as run:
        given = ServeSettings(("-",), grpc_port=0, limits=service.limits, **settings)
        server = run(start_grpc(service, given, check_token))
        try:
            yield server.port
        finally:
            run(server.stop(0))


@contextmanager
def event_loop() -> Iterator[Callable[[Any], Any]]:
    """What runs a coroutine on an event loop in a thread, and gives its result."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
