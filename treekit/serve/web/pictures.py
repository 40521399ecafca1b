"""Pictures of the trees of models in service, with the way of a row marked.

They are asked for by the page and by people, and made of names that may be anybody's: what
keeps these from being markup is `treekit.plot.svg`, and the policy that is sent with each
picture has the browser do nothing but show it.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.routing import Route
from starlette.types import Receive, Scope

from treekit.errors import SettingError
from treekit.plot import Picture, plot
from treekit.serve.answering.service import Service
from treekit.serve.errors import InvalidRequestError, NotFoundError, TooLargeError
from treekit.serve.http import Endpoint, Reply
from treekit.serve.plain.bodies import number_of, quoted, read_query
from treekit.serve.plain.explain import language_of

__all__ = ["MOST_BOXES", "PICTURE_POLICY", "picture_routes"]

PICTURE_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)
"""Content-Security-Policy of pictures, which need no script, style, font or reference."""

MOST_BOXES = 400
"""Nodes of one picture; one more is refused, as a node may have thousands of branches."""

_MOST_MARKED = 500
_MOST_NUMBER = 999_999_999

_HEADERS = (
    (b"content-security-policy", PICTURE_POLICY.encode()),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class _Pictures:
    """Pictures of trees, with the way of a row marked."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def tree(self, scope: Scope, receive: Receive) -> Reply:
        """Draw one tree of a model."""
        del receive
        asked = read_query(scope["query_string"], ("version", "tree", "view", "lang", "path"))
        served = self._service.repository.get(scope["path_params"]["name"], asked.get("version"))
        model = served.model
        if model is None:
            raise NotFoundError(
                f"model {served.name!r} is {served.platform}'s: it has no trees to draw"
            )
        number = number_of("tree", asked.get("tree", "1"), 1, model.n_trees)
        view = asked.get("view", "auto")
        if view not in ("auto", "way"):
            raise InvalidRequestError(f"view is {quoted(view)}; give auto or way")
        lang, marked = language_of(asked.get("lang", "en")), _nodes(asked.get("path", ""))

        def draw() -> Picture:
            return plot(
                model,
                tree=number - 1,
                max_depth="way" if view == "way" else "auto",
                language=lang,
                marked=marked,
            )

        body = await self._service.runner.beside(_written, draw)
        return Reply(body, 200, b"image/svg+xml; charset=utf-8", _HEADERS)


def _written(draw: Callable[[], Picture]) -> bytes:
    """The text of a picture.

    Raises
    ------
    InvalidRequestError
        For a node or a view that there is not.
    TooLargeError
        If it has more boxes than anybody could read.
    """
    try:
        picture = draw()
    except SettingError as error:
        raise InvalidRequestError(str(error)) from error
    if len(picture.nodes) > MOST_BOXES:
        raise TooLargeError(
            f"the picture would have {len(picture.nodes):,} boxes, and at most {MOST_BOXES} are "
            "drawn; draw it with treekit.plot"
        )
    return picture.svg().encode()


def _nodes(path: str) -> list[int]:
    """The numbers of nodes between commas."""
    parts = [part for part in path.split(",") if part]
    if len(parts) > _MOST_MARKED:
        raise InvalidRequestError(
            f"path has {len(parts):,} numbers; give at most {_MOST_MARKED}: the leaves do"
        )
    return [number_of("path", part, 0, _MOST_NUMBER) for part in parts]


def picture_routes(service: Service) -> list[Route]:
    """The path of pictures."""
    pictures = _Pictures(service)
    return [Route("/models/{name}/tree.svg", Endpoint(pictures.tree), methods=["GET"])]
