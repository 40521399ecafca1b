"""Context and tools for pruners: statistics, losses, and edits of a grown tree."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.contracts import CriterionFunctions, Layout, Ranks
from treekit.data.schema import Schema, Task
from treekit.errors import DataError, SettingError
from treekit.grow.recipe import GrownTree
from treekit.kernels.records import Table
from treekit.model.tree import Split, Tree, expand_slices

__all__ = ["Context", "Losses", "collapse", "graft", "kept_nodes", "losses_of"]


# ---------------------------------------------------------------- context

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Context:
    """Statistics of a grown tree, by node, in the grown tree's numbering.

    Attributes
    ----------
    grown : GrownTree
        The tree with S sums for each node, over its training rows
        (``grown.stats``, (nodes, S)) and over its hold-out rows (``grown.held_stats``, zeros
        without a hold-out).  The sums are the weight of each class, or for regression the
        weight and ``w * (y - center)``.
    table : Table
        Codes of the training columns.
    losses : Losses
        Costs of wrong predictions, including the misclassification `costs`.
    folds : callable
        ``folds(k)``: k trees, each grown without one k-th of the rows, which
        are its hold-out.  Raises `DataError` if trees cannot be regrown.
    impurity : callable, optional
        ``impurity(stats)`` of the training criterion.
    fractional : bool
        Whether a row with a missing value goes down every branch of the split.
    validated : bool
        Whether the hold-out rows come from a validation table.
    report : dict
        Results of the pruner, such as the alpha it chose; stored in the model's provenance.
    """

    grown: GrownTree
    table: Table
    losses: Losses
    folds: Callable[[int], list[GrownTree]]
    impurity: Callable[[Numbers], float] | None = None
    fractional: bool = False
    validated: bool = False
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> Task:
        """``classification`` or ``regression``."""
        return self.losses.task

    @property
    def costs(self) -> npt.NDArray[np.int64] | None:
        """(classes, classes) int64, ``costs[i][j]``: cost of predicting j for i; None: all 1."""
        return self.losses.costs

    @property
    def stats(self) -> Numbers:
        """(nodes, S) sums over the training rows of each node; see `grown`."""
        return self.grown.stats

    @property
    def held_stats(self) -> Numbers:
        """(nodes, S) sums over the hold-out rows of each node; see `grown`."""
        return self.grown.held_stats

    @property
    def risk(self) -> Numbers:
        """(nodes,) training cost of each node as a leaf; see `Losses.risk`."""
        return self.losses.risk(self.grown, self.stats)

    @property
    def held_risk(self) -> Numbers:
        """(nodes,) hold-out cost of each node as a leaf."""
        return self.losses.risk(self.grown, self.held_stats)

    def need_holdout(self, pruner: str) -> None:
        """Raise `DataError` unless some rows were held out."""
        if not self.held_stats[0].any():
            raise DataError(
                f"{pruner} has no hold-out rows: increase its setting holdout, add rows, or pass "
                "a validation table"
            )


# ---------------------------------------------------------------- tree edits

Nodes = npt.NDArray[np.int64]


def collapse(tree: Tree, cut: npt.NDArray[np.bool_]) -> Tree:
    """Return the tree in which every node of the mask `cut` (nodes,) is a leaf.

    Nodes below a cut are removed; the others keep their order.
    """
    source = np.where(cut, -1, np.arange(tree.n_nodes))
    kept = kept_nodes(tree, source)
    return tree.take(kept, source[kept] < 0)


def graft(tree: Tree, source: Nodes) -> Tree:
    """Return the tree in which node i has the split and the children of node ``source[i]``.

    Parameters
    ----------
    source : (nodes,) int64
        The node itself, one below it, or -1 for a leaf.  A node that is replaced
        by another also takes the other's value.

    Returns
    -------
    Tree
        With the nodes that `kept_nodes` returns.
    """
    kept = kept_nodes(tree, source)
    own = source[kept]
    return tree.take(kept, own < 0, np.where(own < 0, kept, own))


def kept_nodes(tree: Tree, source: Nodes) -> Nodes:
    """Return the nodes of `tree` that remain under ``source``, ascending; see `graft`.

    Children still come after their parents, and siblings stay side by side:
    a node takes the children of one node below it.
    """
    source = np.where(tree.kind[source] == Split.LEAF, -1, source)
    level = np.zeros(1, dtype=np.int64)
    kept = [level]
    # One level of the tree at a time: no recursion, however deep the tree.
    while len(level := source[level][source[level] >= 0]):
        level = expand_slices(tree.first_child[level], tree.n_children[level])
        kept.append(level)
    return np.sort(np.concatenate(kept))


# ---------------------------------------------------------------- losses

Loss = Callable[[Numbers, Numbers], float]


@dataclass(frozen=True)
class Losses:
    """Costs of wrong predictions.

    Attributes
    ----------
    task : {"classification", "regression"}
    costs : (classes, classes) int64 or None
        ``costs[i][j]``: cost of predicting class j for class i; None: 1 for each
        mistake.
    blocks : tuple of int
        Several targets: first statistic of each target, and the end of the last; statistic
        0, the weight, is in no block.  The cost is the mean over the targets.
    loss : callable or None
        A regression criterion's own loss; see `treekit.contracts.CriterionFunctions`.
        None: the squared error.
    layout : Layout or None
        Layout of a plugin's task; its ``answer`` converts statistics to class weights.
    dense : bool
        Whether statistic 0 is the weight of the rows.  Otherwise the statistics are class
        weights, and the weight of the rows is their sum.
    """

    task: Task
    costs: npt.NDArray[np.int64] | None = None
    blocks: tuple[int, ...] = ()
    loss: Loss | None = None
    layout: Layout | None = None
    dense: bool = False

    def risk(self, grown: GrownTree, judged: Numbers) -> Numbers:
        """Compute (nodes,) the cost of the rows `judged` (nodes, S) at each node as a leaf.

        Classification: the weight of rows whose class is not the node's label, times the
        costs.  Regression: the squared error minus ``sum(w * y**2)``, which is the same
        for every subtree; or the criterion's own loss.
        """
        values = grown.said
        if self.task == "classification":
            values, judged = map(self._compute_class_weights, (values, judged))
            each = [
                _compute_label_cost(self.labels(values[:, own]), judged[:, own], self.costs)
                for own in self._list_targets()
            ]
            return np.asarray(sum(each) / len(each))
        if self.loss is not None:
            # The statistics of one of several targets: the weight, and a sum.
            cells: list[Any] = [slice(None)]
            if len(self.blocks) > 2:
                cells = [[0, cell] for cell in self.blocks[:-1]]
            each = [np.array(list(map(self.loss, values[:, own], judged[:, own]))) for own in cells]
            return np.asarray(sum(each) / len(each))
        mean = values[:, 1:] / values[:, :1]
        return np.asarray((mean * (mean * judged[:, :1] - 2.0 * judged[:, 1:])).mean(axis=1))

    def squared_risk(self, grown: GrownTree) -> Numbers | None:
        """Compute (nodes,) ``sum(w * cost**2)`` over the hold-out rows, each node as a leaf.

        The cost of a row is its misclassification cost, or its squared error.  None if the
        criterion has its own loss, which is not defined for single rows.
        """
        if self.loss is not None:
            return None
        values = grown.said
        if self.task == "regression":
            mean = values[:, 1:] / values[:, :1]
            return _sum_squared_costs(
                grown, lambda row, node: ((row[:, 1:] - mean[node]) ** 2).mean(axis=1)
            )
        targets = self._list_targets()
        if len(targets) == 1:
            squares = None if self.costs is None else self.costs**2
            label = self.labels(self._compute_class_weights(values))
            return _compute_label_cost(
                label, self._compute_class_weights(grown.held_stats), squares
            )
        right = np.zeros_like(values)
        for own in targets:
            right[np.arange(len(values)), own.start + self.labels(values[:, own])] = 1.0
        # The cost of a row is the share of its targets that are predicted wrongly.
        return _sum_squared_costs(
            grown, lambda row, node: 1.0 - (row * right[node]).sum(axis=1) / len(targets)
        )

    def _list_targets(self) -> list[slice]:
        """Return the columns of each class target's statistics."""
        if len(self.blocks) <= 2:
            return [slice(None)]
        return [slice(begin, end) for begin, end in itertools.pairwise(self.blocks)]

    def squares(self, values: Numbers) -> float:
        """Return ``sum(w * (y - center)**2)``, a constant omitted by `risk`; 0 if it omits nothing.

        `values` are the statistics of rows (rows, S).
        """
        if self.task == "classification" or self.loss is not None:
            return 0.0
        return float((values[:, 1:] ** 2 / values[:, :1]).sum() / (values.shape[1] - 1))

    def weight(self, stats: Numbers) -> float:
        """Return the total weight of the rows whose summed statistics are `stats` (S,)."""
        return float(stats[0] if self.dense else stats.sum())

    def _compute_class_weights(self, stats: Numbers) -> Numbers:
        """Convert statistics (nodes, S) to class weights."""
        if self.layout is None:
            return stats
        occupied = stats.any(axis=1)
        answer = np.asarray(self.layout.answer(stats[occupied] if occupied.any() else stats[:0]))
        weights = np.zeros((len(stats), answer.shape[1]))
        weights[occupied] = answer
        return weights

    def labels(self, stats: Numbers) -> npt.NDArray[np.int64]:
        """Return (nodes,) int64: the code of the first class of lowest cost at each node.

        `stats` (nodes, S) are the statistics of one target.
        """
        if self.costs is None:
            return np.asarray(stats.argmax(axis=1))
        return np.asarray((stats @ self.costs).argmin(axis=1))


def losses_of(
    schema: Schema,
    criterion: CriterionFunctions,
    costs: npt.NDArray[np.int64] | None,
    layout: Layout | None = None,
    *,
    dense: bool,
) -> Losses:
    """Return the losses by which a training run is judged.

    `dense` is `treekit.grow.target_statistics.TargetStatistics.is_dense`.
    """
    loss = criterion.loss
    blocks: tuple[int, ...] = ()
    if layout is None and schema.more:
        blocks = tuple(1 + start for start in schema.blocks)
    if schema.task == "regression":
        costs = None
        loss = loss or (_make_rank_loss(criterion) if layout is None else _refuse_loss)
    return Losses(schema.task, costs, blocks, loss, layout, dense)


def _refuse_loss(stats: Numbers, judged: Numbers) -> float:  # noqa: ARG001 - a loss's
    raise SettingError(
        "this pruner requires a loss, but the criterion defines none; omit the pruner, and limit "
        "the tree by max_depth, max_leaves or min_weight_leaf"
    )


def _make_rank_loss(criterion: CriterionFunctions) -> Loss | None:
    """Return the quantile loss of a criterion on ranks: its impurity times the weight."""
    impurity = criterion.impurity
    if impurity is None or not isinstance(criterion.statistics, Ranks):
        return None

    def loss(stats: Numbers, judged: Numbers) -> float:  # noqa: ARG001 - judged by them already
        return float(judged[0] * impurity(judged)) if judged[0] > 0 else 0.0

    return loss


def _compute_label_cost(
    label: npt.NDArray[np.int64], judged: Numbers, costs: npt.NDArray[np.int64] | None
) -> Numbers:
    """Compute the cost of the rows `judged` (nodes, classes), given one label per node."""
    if costs is None:
        right = np.take_along_axis(judged, label[:, None], axis=1)[:, 0]
        return np.asarray(judged.sum(axis=1) - right)
    return np.asarray((judged * costs.T[label]).sum(axis=1))


def _sum_squared_costs(
    grown: GrownTree, cost: Callable[[Numbers, npt.NDArray[np.int64]], Numbers]
) -> Numbers:
    """Sum ``w * cost**2`` over each node's hold-out rows, one tree level at a time: (nodes,).

    ``cost(rows, nodes)`` takes dense statistics of weight 1 (rows, S) and the node of each.
    """
    parent, n_nodes = grown.tree.parent, grown.tree.n_nodes
    weight, node = grown.held_values[:, 0], grown.held_leaf
    row = grown.held_values / weight[:, None]
    total = np.zeros(n_nodes)
    while len(node):
        total += np.bincount(node, weight * cost(row, node) ** 2, minlength=n_nodes)
        node = parent[node]
        below = node >= 0
        node, row, weight = node[below], row[below], weight[below]
    return total
