"""XGBoost's trees as node lists: questions, default branches and sets of categories."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError, ModelFileError
from treekit.interop.build import Nodes
from treekit.interop.vocabulary import Vocabulary, named_vocabulary, whole_vocabulary
from treekit.interop.xgboost_json import Categories, TreeRecord

__all__ = ["SOURCE", "array_of", "nodes_of", "vocabularies_of"]

SOURCE = "the XGBoost model"
_CATEGORICAL = 1
_BEYOND = 2**24
"""Of a category: ``OutOfRangeCat``, the largest whole number that float32 counts to."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class _Joined:
    """The arrays of all trees, one tree after the other."""

    def __init__(self, trees: Sequence[TreeRecord]) -> None:
        self.sizes = np.array([len(tree.left_children) for tree in trees], dtype=np.int64)
        self.first = np.cumsum(self.sizes) - self.sizes
        self.tree = np.repeat(np.arange(len(trees)), self.sizes)
        self.trees = trees
        if np.any(self.sizes == 0):
            raise ModelFileError(f"{SOURCE} is damaged: a tree has no node")
        left = self.of("left_children", np.int64)
        self.inner = left >= 0
        self.left = np.where(self.inner, left + self.first[self.tree], -1)
        right = self.of("right_children", np.int64)
        self.right = np.where(self.inner & (right >= 0), right + self.first[self.tree], right)
        ends = (self.first + self.sizes)[self.tree]
        if np.any(self.inner & ((self.left >= ends) | (self.right >= ends) | (right < 0))):
            raise ModelFileError(f"{SOURCE} is damaged: a node's child does not exist")
        self.feature = self.of("split_indices", np.int64)

    def of(self, name: str, dtype: Any, fill: bool = False) -> npt.NDArray[Any]:
        """The arrays of that name; zeros where a tree has none and `fill` allows it."""
        parts = []
        for tree, size in zip(self.trees, self.sizes.tolist(), strict=True):
            values = getattr(tree, name)
            if fill and len(values) != size:
                values = [0] * size
            if len(values) != size:
                raise ModelFileError(
                    f"{SOURCE} is damaged: {name} has {len(values)} entries of {size} nodes"
                )
            parts.append(array_of(values, dtype, name))
        return np.concatenate(parts)

    def sets(self) -> tuple[Ints, Ints, Ints]:
        """Categorical splits, where the categories of each begin, and the categories."""
        nodes, starts, codes, total = [], [np.zeros(1, dtype=np.int64)], [], 0
        for tree, at, size in zip(
            self.trees, self.first.tolist(), self.sizes.tolist(), strict=True
        ):
            if not tree.categories_nodes:
                continue
            own = array_of(tree.categories_nodes, np.int64, "categories_nodes")
            begin = array_of(tree.categories_segments, np.int64, "categories_segments")
            sizes = array_of(tree.categories_sizes, np.int64, "categories_sizes")
            categories = array_of(tree.categories, np.int64, "categories")
            fits = len(own) == len(begin) == len(sizes) and np.all((own >= 0) & (own < size))
            if (
                not fits
                or not np.array_equal(begin, np.cumsum(sizes) - sizes)
                or (np.any(sizes < 0) or sizes.sum() != len(categories))
            ):
                raise ModelFileError(f"{SOURCE} is damaged: the sets of categories do not fit")
            nodes.append(own + at)
            starts.append(np.cumsum(sizes) + total)
            codes.append(categories)
            total += len(categories)
        if not nodes:
            return np.zeros(0, dtype=np.int64), starts[0], np.zeros(0, dtype=np.int64)
        joined = np.concatenate(codes)
        if np.any((joined < 0) | (joined >= _BEYOND)):
            raise ModelFileError(f"{SOURCE} is damaged: a category is out of range")
        return np.concatenate(nodes), np.concatenate(starts), joined


def array_of(values: Sequence[Any], dtype: Any, name: str) -> npt.NDArray[Any]:
    """The numbers that a file has under a name; ModelFileError if they do not fit the type."""
    try:
        return np.array(values, dtype=dtype)
    except (OverflowError, ValueError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: {name} holds {error}") from error


def vocabularies_of(
    told: Sequence[Categories], trees: Sequence[TreeRecord], n_features: int
) -> list[Vocabulary | None]:
    """Of each column; None for the numeric ones, and for those that no split asks."""
    if told and len(told) != n_features:
        raise ModelFileError(
            f"{SOURCE} is damaged: {len(told)} vocabularies of {n_features} columns"
        )
    joined = _Joined(trees)
    nodes, start, codes = joined.sets()
    asked = joined.feature[nodes]
    if np.any((asked < 0) | (asked >= n_features)):
        raise ModelFileError(f"{SOURCE} is damaged: a split asks none of the {n_features} columns")
    owner = np.repeat(asked, np.diff(start))
    found: list[Vocabulary | None] = []
    for feature in range(n_features):
        own = _told(told[feature], feature) if told else None
        if own is None and np.any(asked == feature):
            own = whole_vocabulary(codes[owner == feature])
        found.append(own)
    return found


def _told(categories: Categories, feature: int) -> Vocabulary | None:
    """The vocabulary that a file gives a column, if it does."""
    if not categories.values:
        return None
    what = f"column {feature} of {SOURCE}"
    if categories.offsets is None:
        return named_vocabulary(categories.values, what)
    ends = categories.offsets
    try:
        text = bytes(int(value) & 0xFF for value in categories.values)
        if ends[0] != 0 or ends[-1] != len(text) or sorted(ends) != ends:
            raise ValueError("offsets do not fit")
        names = [text[a:b].decode("utf-8") for a, b in itertools.pairwise(ends)]
    except (ValueError, IndexError, OverflowError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: the categories of {what}: {error}") from error
    return named_vocabulary(names, what)


def nodes_of(
    trees: Sequence[TreeRecord],
    scale: Floats,
    vocabularies: Sequence[Vocabulary | None],
    n_margins: int,
) -> tuple[Nodes, bool]:
    """All trees' nodes, and whether unseen categories go where missing ones do."""
    joined = _Joined(trees)
    set_node, set_start, codes = joined.sets()
    asked = joined.feature[set_node]
    categorical = np.zeros(len(joined.left), dtype=np.bool_)
    categorical[set_node] = True
    told = joined.of("split_type", np.int64, fill=True) == _CATEGORICAL
    nominal = np.array([one is not None for one in vocabularies], dtype=np.bool_)
    inside = (joined.feature >= 0) & (joined.feature < len(vocabularies))
    at = np.where(inside, joined.feature, 0)
    if np.any(joined.inner & (~inside | (told != categorical) | (nominal[at] != categorical))):
        raise ModelFileError(f"{SOURCE} is damaged: a split asks a column that it does not have")
    with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused in leaves
        condition = joined.of("split_conditions", np.float64).astype(np.float32)
        below = np.nextafter(condition, -np.float32(np.inf))
    default_left = joined.of("default_left", np.int64) != 0
    # Categories of the set go right in XGBoost, and the members of a set to branch 0 here.
    left = np.where(categorical, joined.right, joined.left)
    nodes = Nodes(
        roots=joined.first,
        tree=joined.tree,
        left=np.where(joined.inner, left, -1),
        right=np.where(joined.inner, np.where(categorical, joined.left, joined.right), -1),
        feature=joined.feature,
        threshold=np.where(categorical, 0.0, below),
        missing_left=default_left != categorical,
        value=_values(joined, condition, scale, n_margins),
        weight=joined.of("sum_hessian", np.float64, fill=True),
        gain=joined.of("loss_changes", np.float64, fill=True),
        set_node=set_node,
        set_start=set_start,
        set_codes=_positions(codes, np.repeat(asked, np.diff(set_start)), vocabularies),
    )
    return nodes, bool(np.all(default_left[set_node]))


def _values(
    joined: _Joined, condition: npt.NDArray[np.float32], scale: Floats, n_margins: int
) -> Floats:
    """(n, 1), or (n, margins) where leaves hold all of them."""
    sizes = {tree.tree_param.size_leaf_vector for tree in joined.trees}
    if sizes <= {"0", "1"}:
        told = joined.of("base_weights", np.float64, fill=True)
        value = np.where(joined.inner, told, condition.astype(np.float64))
        return (value * scale[joined.tree])[:, None]
    if sizes != {str(n_margins)}:
        raise ModelFileError(f"{SOURCE} is damaged: leaves of {sorted(sizes)} values: {n_margins}")
    value = np.zeros((len(joined.left), n_margins))
    for number, (tree, at, size) in enumerate(
        zip(joined.trees, joined.first.tolist(), joined.sizes.tolist(), strict=True)
    ):
        if not tree.leaf_weights:
            raise ModelError(
                f"{SOURCE} has leaves of several values in the form of XGBoost 2; load it with "
                "XGBoost 3 and save it again"
            )
        weights = _float32(array_of(tree.leaf_weights, np.float64, "leaf_weights"))
        leaf = np.flatnonzero(~joined.inner[at : at + size]) + at
        which = joined.right[leaf]
        if (
            len(weights) % n_margins
            or np.any(which < 0)
            or np.any((which + 1) * n_margins > len(weights))
        ):
            raise ModelFileError(f"{SOURCE} is damaged: a leaf has no values")
        value[leaf] = weights.reshape(-1, n_margins)[which] * scale[number]
    return value


def _float32(values: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64)


def _positions(codes: Ints, features: Ints, vocabularies: Sequence[Vocabulary | None]) -> Ints:
    """The levels of XGBoost's category numbers."""
    levels = np.full(len(codes), -1, dtype=np.int64)
    for feature in np.unique(features).tolist():
        vocabulary, own = vocabularies[feature], features == feature
        if vocabulary is not None:
            levels[own] = vocabulary.positions(codes[own])
    return levels
