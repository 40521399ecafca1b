"""The server over HTTP: a thin face of Starlette on the core, behind the gate."""

from __future__ import annotations

from treekit.errors import MissingExtraError

try:
    from starlette.routing import Router
    from starlette.types import ASGIApp
except ImportError as missing:
    raise MissingExtraError("starlette", "serve") from missing

from treekit.serve.access import Access
from treekit.serve.gate import Gate
from treekit.serve.logs import Log
from treekit.serve.metrics import Metrics, metrics_route
from treekit.serve.oip import oip_routes
from treekit.serve.service import Service
from treekit.serve.settings import ServeSettings

__all__ = ["make_app"]


def make_app(
    service: Service, settings: ServeSettings | None = None, log: Log | None = None
) -> ASGIApp:
    """The ASGI application of a service.

    Parameters
    ----------
    service : Service
    settings : ServeSettings, optional
        None is for a service inside somebody else's application, who knows what hosts it has,
        who may ask and what is written down: requests to any Host pass, and only what fails is
        logged.  Pages of other origins do not pass.
    log : Log, optional
        Default: one to stderr, as `settings` has it.

    Raises
    ------
    SettingError
        For hosts, origins or a token file that are none.
    MissingExtraError
        Without the extra ``serve``.
    """
    if settings is None:
        settings = ServeSettings((), allow_hosts=("*",), log="quiet", limits=service.limits)
    log, metrics = log or Log(settings.log), Metrics(service)
    service.repository.listeners += (log.changed, metrics.changed)
    # The gate answers what the router does not find, and whatever fails: Starlette's own
    # middleware for that would be passed by each request once more.
    app = Router([*oip_routes(service), metrics_route(metrics)])
    return Gate(app, service, settings, Access(settings), metrics, log)
