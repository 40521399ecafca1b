"""What a server says to whoever runs it: one line on stderr for each event.

As text for people, or as JSON for programs that collect lines.
"""

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

__all__ = [
    "Say",
    "Start",
    "bind",
    "bind_shared",
    "is_loopback",
    "listen",
    "soon_said",
    "url_of",
]


# ---------------------------------------------------------------- saying

_LISTED = 20
"""Models that are told of at the start, each in a line."""

_PATIENCE = 2.0
"""Seconds of silence at the start."""


class Say(Protocol):
    """Tell the operator that something happened."""

    def __call__(self, event: str, message: str, *, level: str = "info", **facts: Any) -> None:
        """Tell it.

        Parameters
        ----------
        event : str
            A short fixed name, for programs.
        message : str
            A sentence, for people.
        level : {"info", "warning", "error"}
        **facts
            What the sentence is about, as values that JSON has.
        """


@contextlib.contextmanager
def soon_said(say: Say, seconds: float = _PATIENCE) -> Iterator[None]:
    """Say that models are being loaded, if that takes longer than so many seconds."""
    message = (
        "models are being loaded; the first time on a machine, and after each installation, "
        "treekit's machine code is compiled, which takes some 10 to 40 s"
    )
    timer = threading.Timer(seconds, say, ("loading", message))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Start(NamedTuple):
    """What is told when a server listens."""

    settings: ServeSettings
    sockets: Sequence[socket.socket]

    def tell(self, say: Say, models: Sequence[dict[str, Any]], grpc_port: int | None) -> None:
        """Tell which models there are, and where to ask them; that it listens comes last.

        Parameters
        ----------
        say : Say
        models : sequence of dict
            ``name``, ``version``, and ``platform`` and, of treekit's own, ``trees``; of those
            that are refused, ``reason``.
        grpc_port : int, optional
        """
        settings = self.settings
        refused = [model for model in models if "reason" in model]
        served = [model for model in models if "reason" not in model]
        for model in served[:_LISTED]:
            trees = model.get("trees")
            size = model["platform"] if trees is None else f"{trees} tree{'s' * (trees != 1)}"
            say("model", f"model {model['name']!r} {model['version']}: {size}", **_told(model))
        if len(served) > _LISTED:
            say("models", f"and {len(served) - _LISTED} more models", models=len(served))
        for one in refused:
            message = f"model {one['name']!r} is refused: {one['reason']}"
            say("model-refused", message, level="error", **_told(one))
        if not models:
            say("no-models", "there is no model yet; waiting for one", level="warning")
        if settings.token_file is None and not is_loopback(settings.host):
            say(
                "open",
                f"whoever reaches {settings.host} may ask, and no token is asked for; "
                "see --token-file",
                level="warning",
                host=settings.host,
            )
        url = url_of(settings, self.sockets)
        if grpc_port is not None:
            place = f"{settings.host}:{grpc_port}"
            say("listening-grpc", f"gRPC on {place}", port=grpc_port)
        page = f"{url_of(settings, self.sockets, nearby=True)}/"
        say("page", f"the page is {page}", url=page)
        say("listening", f"listening on {url}", url=url)


def _told(model: dict[str, Any]) -> dict[str, Any]:
    """A model by the names that lines about it have throughout."""
    return {("model" if name == "name" else name): value for name, value in model.items()}


# ---------------------------------------------------------------- listening
# Where a server listens: sockets that are bound before anything is loaded, and their names.


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets of every address of a host, on one port, not yet listening.

    Parameters
    ----------
    host : str
        A name or an address.
    port : int
        0: any that is free, the same for each address.

    Raises
    ------
    SettingError
        If the host has no address here, or the port is taken or not permitted.
    """
    bound: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            opened = socket.socket(family, socket.SOCK_STREAM)
            bound.append(opened)
            _bind(opened, host, address, port or (_port_of(bound[0]) if len(bound) > 1 else 0))
    except BaseException:
        for opened in bound:
            opened.close()
        raise
    return bound


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise SettingError(
            f"the host {host!r} has no address: {getattr(error, 'strerror', None) or error}; give "
            "an address of this machine, 127.0.0.1 for programs on it alone, 0.0.0.0 for all"
        ) from None
    # A machine whose IPv6 is off still has the name localhost with an IPv6 address.
    known: dict[tuple[socket.AddressFamily, str], None] = {}
    for family, _, _, _, where in found:
        known[family, str(where[0])] = None
    return [place for place in known if _usable(*place)] or [next(iter(known))]


def _usable(family: socket.AddressFamily, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.bind((address, 0))
    except OSError:
        return False
    return True


def _bind(opened: socket.socket, host: str, address: str, port: int) -> None:
    if os.name == "posix":  # elsewhere it would let two servers share a port
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if opened.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        opened.bind((address, port))
    except OSError as error:
        raise SettingError(_refusal(error, host, port)) from None


def _refusal(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another with --port, or 0 for any"
    if error.errno == errno.EACCES:
        return f"port {port} needs rights that this user lacks; choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"the host {host!r} is no address of this machine; choose another with --host"
    return f"cannot listen on {host} port {port}: {error.strerror or error}"


def listen(opened: socket.socket, host: str, backlog: int) -> None:
    """Have a bound socket listen.

    Two servers that are started at once may both bind a port; here the second one is told.

    Raises
    ------
    SettingError
        If the port is taken.
    """
    try:
        opened.listen(backlog)
    except OSError as error:
        raise SettingError(_refusal(error, host, _port_of(opened))) from None


def bind_shared(host: str, port: int) -> socket.socket:
    """A socket that holds a port for processes that each bind it, too (``SO_REUSEPORT``).

    Raises
    ------
    SettingError
        As `bind`; also if a process of another server holds the port so.
    """
    for taken in bind(host, port):  # without SO_REUSEPORT: a stranger's would not be seen
        port = _port_of(taken)
        taken.close()
    family, address = _addresses(host, port)[0]
    held = socket.socket(family, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        _bind(held, host, address, port)
    except BaseException:
        held.close()
        raise
    return held


def _port_of(opened: socket.socket) -> int:
    return int(opened.getsockname()[1])


def url_of(
    settings: ServeSettings, sockets: Sequence[socket.socket], *, nearby: bool = False
) -> str:
    """The address of a server; `nearby`: one that a browser on this machine can open."""
    scheme = "https" if settings.tls_cert else "http"
    host = settings.host
    if nearby:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not bound
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{_port_of(sockets[0])}"


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine reach a host's addresses."""
    try:
        return all(
            ipaddress.ip_address(address.partition("%")[0]).is_loopback
            for _, address in _addresses(host, 0)
        )
    except SettingError:
        return False
