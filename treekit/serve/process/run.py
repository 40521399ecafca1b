"""Run a server: check settings, bind sockets, and run processes until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import msgspec

from treekit.errors import DataError, MissingExtraError, ModelFileNotFoundError, SettingError
from treekit.serve.http.logs import Log, configure_logging
from treekit.serve.models.repository import ModelFinder
from treekit.serve.process.startup_log import StartupLog, bind_sockets, reserve_shared_port
from treekit.serve.settings import ServeSettings

# ---------------------------------------------------------------- run


def serve(settings: ServeSettings) -> None:
    """Serve models until SIGINT or SIGTERM; return after all requests in progress.

    A second signal ends the process immediately with exit code 128 plus its number.  With
    several workers, the calling program needs an ``if __name__ == "__main__":`` guard, as always
    with `multiprocessing`.

    Parameters
    ----------
    settings : ServeSettings

    Raises
    ------
    SettingError, DataError, ModelFileError
        If the server cannot start.
    MissingExtraError
        If the extra ``serve`` is not installed, or ``grpc`` if it is needed.
    """
    check_settings(settings)
    log = configure_logging(settings.log)
    sockets = bind_sockets(settings.host, settings.port)
    try:
        if settings.workers == 1:
            _serve_in_process(settings, sockets, log)
        else:
            _serve_in_workers(settings, sockets, log)
        log("stopped", "the server has stopped")
    finally:
        for opened in sockets:
            opened.close()
        log.close()


def _serve_in_process(settings: ServeSettings, sockets: list[socket.socket], log: Log) -> None:
    """Serve in the current process."""
    from treekit.serve.process.worker import ServiceProcess, load_models, make_service

    service = make_service(settings)
    models = load_models(service, log)
    start = StartupLog(settings, sockets)

    def report_started(grpc_port: int | None) -> None:
        start.log_startup(log, models, grpc_port)

    process = ServiceProcess(settings, service, log, report_started)

    def exit_process(code: int) -> None:
        log.close()
        os._exit(code)  # an exception could be caught, and threads would be joined

    with (
        handle_signals(process.request_shutdown, exit_process),
        asyncio.Runner(loop_factory=process.loop_factory) as runner,
    ):
        runner.run(process.run(sockets))


def _serve_in_workers(settings: ServeSettings, sockets: list[socket.socket], log: Log) -> None:
    """Serve in worker processes, which this process starts and restarts."""
    from treekit.serve.http.metrics import shared_metrics
    from treekit.serve.process.supervisor import WorkerSupervisor

    with contextlib.ExitStack() as stack:
        stack.enter_context(shared_metrics(settings.workers))
        if settings.grpc_port is not None:
            shared = stack.enter_context(reserve_shared_port(settings.host, settings.grpc_port))
            settings = msgspec.structs.replace(settings, grpc_port=shared.getsockname()[1])
        workers = WorkerSupervisor(settings, sockets, log, StartupLog(settings, sockets))
        with handle_signals(workers.request_shutdown, sys.exit):
            workers.run()


@contextlib.contextmanager
def handle_signals(end: Callable[[], None], at_once: Callable[[int], None]) -> Iterator[None]:
    """Handle signals: the first one ends gracefully, the second one immediately.

    Parameters
    ----------
    end : callable
        Requests a graceful shutdown; safe in a signal handler.
    at_once : callable
        Ends the process with an exit code.
    """
    received: list[int] = []

    def handle_signal(number: int, frame: FrameType | None) -> None:
        del frame
        received.append(number)
        if len(received) == 1:
            end()
        else:
            at_once(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            before[number] = signal.signal(number, handle_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---------------------------------------------------------------- checks
# Checks before startup, to report mistakes early and clearly.


def check_settings(settings: ServeSettings) -> None:
    """Check settings before startup.

    Raises
    ------
    SettingError
        If settings contradict each other or TLS files are invalid.
    DataError, ModelFileNotFoundError
        If sources do not exist, are not models, or have the same model name.
    MissingExtraError
        If libraries of the extras ``serve`` and ``grpc`` are not installed.
    """
    _check_libraries(settings)
    _check_ports(settings)
    _check_sources(settings)
    make_tls_context(settings)


def _check_libraries(settings: ServeSettings) -> None:
    for library in ("starlette", "uvicorn", "httptools", "prometheus_client"):
        if importlib.util.find_spec(library) is None:
            raise MissingExtraError(library, "serve")
    if settings.grpc_port is not None and importlib.util.find_spec("grpc") is None:
        raise MissingExtraError("grpcio", "grpc")


def _check_ports(settings: ServeSettings) -> None:
    if not settings.host:
        raise SettingError(
            "the host is empty; give an address, such as 127.0.0.1 for this machine only"
        )
    if settings.workers < 1:
        raise SettingError(f"got {settings.workers} workers; give 1 or more")
    if settings.grpc_port is not None:
        if settings.grpc_port == settings.port != 0:
            raise SettingError(
                f"HTTP and gRPC have the same port {settings.port}; give different ports"
            )
        if settings.workers > 1 and not hasattr(socket, "SO_REUSEPORT"):
            raise SettingError("workers cannot share a gRPC port on this system; give one worker")


def _check_sources(settings: ServeSettings) -> None:
    if not settings.sources:
        raise SettingError("no models to serve; give model files, or folders of model files")
    for source in settings.sources:
        if not Path(source).exists():
            raise ModelFileNotFoundError(f"there is no model file or folder {source!r}")
    found, troubles = ModelFinder([Path(source) for source in settings.sources]).find_models()
    if troubles:
        raise troubles[0]
    if not found and not settings.reload_seconds and not settings.control:
        raise DataError(
            f"there is no model in {', '.join(map(repr, settings.sources))}, and reloading is "
            "disabled: add a model, or set --reload above 0"
        )


def make_tls_context(settings: ServeSettings) -> ssl.SSLContext | None:
    """Create the TLS context, or None without a certificate.

    Raises
    ------
    SettingError
        If a file is missing or invalid, or the key does not match the certificate.
    """
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        given, other = ("key", "--tls-cert") if cert is None else ("certificate", "--tls-key")
        raise SettingError(f"a TLS {given} was given without {other}; give both")
    for path in (cert, key):
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise SettingError(f"cannot read {path!r}: {error.strerror or error}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=lambda: "")
    except ssl.SSLError as error:
        why = error.reason or str(error)
        raise SettingError(
            f"{cert!r} and {key!r} are not a certificate and its key ({why}): give PEM files that "
            "belong together, and an unencrypted key"
        ) from None
    return context
