"""``grpc.health.v1`` for probes and load balancers, and server reflection for tools.

https://github.com/grpc/grpc, ``doc/health-checking.md`` and ``doc/server-reflection.md``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from treekit.serve.errors import UnauthorisedError
from treekit.serve.grpc.messages import POOL, SERVICE_NAME
from treekit.serve.scheduling import Service

_WATCH_SECONDS = 0.25
"""Seconds between two looks at the state of the server for a client that watches it."""

_REFLECTION_PREFIX = f"/{reflection.SERVICE_NAME}/"

for _file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
    POOL.AddSerializedFile(_file.serialized_pb)

# ---------------------------------------------------------------- health


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Report whether the server is ready, as ``/v2/health/ready`` does; without a token.

    Known are the names "", of the whole server, and that of the inference service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def _find_status(self, name: str) -> int | None:
        """Return the status of a service; None if it is unknown."""
        if name not in ("", SERVICE_NAME):
            return None
        serving = health_pb2.HealthCheckResponse
        return int(serving.SERVING if self._service.ready else serving.NOT_SERVING)

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - of the protocol
        """Return the status of a service."""
        status = self._find_status(request.service)
        if status is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"there is no service {request.service[:80]!r}; ask for {SERVICE_NAME!r}, or for "
                "'', the whole server",
            )
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Yield the status of a service, and again when it changes, until the server closes."""
        del context
        known, told = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN, None
        while True:
            status = self._find_status(request.service)
            status = known if status is None else status
            if status != told:
                told = status
                yield health_pb2.HealthCheckResponse(status=status)
            if self._service.closing:
                return
            await asyncio.sleep(_WATCH_SECONDS)


def add_health(server: aio.Server, service: Service) -> None:
    """Add ``grpc.health.v1.Health`` to a server."""
    health_pb2_grpc.add_HealthServicer_to_server(HealthServicer(service), server)


# ---------------------------------------------------------------- reflection


def add_reflection(server: aio.Server) -> None:
    """Let tools such as grpcurl list the services and their messages."""
    names = (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server, pool=POOL)


class ReflectionGate(aio.ServerInterceptor):  # type: ignore[misc]
    """Require the token of the server for reflection.

    Parameters
    ----------
    check_token : callable
        Raises `UnauthorisedError` for an invalid value of ``authorization``.
    """

    def __init__(self, check_token: Callable[[bytes | None], None]) -> None:
        self._check_token = check_token

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Return the handler of a call, or one that refuses it."""
        if details.method.startswith(_REFLECTION_PREFIX):
            given = dict(details.invocation_metadata or ()).get("authorization")
            try:
                self._check_token(given.encode() if isinstance(given, str) else given)
            except UnauthorisedError as error:
                return _make_refusal(str(error))
        return await continuation(details)


def _make_refusal(text: str) -> Any:
    async def refuse(_: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, text)

    return grpc.stream_stream_rpc_method_handler(refuse)
