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

from treekit.export.render import shipped_folders
from treekit.rules.language import known_languages, language
from treekit.serve.answering.service import Service
from treekit.serve.http import Endpoint, Reply, header
from treekit.serve.web.pictures import picture_routes

__all__ = ["PAGE_POLICY", "page_paths", "page_routes"]

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
