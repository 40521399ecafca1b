"""Growth of one tree: the loop over its nodes.

Not recursive; depth and rows are limited by memory only (row numbers are uint32).
Depth-first with a stack, or best-first with a heap if the number of leaves is
limited.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import inlined, kernel
from treekit.kernels.function_pointers import borrow_array
from treekit.kernels.monotonic import LOWEST, propagate_bounds
from treekit.kernels.node_statistics import is_sparse_node, locate_column
from treekit.kernels.oblique_splits import project_rows
from treekit.kernels.partition_rows import (
    assign_branches,
    compute_cumulative_shares,
    compute_variance,
    extend_array,
    extend_rows,
    find_last_code,
    find_value_below,
    partition_rows,
    replace_by_children,
    sum_held_out_rows,
    sum_rows,
    sum_two_branches,
)
from treekit.kernels.records import (
    BAD_NUMBER,
    BAD_PRIORITY,
    BAD_SPLIT,
    BRANCHES,
    CUT,
    FEATURE,
    KIND,
    LEVELS,
    MISSING_BRANCH,
    N_NUMBERS,
    N_OUT,
    NEXT_CODE,
    SCORE,
    THRESHOLD_VALUE,
    TOLERANCE,
    Node,
    Rows,
    Scratch,
    Table,
    is_finite,
)
from treekit.kernels.surrogate_splits import find_surrogates, route_by_surrogates

# ---------------------------------------------------------------- growth

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
        ("level_start", np.int64),
        ("n_levels", np.int64),
        ("begin", np.int64),
        ("end", np.int64),
        ("held_begin", np.int64),
        ("held_end", np.int64),
        ("threshold", np.float64),
        ("weight", np.float64),
        ("gain", np.float64),
        ("priority", np.float64),
    ],
    align=True,
)
"""A node during growth.

`begin`, `end` delimit its slice of the training rows, `held_begin`, `held_end` that of
the held-out rows; `cut`, `after` as in `treekit.kernels.axis_splits`.
"""


class GrowthArrays(NamedTuple):
    """Arrays of a growing or grown tree; they may be longer than its n nodes.

    Attributes
    ----------
    nodes : (capacity,) NODE
    stats, held_stats : (capacity, S) float64
    levels : (pool,) int32
        Branches of categories, a slice per node.
    surrogates : (surrogates,) SURROGATE, or None
    surrogate_levels : (pool,) int32, or None
        Surrogates, if trees have them, and the branches of their categories.
    """

    nodes: npt.NDArray[np.void]
    stats: npt.NDArray[np.float64]
    held_stats: npt.NDArray[np.float64]
    levels: npt.NDArray[np.int32]
    surrogates: npt.NDArray[np.void] | None = None
    surrogate_levels: npt.NDArray[np.int32] | None = None


@kernel
def grow_nodes(
    table,
    rows,
    held_table,
    held,
    spare,
    room,
    limits,
    noise,
    quantile,
    steps,
    surrogates,
    nest,
    sums,
    ways,
    midpoints,
    find,
    scan,
    many,
    key,
    choose,
    penalty,
    n_keys,
    use_choose,
    use_penalty,
    score,
    impurity,
    priority,
    use_priority,
    before,
    use_before,
    rng,
    scratch,
):
    """Grow one tree; `rows` and `held` are permuted into leaf order.

    Every node is evaluated when it is created; a node with a split waits, on a
    stack or (`max_leaves`) a heap, until it is expanded.

    Parameters
    ----------
    held_table : Table
        Columns of the held-out rows: `table` itself, or another table whose numeric
        columns have codes of their own.
    spare : Rows
        Working memory as long as the longer of `rows` and `held`.
    room : Grown
        Zeroed arrays to grow in; replaced by longer ones when full.
    noise : float
        Bound on the rounding error of one row's dense statistics, 0 if they are exact.
    quantile : float or None
        Quantile level of a rank target; None = additive statistics, and the code for
        ranks is not compiled.
    steps : (columns of values,) float64 or None
        Fixed-point steps of the statistics, for fractional instances: rows that go down
        every branch of a split whose value they miss; None = rows go one way, and the
        code for fractional instances is not compiled.
    surrogates : SurrogateSearch or None
        Settings of surrogate splits; None = their code is not compiled.
    nest : (cuts,) int64, or None
        Working memory for splits into intervals (`treekit.kernels.grow_tree`); None =
        the splitter makes none, and their code is not compiled.
    sums : (0,) array, or None
        None = the splitter makes no oblique splits, and their code is not compiled.
    ways : SplitRules
    midpoints : bool
        Thresholds will be the midpoint to the next value present in the node instead
        of the next value of the table.

    Returns
    -------
    Grown, n, status
        Status 0; or the reason why growth stopped, as in `treekit.kernels.records`,
        and n is the node where it stopped.
    """
    zero, one = np.uint64(0), np.uint64(1)
    ids, cells, values = borrow_array(rows.ids), borrow_array(rows.cells), borrow_array(rows.values)
    held_ids, held_cells, held_values = held.ids, held.cells, held.values
    ids2, cells2, values2 = (
        borrow_array(spare.ids),
        borrow_array(spare.cells),
        borrow_array(spare.values),
    )
    codes, n_codes = borrow_array(table.codes), borrow_array(table.n_codes)
    table = Table(
        codes,
        n_codes,
        borrow_array(table.nominal),
        borrow_array(table.value_start),
        borrow_array(table.low),
        borrow_array(table.high),
    )
    scratch = _borrow_scratch(scratch)
    # Arrays that grow have an owner, which is returned, and a borrowed view to work on.
    all_nodes, all_stats, all_held, all_levels = (
        room.nodes,
        room.stats,
        room.held_stats,
        room.levels,
    )
    n_rows, n_features = np.uint64(codes.shape[1]), np.uint64(codes.shape[0])
    all_codes, lines = borrow_array(codes.reshape(codes.size)), scratch.lines
    held_codes = borrow_array(held_table.codes)
    n_held, held_codes = np.uint64(held_codes.shape[1]), held_codes.reshape(held_codes.size)
    nodes, stats, held_stats = (
        borrow_array(all_nodes),
        borrow_array(all_stats),
        borrow_array(all_held),
    )
    pool = borrow_array(all_levels)
    found, replies, n_found = room.surrogates, room.surrogate_levels, 0
    max_depth, max_leaves = limits.max_depth, limits.max_leaves
    min_split = max(limits.min_weight_split, 2.0 * limits.min_weight_leaf)
    min_leaf, min_gain, n_try = limits.min_weight_leaf, limits.min_gain, limits.n_try
    min_impurity = limits.min_impurity * (1.0 + TOLERANCE)
    min_variance = limits.min_variance * (1.0 + TOLERANCE)
    found_levels, branch_of = scratch.levels, scratch.work[0]
    dense = len(cells) == 0
    least = 0.0  # weight up to which the other classes of a pure node are negligible
    if steps is not None:
        least = 1e-6 * min_leaf
    top, held_top = np.int64(-1), np.int64(-1)
    if max_leaves > 0:
        top, held_top = np.int64(len(ids)), np.int64(len(held_ids))
    allow_empty, value_below = ways.empty_branches, ways.value_below
    out = np.zeros(N_OUT, np.int64)
    numbers = np.zeros(N_NUMBERS, np.float64)
    ends = np.zeros(2, np.int64)
    held_ends = np.zeros(2, np.int64)
    waiting = np.zeros(64, np.int64)
    sides, held_sides, two = np.empty(0, codes.dtype), np.empty(0, codes.dtype), np.uint32(2)
    n, fresh, used, leaves, n_waiting = 1, 0, 0, 1, 0
    # The nest being expanded: its pending tests, its root, and nodes and surrogates before it.
    n_nested, nest_root, n_before, found_before = 0, 0, 0, 0
    signs, node_bounds = scratch.offers[np.uint64(3)], scratch.best[stats.shape[1] + 2 + LOWEST :]
    bounded = False
    for j in range(np.uint64(len(signs))):
        bounded = bounded or signs[j] != 0.0
    bounds = np.empty((len(nodes) if bounded else 1, 2))
    bounds[zero, zero], bounds[zero, np.uint64(1)] = -np.inf, np.inf
    root = nodes[zero]
    root.end, root.held_end = len(ids), len(held_ids)
    root.weight = sum_rows(cells, values, 0, len(ids), stats[zero], quantile)
    sum_held_out_rows(
        held_cells, held_values, 0, len(held_ids), stats[zero], held_stats[zero], quantile
    )
    while True:
        last = n
        if nest is not None:
            last = fresh if n_nested > 0 else n
        for node in range(fresh, last):
            this = nodes[np.uint64(node)]
            if nest is not None:
                if this.kind != 0:
                    continue  # a test inside a nest
            own_stats = stats[np.uint64(node)]
            begin, end, weight = this.begin, this.end, this.weight
            if (
                (max_depth >= 0 and this.depth >= max_depth)
                or weight < min_split
                or end - begin < 2
                or _is_pure(own_stats, values, begin, end, dense, noise, least, quantile)
            ):
                continue
            own = impurity(own_stats)
            if not is_finite(own):
                for k in range(np.uint64(len(own_stats))):
                    scratch.best[k + np.uint64(2)] = own_stats[k]
                return (
                    GrowthArrays(all_nodes, all_stats, all_held, all_levels, found, replies),
                    node,
                    np.int64(BAD_NUMBER),
                )
            if own <= min_impurity or (
                min_variance >= 0.0
                and compute_variance(values, begin, end, own_stats) <= min_variance
            ):
                continue
            node_view = Node(
                table,
                Rows(ids[begin:end], cells if dense else cells[begin:end], values[begin:end]),
                own_stats,
                weight,
                own,
                np.int64(this.depth),
                min_leaf,
                n_try,
                ways,
                quantile,
            )
            if bounded:
                node_bounds[zero] = bounds[np.uint64(node), zero]
                node_bounds[np.uint64(1)] = bounds[np.uint64(node), np.uint64(1)]
            out[KIND] = 0
            find(
                node_view,
                scratch,
                scan,
                many,
                key,
                choose,
                penalty,
                n_keys,
                use_choose,
                use_penalty,
                score,
                rng,
                out,
                numbers,
            )
            if out[KIND] < 0:
                return (
                    GrowthArrays(all_nodes, all_stats, all_held, all_levels, found, replies),
                    node,
                    out[KIND],
                )
            floor = max(1e-12 * own, _bound_rounding_gain(noise * (end - begin) / weight, quantile))
            # A negative min_gain allows splits without a gain, too.
            if out[KIND] == 0 or not numbers[SCORE] > (
                max(min_gain, floor) if min_gain >= 0.0 else min_gain
            ):
                continue
            levels = out[LEVELS]
            if used + levels > len(pool):
                all_levels = extend_array(all_levels, max(2 * len(pool), used + levels))
                pool = borrow_array(all_levels)
            for level in range(np.uint64(levels)):
                pool[np.uint64(used) + level] = found_levels[level]
            this.kind = out[KIND]
            this.feature = out[FEATURE]
            this.cut = out[CUT]
            this.after = out[NEXT_CODE]
            this.missing = out[MISSING_BRANCH]
            this.n_children = out[BRANCHES]
            this.level_start = used
            this.n_levels = levels
            this.gain = numbers[SCORE]
            this.threshold = numbers[THRESHOLD_VALUE]
            this.priority = round_priority(numbers[SCORE] * weight)
            used += levels
            if n_waiting == len(waiting):
                waiting = extend_array(waiting, 2 * n_waiting)
            waiting[np.uint64(n_waiting)] = node
            n_waiting += 1
            if max_leaves > 0:
                if use_priority:
                    node_priority = priority(own_stats)
                    if not is_finite(node_priority):
                        return (
                            GrowthArrays(
                                all_nodes, all_stats, all_held, all_levels, found, replies
                            ),
                            node,
                            np.int64(BAD_PRIORITY),
                        )
                    this.priority = round_priority(node_priority)
                sift_up(waiting, n_waiting, nodes)
        fresh = last
        within = n_nested > 0
        if within:
            n_nested -= 1
            if nest is not None:
                node = nest[np.uint64(n_nested)]
        else:
            if n_waiting == 0:
                break
            n_waiting -= 1
            node = waiting[np.uint64(n_waiting)]
            if max_leaves > 0:
                node, waiting[zero] = waiting[zero], node
                sift_down(waiting, n_waiting, nodes)
        branches = np.int64(nodes[np.uint64(node)].n_children)
        opened = 0 if within else branches - 1
        if max_leaves > 0 and leaves + opened > max_leaves:
            _make_leaf(nodes, node)
            continue
        first_cut, cuts, below, lost_in = np.int64(0), np.int64(0), np.int64(-1), np.int64(0)
        if nest is not None:
            if not within:
                nest_root, n_before, found_before = np.int64(node), n, n_found
            if nodes[np.uint64(node)].kind == INTERVALS:
                this = nodes[np.uint64(node)]
                first_cut, cuts, lost_in = this.level_start, this.n_levels, np.int64(this.missing)
                below = make_next_test(nodes, node, pool)
                branches = np.int64(2)
        if branches > len(ends):
            ends = np.zeros(2 * branches, np.int64)
            held_ends = np.zeros(2 * branches, np.int64)
        if n + branches > len(nodes):
            capacity = max(2 * len(nodes), n + branches)
            all_nodes = extend_array(all_nodes, capacity)
            all_stats = extend_rows(all_stats, capacity)
            all_held = extend_rows(all_held, capacity)
            nodes, stats, held_stats = (
                borrow_array(all_nodes),
                borrow_array(all_stats),
                borrow_array(all_held),
            )
        this = nodes[np.uint64(node)]
        cut = np.int64(-1) if this.kind == 4 else this.cut
        levels_of = pool[this.level_start : this.level_start + this.n_levels]
        begin, held_begin = this.begin, this.held_begin
        feature = np.uint64(this.feature)
        missing_code, held_code = n_codes[feature], held_table.n_codes[feature]
        sparse = is_sparse_node(np.uint64(this.end - begin), n_rows, lines)
        source, first, step = locate_column(all_codes, lines, feature, n_rows, n_features, sparse)
        held_source, held_first, held_step = held_codes, feature * n_held, one
        if sums is not None:
            if this.kind == 5:  # the side of each row, as a column of codes
                if len(sides) == 0:
                    sides = np.empty(codes.shape[1], codes.dtype)
                    held_sides = np.empty(held_table.codes.shape[1], codes.dtype)
                project_rows(table, levels_of, this.threshold, ids, begin, this.end, sides)
                project_rows(
                    held_table,
                    levels_of,
                    this.threshold,
                    held_ids,
                    held_begin,
                    this.held_end,
                    held_sides,
                )
                source, held_source, missing_code, held_code = sides, held_sides, two, two
                first, step, held_first = zero, one, zero
                cut, levels_of = np.int64(0), levels_of[:0]
        held_cut = cut
        if len(held_ids) > 0 and this.kind == 1:
            after = this.after if midpoints else this.cut + 1
            at = this.threshold
            if value_below and np.isnan(at):
                at = find_value_below(table, feature, this.cut, after, ways.resolution)
            held_cut = find_last_code(table, held_table, feature, this.cut, after, at)
        if surrogates is not None:
            if this.kind <= 2:
                first_found = n_found
                found, n_found, replies = find_surrogates(
                    node,
                    table,
                    feature,
                    cut,
                    levels_of,
                    ids,
                    values,
                    begin,
                    this.end,
                    scratch,
                    surrogates,
                    found,
                    n_found,
                    replies,
                )
                route_by_surrogates(
                    table,
                    table,
                    feature,
                    cut,
                    levels_of,
                    this.missing,
                    midpoints,
                    found,
                    first_found,
                    n_found,
                    replies,
                    ids,
                    begin,
                    this.end,
                    surrogates.routed,
                )
                route_by_surrogates(
                    table,
                    held_table,
                    feature,
                    held_cut,
                    levels_of,
                    this.missing,
                    midpoints,
                    found,
                    first_found,
                    n_found,
                    replies,
                    held_ids,
                    held_begin,
                    this.held_end,
                    surrogates.held_routed,
                )
                source, held_source = surrogates.routed[0], surrogates.held_routed[0]
                first, step, held_first = zero, one, zero
                missing_code = held_code = np.uint32(2)
                cut = held_cut = np.int64(0)
                levels_of = pool[:0]
        if steps is None:
            partition_rows(
                source,
                first,
                step,
                np.int64(missing_code),
                cut,
                np.int64(this.missing),
                levels_of,
                branches,
                ids,
                cells,
                values,
                begin,
                this.end,
                branch_of,
                ids2,
                cells2,
                values2,
                ends,
            )
            if len(held_ids) > 0:
                partition_rows(
                    held_source,
                    held_first,
                    held_step,
                    np.int64(held_code),
                    held_cut,
                    np.int64(this.missing),
                    levels_of,
                    branches,
                    held_ids,
                    held_cells,
                    held_values,
                    held_begin,
                    this.held_end,
                    branch_of,
                    ids2,
                    cells2,
                    values2,
                    held_ends,
                )
        else:
            upto = np.empty(branches)
            lost = np.int64(0) if this.kind == 4 else branches
            assign_branches(
                source, first, step, missing_code, cut, lost, levels_of, ids, begin, this.end,
                branch_of,
            )  # fmt: skip
            compute_cumulative_shares(branch_of, values, begin, this.end, upto)
            ids, cells, values, ids2, cells2, values2, begin, top = replace_by_children(
                branch_of,
                upto,
                steps,
                ids,
                cells,
                values,
                begin,
                this.end,
                ids2,
                cells2,
                values2,
                ends,
                nodes,
                waiting,
                n_waiting,
                False,
                top,
            )
            if len(held_ids) > 0:
                end = this.held_end
                assign_branches(
                    held_source,
                    held_first,
                    held_step,
                    held_code,
                    held_cut,
                    lost,
                    levels_of,
                    held_ids,
                    held_begin,
                    end,
                    branch_of,
                )
                held_ids, held_cells, held_values, ids2, cells2, values2, held_begin, held_top = (
                    replace_by_children(
                        branch_of,
                        upto,
                        steps,
                        held_ids,
                        held_cells,
                        held_values,
                        held_begin,
                        end,
                        ids2,
                        cells2,
                        values2,
                        held_ends,
                        nodes,
                        waiting,
                        n_waiting,
                        True,
                        held_top,
                    )
                )
        empty = False
        for b in range(np.uint64(branches)):
            at = np.uint64(n) + b
            child = nodes[at]
            child.kind, child.n_children, child.n_levels, child.gain = 0, 0, 0, 0.0
            child.depth = this.depth + (0 if within else 1)
            child.begin, child.end = begin, ends[b]
            child.held_begin, child.held_end = held_begin, held_ends[b]
            if steps is not None or quantile is not None or branches > 2:
                child.weight = sum_rows(cells, values, begin, ends[b], stats[at], quantile)
            sum_held_out_rows(
                held_cells,
                held_values,
                held_begin,
                held_ends[b],
                stats[at],
                held_stats[at],
                quantile,
            )
            empty = empty or (ends[b] == begin and not (allow_empty and this.kind == 3))
            begin, held_begin = ends[b], held_ends[b]
        if steps is None and quantile is None and branches == 2:
            opened_at = nodes[np.uint64(n)].begin
            sum_two_branches(cells, values, opened_at, ends, stats, node, n, nodes)
        if empty:
            return (
                GrowthArrays(all_nodes, all_stats, all_held, all_levels, found, replies),
                node,
                np.int64(BAD_SPLIT),
            )
        if bounded:
            if n + branches > len(bounds):
                bounds = extend_rows(bounds, len(nodes))
            propagate_bounds(
                bounds,
                node,
                n,
                branches,
                signs[feature] if this.kind == 1 else 0.0,
                stats[np.uint64(n), np.uint64(1)] / nodes[np.uint64(n)].weight,
                stats[np.uint64(n + 1), np.uint64(1)] / nodes[np.uint64(n + 1)].weight,
            )
        if nest is not None:
            this.first_child = n
            if cuts > 0:
                n_nested = pass_cuts_down(
                    nodes, node, first_cut, cuts, below, lost_in, nest, n_nested
                )
            if n_nested > 0 or within:
                n += branches
                leaves += opened
                if n_nested == 0 and use_before:
                    top_node = np.uint64(nest_root)
                    parts, held_parts = collect_nest_stats(
                        nodes, nest_root, n - n_before, stats, held_stats
                    )
                    if not before(stats[top_node], parts, held_stats[top_node], held_parts):
                        leaves -= len(parts) - 1
                        n, n_found = n_before, found_before
                        _make_leaf(nodes, nest_root)
                continue
        if use_before and not before(
            stats[np.uint64(node)],
            stats[n : n + branches],
            held_stats[np.uint64(node)],
            held_stats[n : n + branches],
        ):
            _make_leaf(nodes, node)
            continue
        this.first_child = n
        n += branches
        leaves += branches - 1
    if surrogates is not None:
        found = found[:n_found]
    return GrowthArrays(all_nodes, all_stats, all_held, all_levels, found, replies), n, np.int64(0)


@inlined
def _borrow_scratch(scratch):
    """Return the working memory without reference counts; the caller keeps it alive."""
    return Scratch(
        borrow_array(scratch.features),
        borrow_array(scratch.state),
        borrow_array(scratch.words),
        borrow_array(scratch.lanes),
        borrow_array(scratch.packed),
        borrow_array(scratch.work),
        borrow_array(scratch.counts),
        borrow_array(scratch.compact),
        borrow_array(scratch.flat),
        borrow_array(scratch.ordered),
        borrow_array(scratch.keys),
        borrow_array(scratch.start),
        borrow_array(scratch.best),
        borrow_array(scratch.pair),
        borrow_array(scratch.offers),
        borrow_array(scratch.levels),
        borrow_array(scratch.options),
        borrow_array(scratch.lines),
    )


@inlined
def _is_pure(stats, values, begin, end, dense, noise, least, quantile):
    """Check whether all rows are alike: one class, or one value up to rounding."""
    if dense:
        return _has_equal_values(values, begin, end, noise, quantile)
    total, largest = 0.0, 0.0
    for k in range(np.uint64(len(stats))):
        total += stats[k]
        largest = max(largest, stats[k])
    return total - largest <= least


@kernel
def _has_equal_values(values, begin, end, noise, quantile):
    zero, one = np.uint64(0), np.uint64(1)
    first = np.uint64(begin)
    if quantile is not None:  # rows are in ascending order
        return values[first, one] == values[np.uint64(end) - one, one]
    weight = values[first, zero]
    for i in range(first + one, np.uint64(end)):
        slack = noise * (weight + values[i, zero])
        for k in range(one, np.uint64(values.shape[1])):
            if abs(values[i, k] * weight - values[first, k] * values[i, zero]) > slack:
                return False
    return True


@kernel
def _bound_rounding_gain(rounding, quantile):
    """Bound the gain from rounding errors: quadratic for squared errors, linear for losses."""
    if quantile is not None:
        return 4.0 * rounding
    return 4.0 * rounding * rounding


@inlined
def _make_leaf(nodes, node):
    """Turn a node back into a leaf."""
    this = nodes[np.uint64(node)]
    this.kind = 0
    this.n_children = 0
    this.n_levels = 0
    this.gain = 0.0


# ---------------------------------------------------------------- heap of waiting nodes
# For best-first growth, with the largest priority on top.


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
intervals, branch 0 is that of missing values; otherwise `missing` is the interval that
receives them, counted from the node's first.
"""

MAX_PENDING = 64
"""Maximum number of tests that wait while a nest is expanded: one per level, and cuts are halved.
"""


@kernel
def make_next_test(nodes, node, pool):
    """Turn an interval split into a binary test: for missing values, else at the middle cut.

    Returns
    -------
    int
        Cuts left for branch 0; -1 if that is the branch of missing values.
    """
    this = nodes[np.uint64(node)]
    cuts = np.int64(this.n_levels)
    apart = this.n_children > cuts + 1
    this.n_children, this.n_levels = 2, 0
    if apart:
        this.kind, this.missing = 4, 0
        return np.int64(-1)
    middle = cuts // 2
    this.kind = 1
    this.cut = pool[np.uint64(this.level_start + middle)]
    this.after = this.cut + 1
    this.missing = 0 if this.missing <= middle else 1
    return middle


@kernel
def pass_cuts_down(nodes, node, first_cut, cuts, below, lost, pending, n_pending):
    """Pass the remaining cuts to the children of a test made by `make_next_test`.

    Parameters
    ----------
    first_cut, cuts, lost : int
        The node's cuts in the pool and its `missing`, before `make_next_test`.
    below : int
        As returned by `make_next_test`.
    pending : (PENDING,) int64
        Receives the children that have cuts, from `n_pending` on.

    Returns
    -------
    int
        Number of pending nodes.
    """
    this = nodes[np.uint64(node)]
    for branch in range(2):
        start, count, missing = first_cut, cuts, np.int64(0)
        if below >= 0:
            start = first_cut if branch == 0 else first_cut + below + 1
            count = below if branch == 0 else cuts - below - 1
            missing = lost if branch == 0 else lost - below - 1
        if count == 0 or (below < 0 and branch == 0):
            continue
        number = np.int64(this.first_child) + branch
        child = nodes[np.uint64(number)]
        child.kind, child.feature = INTERVALS, this.feature
        child.level_start, child.n_levels, child.n_children = start, count, count + 1
        child.missing, child.threshold = missing, np.nan
        pending[np.uint64(n_pending)] = number
        n_pending += 1
    return n_pending


@kernel
def collect_nest_stats(nodes, root, size, stats, held_stats):
    """Collect the statistics of the branches of a nest, in the order of its intervals.

    Parameters
    ----------
    size : int
        Nodes of the nest below its root; ``size // 2 + 1`` of them are branches.

    Returns
    -------
    (branches, S) float64, twice
        For the training rows and for the held-out rows.
    """
    branches = size // 2 + 1
    branch_stats = np.empty((branches, stats.shape[1]))
    held_branch_stats = np.empty((branches, stats.shape[1]))
    waiting = np.empty(MAX_PENDING, np.int64)
    waiting[0] = root
    n_waiting, branch = 1, 0
    while n_waiting > 0:
        n_waiting -= 1
        node = waiting[np.uint64(n_waiting)]
        if node != root and nodes[np.uint64(node)].kind == 0:
            branch_stats[np.uint64(branch)] = stats[np.uint64(node)]
            held_branch_stats[np.uint64(branch)] = held_stats[np.uint64(node)]
            branch += 1
        else:
            for child in range(2):  # the first child on top
                number = np.int64(nodes[np.uint64(node)].first_child) + 1 - child
                waiting[np.uint64(n_waiting)] = number
                n_waiting += 1
    return branch_stats, held_branch_stats
