"""What each column adds to the answers of many rows; once a model what rows do not alter.

The integers are those of `treekit.explain.contributions`.  Where every node asks one
column, all rows and trees climb together from their leaves to the roots, and what a node
changes is its column's.  Other trees, and rows that divide, are walked row by row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.features import round_to
from treekit.errors import ModelError
from treekit.explain.contributions import NodeUnits, fineness, shared
from treekit.explain.decision_path import Passage, TreeNodes, walk
from treekit.model.fixed_point import mass_bounds
from treekit.model.scoring import leaf_indices, sums
from treekit.model.tree import Split

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = ["Added", "Ways"]

Integers = npt.NDArray[np.int64]

_ONE_COLUMN = (Split.LEAF, Split.THRESHOLD, Split.SUBSET, Split.MULTIWAY, Split.MISSING)
_EXACT = 1 << 53
"""Up to here a double holds every integer."""


class Ways:
    """The ways of rows through the trees of a model; nodes are read when a row meets them."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._nodes: dict[int, tuple[TreeNodes, Integers | None]] = {}

    def walk(self, tree: int, row: list[float]) -> tuple[list[Passage], list[tuple[int, int]]]:
        """See `treekit.explain.decision_path.walk`."""
        model = self._model
        if tree not in self._nodes:
            own = model.trees[tree]
            bounds = mass_bounds(own) if model.missing == "fractional" else None
            self._nodes[tree] = TreeNodes(own, model.schema), bounds
        nodes, bounds = self._nodes[tree]
        return walk(nodes, row, model.mass, bounds)


class Added:
    """Contributions of a model's columns.

    Parameters
    ----------
    model : Model

    Attributes
    ----------
    bias : (values,) float64
        What the model says before it looks at a row.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._units = [NodeUnits(model, t)[range(own.n_nodes)] for t, own in enumerate(model.trees)]
        roots = np.array([own[0] for own in self._units]).astype(object)
        self._bias = [model.mass * value for value in roots.sum(axis=0).tolist()]
        votes = model.schema.task == "classification" and not model.margins
        self._divisor = model.unit_total * fineness(model) if votes else model.divisor
        self._exponent = 0 if votes else model.exponent
        self.bias = self._numbers(np.array(self._bias, dtype=object))
        self._climb = _Climb(model, self._units) if _is_plain(model, self._units) else None

    def contributions(self, matrix: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """(rows, features, values) float64 of encoded rows (rows, features)."""
        found = self.integers(matrix)
        return self._numbers(found)

    def integers(self, matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(rows, features, values) int64, or objects: what columns add, exactly.

        Raises
        ------
        ModelError
            If they do not add up to what the model says: a fault of treekit.
        """
        found = self._walked(matrix) if self._climb is None else self._climb.climbed(matrix)
        said = sums(self._model, matrix).astype(object) * fineness(self._model)
        total = found.sum(axis=1).astype(object) + np.array(self._bias, dtype=object)
        if (total != said).any():
            row = int((total != said).any(axis=1).argmax())
            raise ModelError(
                f"the contributions of row {row} add up to {total[row].tolist()}, and the model "
                f"says {said[row].tolist()}: a fault of treekit, please report it with the model "
                "and the row"
            )
        return found

    def _walked(self, matrix: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        model = self._model
        ways, n_values = Ways(model), model.schema.n_values
        found = np.zeros((len(matrix), model.schema.n_features, n_values), dtype=object)
        for at, row in enumerate(round_to(matrix, model.schema.dtype).tolist()):
            walks = [
                (self._units[t], ways.walk(t, row)[0], model.mass) for t in range(model.n_trees)
            ]
            for column, own in shared(walks, row, n_values).by_column.items():
                found[at, column] = own
        return found

    def _numbers(self, integers: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The doubles that integers mean, as `treekit.explain.explanation.Sums.number`."""
        least, most = (int(f(integers)) if integers.size else 0 for f in (np.min, np.max))
        if max(-least, most, self._divisor) > _EXACT:  # Python divides any integers exactly
            shares = (integers.astype(object) / self._divisor).astype(np.float64)
        else:
            shares = integers.astype(np.float64) / self._divisor
        return np.ldexp(shares, self._exponent)


class _Climb:
    """All trees as one forest of parents, for trees whose nodes ask one column each."""

    def __init__(self, model: Model, units: list[Integers]) -> None:
        self._model = model
        counts = [tree.n_nodes for tree in model.trees]
        self._root = np.cumsum([0, *counts[:-1]])
        parts = []
        for root, parent in zip(self._root.tolist(), (t.parent for t in model.trees), strict=True):
            parts.append(np.where(parent < 0, -1, parent + root))
        self._parent = np.concatenate(parts)
        feature = np.concatenate([tree.feature for tree in model.trees])
        self._column = feature[self._parent].astype(np.int64)  # of the root: never looked at
        own = np.concatenate(units)
        self._change = own - own[self._parent]

    def climbed(self, matrix: npt.NDArray[Any]) -> Integers:
        """(rows, features, values) int64."""
        model = self._model
        n_rows, n_features = len(matrix), model.schema.n_features
        n_values = model.schema.n_values
        found = np.zeros((n_rows * n_features, n_values), dtype=np.int64)
        node = (leaf_indices(model, matrix) + self._root).ravel()
        cell = np.repeat(np.arange(n_rows) * n_features, model.n_trees)
        while len(node):
            inner = self._parent[node] >= 0
            node, cell = node[inner], cell[inner]
            np.add.at(found, cell + self._column[node], self._change[node])
            node = self._parent[node]
        return found.reshape(n_rows, n_features, n_values)


def _is_plain(model: Model, units: list[Integers]) -> bool:
    """Whether rows stay whole, nodes ask one column, and no sum on the way passes 63 bits."""
    if model.missing == "fractional" or not all(
        len(tree.surrogate_feature) == 0 and bool(np.isin(tree.kind, _ONE_COLUMN).all())
        for tree in model.trees
    ):
        return False
    largest = sum(int(np.abs(own).max()) for own in units)
    return 2 * largest * max(model.depth, 1) < 1 << 62
