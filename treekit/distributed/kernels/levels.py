"""Growth by levels over partitions: move rows, count codes, and split nodes by the counts.

A partition moves its rows by the splits of the last level, and counts the codes of the columns
that each open node tries.  The counts of all partitions are added up, and the splits found by
the search that `treekit.kernels.grow_tree` uses.  The columns drawn for a node depend on its
seed alone, so that they are the same in all processes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.axis_splits import (
    LACKS_COLUMNS,
    find_counts,
    pick_column,
    search_columns,
)
from treekit.kernels.compile import inlined, kernel
from treekit.kernels.function_pointers import borrow_arrays
from treekit.kernels.grow_tree import (
    bound_children,
    expand_branches,
    extend_entries,
    extend_nodes,
    has_equal_values,
    initialise_node,
    is_leaf,
    make_leaf,
    search_split,
    write_split,
)
from treekit.kernels.partition_rows import Route, partition_rows
from treekit.kernels.random_numbers import mix_bits, start_node_draws
from treekit.kernels.records import (
    MISSING,
    Column,
    GrowthRules,
    Limits,
    Rows,
    Table,
    sum_weight,
)

# ---------------------------------------------------------------- rows of a partition


class ColumnDraws(NamedTuple):
    """The columns to count for each node: the first in its random order.

    Attributes
    ----------
    features, state : (features,) int64, (1,) uint64
        Working memory; see `treekit.kernels.records.Scratch`.
    seeds : (nodes,) uint64
    n_columns : (nodes,) int64
        Number of columns to count.
    n_try : int
        Columns tried at a node.
    """

    features: npt.NDArray[np.int64]
    state: npt.NDArray[np.uint64]
    seeds: npt.NDArray[np.uint64]
    n_columns: npt.NDArray[np.int64]
    n_try: int


@kernel
def move_rows(table, rows, spare, splits, entries, spans, branch_of):
    """Reorder the rows of nodes by branch, and write the spans of their children.

    Parameters
    ----------
    table : Table
    rows, spare : Rows
        Rows in the order of nodes; working memory, longer by one row.
    splits : (splits,) NODE
        `begin` is the number of the node, `first_child` that of its first child.
    entries : (pool,) int32
        Entries of the splits, as in `treekit.kernels.grow_tree.GrowthArrays`.
    spans : (nodes, 2) int64
        Rows of each node.
    branch_of : (rows,) uint32
        Working memory.
    """
    zero, one, n_rows = np.uint64(0), np.uint64(1), np.uint64(table.codes.shape[1])
    flat = table.codes.reshape(table.codes.size)
    offsets = np.zeros(3, np.int64)
    levels = np.empty(np.int64(table.n_codes.max()), np.int32)
    for i in range(np.uint64(len(splits))):
        this = splits[i]
        node, feature, branches = np.uint64(this.begin), np.uint64(this.feature), this.n_children
        if branches >= len(offsets):
            offsets = np.zeros(2 * branches, np.int64)
        column = Column(flat, feature * n_rows, one, table.n_codes[feature])
        cut = np.int64(-1) if this.kind == MISSING else np.int64(this.cut)
        branch_of_level = expand_branches(this, entries, np.int64(table.n_codes[feature]), levels)
        route = Route(column, cut, np.int64(this.missing), branch_of_level)
        partition_rows(
            route, np.int64(branches), rows, spans[node, zero], spans[node, one], branch_of,
            spare, offsets,
        )  # fmt: skip
        for b in range(np.uint64(branches)):
            child = np.uint64(this.first_child) + b
            spans[child, zero], spans[child, one] = offsets[b], offsets[b + one]


@kernel
def locate_counts(draws, n_codes, starts):
    """Compute where the counts of each node begin: ``starts`` (nodes + 1,) int64.

    Parameters
    ----------
    draws : ColumnDraws
    n_codes : (features,) uint32
    """
    at = np.int64(0)
    starts[np.uint64(0)] = 0
    for i in range(np.uint64(len(draws.seeds))):
        start_node_draws(draws, draws.seeds[i], draws.n_try)
        for j in range(np.uint64(draws.n_columns[i])):
            at += np.int64(n_codes[pick_column(draws, j, np.uint64(draws.n_try), -1)]) + 1
        starts[i + np.uint64(1)] = at


@kernel
def count_codes(table, rows, spans, draws, counts):
    """Add up the statistics of each node's rows by column and code.

    Parameters
    ----------
    table : Table
    rows : Rows
    spans : (nodes, 2) int64
        Rows of each node.
    draws : ColumnDraws
    counts : (entries, S) float64
        Output, zeros on entry: for each node and column by ascending code, missing last.
    """
    zero, one, s = np.uint64(0), np.uint64(1), np.uint64(counts.shape[1])
    ids, cells, values = borrow_arrays(rows)
    flat = borrow_arrays(table.codes.reshape(table.codes.size))
    sums, n_rows = counts.reshape(counts.size), np.uint64(table.codes.shape[1])
    at = np.uint64(0)
    for i in range(np.uint64(len(draws.seeds))):
        begin, end = np.uint64(spans[i, zero]), np.uint64(spans[i, one])
        start_node_draws(draws, draws.seeds[i], draws.n_try)
        for j in range(np.uint64(draws.n_columns[i])):
            feature = pick_column(draws, j, np.uint64(draws.n_try), -1)
            first = feature * n_rows
            if len(cells) > 0:
                for r in range(begin, end):
                    code = np.uint64(flat[first + np.uint64(ids[r])])
                    sums[(at + code) * s + np.uint64(cells[r])] += values[r, zero]
            else:
                for r in range(begin, end):
                    base = (at + np.uint64(flat[first + np.uint64(ids[r])])) * s
                    for k in range(s):
                        sums[base + k] += values[r, k]
            at += np.uint64(table.n_codes[feature]) + one


@kernel
def find_ranges(values, spans, noise, ranges):
    """Find the numbers that all rows of each node may have, for each target.

    Parameters
    ----------
    values : (rows, S) float64
        Dense statistics: the weight, and weighted numbers.
    spans : (nodes, 2) int64
    noise : float
        Bound on the rounding error of a row's statistics.
    ranges : (nodes, 2, S) float64
        Output: the least and the largest number; a node whose rows differ has a least number
        above the largest.  In place of the weight, the number of rows.
    """
    zero, one, s = np.uint64(0), np.uint64(1), np.uint64(values.shape[1])
    for i in range(np.uint64(len(spans))):
        begin, end = np.uint64(spans[i, zero]), np.uint64(spans[i, one])
        ranges[i, zero, zero] = ranges[i, one, zero] = np.float64(end - begin)
        for k in range(one, s):
            low, high = -np.inf, np.inf
            for r in range(begin, end):
                low = max(low, (values[r, k] - noise) / values[r, zero])
                high = min(high, (values[r, k] + noise) / values[r, zero])
            ranges[i, zero, k], ranges[i, one, k] = low, high


# ---------------------------------------------------------------- search the counts


class CountedNodes(NamedTuple):
    """The counts of nodes in place of their rows.

    Attributes
    ----------
    table : Table
        Without rows.
    rows : Rows
        `values` are the counts, (entries, S); a node's slice is its counts.
    quantile : None
        Statistics are additive.
    equal_rows : Rows
        For dense statistics, stand-in rows, two a node, so that `is_leaf` can test a node without
        its rows: equal if all its rows are; then two different rows, used for children.
    decreases, roundings : (nodes,) float64
        ``min_decrease`` of each node, and a bound on the rounding error of its statistics.
    """

    table: Table
    rows: Rows
    quantile: None
    equal_rows: Rows
    decreases: npt.NDArray[np.float64]
    roundings: npt.NDArray[np.float64]


@kernel
def search_counts(node, scratch, criterion, rng, best_split):
    """Find the best split of a node by its counts, as `find_axis_split` finds it by its rows."""
    search_columns(node, scratch, criterion, None, None, node.rows.values, best_split)


@kernel
def split_nodes(counted, arrays, needs_counts, rules, search, scratch):
    """Split nodes by their counts.

    Parameters
    ----------
    counted : CountedNodes
    arrays : GrowthArrays
        The nodes to split come first, and have a seed and a depth; `begin` and `end` delimit
        their counts.  Children are added; their `end` is 1 if they may be split, else 0.
    needs_counts : (nodes,) bool
        Output: nodes that need counts of more columns.
    search : SplitSearch
        Its `find` is a pointer to `search_counts`.
    rules, scratch
        As in `treekit.kernels.grow_tree.grow_nodes`.

    Returns
    -------
    GrowthArrays, n, status
        As `treekit.kernels.grow_tree.grow_nodes`.
    """
    scratch = borrow_arrays(scratch)
    grown, tree = arrays, borrow_arrays(arrays)
    split = scratch.split[0]
    table, counts, dense = counted.table, counted.rows.values, len(counted.rows.cells) == 0
    limits, equal_rows, n_nodes = rules.limits, counted.equal_rows, np.int64(len(needs_counts))
    n, used, unlike = n_nodes, np.int64(0), 2 * n_nodes
    for node in range(n_nodes):
        this, two = tree.nodes[np.uint64(node)], np.int64(2)
        begin, end = this.begin, this.end
        start_node_draws(scratch, this.seed, limits.n_try)
        feature = pick_column(scratch, np.uint64(0), np.uint64(limits.n_try), -1)
        last = begin + np.int64(table.n_codes[feature]) + 1
        this.weight = _add_counts(counts, begin, last, tree.stats[np.uint64(node)], dense)
        this.begin, this.end = two * node, two * node + 2
        leaf = is_leaf(node, tree, equal_rows, limits, None)
        if len(equal_rows.cells) == 0:
            leaf = leaf or has_equal_values(equal_rows.values, this.begin, this.end, 0.0, None)
        this.begin, this.end = begin, end
        if leaf:
            continue
        scratch.counts[LACKS_COLUMNS] = 0
        node_rules = _set_decrease(rules, counted.decreases[np.uint64(node)])
        rounding = counted.roundings[np.uint64(node)]
        kind = search_split(node, tree, counted, node_rules, rounding, search, scratch)
        if kind < 0:
            return grown, node, kind
        if scratch.counts[LACKS_COLUMNS] != 0:
            needs_counts[np.uint64(node)] = True
            continue
        if kind == 0:
            continue
        most = used + 2 * split.levels
        if most > len(tree.entries):
            grown = extend_entries(grown, most)
            tree = borrow_arrays(grown)
        end = write_split(node, tree, used, scratch.levels, split)
        branches = np.int64(tree.nodes[np.uint64(node)].n_children)
        if n + branches > len(tree.nodes):
            grown = extend_nodes(grown, max(2 * len(tree.nodes), n + branches))
            tree = borrow_arrays(grown)
        this = tree.nodes[np.uint64(node)]
        feature = np.uint64(this.feature)
        first = begin + find_counts(scratch.features, table.n_codes, feature)
        size = np.int64(table.n_codes[feature]) + 1
        levels = scratch.levels[: split.levels]
        _sum_branches(this, tree, n, branches, counts[first : first + size], levels, dense)
        if rules.use_before and not rules.before(
            tree.stats[np.uint64(node)],
            tree.stats[n : n + branches],
            tree.held_stats[np.uint64(node)],
            tree.held_stats[n : n + branches],
        ):
            make_leaf(tree.nodes, node)
            continue
        used = end
        this.first_child = n
        if len(tree.bounds) > 1:
            bound_children(node, tree, n, branches, scratch.offers)
        for child in range(n, n + branches):
            this = tree.nodes[np.uint64(child)]
            this.begin, this.end = unlike, unlike + 2
            this.end = 0 if is_leaf(child, tree, equal_rows, limits, None) else 1
        n += branches
    return grown, n, np.int64(0)


@inlined
def _set_decrease(rules, decrease):
    """Return the rules with another `min_decrease`."""
    limits = rules.limits
    limits = Limits(
        limits.max_depth, limits.min_weight_split, limits.min_weight_leaf, limits.min_gain,
        limits.max_leaves, limits.n_try, limits.min_impurity, limits.min_variance, decrease,
        limits.noise,
    )  # fmt: skip
    return GrowthRules(limits, rules.splits, rules.before, rules.use_before)


@inlined
def _add_counts(counts, begin, end, stats, dense):
    """Add up counts[begin:end] into `stats` (S,); return their weight."""
    for k in range(np.uint64(len(stats))):
        stats[k] = 0.0
        for i in range(np.uint64(begin), np.uint64(end)):
            stats[k] += counts[i, k]
    return sum_weight(stats, dense)


@inlined
def _sum_branches(this, tree, n, branches, counts, levels, dense):
    """Write the children of a node, from node `n` on, by the counts of the split's column."""
    for b in range(np.uint64(branches)):
        at = np.uint64(n) + b
        initialise_node(tree.nodes[at], this.depth + 1, mix_bits(this.seed, b))
        for k in range(np.uint64(tree.stats.shape[1])):
            tree.stats[at, k], tree.held_stats[at, k] = 0.0, 0.0
    cut = np.int64(-1) if this.kind == MISSING else np.int64(this.cut)
    n_codes = np.uint64(len(counts) - 1)
    for code in range(n_codes + np.uint64(1)):
        branch = np.int64(np.int64(code) > cut)
        if code < n_codes and len(levels) > 0:
            branch = np.int64(levels[code])
        if code == n_codes or branch < 0:
            branch = np.int64(this.missing)
        for k in range(np.uint64(tree.stats.shape[1])):
            tree.stats[np.uint64(n + branch), k] += counts[code, k]
    for b in range(np.uint64(branches)):
        at = np.uint64(n) + b
        tree.nodes[at].weight = sum_weight(tree.stats[at], dense)


# ---------------------------------------------------------------- order of nodes


@kernel
def order_nodes(nodes, root, order, first_child):
    """Put the nodes of a tree into the order in which `grow_nodes` creates them.

    Parameters
    ----------
    nodes : (all nodes,) NODE
        Of one or more trees, in any order; children are side by side.
    root : int
    order : (nodes,) int64
        Output: the node at each position.
    first_child : (nodes,) int64
        Output: the position of the first child of the node at each position.

    Returns
    -------
    int
        Number of nodes of the tree.
    """
    waiting, n_waiting = np.empty(len(nodes), np.int64), 0
    order[np.uint64(0)] = root
    fresh, n = 0, 1
    while True:
        for at in range(fresh, n):
            if nodes[np.uint64(order[np.uint64(at)])].n_children > 0:
                waiting[np.uint64(n_waiting)] = at
                n_waiting += 1
        fresh = n
        if n_waiting == 0:
            return n
        n_waiting -= 1
        at = np.uint64(waiting[np.uint64(n_waiting)])
        this = nodes[np.uint64(order[at])]
        first_child[at] = n
        for b in range(this.n_children):
            order[np.uint64(n)] = this.first_child + b
            n += 1
