"""One tree: rows, criterion and splitter in, a `Tree` out.

The builder sees records and arrays only: names were resolved at the edge.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype
from treekit.errors import PluginError
from treekit.grow.criterion import CompiledCriterion
from treekit.grow.held import Held
from treekit.grow.monotonic import constrained, constrained_stats
from treekit.grow.plugins import current
from treekit.grow.route import leaf_shares
from treekit.grow.splitter import CompiledSplitter
from treekit.grow.surrogates import make_surrogacy, surrogate_fields
from treekit.grow.target import Target, grid_of
from treekit.grow.values import node_values
from treekit.kernels.cuts import STEPS
from treekit.kernels.grow import NODE, Grown, grow
from treekit.kernels.node import PLAIN, Limits, Rows, Scratch, Table, Ways
from treekit.kernels.pointers import Pointer
from treekit.kernels.surrogates import SURROGATE
from treekit.model.portable import floor_to, threshold_between
from treekit.model.tree import MAX_DEPTH, Split, Tree

__all__ = ["GrownTree", "Recipe", "grow_held", "grow_tree", "make_scratch", "max_depth_limit"]


@dataclass(frozen=True)
class Recipe:
    """All that trees of one training have in common.

    Attributes
    ----------
    table : Table
        Codes of the training columns.
    target : Target
    dtype : str
        The model's input type, for thresholds.
    criterion, splitter : compiled parts
    before : Pointer
        The pruner's say before a split; see `use_before`.
    limits : Limits
    ways : Ways
    fractional : bool
        Rows whose value is missing go down every branch, each with a part of
        its weight; criterion and `ways` are then of `known_only`.
    held : Held, optional
        The rows of a validation table.
    signs : (features,) float64, or None
        Monotonic constraints, 1, -1 or 0 for each column; the criterion is then `bounded`.
    surrogates : int or None
        Most surrogates of a node; criterion and `ways` are then of
        `known_only`, too.  None = trees have none.
    compiled : list
        The machine code of `grow` for these types, once it is known.
    """

    table: Table
    target: Target
    dtype: Dtype
    criterion: CompiledCriterion
    splitter: CompiledSplitter
    before: Pointer
    use_before: bool
    limits: Limits
    ways: Ways = PLAIN
    fractional: bool = False
    held: Held | None = None
    surrogates: int | None = None
    signs: npt.NDArray[np.float64] | None = None
    compiled: list[Any] = field(default_factory=list, repr=False)


@dataclass(frozen=True)
class GrownTree:
    """A tree with what pruners and out-of-bag scores need to know.

    Attributes
    ----------
    tree : Tree
    stats, held_stats : (nodes, S) float64
        Statistics of training and of held-out rows at each node.
    said : (nodes, S) float64
        Those that each node answers by: of its training rows, or of its
        parent's where it has none, and within monotonic constraints.
    held_ids : (entries,) uint32
        Held-out row numbers in leaf order; one entry for each leaf that a row
        reaches, which are several only where rows go down every branch.
    held_leaf : (entries,) int64
        The leaf node that each of `held_ids` reaches.
    held_values : (entries, 1) or (entries, S) float64
        Weight, or dense statistics, of the part that reaches it.
    held_share : (entries,) float64, or None
        That part of the row; the parts of a row add up to 1.  None: rows are whole.
    rows : Rows
        The training rows, whole and in any order.
    """

    tree: Tree
    stats: npt.NDArray[np.float64]
    said: npt.NDArray[np.float64]
    held_stats: npt.NDArray[np.float64]
    held_ids: npt.NDArray[np.uint32]
    held_leaf: npt.NDArray[np.int64]
    held_values: npt.NDArray[np.float64]
    rows: Rows
    held_share: npt.NDArray[np.float64] | None = None


def grow_tree(
    recipe: Recipe,
    rows: Rows,
    held: Rows,
    rng: np.random.Generator,
    held_table: Table | None = None,
) -> GrownTree:
    """Grow one tree on `rows`; `held` rows travel along without shaping it.

    The held-out rows are rows of `held_table`, by default of the recipe's own;
    its codes are of the same type.

    Cost: about rows x columns tried x depth; memory a few words a row.
    """
    criterion, splitter, s = recipe.criterion, recipe.splitter, recipe.target.size
    most = max(len(rows.ids), len(held.ids))
    seed = int(rng.integers(0, 2**63))
    scratch = make_scratch(recipe.table, recipe.target, most, seed, splitter.options, recipe.signs)
    spare = Rows(
        np.empty(most + 1, np.uint32),
        np.empty(0 if recipe.target.dense else most + 1, np.uint32),
        np.empty((most + 1, rows.values.shape[1])),
    )
    room = Grown(np.zeros(64, NODE), np.zeros((64, s)), np.zeros((64, s)), np.zeros(16, np.int32))
    surrogacy = None
    if recipe.surrogates is not None:
        surrogacy = make_surrogacy(recipe.surrogates, recipe.table, held_table, len(rows.ids))
        room = room._replace(found=np.zeros(16, SURROGATE), replies=np.zeros(16, np.int32))
    steps, noise = None, recipe.target.noise
    whole, kept = rows, held
    if recipe.fractional:
        steps = grid_of(rows.values)
        if recipe.target.counts_classes:
            steps[:] = steps[0]  # the parts of a class weigh what those of the row do
        noise += _noise_of_parts(rows.values, steps)
        # Growth cuts them up.
        whole, kept = _copied(rows), _copied(held)
    arguments = (
        recipe.table, rows, held_table or recipe.table, held, spare, room, recipe.limits,
        noise, recipe.target.quantile, steps, surrogacy, recipe.ways, splitter.coding == "exact",
        splitter.find, criterion.scan, criterion.many, criterion.key, criterion.choose,
        criterion.penalty, criterion.n_keys, criterion.use_choose, criterion.use_penalty,
        criterion.score, criterion.impurity, criterion.priority, criterion.use_priority,
        recipe.before, recipe.use_before, rng, scratch,
    )  # fmt: skip
    grown, n, status = _off_main_thread(_run, recipe, arguments)
    if status:
        raise _stopped(recipe, status, scratch.best[2 : 2 + s].tolist())
    return _assemble(recipe, grown, n, whole, kept, held_table or recipe.table)


def _copied(rows: Rows) -> Rows:
    return Rows(rows.ids.copy(), rows.cells.copy(), rows.values.copy())


def _noise_of_parts(values: npt.NDArray[np.float64], steps: npt.NDArray[np.float64]) -> float:
    """Bound on the rounding of the dense statistics of parts of rows, cut time and again."""
    if values.shape[1] == 1 or not len(values):
        return 0.0
    largest = np.abs(values[:, 1:] / values[:, :1]).max(axis=0)
    return float(64.0 * (steps[1:] + largest * steps[0]).max())


def grow_held(recipe: Recipe, rows: Rows, held: Rows, rng: np.random.Generator) -> GrownTree:
    """`grow_tree`, where the rows of a validation table, if there is one, stand in for `held`."""
    if recipe.held is None:
        return grow_tree(recipe, rows, held, rng)
    return grow_tree(recipe, rows, recipe.held.rows(), rng, recipe.held.table)


def _run(recipe: Recipe, arguments: tuple[Any, ...]) -> Any:
    """What `grow` returns, or the error of the plugin that stopped it."""
    current.score, current.rng = recipe.criterion.score, arguments[-2]
    current.failures = []
    try:
        outcome = _compiled_grow(recipe, arguments)(*arguments)
    except Exception as error:
        raise _culprit(recipe, error) from error
    for origin, failure in current.failures:
        raise origin.error(f"raised {type(failure).__name__}: {failure}") from failure
    return outcome


def _off_main_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)``, never in the main thread.

    Ctrl-C reaches the main thread alone, between any two lines of Python.
    numba's passing of function pointers is Python, too: an exception there
    would leave a null pointer, and the call would crash the process.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*arguments)
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def target() -> None:
        try:
            outcome.append(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised again below
            failure.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def _stopped(recipe: Recipe, status: int, given: list[float]) -> PluginError:
    """Why `grow` stopped: its status in words."""
    criterion, splitter = recipe.criterion.origin, recipe.splitter.origin
    if status == -1:
        return criterion.error(f"returned NaN; the statistics it was given were {given}")
    if status == -4:
        return splitter.error("returned a split whose score is NaN")
    if status == -5:
        return criterion.error("chose a column that does not exist; choose gives a position, or -1")
    return splitter.error("returned a split with an empty branch or an impossible column")


def _compiled_grow(recipe: Recipe, arguments: tuple[Any, ...]) -> Any:
    """`grow` for a recipe's types, which all its trees share.

    Typing thirty arrays costs more than growing a small tree, so it is done once.
    """
    if not recipe.compiled:
        types = tuple(nb.typeof(argument) for argument in arguments)
        dispatcher: Any = grow
        dispatcher.compile(types)
        recipe.compiled.append(dispatcher.overloads[types].entry_point)
    return recipe.compiled[0]


def recipe_origins(recipe: Recipe) -> list[Any]:
    """The origins of a recipe's plugins, for reports."""
    origins = [recipe.criterion.origin, recipe.splitter.origin]
    before_origin = getattr(recipe.before, "origin", None)
    return origins + ([before_origin] if before_origin is not None else [])


def _culprit(recipe: Recipe, error: Exception) -> Exception:
    """An exception out of compiled growth, under the name of the plugin that raised it."""
    if isinstance(error, (MemoryError, PluginError)):
        return error
    origins = recipe_origins(recipe)
    foreign = [o for o in origins if not o.distribution.startswith("treekit ")]
    names = " or ".join(str(origin) for origin in foreign or origins)
    return PluginError(
        f"{names} raised {type(error).__name__}: {error}; "
        "training was stopped and no model was made"
    )


def make_scratch(
    table: Table,
    target: Target,
    most: int,
    seed: int,
    options: tuple[float, ...] = (),
    signs: npt.NDArray[np.float64] | None = None,
) -> Scratch:
    """Working memory for nodes of up to `most` rows; `seed` draws columns."""
    s = target.size
    room = max(most, 256) + 2
    codes = int(table.n_codes.max(initial=0)) + 1
    compact = np.empty((max(min(codes, room), 256) + 2, s))
    # Branches of levels, or a column and a weight for each term of a sum.
    levels = max(int(table.n_codes[table.nominal > 0].max(initial=0)), 2 * len(table.n_codes)) + 2
    n_features = len(table.n_codes)
    return Scratch(
        features=np.arange(n_features),
        state=np.array([seed], np.uint64),
        words=np.empty(4, np.uint64),
        work=np.empty((4, room), np.uint32),
        counts=np.empty(2050, np.uint32),
        compact=compact,
        flat=compact.reshape(-1),
        ordered=np.empty((max(levels, STEPS + 1), s)),
        keys=np.empty(levels),
        start=np.empty(s),
        best=np.append(np.empty(s + 2), [0.0, 0.0, -np.inf, np.inf]),
        pair=np.empty((2, s)),
        offers=_offers(table, target, signs),
        levels=np.empty(levels, np.int32),
        options=np.array(options),
    )


def _offers(
    table: Table, target: Target, signs: npt.NDArray[np.float64] | None
) -> npt.NDArray[np.float64]:
    """Two rows to be filled at each node, levels per training weight, and constraints."""
    total = max(float(target.values[:, 0].sum()), 1e-300)
    levels = np.where(table.nominal > 0, table.n_codes / total, 0.0)
    free = np.zeros(len(levels))
    return np.vstack([np.empty((2, len(levels))), levels, free if signs is None else signs])


def _assemble(
    recipe: Recipe, grown: Grown, n: int, rows: Rows, held: Rows, held_table: Table
) -> GrownTree:
    g = grown.nodes[:n]
    kind = g["kind"]
    inner = kind != Split.LEAF
    level_branch, level_start = _pooled(grown, g, (kind == Split.SUBSET) | (kind == Split.MULTIWAY))
    # A column, and the bits of its weight, by turns; see `treekit.kernels.oblique`.
    terms, term_start = _pooled(grown, g, kind == Split.OBLIQUE)
    stats = grown.stats[:n]
    said = _said(stats, g)
    tree = Tree(
        kind=kind,
        feature=np.where(inner, g["feature"], -1),
        threshold=_thresholds(recipe, g),
        first_child=np.where(inner, g["first_child"], -1),
        n_children=np.where(inner, g["n_children"], 0),
        missing=np.where(inner, g["missing"], 0),
        level_start=level_start,
        level_branch=level_branch,
        value=node_values(recipe.target, recipe.criterion, said),
        weight=g["weight"].copy(),
        gain=np.where(inner, g["gain"], 0.0),
        term_start=term_start // 2,
        term_feature=terms[::2],
        term_weight=terms[1::2].copy().view(np.float32),
        **surrogate_fields(grown, inner, recipe.table, recipe.splitter.coding, recipe.dtype),
    )
    if recipe.signs is not None:
        said = constrained_stats(tree, recipe.signs, said, dense=recipe.target.dense)
        tree = constrained(tree, recipe.signs)
    held_stats = grown.held_stats[:n]
    if recipe.fractional:
        at = leaf_shares(tree, held_table, held.ids, fractional=True)
        order = np.argsort(held.ids)
        own = held.values[order[np.searchsorted(held.ids, at.ids, sorter=order)]]
        own = own * at.share[:, None]
        return GrownTree(tree, stats, said, held_stats, at.ids, at.leaf, own, rows, at.share)
    leaves = tree.leaves
    leaves = leaves[np.argsort(g["held_begin"][leaves], kind="stable")]
    counts = g["held_end"][leaves] - g["held_begin"][leaves]
    ends = np.repeat(leaves, counts)
    return GrownTree(tree, stats, said, held_stats, held.ids, ends, held.values, rows)


def _pooled(
    grown: Grown, g: npt.NDArray[np.void], owners: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """What the nodes of a mask own in the pool, and where each one's part begins."""
    sizes = np.where(owners, g["n_levels"], 0)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    offset = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
    return grown.levels[np.repeat(g["level_start"], sizes) + offset], starts


def _thresholds(recipe: Recipe, g: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """The splitter's own thresholds, or midpoints between the codes on either side."""
    table = recipe.table
    at = g["kind"] == Split.THRESHOLD
    given = floor_to(np.where(at, g["threshold"], np.nan), recipe.dtype)
    own = at & np.isnan(given)
    base = table.value_start[g["feature"][own]]
    cut = g["cut"][own]
    after = g["after"][own] if recipe.splitter.coding == "exact" else cut + 1
    given[g["kind"] == Split.OBLIQUE] = g["threshold"][g["kind"] == Split.OBLIQUE]
    given[own] = threshold_between(table.high[base + cut], table.low[base + after], recipe.dtype)
    if recipe.ways.value_below:
        for f in np.unique(g["feature"][own]).tolist():
            asking = own & (g["feature"] == f)
            start = int(table.value_start[f])
            values = table.high[start : start + int(table.n_codes[f])]
            here = asking[own]
            middle = 0.5 * table.high[base + cut] + 0.5 * table.low[base + after]
            # As decimals 3.7 lies halfway between 3.6 and 3.8; as doubles it is above that.
            most = np.maximum(given[own], middle + recipe.ways.resolution)[here]
            below = np.searchsorted(values, most, side="right") - 1
            given[asking] = values[np.minimum(below, after[here] - 1)]
    return given


def _said(stats: npt.NDArray[np.float64], g: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """Statistics that each node answers by; a branch without rows says what its parent does."""
    empty = np.flatnonzero(g["weight"] == 0.0)
    if len(empty):
        stats = stats.copy()
        stats[empty] = stats[_parents(g)[empty]]
    return stats


def _parents(g: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """(nodes,) int64: parent of each node, -1 for the root."""
    inner = np.flatnonzero(g["kind"] != Split.LEAF)
    counts = g["n_children"][inner].astype(np.int64)
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    children = np.repeat(g["first_child"][inner].astype(np.int64), counts) + offset
    parent = np.full(len(g), -1, dtype=np.int64)
    parent[children] = np.repeat(inner, counts)
    return parent


def max_depth_limit(max_depth: int | None) -> int:
    """The depth to stop at: the user's, or the bound that every part handles."""
    return MAX_DEPTH if max_depth is None else min(max_depth, MAX_DEPTH)
