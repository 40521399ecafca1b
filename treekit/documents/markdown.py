"""Rules as GitHub-flavoured Markdown.

Text from a table or a model is put in code spans, where Markdown has no markup: neither
HTML nor links (GitHub also links bare addresses) nor emphasis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from treekit.documents import Listing
from treekit.documents.layout import (
    Entry,
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

__all__ = [
    "pieces",
]

_TICKS = re.compile("`+")


def pieces(listing: Listing) -> Iterator[str]:
    """Return the document: a heading, facts, notes, and a table for each tree."""
    page = sheet(listing)
    yield "\n".join(_head(page)) + "\n"
    sections = page.listing.rules.n_trees > 1 and not page.weighted
    table = _Table(page)
    tree, lines = -1, list[str]()
    for entry in entries(page):
        if entry.tree != tree and (sections or tree < 0):
            lines += table.start(entry.tree if sections else None)
        tree = entry.tree
        lines.append(table.row(entry))
        if len(lines) > 1000:
            yield "\n".join(lines) + "\n"
            lines = []
    yield "\n".join(lines) + "\n"


def _code(text: str, *, cell: bool = False) -> str:
    """Return `text` as a code span (CommonMark 6.1); table cells need escaped bars even there."""
    longest = max(map(len, _TICKS.findall(text))) if "`" in text else 0
    fence = "`" * (longest + 1)
    edge = " " if text[:1] in ("`", " ", "") or text[-1:] in ("`", " ") else ""
    if cell:
        text = text.replace("|", "\\|")
    return f"{fence}{edge}{text}{edge}{fence}"


def _head(page: Sheet) -> Iterator[str]:
    listing = page.listing
    rules, say = listing.rules, listing.language.say
    yield f"# {title(listing, _code)}"
    yield ""
    for fact in facts(page):
        values = map(_code, fact.values) if fact.verbatim else fact.values
        yield f"- {fact.name}: {', '.join(values)}"
    yield ""
    yield from notes(page)
    if rules.tests:
        yield f"\n## {say('page_tests')}\n"
        for number, test in enumerate(tests_said(listing), 1):
            yield f"{number}. {_code(test)}"
    if rules.costs is not None:
        labels = [_cell(shown(label)) for label in rules.schema.classes]
        yield f"\n## {say('page_costs')}\n\n{say('page_costs_say')}\n"
        yield _line(["", *labels])
        yield _line(["---", *["---:"] * len(labels)])
        for label, costs in zip(labels, rules.costs.tolist(), strict=True):
            yield _line([label, *map(str, costs)])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


class _Table:
    """Table of the rules; columns that would be empty throughout are left out."""

    def __init__(self, page: Sheet) -> None:
        self.page, self.say = page, page.listing.language.say
        self.votes = page.says.votes
        self.texts = [figure_texts(figure) for figure in page.figures]

    def start(self, tree: int | None) -> list[str]:
        """Return the heading of a tree and the head of its table."""
        lines = [""]
        if tree is not None:
            trees = str(self.page.listing.rules.n_trees)
            lines += [f"## {self.say('page_tree', number=str(tree + 1), trees=trees)}", ""]
        words = ["if", "then", *["otherwise"] * self.page.weighted, *["shares"] * self.votes]
        heads = [self.say(f"page_head_{word}") for word in ("rule", *words)]
        figures = [_plain(figure.heading) for figure in self.page.figures]
        aligned = ["---:", *["---"] * len(words), *["---:"] * len(figures)]
        return [*lines, _line([*heads, *figures]), _line(aligned)]

    def row(self, entry: Entry) -> str:
        """Return the table row of one rule."""
        conditions = f" {self.say('page_and')} ".join(
            _cell("".join(asked)) for asked in entry.conditions
        )
        if not conditions:
            conditions = f"*{self.say('page_otherwise' if entry.last else 'page_always')}*"
        outcome = self._said(entry.said)
        if entry.as_parent:
            outcome += f" *({self.say('page_as_parent')})*"
        cells = [str(entry.rule + 1), conditions, outcome]
        if self.page.weighted:
            cells.append(self._said(entry.otherwise))
        if self.votes:
            cells.append("<br>".join(_cell(outcome.pairs) for outcome in entry.said))
        return _line([*cells, *(texts[entry.rule] for texts in self.texts)])

    def _said(self, said: tuple[Said, ...]) -> str:
        return "<br>".join(
            f"{_cell(one.target)}: {_cell(one.text)}" if one.target else _cell(one.text)
            for one in said
        )


def _cell(text: str) -> str:
    return _code(text, cell=True)


def _plain(heading: str) -> str:
    """Escape the Markdown of a heading, which may contain a target's name."""
    return re.sub(r"([\\`*_{}\[\]<>#|~&!@:.$])", r"\\\1", heading)
