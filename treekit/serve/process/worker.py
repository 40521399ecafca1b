"""Worker: one of several processes that share a port, controlled by their parent."""

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
    ChangeCommand,
    ChangeKind,
    ChangeRequest,
    ChangeResponse,
    ChangeResult,
    ErrorMessage,
    WorkerFailed,
    WorkerReady,
    error_to_message,
    message_to_error,
)
from treekit.serve.process.startup_log import LogEvent, log_slow_loading, start_listening
from treekit.serve.process.uvicorn_server import BACKLOG, HttpServer, make_event_loop
from treekit.serve.scheduling import Runner, Service
from treekit.serve.settings import ServeSettings

# ---------------------------------------------------------------- process
# A service with HTTP and gRPC, from startup to shutdown.

_SWITCH_SECONDS = 0.0005
"""Thread switch interval in seconds: how long a loading thread may block the event loop.  The
default of 5 ms slows down requests during loading, as each of them is blocked several times."""


def make_service(settings: ServeSettings) -> Service:
    """Create the service for settings, without loading its models."""
    return Service(
        repository=Repository(settings.sources),
        runner=Runner(settings.limits),
        control=settings.control,
    )


def load_models(service: Service, say: LogEvent) -> list[dict[str, Any]]:
    """Load the models at startup and return their descriptions for `StartupLog.log_startup`.

    A message is logged with `say` if that takes long.

    Raises
    ------
    ModelFileError
        If an explicitly given file cannot be served.  A rejected file in a folder does not
        prevent serving the others, but the service is not ready until it is fixed or removed.
    """
    repository = service.repository
    with log_slow_loading(say):
        repository.refresh()
    refused = repository.refused_files()
    if refused:
        raise ModelFileError("; ".join(refused))
    models: list[dict[str, Any]] = [
        {"name": served.name, "version": served.version, "platform": served.platform}
        | {"trees": served.require_model().n_trees}
        for served in repository.served
    ]
    return models + [
        {"name": entry.name, "version": entry.version, "reason": entry.reason}
        for entry in repository.index()
        if entry.state != "READY" and entry.reason != "unloaded"
    ]


class ServiceProcess:
    """Server of one process, running in the calling thread.

    Parameters
    ----------
    settings : ServeSettings
    service : Service
        Service with loaded models.
    log : Log
    started : callable, optional
        Called in the event loop with the gRPC port or None when the server is ready.
    """

    def __init__(
        self,
        settings: ServeSettings,
        service: Service,
        log: Log,
        started: Callable[[int | None], None] = lambda _: None,
    ) -> None:
        self._settings, self._service, self._started = settings, service, started
        self._watcher = FileWatcher(service.repository, settings.reload_seconds, log)
        self._grpc: Any = None
        self._access, self._metrics, self._log = Access(settings), Metrics(service), log
        app = make_app(service, settings, log, self._access, self._metrics)
        self._http = HttpServer(app, service, settings, self._report_started, self._stop_grpc)

    async def run(self, sockets: list[socket.socket]) -> None:
        """Serve on sockets until `request_shutdown`, then close them.

        Raises
        ------
        SettingError
            If listening on a socket fails.
        """
        for opened in sockets:
            start_listening(opened, self._settings.host, BACKLOG)
        sys.setswitchinterval(_SWITCH_SECONDS)
        # Exclude existing objects, which are permanent, from garbage collection: traversing them
        # would block requests for 0.1 s.
        gc.collect()
        gc.freeze()
        if self._settings.grpc_port is not None:
            # Imported dynamically, as it requires the optional extra `grpc`.
            rpc = importlib.import_module("treekit.serve.grpc")
            self._grpc = await rpc.start_grpc(
                self._service, self._settings, self._access.check_token, self._record_call
            )
        if self._settings.reload_seconds:
            self._watcher.start()
        try:
            await self._http.serve(sockets)
        finally:
            self._watcher.stop()
            await self._stop_grpc()
            self._service.runner.close()

    def request_shutdown(self) -> None:
        """Shut down after all requests in progress; safe in a signal handler."""
        self._http.request_shutdown()

    def _record_call(self, call: Any) -> None:
        """Update metrics and the log for a gRPC call (`treekit.serve.grpc.server.CallRecord`)."""
        self._metrics.count_request(call.path, call, call.seconds)
        self._log.log_request(call, call.method, call.path.encode(), call.client, call.seconds)

    def _report_started(self) -> None:
        self._started(None if self._grpc is None else self._grpc.port)

    async def _stop_grpc(self) -> None:
        if self._grpc is not None:
            grpc, self._grpc = self._grpc, None
            await grpc.stop(self._settings.limits.seconds)

    @staticmethod
    def loop_factory() -> asyncio.AbstractEventLoop:
        """Create the fastest available event loop."""
        return make_event_loop()


# ---------------------------------------------------------------- worker

_EXTRA_SECONDS = 5.0
"""Seconds to wait for the parent's answer, in addition to the parent's own time limit."""


def run_worker(
    number: int,
    settings: bytes,
    sockets: list[socket.socket],
    left_out: Sequence[str],
    link: Connection,
) -> None:
    """Run a worker process until the parent stops it or ends.

    Parameters
    ----------
    number : int
        Number of the worker from 1, for the log.
    settings : bytes
        `ServeSettings` as JSON.
    sockets : list of socket
        Bound sockets of the parent.
    left_out : sequence of str
        Models unloaded before this worker started.
    link : Connection
        Connection to the parent.
    """
    # Only the parent handles Ctrl-C and a closed terminal, and stops its workers.
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    from treekit.serve.http.logs import configure_logging

    serve_settings = msgspec.json.decode(settings, type=ServeSettings)
    log = configure_logging(serve_settings.log, worker=number)
    service = make_service(serve_settings)
    link_to_parent = _ParentLink(
        link, service.repository, serve_settings.limits.seconds + _EXTRA_SECONDS
    )
    service.repository.leave_out(left_out)
    service.repository.everywhere = link_to_parent.broadcast_change
    try:
        models = load_models(service, log)
        process = ServiceProcess(
            serve_settings,
            service,
            log,
            lambda port: link_to_parent.send(WorkerReady(models, port)),
        )
        signal.signal(signal.SIGTERM, lambda *_: process.request_shutdown())
        link_to_parent.start(process)
        with asyncio.Runner(loop_factory=process.loop_factory) as runner:
            runner.run(process.run(sockets))
    except (TreekitError, OSError) as error:
        link_to_parent.send(WorkerFailed(error_to_message(error)))
    finally:
        log.close()


class _ParentLink:
    """Worker's end of the connection to the parent, with a listening thread."""

    def __init__(self, link: Connection, repository: Repository, patience: float) -> None:
        self._link, self._repository, self._timeout = link, repository, patience
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._pending_changes: dict[int, Future[ErrorMessage | None]] = {}

    def start(self, process: Any) -> None:
        """Start listening; the process ends if the parent ends."""
        threading.Thread(
            target=self._listen_to_parent, args=(process,), name="treekit-parent", daemon=True
        ).start()

    def send(self, message: Any) -> None:
        """Send a message to the parent."""
        with self._sending:
            self._link.send(message)

    def broadcast_change(self, what: ChangeKind, name: str) -> list[Change]:
        """Load or unload a model in all workers; `Repository.everywhere`.

        Raises
        ------
        ServeError
            If a worker fails, or does not confirm it in time.
        """
        number = next(self._numbers)
        done = self._pending_changes[number] = Future()
        try:
            self.send(ChangeRequest(number, what, name))
            refusal = done.result(self._timeout)
        except (OSError, TimeoutError):
            raise UnavailableError(
                f"not all workers confirmed that model {name!r} was {what}ed; retry"
            ) from None
        finally:
            del self._pending_changes[number]
        if refusal is not None:
            raise message_to_error(refusal)
        return []

    def _listen_to_parent(self, process: Any) -> None:
        try:
            while True:
                self._handle_message(self._link.recv())
        except (EOFError, OSError):
            process.request_shutdown()

    def _handle_message(self, message: ChangeCommand | ChangeResponse) -> None:
        if isinstance(message, ChangeResponse):
            future = self._pending_changes.get(message.number)
            if future is not None:
                future.set_result(message.refusal)
            return
        refusal = None
        try:
            self._repository.do_here(message.what, message.name)
        # Any error must be reported, as the parent waits for a reply.
        except Exception as error:  # noqa: BLE001
            refusal = error_to_message(error)
        self.send(ChangeResult(message.number, refusal))


# ---------------------------------------------------------------- watcher


class FileWatcher:
    """Thread that periodically checks the files of a repository.

    Parameters
    ----------
    repository : Repository
    seconds : float
        Seconds between two checks.
    say : LogEvent
    """

    def __init__(self, repository: Repository, seconds: float, say: LogEvent) -> None:
        self._repository, self._seconds, self._say = repository, seconds, say
        self._is_stopped = threading.Event()
        self._last_error = ""
        self._thread = threading.Thread(target=self._watch_files, name="treekit-watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; a file being loaded is completed in the background."""
        self._is_stopped.set()

    def _watch_files(self) -> None:
        while not self._is_stopped.wait(self._seconds):
            self.check_files()

    def check_files(self) -> None:
        """Check the files once; errors are logged and do not affect served models."""
        trouble = ""
        try:
            self._repository.refresh(patient=True)
        except (TreekitError, OSError) as error:
            trouble = str(error)
        # An error must not end the thread, which would silently stop reloading.
        except Exception as error:  # noqa: BLE001
            trouble = f"{type(error).__name__}: {error}"
        if trouble and trouble != self._last_error:
            self._say("look-failed", f"checking model files failed: {trouble}", level="error")
        elif self._last_error and not trouble:
            self._say("look-again", "checking model files succeeded again")
        self._last_error = trouble
