"""Reading what rules answer: the lines from 'then' on."""

from __future__ import annotations

import re

import numpy as np

from treekit.model.model import least_cost
from treekit.rules.language import Language
from treekit.rules.patterns import NUMBER, SHARE, Atoms, Patterns, cut, shape
from treekit.rules.read_header import Facts, Lines
from treekit.rules.words import name_text, read_label, read_numeral, read_share

__all__ = ["AnswerReader"]


class AnswerReader:
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
        return self._all(votes, best)

    def _all(self, votes: list[int], said: int) -> list[int]:
        """The votes of a rule that says class `said`, which must be all that a rule has."""
        del said
        if sum(votes) != self.facts.units_each:
            raise ValueError("the shares do not add to 1")
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
