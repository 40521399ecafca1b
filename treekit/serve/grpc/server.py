"""gRPC server: methods, limits, status codes, startup and shutdown."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar
from urllib.parse import unquote

import grpc
import msgspec
from google.protobuf.message import DecodeError
from grpc import aio

from treekit.data.encoding import Absent
from treekit.errors import SettingError
from treekit.serve.errors import (
    InvalidRequestError,
    NotFoundError,
    ServeError,
    TooSlowError,
    UnavailableError,
    shown,
)
from treekit.serve.grpc.health import ReflectionGate, add_health, add_reflection
from treekit.serve.grpc.messages import (
    SERVICE_NAME,
    add_outputs,
    check_fields,
    decode_tensors,
    get_method_classes,
    get_parameters,
)
from treekit.serve.models.repository import Do
from treekit.serve.protocol.messages import SERVER_METADATA
from treekit.serve.scheduling import MAX_LOOP_BYTES, RequestRecord, Service
from treekit.serve.settings import Limits, ServeSettings

# ---------------------------------------------------------------- server

CheckToken = Callable[[bytes | None], None]
"""Function that raises `UnauthorisedError` for an invalid value of ``authorization``."""

_logger = logging.getLogger("treekit.serve.grpc")

_STATUS_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}

_HEALTH_METHODS = frozenset({"ServerLive", "ServerReady"})
"""Methods called by orchestrators without a token, also if the server is overloaded."""

_MAX_DETAIL_BYTES = 2000
"""Maximum bytes of an error message: a trailer is limited to 8 KiB, and a byte may need three."""

_EXTRA_PARTS, _MAX_FIELDS = 64, 32
"""Inputs and outputs of a message beyond those of a model, and maximum fields of each."""

_MAX_CONNECTION_SECONDS = 300
"""Age at which a connection is closed, so that no client blocks a response forever."""


_RESPONSES = {name: answer for name, (_, answer) in get_method_classes().items()}


class _CallHandler:
    """Handler of the calls of one server.

    Every method is registered as a stream, which is identical on the wire: so the token is
    checked and the time limit starts before the request message has arrived.
    """

    def __init__(
        self, service: Service, check_token: CheckToken | None, note: RecordCall | None
    ) -> None:
        self._service, self._limits, self._working = service, service.limits, service.working
        self._check_token, self._note = check_token, note

    def make_handlers(self) -> Any:
        """Return the generic handler for a grpcio server."""
        handlers = {}
        for name, (request, _) in get_method_classes().items():
            handle = partial(self._handle_call, name, request)
            handlers[name] = grpc.stream_stream_rpc_method_handler(handle)
        return grpc.method_handlers_generic_handler(SERVICE_NAME, handlers)

    async def _handle_call(self, name: str, kind: Any, _: Any, context: Any) -> None:
        """Handle one call, which is in progress until the client has received the response."""
        call = CallRecord(name, _parse_peer(context.peer()), id=secrets.token_hex(8))
        self._working.begin(call)
        try:
            answer = await self._compute_response(name, kind, context, call)
            call.status = 200
            await context.write(answer)
        except ServeError as error:
            call.status, call.error = error.status, _truncate_detail(str(error))
            code = _STATUS_CODES.get(error.status, grpc.StatusCode.UNKNOWN)
            await context.abort(code, call.error)
        except aio.BaseError:  # of the call itself: the client disconnected
            raise
        except Exception:
            _logger.exception("request %s failed", call.id)
            call.status = 500
            call.error = f"internal server error; see the server log for request id {call.id}"
            await context.abort(grpc.StatusCode.INTERNAL, call.error)
        finally:
            self._working.end(call)
            call.seconds = perf_counter() - call.started
            if self._note is not None:
                self._note(call)

    async def _compute_response(
        self, name: str, kind: Any, context: Any, call: CallRecord
    ) -> bytes:
        if name not in _HEALTH_METHODS:
            if self._check_token is not None:
                given = dict(context.invocation_metadata() or ()).get("authorization")
                self._check_token(given.encode() if isinstance(given, str) else given)
            self._working.check_limit(self._limits.requests)
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
        size = len(data)
        try:
            request = await self._service.runner.run_by_size(size, self._decode_message, kind, data)
        except DecodeError as error:
            raise InvalidRequestError(f"the message is not a {name}Request: {error}") from None
        del data
        answer = await self._call_method(name, request, size, call)
        encoded: bytes = answer.SerializeToString()
        return encoded

    def _decode_message(self, kind: Any, data: bytes) -> Any:
        if len(data) > MAX_LOOP_BYTES:
            served = self._service.repository.served
            parts = (own.n_features + len(own.outputs) for own in served)
            check_fields(data, _MAX_FIELDS * (_EXTRA_PARTS + max(parts, default=0)))
        return kind.FromString(data)

    async def _call_method(self, method: str, request: Any, size: int, call: CallRecord) -> Any:
        """Return the response message of a method.

        Raises
        ------
        ServeError
            If the request is invalid or cannot be answered.
        """
        service = self._service
        fields: dict[str, Any] = {}
        match method:
            case "ServerLive":
                fields = {"live": True}
            case "ServerReady":
                fields = {"ready": service.ready}
            case "ServerMetadata":
                fields = msgspec.structs.asdict(SERVER_METADATA)
            case "ModelReady":
                fields = {"ready": self._is_model_ready(request)}
            case "ModelMetadata":
                fields = self._get_metadata(request)
            case "ModelInfer":
                return await self._infer(request, size, call)
            case "ModelConfig":
                config = service.get_config(request.name or None, request.version or None)
                fields = {"config": msgspec.to_builtins(config)}
            case "ModelStatistics":
                found = service.get_statistics(request.name or None, request.version or None)
                fields = msgspec.to_builtins(found)
            case "RepositoryIndex":
                _check_repository(request)
                entries = service.repository.index(ready=request.ready)
                fields = {"models": [msgspec.structs.asdict(entry) for entry in entries]}
            case "RepositoryModelLoad" | "RepositoryModelUnload":
                _check_repository(request)
                service.check_control()
                what: Do = "load" if method == "RepositoryModelLoad" else "unload"
                await service.change_model(what, request.model_name, get_parameters(request))
        return _RESPONSES[method](**fields)

    def _is_model_ready(self, request: Any) -> bool:
        """Report whether a model is served; False if it is unknown, as clients may poll for it."""
        try:
            self._service.repository.get(request.name or None, request.version or None)
        except (NotFoundError, UnavailableError):
            return False
        return True

    def _get_metadata(self, request: Any) -> dict[str, Any]:
        repository = self._service.repository
        served = repository.get(request.name or None, request.version or None)
        return {
            "name": served.name,
            "versions": repository.versions(served.name),
            "platform": served.platform,
            "inputs": [spec._asdict() for spec in served.inputs],
            "outputs": [spec._asdict() for spec in served.outputs],
        }

    async def _infer(self, request: Any, size: int, call: CallRecord) -> Any:
        service = self._service
        name, version = request.model_name or None, request.model_version or None
        served = call.served = service.repository.get(name, version)
        served.check_counts(len(request.inputs), len(request.outputs))
        names = [output.name for output in request.outputs] or None
        given = request, service.limits.rows
        is_missing = get_parameters(request).get("absent") == "missing"
        absent: Absent = "missing" if is_missing else "error"
        outputs = await service.infer(served, names, size, decode_tensors, *given, absent=absent)
        call.record_prediction(served, len(outputs[0].cells))
        answer = _RESPONSES["ModelInfer"](
            model_name=served.name, model_version=served.version, id=request.id
        )
        size = 8 * sum(output.cells.size for output in outputs)
        fill_all = partial(add_outputs, answer, outputs, raw=bool(request.raw_input_contents))
        await service.runner.run_by_size(size, fill_all)
        return answer


def _truncate_detail(text: str) -> str:
    """Truncate an error message to the limit of a trailer."""
    encoded = text.encode(errors="backslashreplace")
    if len(encoded) <= _MAX_DETAIL_BYTES:
        return encoded.decode()
    return encoded[:_MAX_DETAIL_BYTES].decode(errors="ignore") + " ..."


async def start_grpc(
    service: Service,
    settings: ServeSettings,
    check_token: CheckToken | None = None,
    note: RecordCall | None = None,
) -> tuple[aio.Server, int]:
    """Start a gRPC server on the running event loop; return it and its port.

    Parameters
    ----------
    service : Service
    settings : ServeSettings
        Uses host, ``grpc_port`` (0: any free port), TLS, and the number of workers, which share
        the port.
    check_token : callable, optional
        Called with the metadata ``authorization`` of each call, or None.
    note : callable, optional
        Called with each finished `CallRecord`, for metrics and logs.

    Raises
    ------
    SettingError
        If the address cannot be bound, or the certificates are invalid.
    """
    if settings.grpc_port is None:
        raise SettingError("grpc_port is None; give the gRPC port, or 0 for any free port")
    if settings.token_file is not None and check_token is None:
        raise SettingError("token_file requires check_token")
    server = aio.server(
        options=_make_channel_options(service.limits, settings),
        interceptors=() if check_token is None else (ReflectionGate(check_token),),
    )
    server.add_generic_rpc_handlers((_CallHandler(service, check_token, note).make_handlers(),))
    add_health(server, service)
    add_reflection(server)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    place = f"{host}:{settings.grpc_port}"
    try:
        if settings.tls_cert is None or settings.tls_key is None:
            port = server.add_insecure_port(place)
        else:
            pair = Path(settings.tls_key).read_bytes(), Path(settings.tls_cert).read_bytes()
            port = server.add_secure_port(place, grpc.ssl_server_credentials([pair]))
    except RuntimeError as error:
        raise SettingError(
            f"gRPC cannot listen on {place}: {error}; give another port, or a certificate and "
            "a key that match"
        ) from None
    await server.start()
    return server, port


def _make_channel_options(limits: Limits, settings: ServeSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.body_bytes),  # also when decompressed
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", 2 * limits.requests),  # per connection
        ("grpc.max_connection_idle_ms", 1000 * _MAX_CONNECTION_SECONDS),
        ("grpc.max_connection_age_ms", 1000 * _MAX_CONNECTION_SECONDS),
        ("grpc.max_connection_age_grace_ms", int(2000 * limits.seconds)),
        # Otherwise two servers would silently share a port.
        ("grpc.so_reuseport", int(settings.workers > 1)),
    ]


def _check_repository(request: Any) -> None:
    if request.repository_name:
        raise InvalidRequestError(
            f"unknown repository {shown(request.repository_name)}; this server has a single "
            "repository without a name"
        )


# ---------------------------------------------------------------- call records


class CallRecord(RequestRecord, eq=False):
    """Record of one call; its status is the equivalent HTTP status.

    Attributes
    ----------
    method, path : str
        ``gRPC`` and the name of the method.
    client : str
        Address of the client without the port.
    seconds : float
        Duration, once the call has ended.
    """

    method: ClassVar[str] = "gRPC"
    path: str
    client: str
    seconds: float = 0.0


def _parse_peer(peer: str) -> str:
    """Extract the address from a gRPC peer, such as ``ipv6:%5B::1%5D:4711``."""
    return unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]") or peer


RecordCall = Callable[[CallRecord], None]
"""Function called with each finished call."""
