"""Search for rows that reach every part of models that are not plain.

Random rows come first; they are changed until every outcome of every test at every
node was reached.  For parts that boxes do not exclude and no row reached, linear
programmes are solved.  Rows that show a wrong turn in the prediction are preferred to
others, and, at oblique splits, rows that show the last bit of each number.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.model.fixed_point import double_threshold, floor_to
from treekit.model.model import Model
from treekit.model.tree import Split, Tree
from treekit.verify.probe_values import around_thresholds, divided_rows, random_rows
from treekit.verify.routing import (
    Routed,
    accepts_any,
    matrix_of,
    nothing_touched,
    route_rows,
    routed,
    trees_of,
)

if TYPE_CHECKING:
    from treekit.kernels.reachability import Can, Touched

__all__ = [
    "Hunt",
    "Witnesses",
    "drawn",
    "face_rows",
    "inner_points",
    "level_wishes",
    "next_to_thresholds",
    "no_wishes",
    "reachable",
    "search",
    "uniform_nodes",
    "wishes",
    "wishes_of",
]


# ---------------------------------------------------------------- search

Array = npt.NDArray[np.float64]

_START_ROWS = 500
_EXACT_TRIES = 50_000
"""Approximate number of tries, 4 to 60 a goal, for last bits of doubles, which few inputs show."""


@dataclass(frozen=True)
class Witnesses:
    """Result of the search.

    Attributes
    ----------
    rows : (rows, features) float64
    can : Can
        Parts that inputs can touch.
    wrong_turns : (3,) int64
        As in `treekit.verify.probes.Probes`.
    last_bits : (int, int)
        As in `treekit.verify.probes.Probes`.
    complete : bool
        Whether every goal was tried within the limits of rows and time.
    """

    rows: Array
    can: Can
    wrong_turns: npt.NDArray[np.int64]
    last_bits: tuple[int, int]
    complete: bool


def search(
    model: Model,
    n_random: int,
    max_rows: int,
    rng: np.random.Generator,
    until: float = math.inf,
) -> Witnesses:
    """Search for rows until a time: `n_random` random ones, and about `max_rows` others."""
    from treekit.kernels.witness_search import EXACT, SHARP, TELLS, UNKNOWN

    of = routed(model)
    can = reachable(of)
    wishes = wishes_of(of)
    complete = len(wishes) <= max_rows
    if not complete:
        # One wrong branch for each outcome comes first; then every k-th is kept.
        wishes = wishes[np.argsort(wishes["step"], kind="stable")]
        wishes = wishes[:: -(-len(wishes) // max_rows)]
    start = drawn(of, max(n_random, _START_ROWS), rng)
    hunt = Hunt(of, wishes, start, rng, until)
    hunt.run(np.where(wishes["sharp"], SHARP, TELLS), can)
    rounds = int(np.clip(_EXACT_TRIES // max(int(wishes["sharp"].sum()), 1), 4, 60))
    hunt.run(np.where(wishes["sharp"], EXACT, 0), rounds=rounds)
    rows = [start[:n_random], hunt.touching(), hunt.best[hunt.outcome > 0]]
    rows.append(_rounding(of, hunt.best[(hunt.outcome > 0) & (wishes["term"] < 0)], rng))
    complete &= time.monotonic() < until
    if complete and accepts_any(model):
        rows.append(divided_rows(model, np.concatenate(rows), partial(_reaching, hunt)))
    sharp = wishes["sharp"] & (wishes["goal"] != UNKNOWN)
    last_bits = int(np.count_nonzero(hunt.outcome[sharp] >= SHARP)), int(np.count_nonzero(sharp))
    return Witnesses(np.concatenate(rows), can, _wrong_turns(hunt), last_bits, complete)


def _reaching(hunt: Hunt, tree: int, wanted: npt.NDArray[np.bool_]) -> Array:
    """Draw new rows for the wanted nodes of a tree; some may not reach theirs."""
    nodes = hunt.of.roots[tree] + np.flatnonzero(wanted)
    return hunt.varied(nodes[hunt.touched.node[nodes] >= 0])[0]


def _rounding(of: Routed, rows: Array, rng: np.random.Generator) -> Array:
    """Make rows of the furthest doubles that round to each number, up or down; none in float64."""
    if not of.narrow:
        return rows[:0]
    known = np.where(np.abs(rows) <= np.finfo(np.float32).max, rows, 0.0)
    upper, lower = double_threshold(known), -double_threshold(-known)
    moved = np.where(rng.random(rows.shape) < 0.5, upper, lower)
    with np.errstate(over="ignore"):
        same = moved.astype(np.float32).astype(np.float64) == rows
    numeric = ~of.model.schema.nominal
    return np.where(same & numeric, moved, rows)


def _wrong_turns(hunt: Hunt) -> npt.NDArray[np.int64]:
    """Count the goals whose row shows the wrong turn, cannot show it, and might but does not."""
    from treekit.kernels.witness_search import REACHED, TELLS

    once = ~hunt.wishes["sharp"]
    reached = (hunt.outcome == REACHED) & once
    never = uniform_nodes(hunt.of)[hunt.wishes["node"]]
    return np.array(
        [
            np.count_nonzero((hunt.outcome >= TELLS) & once),
            np.count_nonzero(reached & never),
            np.count_nonzero(reached & ~never),
        ]
    )


# ---------------------------------------------------------------- rows by variation
# For each goal at a node that some row reaches, that row is changed
# (`treekit.kernels.witness_search`); a row that meets its goal may reach new nodes.

Index = npt.NDArray[np.int64]

_ROUNDS = 60
_IDLE_ROUNDS = 12
"""Rounds without progress after which the search ends, or a linear programme is solved."""


class Hunt:
    """Rows found so far, and the best row for each coverage goal.

    Attributes
    ----------
    cells : (rows, features) float64
        Every row, rounded to the input type.
    touched : Touched
        Parts that they touch.
    best : (goals, features) float64
        Row of each goal that was met.
    outcome : (goals,) int64
        0, or an outcome of `treekit.kernels.witness_search`.
    until : float
        When to stop, on the clock of `time.monotonic`.
    """

    def __init__(
        self,
        of: Routed,
        wishes: npt.NDArray[np.void],
        start: Array,
        rng: np.random.Generator,
        until: float = math.inf,
    ) -> None:
        self.of, self.wishes, self.rng, self.until = of, wishes, rng, until
        self.cells = np.empty((0, of.model.schema.n_features))
        self.touched: Touched = nothing_touched(of)
        self.add(start)
        self.best = np.zeros((len(wishes), of.model.schema.n_features))
        self.outcome = np.zeros(len(wishes), dtype=np.int64)

    def add(self, rows: Array) -> None:
        """Add rows, and route them."""
        cells = matrix_of(self.of.model, rows)
        route_rows(self.of, cells, len(self.cells), self.touched)
        self.cells = np.concatenate([self.cells, cells])

    def run(self, wanted: Index, can: Can | None = None, rounds: int = _ROUNDS) -> None:
        """Change rows until each goal has the outcome `wanted`, or there is no progress.

        With `can`, linear programmes are solved for nodes that no row reaches,
        and the search ends early without progress.
        """
        idle = 0
        for _ in range(rounds):
            if time.monotonic() > self.until:
                break
            reached = self.touched.node[self.wishes["target"]] >= 0
            left = np.flatnonzero((self.outcome < wanted) & reached)
            if not len(left) and can is None:
                break
            idle = 0 if self._round(left) else idle + 1
            if (can is not None and idle == _IDLE_ROUNDS) or not len(left):
                idle = 0
                if can is None or not self._ask_for_points(can):
                    break

    def _round(self, left: Index) -> bool:
        """Try to meet some goals; return whether any outcome improved."""
        from treekit.kernels.witness_search import ABOVE, AT_MOST, UNKNOWN, grant, make_bits

        wishes = self.wishes[left]
        either = np.flatnonzero(wishes["sharp"] & (wishes["goal"] != UNKNOWN))
        wishes["goal"][either] = self.rng.choice([AT_MOST, ABOVE], len(either))
        rows, spare = self.varied(wishes["target"])
        outcome = np.zeros(len(left), dtype=np.int64)
        takes_missing = self.of.model.missing != "error"
        bits = make_bits(self.of.narrow)
        grant(self.of.routes, wishes, rows, spare, takes_missing, self.rng, bits, outcome)
        better = np.flatnonzero(outcome > self.outcome[left])
        if not len(better):
            return False
        self.best[left[better]] = rows[better]
        self.outcome[left[better]] = outcome[better]
        self.add(rows[better])
        return True

    def varied(self, nodes: Index) -> tuple[Array, Array]:
        """Return for each reached node a changed row that reached it, and a row of known values.

        Half of the rows take some values of the other, to vary the predictions;
        they may not reach the node any more.
        """
        rows = self.cells[self.touched.node[nodes]]
        spare = self.known(len(nodes))
        share = np.maximum(self.rng.random((len(nodes), 1)) * 1.6 - 0.8, 0.0)
        change = self.rng.random(rows.shape) < share
        return np.where(change, spare, rows), spare

    def known(self, n: int) -> Array:
        """Draw rows of known values, rounded to the input type."""
        rows = matrix_of(self.of.model, drawn(self.of, n, self.rng))
        for f, column in enumerate(self.of.model.schema.columns):
            unknown = ~np.isfinite(rows[:, f])
            if column.kind == "numeric":
                rows[unknown, f] = np.rint(self.rng.normal(size=int(unknown.sum())) * 3)
            elif column.levels:
                rows[unknown, f] = self.rng.integers(len(column.levels), size=int(unknown.sum()))
        return rows

    def _ask_for_points(self, can: Can) -> bool:
        """Add rows from linear programmes for unreached nodes; return whether it reaches any."""
        unreached = np.flatnonzero(can.node & (self.touched.node < 0))
        if not len(unreached):
            return False
        self.add(inner_points(self.of, unreached, self.known(len(unreached)), self.until))
        return bool((self.touched.node[unreached] >= 0).any())

    def touching(self) -> Array:
        """Select rows that together touch everything that any row touches."""
        parts = [part.ravel() for part in self.touched if part.dtype == np.int64]
        numbers = np.unique(np.concatenate(parts))
        found: Array = self.cells[numbers[numbers >= 0]]
        return found


def drawn(of: Routed, n: int, rng: np.random.Generator) -> Array:
    """Draw random rows around the thresholds, some of them with many missing values."""
    model = of.model
    pools = [_pool(of, f) for f in range(model.schema.n_features)]
    rows = random_rows(model, pools, n, rng)
    if model.missing != "error":
        often = rng.random(n) < 0.25
        rows[often[:, None] & (rng.random(rows.shape) < 0.4)] = np.nan
    return rows


def _pool(of: Routed, feature: int) -> Array:
    """Return the values at which tests of a column change, if no other column is in the sum."""
    tests = of.tests
    at = np.flatnonzero(tests.term_feature == feature)
    test = np.searchsorted(tests.term_start, at, side="right") - 1
    with np.errstate(over="ignore"):
        values = floor_to(tests.threshold[test] / tests.term_weight[at], of.model.schema.dtype)
    return np.unique(values[np.isfinite(values)])


# ---------------------------------------------------------------- coverage goals
# A goal is an outcome of a test at a node, with a wrong branch that the row should expose.

Wishes = npt.NDArray[np.void]

_MOST_WRONG_BRANCHES = 8


def wishes_of(of: Routed) -> Wishes:
    """List goals for every wrong branch, (goals,) `treekit.kernels.witness_search.WISH`."""
    from treekit.kernels.witness_search import ABOVE, ANY, AT_MOST, SET, UNKNOWN

    model, tests = of.model, of.tests
    linear, levels = np.flatnonzero(of.linear), np.flatnonzero(~of.linear)
    test, term = _terms_of_sums(of)
    inner = np.flatnonzero(tests.column >= 0)
    by_missing = np.flatnonzero((tests.column < 0) & (of.routes.nodes["n_children"] > 0))
    takes_missing = model.missing != "error"
    parts = [
        wishes(of.owner[linear], linear, AT_MOST),
        wishes(of.owner[linear], linear, ABOVE),
        wishes(of.owner[test], test, AT_MOST, -np.inf, term=term, sharp=True),
        wishes(of.owner[test], test, AT_MOST, np.inf, term=term, sharp=True),
        level_wishes(of, levels),
        wishes(inner, tests.test_start[tests.column[inner]], UNKNOWN),
        wishes(by_missing, -1, ANY),
        _around_wishes(of),
    ]
    if takes_missing:
        parts.append(_lost_wishes(of))
    if of.routes.divides:
        parts.append(wishes(inner, tests.test_start[tests.column[inner]], UNKNOWN, sharp=True))
    if takes_missing:
        parts.append(wishes(by_missing, -1, UNKNOWN))
    if takes_missing and model.unknown == "missing":
        sizes = np.diff(tests.level_start)[levels]
        parts.append(wishes(of.owner[levels], levels, SET, sizes))
    goals = np.concatenate(parts)
    turns = np.clip(of.routes.nodes["n_children"][goals["node"]] - 1, 1, _MOST_WRONG_BRANCHES)
    turns = np.where(goals["goal"] == SET, 1, turns)
    every = np.repeat(goals, turns)
    every["step"] += np.arange(len(every)) - np.repeat(np.cumsum(turns) - turns, turns)
    return every


def wishes(
    node: Index,
    test: Index | int,
    goal: int,
    value: npt.ArrayLike = 0.0,
    target: Index | None = None,
    term: Index | int = -1,
    sharp: bool = False,
) -> Wishes:
    """Make one goal for each node, or pair of node and target.

    See `treekit.kernels.witness_search.WISH`.
    """
    from treekit.kernels.witness_search import WISH

    goals = np.zeros(len(node), dtype=WISH)
    goals["node"], goals["test"], goals["goal"], goals["value"] = node, test, goal, value
    goals["target"] = node if target is None else target
    goals["step"], goals["term"], goals["sharp"] = 1, term, sharp
    return goals


def no_wishes() -> Wishes:
    """Return an empty array of goals."""
    return wishes(np.zeros(0, dtype=np.int64), -1, 0)


def level_wishes(of: Routed, tests: Index, target: Index | None = None) -> Wishes:
    """Make a goal for each category of some tests on categories."""
    from treekit.kernels.witness_search import LEVEL

    counts = np.diff(of.tests.level_start)[tests]
    test = np.repeat(tests, counts)
    code = np.arange(len(test)) - np.repeat(np.cumsum(counts) - counts, counts)
    to = None if target is None else np.repeat(target, counts)
    return wishes(of.owner[test], test, LEVEL, code, to)


def _terms_of_sums(of: Routed) -> tuple[Index, Index]:
    """Return tests of several terms, each with its terms after a -1 for the threshold."""
    counts = np.diff(of.tests.term_start)
    several = np.flatnonzero(counts > 1)
    test = np.repeat(several, counts[several] + 1)
    starts = np.cumsum(counts[several] + 1) - (counts[several] + 1)
    return test, np.arange(len(test)) - np.repeat(starts, counts[several] + 1) - 1


def _around_wishes(of: Routed) -> Wishes:
    """Make goals for values around thresholds of single columns that expose wrong comparisons."""
    from treekit.kernels.witness_search import SET

    starts = of.tests.term_start
    single = np.flatnonzero(of.linear & (np.diff(starts) == 1))
    single = single[of.tests.term_weight[starts[single]] == 1.0]
    values = around_thresholds(of.tests.threshold[single], of.model.schema.dtype)[:, 2:]
    row, column = np.nonzero(~np.isnan(values))
    return wishes(of.owner[single[row]], single[row], SET, values[row, column])


def _lost_wishes(of: Routed) -> Wishes:
    """Make goals for missing values at rule conditions, which define their own branch for them."""
    from treekit.kernels.witness_search import SET

    at = np.flatnonzero(of.routes.nodes["kind"][of.owner] == Split.RULE)
    return wishes(of.owner[at], at, SET, np.nan)


def uniform_nodes(of: Routed) -> npt.NDArray[np.bool_]:
    """Mark nodes whose leaves are all equal, so that no wrong turn can show, (nodes,) bool."""
    routes = of.routes
    leaf_values = routes.units.copy()
    same = np.ones(len(leaf_values), dtype=np.bool_)
    for first, last in itertools.pairwise(of.roots.tolist()):
        for node in range(last - 1, first - 1, -1):
            if routes.nodes["n_children"][node]:
                child = routes.nodes["first_child"][node]
                below = slice(child, child + routes.nodes["n_children"][node])
                leaf_values[node] = leaf_values[child]
                same[node] = same[below].all() and (leaf_values[below] == leaf_values[child]).all()
    return same


# ---------------------------------------------------------------- linear programmes
# Points inside the regions of nodes below oblique splits.
#
# On the path to a node every sum must be known and on the right side; the
# programme finds the point that is furthest from all of their planes.

_MOST_NODES = 500
_FAR = 1e6
"""Bound of the numbers, as a multiple of the largest threshold."""


def inner_points(
    of: Routed, nodes: npt.NDArray[np.int64], rows: Array, until: float = math.inf
) -> Array:
    """Find a row for each of `nodes` (the first 500) for which the programme has a solution.

    Parameters
    ----------
    of : Routed
    nodes : (nodes,) int64
    rows : (nodes, features) float64
        Known values for columns that the programmes do not determine.
    until : float
        When to stop, on the clock of `time.monotonic`.

    Returns
    -------
    (rows, features) float64
        Candidates: rounding may have moved them out of the region.
    """
    found = [
        point
        for node, row in zip(nodes[:_MOST_NODES].tolist(), rows, strict=False)
        if time.monotonic() < until and (point := _inner_point(of, node, row.copy())) is not None
    ]
    return matrix_of(of.model, np.array(found).reshape(len(found), rows.shape[1]))


def _inner_point(of: Routed, node: int, row: Array) -> Array | None:
    """Fix categories and missing values on the path, and solve for the numbers."""
    routes, tests = of.routes, of.tests
    sums: list[tuple[int, bool]] = []
    fixed: dict[int, float] = {}
    at = node
    while (above := int(routes.nodes["parent"][at])) >= 0:
        branch = at - int(routes.nodes["first_child"][above])
        column = int(routes.nodes["asks"][above])
        if column < 0:
            if branch == 0:
                fixed[int(routes.nodes["feature"][above])] = np.nan
        elif tests.level_feature[test := int(tests.test_start[column])] >= 0:
            first, last = tests.level_start[test : test + 2].tolist()
            codes = np.flatnonzero(tests.level_branch[first:last] == branch)
            feature = int(tests.level_feature[test])
            fixed[feature] = float(codes[0]) if len(codes) else np.nan
        else:
            of_rule = int(routes.nodes["kind"][above]) == Split.RULE
            below = bool(tests.below[test] == 1) if of_rule else bool(tests.below[test] == 0)
            sums.append((test, below == (branch == (1 if of_rule else 0))))
        at = above
    if sums:
        numbers = _solve(of, sums)
        if numbers is None:
            return None
        determined = ~np.isnan(numbers)
        row[determined] = numbers[determined]
    for feature, value in fixed.items():
        row[feature] = value
    return row


def _solve(of: Routed, sums: list[tuple[int, bool]]) -> Array | None:
    """Find numbers on the right side of all sums, (features,) float64; NaN where none is tested."""
    from scipy.optimize import linprog

    tests = of.tests
    n = of.model.schema.n_features
    limits, weights = np.zeros(len(sums)), np.zeros((len(sums), n + 1))
    for i, (test, at_most) in enumerate(sums):
        first, last = tests.term_start[test : test + 2].tolist()
        sign = 1.0 if at_most else -1.0
        scale = float(np.abs(tests.term_weight[first:last]).max())
        weights[i, tests.term_feature[first:last]] = sign * tests.term_weight[first:last] / scale
        weights[i, n] = np.linalg.norm(weights[i])  # the distance from this plane
        limits[i] = sign * tests.threshold[test] / scale
    far = _FAR * max(float(np.abs(limits).max()), 1.0)
    bounds = [(-far, far)] * n + [(0.0, far)]
    if not np.isfinite(weights).all() or not np.isfinite(far):
        return None
    cost = np.zeros(n + 1)
    cost[n] = -1.0
    solved = linprog(cost, A_ub=weights, b_ub=limits, bounds=bounds, method="highs")
    if solved.status != 0:
        return None
    numbers = np.full(n, np.nan)
    determined = weights[:, :n].any(axis=0)
    numbers[determined] = solved.x[:n][determined]
    return numbers


# ---------------------------------------------------------------- rule boundaries
# Rows at the bounds of the rules of models that are not plain.
#
# `treekit.verify.rule_boundaries` reads them from the box of a rule; here they are searched
# for: for every split on the path to a leaf, rows on either side, with every category
# and with missing values, that meet all other conditions of the leaf's rule.

_FACE_ROUNDS = 20


def face_rows(
    model: Model, rows: Array, max_rows: int, rng: np.random.Generator
) -> tuple[Array, int, int]:
    """Search for rows at the bounds of rules, at most `max_rows`, starting from `rows`.

    Returns
    -------
    As `treekit.verify.rule_boundaries.rule_rows`.
    """
    from treekit.kernels.witness_search import REACHED

    of = routed(model)
    leaves = np.flatnonzero(of.routes.nodes["n_children"] == 0)
    goals = _face_wishes(of, leaves)
    counts = np.bincount(goals["target"], minlength=len(of.routes.nodes))[leaves]
    step = max(-(-int(counts.sum()) // max_rows), 1)
    chosen = leaves[::step]
    chosen = chosen[np.cumsum(counts[::step]) <= max_rows]
    hunt = Hunt(of, goals[np.isin(goals["target"], chosen)], rows, rng)
    hunt.run(np.full(len(hunt.wishes), REACHED), rounds=_FACE_ROUNDS)
    return hunt.best[hunt.outcome > 0], len(chosen), len(leaves)


def _face_wishes(of: Routed, leaves: Index) -> npt.NDArray[np.void]:
    """Make goals for every outcome at each node on the path to each leaf."""
    from treekit.kernels.witness_search import ABOVE, ANY, AT_MOST, UNKNOWN

    parts = [no_wishes()]
    takes_missing = of.model.missing != "error"
    target, node = leaves, of.routes.nodes["parent"][leaves]
    while len(target := target[node >= 0]):
        node = node[node >= 0]
        column = of.tests.column[node]
        missing = column < 0
        test = np.where(missing, -1, of.tests.test_start[np.maximum(column, 0)])
        linear = ~missing & of.linear[np.maximum(test, 0)] if len(of.linear) else missing & False
        levels = ~missing & ~linear
        parts += [
            wishes(node[linear], test[linear], AT_MOST, target=target[linear]),
            wishes(node[linear], test[linear], ABOVE, target=target[linear]),
            level_wishes(of, test[levels], target[levels]),
            wishes(node[missing], -1, ANY, target=target[missing]),
        ]
        unknown = np.ones(len(node), dtype=np.bool_) if takes_missing else ~missing
        parts.append(wishes(node[unknown], test[unknown], UNKNOWN, target=target[unknown]))
        node = of.routes.nodes["parent"][node]
    return np.concatenate(parts)


# ---------------------------------------------------------------- reachable parts

_ROWS = 50_000


def next_to_thresholds(of: Routed, cells: Array, touched: Touched) -> npt.NDArray[np.bool_]:
    """Mark the sides on which the nearest sum is within one step of a number, (tests, 2) bool."""
    from treekit.kernels.reachability import are_next

    found = np.zeros((len(of.owner), 2), dtype=np.bool_)
    tests, sides = np.nonzero((touched.side >= 0) & of.linear[:, None])
    for at in range(0, len(tests), _ROWS):
        part = slice(at, at + _ROWS)
        near = np.zeros(len(tests[part]), dtype=np.bool_)
        rows = cells[touched.side[tests[part], sides[part]]]
        are_next(of.routes, tests[part], sides[part], rows, of.narrow, near)
        found[tests[part], sides[part]] = near
    return found


def reachable(of: Routed) -> Can:
    """Mark the parts that inputs can touch, unless boxes or the corners of sums exclude them."""
    from treekit.kernels.reachability import Can, can_touch, make_walk

    model, tests = of.model, of.tests
    n, n_tests = len(of.routes.nodes), len(of.owner)
    can = Can(
        node=np.zeros(n, np.bool_),
        unknown=np.zeros(n, np.bool_),
        side=np.zeros((n_tests, 2), np.bool_),
        near=np.zeros((n_tests, 2), np.bool_),
        level=np.zeros(len(tests.level_branch), np.bool_),
        enter=np.zeros(n, np.bool_),
    )
    for tree, root in trees_of(model, of.roots):
        plain, n_behind = _with_columns_behind(of, tree)
        behind = np.zeros(n_behind, dtype=np.int64)
        bar = np.append(np.full(model.schema.n_features, int(model.missing == "error")), behind)
        n_levels = np.append(model.schema.n_levels, behind)
        nominal = np.append(model.schema.nominal, behind.astype(np.bool_))
        walk = make_walk(plain, n_levels, nominal, bar, tree.depth + 1)
        can_touch(walk, of.routes, root, of.narrow, can)
    return can


def _with_columns_behind(of: Routed, tree: Tree) -> tuple[Tree, int]:
    """Add to a tree a column for each distinct sum, and one for each node with surrogates.

    Nodes that compare the same sum narrow the same interval.
    """
    n_features = of.model.schema.n_features
    sums: dict[bytes, int] = {}
    kind, feature = tree.kind.copy(), tree.feature.copy()
    threshold = tree.threshold.copy()
    bounds = itertools.pairwise(tree.term_start.tolist())
    has_surrogates = np.diff(tree.surrogate_start) > 0
    for node, (first, last) in enumerate(bounds):
        if first == last and not has_surrogates[node]:
            continue
        key = tree.term_feature[first:last].tobytes() + tree.term_weight[first:last].tobytes()
        number = sums.setdefault(key if first < last else node.to_bytes(8, "big"), len(sums))
        kind[node], feature[node] = Split.THRESHOLD, n_features + number
        threshold[node] = 0.0 if has_surrogates[node] else threshold[node]
    missing: Any = -1 if of.routes.divides else tree.missing
    lowered = replace(
        tree,
        kind=kind,
        feature=feature,
        threshold=threshold,
        missing=np.broadcast_to(missing, tree.missing.shape),
    )
    return lowered, len(sums)
