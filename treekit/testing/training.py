"""Trees trained on small tables with a component under test, and their comparison."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset, make_dataset
from treekit.errors import DataError, PluginError, SettingError, TreekitWarning
from treekit.model.tree import Tree
from treekit.testing.example_tables import SmallTable, format_numbers, iter_small_tables
from treekit.testing.laws import Subject, break_law
from treekit.testing.report import Law
from treekit.training import fit

TRAINS = Law(
    "trains-on-small-tables",
    "Training works on any table: few rows, one class, ties, missing cells, constant columns.",
    "the statistics or the node named in the message",
)

LEAF_WEIGHT = Law(
    "min-weight-leaf-is-obeyed",
    "Both branches of a split reach node.min_weight_leaf (of several branches at least two).",
    "`heavy_enough(node, children)` before a split is proposed",
)


@dataclass(frozen=True)
class Trainer:
    """Training with the component under test.

    Classes are declared, so that small tables may lack some of them, and code
    compiled for one table serves all.

    Attributes
    ----------
    parts : dict
        Settings of the training: ``{"criterion": record, "criterion.base": 2.0}``.
    task : str
    least : float
        Smallest target for which the criterion is defined.
    classes : tuple of int
        Numbers of classes to try; (0,) for regression.
    beside : mapping of str to str
        Roles of the additional columns that a task reads, and their names.
    table : SmallTable or None
        Table of a task, with all rows to train on.
    answers : {"classification", "regression"} or None
        Kind of node values: weights of classes, or numbers; None: as `task`.
    """

    parts: Mapping[str, Any]
    task: Literal["classification", "regression"]
    least: float = -2.0
    classes: tuple[int, ...] = (3,)
    beside: Mapping[str, str] = field(default_factory=dict)
    table: SmallTable | None = None
    answers: Literal["classification", "regression"] | None = None

    def iter_tables(self) -> Iterator[SmallTable]:
        """Yield tables to train on, small ones first; for a task, half of its own table and all."""
        if self.table is None:
            for classes in self.classes:
                yield from iter_small_tables(classes, self.least)
            return
        for rows in (self.table.rows // 2, self.table.rows):
            yield self.table.take(range(rows))

    def make_dataset(
        self, table: SmallTable, weighted: bool = False, classes: Any = None
    ) -> Dataset:
        """Read the table as `treekit.train` does."""
        return make_dataset(
            table.source,
            "y",
            task=self.task,
            weights="w" if weighted else None,
            ignore=() if weighted else ("w",),
            nominal=[name for name in ("c",) if name in table.columns],
            numeric=[name for name in ("x", "z", "k") if name in table.columns],
            classes=classes or self.vocabulary,
            task_columns=self.beside or None,
        )

    def get_node_values(self, tree: Tree) -> npt.NDArray[np.float64]:
        """Return node values, (nodes, values); shares for classes, as weights may double."""
        if (self.answers or self.task) == "regression":
            return tree.value
        total = tree.value.sum(axis=1, keepdims=True)
        return np.asarray(tree.value / np.where(total > 0.0, total, 1.0))

    @property
    def vocabulary(self) -> list[str] | None:
        """The declared classes; None for regression."""
        most = max(self.classes)
        if self.table is not None and most:
            return sorted(set(self.table.target))
        return [f"class {k}" for k in range(most)] if most else None


def make_trainer(
    kind: str, record: Any, settings: Mapping[str, Any], criterion: str = "", **options: Any
) -> Trainer:
    """Make a trainer with a component and its settings, and with a criterion if one is given."""
    parts = {kind: record, **{f"{kind}.{key}": value for key, value in settings.items()}}
    if criterion:
        parts["criterion"] = criterion
    return Trainer({"seed": 0, **parts}, **options)


def train_tree(
    by: Trainer, table: SmallTable, *, weighted: bool = False, classes: Any = None, **settings: Any
) -> Tree | None:
    """Return the tree grown on a table; None if treekit rejects the table or the settings.

    A fault of the component is a breach of `TRAINS`, or of a splitter's
    `LEAF_WEIGHT` if training stopped because branches are too light.
    """
    given = {**by.parts, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", TreekitWarning
        )  # a function that does not compile is reported as a fact, not as a breach
        try:
            dataset = by.make_dataset(table, weighted, classes)
            return fit(dataset, given).model.trees[0]
        except (DataError, SettingError):
            return None
        except PluginError as error:
            light = "splitter" in by.parts and "min_weight_leaf" in str(error)
            law, wanted = (LEAF_WEIGHT, LEAF_WEIGHT.sentence) if light else (TRAINS, "a tree")
            break_law(_format_call(table, settings), error, wanted, law=law)


def _format_call(table: SmallTable, settings: Mapping[str, Any]) -> str:
    more = "".join(f", {key}={value!r}" for key, value in settings.items())
    return f"treekit.train({table}, 'y'{more})"


def check_same_tree(
    by: Trainer,
    table: SmallTable,
    changed: str,
    one: Tree | None,
    other: Tree | None,
    times: float = 1.0,
    turned: bool = False,
) -> None:
    """Raise `LawBroken` unless two trees are equal.

    Parameters
    ----------
    by : Trainer
        Of both.
    table : SmallTable
    changed : str
        Description of the change for the second tree.
    one, other : Tree or None
    times : float
        Weight of the second tree's rows for each unit of the first's.
    turned : bool
        Whether the second one's classes are those of the first in reverse.
    """
    if one is None or other is None:
        return
    apart = describe_difference(one, other, times) or _describe_value_difference(
        by, one, other, turned
    )
    if apart:
        break_law(f"{_format_call(table, {})}, and the same {changed}", apart, "the same tree")


def _describe_value_difference(by: Trainer, one: Tree, other: Tree, turned: bool) -> str:
    """Describe the first node with another value in a tree of the same splits."""
    values, others = by.get_node_values(one), by.get_node_values(other)
    if turned:
        if (by.answers or by.task) == "regression":
            return ""  # numbers may be those of the first class, or of the last
        others = others[:, ::-1]
    if values.shape != others.shape:
        return f"nodes have {values.shape[1]} and {others.shape[1]} values"
    largest = max(1e-300, float(np.abs(values).max(initial=0.0)))
    away = ~np.isclose(values, others, rtol=1e-9, atol=1e-9 * largest).all(axis=1)
    if away.any():
        at = int(np.argmax(away))
        return f"node {at}: value {format_numbers(values[at])} and {format_numbers(others[at])}"
    return ""


def describe_difference(one: Tree, other: Tree, times: float = 1.0) -> str:
    """Describe the first node in which two trees differ; empty if none does.

    `times` is the weight of the second tree's rows for each unit of the first's.
    """
    for name in ("kind", "feature", "threshold", "n_children", "missing"):
        a, b = getattr(one, name), getattr(other, name)
        n = min(len(a), len(b))
        where = np.flatnonzero((a[:n] != b[:n]) & ~((a[:n] != a[:n]) & (b[:n] != b[:n])))
        if len(where):
            at = int(where[0])
            return f"node {at}: {name} {a[at]} and {b[at]}"
    if one.n_nodes != other.n_nodes:
        return f"{one.n_nodes} and {other.n_nodes} nodes"
    if not np.array_equal(one.level_branch, other.level_branch):
        return "different categories in a branch"
    away = ~np.isclose(one.weight * times, other.weight, rtol=1e-9, atol=1e-9)
    if away.any():
        at = int(np.argmax(away))
        return f"node {at}: weight {one.weight[at] * times} and {other.weight[at]}"
    return ""


# ---------------------------------------------------------------- laws of training

ROW_ORDER = Law(
    "permuting-rows-changes-nothing",
    "The same rows in another order give the same tree.",
    "state that persists between calls: compiled code reads a closure's values only once",
)
ROW_COPIES = Law(
    "integer-weights-equal-repeated-rows",
    "A row of weight 3 counts as three copies of the row.",
    "counts of rows or of non-zero statistics, where weights should be added",
)


def iter_trainings(subject: Subject) -> Iterator[tuple[Trainer, SmallTable]]:
    """Yield the trainers of a component, each with every table to train on."""
    for by in subject.trainers:
        for table in by.iter_tables():
            yield by, table


def check_row_order(subject: Subject) -> None:
    """Permute the rows of each table, with the same seed."""
    for by, table in iter_trainings(subject):
        order = np.random.default_rng(table.rows).permutation(table.rows)
        one, other = train_tree(by, table), train_tree(by, table.take(order))
        check_same_tree(by, table, f"with its rows in the order {order[:9].tolist()}", one, other)


def check_row_copies(subject: Subject) -> None:
    """Repeat each row as many times as its weight."""
    changed = "with each row repeated `w` times instead of weights"
    for by, table in iter_trainings(subject):
        one, other = train_tree(by, table, weighted=True), train_tree(by, table.repeat_rows())
        check_same_tree(by, table, changed, one, other)


def check_doubled_weights(subject: Subject) -> None:
    """Double all weights, and the limits of weights."""
    limits = {"min_weight_leaf": 2.0, "min_weight_split": 4.0}
    for by, table in iter_trainings(subject):
        twice = replace(table, weights=[2] * table.rows)
        one, two = train_tree(by, table), train_tree(by, twice, weighted=True, **limits)
        check_same_tree(by, table, "with every weight doubled", one, two, 2.0)
