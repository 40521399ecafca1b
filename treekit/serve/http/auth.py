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

import hmac
import ipaddress
import logging
import os
import re
import stat
import time
import warnings
from pathlib import Path

from treekit.errors import SettingError, TreekitWarning
from treekit.serve.errors import ForbiddenError, InvalidRequestError, UnauthorisedError
from treekit.serve.models.repository import Stamp, stamp_of
from treekit.serve.settings import ServeSettings

__all__ = [
    "HEALTH_PATHS",
    "Access",
    "Token",
]


# ---------------------------------------------------------------- access

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


# ---------------------------------------------------------------- tokens
# The bearer token of a server: read from a file, compared in constant time.

_LEAST = 16
_MOST = 4096
_CHARACTERS = re.compile(rb"[A-Za-z0-9._~+/=-]+")
"""RFC 6750, 2.1, and nothing that a header would not carry as it is."""

_LOOK_SECONDS = 1.0

_log = logging.getLogger("treekit.serve")


class Token:
    """A token that its file may replace while the server runs.

    The file is looked at once a second at most, when a request comes; one that became
    unfit leaves the token before it in force, and says so in the log.

    Parameters
    ----------
    path : str or Path
        A file of one line.

    Raises
    ------
    SettingError
        If it cannot be read, is empty, is no token, or one that is soon guessed.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._stamp: Stamp | None = None
        self._token = self._usual = b""
        self._trouble = ""
        self._read()
        self._warn_if_readable()
        self._look_at = time.monotonic() + _LOOK_SECONDS

    def check(self, given: bytes | None) -> None:
        """Raise `UnauthorisedError` unless `given` is ``Bearer`` and the token."""
        if time.monotonic() >= self._look_at:
            self._look()
        if given is not None and hmac.compare_digest(given, self._usual):
            return
        scheme, _, token = (given or b"").partition(b" ")
        if not hmac.compare_digest(token.strip(), self._token) or scheme.lower() != b"bearer":
            raise UnauthorisedError(
                "this server asks for a token: send it as the header Authorization: Bearer TOKEN"
                if given is None
                else "the token is not this server's; see the file it was started with"
            )

    def _look(self) -> None:
        self._look_at = time.monotonic() + _LOOK_SECONDS
        try:
            if stamp_of(self._path) == self._stamp:
                return
            self._read()
        except (SettingError, OSError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _log.error("the token stays as it was: %s", error)
            return
        self._trouble = ""
        _log.warning("the token was read anew from %r", str(self._path))

    def _read(self) -> None:
        try:
            stamp = stamp_of(self._path)
            with self._path.open("rb") as stream:
                line = stream.read(_MOST + 1)
        except OSError as error:
            raise SettingError(
                f"cannot read the token file {str(self._path)!r}: {error.strerror or error}"
            ) from error
        token = line.rstrip(b"\r\n")
        if len(line) > _MOST or not _CHARACTERS.fullmatch(token):
            raise SettingError(
                f"the token file {str(self._path)!r} holds no token: give one line of letters, "
                "digits and ._~+/=- alone, as of: openssl rand -hex 32"
            )
        if len(token) < _LEAST:
            raise SettingError(
                f"the token in {str(self._path)!r} has {len(token)} characters, which is soon "
                f"guessed; give {_LEAST} or more, as of: openssl rand -hex 32"
            )
        self._token, self._stamp = token, stamp
        self._usual = b"Bearer " + token

    def _warn_if_readable(self) -> None:
        mode = self._path.stat().st_mode
        if os.name == "posix" and mode & stat.S_IROTH:
            warnings.warn(
                f"everybody on this machine can read the token file {str(self._path)!r}; "
                "take that from them: chmod o-r",
                TreekitWarning,
                stacklevel=2,
            )
