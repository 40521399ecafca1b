"""Histograms of the split columns: how the rows of a node lie on both sides of its split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import make_validation
from treekit.model.model import Model
from treekit.model.scoring import leaf_indices
from treekit.model.split_tests import InnerNode
from treekit.model.tree import Split
from treekit.rules.wording import format_picture_label, format_rounded

N_BINS = 20
"""Bins of the range of a number; one or two more where the threshold is not between two."""

MAX_CATEGORIES = 12
"""Categories with a bar of their own, the heaviest of the node."""


class Histogram(NamedTuple):
    """Rows of a node by the column of its split; missing values are left out.

    Attributes
    ----------
    bars : tuple of tuples of float
        For each bin or category, from left to right: rows of each entry of the legend, or of
        all rows for numbers and several targets.
    ends : tuple of str
        Smallest and largest number, or the names of the categories.
    split_at : float
        Position of the split: 0 is the left end of the first bar, 1 the right end of the last.
    row_at : float or None
        Position of the explained row.
    missing : int
        Rows in which the column is missing.
    """

    bars: tuple[tuple[float, ...], ...]
    ends: tuple[str, ...]
    split_at: float
    row_at: float | None = None
    missing: int = 0


class NodeRows:
    """Rows of a table by the nodes of one tree that they pass.

    For fractional instances, the path to the leaf with most of a row's mass.

    Parameters
    ----------
    model : Model
    number : int
        Tree, from 0.
    table : table
        Anything that `treekit.train` accepts, with the target.

    Raises
    ------
    DataError
        If the table cannot be read, or lacks a column.
    """

    def __init__(self, model: Model, number: int, table: Any) -> None:
        dataset = make_validation(
            table, model.schema, missing=model.missing, unknown=model.unknown, noun="the table"
        )
        self.cells = dataset.to_matrix()
        self._schema = model.schema
        one_target = model.schema.task == "classification" and not model.schema.more
        self._classes = dataset.y if one_target else np.zeros(dataset.n_rows, dtype=np.int64)
        self._leaves = leaf_indices(model, self.cells)[:, number]
        self._parent = model.trees[number].parent.tolist()

    def find_rows(self, nodes: Sequence[int]) -> dict[int, npt.NDArray[np.intp]]:
        """Return the rows that pass each of some nodes."""
        leaves, leaf_of_row = np.unique(self._leaves, return_inverse=True)
        below: dict[int, list[int]] = {node: [] for node in nodes}
        for place, leaf in enumerate(leaves.tolist()):
            node = leaf
            while True:
                if node in below:
                    below[node].append(place)
                if node == 0:
                    break
                node = self._parent[node]
        return {
            node: np.flatnonzero(np.isin(leaf_of_row, places)) for node, places in below.items()
        }

    def count(
        self,
        rows: npt.NDArray[np.intp],
        node: InnerNode,
        entry_of_class: Sequence[int],
        row: Sequence[float] | None = None,
    ) -> Histogram | None:
        """Return the histogram of `rows` at a node; None if its split has no single column.

        Parameters
        ----------
        rows : (n,) int
        node : InnerNode
        entry_of_class : sequence of int
            Entry of the legend for each class; empty for numbers and several targets.
        row : (features,) sequence of float, optional
            Encoded row to mark.
        """
        if node.kind not in (Split.THRESHOLD, Split.SUBSET, Split.MULTIWAY):
            return None
        test = node.tests[0]
        column = test.columns[0]
        values = self.cells[rows, column].astype(np.float64)
        known = ~np.isnan(values)
        values = values[known]
        entries = np.zeros(len(values), dtype=np.int64)
        if entry_of_class:
            entries = np.asarray(entry_of_class)[self._classes[rows][known]]
        mark = None if row is None or np.isnan(row[column]) else float(row[column])
        n_entries = max(entry_of_class, default=0) + 1
        missing = int((~known).sum())
        if node.kind == Split.THRESHOLD:
            found = _count_numbers(values, entries, n_entries, test.threshold, mark)
        else:
            levels = self._schema.columns[column].levels
            found = _count_levels(values, entries, n_entries, test.branches, mark, levels)
        return found and found._replace(missing=missing)


def _count_numbers(
    values: npt.NDArray[np.float64],
    entries: npt.NDArray[np.int64],
    n_entries: int,
    threshold: float,
    mark: float | None,
) -> Histogram | None:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    low, high = float(finite.min()), float(finite.max())
    # In halves, since the width of the range may overflow.
    width = (high / 2 - low / 2 or 1.0) / N_BINS
    middle = min(max(threshold, low), high) / 2

    def measure(x: Any) -> Any:
        return (np.clip(x, low, high) / 2 - middle) / width

    # Bins begin at the threshold, so that each lies on one side.
    bins = np.ceil(measure(values)).astype(np.int64) - 1
    bins = np.where(values <= threshold, np.minimum(bins, -1), np.maximum(bins, 0))
    first, last = min(int(bins.min()), 0), max(int(bins.max()), -1)
    counts = np.zeros((last - first + 1, n_entries))
    np.add.at(counts, (bins - first, entries), 1.0)
    row_at = None
    if mark is not None:
        row_at = min(max((float(measure(mark)) - first) / len(counts), 0.0), 1.0)
    return Histogram(
        tuple(map(tuple, counts.tolist())),
        (format_rounded(low, 3), format_rounded(high, 3)),
        -first / len(counts),
        row_at,
    )


def _count_levels(
    values: npt.NDArray[np.float64],
    entries: npt.NDArray[np.int64],
    n_entries: int,
    branches: Sequence[int],
    mark: float | None,
    levels: Sequence[Any],
) -> Histogram | None:
    counts = np.zeros((len(levels), n_entries))
    np.add.at(counts, (values.astype(np.int64), entries), 1.0)
    heaviest = np.argsort(-counts.sum(axis=1), kind="stable")[:MAX_CATEGORIES].tolist()
    present = [level for level in heaviest if counts[level].any()]
    shown = sorted(present, key=lambda level: (branches[level], level))
    if not shown:
        return None
    first = sum(branches[level] == branches[shown[0]] for level in shown)
    at = shown.index(int(mark)) if mark is not None and int(mark) in shown else None
    return Histogram(
        tuple(map(tuple, counts[shown].tolist())),
        tuple(format_picture_label(levels[level]) for level in shown),
        first / len(shown),
        None if at is None else (at + 0.5) / len(shown),
    )
