"""What is looked at before a server starts, so that a mistake is told at once and in words."""

from __future__ import annotations

import importlib.util
import socket
import ssl
from pathlib import Path

from treekit.errors import DataError, MissingExtraError, ModelFileNotFoundError, SettingError
from treekit.serve.models.places import Places
from treekit.serve.settings import ServeSettings

__all__ = ["check_settings", "make_tls"]


def check_settings(settings: ServeSettings) -> None:
    """Refuse settings with which no server can start.

    Raises
    ------
    SettingError
        For settings that contradict each other, and files of TLS that cannot be used.
    DataError, ModelFileNotFoundError
        For sources that are not there, are no models, or are of one name.
    MissingExtraError
        Without the libraries of the extras ``serve`` and ``grpc``.
    """
    _check_libraries(settings)
    _check_place(settings)
    _check_sources(settings)
    make_tls(settings)


def _check_libraries(settings: ServeSettings) -> None:
    for library in ("starlette", "uvicorn", "httptools", "prometheus_client"):
        if importlib.util.find_spec(library) is None:
            raise MissingExtraError(library, "serve")
    if settings.grpc_port is not None and importlib.util.find_spec("grpc") is None:
        raise MissingExtraError("grpcio", "grpc")


def _check_place(settings: ServeSettings) -> None:
    if not settings.host:
        raise SettingError(
            "the host is empty; give an address, 127.0.0.1 for programs on this machine alone"
        )
    if settings.workers < 1:
        raise SettingError(f"the server has {settings.workers} workers; give 1 or more")
    if settings.grpc_port is not None:
        if settings.grpc_port == settings.port != 0:
            raise SettingError(
                f"HTTP and gRPC are both to listen on port {settings.port}; give two"
            )
        if settings.workers > 1 and not hasattr(socket, "SO_REUSEPORT"):
            raise SettingError(
                "workers cannot share a port for gRPC on this system; give one worker"
            )


def _check_sources(settings: ServeSettings) -> None:
    if not settings.sources:
        raise SettingError("there is nothing to serve; give model files, or folders of them")
    for source in settings.sources:
        if not Path(source).exists():
            raise ModelFileNotFoundError(f"there is no model file or folder {source!r}")
    found, troubles = Places([Path(source) for source in settings.sources]).look()
    if troubles:
        raise troubles[0]
    if not found and not settings.reload_seconds and not settings.control:
        raise DataError(
            f"there is no model in {', '.join(map(repr, settings.sources))}, and nothing would "
            "load one that comes later: put one there, or leave --reload as it is"
        )


def make_tls(settings: ServeSettings) -> ssl.SSLContext | None:
    """The context of a server's certificate; None without one.

    Raises
    ------
    SettingError
        If a file is not there, not what it should be, or the two do not belong together.
    """
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        given, other = ("key", "--tls-cert") if cert is None else ("certificate", "--tls-key")
        raise SettingError(f"there is a TLS {given} alone; give {other}, too")
    for path in (cert, key):
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise SettingError(f"cannot read {path!r}: {error.strerror or error}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=lambda: "")
    except ssl.SSLError as error:
        why = error.reason or str(error)
        raise SettingError(
            f"{cert!r} and {key!r} are no certificate and its key ({why}): give PEM files that "
            "belong together, and a key that is not encrypted"
        ) from None
    return context
