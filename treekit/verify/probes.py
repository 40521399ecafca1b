"""Probes of a model's artifacts: rows for every leaf, and for every outcome of every split.

See `treekit.verify.kernels.witness_search` for the construction of a row that reaches a node
and shows a wrong turn in the prediction.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.model.model import Model
from treekit.model.scoring import sum_leaf_values
from treekit.model.tree import Split, Tree, concatenate_trees
from treekit.rules.extract import is_rule_list
from treekit.verify.probe_values import (
    N_AROUND,
    UNSEEN_CODES,
    draw_random_rows,
    find_divided_rows,
    find_next_above,
    list_values_around,
)
from treekit.verify.routing import has_accepted_rows, is_plain
from treekit.verify.targeted_search import search_boundary_rows, search_rows

if TYPE_CHECKING:
    from treekit.verify.kernels.reachability import ReachableOutcomes, TreeCoverage

# ---------------------------------------------------------------- probes

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

ROWS_CUT = "some splits got no rows; raise max_rows"
TIME_CUT = "some splits got no rows within the time budget; raise budget"

_MAX_PENDING_ROWS, _MAX_PENDING_CELLS = 512, 1 << 20
"""Limits of the rows that further nodes can share, which are searched for each node."""

_MAX_LEAF_PAIRS = 256
"""Maximum number of leaf pairs compared in the search for a row that shows a wrong turn."""


@dataclass(frozen=True)
class Probes:
    """Rows to run artifacts on, and the parts of the model that they can reach.

    Attributes
    ----------
    rows : (rows, features) float64
        Numbers, category codes (any other code is an unseen category), and NaN
        for missing; the model has a prediction for each of them.
    refused : (rows, features) float64
        Rows with a missing or unseen value that is an error in the model.
    reachable : tuple of TreeCoverage, or ReachableOutcomes
        Parts that inputs can reach, for each tree; `ReachableOutcomes` of all trees of a model
        that is not plain.
    wrong_turns : (3,) int64
        Wrong turns (a row sent to the wrong branch of one split), counted by effect:
        visible in the prediction of a row, invisible for every input, undecided.
    cut : str
        Why nodes were left out; empty if none was.
    last_bits : (int, int)
        One-bit faults in weights and thresholds of oblique splits: number that
        some row shows, and number tried; the others may not show in any input.
    """

    rows: Array
    refused: Array
    reachable: tuple[TreeCoverage, ...] | ReachableOutcomes
    wrong_turns: npt.NDArray[np.int64]
    cut: str = ""
    last_bits: tuple[int, int] = (0, 0)

    @property
    def complete(self) -> bool:
        """Whether no node was left out."""
        return not self.cut


def make_probes(
    model: Model, n_random: int, seed: int, max_rows: int, until: float = math.inf
) -> Probes:
    """Construct the probes of a model; the same seed makes the same ones.

    If there may be more than `max_rows`, leaves come first (rows for all leaves take every branch
    of every split), then a sample of the splits, then the other splits, up to the limit.
    Construction ends at the time `until`, on the clock of `time.monotonic`.
    """
    if max_rows < 1 or n_random < 0:
        raise VerificationError(
            f"max_rows must be at least 1 and random_rows at least 0, got {max_rows} and {n_random}"
        )
    rng = np.random.default_rng(seed)
    accepts = has_accepted_rows(model)
    last_bits, cut = (0, 0), ""
    reachable: tuple[TreeCoverage, ...] | ReachableOutcomes
    if is_plain(model):
        rows, reachable, wrong_turns, cut = _construct_rows(
            model, n_random if accepts else 0, max_rows, rng, until
        )
    else:
        rows, reachable, wrong_turns, last_bits, complete = search_rows(
            model, n_random, max_rows, rng, until
        )
        rows = rows if accepts else rows[:0]
        if not complete:
            cut = ROWS_CUT if time.monotonic() < until else TIME_CUT
    rows = np.concatenate([rows, find_cost_rows(model, rows, rng)])
    refused = make_refused_rows(model, rows, rng)
    return Probes(rows, refused, reachable, wrong_turns, cut, last_bits)


def _construct_rows(
    model: Model, n_random: int, max_rows: int, rng: np.random.Generator, until: float
) -> tuple[Array, tuple[TreeCoverage, ...], Index, str]:
    """Construct the rows of a plain model; also return the other parts of its `Probes`."""
    bounds = np.concatenate([_bound_row_counts(tree, model.schema) for tree in model.trees])
    leaf = np.concatenate([tree.kind == Split.LEAF for tree in model.trees])
    builder, cut = _RowBuilder(model, rng), ""
    reachable: list[TreeCoverage] = []
    for attempt, needed in enumerate(_list_passes(model, bounds, (leaf, ~leaf), max_rows)):
        for number, of_tree in enumerate(needed):
            if time.monotonic() > until and not cut:
                cut = TIME_CUT
                if attempt == 0:
                    cut += f": trees from number {number} on got no constructed rows"
            can = builder.add_rows(number, of_tree * (not cut), max_rows)
            if attempt == 0:
                reachable.append(can)
    cut = cut or (ROWS_CUT if builder.n_left_out else "")
    parts = [builder.draw_rows()]
    if not cut and has_accepted_rows(model):

        def draw_rows(number: int, leaves: npt.NDArray[np.bool_]) -> Array:
            again = _RowBuilder(model, rng, builder.pool)
            again.add_rows(number, leaves.astype(np.int64), len(leaves))
            return again.draw_rows()

        parts.append(find_divided_rows(model, parts[0], draw_rows))
    values, offsets = builder.pool
    spread = draw_random_rows(model, np.split(values, offsets[1:-1]), n_random, rng)
    return np.concatenate([*parts, spread]), tuple(reachable), builder.wrong_turns, cut


def make_rule_rows(
    model: Model, max_rows: int, probes: Array, rng: np.random.Generator
) -> tuple[Array, int, int]:
    """Make rows at the bounds of rules, at most `max_rows`.

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
        Number of rules with rows at their bounds, spread evenly over the model, and of all rules.
    """
    if not has_accepted_rows(model):
        return probes[:0], model.n_leaves, model.n_leaves
    if is_rule_list(model):  # each condition occurs once in the text, as in code
        return probes[:0], model.n_leaves, model.n_leaves
    if not is_plain(model):
        return search_boundary_rows(model, probes, max_rows, rng)
    bounds = np.concatenate([_bound_boundary_row_counts(t, model.schema) for t in model.trees])
    leaf = np.concatenate([tree.kind == Split.LEAF for tree in model.trees])
    builder = _RowBuilder(model, rng)
    for needed in _list_passes(model, bounds * leaf, (leaf,), max_rows):
        for number, of_tree in enumerate(needed):
            builder.add_rows(number, of_tree, max_rows, at_bounds=True)
    return builder.draw_rows(), model.n_leaves - builder.n_left_out, model.n_leaves


class _RowBuilder:
    """Constructs rows for the nodes of all trees; nodes share rows, which saves four fifths.

    Parameters
    ----------
    model : Model
    rng : numpy.random.Generator
    pool : (thresholds,) float64 and (features + 1,) int64, optional
        The distinct thresholds of all trees, ascending in each column, and its offsets.
    """

    def __init__(
        self, model: Model, rng: np.random.Generator, pool: tuple[Array, Index] | None = None
    ) -> None:
        from treekit.verify.kernels.witness_search import PendingRows

        schema = model.schema
        self.model, self.rng, self.pool = model, rng, pool or _collect_thresholds(model)
        self.wrong_turns, self.n_left_out = np.zeros(3, dtype=np.int64), 0
        self.rows = np.empty((0, schema.n_features))
        first_word = np.append(0, np.cumsum(-(-schema.n_levels // 64)))
        n_cells = schema.n_features + int(first_word[-1])
        window = max(min(_MAX_PENDING_CELLS // n_cells, _MAX_PENDING_ROWS), 16)
        shape = schema.n_features, window
        self.pending = PendingRows(
            low=np.empty(shape),
            high=np.empty(shape),
            open=np.empty((int(first_word[-1]), window), dtype=np.uint64),
            first_word=first_word,
            takes_missing=np.empty(shape, dtype=np.bool_),
            is_fixed=np.empty(shape, dtype=np.bool_),
            values=np.empty(shape),
            fits=np.empty(window, dtype=np.bool_),
            some=np.empty(window, dtype=np.bool_),
            count=np.zeros(1, dtype=np.int64),
        )

    def add_rows(
        self, number: int, needed: Index, max_rows: int, at_bounds: bool = False
    ) -> TreeCoverage:
        """Add rows for nodes of a tree; return the parts that inputs can reach.

        Parameters
        ----------
        number : int
        needed : (nodes,) int64
            Upper bound of the number of rows of each node; 0 = add none.
        max_rows : int
            Maximum number of rows of all trees; `n_left_out` counts the nodes without rows.
        at_bounds : bool
            Whether to add rows just inside and just outside of each bound of leaves.
        """
        from treekit.verify.kernels.reachability import TreeCoverage
        from treekit.verify.kernels.witness_search import write_rows

        tree = self.model.trees[number]
        sizes = [tree.n_nodes] * 4 + [len(tree.level_branch)]
        can = TreeCoverage(*(np.zeros(size, dtype=np.bool_) for size in sizes))
        if has_accepted_rows(self.model):
            after = find_next_above(tree.threshold, self.model.schema.dtype)
            state = self._prepare(number, needed, max_rows, at_bounds)
            self.n_left_out += write_rows(after, can, self.wrong_turns, *state)
        return can

    def draw_rows(self) -> Array:
        """Draw the values that no node has fixed; return all rows, (rows, features) float64."""
        from treekit.verify.kernels.witness_search import draw_pending_rows

        count = draw_pending_rows(*self._prepare(0, np.zeros(0, dtype=np.int64), 0))
        return self.rows[:count]

    def _prepare(
        self, number: int, needed: Index, max_rows: int, at_bounds: bool = False
    ) -> tuple[Any, ...]:
        """Make room for rows; return the first arguments of the kernels."""
        from treekit.rules.kernels import make_walk
        from treekit.verify.kernels.witness_search import ProbeSettings

        model, schema, tree = self.model, self.model.schema, self.model.trees[number]
        short = min(int(self.pending.count[0]) + int(needed.sum()), max_rows) - len(self.rows)
        if short > 0:
            old = self.rows
            self.rows = np.empty((len(old) + max(short, len(old)), schema.n_features))
            self.rows[: len(old)] = old
        # Three paths: to a split, below it on the right side, and below it on the wrong side.
        bar, room = int(model.missing == "error"), 3 * tree.depth + 1
        walk = make_walk(tree, schema.n_levels, schema.nominal, bar, room)
        leaf = tree.kind == Split.LEAF
        chosen = np.flatnonzero((needed > 0) & ~leaf[: len(needed)])
        place = np.cumsum(leaf) - 1
        place[chosen] = np.arange(len(chosen))
        values, offsets = self.pool
        settings = ProbeSettings(
            needed=needed,
            max_rows=max_rows,
            place=place,
            units=model.tree_units(number),
            around=list_values_around(tree.threshold[chosen], schema.dtype),
            pool=np.stack([values, find_next_above(values, schema.dtype)], axis=1),
            pool_offsets=offsets,
            unseen=model.unknown == "missing" and model.missing != "error",
            narrow=schema.dtype == "float32",
            missing=model.missing != "error",
            at_bounds=at_bounds,
            budget=_MAX_LEAF_PAIRS,
        )
        return walk, settings, self.pending, self.rows, self.rng


def _collect_thresholds(model: Model) -> tuple[Array, Index]:
    """Collect the distinct thresholds of all trees: ascending in each column, and its offsets."""
    nodes, _ = concatenate_trees(model.trees)
    here = nodes.kind == Split.THRESHOLD
    features, values = nodes.feature[here].astype(np.float64), nodes.threshold[here] + 0.0
    pairs = np.unique(np.stack([features, values], axis=1), axis=0)
    offsets = np.searchsorted(pairs[:, 0], np.arange(model.schema.n_features + 1))
    return np.ascontiguousarray(pairs[:, 1]), offsets.astype(np.int64)


def _bound_row_counts(tree: Tree, schema: Schema) -> npt.NDArray[np.int64]:
    """Return an upper bound of the number of probes of each node, (nodes,) int64."""
    from treekit.verify.kernels.witness_search import MAX_WRONG_BRANCHES

    needed = np.ones(tree.n_nodes, dtype=np.int64)
    inner = np.flatnonzero(tree.kind != Split.LEAF)
    levels = schema.n_levels[tree.feature[inner]]
    candidates = np.where(schema.nominal[tree.feature[inner]], levels + 2, 3)
    turns = np.clip(tree.n_children[inner] - 1, 1, MAX_WRONG_BRANCHES)
    around = np.where(tree.kind[inner] == Split.THRESHOLD, N_AROUND - 2, 0)
    needed[inner] = candidates * turns + around
    return needed


def _bound_boundary_row_counts(tree: Tree, schema: Schema) -> npt.NDArray[np.int64]:
    """Return an upper bound of the number of rows at the bounds of each node, (nodes,) int64."""
    needed = np.full(tree.n_nodes, 3, dtype=np.int64)
    own = np.where(schema.nominal, schema.n_levels, 1)[tree.feature] + 1
    above = parent = tree.parent
    while (inside := above >= 0).any():
        needed[inside] += own[above[inside]]
        above = np.where(inside, parent[above], -1)
    return needed


def _list_passes(
    model: Model, needed: Index, groups: Sequence[npt.NDArray[np.bool_]], max_rows: int
) -> list[list[Index]]:
    """List the nodes to probe in one pass, or in two if they may need more than `max_rows`.

    The first pass is an evenly spaced sample of each group of nodes, in the order of the groups;
    the second has the other nodes, some of which fit because nodes share rows.

    Returns
    -------
    list of list of (nodes,) int64
        For each pass and tree: `needed` of the nodes of the pass, 0 of the others.
    """
    ends = np.cumsum([tree.n_nodes for tree in model.trees])[:-1]
    if needed.sum() <= max_rows:
        return [np.split(needed, ends)]
    first = np.zeros_like(needed)
    for group in groups:
        # Every k-th node, to spread the chosen nodes over all trees.
        left, own = max_rows - int(first.sum()), np.flatnonzero(group)
        chosen = own[:: max(int(-(-needed[own].sum() // max(left, 1))), 1)]
        chosen = chosen[np.cumsum(needed[chosen]) <= left]
        first[chosen] = needed[chosen]
    return [np.split(first, ends), np.split(needed - first, ends)]


# ---------------------------------------------------------------- time limit


def compute_deadline(end: float, share: float) -> float:
    """Return the time at which a share of the time left until `end` is used up; may be infinite."""
    now = time.monotonic()
    return now + share * max(end - now, 0.0)


# ---------------------------------------------------------------- refused rows
# Rows with a missing or unseen value that is an error in the model and in every artifact.

_MAX_COLUMNS = 1000


def make_refused_rows(model: Model, accepted: Array, rng: np.random.Generator) -> Array:
    """Make rows that are errors in the model: copies of `accepted` with one cell replaced.

    Returns
    -------
    (rows, features) float64
        Empty if the model has a prediction for every row.
    """
    replacements: list[tuple[int, float]] = []
    for f, column in enumerate(model.schema.columns[:_MAX_COLUMNS]):
        if model.missing == "error":
            replacements.append((f, np.nan))
        if column.kind == "nominal" and "error" in (model.missing, model.unknown):
            sizes = [0, *([len(column.levels)] * (len(UNSEEN_CODES) - 1))]
            replacements += [(f, n + code) for n, code in zip(sizes, UNSEEN_CODES, strict=True)]
    rows = (
        accepted[rng.integers(len(accepted), size=len(replacements))]
        if len(accepted)
        else (np.zeros((len(replacements), model.schema.n_features)))
    )
    for row, (f, value) in zip(rows, replacements, strict=True):
        row[f] = value
    return rows


# ---------------------------------------------------------------- misclassification costs
# Rows in which a single misclassification cost decides the label.
#
# A label is the class of least expected cost; an error of 1 in one entry of the
# cost matrix shows only where two classes cost almost the same.  A genetic search
# finds such rows: the nearest rows exchange cells with others, and their children
# are measured again.

_POOL_SIZE = 20_000
_GENERATIONS = 5
_ROWS_PER_ENTRY = 3
"""Number of rows kept for each entry of the cost matrix and each direction."""


def find_cost_rows(model: Model, rows: Array, rng: np.random.Generator) -> Array:
    """Find rows whose label changes, or nearly, if one misclassification cost changes by 1.

    Parameters
    ----------
    model : Model
    rows : (rows, features) float64
        Accepted rows to start from; any combination of cells of accepted rows
        must be an accepted row.
    rng : numpy.random.Generator

    Returns
    -------
    (rows, features) float64
        Empty without costs.
    """
    if model.label_costs is None or not len(rows):
        return rows[:0]
    pool = rows[rng.permutation(len(rows))[:_POOL_SIZE]]
    for _ in range(_GENERATIONS):
        parents = pool[_select_nearest_rows(sum_leaf_values(model, pool), model.label_costs)]
        n_children = max(_POOL_SIZE // 4, len(parents))
        first = parents[rng.integers(len(parents), size=n_children)]
        second = rows[rng.integers(len(rows), size=n_children)]
        share = rng.random((n_children, 1)) * 0.5
        children = np.where(rng.random(first.shape) < share, second, first)
        pool = np.concatenate([parents, children])
    best: Array = pool[_select_nearest_rows(sum_leaf_values(model, pool), model.label_costs)]
    return best


def _select_nearest_rows(votes: Index, costs: Index) -> Index:
    """Select the rows that are nearest to another label, for each entry and direction."""
    chosen = [
        np.argsort(-margin, kind="stable")[:_ROWS_PER_ENTRY]
        for margin in _compute_margins(votes, costs)
    ]
    return np.unique(np.concatenate(chosen))


def _compute_margins(votes: Index, costs: Index) -> Iterator[Index]:
    """Yield for each entry and direction a margin (rows,) int64: from 0 on, the label changes."""
    expected = votes @ costs
    label = expected.argmin(axis=1)
    n_rows, n_classes = votes.shape
    least = expected[np.arange(n_rows), label]
    never = -(2**62)
    for predicted in range(n_classes):
        # Ties go to the first class.
        behind = label < predicted
        dearer = np.delete(expected + (np.arange(n_classes) > predicted), predicted, axis=1)
        others = dearer.min(axis=1, initial=2**62) - expected[:, predicted]
        lead = expected[:, predicted] - least + behind
        for actual in range(n_classes):
            yield np.where(label == predicted, votes[:, actual] - others, never)
            yield np.where(label == predicted, never, votes[:, actual] - lead)
