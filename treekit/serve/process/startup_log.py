"""Log messages at startup, and listening sockets."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from treekit.errors import SettingError
from treekit.serve.settings import ServeSettings

# ---------------------------------------------------------------- startup messages

_MAX_LISTED = 20
"""Maximum models listed at startup, one per line."""

_LOADING_SECONDS = 2.0
"""Seconds of loading before a message is logged."""


class LogEvent(Protocol):
    """Function that logs an event."""

    def __call__(self, event: str, message: str, *, level: str = "info", **facts: Any) -> None:
        """Log an event.

        Parameters
        ----------
        event : str
            Short fixed name, for programs.
        message : str
            Message for people.
        level : {"info", "warning", "error"}
        **facts
            JSON values with the details of the message.
        """


@contextlib.contextmanager
def log_slow_loading(say: LogEvent, seconds: float = _LOADING_SECONDS) -> Iterator[None]:
    """Log that models are being loaded, if the block takes longer than `seconds`."""
    message = (
        "loading models; on the first run on a machine, and after each installation, treekit "
        "compiles its machine code, which takes about 10 to 40 s"
    )
    timer = threading.Timer(seconds, say, ("loading", message))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class StartupLog(NamedTuple):
    """Messages logged when a server is ready."""

    settings: ServeSettings
    sockets: Sequence[socket.socket]

    def log_startup(
        self, say: LogEvent, models: Sequence[dict[str, Any]], grpc_port: int | None
    ) -> None:
        """Log the models and the addresses of the server; the HTTP address comes last.

        Parameters
        ----------
        say : LogEvent
        models : sequence of dict
            ``name``, ``version``, ``platform`` and, for treekit models, ``trees``; ``reason``
            instead of the last two for rejected models.
        grpc_port : int, optional
        """
        settings = self.settings
        refused = [model for model in models if "reason" in model]
        served = [model for model in models if "reason" not in model]
        for model in served[:_MAX_LISTED]:
            trees = model.get("trees")
            size = model["platform"] if trees is None else f"{trees} tree{'s' * (trees != 1)}"
            say(
                "model",
                f"model {model['name']!r} {model['version']}: {size}",
                **_model_facts(model),
            )
        if len(served) > _MAX_LISTED:
            say("models", f"and {len(served) - _MAX_LISTED} more models", models=len(served))
        for one in refused:
            message = f"model {one['name']!r} was rejected: {one['reason']}"
            say("model-refused", message, level="error", **_model_facts(one))
        if not models:
            say("no-models", "no model found yet; waiting for one", level="warning")
        if settings.token_file is None and not is_loopback(settings.host):
            say(
                "open",
                f"any client that reaches {settings.host} may send requests without a token; "
                "see --token-file",
                level="warning",
                host=settings.host,
            )
        url = get_server_url(settings, self.sockets)
        if grpc_port is not None:
            place = f"{settings.host}:{grpc_port}"
            say("listening-grpc", f"gRPC on {place}", port=grpc_port)
        page = f"{get_server_url(settings, self.sockets, nearby=True)}/"
        say("page", f"web page at {page}", url=page)
        say("listening", f"listening on {url}", url=url)


def _model_facts(model: dict[str, Any]) -> dict[str, Any]:
    """Rename the keys of a model description for the log."""
    return {("model" if name == "name" else name): value for name, value in model.items()}


# ---------------------------------------------------------------- sockets
# Sockets are bound before models are loaded.


def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """Bind a socket to each address of a host on one port, without listening.

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
    try:
        for family, address in _resolve_host(host, port):
            opened = socket.socket(family, socket.SOCK_STREAM)
            bound.append(opened)
            _bind_socket(
                opened, host, address, port or (_get_port(bound[0]) if len(bound) > 1 else 0)
            )
    except BaseException:
        for opened in bound:
            opened.close()
        raise
    return bound


def _resolve_host(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise SettingError(
            f"the host {host!r} has no address: {getattr(error, 'strerror', None) or error}; give "
            "an address of this machine, 127.0.0.1 for local clients only, 0.0.0.0 for all"
        ) from None
    # On a machine with IPv6 disabled, localhost may still have an IPv6 address.
    known: dict[tuple[socket.AddressFamily, str], None] = {}
    for family, _, _, _, where in found:
        known[family, str(where[0])] = None
    return [place for place in known if _can_bind(*place)] or [next(iter(known))]


def _can_bind(family: socket.AddressFamily, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.bind((address, 0))
    except OSError:
        return False
    return True


def _bind_socket(opened: socket.socket, host: str, address: str, port: int) -> None:
    if os.name == "posix":  # on Windows two servers could share a port with it
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if opened.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        opened.bind((address, port))
    except OSError as error:
        raise SettingError(_bind_error_message(error, host, port)) from None


def _bind_error_message(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; give another with --port, or 0 for any free port"
    if error.errno == errno.EACCES:
        return f"no permission for port {port}; give one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"the host {host!r} is not an address of this machine; give another with --host"
    return f"cannot listen on {host} port {port}: {error.strerror or error}"


def start_listening(opened: socket.socket, host: str, backlog: int) -> None:
    """Start listening on a bound socket.

    Two servers started simultaneously may both bind a port; the second one fails here.

    Raises
    ------
    SettingError
        If the port is in use.
    """
    try:
        opened.listen(backlog)
    except OSError as error:
        raise SettingError(_bind_error_message(error, host, _get_port(opened))) from None


def reserve_shared_port(host: str, port: int) -> socket.socket:
    """Reserve a port for processes that each bind it (``SO_REUSEPORT``).

    Raises
    ------
    SettingError
        As `bind_sockets`; also if another server uses the port with ``SO_REUSEPORT``.
    """
    for taken in bind_sockets(host, port):  # without SO_REUSEPORT, to detect another server
        port = _get_port(taken)
        taken.close()
    family, address = _resolve_host(host, port)[0]
    reserved = socket.socket(family, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        _bind_socket(reserved, host, address, port)
    except BaseException:
        reserved.close()
        raise
    return reserved


def _get_port(opened: socket.socket) -> int:
    return int(opened.getsockname()[1])


def get_server_url(
    settings: ServeSettings, sockets: Sequence[socket.socket], *, nearby: bool = False
) -> str:
    """Return the URL of a server; `nearby`: one for a browser on this machine."""
    scheme = "https" if settings.tls_cert else "http"
    host = settings.host
    if nearby:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not bound
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{_get_port(sockets[0])}"


def is_loopback(host: str) -> bool:
    """Return whether all addresses of a host are loopback addresses."""
    try:
        return all(
            ipaddress.ip_address(address.partition("%")[0]).is_loopback
            for _, address in _resolve_host(host, 0)
        )
    except SettingError:
        return False
