"""HTTP endpoints of the Open Inference Protocol v2.

https://github.com/kserve/open-inference-protocol, ``specification/protocol/inference_rest.md``;
binary tensors (`treekit.serve.protocol.tensor_data`) and the model repository are extensions by
Triton.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from treekit.errors import TreekitError
from treekit.serve.errors import (
    ForbiddenError,
    InvalidRequestError,
    ServeError,
    UnavailableError,
    shown,
)
from treekit.serve.http import (
    Receive,
    Reply,
    Route,
    Scope,
    make_json_reply,
    read_body,
    record_prediction,
)
from treekit.serve.models.served_model import Served
from treekit.serve.protocol.messages import (
    decode_tensors,
    encode_response,
    get_model_metadata,
    get_server_metadata,
    malformed_body_error,
    read_request,
)
from treekit.serve.protocol.tensor_data import LENGTH_HEADER
from treekit.serve.scheduling import Service

# ---------------------------------------------------------------- oip

_BYTES_TYPE = b"application/octet-stream"


class _ProtocolEndpoints:
    """Protocol endpoints of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def _get_served(self, scope: Scope) -> Served:
        parameters = scope["path_params"]
        return self._service.repository.get(parameters.get("name"), parameters.get("version"))

    async def infer(self, scope: Scope, receive: Receive) -> Reply:
        """Answer an inference request."""
        served = self._get_served(scope)
        body = await read_body(scope, receive, self._service.limits)
        length = _get_json_length(scope)
        if length is None:
            quick = self._service.infer_quick(served, body)
            if quick is not None:
                record_prediction(scope, served, quick.rows)
                return Reply(quick.body)
        service, size = self._service, len(body)
        request, rest = await service.runner.run_by_size(size, read_request, body, length)
        given = request, rest, service.limits.rows
        outputs = await service.infer(served, request.output_names, size, decode_tensors, *given)
        record_prediction(scope, served, len(outputs[0].cells))
        size = 8 * sum(output.cells.size for output in outputs)
        answer, head = await service.runner.run_by_size(
            size, encode_response, served, request, outputs
        )
        if head is None:
            return Reply(answer)
        return Reply(answer, media=_BYTES_TYPE, headers=((LENGTH_HEADER, b"%d" % head),))

    async def server_live(self, scope: Scope, receive: Receive) -> Reply:
        """Report that the process is alive."""
        del scope, receive
        return make_json_reply({"live": True})

    async def server_ready(self, scope: Scope, receive: Receive) -> Reply:
        """Report whether all models are served."""
        del scope, receive
        ready = self._service.ready
        # $ready_server_response of the specification has "live", probably by mistake.
        return make_json_reply({"live": True, "ready": ready}, 200 if ready else 503)

    async def server_metadata(self, scope: Scope, receive: Receive) -> Reply:
        """Describe the server."""
        del scope, receive
        return make_json_reply(get_server_metadata())

    async def model_metadata(self, scope: Scope, receive: Receive) -> Reply:
        """Describe a model."""
        del receive
        served = self._get_served(scope)
        versions = self._service.repository.versions(served.name)
        return make_json_reply(get_model_metadata(served, versions))

    async def model_ready(self, scope: Scope, receive: Receive) -> Reply:
        """Report whether a model is served."""
        del receive
        try:
            name = self._get_served(scope).name
        except UnavailableError:
            return make_json_reply({"name": scope["path_params"]["name"], "ready": False}, 503)
        return make_json_reply({"name": name, "ready": True})


def _get_json_length(scope: Scope) -> bytes | None:
    """Return the value of the header Inference-Header-Content-Length; None if it is absent."""
    length: bytes | None = scope["treekit"].headers.get(LENGTH_HEADER)
    if length is not None and sum(name == LENGTH_HEADER for name, _ in scope["headers"]) > 1:
        raise InvalidRequestError("duplicate header Inference-Header-Content-Length; give it once")
    return length


def list_protocol_routes(service: Service) -> list[Route]:
    """Return the routes of the protocol, the most frequent first."""
    oip = _ProtocolEndpoints(service)
    routes = []
    for place in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        routes += [
            Route("POST", f"{place}/infer", oip.infer, "infer"),
            Route("GET", f"{place}/ready", oip.model_ready, "ready"),
            Route("GET", place, oip.model_metadata, "model"),
        ]
    return [
        *routes,
        Route("GET", "/v2/health/live", oip.server_live, "health"),
        Route("GET", "/v2/health/ready", oip.server_ready, "health"),
        Route("GET", "/v2", oip.server_metadata, "server"),
        Route("GET", "/v2/", oip.server_metadata, "server"),  # as in the protocol's OpenAPI file
    ]


# ---------------------------------------------------------------- model repository
# Triton's extension.
#
# https://github.com/triton-inference-server/server,
# ``docs/protocol/extension_model_repository.md``


class _IndexRequest(msgspec.Struct):
    ready: bool = False


class _ControlRequest(msgspec.Struct):
    parameters: dict[str, bool | int | float | str | None] = {}


_index_decoder = msgspec.json.Decoder(_IndexRequest)
_control_decoder = msgspec.json.Decoder(_ControlRequest)


class _RepositoryEndpoints:
    """Model repository endpoints of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def list_models(self, scope: Scope, receive: Receive) -> Reply:
        """List the models and their states."""
        request = await self._read_request(_index_decoder, scope, receive)
        ready = request is not None and request.ready
        return make_json_reply(
            [
                entry._asdict()
                for entry in self._service.repository.index()
                if entry.state == "READY" or not ready
            ]
        )

    async def _read_request(self, decoder: Any, scope: Scope, receive: Receive) -> Any:
        runner = self._service.runner
        body = await read_body(scope, receive, runner.limits)
        return await runner.run_by_size(len(body), _decode_body, decoder, body)

    async def change_model(
        self, change: Callable[[str], Any], scope: Scope, receive: Receive
    ) -> Reply:
        """Load or unload a model by the method `change` of the repository."""
        name = scope["path_params"]["name"]
        if not self._service.control:
            raise ForbiddenError(
                "loading and unloading models by requests is disabled; start the server with "
                "--control"
            )
        request = await self._read_request(_control_decoder, scope, receive)
        _check_parameters(request.parameters if request else {})
        try:
            await asyncio.to_thread(change, name)
        except ServeError:
            raise
        except (TreekitError, OSError) as error:
            raise UnavailableError(f"model {name!r} was not changed: {error}") from error
        return make_json_reply({"name": name, "versions": self._service.repository.versions(name)})


def _check_parameters(parameters: dict[str, bool | int | float | str | None]) -> None:
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


def _decode_body(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """Decode the object in a body, or None if the body is empty."""
    if not body:
        return None
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise malformed_body_error(body, error, "request to the model repository") from None


def list_repository_routes(service: Service) -> list[Route]:
    """Return the routes of the extension."""
    control = _RepositoryEndpoints(service)
    repository, model = service.repository, "/v2/repository/models/{name}"
    return [
        Route("POST", "/v2/repository/index", control.list_models, "repository"),
        Route(
            "POST", f"{model}/load", partial(control.change_model, repository.load), "repository"
        ),
        Route(
            "POST",
            f"{model}/unload",
            partial(control.change_model, repository.unload),
            "repository",
        ),
    ]
