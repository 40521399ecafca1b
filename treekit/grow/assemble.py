"""A `Tree` out of the nodes that the kernel grew."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.grow.monotonic import constrained, constrained_stats
from treekit.grow.recipe import GrownTree, Recipe
from treekit.grow.route import leaf_shares
from treekit.grow.surrogates import surrogate_fields
from treekit.grow.values import node_values
from treekit.kernels.grow_tree import Grown
from treekit.kernels.records import Rows, Table
from treekit.model.fixed_point import floor_to, threshold_between
from treekit.model.tree import Split, Tree, gathered, no_entries

__all__ = ["assemble"]


def assemble(
    recipe: Recipe, grown: Grown, n: int, rows: Rows, held: Rows, held_table: Table
) -> GrownTree:
    """The tree of the first `n` nodes that `grow` made.

    `rows` and `held`, of `held_table`, are as they were before growth cut them up.
    """
    g = grown.nodes[:n]
    kind = np.ascontiguousarray(g["kind"])
    inner = kind != Split.LEAF
    level_branch, level_start = _pooled(grown, g, (kind == Split.SUBSET) | (kind == Split.MULTIWAY))
    # A column, and the bits of its weight, by turns; see `treekit.kernels.oblique_splits`.
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
        term_start=term_start // 2 if len(terms) else term_start,
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
    if not len(held.ids):
        nobody = np.empty(0, np.int64)
        return GrownTree(tree, stats, said, held_stats, held.ids, nobody, held.values, rows)
    leaves = tree.leaves
    leaves = leaves[np.argsort(g["held_begin"][leaves], kind="stable")]
    counts = g["held_end"][leaves] - g["held_begin"][leaves]
    ends = np.repeat(leaves, counts)
    return GrownTree(tree, stats, said, held_stats, held.ids, ends, held.values, rows)


def _pooled(
    grown: Grown, g: npt.NDArray[np.void], owners: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """What the nodes of a mask own in the pool, and where each one's part begins."""
    if not owners.any():  # no view of the pool, which would live as long as the tree
        return np.empty(0, np.int32), no_entries(len(g))
    sizes = np.where(owners, g["n_levels"], 0)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return gathered(grown.levels, g["level_start"], sizes), starts


def _thresholds(recipe: Recipe, g: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """The splitter's own thresholds, or midpoints between the codes on either side."""
    table = recipe.table
    kind = np.ascontiguousarray(g["kind"])
    given = np.full(len(g), np.nan)
    own = np.flatnonzero(kind == Split.THRESHOLD)
    proposed = g["threshold"][own]
    known = ~np.isnan(proposed)
    given[own[known]] = floor_to(proposed[known], recipe.dtype)
    own = own[~known]
    base = table.value_start[g["feature"][own]]
    cut = g["cut"][own]
    after = g["after"][own] if recipe.splitter.coding == "exact" else cut + 1
    oblique = np.flatnonzero(kind == Split.OBLIQUE)
    given[oblique] = g["threshold"][oblique]
    given[own] = threshold_between(table.high[base + cut], table.low[base + after], recipe.dtype)
    if recipe.ways.value_below:
        for f in np.unique(g["feature"][own]).tolist():
            here = g["feature"][own] == f
            asking = own[here]
            start = int(table.value_start[f])
            values = table.high[start : start + int(table.n_codes[f])]
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
