"""Slow growth of one tree from raw columns, in plain Python with exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

TOLERANCE = 1e-9


@dataclass
class Problem:
    """A table and all settings; None in a column is a missing value."""

    columns: list[list[Any]]
    y: list[Any]
    levels: list[int | None]
    """Vocabulary size of nominal columns, None for numeric ones."""
    criterion: str
    n_classes: int = 0
    weights: list[int] | None = None
    multiway: bool = False
    one_vs_rest: bool = False
    level_by: str = "gain"
    """Whether one-vs-rest splits of a column compete by gain or by gain ratio."""
    exact_levels: int = 10
    known_only: bool = False
    """Score splits on the rows whose value is known."""
    min_impurity: float = -1.0
    max_bins: int | None = None
    max_depth: int = 5000
    min_weight_split: float = 2.0
    min_weight_leaf: float = 1.0
    min_gain: float = 0.0
    max_leaves: int = 0
    quantile: Fraction | None = None
    """Level of the criterion "quantile", which uses the statistics of a rank target."""
    several: tuple[int, ...] = ()
    """Number of classes of each target, 0 if numeric; `y` then has a tuple for each row."""
    signs: list[int] | None = None
    """Monotonic constraints on a number, or on the share of the second of two classes."""

    @property
    def nominal_splits(self) -> Any:
        """Value of the setting ``nominal_splits``."""
        return "multiway" if self.multiway else "one_vs_rest" if self.one_vs_rest else "subset"


@dataclass
class Cut:
    kind: str
    feature: int
    rank: tuple[int, int, int]
    gain: float
    score: float
    branch_of: dict[Any, int]
    branches: int
    missing: int
    threshold: float = math.nan


@dataclass
class Grown:
    rows: list[int]
    stats: list[Fraction]
    depth: int
    cut: Cut | None = None
    children: list[Grown] = field(default_factory=list)
    priority: float = 0.0
    bounds: tuple[Fraction | float, Fraction | float] = (-math.inf, math.inf)


def grow(problem: Problem) -> Grown:
    """Grow the tree; leaves have no `cut`."""
    p = problem
    weights = p.weights or [1] * len(p.y)
    root = _node(p, weights, [i for i in range(len(p.y)) if weights[i] > 0], 0)
    waiting = [node for node in [root] if _prepare(p, weights, node)]
    leaves = 1
    while waiting:
        if p.max_leaves:  # best first; the oldest one of equals
            most = max(n.priority for n in waiting)
            node = next(n for n in waiting if n.priority >= most * (1 - TOLERANCE))
        else:
            node = waiting[0]
        waiting.remove(node)
        cut = node.cut
        assert cut is not None
        if p.max_leaves and leaves + cut.branches - 1 > p.max_leaves:
            node.cut = None
            continue
        leaves += cut.branches - 1
        for branch in range(cut.branches):
            rows = [i for i in node.rows if side(cut, p.columns[cut.feature][i]) == branch]
            node.children.append(_node(p, weights, rows, node.depth + 1))
        _hand_bounds(p, node, cut)
        waiting += [child for child in node.children if _prepare(p, weights, child)]
    return root


def says(p: Problem, stats: Sequence[Fraction]) -> Fraction:
    """Compute a node's value: a mean, or the share of the second class."""
    return stats[1] / weight_of(p, stats)


def says_within(p: Problem, node: Grown) -> float:
    """Compute a node's value, clipped to the node's bounds."""
    return float(min(max(says(p, node.stats), node.bounds[0]), node.bounds[1]))


def _hand_bounds(p: Problem, node: Grown, cut: Cut) -> None:
    lowest, highest = node.bounds
    for child in node.children:
        child.bounds = node.bounds
    sign = p.signs[cut.feature] if p.signs and cut.kind == "threshold" else 0
    if sign:
        left, right = node.children
        middle = (says(p, left.stats) + says(p, right.stats)) / 2
        below, above = (left, right) if sign > 0 else (right, left)
        below.bounds, above.bounds = (lowest, middle), (middle, highest)


def _fits(p: Problem, node: Grown, kind: str, feature: int, children: Any) -> bool:
    if p.signs is None or p.signs[feature] == 0 or kind != "threshold":
        return True
    left, right = (says(p, child) for child in children)
    lowest, highest = node.bounds
    ordered = (right - left) * p.signs[feature] >= 0
    return ordered and lowest <= min(left, right) and max(left, right) <= highest


def side(cut: Cut, value: Any) -> int:
    """Return the branch of a value."""
    return cut.missing if value is None else cut.branch_of.get(value, cut.missing)


def _node(p: Problem, weights: Sequence[int], rows: list[int], depth: int) -> Grown:
    return Grown(rows, _stats(p, weights, rows), depth)


def _stats(p: Problem, weights: Sequence[int], rows: Sequence[int]) -> list[Fraction]:
    """Compute class weights, the weight and sum of a number, or `quantile_stats`."""
    if p.quantile is not None:
        return quantile_stats([(Fraction(p.y[i]), weights[i]) for i in rows], p.quantile)
    if p.several:
        cells = [Fraction(sum(weights[i] for i in rows))]
        for k, size in enumerate(p.several):
            cells += _stats(one_target(p, k), weights, rows)[0 if size else 1 :]
        return cells
    if not p.n_classes:
        total = sum(weights[i] for i in rows)
        return [Fraction(total), sum((Fraction(p.y[i]) * weights[i] for i in rows), Fraction(0))]
    return [Fraction(sum(weights[i] for i in rows if p.y[i] == k)) for k in range(p.n_classes)]


def one_target(p: Problem, k: int) -> Problem:
    """Return the problem restricted to target `k`."""
    return replace(p, several=(), n_classes=p.several[k], y=[row[k] for row in p.y])


def own_stats(p: Problem, stats: Sequence[Fraction], k: int) -> Sequence[Fraction]:
    """Return the statistics of target `k` from those of several targets."""
    first = 1 + sum(size or 1 for size in p.several[:k])
    size = p.several[k]
    return stats[first : first + size] if size else [stats[0], stats[first]]


def quantile_stats(rows: list[tuple[Fraction | int, int]], level: Fraction) -> list[Fraction]:
    """Compute the weight, the midpoint of the quantiles, and the distances below and above it."""
    copies = sorted(y for y, w in rows for _ in range(w))
    if not copies:
        return [Fraction(0)] * 4
    target = level * len(copies)
    at = math.ceil(target)
    middle = Fraction(copies[at - 1])
    if at == target:
        middle = Fraction(copies[at - 1] + copies[at]) / 2
    smaller = [y for y in copies if y < middle]
    larger = [y for y in copies if y > middle]
    below = len(smaller) * middle - sum(smaller)
    above = sum(larger) - len(larger) * middle
    return [Fraction(len(copies)), middle, below, above]


def weight_of(p: Problem, stats: Sequence[Fraction]) -> Fraction:
    return sum(stats, Fraction(0)) if p.n_classes and not p.several else stats[0]


def _prepare(p: Problem, weights: Sequence[int], node: Grown) -> bool:
    """Find the node's split and return whether there is one."""
    weight = weight_of(p, node.stats)
    if (
        node.depth >= p.max_depth
        or weight < p.min_weight_split
        or weight < 2 * p.min_weight_leaf
        or len({p.y[i] for i in node.rows}) < 2
    ):
        return False
    own = impurity(p, node.stats)
    measured = own if p.n_classes else _variance(p, weights, node)
    if measured <= p.min_impurity * (1 + TOLERANCE):
        return False
    slack_at_least = 0.0 if p.criterion == "squared_error" else own
    best: list[Cut] = []
    for feature in range(len(p.columns)):
        cuts = list(_cuts(p, weights, node, feature))
        if cuts:
            best.append(_best(cuts, slack_at_least, key=within(p, feature)))
    if not best:
        return False
    if p.criterion == "gain_ratio":
        useful = [c for c in best if c.gain > 1e-12]
        if not useful:
            return False
        average = sum(c.gain for c in useful) / len(useful)
        cut = _best(
            [c for c in useful if c.gain >= average * (1 - TOLERANCE)], 0.0, lambda c: c.score
        )
    else:
        cut = _best(best, slack_at_least, key=lambda c: c.gain)
    if not cut.gain > max(p.min_gain, 1e-12 * slack_at_least):
        return False
    node.cut = cut
    node.priority = cut.gain * float(weight)
    return True


def within(p: Problem, feature: int) -> Callable[[Cut], float]:
    """Return the key by which the splits of one column are compared."""
    by_ratio = p.level_by == "ratio" and p.one_vs_rest and p.levels[feature] is not None
    return lambda cut: cut.score if by_ratio else cut.gain


def _variance(p: Problem, weights: Sequence[int], node: Grown) -> float:
    """Compute the mean squared error of a node, averaged over several targets."""
    if p.several:
        each = [
            replace(node, stats=own_stats(p, node.stats, k), children=[])
            for k in range(len(p.several))
        ]
        own = [_variance(one_target(p, k), weights, part) for k, part in enumerate(each)]
        return math.fsum(own) / len(own)
    mean = node.stats[1] / node.stats[0]
    squares = (weights[i] * (Fraction(p.y[i]) - mean) ** 2 for i in node.rows)
    return float(sum(squares, Fraction(0)) / node.stats[0])


def _best(cuts: list[Cut], own: float, key: Callable[[Cut], float]) -> Cut:
    most = max(key(c) for c in cuts)
    slack = TOLERANCE * max(abs(most), own)
    return min((c for c in cuts if key(c) >= most - slack), key=lambda c: (c.feature, c.rank))


def _cuts(p: Problem, weights: Sequence[int], node: Grown, feature: int) -> Any:
    """Yield the admissible splits of a column at a node."""
    column = p.columns[feature]
    groups: dict[Any, list[int]] = {}
    for i in node.rows:
        groups.setdefault(_bin(p, feature, column[i]), []).append(i)
    lost = [] if p.known_only else groups.get(None, [])
    groups.pop(None, None)
    known = sorted(groups)
    if len(known) + bool(lost) < 2:
        return
    stats = {v: _stats(p, weights, groups[v]) for v in known}
    if p.levels[feature] is not None and p.multiway:
        yield from _branches(p, weights, node, feature, groups, lost)
        return
    for attempt, lefts in enumerate(_searches(p, feature, known, stats)):
        for at, chosen in enumerate([*lefts, known]):
            of_left = set(chosen)
            for missing in (1, 0) if lost else (1,):
                if len(chosen) == len(known) and not (lost and missing == 1):
                    continue
                left = [i for v in chosen for i in groups[v]] + (lost if not missing else [])
                right = [i for v in known if v not in of_left for i in groups[v]]
                right += lost if missing else []
                children = [_stats(p, weights, left), _stats(p, weights, right)]
                heavy = [weight_of(p, c) for c in children]
                if min(heavy) < p.min_weight_leaf:
                    continue
                kind = "missing" if len(chosen) == len(known) else "threshold"
                if not _fits(p, node, kind, feature, children):
                    continue
                gain, score = scores(p, node.stats, children, _known(p, weights, groups))
                rank = (attempt, at, 1 - missing)
                if len(chosen) == len(known):
                    to_right = {value: 1 for value in column if value is not None}
                    yield Cut("missing", feature, rank, gain, score, to_right, 2, 0)
                    continue
                way = missing if lost else int(heavy[1] > heavy[0])
                yield _two(p, feature, rank, gain, score, known, chosen, way)


def _known(
    p: Problem, weights: Sequence[int], groups: dict[Any, list[int]]
) -> list[Fraction] | None:
    """Compute the statistics of rows with known values for `scores`, as quantiles do not add up."""
    if p.quantile is None:
        return None
    return _stats(
        p, weights, [i for value, rows in groups.items() if value is not None for i in rows]
    )


def _two(
    p: Problem, feature: int, rank: tuple[int, int, int], gain: float, score: float,
    known: list[Any], left: list[Any], missing: int,
) -> Cut:  # fmt: skip
    if p.levels[feature] is not None:
        told = range(p.levels[feature]) if p.one_vs_rest and len(known) > 1 else known
        branch_of = {value: int(value not in left) for value in told}
        return Cut("subset", feature, rank, gain, score, branch_of, 2, missing)
    values = [v for v in p.columns[feature] if v is not None]
    if p.max_bins is None:
        below, above = left[-1], known[len(left)]
    else:
        below = max(v for v in values if _bin(p, feature, v) == left[-1])
        above = min(v for v in values if v > below)
    branch_of = {v: int(v > below) for v in values}
    return Cut(
        "threshold", feature, rank, gain, score, branch_of, 2, missing, threshold(below, above)
    )


def _branches(
    p: Problem, weights: Sequence[int], node: Grown, feature: int, groups: dict[Any, list[int]],
    lost: list[int],
) -> Any:  # fmt: skip
    known = sorted(groups)
    heavy = [weight_of(p, _stats(p, weights, groups[v])) for v in known]
    if sum(w >= p.min_weight_leaf for w in heavy) < 2:
        return
    heaviest = heavy.index(max(heavy))
    rows = [groups[v] + (lost if b == heaviest else []) for b, v in enumerate(known)]
    children = [_stats(p, weights, own) for own in rows]
    gain, score = scores(p, node.stats, children, _known(p, weights, groups))
    branch_of = {v: b for b, v in enumerate(known)}
    yield Cut("multiway", feature, (0, 0, 0), gain, score, branch_of, len(known), heaviest)


def _searches(
    p: Problem, feature: int, known: list[Any], stats: dict[Any, list[Fraction]]
) -> list[list[list[Any]]]:
    """List the left sides to try.

    They are prefixes of sorted numbers or of orderings of categories, single categories, or all
    subsets.
    """
    if p.levels[feature] is not None and p.one_vs_rest:
        return [[[value] for value in known]]
    several_keys = p.n_classes > 2 or bool(p.several)
    if p.levels[feature] is not None and several_keys and 3 <= len(known) <= p.exact_levels:
        return [_subsets(known)]
    return [[order[:at] for at in range(1, len(order))] for order in _orders(p, feature, stats)]


def _subsets(known: list[Any]) -> list[list[Any]]:
    """List all subsets without the last category, in the order of the reflected Gray code."""
    if len(known) == 1:
        return []
    codes = [0, 1]
    while len(codes) < 2 ** (len(known) - 1):
        codes += [code + len(codes) for code in reversed(codes)]
    return [[v for k, v in enumerate(known) if code >> k & 1] for code in codes[1:]]


def _orders(p: Problem, feature: int, stats: dict[Any, list[Fraction]]) -> list[list[Any]]:
    """Return the orderings of a column's values.

    Numbers are sorted; categories are ordered by mean, or by each class's share and by principal
    components.
    """
    known = sorted(stats)
    if p.levels[feature] is None:
        return [known]
    if p.quantile is not None:
        return [sorted(known, key=lambda v: (stats[v][1], v))]
    if p.several:
        cells = range(1, 1 + sum(size or 1 for size in p.several))
        return [sorted(known, key=lambda v: (stats[v][k] / stats[v][0], v)) for k in cells]
    if not p.n_classes:
        return [sorted(known, key=lambda v: (stats[v][1] / stats[v][0], v))]
    classes = [1] if p.n_classes == 2 else range(p.n_classes)
    orders = [sorted(known, key=lambda v: (stats[v][k] / sum(stats[v]), v)) for k in classes]
    if p.n_classes > 2:
        table = np.array([[float(cell) for cell in stats[v]] for v in known])
        for scaled in (False, True):
            score = dict(zip(known, component(table, scaled=scaled), strict=True))
            orders.append(sorted(known, key=lambda v: (score[v], v)))
    return orders


def component(table: Any, *, scaled: bool) -> list[float]:
    """Compute scores of the rows of (levels, classes) on the first component of their shares."""
    weights, mean = table.sum(axis=1), table.sum(axis=0) / table.sum()
    apart = table / weights[:, None] - mean
    if scaled:
        apart = np.where(mean > 0, apart / np.sqrt(np.where(mean > 0, mean, 1)), 0)
    lengths = weights * (apart**2).sum(axis=1)
    direction = apart[int(np.argmax(lengths > lengths.max() * (1 - TOLERANCE)))]
    for _ in range(30):
        turned = (apart.T * weights) @ (apart @ direction)
        if not np.abs(turned).max() > 0:
            break
        direction = turned / np.abs(turned).max()
    scores = apart @ direction
    most = np.abs(scores).max()
    return [float(s) for s in (np.rint(scores / most * 2**24) if most > 0 else scores)]


def _bin(p: Problem, feature: int, value: Any) -> Any:
    """Return the value itself, or the smallest training value of its bin."""
    if value is None or p.max_bins is None or p.levels[feature] is not None:
        return value
    known = sorted(v for v in p.columns[feature] if v is not None)
    starts = [k for k in range(len(known)) if k == 0 or known[k] != known[k - 1]]
    if len(starts) > p.max_bins:
        wanted = [k * len(known) / p.max_bins for k in range(1, p.max_bins)]
        chosen = {min((s for s in starts if s >= w), default=starts[-1]) for w in wanted}
        starts = sorted({0} | chosen)
    return max(known[s] for s in starts if known[s] <= value)


def threshold(below: float, above: float) -> float:
    """Return the largest float32 not above the midpoint."""
    middle = (Fraction(below) + Fraction(above)) / 2
    t = np.float32(float(middle))
    while Fraction(float(t)) > middle:
        t = np.nextafter(t, np.float32(-np.inf))
    return float(t)


def impurity(p: Problem, stats: Sequence[Fraction]) -> float:
    if p.several:
        each = [impurity(one_target(p, k), own_stats(p, stats, k)) for k in range(len(p.several))]
        return math.fsum(each) / len(each)
    total = sum(stats)
    if p.quantile is not None:
        return float(((1 - p.quantile) * stats[2] + p.quantile * stats[3]) / stats[0])
    if p.criterion == "squared_error" or total == 0:
        return 0.0
    shares = [s / total for s in stats]
    if p.criterion == "gini":
        return float(1 - sum(q * q for q in shares))
    return -math.fsum(float(q) * math.log2(q) for q in shares if q > 0)


def scores(
    p: Problem,
    parent: Sequence[Fraction],
    children: Sequence[Sequence[Fraction]],
    of_known: Sequence[Fraction] | None = None,
) -> tuple[float, float]:
    """Compute the decrease of the impurity, and the criterion's score.

    `of_known` are the statistics of rows with known values, needed if they are not the sum of
    the children's.
    """
    if p.several:
        each = [
            scores(
                one_target(p, k), own_stats(p, parent, k), [own_stats(p, c, k) for c in children]
            )
            for k in range(len(p.several))
        ]
        gain, score = (math.fsum(part) / len(each) for part in zip(*each, strict=True))
        return gain, score
    total = weight_of(p, parent)
    if p.known_only:  # weight the gain by the share of known rows
        known = of_known or [sum(cells, Fraction(0)) for cells in zip(*children, strict=True)]
        part = float(weight_of(p, known) / total)
        if part < 1:
            gain, _ = scores(p, known, children)
            return gain * part, gain * part
    shares = [weight_of(p, c) / total for c in children]
    if p.criterion == "squared_error":
        mean = parent[1] / parent[0]
        gain = float(
            sum(s * (c[1] / c[0] - mean) ** 2 for s, c in zip(shares, children, strict=True) if s)
        )
        return gain, gain
    gain = impurity(p, parent) - math.fsum(
        float(s) * impurity(p, c) for s, c in zip(shares, children, strict=True)
    )
    if p.criterion != "gain_ratio":
        return gain, gain
    split = -math.fsum(float(s) * math.log2(s) for s in shares if s > 0)
    return gain, gain / split if split > 0 else 0.0
