"""Trees trained on small tables with a component under judgement, and how they differ."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit.contracts import Ranks
from treekit.data.dataset import Dataset, make_dataset
from treekit.errors import DataError, PluginError, SettingError, TreekitWarning
from treekit.model.tree import Tree
from treekit.testing.example_tables import Small, shown_numbers, small_tables
from treekit.testing.laws import broken
from treekit.testing.report import Law
from treekit.training import fit

__all__ = [
    "LEAF_WEIGHT",
    "TRAINS",
    "Trainer",
    "difference",
    "for_criterion",
    "trained",
    "trainer",
    "unlike",
]

TRAINS = Law(
    "trains-on-small-tables",
    "Training works on any table: few rows, one class, ties, missing cells, constant columns.",
    "what the message says of the statistics or the node",
)

LEAF_WEIGHT = Law(
    "min-weight-leaf-is-obeyed",
    "Both branches of a split reach node.min_weight_leaf (of several branches at least two).",
    "`heavy_enough(node, children)` before a split is proposed",
)


@dataclass(frozen=True)
class Trainer:
    """Training with the component under judgement.

    Classes are declared, so that small tables lack some of them, and what is
    compiled for one table serves all.

    Attributes
    ----------
    parts : dict
        Settings of the training: ``{"criterion": record, "criterion.base": 2.0}``.
    task : str
    least : float
        Smallest target number that the criterion is defined for.
    classes : tuple of int
        Numbers of classes to try; (0,) for a number.
    beside : mapping of str to str
        Roles of the columns that a task reads beside the target, and their names.
    table : Small or None
        All rows to train on, where they are a task's.
    answers : {"classification", "regression"} or None
        What nodes say: weights of classes, or numbers; None: what `task` is.
    """

    parts: Mapping[str, Any]
    task: Literal["classification", "regression"]
    least: float = -2.0
    classes: tuple[int, ...] = (3,)
    beside: Mapping[str, str] = field(default_factory=dict)
    table: Small | None = None
    answers: Literal["classification", "regression"] | None = None

    def tables(self) -> Iterator[Small]:
        """Tables to train on, small ones first; for a task the first rows of its own table."""
        if self.table is None:
            for classes in self.classes:
                yield from small_tables(classes, self.least)
            return
        for rows in (self.table.rows // 2, self.table.rows):
            yield self.table.taken(range(rows))

    def dataset(self, table: Small, weighted: bool = False, classes: Any = None) -> Dataset:
        """The table, read as `treekit.train` reads it."""
        return make_dataset(
            table.source,
            "y",
            task=self.task,
            weights="w" if weighted else None,
            ignore=() if weighted else ("w",),
            nominal=[name for name in ("c",) if name in table.columns],
            numeric=[name for name in ("x", "z", "k") if name in table.columns],
            classes=classes or self.vocabulary,
            beside=self.beside or None,
        )

    def said(self, tree: Tree) -> npt.NDArray[np.float64]:
        """(nodes, values) what nodes say: of classes the shares, for their weights may double."""
        if (self.answers or self.task) == "regression":
            return tree.value
        total = tree.value.sum(axis=1, keepdims=True)
        return np.asarray(tree.value / np.where(total > 0.0, total, 1.0))

    @property
    def vocabulary(self) -> list[str] | None:
        """The declared classes; None for a number."""
        most = max(self.classes)
        if self.table is not None and most:
            return sorted(set(self.table.target))
        return [f"class {k}" for k in range(most)] if most else None


def trainer(
    kind: str, record: Any, settings: Mapping[str, Any], criterion: str = "", **options: Any
) -> Trainer:
    """A trainer with a component under its settings, and a criterion beside it if one is named."""
    parts = {kind: record, **{f"{kind}.{key}": value for key, value in settings.items()}}
    if criterion:
        parts["criterion"] = criterion
    return Trainer({"seed": 0, **parts}, **options)


def for_criterion(record: Any, functions: Any, settings: Mapping[str, Any]) -> Trainer:
    """A trainer with a criterion of classes or of a number."""
    if record.task == "classification":
        return trainer("criterion", record, settings, task="classification")
    statistics = functions.statistics
    least = None if isinstance(statistics, Ranks) else statistics.smallest
    return trainer(
        "criterion", record, settings, task="regression", classes=(0,),
        least=-2.0 if least is None else least,
    )  # fmt: skip


def trained(
    by: Trainer, table: Small, *, weighted: bool = False, classes: Any = None, **settings: Any
) -> Tree | None:
    """The tree grown on a table; None where treekit itself refuses the table or the settings.

    What the component does wrong is a breach of `TRAINS`, and of a splitter's
    `LEAF_WEIGHT` where training was stopped for branches that are too light.
    """
    given = {**by.parts, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", TreekitWarning
        )  # what does not compile is a fact, no breach
        try:
            dataset = by.dataset(table, weighted, classes)
            return fit(dataset, given).model.trees[0]
        except (DataError, SettingError):
            return None
        except PluginError as error:
            light = "splitter" in by.parts and "min_weight_leaf" in str(error)
            law, wanted = (LEAF_WEIGHT, LEAF_WEIGHT.sentence) if light else (TRAINS, "a tree")
            broken(_call(table, settings), error, wanted, law=law.name, look=law.look)


def _call(table: Small, settings: Mapping[str, Any]) -> str:
    more = "".join(f", {key}={value!r}" for key, value in settings.items())
    return f"treekit.train({table}, 'y'{more})"


def unlike(
    by: Trainer,
    table: Small,
    changed: str,
    one: Tree | None,
    other: Tree | None,
    times: float = 1.0,
    turned: bool = False,
) -> None:
    """A breach of the law under test unless two trees are one.

    Parameters
    ----------
    by : Trainer
        Of both.
    table : Small
    changed : str
        What was done for the second one.
    one, other : Tree or None
    times : float
        Weight of the second tree's rows for each unit of the first's.
    turned : bool
        Whether the second one's classes are those of the first in reverse.
    """
    if one is None or other is None:
        return
    apart = difference(one, other, times) or _said_apart(by, one, other, turned)
    if apart:
        broken(f"{_call(table, {})}, and the same {changed}", apart, "the same tree")


def _said_apart(by: Trainer, one: Tree, other: Tree, turned: bool) -> str:
    """The first node that says another thing in a tree of the same splits, in words."""
    said, again = by.said(one), by.said(other)
    if turned:
        if (by.answers or by.task) == "regression":
            return ""  # numbers may be those of the first class, or of the last
        again = again[:, ::-1]
    if said.shape != again.shape:
        return f"nodes say {said.shape[1]} and {again.shape[1]} numbers"
    largest = max(1e-300, float(np.abs(said).max(initial=0.0)))
    away = ~np.isclose(said, again, rtol=1e-9, atol=1e-9 * largest).all(axis=1)
    if away.any():
        at = int(np.argmax(away))
        return f"node {at} says {shown_numbers(said[at])} and {shown_numbers(again[at])}"
    return ""


def difference(one: Tree, other: Tree, times: float = 1.0) -> str:
    """The first node in which two trees differ, in words; nothing if they do not.

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
        return "other levels in a branch"
    away = ~np.isclose(one.weight * times, other.weight, rtol=1e-9, atol=1e-9)
    if away.any():
        at = int(np.argmax(away))
        return f"node {at}: weight {one.weight[at] * times} and {other.weight[at]}"
    return ""
