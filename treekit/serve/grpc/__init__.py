"""The Open Inference Protocol v2 over gRPC; extra ``treekit-ml[grpc]``.

| module | contents |
|---|---|
| `messages`, ``inference.proto`` | the protocol's messages and their tensors |
| `describe` | compiles the .proto file to the included ``inference.binpb`` |
| `server` | methods, limits, status codes, metrics; startup and shutdown |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treekit.errors import MissingExtraError

if TYPE_CHECKING:
    from treekit.serve.grpc.server import CheckToken, GrpcServer, RecordCall
    from treekit.serve.scheduling import Service
    from treekit.serve.settings import ServeSettings

__all__ = [
    "start_grpc",
]


async def start_grpc(
    service: Service,
    settings: ServeSettings,
    check_token: CheckToken | None = None,
    note: RecordCall | None = None,
) -> GrpcServer:
    """Start a gRPC server on the running event loop.

    Parameters
    ----------
    service : Service
    settings : ServeSettings
        Uses host, ``grpc_port`` (0: any free port), TLS, and the number of workers, which share
        the port.
    check_token : callable, optional
        Called with the metadata ``authorization`` of each call, or None.
    note : callable, optional
        Called with each finished `treekit.serve.grpc.server.CallRecord`, for metrics and logs.

    Returns
    -------
    GrpcServer
        Running server with ``port`` and ``await stop(grace)``.

    Raises
    ------
    MissingExtraError
        If grpcio is not installed.
    SettingError
        If the address cannot be bound, or the certificates are invalid.
    """
    try:
        import grpc  # noqa: F401 - whether it is there
    except ImportError as error:
        raise MissingExtraError("grpcio", "grpc") from error
    from treekit.serve.grpc.server import start_server

    return await start_server(service, settings, check_token, note)
