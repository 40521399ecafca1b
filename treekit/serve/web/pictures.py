"""Pictures of the trees of models in service, with the way of a row marked.

They are asked for by the page and by people, and made of names that may be anybody's: what
keeps these from being markup is `treekit.plot.markup`, and the policy that is sent with each
picture has the browser do nothing but show it.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs

from starlette.routing import Route
from starlette.types import Receive, Scope

from treekit.errors import SettingError
from treekit.plot import Picture, plot
from treekit.serve.answering.service import Service
from treekit.serve.errors import InvalidRequestError, NotFoundError, TooLargeError
from treekit.serve.http import Endpoint, Reply

__all__ = ["MOST_BOXES", "PICTURE_POLICY", "picture_routes"]

PICTURE_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)
"""Content-Security-Policy of pictures, which need no script, style, font or reference."""

MOST_BOXES = 400
"""Nodes of one picture; one more is refused, as a node may have thousands of branches."""

_MOST_MARKED = 500

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
        asked = _Query(scope)
        served = self._service.repository.get(scope["path_params"]["name"], asked.text("version"))
        model = served.model
        if model is None:
            raise NotFoundError(
                f"model {served.name!r} is {served.platform}'s: it has no trees to draw"
            )
        number = asked.number("tree", 1)
        if not 1 <= number <= model.n_trees:
            raise InvalidRequestError(
                f"tree is {number}; model {served.name!r} has trees 1 to {model.n_trees}"
            )
        view = asked.text("view") or "auto"
        if view not in ("auto", "way"):
            raise InvalidRequestError(f"view is {view!r}; give auto or way")

        def draw() -> Picture:
            return plot(
                model,
                tree=number - 1,
                max_depth="way" if view == "way" else "auto",
                language=asked.text("lang") or "en",
                marked=asked.numbers("path"),
            )

        body = await self._service.runner.beside(_written, draw)
        return Reply(body, 200, b"image/svg+xml; charset=utf-8", _HEADERS)


def _written(draw: Callable[[], Picture]) -> bytes:
    """The text of a picture.

    Raises
    ------
    InvalidRequestError
        For a node, a language or a view that there is not.
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


class _Query:
    """The part of an address behind its question mark."""

    def __init__(self, scope: Scope) -> None:
        self._given = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=20)

    def text(self, name: str) -> str | None:
        """The last value of this name, None if there is none."""
        given = self._given.get(name)
        return given[-1] if given else None

    def number(self, name: str, default: int) -> int:
        """A whole number."""
        text = self.text(name)
        return default if text is None else _whole(name, text)

    def numbers(self, name: str) -> list[int]:
        """Whole numbers between commas."""
        parts = [part for part in (self.text(name) or "").split(",") if part]
        if len(parts) > _MOST_MARKED:
            raise InvalidRequestError(
                f"{name} has {len(parts):,} numbers; give at most {_MOST_MARKED}: the leaves do"
            )
        return [_whole(name, part) for part in parts]


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise InvalidRequestError(f"{name} is {text[:40]!r}; give a whole number")
    return int(text)


def picture_routes(service: Service) -> list[Route]:
    """The path of pictures."""
    pictures = _Pictures(service)
    return [Route("/models/{name}/tree.svg", Endpoint(pictures.tree), methods=["GET"])]
