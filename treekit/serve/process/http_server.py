"""uvicorn as this server's HTTP: how it listens, and how it ends without losing an answer."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import time
from collections.abc import Awaitable, Callable, Iterator

import uvicorn

from treekit.serve.answering.service import Service
from treekit.serve.gate.gate import Gate
from treekit.serve.process.connections import bounded_protocol
from treekit.serve.settings import ServeSettings

__all__ = ["BACKLOG", "HttpServer", "new_event_loop"]

BACKLOG = 2048
"""Connections that wait to be taken up."""

_KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than load balancers keep theirs (60 s),
so that it is they who close it, and none sends a request into a closing one."""

_LINGER = 0.5
"""Seconds after the call to end in which connections that come to life are still answered."""

_CLOSE = (b"connection", b"close")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop where it is installed, else of asyncio."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class HttpServer(uvicorn.Server):
    """One process' HTTP server.

    Parameters
    ----------
    app : Gate
    service : Service
        Told that it closes when the server is to end.
    settings : ServeSettings
    started : callable
        Called when it answers.
    beside : coroutine function
        Ends what ends at the same time.
    """

    def __init__(
        self,
        app: Gate,
        service: Service,
        settings: ServeSettings,
        started: Callable[[], None],
        beside: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(_config(app, settings))
        self._beside = beside
        self._service = service
        self._tell_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self._tell_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to who runs the server: `run` or the parent process."""
        yield

    def end(self) -> None:
        """End when what is being answered is answered; safe in a signal handler.

        From now on the server is not ready, so that load balancers turn to others.
        """
        self._service.closing = True
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what has begun, and end.

        Clients that are at work learn with their next answer that the connection closes after
        it, and lose none.  Only then are idle connections closed, and the socket.
        """
        self.server_state.default_headers[:] = [*self.server_state.default_headers, _CLOSE]
        until = time.monotonic() + _LINGER
        while self.server_state.connections and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(0.02)
        await asyncio.gather(super().shutdown(sockets), self._beside())


def _config(app: Gate, settings: ServeSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=bounded_protocol(settings.limits, gate=app),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # addresses decide nothing here, and anybody could claim one
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(settings.limits.seconds),
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
