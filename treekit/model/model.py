"""A model: a schema, trees, and leaf values put on portable integers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ModelError
from treekit.model.concatenated import GROUP, groups
from treekit.model.fixed_point import (
    MASS,
    UNITS,
    Grid,
    grid_shape,
    quotas,
    regression_grid,
    sum_grid,
    sum_grid_of,
    units_per_tree,
)
from treekit.model.links import Combine, Link
from treekit.model.tree import Tree
from treekit.model.validation import check_policies, check_trees

if TYPE_CHECKING:
    from treekit.explain import Explanation
    from treekit.model.packing import PackedModel, StraightTree
    from treekit.model.row_scorer import Scorer
    from treekit.plot import Picture
    from treekit.rules import RuleList

__all__ = [
    "Ballot",
    "MissingPolicy",
    "Model",
    "UnknownPolicy",
    "Voting",
    "least_cost",
    "make_model",
    "model_of",
    "spread",
    "spread_trees",
    "units_each",
]


# ---------------------------------------------------------------- ensemble

MissingPolicy = Literal["direction", "fractional", "surrogate", "error"]
"""What happens to a missing value.

``direction``: the branch stored in each split.  ``fractional``: down every
branch, in proportion to training weight (Quinlan 1993).  ``surrogate``: the
first of the split's surrogates that applies decides, then the stored branch
(Breiman et al. 1984).  ``error``: prediction refuses the row.
"""
UnknownPolicy = Literal["missing", "error"]
"""What a category outside the vocabulary is: ``missing``, or an ``error``."""

Voting = Literal["soft", "hard"]
"""``soft``: a leaf spreads its votes as its class weights.  ``hard``: one vote for its label."""

_NAMED = 4
"""Targets that a model's `repr` names."""


@dataclass(frozen=True, eq=False)
class Model:
    """An ensemble of trees (one tree is an ensemble of one).

    Make one with `make_model`, which checks the trees and computes `units`.

    Attributes
    ----------
    schema : Schema
    trees : tuple of Tree
    units : (leaves, values) int64
        Leaf values on the integers (see `treekit.model.fixed_point`), tree after tree, in node
        order.
    exponent : int
        Numbers and margins: the grid's step is ``2**exponent``.  0 for votes.
    missing, unknown : str
        What happens to missing cells and to categories outside the vocabulary.
    voting : {"soft", "hard"}
    costs : (classes, classes) int64, or None
        ``costs[i, j]`` of saying class j when it is class i, 0 to
        `treekit.model.validation.MAX_COST`: the label is the first of least expected
        cost.  None: most votes.  Hard votes weigh costs in each leaf, and most
        votes decide.
    combine : {"mean", "sum"}
        What the numbers of the trees are put together to.  Classification: a sum is
        one of margins, not of votes; see `margins`.
    link : {"identity", "exp", "sigmoid", "softmax"}
        What turns numbers, or margins, into answers; see `treekit.model.links`.
    settings : dict
        Every setting the model was trained with, as plain values.
    provenance : dict
        What made it: treekit's version, plugins with distribution and version.
    """

    schema: Schema
    trees: tuple[Tree, ...]
    units: npt.NDArray[np.int64] = field(repr=False)
    exponent: int = 0
    missing: MissingPolicy = "direction"
    unknown: UnknownPolicy = "missing"
    voting: Voting = "soft"
    costs: npt.NDArray[np.int64] | None = None
    combine: Combine = "mean"
    link: Link = "identity"
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    provenance: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for array in (self.units, self.costs):
            if array is not None:
                array.flags.writeable = False  # so that kernels are compiled for one type, too

    def __repr__(self) -> str:
        trees = "1 tree" if self.n_trees == 1 else f"{self.n_trees} trees"
        names = [repr(output.name) for output in self.schema.outputs]
        targets = ", ".join(names[:_NAMED])
        if len(names) > _NAMED:
            targets += f" and {len(names) - _NAMED} more"
        return (
            f"<Model: {self.schema.task} of {targets} by "
            f"{self.schema.n_features} columns, {trees}, {self.n_leaves} leaves>"
        )

    @property
    def label_costs(self) -> npt.NDArray[np.int64] | None:
        """What weighs the sums of votes for a label; hard votes were weighed in their leaves."""
        return None if self.voting == "hard" else self.costs

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.trees)

    @cached_property
    def n_nodes(self) -> int:
        """Nodes of all trees, leaves included."""
        return sum(tree.n_nodes for tree in self.trees)

    @cached_property
    def n_leaves(self) -> int:
        """Leaves of all trees."""
        return sum(tree.n_leaves for tree in self.trees)

    @cached_property
    def depth(self) -> int:
        """Edges from a root to the deepest leaf of any tree."""
        return max(tree.depth for tree in self.trees)

    @property
    def mass(self) -> int:
        """What a row weighs in integer sums: `MASS` if it may divide, else 1."""
        return MASS if self.missing == "fractional" else 1

    @property
    def margins(self) -> bool:
        """Whether leaves hold margins of the classes, as boosting makes them, and no votes.

        The label is the first class of the largest sum.  Of two the first one's is 0.
        """
        return self.schema.task == "classification" and self.combine == "sum"

    @property
    def divisor(self) -> int:
        """Numbers and margins: the answer is the sum divided by it, times the grid's step."""
        return self.mass if self.combine == "sum" else self.n_trees * self.mass

    @property
    def units_each(self) -> int:
        """Classification: votes that each leaf spreads over the classes of an output, U."""
        return units_each(self)

    @property
    def unit_total(self) -> int:
        """Classification: the sum of one row's votes over all classes of an output."""
        return self.units_each * self.n_trees * self.mass

    @property
    def grid(self) -> Grid:
        """Numbers and margins: the integer grid of the leaf values."""
        if self.combine == "sum":
            return sum_grid(self.exponent)
        return Grid(self.exponent, *grid_shape(self.n_trees, self.schema.dtype, self.mass))

    @cached_property
    def leaf_offsets(self) -> npt.NDArray[np.int64]:
        """(trees + 1,) int64: tree t owns ``units[offsets[t]:offsets[t + 1]]``."""
        counts = [tree.n_leaves for tree in self.trees]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def tree_units(self, tree: int) -> npt.NDArray[np.int64]:
        """(leaves, outputs) int64: integer leaf values of one tree, in node order."""
        return self.units[self.leaf_offsets[tree] : self.leaf_offsets[tree + 1]]

    @cached_property
    def packed(self) -> PackedModel:
        """The trees as the scorer wants them, made once; see `treekit.model.packing`."""
        from treekit.model.packing import pack

        return pack(self)

    @cached_property
    def straight(self) -> StraightTree | None:
        """A single plain tree for its own loops, made once; see `treekit.model.packing`."""
        from treekit.model.packing import straight_tree

        return straight_tree(self)

    def predict(self, rows: Any) -> npt.NDArray[Any]:
        """The label, or the number, of each row of any table that `read_table` takes.

        Returns
        -------
        (rows,) array
            Labels of the schema's type, or float64 for regression;
            (rows, outputs) if the model has several outputs.
        """
        from treekit.model.scoring import predict

        return predict(self, rows)

    def predict_proba(self, rows: Any) -> Any:
        """(rows, classes) float64: the probability of each class, in schema order.

        A list of such arrays if the model has several outputs.
        """
        from treekit.model.scoring import predict_proba

        return predict_proba(self, rows)

    def scorer(self) -> Scorer:
        """A handle that scores one row in microseconds; see `treekit.model.row_scorer`."""
        from treekit.model.row_scorer import Scorer

        return Scorer(self)

    def save(self, path: str | Path) -> None:
        """Write the model file atomically; see `treekit.model.model_file`."""
        from treekit.model.model_file import save

        save(self, path)

    def rules(self, *, join: bool = True, decisions: bool = False) -> RuleList:
        """The model as readable rules; ``print`` it, or ask for a tree with ``of_tree``.

        Parameters
        ----------
        join : bool
            Say leaves of equal answers in one rule wherever that is exact; else one rule a
            leaf.
        decisions : bool
            Join whatever has the same label, which is all that the rules then say; see
            `treekit.rules.joined_rules`.
        """
        from treekit.rules import joined_rules, rules

        return joined_rules(self, decisions=decisions) if join or decisions else rules(self)

    def explain(self, row: Any, **options: Any) -> Explanation:
        """Why a row is answered so, and what would alter that; see `treekit.explain`."""
        from treekit.explain import explain

        return explain(self, row, **options)

    def plot(self, path: str | Path | None = None, **options: Any) -> Picture:
        """A tree as a picture, written to a file if one is named; see `treekit.plot.plot`."""
        from treekit.plot import plot

        return plot(self, path, **options)

    def _repr_html_(self) -> str:
        """What a notebook shows: the tree, or the first one of a forest."""
        return self.plot()._repr_html_()


def make_model(
    schema: Schema,
    trees: list[Tree] | tuple[Tree, ...],
    *,
    missing: MissingPolicy = "direction",
    unknown: UnknownPolicy = "missing",
    voting: Voting = "soft",
    costs: npt.ArrayLike | None = None,
    combine: Combine = "mean",
    link: Link = "identity",
    settings: dict[str, Any] | None = None,
    provenance: dict[str, Any] | None = None,
) -> Model:
    """Check the trees and put their leaf values on the integers.

    Raises
    ------
    ModelError
        If a tree is malformed for `schema`, or a policy, a way to vote, a cost
        or a link is unknown or does not fit.
    """
    if not trees:
        raise ModelError("a model needs at least one tree")
    check_trees(trees, schema, margins=combine != "mean")
    frame = Model(
        schema=schema,
        trees=tuple(trees),
        units=np.empty((0, schema.n_values), dtype=np.int64),
        missing=missing,
        unknown=unknown,
        voting=voting,
        costs=None if costs is None else np.array(costs),
        combine=combine,
        link=link,
        settings=settings or {},
        provenance=provenance or {},
    )
    check_policies(frame)
    if schema.task == "classification" and not frame.margins:
        return replace(frame, units=spread_trees(frame, trees))
    leaf_values = np.concatenate([tree.value[tree.leaves] for tree in trees])
    largest = np.maximum.reduceat(np.abs(leaf_values), frame.leaf_offsets[:-1], axis=0)
    if combine == "sum":
        grid = sum_grid_of(largest)
    else:
        grid = regression_grid(float(largest.max()), len(trees), schema.dtype, frame.mass)
    return replace(frame, units=grid.to_grid(leaf_values), exponent=grid.exponent)


# ---------------------------------------------------------------- votes
# How leaves vote, and how sums of votes become a label.


class Ballot(Protocol):
    """What decides how many votes a leaf has; see `treekit.model.model.Model`."""

    @property
    def schema(self) -> Schema: ...  # noqa: D102
    @property
    def n_trees(self) -> int: ...  # noqa: D102
    @property
    def mass(self) -> int: ...  # noqa: D102
    @property
    def voting(self) -> Voting: ...  # noqa: D102
    @property
    def costs(self) -> npt.NDArray[np.int64] | None: ...  # noqa: D102


def units_each(model: Ballot) -> int:
    """Votes that each leaf of a model spreads over the classes of an output."""
    if model.voting == "hard":
        return 1
    wide = model.mass == 1 and model.costs is None
    return units_per_tree(model.n_trees, model.schema.dtype if wide else "float32")


def spread(model: Ballot, values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Class weights (leaves, values) as votes, each output's classes apart."""
    blocks = model.schema.blocks
    parts = []
    for first, last in itertools.pairwise(blocks):
        weights = values[:, first:last]
        if model.voting == "hard":
            label = least_cost(quotas(weights, UNITS["float32"]), model.costs)
            weights = np.eye(last - first)[label]
        parts.append(quotas(weights, units_each(model)))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def spread_trees(model: Ballot, trees: Sequence[Tree]) -> npt.NDArray[np.int64]:
    """The votes of all leaves, tree after tree and in node order."""
    units = np.empty((sum(tree.n_leaves for tree in trees), model.schema.n_values), dtype=np.int64)
    at = 0
    for group in groups(trees, GROUP):  # all weights at once would be as large as the votes
        weights = np.concatenate([tree.value[tree.leaves] for tree in group])
        units[at : at + len(weights)] = spread(model, weights)
        at += len(weights)
    return units


def least_cost(
    votes: npt.NDArray[np.int64], costs: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.int64]:
    """(rows,) int64: the first class of most votes, or of least expected cost."""
    label: npt.NDArray[np.int64]
    if costs is not None:
        label = (votes @ costs).argmin(axis=1)
    elif votes.shape[1] == 2:  # an argmax along a short axis costs a call a row
        label = (votes[:, 1] > votes[:, 0]).astype(np.int64)
    else:
        label = votes.argmax(axis=1)
    return label


# ---------------------------------------------------------------- given
# What a user gives as a model.


def model_of(given: object) -> Model:
    """The model itself, or that of a fitted estimator.

    Raises
    ------
    TypeError
        For anything else.
    """
    model = getattr(given, "model_", given)
    if isinstance(model, Model):
        return model
    if isinstance(given, str | Path):
        remedy = "read a model file with treekit.load first"
    elif hasattr(given, "fit"):
        remedy = (
            "fit the treekit estimator first, or bring a model of scikit-learn in with its importer"
        )
    else:
        remedy = "give what treekit.train or treekit.load returns"
    raise TypeError(f"a treekit model is needed, not {type(given).__name__}; {remedy}")
