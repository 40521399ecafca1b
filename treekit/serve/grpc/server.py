"""The server over gRPC: calls within bounds, errors as status codes, start and stop."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from treekit.errors import SettingError, TreekitError
from treekit.serve.errors import (
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    ServeError,
    TooSlowError,
    UnavailableError,
    shown,
)
from treekit.serve.grpc.messages import SERVICE, fill, methods, refuse_parameters, tensors_of
from treekit.serve.models.repository import Change
from treekit.serve.protocol.messages import server_metadata
from treekit.serve.scheduling import Service
from treekit.serve.settings import Limits, ServeSettings

__all__ = [
    "Call",
    "CheckToken",
    "GrpcServer",
    "Methods",
    "Note",
    "start",
]


# ---------------------------------------------------------------- server

CheckToken = Callable[[bytes | None], None]
"""Raises `UnauthorisedError` for a value of ``authorization`` that does not do."""

_log = logging.getLogger("treekit.serve.grpc")

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
    """Listen; see `treekit.serve.grpc.start_grpc`."""
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


# ---------------------------------------------------------------- methods
# What each method of the service does: messages to the core, and its answers back.

_ANSWERS = {name: answer for name, (_, answer) in methods().items()}


def _new(method: str, /, **fields: Any) -> Any:
    """The answer of a method."""
    return _ANSWERS[method](**fields)


class Methods:
    """The methods on one service: each takes the request's message and gives the answer's."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __getitem__(self, name: str) -> Callable[[Any], Awaitable[Any]]:
        """The method of this name."""
        known: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server,
            "ModelMetadata": self._model,
            "ModelInfer": self._infer,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }
        return known[name]

    async def _live(self, request: Any) -> Any:
        del request
        return _new("ServerLive", live=True)

    async def _ready(self, request: Any) -> Any:
        del request
        return _new("ServerReady", ready=self._service.ready)

    async def _model_ready(self, request: Any) -> Any:
        """Also of a model that is not there: who waits for one asks again."""
        try:
            self._service.repository.get(request.name or None, request.version or None)
        except (NotFoundError, UnavailableError):
            return _new("ModelReady", ready=False)
        return _new("ModelReady", ready=True)

    async def _server(self, request: Any) -> Any:
        del request
        return _new("ServerMetadata", **server_metadata())

    async def _model(self, request: Any) -> Any:
        repository = self._service.repository
        served = repository.get(request.name or None, request.version or None)
        return _new(
            "ModelMetadata",
            name=served.name,
            versions=repository.versions(served.name),
            platform=served.platform,
            inputs=[spec._asdict() for spec in served.inputs],
            outputs=[spec._asdict() for spec in served.outputs],
        )

    async def _infer(self, request: Any) -> Any:
        served = self._service.repository.get(
            request.model_name or None, request.model_version or None
        )
        names = [output.name for output in request.outputs] or None
        for output in request.outputs:
            refuse_parameters(f"output {shown(output.name)}", output.parameters)
        service = self._service
        given = request, service.limits.rows
        outputs = await service.infer(served, names, request.ByteSize(), tensors_of, *given)
        answer = _new(
            "ModelInfer", model_name=served.name, model_version=served.version, id=request.id
        )
        size = 8 * sum(output.cells.size for output in outputs)
        fill_all = partial(fill, answer, outputs, raw=bool(request.raw_input_contents))
        await service.runner.sized(size, fill_all)
        return answer

    async def _index(self, request: Any) -> Any:
        self._check_repository(request)
        entries = self._service.repository.index()
        return _new(
            "RepositoryIndex",
            models=[
                entry._asdict() for entry in entries if entry.state == "READY" or not request.ready
            ],
        )

    async def _load(self, request: Any) -> Any:
        await self._alter(request, self._service.repository.load)
        return _new("RepositoryModelLoad")

    async def _unload(self, request: Any) -> Any:
        await self._alter(request, self._service.repository.unload)
        return _new("RepositoryModelUnload")

    async def _alter(self, request: Any, do: Callable[[str], list[Change]]) -> None:
        self._check_repository(request)
        if not self._service.control:
            raise ForbiddenError(
                "models are loaded and unloaded by requests only where the server was started "
                "with --control"
            )
        for key in request.parameters:
            if key != "unload_dependents":  # there are none
                raise InvalidRequestError(
                    f"this server has no parameter {shown(key)}: a model is what its file says"
                )
        try:
            await asyncio.to_thread(do, request.model_name)
        except ServeError:
            raise
        except (TreekitError, OSError) as error:  # of files: two of one name, say
            name = shown(request.model_name)
            raise UnavailableError(f"model {name} was not changed: {error}") from error

    @staticmethod
    def _check_repository(request: Any) -> None:
        if request.repository_name:
            raise InvalidRequestError(
                f"there is no repository {shown(request.repository_name)}; this server has one, "
                "without a name"
            )


# ---------------------------------------------------------------- call
# What is known of one call, for metrics and logs.


class Call:
    """One call, as metrics and logs are told of it; the names are those of HTTP's record.

    Attributes
    ----------
    id : str
        16 hexadecimal digits.
    method, path : str
        ``gRPC``, and the method's name.
    client : str
        Its address, without the port.
    status : int
        HTTP's for the same; 0 where the client went before it was answered.
    model, version, rows : str, str, int
        What answered, and of how much; empty and 0 where no model did.
    error : str
        The message of a refusal.
    seconds : float
    """

    status = rows = 0
    model = version = error = ""
    method = "gRPC"

    def __init__(self, path: str, peer: str) -> None:
        self.id, self.path, self.client = secrets.token_hex(8), path, _address(peer)
        self.seconds = perf_counter()

    def answered(self, answer: Any) -> None:
        """Take what a ``ModelInferResponse`` tells."""
        self.model, self.version = answer.model_name, answer.model_version
        self.rows = answer.outputs[0].shape[0] if answer.outputs else 0


def _address(peer: str) -> str:
    """The address in what gRPC says of a client, such as ``ipv6:%5B::1%5D:4711``."""
    return unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]") or peer


Note = Callable[[Call], None]
"""Told of each call that has ended."""
