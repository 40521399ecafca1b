"""Rules as one self-contained HTML page to sort, search, print and sign.

The table is in the page; a script adds sorting, search and filters, and the page's content
security policy allows it by its hash.  The template escapes all names; only `_quote_css`
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
    ConditionText,
    DocumentLayout,
    DocumentRow,
    Figure,
    OutcomeText,
    format_figure,
    format_name,
    format_tests,
    iter_rows,
    list_facts,
    list_notes,
    make_layout,
    make_title,
)
from treekit.export.literals import list_shipped_folders
from treekit.rules.wording import quote_text

if TYPE_CHECKING:
    from jinja2 import Environment


MAX_INITIAL_ROWS = 200
"""Rows that the script shows at first, so that a page of 20,000 rules stays fast."""

_FIRST_SCRIPT = 'document.documentElement.classList.add("js")'
"""Runs before the rows are parsed: later, browsers would lay out the table repeatedly."""

_BUFFERED_PIECES = 512  # pieces of template output joined into one text


class _Heading(NamedTuple):
    """Column heading: its text, sort kind, and whether search reads the column."""

    name: str
    kind: str
    search: bool = False


class _FigureCell(NamedTuple):
    """Cell of a figure: text shown, exact value, and bar length in per cent ("" for none)."""

    text: str
    exact: str
    bar: str


class _RuleRow(NamedTuple):
    """Table row of one rule, for the template."""

    number: int
    tree: int
    label: int
    conditions: list[ConditionText]
    last: bool
    said: tuple[OutcomeText, ...]
    otherwise: tuple[OutcomeText, ...]
    as_parent: bool
    cells: list[_FigureCell]


def render_html(listing: Listing) -> Iterator[str]:
    """Return the page in pieces."""
    page = make_layout(listing)
    heads = list(_list_headings(page))
    style = _read_resource("page.css") + _render_label_css(heads)
    script = _read_resource("page.js")
    rules = listing.rules
    stream = (
        _make_environment()
        .get_template("page.jinja")
        .stream(
            say=listing.language.say,
            lang=listing.language.code,
            title=make_title(listing),
            policy=_make_content_policy(style, _FIRST_SCRIPT, script),
            style=Markup(style),  # noqa: S704 - page.css, and names escaped by `_quote_css`
            first=Markup(_FIRST_SCRIPT),  # noqa: S704 - constant
            script=Markup(script),  # noqa: S704 - page.js
            facts=list(list_facts(page)),
            notes=list(list_notes(page)),
            tests=format_tests(listing),
            costs=[] if rules.costs is None else rules.costs.tolist(),
            columns=[
                (format_name(c.name), c.kind, list(map(quote_text, c.levels)))
                for c in rules.schema.columns
            ],
            labels=list(map(format_name, rules.schema.classes)) if page.outcomes.has_votes else [],
            trees=rules.n_trees if rules.n_trees > 1 and not page.weighted else 0,
            votes=page.outcomes.has_votes,
            weighted=page.weighted,
            numeric=_is_single_number(page),
            heads=heads,
            rows=_iter_rows(page),
            n_rows=len(page.shown_rules),
            shown=MAX_INITIAL_ROWS,
        )
    )
    stream.enable_buffering(_BUFFERED_PIECES)
    yield from stream


def _list_headings(page: DocumentLayout) -> Iterator[_Heading]:
    say = page.listing.language.say
    yield _Heading(say("page_head_rule"), "number")
    if page.listing.rules.n_trees > 1 and not page.weighted:
        yield _Heading(say("page_head_tree"), "number")
    yield _Heading(say("page_head_if"), "text", search=True)
    answers = "number" if _is_single_number(page) else "text"
    yield _Heading(say("page_head_then"), answers, search=True)
    if page.weighted:
        yield _Heading(say("page_head_otherwise"), answers, search=True)
    for figure in page.figures:
        yield _Heading(figure.heading, "number")


def _is_single_number(page: DocumentLayout) -> bool:
    schema = page.listing.rules.schema
    return schema.task == "regression" and not schema.more


def _iter_rows(page: DocumentLayout) -> Iterator[_RuleRow]:
    figures = [_make_cells(figure) for figure in page.figures]
    for entry in iter_rows(page):
        cells = [figure[entry.rule] for figure in figures]
        yield _make_row(entry, cells)


def _make_row(entry: DocumentRow, cells: list[_FigureCell]) -> _RuleRow:
    label = entry.outcomes[0].label
    return _RuleRow(
        entry.rule + 1,
        entry.tree + 1,
        label,
        entry.conditions,
        entry.is_otherwise,
        entry.outcomes,
        entry.otherwise,
        entry.as_parent,
        cells,
    )


def _make_cells(figure: Figure) -> list[_FigureCell]:
    values, texts = figure.values.tolist(), format_figure(figure)
    exact = ["" if math.isnan(value) else repr(value) for value in values]
    bars = [""] * len(values)
    if figure.kind == "part":
        bars = ["" if math.isnan(value) else f"{100 * value:.4g}" for value in values]
    return list(map(_FigureCell, texts, exact, bars))


def _render_label_css(heads: list[_Heading]) -> str:
    """Return CSS that repeats the column heading in each cell on narrow screens."""
    labels = "".join(
        f"tbody td:nth-child({k})::before{{content:{_quote_css(head.name)}}}"
        for k, head in enumerate(heads, 1)
    )
    return f"@media screen and (max-width:44rem){{{labels}}}\n"


def _quote_css(text: str) -> str:
    """Return a CSS string (Syntax level 3, 4.3.7): all but ASCII letters and digits escaped."""
    plain = (c if c.isascii() and c.isalnum() else f"\\{ord(c):06x}" for c in text)
    return f'"{"".join(plain)}"'


def _make_content_policy(style: str, *scripts: str) -> str:
    """Return a content security policy that allows only the page's own style and scripts."""
    hashes = " ".join(f"'{_hash_source(script)}'" for script in scripts)
    return (
        f"default-src 'none'; style-src '{_hash_source(style)}'; script-src {hashes}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash_source(text: str) -> str:
    """Return a hash source of a content security policy (level 3, 2.3.1)."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _find_page_folder() -> Path:
    return next(folder / "page" for folder in list_shipped_folders())


@cache
def _read_resource(name: str) -> str:
    return (_find_page_folder() / name).read_text(encoding="utf-8")


@cache
def _make_environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_find_page_folder(), encoding="utf-8"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
    )
