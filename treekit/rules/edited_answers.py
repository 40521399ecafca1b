"""What edited rules answer, with as much of it as the person has left."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from treekit.model.fixed_point import regression_grid, sum_grid_of
from treekit.model.model import least_cost
from treekit.rules.language import Language
from treekit.rules.patterns import OPENED
from treekit.rules.read_answers import AnswerReader
from treekit.rules.read_header import Facts
from treekit.rules.rulelist import RuleList
from treekit.rules.words import read_numeral

__all__ = ["EditedAnswers", "on_grid"]

_OFF = 1_000_000
"""Shares written by hand may miss 1 by so small a part."""
_PARTS = re.compile(rf"{OPENED}|( {{2,}}|\t+)")


class EditedAnswers(AnswerReader):
    """Reads answers whose support and shares may be left out."""

    def __init__(self, facts: Facts, words: Language) -> None:
        super().__init__(facts, words)
        self.whole = facts.units_each if self.shared else 0
        self.begin = words.phrases["rule_then"].partition("{answer}")[0].strip()

    def read_all(self, texts: list[str]) -> tuple[float, list[float]]:
        """Support, and votes or numbers, of the answers for all targets.

        Parameters
        ----------
        texts : list of str
            A line for each target.  Unless it is said as treekit says it: what the rule
            answers, then, each after two blanks or more, the support and the shares, in any
            order, or none.
        """
        outputs = self.facts.schema.outputs
        if len(texts) != len(outputs):
            raise ValueError(f"the rule answers {len(texts)} targets of {len(outputs)}")
        support, said = 0.0, []
        for k, text in enumerate(texts):
            found = self._found(k, text)
            reached = self.support.read(found["support"]) if "support" in found else None
            if reached is not None:
                support = read_numeral(reached[1]["support"])
            said += self._said(k, found["answer"], found.get("shares", ""))
        return support, said

    def _found(self, k: int, text: str) -> dict[str, str]:
        """The parts of a line."""
        pattern = self.also if k else self.then
        exact = pattern.read(text.removeprefix("  "))
        if exact is not None:
            return exact[1]
        text = text.strip().removeprefix("" if k else self.begin).strip()
        answer, *rest = _split(text)
        reached = [part for part in rest if self.support.read(part) is not None]
        shares = [part for part in rest if part not in reached]
        if len(reached) > 1 or len(shares) > 1:
            raise ValueError(f"{text!r} is not an answer, a support and shares")
        found = {"answer": answer, "shares": "".join(shares)}
        return found | ({"support": reached[0]} if reached else {})

    def _said(self, k: int, answer: str, shares: str) -> list[float]:
        if self.facts.margins:
            return [float(value) for value in self._margins(answer)]
        if not self.shared:
            return [float(value) for value in self._output(k, {"answer": answer})]
        if not shares:
            start, end = self.around[k]
            label = answer[len(start) : len(answer) - len(end)]
            votes = [0] * len(self.classes[k])
            votes[self._place_of(k, label)] = self.whole
            return [float(vote) for vote in votes]
        try:
            votes = self._output(k, {"answer": answer, "shares": shares})
        except ValueError as error:
            raise ValueError(f"{error}: change the shares as well, or delete them") from error
        return [float(vote) for vote in votes]

    def _place_of(self, k: int, label: str) -> int:
        try:
            return self._class(k, label)
        except KeyError:
            known = ", ".join(str(one) for _, one in self.classes[k])
            raise ValueError(f"{label!r} is no class; there are: {known}") from None

    def _all(self, votes: list[int], said: int) -> list[int]:
        """Votes that add up to all of them, of which decimals may miss a few.

        One class gets or gives these few: that of most votes with which the rule still says
        `said`.
        """
        missed = self.whole - sum(votes)
        if not missed:
            return votes
        if abs(missed) <= max(len(votes), self.whole // _OFF):
            for at in sorted(range(len(votes)), key=lambda at: -votes[at]):
                even = [*votes[:at], votes[at] + missed, *votes[at + 1 :]]
                if min(even) >= 0 and least_cost(np.array([even]), self.facts.costs)[0] == said:
                    return even
        raise ValueError(f"the shares add to {sum(votes) / self.whole:.6g}; they must add to 1")

    def _steps(self, numeral: str) -> float:  # type: ignore[override]  # on a grid of their own
        return read_numeral(numeral)


def _split(text: str) -> list[str]:
    """Parts between two blanks or more that stand outside of quotes."""
    parts, at = [], 0
    for match in _PARTS.finditer(text):
        if match[1]:
            parts.append(text[at : match.start()])
            at = match.end()
    return [*parts, text[at:]]


def on_grid(
    said: npt.NDArray[np.float64], trees: npt.NDArray[np.int32], facts: Facts | RuleList
) -> tuple[npt.NDArray[np.int64], int]:
    """Votes as they are; numbers on the stated grid where it has them all, else on a new one.

    The new one is the finest that holds the largest of them, as a new model's is: each number
    is there, or one within half a step.

    Parameters
    ----------
    said : (rules, values) float64
    trees : (rules,) int32
        Ascending.
    facts : Facts or RuleList
        What states the grid, and how trees are combined.

    Returns
    -------
    units : (rules, values) int64
    exponent : int
    """
    if facts.schema.task == "classification" and not facts.margins:
        return said.astype(np.int64), facts.exponent
    first = np.flatnonzero(np.diff(trees, prepend=-1))
    largest = np.maximum.reduceat(np.abs(said), first, axis=0)
    if facts.combine == "sum":
        grid = sum_grid_of(largest)
    else:
        dtype = facts.schema.dtype
        grid = regression_grid(float(largest.max()), facts.n_trees, dtype, facts.mass)
    units = np.ldexp(said, -facts.exponent)
    # Numbers that are all 0 fit every grid: the stated one is kept.
    fits = facts.exponent >= grid.exponent or not said.any()
    if fits and bool(np.all(units == np.floor(units))):
        return units.astype(np.int64), facts.exponent
    return grid.to_grid(said), grid.exponent
