"""What a pruner may ask about a grown tree."""

from __future__ import annotations

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
from treekit.model.tree import Split, Tree

__all__ = [
    "Context",
    "Losses",
    "collapse",
    "graft",
    "kept_nodes",
    "losses_of",
]


# ---------------------------------------------------------------- context

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Context:
    """A grown tree's statistics, node by node, in the grown tree's numbering.

    Attributes
    ----------
    grown : GrownTree
        The tree with the sums over its training rows, ``grown.stats`` (nodes,
        S), and over the hold-out rows, ``grown.held_stats`` (zeros without a
        hold-out): class weights, or ``(w, w * (y - center))``.
    table : Table
        Codes of the training columns.
    losses : Losses
        What a wrong answer costs: `costs` of a classification among them.
    folds : callable
        ``folds(k)``: k trees, each grown without one k-th of the rows, which
        are its hold-out.  Raises `DataError` where trees cannot be regrown.
    impurity : callable, optional
        ``impurity(stats)`` of the training's criterion.
    fractional : bool
        Whether rows go down every branch of a split whose value they miss.
    validated : bool
        Whether the hold-out rows are those of a validation table.
    report : dict
        What the pruner chose (an alpha); it becomes part of the model's provenance.
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
        """(classes, classes) int64, ``costs[i][j]`` for saying j when it is i; None: all 1."""
        return self.losses.costs

    @property
    def stats(self) -> Numbers:
        """(nodes, S) sums over the training rows."""
        return self.grown.stats

    @property
    def held_stats(self) -> Numbers:
        """(nodes, S) sums over the hold-out rows."""
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
        """Raise `DataError` unless some rows were set aside."""
        if not self.held_stats[0].any():
            raise DataError(
                f"{pruner} has no hold-out rows: raise its setting holdout, or the rows, or give "
                "a validation table"
            )


# ---------------------------------------------------------------- collapse
# How pruners cut a tree, and put a subtree in the place of a node.

Nodes = npt.NDArray[np.int64]


def collapse(tree: Tree, cut: npt.NDArray[np.bool_]) -> Tree:
    """The tree in which every node of the mask `cut` (nodes,) is a leaf.

    Nodes below a cut go; the others keep their order.
    """
    source = np.where(cut, -1, np.arange(tree.n_nodes))
    kept = kept_nodes(tree, source)
    return tree.take(kept, source[kept] < 0)


def graft(tree: Tree, source: Nodes) -> Tree:
    """The tree in which node i asks what node ``source[i]`` asked, and has its children.

    Parameters
    ----------
    source : (nodes,) int64
        The node itself, one below it, or -1 for a leaf.  A node that takes
        another's place also says what that one says.

    Returns
    -------
    Tree
        Of the nodes `kept_nodes`.
    """
    kept = kept_nodes(tree, source)
    own = source[kept]
    return tree.take(kept, own < 0, np.where(own < 0, kept, own))


def kept_nodes(tree: Tree, source: Nodes) -> Nodes:
    """The nodes of `tree` that are left when ``source`` says what each asks, ascending.

    Children still come after their parents, and siblings stay side by side:
    a node takes the children of one below it.
    """
    source = np.where(tree.kind[source] == Split.LEAF, -1, source)
    level = np.zeros(1, dtype=np.int64)
    kept = [level]
    # One level of the tree at a time, so that depth costs no recursion.
    while len(level := source[level][source[level] >= 0]):
        counts = tree.n_children[level]
        offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        level = np.repeat(tree.first_child[level].astype(np.int64), counts) + offset
        kept.append(level)
    return np.sort(np.concatenate(kept))


# ---------------------------------------------------------------- losses
# What the answers of nodes cost, in training rows or in others.

Loss = Callable[[Numbers, Numbers], float]


@dataclass(frozen=True)
class Losses:
    """The costs of wrong answers.

    Attributes
    ----------
    task : {"classification", "regression"}
    costs : (classes, classes) int64 or None
        ``costs[i][j]``: cost of saying class j when it is i; None: 1 for each
        mistake.
    blocks : tuple of int
        Several targets: where the cells of each begin in the statistics, whose
        first is the weight, and where the last end.  The cost is the mean over
        the targets.
    loss : callable or None
        A regression criterion's own loss; see `treekit.contracts.CriterionFunctions`.
        None: the squared error.
    layout : Layout or None
        Of a task, whose answer says what classes its statistics stand for.
    dense : bool
        Whether the first statistic is the weight, which is else the sum of all.
    """

    task: Task
    costs: npt.NDArray[np.int64] | None = None
    blocks: tuple[int, ...] = ()
    loss: Loss | None = None
    layout: Layout | None = None
    dense: bool = False

    def risk(self, grown: GrownTree, judged: Numbers) -> Numbers:
        """(nodes,) cost of `judged` rows (nodes, S) at each node, if it were a leaf.

        Classes: the weight of rows not of the node's label, times the costs.
        Numbers: the squared error less ``sum(w * y**2)``, which is the same
        for every way to cut the tree; or the criterion's own loss.
        """
        said = grown.said
        if self.task == "classification":
            return self._of_labels(self._classes(said), self._classes(judged), self.costs)
        if self.loss is not None:
            return self._own_losses(self.loss, said, judged)
        mean = said[:, 1:] / said[:, :1]
        return np.asarray((mean * (mean * judged[:, :1] - 2.0 * judged[:, 1:])).mean(axis=1))

    def squared_risk(self, grown: GrownTree) -> Numbers | None:
        """(nodes,) sum over the hold-out rows of ``w * cost**2``, if each node were a leaf.

        The cost of a row is that of its mistake, or its whole squared error.
        None where it is not known row by row: criteria with a loss of their own.
        """
        if self.loss is not None:
            return None
        if self.task == "classification":
            if len(self.blocks) > 2:
                return self._squared_shares(grown)
            squares = None if self.costs is None else self.costs**2
            label = self.labels(self._classes(grown.said))
            return _cost_of(label, self._classes(grown.held_stats), squares)
        return _fourth_powers(grown)

    def _squared_shares(self, grown: GrownTree) -> Numbers:
        """`squared_risk` of several targets of classes: a row costs the share it has wrong."""
        said, n_targets = grown.said, len(self.blocks) - 1
        right = np.zeros_like(said)
        for begin, end in zip(self.blocks[:-1], self.blocks[1:], strict=True):
            right[np.arange(len(said)), begin + said[:, begin:end].argmax(axis=1)] = 1.0

        def cost(row: Numbers, node: npt.NDArray[np.int64]) -> Numbers:
            return np.asarray(1.0 - (row[:, 1:] * right[node, 1:]).sum(axis=1) / n_targets)

        return _sum_of_squares(grown, cost)

    def squares(self, values: Numbers) -> float:
        """``sum(w * (y - center)**2)``, what `risk` leaves out of squared errors; else 0.

        `values` are the statistics of rows (rows, S).
        """
        if self.task == "classification" or self.loss is not None:
            return 0.0
        return float((values[:, 1:] ** 2 / values[:, :1]).sum() / (values.shape[1] - 1))

    def weight(self, stats: Numbers) -> float:
        """Weight of the rows that `stats` (S,) are of."""
        return float(stats[0] if self.dense else stats.sum())

    def _classes(self, stats: Numbers) -> Numbers:
        """The weights of classes that statistics (nodes, S) stand for."""
        if self.layout is None:
            return stats
        held = stats.any(axis=1)
        answer = np.asarray(self.layout.answer(stats[held] if held.any() else stats[:0]))
        weights = np.zeros((len(stats), answer.shape[1]))
        weights[held] = answer
        return weights

    def labels(self, stats: Numbers) -> npt.NDArray[np.int64]:
        """(nodes,) the first class that costs least, of one target's statistics (nodes, S)."""
        if self.costs is None:
            return np.asarray(stats.argmax(axis=1))
        return np.asarray((stats @ self.costs).argmin(axis=1))

    def _of_labels(
        self, said: Numbers, judged: Numbers, costs: npt.NDArray[np.int64] | None
    ) -> Numbers:
        if len(self.blocks) <= 2:
            return _cost_of(self.labels(said), judged, costs)
        total = np.zeros(len(said))
        for begin, end in zip(self.blocks[:-1], self.blocks[1:], strict=True):
            total += _cost_of(said[:, begin:end].argmax(axis=1), judged[:, begin:end], None)
        return total / (len(self.blocks) - 1)

    def _own_losses(self, loss: Loss, said: Numbers, judged: Numbers) -> Numbers:
        if len(self.blocks) <= 2:
            return np.array([loss(a, b) for a, b in zip(said, judged, strict=True)])
        total = np.zeros(len(said))
        for cell in self.blocks[:-1]:
            pairs = zip(said[:, [0, cell]], judged[:, [0, cell]], strict=True)
            total += [loss(a, b) for a, b in pairs]
        return total / (len(self.blocks) - 1)


def losses_of(
    schema: Schema,
    criterion: CriterionFunctions,
    costs: npt.NDArray[np.int64] | None,
    layout: Layout | None = None,
    *,
    dense: bool,
) -> Losses:
    """Return the losses by which a training is judged.

    `dense` is that of `treekit.grow.target_statistics.Target`.
    """
    if layout is not None and schema.task == "regression":
        return Losses(schema.task, None, (), criterion.loss or _no_loss, layout, dense)
    blocks = tuple(1 + start for start in schema.blocks) if schema.more else ()
    if schema.task == "classification":
        return Losses(schema.task, costs, blocks, None, layout, dense)
    loss = criterion.loss or _rank_loss(criterion)
    return Losses(schema.task, None, blocks, loss, dense=dense)


def _no_loss(stats: Numbers, judged: Numbers) -> float:  # noqa: ARG001 - a loss's
    raise SettingError(
        "the criterion's task has no loss that pruners could judge by; leave the pruner out, and "
        "bound the tree by max_depth, max_leaves or min_weight_leaf"
    )


def _rank_loss(criterion: CriterionFunctions) -> Loss | None:
    """The loss about a quantile, which is what a criterion of ranks measures."""
    impurity = criterion.impurity
    if impurity is None or not isinstance(criterion.statistics, Ranks):
        return None

    def loss(stats: Numbers, judged: Numbers) -> float:  # noqa: ARG001 - judged by them already
        return float(judged[0] * impurity(judged)) if judged[0] > 0 else 0.0

    return loss


def _cost_of(
    label: npt.NDArray[np.int64], judged: Numbers, costs: npt.NDArray[np.int64] | None
) -> Numbers:
    """Cost of the rows `judged` (nodes, classes) under one label a node."""
    if costs is None:
        right = np.take_along_axis(judged, label[:, None], axis=1)[:, 0]
        return np.asarray(judged.sum(axis=1) - right)
    return np.asarray((judged * costs.T[label]).sum(axis=1))


def _fourth_powers(grown: GrownTree) -> Numbers:
    """(nodes,) sum of ``w * squared error**2`` over the hold-out rows, the mean over targets."""
    said = grown.said
    mean = said[:, 1:] / said[:, :1]

    def cost(row: Numbers, node: npt.NDArray[np.int64]) -> Numbers:
        return np.asarray(((row[:, 1:] - mean[node]) ** 2).mean(axis=1))

    return _sum_of_squares(grown, cost)


def _sum_of_squares(
    grown: GrownTree, cost: Callable[[Numbers, npt.NDArray[np.int64]], Numbers]
) -> Numbers:
    """(nodes,) sum of ``w * cost**2`` over the hold-out rows, one level at a time.

    ``cost(rows, nodes)`` takes dense statistics of weight 1 (rows, S) and where they are.
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
