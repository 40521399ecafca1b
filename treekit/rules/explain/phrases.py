"""Conditions, cells and answers in words."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from treekit.data.schema import Dtype
from treekit.rules.explain.records import Clause, Said
from treekit.rules.language import Language
from treekit.rules.wording import label_text, name_text, numerals, quote

__all__ = ["Words", "padded", "width_of"]

_LEVELS = 6
"""So many levels of a set are named."""


_RANGE = re.compile(r"[<>]=? -?[0-9.]+(e[-+]?[0-9]+)?")


class Words:
    """The words of one explanation.

    Parameters
    ----------
    language : Language
    dtype : {"float32", "float64"}
        Type of thresholds.
    nominal : set of str
        Columns whose cells are texts.
    """

    def __init__(self, language: Language, dtype: Dtype, nominal: set[str]) -> None:
        self.language, self._dtype, self._nominal = language, dtype, nominal

    def say(self, key: str, **fields: str) -> str:
        """A phrase of the catalogue."""
        return self.language.say(f"explain_{key}", **fields)

    def cell(self, column: str, text: str | None) -> str:
        """A cell as it was given: categories quoted."""
        if text is None:
            return self.say("gone")
        return quote(text) if column in self._nominal or not _is_number(text) else text

    def wish(self, wish: str) -> str:
        """A range as it is, a label as other labels."""
        return wish if _RANGE.fullmatch(wish) else name_text(wish)

    def names(self, columns: Sequence[str]) -> str:
        """Names in a row."""
        return ", ".join(map(name_text, columns))

    def clause(self, clause: Clause) -> str:
        """A condition."""
        name = self._left(clause)
        if not clause.known:
            return self.say("is_missing" if clause.missing else "impossible", name=name)
        if clause.levels is not None:
            text = self._set(name, clause.levels)
        else:
            text = self._interval(clause, name)
        if clause.missing:
            return self.say("or_missing", condition=text)
        return text

    def _left(self, clause: Clause) -> str:
        names = list(map(name_text, clause.columns))
        if not clause.weights:
            return names[0]
        weights = numerals(np.array(clause.weights), self._dtype)
        return " + ".join(f"{w} * {n}" for w, n in zip(weights, names, strict=True))

    def _interval(self, clause: Clause, name: str) -> str:
        # A sum is a double, and compared with one.
        dtype: Dtype = "float64" if clause.weights else self._dtype
        low, high = (
            numerals(np.array([end]), dtype)[0] if math.isfinite(end) else ""
            for end in (clause.low, clause.high)
        )
        if low and high:
            return self.say("between", low=low, name=name, high=high)
        if low or high:
            return f"{name} > {low}" if low else f"{name} <= {high}"
        return self.say("is_known", name=name)

    def _set(self, name: str, levels: Sequence[str]) -> str:
        if len(levels) == 1:
            return self.say("is", name=name, level=quote(levels[0]))
        text = ", ".join(map(quote, levels[:_LEVELS]))
        if len(levels) > _LEVELS:
            text += " " + self.say("more", count=str(len(levels) - _LEVELS))
        return self.say("one_of", name=name, levels="{" + text + "}")

    def answer(self, said: Said) -> str:
        """What is answered for one target."""
        target = name_text(said.target)
        if said.label is None:
            return self.say("number", target=target, value=repr(said.value).removesuffix(".0"))
        label = label_text(said.label)
        shares = [share for other, share in said.shares if other == said.label]
        return self.say("label", target=target, label=label, share=_share(shares[0]))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isprintable()


def _share(share: float) -> str:
    """A probability, to four decimals."""
    return f"{share:.4f}"


def padded(text: str, width: int) -> str:
    """A text filled up with blanks; a character of East Asian scripts takes two columns."""
    return text + " " * max(width - width_of(text), 0)


def width_of(text: str) -> int:
    """The columns of a terminal that a text takes."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
