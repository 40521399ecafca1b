"""Access control by the host, origin and token of a request.

Every page in a user's browser can reach a server on a private address.  Three checks of each
request prevent misuse:

| check | prevents |
|---|---|
| `Host` is a name of this server | DNS rebinding: a page's own name resolved to 127.0.0.1 |
| `Origin`, `Sec-Fetch-Site` are those of this server | forms and scripts of other sites |
| `Authorization` contains the token, if there is one | all other clients |

Health endpoints are not checked: orchestrators probe them by address, and they reveal nothing
else.  The files of the page at ``/`` need no token, as a browser cannot send one for a page: they
are the same on every server and contain no model data; the page requests data with the token
entered by its user.
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
"""Maximum number of cached Host headers, each a name and any port."""


class Access:
    """Access checks of one server.

    Parameters
    ----------
    settings : ServeSettings
        `host`, `allow_hosts`, `allow_origins` and `token_file` are used.

    Raises
    ------
    SettingError
        If a host, an origin or the token file is invalid.
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
        """Whether other origins are allowed, so that responses depend on Origin."""
        return self._any_origin or bool(self._origins)

    def check_host(self, host: bytes | None) -> None:
        """Check that the Host header is a name of this server.

        Raises
        ------
        InvalidRequestError
            If Host is missing or malformed.
        ForbiddenError
            If Host is another name.
        """
        if host in self._seen or self._any_host:
            return
        if host is None:
            raise InvalidRequestError("the request has no Host header, which HTTP requires")
        name = _name_in(host)
        if not (name in self._hosts or (self._any_address and _is_address(name))):
            raise ForbiddenError(
                f"{name!r} is not a name of this server; to allow it, "
                f"start the server with --allow-host {name}"
            )
        if len(self._seen) < _SEEN:
            self._seen.add(host)

    def check_origin(
        self, scheme: str, host: bytes | None, origin: bytes | None, site: bytes | None
    ) -> bool:
        """Check the origin of a request; return whether it is another, allowed origin.

        Parameters
        ----------
        scheme : str
            Scheme of the request.
        host, origin, site : bytes, optional
            Headers Host, Origin and Sec-Fetch-Site.

        Raises
        ------
        ForbiddenError
            If the origin is not allowed.
        """
        if origin is None:
            if site == b"cross-site" and not self._any_origin:
                raise ForbiddenError(
                    "the request comes from a page of another site; to allow it, start the "
                    "server with --allow-origin and the page's origin"
                )
            return False
        if self._any_origin or origin in self._origins:
            return True
        if host is not None and origin == b"%s://%s" % (scheme.encode(), host):
            return False
        raise ForbiddenError(
            f"origin {_shown(origin)} is not allowed; to allow it, start the server with "
            "--allow-origin and that origin"
        )

    def check_token(self, value: bytes | None) -> None:
        """Raise `UnauthorisedError` if the Authorization header lacks a required token."""
        if self._token is not None:
            self._token.check(value)


def _name_in(host: bytes) -> str:
    """Parse a Host header; return the name in lower case, without port and final dot."""
    found = _HOST.fullmatch(host.decode("latin-1").lower())
    if found is None:
        raise InvalidRequestError(f"invalid Host header: {_shown(host)}")
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
            f"invalid host --allow-host {given!r}; give a name or address as in a URL, "
            "without scheme and path, or * for any"
        )
    return found[1].removesuffix(".")


def _origin(given: str) -> bytes:
    if not _ORIGIN.fullmatch(given.lower()):
        raise SettingError(
            f"invalid origin --allow-origin {given!r}; give scheme://host or scheme://host:port, "
            "without a path, such as https://example.com, or * for any"
        )
    return given.lower().encode()


def _shown(value: bytes) -> str:
    return repr(value[:100].decode("latin-1"))


# ---------------------------------------------------------------- tokens
# Bearer token, read from a file and compared in constant time.

_LEAST = 16
_MOST = 4096
_CHARACTERS = re.compile(rb"[A-Za-z0-9._~+/=-]+")
"""Characters of RFC 6750, section 2.1, all valid in a header."""

_LOOK_SECONDS = 1.0

_log = logging.getLogger("treekit.serve")


class Token:
    """Token in a file that may be replaced while the server runs.

    The file is checked on requests, at most once per second; if its new content is invalid, the
    previous token remains valid and an error is logged.

    Parameters
    ----------
    path : str or Path
        File with one line.

    Raises
    ------
    SettingError
        If the file cannot be read, is empty, or its token is invalid or too short.
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
        """Raise `UnauthorisedError` unless `given` is ``Bearer`` followed by the token."""
        if time.monotonic() >= self._look_at:
            self._look()
        if given is not None and hmac.compare_digest(given, self._usual):
            return
        scheme, _, token = (given or b"").partition(b" ")
        if not hmac.compare_digest(token.strip(), self._token) or scheme.lower() != b"bearer":
            raise UnauthorisedError(
                "this server requires a token; send the header Authorization: Bearer TOKEN"
                if given is None
                else "invalid token; see the token file of the server"
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
                _log.error("keeping the previous token: %s", error)
            return
        self._trouble = ""
        _log.warning("token reloaded from %r", str(self._path))

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
                f"the token file {str(self._path)!r} does not contain a valid token; give one line "
                "of letters, digits and ._~+/=-, such as from: openssl rand -hex 32"
            )
        if len(token) < _LEAST:
            raise SettingError(
                f"the token in {str(self._path)!r} has only {len(token)} characters; give "
                f"{_LEAST} or more, such as from: openssl rand -hex 32"
            )
        self._token, self._stamp = token, stamp
        self._usual = b"Bearer " + token

    def _warn_if_readable(self) -> None:
        mode = self._path.stat().st_mode
        if os.name == "posix" and mode & stat.S_IROTH:
            warnings.warn(
                f"the token file {str(self._path)!r} is readable by all users of this machine; "
                "restrict it with chmod o-r",
                TreekitWarning,
                stacklevel=2,
            )
