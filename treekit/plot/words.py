"""What stands in a picture: names, numbers and tests as people read them.

Names are strangers' text: whatever does not print as it stands, or could pass
for something else, is quoted and escaped as in the text of rules
(`treekit.rules.wording.quote`).  Thresholds are exact; shares and weights of
training rows are rounded to be read.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from treekit.rules.wording import label_text, numerals, quote

if TYPE_CHECKING:
    from treekit.data.schema import Label
    from treekit.plot.language import Language

__all__ = [
    "LONGEST_LIST",
    "either",
    "number_text",
    "percent_text",
    "shown_label",
    "shown_name",
    "value_text",
    "weight_text",
]

LONGEST_NAME, LONGEST_LIST = 200, 2000
"""Letters of one name, and of a list of levels in a tooltip: a name may be a novel."""

_RIGHT_TO_LEFT = frozenset(("R", "AL", "AN"))
_ISOLATE, _POP = "\u2068", "\u2069"


def shown_name(name: str) -> str:
    """A name as it is, or quoted and escaped if it would not be read as it is.

    Names in a script that runs from right to left are isolated, so that the
    numbers and signs beside them keep their places.
    """
    text = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
    plain = text.isprintable() and text == text.strip() and "  " not in text and text
    if not plain or text.startswith('"') or unicodedata.combining(text[0]):
        return quote(text)
    if any(unicodedata.bidirectional(char) in _RIGHT_TO_LEFT for char in text):
        return f"{_ISOLATE}{text}{_POP}"
    return text


def shown_label(label: Label) -> str:
    """A class label; numbers and bools as the text of rules has them."""
    return shown_name(label) if isinstance(label, str) else shown_name(label_text(label))


def either(texts: Sequence[str], language: Language, letters: int = LONGEST_LIST) -> str:
    """``a``, ``a or b``, ``a, b or c``; beyond about `letters` letters ``a, b or 9 more``."""
    room, fit = letters, 0
    while fit < len(texts) and (fit == 0 or len(texts[fit]) + 2 <= room):
        room -= len(texts[fit]) + 2
        fit += 1
    shown = list(texts[:fit])
    if fit < len(texts):
        shown.append(language.more.format(len(texts) - fit))
    if len(shown) < 2:
        return shown[0] if shown else "—"
    return language.comma.join(shown[:-1]) + language.either + shown[-1]


def number_text(value: float, dtype: str = "float64") -> str:
    """The shortest text that reads back to the number of that type."""
    return numerals(np.array([value]), "float32" if dtype == "float32" else "float64")[0]


def value_text(value: float) -> str:
    """A number of up to six figures as it is; a longer one rounded, and marked so."""
    exact = number_text(value)
    if sum(char.isdigit() for char in exact.partition("e")[0].lstrip("-0.")) <= 6:
        return exact
    return f"≈ {value:.5g}".replace("e+", "e")


def weight_text(weight: float) -> str:
    """A sum of training weight, to four figures if it is no whole number."""
    if weight == round(weight) and weight < 1e15:
        return f"{weight:,.0f}"
    return f"{weight:.4g}".replace("e+", "e")


def percent_text(share: float) -> str:
    """A share of the training rows, to three figures."""
    percent = 100.0 * share
    return "< 0.01%" if 0.0 < percent < 0.01 else f"{percent:.3g}%"
