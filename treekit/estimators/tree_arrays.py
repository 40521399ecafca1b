"""Read-only arrays of a tree in the format of scikit-learn's ``tree_``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.sparse import is_sparse
from treekit.errors import AbsentError
from treekit.model.model import Model
from treekit.model.tree import Split, Tree

_LEAF, _UNDEFINED = -1, -2
"""scikit-learn's constants in leaves: no child, and no column or threshold."""


@dataclass(frozen=True, eq=False, repr=False)
class TreeArrays:
    """A binary tree in scikit-learn's format, with the node numbers of the model.

    Attributes
    ----------
    children_left, children_right : (nodes,) int64
        -1 in leaves.
    feature : (nodes,) int64
        -2 in leaves.
    threshold : (nodes,) float64
        ``x <= threshold`` goes left; -2 in leaves, and infinite in splits on
        missing values (which go right).
    missing_go_to_left : (nodes,) uint8
    value : (nodes, outputs, most classes) float64
        Share of each class, or the mean.
    weighted_n_node_samples : (nodes,) float64
    n_node_samples : (nodes,) int64
        Training rows; in a forest the rounded weight.
    n_features, n_outputs, max_n_classes, max_depth, n_leaves : int
    n_classes : (outputs,) int64
    dtype : str
        Input type of the model.
    """

    children_left: npt.NDArray[np.int64]
    children_right: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.float64]
    missing_go_to_left: npt.NDArray[np.uint8]
    value: npt.NDArray[np.float64]
    weighted_n_node_samples: npt.NDArray[np.float64]
    n_node_samples: npt.NDArray[np.int64]
    n_features: int
    n_classes: npt.NDArray[np.int64]
    max_depth: int
    dtype: str
    gain: npt.NDArray[np.float64]
    spread: npt.NDArray[np.float64] | None

    def __post_init__(self) -> None:
        for array in vars(self).values():
            if isinstance(array, np.ndarray):
                array.flags.writeable = False

    @property
    def impurity(self) -> npt.NDArray[np.float64]:
        """(nodes,) float64; AttributeError if unknown."""
        if self.spread is None:
            raise AttributeError(
                "the trees of a regression forest do not store the variance of their rows; fit a "
                "DecisionTreeRegressor, or omit the impurity (plot_tree's impurity=False)"
            )
        return self.spread

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self.feature)

    @property
    def capacity(self) -> int:
        """Number of allocated nodes, which equals `node_count`."""
        return self.node_count

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return int(np.count_nonzero(self.children_left == _LEAF))

    @property
    def n_outputs(self) -> int:
        """Number of targets."""
        return len(self.n_classes)

    @property
    def max_n_classes(self) -> int:
        """Largest number of classes of an output; 1 for regression."""
        return int(self.n_classes.max())

    def compute_node_depths(self) -> npt.NDArray[np.int64]:
        """Return the depth of each node (nodes,); the root has depth 1, as in scikit-learn."""
        depths = np.ones(self.node_count, np.int64)
        for node in np.flatnonzero(self.children_left != _LEAF):  # parents come first
            depths[self.children_left[node]] = depths[self.children_right[node]] = depths[node] + 1
        return depths

    def apply(self, X: Any) -> npt.NDArray[np.int64]:
        """Return the leaf of each row (rows,); `X` may be a sparse matrix."""
        rows = X.tocsr() if is_sparse(X) else np.asarray(X, dtype=self.dtype)
        node = np.zeros(rows.shape[0], dtype=np.int64)
        walking = np.arange(len(node))
        while len(walking := walking[self.children_left[node[walking]] != _LEAF]):
            at = node[walking]
            cells = np.asarray(rows[walking, self.feature[at]], dtype=self.dtype).ravel()
            left = self._goes_left(at, cells.astype(np.float64))
            node[walking] = np.where(left, self.children_left[at], self.children_right[at])
        return node

    def _goes_left(self, node: Any, value: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        missing = np.isnan(value)
        known_left = value <= self.threshold[node]
        return np.asarray(np.where(missing, self.missing_go_to_left[node] > 0, known_left))

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the value of each row's leaf, in the shape of scikit-learn's trees."""
        found = self.value[self.apply(X)]
        return found[:, 0] if self.n_outputs == 1 else found

    def decision_path(self, X: Any) -> Any:
        """Return a sparse matrix (rows, nodes): 1 where the row passes through the node."""
        parent = np.full(self.node_count, -1, dtype=np.int64)
        inner = np.flatnonzero(self.children_left != _LEAF)
        parent[self.children_left[inner]] = inner
        parent[self.children_right[inner]] = inner
        return make_path_matrix(parent, self.apply(X))

    def compute_partial_dependence(
        self, X: Any, target_features: Any, out: npt.NDArray[np.float64]
    ) -> None:
        """Add to `out` (rows,) the mean prediction given the target features only.

        At splits on other columns, a row takes both branches, in proportion to
        training weight (Friedman 2001, section 8.2).

        Parameters
        ----------
        X : (rows, len(target_features))
        target_features : (columns,) of int
        """
        rows = np.asarray(X, dtype=self.dtype).astype(np.float64)
        known = {int(feature): k for k, feature in enumerate(target_features)}
        share = np.zeros((self.node_count, len(rows)))
        share[0] = 1.0
        for node in range(self.node_count):  # a child comes after its parent
            left, right = self.children_left[node], self.children_right[node]
            if left == _LEAF:
                out += share[node] * self.value[node, 0, 0]
                continue
            at = known.get(int(self.feature[node]))
            if at is None:
                down = self.weighted_n_node_samples[left] / self.weighted_n_node_samples[node]
            else:
                down = self._goes_left(node, rows[:, at]).astype(np.float64)
            share[left], share[right] = share[node] * down, share[node] * (1.0 - down)

    def compute_feature_importances(self, normalize: bool = True) -> npt.NDArray[np.float64]:
        """Compute importances (features,): gain times weight, summed over a column's splits."""
        inner = self.children_left != _LEAF
        total = np.bincount(
            self.feature[inner],
            self.gain[inner] * self.weighted_n_node_samples[inner],
            minlength=self.n_features,
        )
        scale = total.sum() if normalize else self.weighted_n_node_samples[0]
        return np.asarray(total / (scale or 1.0))


def make_tree_arrays(
    model: Model,
    tree: Tree,
    n_samples: npt.NDArray[np.int64],
    impurity: npt.NDArray[np.float64] | None,
) -> TreeArrays:
    """Convert a tree of a model, and training statistics of its nodes, to scikit-learn's format.

    Raises
    ------
    AbsentError
        If scikit-learn's trees do not support a split, or the missing policy.
    """
    _check_convertible(model, tree)
    leaf = tree.kind == Split.LEAF
    asks_missing = tree.kind == Split.MISSING
    first = tree.first_child.astype(np.int64)
    # Branch 0 of a MISSING split is for missing values; scikit-learn sends known ones left.
    left = np.where(leaf, _LEAF, first + asks_missing)
    right = np.where(leaf, _LEAF, first + ~asks_missing)
    threshold = np.where(leaf, float(_UNDEFINED), np.where(asks_missing, np.inf, tree.threshold))
    sizes = np.diff(model.schema.blocks) if model.schema.task == "classification" else None
    return TreeArrays(
        children_left=left,
        children_right=right,
        feature=np.where(leaf, _UNDEFINED, tree.feature).astype(np.int64),
        threshold=threshold,
        missing_go_to_left=(~leaf & ~asks_missing & (tree.missing == 0)).astype(np.uint8),
        value=_compute_values(tree, sizes),
        weighted_n_node_samples=tree.weight.copy(),
        n_node_samples=n_samples.copy(),
        n_features=model.schema.n_features,
        n_classes=np.ones(tree.value.shape[1], np.int64) if sizes is None else sizes.astype(int),
        max_depth=tree.depth,
        dtype=model.schema.dtype,
        gain=tree.gain.copy(),
        spread=impurity,
    )


def _check_convertible(model: Model, tree: Tree) -> None:
    for kind, what in (
        (Split.SUBSET, "sets of categories"),
        (Split.MULTIWAY, "one branch per category"),
        (Split.OBLIQUE, "sums of columns"),
    ):
        if np.any(tree.kind == kind):
            raise AbsentError(
                f"a node splits by {what}, which scikit-learn's trees do not support; use "
                "estimator.model_.trees, or treekit.export the model"
            )
    if model.missing not in ("direction", "error"):
        raise AbsentError(
            f"scikit-learn's trees do not support missing={model.missing!r}; use "
            "estimator.model_.trees, or train with missing='direction'"
        )


def _compute_values(tree: Tree, sizes: npt.NDArray[np.int64] | None) -> npt.NDArray[np.float64]:
    if sizes is None:
        return tree.value[:, :, None].copy()
    value = np.zeros((tree.n_nodes, len(sizes), int(sizes.max())))
    ends = np.cumsum(sizes)
    for k, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        weights = tree.value[:, end - size : end]
        value[:, k, :size] = weights / np.maximum(weights.sum(axis=1, keepdims=True), 5e-324)
    return value


def make_path_matrix(parent: npt.NDArray[np.int64], leaf: npt.NDArray[Any]) -> Any:
    """Return a CSR matrix (rows, nodes) of int64 ones: each row's leaf and its ancestors."""
    from scipy.sparse import csr_matrix

    ends, row_of = np.unique(leaf, return_inverse=True)
    at, owners, nodes = ends.astype(np.int64), np.arange(len(ends)), []
    owner = []
    while len(at):
        nodes.append(at)
        owner.append(owners)
        above = parent[at] >= 0
        at, owners = parent[at][above], owners[above]
    column, row = np.concatenate([*nodes, at]), np.concatenate([*owner, owners])
    shape = (len(ends), len(parent))
    paths = csr_matrix((np.ones(len(row), np.int64), (row, column)), shape=shape)
    paths.sort_indices()
    return paths[row_of]
