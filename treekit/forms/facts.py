"""What documents say before the first rule: of what, how to read it, where it comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from treekit.data.schema import Output
from treekit.forms import Listing
from treekit.forms.says import shown
from treekit.forms.sheet import Sheet
from treekit.rules.rule_list import Rounding
from treekit.rules.wording import quote

__all__ = ["Fact", "facts", "notes", "title"]


def title(listing: Listing, marked: Callable[[str], str] = str) -> str:
    """The heading; what comes from the table or the caller is passed through `marked`."""
    given = listing.title
    if given:
        return marked(_printable(given))
    return listing.language.say("page_title", target=marked(shown(listing.rules.schema.target)))


def _printable(name: str) -> str:
    return name if name.isprintable() else quote(name)


class Fact(NamedTuple):
    """What is stated of a whole list; `verbatim` values come from a table or a model."""

    name: str
    values: tuple[str, ...]
    verbatim: bool = False


def facts(page: Sheet) -> Iterator[Fact]:
    """The facts of a listing, in the order of documents."""
    listing = page.listing
    rules, say = listing.rules, listing.language.say
    outputs = rules.schema.outputs
    if len(outputs) == 1:
        yield Fact(say("page_target"), (shown(outputs[0].name),), verbatim=True)
        if labels := tuple(map(shown, outputs[0].classes)):
            yield Fact(say("page_classes"), labels, verbatim=True)
    else:
        kinds = tuple(_kind(listing, output) for output in outputs)
        yield Fact(say("page_targets"), kinds, verbatim=True)
    yield Fact(say("page_columns"), (str(rules.schema.n_features),))
    if rules.n_trees > 1 and not page.weighted:
        yield Fact(say("page_trees"), (str(rules.n_trees),))
    yield Fact(say("page_rules"), (str(len(page.shown)),))
    if listing.measures.source == "table" and listing.table_name:
        yield Fact(say("page_measured"), (_printable(listing.table_name),), verbatim=True)
    else:
        yield Fact(say("page_measured"), (say(f"page_measured_{listing.measures.source}"),))
    if listing.model_digest:
        yield Fact(say("page_model_digest"), (listing.model_digest,), verbatim=True)
    yield Fact(say("page_text_digest"), (_digest(listing),), verbatim=True)


def _kind(listing: Listing, output: Output) -> str:
    labels = ", ".join(shown(label) for label in output.classes)
    return f"{shown(output.name)}: {labels or listing.language.say('page_number')}"


def _digest(listing: Listing) -> str:
    """SHA-256 of the text form, by which anyone can tell that two documents say the same."""
    digest = hashlib.sha256()
    for piece in listing.rules.text():
        digest.update(piece.encode())
    return digest.hexdigest()


def notes(page: Sheet) -> Iterator[str]:
    """How the rules are read, in sentences."""
    rules, say = page.listing.rules, page.listing.language.say
    several = rules.n_trees > 1
    if page.weighted:
        yield say(f"page_how_weighted_{rules.combine}")
    elif rules.order == "first":
        yield say("page_how_first_trees" if several else "page_how_first", trees=str(rules.n_trees))
    else:
        key = ("page_how_added" if rules.combine == "sum" else "page_how_forest") if several else ""
        yield say(key or "page_how_one", trees=str(rules.n_trees))
    if rules.mass > 1:
        yield say("page_how_parts")
    yield say("page_missing_error" if rules.missing == "error" else "page_missing_asked")
    yield say(f"page_unknown_{rules.unknown}")
    numeric = any(column.kind == "numeric" for column in rules.schema.columns)
    if rules.schema.dtype == "float32" and numeric:
        yield say("page_rounded")
    if rules.decisions:
        yield say("page_decisions")
    if rules.rounding is not None:
        yield say(
            "page_shortened", **dict(zip(Rounding._fields, map(str, rules.rounding), strict=True))
        )
    confident = any(figure.key == "confidence" for figure in page.figures)
    yield say("page_support" if confident else "page_support_number")
