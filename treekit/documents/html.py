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
from typing import TYPE_CHECKING

from markupsafe import Markup

from treekit.documents import Listing
from treekit.documents.layout import (
    DocumentLayout,
    Figure,
    format_tests,
    list_digests,
    list_facts,
    list_notes,
    make_title,
)
from treekit.export.literals import list_shipped_folders
from treekit.rules.wording import format_label, quote_text

if TYPE_CHECKING:
    from jinja2 import Environment


MAX_INITIAL_ROWS = 200
"""Rows that the script shows at first, so that a page of 20,000 rules stays fast."""

_FIRST_SCRIPT = 'document.documentElement.classList.add("js")'
"""Runs before the rows are parsed: later, browsers would lay out the table repeatedly."""

_BUFFERED_PIECES = 512  # pieces of template output joined into one text


def render_html(listing: Listing) -> Iterator[str]:
    """Return the page in pieces."""
    page, rules, say = DocumentLayout(listing), listing.rules, listing.language.say
    votes, trees = page.outcomes.has_votes, 0 if page.weighted else rules.n_trees
    single_number = rules.schema.task == "regression" and not rules.schema.more
    outcome = "number" if single_number else "text"
    keys = [("rule", "number"), *[("tree", "number")] * (trees > 1), ("if", "text")]
    keys += [("then", outcome), *[("otherwise", outcome)] * page.weighted]
    heads = [(say(f"page_head_{key}"), kind, key not in ("rule", "tree")) for key, kind in keys]
    heads += [(figure.heading, "number", False) for figure in page.figures]
    style = _read_resource("page.css") + _render_label_css([name for name, *_ in heads])
    script = _read_resource("page.js")
    figures = [_make_cells(figure) for figure in page.figures]
    rows = ((entry, [cells[entry.rule] for cells in figures]) for entry in page.iter_rows())
    stream = (
        _make_environment()
        .get_template("page.jinja")
        .stream(
            say=say,
            lang=listing.language.code,
            title=make_title(listing),
            policy=_make_content_policy(style, _FIRST_SCRIPT, script),
            style=Markup(style),  # noqa: S704 - page.css, and names escaped by `_quote_css`
            first=Markup(_FIRST_SCRIPT),  # noqa: S704 - constant
            script=Markup(script),  # noqa: S704 - page.js
            facts=list(list_facts(page)),
            digests=list(list_digests(listing)),
            notes=list(list_notes(page)),
            tests=format_tests(listing),
            costs=[] if rules.costs is None else rules.costs.tolist(),
            columns=[
                (format_label(c.name), c.kind, list(map(quote_text, c.levels)))
                for c in rules.schema.columns
            ],
            labels=list(map(format_label, rules.schema.classes)) if votes else [],
            trees=trees if trees > 1 else 0,
            shares=page.has_shares,
            weighted=page.weighted,
            numeric=single_number,
            heads=heads,
            rows=rows,
            shown=MAX_INITIAL_ROWS,
        )
    )
    stream.enable_buffering(_BUFFERED_PIECES)
    yield from stream


def _make_cells(figure: Figure) -> list[tuple[str, str, str]]:
    """Return the text shown, the exact value, and the bar length in per cent ("" for none)."""
    cells = []
    for value, text in zip(figure.values.tolist(), figure.format_values(), strict=True):
        known = not math.isnan(value)
        bar = f"{100 * value:.4g}" if known and figure.kind == "part" else ""
        cells.append((text, repr(value) if known else "", bar))
    return cells


def _render_label_css(heads: list[str]) -> str:
    """Return CSS that repeats the column heading in each cell on narrow screens."""
    labels = "".join(
        f"#rules tbody td:nth-child({k})::before{{content:{_quote_css(head)}}}"
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
