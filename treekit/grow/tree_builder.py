"""Grow a single `Tree` from rows, a criterion and a splitter.

The builder works on records and arrays only; names are resolved in `treekit.training`.
A plugin that stops the growth is reported by its function and arguments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.compiling.functions import Origin, call_checked, format_statistics, thread_state
from treekit.errors import DataError, PluginError, SettingError
from treekit.grow.cut_thresholds import find_gaps, place_cuts
from treekit.grow.node_generator import make_node_generator
from treekit.grow.recipe import GrownTree, Recipe, SurrogateRule
from treekit.grow.route import compute_leaf_shares
from treekit.grow.target_statistics import TargetStatistics, allocate_rows, copy_rows
from treekit.kernels.axis_splits import SUBSETS_PER_SCAN
from treekit.kernels.cut_batches import N_CUT_ROWS, allocate_batch
from treekit.kernels.function_pointers import FunctionPointer, compile_pointers
from treekit.kernels.grow_tree import (
    MAX_PENDING,
    N_BY_CATEGORY,
    N_EMPTY,
    N_NODE_COUNTS,
    N_OBLIQUE,
    NODE_DTYPE,
    GrowthArrays,
    RareParts,
    Sample,
    SideColumns,
    allocate_tree_arrays,
    grow_nodes,
    write_tree_arrays,
)
from treekit.kernels.monotonic import clip_to_bounds, is_tree_monotonic
from treekit.kernels.node_statistics import CODES_PER_WORD, MAX_LANES
from treekit.kernels.quantile_splits import GROUP_ORDER
from treekit.kernels.random_splits import MISSING_KEY
from treekit.kernels.records import (
    BAD_CHOICE,
    BAD_NUMBER,
    BAD_ORDER,
    BAD_PENALTY,
    BAD_PRIORITY,
    BAD_SCORE,
    SPLIT_DTYPE,
    GrowthRules,
    Limits,
    Rows,
    Scratch,
    SplitSearch,
    Table,
)
from treekit.kernels.row_records import FORM, PLAIN, gather_records
from treekit.kernels.surrogate_splits import SURROGATE_DTYPE, SurrogateSearch
from treekit.model.fixed_point import place_threshold
from treekit.model.tree import (
    Split,
    Tree,
    concatenate_slices,
    empty_offsets,
    expand_slices,
    iter_chunks,
)
from treekit.registry.isolation import describe_error

# ---------------------------------------------------------------- plugin errors


Numbers = npt.NDArray[np.float64]
_NOT_FINITE = "is NaN or infinite"


def error_for_status(
    recipe: Recipe, status: int, grown: GrowthArrays, node: int, best: Numbers
) -> PluginError | DataError | SettingError:
    """Return the error for the negative status with which growth stopped at a node.

    Parameters
    ----------
    status : int
        As in `treekit.kernels.records`.
    best : (S + 6,) float64
        The candidate split that the kernel left in `treekit.kernels.records.Scratch.best`.
    """
    criterion, splitter = recipe.criterion.origin, recipe.splitter.origin
    parent, functions = grown.stats[node], recipe.criterion.functions
    branch = best[2 : 2 + recipe.target.size].copy()
    at_node, at_branch = format_statistics((parent,)), format_statistics((branch,))
    calls = {
        BAD_NUMBER: _iterate_calls(recipe, parent, branch),
        BAD_ORDER: _iterate_targets(recipe, "order", functions.order, branch),
        BAD_PRIORITY: _iterate_targets(recipe, "priority", functions.priority, parent),
    }
    if status in calls and (failure := _find_failing_call(recipe, calls[status])):
        return failure
    given, weight = "the statistics it was given were", float(grown.nodes["weight"][node])
    causes = {
        BAD_NUMBER: f"returned NaN or an infinite number; {given} {at_branch}, of a node of "
        f"{at_node}",
        BAD_ORDER: f"returned a category key from order that {_NOT_FINITE}; {given} {at_branch}",
        BAD_PRIORITY: f"returned a priority that {_NOT_FINITE}; {given} {at_node}",
        BAD_PENALTY: f"returned a penalty that {_NOT_FINITE}, for {best[0]:.0f} candidates at a "
        f"node of weight {weight!r}",
        BAD_CHOICE: "chose a column that does not exist, or has no split; choose must return the "
        "position of a gain that is not NaN, or -1",
    }
    if status in causes:
        return criterion.make_error(causes[status])
    if status == BAD_SCORE:
        return splitter.make_error(
            f"returned a split whose score is NaN or infinite, at a node of {at_node}; "
            f"a score returned by criterion.score comes from {criterion}"
        )
    known = ""
    if recipe.fractional or recipe.surrogates is not None:
        way = "fractional" if recipe.fractional else "surrogate"
        known = (
            f", and make sure that every branch has rows whose value is known: missing='{way}' "
            "does not send rows with a missing value to one branch"
        )
    return splitter.make_error(
        "returned a split with an empty branch or an impossible column, or of a kind that its "
        f"SplitterFunctions do not declare (sums, intervals), at a node of {at_node}; "
        f"create splits with the functions of treekit.splitting{known}"
    )


def attribute_exception(recipe: Recipe, error: Exception, whole: Numbers) -> Exception:
    """Attribute an exception raised in compiled code to the plugin that raised it.

    `whole` are the statistics (S,) of all rows, with which the functions are called again.
    """
    if isinstance(error, (MemoryError, PluginError)):
        return error
    origins = _list_origins(recipe)
    foreign = [origin for origin in origins if origin.is_foreign]
    if recipe.criterion.origin in foreign:
        failure = _find_failing_call(recipe, _iterate_calls(recipe, whole, whole * 0.5))
        if failure is not None and type(error).__name__ in str(failure):
            return failure
    names = " or ".join(str(origin) for origin in foreign or origins)
    remedy = ""
    if isinstance(error, IndexError):
        remedy = f" (a node's statistics have {recipe.target.size} cells)"
    return PluginError(
        f"{names} raised {describe_error(error)}{remedy}; training was stopped and no model was "
        "made"
    )


def _list_origins(recipe: Recipe) -> list[Origin]:
    """Return the origins of the components whose functions growth calls."""
    before = [recipe.before.origin] if recipe.use_before else []
    return [recipe.criterion.origin, recipe.splitter.origin, *before]


def check_branch_weights(recipe: Recipe, grown: GrowthArrays, n: int) -> None:
    """Raise `PluginError` if a plugin's splitter made branches that are too light.

    At least two branches of each split must weigh ``min_weight_leaf``, as
    `treekit.splitting.heavy_enough` checks.  The branches of a split on intervals are
    those of all its nested tests (see `treekit.kernels.grow_tree`).
    """
    if not recipe.splitter.origin.is_foreign or not (grown.nodes["kind"][:n] != 0).any():
        return
    nodes, limits = grown.nodes[:n], recipe.limits
    branches, split = _find_branches(nodes)
    weights = nodes["weight"][branches]
    heavy_enough = (weights >= limits.min_weight_leaf * (1.0 - 1e-9)) & (weights > 0.0)
    heavy = np.bincount(split, heavy_enough, minlength=n)
    is_split = np.zeros(n, np.bool_)
    is_split[split] = True
    light = is_split & (heavy < 2)
    if light.any():
        node = int(light.argmax())
        raise recipe.splitter.origin.make_error(
            f"split a node with statistics {format_statistics((grown.stats[node],))} into branches "
            f"with weights {format_statistics((weights[split == node],))}, but min_weight_leaf is "
            f"{limits.min_weight_leaf:g}; check candidate splits with "
            "treekit.splitting.heavy_enough"
        )


def _find_branches(
    nodes: npt.NDArray[np.void],
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return every node that is a branch of a split, and the node that was split.

    The inner tests of a split on intervals are no branches; they have the depth of their
    children.
    """
    inner = np.flatnonzero(nodes["kind"] != 0)
    parent = _find_parents(nodes)
    within = np.zeros(len(nodes), np.bool_)
    within[inner] = nodes["depth"][nodes["first_child"][inner]] == nodes["depth"][inner]
    branches = np.flatnonzero(~within & (parent >= 0))
    split = parent[branches]
    while within[split].any():  # at most log2(cuts) times: nested tests halve the cuts
        split = np.where(within[split], parent[split], split)
    return branches, split


def _iterate_calls(
    recipe: Recipe, parent: Numbers, left: Numbers
) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Yield the calls that a criterion may have received for a node and one of its branches."""
    functions = recipe.criterion.functions
    additive = recipe.target.is_additive
    sides = [left, parent - left] if additive else [left]  # rank statistics cannot be subtracted
    for name in ("impurity", "priority", "order"):
        for stats in (parent, *sides):
            yield from _iterate_targets(recipe, name, getattr(functions, name), stats)
    if additive:
        for stats in recipe.target.split_by_target(np.array([parent, *sides])):
            yield "score", functions.score, (stats[0], stats[1:])


def _iterate_targets(
    recipe: Recipe, name: str, function: Any, stats: Numbers
) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Yield the calls of a function with the statistics of each target."""
    for (target_stats,) in recipe.target.split_by_target(stats[None, :]):
        yield name, function, (target_stats,)


def _find_failing_call(
    recipe: Recipe, calls: Iterator[tuple[str, Any, tuple[Any, ...]]]
) -> PluginError | DataError | SettingError | None:
    """Return the error of the first call that fails, or None."""
    origin: Origin = recipe.criterion.origin
    for name, function, arguments in calls:
        if function is not None:
            try:
                call_checked(origin, name, function, *arguments)
            except (DataError, PluginError, SettingError) as error:
                return error
    return None


# ---------------------------------------------------------------- builder


def grow_tree(
    recipe: Recipe, rows: Rows, held: Rows, seed: int, held_table: Table | None = None
) -> GrownTree:
    """Grow one tree on `rows` and route the `held` (held-out) rows through it.

    The held-out rows are rows of `held_table`, by default the recipe's table; its codes
    have the same type.  `seed`, below 2**64, draws columns and random tests.

    Cost: about rows x columns tried x depth; memory of some 100 bytes per row.
    """
    return start_tree(recipe, rows, held, seed, held_table)()


def start_tree(
    recipe: Recipe, rows: Rows, held: Rows, seed: int, held_table: Table | None = None
) -> Callable[[], GrownTree]:
    """Grow the nodes of a tree; return a function that builds the result of `grow_tree`."""
    whole, kept = rows, held
    if recipe.fractional:  # growth splits rows into fractional instances, in place
        whole, kept = copy_rows(rows), copy_rows(held)
    grown, n = grow_rows(recipe, rows, held, seed, held_table)
    return partial(assemble_tree, recipe, grown, n, whole, kept, held_table or recipe.table)


class GrowthStart(NamedTuple):
    """Where growth starts: the root of a tree, or a node below it.

    Attributes
    ----------
    depth : int
    root_weight : float
        Weight of the tree's root.
    lowest, highest : float
        Bounds of its predictions, by monotonic constraints.
    """

    depth: int
    root_weight: float
    lowest: float = -np.inf
    highest: float = np.inf


def grow_rows(
    recipe: Recipe,
    rows: Rows,
    held: Rows,
    seed: int,
    held_table: Table | None = None,
    start: GrowthStart | None = None,
) -> tuple[GrowthArrays, int]:
    """Grow the tree or subtree of `rows`, which may be reordered; return nodes and their number.

    `start` is given for a subtree; the other parameters are those of `grow_tree`.
    """
    start = start or GrowthStart(0, float(rows.values[:, 0].sum()))
    criterion, splitter = recipe.criterion, recipe.splitter
    most, target = max(len(rows.ids), len(held.ids)), recipe.target
    scratch = allocate_scratch(
        recipe.table, recipe.target, most, seed, splitter.options, recipe.monotonic_signs,
        intervals=splitter.intervals,
        lines=recipe.row_major_codes if recipe.records is None else None,
    )  # fmt: skip
    table, others = recipe.table, held_table or recipe.table
    # Enlarging the arrays copies them.
    first = min(2 * len(rows.ids), MAX_FIRST_CELLS // target.size) + 64
    arrays = allocate_nodes(first, target, is_bounded=recipe.monotonic_signs is not None)
    arrays.nodes["depth"][0] = start.depth
    arrays.bounds[0] = scratch.best[-2:] = start.lowest, start.highest
    rare = _allocate_rare_parts(recipe, rows, others)
    if rare is not None:
        arrays = arrays._replace(
            surrogates=np.zeros(16, SURROGATE_DTYPE), surrogate_levels=np.zeros(16, np.int32)
        )
    noise, least = recipe.target.noise, recipe.limits.min_decrease * start.root_weight
    if rare is not None and len(rare.steps):
        noise += _bound_part_noise(rows.values, rare.steps)
    limits = recipe.limits._replace(min_decrease=least, noise=noise)
    flat, held_flat = table.codes.reshape(-1), others.codes.reshape(-1)
    moved, records, is_plain, has_lanes = rows, None, False, False
    n_spare = most
    if recipe.records is not None and len(rows.ids):
        records, n_spare = gather_records(recipe.records, rows), len(held.ids)
        scratch = scratch._replace(lines=records.codes, layout=records.layout)
        moved = rows._replace(ids=np.arange(len(rows.ids), dtype=np.uint32))
        has_lanes = bool(records.layout[FORM] == PLAIN)
        if not has_lanes:  # the arrays receive the cells and statistics of one node at a time
            moved = copy_rows(moved)
        is_plain = recipe.records.is_plain
    spare = allocate_rows(n_spare + 1, rows.values.shape[1], dense=target.is_dense)
    search = SplitSearch(
        find=None if is_plain else splitter.find,
        lanes=True if is_plain and has_lanes else None,
        criterion=criterion.pointers._replace(use_terms=has_exact_terms(recipe, rows)),
        rng=_make_generator(recipe, scratch),
    )
    arguments = (
        Sample(table, others, flat, held_flat, moved, held, spare, target.quantile),
        records,
        arrays,
        make_growth_rules(recipe, limits),
        rare,
        search,
        scratch,
    )
    grown, n, status = call_kernel(recipe, grow_nodes, arguments, table, rows)
    if status:
        raise error_for_status(recipe, status, grown, n, scratch.best)
    check_branch_weights(recipe, grown, n)
    if recipe.surrogates is None:
        grown = grown._replace(surrogates=None, surrogate_levels=None)
    return grown, n


def _allocate_rare_parts(recipe: Recipe, rows: Rows, held_table: Table) -> RareParts | None:
    """Allocate what the training needs of `RareParts`; None if nothing of it."""
    splitter, codes = recipe.splitter, recipe.table.codes
    has_surrogates = recipe.surrogates is not None
    is_rare = recipe.fractional or has_surrogates or splitter.intervals or splitter.sums
    if not is_rare and recipe.target.is_additive:
        return None
    steps = np.empty(0)
    if recipe.fractional:
        steps = recipe.target.choose_part_steps(rows.values)
    sides, held_sides = codes[0], held_table.codes[0]
    if not splitter.sums:
        sides, held_sides = sides[:0], held_sides[:0]
    return RareParts(
        steps,
        allocate_surrogates(recipe.surrogates, recipe.table, held_table, len(rows.ids)),
        np.empty(MAX_PENDING if splitter.intervals else 0, np.int64),
        SideColumns(np.empty_like(sides), np.empty_like(held_sides)),
    )


MAX_FIRST_CELLS = 1 << 18
"""Statistics for whose nodes memory is reserved before a tree grows."""


def allocate_nodes(n: int, target: TargetStatistics, *, is_bounded: bool) -> GrowthArrays:
    """Allocate room for `n` nodes, with the first zeroed; kernels that need more enlarge it."""
    nodes = np.empty(n, NODE_DTYPE)
    nodes[:1] = np.zeros(1, NODE_DTYPE)
    stats, held_stats = np.empty((n, target.size)), np.empty((n, target.size))
    entries, waiting = np.empty(16, np.int32), np.empty(n, np.int64)
    bounds = np.empty((n if is_bounded else 1, 2))
    return GrowthArrays(nodes, stats, held_stats, entries, waiting, bounds)


def has_exact_terms(recipe: Recipe, rows: Rows) -> bool:
    """Check whether sums of the criterion's terms are exact for all sums of these rows."""
    criterion, weights = recipe.criterion, rows.values[:, 0]
    term = criterion.functions.extras.term
    if term is None or not criterion.pointers.use_terms or recipe.fractional:
        return False
    return bool((weights == np.floor(weights)).all()) and bool(
        abs(term(float(weights.sum()))) < MAX_EXACT_SUM
    )


MAX_EXACT_SUM = 2.0**53
"""Integers up to it, and their sums, are exact in float64."""


def make_growth_rules(recipe: Recipe, limits: Limits) -> GrowthRules:
    """Return the rules of growth, with those that the criterion and the splitter set."""
    extras = recipe.criterion.functions.extras
    splits = recipe.split_rules._replace(
        levels_by_score=extras.levels_by_score,
        tolerance=float(extras.tolerance),
        midpoints=recipe.splitter.coding == "exact",
    )
    return GrowthRules(limits, splits, recipe.before, recipe.use_before)


_UNUSED_GENERATOR = np.random.default_rng(0)


def _make_generator(recipe: Recipe, scratch: Scratch) -> np.random.Generator:
    """Return the generator that a splitter plugin draws from; built-in splitters do not use it."""
    foreign = recipe.splitter.origin.is_foreign
    return make_node_generator(scratch.state) if foreign else _UNUSED_GENERATOR


def _bound_part_noise(values: Numbers, steps: Numbers) -> float:
    """Bound the rounding error of dense statistics of rows that are split repeatedly."""
    if values.shape[1] == 1 or not len(values):
        return 0.0
    largest = np.abs(values[:, 1:] / values[:, :1]).max(axis=0)
    return float(64.0 * (steps[1:] + largest * steps[0]).max())


def grow_with_validation(recipe: Recipe, rows: Rows, held: Rows, seed: int) -> GrownTree:
    """Grow a tree with the validation rows, if any, in place of the held-out rows `held`."""
    return start_with_validation(recipe, rows, held, seed)()


def start_with_validation(
    recipe: Recipe, rows: Rows, held: Rows, seed: int
) -> Callable[[], GrownTree]:
    """Grow nodes as `grow_with_validation`; return a function that builds its result."""
    if recipe.held_out is None:
        return start_tree(recipe, rows, held, seed)
    return start_tree(recipe, rows, recipe.held_out.copy_rows(), seed, recipe.held_out.table)


def call_kernel(
    recipe: Recipe, kernel: Any, arguments: tuple[Any, ...], table: Table, rows: Rows
) -> Any:
    """Call a kernel whose last arguments are a `SplitSearch` and working memory.

    Raises
    ------
    PluginError
        If a plugin stopped it.
    """
    call = kernel.find_call(arguments)

    def run_kernel() -> Any:
        thread_state.score, thread_state.rng = recipe.criterion.pointers.score, arguments[-2].rng
        thread_state.table, thread_state.failures = table, []
        try:
            outcome = _get_compiled(kernel, arguments)(*arguments) if call is None else call()
        except Exception as error:
            failures = thread_state.failures or [
                attribute_exception(recipe, error, recipe.target.sum_rows(rows))
            ]
            raise failures[0] from error
        if thread_state.failures:
            raise thread_state.failures[0]
        return outcome

    is_foreign = any(origin.is_foreign for origin in _list_origins(recipe))
    is_brief = len(rows.ids) * len(table.codes) <= _BRIEF_CELLS
    if call is not None and is_brief and not is_foreign:
        return run_kernel()  # starting a thread would take longer
    return _call_off_main_thread(run_kernel)


_BRIEF_CELLS = 1 << 16
"""Most cells of a table whose trees grow without a thread: Ctrl-C waits some milliseconds."""


def _call_off_main_thread(function: Callable[[], Any]) -> Any:
    """Call a function outside the main thread.

    Ctrl-C raises in the main thread only, between any two lines of Python.  A kernel that runs
    there would delay it to the end of a tree; and where numba calls a kernel, it passes function
    pointers in Python code, in which an exception would leave a null pointer.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    outcome: Future[Any] = Future()

    def store_outcome() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            outcome.set_exception(error)

    # Not of an executor: the interpreter would wait for its thread after Ctrl-C.
    threading.Thread(target=store_outcome, daemon=True).start()
    return outcome.result()


def _get_compiled(kernel: Any, arguments: tuple[Any, ...]) -> Any:
    """Return a kernel as compiled by numba for the types of the arguments.

    numba's typing of thirty arrays takes longer than growing a small tree.
    """
    key = kernel, _describe_types(arguments)
    if key not in _compiled:
        import numba as nb

        types = tuple(nb.typeof(argument) for argument in arguments)
        kernel.compile(types)
        _compiled[key] = kernel.overloads[types].entry_point
    entry = _compiled[key]
    return lambda *given: entry(*compile_pointers(given))


_compiled: dict[Any, Any] = {}
"""Entry points by kernel and `_describe_types` of the arguments.

Kept apart from the compiled components of `treekit.training.prepare`: one variant of a kernel
grows trees with any of these."""


def _describe_types(value: Any) -> Any:
    """Return a key that is equal for values of one numba type."""
    if isinstance(value, np.ndarray):
        layout = value.flags
        return (
            value.dtype, value.ndim, layout.c_contiguous, layout.f_contiguous, layout.writeable,
            layout.aligned,
        )  # fmt: skip
    if isinstance(value, tuple):
        return type(value), *map(_describe_types, value)
    if isinstance(value, FunctionPointer):
        return value.kind
    return type(value)


# ---------------------------------------------------------------- assembly


def assemble_tree(
    recipe: Recipe, grown: GrowthArrays, n: int, rows: Rows, held: Rows, held_table: Table
) -> GrownTree:
    """Build the tree of the first `n` nodes that `grow` made.

    `rows` and `held` (rows of `held_table`) are the rows before growth, which may have split
    them into fractional instances.
    """
    g, table = grown.nodes[:n], recipe.table
    arrays, counts = allocate_tree_arrays(n), np.empty(N_NODE_COUNTS, np.int64)
    is_exact = recipe.splitter.coding == "exact"
    cut_thresholds = np.empty(0) if is_exact else recipe.bin_thresholds
    single = recipe.dtype == "float32"
    write_tree_arrays(g, table.value_start, cut_thresholds, single, arrays, counts)
    if is_exact:
        nodes = np.flatnonzero((arrays.kind == Split.THRESHOLD) & np.isnan(arrays.threshold))
        cut, after = g["cut"][nodes], g["after"][nodes]
        arrays.threshold[nodes] = place_cuts(
            table, recipe.dtype, recipe.split_rules, arrays.feature[nodes], cut, after
        )
    level_branch, level_start = np.empty(0, np.int8), empty_offsets(n)
    if counts[N_BY_CATEGORY]:
        level_branch, level_start = _collect_level_branches(recipe, grown, g)
    # Not a view: it would keep the pool alive as long as the tree.
    terms, term_start = np.empty(0, np.int32), empty_offsets(n)
    if counts[N_OBLIQUE]:
        # Columns and the bits of their weights alternate; see `treekit.kernels.oblique_splits`.
        terms, term_start = _gather_pool_entries(grown, g, arrays.kind == Split.OBLIQUE)
    stats = grown.stats[:n]
    value_stats = _fill_empty_nodes(stats, g) if counts[N_EMPTY] else stats
    tree = Tree(
        **arrays._asdict(),
        level_offsets=level_start,
        level_branch=level_branch,
        value=recipe.target.compute_node_values(recipe.criterion, value_stats),
        term_offsets=term_start // 2 if len(terms) else term_start,
        term_feature=terms[::2],
        term_weight=terms[1::2].copy().view(np.float32),
        **make_surrogate_fields(grown, arrays.kind != Split.LEAF, recipe),
    )
    if recipe.monotonic_signs is not None:
        value_stats = clip_statistics(
            tree, recipe.monotonic_signs, value_stats, dense=recipe.target.is_dense
        )
        tree = clip_tree(tree, recipe.monotonic_signs)
    held_stats = grown.held_stats[:n]
    ids, ends, held_values, share = held.ids, np.empty(0, np.int64), held.values, None
    if recipe.fractional:
        at = compute_leaf_shares(tree, held_table, held.ids, fractional=True)
        order = np.argsort(held.ids)
        held_values = held.values[order[np.searchsorted(held.ids, at.ids, sorter=order)]]
        ids, ends, held_values, share = at.ids, at.leaf, held_values * at.share[:, None], at.share
    elif len(held.ids):
        leaves = tree.leaves
        leaves = leaves[np.argsort(g["held_begin"][leaves], kind="stable")]
        ends = np.repeat(leaves, g["held_end"][leaves] - g["held_begin"][leaves])
    return GrownTree(tree, stats, value_stats, held_stats, ids, ends, held_values, rows, share)


def _collect_level_branches(
    recipe: Recipe, grown: GrowthArrays, g: npt.NDArray[np.void]
) -> tuple[npt.NDArray[np.signedinteger[Any]], npt.NDArray[np.int64]]:
    """Collect the branch of each category of each node; return them, and CSR offsets by node."""
    by_level = (g["kind"] == Split.SUBSET) | (g["kind"] == Split.MULTIWAY)
    sizes = np.where(by_level, recipe.table.n_codes[g["feature"]].astype(np.int64), 0)
    offsets = np.cumsum(np.append(0, sizes))
    least = min(-1, -int(g["n_children"].max()))
    branch = np.full(offsets[-1], -1, dtype=np.min_scalar_type(least))
    first, counts = g["first_entry"][by_level], g["n_entries"][by_level]
    starts = offsets[:-1][by_level]
    for part in iter_chunks(counts):
        pairs = concatenate_slices(grown.entries, first[part], counts[part])
        branch[np.repeat(starts[part], counts[part] // 2) + pairs[::2]] = pairs[1::2]
    return branch, offsets


def _gather_pool_entries(
    grown: GrowthArrays, g: npt.NDArray[np.void], owners: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the pool entries of the nodes of a mask, and their CSR offsets."""
    sizes = np.where(owners, g["n_entries"], 0)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    # Of owners alone: their slices follow one another, and are copied as one.
    entries = concatenate_slices(grown.entries, g["first_entry"][owners], sizes[owners])
    return entries, starts


def _fill_empty_nodes(stats: Numbers, g: npt.NDArray[np.void]) -> Numbers:
    """Return the statistics for node values; an empty branch takes those of its parent."""
    empty, stats = np.flatnonzero(g["weight"] == 0.0), stats.copy()
    stats[empty] = stats[_find_parents(g)[empty]]
    return stats


def _find_parents(g: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Return the parent of each node, -1 for the root: (nodes,) int64."""
    inner = np.flatnonzero(g["kind"] != Split.LEAF)
    counts = g["n_children"][inner]
    parent = np.full(len(g), -1, dtype=np.int64)
    parent[expand_slices(g["first_child"][inner], counts)] = np.repeat(inner, counts)
    return parent


# ---------------------------------------------------------------- surrogates


def allocate_surrogates(
    rule: SurrogateRule | None, table: Table, held: Table, n_rows: int
) -> SurrogateSearch:
    """Allocate working memory to find surrogates by `rule`, for a tree of `n_rows` rows."""
    n_features, codes, held_codes = len(table.n_codes), table.codes[:1], held.codes[:1]
    if rule is None:
        rule = SurrogateRule(most=0)
        n_features, n_rows, codes, held_codes = 0, 0, codes[:, :0], held_codes[:, :0]
    return SurrogateSearch(
        most=rule.most,
        of_known=rule.of_known,
        right_and_wrong=rule.right_and_wrong,
        ids=np.empty(n_rows + 1, np.uint32),
        cells=np.empty(n_rows + 1, np.uint32),
        values=np.empty((n_rows + 1, 1)),
        routed=np.zeros(codes.shape, codes.dtype),
        held_routed=np.zeros(held_codes.shape, held_codes.dtype),
        agreement=np.empty(n_features),
        tests=np.zeros((n_features, 2), np.int64),
    )


def make_surrogate_fields(
    grown: GrowthArrays, inner: npt.NDArray[np.bool_], recipe: Recipe
) -> dict[str, npt.NDArray[Any]]:
    """Return the fields ``surrogate_*`` of a `Tree`; empty without surrogates.

    Parameters
    ----------
    grown : Grown
    inner : (n,) bool
        Nodes that are split; surrogates of nodes that were collapsed are dropped.
    """
    if grown.surrogates is None or grown.surrogate_levels is None:
        return {}
    surrogates = grown.surrogates[inner[grown.surrogates["node"]]]
    surrogates = surrogates[np.argsort(surrogates["node"], kind="stable")]
    counts = np.bincount(surrogates["node"], minlength=len(inner))
    sizes = surrogates["n_levels"]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    threshold = np.full(len(surrogates), np.nan)
    numeric = recipe.table.nominal[surrogates["feature"]] == 0
    cuts = surrogates[numeric]
    after = cuts["after"] if recipe.splitter.coding == "exact" else cuts["cut"] + 1
    low, high = find_gaps(recipe.table, cuts["feature"], cuts["cut"], after)
    threshold[numeric] = place_threshold(low, high, recipe.dtype, recipe.split_rules.placement)
    return {
        "surrogate_offsets": np.concatenate([[0], np.cumsum(counts)]),
        "surrogate_feature": surrogates["feature"],
        "surrogate_threshold": threshold,
        "surrogate_below": surrogates["below"],
        "surrogate_level_offsets": starts,
        "surrogate_level_branch": concatenate_slices(
            grown.surrogate_levels, surrogates["level_start"], sizes
        ),
    }


# ---------------------------------------------------------------- scratch


def allocate_scratch(
    table: Table,
    target: TargetStatistics,
    most: int,
    seed: int,
    options: tuple[float, ...] = (),
    signs: Numbers | None = None,
    *,
    intervals: bool = False,
    lines: npt.NDArray[Any] | None = None,
) -> Scratch:
    """Allocate working memory for nodes of up to `most` rows; `seed` draws columns.

    `intervals` reserves room for as many cuts as a column has codes.
    """
    s = target.size
    room = max(most, 256) + 2
    # Key-coded columns hold values, not array indices: no array is sized by them.
    codes = int(table.n_codes.max(initial=0, where=table.n_codes != MISSING_KEY)) + 1
    compact = np.empty((max(min(codes, room), 256) + 2, s))
    # Branches of categories, or a column and a weight for each term of an oblique split.
    levels = max(int(table.n_codes[table.nominal > 0].max(initial=0)), 2 * len(table.n_codes)) + 2
    n_features = len(table.n_codes)
    scratch = Scratch(
        features=np.arange(n_features),
        state=np.array([seed], np.uint64),
        words=np.empty(max(2 * (codes // 64 + 1), 64), np.uint64),
        lanes=np.empty(0 if target.is_dense else most, np.uint64),
        slots=np.empty(0 if target.is_dense or s == 2 else most, np.uint16),
        packed=np.zeros(int(CODES_PER_WORD) * min(s, MAX_LANES), np.uint64),
        work=np.empty((4, room), np.uint32),
        counts=np.empty(2050, np.uint32),
        compact=compact,
        flat=compact.reshape(-1),
        ordered=np.empty((max(levels, SUBSETS_PER_SCAN + 1), s)),
        keys=np.empty(levels),
        start=np.empty(s),
        best=np.append(np.empty(s + 2), [0.0, 0.0, -np.inf, np.inf]),
        pair=np.empty((2, s)),
        offers=_allocate_offers(table, target, signs),
        levels=np.empty(max(levels, codes) if intervals else levels, np.int32),
        options=np.array(options),
        lines=np.empty(0, table.codes.dtype) if lines is None else lines,
        layout=np.zeros(5, np.uint64),
        split=np.zeros(1, SPLIT_DTYPE),
        offsets=np.zeros((2, levels + 2), np.int64),  # branches: a category each, and missing
        batch=allocate_batch(s, s, N_CUT_ROWS),
        scan=allocate_batch(s, s, 1),
    )
    return scratch if target.is_additive else _enlarge_for_ranks(scratch, codes, room)


def _enlarge_for_ranks(scratch: Scratch, codes: int, room: int) -> Scratch:
    """Enlarge working memory for a rank target, whose search sorts rows.

    `words` hold the codes present, then the rows on either side of a cut; `counts` also
    count codes; `ordered` has the statistics of both sides of each cut, and `start` the
    rows of a node (`treekit.kernels.quantile_statistics`).
    """
    cuts = min(codes, room)
    return scratch._replace(
        words=np.empty(max(codes // 64 + 1, room + 1), np.uint64),
        work=np.empty((GROUP_ORDER + 1, room), np.uint32),
        counts=np.empty(max(len(scratch.counts), codes), np.uint32),
        ordered=np.empty((max(len(scratch.keys), 2 * cuts + 1), 4)),
        scan=allocate_batch(8, 4, 1),
        start=np.empty(6 * room + 6),  # ends with a sum tree, which few nodes need
    )


def _allocate_offers(table: Table, target: TargetStatistics, signs: Numbers | None) -> Numbers:
    """Return two empty rows to fill at each node, categories per training weight, and signs."""
    offers = np.zeros((4, len(table.n_codes)))
    nominal = table.nominal > 0
    if nominal.any():
        total = target.total_weight
        total = max(float(target.values[:, 0].sum()) if total is None else total, 1e-300)
        offers[2] = np.where(nominal, table.n_codes / total, 0.0)
    if signs is not None:
        offers[3] = signs
    return offers


# ---------------------------------------------------------------- monotonic constraints


def clip_tree(tree: Tree, signs: Numbers) -> Tree:
    """Clip node values to the bounds set by the constrained splits above them.

    Parameters
    ----------
    tree : Tree
        A regression tree, or one of two classes.
    signs : (features,) float64
        1: predictions increase with the column, -1: they decrease, 0: unconstrained.
    """
    if tree.value.shape[1] == 2:
        return tree.with_value(clip_statistics(tree, signs, tree.value, dense=False))
    return tree.with_value(_clip_values(tree, signs, _compute_predictions(tree))[:, None])


def clip_statistics(tree: Tree, signs: Numbers, stats: Numbers, *, dense: bool) -> Numbers:
    """Clip the statistics that node values are computed from to monotonic bounds.

    Parameters
    ----------
    stats : (nodes, S) float64
        ``(weight, weight * y, ...)`` if `dense`, else the weights of two classes.
    """
    weight = stats[:, 0] if dense else stats.sum(axis=1)
    answers = stats[:, 1] / weight
    kept = _clip_values(tree, signs, answers)
    moved = kept != answers
    stats = stats.copy()
    stats[moved, 1] = weight[moved] * kept[moved]
    if not dense:
        stats[moved, 0] = weight[moved] * (1.0 - kept[moved])
    return stats


def is_monotonic(tree: Tree, signs: Numbers) -> bool:
    """Check that the leaves on either side of each constrained split are in order.

    Pruners that move rows, or regrow nodes, may violate constraints that growth respected.
    """
    shape = (tree.kind, tree.feature, tree.first_child, tree.n_children)
    return bool(is_tree_monotonic(*shape, signs, _compute_predictions(tree)))


def _clip_values(tree: Tree, signs: Numbers, answers: Numbers) -> Numbers:
    shape = (tree.kind, tree.feature, tree.first_child, tree.n_children)
    return np.asarray(clip_to_bounds(*shape, signs, answers))


def _compute_predictions(tree: Tree) -> Numbers:
    """Return the number, or the share of the second class, of each node: (nodes,) float64."""
    if tree.value.shape[1] == 1:
        return np.ascontiguousarray(tree.value[:, 0])
    return np.asarray(tree.value[:, 1] / tree.value.sum(axis=1))
