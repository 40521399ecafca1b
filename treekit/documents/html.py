"""Rules as one page that needs nothing beside itself: to sort, search, print and sign.

The table is in the page; a script, whose hash the page's own policy names, adds sorting,
search and filters.  Names are escaped by the template, and none reaches script or style
but in the escapes of `_css_string`.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from treekit.documents import Listing
from treekit.documents.layout import (
    Asked,
    Entry,
    Figure,
    Said,
    Sheet,
    entries,
    facts,
    figure_texts,
    notes,
    sheet,
    shown,
    tests_said,
    title,
)
from treekit.export.render import shipped_folders
from treekit.rules.wording import quote

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = [
    "SHOWN",
    "pieces",
]

SHOWN = 200
"""Rows that the script shows at once: a page of 20,000 rules stays quick."""

_FIRST = 'document.documentElement.classList.add("js")'
"""Before any row is there: a browser would lay out the whole table again and again."""

_PIECES = 512  # of the template's output that are joined to one text


class _Head(NamedTuple):
    """A column: its heading, how it sorts, whether search reads it."""

    name: str
    kind: str
    search: bool = False


class _Cell(NamedTuple):
    """A figure: as shown, exactly, and the length of its bar in per cent ("" for none)."""

    text: str
    exact: str
    bar: str


class _Row(NamedTuple):
    """What the template shows of one rule."""

    number: int
    tree: int
    label: int
    conditions: list[Asked]
    last: bool
    said: tuple[Said, ...]
    otherwise: tuple[Said, ...]
    as_parent: bool
    cells: list[_Cell]


def pieces(listing: Listing) -> Iterator[str]:
    """The page."""
    page = sheet(listing)
    heads = list(_heads(page))
    style = _resource("page.css") + _labels(heads)
    script = _resource("page.js")
    rules = listing.rules
    stream = (
        _environment()
        .get_template("page.jinja")
        .stream(
            say=listing.language.say,
            lang=listing.language.code,
            title=title(listing),
            policy=_policy(style, _FIRST, script),
            style=Markup(style),  # noqa: S704 - ours, and `_css_string`
            first=Markup(_FIRST),  # noqa: S704 - ours
            script=Markup(script),  # noqa: S704 - ours
            facts=list(facts(page)),
            notes=list(notes(page)),
            tests=tests_said(listing),
            costs=[] if rules.costs is None else rules.costs.tolist(),
            columns=[
                (shown(c.name), c.kind, list(map(quote, c.levels))) for c in rules.schema.columns
            ],
            labels=list(map(shown, rules.schema.classes)) if page.says.votes else [],
            trees=rules.n_trees if rules.n_trees > 1 and not page.weighted else 0,
            votes=page.says.votes,
            weighted=page.weighted,
            numeric=_single_number(page),
            heads=heads,
            rows=_rows(page),
            n_rows=len(page.shown),
            shown=SHOWN,
        )
    )
    stream.enable_buffering(_PIECES)
    yield from stream


def _heads(page: Sheet) -> Iterator[_Head]:
    say = page.listing.language.say
    yield _Head(say("page_head_rule"), "number")
    if page.listing.rules.n_trees > 1 and not page.weighted:
        yield _Head(say("page_head_tree"), "number")
    yield _Head(say("page_head_if"), "text", search=True)
    answers = "number" if _single_number(page) else "text"
    yield _Head(say("page_head_then"), answers, search=True)
    if page.weighted:
        yield _Head(say("page_head_otherwise"), answers, search=True)
    for figure in page.figures:
        yield _Head(figure.heading, "number")


def _single_number(page: Sheet) -> bool:
    schema = page.listing.rules.schema
    return schema.task == "regression" and not schema.more


def _rows(page: Sheet) -> Iterator[_Row]:
    figures = [_cells(figure) for figure in page.figures]
    for entry in entries(page):
        cells = [figure[entry.rule] for figure in figures]
        yield _row(entry, cells)


def _row(entry: Entry, cells: list[_Cell]) -> _Row:
    label = entry.said[0].label
    return _Row(
        entry.rule + 1,
        entry.tree + 1,
        label,
        entry.conditions,
        entry.last,
        entry.said,
        entry.otherwise,
        entry.as_parent,
        cells,
    )


def _cells(figure: Figure) -> list[_Cell]:
    values, texts = figure.values.tolist(), figure_texts(figure)
    exact = ["" if math.isnan(value) else repr(value) for value in values]
    bars = [""] * len(values)
    if figure.kind == "part":
        bars = ["" if math.isnan(value) else f"{100 * value:.4g}" for value in values]
    return list(map(_Cell, texts, exact, bars))


def _labels(heads: list[_Head]) -> str:
    """On a narrow screen each cell carries the heading of its column."""
    labels = "".join(
        f"tbody td:nth-child({k})::before{{content:{_css_string(head.name)}}}"
        for k, head in enumerate(heads, 1)
    )
    return f"@media screen and (max-width:44rem){{{labels}}}\n"


def _css_string(text: str) -> str:
    """A string of CSS (Syntax level 3, 4.3.7): all but ASCII letters and digits escaped."""
    plain = (c if c.isascii() and c.isalnum() else f"\\{ord(c):06x}" for c in text)
    return f'"{"".join(plain)}"'


def _policy(style: str, *scripts: str) -> str:
    """What the page may do: apply its own style, run its own scripts, and nothing else."""
    hashes = " ".join(f"'{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src {hashes}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    """A source of a content security policy (level 3, 2.3.1)."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _folder() -> Path:
    return next(folder / "page" for folder in shipped_folders())


@cache
def _resource(name: str) -> str:
    return (_folder() / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_folder(), encoding="utf-8"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
    )
