"""A worker: one of several processes that share a port, told what to do by their parent."""

from __future__ import annotations

import asyncio
import gc
import importlib
import itertools
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from treekit.errors import ModelFileError, TreekitError
from treekit.serve.errors import UnavailableError
from treekit.serve.http.app import make_app
from treekit.serve.http.auth import Access
from treekit.serve.http.logs import Log
from treekit.serve.http.metrics import Metrics
from treekit.serve.models.repository import Change, Repository
from treekit.serve.process.messages import (
    Answer,
    Ask,
    Do,
    Done,
    Failed,
    Ready,
    Refusal,
    What,
    error_of,
    refusal_of,
)
from treekit.serve.process.startup_log import Say, listen, soon_said
from treekit.serve.process.uvicorn_server import BACKLOG, HttpServer, new_event_loop
from treekit.serve.scheduling import Runner, Service
from treekit.serve.settings import ServeSettings

__all__ = [
    "Process",
    "Watcher",
    "load_first",
    "make_service",
    "work",
]


# ---------------------------------------------------------------- process
# One process of a server: a service behind HTTP and gRPC, from its start to its end.

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
            rpc = importlib.import_module("treekit.serve.grpc")
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
        """Count a call over gRPC (`treekit.serve.grpc.server.Call`), and write its line."""
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


# ---------------------------------------------------------------- worker

_MORE = 5.0
"""Seconds beyond the parent's own patience that its answer is waited for."""


def work(
    number: int,
    settings: bytes,
    sockets: list[socket.socket],
    left_out: Sequence[str],
    link: Connection,
) -> None:
    """Serve, until the parent says otherwise or is gone; the whole life of a worker.

    Parameters
    ----------
    number : int
        From 1; for the log.
    settings : bytes
        `ServeSettings` as JSON.
    sockets : list of socket
        The parent's, bound.
    left_out : sequence of str
        Models that were unloaded before this worker began.
    link : Connection
        To the parent.
    """
    # The parent is told by Ctrl-C and a closed terminal, and tells its workers.
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    from treekit.serve.http.logs import configure_logging

    asked = msgspec.json.decode(settings, type=ServeSettings)
    log = configure_logging(asked.log, worker=number)
    service = make_service(asked)
    told = _Link(link, service.repository, asked.limits.seconds + _MORE)
    service.repository.leave_out(left_out)
    service.repository.everywhere = told.everywhere
    try:
        models = load_first(service, log)
        process = Process(asked, service, log, lambda port: told.send(Ready(models, port)))
        signal.signal(signal.SIGTERM, lambda *_: process.end())
        told.start(process)
        with asyncio.Runner(loop_factory=process.loop_factory) as runner:
            runner.run(process.run(sockets))
    except (TreekitError, OSError) as error:
        told.send(Failed(refusal_of(error)))
    finally:
        log.close()


class _Link:
    """The worker's end of the link, which a thread listens to."""

    def __init__(self, link: Connection, repository: Repository, patience: float) -> None:
        self._link, self._repository, self._patience = link, repository, patience
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._asked: dict[int, Future[Refusal | None]] = {}

    def start(self, process: Any) -> None:
        """Listen; if the parent is gone, end the process."""
        threading.Thread(
            target=self._listen, args=(process,), name="treekit-parent", daemon=True
        ).start()

    def send(self, message: Any) -> None:
        """Tell the parent."""
        with self._sending:
            self._link.send(message)

    def everywhere(self, what: What, name: str) -> list[Change]:
        """Have all workers load or unload a model; `Repository.everywhere`.

        Raises
        ------
        ServeError
            If one refuses, or does not do it in time.
        """
        number = next(self._numbers)
        done = self._asked[number] = Future()
        try:
            self.send(Ask(number, what, name))
            refusal = done.result(self._patience)
        except (OSError, TimeoutError):
            raise UnavailableError(
                f"nobody confirmed that the model {name!r} was {what}ed; try again"
            ) from None
        finally:
            del self._asked[number]
        if refusal is not None:
            raise error_of(refusal)
        return []

    def _listen(self, process: Any) -> None:
        try:
            while True:
                self._take(self._link.recv())
        except (EOFError, OSError):
            process.end()

    def _take(self, message: Do | Answer) -> None:
        if isinstance(message, Answer):
            asked = self._asked.get(message.number)
            if asked is not None:
                asked.set_result(message.refusal)
            return
        refusal = None
        try:
            self._repository.do_here(message.what, message.name)
        # Whatever it is, the parent waits for a word of it.
        except Exception as error:  # noqa: BLE001
            refusal = refusal_of(error)
        self.send(Done(message.number, refusal))


# ---------------------------------------------------------------- watch
# A thread that looks at the model files again and again, and loads what changed.


class Watcher:
    """Looks at a repository's files every so many seconds, until it is stopped.

    Parameters
    ----------
    repository : Repository
    seconds : float
        From the end of a look to the next.
    say : Say
    """

    def __init__(self, repository: Repository, seconds: float, say: Say) -> None:
        self._repository, self._seconds, self._say = repository, seconds, say
        self._over = threading.Event()
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="treekit-watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a file that is being read is read to its end in the background."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            self.look()

    def look(self) -> None:
        """Look once; whatever the files are, the models in service go on."""
        trouble = ""
        try:
            self._repository.refresh(patient=True)
        except (TreekitError, OSError) as error:
            trouble = str(error)
        # A thread that ended would leave models as they are for ever, and nobody would know.
        except Exception as error:  # noqa: BLE001
            trouble = f"{type(error).__name__}: {error}"
        if trouble and trouble != self._trouble:
            self._say("look-failed", f"some model files cannot be seen: {trouble}", level="error")
        elif self._trouble and not trouble:
            self._say("look-again", "all model files can be seen again")
        self._trouble = trouble
