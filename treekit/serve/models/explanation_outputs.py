"""Explanation outputs of a served model: the matching rules, and feature contributions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.features import round_to_dtype
from treekit.errors import ModelError
from treekit.explain.contributions import compute_node_units, compute_unit_factor, sum_contributions
from treekit.explain.decision_path import Passage, trace_row
from treekit.model.fixed_point import (
    Exponent,
    compute_mass_bounds,
    multiply_by_mass,
    scale_units,
)
from treekit.model.model import Model
from treekit.model.scoring import leaf_indices, sum_leaf_values
from treekit.model.split_tests import TreeNodes
from treekit.model.tree import Split
from treekit.serve.cancellation import check_cancelled
from treekit.serve.errors import TooLargeError
from treekit.serve.models.tensors import Tensor

if TYPE_CHECKING:
    from treekit.rules.extract import LeafRuleTexts


# ---------------------------------------------------------------- outputs
# ``rule``: for each tree the rule of the row's leaf, or the matching rule of a rule list, in
# English with exact numerals.  For a fractional instance (missing policy ``fractional``) the rule
# of the leaf with the largest part, with that part.
#
# ``contributions`` and ``bias``: path decomposition (Saabas) of each predicted value
# (probabilities, margins before the link function, numbers); see
# `treekit.explain.contributions`.  Computed as integers that add up exactly to the sums of the
# row, which is checked, and returned as the nearest doubles.

_MAX_CACHED_CHARS = 8 << 20
"""Maximum characters of rule texts cached per model."""

_MAX_RULE_CHARS = 64 << 20
_MAX_NUMBERS = 1 << 23
"""Maximum characters and numbers of one response, as there may be many categories and columns."""


class Explanations:
    """Explanation outputs of one model, created on first use and thread-safe.

    Parameters
    ----------
    model : Model
    max_chars : int
        Maximum characters of cached texts; all are discarded when they exceed it.
    """

    def __init__(self, model: Model, max_chars: int = _MAX_CACHED_CHARS) -> None:
        self._model, self._max_chars = model, max_chars
        self._lock = threading.Lock()
        self._texts: dict[tuple[int, int], str] = {}

    def compute_output(self, name: str, matrix: npt.NDArray[Any]) -> Tensor:
        """Compute output ``rule``, ``contributions`` or ``bias`` of encoded rows (rows, features).

        Raises
        ------
        TooLargeError
            If the output would be too large.
        DataError
            If a policy of the model rejects a row.
        """
        if name == "rule":
            return Tensor(name, "BYTES", self.matching_rule_texts(matrix))
        if name == "bias":
            cells = np.repeat(self.feature_contributions.bias[None], len(matrix), axis=0)
            return Tensor(name, "FP64", cells)
        schema = self._model.schema
        if len(matrix) * schema.n_features * schema.n_values > _MAX_NUMBERS:
            raise TooLargeError(
                f"the contributions of {len(matrix):,} rows exceed {_MAX_NUMBERS:,} numbers; "
                "send fewer rows at once"
            )
        return Tensor(name, "FP64", self.feature_contributions.compute_contributions(matrix))

    @cached_property
    def feature_contributions(self) -> FeatureContributions:
        """Feature contributions; the part that does not depend on rows is computed once."""
        return FeatureContributions(self._model)

    @cached_property
    def _leaf_rules(self) -> LeafRuleTexts:
        from treekit.rules.extract import LeafRuleTexts

        return LeafRuleTexts(self._model)

    def matching_rule_texts(self, matrix: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        """Return the rule text of each row in each tree as objects (rows, trees)."""
        model = self._model
        leaves = leaf_indices(model, matrix).astype(np.int64)
        found = np.empty(leaves.shape, dtype=object)
        size = 0
        texts = self._get_rule_texts({pair for own in leaves.tolist() for pair in enumerate(own)})
        for row, own in enumerate(leaves.tolist()):
            check_cancelled()
            found[row] = [texts[pair] for pair in enumerate(own)]
            size += sum(map(len, found[row]))
            if size > _MAX_RULE_CHARS:
                raise TooLargeError(
                    f"the rules of {len(leaves):,} rows exceed {_MAX_RULE_CHARS:,} characters; "
                    "send fewer rows at once"
                )
        return _append_largest_parts(model, matrix, found) if model.mass > 1 else found

    def _get_rule_texts(self, pairs: set[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """Return the rule texts of leaves, by the numbers of their tree and node."""
        with self._lock:
            texts = {pair: self._texts[pair] for pair in pairs if pair in self._texts}
            fresh: dict[int, list[int]] = {}
            for tree, leaf in pairs - texts.keys():
                fresh.setdefault(tree, []).append(leaf)
            if fresh:
                texts |= self._leaf_rules.format_rules(fresh)
                self._texts |= texts
                if sum(map(len, self._texts.values())) > self._max_chars:
                    self._texts = {}
        return texts


def _append_largest_parts(
    model: Model, matrix: npt.NDArray[Any], texts: npt.NDArray[np.object_]
) -> npt.NDArray[np.object_]:
    """Append the largest part to the texts of fractional instances."""
    find_path = make_path_finder(model)
    for row, cells in enumerate(round_to_dtype(matrix, model.schema.dtype)):
        check_cancelled()
        if not (model.schema.nominal.any() or np.isnan(cells).any()):
            continue  # no value is missing, or an unseen category
        for tree in range(model.n_trees):
            _, leaves = find_path(tree, cells.tolist())
            part = max(mass for _, mass in leaves) / model.mass
            if len(leaves) > 1:
                texts[row, tree] += f" [{100 * part:.3g}% of the row, its largest part]"
    return texts


# ---------------------------------------------------------------- contributions
# Feature contributions of many rows; the part that does not depend on rows is computed once.
#
# The integers are those of `treekit.explain.contributions`.  If every node splits on one feature,
# all rows and trees are traversed together from leaves to roots, and the change at each node is
# added to its split feature.  Other trees and fractional instances are traversed row by row.

Integers = npt.NDArray[np.int64]

_SINGLE_FEATURE_KINDS = (Split.LEAF, Split.THRESHOLD, Split.SUBSET, Split.MULTIWAY, Split.MISSING)
_MAX_EXACT_INTEGER = 1 << 53
"""Every integer up to this one is exactly representable as a double."""


Path = tuple[list[Passage], list[tuple[int, int]]]


def make_path_finder(model: Model) -> Callable[[int, list[float]], Path]:
    """Return a function of a tree's index and a row that returns the row's decision path.

    See `treekit.explain.decision_path.trace_row`; nodes are read on demand.
    """

    @cache
    def read_tree(tree: int) -> tuple[TreeNodes, Integers | None]:
        own = model.trees[tree]
        bounds = compute_mass_bounds(own) if model.missing == "fractional" else None
        return TreeNodes(own, model.schema), bounds

    def find_path(tree: int, row: list[float]) -> Path:
        nodes, bounds = read_tree(tree)
        return trace_row(nodes, row, model.mass, bounds)

    return find_path


class FeatureContributions:
    """Feature contributions of a model.

    Parameters
    ----------
    model : Model

    Attributes
    ----------
    bias : (values,) float64
        Prediction at the roots, without any feature.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._units = [compute_node_units(model, t) for t in range(model.n_trees)]
        roots = np.array([own[0] for own in self._units]).astype(object)
        each = multiply_by_mass(roots, model.mass, model.part_bits)
        self._bias = each.sum(axis=0).tolist()
        votes = model.schema.task == "classification" and not model.margins
        self._divisor = model.unit_total * compute_unit_factor(model) if votes else model.divisor
        self._exponent: Exponent = 0 if votes else model.exponent
        self._has_votes = votes
        self.bias = self._to_doubles(np.array(self._bias, dtype=object))
        can_climb = _can_climb(model, self._units)
        self._forest_climber = _ForestClimber(model, self._units) if can_climb else None

    def compute_contributions(self, matrix: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return contributions (rows, features, values) of encoded rows (rows, features)."""
        return self._to_doubles(self.exact_contributions(matrix))

    def exact_contributions(self, matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return exact contributions (rows, features, values) as int64 or Python integers.

        Raises
        ------
        ModelError
            If they do not add up to the prediction, which is a bug in treekit.
        """
        climber, factor = self._forest_climber, compute_unit_factor(self._model)
        compute = self._compute_by_row if climber is None else climber.compute_contributions
        found = compute(matrix)
        expected = sum_leaf_values(self._model, matrix).astype(object) * factor
        total = found.sum(axis=1).astype(object) + np.array(self._bias, dtype=object)
        if (total != expected).any():
            row = int((total != expected).any(axis=1).argmax())
            raise ModelError(
                f"the contributions of row {row} add up to {total[row].tolist()} instead of the "
                f"prediction {expected[row].tolist()}; this is a bug in treekit, please report it "
                "with the model and the row"
            )
        return found

    def _compute_by_row(self, matrix: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        model = self._model
        find_path, schema = make_path_finder(model), model.schema
        found = np.zeros((len(matrix), schema.n_features, schema.n_values), dtype=object)
        for at, row in enumerate(round_to_dtype(matrix, model.schema.dtype).tolist()):
            check_cancelled()
            walks = [(own, find_path(t, row)[0]) for t, own in enumerate(self._units)]
            for column, own in sum_contributions(model, walks, row).by_column.items():
                found[at, column] = own
        return found

    def _to_doubles(self, integers: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Convert integers to doubles as `treekit.explain.explanation.Sums.number`."""
        largest = max(np.abs(integers).max(initial=0), self._divisor)
        if self._has_votes and largest > _MAX_EXACT_INTEGER:
            # Python rounds any quotient correctly.
            shares = (integers.astype(object) / self._divisor).astype(np.float64)
        else:
            shares = integers.astype(np.float64) / self._divisor
        return scale_units(shares, self._exponent)


class _ForestClimber:
    """Parent links of all trees, for trees whose nodes split on one feature each."""

    def __init__(self, model: Model, units: list[Integers]) -> None:
        self._model = model
        counts = [tree.n_nodes for tree in model.trees]
        self._root = np.cumsum([0, *counts[:-1]])
        parent = np.concatenate([tree.parent for tree in model.trees])
        self._parent = np.where(parent < 0, -1, parent + np.repeat(self._root, counts))
        feature = np.concatenate([tree.feature for tree in model.trees])
        self._column = feature[self._parent].astype(np.int64)  # arbitrary and unused at roots
        own = np.concatenate(units)
        self._node_change = own - own[self._parent]

    def compute_contributions(self, matrix: npt.NDArray[Any]) -> Integers:
        """Return contributions (rows, features, values) int64."""
        model = self._model
        n_rows, n_features = len(matrix), model.schema.n_features
        found = np.zeros((n_rows * n_features, model.schema.n_values), dtype=np.int64)
        node = (leaf_indices(model, matrix) + self._root).ravel()
        cell = np.repeat(np.arange(n_rows) * n_features, model.n_trees)
        while len(node):
            inner = self._parent[node] >= 0
            node, cell = node[inner], cell[inner]
            np.add.at(found, cell + self._column[node], self._node_change[node])
            node = self._parent[node]
        return found.reshape(n_rows, n_features, found.shape[1])


def _can_climb(model: Model, units: list[Integers]) -> bool:
    """Return whether nodes split on one feature, without fractional instances or overflow."""
    if model.missing == "fractional" or not all(
        len(tree.surrogate_feature) == 0 and bool(np.isin(tree.kind, _SINGLE_FEATURE_KINDS).all())
        for tree in model.trees
    ):
        return False
    largest = sum(int(np.abs(own).max()) for own in units)
    return 2 * largest * max(model.depth, 1) < 1 << 62
