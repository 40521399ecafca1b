"""Nodes made by hand, so that a splitter's `find` can be called as plain Python."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit.contracts import SplitterFunctions
from treekit.data.binning import make_table
from treekit.errors import DataError
from treekit.kernels.records import PLAIN, Node
from treekit.splitting import branch_stats, missing_to
from treekit.testing.tables import Small, small_tables
from treekit.testing.training import Trainer
from treekit.training.plan import Part
from treekit.training.prepare import criterion_target

__all__ = ["Prepared", "prepared", "prepared_nodes"]

Judge = namedtuple("Judge", ["score"])


@dataclass(frozen=True, eq=False)
class Prepared:
    """A root node of a small table.

    Attributes
    ----------
    node : Node
    score : callable
        Plain ``score(parent, children)`` of gini or of the squared error.
    text : str
        The table and the limits, for an example.
    names : tuple of str
        Of the columns.
    """

    node: Node
    score: Callable[..., float]
    text: str
    names: tuple[str, ...]

    @property
    def judge(self) -> Any:
        """The criterion as a splitter sees it."""
        return Judge(self.score)

    def weights(self, children: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """(branches,) weight of statistics (branches, S)."""
        return children.sum(axis=1) if len(self.node.rows.cells) else children[:, 0]

    def children(self, split: Any) -> npt.NDArray[np.float64]:
        """(branches, S) of a proposed split, missing rows where they will go."""
        children = branch_stats(self.node, split)
        if split.missing < 0:
            split = missing_to(split, int(np.argmax(self.weights(children))))
            children = branch_stats(self.node, split)
        return children


def prepared(
    table: Small,
    task: Literal["classification", "regression"],
    functions: SplitterFunctions,
    *,
    min_weight_leaf: float = 1.0,
    n_try: int = 0,
    nominal_splits: str = "subset",
    weighted: bool = False,
) -> Prepared | None:
    """The root node of a table; None where treekit refuses the table."""
    by = Trainer({}, task, classes=(3 if task == "classification" else 0,))
    try:
        dataset = by.dataset(table, weighted)
    except DataError:
        return None
    name = "gini" if task == "classification" else "squared_error"
    record = registry.criterion(name)
    measure, _ = registry.make(record, {})
    target = criterion_target(dataset, Part(record, measure, {}, registry.origin(record)), False)
    schema = dataset.schema
    codes = make_table(
        dataset.columns, schema.n_levels, schema.nominal, functions.coding,
        nominal_splits=nominal_splits,  # type: ignore[arg-type]  # one of the known ways
    )  # fmt: skip
    rows = target.rows(np.arange(dataset.n_rows, dtype=np.uint32), None)
    stats = np.zeros(target.size)
    if target.dense:
        stats += rows.values.sum(axis=0)
    else:
        np.add.at(stats, rows.cells, rows.values[:, 0])
    weight = float(stats[0] if target.dense else stats.sum())
    impurity = float(measure.impurity(stats)) if measure.impurity else 0.0
    tried = n_try or len(codes.n_codes)
    node = Node(codes, rows, stats, weight, impurity, 0, min_weight_leaf, tried, PLAIN, None)
    text = f"the root of {table}, min_weight_leaf={min_weight_leaf:g}, n_try={tried}"
    return Prepared(node, measure.score, text, tuple(schema.names))


_TASKS: tuple[Literal["classification", "regression"], ...] = ("classification", "regression")


def prepared_nodes(functions: SplitterFunctions) -> Iterator[Prepared]:
    """Roots of tables of classes and of a number, small ones first."""
    for tables in zip(small_tables(3), small_tables(0), strict=True):
        for table, task in zip(tables, _TASKS, strict=True):
            for least, way in ((1.0, "subset"), (3.0, "multiway")):
                made = prepared(
                    table, task, functions, min_weight_leaf=least, nominal_splits=way,
                    weighted=way == "multiway",
                )  # fmt: skip
                if made is not None:
                    yield made
