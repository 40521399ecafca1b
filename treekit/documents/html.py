"""Rules as one self-contained HTML page to sort, search, print and sign.

The table is in the page; a script adds sorting, search and filters, and the page's content
security policy allows it by its hash.  The template escapes all names; only `_css_string`
puts names into the style, escaped, and none reaches a script.
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
"""Rows that the script shows at first, so that a page of 20,000 rules stays fast."""

_FIRST = 'document.documentElement.classList.add("js")'
"""Runs before the rows are parsed: later, browsers would lay out the table repeatedly."""

_PIECES = 512  # pieces of template output joined into one text


class _Head(NamedTuple):
    """Column heading: its text, sort kind, and whether search reads the column."""

    name: str
    kind: str
    search: bool = False


class _Cell(NamedTuple):
    """Cell of a figure: text shown, exact value, and bar length in per cent ("" for none)."""

    text: str
    exact: str
    bar: str


class _Row(NamedTuple):
    """Table row of one rule, for the template."""

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
    """Return the page in pieces."""
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
            style=Markup(style),  # noqa: S704 - page.css, and names escaped by `_css_string`
            first=Markup(_FIRST),  # noqa: S704 - constant
            script=Markup(script),  # noqa: S704 - page.js
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
    """Return CSS that repeats the column heading in each cell on narrow screens."""
    labels = "".join(
        f"tbody td:nth-child({k})::before{{content:{_css_string(head.name)}}}"
        for k, head in enumerate(heads, 1)
    )
    return f"@media screen and (max-width:44rem){{{labels}}}\n"


def _css_string(text: str) -> str:
    """Return a CSS string (Syntax level 3, 4.3.7): all but ASCII letters and digits escaped."""
    plain = (c if c.isascii() and c.isalnum() else f"\\{ord(c):06x}" for c in text)
    return f'"{"".join(plain)}"'


def _policy(style: str, *scripts: str) -> str:
    """Return a content security policy that allows only the page's own style and scripts."""
    hashes = " ".join(f"'{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src {hashes}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    """Return a hash source of a content security policy (level 3, 2.3.1)."""
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
