"""Run a server: check settings, bind sockets, and run processes until a signal."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import ipaddress
import os
import signal
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

import msgspec

from treekit.errors import DataError, MissingExtraError, ModelFileNotFoundError, SettingError
from treekit.serve.http.logs import configure_logging, log_event
from treekit.serve.models.repository import ModelFinder
from treekit.serve.settings import ServeSettings

BACKLOG = 2048
"""Maximum connections waiting to be accepted."""

# ---------------------------------------------------------------- run


def serve(settings: ServeSettings) -> None:
    """Serve models until SIGINT or SIGTERM; return after all requests in progress.

    The process ends within `EXIT_SECONDS` of `treekit.serve.process.worker` after the time limit
    of requests, even if a thread still runs (with exit code 0, without a return).  A second
    signal ends it immediately with exit code 128 plus its number.  With
    several workers, SIGHUP restarts them one after the other; they run only from the main thread,
    and the calling program needs an ``if __name__ == "__main__":`` guard, as always with
    ``multiprocessing``.

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
    lines = configure_logging(settings.log)
    sockets = bind_sockets(settings.host, settings.port)
    try:
        if settings.workers == 1:
            _serve_in_process(settings, sockets)
        else:
            _serve_in_workers(settings, sockets)
        log_event("stopped", "the server has stopped")
    finally:
        for opened in sockets:
            opened.close()
        lines.flush()


def _serve_in_process(settings: ServeSettings, sockets: list[socket.socket]) -> None:
    """Serve in the current process."""
    import uvicorn

    from treekit.serve.process.worker import (
        ServiceProcess,
        load_models,
        log_models,
        make_config,
        make_service,
    )

    service = make_service(settings)
    changes = load_models(service.repository)

    def report_started(grpc_port: int | None) -> None:
        install_handlers()  # in the place of those of uvicorn
        log_models(changes)
        log_addresses(settings, sockets, grpc_port)

    errors: list[Exception] = []
    process = ServiceProcess(settings, service, report_started, errors.append)
    server = uvicorn.Server(make_config(process.app, settings))
    process.sockets, process.stop = sockets, partial(setattr, server, "should_exit", True)
    with (
        handle_signals(process.request_shutdown, os._exit) as install_handlers,
        contextlib.suppress(SystemExit),  # of uvicorn if the start has failed
    ):
        try:
            server.run(sockets)
        finally:
            process.end_work()
    if errors:
        raise errors[0]


def _serve_in_workers(settings: ServeSettings, sockets: list[socket.socket]) -> None:
    """Serve in worker processes, which uvicorn's supervisor starts and restarts."""
    from treekit.serve.http.metrics import shared_metrics
    from treekit.serve.process.worker import WorkerSupervisor

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="treekit-serve-")))
        stack.enter_context(shared_metrics(settings.workers))
        grpc_port = None
        if settings.grpc_port is not None:
            shared = stack.enter_context(reserve_shared_port(settings.host, settings.grpc_port))
            grpc_port = shared.getsockname()[1]
            settings = msgspec.structs.replace(settings, grpc_port=grpc_port)
        report_ready = partial(log_addresses, settings, sockets, grpc_port)
        supervisor = WorkerSupervisor(settings, sockets, folder, report_ready)
        stack.callback(supervisor.kill_all)
        with handle_signals(supervisor.request_shutdown, sys.exit, ("SIGINT", "SIGTERM")):
            supervisor.run()


def log_addresses(
    settings: ServeSettings, sockets: Sequence[socket.socket], grpc_port: int | None
) -> None:
    """Log the addresses of the server; the HTTP address comes last."""
    if settings.token_file is None and not is_loopback(settings.host):
        text = f"any client that reaches {settings.host} may send requests without a token"
        log_event("open", f"{text}; see --token-file", level="warning", host=settings.host)
    if grpc_port is not None:
        log_event("listening-grpc", f"gRPC on {settings.host}:{grpc_port}", port=grpc_port)
    page = f"{get_server_url(settings, sockets, nearby=True)}/"
    log_event("page", f"web page at {page}", url=page)
    url = get_server_url(settings, sockets)
    log_event("listening", f"listening on {url}", url=url)


@contextlib.contextmanager
def handle_signals(
    end: Callable[[], None],
    at_once: Callable[[int], None],
    names: Sequence[str] = ("SIGINT", "SIGTERM", "SIGHUP"),
) -> Iterator[Callable[[], None]]:
    """Handle signals: the first one ends gracefully, the second one immediately.

    Yields a function that installs the handlers again.

    Parameters
    ----------
    end : callable
        Requests a graceful shutdown; safe in a signal handler.
    at_once : callable
        Ends the process with an exit code.
    names : sequence of str
        Names of the signals.
    """
    received: list[int] = []

    def handle_signal(number: int, frame: FrameType | None) -> None:
        del frame
        received.append(number)
        if len(received) == 1:
            end()
        else:
            at_once(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
        before = {number: signal.getsignal(number) for number in numbers}

    def install() -> None:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # as by nohup
                signal.signal(number, handle_signal)

    install()
    try:
        yield install
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
    _check_tls(settings)


def _check_libraries(settings: ServeSettings) -> None:
    for library in ("uvicorn", "httptools", "prometheus_client"):
        if importlib.util.find_spec(library) is None:
            raise MissingExtraError(library, "serve")
    rpc = {
        "grpc": "grpcio",
        "grpc_health": "grpcio-health-checking",
        "grpc_reflection": "grpcio-reflection",
    }
    for library, package in rpc.items() if settings.grpc_port is not None else ():
        if importlib.util.find_spec(library) is None:
            raise MissingExtraError(package, "grpc")


def _check_ports(settings: ServeSettings) -> None:
    if not settings.host:
        raise SettingError(
            "the host is empty; give an address, such as 127.0.0.1 for this machine only"
        )
    if settings.workers < 1:
        raise SettingError(f"got {settings.workers} workers; give 1 or more")
    if settings.workers > 1 and settings.control:
        raise SettingError(
            "--control needs one worker: with several, add, replace and remove files in a folder, "
            "which all workers check"
        )
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


def _check_tls(settings: ServeSettings) -> None:
    cert, key = settings.tls_cert, settings.tls_key
    if (cert is None) != (key is None):
        given, other = ("key", "--tls-cert") if cert is None else ("certificate", "--tls-key")
        raise SettingError(f"a TLS {given} was given without {other}; give both")
    if cert is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: "")
    except OSError as error:  # of a file, or of its content
        raise SettingError(
            f"{cert!r} and {key!r} are not a certificate and its key ({error.strerror or error}): "
            "give PEM files that belong together, and an unencrypted key"
        ) from None


# ---------------------------------------------------------------- sockets
# Sockets listen before models are loaded: early clients wait.


def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """Listen on each address of a host on one port.

    Parameters
    ----------
    host : str
        Name or address.
    port : int
        Port; 0 for any free one, the same for all addresses.

    Raises
    ------
    SettingError
        If the host has no address on this machine, or the port is in use or not permitted.
    """
    bound: list[socket.socket] = []
    failed: OSError | None = None
    for family, address in _resolve_host(host):
        try:
            opened = socket.create_server((address, port), family=family, backlog=BACKLOG)
        except OSError as error:
            failed = error
            # Where IPv6 is disabled, localhost may still have an IPv6 address.
            if error.errno not in _ABSENT_ADDRESS:
                break
        else:
            bound.append(opened)
            port = get_port(opened)
    if failed is None or (bound and failed.errno in _ABSENT_ADDRESS):
        return bound
    for opened in bound:
        opened.close()
    raise SettingError(_bind_error_message(failed, host, port)) from None


_ABSENT_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def _resolve_host(host: str) -> list[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise SettingError(
            f"the host {host!r} has no address: {getattr(error, 'strerror', None) or error}; give "
            "an address of this machine, 127.0.0.1 for local clients only, 0.0.0.0 for all"
        ) from None
    return list(dict.fromkeys((family, str(where[0])) for family, _, _, _, where in found))


def _bind_error_message(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; give another with --port, or 0 for any free port"
    if error.errno == errno.EACCES:
        return f"no permission for port {port}; give one above 1023 with --port"
    if error.errno in _ABSENT_ADDRESS:
        return f"the host {host!r} is not an address of this machine; give another with --host"
    return f"cannot listen on {host} port {port}: {error.strerror or error}"


def reserve_shared_port(host: str, port: int) -> socket.socket:
    """Reserve a port for processes that each bind it (``SO_REUSEPORT``).

    Raises
    ------
    SettingError
        As `bind_sockets`; also if another server uses the port with ``SO_REUSEPORT``.
    """
    for taken in bind_sockets(host, port):  # without SO_REUSEPORT, to detect another server
        port = get_port(taken)
        taken.close()
    family, address = _resolve_host(host)[0]
    reserved = socket.socket(family, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind((address, port))
    return reserved


def get_port(opened: socket.socket) -> int:
    """Return the port of a bound socket."""
    return int(opened.getsockname()[1])


def get_server_url(
    settings: ServeSettings, sockets: Sequence[socket.socket], *, nearby: bool = False
) -> str:
    """Return the URL of a server; `nearby`: one for a browser on this machine."""
    scheme = "https" if settings.tls_cert else "http"
    host = settings.host
    if nearby:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not bound
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{get_port(sockets[0])}"


def is_loopback(host: str) -> bool:
    """Return whether all addresses of a host are loopback addresses."""
    try:
        return all(
            ipaddress.ip_address(address.partition("%")[0]).is_loopback
            for _, address in _resolve_host(host)
        )
    except SettingError:
        return False
