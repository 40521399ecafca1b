"""The server over HTTP: a thin face of Starlette on the core."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from treekit.serve.http import error_reply
from treekit.serve.oip import oip_routes
from treekit.serve.page import page_routes
from treekit.serve.plain import plain_routes
from treekit.serve.service import Service

__all__ = ["make_app"]


def make_app(service: Service) -> ASGIApp:
    """The ASGI application of a service."""
    return Starlette(
        routes=[*oip_routes(service), *plain_routes(service), *page_routes(service)],
        exception_handlers={HTTPException: _refused},
    )


async def _refused(request: Request, error: Exception) -> Response:
    """A path or method that is not there, as JSON."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for these alone
    message = f"{request.method} {request.url.path}: {error.detail}"
    reply = error_reply(error.status_code, message)
    return Response(reply.body, reply.status, error.headers, media_type="application/json")
