"""The web page at ``/``: models, predictions and explanations.

Its files are in ``templates/serve`` and sent unchanged, without model names.  The scripts request
JSON from the other endpoints and insert it as text; the Content-Security-Policy forbids everything
else.
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
"""Content-Security-Policy of the page; its last line forbids scripts to insert markup."""

_SPOKEN = ("serve_", "explain_", "if_comma")
"""Key prefixes of the catalogue phrases used by the page."""

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
    """Return the files of the page by path, equal for all clients and without a token."""
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
    """Return the phrases of the page in all included languages as JSON."""
    spoken = {
        code: {
            key: phrase for key, phrase in language(code).phrases.items() if key.startswith(_SPOKEN)
        }
        for code in known_languages()
    }
    return msgspec.json.encode(spoken)


def page_paths() -> frozenset[str]:
    """Return the paths of the page itself, equal for all clients and without model data.

    They need no token, as the page asks its user for it.
    """
    return frozenset(_files())


def page_routes(service: Service) -> list[Route]:
    """Return the routes of the page and its pictures."""
    return [
        *(
            Route(path, Endpoint(_sender(reply)), methods=["GET"])
            for path, reply in _files().items()
        ),
        *picture_routes(service),
    ]


def _sender(reply: Reply) -> Callable[[Scope, Receive], Awaitable[Reply]]:
    """Return an endpoint that sends a reply, or status 304 if it has not changed."""
    tag = dict(reply.headers)[b"etag"]

    async def send(scope: Scope, receive: Receive) -> Reply:
        del receive
        if header(scope, b"if-none-match") == tag:
            return Reply(b"", 304, reply.media, reply.headers)
        return reply

    return send


# ---------------------------------------------------------------- pictures
# Pictures contain untrusted names, which `treekit.plot.svg` escapes; in addition, the policy sent
# with each picture forbids everything but displaying it.

PICTURE_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)
"""Content-Security-Policy of pictures, which need no scripts, styles, fonts or references."""

MOST_BOXES = 400
"""Maximum nodes of a picture, as a node may have thousands of branches."""

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
    """Endpoint for pictures of trees, with the decision path of a row marked."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def tree(self, scope: Scope, receive: Receive) -> Reply:
        """Draw one tree of a model."""
        del receive
        parameters = read_query(scope["query_string"], ("version", "tree", "view", "lang", "path"))
        served = self._service.repository.get(
            scope["path_params"]["name"], parameters.get("version")
        )
        model = served.model
        if model is None:
            raise NotFoundError(
                f"model {served.name!r} has platform {served.platform} and no trees to draw"
            )
        number = number_of("tree", parameters.get("tree", "1"), 1, model.n_trees)
        view = parameters.get("view", "auto")
        if view not in ("auto", "way"):
            raise InvalidRequestError(f"view must be auto or way, got {quoted(view)}")
        lang, marked = language_of(parameters.get("lang", "en")), _nodes(parameters.get("path", ""))

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
    """Draw a picture and encode it as SVG.

    Raises
    ------
    InvalidRequestError
        If a node or the view does not exist.
    TooLargeError
        If it has more than `MOST_BOXES` nodes.
    """
    try:
        picture = draw()
    except SettingError as error:
        raise InvalidRequestError(str(error)) from error
    if len(picture.nodes) > MOST_BOXES:
        raise TooLargeError(
            f"the picture would have {len(picture.nodes):,} boxes, but the limit is {MOST_BOXES}; "
            "draw it with treekit.plot"
        )
    return picture.svg().encode()


def _nodes(path: str) -> list[int]:
    """Parse comma-separated node numbers."""
    parts = [part for part in path.split(",") if part]
    if len(parts) > _MOST_MARKED:
        raise InvalidRequestError(
            f"path has {len(parts):,} numbers; give at most {_MOST_MARKED}: leaves suffice"
        )
    return [number_of("path", part, 0, _MOST_NUMBER) for part in parts]


def picture_routes(service: Service) -> list[Route]:
    """Return the route of pictures."""
    pictures = _Pictures(service)
    return [Route("/models/{name}/tree.svg", Endpoint(pictures.tree), methods=["GET"])]
