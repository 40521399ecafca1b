"""Laws of a splitter, judged by the trees that are trained with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from treekit import registry
from treekit.model.tree import Split as SplitKind
from treekit.model.tree import Tree
from treekit.testing import criterion_training as training
from treekit.testing.laws import Test, broken
from treekit.testing.report import Law
from treekit.testing.routing import rows_of_nodes
from treekit.testing.splitter_laws import CLAIMED, FEATURES, REPEATS
from treekit.testing.tables import Small, small_table
from treekit.testing.training import LEAF_WEIGHT, TRAINS, Trainer, difference, trained

__all__ = ["GROWN_LAWS", "Grower"]

Grower = tuple[Trainer, ...]
"""Trainers with the splitter: of classes, and of a number."""


def _trees(growers: Grower, **settings: Any) -> Iterator[tuple[Trainer, Small, Tree]]:
    for by in growers:
        for table in by.tables():
            tree = trained(by, table, **settings)
            if tree is not None:
                yield by, table, tree


def trains(growers: Grower) -> None:
    """Train on every small table, with every kind of nominal split, and a forest."""
    for _ in _trees(growers):
        pass
    for by in growers:
        for table in list(by.tables())[::3]:
            trained(by, table.with_columns("k"))
            trained(by, table, weighted=True, nominal_splits="multiway", max_features=1)
            trained(by, table, max_leaves=3)


def heavy(growers: Grower) -> None:
    """Grow with a bound, and weigh the branches."""
    for _, table, tree in _trees(growers, min_weight_leaf=4.0):
        for node in np.flatnonzero(tree.kind != SplitKind.LEAF):
            first = tree.first_child[node]
            weights = tree.weight[first : first + tree.n_children[node]]
            if (weights >= 4.0).sum() < 2:
                broken(f"training on {table} with min_weight_leaf=4",
                       f"node {node} has branches of weight {weights.tolist()}",
                       "two of at least 4")  # fmt: skip


def seeded(growers: Grower) -> None:
    """Grow each tree twice."""
    for by, table, tree in _trees(growers):
        again = trained(by, table)
        if again is not None and (apart := difference(tree, again)):
            broken(f"training on {table}, twice with seed 0", apart, "the same tree")


def gains(growers: Grower) -> None:
    """Send the rows down the tree, and score every node's branches again."""
    for by, table, tree in _trees(growers):
        measure, _ = registry.make(registry.criterion(by.parts["criterion"]), {})
        stats = _statistics(table, by.vocabulary)
        rows = rows_of_nodes(tree, by.dataset(table))
        for node in np.flatnonzero(tree.kind != SplitKind.LEAF):
            first = tree.first_child[node]
            branches = range(first, first + tree.n_children[node])
            children = np.array([stats[rows[child]].sum(axis=0) for child in branches])
            wanted = float(measure.score(children.sum(axis=0), children))
            told = float(tree.gain[node])
            if abs(told - wanted) > 1e-6 * max(1.0, abs(wanted)):
                broken(f"training on {table}", f"node {node} tells {told!r}", repr(wanted))


def _statistics(table: Small, classes: list[str] | None) -> Any:
    if classes is None:
        return np.array([[1.0, target] for target in table.target])
    return np.array([[float(target == name) for name in classes] for target in table.target])


ROWS = replace(
    training.ROWS,
    look="row numbers and the order of `node.rows.ids`, which are the table's: go by the codes of "
    "the columns (a search that samples rows declares this law)",
)
COPIES = replace(
    training.COPIES,
    look="`len(node.rows.ids)`: a row counts by its weight, which `node.stats` and `branch_stats` "
    "add up (a search that samples rows declares this law)",
)


def permuted(growers: Grower) -> None:
    """Permute the rows of each table; the seed, and so the stream of `rng`, stays."""
    for by in growers:
        training.rows(by)


def copied(growers: Grower) -> None:
    """Repeat each row as often as it weighs."""
    for by in growers:
        training.copies(by)


def tried(growers: Grower) -> None:
    """Grow stumps of one column for many seeds."""
    table = small_table(80, 3).with_columns("x", "z", "c")
    by = growers[0]
    asked = set()
    for seed in range(25):
        stump = trained(by, table, seed=seed, max_features=1, max_depth=1)
        asked.add(-1 if stump is None else int(stump.feature[0]))
    if len(asked) == 1 and -1 not in asked:
        broken(f"training stumps on {table} with max_features=1 and seeds 0 to 24",
               f"column {'xzc'[asked.pop()]!r} every time", "now one, now another")  # fmt: skip


GROWN_LAWS: tuple[tuple[Law, Test], ...] = (
    (TRAINS, trains),
    (LEAF_WEIGHT, heavy),
    (REPEATS, seeded),
    (ROWS, permuted),
    (COPIES, copied),
    (CLAIMED, gains),
    (FEATURES, tried),
)
