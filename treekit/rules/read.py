"""Reading the text of rules: strictly, line by line, nothing taken on trust."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from treekit.errors import DataError, ModelError, ModelFileError
from treekit.rules import language as languages
from treekit.rules.conditions import ConditionTable
from treekit.rules.header import header
from treekit.rules.language import ENGLISH, FIRST_LINE, Language, known_languages
from treekit.rules.patterns import WHOLE, Patterns
from treekit.rules.read_answers import AnswerReader
from treekit.rules.read_header import Facts, Lines, read_header
from treekit.rules.read_phrases import ConditionReader, Fields
from treekit.rules.rulelist import RuleList
from treekit.rules.write import pieces

__all__ = ["condition_table", "language_of", "parse_rules"]

_FIRST_LINE = re.compile(rf"{re.escape(FIRST_LINE)}(?:, language ([A-Za-z0-9-]+))?")


def parse_rules(text: str, language: str | Path | Language | None = None) -> RuleList:
    """The rules that a text states; its `RuleList.text` is the text again.

    Parameters
    ----------
    text : str
    language : str, Path or Language, optional
        The language of the text; by default what its first line names.  A text in the
        words of a catalogue file is read with that file.

    Raises
    ------
    ModelFileError
        For any line that `treekit.rules.write` does not write; names the line.
    SettingError
        If there is no such language.
    """
    words = language_of(text) if language is None else languages.language(language)
    lines = Lines(text, words)
    try:
        facts = read_header(lines)
        result = _rules(lines, facts)
        _require_same(result, text, words)
        return result
    except (ValueError, KeyError, IndexError, OverflowError, DataError, ModelError) as error:
        raise ModelFileError(
            f"line {lines.at} of the rules cannot be read ({error}); "
            "export the rules again: they are executed exactly as written or not at all"
        ) from error


def language_of(text: str) -> Language:
    """The language that a text names; English, which other texts are refused in, if none."""
    match = _FIRST_LINE.fullmatch(text.partition("\n")[0])
    code = match[1] if match is not None and match[1] else ENGLISH
    if code not in known_languages():  # a text names no file to be read
        raise ModelFileError(
            f"line 1 of the rules names the language {code!r}, which treekit does not bring; "
            "give its catalogue file"
        )
    return languages.language(code)


def _rules(lines: Lines, facts: Facts) -> RuleList:
    n, end_of_header = facts.n_rules, lines.at
    places, ends = np.zeros((n, 2), np.int32), np.zeros(n, np.int64)
    support, as_parent = np.zeros(n), np.zeros(n, dtype=np.bool_)
    units = np.zeros((n, facts.schema.n_values), dtype=np.int64)
    conditions: list[Fields] = []
    words = lines.words
    reader, frame = AnswerReader(facts, words), _Frame(lines, facts)
    rule = ConditionReader(facts.schema, facts.tests, words, divides=facts.mass > 1)
    for number in range(n):
        places[number] = frame.place(number + 1)
        conditions.extend(rule.read(condition) for condition in frame.conditions())
        ends[number] = len(conditions)
        support[number], as_parent[number], units[number] = reader.read(lines)
    if lines.lines[lines.at :] != [""]:
        raise ValueError("the text goes on after its last rule")
    result = RuleList(
        schema=facts.schema,
        missing=facts.missing,
        unknown=facts.unknown,
        voting=facts.voting,
        costs=facts.costs,
        n_trees=facts.n_trees,
        exponent=facts.exponent,
        tests=facts.tests,
        tree=places[:, 0],
        leaf=places[:, 1],
        support=support,
        as_parent=as_parent,
        units=units,
        end=ends,
        conditions=condition_table(conditions),
        combine=facts.combine,
        link=facts.link,
        order=facts.order,
        decisions=facts.decisions,
        rounding=facts.rounding,
    )
    if result.order == "first" and bool(np.any(np.diff(result.tree) < 0)):
        raise ValueError("the trees of an ordered list are out of order")
    if header(result, words) != lines.lines[:end_of_header]:
        raise ValueError("the header's explanations do not follow from its facts")
    return result


def _require_same(result: RuleList, text: str, words: Language) -> None:
    """Refuse what means the same, but is not how it is written: ``01``, ``1e0``."""
    at = 0
    for piece in pieces(result, words):
        if not text.startswith(piece, at):
            said = zip(piece.split("\n"), text[at:].split("\n"), strict=False)
            line = text.count("\n", 0, at) + [one == other for one, other in said].index(False) + 1
            raise ValueError(f"line {line} is not written as treekit writes it")
        at += len(piece)


class _Frame:
    """Reads the lines of a rule up to what it answers."""

    def __init__(self, lines: Lines, facts: Facts) -> None:
        self.lines, self.facts, words = lines, facts, lines.words
        self.several = facts.n_trees > 1
        numbers = dict.fromkeys(("rule", "rules", "tree", "trees", "node"), WHOLE)
        key = "rule_place_tree" if self.several else "rule_place"
        self.header = Patterns(words, (key,), numbers)
        # Which of the two it is follows from the place; it is checked with the whole text.
        self.without = [f"  {words.phrases[key]}" for key in ("rule_always", "rule_otherwise")]
        self.starts = [words.around(key, "condition") for key in ("rule_if", "rule_and")]

    def place(self, number: int) -> tuple[int, int]:
        """Tree and node of rule `number`, which is the next."""
        if self.lines.next() != "":
            raise ValueError("expected an empty line before a rule")
        found = self.header.read(self.lines.next())
        if found is None:
            raise ValueError("expected the line of a rule's number")
        said = {field: int(text) for field, text in found[1].items()}
        facts = self.facts
        if (said["rule"], said["rules"]) != (number, facts.n_rules):
            raise ValueError("a rule is out of place")
        if self.several and said["trees"] != facts.n_trees:
            raise ValueError("a rule is out of place")
        return (said["tree"] - 1 if self.several else 0), said["node"]

    def conditions(self) -> Iterator[str]:
        """What the rule asks."""
        line = self.lines.next()
        if line in self.without:
            return
        (start, end), (more, more_end) = self.starts
        yield self._inside(line, start, end)
        while self.lines.begins(f"  {more}"):
            yield self._inside(self.lines.next(), more, more_end)

    def _inside(self, line: str, start: str, end: str) -> str:
        if not (line.startswith(f"  {start}") and line.endswith(end)):
            raise ValueError(f"expected '  {start}', or one of {self.without}")
        return line[len(start) + 2 : len(line) - len(end)]


def condition_table(conditions: Sequence[Fields]) -> ConditionTable:
    """Conditions one after the other as a table."""
    column, low, high, known, missing, part, fits, dividing = (
        zip(*conditions, strict=True) if conditions else ((),) * 8
    )
    parts = np.array(part, dtype=np.int32).reshape(-1, 2)
    counts = [len(a) + len(b) for a, b in zip(fits, dividing, strict=True)]
    return ConditionTable(
        np.array(column, dtype=np.int32),
        np.array(low, dtype=np.float64),
        np.array(high, dtype=np.float64),
        np.array(known, dtype=np.bool_),
        np.array(missing, dtype=np.bool_),
        parts[:, 0],
        parts[:, 1],
        np.array([len(some) for some in dividing], dtype=np.int64),
        np.cumsum(counts, dtype=np.int64),
        np.array([c for f in conditions for c in (*f.fits, *f.dividing)], dtype=np.int32),
    )
