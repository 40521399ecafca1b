"""Conditions and tests in the words of a listing's language, for all forms."""

from __future__ import annotations

from treekit.forms import Listing
from treekit.rules.phrases import condition_texts, test_text
from treekit.rules.words import name_text

__all__ = ["conditions_said", "tests_said"]


def conditions_said(listing: Listing, start: int, stop: int) -> list[tuple[str, str]]:
    """For each condition from `start` to `stop` the name it begins with, and the rest.

    A test, or a language that does not begin with the name, leaves the first part empty.
    """
    rules = listing.rules
    names = [name_text(column.name) for column in rules.schema.columns]
    names += [""] * len(rules.tests)
    asked = rules.conditions.column[start:stop].tolist()
    texts = condition_texts(rules, start, stop)
    return [
        (name, text[len(name) :]) if text.startswith(name := names[column]) else ("", text)
        for column, text in zip(asked, texts, strict=True)
    ]


def tests_said(listing: Listing) -> list[str]:
    """The tests that conditions name, in their order."""
    rules = listing.rules
    return [test_text(test, rules.schema) for test in rules.tests]
