"""Running a server: checks, sockets, models, and processes until a signal ends them."""

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
from treekit.serve.models.repository import Places
from treekit.serve.process.startup_log import Start, bind, bind_shared
from treekit.serve.settings import ServeSettings

__all__ = [
    "check_settings",
    "make_tls",
    "serve",
]


# ---------------------------------------------------------------- run


def serve(settings: ServeSettings) -> None:
    """Serve models until SIGINT or SIGTERM; returns when all that had begun is answered.

    A second signal ends the process at once, with 128 and its number.  With more than one
    worker, programs that call this need ``if __name__ == "__main__":`` around what they do,
    as for all of `multiprocessing`.

    Parameters
    ----------
    settings : ServeSettings

    Raises
    ------
    SettingError, DataError, ModelFileError
        If the server cannot start; nothing has been served then.
    MissingExtraError
        Without the extra ``serve``, or ``grpc`` where that is asked for.
    """
    check_settings(settings)
    log = configure_logging(settings.log)
    sockets = bind(settings.host, settings.port)
    try:
        if settings.workers == 1:
            _serve_here(settings, sockets, log)
        else:
            _serve_by_workers(settings, sockets, log)
        log("stopped", "the server has stopped")
    finally:
        for opened in sockets:
            opened.close()
        log.close()


def _serve_here(settings: ServeSettings, sockets: list[socket.socket], log: Log) -> None:
    """Serve in this process."""
    from treekit.serve.process.worker import Process, load_first, make_service

    service = make_service(settings)
    models = load_first(service, log)
    start = Start(settings, sockets)

    def tell(grpc_port: int | None) -> None:
        start.tell(log, models, grpc_port)

    process = Process(settings, service, log, tell)

    def leave(code: int) -> None:
        log.close()
        os._exit(code)  # not an exception: nobody is to catch it, and no thread to be waited for

    with (
        stopping(process.end, leave),
        asyncio.Runner(loop_factory=process.loop_factory) as runner,
    ):
        runner.run(process.run(sockets))


def _serve_by_workers(settings: ServeSettings, sockets: list[socket.socket], log: Log) -> None:
    """Serve in processes of their own, which this one starts, and again if they die."""
    from treekit.serve.http.metrics import shared_metrics
    from treekit.serve.process.supervisor import Workers

    with contextlib.ExitStack() as held:
        held.enter_context(shared_metrics(settings.workers))
        if settings.grpc_port is not None:
            shared = held.enter_context(bind_shared(settings.host, settings.grpc_port))
            settings = msgspec.structs.replace(settings, grpc_port=shared.getsockname()[1])
        workers = Workers(settings, sockets, log, Start(settings, sockets))
        with stopping(workers.end, sys.exit):
            workers.run()


@contextlib.contextmanager
def stopping(end: Callable[[], None], at_once: Callable[[int], None]) -> Iterator[None]:
    """Let the first signal end gently, and the next one at once.

    Parameters
    ----------
    end : callable
        Asks for the end; safe in a signal handler.
    at_once : callable
        Ends with an exit code.
    """
    told: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        told.append(number)
        if len(told) == 1:
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
            before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---------------------------------------------------------------- checks
# What is looked at before a server starts, so that a mistake is told at once and in words.


def check_settings(settings: ServeSettings) -> None:
    """Refuse settings with which no server can start.

    Raises
    ------
    SettingError
        For settings that contradict each other, and files of TLS that cannot be used.
    DataError, ModelFileNotFoundError
        For sources that are not there, are no models, or are of one name.
    MissingExtraError
        Without the libraries of the extras ``serve`` and ``grpc``.
    """
    _check_libraries(settings)
    _check_place(settings)
    _check_sources(settings)
    make_tls(settings)


def _check_libraries(settings: ServeSettings) -> None:
    for library in ("starlette", "uvicorn", "httptools", "prometheus_client"):
        if importlib.util.find_spec(library) is None:
            raise MissingExtraError(library, "serve")
    if settings.grpc_port is not None and importlib.util.find_spec("grpc") is None:
        raise MissingExtraError("grpcio", "grpc")


def _check_place(settings: ServeSettings) -> None:
    if not settings.host:
        raise SettingError(
            "the host is empty; give an address, 127.0.0.1 for programs on this machine alone"
        )
    if settings.workers < 1:
        raise SettingError(f"the server has {settings.workers} workers; give 1 or more")
    if settings.grpc_port is not None:
        if settings.grpc_port == settings.port != 0:
            raise SettingError(
                f"HTTP and gRPC are both to listen on port {settings.port}; give two"
            )
        if settings.workers > 1 and not hasattr(socket, "SO_REUSEPORT"):
            raise SettingError(
                "workers cannot share a port for gRPC on this system; give one worker"
            )


def _check_sources(settings: ServeSettings) -> None:
    if not settings.sources:
        raise SettingError("there is nothing to serve; give model files, or folders of them")
    for source in settings.sources:
        if not Path(source).exists():
            raise ModelFileNotFoundError(f"there is no model file or folder {source!r}")
    found, troubles = Places([Path(source) for source in settings.sources]).look()
    if troubles:
        raise troubles[0]
    if not found and not settings.reload_seconds and not settings.control:
        raise DataError(
            f"there is no model in {', '.join(map(repr, settings.sources))}, and nothing would "
            "load one that comes later: put one there, or leave --reload as it is"
        )


def make_tls(settings: ServeSettings) -> ssl.SSLContext | None:
    """The context of a server's certificate; None without one.

    Raises
    ------
    SettingError
        If a file is not there, not what it should be, or the two do not belong together.
    """
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        given, other = ("key", "--tls-cert") if cert is None else ("certificate", "--tls-key")
        raise SettingError(f"there is a TLS {given} alone; give {other}, too")
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
            f"{cert!r} and {key!r} are no certificate and its key ({why}): give PEM files that "
            "belong together, and a key that is not encrypted"
        ) from None
    return context
