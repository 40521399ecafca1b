"""The Open Inference Protocol v2 over HTTP: paths to the core, and its answers back.

https://github.com/kserve/open-inference-protocol, ``specification/protocol/inference_rest.md``;
binary tensors (`treekit.serve.protocol.binary`) and the model repository
(`treekit.serve.web.control`) are Triton's extensions of it.
"""

from __future__ import annotations

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from treekit.serve.answering.service import Service
from treekit.serve.errors import InvalidRequestError, UnavailableError
from treekit.serve.gate.record import note_answer
from treekit.serve.http import Endpoint, Reply, json_reply, read_body
from treekit.serve.models.served import Served
from treekit.serve.protocol.binary import LENGTH_HEADER
from treekit.serve.protocol.metadata import model_metadata, server_metadata
from treekit.serve.protocol.wire import answer_of, read_request, tensors_of

__all__ = ["Direct", "oip_routes"]

_BYTES = b"application/octet-stream"


class _Oip:
    """The endpoints on one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def _served(self, scope: Scope) -> Served:
        asked = scope["path_params"]
        return self._service.repository.get(asked.get("name"), asked.get("version"))

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
        """Say that the process answers."""
        del scope, receive
        return json_reply({"live": True})

    async def ready(self, scope: Scope, receive: Receive) -> Reply:
        """Say whether every model answers."""
        del scope, receive
        ready = self._service.ready
        # The specification's $ready_server_response has "live", most likely by mistake.
        return json_reply({"live": True, "ready": ready}, 200 if ready else 503)

    async def server(self, scope: Scope, receive: Receive) -> Reply:
        """Say what server this is."""
        del scope, receive
        return json_reply(server_metadata())

    async def model(self, scope: Scope, receive: Receive) -> Reply:
        """Describe a model."""
        del receive
        served = self._served(scope)
        versions = self._service.repository.versions(served.name)
        return json_reply(model_metadata(served, versions))

    async def model_ready(self, scope: Scope, receive: Receive) -> Reply:
        """Say whether a model answers."""
        del receive
        try:
            name = self._served(scope).name
        except UnavailableError:
            return json_reply({"name": scope["path_params"]["name"], "ready": False}, 503)
        return json_reply({"name": name, "ready": True})


def _length(scope: Scope) -> bytes | None:
    """The bytes of JSON that the header tells, if it is there."""
    found = [value for key, value in scope["headers"] if key == LENGTH_HEADER]
    if len(found) > 1:
        raise InvalidRequestError("the header Inference-Header-Content-Length is there twice")
    return found[0] if found else None


def oip_routes(service: Service) -> list[Route]:
    """The protocol's paths, the most asked first."""
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
        Route("/v2/", Endpoint(oip.server), methods=["GET"]),  # so its own description has it
    ]


class Direct:
    """Inference requests go straight to their endpoint, all others through a router.

    Starlette tries each route's regular expression, copies the scope and wraps the endpoint:
    a fifth of what one row takes (measured).

    Parameters
    ----------
    service : Service
    others : ASGI application
        Has the same paths, too: for those that are spelt in another way.
    """

    def __init__(self, service: Service, others: ASGIApp) -> None:
        self._service, self._others = service, others
        self._infer = Endpoint(_Oip(service).infer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["method"] == "POST" and not scope.get("root_path"):
            asked = _asked(scope["path"])
            if asked is not None:
                scope["path_params"] = asked
                await self._infer(scope, receive, send)
                return
        await self._others(scope, receive, send)

    def at_once(self, scope: Scope, body: bytes) -> Reply | None:
        """The answer to a POST whose body is there, if nothing need be waited for; else None.

        Raises
        ------
        ServeError
            For a model that does not answer.
        """
        service, asked = self._service, _asked(scope["path"])
        if asked is None or service.closing or len(body) > service.limits.body_bytes:
            return None
        for name, _ in scope["headers"]:
            if name in _OF_OTHER_BODIES:
                return None
        served = service.repository.get(asked["name"], asked.get("version"))
        scope["treekit.tried"] = True
        quick = service.infer_quick(served, body)
        if quick is None:
            return None
        note_answer(scope, served, quick.rows)
        return Reply(quick.body)


def _asked(path: str) -> dict[str, str] | None:
    """Name and version in the path of an inference request."""
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
"""Headers of a body that is no JSON alone."""
