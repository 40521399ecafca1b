"""The Open Inference Protocol v2 over gRPC; extra ``treekit-ml[grpc]``.

| module | holds |
|---|---|
| `messages`, ``inference.proto`` | the protocol's messages and their tensors |
| `describe` | makes ``inference.binpb``, which ships, from the .proto |
| `server` | methods, limits, status codes, metrics; start and stop |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treekit.errors import MissingExtraError

if TYPE_CHECKING:
    from treekit.serve.grpc.server import CheckToken, GrpcServer, Note
    from treekit.serve.scheduling import Service
    from treekit.serve.settings import ServeSettings

__all__ = [
    "start_grpc",
]


async def start_grpc(
    service: Service,
    settings: ServeSettings,
    check_token: CheckToken | None = None,
    note: Note | None = None,
) -> GrpcServer:
    """Answer over gRPC, on the event loop that runs.

    Parameters
    ----------
    service : Service
    settings : ServeSettings
        Of it: host, ``grpc_port`` (0: any that is free), TLS, and whether workers share the port.
    check_token : callable, optional
        Called with the metadata ``authorization`` of each call, or None.
    note : callable, optional
        Told of each call that has ended (`treekit.serve.grpc.server.Call`): for metrics and logs.

    Returns
    -------
    GrpcServer
        With ``port`` and ``await stop(grace)``.

    Raises
    ------
    MissingExtraError
        Without grpcio.
    SettingError
        For a place that cannot be listened on, or certificates that cannot be used.
    """
    try:
        import grpc  # noqa: F401 - whether it is there
    except ImportError as error:
        raise MissingExtraError("grpcio", "grpc") from error
    from treekit.serve.grpc.server import start

    return await start(service, settings, check_token, note)
