"""HTTP application: Starlette routes on the service, behind the middleware."""

from __future__ import annotations

from treekit.errors import MissingExtraError

try:
    from starlette.routing import Route, Router
    from starlette.types import Receive, Scope
except ImportError as missing:
    raise MissingExtraError("starlette", "serve") from missing

from treekit.serve.http import Endpoint, Reply, json_reply
from treekit.serve.http.auth import Access
from treekit.serve.http.json_routes import plain_routes
from treekit.serve.http.logs import Log
from treekit.serve.http.metrics import Metrics, metrics_route
from treekit.serve.http.middleware import Gate
from treekit.serve.http.oip_routes import Direct, control_routes, oip_routes
from treekit.serve.http.openapi import SCHEMAS, document, oip_paths, plain_paths
from treekit.serve.http.page import page_paths, page_routes
from treekit.serve.scheduling import Service
from treekit.serve.settings import ServeSettings

__all__ = [
    "make_app",
    "routes",
]


def make_app(
    service: Service,
    settings: ServeSettings | None = None,
    log: Log | None = None,
    access: Access | None = None,
    metrics: Metrics | None = None,
) -> Gate:
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
    service.repository.subscribe(log.changed)
    service.repository.subscribe(metrics.changed)
    # The middleware handles unknown paths and all failures, as Starlette's own error middleware
    # would add another layer to each request.
    router = Router([*routes(service), metrics_route(metrics)], redirect_slashes=False)
    app = Direct(service, router)
    return Gate(
        app,
        settings,
        access or Access(settings),
        metrics,
        log,
        service.working,
        page_paths(),
        app.at_once,
    )


def routes(service: Service) -> list[Route]:
    """Return all routes of a service, the most frequent first."""
    return [
        *oip_routes(service),
        *plain_routes(service),
        *page_routes(service),
        *control_routes(service),
        _description(),
    ]


def _description() -> Route:
    """Return the route of the OpenAPI document."""
    reply = json_reply(document(oip_paths() | plain_paths(), SCHEMAS))

    async def describe(scope: Scope, receive: Receive) -> Reply:
        del scope, receive
        return reply

    return Route("/openapi.json", Endpoint(describe), methods=["GET"])
