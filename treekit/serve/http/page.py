"""The web page at ``/``: models, predictions and explanations.

Its files are in ``templates/serve`` and sent unchanged, without model names.  The scripts request
JSON from the other endpoints and insert it as text; the Content-Security-Policy forbids everything
else.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Annotated, Literal

import msgspec

from treekit import registry
from treekit.documents import make_listing, render_listing
from treekit.errors import ExportError, SettingError
from treekit.export.literals import list_shipped_folders
from treekit.model.model import Model
from treekit.rules.language import list_languages, load_language
from treekit.serve.errors import InvalidRequestError, NotFoundError, TooLargeError
from treekit.serve.http import Handle, Reply, Request, Route, always_send, parse_query
from treekit.serve.http.json_routes import Count, Language
from treekit.serve.protocol.messages import convert_request
from treekit.serve.scheduling import Service

# ---------------------------------------------------------------- page

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Content-Security-Policy of the page; its last line forbids scripts to insert markup."""

_PHRASE_PREFIXES = ("serve_", "explain_", "if_comma")
"""Key prefixes of the catalogue phrases used by the page."""

_MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


@cache
def _load_files() -> dict[str, Reply]:
    """Return the files of the page by path, equal for all clients and without a token."""
    folder = next(folder / "serve" for folder in list_shipped_folders())
    found = {}
    for file in sorted(folder.rglob("*")):
        if media := _MEDIA_TYPES.get(file.suffix):
            path = f"/{file.relative_to(folder).as_posix()}"
            found[path] = _make_file_reply(file.read_bytes(), media)
    found["/"] = found.pop("/page.html")
    found["/page/words.json"] = _make_file_reply(_encode_phrases(), "application/json")
    return found


def _make_file_reply(body: bytes, media: str) -> Reply:
    tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'.encode()
    headers = (
        (b"content-security-policy", PAGE_POLICY.encode()),
        (b"cache-control", b"no-cache"),
        (b"etag", tag),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"cross-origin-opener-policy", b"same-origin"),
    )
    return Reply(body, 200, f"{media}; charset=utf-8".encode(), headers)


def _encode_phrases() -> bytes:
    """Return the phrases of the page in all included languages, and whether it has pictures."""
    spoken: dict[str, dict[str, str]] = {}
    for code in list_languages():
        phrases = load_language(code).phrases.items()
        spoken[code] = {key: text for key, text in phrases if key.startswith(_PHRASE_PREFIXES)}
    return msgspec.json.encode({"spoken": spoken, "pictures": "svg" in registry.list("document")})


def list_page_paths() -> frozenset[str]:
    """Return the paths of the page itself, equal for all clients and without model data.

    They need no token, as the page asks its user for it.
    """
    return frozenset(_load_files())


def list_page_routes(service: Service) -> list[Route]:
    """Return the routes of the page and its pictures."""
    return [
        *(Route("GET", path, always_send(reply), "page") for path, reply in _load_files().items()),
        Route("GET", "/models/{name}/tree.svg", _make_picture_endpoint(service), "picture"),
    ]


# ---------------------------------------------------------------- pictures
# The plugin treekit-plot draws, and escapes untrusted names; in addition, the policy sent with each
# picture forbids everything but displaying it.

PICTURE_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)
"""Content-Security-Policy of pictures, which need no scripts, styles, fonts or references."""

MAX_BOXES = 400
"""Maximum nodes of a picture, as a node may have thousands of branches."""

_MAX_MARKED = 500
_NodeNumber = Annotated[int, msgspec.Meta(ge=0, le=999_999_999)]

_SAME_ORIGIN = (b"cross-origin-resource-policy", b"same-origin")
_PICTURE_HEADERS = ((b"content-security-policy", PICTURE_POLICY.encode()), _SAME_ORIGIN)


class TreeQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of a picture: `tree` is counted from 1, `path` marks nodes."""

    version: str | None = None
    tree: Count = 1
    view: Literal["auto", "way"] = "auto"
    lang: Language = "en"
    path: str = ""


def _make_picture_endpoint(service: Service) -> Handle:
    """Return an endpoint that draws one tree of a model, with the decision path of a row marked."""

    async def send_tree(request: Request) -> Reply:
        query = parse_query(request.scope["query_string"], TreeQuery)
        model = service.repository.get(request.parameters["name"], query.version).model
        if query.tree > model.n_trees:
            raise InvalidRequestError(f"'tree' must be 1 to {model.n_trees}, got {query.tree}")
        _check_nodes(query.path)
        body = await service.runner.run_explanation(_encode_picture, model, query)
        return Reply(body, 200, b"image/svg+xml; charset=utf-8", _PICTURE_HEADERS)

    return send_tree


def _encode_picture(model: Model, query: TreeQuery) -> bytes:
    """Draw a picture and encode it as SVG.

    Raises
    ------
    InvalidRequestError
        If a node or the view does not exist.
    NotFoundError
        If the plugin that draws is not installed.
    TooLargeError
        If it has more than `MAX_BOXES` nodes.
    """
    try:
        document = registry.get("document", "svg")
    except SettingError as error:
        raise NotFoundError(str(error)) from error
    listing = make_listing(model, tree=query.tree - 1, words=query.lang, with_rules=False)
    settings = {"max_depth": query.view, "marked": query.path, "max_boxes": MAX_BOXES}
    try:
        return "".join(render_listing(document, listing, **settings)).encode()
    except ExportError as error:
        raise TooLargeError(str(error)) from error
    except SettingError as error:
        raise InvalidRequestError(str(error)) from error


def _check_nodes(path: str) -> None:
    """Raise `InvalidRequestError` unless `path` is a list of node numbers."""
    parts = [part for part in path.split(",") if part]
    if len(parts) > _MAX_MARKED:
        raise InvalidRequestError(
            f"path has {len(parts):,} numbers; give at most {_MAX_MARKED}: leaves suffice"
        )
    convert_request(parts, list[_NodeNumber], "URL parameter path", strict=False)
