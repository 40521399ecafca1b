"""One process of a server: a service behind HTTP and gRPC, from its start to its end."""

from __future__ import annotations

import asyncio
import gc
import importlib
import socket
import sys
from collections.abc import Callable
from typing import Any

from treekit.errors import ModelFileError
from treekit.serve.answering.running import Runner
from treekit.serve.answering.service import Service
from treekit.serve.gate.access import Access
from treekit.serve.gate.logs import Log
from treekit.serve.gate.metrics import Metrics
from treekit.serve.models.repository import Repository
from treekit.serve.process.http_server import BACKLOG, HttpServer, new_event_loop
from treekit.serve.process.listening import listen
from treekit.serve.process.saying import Say, soon_said
from treekit.serve.process.watch import Watcher
from treekit.serve.settings import ServeSettings
from treekit.serve.web.app import make_app

__all__ = ["Process", "load_first", "make_service"]

_SWITCH = 0.0005
"""Seconds that the thread which loads a model may keep the event loop from Python; the
interpreter's own 5 ms are felt in each request, which asks for it more than once."""


def make_service(settings: ServeSettings) -> Service:
    """The service that settings ask for, its models not yet looked at."""
    return Service(
        repository=Repository(settings.sources),
        runner=Runner.of(settings),
        control=settings.control,
    )


def load_first(service: Service, say: Say) -> list[dict[str, Any]]:
    """Look at the models for the first time; what there is, for `Start.tell`.

    `say` is told if that takes long.

    Raises
    ------
    ModelFileError
        If a file that was given by name cannot be served.  One in a folder does not keep the
        others from being served; the service is not ready until it is mended or gone.
    """
    repository = service.repository
    with soon_said(say):
        repository.refresh()
    refused = repository.refused_files()
    if refused:
        raise ModelFileError("; ".join(refused))
    models: list[dict[str, Any]] = [
        {"name": served.name, "version": served.version, "platform": served.platform}
        | ({"trees": served.model.n_trees} if served.model is not None else {})
        for served in repository.served
    ]
    return models + [
        {"name": entry.name, "version": entry.version, "reason": entry.reason}
        for entry in repository.index()
        if entry.state != "READY" and entry.reason != "unloaded"
    ]


class Process:
    """A service that is served, in the thread that runs it.

    Parameters
    ----------
    settings : ServeSettings
    service : Service
        With its models loaded.
    log : Log
    started : callable, optional
        Called, in the event loop, when it answers, with the port of gRPC or None.
    """

    def __init__(
        self,
        settings: ServeSettings,
        service: Service,
        log: Log,
        started: Callable[[int | None], None] = lambda _: None,
    ) -> None:
        self._settings, self._service, self._started = settings, service, started
        self._watcher = Watcher(service.repository, settings.reload_seconds, log)
        self._grpc: Any = None
        self._access, self._metrics, self._log = Access(settings), Metrics(service), log
        app = make_app(service, settings, log, self._access, self._metrics)
        self._http = HttpServer(app, service, settings, self._tell_started, self._end_grpc)

    async def run(self, sockets: list[socket.socket]) -> None:
        """Serve on these sockets, which are closed at the end, until `end`.

        Raises
        ------
        SettingError
            If one cannot be listened on.
        """
        for opened in sockets:
            listen(opened, self._settings.host, BACKLOG)
        sys.setswitchinterval(_SWITCH)
        # What is there now stays: to walk it again and again would stop requests for 0.1 s.
        gc.collect()
        gc.freeze()
        if self._settings.grpc_port is not None:
            # By its name: it stands behind an extra of its own.
            rpc = importlib.import_module("treekit.serve.rpc")
            self._grpc = await rpc.start_grpc(
                self._service, self._settings, self._access.check_token, self._note
            )
        if self._settings.reload_seconds:
            self._watcher.start()
        try:
            await self._http.serve(sockets)
        finally:
            self._watcher.stop()
            await self._end_grpc()
            self._service.runner.close()

    def end(self) -> None:
        """End when what is being answered is answered; safe in a signal handler."""
        self._http.end()

    def _note(self, call: Any) -> None:
        """Count a call over gRPC (`treekit.serve.rpc.call.Call`), and write its line."""
        self._metrics.observe(call.path, call, call.seconds)
        self._log.request(call, call.method, call.path.encode(), call.client, call.seconds)

    def _tell_started(self) -> None:
        self._started(None if self._grpc is None else self._grpc.port)

    async def _end_grpc(self) -> None:
        if self._grpc is not None:
            grpc, self._grpc = self._grpc, None
            await grpc.stop(self._settings.limits.seconds)

    @staticmethod
    def loop_factory() -> asyncio.AbstractEventLoop:
        """The fastest event loop there is."""
        return new_event_loop()
