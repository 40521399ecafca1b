"""Probes of a model's artifacts: rows for every leaf, and for every outcome of every split.

See `treekit.kernels.witness_search` for the construction of a row that reaches a node
and shows a wrong turn in the prediction.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.model.model import Model
from treekit.model.scoring import sum_leaf_values
from treekit.model.tree import Split, Tree, concatenate_trees
from treekit.verify.probe_values import (
    N_AROUND,
    UNSEEN_CODES,
    draw_random_rows,
    find_divided_rows,
    find_next_above,
    list_values_around,
)
from treekit.verify.routing import has_accepted_rows, is_plain
from treekit.verify.targeted_search import search_rows

if TYPE_CHECKING:
    from treekit.kernels.reachability import ReachableOutcomes, TreeCoverage

# ---------------------------------------------------------------- probes

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

ROWS_CUT = "some splits got no rows; raise max_rows"
TIME_CUT = "some splits got no rows within the time budget; raise budget"

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

    If there are more than `max_rows`, leaves take precedence (a row for each
    leaf takes every side of every split), then splits are sampled evenly over the model.
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
    pool, offsets = _collect_thresholds(model)
    wanted, complete = _choose_nodes(model, max_rows)
    cut = "" if complete else ROWS_CUT
    wrong_turns, unused = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64)

    def construct(number: int, mask: npt.NDArray[np.bool_], turns: Index) -> Any:
        return _construct_tree_rows(model, number, mask, (pool, offsets), turns, rng)

    parts, reachable = [], []
    for number in range(model.n_trees):
        if time.monotonic() > until and not cut.startswith(TIME_CUT):
            cut = f"{TIME_CUT}: trees from number {number} on got no constructed rows"
        if cut.startswith(TIME_CUT):
            wanted[number][:] = False
        rows, can = construct(number, wanted[number], wrong_turns)
        parts.append(rows)
        reachable.append(can)
    if not cut and has_accepted_rows(model):
        found = np.concatenate(parts)
        parts.append(
            find_divided_rows(model, found, lambda tree, mask: construct(tree, mask, unused)[0])
        )
    pools = np.split(pool, offsets[1:-1])
    spread = draw_random_rows(model, pools, n_random, rng)
    return np.concatenate([*parts, spread]), tuple(reachable), wrong_turns, cut


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
    from treekit.kernels.witness_search import MAX_WRONG_BRANCHES

    needed = np.ones(tree.n_nodes, dtype=np.int64)
    inner = np.flatnonzero(tree.kind != Split.LEAF)
    levels = schema.n_levels[tree.feature[inner]]
    candidates = np.where(schema.nominal[tree.feature[inner]], levels + 2, 3)
    turns = np.clip(tree.n_children[inner] - 1, 1, MAX_WRONG_BRANCHES)
    around = np.where(tree.kind[inner] == Split.THRESHOLD, N_AROUND - 2, 0)
    needed[inner] = candidates * turns + around
    return needed


def _choose_nodes(model: Model, max_rows: int) -> tuple[list[npt.NDArray[np.bool_]], bool]:
    """Choose the nodes to probe, (nodes,) bool for each tree; also return whether they are all."""
    needed = np.concatenate([_bound_row_counts(tree, model.schema) for tree in model.trees])
    ends = np.cumsum([tree.n_nodes for tree in model.trees])[:-1]
    if needed.sum() <= max_rows:
        return np.split(np.ones(len(needed), dtype=np.bool_), ends), True
    leaf = np.concatenate([tree.kind == Split.LEAF for tree in model.trees])
    wanted = np.zeros(len(needed), dtype=np.bool_)
    left = max_rows
    for group in (np.flatnonzero(leaf), np.flatnonzero(~leaf)):
        # Every k-th node, to spread the chosen nodes over all trees.
        step = max(int(-(-needed[group].sum() // max(left, 1))), 1)
        chosen = group[::step]
        chosen = chosen[np.cumsum(needed[chosen]) <= left]
        wanted[chosen] = True
        left -= int(needed[chosen].sum())
    return np.split(wanted, ends), False


def _construct_tree_rows(
    model: Model,
    number: int,
    wanted: npt.NDArray[np.bool_],
    pool: tuple[Array, Index],
    wrong_turns: Index,
    rng: np.random.Generator,
) -> tuple[Array, TreeCoverage]:
    """Construct the rows of some nodes of a tree; also mark the parts that inputs can reach."""
    from treekit.kernels.reachability import TreeCoverage, make_walk
    from treekit.kernels.witness_search import ProbeSettings, write_probe_rows

    tree, schema = model.trees[number], model.schema
    rows = np.empty((int(_bound_row_counts(tree, schema)[wanted].sum()), schema.n_features))
    sizes = [tree.n_nodes] * 4 + [len(tree.level_branch)]
    can = TreeCoverage(*(np.zeros(size, dtype=np.bool_) for size in sizes))
    if not has_accepted_rows(model):
        return rows[:0], can
    leaf = tree.kind == Split.LEAF
    chosen = wanted & (tree.kind == Split.THRESHOLD)
    values, offsets = pool
    settings = ProbeSettings(
        wanted=wanted,
        place=np.where(leaf, np.cumsum(leaf), np.cumsum(chosen)) - 1,
        units=model.tree_units(number),
        around=list_values_around(tree.threshold[chosen], schema.dtype),
        pool=np.stack([values, find_next_above(values, schema.dtype)], axis=1),
        pool_offsets=offsets,
        unseen=model.unknown == "missing" and model.missing != "error",
        narrow=schema.dtype == "float32",
        budget=_MAX_LEAF_PAIRS,
    )
    bar = int(model.missing == "error")
    # Three paths: to a split, below it on the right side, and below it on the wrong side.
    walk = make_walk(tree, schema.n_levels, schema.nominal, bar, 3 * tree.depth + 1)
    after = find_next_above(tree.threshold, schema.dtype)
    count = write_probe_rows(walk, settings, after, rows, can, wrong_turns, rng)
    return rows[:count], can


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
