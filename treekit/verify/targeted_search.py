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
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.model.fixed_point import floor_to_dtype, to_double_threshold
from treekit.model.model import Model
from treekit.model.tree import Split, Tree
from treekit.verify.probe_values import (
    draw_random_rows,
    find_divided_rows,
    list_values_around,
)
from treekit.verify.routing import (
    RoutedModel,
    has_accepted_rows,
    make_empty_coverage,
    make_extended_walk,
    make_matrix,
    make_routed_model,
)

if TYPE_CHECKING:
    from treekit.verify.kernels.reachability import ModelCoverage, ReachableOutcomes


# ---------------------------------------------------------------- search

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

_MIN_START_ROWS = 500
_EXACT_TRIES = 50_000
"""Approximate number of tries, 4 to 60 a goal, for last bits of doubles, which few inputs show."""


def search_rows(
    model: Model, n_random: int, max_rows: int, rng: np.random.Generator, until: float
) -> tuple[Array, ReachableOutcomes, Index, tuple[int, int], bool]:
    """Search until the time `until` for `n_random` random rows and about `max_rows` others.

    Returns
    -------
    rows : (rows, features) float64
    reachable : ReachableOutcomes
        Parts that inputs can touch.
    wrong_turns : (3,) int64
    last_bits : (int, int)
        As in `treekit.verify.probes.Probes`.
    complete : bool
        Whether every goal was tried within the limits of rows and time.
    """
    from treekit.verify.kernels.witness_search import (
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
    return np.concatenate(rows), can, _count_wrong_turns(hunt), last_bits, complete


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
    from treekit.verify.kernels.witness_search import REACHED, REVEALING

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
# (`treekit.verify.kernels.witness_search`); a row that meets its goal may reach new nodes.

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
        0, or an outcome of `treekit.verify.kernels.witness_search`.
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
        from treekit.verify.kernels.reachability import trace_rows

        cells = make_matrix(self.of.model, rows)
        trace_rows(self.of.routes, self.of.roots, cells, len(self.cells), self.touched)
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
        from treekit.verify.kernels.witness_search import (
            ABOVE,
            AT_MOST,
            UNKNOWN,
            make_bits,
            reach_goals,
        )

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
        """Add points inside of the regions of unreached nodes (500 at once).

        Return whether they reach any: rounding may have moved them out of the region.
        """
        unreached = np.flatnonzero(can.node & (self.touched.node < 0))
        if not len(unreached):
            return False
        known = self.draw_known_rows(len(unreached))
        points = [
            point
            for node, row in zip(unreached[:_MAX_NODES].tolist(), known, strict=False)
            if time.monotonic() < self.until
            and (point := _find_inner_point(self.of, node, row)) is not None
        ]
        self.add_rows(np.array(points).reshape(-1, known.shape[1]))
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
    """List the goals: outcomes of tests with a wrong branch; see `GOAL_DTYPE`."""
    from treekit.verify.kernels.witness_search import ABOVE, ANY, AT_MOST, SET, UNKNOWN

    model, tests = of.model, of.tests
    n_terms = np.diff(tests.term_start)
    linear, levels = np.flatnonzero(of.is_linear), np.flatnonzero(~of.is_linear)
    inner = np.flatnonzero(tests.column >= 0)
    first_test = tests.test_start[tests.column[inner]]
    by_missing = np.flatnonzero((tests.column < 0) & (of.routes.nodes["n_children"] > 0))
    # The last bits of each sum of several terms: of its threshold (-1), and of its weights.
    several = np.flatnonzero(n_terms > 1)
    sums = np.repeat(several, n_terms[several] + 1)
    term = np.concatenate([np.zeros(0, dtype=np.int64), *map(np.arange, n_terms[several] + 1)]) - 1
    # Values around thresholds of single columns, which expose wrong comparisons.
    single = np.flatnonzero(of.is_linear & (n_terms == 1))
    single = single[tests.term_weight[tests.term_start[single]] == 1.0]
    around = list_values_around(tests.threshold[single], model.schema.dtype)[:, 2:]
    row, column = np.nonzero(~np.isnan(around))
    parts = [
        make_goals(of, linear, AT_MOST),
        make_goals(of, linear, ABOVE),
        make_goals(of, sums, AT_MOST, -np.inf, term=term, sharp=True),
        make_goals(of, sums, AT_MOST, np.inf, term=term, sharp=True),
        make_category_goals(of, levels),
        make_goals(of, first_test, UNKNOWN, node=inner),
        make_goals(of, None, ANY, node=by_missing),
        make_goals(of, single[row], SET, around[row, column]),
    ]
    takes_missing = model.missing != "error"
    if takes_missing:  # conditions of rules have their own branch for missing values
        is_rule = of.routes.nodes["kind"][of.node_of_test] == Split.RULE
        parts.append(make_goals(of, np.flatnonzero(is_rule), SET, np.nan))
    if of.routes.fractional:
        parts.append(make_goals(of, first_test, UNKNOWN, node=inner, sharp=True))
    if takes_missing:
        parts.append(make_goals(of, None, UNKNOWN, node=by_missing))
    if takes_missing and model.unknown == "missing":
        parts.append(make_goals(of, levels, SET, np.diff(tests.level_start)[levels]))
    goals = np.concatenate(parts)
    turns = np.clip(of.routes.nodes["n_children"][goals["node"]] - 1, 1, _MAX_WRONG_BRANCHES)
    turns = np.where(goals["goal"] == SET, 1, turns)
    every = np.repeat(goals, turns)
    every["step"] += np.arange(len(every)) - np.repeat(np.cumsum(turns) - turns, turns)
    return every


def make_goals(
    of: RoutedModel,
    test: Index | None,
    goal: int,
    value: npt.ArrayLike = 0.0,
    *,
    node: Index | None = None,
    target: Index | None = None,
    term: Index | int = -1,
    sharp: bool = False,
) -> CoverageGoals:
    """Make one goal for each test at its node, or for each node, on the way to a target.

    See `treekit.verify.kernels.witness_search.GOAL_DTYPE`.
    """
    from treekit.verify.kernels.witness_search import GOAL_DTYPE

    if node is None:
        node = of.node_of_test[test]
    goals = np.zeros(len(node), dtype=GOAL_DTYPE)
    goals["node"], goals["goal"], goals["value"] = node, goal, value
    goals["test"] = -1 if test is None else test
    goals["target"] = node if target is None else target
    goals["step"], goals["term"], goals["sharp"] = 1, term, sharp
    return goals


def make_category_goals(
    of: RoutedModel, tests: Index, target: Index | None = None
) -> CoverageGoals:
    """Make a goal for each category of some tests on categories."""
    from treekit.verify.kernels.witness_search import LEVEL

    counts = np.diff(of.tests.level_start)[tests]
    test = np.repeat(tests, counts)
    code = np.arange(len(test)) - np.repeat(np.cumsum(counts) - counts, counts)
    to = None if target is None else np.repeat(target, counts)
    return make_goals(of, test, LEVEL, code, target=to)


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


def _find_inner_point(of: RoutedModel, node: int, row: Array) -> Array | None:
    """Fix categories and missing values on the path, and solve for the numbers."""
    nodes, tests, n = of.routes.nodes, of.tests, len(row)
    planes: list[Array] = []
    fixed: dict[int, float] = {}
    at = node
    while (above := int(nodes["parent"][at])) >= 0:
        branch = at - int(nodes["first_child"][above])
        column = int(nodes["asks"][above])
        test = int(tests.test_start[column])
        if column < 0:
            if branch == 0:
                fixed[int(nodes["feature"][above])] = np.nan
        elif tests.level_feature[test] >= 0:
            levels = slice(*tests.level_start[test : test + 2].tolist())
            codes = np.flatnonzero(tests.level_branch[levels] == branch)
            fixed[int(tests.level_feature[test])] = float(codes[0]) if len(codes) else np.nan
        else:
            of_rule = int(nodes["kind"][above] == Split.RULE)
            below = tests.below[test] == of_rule
            planes.append(_make_plane(of, test, n, at_most=below == (branch == of_rule)))
        at = above
    if planes:
        numbers = _find_furthest_point(np.array(planes))
        if numbers is None:
            return None
        row = np.where(np.isnan(numbers), row, numbers)
    row[list(fixed)] = list(fixed.values())
    return row


def _make_plane(of: RoutedModel, test: int, n: int, *, at_most: bool) -> Array:
    """Return weights (n,) and limit of the side of a sum on which ``weights @ x <= limit``."""
    tests, plane = of.tests, np.zeros(n + 1)
    terms = slice(*tests.term_start[test : test + 2].tolist())
    weight = tests.term_weight[terms]
    scale = float(np.abs(weight).max()) * (1.0 if at_most else -1.0)
    plane[tests.term_feature[terms]] = weight / scale
    plane[n] = tests.threshold[test] / scale
    return plane


def _find_furthest_point(planes: Array) -> Array | None:
    """Find the point (n,) furthest from all planes, on their side; NaN where none has weight."""
    from scipy.optimize import linprog

    weights, limits = planes[:, :-1], planes[:, -1]
    far = _MAX_FACTOR * max(float(np.abs(limits).max()), 1.0)
    if not np.isfinite(weights).all() or not np.isfinite(far):
        return None
    distance = np.linalg.norm(weights, axis=1, keepdims=True)
    n = weights.shape[1]
    solved = linprog(
        np.append(np.zeros(n), -1.0),
        A_ub=np.hstack([weights, distance]),
        b_ub=limits,
        bounds=[(-far, far)] * n + [(0.0, far)],
        method="highs",
    )
    if solved.status != 0:
        return None
    return np.where(weights.any(axis=0), solved.x[:n], np.nan)


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
    As `make_rule_rows`.
    """
    from treekit.verify.kernels.witness_search import REACHED

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
    from treekit.verify.kernels.witness_search import ABOVE, ANY, AT_MOST, UNKNOWN

    parts = [make_goals(of, leaves[:0], ANY, node=leaves[:0])]
    takes_missing = of.model.missing != "error"
    is_linear = np.append(of.is_linear, False)  # the last for nodes without a test
    target, node = leaves, of.routes.nodes["parent"][leaves]
    while len(target := target[node >= 0]):
        node = node[node >= 0]
        column = of.tests.column[node]
        missing = column < 0
        test = np.where(missing, -1, of.tests.test_start[np.maximum(column, 0)])
        linear = is_linear[test]
        levels = ~missing & ~linear
        parts += [
            make_goals(of, test[linear], AT_MOST, target=target[linear]),
            make_goals(of, test[linear], ABOVE, target=target[linear]),
            make_category_goals(of, test[levels], target[levels]),
            make_goals(of, None, ANY, node=node[missing], target=target[missing]),
        ]
        some = ~missing | takes_missing
        parts.append(make_goals(of, test[some], UNKNOWN, node=node[some], target=target[some]))
        node = of.routes.nodes["parent"][node]
    return np.concatenate(parts)


# ---------------------------------------------------------------- reachable parts

_CHUNK_ROWS = 50_000


def mark_adjacent_sides(
    of: RoutedModel, cells: Array, touched: ModelCoverage
) -> npt.NDArray[np.bool_]:
    """Mark the sides on which the nearest sum is within one step of a number, (tests, 2) bool."""
    from treekit.verify.kernels.reachability import find_one_step_flips

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
    """Mark the nodes and test outcomes that inputs can reach.

    A part is excluded only if the intervals of the columns on its path, or the extremes of the
    weighted sums over these intervals, contradict it; some parts that remain may be unreachable.
    """
    from treekit.verify.kernels.reachability import ReachableOutcomes, mark_reachable

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
    for tree, root in zip(model.trees, of.roots.tolist(), strict=False):
        plain, n_behind = _add_derived_columns(of, tree)
        walk = make_extended_walk(model, plain, n_behind, tree.depth)
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
