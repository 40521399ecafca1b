"""The server over HTTP: a thin face of Starlette on the core, behind its gate."""

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
    """The ASGI application of a service.

    Parameters
    ----------
    service : Service
    settings : ServeSettings, optional
        None is for a service inside somebody else's application, who knows what hosts it has,
        who may ask and what is written down: requests to any Host pass, and only what fails is
        logged.  Pages of other origins do not pass.
    log : Log, optional
        Of the process; default one of its own.
    access : Access, optional
    metrics : Metrics, optional
        Of the process, where other faces ask and tell them, too.

    Raises
    ------
    SettingError
        For hosts, origins or a token file that are none.
    MissingExtraError
        Without the extra ``serve``.
    """
    if settings is None:
        settings = ServeSettings((), allow_hosts=("*",), log="quiet", limits=service.limits)
    log, metrics = log or Log(settings.log), metrics or Metrics(service)
    service.repository.subscribe(log.changed)
    service.repository.subscribe(metrics.changed)
    # The gate answers what the router does not find, and whatever fails: Starlette's own
    # middleware for that would be passed by each request once more.
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
    """Every path that asks the service, the most asked first."""
    return [
        *oip_routes(service),
        *plain_routes(service),
        *page_routes(service),
        *control_routes(service),
        _description(),
    ]


def _description() -> Route:
    """The description."""
    reply = json_reply(document(oip_paths() | plain_paths(), SCHEMAS))

    async def describe(scope: Scope, receive: Receive) -> Reply:
        del scope, receive
        return reply

    return Route("/openapi.json", Endpoint(describe), methods=["GET"])
