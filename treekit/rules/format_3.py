"""Rewrite rule text of format 3 as format 4.

In format 3 the line of a column, or of a test, stated what a missing value counts as, and the
conditions that this value meets did not name missing values; of many categories those that do
not match were written.  Everything else is as in format 4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from treekit.rules.clean_text import collapse_blanks
from treekit.rules.language import FIRST_LINE, Language
from treekit.rules.wording import (
    FREE_TEXT_PATTERN,
    FieldPatterns,
    PhrasePatterns,
    format_levels,
    parse_name,
    parse_number,
)

if TYPE_CHECKING:
    from treekit.rules.read_text import ConditionReader

FORMAT_3 = "treekit rules, format 3"
_WITHOUT_MISSING = ("if_known", "if_decided")
"""Phrases that exclude missing values, whatever these count as."""


def is_format_3(rows: Sequence[str]) -> bool:
    """Return whether the first line of a text names format 3."""
    return bool(rows) and rows[0].split(", language ")[0] == FORMAT_3


class Format3Rewriter:
    """Rewriter of the lines of one text: first the notes, then the rules, then the whole text."""

    def __init__(self, words: Language, *, edited: bool) -> None:
        self.words, self.edited, say, atoms = words, edited, words.phrases, FieldPatterns(words)
        known = {"name": atoms.name, "levels": atoms.listed, "test": atoms.test, "clauses": ".+"}
        self.infinite = {say["head_lowest"]: -np.inf, say["head_highest"]: np.inf}
        value = "|".join([atoms.label, *map(re.escape, self.infinite)])
        known |= {"values": FREE_TEXT_PATTERN, "value": f"(?:{value})"}
        self.counts = PhrasePatterns(words, ("head_missing",), known)
        self.kinds = PhrasePatterns(words, ("head_number", "head_levels"), known)
        self.test = PhrasePatterns(words, ("head_test",), known)
        self.outcomes = {
            say["test_otherwise"] + say[key]: side
            for key, side in (("test_holds", -np.inf), ("test_fails", np.inf))
        }
        around = [words.around(key, "condition") for key in ("rule_if", "rule_and")]
        lines = (rf"(\s*{re.escape(a.strip())}\s+)(.+)({re.escape(b)})" for a, b in around)
        self.lines = [re.compile(pattern) for pattern in lines]
        self.columns: dict[str, str] = {}  # texts of what missing values count as
        self.tests: dict[str, float] = {}

    # -------- notes

    def rewrite_notes(self, rows: Sequence[str]) -> list[str]:
        """Return the lines of a text without what missing values count as, which is kept."""
        start = rows[0].removeprefix(FORMAT_3)
        reading = self.words.phrases["head_reading"]
        end = rows.index(reading) if reading in rows else len(rows)
        return [FIRST_LINE + start, *rows[1:end], *map(self._rewrite_note, rows[end:])]

    def _rewrite_note(self, row: str) -> str:
        text = row.strip()
        if (found := self.counts.match_phrase(text)) is not None:
            kind = self.kinds.match_phrase(found[1]["values"])
            if kind is not None:
                self.columns[parse_name(kind[1]["name"])] = found[1]["value"]
                return row[: row.index(text)] + found[1]["values"]
        for outcome, side in self.outcomes.items():
            test = self.test.match_phrase(text) if text.endswith(outcome) else None
            if test is not None:
                self.tests[test[1]["test"]] = side
                return row.rstrip().removesuffix(outcome)
        return row

    # -------- rules

    def rewrite_rules(self, rows: Sequence[str], conditions: ConditionReader) -> list[str]:
        """Return the lines of rules with conditions that name missing values."""
        values = self._parse_values(conditions)

        @cache
        def rewrite(text: str) -> str:
            try:
                plain = collapse_blanks(text) if self.edited else text
                return self._rewrite_condition(plain, conditions, values)
            except ValueError:  # the reader of the line raises it with the line's number
                return text

        rewritten = []
        for row in rows:
            line = next((match for p in self.lines if (match := p.fullmatch(row))), None)
            rewritten.append(line[1] + rewrite(line[2]) + line[3] if line else row)
        return rewritten

    def _parse_values(self, conditions: ConditionReader) -> dict[int, float]:
        """Return, by column or test, the number or code that a missing value counts as."""
        found = {conditions.find_test(name): side for name, side in self.tests.items()}
        for name, token in self.columns.items():
            column = conditions.columns.get(name, -1)
            if column < 0:  # the line is not one of a column: its reader refuses it
                continue
            if conditions.schema.columns[column].kind == "nominal":
                found[column] = conditions.find_code(column, parse_name(token))
            elif token in self.infinite:
                found[column] = self.infinite[token]
            else:
                found[column] = parse_number(token, conditions.schema.dtype)
        return found

    def _rewrite_condition(
        self, text: str, conditions: ConditionReader, values: Mapping[int, float]
    ) -> str:
        core = conditions.core.match_phrase(text)
        if core is None:
            for patterns in (conditions.part, conditions.tail):  # a tail states missing values
                if (match := patterns.match_phrase(text)) is not None:
                    inner = match[1]["condition"]
                    return self._rewrite_condition(inner, conditions, {}) + text[len(inner) :]
            return text
        key, fields = core
        found = conditions.parse_core(text, key, fields)
        if key == "if_other":
            column = conditions.schema.columns[found.column]
            levels = format_levels([column.levels[code] for code in found.fits], self.words)
            text = self.words.say("if_is", name=fields["name"], levels=levels)
        value = values.get(found.column)
        if value is None or found.missing or not found.known or key in _WITHOUT_MISSING:
            return text
        above = found.low == -np.inf or found.low < value
        nominal = found.column < len(conditions.codes) and bool(conditions.codes[found.column])
        if value in found.fits if nominal else above and value <= found.high:
            test = found.column >= conditions.schema.n_features
            return self.words.say("if_or_unknown" if test else "if_or_missing", condition=text)
        return text

    # -------- text

    def rewrite_text(self, text: str, rows: Iterable[tuple[int, str]]) -> str:
        """Return a text with its lines `rows`, by number from 1, and the notes of format 4."""
        lines = text.removeprefix("\ufeff").split("\n")
        for number, row in rows:
            lines[number - 1] = row
        text = "\n".join(lines)
        for old, new in (("counts", "missing"), ("unknown", "unknown")):
            before, after = (
                "".join(f"\n  {line}" for line in self.words.lines(key))
                for key in (f"format_3_{old}", f"note_{new}")
            )
            text = text.replace(f"{before}\n", f"{after}\n", 1)
        return text
