"""Grow trees level by level over partitions of the rows; they equal those of `grow_tree`.

For large nodes, each partition counts its rows by node, column and code, and the split is found
from the sums of all partitions.  The rows of a small node are collected in one process, where the
kernel of `grow_tree` grows its subtree.  All functions that an engine runs are pure functions of
their arguments, so that the work of a lost process can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from treekit.compiling.splitter import get_builtin_pointer
from treekit.distributed.kernels.levels import (
    ColumnDraws,
    CountedNodes,
    count_codes,
    find_ranges,
    locate_counts,
    move_rows,
    order_nodes,
    search_counts,
    split_nodes,
)
from treekit.grow.forest_builder import BootstrapSampler
from treekit.grow.recipe import Recipe
from treekit.grow.target_statistics import TargetStatistics, allocate_rows, copy_rows
from treekit.grow.tree_builder import (
    GrowthStart,
    allocate_nodes,
    allocate_scratch,
    assemble_tree,
    call_kernel,
    error_for_status,
    grow_rows,
    make_growth_rules,
)
from treekit.kernels.grow_tree import NODE_DTYPE, GrowthArrays
from treekit.kernels.records import Rows, SplitSearch, Table
from treekit.model.tree import Tree, expand_slices

Nodes = npt.NDArray[np.void]
Numbers = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# ---------------------------------------------------------------- engines


class Engine(Protocol):
    """Interface to run functions in this process, or on the workers of a cluster."""

    def send(self, value: Any) -> Any:
        """Send a value, and return a result that can be an argument of several functions."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function, and return its result; arguments, and items of lists, may be results."""

    def take(self, results: Sequence[Any]) -> list[Any]:
        """Wait for results, and return their values."""


class LocalEngine:
    """Run functions in this process, at once."""

    def send(self, value: Any) -> Any:
        """Return the value."""
        return value

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the value of a function."""
        return function(*arguments)

    def take(self, results: Sequence[Any]) -> list[Any]:
        """Return the values, which are the results."""
        return list(results)


GetRecipe = Callable[[], Recipe]
"""A function that returns the recipe, without rows, in the process that calls it."""


@dataclass(frozen=True)
class Partition:
    """Some of the training rows, and their bootstrap sampler if trees draw rows.

    `numbers` are the target values (rows,) or (rows, targets), if they are needed after growth.
    """

    table: Table
    target: TargetStatistics
    sampler: BootstrapSampler | None = None
    numbers: npt.NDArray[np.float64] | None = None


class Bags(NamedTuple):
    """Rows drawn from a partition for some trees, sorted by node, and the slice of each node."""

    rows: Rows
    spans: Integers


class Level(NamedTuple):
    """Nodes to split and nodes to count at one level, in the same way on each partition.

    Attributes
    ----------
    n_nodes : int
        Nodes of all trees so far.
    splits : (splits,) NODE
        Splits of the previous level; see `treekit.distributed.kernels.levels.move_rows`.
    entries : (pool,) int32
        Entries of these splits, as in `treekit.kernels.grow_tree.GrowthArrays`.
    blocks : sequence of (nodes,) int64
        Nodes to count, or to collect the rows of, in blocks that are processed separately.
    seeds, n_columns : sequences of (nodes,) arrays
        Seed and number of columns to count of each node, by block.
    """

    n_nodes: int
    splits: Nodes
    entries: npt.NDArray[np.int32]
    blocks: Sequence[Integers]
    seeds: Sequence[npt.NDArray[np.uint64]] = ()
    n_columns: Sequence[Integers] = ()


# ---------------------------------------------------------------- on partitions


def draw_bags(partition: Partition, seeds: Sequence[int]) -> tuple[Bags, list[float]]:
    """Draw the rows of some trees; return them, and the weight of each tree."""
    target = partition.target
    bags = []
    for seed in seeds:
        drawn, times = np.arange(len(target.values), dtype=np.uint32), None
        if partition.sampler is not None:
            drawn, times = partition.sampler.ids, partition.sampler.draw_once(seed)[0]
        bags.append(target.select_rows(drawn, times))
    ends = np.cumsum([0, *(len(own.ids) for own in bags)])
    rows = Rows(*map(np.concatenate, zip(*bags, strict=True)))
    weights = [float(own.values[:, 0].sum()) for own in bags]
    return Bags(rows, np.stack([ends[:-1], ends[1:]], axis=1)), weights


def count_level(
    get_recipe: GetRecipe, partition: Partition, bags: Bags, level: Level
) -> tuple[Bags, list[tuple[Numbers, Numbers]]]:
    """Move rows to the children of split nodes, and count the codes of open nodes.

    Returns
    -------
    bags
    blocks : list of (counts, ranges)
        See `treekit.distributed.kernels.levels.count_codes` and `find_ranges`.
    """
    recipe, table = get_recipe(), partition.table
    bags = move_bags(partition, bags, level)
    found = []
    for nodes, seeds, n_columns in zip(level.blocks, level.seeds, level.n_columns, strict=True):
        spans = bags.spans[nodes]
        draws = _make_draws(recipe, seeds, n_columns)
        counts = np.zeros((_locate(draws, recipe)[-1], recipe.target.size))
        count_codes(table, bags.rows, spans, draws, counts)
        ranges = np.empty((len(nodes), 2, recipe.target.size if recipe.target.is_dense else 0))
        if recipe.target.is_dense:
            find_ranges(bags.rows.values, spans, recipe.target.noise, ranges)
        found.append((counts, ranges))
    return bags, found


def move_bags(partition: Partition, bags: Bags, level: Level) -> Bags:
    """Sort the rows into the children of the last splits; return them in new arrays."""
    if not len(level.splits):
        return bags
    rows = copy_rows(bags.rows)
    spans = np.zeros((level.n_nodes, 2), np.int64)
    spans[: len(bags.spans)] = bags.spans
    n, target = len(rows.ids) + 1, partition.target
    spare = allocate_rows(n, rows.values.shape[1], dense=target.is_dense)
    branch_of = np.empty(n, np.uint32)
    move_rows(partition.table, rows, spare, level.splits, level.entries, spans, branch_of)
    return Bags(rows, spans)


def _make_draws(recipe: Recipe, seeds: npt.NDArray[np.uint64], n_columns: Integers) -> ColumnDraws:
    features, state = np.arange(len(recipe.table.n_codes)), np.zeros(1, np.uint64)
    return ColumnDraws(features, state, seeds, n_columns, _count_tries(recipe))


def _count_tries(recipe: Recipe) -> int:
    return min(recipe.limits.n_try, len(recipe.table.n_codes))


def _locate(draws: ColumnDraws, recipe: Recipe) -> Integers:
    starts = np.empty(len(draws.seeds) + 1, np.int64)
    locate_counts(draws, recipe.table.n_codes, starts)
    return starts


class Piece(NamedTuple):
    """Rows of a node: their codes (features, rows), cells and statistics."""

    codes: npt.NDArray[Any]
    cells: npt.NDArray[np.uint32]
    values: Numbers


def collect_rows(partition: Partition, bags: Bags, blocks: Sequence[Integers]) -> list[list[Piece]]:
    """Collect a partition's rows of small nodes, block by block."""
    rows, spans = bags
    found = []
    for nodes in blocks:
        pieces = []
        for begin, end in spans[nodes].tolist():
            codes = partition.table.codes.take(rows.ids[begin:end], axis=1)
            cells = rows.cells[begin:end].copy()  # not a view: it would keep all rows
            pieces.append(Piece(codes, cells, rows.values[begin:end].copy()))
        found.append(pieces)
    return found


# ---------------------------------------------------------------- on sums


class Growth(NamedTuple):
    """Nodes of a block, then their descendants; `needs_counts` marks nodes that need more columns.

    `bounds` (nodes, 2) are the bounds of their predictions; empty without constraints.
    """

    nodes: Nodes
    stats: Numbers
    entries: npt.NDArray[np.int32]
    needs_counts: npt.NDArray[np.bool_]
    bounds: Numbers


class Opened(NamedTuple):
    """Nodes to split or to grow.

    Attributes
    ----------
    nodes : (nodes,) NODE
    n_columns : (nodes,) int64
        Number of columns counted.
    roots : (nodes,) float64
        Weight of the root of each node's tree.
    bounds : (nodes, 2) float64, or (0, 2)
        Bounds of predictions, for monotonic constraints.
    """

    nodes: Nodes
    n_columns: Integers
    roots: Numbers
    bounds: Numbers


def split_block(
    get_recipe: GetRecipe, blocks: Sequence[tuple[Numbers, Numbers]], opened: Opened
) -> Growth:
    """Split the nodes of a block by the sums of all partitions' counts."""
    recipe, n = get_recipe(), len(opened.nodes)
    target, table, s = recipe.target, recipe.table, recipe.target.size
    counts = blocks[0][0].copy()
    for more, _ in blocks[1:]:
        counts += more
    entries = len(counts)
    equal_rows, n_rows = np.zeros((2 * n + 2, s)), np.zeros(n)
    if target.is_dense:
        low = np.max([own[:, 0] for _, own in blocks], axis=0)
        high = np.min([own[:, 1] for _, own in blocks], axis=0)
        n_rows = np.sum([own[:, 0, 0] for _, own in blocks], axis=0)
        equal_rows[:, 0] = equal_rows[-1, 1:] = 1.0
        equal_rows[1:-2:2, 1:] = (low > high)[:, 1:]
    draws = _make_draws(recipe, opened.nodes["seed"].copy(), opened.n_columns)
    starts = _locate(draws, recipe)
    arrays = allocate_nodes(3 * n, target, is_bounded=recipe.monotonic_signs is not None)
    arrays.nodes[:n], arrays.held_stats[:n] = opened.nodes, 0.0
    arrays.nodes["begin"][:n], arrays.nodes["end"][:n] = starts[:-1], starts[1:]
    if recipe.monotonic_signs is not None:
        arrays.bounds[:n] = opened.bounds
    needs_counts = np.zeros(n, np.bool_)
    scratch = allocate_scratch(
        table, target, int(table.n_codes.max()) + 2, 0, signs=recipe.monotonic_signs
    )
    none, cells = np.empty(0, np.uint32), np.empty(0 if target.is_dense else entries, np.uint32)
    # One type of codes and of `find`, for which the kernels are compiled once.
    bare, sums = table._replace(codes=np.empty((0, 0), np.uint8)), Rows(none, cells, counts)
    counted = CountedNodes(
        bare, sums, None, Rows(none, cells, equal_rows), recipe.limits.min_decrease * opened.roots,
        target.noise * n_rows,
    )  # fmt: skip
    rules = make_growth_rules(recipe, recipe.limits._replace(n_try=_count_tries(recipe)))
    find = get_builtin_pointer(search_counts, bare, sums, scratch)
    search = SplitSearch(find, None, recipe.criterion.pointers, np.random.default_rng(0))
    arguments = (counted, arrays, needs_counts, rules, search, scratch)
    totals = counts[: int(table.n_codes[0]) + 1]
    whole = Rows(none, np.empty(0, np.uint32), totals)
    grown, n, status = call_kernel(recipe, split_nodes, arguments, table, whole)
    if status:
        raise error_for_status(recipe, status, grown, n, scratch.best)
    return _copy_growth(grown, n, needs_counts, grown.bounds[: n if len(opened.bounds) else 0])


def grow_block(
    get_recipe: GetRecipe, blocks: Sequence[Sequence[Piece]], opened: Opened
) -> list[Growth]:
    """Grow the subtrees of small nodes from their rows, collected from all partitions."""
    recipe, found = get_recipe(), []
    for i, pieces in enumerate(zip(*blocks, strict=True)):
        node = opened.nodes[i]
        parts = zip(*pieces, strict=True)
        codes = np.ascontiguousarray(np.concatenate(next(parts), axis=1))
        cells, values = map(np.concatenate, parts)
        table = recipe.table._replace(codes=codes)
        own = replace(recipe, table=table)
        rows = Rows(np.arange(len(values), dtype=np.uint32), cells, values)
        none = Rows(rows.ids[:0].copy(), cells[:0].copy(), values[:0].copy())
        start = GrowthStart(
            int(node["depth"]), float(opened.roots[i]), *opened.bounds[i : i + 1].ravel().tolist()
        )
        grown, n = grow_rows(own, rows, none, int(node["seed"]), start=start)
        bounds = np.zeros((n if len(opened.bounds) else 0, 2))  # not read again
        found.append(_copy_growth(grown, n, np.zeros(1, np.bool_), bounds))
    return found


def _copy_growth(
    grown: GrowthArrays, n: int, needs_counts: npt.NDArray[np.bool_], bounds: Numbers
) -> Growth:
    """Return the first `n` nodes, without the room for more."""
    nodes, stats = grown.nodes[:n].copy(), grown.stats[:n].copy()
    return Growth(nodes, stats, grown.entries.copy(), needs_counts, bounds.copy())


# ---------------------------------------------------------------- all levels


@dataclass(frozen=True)
class LevelSizes:
    """Limits of growth by levels, for memory and speed; the trees do not depend on them.

    Attributes
    ----------
    small_weight : float
        Maximum weight of a node whose subtree is grown in one process.
    count_bytes : int
        Maximum bytes of a partition's counts at a level; other nodes are counted at a later one.
    blocks : int
        Number of blocks of nodes whose counts are added up and searched separately.
    small_blocks : int
        Number of blocks of small nodes whose subtrees are grown separately.
    group_weight : float
        Maximum total weight of small nodes whose rows are sent at the same time.
    """

    small_weight: float
    count_bytes: int = 1 << 28
    blocks: int = 1
    small_blocks: int = 1
    group_weight: float = np.inf


def grow_by_levels(
    engine: Engine,
    recipe: Recipe,
    get_recipe: Any,
    partitions: Sequence[Any],
    seeds: Sequence[int],
    sizes: LevelSizes,
) -> tuple[list[Tree], list[int]]:
    """Grow a tree for each seed over the partitions of the rows.

    Parameters
    ----------
    recipe : Recipe
        Without rows, for this process.
    get_recipe, partitions
        Results of the engine: a `GetRecipe`, and a list of `Partition`.

    Returns
    -------
    trees : list of Tree
        Equal to those of `treekit.grow.tree_builder.grow_tree` with all rows.
    drawn : list of int
        The seeds with which their rows were drawn.
    """
    bags, weights, drawn = _draw_all_bags(engine, partitions, seeds)
    growing = _GrowingTrees(recipe, seeds, sizes, weights)
    while growing.opened:
        level, opened = growing.plan_level()
        pairs = [
            engine.submit(count_level, get_recipe, own, bag, level)
            for own, bag in zip(partitions, bags, strict=True)
        ]
        bags = [engine.submit(itemgetter(0), pair) for pair in pairs]
        blocks = [engine.submit(itemgetter(1), pair) for pair in pairs]
        results = [
            engine.submit(split_block, get_recipe, _pick(engine, blocks, b), own)
            for b, own in enumerate(opened)
        ]
        del pairs, blocks
        growing.add_level(level, engine.take(results))
    for level in growing.plan_small():
        if len(level.splits):
            bags = [
                engine.submit(move_bags, own, bag, level)
                for own, bag in zip(partitions, bags, strict=True)
            ]
        blocks = [
            engine.submit(collect_rows, own, bag, level.blocks)
            for own, bag in zip(partitions, bags, strict=True)
        ]
        results = [
            engine.submit(
                grow_block, get_recipe, _pick(engine, blocks, b), growing.describe_nodes(own)
            )
            for b, own in enumerate(level.blocks)
        ]
        del blocks
        growing.add_small(level, engine.take(results))
        del results
    return growing.assemble(), drawn


def _pick(engine: Engine, blocks: Sequence[Any], b: int) -> list[Any]:
    """Return block `b` of each partition."""
    return [engine.submit(itemgetter(b), block) for block in blocks]


def _draw_all_bags(
    engine: Engine, partitions: Sequence[Any], seeds: Sequence[int]
) -> tuple[list[Any], list[float], list[int]]:
    """Draw bags; return them, the weight of each tree, and the seeds they were drawn with.

    A bag without rows is drawn again with the next seed.
    """
    used = list(seeds)
    while True:
        pairs = [engine.submit(draw_bags, own, used) for own in partitions]
        found = engine.take([engine.submit(itemgetter(1), pair) for pair in pairs])
        weights = np.sum(found, axis=0)
        if weights.all():
            return [engine.submit(itemgetter(0), pair) for pair in pairs], weights.tolist(), used
        used = [(own + (not w)) % 2**64 for own, w in zip(used, weights.tolist(), strict=True)]


class _GrowingTrees:
    """Nodes of trees that grow at the same time, numbered as they are found.

    Attributes
    ----------
    roots : (nodes,) float64
        Weight of the root of each node's tree.
    bounds : (nodes, 2) float64, or (0, 2)
        Bounds of predictions, for monotonic constraints.
    opened, small : list of int
        Nodes to count at the next level, and nodes whose subtrees are grown in one process.
    """

    def __init__(
        self, recipe: Recipe, seeds: Sequence[int], sizes: LevelSizes, weights: Sequence[float]
    ) -> None:
        self.recipe, self.sizes, self.n_trees = recipe, sizes, len(seeds)
        self.nodes = np.zeros(len(seeds), NODE_DTYPE)
        self.nodes["seed"], self.nodes["weight"] = np.array(seeds, np.uint64), weights
        self.stats = np.zeros((len(seeds), recipe.target.size))
        self.roots = self.nodes["weight"].copy()
        unbounded = [[-np.inf, np.inf]] if recipe.monotonic_signs is not None else []
        self.bounds = np.repeat(np.array(unbounded).reshape(-1, 2), len(seeds), axis=0)
        self.entries: list[npt.NDArray[np.int32]] = [np.empty(0, np.int32)]
        self.n_entries = 0
        # Columns that a node of this number counts, if others than it tries are constant.
        self.n_columns: dict[int, int] = {}
        self.opened: list[int] = []
        self.small: list[int] = []
        self.moved: list[int] = []
        self._sort_by_weight(np.arange(len(seeds)))

    def _sort_by_weight(self, nodes: Integers) -> None:
        """Add light nodes to `small` and the others to `opened`."""
        light = self.nodes["weight"][nodes] <= self.sizes.small_weight
        self.small += nodes[light].tolist()
        self.opened += nodes[~light].tolist()

    def plan_level(self) -> tuple[Level, list[Opened]]:
        """Plan the next level; return it, and the nodes of each block."""
        n_try, n_codes = _count_tries(self.recipe), self.recipe.table.n_codes
        columns = np.array([self.n_columns.get(node, n_try) for node in self.opened])
        widest = np.cumsum(np.sort(n_codes.astype(np.int64) + 1)[::-1])
        entries = np.cumsum(widest[columns - 1])
        room = self.sizes.count_bytes // (8 * self.recipe.target.size)
        taken = max(1, int(np.searchsorted(entries, room, side="right")))
        ids, columns = np.array(self.opened[:taken]), columns[:taken]
        self.opened = self.opened[taken:]
        ends = np.searchsorted(
            entries[:taken], np.linspace(0, entries[taken - 1], self.sizes.blocks + 1)[1:]
        )
        cuts = np.unique(np.minimum(ends + 1, taken))[:-1]
        blocks, asked = np.split(ids, cuts), np.split(columns, cuts)
        seeds = [self.nodes["seed"][own].copy() for own in blocks]
        level = self._make_level(blocks)._replace(seeds=seeds, n_columns=asked)
        return level, [
            self.describe_nodes(own, count) for own, count in zip(blocks, asked, strict=True)
        ]

    def describe_nodes(self, ids: Integers, n_columns: Integers | None = None) -> Opened:
        """Return nodes to split or to grow."""
        counts = np.zeros(len(ids), np.int64) if n_columns is None else n_columns
        bounds = self.bounds[ids] if len(self.bounds) else self.bounds
        return Opened(self.nodes[ids], counts, self.roots[ids], bounds)

    def _make_level(self, blocks: Sequence[Integers]) -> Level:
        """Return a level that first moves the rows of all nodes split since the last one."""
        moved, self.moved = np.array(self.moved, np.int64), []
        splits = self.nodes[moved]
        splits["begin"] = moved
        pool = np.concatenate(self.entries)
        self.entries = [pool]
        sizes = splits["n_entries"]
        own = [pool[a : a + n] for a, n in zip(splits["first_entry"], sizes, strict=True)]
        splits["first_entry"] = np.cumsum(sizes) - sizes
        entries = np.concatenate([np.empty(0, np.int32), *own])
        return Level(len(self.nodes), splits, entries, blocks)

    def add_level(self, level: Level, found: Sequence[Growth]) -> None:
        """Add the splits and children of a level."""
        n = len(self.nodes)
        self._graft(level.blocks, found)
        ids, asked = np.concatenate(level.blocks), np.concatenate(level.n_columns)
        self.moved += ids[self.nodes["kind"][ids] != 0].tolist()
        needs_counts = np.concatenate([growth.needs_counts for growth in found])
        most = len(self.recipe.table.n_codes)
        self.n_columns.update(
            zip(
                ids[needs_counts].tolist(),
                np.minimum(2 * asked[needs_counts], most).tolist(),
                strict=True,
            )
        )
        self.opened += ids[needs_counts].tolist()
        children = np.arange(n, len(self.nodes))
        self._sort_by_weight(children[self.nodes["end"][children] == 1])

    def plan_small(self) -> Iterator[Level]:
        """Yield small nodes in blocks of about equal weight, as many as fit into memory.

        The first level also has the splits that rows have not been moved by.
        """
        ids = np.array(self.small, np.int64)
        weights = self.nodes["weight"][ids]
        order = np.argsort(-weights, kind="stable")
        upto = np.cumsum(weights[order])
        while len(order):
            taken = max(1, int(np.searchsorted(upto, self.sizes.group_weight, side="right")))
            n = min(self.sizes.small_blocks, taken)
            loads, blocks = [0.0] * n, [list[int]() for _ in range(n)]
            for at in order[:taken].tolist():
                lightest = loads.index(min(loads))
                blocks[lightest].append(int(ids[at]))
                loads[lightest] += float(weights[at])
            yield self._make_level([np.array(own) for own in blocks])
            order, upto = order[taken:], upto[taken:] - upto[taken - 1]

    def add_small(self, level: Level, found: Sequence[Sequence[Growth]]) -> None:
        """Add the subtrees of small nodes."""
        ids = np.concatenate(level.blocks)
        growths = [growth for block in found for growth in block]
        self._graft([ids[k : k + 1] for k in range(len(ids))], growths)

    def _graft(self, ids: Sequence[Integers], growths: Sequence[Growth]) -> None:
        """Replace nodes by those of growths, and add the nodes below them."""
        nodes, stats, end = [self.nodes], [self.stats], len(self.nodes)
        roots, bounds = [self.roots], [self.bounds]
        for own, growth in zip(ids, growths, strict=True):
            n, grown = len(own), growth.nodes.copy()
            grown["first_child"] += end - n
            grown["first_entry"] += self.n_entries
            self.nodes[own], self.stats[own] = grown[:n], growth.stats[:n]
            nodes.append(grown[n:])
            stats.append(growth.stats[n:])
            bounds.append(growth.bounds[n:])
            # Either all nodes are of one tree, or no grandchildren are there.
            more = np.full(len(grown), self.roots[own[0]])
            more[:n] = self.roots[own]
            inner = np.flatnonzero(grown["n_children"])
            counts = grown["n_children"][inner]
            children = expand_slices(growth.nodes["first_child"][inner], counts)
            more[children] = np.repeat(more[inner], counts)
            roots.append(more[n:])
            end += len(grown) - n
            self.entries.append(growth.entries)
            self.n_entries += len(growth.entries)
        self.nodes, self.stats = np.concatenate(nodes), np.concatenate(stats)
        self.roots, self.bounds = np.concatenate(roots), np.concatenate(bounds)

    def assemble(self) -> list[Tree]:
        """Return the trees, with their nodes in the order of `grow_tree`."""
        pool, trees = np.concatenate(self.entries), []
        none = self.recipe.target.select_rows(np.empty(0, np.uint32), None)
        for root in range(self.n_trees):
            order, first_child = np.empty((2, len(self.nodes)), np.int64)
            n = order_nodes(self.nodes, root, order, first_child)
            nodes = self.nodes[order[:n]]
            inner = nodes["n_children"] > 0
            nodes["first_child"][inner] = first_child[:n][inner]
            grown = GrowthArrays(
                nodes,
                self.stats[order[:n]],
                np.zeros((n, 0)),
                pool,
                np.empty(0, np.int64),
                np.empty((0, 2)),
            )
            trees.append(assemble_tree(self.recipe, grown, n, none, none, self.recipe.table).tree)
        return trees
