"""HTTP endpoints of the Open Inference Protocol v2.

https://github.com/kserve/open-inference-protocol, ``specification/protocol/inference_rest.md``;
binary tensors (`treekit.serve.protocol.tensor_data`) and the model repository are extensions by
Triton.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from treekit.errors import TreekitError
from treekit.serve.errors import (
    ForbiddenError,
    InvalidRequestError,
    ServeError,
    UnavailableError,
    shown,
)
from treekit.serve.http import Endpoint, Reply, json_reply, read_body
from treekit.serve.http.metrics import note_answer
from treekit.serve.models.served_model import Served
from treekit.serve.protocol.messages import (
    answer_of,
    malformed,
    model_metadata,
    read_request,
    server_metadata,
    tensors_of,
)
from treekit.serve.protocol.tensor_data import LENGTH_HEADER
from treekit.serve.scheduling import Service

__all__ = [
    "Direct",
    "control_routes",
    "oip_routes",
]


# ---------------------------------------------------------------- oip

_BYTES = b"application/octet-stream"


class _Oip:
    """Protocol endpoints of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def _served(self, scope: Scope) -> Served:
        parameters = scope["path_params"]
        return self._service.repository.get(parameters.get("name"), parameters.get("version"))

    async def infer(self, scope: Scope, receive: Receive) -> Reply:
        """Answer an inference request."""
        served = self._served(scope)
        body = await read_body(scope, receive, self._service.limits)
        length = _length(scope)
        if length is None and "treekit.tried" not in scope:
            quick = self._service.infer_quick(served, body)
            if quick is not None:
                note_answer(scope, served, quick.rows)
                return Reply(quick.body)
        service, size = self._service, len(body)
        request, rest = await service.runner.sized(size, read_request, body, length)
        given = request, rest, service.limits.rows
        outputs = await service.infer(served, request.names, size, tensors_of, *given)
        note_answer(scope, served, len(outputs[0].cells))
        size = 8 * sum(output.cells.size for output in outputs)
        answer, head = await service.runner.sized(size, answer_of, served, request, outputs)
        if head is None:
            return Reply(answer)
        return Reply(answer, media=_BYTES, headers=((LENGTH_HEADER, b"%d" % head),))

    async def live(self, scope: Scope, receive: Receive) -> Reply:
        """Report that the process is alive."""
        del scope, receive
        return json_reply({"live": True})

    async def ready(self, scope: Scope, receive: Receive) -> Reply:
        """Report whether all models are served."""
        del scope, receive
        ready = self._service.ready
        # $ready_server_response of the specification has "live", probably by mistake.
        return json_reply({"live": True, "ready": ready}, 200 if ready else 503)

    async def server(self, scope: Scope, receive: Receive) -> Reply:
        """Describe the server."""
        del scope, receive
        return json_reply(server_metadata())

    async def model(self, scope: Scope, receive: Receive) -> Reply:
        """Describe a model."""
        del receive
        served = self._served(scope)
        versions = self._service.repository.versions(served.name)
        return json_reply(model_metadata(served, versions))

    async def model_ready(self, scope: Scope, receive: Receive) -> Reply:
        """Report whether a model is served."""
        del receive
        try:
            name = self._served(scope).name
        except UnavailableError:
            return json_reply({"name": scope["path_params"]["name"], "ready": False}, 503)
        return json_reply({"name": name, "ready": True})


def _length(scope: Scope) -> bytes | None:
    """Return the header with the length of the JSON, or None."""
    found = [value for key, value in scope["headers"] if key == LENGTH_HEADER]
    if len(found) > 1:
        raise InvalidRequestError("duplicate header Inference-Header-Content-Length; give it once")
    return found[0] if found else None


def oip_routes(service: Service) -> list[Route]:
    """Return the routes of the protocol, the most frequent first."""
    oip = _Oip(service)
    routes = []
    for place in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        routes += [
            Route(f"{place}/infer", Endpoint(oip.infer), methods=["POST"]),
            Route(f"{place}/ready", Endpoint(oip.model_ready), methods=["GET"]),
            Route(place, Endpoint(oip.model), methods=["GET"]),
        ]
    return [
        *routes,
        Route("/v2/health/live", Endpoint(oip.live), methods=["GET"]),
        Route("/v2/health/ready", Endpoint(oip.ready), methods=["GET"]),
        Route("/v2", Endpoint(oip.server), methods=["GET"]),
        Route("/v2/", Endpoint(oip.server), methods=["GET"]),  # as in the protocol's OpenAPI file
    ]


class Direct:
    """Dispatcher of inference requests directly to their endpoint, and of others to a router.

    Starlette matches the regular expression of each route, copies the scope and wraps the
    endpoint, which takes a fifth of the time of a request with one row (measured).

    Parameters
    ----------
    service : Service
    others : ASGI application
        Router, which also has the inference paths, for paths in other spellings.
    """

    def __init__(self, service: Service, others: ASGIApp) -> None:
        self._service, self._others = service, others
        self._infer = Endpoint(_Oip(service).infer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http" and scope["method"] == "POST" and not scope.get("root_path"):
            path_params = _asked(scope["path"])
            if path_params is not None:
                scope["path_params"] = path_params
                await self._infer(scope, receive, send)
                return
        await self._others(scope, receive, send)

    def at_once(self, scope: Scope, body: bytes) -> Reply | None:
        """Return the response to a POST with a complete body, or None if waiting is needed.

        Raises
        ------
        ServeError
            If the model is not served.
        """
        service, path_params = self._service, _asked(scope["path"])
        if path_params is None or service.closing or len(body) > service.limits.body_bytes:
            return None
        for name, _ in scope["headers"]:
            if name in _OF_OTHER_BODIES:
                return None
        served = service.repository.get(path_params["name"], path_params.get("version"))
        scope["treekit.tried"] = True
        quick = service.infer_quick(served, body)
        if quick is None:
            return None
        note_answer(scope, served, quick.rows)
        return Reply(quick.body)


def _asked(path: str) -> dict[str, str] | None:
    """Parse the name and version in the path of an inference request."""
    parts = path.split("/")
    if parts[-1] != "infer" or parts[:3] != _MODELS or "" in parts[3:]:
        return None
    if len(parts) == 5:
        return {"name": parts[3]}
    if len(parts) == 7 and parts[4] == "versions":
        return {"name": parts[3], "version": parts[5]}
    return None


_MODELS = ["", "v2", "models"]
_OF_OTHER_BODIES = frozenset({b"content-encoding", LENGTH_HEADER})
"""Headers of a body that is not plain JSON."""


# ---------------------------------------------------------------- model repository
# Triton's extension.
#
# https://github.com/triton-inference-server/server,
# ``docs/protocol/extension_model_repository.md``


class _IndexRequest(msgspec.Struct):
    ready: bool = False


class _ControlRequest(msgspec.Struct):
    parameters: dict[str, bool | int | float | str | None] = {}


_index = msgspec.json.Decoder(_IndexRequest)
_control = msgspec.json.Decoder(_ControlRequest)


class _Control:
    """Model repository endpoints of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def index(self, scope: Scope, receive: Receive) -> Reply:
        """List the models and their states."""
        request = await self._asked(_index, scope, receive)
        ready = request is not None and request.ready
        return json_reply(
            [
                entry._asdict()
                for entry in self._service.repository.index()
                if entry.state == "READY" or not ready
            ]
        )

    async def _asked(self, decoder: Any, scope: Scope, receive: Receive) -> Any:
        runner = self._service.runner
        body = await read_body(scope, receive, runner.limits)
        return await runner.sized(len(body), _read, decoder, body)

    async def load(self, scope: Scope, receive: Receive) -> Reply:
        """Load or reload a model."""
        return await self._change(scope, receive, self._service.repository.load)

    async def unload(self, scope: Scope, receive: Receive) -> Reply:
        """Unload a model."""
        return await self._change(scope, receive, self._service.repository.unload)

    async def _change(self, scope: Scope, receive: Receive, change: Callable[[str], Any]) -> Reply:
        name = scope["path_params"]["name"]
        if not self._service.control:
            raise ForbiddenError(
                "loading and unloading models by requests is disabled; start the server with "
                "--control"
            )
        request = await self._asked(_control, scope, receive)
        _check(request.parameters if request else {})
        try:
            await asyncio.to_thread(change, name)
        except ServeError:
            raise
        except (TreekitError, OSError) as error:
            raise UnavailableError(f"model {name!r} was not changed: {error}") from error
        return json_reply({"name": name, "versions": self._service.repository.versions(name)})


def _check(parameters: dict[str, bool | int | float | str | None]) -> None:
    """Reject parameters that would change the model; unload_dependents has no effect."""
    for name, value in parameters.items():
        if name == "config" or name.startswith("file:"):
            raise InvalidRequestError(
                f"unsupported parameter {shown(name)}: models are loaded from the server's files "
                "without changes; leave it out"
            )
        if name == "unload_dependents" and not isinstance(value, bool):
            raise InvalidRequestError(
                f"the parameter {name!r} must be true or false, got {shown(value)}"
            )


def _read(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """Decode the object in a body, or None if the body is empty."""
    if not body:
        return None
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise malformed(body, error, "request to the model repository") from None


def control_routes(service: Service) -> list[Route]:
    """Return the routes of the extension."""
    control = _Control(service)
    model = "/v2/repository/models/{name}"
    return [
        Route("/v2/repository/index", Endpoint(control.index), methods=["POST"]),
        Route(f"{model}/load", Endpoint(control.load), methods=["POST"]),
        Route(f"{model}/unload", Endpoint(control.unload), methods=["POST"]),
    ]
