"""Reading the text of rules: strictly, line by line, nothing taken on trust."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from treekit.errors import DataError, ModelError, ModelFileError
from treekit.model.votes import least_cost
from treekit.rules import language as languages
from treekit.rules.header import header
from treekit.rules.language import ENGLISH, FIRST_LINE, Language, known_languages
from treekit.rules.patterns import NUMBER, SHARE, WHOLE, Atoms, Patterns, cut, shape
from treekit.rules.read_header import Facts, Lines, read_header
from treekit.rules.read_phrases import ConditionReader, Fields
from treekit.rules.rulelist import ConditionTable, RuleList
from treekit.rules.words import name_text, read_label, read_numeral, read_share
from treekit.rules.write import pieces

__all__ = ["parse_rules"]

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
    words = _language_of(text) if language is None else languages.language(language)
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


def _language_of(text: str) -> Language:
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
    reader, frame = _Then(facts, words), _Frame(lines, facts)
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
        conditions=_table(conditions),
        combine=facts.combine,
        link=facts.link,
        order=facts.order,
        decisions=facts.decisions,
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


class _Then:
    """Reads the last lines of a rule: one for each target."""

    def __init__(self, facts: Facts, words: Language) -> None:
        self.facts, self.words, atoms = facts, words, Atoms(words)
        outputs, several = facts.schema.outputs, bool(facts.schema.more)
        self.shared = facts.schema.task == "classification" and not facts.margins
        end = "_shares" if self.shared else ""
        say = words.phrases
        self.comma, self.nothing = say["rule_comma"], say["rule_nothing"]
        known = {"name": atoms.name, "label": atoms.label, "support": NUMBER}
        known |= {"share": NUMBER if facts.margins else SHARE, "answer": atoms.label}
        reached = ("rule_as_above", "rule_support")
        self.support = Patterns(words, reached, known)
        self.pair = Patterns(words, ("rule_share",), known)
        if facts.margins:
            pair = shape(say["rule_share"], known)
            many = rf"{pair}(?:{re.escape(self.comma)}{pair})*"
            known["answer"] = rf"(?:{many}|{re.escape(self.nothing)})"
        if several:
            known["answer"] = shape(say["rule_target"], known)
        known["support"] = rf"(?:{'|'.join(shape(say[key], known) for key in reached)})"
        known["shares"] = ".+"
        self.then = Patterns(words, (f"rule_then{end}",), known)
        self.also = Patterns(words, (f"rule_also{end}",), known)
        self.around = [
            words.around("rule_target", "answer", name=name_text(output.name, words))
            if several
            else ("", "")
            for output in outputs
        ]
        self.classes = [
            {(type(label), label): i for i, label in enumerate(output.classes)}
            for output in outputs
        ]
        self.units: dict[str, int] = {}
        self.said: dict[str, tuple[str, str]] = {}

    def read(self, lines: Lines) -> tuple[float, bool, list[int]]:
        """Support, whether the rule says what its parent does, and units."""
        outputs = self.facts.schema.outputs
        found = self._line(lines, self.then)
        reached = self.support.read(found["support"])
        if reached is None:
            raise ValueError("expected a line 'then ...'")
        support, as_parent = read_numeral(reached[1]["support"]), reached[0] == "rule_as_above"
        if as_parent and support != 0:
            raise ValueError("only a rule without support is as above")
        if self.facts.margins:
            return support, as_parent, self._margins(found["answer"])
        units = self._output(0, found)
        for k in range(1, len(outputs)):
            units += self._output(k, self._line(lines, self.also))
        return support, as_parent, units

    def _line(self, lines: Lines, pattern: Patterns) -> dict[str, str]:
        line = lines.next()
        found = pattern.read(line[2:]) if line.startswith("  ") else None
        if found is None:
            which = (
                "a line 'then ...'" if pattern is self.then else "the answer for the next target"
            )
            raise ValueError(f"expected {which}")
        return found[1]

    def _output(self, k: int, found: dict[str, str]) -> list[int]:
        start, end = self.around[k]
        said = found["answer"]
        if not (said.startswith(start) and said.endswith(end)):
            raise ValueError("expected the next target")
        said = said[len(start) : len(said) - len(end)]
        if not self.shared:
            return [self._steps(said)]
        votes = [0] * len(self.classes[k])
        for pair in cut(found["shares"], self.comma):
            label, share = self._pair(pair)
            if share not in self.units:
                self.units[share] = read_share(share, self.facts.units_each)
            votes[self._class(k, label)] = self.units[share]
        best = int(least_cost(np.array([votes]), self.facts.costs)[0])
        if best != self._class(k, said):
            what = "with the largest share" if self.facts.costs is None else "of least cost"
            raise ValueError(f"{said} is not the class {what}")
        return votes

    def _pair(self, text: str) -> tuple[str, str]:
        """A class and what is said of it."""
        if text not in self.said:
            found = self.pair.read(text)
            if found is None:
                raise ValueError(f"{text!r} is not a class and its number")
            self.said[text] = found[1]["label"], found[1]["share"]
        return self.said[text]

    def _margins(self, said: str) -> list[int]:
        units = [0] * len(self.classes[0])
        named = [] if said == self.nothing else [self._pair(p) for p in cut(said, self.comma)]
        for label, number in named:
            units[self._class(0, label)] = self._steps(number)
        if np.count_nonzero(units) != len(named):
            raise ValueError(f"{said} names a class twice, or adds 0 to it")
        return units

    def _steps(self, numeral: str) -> int:
        units = float(np.ldexp(read_numeral(numeral), -self.facts.exponent))
        if not units.is_integer() or abs(units) >= 2.0**62:
            raise ValueError(f"{numeral} is not a multiple of the step")
        return int(units)

    def _class(self, k: int, token: str) -> int:
        label = read_label(token)
        return self.classes[k][type(label), label]


def _table(conditions: list[Fields]) -> ConditionTable:
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
