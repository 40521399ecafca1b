"""The bearer token of a server: read from a file, compared in constant time."""

from __future__ import annotations

import hmac
import logging
import os
import re
import stat
import time
import warnings
from pathlib import Path

from treekit.errors import SettingError, TreekitWarning
from treekit.serve.errors import UnauthorisedError
from treekit.serve.models.loading import Stamp, stamp_of

__all__ = ["Token"]

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
