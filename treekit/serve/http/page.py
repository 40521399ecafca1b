"""The page at ``/``: what a person sees of the models, their answers and their reasons.

Its files stand in ``templates/serve`` and are sent as they are: no name of a model is ever
written into them.  The page's scripts ask the server's other endpoints for JSON and put
what they get into the page as text; its policy has the browser refuse everything else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import cache

import msgspec
from starlette.routing import Route
from starlette.types import Receive, Scope

from treekit.errors import SettingError
from treekit.export.render import shipped_folders
from treekit.plot import Picture, plot
from treekit.rules.language import known_languages, language
from treekit.serve.errors import InvalidRequestError, NotFoundError, TooLargeError
from treekit.serve.http import Endpoint, Reply, header
from treekit.serve.http.json_routes import language_of
from treekit.serve.http.json_rows import number_of, quoted, read_query
from treekit.serve.scheduling import Service

__all__ = [
    "MOST_BOXES",
    "PAGE_POLICY",
    "PICTURE_POLICY",
    "page_paths",
    "page_routes",
    "picture_routes",
]


# ---------------------------------------------------------------- page

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Content-Security-Policy of the page; its last line has no script turn text into markup."""

_SPOKEN = ("serve_", "explain_", "if_comma")
"""The page says the phrases of the catalogue whose keys begin so."""

_MEDIA = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

_GUARDED = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


@cache
def _files() -> dict[str, Reply]:
    """What is sent of the page, by path: the same for everybody, so none needs a token."""
    folder = next(folder / "serve" for folder in shipped_folders())
    found = {
        f"/{file.relative_to(folder).as_posix()}": _file(file.read_bytes(), _MEDIA[file.suffix])
        for file in sorted(folder.rglob("*"))
        if file.suffix in _MEDIA
    }
    found["/"] = found.pop("/page.html")
    found["/page/words.json"] = _file(_words(), "application/json")
    return found


def _file(body: bytes, media: str) -> Reply:
    tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'.encode()
    headers = (
        (b"content-security-policy", PAGE_POLICY.encode()),
        (b"cache-control", b"no-cache"),
        (b"etag", tag),
        *_GUARDED,
    )
    return Reply(body, 200, f"{media}; charset=utf-8".encode(), headers)


def _words() -> bytes:
    """The phrases of the page in each language that treekit brings, as JSON."""
    spoken = {
        code: {
            key: phrase for key, phrase in language(code).phrases.items() if key.startswith(_SPOKEN)
        }
        for code in known_languages()
    }
    return msgspec.json.encode(spoken)


def page_paths() -> frozenset[str]:
    """The paths of the page itself: the same for everybody, they say nothing of any model.

    Whoever guards the others with a token leaves these open: the page asks for the token.
    """
    return frozenset(_files())


def page_routes(service: Service) -> list[Route]:
    """The paths of the page, and of what it shows that no other endpoint has."""
    return [
        *(
            Route(path, Endpoint(_sender(reply)), methods=["GET"])
            for path, reply in _files().items()
        ),
        *picture_routes(service),
    ]


def _sender(reply: Reply) -> Callable[[Scope, Receive], Awaitable[Reply]]:
    """Send this, or that it has not changed."""
    tag = dict(reply.headers)[b"etag"]

    async def send(scope: Scope, receive: Receive) -> Reply:
        del receive
        if header(scope, b"if-none-match") == tag:
            return Reply(b"", 304, reply.media, reply.headers)
        return reply

    return send


# ---------------------------------------------------------------- pictures
# Pictures of the trees of models in service, with the way of a row marked.
#
# They are asked for by the page and by people, and made of names that may be anybody's: what
# keeps these from being markup is `treekit.plot.svg`, and the policy that is sent with each
# picture has the browser do nothing but show it.

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
