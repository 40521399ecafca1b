"""Laws of a criterion, judged by trees that are trained with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from treekit.testing.laws import Test, inapplicable
from treekit.testing.report import Law
from treekit.testing.training import TRAINS, Trainer, trained, unlike

__all__ = ["TRAINING_LAWS"]


def trains(by: Trainer) -> None:
    """Train on every small table, and in every way that a criterion can notice."""
    for table in by.tables():
        trained(by, table)
        trained(by, table.with_columns("k"))
    for table in list(by.tables())[::3]:
        trained(by, table, weighted=True, min_weight_leaf=0.0)
        trained(by, table, nominal_splits="multiway", empty_branches=True)
        trained(by, table, nominal_splits="one_vs_rest", max_leaves=4)
        trained(by, table, missing="fractional")


ROWS = Law(
    "permuting-rows-changes-nothing",
    "The same rows in another order give the same tree.",
    "state that outlives a call: what is compiled sees a closure's values once and for all",
)


def rows(by: Trainer) -> None:
    """Permute the rows of each table."""
    for table in by.tables():
        order = np.random.default_rng(table.rows).permutation(table.rows)
        one, other = trained(by, table), trained(by, table.taken(order))
        unlike(by, table, f"with its rows in the order {order[:9].tolist()}", one, other)


COPIES = Law(
    "integer-weights-equal-repeated-rows",
    "A row of weight 3 counts as three copies of it.",
    "counts of rows or of statistics that are not 0, where weights should be added",
)


def copies(by: Trainer) -> None:
    """Repeat each row as often as it weighs."""
    for table in by.tables():
        one, other = trained(by, table, weighted=True), trained(by, table.repeated())
        unlike(by, table, "with each row repeated `w` times in place of weights", one, other)


def doubled(by: Trainer) -> None:
    """Double all weights, and the limits that are weights."""
    for table in by.tables():
        twice = replace(table, weights=[2] * table.rows)
        one = trained(by, table)
        two = trained(by, twice, weighted=True, min_weight_leaf=2.0, min_weight_split=4.0)
        unlike(by, table, "with every weight doubled", one, two, 2.0)


def classes_permuted(by: Trainer) -> None:
    """Declare the classes in another order: columns of numbers only, for subsets follow theirs."""
    if by.task != "classification":
        inapplicable("the target is a number")
    for table in by.tables():
        numbers = table.with_columns("x", "z")
        names = by.vocabulary or []
        one, other = trained(by, numbers), trained(by, numbers, classes=names[::-1])
        unlike(by, numbers, "with the classes declared in reverse", one, other, turned=True)


TRAINING_LAWS: tuple[tuple[Law, Test], ...] = (
    (TRAINS, trains),
    (ROWS, rows),
    (COPIES, copies),
)
