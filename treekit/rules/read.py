"""Reading the text of rules: strictly, line by line, nothing taken on trust."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from treekit.data.schema import Output
from treekit.errors import DataError, ModelError, ModelFileError
from treekit.model.votes import least_cost
from treekit.rules.header import header
from treekit.rules.read_header import Facts, Lines, read_header
from treekit.rules.read_phrases import LABEL, NUMBER, ConditionReader, Fields, read_pairs
from treekit.rules.rulelist import ConditionTable, RuleList
from treekit.rules.words import name_text, read_label, read_numeral, read_share
from treekit.rules.write import ALWAYS, NOTHING, OTHERWISE, pieces

__all__ = ["parse_rules"]

_RULE = re.compile(r"rule ([0-9]+) of ([0-9]+)(?:, tree ([0-9]+) of ([0-9]+))?, node ([0-9]+)")
_SUPPORT = re.compile(rf"({LABEL})   support ({NUMBER})( \(as above\))?(?:   (.+))?")
_ADDED = rf"{LABEL}: {NUMBER}"
_MARGINS = re.compile(rf"({NOTHING}|{_ADDED}(?:, {_ADDED})*)   support ({NUMBER})( \(as above\))?")
_ADDS = re.compile(rf"({LABEL}): ({NUMBER})(?:, |$)")
_ANSWER = re.compile(rf"({LABEL})(?:   (.+))?")


def parse_rules(text: str) -> RuleList:
    """The rules that a text states; ``str`` of the result is the text again.

    Raises
    ------
    ModelFileError
        For any line that `treekit.rules.write` does not write; names the line.
    """
    lines = Lines(text)
    try:
        facts = read_header(lines)
        result = _rules(lines, facts)
        _require_same(result, text)
        return result
    except (ValueError, KeyError, IndexError, OverflowError, DataError, ModelError) as error:
        raise ModelFileError(
            f"line {lines.at} of the rules cannot be read ({error}); "
            "export the rules again: they are executed exactly as written or not at all"
        ) from error


def _rules(lines: Lines, facts: Facts) -> RuleList:
    n, end_of_header = facts.n_rules, lines.at
    places, ends = np.zeros((n, 2), np.int32), np.zeros(n, np.int64)
    support, as_parent = np.zeros(n), np.zeros(n, dtype=np.bool_)
    units = np.zeros((n, facts.schema.n_values), dtype=np.int64)
    conditions: list[Fields] = []
    reader = _Then(facts)
    rule = ConditionReader(facts.schema, facts.tests, divides=facts.mass > 1)
    for number in range(n):
        places[number] = _place(lines, number + 1, facts)
        conditions.extend(rule.read(condition) for condition in _conditions(lines))
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
    )
    if result.order == "first" and bool(np.any(np.diff(result.tree) < 0)):
        raise ValueError("the trees of an ordered list are out of order")
    if header(result) != lines.lines[:end_of_header]:
        raise ValueError("the header's explanations do not follow from its facts")
    return result


def _require_same(result: RuleList, text: str) -> None:
    """Refuse what means the same, but is not how it is written: ``01``, ``1e0``."""
    at = 0
    for piece in pieces(result):
        if not text.startswith(piece, at):
            said = zip(piece.split("\n"), text[at:].split("\n"), strict=False)
            line = text.count("\n", 0, at) + [one == other for one, other in said].index(False) + 1
            raise ValueError(f"line {line} is not written as treekit writes it")
        at += len(piece)


def _place(lines: Lines, number: int, facts: Facts) -> tuple[int, int]:
    if lines.next() != "":
        raise ValueError("expected an empty line before a rule")
    match = _RULE.fullmatch(lines.next())
    if match is None:
        raise ValueError("expected a line 'rule ... of ..., node ...'")
    stated, of, tree, trees, node = match.groups()
    one = tree is None and facts.n_trees == 1
    in_forest = tree is not None and int(trees) == facts.n_trees and facts.n_trees > 1
    if int(stated) != number or int(of) != facts.n_rules or not (one or in_forest):
        raise ValueError("a rule is out of place")
    return (0 if one else int(tree) - 1), int(node)


def _conditions(lines: Lines) -> Iterator[str]:
    line = lines.next()
    if line in (f"  {ALWAYS}", f"  {OTHERWISE}"):  # which one is checked with the whole text
        return
    if not line.startswith("  if  "):
        raise ValueError(f"expected '  if  ', '  {ALWAYS}' or '  {OTHERWISE}'")
    yield line[6:]
    while lines.begins("  and "):
        yield lines.next()[6:]


class _Then:
    """Reads the last lines of a rule: one for each target."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        outputs, several = facts.schema.outputs, bool(facts.schema.more)
        self.starts = [
            ("  then " if k == 0 else "       ")
            + (f"{name_text(output.name)}: " if several else "")
            for k, output in enumerate(outputs)
        ]
        self.classes = [
            {(type(label), label): i for i, label in enumerate(output.classes)}
            for output in outputs
        ]
        self.units: dict[str, int] = {}

    def read(self, lines: Lines) -> tuple[float, bool, list[int]]:
        """Support, whether the rule says what its parent does, and units."""
        outputs = self.facts.schema.outputs
        pattern = _MARGINS if self.facts.margins else _SUPPORT
        match = pattern.fullmatch(self._line(lines, 0))
        if match is None:
            raise ValueError("expected a line 'then ...'")
        support, as_parent = read_numeral(match[2]), match[3] is not None
        if as_parent and support != 0:
            raise ValueError("only a rule without support is as above")
        if self.facts.margins:
            return support, as_parent, self._margins(match[1])
        units = self._output(0, outputs[0], match[1], match[4])
        for k in range(1, len(outputs)):
            match = _ANSWER.fullmatch(self._line(lines, k))
            if match is None:
                raise ValueError("expected the answer for the next target")
            units += self._output(k, outputs[k], match[1], match[2])
        return support, as_parent, units

    def _line(self, lines: Lines, k: int) -> str:
        line = lines.next()
        if not line.startswith(self.starts[k]):
            raise ValueError("expected a line 'then ...'" if k == 0 else "expected the next target")
        return line[len(self.starts[k]) :]

    def _output(self, k: int, output: Output, said: str, shares: str | None) -> list[int]:
        if (shares is None) == bool(output.classes):
            raise ValueError("expected a line 'then ...'")
        if not output.classes:
            return [self._steps(said)]
        votes = [0] * len(output.classes)
        for label, share in read_pairs(shares or ""):
            if share not in self.units:
                self.units[share] = read_share(share, self.facts.units_each)
            votes[self._class(k, label)] = self.units[share]
        best = int(least_cost(np.array([votes]), self.facts.costs)[0])
        if best != self._class(k, said):
            what = "with the largest share" if self.facts.costs is None else "of least cost"
            raise ValueError(f"{said} is not the class {what}")
        return votes

    def _margins(self, said: str) -> list[int]:
        units = [0] * len(self.classes[0])
        named = [] if said == NOTHING else [match.groups() for match in _ADDS.finditer(said)]
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
