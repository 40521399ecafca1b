"""The server over gRPC: calls within bounds, errors as status codes, start and stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from treekit.errors import SettingError
from treekit.serve.answering.service import Service
from treekit.serve.errors import InvalidRequestError, ServeError, TooSlowError
from treekit.serve.rpc.call import Call, Note
from treekit.serve.rpc.messages import SERVICE, methods
from treekit.serve.rpc.methods import Methods
from treekit.serve.settings import Limits, ServeSettings

__all__ = ["CheckToken", "GrpcServer", "start"]

CheckToken = Callable[[bytes | None], None]
"""Raises `UnauthorisedError` for a value of ``authorization`` that does not do."""

_log = logging.getLogger("treekit.serve.rpc")

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}

_HEALTH = frozenset({"ServerLive", "ServerReady"})
"""Asked by orchestrators, which have no token, most of all when a server is overrun."""

_DETAIL_BYTES = 2000
"""Of a message: a trailer takes 8 KiB, and each byte may become three."""

_CONNECTION_SECONDS = 300
"""Age at which a client is asked to connect anew: nobody holds an answer for ever."""


class _Face:
    """Calls of one server.

    Every method is registered as a stream, which is the same on the wire: so the token is
    checked and the time runs before the request's message has arrived.
    """

    def __init__(self, service: Service, check_token: CheckToken | None, note: Note | None) -> None:
        self._limits = service.limits
        self._check_token, self._note = check_token, note
        self._working = service.working
        self._methods = Methods(service)

    def handlers(self) -> Any:
        """The service, for a server of grpcio."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                name: grpc.stream_stream_rpc_method_handler(partial(self._serve, name, request))
                for name, (request, _) in methods().items()
            },
        )

    async def _serve(self, name: str, kind: Any, _: Any, context: Any) -> None:
        """Answer one call; it is in the works until the client has taken the answer."""
        call = Call(name, context.peer())
        self._working.inc()
        try:
            answer = await self._answer(name, kind, context, call)
            call.status = 200
            await context.write(answer)
        except ServeError as error:
            call.status, call.error = error.status, str(error)
            code = _CODES.get(error.status, grpc.StatusCode.UNKNOWN)
            await context.abort(code, _detail(call.error))
        except aio.BaseError:  # of the call itself: the client went
            raise
        except Exception:  # noqa: BLE001 - a client learns nothing of what is inside
            _log.exception("request %s failed", call.id)
            call.status = 500
            call.error = f"an error inside the server; its log has it as request {call.id}"
            await context.abort(grpc.StatusCode.INTERNAL, call.error)
        finally:
            self._working.dec()
            call.seconds = perf_counter() - call.seconds
            if self._note is not None:
                self._note(call)

    async def _answer(self, name: str, kind: Any, context: Any, call: Call) -> bytes:
        if name not in _HEALTH:
            if self._check_token is not None:
                self._check_token(_authorization(context))
            self._working.check(self._limits.requests)
        try:
            async with asyncio.timeout(self._limits.seconds):
                data = await context.read()
        except TimeoutError:
            raise TooSlowError(
                f"the message did not arrive within {self._limits.seconds:g} s; send it faster, "
                "or in parts"
            ) from None
        if not isinstance(data, bytes):
            raise InvalidRequestError("the call ended without a message")
        try:
            request = kind.FromString(data)
        except DecodeError as error:
            raise InvalidRequestError(f"the message is no {name}Request: {error}") from None
        answer = await self._methods[name](request)
        if name == "ModelInfer":
            call.answered(answer)
        said: bytes = answer.SerializeToString()
        return said


def _authorization(context: Any) -> bytes | None:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            return value if isinstance(value, bytes) else value.encode()
    return None


def _detail(text: str) -> str:
    """A message as short as a trailer has to be."""
    said = text.encode(errors="backslashreplace")
    if len(said) <= _DETAIL_BYTES:
        return said.decode()
    return said[:_DETAIL_BYTES].decode(errors="ignore") + " ..."


class GrpcServer:
    """A server that has been started.

    Attributes
    ----------
    port : int
    """

    def __init__(self, server: Any, port: int) -> None:
        self._server, self.port = server, port

    async def stop(self, grace: float) -> None:
        """Take no more calls, and end those in the works in `grace` seconds at the latest."""
        await self._server.stop(grace)


async def start(
    service: Service, settings: ServeSettings, check_token: CheckToken | None, note: Note | None
) -> GrpcServer:
    """Listen; see `treekit.serve.rpc.start_grpc`."""
    if settings.grpc_port is None:
        raise SettingError("grpc_port is None; give the port where gRPC is to listen, or 0")
    if settings.token_file is not None and check_token is None:
        raise SettingError("there is a token file and nothing that checks tokens")
    server = aio.server(options=_options(service.limits, settings))
    server.add_generic_rpc_handlers((_Face(service, check_token, note).handlers(),))
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    place = f"{host}:{settings.grpc_port}"
    credentials = _credentials(settings)
    try:
        if credentials is None:
            port = server.add_insecure_port(place)
        else:
            port = server.add_secure_port(place, credentials)
    except RuntimeError as error:
        raise SettingError(
            f"gRPC cannot listen on {place}: {error}; give another port, or certificate and key "
            "that belong together"
        ) from None
    await server.start()
    return GrpcServer(server, port)


def _options(limits: Limits, settings: ServeSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.body_bytes),  # also when decompressed
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", 2 * limits.requests),  # of one connection
        ("grpc.max_connection_idle_ms", 1000 * _CONNECTION_SECONDS),
        ("grpc.max_connection_age_ms", 1000 * _CONNECTION_SECONDS),
        ("grpc.max_connection_age_grace_ms", int(2000 * limits.seconds)),
        # Two servers would share a port in silence.
        ("grpc.so_reuseport", int(settings.workers > 1)),
    ]


def _credentials(settings: ServeSettings) -> Any:
    """TLS as HTTP has it; None: without."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    pair = Path(settings.tls_key).read_bytes(), Path(settings.tls_cert).read_bytes()
    return grpc.ssl_server_credentials([pair])
