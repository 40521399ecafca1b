"""Access control by the host, origin and token of a request.

Every page in a user's browser can reach a server on a private address.  Three checks of each
request prevent misuse:

| check | prevents |
|---|---|
| ``Host`` is a name of this server | DNS rebinding: a page's own name resolved to 127.0.0.1 |
| ``Origin``, ``Sec-Fetch-Site`` are those of this server | forms and scripts of other sites |
| ``Authorization`` contains the token, if there is one | all other clients |

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
from functools import lru_cache
from pathlib import Path

from treekit.errors import SettingError, TreekitWarning
from treekit.serve.errors import (
    ForbiddenError,
    InvalidRequestError,
    UnauthorisedError,
    shown,
)
from treekit.serve.settings import ServeSettings, read_token

# ---------------------------------------------------------------- access

HEALTH_PATHS = frozenset({"/v2/health/live", "/v2/health/ready"})

_HOST_PATTERN = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::[0-9]{0,5})?")
_ORIGIN_PATTERN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_MAX_CACHED_SOURCES = 64
"""Maximum number of cached combinations of the headers that name the source of a request."""


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

    Attributes
    ----------
    check_source : callable
        ``check_source(scheme, host, forwarded_host, origin, site)`` returns whether a request is
        from another, allowed origin.  Raises InvalidRequestError if the header Host is missing or
        malformed, ForbiddenError if it is another name or the origin is not allowed.
    extra_headers : tuple of headers
        Headers of all responses, if other origins are allowed: responses depend on the origin.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._any_host = "*" in settings.allow_hosts
        self._any_address = settings.host in _WILDCARDS
        self._hosts = {*_LOCAL_HOSTS, *map(_parse_host_setting, settings.allow_hosts)}
        if not self._any_address:
            self._hosts.add(_add_brackets(settings.host.lower()))
        self._any_origin = "*" in settings.allow_origins
        self._origins = {
            _parse_origin_setting(given) for given in settings.allow_origins if given != "*"
        }
        self._token = None if settings.token_file is None else BearerToken(settings.token_file)
        self.check_source = lru_cache(_MAX_CACHED_SOURCES)(self._check_source)
        self.extra_headers = ((b"vary", b"Origin"),) if settings.allow_origins else ()

    def _check_source(
        self,
        scheme: str,
        host: bytes | None,
        forwarded_host: bytes | None,
        origin: bytes | None,
        site: bytes | None,
    ) -> bool:
        if not self._any_host:
            name = _parse_host_header(host)
            if not (name in self._hosts or (self._any_address and _is_address(name))):
                raise ForbiddenError(
                    f"{name!r} is not a name of this server; to allow it, "
                    f"start the server with --allow-host {name}"
                )
        if origin is None:
            if site == b"cross-site" and not self._any_origin:
                raise ForbiddenError(
                    "the request comes from a page of another site; to allow it, start the "
                    "server with --allow-origin and the page's origin"
                )
            return False
        if self._any_origin or origin in self._origins:
            return True
        # Behind a proxy, the page has the proxy's name and TLS.  A page of another site cannot send
        # X-Forwarded-Host: a browser asks first (preflight), without that header, and is refused.
        names = filter(None, (host, forwarded_host and forwarded_host.partition(b",")[0].strip()))
        schemes = (scheme.encode(), b"https")
        if any(origin == b"%s://%s" % (own, name) for name in names for own in schemes):
            return False
        raise ForbiddenError(
            f"origin {shown(origin.decode('latin-1'))} is not allowed; to allow it, start the "
            "server with --allow-origin and that origin"
        )

    def check_token(self, value: bytes | None) -> None:
        """Raise `UnauthorisedError` if the Authorization header lacks a required token."""
        if self._token is not None:
            self._token.check_header(value)


def _parse_host_header(host: bytes | None) -> str:
    """Parse a Host header; return the name in lower case, without port and final dot."""
    if host is None:
        raise InvalidRequestError("the request has no Host header, which HTTP requires")
    found = _HOST_PATTERN.fullmatch(host.decode("latin-1").lower())
    if found is None:
        raise InvalidRequestError(f"invalid Host header: {shown(host.decode('latin-1'))}")
    return found[1].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _add_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _parse_host_setting(given: str) -> str:
    if given == "*":
        return given
    name = given.lower()
    found = _HOST_PATTERN.fullmatch(_add_brackets(name) if name.count(":") > 1 else name)
    if found is None:
        raise SettingError(
            f"invalid host --allow-host {given!r}; give a name or address as in a URL, "
            "without scheme and path, or * for any"
        )
    return found[1].removesuffix(".")


def _parse_origin_setting(given: str) -> bytes:
    if not _ORIGIN_PATTERN.fullmatch(given.lower()):
        raise SettingError(
            f"invalid origin --allow-origin {given!r}; give scheme://host or scheme://host:port, "
            "without a path, such as https://example.com, or * for any"
        )
    return given.lower().encode()


# ---------------------------------------------------------------- tokens
# Bearer token, read from a file and compared in constant time.

_MIN_LENGTH = 16
_CHECK_SECONDS = 1.0

_logger = logging.getLogger("treekit.serve")


class BearerToken:
    """Token in a file that may be replaced while the server runs.

    The file is read again on requests, at most once per second; if its new content is invalid, the
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
        self._token = self._read_file()
        self._last_error = ""
        self._next_check = time.monotonic() + _CHECK_SECONDS
        if os.name == "posix" and self._path.stat().st_mode & stat.S_IROTH:
            warnings.warn(
                f"the token file {str(path)!r} is readable by all users of this machine; "
                "restrict it with chmod o-r",
                TreekitWarning,
                stacklevel=2,
            )

    def check_header(self, given: bytes | None) -> None:
        """Raise `UnauthorisedError` unless `given` is ``Bearer`` followed by the token."""
        if time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + _CHECK_SECONDS
            self._reload()
        scheme, _, token = (given or b"").partition(b" ")
        if not hmac.compare_digest(token.strip(), self._token) or scheme.lower() != b"bearer":
            raise UnauthorisedError(
                "this server requires a token; send the header Authorization: Bearer TOKEN"
                if given is None
                else "invalid token; see the token file of the server"
            )

    def _reload(self) -> None:
        try:
            token, problem = self._read_file(), ""
        except SettingError as error:
            token, problem = self._token, str(error)
        if problem and problem != self._last_error:
            _logger.error("keeping the previous token: %s", problem)
        elif token != self._token:
            _logger.warning("token reloaded from %r", str(self._path))
        self._token, self._last_error = token, problem

    def _read_file(self) -> bytes:
        token = read_token(self._path)
        if len(token) < _MIN_LENGTH:
            raise SettingError(
                f"the token in {str(self._path)!r} has only {len(token)} characters; give "
                f"{_MIN_LENGTH} or more, such as from: openssl rand -hex 32"
            )
        return token
