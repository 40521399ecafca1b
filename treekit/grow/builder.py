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
from treekit.grow.plugins import current
from treekit.grow.splitter import CompiledSplitter
from treekit.grow.target import Target
from treekit.kernels.grow import NODE, Grown, grow
from treekit.kernels.node import Limits, Rows, Scratch, Table
from treekit.kernels.pointers import Pointer
from treekit.model.portable import floor_to, threshold_between
from treekit.model.tree import MAX_DEPTH, Split, Tree

__all__ = ["GrownTree", "Recipe", "grow_tree", "make_scratch", "max_depth_limit"]


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
    compiled: list[Any] = field(default_factory=list, repr=False)


@dataclass(frozen=True)
class GrownTree:
    """A tree with what pruners and out-of-bag scores need to know.

    Attributes
    ----------
    tree : Tree
    stats, held_stats : (nodes, S) float64
        Statistics of training and of held-out rows at each node.
    held_ids : (held,) uint32
        Held-out row numbers in leaf order.
    held_leaf : (held,) int64
        The leaf node that each of `held_ids` reaches.
    held_values : (held, 1) or (held, S) float64
        Weight, or dense statistics, of each of `held_ids`.
    """

    tree: Tree
    stats: npt.NDArray[np.float64]
    held_stats: npt.NDArray[np.float64]
    held_ids: npt.NDArray[np.uint32]
    held_leaf: npt.NDArray[np.int64]
    held_values: npt.NDArray[np.float64]


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
    scratch = make_scratch(recipe.table, recipe.target, most, int(rng.integers(0, 2**63)))
    spare = Rows(
        np.empty(most + 1, np.uint32),
        np.empty(0 if recipe.target.dense else most + 1, np.uint32),
        np.empty((most + 1, rows.values.shape[1])),
    )
    room = Grown(np.zeros(64, NODE), np.zeros((64, s)), np.zeros((64, s)), np.zeros(16, np.int32))
    arguments = (
        recipe.table, rows, held_table or recipe.table, held, spare, room, recipe.limits,
        recipe.target.noise,
        splitter.coding == "exact", splitter.find, criterion.scan, criterion.many, criterion.key,
        criterion.choose, criterion.n_keys, criterion.use_choose, criterion.score,
        criterion.impurity, criterion.priority, criterion.use_priority, recipe.before,
        recipe.use_before, rng, scratch,
    )  # fmt: skip
    grown, n, status = _off_main_thread(_run, recipe, arguments)
    if status:
        raise _stopped(recipe, status, scratch.best[2 : 2 + s].tolist())
    return _assemble(recipe, grown, n, held)


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


def make_scratch(table: Table, target: Target, most: int, seed: int) -> Scratch:
    """Working memory for nodes of up to `most` rows; `seed` draws columns."""
    s = target.size
    room = max(most, 256) + 2
    codes = int(table.n_codes.max(initial=0)) + 1
    compact = np.empty((max(min(codes, room), 256) + 2, s))
    levels = int(table.n_codes[table.nominal > 0].max(initial=0)) + 2
    n_features = len(table.n_codes)
    return Scratch(
        features=np.arange(n_features),
        state=np.array([seed], np.uint64),
        words=np.empty(4, np.uint64),
        work=np.empty((4, room), np.uint32),
        counts=np.empty(2050, np.uint32),
        compact=compact,
        flat=compact.reshape(-1),
        ordered=np.empty((levels, s)),
        keys=np.empty(levels),
        start=np.empty(s),
        best=np.empty(s + 2),
        pair=np.empty((2, s)),
        offers=np.empty((2, n_features)),
        levels=np.empty(levels, np.int32),
    )


def _assemble(recipe: Recipe, grown: Grown, n: int, held: Rows) -> GrownTree:
    g = grown.nodes[:n]
    kind = g["kind"]
    inner = kind != Split.LEAF
    sets = (kind == Split.SUBSET) | (kind == Split.MULTIWAY)
    sizes = np.where(sets, g["n_levels"], 0)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    picked = np.repeat(g["level_start"], sizes) + (
        np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
    )
    stats = grown.stats[:n]
    tree = Tree(
        kind=kind,
        feature=np.where(inner, g["feature"], -1),
        threshold=_thresholds(recipe, g),
        first_child=np.where(inner, g["first_child"], -1),
        n_children=np.where(inner, g["n_children"], 0),
        missing=np.where(inner, g["missing"], 0),
        level_start=starts,
        level_branch=grown.levels[picked],
        value=_values(recipe, stats),
        weight=g["weight"].copy(),
        gain=np.where(inner, g["gain"], 0.0),
    )
    leaves = tree.leaves
    leaves = leaves[np.argsort(g["held_begin"][leaves], kind="stable")]
    counts = g["held_end"][leaves] - g["held_begin"][leaves]
    ends = np.repeat(leaves, counts)
    return GrownTree(tree, stats, grown.held_stats[:n], held.ids, ends, held.values)


def _thresholds(recipe: Recipe, g: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """The splitter's own thresholds, or midpoints between the codes on either side."""
    table = recipe.table
    at = g["kind"] == Split.THRESHOLD
    given = floor_to(np.where(at, g["threshold"], np.nan), recipe.dtype)
    own = at & np.isnan(given)
    base = table.value_start[g["feature"][own]]
    cut = g["cut"][own]
    after = g["after"][own] if recipe.splitter.coding == "exact" else cut + 1
    given[own] = threshold_between(table.high[base + cut], table.low[base + after], recipe.dtype)
    return given


def _values(recipe: Recipe, stats: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if not recipe.target.dense:
        return stats
    leaf_value = recipe.criterion.functions.leaf_value
    if leaf_value is None:
        centred = stats[:, 1] / stats[:, 0]
    else:
        centred = _leaf_values(recipe, leaf_value, stats)
    return (centred + recipe.target.center)[:, None]


def _leaf_values(
    recipe: Recipe, leaf_value: Callable[..., float], stats: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """A criterion's own leaf values, one call a node."""
    rows = stats.copy()
    rows.flags.writeable = False
    origin = recipe.criterion.origin
    try:
        values = np.array([float(leaf_value(row)) for row in rows])
    except Exception as error:
        raise origin.error(f"raised {type(error).__name__} in leaf_value: {error}") from error
    if not np.all(np.isfinite(values)):
        given = rows[~np.isfinite(values)][0].tolist()
        raise origin.error(f"returned a leaf value that is not finite for the statistics {given}")
    return values


def max_depth_limit(max_depth: int | None) -> int:
    """The depth to stop at: the user's, or the bound that every part handles."""
    return MAX_DEPTH if max_depth is None else min(max_depth, MAX_DEPTH)
