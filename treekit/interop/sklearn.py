"""Fitted trees and forests of scikit-learn as models.

Estimator objects only, never pickles: loading one runs what it says.

How the answers compare with scikit-learn's:

Paths
    equal, always.  scikit-learn casts inputs to float32 and compares them with
    a double threshold; for a float32 x, ``x <= t`` is ``x <= floor32(t)``.
Labels of one tree
    equal; ties go to the first class in both.
Labels of a forest
    equal unless two classes are closer than the last digits: scikit-learn adds
    up shares in double, in the order of the trees, and treekit adds integers,
    T trees of ``floor(2**24 / T)`` units.  An exact tie of shares goes to the
    first class here, and where rounding happens to push it there.
Probabilities
    within ``T / 2**24``, for 100 trees 6e-6.
Regression
    within half a step of the grid, ``2**(exponent - 1)``: for T trees at most
    ``T**2 / 2**48`` of the largest leaf, 4e-11 for 100 trees.

`tests/test_import_sklearn.py` measures them.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.data.schema import Column, Schema, python_label
from treekit.errors import ModelError
from treekit.model.ensemble import Model, make_model
from treekit.model.portable import floor_to
from treekit.model.tree import Split, Tree

__all__ = ["read_sklearn", "recognises_sklearn"]

_WHOLE = 2.0**-50
"""A class weight this close to a whole number, relative to the node's, is one."""


def recognises_sklearn(source: Any) -> bool:
    """Whether `source` is a tree or forest of scikit-learn, fitted or not.

    Does not import scikit-learn: an object of a class derived from its classes
    shows that somebody did.
    """
    # Derived from its classes: treekit's own trees are only registered as such.
    rooms = ("sklearn.tree.", "sklearn.ensemble.")
    if not any(kind.__module__.startswith(rooms) for kind in type(source).__mro__):
        return False
    return isinstance(source, _tree_classes() + _forest_classes())


def read_sklearn(source: Any) -> Model:
    """The model of a fitted DecisionTree*, ExtraTree(s)* or RandomForest* estimator.

    Parameters
    ----------
    source : estimator
        Fitted, with a single output.

    Returns
    -------
    Model
        Columns as in ``feature_names_in_``, else ``x0``, ``x1``, ...; float32.

    Raises
    ------
    ModelError
        If the estimator is not fitted, has several outputs, or holds a tree
        that no fit makes.
    """
    if not recognises_sklearn(source):
        raise ModelError(f"a {type(source).__qualname__} is no tree or forest of scikit-learn")
    forest = isinstance(source, _forest_classes())
    if not hasattr(source, "estimators_" if forest else "tree_"):
        raise ModelError(f"the {type(source).__name__} is not fitted: call fit first")
    if source.n_outputs_ != 1:
        raise ModelError(
            f"the {type(source).__name__} has {source.n_outputs_} outputs; treekit reads one: fit "
            "one estimator for each"
        )
    schema = _schema(source)
    members = source.estimators_ if forest else [source]
    return make_model(
        schema,
        [_tree(member.tree_, schema) for member in members],
        settings=_settings(source),
        provenance={
            "treekit": __version__,
            "importer": "scikit-learn",
            "estimator": type(source).__name__,
            "scikit-learn": sys.modules["sklearn"].__version__,
        },
    )


def _tree_classes() -> tuple[type, ...]:
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    return DecisionTreeClassifier, DecisionTreeRegressor  # ExtraTree* derive from them


def _forest_classes() -> tuple[type, ...]:
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        ExtraTreesRegressor,
        RandomForestClassifier,
        RandomForestRegressor,
    )

    return (
        RandomForestClassifier,
        RandomForestRegressor,
        ExtraTreesClassifier,
        ExtraTreesRegressor,
    )


def _schema(source: Any) -> Schema:
    names = getattr(source, "feature_names_in_", None)
    if names is None:
        names = [f"x{i}" for i in range(source.n_features_in_)]
    columns = tuple(Column(str(name)) for name in names)
    if not hasattr(source, "classes_"):
        return Schema(columns=columns, task="regression")
    return Schema(columns=columns, classes=tuple(python_label(c) for c in source.classes_))


def _settings(source: Any) -> dict[str, Any]:
    """The estimator's parameters as plain values; others as text."""
    plain = (bool, int, float, str, type(None))
    return {
        name: value if type(value) in plain else repr(value)
        for name, value in source.get_params(deep=False).items()
    }


def _tree(tree: Any, schema: Schema) -> Tree:
    """One ``sklearn.tree._tree.Tree``, renumbered, its thresholds on float32."""
    n = tree.node_count
    left, right = tree.children_left, tree.children_right
    inner = np.flatnonzero(left >= 0)
    order, first_child = _adjacent_siblings(left, right, inner)
    kind, threshold, missing, exchanged = _splits(tree, inner)
    # A split of missing values whose yes branch is on the right: the sides change places.
    swapped = inner[exchanged]
    pairs = first_child[swapped]
    order[pairs], order[pairs + 1] = right[swapped], left[swapped]
    value = _values(tree, schema)
    return Tree(
        kind=kind[order],
        feature=np.where(left >= 0, tree.feature, -1)[order],
        threshold=threshold[order],
        first_child=first_child[order].astype(np.int32),
        n_children=np.where(left >= 0, 2, 0)[order],
        missing=missing[order],
        level_start=np.zeros(n + 1, dtype=np.int64),
        level_branch=np.zeros(0, dtype=np.int32),
        value=value[order],
        weight=tree.weighted_n_node_samples[order],
        gain=_gains(tree, inner)[order],
    )


def _adjacent_siblings(
    left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], inner: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A numbering in which siblings are neighbours and follow their parent.

    The j-th inner node gets the children ``2 j + 1`` and ``2 j + 2``.  As each
    child has a higher number than its parent, the parents of inner nodes have
    lower ranks j than their children, and so lower new numbers.

    Returns
    -------
    order : (n,) int64
        Old number of each new node.
    first_child : (n,) int64
        By old number: the new number of the left child; -1 in leaves.
    """
    n = len(left)
    children = np.stack([left[inner], right[inner]], axis=1)
    order = np.concatenate([[0], children.ravel()])
    once = len(order) == n and np.array_equal(np.sort(order), np.arange(n))
    if not once or np.any(children <= inner[:, None]):
        raise ModelError("the scikit-learn tree is damaged: fit it again")
    first_child = np.full(n, -1, dtype=np.int64)
    first_child[inner] = 2 * np.arange(len(inner)) + 1
    return order, first_child


def _splits(
    tree: Any, inner: npt.NDArray[np.int64]
) -> tuple[
    npt.NDArray[np.uint8], npt.NDArray[np.float64], npt.NDArray[np.int32], npt.NDArray[np.bool_]
]:
    """Kind, threshold and missing branch of each node, by old number.

    An infinite threshold is scikit-learn's way to ask for missing values:
    all others go to one side.

    Returns
    -------
    kind : (n,) uint8
    threshold : (n,) float64
    missing : (n,) int32
    exchanged : (inner,) bool
        MISSING nodes whose missing values go right in scikit-learn.
    """
    at = floor_to(tree.threshold[inner], "float32")
    missing_left = tree.missing_go_to_left[inner].astype(np.bool_)
    asks_missing = ~np.isfinite(at)
    if np.any(np.isnan(at)) or np.any(asks_missing & (missing_left == (at > 0))):
        raise ModelError(
            "a split of the scikit-learn tree sends every value to one side: fit it again"
        )
    kind = np.full(tree.node_count, Split.LEAF, dtype=np.uint8)
    kind[inner] = np.where(asks_missing, Split.MISSING, Split.THRESHOLD)
    threshold = np.full(tree.node_count, np.nan)
    threshold[inner] = np.where(asks_missing, np.nan, at)
    missing = np.zeros(tree.node_count, dtype=np.int32)
    missing[inner] = ~missing_left & ~asks_missing
    return kind, threshold, missing, asks_missing & ~missing_left


def _values(tree: Any, schema: Schema) -> npt.NDArray[np.float64]:
    """(n, outputs) float64: class weights, or means, by old number.

    scikit-learn keeps the share of each class.  Times the node's weight, the
    whole numbers that most fits count come back exactly: the product is off
    by an ulp or two of the node's weight, and is put right.
    """
    value: npt.NDArray[np.float64] = tree.value[:, 0, : schema.n_values]
    if schema.task == "regression":
        return value
    node_weight = tree.weighted_n_node_samples[:, None]
    weights = value * node_weight
    whole = np.rint(weights)
    close = np.abs(weights - whole) <= _WHOLE * node_weight
    result: npt.NDArray[np.float64] = np.where(close, whole, weights)
    return result


def _gains(tree: Any, inner: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """(n,) float64: decrease of impurity by each split, by old number."""
    mass = tree.weighted_n_node_samples * tree.impurity
    left, right = tree.children_left[inner], tree.children_right[inner]
    gain = np.zeros(tree.node_count)
    gain[inner] = (mass[inner] - mass[left] - mass[right]) / tree.weighted_n_node_samples[inner]
    return gain
