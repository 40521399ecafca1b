"""HTTP application: Starlette routes on the service, behind the middleware."""

from __future__ import annotations

from treekit.errors import MissingExtraError

try:
    from starlette.routing import Route, Router
    from starlette.types import Receive, Scope
except ImportError as missing:
    raise MissingExtraError("starlette", "serve") from missing

from treekit.serve.http import Endpoint, Reply, make_json_reply
from treekit.serve.http.auth import Access
from treekit.serve.http.json_routes import list_json_routes
from treekit.serve.http.logs import Log
from treekit.serve.http.metrics import Metrics, make_metrics_route
from treekit.serve.http.middleware import Middleware
from treekit.serve.http.oip_routes import (
    InferDispatcher,
    list_protocol_routes,
    list_repository_routes,
)
from treekit.serve.http.openapi import SCHEMAS, json_paths, make_document, protocol_paths
from treekit.serve.http.page import list_page_paths, list_page_routes
from treekit.serve.scheduling import Service
from treekit.serve.settings import ServeSettings


def make_app(
    service: Service,
    settings: ServeSettings | None = None,
    log: Log | None = None,
    access: Access | None = None,
    metrics: Metrics | None = None,
) -> Middleware:
    """Create the ASGI application of a service.

    Parameters
    ----------
    service : Service
    settings : ServeSettings, optional
        None for a service mounted in another application, which is responsible for hosts,
        authentication and logging: any Host is accepted and only failures are logged.  Pages
        of other origins are rejected.
    log : Log, optional
        Log of the process; by default a new one.
    access : Access, optional
    metrics : Metrics, optional
        Metrics of the process, if other transports share them.

    Raises
    ------
    SettingError
        If a host, an origin or the token file is invalid.
    MissingExtraError
        If the extra ``serve`` is not installed.
    """
    if settings is None:
        settings = ServeSettings((), allow_hosts=("*",), log="quiet", limits=service.limits)
    log, metrics = log or Log(settings.log), metrics or Metrics(service)
    service.repository.subscribe(log.log_changes)
    service.repository.subscribe(metrics.count_changes)
    # The middleware handles unknown paths and all failures, as Starlette's own error middleware
    # would add another layer to each request.
    router = Router([*list_routes(service), make_metrics_route(metrics)], redirect_slashes=False)
    app = InferDispatcher(service, router)
    return Middleware(
        app,
        settings,
        access or Access(settings),
        metrics,
        log,
        service.working,
        list_page_paths(),
        app.try_answer,
    )


def list_routes(service: Service) -> list[Route]:
    """Return all routes of a service, the most frequent first."""
    return [
        *list_protocol_routes(service),
        *list_json_routes(service),
        *list_page_routes(service),
        *list_repository_routes(service),
        _make_openapi_route(),
    ]


def _make_openapi_route() -> Route:
    """Return the route of the OpenAPI document."""
    reply = make_json_reply(make_document(protocol_paths() | json_paths(), SCHEMAS))

    async def send_document(scope: Scope, receive: Receive) -> Reply:
        del scope, receive
        return reply

    return Route("/openapi.json", Endpoint(send_document), methods=["GET"])
