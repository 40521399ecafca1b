"""The server over HTTP: a thin face of Starlette on the core."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope

from treekit.serve.control import control_routes
from treekit.serve.description import document
from treekit.serve.http import Endpoint, Reply, error_reply, json_reply
from treekit.serve.oip import oip_routes
from treekit.serve.oip_description import oip_paths
from treekit.serve.schemas import SCHEMAS
from treekit.serve.service import Service

__all__ = ["make_app"]


def make_app(service: Service) -> ASGIApp:
    """The ASGI application of a service."""
    app = Starlette(
        routes=[*oip_routes(service), *control_routes(service), _description()],
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )
    app.router.redirect_slashes = False  # a path that is not there is a 404, as JSON
    return app


def _description() -> Route:
    """The description; faces beside the protocol add their paths and schemas here."""
    reply = json_reply(document(oip_paths(), SCHEMAS))

    async def describe(scope: Scope, receive: Receive) -> Reply:
        del scope, receive
        return reply

    return Route("/openapi.json", Endpoint(describe), methods=["GET"])


async def _refused(request: Request, error: Exception) -> Response:
    """A path or method that is not there, as JSON."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for these alone
    message = f"{request.method} {request.url.path}: {error.detail}"
    reply = error_reply(error.status_code, message)
    return Response(reply.body, reply.status, error.headers, media_type="application/json")


async def _failed(request: Request, error: Exception) -> Response:
    """A fault of the server, as JSON; the error goes on to the log, not to the client."""
    del request, error
    reply = error_reply(500, "the server failed to answer this request; its log says why")
    return Response(reply.body, reply.status, media_type="application/json")
