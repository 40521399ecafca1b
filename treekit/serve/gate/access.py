"""Who may ask: the host a request was made to, the page that made it, the token it brings.

A server on a private address is within reach of every page that its user's browser shows.
Three checks stand against that, on each request:

| check | against |
|---|---|
| `Host` is a name of this server | DNS rebinding: a page's own name that now means 127.0.0.1 |
| `Origin`, `Sec-Fetch-Site` are this server's own | forms and scripts of other sites |
| `Authorization` brings the token, if there is one | everybody else |

Health has none of them: orchestrators probe it by address, and it says one word.  The files
of the page at ``/`` have no token, because a browser cannot bring one to a page: they are the
same for every server and hold nothing of a model; what they show they ask for with the token
that their reader gave.
"""

from __future__ import annotations

import ipaddress
import re

from treekit.errors import SettingError
from treekit.serve.errors import ForbiddenError, InvalidRequestError
from treekit.serve.gate.tokens import Token
from treekit.serve.settings import ServeSettings

__all__ = ["HEALTH_PATHS", "Access"]

HEALTH_PATHS = frozenset({"/v2/health/live", "/v2/health/ready"})

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::[0-9]{0,5})?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_SEEN = 64
"""Spellings of Host that are remembered: each is a name and any port."""


class Access:
    """The checks of one server.

    Parameters
    ----------
    settings : ServeSettings
        `host`, `allow_hosts`, `allow_origins` and `token_file` are read.

    Raises
    ------
    SettingError
        For a host, origin or token file that is none.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._any_host = "*" in settings.allow_hosts
        self._any_address = settings.host in _WILDCARDS
        self._hosts = {*_LOCAL, *map(_host_name, settings.allow_hosts)}
        if not self._any_address:
            self._hosts.add(_bracketed(settings.host.lower()))
        self._seen: set[bytes] = set()
        self._any_origin = "*" in settings.allow_origins
        self._origins = {_origin(given) for given in settings.allow_origins if given != "*"}
        self._token = None if settings.token_file is None else Token(settings.token_file)

    @property
    def cross_origin(self) -> bool:
        """Whether pages of other origins may be let in: answers differ by Origin then."""
        return self._any_origin or bool(self._origins)

    def check_host(self, host: bytes | None) -> None:
        """Raise unless a request was made to a name of this server.

        Raises
        ------
        InvalidRequestError
            Without a Host, or with one that is none.
        ForbiddenError
            With another's.
        """
        if host in self._seen or self._any_host:
            return
        if host is None:
            raise InvalidRequestError("the request has no Host header; HTTP asks for one")
        name = _name_in(host)
        if not (name in self._hosts or (self._any_address and _is_address(name))):
            raise ForbiddenError(
                f"{name!r} is no name of this server; if it is one to reach it by, "
                f"start it with --allow-host {name}"
            )
        if len(self._seen) < _SEEN:
            self._seen.add(host)

    def check_origin(
        self, scheme: str, host: bytes | None, origin: bytes | None, site: bytes | None
    ) -> bool:
        """Whether a request comes of another origin that is let in; raise if it is not.

        Parameters
        ----------
        scheme : str
            Of this request.
        host, origin, site : bytes, optional
            Its headers Host, Origin and Sec-Fetch-Site.

        Raises
        ------
        ForbiddenError
            For a page that this server does not know.
        """
        if origin is None:
            if site == b"cross-site" and not self._any_origin:
                raise ForbiddenError(
                    "the request comes from a page of another site; if that page is to ask this "
                    "server, start it with --allow-origin and the page's origin"
                )
            return False
        if self._any_origin or origin in self._origins:
            return True
        if host is not None and origin == b"%s://%s" % (scheme.encode(), host):
            return False
        raise ForbiddenError(
            f"pages of {_shown(origin)} may not ask this server; if they are to, start it with "
            "--allow-origin and that origin"
        )

    def check_token(self, value: bytes | None) -> None:
        """Raise `UnauthorisedError` unless an Authorization header brings the token, if any."""
        if self._token is not None:
            self._token.check(value)


def _name_in(host: bytes) -> str:
    """The name in a Host header, in lower case, without port and final dot."""
    found = _HOST.fullmatch(host.decode("latin-1").lower())
    if found is None:
        raise InvalidRequestError(f"the Host header is no host: {_shown(host)}")
    return found[1].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _host_name(given: str) -> str:
    if given == "*":
        return given
    found = _HOST.fullmatch(_bracketed(given.lower()) if given.count(":") > 1 else given.lower())
    if found is None:
        raise SettingError(
            f"--allow-host {given!r} is no host; give a name or an address as in a URL, "
            "without scheme and path, or * for any"
        )
    return found[1].removesuffix(".")


def _origin(given: str) -> bytes:
    if not _ORIGIN.fullmatch(given.lower()):
        raise SettingError(
            f"--allow-origin {given!r} is no origin; give scheme://host or scheme://host:port, "
            "without a path, as https://example.com, or * for any"
        )
    return given.lower().encode()


def _shown(value: bytes) -> str:
    return repr(value[:100].decode("latin-1"))
