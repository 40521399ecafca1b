"""Rules as GitHub-flavoured Markdown.

Text from a table or a model is put in code spans, where Markdown has no markup: neither
HTML nor links (GitHub also links bare addresses) nor emphasis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from treekit.documents import Listing
from treekit.documents.layout import (
    DocumentLayout,
    DocumentRow,
    Fact,
    format_tests,
    list_digests,
    list_facts,
    list_notes,
    make_title,
)
from treekit.rules.wording import format_label, join_outcomes

_BACKTICKS = re.compile("`+")


def render_markdown(listing: Listing) -> Iterator[str]:
    """Return the document: a heading, facts, notes, and a table for each tree."""
    page = DocumentLayout(listing)
    yield "\n".join(_render_head(page)) + "\n"
    sections = page.listing.rules.n_trees > 1 and not page.weighted
    table = _RuleTable(page)
    tree, lines = -1, list[str]()
    for entry in page.iter_rows():
        if entry.tree != tree and (sections or tree < 0):
            lines += table.start_table(entry.tree if sections else None)
        tree = entry.tree
        lines.append(table.format_row(entry))
        if len(lines) > 1000:
            yield "\n".join(lines) + "\n"
            lines = []
    yield "\n".join([*lines, "", *map(_format_fact, list_digests(listing))]) + "\n"


def _format_fact(fact: Fact) -> str:
    values = map(_format_code, fact.values) if fact.verbatim else fact.values
    return f"- {fact.name}: {', '.join(values)}"


def _format_code(text: str, *, cell: bool = False) -> str:
    """Return `text` as a code span (CommonMark 6.1); table cells need escaped bars even there."""
    longest = max(map(len, _BACKTICKS.findall(text))) if "`" in text else 0
    fence = "`" * (longest + 1)
    edge = " " if text[:1] in ("`", " ", "") or text[-1:] in ("`", " ") else ""
    if cell:
        text = text.replace("|", "\\|")
    return f"{fence}{edge}{text}{edge}{fence}"


def _render_head(page: DocumentLayout) -> Iterator[str]:
    listing = page.listing
    rules, say = listing.rules, listing.language.say
    yield f"# {make_title(listing, _format_code)}"
    yield ""
    yield from map(_format_fact, list_facts(page))
    yield f"\n## {say('page_reading')}\n"
    yield from (f"- {note}" for note in list_notes(page))
    if rules.tests:
        yield f"\n## {say('page_tests')}\n"
        for number, test in enumerate(format_tests(listing), 1):
            yield f"{number}. {_format_code(test)}"
    if rules.costs is not None:
        labels = [_format_cell(format_label(label)) for label in rules.schema.classes]
        yield f"\n## {say('page_costs')}\n\n{say('page_costs_say')}\n"
        yield _join_cells(["", *labels])
        yield _join_cells(["---", *["---:"] * len(labels)])
        for label, costs in zip(labels, rules.costs.tolist(), strict=True):
            yield _join_cells([label, *map(str, costs)])


def _join_cells(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


class _RuleTable:
    """Table of the rules; columns that would be empty throughout are left out."""

    def __init__(self, page: DocumentLayout) -> None:
        self.page, self.say = page, page.listing.language.say
        self.texts = [figure.format_values() for figure in page.figures]

    def start_table(self, tree: int | None) -> list[str]:
        """Return the heading of a tree and the head of its table."""
        lines = [""]
        if tree is not None:
            trees = self.page.listing.rules.n_trees
            lines += [f"## {self.say('page_tree', number=tree + 1, trees=trees)}", ""]
        words = [
            "if",
            "then",
            *["otherwise"] * self.page.weighted,
            *["shares"] * self.page.has_shares,
        ]
        heads = [self.say(f"page_head_{word}") for word in ("rule", *words)]
        heads += [_escape_heading(figure.heading) for figure in self.page.figures]
        aligned = ["---:", *["---"] * len(words), *["---:"] * len(self.page.figures)]
        return [*lines, _join_cells(heads), _join_cells(aligned)]

    def format_row(self, entry: DocumentRow) -> str:
        """Return the table row of one rule."""
        conditions = f" {self.say('page_and')} ".join(
            _format_cell("".join(asked)) for asked in entry.conditions
        )
        if not conditions:
            conditions = f"*{self.say('page_otherwise' if entry.is_otherwise else 'page_always')}*"
        outcome = join_outcomes(entry.outcomes, "<br>", _format_cell)
        if entry.as_parent:
            outcome += f" *({self.say('page_as_parent')})*"
        cells = [str(entry.rule + 1), conditions, outcome]
        if self.page.weighted:
            cells.append(join_outcomes(entry.otherwise, "<br>", _format_cell))
        if self.page.has_shares:
            join = self.page.outcomes.join_shares
            cells.append("<br>".join(_format_cell(join(one.shares)) for one in entry.outcomes))
        return _join_cells([*cells, *(texts[entry.rule] for texts in self.texts)])


def _format_cell(text: str) -> str:
    return _format_code(text, cell=True)


def _escape_heading(heading: str) -> str:
    """Escape the Markdown of a heading, which may contain a target's name."""
    return re.sub(r"([\\`*_{}\[\]<>#|~&!@:.$])", r"\\\1", heading)
