"""Conditions and tests in the words of a listing's language, for all forms."""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

import numpy as np

from treekit.forms import Listing
from treekit.rules.wording import condition_texts, name_text, test_text

__all__ = ["Asked", "conditions_said", "rules_said", "tests_said"]


class Asked(NamedTuple):
    """A condition in words, cut at the name that it asks; of a test all is `before`."""

    before: str
    name: str
    behind: str


def conditions_said(listing: Listing, start: int, stop: int) -> list[Asked]:
    """The conditions from `start` to `stop`."""
    rules, words = listing.rules, listing.language
    names = [name_text(column.name, words) for column in rules.schema.columns]
    names += [""] * len(rules.tests)
    asked = rules.conditions.column[start:stop].tolist()
    texts = condition_texts(rules, start, stop, words)
    places = {column: _place_of(names[column]) for column in set(asked)}
    return [_cut(text, places[column]) for column, text in zip(asked, texts, strict=True)]


def _place_of(name: str) -> re.Pattern[str] | None:
    """Where a name stands in words: a plain one is no part of a word or of a numeral."""
    return re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)") if name else None


def _cut(text: str, place: re.Pattern[str] | None) -> Asked:
    found = place.search(text) if place else None
    if found is None:
        return Asked(text, "", "")
    return Asked(text[: found.start()], found.group(), text[found.end() :])


def tests_said(listing: Listing) -> list[str]:
    """The tests that conditions name, in their order."""
    rules, words = listing.rules, listing.language
    return [test_text(test, rules.schema, words) for test in rules.tests]


def rules_said(listing: Listing, first: int, last: int) -> list[str]:
    """For each rule from `first` to `last` its conditions, in one line of bare text.

    What joins them tells ``a <= 1, or missing; and b is c`` from a missing value and b: in
    other forms each condition has a mark of its own.
    """
    rules, words = listing.rules, listing.language
    begin = rules.bounds(first)[0]
    texts = condition_texts(rules, begin, rules.bounds(last - 1)[1], words)
    ends = [0, *(rules.end[first:last] - begin).tolist()]
    joined, always = words.say("page_and_also"), words.say("page_always")
    said = [joined.join(texts[start:end]) for start, end in itertools.pairwise(ends)]
    behind = np.diff(rules.tree[max(first - 1, 0) : last], prepend=-1)[-len(said) :] == 0
    otherwise = behind & (rules.order == "first")
    nothing = np.where(otherwise, words.say("page_otherwise"), always).tolist()
    return [text or none for text, none in zip(said, nothing, strict=True)]
