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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.model.fixed_point import floor_to_dtype, to_double_threshold
from treekit.model.model import Model
from treekit.model.tree import Split, Tree
from treekit.rules import RuleList, rules
from treekit.rules.extract import is_rule_list
from treekit.verify.probe_values import (
    draw_random_rows,
    find_divided_rows,
    find_next_above,
    list_values_around,
)
from treekit.verify.routing import (
    RoutedModel,
    has_accepted_rows,
    is_plain,
    list_trees,
    make_empty_coverage,
    make_matrix,
    make_routed_model,
    route_rows,
)

if TYPE_CHECKING:
    from treekit.kernels.reachability import ModelCoverage, ReachableOutcomes


# ---------------------------------------------------------------- search

Array = npt.NDArray[np.float64]

_MIN_START_ROWS = 500
_EXACT_TRIES = 50_000
"""Approximate number of tries, 4 to 60 a goal, for last bits of doubles, which few inputs show."""


@dataclass(frozen=True)
class SearchResult:
    """Result of the search.

    Attributes
    ----------
    rows : (rows, features) float64
    reachable : ReachableOutcomes
        Parts that inputs can touch.
    wrong_turns : (3,) int64
        As in `treekit.verify.probes.Probes`.
    last_bits : (int, int)
        As in `treekit.verify.probes.Probes`.
    complete : bool
        Whether every goal was tried within the limits of rows and time.
    """

    rows: Array
    reachable: ReachableOutcomes
    wrong_turns: npt.NDArray[np.int64]
    last_bits: tuple[int, int]
    complete: bool


def search_rows(
    model: Model,
    n_random: int,
    max_rows: int,
    rng: np.random.Generator,
    until: float = math.inf,
) -> SearchResult:
    """Search until the time `until` for `n_random` random rows and about `max_rows` others."""
    from treekit.kernels.witness_search import (
        REVEALING,
        REVEALING_FLOAT32,
        REVEALING_FLOAT64,
        UNKNOWN,
    )

    of = make_routed_model(model)
    can = find_reachable(of)
    wishes = list_goals(of)
    complete = len(wishes) <= max_rows
    if not complete:
        # One wrong branch for each outcome comes first; then every k-th is kept.
        wishes = wishes[np.argsort(wishes["step"], kind="stable")]
        wishes = wishes[:: -(-len(wishes) // max_rows)]
    start = draw_rows(of, max(n_random, _MIN_START_ROWS), rng)
    hunt = TargetedSearch(of, wishes, start, rng, until)
    hunt.run_rounds(np.where(wishes["sharp"], REVEALING_FLOAT32, REVEALING), can)
    rounds = int(np.clip(_EXACT_TRIES // max(int(wishes["sharp"].sum()), 1), 4, 60))
    hunt.run_rounds(np.where(wishes["sharp"], REVEALING_FLOAT64, 0), rounds=rounds)
    rows = [start[:n_random], hunt.select_touching_rows(), hunt.best[hunt.outcome > 0]]
    rows.append(_make_rounding_rows(of, hunt.best[(hunt.outcome > 0) & (wishes["term"] < 0)], rng))
    complete &= time.monotonic() < until
    if complete and has_accepted_rows(model):
        rows.append(
            find_divided_rows(model, np.concatenate(rows), partial(_draw_reaching_rows, hunt))
        )
    sharp = wishes["sharp"] & (wishes["goal"] != UNKNOWN)
    last_bits = (
        int(np.count_nonzero(hunt.outcome[sharp] >= REVEALING_FLOAT32)),
        int(np.count_nonzero(sharp)),
    )
    return SearchResult(np.concatenate(rows), can, _count_wrong_turns(hunt), last_bits, complete)


def _draw_reaching_rows(hunt: TargetedSearch, tree: int, wanted: npt.NDArray[np.bool_]) -> Array:
    """Draw new rows for the wanted nodes of a tree; some may not reach theirs."""
    nodes = hunt.of.roots[tree] + np.flatnonzero(wanted)
    return hunt.vary_rows(nodes[hunt.touched.node[nodes] >= 0])[0]


def _make_rounding_rows(of: RoutedModel, rows: Array, rng: np.random.Generator) -> Array:
    """Make rows of the furthest doubles that round to each number, up or down; none in float64."""
    if not of.is_float32:
        return rows[:0]
    known = np.where(np.abs(rows) <= np.finfo(np.float32).max, rows, 0.0)
    upper, lower = to_double_threshold(known), -to_double_threshold(-known)
    moved = np.where(rng.random(rows.shape) < 0.5, upper, lower)
    with np.errstate(over="ignore"):
        same = moved.astype(np.float32).astype(np.float64) == rows
    numeric = ~of.model.schema.nominal
    return np.where(same & numeric, moved, rows)


def _count_wrong_turns(hunt: TargetedSearch) -> npt.NDArray[np.int64]:
    """Count the goals whose row shows the wrong turn, cannot show it, and might but does not."""
    from treekit.kernels.witness_search import REACHED, REVEALING

    once = ~hunt.wishes["sharp"]
    reached = (hunt.outcome == REACHED) & once
    never = find_uniform_nodes(hunt.of)[hunt.wishes["node"]]
    return np.array(
        [
            np.count_nonzero((hunt.outcome >= REVEALING) & once),
            np.count_nonzero(reached & never),
            np.count_nonzero(reached & ~never),
        ]
    )


# ---------------------------------------------------------------- rows by variation
# For each goal at a node that some row reaches, that row is changed
# (`treekit.kernels.witness_search`); a row that meets its goal may reach new nodes.

Index = npt.NDArray[np.int64]

_MAX_ROUNDS = 60
_MAX_IDLE_ROUNDS = 12
"""Rounds without progress after which the search ends, or a linear programme is solved."""


class TargetedSearch:
    """Rows found so far, and the best row for each coverage goal.

    Attributes
    ----------
    cells : (rows, features) float64
        Every row, rounded to the input type.
    touched : ModelCoverage
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
        of: RoutedModel,
        wishes: npt.NDArray[np.void],
        start: Array,
        rng: np.random.Generator,
        until: float = math.inf,
    ) -> None:
        self.of, self.wishes, self.rng, self.until = of, wishes, rng, until
        self.cells = np.empty((0, of.model.schema.n_features))
        self.touched: ModelCoverage = make_empty_coverage(of)
        self.add_rows(start)
        self.best = np.zeros((len(wishes), of.model.schema.n_features))
        self.outcome = np.zeros(len(wishes), dtype=np.int64)

    def add_rows(self, rows: Array) -> None:
        """Add rows, and route them."""
        cells = make_matrix(self.of.model, rows)
        route_rows(self.of, cells, len(self.cells), self.touched)
        self.cells = np.concatenate([self.cells, cells])

    def run_rounds(
        self, wanted: Index, can: ReachableOutcomes | None = None, rounds: int = _MAX_ROUNDS
    ) -> None:
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
            idle = 0 if self._run_round(left) else idle + 1
            if (can is not None and idle == _MAX_IDLE_ROUNDS) or not len(left):
                idle = 0
                if can is None or not self._add_inner_points(can):
                    break

    def _run_round(self, left: Index) -> bool:
        """Try to meet some goals; return whether any outcome improved."""
        from treekit.kernels.witness_search import ABOVE, AT_MOST, UNKNOWN, make_bits, reach_goals

        wishes = self.wishes[left]
        either = np.flatnonzero(wishes["sharp"] & (wishes["goal"] != UNKNOWN))
        wishes["goal"][either] = self.rng.choice([AT_MOST, ABOVE], len(either))
        rows, spare = self.vary_rows(wishes["target"])
        outcome = np.zeros(len(left), dtype=np.int64)
        takes_missing = self.of.model.missing != "error"
        bits = make_bits(self.of.is_float32)
        reach_goals(self.of.routes, wishes, rows, spare, takes_missing, self.rng, bits, outcome)
        better = np.flatnonzero(outcome > self.outcome[left])
        if not len(better):
            return False
        self.best[left[better]] = rows[better]
        self.outcome[left[better]] = outcome[better]
        self.add_rows(rows[better])
        return True

    def vary_rows(self, nodes: Index) -> tuple[Array, Array]:
        """Return for each reached node a changed row that reached it, and a row of known values.

        Half of the rows take some values of the other, to vary the predictions;
        they may not reach the node any more.
        """
        rows = self.cells[self.touched.node[nodes]]
        spare = self.draw_known_rows(len(nodes))
        share = np.maximum(self.rng.random((len(nodes), 1)) * 1.6 - 0.8, 0.0)
        change = self.rng.random(rows.shape) < share
        return np.where(change, spare, rows), spare

    def draw_known_rows(self, n: int) -> Array:
        """Draw rows of known values, rounded to the input type."""
        rows = make_matrix(self.of.model, draw_rows(self.of, n, self.rng))
        for f, column in enumerate(self.of.model.schema.columns):
            unknown = ~np.isfinite(rows[:, f])
            if column.kind == "numeric":
                rows[unknown, f] = np.rint(self.rng.normal(size=int(unknown.sum())) * 3)
            elif column.levels:
                rows[unknown, f] = self.rng.integers(len(column.levels), size=int(unknown.sum()))
        return rows

    def _add_inner_points(self, can: ReachableOutcomes) -> bool:
        """Add rows from linear programmes for unreached nodes; return whether it reaches any."""
        unreached = np.flatnonzero(can.node & (self.touched.node < 0))
        if not len(unreached):
            return False
        self.add_rows(
            find_inner_points(self.of, unreached, self.draw_known_rows(len(unreached)), self.until)
        )
        return bool((self.touched.node[unreached] >= 0).any())

    def select_touching_rows(self) -> Array:
        """Select rows that together touch everything that any row touches."""
        parts = [part.ravel() for part in self.touched if part.dtype == np.int64]
        numbers = np.unique(np.concatenate(parts))
        found: Array = self.cells[numbers[numbers >= 0]]
        return found


def draw_rows(of: RoutedModel, n: int, rng: np.random.Generator) -> Array:
    """Draw random rows around the thresholds, some of them with many missing values."""
    model = of.model
    pools = [_list_thresholds(of, f) for f in range(model.schema.n_features)]
    rows = draw_random_rows(model, pools, n, rng)
    if model.missing != "error":
        often = rng.random(n) < 0.25
        rows[often[:, None] & (rng.random(rows.shape) < 0.4)] = np.nan
    return rows


def _list_thresholds(of: RoutedModel, feature: int) -> Array:
    """Return the values at which tests of a column change, if no other column is in the sum."""
    tests = of.tests
    at = np.flatnonzero(tests.term_feature == feature)
    test = np.searchsorted(tests.term_start, at, side="right") - 1
    with np.errstate(over="ignore"):
        values = floor_to_dtype(
            tests.threshold[test] / tests.term_weight[at], of.model.schema.dtype
        )
    return np.unique(values[np.isfinite(values)])


# ---------------------------------------------------------------- coverage goals
# A goal is an outcome of a test at a node, with a wrong branch that the row should expose.

CoverageGoals = npt.NDArray[np.void]

_MAX_WRONG_BRANCHES = 8


def list_goals(of: RoutedModel) -> CoverageGoals:
    """List the goals: test outcomes with a wrong branch; see `treekit.kernels.witness_search`."""
    from treekit.kernels.witness_search import ABOVE, ANY, AT_MOST, SET, UNKNOWN

    model, tests = of.model, of.tests
    linear, levels = np.flatnonzero(of.is_linear), np.flatnonzero(~of.is_linear)
    test, term = _list_sum_terms(of)
    inner = np.flatnonzero(tests.column >= 0)
    by_missing = np.flatnonzero((tests.column < 0) & (of.routes.nodes["n_children"] > 0))
    takes_missing = model.missing != "error"
    parts = [
        make_goals(of.node_of_test[linear], linear, AT_MOST),
        make_goals(of.node_of_test[linear], linear, ABOVE),
        make_goals(of.node_of_test[test], test, AT_MOST, -np.inf, term=term, sharp=True),
        make_goals(of.node_of_test[test], test, AT_MOST, np.inf, term=term, sharp=True),
        make_category_goals(of, levels),
        make_goals(inner, tests.test_start[tests.column[inner]], UNKNOWN),
        make_goals(by_missing, -1, ANY),
        _make_threshold_goals(of),
    ]
    if takes_missing:
        parts.append(_make_missing_goals(of))
    if of.routes.fractional:
        parts.append(make_goals(inner, tests.test_start[tests.column[inner]], UNKNOWN, sharp=True))
    if takes_missing:
        parts.append(make_goals(by_missing, -1, UNKNOWN))
    if takes_missing and model.unknown == "missing":
        sizes = np.diff(tests.level_start)[levels]
        parts.append(make_goals(of.node_of_test[levels], levels, SET, sizes))
    goals = np.concatenate(parts)
    turns = np.clip(of.routes.nodes["n_children"][goals["node"]] - 1, 1, _MAX_WRONG_BRANCHES)
    turns = np.where(goals["goal"] == SET, 1, turns)
    every = np.repeat(goals, turns)
    every["step"] += np.arange(len(every)) - np.repeat(np.cumsum(turns) - turns, turns)
    return every


def make_goals(
    node: Index,
    test: Index | int,
    goal: int,
    value: npt.ArrayLike = 0.0,
    target: Index | None = None,
    term: Index | int = -1,
    sharp: bool = False,
) -> CoverageGoals:
    """Make one goal for each node, or pair of node and target.

    See `treekit.kernels.witness_search.GOAL_DTYPE`.
    """
    from treekit.kernels.witness_search import GOAL_DTYPE

    goals = np.zeros(len(node), dtype=GOAL_DTYPE)
    goals["node"], goals["test"], goals["goal"], goals["value"] = node, test, goal, value
    goals["target"] = node if target is None else target
    goals["step"], goals["term"], goals["sharp"] = 1, term, sharp
    return goals


def make_empty_goals() -> CoverageGoals:
    """Return an empty array of goals."""
    return make_goals(np.zeros(0, dtype=np.int64), -1, 0)


def make_category_goals(
    of: RoutedModel, tests: Index, target: Index | None = None
) -> CoverageGoals:
    """Make a goal for each category of some tests on categories."""
    from treekit.kernels.witness_search import LEVEL

    counts = np.diff(of.tests.level_start)[tests]
    test = np.repeat(tests, counts)
    code = np.arange(len(test)) - np.repeat(np.cumsum(counts) - counts, counts)
    to = None if target is None else np.repeat(target, counts)
    return make_goals(of.node_of_test[test], test, LEVEL, code, to)


def _list_sum_terms(of: RoutedModel) -> tuple[Index, Index]:
    """Return tests of several terms, each with its terms after a -1 for the threshold."""
    counts = np.diff(of.tests.term_start)
    several = np.flatnonzero(counts > 1)
    test = np.repeat(several, counts[several] + 1)
    starts = np.cumsum(counts[several] + 1) - (counts[several] + 1)
    return test, np.arange(len(test)) - np.repeat(starts, counts[several] + 1) - 1


def _make_threshold_goals(of: RoutedModel) -> CoverageGoals:
    """Make goals for values around thresholds of single columns that expose wrong comparisons."""
    from treekit.kernels.witness_search import SET

    starts = of.tests.term_start
    single = np.flatnonzero(of.is_linear & (np.diff(starts) == 1))
    single = single[of.tests.term_weight[starts[single]] == 1.0]
    values = list_values_around(of.tests.threshold[single], of.model.schema.dtype)[:, 2:]
    row, column = np.nonzero(~np.isnan(values))
    return make_goals(of.node_of_test[single[row]], single[row], SET, values[row, column])


def _make_missing_goals(of: RoutedModel) -> CoverageGoals:
    """Make goals for missing values at rule conditions, which define their own branch for them."""
    from treekit.kernels.witness_search import SET

    at = np.flatnonzero(of.routes.nodes["kind"][of.node_of_test] == Split.RULE)
    return make_goals(of.node_of_test[at], at, SET, np.nan)


def find_uniform_nodes(of: RoutedModel) -> npt.NDArray[np.bool_]:
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

_MAX_NODES = 500
_MAX_FACTOR = 1e6
"""Bound of the numbers, as a multiple of the largest threshold."""


def find_inner_points(
    of: RoutedModel, nodes: npt.NDArray[np.int64], rows: Array, until: float = math.inf
) -> Array:
    """Find a row for each of `nodes` (the first 500) for which the programme has a solution.

    Parameters
    ----------
    of : RoutedModel
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
        for node, row in zip(nodes[:_MAX_NODES].tolist(), rows, strict=False)
        if time.monotonic() < until
        and (point := _find_inner_point(of, node, row.copy())) is not None
    ]
    return make_matrix(of.model, np.array(found).reshape(len(found), rows.shape[1]))


def _find_inner_point(of: RoutedModel, node: int, row: Array) -> Array | None:
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
        numbers = _solve_linear_program(of, sums)
        if numbers is None:
            return None
        determined = ~np.isnan(numbers)
        row[determined] = numbers[determined]
    for feature, value in fixed.items():
        row[feature] = value
    return row


def _solve_linear_program(of: RoutedModel, sums: list[tuple[int, bool]]) -> Array | None:
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
    far = _MAX_FACTOR * max(float(np.abs(limits).max()), 1.0)
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
# `treekit.verify.targeted_search` reads them from the box of a rule; here they are searched
# for: for every split on the path to a leaf, rows on either side, with every category
# and with missing values, that meet all other conditions of the leaf's rule.

_BOUNDARY_ROUNDS = 20


def search_boundary_rows(
    model: Model, rows: Array, max_rows: int, rng: np.random.Generator
) -> tuple[Array, int, int]:
    """Search for rows at the bounds of rules, at most `max_rows`, starting from `rows`.

    Returns
    -------
    As `treekit.verify.targeted_search.make_rule_rows`.
    """
    from treekit.kernels.witness_search import REACHED

    of = make_routed_model(model)
    leaves = np.flatnonzero(of.routes.nodes["n_children"] == 0)
    goals = _list_boundary_goals(of, leaves)
    counts = np.bincount(goals["target"], minlength=len(of.routes.nodes))[leaves]
    step = max(-(-int(counts.sum()) // max_rows), 1)
    chosen = leaves[::step]
    chosen = chosen[np.cumsum(counts[::step]) <= max_rows]
    hunt = TargetedSearch(of, goals[np.isin(goals["target"], chosen)], rows, rng)
    hunt.run_rounds(np.full(len(hunt.wishes), REACHED), rounds=_BOUNDARY_ROUNDS)
    return hunt.best[hunt.outcome > 0], len(chosen), len(leaves)


def _list_boundary_goals(of: RoutedModel, leaves: Index) -> npt.NDArray[np.void]:
    """Make goals for every outcome at each node on the path to each leaf."""
    from treekit.kernels.witness_search import ABOVE, ANY, AT_MOST, UNKNOWN

    parts = [make_empty_goals()]
    takes_missing = of.model.missing != "error"
    target, node = leaves, of.routes.nodes["parent"][leaves]
    while len(target := target[node >= 0]):
        node = node[node >= 0]
        column = of.tests.column[node]
        missing = column < 0
        test = np.where(missing, -1, of.tests.test_start[np.maximum(column, 0)])
        linear = (
            ~missing & of.is_linear[np.maximum(test, 0)] if len(of.is_linear) else missing & False
        )
        levels = ~missing & ~linear
        parts += [
            make_goals(node[linear], test[linear], AT_MOST, target=target[linear]),
            make_goals(node[linear], test[linear], ABOVE, target=target[linear]),
            make_category_goals(of, test[levels], target[levels]),
            make_goals(node[missing], -1, ANY, target=target[missing]),
        ]
        unknown = np.ones(len(node), dtype=np.bool_) if takes_missing else ~missing
        parts.append(make_goals(node[unknown], test[unknown], UNKNOWN, target=target[unknown]))
        node = of.routes.nodes["parent"][node]
    return np.concatenate(parts)


# ---------------------------------------------------------------- reachable parts

_CHUNK_ROWS = 50_000


def mark_adjacent_sides(
    of: RoutedModel, cells: Array, touched: ModelCoverage
) -> npt.NDArray[np.bool_]:
    """Mark the sides on which the nearest sum is within one step of a number, (tests, 2) bool."""
    from treekit.kernels.reachability import find_one_step_flips

    found = np.zeros((len(of.node_of_test), 2), dtype=np.bool_)
    tests, sides = np.nonzero((touched.side >= 0) & of.is_linear[:, None])
    for at in range(0, len(tests), _CHUNK_ROWS):
        part = slice(at, at + _CHUNK_ROWS)
        near = np.zeros(len(tests[part]), dtype=np.bool_)
        rows = cells[touched.side[tests[part], sides[part]]]
        find_one_step_flips(of.routes, tests[part], sides[part], rows, of.is_float32, near)
        found[tests[part], sides[part]] = near
    return found


def find_reachable(of: RoutedModel) -> ReachableOutcomes:
    """Mark the parts that inputs can touch, unless boxes or the corners of sums exclude them."""
    from treekit.kernels.reachability import ReachableOutcomes, make_walk, mark_reachable

    model, tests = of.model, of.tests
    n, n_tests = len(of.routes.nodes), len(of.node_of_test)
    can = ReachableOutcomes(
        node=np.zeros(n, np.bool_),
        unknown=np.zeros(n, np.bool_),
        side=np.zeros((n_tests, 2), np.bool_),
        near=np.zeros((n_tests, 2), np.bool_),
        level=np.zeros(len(tests.level_branch), np.bool_),
        entered=np.zeros(n, np.bool_),
    )
    for tree, root in list_trees(model, of.roots):
        plain, n_behind = _add_derived_columns(of, tree)
        behind = np.zeros(n_behind, dtype=np.int64)
        bar = np.append(np.full(model.schema.n_features, int(model.missing == "error")), behind)
        n_levels = np.append(model.schema.n_levels, behind)
        nominal = np.append(model.schema.nominal, behind.astype(np.bool_))
        walk = make_walk(plain, n_levels, nominal, bar, tree.depth + 1)
        mark_reachable(walk, of.routes, root, of.is_float32, can)
    return can


def _add_derived_columns(of: RoutedModel, tree: Tree) -> tuple[Tree, int]:
    """Add to a tree a column for each distinct sum, and one for each node with surrogates.

    Nodes that compare the same sum narrow the same interval.
    """
    n_features = of.model.schema.n_features
    sums: dict[bytes, int] = {}
    kind, feature = tree.kind.copy(), tree.feature.copy()
    threshold = tree.threshold.copy()
    bounds = itertools.pairwise(tree.term_offsets.tolist())
    has_surrogates = np.diff(tree.surrogate_offsets) > 0
    for node, (first, last) in enumerate(bounds):
        if first == last and not has_surrogates[node]:
            continue
        key = tree.term_feature[first:last].tobytes() + tree.term_weight[first:last].tobytes()
        number = sums.setdefault(key if first < last else node.to_bytes(8, "big"), len(sums))
        kind[node], feature[node] = Split.THRESHOLD, n_features + number
        threshold[node] = 0.0 if has_surrogates[node] else threshold[node]
    missing: Any = -1 if of.routes.fractional else tree.missing
    lowered = replace(
        tree,
        kind=kind,
        feature=feature,
        threshold=threshold,
        missing=np.broadcast_to(missing, tree.missing.shape),
    )
    return lowered, len(sums)


# ---------------------------------------------------------------- rule boundaries


def make_rule_rows(
    model: Model, max_rows: int, probes: Array, rng: np.random.Generator
) -> tuple[Array, int, int]:
    """Make rows for the faces of rules, at most `max_rows`.

    Parameters
    ----------
    model : Model
    max_rows : int
    probes : (rows, features) float64
        Accepted rows that reach every leaf.
    rng : numpy.random.Generator

    Returns
    -------
    rows : (rows, features) float64
    probed, rules : int
        Number of rules with rows, and of all rules; if not all fit, every k-th is probed.
    """
    if not has_accepted_rows(model):
        return probes[:0], model.n_leaves, model.n_leaves
    if is_rule_list(model):  # each condition occurs once in the text, as in code
        return probes[:0], model.n_leaves, model.n_leaves
    if not is_plain(model):
        return search_boundary_rows(model, probes, max_rows, rng)
    listed = rules(model)
    faces = _RuleFaces(model, listed)
    needed = faces.bound_row_counts()
    step = max(-(-int(needed.sum()) // max_rows), 1)
    chosen = np.arange(0, len(listed), step)
    chosen = chosen[np.cumsum(needed[chosen]) <= max_rows]
    rows = np.concatenate([*faces.iter_rows(chosen)])
    # A rule that no row satisfies has no inside: its rows would hold disallowed missing values.
    return rows[~listed.refused(rows)], len(chosen), len(listed)


class _RuleFaces:
    """Rules of a model as arrays, with values inside and outside of their conditions."""

    def __init__(self, model: Model, listed: RuleList) -> None:
        self.model, self.listed, self.table = model, listed, listed.conditions
        table, schema = self.table, model.schema
        self.rule = np.repeat(np.arange(len(listed)), np.diff(listed.end, prepend=0))
        self.nominal = schema.nominal[table.column]
        self.level_start = np.concatenate([[0], table.level_end[:-1]]).astype(np.int64)
        self.n_inside = np.where(self.nominal, table.level_end[: len(self.rule)], 0)
        self.n_inside -= np.where(self.nominal, self.level_start[: len(self.rule)], 0)
        self.n_levels = schema.n_levels[table.column]

    def bound_row_counts(self) -> Index:
        """Return an upper bound of the number of rows for each rule, (rules,) int64."""
        numbers = np.where(self.nominal, self.n_levels, 2) + 2
        outside = np.bincount(self.rule, weights=numbers, minlength=len(self.listed))
        inside = np.ones(len(self.listed), dtype=np.int64)
        np.maximum.at(inside, self.rule, self.n_inside)
        return outside.astype(np.int64) + inside + 3

    def iter_rows(self, chosen: Index) -> Iterator[Array]:
        """Yield rows inside and outside of the chosen rules."""
        place = np.full(len(self.listed), -1, dtype=np.int64)
        place[chosen] = np.arange(len(chosen))
        mine = np.flatnonzero(place[self.rule] >= 0)
        owner = place[self.rule[mine]]
        corner = self._make_corners(mine, owner, len(chosen))
        yield corner
        yield from self._iter_inside_rows(corner, mine, owner)
        for at, values in self._iter_outside_values(mine):
            rows = corner[place[self.rule[at]]]
            rows[np.arange(len(at)), self.table.column[at]] = values
            yield rows

    def _make_corners(self, mine: Index, owner: Index, n: int) -> Array:
        """Make a row inside of each rule: upper bounds, first categories."""
        empty = self.model.schema.nominal & (self.model.schema.n_levels == 0)
        corner = np.zeros((n, self.model.schema.n_features))
        corner[:, empty] = np.nan
        corner[owner, self.table.column[mine]] = self._choose_known_values(mine, upper=True)
        return corner

    def _choose_known_values(self, at: Index, *, upper: bool) -> Array:
        """Return a known value inside of each condition, at its upper or lower face; else NaN."""
        table = self.table
        low, high = table.low[at], table.high[at]
        above = find_next_above(low, self.model.schema.dtype)
        ends = [(np.isfinite(high), high), (np.isfinite(low), above)]
        first, second = ends if upper else ends[::-1]
        value = np.where(first[0], first[1], np.where(second[0], second[1], 0.0))
        levels = np.append(table.levels, -1)
        last = len(table.levels)
        value = np.where(self.nominal[at], levels[np.minimum(self.level_start[at], last)], value)
        return np.where(table.known[at], value, np.nan)

    def _iter_inside_rows(self, corner: Array, mine: Index, owner: Index) -> Iterator[Array]:
        """Yield rows inside of rules: lower bounds, other accepted categories, missing values."""
        table = self.table
        lower = corner.copy()
        lower[owner, table.column[mine]] = self._choose_known_values(mine, upper=False)
        yield lower
        for number in range(1, int(self.n_inside[mine].max(initial=0))):
            some = self.n_inside[mine] > number
            rows, to = np.unique(owner[some], return_inverse=True)
            more = corner[rows]
            levels = table.levels[self.level_start[mine[some]] + number]
            more[to, table.column[mine[some]]] = levels
            yield more
        if self.model.missing != "error":
            # Features without a condition may be missing.
            conditioned = np.zeros(corner.shape, dtype=np.bool_)
            conditioned[owner, table.column[mine]] = ~table.missing[mine]
            yield np.where(conditioned, corner, np.nan)

    def _iter_outside_values(self, mine: Index) -> Iterator[tuple[Index, Array]]:
        """Yield conditions, with a value just outside of each."""
        table, dtype = self.table, self.model.schema.dtype
        finite = mine[np.isfinite(table.high[mine])]
        yield finite, find_next_above(table.high[finite], dtype)
        finite = mine[np.isfinite(table.low[mine])]
        yield finite, table.low[finite]
        if self.model.missing != "error":
            barred = mine[~table.missing[mine]]
            yield barred, np.full(len(barred), np.nan)
        never = mine[~table.known[mine] & ~self.nominal[mine]]
        yield never, np.zeros(len(never))
        for level in range(int(self.n_levels[mine].max(initial=0))):
            nominal = mine[self.nominal[mine] & (self.n_levels[mine] > level)]
            out = nominal[~self._is_accepted(nominal, level)]
            yield out, np.full(len(out), float(level))

    def _is_accepted(self, at: Index, level: int) -> npt.NDArray[np.bool_]:
        """Return whether nominal conditions accept a category."""
        found = np.concatenate([[0], np.cumsum(self.table.levels == level)])
        return found[self.table.level_end[at]] > found[self.level_start[at]]
