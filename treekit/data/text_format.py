"""The meaning of text in tables: marks of missing values, and the notation of numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from treekit.errors import DataError, SettingError

MISSING_MARKS = ("", "NA", "NaN", "nan", "null", "None", "?")
"""Texts that mean "missing" by default, compared without surrounding white space."""

NUMBER_MARKS = (
    *MISSING_MARKS,
    *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NULL", "n/a"),
)
"""Texts that mean "missing" by default in columns of numbers: also the marks of pandas and
Arrow.  In a column of names the further ones are categories."""


def get_number_marks(marks: Collection[str]) -> tuple[str, ...]:
    """Return the marks of missing values in columns of numbers, given those of all columns.

    They are `NUMBER_MARKS` unless other marks were declared.
    """
    return NUMBER_MARKS if set(marks) == set(MISSING_MARKS) else tuple(sorted(marks))


def is_number(mark: str) -> bool:
    """Check whether a text is a number other than NaN."""
    try:
        return not math.isnan(float(mark))
    except ValueError:
        return False


SPACES = " \u00a0\u2009\u202f"
"""White space that separates groups of digits: all are the same mark."""


@dataclass(frozen=True)
class TextFormat:
    """The meaning of text in tables: missing values, and the notation of numbers.

    Attributes
    ----------
    marks : frozenset of str
        Texts that mean missing, compared without surrounding white space.
    decimal, thousands : str
        Decimal mark, and mark between groups of digits; "" for none.
    """

    marks: frozenset[str] = frozenset(MISSING_MARKS)
    decimal: str = "."
    thousands: str = ""

    def __post_init__(self) -> None:
        for mark in self.marks:
            if not isinstance(mark, str):
                raise DataError(
                    f"missing_marks must be a list of texts, got {mark!r}; write [{str(mark)!r}]"
                )
        given: list[tuple[str, Any]] = [("decimal", self.decimal), ("thousands", self.thousands)]
        for name, mark in given:
            if (name, mark) == ("thousands", ""):
                continue
            if not isinstance(mark, str) or len(mark) != 1 or mark.isalnum() or mark in '+-"\r\n':
                raise SettingError(
                    f"{name} is {mark!r}; give one character that is no letter, digit, sign, quote "
                    "or line end, such as '.' or ','"
                )
        if self.decimal == self.thousands:
            raise SettingError(
                f"decimal and thousands are both {self.decimal!r}; give different characters"
            )

    @property
    def is_plain(self) -> bool:
        """Whether numbers are in the notation of Python and C."""
        return self.decimal == "." and not self.thousands

    @cached_property
    def number_marks(self) -> frozenset[str]:
        """Marks of missing values in columns of numbers."""
        return frozenset(get_number_marks(self.marks))

    @cached_property
    def has_number_marks(self) -> bool:
        """Whether a mark is itself a number, such as -999."""
        return any(map(is_number, self.marks))

    def is_missing(self, text: Any) -> bool:
        """Check whether a cell of a column of names is missing."""
        return text is None or text.strip() in self.marks

    def is_missing_number(self, text: Any) -> bool:
        """Check whether a cell of a column of numbers is missing."""
        return text is None or text.strip() in self.number_marks

    def parse_number(self, text: str) -> str | None:
        """Return a number in Python's notation; None for other texts."""
        if not self.is_plain:
            found = self.pattern.fullmatch(_join_spaces(text.strip()))
            if found is None:
                return None
            text = "".join(found.group("sign", "whole")).replace(self.separator, "")
            text += found["fraction"].replace(self.decimal, ".") + found["exponent"]
        # float() also accepts 1_000 and digits of other scripts; dataframe libraries do not.
        if not text.isascii() or "_" in text:
            return None
        try:
            float(text)
        except ValueError:
            return None
        return text

    @property
    def separator(self) -> str:
        """Mark between groups of digits in `pattern`; a text without numbers if there is none."""
        return _join_spaces(self.thousands) or "\0"

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Numbers of this notation, in groups of three digits or, as in India, two and three."""
        by, point = re.escape(self.separator), re.escape(self.decimal)
        grouped = f"[0-9]{{1,3}}(?:{by}[0-9]{{3}})+|[0-9]{{1,2}}(?:{by}[0-9]{{2}})*{by}[0-9]{{3}}"
        return re.compile(
            f"(?P<sign>[+-]?)(?P<whole>{grouped}|[0-9]*)(?P<fraction>(?:{point}[0-9]*)?)"
            "(?P<exponent>(?:[eE][+-]?[0-9]+)?)"
        )

    def convert_block(self, texts: Any) -> Any:
        """Convert texts (``pyarrow.StringArray``) to Python's notation; None if one fails."""
        from pyarrow import compute

        coded = texts.dictionary_encode()
        plain = [self.parse_number(text) for text in coded.dictionary.to_pylist()]
        if None in plain:
            return None
        import pyarrow as pa

        return compute.take(pa.array(plain, pa.string()), coded.indices)


def _join_spaces(text: str) -> str:
    """Replace the white space that separates groups of digits by blanks."""
    return text.translate(dict.fromkeys(map(ord, SPACES), " "))
