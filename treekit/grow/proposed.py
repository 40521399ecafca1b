"""What a splitter plugin is shown of a node, and what it proposes, judged.

The builder's arrays are everybody's: of other nodes, trees and threads.  A find gets
them to read only, and its split reaches them through checks alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treekit import splitting
from treekit.grow.asking import frozen
from treekit.grow.plugins import current
from treekit.kernels.function_pointers import read_only
from treekit.kernels.records import (
    AFTER,
    BAD_SCORE,
    BAD_SPLIT,
    BRANCHES,
    CUT,
    FEATURE,
    KIND,
    LEVELS,
    MISSING_BRANCH,
    SCORE,
    THRESHOLD_VALUE,
    Node,
    Rows,
    Table,
)

__all__ = ["are_intervals", "copied_node", "frozen_node", "is_sum", "score_of", "write_split"]


def is_sum(split, table):  # type: ignore[no-untyped-def]
    """Whether the terms of a plugin's oblique split are possible."""
    terms, bits = split.levels, split.levels.view(np.float32)
    if len(terms) < 2 or len(terms) % 2 or not abs(split.threshold) < np.inf:
        return False
    before = -1
    for j in range(0, len(terms), 2):
        weight = abs(bits[j + 1])
        if not before < terms[j] < len(table.n_codes) or not 0.0 < weight < np.inf:
            return False
        if table.nominal[terms[j]] > 0:
            return False
        before = terms[j]
    return True


def are_intervals(split, table, room):  # type: ignore[no-untyped-def]
    """Whether the cuts of a plugin's split on intervals are possible."""
    cuts, last = split.levels, np.int64(table.n_codes[split.feature]) - 2
    apart = split.branches - len(cuts) - 1
    if not 1 <= len(cuts) <= room or not 0 <= apart <= 1 or (apart == 1 and split.missing != 0):
        return False
    before = -1
    for j in range(len(cuts)):
        if not before < cuts[j] <= last:
            return False
        before = cuts[j]
    return table.nominal[split.feature] == 0


def write_split(split, node, sums, intervals, levels, out, numbers):  # type: ignore[no-untyped-def]
    """Put a plugin's split where `grow` reads it, or mark it as impossible."""
    table = node.table
    out[KIND] = BAD_SPLIT
    if not 0 <= split.feature < len(table.n_codes) or not 1 <= split.kind <= 6:
        return
    if split.kind == 5 and not (sums and is_sum(split, table)):
        return
    if split.kind == 6 and not (intervals and are_intervals(split, table, len(levels))):
        return
    n_codes = np.int64(table.n_codes[split.feature])
    nominal = table.nominal[split.feature] > 0
    by_level = split.kind in (2, 3)
    if split.branches < 2 or not -1 <= split.missing < split.branches:
        return
    if split.kind not in (3, 6) and split.branches != 2:
        return
    if by_level and split.branches > n_codes + 1:  # one may be for missing values alone
        return
    if split.kind == 1 and (nominal or not 0 <= split.cut < n_codes - 1):
        return
    if split.kind == 1 and not math.isnan(split.threshold):
        at = table.value_start[split.feature] + split.cut
        if not table.high[at] <= split.threshold < table.low[at + 1]:
            return
    if by_level and (not nominal or len(split.levels) != n_codes):
        return
    owned = len(split.levels) if by_level or split.kind >= 5 else 0
    for level in range(owned):
        branch = split.levels[level]
        if by_level and not -1 <= branch < split.branches:
            return
        levels[level] = branch
    out[KIND] = split.kind
    out[FEATURE] = split.feature
    out[CUT] = split.cut
    out[MISSING_BRANCH] = split.missing
    out[BRANCHES] = split.branches
    out[LEVELS] = owned
    out[AFTER] = split.cut + 1
    numbers[THRESHOLD_VALUE] = np.nan if split.kind == 6 else split.threshold
    numbers[SCORE] = split.score
    if split.missing < 0:
        children = splitting.branch_stats(node, split)
        heaviest, most = 0, -1.0
        for b in range(split.branches):
            weight = children[b, 0] if len(node.rows.cells) == 0 else children[b].sum()
            if weight > most:
                heaviest, most = b, weight
        out[MISSING_BRANCH] = heaviest
    if not abs(split.score) < np.inf:
        out[KIND] = BAD_SCORE


def frozen_node(node):  # type: ignore[no-untyped-def]
    """A node whose arrays a compiled find cannot write to: they are everybody's."""
    table, rows = node.table, node.rows
    return Node(
        Table(
            read_only(table.codes), read_only(table.n_codes), read_only(table.nominal),
            read_only(table.value_start), read_only(table.low), read_only(table.high),
        ),
        Rows(read_only(rows.ids), read_only(rows.cells), read_only(rows.values)),
        read_only(node.stats), node.weight, node.impurity, node.depth, node.min_weight_leaf,
        node.n_try, node.ways, node.quantile,
    )  # fmt: skip


def copied_node(node: Node) -> Node:
    """A node for a find that is called as Python, and may keep what it is given."""
    ids, cells, values = node.rows
    rows = Rows(ids.copy(), cells.copy(), values.copy())
    copy: Node = frozen(node._replace(table=current.table, rows=rows, stats=node.stats.copy()))
    return copy


def score_of(pointer: Any) -> Any:
    """A criterion's score, for the arrays of any type that a find called as Python has."""

    def score(parent: Any, children: Any) -> float:
        given = [np.array(stats, dtype=np.float64) for stats in (parent, children)]
        return float(pointer(*map(frozen, given)))

    return score
