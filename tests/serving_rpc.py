"""Servers over gRPC for tests, on ports that are free."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from treekit.serve.service import Service
from treekit.serve.settings import ServeSettings


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
