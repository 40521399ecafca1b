"""One process of a server: a service behind HTTP and gRPC, from its start to its end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from starlette.types import ASGIApp

from treekit.serve.http_server import HttpServer
from treekit.serve.repository import Repository
from treekit.serve.running import Runner
from treekit.serve.saying import Say
from treekit.serve.service import Service
from treekit.serve.settings import ServeSettings
from treekit.serve.watch import Watcher

__all__ = ["Process", "make_service"]


def make_service(settings: ServeSettings) -> Service:
    """The service that settings ask for, its models not yet looked at."""
    return Service(
        repository=Repository(settings.sources),
        runner=Runner(settings.limits),
        control=settings.control,
    )


def _application(service: Service, settings: ServeSettings) -> ASGIApp:
    from treekit.serve.app import make_app

    del settings  # helper: gate
    return make_app(service)


class Process:
    """A service that is served, in the thread that runs it.

    Parameters
    ----------
    settings : ServeSettings
    service : Service
        With its models loaded.
    say : Say
    started : callable, optional
        Called, in the event loop, when it answers.
    """

    def __init__(
        self,
        settings: ServeSettings,
        service: Service,
        say: Say,
        started: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings, self._service = settings, service
        self._http = HttpServer(_application(service, settings), service, settings, started)
        self._watcher = Watcher(service.repository, settings.reload_seconds, say)

    async def run(self, sockets: list[socket.socket]) -> None:
        """Serve on these sockets, which are closed at the end, until `end`."""
        if self._settings.reload_seconds:
            self._watcher.start()
        try:
            await self._http.serve(sockets)
        finally:
            self._watcher.stop()
            self._service.runner.close()

    def end(self) -> None:
        """End when what is being answered is answered; safe in a signal handler."""
        self._http.end()

    @staticmethod
    def loop_factory() -> asyncio.AbstractEventLoop:
        """The fastest event loop there is."""
        from treekit.serve.http_server import new_event_loop

        return new_event_loop()
