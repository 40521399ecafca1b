"""The `Model`: a schema, trees, and fixed-point leaf values."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ModelError
from treekit.model.fixed_point import (
    MASS,
    MASS_BITS,
    SUM_LIMIT,
    UNIT_BUDGET,
    Exponent,
    Grid,
    apportion,
    count_tree_units,
    fit_regression_grid,
    fit_sum_grid,
    is_fine_enough,
    list_grid_limits,
)
from treekit.model.links import Combine, Link
from treekit.model.tree import FIELD_DTYPES, DerivedColumns, Tree, batch_trees, make_derived_columns
from treekit.model.validation import check_policies, check_trees

if TYPE_CHECKING:
    from treekit.data.encoding import Absent
    from treekit.explain import Explanation
    from treekit.model.packing import PackedModel, StraightTree
    from treekit.model.row_scorer import Scorer
    from treekit.rules import RuleList


# ---------------------------------------------------------------- model

MissingPolicy = Literal["direction", "fractional", "surrogate", "error"]
"""Treatment of missing values.

``direction``: take the branch stored in each split.  ``fractional``: take all
branches, in proportion to training weight (Quinlan 1993).  ``surrogate``: take the
branch of the first surrogate that applies, else the stored branch (Breiman et al.
1984).  ``error``: reject the row.
"""
UnknownPolicy = Literal["missing", "error"]
"""Treatment of categories outside the vocabulary: as ``missing``, or as an ``error``."""

Voting = Literal["soft", "hard"]
"""``soft``: a leaf votes in proportion to its class weights.  ``hard``: one vote for its label."""

_MAX_REPR_TARGETS = 4
"""Most targets that the `repr` of a model lists."""


@dataclass(frozen=True, eq=False)
class Model:
    """An ensemble of one or more trees.

    Create it with `make_model`, which checks the trees and computes `units`.

    Attributes
    ----------
    schema : Schema
    trees : tuple of Tree
    units : (leaves, values) int64
        Fixed-point leaf values (see `treekit.model.fixed_point`), tree after tree, in node
        order.
    exponent : int or (outputs,) tuple of int
        Numbers and margins: the fixed-point step is ``2**exponent``, for each output if the
        steps differ.  0 for votes.
    missing, unknown : str
        Treatment of missing cells and of categories outside the vocabulary.
    voting : {"soft", "hard"}
    costs : (classes, classes) int64, or None
        Misclassification costs: ``costs[i, j]`` of predicting class j for true class i,
        0 to `treekit.model.validation.MAX_COST`.  The label is the first class of least
        expected cost.  None: most votes.  With hard voting, costs determine the vote of
        each leaf, and the class with most votes is predicted.
    combine : {"mean", "sum"}
        Combination of the trees' values.  For classification, ``sum`` adds margins
        instead of votes; see `margins`.
    link : {"identity", "exp", "sigmoid", "softmax"}
        Link function from numbers or margins to predictions; see `treekit.model.links`.
    settings : dict
        All settings that the model was trained with, as plain values.
    provenance : dict
        Origin of the model: treekit's version, plugins with distribution and version.
    """

    schema: Schema
    trees: tuple[Tree, ...]
    units: npt.NDArray[np.int64] = field(repr=False)
    exponent: Exponent = 0
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
                array.flags.writeable = False  # also gives kernels one array type to compile for

    def __repr__(self) -> str:
        trees = "1 tree" if self.n_trees == 1 else f"{self.n_trees} trees"
        leaves = "1 leaf" if self.n_leaves == 1 else f"{self.n_leaves} leaves"
        names = [repr(output.name) for output in self.schema.outputs]
        targets = ", ".join(names[:_MAX_REPR_TARGETS])
        if len(names) > _MAX_REPR_TARGETS:
            targets += f" and {len(names) - _MAX_REPR_TARGETS} more"
        return (
            f"<Model: {self.schema.task} of {targets} by "
            f"{self.schema.n_features} columns, {trees}, {leaves}>"
        )

    @property
    def label_costs(self) -> npt.NDArray[np.int64] | None:
        """Costs that apply to sums of votes; None for hard votes, whose leaves applied them."""
        return None if self.voting == "hard" else self.costs

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.trees)

    @cached_property
    def n_nodes(self) -> int:
        """Number of nodes of all trees, including leaves."""
        return sum(tree.n_nodes for tree in self.trees)

    @cached_property
    def n_leaves(self) -> int:
        """Number of leaves of all trees."""
        return sum(tree.n_leaves for tree in self.trees)

    @cached_property
    def depth(self) -> int:
        """Edges from a root to the deepest leaf of any tree."""
        return max(tree.depth for tree in self.trees)

    @cached_property
    def tested(self) -> npt.NDArray[np.bool_]:
        """(features,) bool: whether a split, or a surrogate, of any tree tests the column.

        Predictions do not depend on other columns, and rows need not have them.
        """
        found = np.zeros(self.schema.n_features + 1, dtype=np.bool_)
        for tree in self.trees:
            for features in (tree.feature, tree.term_feature, tree.surrogate_feature):
                found[features] = True  # of leaves: -1, the additional last element
        return found[:-1]

    @property
    def mass(self) -> int:
        """Integer mass of a row in sums: `MASS` with fractional instances, else 1."""
        return MASS if self.missing == "fractional" else 1

    @property
    def part_bits(self) -> int:
        """Bits that leaf values lose when multiplied by a mass; see `count_part_bits`."""
        return count_part_bits(self)

    @property
    def margins(self) -> bool:
        """Whether leaf values are class margins (boosting) instead of votes.

        The label is the first class with the largest sum.  For two classes, the margin of
        the first is 0.
        """
        return self.schema.task == "classification" and self.combine == "sum"

    @property
    def divisor(self) -> int:
        """Numbers and margins: divisor of the sum, before scaling by the fixed-point step."""
        return 1 if self.combine == "sum" else self.n_trees

    @cached_property
    def has_wide_sums(self) -> bool:
        """Whether sums of numbers over the trees may exceed 2**53: not each is then a double."""
        if self.schema.task == "classification" or self.combine == "sum":
            return False
        rounded = self.n_leaves if self.part_bits else 0  # each part of a row is rounded down
        return int(np.abs(self.units).max(initial=0)) * self.n_trees + rounded > SUM_LIMIT

    @property
    def units_each(self) -> int:
        """Classification: votes U that each leaf distributes over the classes of an output."""
        return count_leaf_units(self)

    @property
    def unit_total(self) -> int:
        """Classification: the sum of one row's votes over all classes of an output."""
        return self.units_each * self.n_trees * self.mass

    @property
    def grid(self) -> Grid:
        """Regression and additive class scores (margins): the fixed-point format of leaf values."""
        if self.combine == "sum":
            return Grid(self.exponent, SUM_LIMIT)
        return Grid(self.exponent, list_grid_limits(self.n_trees, self.schema.dtype)[-1])

    @property
    def exponents(self) -> tuple[int, ...]:
        """Exponents of the steps of all values."""
        return expand_exponent(self)

    @cached_property
    def leaf_offsets(self) -> npt.NDArray[np.int64]:
        """(trees + 1,) int64: tree t owns ``units[offsets[t]:offsets[t + 1]]``."""
        counts = [tree.n_leaves for tree in self.trees]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def tree_units(self, tree: int) -> npt.NDArray[np.int64]:
        """Return the integer leaf values (leaves, outputs) of one tree, in node order."""
        return self.units[self.leaf_offsets[tree] : self.leaf_offsets[tree + 1]]

    @cached_property
    def derived(self) -> DerivedColumns:
        """The derived columns that tests of several columns read (cached)."""
        return make_derived_columns(self)

    @cached_property
    def packed(self) -> PackedModel:
        """The trees packed for scoring (cached); see `treekit.model.packing`."""
        from treekit.model.packing import pack_model

        return pack_model(self)

    @cached_property
    def straight(self) -> StraightTree | None:
        """The layout of a single threshold tree, else None; see `treekit.model.packing`."""
        from treekit.model.packing import make_straight_tree

        return make_straight_tree(self)

    def predict(self, rows: Any, *, absent: Absent = "error") -> npt.NDArray[Any]:
        """Predict the label or number of each row of any table that `read_table` accepts.

        Parameters
        ----------
        rows : table
            Columns that no tree tests (see `tested`) may be absent.
        absent : {"error", "missing"}
            Whether other columns that the rows do not have are an error, or missing.

        Returns
        -------
        (rows,) array
            Labels of the schema's type, or float64 for regression;
            (rows, outputs) if the model has several outputs.
        """
        from treekit.model.scoring import predict

        return predict(self, rows, absent=absent)

    def predict_proba(self, rows: Any, *, absent: Absent = "error") -> Any:
        """Predict class probabilities (rows, classes), in schema order; see `predict`.

        Returns a list of such arrays if the model has several outputs.
        """
        from treekit.model.scoring import predict_proba

        return predict_proba(self, rows, absent=absent)

    def scorer(self) -> Scorer:
        """Return a low-latency scorer of single rows; see `treekit.model.row_scorer`."""
        from treekit.model.row_scorer import Scorer

        return Scorer(self)

    def save(self, path: str | Path) -> None:
        """Write the model file atomically; see `treekit.model.model_file`."""
        from treekit.model.model_file import save

        save(self, path)

    def rules(self, *, join: bool = True, decisions: bool = False) -> RuleList:
        """Return the model as readable rules; select one tree with ``of_tree``.

        Parameters
        ----------
        join : bool
            Merge leaves with equal predictions into one rule where that is exact; else
            return one rule per leaf.
        decisions : bool
            Merge all leaves with the same label; the rules then predict labels only.  See
            `treekit.rules.joined_rules`.
        """
        from treekit.rules import joined_rules, rules

        return joined_rules(self, decisions=decisions) if join or decisions else rules(self)

    def explain(self, row: Any, **options: Any) -> Explanation:
        """Explain the prediction of a row; see `treekit.explain.explain`."""
        from treekit.explain import explain

        return explain(self, row, **options)

    def _repr_html_(self) -> str | None:
        """Return the picture of the first tree for a notebook; None without treekit-plot."""
        from treekit import registry
        from treekit.documents import make_listing, render_listing

        if "svg" not in registry.list("document"):
            return None
        picture = "".join(render_listing("svg", make_listing(self, with_rules=False)))
        return f'<div style="overflow-x:auto">{picture}</div>'


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
    """Create a model: check the trees and convert leaf values to fixed-point integers.

    Raises
    ------
    ModelError
        If a tree is malformed for `schema`, or a policy, voting method, cost
        or link function is unknown or does not fit.
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
    return compute_units(frame)


def compute_units(frame: Model) -> Model:
    """Return a model with the fixed-point integers of its leaves; its trees are not checked."""
    check_policies(frame)
    if frame.schema.task == "classification" and not frame.margins:
        return replace(frame, units=distribute_tree_votes(frame, frame.trees))
    leaf_values = np.concatenate([tree.value[tree.leaves] for tree in frame.trees])
    grid = fit_grid(frame, leaf_values, frame.leaf_offsets[:-1])
    return replace(frame, units=grid.to_grid(leaf_values), exponent=grid.exponent)


# ---------------------------------------------------------------- numbers


def fit_grid(
    source: Model | RuleList,
    values: npt.NDArray[np.float64],
    starts: npt.NDArray[np.int64],
    *,
    finest: bool = False,
) -> Grid:
    """Return the grid of numbers or margins.

    Parameters
    ----------
    values : (leaves, values) float64
        Those of all trees.
    starts : (trees,) int64
        The first leaf of each tree.
    finest : bool
        Whether to return the finest grid, also if a coarser one is fine enough.
    """
    largest = np.maximum.reduceat(np.abs(values), starts, axis=0)
    if source.combine == "sum":
        return fit_sum_grid(largest, shared=source.margins)
    limits = list_grid_limits(source.n_trees, source.schema.dtype)
    if source.part_bits:  # no file adds such numbers in float32
        limits = limits[-2:]
    for limit in limits[-1:] if finest else limits:
        grid = fit_regression_grid(largest.max(axis=0), limit)
        if is_fine_enough(grid, values):
            break
    return grid


def count_part_bits(source: Model | RuleList) -> int:
    """Return the bits by which products of leaf values and masses are shifted, 0 for none."""
    divides = source.missing == "fractional" and source.schema.task == "regression"
    return MASS_BITS if divides else 0


def expand_exponent(source: Model | RuleList) -> tuple[int, ...]:
    """Return the exponents of the steps of all values."""
    own = source.exponent
    return (own,) * source.schema.n_values if isinstance(own, int) else own


# ---------------------------------------------------------------- votes


def count_leaf_units(model: Model | RuleList) -> int:
    """Return the votes that each leaf of a model distributes over the classes of an output."""
    if model.voting == "hard":
        return 1
    wide = model.mass == 1 and model.costs is None
    return count_tree_units(model.n_trees, model.schema.dtype if wide else "float32")


def distribute_votes(
    model: Model | RuleList, values: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """Convert class weights (leaves, values) to votes, separately for each output."""
    blocks = model.schema.blocks
    parts = []
    for first, last in itertools.pairwise(blocks):
        weights = values[:, first:last]
        if model.voting == "hard":
            label = predict_labels(apportion(weights, UNIT_BUDGET["float32"]), model.costs)
            weights = np.eye(last - first)[label]
        parts.append(apportion(weights, count_leaf_units(model)))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def distribute_tree_votes(model: Model | RuleList, trees: Sequence[Tree]) -> npt.NDArray[np.int64]:
    """Compute the votes of all leaves, ordered by tree and by node."""
    units = np.empty((sum(tree.n_leaves for tree in trees), model.schema.n_values), dtype=np.int64)
    at = 0
    for group in batch_trees(trees):  # all weights at once would double the memory
        weights = np.concatenate([tree.value[tree.leaves] for tree in group])
        units[at : at + len(weights)] = distribute_votes(model, weights)
        at += len(weights)
    return units


def predict_labels(
    votes: npt.NDArray[np.int64], costs: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.int64]:
    """Return (rows,) int64: the first class with most votes, or with least expected cost."""
    label: npt.NDArray[np.int64]
    if costs is not None:
        label = (votes @ costs).argmin(axis=1)
    elif votes.shape[1] == 2:  # faster than argmax along a short axis
        label = (votes[:, 1] > votes[:, 0]).astype(np.int64)
    else:
        label = votes.argmax(axis=1)
    return label


# ---------------------------------------------------------------- model arguments


def as_model(source: object) -> Model:
    """Return a `Model` itself, or the model of a fitted estimator.

    Raises
    ------
    TypeError
        If `source` is neither.
    """
    model = getattr(source, "model_", source)
    if isinstance(model, Model):
        return model
    if isinstance(source, str | Path):
        remedy = "read a model file with treekit.load first"
    elif hasattr(source, "fit"):
        remedy = (
            "fit the treekit estimator first, or import a scikit-learn model with "
            "treekit.read_model"
        )
    else:
        remedy = "pass the result of treekit.train or treekit.load"
    raise TypeError(
        f"expected a Model or a fitted estimator, got {type(source).__name__}; {remedy}"
    )


# ---------------------------------------------------------------- digest

_DESCRIPTIVE_FIELDS = ("value", "gain")
"""Descriptive fields of nodes; predictions follow from the integers of the leaves."""
_ONE_SIDED_FIELDS = ("surrogate_above", "surrogate_lost")


def hash_model(model: Model) -> str:
    """Return a digest of all that determines predictions: schema, policies, splits, leaves."""
    # ASCII with escapes: names may contain lone surrogates, which UTF-8 cannot encode.
    digest = hashlib.sha256(ascii(msgspec.to_builtins(model.schema)).encode())
    digest.update(f"{model.missing} {model.unknown} {model.n_trees} {model.exponent}".encode())
    digest.update(
        f"{model.voting} {None if model.costs is None else model.costs.tolist()}".encode()
    )
    # Only where they are not the defaults, so that digests of older models stay the same.
    if (model.combine, model.link) != ("mean", "identity"):
        digest.update(f"{model.combine} {model.link}".encode())
    for tree in model.trees:
        for name in FIELD_DTYPES:
            if name in _DESCRIPTIVE_FIELDS or (name == "weight" and model.missing != "fractional"):
                continue
            if name in _ONE_SIDED_FIELDS and not tree.one_sided:  # as for older models
                continue
            stored = np.dtype(FIELD_DTYPES[name]).newbyteorder("<")
            digest.update(np.ascontiguousarray(getattr(tree, name), stored).tobytes())
    digest.update(np.ascontiguousarray(model.units, "<i8").tobytes())
    return digest.hexdigest()
