"""The search for rows that reach every part of models that are not plain.

Random rows first; they are changed until every outcome of every test at every
node was seen (`treekit.verify.targeted_search`).  What boxes do not exclude and no row
reached is asked of a linear programme (`treekit.verify.targeted_search`).  Rows that
show a wrong turn in the answer are preferred to others, and, at sums, rows
that show the last bit of each number.
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


# ---------------------------------------------------------------- witness

Array = npt.NDArray[np.float64]

_START_ROWS = 500
_EXACT_TRIES = 50_000
"""About so many tries, but 4 to 60 a wish, go to last bits of doubles, which few inputs show."""


@dataclass(frozen=True)
class Witnesses:
    """What the search found.

    Attributes
    ----------
    rows : (rows, features) float64
    can : Can
        What inputs can touch.
    wrong_turns : (3,) int64
        As in `treekit.verify.probes.Probes`.
    last_bits : (int, int)
        As in `treekit.verify.probes.Probes`.
    complete : bool
        Whether every wish was tried within the bounds of rows and time.
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
    """Search for rows, at most some `max_rows` besides the random ones, until a time."""
    from treekit.kernels.witness_search import EXACT, SHARP, TELLS, UNKNOWN

    of = routed(model)
    can = reachable(of)
    wishes = wishes_of(of)
    complete = len(wishes) <= max_rows
    if not complete:
        # One wrong branch of each value comes first; of the rest every k-th.
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
    """Rows anew for wanted nodes of a tree; some may miss theirs."""
    nodes = hunt.of.roots[tree] + np.flatnonzero(wanted)
    return hunt.varied(nodes[hunt.touched.node[nodes] >= 0])[0]


def _rounding(of: Routed, rows: Array, rng: np.random.Generator) -> Array:
    """Rows of the furthest doubles that round to each number, up or down; none in float64."""
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
    """Wishes whose row tells; whose row cannot; and whose row does not, though it might."""
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


# ---------------------------------------------------------------- hunt
# Rows that grew out of others, and what they touch.
#
# For all that is wished of a node that some row reaches, that row is changed
# (`treekit.kernels.witness_search`); one whose wish came true may reach new nodes.

Index = npt.NDArray[np.int64]

_ROUNDS = 60
_IDLE_ROUNDS = 12
"""So many rounds without anything new end the search, or call for a linear programme."""


class Hunt:
    """Rows found so far, and for each wish the best of them.

    Attributes
    ----------
    cells : (rows, features) float64
        Every row, of the input type.
    touched : Touched
        What they touch.
    best : (wishes, features) float64
        The row of each wish that came true.
    outcome : (wishes,) int64
        0, or as `treekit.kernels.witness_search` says.
    until : float
        When to stop, as `time.monotonic` counts.
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
        """Route more rows."""
        cells = matrix_of(self.of.model, rows)
        route_rows(self.of, cells, len(self.cells), self.touched)
        self.cells = np.concatenate([self.cells, cells])

    def run(self, wanted: Index, can: Can | None = None, rounds: int = _ROUNDS) -> None:
        """Grant wishes until each has the outcome `wanted` of it or nothing more comes true.

        With `can`, linear programmes are asked for nodes that no row reaches,
        and without anything new the search ends early.
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
        """Try to grant some wishes; whether any came true that had not, or better."""
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
        """For each node, which some row reaches, such a row, and one of known values.

        Half of the rows take some values of the other, to find other answers;
        they may not reach the node any more.
        """
        rows = self.cells[self.touched.node[nodes]]
        spare = self.known(len(nodes))
        share = np.maximum(self.rng.random((len(nodes), 1)) * 1.6 - 0.8, 0.0)
        change = self.rng.random(rows.shape) < share
        return np.where(change, spare, rows), spare

    def known(self, n: int) -> Array:
        """Rows of known values, of the input type."""
        rows = matrix_of(self.of.model, drawn(self.of, n, self.rng))
        for f, column in enumerate(self.of.model.schema.columns):
            unknown = ~np.isfinite(rows[:, f])
            if column.kind == "numeric":
                rows[unknown, f] = np.rint(self.rng.normal(size=int(unknown.sum())) * 3)
            elif column.levels:
                rows[unknown, f] = self.rng.integers(len(column.levels), size=int(unknown.sum()))
        return rows

    def _ask_for_points(self, can: Can) -> bool:
        """Rows of linear programmes for nodes not reached; whether any of them is now."""
        lacking = np.flatnonzero(can.node & (self.touched.node < 0))
        if not len(lacking):
            return False
        self.add(inner_points(self.of, lacking, self.known(len(lacking)), self.until))
        return bool((self.touched.node[lacking] >= 0).any())

    def touching(self) -> Array:
        """Rows that together touch all that any row does."""
        parts = [part.ravel() for part in self.touched if part.dtype == np.int64]
        numbers = np.unique(np.concatenate(parts))
        found: Array = self.cells[numbers[numbers >= 0]]
        return found


def drawn(of: Routed, n: int, rng: np.random.Generator) -> Array:
    """Random rows around the thresholds, some of them with many missing values."""
    model = of.model
    pools = [_pool(of, f) for f in range(model.schema.n_features)]
    rows = random_rows(model, pools, n, rng)
    if model.missing != "error":
        often = rng.random(n) < 0.25
        rows[often[:, None] & (rng.random(rows.shape) < 0.4)] = np.nan
    return rows


def _pool(of: Routed, feature: int) -> Array:
    """Where tests of a column turn, or would if it were alone in its sum."""
    tests = of.tests
    at = np.flatnonzero(tests.term_feature == feature)
    test = np.searchsorted(tests.term_start, at, side="right") - 1
    with np.errstate(over="ignore"):
        values = floor_to(tests.threshold[test] / tests.term_weight[at], of.model.schema.dtype)
    return np.unique(values[np.isfinite(values)])


# ---------------------------------------------------------------- wishes
# What is wished of rows at the nodes of a model: every outcome of every test.

Wishes = npt.NDArray[np.void]

_MOST_WRONG_BRANCHES = 8


def wishes_of(of: Routed) -> Wishes:
    """(wishes,) `treekit.kernels.witness_search.WISH`: for each wrong branch one of each."""
    from treekit.kernels.witness_search import ABOVE, ANY, AT_MOST, SET, UNKNOWN

    model, tests = of.model, of.tests
    linear, levels = np.flatnonzero(of.linear), np.flatnonzero(~of.linear)
    test, term = _terms_of_sums(of)
    inner = np.flatnonzero(tests.column >= 0)
    absence = np.flatnonzero((tests.column < 0) & (of.routes.nodes["n_children"] > 0))
    takes_missing = model.missing != "error"
    parts = [
        wishes(of.owner[linear], linear, AT_MOST),
        wishes(of.owner[linear], linear, ABOVE),
        wishes(of.owner[test], test, AT_MOST, -np.inf, term=term, sharp=True),
        wishes(of.owner[test], test, AT_MOST, np.inf, term=term, sharp=True),
        level_wishes(of, levels),
        wishes(inner, tests.test_start[tests.column[inner]], UNKNOWN),
        wishes(absence, -1, ANY),
        _around_wishes(of),
    ]
    if takes_missing:
        parts.append(_lost_wishes(of))
    if of.routes.divides:
        parts.append(wishes(inner, tests.test_start[tests.column[inner]], UNKNOWN, sharp=True))
    if takes_missing:
        parts.append(wishes(absence, -1, UNKNOWN))
    if takes_missing and model.unknown == "missing":
        sizes = np.diff(tests.level_start)[levels]
        parts.append(wishes(of.owner[levels], levels, SET, sizes))
    once = np.concatenate(parts)
    turns = np.clip(of.routes.nodes["n_children"][once["node"]] - 1, 1, _MOST_WRONG_BRANCHES)
    turns = np.where(once["goal"] == SET, 1, turns)
    every = np.repeat(once, turns)
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
    """One wish for each node, or pair of node and target.

    See `treekit.kernels.witness_search.WISH`.
    """
    from treekit.kernels.witness_search import WISH

    made = np.zeros(len(node), dtype=WISH)
    made["node"], made["test"], made["goal"], made["value"] = node, test, goal, value
    made["target"] = node if target is None else target
    made["step"], made["term"], made["sharp"] = 1, term, sharp
    return made


def no_wishes() -> Wishes:
    """None, to be added to."""
    return wishes(np.zeros(0, dtype=np.int64), -1, 0)


def level_wishes(of: Routed, tests: Index, target: Index | None = None) -> Wishes:
    """For each of some tests by levels, each level."""
    from treekit.kernels.witness_search import LEVEL

    counts = np.diff(of.tests.level_start)[tests]
    test = np.repeat(tests, counts)
    code = np.arange(len(test)) - np.repeat(np.cumsum(counts) - counts, counts)
    to = None if target is None else np.repeat(target, counts)
    return wishes(of.owner[test], test, LEVEL, code, to)


def _terms_of_sums(of: Routed) -> tuple[Index, Index]:
    """Tests of several terms, and each of their terms after a -1 for the threshold."""
    counts = np.diff(of.tests.term_start)
    several = np.flatnonzero(counts > 1)
    test = np.repeat(several, counts[several] + 1)
    starts = np.cumsum(counts[several] + 1) - (counts[several] + 1)
    return test, np.arange(len(test)) - np.repeat(starts, counts[several] + 1) - 1


def _around_wishes(of: Routed) -> Wishes:
    """Values around the thresholds of single columns, on which a wrong comparison would show."""
    from treekit.kernels.witness_search import SET

    starts = of.tests.term_start
    single = np.flatnonzero(of.linear & (np.diff(starts) == 1))
    single = single[of.tests.term_weight[starts[single]] == 1.0]
    values = around_thresholds(of.tests.threshold[single], of.model.schema.dtype)[:, 2:]
    row, column = np.nonzero(~np.isnan(values))
    return wishes(of.owner[single[row]], single[row], SET, values[row, column])


def _lost_wishes(of: Routed) -> Wishes:
    """Missing values at the conditions of rules, which say themselves what they do."""
    from treekit.kernels.witness_search import SET

    at = np.flatnonzero(of.routes.nodes["kind"][of.owner] == Split.RULE)
    return wishes(of.owner[at], at, SET, np.nan)


def uniform_nodes(of: Routed) -> npt.NDArray[np.bool_]:
    """(nodes,) bool: below which all leaves say the same, so that no wrong turn can show."""
    routes = of.routes
    said = routes.units.copy()
    same = np.ones(len(said), dtype=np.bool_)
    for first, last in itertools.pairwise(of.roots.tolist()):
        for node in range(last - 1, first - 1, -1):
            if routes.nodes["n_children"][node]:
                child = routes.nodes["first_child"][node]
                below = slice(child, child + routes.nodes["n_children"][node])
                said[node] = said[child]
                same[node] = same[below].all() and (said[below] == said[child]).all()
    return same


# ---------------------------------------------------------------- linear
# Points inside the regions of nodes below sums, by linear programmes.
#
# On the way to a node every sum is to be known and on the right side; the
# programme takes the point that keeps furthest from all of them.

_MOST_NODES = 500
_FAR = 1e6
"""Numbers up to so many times the largest threshold are looked at."""


def inner_points(
    of: Routed, nodes: npt.NDArray[np.int64], rows: Array, until: float = math.inf
) -> Array:
    """A row for each of `nodes` (the first 500) for which a programme has a solution.

    Parameters
    ----------
    of : Routed
    nodes : (nodes,) int64
    rows : (nodes, features) float64
        Values for what the programmes do not determine; known ones.
    until : float
        When to stop, as `time.monotonic` counts.

    Returns
    -------
    (rows, features) float64
        Candidates: rounding may have taken them out of the region again.
    """
    found = [
        point
        for node, row in zip(nodes[:_MOST_NODES].tolist(), rows, strict=False)
        if time.monotonic() < until and (point := _inner_point(of, node, row.copy())) is not None
    ]
    return matrix_of(of.model, np.array(found).reshape(len(found), rows.shape[1]))


def _inner_point(of: Routed, node: int, row: Array) -> Array | None:
    """Fix levels and missing values on the way, and solve for the numbers."""
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
        asked = ~np.isnan(numbers)
        row[asked] = numbers[asked]
    for feature, value in fixed.items():
        row[feature] = value
    return row


def _solve(of: Routed, sums: list[tuple[int, bool]]) -> Array | None:
    """(features,) float64: numbers on the right side of all sums; NaN where none asks."""
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
    asked = weights[:, :n].any(axis=0)
    numbers[asked] = solved.x[:n][asked]
    return numbers


# ---------------------------------------------------------------- faces
# Rows at the bounds of the rules of models that are not plain.
#
# What `treekit.verify.rule_boundaries` reads from the box of a rule is searched for here:
# for every split on the way to a leaf, rows on either side, with every level
# and with nothing known, that meet all other conditions of the leaf's rule.

_FACE_ROUNDS = 20


def face_rows(
    model: Model, rows: Array, max_rows: int, rng: np.random.Generator
) -> tuple[Array, int, int]:
    """Rows for the bounds of rules, at most `max_rows`; grown out of `rows`.

    Returns
    -------
    As `treekit.verify.rule_boundaries.rule_rows`.
    """
    from treekit.kernels.witness_search import REACHED

    of = routed(model)
    leaves = np.flatnonzero(of.routes.nodes["n_children"] == 0)
    asked = _face_wishes(of, leaves)
    counts = np.bincount(asked["target"], minlength=len(of.routes.nodes))[leaves]
    step = max(-(-int(counts.sum()) // max_rows), 1)
    chosen = leaves[::step]
    chosen = chosen[np.cumsum(counts[::step]) <= max_rows]
    hunt = Hunt(of, asked[np.isin(asked["target"], chosen)], rows, rng)
    hunt.run(np.full(len(hunt.wishes), REACHED), rounds=_FACE_ROUNDS)
    return hunt.best[hunt.outcome > 0], len(chosen), len(leaves)


def _face_wishes(of: Routed, leaves: Index) -> npt.NDArray[np.void]:
    """For each leaf, what a row may do at each node on the way to it."""
    from treekit.kernels.witness_search import ABOVE, ANY, AT_MOST, UNKNOWN

    parts = [no_wishes()]
    takes_missing = of.model.missing != "error"
    target, node = leaves, of.routes.nodes["parent"][leaves]
    while len(target := target[node >= 0]):
        node = node[node >= 0]
        column = of.tests.column[node]
        absence = column < 0
        test = np.where(absence, -1, of.tests.test_start[np.maximum(column, 0)])
        linear = ~absence & of.linear[np.maximum(test, 0)] if len(of.linear) else absence & False
        levels = ~absence & ~linear
        parts += [
            wishes(node[linear], test[linear], AT_MOST, target=target[linear]),
            wishes(node[linear], test[linear], ABOVE, target=target[linear]),
            level_wishes(of, test[levels], target[levels]),
            wishes(node[absence], -1, ANY, target=target[absence]),
        ]
        unknown = np.ones(len(node), dtype=np.bool_) if takes_missing else ~absence
        parts.append(wishes(node[unknown], test[unknown], UNKNOWN, target=target[unknown]))
        node = of.routes.nodes["parent"][node]
    return np.concatenate(parts)


# ---------------------------------------------------------------- possible
# What inputs can touch in models that are not plain, and whether rows touch the sharpest of it.

_ROWS = 50_000


def next_to_thresholds(of: Routed, cells: Array, touched: Touched) -> npt.NDArray[np.bool_]:
    """(tests, 2) bool: on which sides the nearest sum is as near as one step of a number."""
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
    """What inputs can touch, as far as boxes and the corners of sums exclude the rest."""
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
    """The tree with a column for each distinct sum, and one for each node with surrogates.

    Nodes that compare the same sum narrow the same interval.
    """
    n_features = of.model.schema.n_features
    sums: dict[bytes, int] = {}
    kind, feature = tree.kind.copy(), tree.feature.copy()
    threshold = tree.threshold.copy()
    bounds = itertools.pairwise(tree.term_start.tolist())
    instead = np.diff(tree.surrogate_start) > 0
    for node, (first, last) in enumerate(bounds):
        if first == last and not instead[node]:
            continue
        key = tree.term_feature[first:last].tobytes() + tree.term_weight[first:last].tobytes()
        number = sums.setdefault(key if first < last else node.to_bytes(8, "big"), len(sums))
        kind[node], feature[node] = Split.THRESHOLD, n_features + number
        threshold[node] = 0.0 if instead[node] else threshold[node]
    missing: Any = -1 if of.routes.divides else tree.missing
    lowered = replace(
        tree,
        kind=kind,
        feature=feature,
        threshold=threshold,
        missing=np.broadcast_to(missing, tree.missing.shape),
    )
    return lowered, len(sums)
