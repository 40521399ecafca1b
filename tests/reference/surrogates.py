"""Slow search for surrogates of a test, one candidate at a time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from fractions import Fraction

from tests.reference.grow import Problem, threshold
from treekit.grow.recipe import SurrogateRule


@dataclass
class Surrogate:
    """Test of another column: `level_branch` of categories, `threshold` and `below` of numbers."""

    feature: int
    agreement: Fraction
    threshold: float | None = None
    below: int = 0
    branch_of: dict[int, int] | None = None

    def branch(self, value: float | None) -> int | None:
        """Return the branch of a value, None if undecided."""
        if value is None:
            return None
        if self.branch_of is not None:
            return self.branch_of.get(int(value))
        assert self.threshold is not None
        return self.below if value <= self.threshold else 1 - self.below


def surrogates(
    p: Problem, feature: int, side: dict[int, int], rule: SurrogateRule, node: list[int]
) -> list[Surrogate]:
    """Find the best surrogates of a test of column `feature`.

    `side` is the branch of each row decided by the test, `node` are all rows of the node.
    """
    weight = {i: Fraction(p.weights[i] if p.weights else 1) for i in side}
    least = min(Fraction(2), 2 * min(weight.values()))
    sides = [sum((w for i, w in weight.items() if side[i] == b), Fraction(0)) for b in (0, 1)]
    heavier = 1 if sides[1] > sides[0] else 0
    kept = []
    for f, column in enumerate(p.columns):
        rows = [i for i in side if column[i] is not None]
        if f == feature or not rows:
            continue
        if p.levels[f] is None:
            candidates = _cuts(p, f, rows, side, weight, least, node)
        else:
            candidates = _by_level(p, f, rows, side, weight, least, heavier, rule.right_and_wrong)
        best = max(candidates, key=lambda s: s.agreement, default=None)  # first one of equals
        told = sides
        if rule.of_known:
            told = [sum((weight[i] for i in rows if side[i] == b), Fraction(0)) for b in (0, 1)]
        if best is not None and best.agreement > max(told) + Fraction(1, 10**10) * min(told):
            kept.append(replace(best, agreement=best.agreement / sum(told)))
    return sorted(kept, key=lambda s: -s.agreement)[: rule.most]


def _cuts(
    p: Problem, f: int, rows: list[int], side: dict[int, int], weight: dict[int, Fraction],
    least: Fraction, node: list[int],
) -> list[Surrogate]:  # fmt: skip
    column = p.columns[f]
    values = sorted({column[i] for i in rows})
    found = []
    for low, high in itertools.pairwise(values):
        under = [i for i in rows if column[i] <= low]
        over = [i for i in rows if column[i] >= high]
        if min(sum(weight[i] for i in part) for part in (under, over)) < least:
            continue
        after = min(column[i] for i in node if column[i] is not None and column[i] > low)
        for below in (0, 1):
            agree = [i for i in under if side[i] == below] + [i for i in over if side[i] != below]
            found.append(
                Surrogate(f, sum((weight[i] for i in agree), Fraction(0)), threshold(low, after),
                          below)
            )  # fmt: skip
    return found


def _by_level(
    p: Problem, f: int, rows: list[int], side: dict[int, int], weight: dict[int, Fraction],
    least: Fraction, heavier: int, right_and_wrong: bool,
) -> list[Surrogate]:  # fmt: skip
    branch_of, agreement = {}, Fraction(0)
    sent = [Fraction(0), Fraction(0)]
    for level in sorted({p.columns[f][i] for i in rows}):
        own = [i for i in rows if p.columns[f][i] == level]
        votes = [sum((weight[i] for i in own if side[i] == b), Fraction(0)) for b in (0, 1)]
        goes = heavier if votes[0] == votes[1] else int(votes[1] > votes[0])
        branch_of[level] = goes
        agreement += max(votes)
        if right_and_wrong:
            sent = [sent[0] + max(votes), sent[1] + min(votes)]
        else:
            sent[goes] += sum(votes)
    return [Surrogate(f, agreement, branch_of=branch_of)] if min(sent) >= least else []
