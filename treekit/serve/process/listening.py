"""Where a server listens: sockets that are bound before anything is loaded, and their names."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Sequence

from treekit.errors import SettingError
from treekit.serve.settings import ServeSettings

__all__ = ["bind", "bind_shared", "is_loopback", "listen", "url_of"]


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
