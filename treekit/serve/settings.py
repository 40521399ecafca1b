"""How one server is to run: plain values, the same for each of its processes and faces."""

from __future__ import annotations

import msgspec

from treekit.errors import SettingError

__all__ = ["Limits", "ServeSettings"]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of one process of a server.

    Attributes
    ----------
    body_bytes : int
        Of a request's body.
    rows : int
        Of one request.
    explained_rows : int
        Of one request that asks for rules or contributions, which Python computes.
    seconds : float
        For the body to arrive, and again for the answer to be computed and taken.
    requests : int
        In the works at once; one more is told to come again.
    """

    body_bytes: int = 16 << 20
    rows: int = 100_000
    explained_rows: int = 100
    seconds: float = 30.0
    requests: int = 256

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise SettingError(f"the limit {name} is {getattr(self, name)}; give more than 0")


class ServeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that ``treekit serve`` is told.

    Attributes
    ----------
    sources : tuple of str
        Model files, and folders of them; see `treekit.serve.models.repository`.
    host, port : str, int
        Where HTTP listens.
    grpc_port : int, optional
        Where gRPC listens, on the same host; None: nowhere.
    workers : int
        Processes that share the port.
    allow_hosts, allow_origins : tuple of str
        Names that requests may be made to, and pages that may make them, besides the
        server's own; see `treekit.serve.http.auth`.  ``*``: any.
    token_file : str, optional
        A file whose one line is the bearer token that every request must bring.
    tls_cert, tls_key : str, optional
        PEM files.
    control : bool
        Whether clients may load and unload models.
    reload_seconds : float
        How often files are looked at; 0: never.
    batch_rows : int
        Rows of small requests that are answered together at most; 0: no batching.
    batch_delay : float
        Seconds that a small request waits for others at most.
    log : {"json", "text", "quiet"}
        Lines on stderr: JSON for programs, text for people, or none for requests.
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
    batch_rows: int = 0
    batch_delay: float = 0.002
    log: str = "text"
    limits: Limits = Limits()
