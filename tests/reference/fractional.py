"""Slow growth of C4.5 trees with fractional instances and exact arithmetic (Quinlan 1993).

An instance is a pair (row, weight).  At a split, instances with a missing value go down every
branch, weighted by the branch's share of the known weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tests.reference import grow as plain
from tests.reference.grow import Cut, Grown, Problem

NEARLY = 1 - 1e-6
"""Factor of weight limits that allows for rounding of fractional weights."""

Part = tuple[int, Fraction]


@dataclass(frozen=True)
class Rules:
    """Settings in addition to those of the `Problem`."""

    empty: bool = False
    c45_side: bool = False
    resolution: float = 0.0
    slack: float = 0.0
    mdl: bool = False
    missing_branch: bool = True
    many_levels: float = 0.0
    tolerance: float = 0.0


def grow(p: Problem, rules: Rules = Rules()) -> Grown:
    """Grow the tree; leaves have no `cut`, and `rows` of all nodes are empty."""
    weights = p.weights or [1] * len(p.y)
    parts = [(i, Fraction(w)) for i, w in enumerate(weights) if w > 0]
    return _node(p, rules, parts, 0)


def _node(p: Problem, rules: Rules, parts: list[Part], depth: int) -> Grown:
    node = Grown([], stats_of(p, parts), depth)
    cut = _choose(p, rules, parts, node)
    if cut is None:
        return node
    node.cut = cut
    column = p.columns[cut.feature]
    sides = [[] for _ in range(cut.branches)]  # type: list[list[Part]]
    known = [_known_weight(parts, column, cut, b) for b in range(cut.branches)]
    for i, weight in parts:
        if column[i] is not None:
            sides[cut.branch_of[column[i]]].append((i, weight))
            continue
        for b, side in enumerate(sides):
            if known[b]:
                side.append((i, weight * known[b] / sum(known)))
    node.children = [_node(p, rules, side, depth + 1) for side in sides]
    return node


def _known_weight(parts: list[Part], column: list[Any], cut: Cut, branch: int) -> Fraction:
    known = [(i, w) for i, w in parts if column[i] is not None]
    return sum((w for i, w in known if cut.branch_of[column[i]] == branch), Fraction(0))


def stats_of(p: Problem, parts: Sequence[Part]) -> list[Fraction]:
    """Return class weights, or the weight and the weighted sum of a numeric target."""
    zero = Fraction(0)
    if p.n_classes:
        return [sum((w for i, w in parts if p.y[i] == k), zero) for k in range(p.n_classes)]
    return [sum((w for _, w in parts), zero), sum((w * Fraction(p.y[i]) for i, w in parts), zero)]


def _choose(p: Problem, rules: Rules, parts: list[Part], node: Grown) -> Cut | None:
    weight = plain.weight_of(p, node.stats)
    least = max(p.min_weight_split, 2 * p.min_weight_leaf) * NEARLY
    if node.depth >= p.max_depth or weight < least or len(parts) < 2:
        return None
    if len({p.y[i] for i, _ in parts}) < 2:
        return None
    if p.n_classes and weight - max(node.stats) <= 1e-6 * p.min_weight_leaf:
        return None
    own = plain.impurity(p, node.stats)
    offers = []
    for feature in range(len(p.columns)):
        cuts = list(_cuts(p, rules, parts, feature, float(weight)))
        if not cuts:
            continue
        best = _first_best(cuts, max(1e-9 * own, rules.tolerance), plain.within(p, feature))
        cost = 0.0
        if rules.mdl and p.levels[feature] is None:
            cost = math.log2(len(cuts)) / float(weight)
            if best.gain - cost <= 0:
                continue
        best.score *= (best.gain - cost) / best.gain if cost else 1.0
        best.gain -= cost
        offers.append(best)
    if p.criterion == "gain_ratio":
        cut = _by_ratio(p, rules, offers)
    else:
        cut = _first_best(offers, 1e-9 * own, lambda c: c.gain) if offers else None
    floor = p.min_gain if p.min_gain < 0 else max(p.min_gain, 1e-12 * own)
    return cut if cut is not None and cut.gain > floor else None


def _by_ratio(p: Problem, rules: Rules, offers: list[Cut]) -> Cut | None:
    least = max(rules.tolerance, 1e-12)
    total = float(sum(p.weights or [1] * len(p.y)))
    offers = [c for c in offers if c.gain > least or (p.levels[c.feature] and c.gain >= -least)]
    crowd = [(size or 0) / total >= rules.many_levels for size in p.levels]
    everyone = rules.many_levels == 0 or all(crowd)
    counted = [c.gain for c in offers if everyone or not crowd[c.feature]]
    if not counted:
        return None
    average = sum(counted) / len(counted) * (1 - 1e-9) - 1e-12 - rules.slack
    best, bar = None, 0.0 if rules.tolerance else -math.inf
    for cut in offers:
        if cut.gain >= average and cut.score > bar:
            best, bar = cut, cut.score + max(rules.tolerance, 1e-9 * abs(cut.score))
    return best


def _first_best(cuts: list[Cut], slack: float, key: Any) -> Cut:
    """Return the best cut; a later one must be better by more than the tolerance of ties."""
    best = cuts[0]
    for cut in cuts[1:]:
        if key(cut) > key(best) + max(slack, 1e-9 * abs(key(best))):
            best = cut
    return best


def _cuts(
    p: Problem, rules: Rules, parts: list[Part], feature: int, weight: float
) -> Iterator[Cut]:
    """Yield the admissible splits of a column at a node, in the kernel's search order."""
    column, levels = p.columns[feature], p.levels[feature]
    groups: dict[Any, list[Part]] = {}
    for i, w in parts:
        groups.setdefault(column[i], []).append((i, w))
    lost = groups.pop(None, [])
    present = sorted(groups)
    if len(present) < 2:
        return
    limit = p.min_weight_leaf * NEARLY
    if levels is not None and p.multiway:
        children = [stats_of(p, groups[v]) for v in present]
        if sum(plain.weight_of(p, c) >= limit for c in children) < 2:
            return
        branch_of = {v: b for b, v in enumerate(present)}
        if rules.empty:
            branch_of = {v: v for v in range(levels)}
        at = [branch_of[v] for v in present]
        yield _cut(p, rules, "multiway", feature, children, lost, branch_of, at)
        return
    if levels is None:
        known = float(sum(w for v in present for _, w in groups[v]))
        limit = _side(p, rules, known, limit)
    stats = {v: stats_of(p, groups[v]) for v in present}
    for lefts in plain._searches(p, feature, present, stats):
        for left in lefts:
            right = [v for v in present if v not in left]
            if levels is None and not right[0] > left[-1] + rules.resolution:
                continue
            sides = [[part for v in half for part in groups[v]] for half in (left, right)]
            children = [stats_of(p, side) for side in sides]
            if min(plain.weight_of(p, c) for c in children) < limit:
                continue
            if levels is not None:
                told = range(levels) if p.one_vs_rest else present
                branch_of = {v: int(v not in left) for v in told}
                yield _cut(p, rules, "subset", feature, children, lost, branch_of)
                continue
            branch_of = {v: int(v > left[-1]) for v in column if v is not None}
            cut = _cut(p, rules, "threshold", feature, children, lost, branch_of)
            cut.threshold = plain.threshold(left[-1], right[0])
            yield cut


def _side(p: Problem, rules: Rules, known: float, limit: float) -> float:
    wanted = 0.1 * known / p.n_classes if rules.c45_side else 0.0
    return limit if wanted <= limit else min(wanted, 25.0) * (1 - 1e-7)


def _cut(
    p: Problem, rules: Rules, kind: str, feature: int, children: list[list[Fraction]],
    lost: list[Part], branch_of: dict[Any, int], at: Sequence[int] = (0, 1),
) -> Cut:  # fmt: skip
    known = [sum(cells, Fraction(0)) for cells in zip(*children, strict=True)]
    present = plain.weight_of(p, known)
    missing = sum((w for _, w in lost), Fraction(0))
    share = float(present / (present + missing))
    gain = plain.scores(p, known, children)[0] * share
    score = gain
    if p.criterion == "gain_ratio":
        weights = [plain.weight_of(p, c) for c in children]
        if rules.missing_branch:
            weights.append(missing)
        whole = sum(weights)
        split = -math.fsum(float(w / whole) * math.log2(w / whole) for w in weights if w)
        score = gain / split if split > 0 else 0.0
    heaviest = max(range(len(children)), key=lambda j: (plain.weight_of(p, children[j]), -j))
    branches = max(branch_of.values()) + 1
    return Cut(kind, feature, (0, 0, 0), gain, score, branch_of, branches, at[heaviest])
