"""Growth of one tree: the loop over its nodes.

Not recursive; depth and rows are limited by memory only (row numbers are uint32).
Depth-first with a stack, or best-first with a heap if the number of leaves is
limited.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.axis_splits import search_plain_columns
from treekit.kernels.compile import inlined, kernel, llvm_inlined
from treekit.kernels.function_pointers import borrow_arrays, borrow_row
from treekit.kernels.monotonic import HIGHEST, LOWEST, propagate_bounds
from treekit.kernels.node_statistics import choose_place, locate_column
from treekit.kernels.oblique_splits import OBLIQUE, project_rows
from treekit.kernels.partition_rows import (
    Route,
    WaitingSlices,
    assign_branches,
    compute_cumulative_shares,
    compute_variance,
    extend_array,
    extend_rows,
    partition_rows,
    replace_by_children,
    sum_held_out_rows,
    sum_rows,
)
from treekit.kernels.random_numbers import mix_bits, start_node_draws
from treekit.kernels.records import (
    BAD_NUMBER,
    BAD_PRIORITY,
    BAD_SPLIT,
    MISSING,
    MULTIWAY,
    SUBSET,
    THRESHOLD,
    TOLERANCE,
    Column,
    Node,
    Rows,
    Table,
    is_finite,
)
from treekit.kernels.row_records import partition_records, sum_records, unpack_records
from treekit.kernels.surrogate_splits import (
    SurrogateSearch,
    find_surrogates,
    route_by_surrogates,
)
from treekit.kernels.thresholds import find_last_code, place_threshold

# ---------------------------------------------------------------- records

NODE_DTYPE = np.dtype(
    [
        ("kind", np.int32),
        ("feature", np.int32),
        ("first_child", np.int32),
        ("n_children", np.int32),
        ("missing", np.int32),
        ("depth", np.int32),
        ("cut", np.int64),
        ("after", np.int64),
        ("first_entry", np.int64),
        ("n_entries", np.int64),
        ("begin", np.int64),
        ("end", np.int64),
        ("held_begin", np.int64),
        ("held_end", np.int64),
        ("threshold", np.float64),
        ("weight", np.float64),
        ("gain", np.float64),
        ("priority", np.float64),
        ("seed", np.uint64),
    ],
    align=True,
)
"""A node during growth.

`begin`, `end` delimit its training rows; `held_begin`, `held_end` its held-out rows.
`first_entry`, `n_entries` locate its slice of the pool of entries.  `cut`, `after` are as
in `treekit.kernels.axis_splits`.  `seed` starts its random draws; it depends on the
tree's seed and the path to the node.
"""


class GrowthArrays(NamedTuple):
    """Arrays of a tree during growth; only the first n rows of those of nodes are used.

    Attributes
    ----------
    nodes : (capacity,) `NODE_DTYPE`
    stats, held_stats : (capacity, S) float64
        S statistics of the training rows and of the held-out rows of each node.
    entries : (pool,) int32
        A slice per node: for a split by categories, pairs of a category and its branch; for
        an oblique split, pairs of a column and the bits of its weight; for a split into
        intervals, the codes of its cuts.
    waiting : (capacity,) int64
        Stack or heap of the nodes that have not been processed.
    bounds : (capacity, 2) float64
        Lowest and highest allowed prediction of each node; (1, 2) without monotonic constraints.
    surrogates : (surrogates,) `treekit.kernels.surrogate_splits.SURROGATE_DTYPE`, or None
        Surrogate splits, if the tree has them.
    surrogate_levels : (levels,) int32, or None
        Branches of the categories of surrogate splits.
    """

    nodes: npt.NDArray[np.void]
    stats: npt.NDArray[np.float64]
    held_stats: npt.NDArray[np.float64]
    entries: npt.NDArray[np.int32]
    waiting: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.float64]
    surrogates: npt.NDArray[np.void] | None = None
    surrogate_levels: npt.NDArray[np.int32] | None = None


class Sample(NamedTuple):
    """Training and held-out rows of a tree, with the tables of their codes.

    Attributes
    ----------
    table, held_table : Table
        Columns of the training rows, and of the held-out rows: the same table, or another
        one whose numeric columns have codes of their own.
    flat, held_flat : (columns * rows,) unsigned
        Codes of the tables as one dimension.
    rows, held : Rows
        Permuted into leaf order, except rows that move as records.
    spare : Rows
        Working memory as long as the longer of those that are permuted.
    quantile : float or None
        Quantile level of a rank target; None = additive statistics.
    """

    table: Table
    held_table: Table
    flat: npt.NDArray[np.uint8]
    held_flat: npt.NDArray[np.uint8]
    rows: Rows
    held: Rows
    spare: Rows
    quantile: float | None


# ---------------------------------------------------------------- growth


class SideColumns(NamedTuple):
    """Columns of branches, for oblique splits: codes 0 and 1, and 2 for missing.

    Attributes
    ----------
    sides, held_sides : (all rows,) of the type of codes
        Of the training table, and of the held-out table.
    """

    sides: npt.NDArray[np.uint8]
    held_sides: npt.NDArray[np.uint8]


class RareParts(NamedTuple):
    """Inputs of rarely used settings; those of a setting that is off are empty.

    Attributes
    ----------
    steps : (columns of ``Rows.values``,) float64
        For fractional instances: rows with a missing value go down every branch, with a share
        of their weight each.  Statistics are multiples of these steps.
    surrogates : SurrogateSearch
        Settings of surrogate splits; ``most`` is 0 if they are off.
    nest : (`MAX_PENDING`,) int64
        Working memory for splits of a column into several intervals.
    sums : SideColumns
        Working memory for oblique splits.
    """

    steps: npt.NDArray[np.float64]
    surrogates: SurrogateSearch
    nest: npt.NDArray[np.int64]
    sums: SideColumns


class Branches(NamedTuple):
    """Branches of the node whose rows are partitioned.

    Attributes
    ----------
    count : int
    offsets, held_offsets : (count + 1 or more,) int64
        Where the training rows and the held-out rows of each branch begin, and the last ones end.
    """

    count: int
    offsets: npt.NDArray[np.int64]
    held_offsets: npt.NDArray[np.int64]


@kernel
def grow_nodes(sample, records, arrays, rules, rare, search, scratch):
    """Grow one tree.

    Depth-first, a node waits on a stack until it is searched for a split and its rows are
    partitioned among its children.  Best-first (`max_leaves`), nodes are searched when they are
    created, and those with a split wait on a heap.

    Parameters
    ----------
    sample : Sample
    records : Records or None
        The training rows, if they move as records: ``sample.rows`` then has the numbers from 0 on,
        and receives the cells and statistics of one node at a time.
    arrays : GrowthArrays
        Arrays to grow in, of which the root's node is zeroed; replaced by longer ones when full.
    rules : GrowthRules
    rare : RareParts or None
        None = the training needs none of them.
    search : SplitSearch
    scratch : Scratch

    Returns
    -------
    GrowthArrays, n, status
        Status 0; or the reason why growth stopped, as in `treekit.kernels.records`,
        and n is the node where it stopped.
    """
    sample, scratch = borrow_arrays(sample), borrow_arrays(scratch)
    limits, quantile = rules.limits, sample.quantile
    # Arrays that grow have an owner, which is returned, and a borrowed view to work on.
    grown, tree = arrays, borrow_arrays(arrays)
    best_first = limits.max_leaves > 0
    split, n_waiting = scratch.split[0], 0
    tops = np.full(2, np.int64(-1))
    if best_first:
        tops[0], tops[1] = len(sample.rows.ids), len(sample.held.ids)
    # Typed: numba compiles a kernel again for a literal argument.
    zero, n = np.int64(0), np.int64(1)
    fresh, used, leaves, n_surrogates = zero, zero, n, zero
    # The nest being expanded: its pending tests, its root, and nodes and surrogates before it.
    n_nested, nest_root, n_before, surrogates_before = 0, 0, 0, 0
    _make_root(tree, sample, scratch.state)
    while True:
        within, opened = n_nested > 0, np.int64(-1)
        first, last = fresh, n
        if within:
            last = fresh  # there is no search inside a nest
        elif not best_first:
            for node in range(fresh, n):
                tree.waiting[np.uint64(n_waiting)] = node
                n_waiting += 1
            if n_waiting == 0:
                break
            n_waiting -= 1
            first = tree.waiting[np.uint64(n_waiting)]
            last = first + 1
        if not within:
            fresh = n
        for node in range(first, last):
            if is_leaf(node, tree, sample.rows, limits, rare):
                continue
            this = tree.nodes[np.uint64(node)]
            begin, end = this.begin, this.end
            if records is not None:
                unpack_records(records, begin, end, sample.rows.cells, sample.rows.values)
            if len(sample.rows.cells) == 0:
                if has_equal_values(sample.rows.values, begin, end, limits.noise, quantile):
                    continue
            rounding = limits.noise * (end - begin)
            kind = search_split(node, tree, sample, rules, rounding, search, scratch)
            if kind < 0:
                return grown, node, kind
            if kind == 0:
                continue
            most = used + 2 * split.levels
            if most > len(tree.entries):
                grown = extend_entries(grown, most)
                tree = borrow_arrays(grown)
            used = write_split(node, tree, used, scratch.levels, split)
            opened = np.int64(node)
            if best_first:
                tree.waiting[np.uint64(n_waiting)] = node
                n_waiting += 1
                sift_up(tree.waiting, n_waiting, tree.nodes)
        if within:
            n_nested -= 1
            if rare is not None:
                opened = rare.nest[np.uint64(n_nested)]
        elif best_first:
            if n_waiting == 0:
                break
            n_waiting -= 1
            opened = _take_largest(tree.nodes, tree.waiting, n_waiting)
        if opened < 0:
            continue
        node = opened
        n_branches = np.int64(tree.nodes[np.uint64(node)].n_children)
        added = 0 if within else n_branches - 1
        if best_first and leaves + added > limits.max_leaves:
            make_leaf(tree.nodes, node)
            continue
        if rare is not None:
            if len(rare.nest) > 0:
                if not within:
                    nest_root, n_before, surrogates_before = np.int64(node), n, n_surrogates
                cuts = make_next_test(tree.nodes, node, tree.entries)
                n_branches = np.int64(tree.nodes[np.uint64(node)].n_children)
        branches = Branches(
            n_branches, borrow_row(scratch.offsets, 0), borrow_row(scratch.offsets, 1)
        )
        if n + n_branches > len(tree.nodes):
            grown = extend_nodes(grown, max(2 * len(tree.nodes), n + n_branches))
            tree = borrow_arrays(grown)
        routes = _make_routes(node, tree, sample, rules.splits, rare, scratch)
        is_divided = False
        if rare is not None:
            if rare.surrogates.most > 0 and tree.nodes[np.uint64(node)].kind <= SUBSET:
                grown, n_surrogates, routes = _add_surrogates(
                    node, grown, n_surrogates, routes, sample, rules.splits, rare.surrogates,
                    scratch,
                )  # fmt: skip
            if len(rare.steps) > 0:
                is_divided = True
                sample = _divide_node(
                    node, tree, sample, routes, branches, rare.steps,
                    tree.waiting[:n_waiting], scratch.work[0], tops,
                )  # fmt: skip
        if not is_divided:
            _partition_node(node, tree, sample, records, routes, branches, scratch.work[0])
        if _make_children(
            node, tree, n, branches, within, sample, records, is_divided, rules.splits
        ):
            return grown, node, np.int64(BAD_SPLIT)
        if len(tree.bounds) > 1:
            bound_children(node, tree, n, n_branches, scratch.offers)
        if rare is not None:
            if len(rare.nest) > 0:
                n_nested = pass_cuts_down(tree.nodes, node, cuts, rare.nest, n_nested)
            if n_nested > 0 or within:
                n += n_branches
                leaves += added
                if n_nested == 0 and rules.use_before:
                    root, parts, held_parts = collect_nest_stats(tree, nest_root, n - n_before)
                    if not rules.before(tree.stats[root], parts, tree.held_stats[root], held_parts):
                        leaves -= len(parts) - 1
                        n, n_surrogates = n_before, surrogates_before
                        make_leaf(tree.nodes, nest_root)
                continue
        if rules.use_before and not rules.before(
            tree.stats[np.uint64(node)],
            tree.stats[n : n + n_branches],
            tree.held_stats[np.uint64(node)],
            tree.held_stats[n : n + n_branches],
        ):
            make_leaf(tree.nodes, node)
            continue
        n += n_branches
        leaves += n_branches - 1
    if rare is not None:
        grown = _replace_surrogates(grown, grown.surrogates[:n_surrogates], grown.surrogate_levels)
    return grown, n, np.int64(0)


@inlined
def _make_root(tree, sample, state):
    """Sum the rows of the root."""
    zero, first, quantile = np.uint64(0), np.int64(0), sample.quantile
    rows, held, root = sample.rows, sample.held, tree.nodes[zero]
    root.end, root.held_end = len(rows.ids), len(held.ids)
    root.seed = state[zero]
    root.weight = sum_rows(rows, first, len(rows.ids), tree.stats[zero], quantile)
    sum_held_out_rows(held, first, len(held.ids), tree.stats[zero], tree.held_stats[zero], quantile)


# ---------------------------------------------------------------- open a node


@llvm_inlined
def is_leaf(node, tree, rows, limits, rare):
    """Check whether a node stays a leaf by its depth or weight, or because it has a single class.

    A test inside a nest, which has its split already, counts as a leaf here.
    """
    this, stats = tree.nodes[np.uint64(node)], tree.stats[np.uint64(node)]
    negligible = 0.0  # weight of other classes
    if rare is not None:
        if len(rare.nest) > 0 and this.kind != 0:
            return True
        if len(rare.steps) > 0:
            negligible = 1e-6 * limits.min_weight_leaf
    begin, end = this.begin, this.end
    min_split = max(limits.min_weight_split, 2.0 * limits.min_weight_leaf)
    if limits.max_depth >= 0 and this.depth >= limits.max_depth:
        return True
    if this.weight < min_split or end - begin < 2:
        return True
    if len(rows.cells) == 0:
        return False
    total, largest = 0.0, 0.0
    for k in range(np.uint64(len(stats))):
        total += stats[k]
        largest = max(largest, stats[k])
    return total - largest <= negligible


@kernel
def has_equal_values(values, begin, end, noise, quantile):
    """Check whether all values of a dense target may be one, of which they differ by rounding."""
    zero, one = np.uint64(0), np.uint64(1)
    first = np.uint64(begin)
    if quantile is not None:  # rows are in ascending order
        return values[first, one] == values[np.uint64(end) - one, one]
    for k in range(one, np.uint64(values.shape[1])):
        low, high = -np.inf, np.inf
        for i in range(first, np.uint64(end)):
            low = max(low, (values[i, k] - noise) / values[i, zero])
            high = min(high, (values[i, k] + noise) / values[i, zero])
            if low > high:
                return False
    return True


# ---------------------------------------------------------------- search for a split


@llvm_inlined
def search_split(node, tree, sample, rules, rounding, search, scratch):
    """Search for the best split of a node; return its kind, 0 = none, negative = an error.

    `sample` is a `Sample`, or `treekit.distributed.kernels.levels.CountedNodes`; `rounding`
    bounds the rounding error of the node's dense statistics.
    """
    this, stats = tree.nodes[np.uint64(node)], tree.stats[np.uint64(node)]
    rows, best, two = sample.rows, scratch.best, np.uint64(2)
    begin, end, weight, s = this.begin, this.end, this.weight, np.uint64(len(stats))
    limits, criterion, quantile = rules.limits, search.criterion, sample.quantile
    impurity = criterion.impurity(stats)
    if not is_finite(impurity):
        for k in range(s):
            best[k + two] = stats[k]
        return np.int64(BAD_NUMBER)
    if impurity <= limits.min_impurity * (1.0 + TOLERANCE):
        return np.int64(0)
    if limits.min_variance >= 0.0:
        variance = compute_variance(rows.values, begin, end, stats)
        if variance <= limits.min_variance * (1.0 + TOLERANCE):
            return np.int64(0)
    if len(tree.bounds) > 1:
        best[s + two + np.uint64(LOWEST)] = tree.bounds[np.uint64(node), np.uint64(0)]
        best[s + two + np.uint64(HIGHEST)] = tree.bounds[np.uint64(node), np.uint64(1)]
    cells = rows.cells if len(rows.cells) == 0 else rows.cells[begin:end]
    node_rows = Rows(rows.ids[begin:end], cells, rows.values[begin:end])
    view = Node(
        sample.table, node_rows, stats, weight, impurity, np.int64(this.depth),
        limits.min_weight_leaf, limits.n_try, rules.splits, quantile,
    )  # fmt: skip
    split = scratch.split[0]
    split.kind = 0
    start_node_draws(scratch, this.seed, limits.n_try)
    _find_split(search.find, search.lanes, view, scratch, criterion, search.rng)
    if split.kind <= 0:
        return split.kind
    floor = max(1e-12 * impurity, _bound_rounding_gain(rounding / weight, quantile))
    # A negative min_gain also allows splits without a gain, which may be a rounding error below 0.
    least = max(limits.min_gain, floor) if limits.min_gain >= 0.0 else limits.min_gain - floor
    if not split.score > least:
        return np.int64(0)
    decrease = limits.min_decrease * (1.0 - TOLERANCE)
    if decrease > 0.0 and split.score * weight < decrease:
        return np.int64(0)
    this.priority = round_priority(split.score * weight)
    if limits.max_leaves > 0 and criterion.use_priority:
        node_priority = criterion.priority(stats)
        if not is_finite(node_priority):
            return np.int64(BAD_PRIORITY)
        this.priority = round_priority(node_priority)
    return split.kind


@llvm_inlined
def _find_split(find, lanes, node, scratch, criterion, rng):
    """Search for a split by `find` or, if that is None, in a plain table; see `SplitSearch`."""
    # Arguments of their own, not a record: numba drops the branch for None of an argument only.
    if find is None:
        search_plain_columns(node, scratch, criterion, lanes)
    else:
        find(node, scratch, criterion, rng, scratch.split)


@kernel
def _bound_rounding_gain(rounding, quantile):
    """Bound the gain from rounding errors: quadratic for squared errors, linear for losses."""
    if quantile is not None:
        return 4.0 * rounding
    return 4.0 * rounding * rounding


@inlined
def write_split(node, tree, used, levels, split):
    """Write a node's split; return the number of entries of the pool that are now used.

    `levels` holds the branch of each category, -1 = none, or the entries of another split.
    """
    this = tree.nodes[np.uint64(node)]
    this.kind, this.feature = split.kind, split.feature
    this.cut, this.after, this.threshold = split.cut, split.after, split.threshold
    this.missing, this.n_children, this.gain = split.missing, split.branches, split.score
    entries, first, one = tree.entries, np.uint64(used), np.uint64(1)
    end = first
    if split.kind in (SUBSET, MULTIWAY):
        for level in range(np.uint64(split.levels)):
            if levels[level] >= 0:
                entries[end], entries[end + one] = level, levels[level]
                end += np.uint64(2)
    else:
        for k in range(np.uint64(split.levels)):
            entries[first + k] = levels[k]
        end += np.uint64(split.levels)
    this.first_entry, this.n_entries = used, np.int64(end - first)
    return np.int64(end)


@inlined
def expand_branches(this, entries, n_levels, levels):
    """Fill `levels` with the branch of each category, -1 = none; return the filled part.

    It is empty if the node's split is not one by categories.
    """
    if this.kind not in (SUBSET, MULTIWAY):
        return levels[:0]
    for level in range(np.uint64(n_levels)):
        levels[level] = -1
    for k in range(np.uint64(this.first_entry), np.uint64(this.first_entry + this.n_entries), 2):
        levels[np.uint64(entries[k])] = entries[k + np.uint64(1)]
    return levels[:n_levels]


@inlined
def make_leaf(nodes, node):
    """Turn a node back into a leaf."""
    this = nodes[np.uint64(node)]
    this.kind = 0
    this.n_children = 0
    this.n_entries = 0
    this.gain = 0.0


# ---------------------------------------------------------------- longer arrays


@inlined
def extend_entries(grown, size):
    """Return the arrays with `size` entries of splits or more."""
    entries = extend_array(grown.entries, max(2 * len(grown.entries), size))
    return GrowthArrays(
        grown.nodes, grown.stats, grown.held_stats, entries, grown.waiting, grown.bounds,
        grown.surrogates, grown.surrogate_levels,
    )  # fmt: skip


@inlined
def extend_nodes(grown, size):
    """Return the arrays with room for `size` nodes."""
    bounds = grown.bounds if len(grown.bounds) == 1 else extend_rows(grown.bounds, size)
    return GrowthArrays(
        extend_array(grown.nodes, size), extend_rows(grown.stats, size),
        extend_rows(grown.held_stats, size), grown.entries, extend_array(grown.waiting, size),
        bounds, grown.surrogates, grown.surrogate_levels,
    )  # fmt: skip


@inlined
def _replace_surrogates(grown, surrogates, levels):
    """Return the arrays with other surrogates."""
    return GrowthArrays(
        grown.nodes, grown.stats, grown.held_stats, grown.entries, grown.waiting, grown.bounds,
        surrogates, levels,
    )  # fmt: skip


# ---------------------------------------------------------------- partition the rows


@inlined
def _make_routes(node, tree, sample, rules, rare, scratch):
    """Return the routes of the training and the held-out rows at the split of a node."""
    this, table, held_table = tree.nodes[np.uint64(node)], sample.table, sample.held_table
    feature, missing = np.uint64(this.feature), np.int64(this.missing)
    levels = expand_branches(this, tree.entries, np.int64(table.n_codes[feature]), scratch.levels)
    n_rows = np.uint64(table.codes.shape[1])
    place = choose_place(np.uint64(this.end - this.begin), n_rows, scratch)
    column = locate_column(table, sample.flat, scratch.lines, feature, place)
    by_column = np.uint64(0)
    held_column = locate_column(held_table, sample.held_flat, sample.held_flat, feature, by_column)
    cut = np.int64(-1) if this.kind == MISSING else np.int64(this.cut)
    held_cut = cut
    if len(sample.held.ids) > 0 and this.kind == THRESHOLD:
        after = this.after if rules.midpoints else this.cut + 1
        at = this.threshold
        if np.isnan(at):
            at = place_threshold(table, feature, this.cut, after, rules)
        held_cut = find_last_code(table, held_table, feature, this.cut, after, at)
    if rare is not None:
        if this.kind == OBLIQUE:
            sides, held_sides, bound = rare.sums.sides, rare.sums.held_sides, this.threshold
            held_begin, held_end = this.held_begin, this.held_end
            terms = tree.entries[this.first_entry : this.first_entry + this.n_entries]
            project_rows(table, terms, bound, sample.rows.ids, this.begin, this.end, sides)
            project_rows(
                held_table, terms, bound, sample.held.ids, held_begin, held_end, held_sides
            )
            return _make_side_route(sides, missing), _make_side_route(held_sides, missing)
    return Route(column, cut, missing, levels), Route(held_column, held_cut, missing, levels)


@inlined
def _make_side_route(sides, missing):
    """Return the route of a column of branches 0 and 1."""
    column = Column(sides, np.uint64(0), np.uint64(1), np.uint32(2))
    return Route(column, np.int64(0), missing, np.empty(0, np.int32))


@inlined
def _add_surrogates(node, grown, n_surrogates, routes, sample, rules, search, scratch):
    """Find the surrogates of a node's split, and return the routes by the split and by them."""
    this, table = grown.nodes[np.uint64(node)], sample.table
    route, held_route = routes
    surrogates, n, levels = find_surrogates(
        node, grown, n_surrogates, route, table, sample.rows, scratch, search
    )
    of_node = surrogates[n_surrogates:n]
    route_by_surrogates(
        table, table, route, rules, of_node, levels,
        sample.rows.ids[this.begin : this.end], search.routed,
    )  # fmt: skip
    route_by_surrogates(
        table, sample.held_table, held_route, rules, of_node, levels,
        sample.held.ids[this.held_begin : this.held_end], search.held_routed,
    )  # fmt: skip
    routes = (
        _make_side_route(search.routed[0], route.missing),
        _make_side_route(search.held_routed[0], route.missing),
    )
    return _replace_surrogates(grown, surrogates, levels), n, routes


@inlined
def _partition_node(node, tree, sample, records, routes, branches, branch_of):
    """Reorder the rows of a node by branch."""
    this, held, spare = tree.nodes[np.uint64(node)], sample.held, sample.spare
    route, held_route = routes
    count, offsets, held_offsets = branches
    if records is None:
        partition_rows(route, count, sample.rows, this.begin, this.end, branch_of, spare, offsets)
    else:
        partition_records(
            route, count, records, sample.rows.ids, this.begin, this.end, branch_of, offsets
        )
    if len(held.ids) > 0:
        begin, end = this.held_begin, this.held_end
        partition_rows(held_route, count, held, begin, end, branch_of, spare, held_offsets)


@inlined
def _divide_node(node, tree, sample, routes, branches, steps, waiting, branch_of, tops):
    """Reorder the fractional instances of a node; return the sample, in longer arrays if full."""
    this, rows, held, spare = tree.nodes[np.uint64(node)], sample.rows, sample.held, sample.spare
    route, held_route = routes
    begin, end, held_begin, held_end = this.begin, this.end, this.held_begin, this.held_end
    upto = np.empty(branches.count)
    lost = np.int64(0) if this.kind == MISSING else branches.count
    assign_branches(route, lost, rows.ids, begin, end, branch_of)
    compute_cumulative_shares(branch_of, rows.values, begin, end, upto)
    rows, spare = replace_by_children(
        branch_of, upto, steps, rows, begin, end, spare, branches.offsets,
        WaitingSlices(tree.nodes, waiting, False, tops),
    )  # fmt: skip
    if len(held.ids) > 0:
        assign_branches(held_route, lost, held.ids, held_begin, held_end, branch_of)
        held, spare = replace_by_children(
            branch_of, upto, steps, held, held_begin, held_end, spare, branches.held_offsets,
            WaitingSlices(tree.nodes, waiting, True, tops),
        )  # fmt: skip
    return Sample(
        sample.table, sample.held_table, sample.flat, sample.held_flat, rows, held, spare,
        sample.quantile,
    )  # fmt: skip


# ---------------------------------------------------------------- close a node


@inlined
def _make_children(node, tree, n, branches, within, sample, records, is_divided, rules):
    """Write the children of a node, from node `n` on; return whether one has no rows."""
    nodes, this = tree.nodes, tree.nodes[np.uint64(node)]
    count, offsets, held_offsets = branches
    quantile = sample.quantile
    this.first_child = n
    subtract = quantile is None and count == 2 and not is_divided
    empty = False
    for b in range(np.uint64(count)):
        at, after = np.uint64(n) + b, b + np.uint64(1)
        child = nodes[at]
        initialise_node(child, this.depth + (0 if within else 1), mix_bits(this.seed, b))
        child.begin, child.end = offsets[b], offsets[after]
        child.held_begin, child.held_end = held_offsets[b], held_offsets[after]
        if not subtract:
            child.weight = _sum_slice(sample.rows, records, child, tree.stats[at], quantile)
        if len(sample.held.ids) > 0:
            sum_held_out_rows(
                sample.held, child.held_begin, child.held_end, tree.stats[at],
                tree.held_stats[at], quantile,
            )  # fmt: skip
        else:
            for k in range(np.uint64(tree.held_stats.shape[1])):
                tree.held_stats[at, k] = 0.0
        may_be_empty = rules.empty_branches and this.kind == MULTIWAY
        empty = empty or (child.end == child.begin and not may_be_empty)
    if subtract:
        # Only the branch with fewer rows is summed: sums are exact, and so is the difference.
        few, many = np.uint64(n), np.uint64(n + 1)
        if nodes[few].end - nodes[few].begin > nodes[many].end - nodes[many].begin:
            few, many = many, few
        weight = _sum_slice(sample.rows, records, nodes[few], tree.stats[few], None)
        for k in range(np.uint64(tree.stats.shape[1])):
            tree.stats[many, k] = tree.stats[np.uint64(node), k] - tree.stats[few, k]
        nodes[few].weight, nodes[many].weight = weight, this.weight - weight
    return empty


@inlined
def initialise_node(node, depth, seed):
    """Initialise the memory of a node, as a leaf without rows."""
    node.kind, node.feature, node.first_child, node.n_children, node.missing = 0, 0, 0, 0, 0
    node.cut, node.after, node.first_entry, node.n_entries = 0, 0, 0, 0
    node.begin, node.end, node.held_begin, node.held_end = 0, 0, 0, 0
    node.threshold, node.weight, node.gain, node.priority = 0.0, 0.0, 0.0, 0.0
    node.depth, node.seed = depth, seed


@inlined
def _sum_slice(rows, records, node, stats, quantile):
    """Sum the statistics of the rows of a node; return their weight."""
    if records is None:
        return sum_rows(rows, node.begin, node.end, stats, quantile)
    n_values, has_cells = rows.values.shape[1], len(rows.cells) > 0
    return sum_records(records, node.begin, node.end, n_values, has_cells, stats)


@inlined
def bound_children(node, tree, n, n_branches, offers):
    """Write the allowed predictions of each child; ``offers[3]`` has the columns' constraints."""
    this, one = tree.nodes[np.uint64(node)], np.uint64(1)
    left, right = np.uint64(n), np.uint64(n + 1)
    propagate_bounds(
        tree.bounds,
        node,
        n,
        n_branches,
        offers[np.uint64(3), np.uint64(this.feature)] if this.kind == THRESHOLD else 0.0,
        tree.stats[left, one] / tree.nodes[left].weight,
        tree.stats[right, one] / tree.nodes[right].weight,
    )


# ---------------------------------------------------------------- arrays of a tree


class TreeArrays(NamedTuple):
    """The fields of a `treekit.model.tree.Tree` that its nodes have, (n,) each."""

    kind: npt.NDArray[np.uint8]
    feature: npt.NDArray[np.int32]
    first_child: npt.NDArray[np.int32]
    n_children: npt.NDArray[np.int32]
    missing: npt.NDArray[np.int32]
    weight: npt.NDArray[np.float64]
    gain: npt.NDArray[np.float64]
    threshold: npt.NDArray[np.float64]


def allocate_tree_arrays(n: int) -> TreeArrays:
    """Return uninitialised arrays of n nodes."""
    return TreeArrays(
        kind=np.empty(n, np.uint8),
        feature=np.empty(n, np.int32),
        first_child=np.empty(n, np.int32),
        n_children=np.empty(n, np.int32),
        missing=np.empty(n, np.int32),
        weight=np.empty(n),
        gain=np.empty(n),
        threshold=np.empty(n),
    )


N_BY_CATEGORY, N_OBLIQUE, N_EMPTY, N_NODE_COUNTS = range(4)
"""Indices in `counts`: nodes split by categories, oblique ones, those of weight 0; their number."""


@kernel
def write_tree_arrays(nodes, value_start, cut_thresholds, single, arrays, counts):
    """Write the fields of the nodes to the arrays of a tree.

    Parameters
    ----------
    nodes : (n,) `NODE_DTYPE`
    value_start : (features,) int64
        Index in `cut_thresholds` of the first code of each column.
    cut_thresholds : (codes of all columns,) float64
        Threshold above each code.  If empty, thresholds that the splitter did not set are NaN.
    single : bool
        Whether thresholds that the splitter set are rounded down to float32.
    arrays : TreeArrays
        Receives the fields.
    counts : (`N_NODE_COUNTS`,) int64
        Receives numbers of nodes; see `N_BY_CATEGORY`.
    """
    counts[:] = 0
    for i in range(np.uint64(len(nodes))):
        node = nodes[i]
        kind, threshold = node.kind, np.nan
        is_leaf = kind == 0
        if kind == OBLIQUE:
            threshold = node.threshold
        elif kind == THRESHOLD and not np.isnan(node.threshold):
            threshold = _round_down(node.threshold, single)
        elif kind == THRESHOLD and len(cut_thresholds) > 0:
            start = value_start[np.uint64(node.feature)]
            threshold = cut_thresholds[np.uint64(start + node.cut)]
        counts[np.uint64(N_OBLIQUE)] += kind == OBLIQUE
        counts[np.uint64(N_BY_CATEGORY)] += kind in (SUBSET, MULTIWAY)
        counts[np.uint64(N_EMPTY)] += node.weight == 0.0
        arrays.kind[i] = kind
        arrays.feature[i] = -1 if is_leaf else node.feature
        arrays.first_child[i] = -1 if is_leaf else node.first_child
        arrays.n_children[i] = 0 if is_leaf else node.n_children
        arrays.missing[i] = 0 if is_leaf else node.missing
        arrays.weight[i] = node.weight
        arrays.gain[i] = 0.0 if is_leaf else node.gain
        arrays.threshold[i] = threshold


@inlined
def _round_down(threshold, single):
    """Return the largest float32 (if `single`) or float64 up to a threshold; 0.0 for -0.0."""
    if single:
        nearest = np.float32(threshold)
        if np.float64(nearest) > threshold:
            nearest = np.nextafter(nearest, np.float32(-np.inf))
        threshold = np.float64(nearest)
    return threshold + 0.0


# ---------------------------------------------------------------- waiting nodes
# A stack, or for best-first growth a heap with the largest priority on top.


@inlined
def _take_largest(nodes, waiting, n_waiting):
    """Return the first node of the heap, in which `n_waiting` nodes remain."""
    node, waiting[np.uint64(0)] = waiting[np.uint64(0)], waiting[np.uint64(n_waiting)]
    sift_down(waiting, n_waiting, nodes)
    return node


@inlined
def round_priority(number):
    """Round to 31 bits (Veltkamp 1968), so that priorities that differ by rounding are equal."""
    shifted = number * 4194305.0
    return shifted - (shifted - number)


@inlined
def sift_up(heap, size, nodes):
    """Move the last of `size` heap entries up to its place."""
    one = np.uint64(1)
    at = np.uint64(size) - one
    while at > np.uint64(0):
        above = (at - one) >> one
        if not _is_before(nodes, heap[at], heap[above]):
            break
        heap[at], heap[above] = heap[above], heap[at]
        at = above


@inlined
def sift_down(heap, size, nodes):
    """Move the first of `size` heap entries down to its place."""
    one, end = np.uint64(1), np.uint64(size)
    at = np.uint64(0)
    while True:
        best = at
        first = (at << one) + one
        for child in range(first, min(first + np.uint64(2), end)):
            if _is_before(nodes, heap[child], heap[best]):
                best = child
        if best == at:
            return
        heap[at], heap[best] = heap[best], heap[at]
        at = best


@inlined
def _is_before(nodes, a, b):
    """Check whether node a precedes node b: larger priority first, then lower number."""
    ours, theirs = nodes[np.uint64(a)].priority, nodes[np.uint64(b)].priority
    return ours > theirs or (ours == theirs and a < b)


# ---------------------------------------------------------------- interval splits
# A split of a numeric column into several intervals, as a nest of binary tests.
#
# The tree stores such a split as thresholds: the middle cut first, then those on either
# side of it, so that everything that reads trees (predictions, rules, every export)
# supports it.  The tests below the first are fixed: no search takes place there, they
# have no gain of their own, and the nest counts as one level of depth.

INTERVALS = 6
"""Kind of a node that will be split into intervals; no finished tree has such nodes.

Its cuts, codes in ascending order, are in the pool.  If there is one more branch than
intervals, branch 0 is for missing values; otherwise `missing` is the interval of missing
values, counted from the node's first.
"""

MAX_PENDING = 64
"""Maximum number of tests that wait while a nest is expanded: one per level, and cuts are halved.
"""


class Cuts(NamedTuple):
    """The cuts of a node that is split into intervals, before it is turned into a test.

    Attributes
    ----------
    start, count : int
        Slice of the pool; a count of 0 if the node is not split into intervals.
    below : int
        Cuts left for branch 0; -1 if that is the branch of missing values.
    missing : int
        Interval of the missing values.
    """

    start: int
    count: int
    below: int
    missing: int


@kernel
def make_next_test(nodes, node, pool):
    """Turn an interval split into a binary test: for missing values, else at the middle cut.

    Returns
    -------
    Cuts
    """
    this = nodes[np.uint64(node)]
    start, count, missing = this.first_entry, np.int64(this.n_entries), np.int64(this.missing)
    if this.kind != INTERVALS:
        return Cuts(start, np.int64(0), np.int64(-1), missing)
    apart = this.n_children > count + 1
    this.n_children, this.n_entries = 2, 0
    if apart:
        this.kind, this.missing = MISSING, 0
        return Cuts(start, count, np.int64(-1), missing)
    middle = count // 2
    this.kind = THRESHOLD
    this.cut = pool[np.uint64(start + middle)]
    this.after = this.cut + 1
    this.missing = 0 if missing <= middle else 1
    return Cuts(start, count, middle, missing)


@kernel
def pass_cuts_down(nodes, node, cuts, pending, n_pending):
    """Pass the remaining cuts to the children of a test made by `make_next_test`.

    Parameters
    ----------
    cuts : Cuts
    pending : (`MAX_PENDING`,) int64
        Output: the children that have cuts, from `n_pending` on.

    Returns
    -------
    int
        Number of pending nodes.
    """
    if cuts.count == 0:
        return n_pending
    this = nodes[np.uint64(node)]
    for branch in range(2):
        start, count, missing = cuts.start, cuts.count, np.int64(0)
        if cuts.below >= 0:
            start = cuts.start if branch == 0 else cuts.start + cuts.below + 1
            count = cuts.below if branch == 0 else cuts.count - cuts.below - 1
            missing = cuts.missing if branch == 0 else cuts.missing - cuts.below - 1
        if count == 0 or (cuts.below < 0 and branch == 0):
            continue
        number = np.int64(this.first_child) + branch
        child = nodes[np.uint64(number)]
        child.kind, child.feature = INTERVALS, this.feature
        child.first_entry, child.n_entries, child.n_children = start, count, count + 1
        child.missing, child.threshold = missing, np.nan
        pending[np.uint64(n_pending)] = number
        n_pending += 1
    return n_pending


@kernel
def collect_nest_stats(tree, root, size):
    """Collect the statistics of the branches of a nest, in the order of its intervals.

    Parameters
    ----------
    tree : GrowthArrays
    size : int
        Nodes of the nest below its root; ``size // 2 + 1`` of them are branches.

    Returns
    -------
    root : uint64
    (branches, S) float64, twice
        For the training rows and for the held-out rows.
    """
    branches = size // 2 + 1
    branch_stats = np.empty((branches, tree.stats.shape[1]))
    held_branch_stats = np.empty((branches, tree.stats.shape[1]))
    waiting = np.empty(MAX_PENDING, np.int64)
    waiting[0] = root
    n_waiting, branch = 1, 0
    while n_waiting > 0:
        n_waiting -= 1
        node = waiting[np.uint64(n_waiting)]
        if node != root and tree.nodes[np.uint64(node)].kind == 0:
            branch_stats[np.uint64(branch)] = tree.stats[np.uint64(node)]
            held_branch_stats[np.uint64(branch)] = tree.held_stats[np.uint64(node)]
            branch += 1
        else:
            for child in range(2):  # the first child on top
                number = np.int64(tree.nodes[np.uint64(node)].first_child) + 1 - child
                waiting[np.uint64(n_waiting)] = number
                n_waiting += 1
    return np.uint64(root), branch_stats, held_branch_stats
