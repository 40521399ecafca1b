"""One process of a server: HTTP by uvicorn, and by its lifespan gRPC, file checks and signals.

Several workers have a parent process, uvicorn's supervisor, which starts and replaces them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import importlib
import logging
import math
import multiprocessing
import os
import re
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from treekit.errors import MissingExtraError, ModelFileError, SettingError, TreekitError

try:
    import uvicorn
    from uvicorn.config import STARTUP_FAILURE
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    from uvicorn.supervisors.multiprocess import Multiprocess, Process
except ImportError as missing:
    raise MissingExtraError("uvicorn and httptools", "serve") from missing

from treekit.serve.http import Receive, Send
from treekit.serve.http.app import make_app
from treekit.serve.http.auth import Access
from treekit.serve.http.logs import configure_logging, log_changes, log_event, log_request
from treekit.serve.http.metrics import Metrics, forget_process
from treekit.serve.models.model_copies import ModelCopies
from treekit.serve.models.repository import Change, Repository
from treekit.serve.scheduling import Runner, Service
from treekit.serve.settings import ServeSettings

_KEEP_ALIVE_SECONDS = 75
"""Seconds that an idle connection stays open: longer than in load balancers (60 s), so that these
close connections first and never send a request on a closing one."""

_LINGER_SECONDS = 0.4
"""Seconds from the start of shutdown in which new connections are accepted, and from the end of
uvicorn's listeners until idle connections are closed."""

_DRAIN_SECONDS = 0.2
"""Seconds in which connections that the system has accepted for the process are still taken."""

_RESERVED_FILES = 100
"""File descriptors reserved for models, logs and listening sockets."""

_SWITCH_SECONDS = 0.0005
"""Thread switch interval in seconds: how long a loading thread may block the event loop.  The
default of 5 ms slows down requests during loading, as each of them is blocked several times."""

_UPGRADE_HEADER = re.compile(rb"(?i)\r\nupgrade:")

EXIT_SECONDS = 5
"""Seconds after the time limit of requests in which a server ends, also with running work."""

_LOADING_SECONDS = 2.0
"""Seconds of loading before a message is logged."""

_RESTART_SECONDS = 5.0
"""Seconds that a worker waits before it ends if it cannot start while others serve."""


def make_config(app: Any, settings: ServeSettings, **options: Any) -> uvicorn.Config:
    """Return the settings of uvicorn."""
    return uvicorn.Config(
        app,
        http=FirstProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # addresses are only logged, and clients could forge the headers
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.limits.seconds),
        limit_concurrency=_count_connections(),
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        **options,
    )


def _count_connections() -> int | None:
    """Return the maximum number of connections of the process."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if most == resource.RLIM_INFINITY else max(64, most - _RESERVED_FILES)


class _LastingProtocol(HttpToolsProtocol):
    """HTTP protocol that closes idle connections some time after the start of a shutdown."""

    def shutdown(self) -> None:
        """Close the connection later if it is idle: its client may have sent a request."""
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, super().shutdown)


class FirstProtocol(asyncio.Protocol):
    """First protocol of a connection, which renames ``Upgrade`` in the first request.

    Java's HttpClient and ``curl --http2`` ask for HTTP/2 in the first request, and httptools would
    drop its body; a server may ignore it (RFC 9110, 7.8).  Then uvicorn's protocol takes over.
    """

    def __init__(self, **options: Any) -> None:
        self._protocol = _LastingProtocol(**options)

    def connection_made(self, transport: Any) -> None:
        """Pass the connection on."""
        self._transport = transport
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Receive the first bytes, and leave the connection to uvicorn."""
        head, end, body = data.partition(b"\r\n\r\n")
        self._transport.set_protocol(self._protocol)
        self._protocol.data_received(_UPGRADE_HEADER.sub(b"\r\nx-upgrade:", head) + end + body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the end of a connection without bytes on."""
        self._protocol.connection_lost(exc)


# ---------------------------------------------------------------- connections

_SO_ATTACH_FILTER = 26
_DROP_SYN = (  # classic BPF: load byte 13 of the TCP header, drop the segment if it has SYN
    (0x30, 0, 0, 13),
    (0x45, 0, 1, 0x02),
    (0x06, 0, 0, 0),
    (0x06, 0, 0, 0xFFFFFFFF),
)


def refuse_connections(listener: socket.socket) -> None:
    """Refuse new connections to a listening socket, but keep those that wait to be accepted.

    Closing the socket would reset the latter, whose clients may have sent a request.  On Linux, by
    a filter that drops the first segment of a connection; elsewhere nothing is done.
    """
    if sys.platform != "linux":
        return
    program = b"".join(struct.pack("=HBBI", *line) for line in _DROP_SYN)
    content = ctypes.create_string_buffer(program)
    given = struct.pack("HP", len(_DROP_SYN), ctypes.addressof(content))
    with contextlib.suppress(OSError):  # a kernel without filters, or a socket that is closed
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, given)


# ---------------------------------------------------------------- process


class ServiceProcess:
    """Service of one process, started and stopped by the lifespan of its application.

    Parameters
    ----------
    settings : ServeSettings
    service : Service
        Service with loaded models.
    started : callable, optional
        Called with the gRPC port or None when the service is started.
    failed : callable, optional
        Called with the error if the service cannot start.

    Attributes
    ----------
    app : HttpApp
    sockets : sequence of socket
        Listening sockets of this process alone; those of several workers are their parent's.
    stop : callable
        Stops uvicorn, which accepts no further connections and closes idle ones.
    """

    def __init__(
        self,
        settings: ServeSettings,
        service: Service,
        started: Callable[[int | None], None] = lambda _: None,
        failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._settings, self._service = settings, service
        self._report_started, self._report_failed = started, failed
        self._is_stopped = threading.Event()
        self._access, self._metrics = Access(settings), Metrics(service)
        self.app = make_app(service, settings, self._access, self._metrics)
        self.app.lifespan = self._run_lifespan
        self._grpc: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Task[None] | None = None
        seconds = settings.limits.seconds + EXIT_SECONDS - 1  # before the supervisor kills it
        self._exit_timer = threading.Timer(seconds, _exit_late)
        self._exit_timer.daemon = True
        self.sockets: Sequence[socket.socket] = ()
        self.stop: Callable[[], None] = lambda: None

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        except (TreekitError, OSError) as error:
            self._report_failed(error)
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._is_stopped.set()
        await (self._stopping or self._stop_grpc())
        self._service.runner.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        sys.setswitchinterval(_SWITCH_SECONDS)
        # Exclude existing objects, which are permanent, from garbage collection: traversing them
        # would block requests for 0.1 s.
        gc.collect()
        gc.freeze()
        grpc_port = None
        if self._settings.grpc_port is not None:
            # Imported dynamically, as it requires the optional extra `grpc`.
            rpc = importlib.import_module("treekit.serve.grpc")
            self._grpc, grpc_port = await rpc.start_grpc(
                self._service, self._settings, self._access.check_token, self._record_call
            )
        if self._settings.reload_seconds:
            given = self._service.repository, self._settings.reload_seconds, self._is_stopped
            threading.Thread(
                target=watch_files, args=given, name="treekit-watch", daemon=True
            ).start()
        self._report_started(grpc_port)

    def request_shutdown(self) -> None:
        """Stop after all requests in progress; safe in a signal handler.

        The server is not ready from now on, so that load balancers use other servers, and active
        clients receive ``Connection: close`` with their next response.  Then new connections are
        refused, those that wait are taken, and only then uvicorn closes idle ones, so no request
        is lost.
        """
        if self._service.closing:
            return
        self._service.closing = True
        self._exit_timer.start()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_shutdown, self._loop)

    def end_work(self) -> None:
        """Wait for the threads after shutdown; late ones end with the process."""
        self._service.runner.close(wait=True)
        self._exit_timer.cancel()

    def _begin_shutdown(self, loop: asyncio.AbstractEventLoop) -> None:
        self._stopping = loop.create_task(self._stop_grpc())
        for own in self.sockets:
            loop.call_later(_LINGER_SECONDS, refuse_connections, own)
        loop.call_later(_LINGER_SECONDS + _DRAIN_SECONDS, self.stop)

    async def _stop_grpc(self) -> None:
        if self._grpc is not None:
            await self._grpc.stop(self._settings.limits.seconds)

    def _record_call(self, call: Any) -> None:
        """Update metrics and the log for a gRPC call (`treekit.serve.grpc.server.CallRecord`)."""
        self._metrics.count_request(call.path, call, call.seconds)
        if self._settings.log != "quiet" or call.status == 500:
            log_request(call, call.method, call.path.encode(), call.client, call.seconds)


def _exit_late() -> None:
    """End the process although a thread still runs, which Python would wait for."""
    text = "the process ends while a thread still works; no client waits for its result"
    log_event("stopped-late", text, level="warning")
    _exit_at_once(0)


def _exit_at_once(code: int) -> NoReturn:
    """End the process with its log, and without the end of its threads and its event loop."""
    logging.shutdown()
    os._exit(code)


# ---------------------------------------------------------------- models


def make_service(settings: ServeSettings, copies: ModelCopies | None = None) -> Service:
    """Create the service for settings, without loading its models."""
    repository = Repository(settings.sources, copies=copies)
    return Service(repository, Runner(settings.limits), control=settings.control)


def load_models(repository: Repository) -> list[Change]:
    """Load the models at startup, with a message if that takes long; return them as changes.

    Raises
    ------
    ModelFileError
        If an explicitly given file cannot be served.  A rejected file in a folder does not
        prevent serving the others, but the service is not ready until it is fixed or removed.
    """
    message = (
        "loading models; on the first run on a machine, and after each installation, treekit "
        "compiles its machine code, which takes about 10 to 40 s"
    )
    timer = threading.Timer(_LOADING_SECONDS, log_event, ("loading", message))
    timer.daemon = True
    timer.start()
    try:
        changes = repository.refresh()
    finally:
        timer.cancel()
    refused = repository.refused_files()
    if refused:
        raise ModelFileError("; ".join(refused))
    return changes


def log_models(changes: Sequence[Change]) -> None:
    """Log the models found at startup."""
    log_changes(changes)
    if not changes:
        log_event("no-models", "no model found yet; waiting for one", level="warning")


def watch_files(repository: Repository, seconds: float, is_stopped: threading.Event) -> None:
    """Check the files of a repository every `seconds` seconds until `is_stopped` is set.

    Errors are logged and do not affect served models.
    """
    last_error = ""
    while not is_stopped.wait(seconds):
        trouble = ""
        try:
            repository.refresh(patient=True)
        # An error must not end the thread, which would silently stop reloading.
        except Exception as error:  # noqa: BLE001
            is_expected = isinstance(error, (TreekitError, OSError))
            trouble = str(error) if is_expected else f"{type(error).__name__}: {error}"
        if trouble and trouble != last_error:
            log_event("look-failed", f"checking model files failed: {trouble}", level="error")
        elif last_error and not trouble:
            log_event("look-again", "checking model files succeeded again")
        last_error = trouble


# ---------------------------------------------------------------- worker


def make_worker_app(settings: ServeSettings, folder: Path, *, is_restarted: bool = False) -> Any:
    """Create the application of a worker process: the factory of its `uvicorn.Config`.

    Parameters
    ----------
    settings : ServeSettings
    folder : Path
        Folder of the server, with the copies of its models.
    is_restarted : bool
        Whether all workers of the server were ready before.
    """
    # Only the parent handles Ctrl-C and a closed terminal, and stops its workers.
    stop: Any = signal.getsignal(signal.SIGINT)  # of uvicorn, which stops at once
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="treekit-parent", daemon=True).start()
    pid = os.getpid()
    configure_logging(settings.log, pid)

    def fail(error: Exception) -> NoReturn:
        if not is_restarted:  # ends the server; later, the other workers serve
            text = str(error).encode(errors="backslashreplace")
            _get_error_file(folder, pid).write_bytes(text)
            _exit_at_once(STARTUP_FAILURE)
        log_event("worker-failed", f"worker {pid} cannot start: {error}", level="error")
        time.sleep(_RESTART_SECONDS)
        _exit_at_once(1)

    service = make_service(settings, ModelCopies(folder / "models"))
    try:
        if is_restarted:
            service.repository.restore()
        changes = load_models(service.repository)
    except (TreekitError, OSError) as error:
        if not is_restarted or not any(service.repository.served):
            fail(error)
        # Of a folder or of two files; it serves what the others serve.
        log_event("look-failed", f"checking model files failed: {error}", level="error")
    else:
        with contextlib.suppress(FileExistsError):  # the first worker logs for all
            (folder / "models-logged").touch(exist_ok=False)
            log_models(changes)

    def report_started(_: int | None) -> None:
        signal.signal(signal.SIGTERM, lambda *_: process.request_shutdown())
        log_event("worker-started", f"worker {pid} is ready")

    process = ServiceProcess(settings, service, report_started, fail)
    process.stop = partial(stop, signal.SIGINT, None)
    return process.app


def _end_with_parent() -> None:
    """End the process gracefully when its parent has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _get_error_file(folder: Path, pid: int | None) -> Path:
    """Return the file with the error of a worker that cannot start."""
    return folder / f"{pid}.error"


# ---------------------------------------------------------------- supervisor

_HEALTH_SECONDS = 60
"""Seconds in which a new worker must be ready when SIGHUP replaces the workers, and in which a
worker must answer the supervisor."""


class WorkerSupervisor(Multiprocess):
    """Supervisor of uvicorn, with the errors of workers, and their requests at shutdown.

    uvicorn starts workers again for ever that end at startup by a signal or an exception, has no
    time limit for its shutdown, and resets connections that wait to be accepted.

    Parameters
    ----------
    settings : ServeSettings
    sockets : list of socket
        Listening sockets, shared by all workers.
    folder : Path
        As for `make_worker_app`.
    ready : callable
        Called when all workers are ready.
    """

    def __init__(
        self,
        settings: ServeSettings,
        sockets: list[socket.socket],
        folder: Path,
        ready: Callable[[], None],
    ) -> None:
        self._make_app = partial(make_worker_app, settings, folder)
        config = make_config(
            self._make_app,
            settings,
            factory=True,
            workers=settings.workers,
            timeout_worker_healthcheck=_HEALTH_SECONDS,
        )
        super().__init__(config, sockets)
        self._folder, self._report_ready = folder, ready
        self._seconds = settings.limits.seconds + EXIT_SECONDS

    def init_processes(self) -> None:
        """Start all workers, and wait until they are ready; raise the error of one that ends."""
        super().init_processes()
        for process in self.processes:
            if not process.wait_until_ready(math.inf, self.should_exit):
                if self.should_exit.is_set():
                    return
                raise self._make_error(process)
        self.config.app = partial(self._make_app, is_restarted=True)
        self._report_ready()

    def _make_error(self, process: Process) -> SettingError:
        """Return the error of a worker that cannot start."""
        file = _get_error_file(self._folder, process.pid)
        if file.exists():
            return SettingError(file.read_text(encoding="utf-8"))
        return SettingError(f"a worker ended at startup: {_describe_exit(process.exitcode)}")

    def keep_subprocess_alive(self) -> None:
        """Restart workers that have ended or do not answer, and log that."""
        before = tuple(self.processes)
        super().keep_subprocess_alive()
        for process in before:
            if process.exitcode == STARTUP_FAILURE:  # for which uvicorn ends the server
                raise self._make_error(process)
            if process.pid is not None and process not in self.processes:
                forget_process(process.pid)
                text = f"worker {process.pid} ended: {_describe_exit(process.exitcode)}; restarting"
                log_event("worker-died", text, level="error", pid=process.pid)

    def request_shutdown(self) -> None:
        """Shut down all workers after their requests in progress; safe in a signal handler."""
        self.should_exit.set()
        linger = threading.Timer(_LINGER_SECONDS, self._refuse_connections)
        linger.daemon = True
        linger.start()
        timer = threading.Timer(self._seconds, self.kill_all)
        timer.daemon = True
        timer.start()

    def _refuse_connections(self) -> None:
        """Refuse new connections; the workers take those that wait."""
        for opened in self.sockets:
            refuse_connections(opened)
            opened.close()  # otherwise clients could still connect, without answer

    def kill_all(self) -> None:
        """Kill all workers that still run."""
        for process in self.processes:
            with contextlib.suppress(OSError):
                process.kill()
            process.join()


def _describe_exit(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
