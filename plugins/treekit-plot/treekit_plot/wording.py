"""Names, numbers and conditions in the words of pictures, which are shorter than those of rules."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from treekit.data.schema import Dtype, Label
from treekit.model.split_tests import BranchCondition
from treekit.rules.language import Language
from treekit.rules.wording import format_branch, format_number, quote_label, quote_text

# ---------------------------------------------------------------- names

MAX_NAME_LENGTH = 200
"""Maximum characters of a name in a picture."""

_RIGHT_TO_LEFT = frozenset(("R", "AL", "AN"))
_ISOLATE, _POP = "\u2068", "\u2069"


def format_picture_label(label: Label) -> str:
    """Return a name or label for a picture, shortened, and quoted if unprintable or ambiguous.

    Names in a right-to-left script are isolated, so that adjacent numbers and signs keep their
    positions.
    """
    name = label if isinstance(label, str) else quote_label(label)
    text = name if len(name) <= MAX_NAME_LENGTH else name[: MAX_NAME_LENGTH - 1] + "…"
    plain = text.isprintable() and text == text.strip() and "  " not in text and text
    if not plain or text.startswith('"') or unicodedata.combining(text[0]):
        return quote_text(text)
    if any(unicodedata.bidirectional(char) in _RIGHT_TO_LEFT for char in text):
        return f"{_ISOLATE}{text}{_POP}"
    return text


# ---------------------------------------------------------------- numbers


def format_approximate(value: float) -> str:
    """Format a number: exact up to six digits, a longer one rounded and marked with ≈."""
    exact = format_number(value)
    if sum(char.isdigit() for char in exact.partition("e")[0].lstrip("-0.")) <= 6:
        return exact
    return f"≈ {value:.5g}".replace("e+", "e")


def format_weight(weight: float) -> str:
    """Format a sum of training weights, to four digits unless it is an integer."""
    if weight == round(weight) and weight < 1e15:
        return f"{weight:,.0f}"
    return f"{weight:.4g}".replace("e+", "e")


def format_rounded_percent(share: float) -> str:
    """Format a share of the training rows as a percentage, to three digits."""
    percent = 100.0 * share
    return "< 0.01%" if 0.0 < percent < 0.01 else f"{percent:.3g}%"


# ---------------------------------------------------------------- conditions


def format_condition(
    condition: BranchCondition, dtype: Dtype, words: Language, max_length: int | None = None
) -> str:
    """Format the condition of a branch in the words of pictures; see `format_branch`."""
    return format_branch(
        condition,
        dtype,
        words,
        max_length=max_length,
        style="plot",
        quote=format_picture_label,
        join_sum=format_picture_sum,
    )


def format_picture_sum(weights: Sequence[float], names: Sequence[str]) -> str:
    """Return a weighted sum of columns for a picture; weights are exact in float32."""
    text = ""
    for weight, name in zip(weights, names, strict=True):
        size = "" if abs(weight) == 1.0 else f"{format_number(abs(weight), 'float32')} × "
        sign = " − " if weight < 0 else " + "
        text += (sign if text else "-" if weight < 0 else "") + size + name
    return text
