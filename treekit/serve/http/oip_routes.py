"""HTTP endpoints of the Open Inference Protocol v2.

https://github.com/kserve/open-inference-protocol, ``specification/protocol/inference_rest.md``;
binary tensors (`treekit.serve.protocol.tensor_data`) and the model repository are extensions by
Triton.
"""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from treekit.serve.errors import InvalidRequestError, TooLargeError, UnavailableError
from treekit.serve.http import Reply, Request, Route, always_send, make_json_reply, read_body
from treekit.serve.models.repository import Do
from treekit.serve.protocol.messages import (
    SERVER_METADATA,
    ControlRequest,
    ControlResponse,
    IndexRequest,
    LiveServer,
    ReadyModel,
    ReadyServer,
    convert_request,
    decode_tensors,
    encode_response,
    get_model_metadata,
    make_json_limits,
    parse_json,
    read_request,
)
from treekit.serve.protocol.tensor_data import LENGTH_HEADER
from treekit.serve.scheduling import Service

# ---------------------------------------------------------------- oip

T = TypeVar("T")

_BYTES_TYPE = b"application/octet-stream"

_MAX_CONTROL_BYTES = 1 << 16
"""Maximum bytes of a request to the model repository."""


class _ProtocolEndpoints:
    """Protocol endpoints of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def infer(self, http: Request) -> Reply:
        """Answer an inference request."""
        service, limits = self._service, self._service.runner.limits
        served = http.served = service.repository.get(**http.parameters)
        body = await read_body(http, limits)
        length = _get_json_length(http)
        if length is None and (quick := service.infer_quick(served, body)):
            answer, rows = quick
            http.record_prediction(served, rows)
            return Reply(answer)
        size = len(body)
        most = make_json_limits(served, limits.rows)
        request, rest = await service.runner.run_by_size(size, read_request, body, length, most)
        served.check_counts(len(request.inputs), len(request.outputs or ()))
        given = request, rest, limits.rows
        outputs = await service.infer(
            served, request.output_names, size, decode_tensors, *given, absent=request.absent
        )
        http.record_prediction(served, len(outputs[0].cells))
        size = 8 * sum(output.cells.size for output in outputs)
        answer, head = await service.runner.run_by_size(
            size, encode_response, served, request, outputs
        )
        if head is None:
            return Reply(answer)
        return Reply(answer, media=_BYTES_TYPE, headers=((LENGTH_HEADER, b"%d" % head),))

    async def server_ready(self, _: Request) -> Reply:
        """Report whether all models are served."""
        ready = self._service.ready
        return make_json_reply(ReadyServer(live=True, ready=ready), 200 if ready else 503)

    async def model_metadata(self, request: Request) -> Reply:
        """Describe a model."""
        served = self._service.repository.get(**request.parameters)
        versions = self._service.repository.versions(served.name)
        return make_json_reply(get_model_metadata(served, versions))

    async def model_config(self, request: Request) -> Reply:
        """Return the configuration of a model."""
        return make_json_reply(self._service.get_config(**request.parameters))

    async def model_statistics(self, request: Request) -> Reply:
        """Return the statistics of a model, or of all models."""
        return make_json_reply(self._service.get_statistics(**request.parameters))

    async def model_ready(self, request: Request) -> Reply:
        """Report whether a model is served."""
        name, ready = request.parameters["name"], True
        try:
            self._service.repository.get(**request.parameters)
        except UnavailableError:
            ready = False
        return make_json_reply(ReadyModel(name, ready), 200 if ready else 503)

    # ------------------------------------------------------ model repository
    # Triton's extension.
    #
    # https://github.com/triton-inference-server/server,
    # ``docs/protocol/extension_model_repository.md``

    async def list_models(self, http: Request) -> Reply:
        """List the models and their states."""
        ready = (await self._read_request(IndexRequest, http)).ready
        return make_json_reply(self._service.repository.index(ready=ready))

    async def _read_request(self, kind: type[T], http: Request) -> T:
        """Decode the object in a body; an empty body has the defaults."""
        what = "request to the model repository"
        body = await read_body(http, self._service.limits)
        if len(body) > _MAX_CONTROL_BYTES:
            raise TooLargeError(
                f"the body of a {what} is longer than {_MAX_CONTROL_BYTES:,} bytes; models are "
                "loaded from the server's files: leave out their content"
            )
        request: T = convert_request(parse_json(body or b"{}", what), kind, what)
        return request

    async def change_model(self, what: Do, http: Request) -> Reply:
        """Load or unload a model."""
        name, service = http.parameters["name"], self._service
        service.check_control()
        request = await self._read_request(ControlRequest, http)
        await service.change_model(what, name, request.parameters)
        return make_json_reply(ControlResponse(name, service.repository.versions(name)))


def _get_json_length(request: Request) -> bytes | None:
    """Return the value of the header Inference-Header-Content-Length; None if it is absent."""
    length = request.headers.get(LENGTH_HEADER)
    if length is not None and request.count_header(LENGTH_HEADER) > 1:
        raise InvalidRequestError("duplicate header Inference-Header-Content-Length; give it once")
    return length


def list_protocol_routes(service: Service) -> list[Route]:
    """Return the routes of the protocol, the most frequent first."""
    oip, model = _ProtocolEndpoints(service), "/v2/repository/models/{name}"
    live = always_send(make_json_reply(LiveServer(live=True)))
    metadata = always_send(make_json_reply(SERVER_METADATA))
    routes = []
    for place in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        routes += [
            Route("POST", f"{place}/infer", oip.infer, "infer"),
            Route("GET", f"{place}/ready", oip.model_ready, "ready"),
            Route("GET", place, oip.model_metadata, "model"),
            Route("GET", f"{place}/config", oip.model_config, "model"),
            Route("GET", f"{place}/stats", oip.model_statistics, "statistics"),
        ]
    return [
        Route("GET", "/v2/models/stats", oip.model_statistics, "statistics"),
        *routes,
        Route("GET", "/v2/health/live", live, "health"),
        Route("GET", "/v2/health/ready", oip.server_ready, "health"),
        Route("GET", "/v2", metadata, "server"),
        Route("GET", "/v2/", metadata, "server"),  # as in the protocol's OpenAPI file
        Route("POST", "/v2/repository/index", oip.list_models, "repository"),
        Route("POST", f"{model}/load", partial(oip.change_model, "load"), "repository"),
        Route("POST", f"{model}/unload", partial(oip.change_model, "unload"), "repository"),
    ]
