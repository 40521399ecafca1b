"""A model: a schema, trees, and leaf values put on portable integers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ModelError
from treekit.model.portable import Grid, grid_shape, quotas, regression_grid, units_per_tree
from treekit.model.tree import Tree, check_tree

if TYPE_CHECKING:
    from treekit.kernels.predict import PackedTrees
    from treekit.rules import RuleList

__all__ = ["MissingPolicy", "Model", "UnknownPolicy", "make_model"]

MissingPolicy = Literal["direction", "error"]
"""``direction``: the branch stored in each split.  ``error``: prediction refuses the row."""

UnknownPolicy = Literal["missing", "error"]
"""What a category outside the vocabulary is: ``missing``, or an ``error``."""


@dataclass(frozen=True, eq=False)
class Model:
    """An ensemble of trees (one tree is an ensemble of one).

    Make one with `make_model`, which checks the trees and computes `units`.

    Attributes
    ----------
    schema : Schema
    trees : tuple of Tree
    units : (leaves, outputs) int64
        Leaf values on the integers (see `treekit.model.portable`), leaves of
        all trees one after the other, each tree's in node order.
    exponent : int
        Regression: the grid's step is ``2**exponent``.  0 for classification.
    missing, unknown : str
        What happens to missing cells and to categories outside the vocabulary.
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
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    provenance: dict[str, Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        trees = "1 tree" if self.n_trees == 1 else f"{self.n_trees} trees"
        return (
            f"<Model: {self.schema.task} of {self.schema.target!r} by "
            f"{self.schema.n_features} columns, {trees}, {self.n_leaves} leaves>"
        )

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
    def unit_total(self) -> int:
        """Classification: the sum of one row's votes over all classes, U * T."""
        return units_per_tree(self.n_trees, self.schema.dtype) * self.n_trees

    @property
    def grid(self) -> Grid:
        """Regression: the integer grid of the leaf values."""
        return Grid(self.exponent, *grid_shape(self.n_trees, self.schema.dtype))

    @cached_property
    def leaf_offsets(self) -> npt.NDArray[np.int64]:
        """(trees + 1,) int64: tree t owns ``units[offsets[t]:offsets[t + 1]]``."""
        counts = [tree.n_leaves for tree in self.trees]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def tree_units(self, tree: int) -> npt.NDArray[np.int64]:
        """(leaves, outputs) int64: integer leaf values of one tree, in node order."""
        return self.units[self.leaf_offsets[tree] : self.leaf_offsets[tree + 1]]

    @cached_property
    def packed(self) -> tuple[PackedTrees, npt.NDArray[np.int32]]:
        """The trees as the scorer wants them, made once; see `treekit.model.pack`."""
        from treekit.model.pack import pack

        return pack(self)

    def predict(self, rows: Any) -> npt.NDArray[Any]:
        """The label, or the number, of each row of any table.

        Parameters
        ----------
        rows : table
            Anything `treekit.data.table.read_table` takes.

        Returns
        -------
        (rows,) array
            Labels of the schema's type, or float64 for regression.
        """
        from treekit.model.predict import predict

        return predict(self, rows)

    def predict_proba(self, rows: Any) -> npt.NDArray[np.float64]:
        """(rows, classes) float64: the share of the votes of each class, in schema order."""
        from treekit.model.predict import predict_proba

        return predict_proba(self, rows)

    def save(self, path: str | Path) -> None:
        """Write the model file atomically; see `treekit.model.store`."""
        from treekit.model.store import save

        save(self, path)

    def rules(self) -> RuleList:
        """The model as readable rules; ``print`` it, or ask for a tree with ``of_tree``."""
        from treekit.rules import rules

        return rules(self)


def make_model(
    schema: Schema,
    trees: list[Tree] | tuple[Tree, ...],
    *,
    missing: MissingPolicy = "direction",
    unknown: UnknownPolicy = "missing",
    settings: dict[str, Any] | None = None,
    provenance: dict[str, Any] | None = None,
) -> Model:
    """Check the trees and put their leaf values on the integers.

    Raises
    ------
    ModelError
        If a tree is malformed for `schema`, or a policy is unknown.
    """
    if missing not in ("direction", "error"):
        raise ModelError(f"unknown missing policy {missing!r}; known: direction, error")
    if unknown not in ("missing", "error"):
        raise ModelError(f"unknown policy for unseen categories {unknown!r}; known: missing, error")
    if not trees:
        raise ModelError("a model needs at least one tree")
    for tree in trees:
        check_tree(tree, schema)
    leaf_values = np.concatenate([tree.value[tree.leaves] for tree in trees])
    exponent = 0
    if schema.task == "classification":
        units = quotas(leaf_values, units_per_tree(len(trees), schema.dtype))
    else:
        largest = float(np.abs(leaf_values).max())
        grid = regression_grid(largest, len(trees), schema.dtype)
        exponent, units = grid.exponent, grid.to_grid(leaf_values)
    units.flags.writeable = False
    return Model(
        schema=schema,
        trees=tuple(trees),
        units=units,
        exponent=exponent,
        missing=missing,
        unknown=unknown,
        settings=settings or {},
        provenance=provenance or {},
    )
