"""A connection to a server over HTTP, of the standard library alone: TLS, token, tries."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import ssl
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

from treekit.errors import SettingError, TreekitWarning
from treekit.serve.errors import RemoteError, shown

__all__ = ["Connection", "read_token"]

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 120.0
_TRIES = 6
_LONGEST_WAIT = 30.0
_MOST_BYTES = 1 << 28
"""Of an answer: who answers may be anybody."""

_LOCAL = ("localhost", "127.0.0.1", "::1")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
"""RFC 6750, 2.1."""

Answer = tuple[int, Mapping[str, str], bytes]


def read_token(path: str | Path) -> str:
    """The bearer token in a file of one line.

    Raises
    ------
    SettingError
        If the file cannot be read, or holds none.
    """
    try:
        token = Path(path).read_bytes()[: 1 << 16].decode("latin-1").strip()
    except OSError as error:
        raise SettingError(
            f"cannot read the token file {str(path)!r}: {error.strerror or error}"
        ) from error
    if not _TOKEN.fullmatch(token):
        raise SettingError(
            f"the token file {str(path)!r} holds no token: it is one line of letters, digits "
            "and ._~+/=- alone"
        )
    return token


class Connection:
    """One connection to one server, kept between requests and made anew where it was lost.

    Parameters
    ----------
    url : str
        ``http://host:port`` or ``https://...``; a path goes before those that are asked.
    token : str, optional
    ca_file : str, optional
        PEM of the authorities that are trusted; default: those of the system.
    sleep : callable
        How to wait; for tests.

    Raises
    ------
    SettingError
        For a URL or a file that is none.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        ca_file: str | Path | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        secure, host, port, self._prefix = _place(url)
        self.url, self._sleep = url, sleep
        self._connection: http.client.HTTPConnection
        if secure:
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=_CONNECT_SECONDS, context=_trusting(ca_file)
            )
        elif ca_file is not None:
            raise SettingError(f"{url!r} is without TLS; leave the authorities' file out")
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=_CONNECT_SECONDS)
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
            if not secure and host not in _LOCAL:
                warnings.warn(
                    f"the token goes to {host} as it is, for all between to read; ask https://",
                    TreekitWarning,
                    stacklevel=2,
                )

    def close(self) -> None:
        """Give the connection up."""
        self._connection.close()

    def ask(
        self, method: str, path: Sequence[str], body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        """Status 200, the headers and the body of the answer; a busy server is asked again.

        Parameters
        ----------
        method : str
        path : sequence of str
            Its parts, as they are.
        body : bytes
        headers : mapping

        Raises
        ------
        RemoteError
            For another status, or without an answer.
        """
        place = "/".join((self._prefix, *(quote(part, safe="") for part in path)))
        wait = 0.5
        for left in reversed(range(_TRIES)):
            status, said, text = self._once(method, place, body, {**self._headers, **headers})
            if status == 200:
                break
            if status not in (429, 503) or not left:
                raise RemoteError(_reason(self.url, status, text), status)
            asked = said.get("retry-after", "")
            known = asked.isascii() and asked.isdigit() and len(asked) < 6
            self._sleep(min(float(asked) if known else wait, _LONGEST_WAIT))
            wait *= 2
        return status, said, text

    def _once(self, method: str, place: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        kept = self._connection.sock is not None
        try:
            return self._exchange(method, place, body, headers)
        except (http.client.HTTPException, OSError) as error:
            self._connection.close()
            # A server may close a connection that it has kept for a while; nothing is lost.
            if not (kept and isinstance(error, ConnectionError)):
                raise self._unreached(error) from error
        try:
            return self._exchange(method, place, body, headers)
        except (http.client.HTTPException, OSError) as error:
            self._connection.close()
            raise self._unreached(error) from error

    def _exchange(self, method: str, place: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        connection = self._connection
        if connection.sock is None:
            connection.connect()
            connection.sock.settimeout(_ANSWER_SECONDS)  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionError):  # it may refuse before all has arrived: why?
            connection.request(method, place, body or None, dict(headers))
        answer = connection.getresponse()
        text = answer.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            connection.close()
            raise RemoteError(f"the answer of {self.url} is longer than {_MOST_BYTES:,} bytes")
        if answer.length:  # bytes that were promised and did not come
            raise ConnectionError("the answer ended early")
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text

    def _unreached(self, error: Exception) -> RemoteError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return RemoteError(
                f"the certificate of {self.url} is not accepted: {error.verify_message}; give "
                "the file of who signed it, by --ca-file"
            )
        if isinstance(error, ssl.SSLError):
            return RemoteError(f"{self.url} speaks no TLS that is known: {error.reason or error}")
        if isinstance(error, TimeoutError):
            return RemoteError(f"{self.url} does not answer in time; is it the right place?")
        if isinstance(error, OSError):
            reason = error.strerror or str(error) or "the connection was lost"
            cut = isinstance(error, http.client.RemoteDisconnected) and not self.url.startswith(
                "https:"
            )
            also = " If it speaks TLS, its URL begins with https://" if cut else ""
            return RemoteError(
                f"cannot reach {self.url}: {reason}; is a server running there?{also}"
            )
        return RemoteError(
            f"what answers at {self.url} speaks no HTTP: {shown(str(error))}; is it the right "
            "port, and http or https?"
        )


def _place(url: str) -> tuple[bool, str, int | None, str]:
    """Whether with TLS, host, port and path of a URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise SettingError(f"{url!r} is no URL: {error}; give http://host:port") from None
    if parts.scheme not in ("http", "https") or not host or not url.isprintable():
        raise SettingError(f"{url!r} is no URL of a server; give http://host:port, or https://")
    if parts.username is not None or parts.query or parts.fragment:
        raise SettingError(f"{url!r} has more than host, port and path; a token is given in a file")
    return parts.scheme == "https", host, port, quote(parts.path.rstrip("/"), safe="/%")


def _trusting(ca_file: str | Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise SettingError(
            f"{str(ca_file)!r} is no file of certificates: {error.strerror or error}"
        ) from None


def _reason(url: str, status: int, body: bytes) -> str:
    """What the server says of its refusal."""
    try:
        text = json.loads(body)["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        text = None
    if not isinstance(text, str):
        text = f"{url} answered with status {status}"
    if status == 401:
        return f"{text}; give its file by --token-file"
    return text[:2000]
