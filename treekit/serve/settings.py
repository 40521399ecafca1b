"""Settings of a server, shared by its processes and transports."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from treekit.errors import SettingError

__all__ = ["Limits", "ServeSettings"]

_MAX_TOKEN_BYTES = 4096
_TOKEN_PATTERN = re.compile(rb"[A-Za-z0-9._~+/=-]+")
"""Characters of RFC 6750, section 2.1, all valid in a header."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one server process.

    Attributes
    ----------
    body_bytes : int
        Maximum size of a request body.
    rows : int
        Maximum rows per request.
    explained_rows : int
        Maximum rows per request for rules or contributions, which are computed in Python.
    seconds : float
        Time limit for receiving the body, and again for computing and sending the response.
    requests : int
        Maximum concurrent requests; further requests are rejected with a retry hint.
    """

    body_bytes: int = 16 << 20
    rows: int = 100_000
    explained_rows: int = 100
    seconds: float = 30.0
    requests: int = 256

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise SettingError(f"limit {name} must be > 0, got {getattr(self, name)}")


class ServeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of ``treekit serve``.

    Attributes
    ----------
    sources : tuple of str
        Model files and folders of model files; see `treekit.serve.models.repository`.
    host, port : str, int
        HTTP host and port.
    grpc_port : int, optional
        gRPC port on the same host; None disables gRPC.
    workers : int
        Number of processes that share the port.
    allow_hosts, allow_origins : tuple of str
        Host names and page origins accepted in addition to the server's own; see
        `treekit.serve.http.auth`.  ``*`` accepts any.
    token_file : str, optional
        File with one line: the bearer token required in every request.
    tls_cert, tls_key : str, optional
        PEM files of the TLS certificate and key.
    control : bool
        Whether clients may load and unload models.
    reload_seconds : float
        Interval between checks of the model files; 0 disables reloading.
    log : {"json", "text", "quiet"}
        Log format on stderr; ``quiet`` omits requests.
    limits : Limits
    """

    sources: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    grpc_port: int | None = None
    workers: int = 1
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    token_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    control: bool = False
    reload_seconds: float = 1.0
    log: str = "text"
    limits: Limits = Limits()


def read_token(path: str | Path) -> bytes:
    """Read the bearer token in a file with one line.

    Raises
    ------
    SettingError
        If the file cannot be read or does not contain a token.
    """
    try:
        with Path(path).open("rb") as stream:
            line = stream.read(_MAX_TOKEN_BYTES + 1)
    except OSError as error:
        raise SettingError(
            f"cannot read the token file {str(path)!r}: {error.strerror or error}"
        ) from error
    token = line.rstrip(b"\r\n")
    if len(line) > _MAX_TOKEN_BYTES or not _TOKEN_PATTERN.fullmatch(token):
        raise SettingError(
            f"the token file {str(path)!r} does not contain a valid token; give one line of "
            "letters, digits and ._~+/=-, such as from: openssl rand -hex 32"
        )
    return token
