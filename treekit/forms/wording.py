"""Conditions in words, with the name apart, for forms that set it off."""

from __future__ import annotations

from treekit.forms import Listing
from treekit.rules.phrases import condition_texts
from treekit.rules.words import name_text

__all__ = ["conditions_said"]


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
