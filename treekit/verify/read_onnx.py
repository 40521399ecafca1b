"""Reading of the trees of an ONNX graph, to compare them with the model.

Graphs are read whose trees are one ``TreeEnsembleRegressor`` that adds up the model's own
integers (of two classes those of the second); others, whose leaves contain parts of
numbers or positions in a table, are compared by rows only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import VerificationError
from treekit.export.onnx.sums import sums_second_class_only
from treekit.model.fixed_point import to_double_threshold
from treekit.model.model import Model
from treekit.verify.tree_equivalence import BinaryTables, StructureComparison, compare_paths

__all__ = ["compare_onnx_structure"]

Array = npt.NDArray[Any]

_UNSUPPORTED = "unsupported ONNX graph: expected one TreeEnsembleRegressor of integer votes"


def compare_onnx_structure(path: Path, model: Model) -> StructureComparison:
    """Compare the trees of the graph with the model's, on every path."""
    try:
        return compare_paths(model, _make_binary_tables(_read_attributes(path), model))
    except (VerificationError, LookupError, ValueError, TypeError, OverflowError) as error:
        return StructureComparison(False, f"not proved: its trees cannot be read ({error})")


def _read_attributes(path: Path) -> dict[str, Any]:
    """Return the attributes of the only tree operator."""
    import onnx

    try:
        graph = onnx.load(str(path)).graph
    except Exception as error:  # protobuf raises its own types
        raise VerificationError("not an ONNX file") from error
    # A name that is not UTF-8 is returned as bytes.
    named = [node for node in graph.node if isinstance(node.op_type, str)]
    trees = [node for node in named if node.op_type.startswith("TreeEnsemble")]
    if len(trees) != 1 or trees[0].op_type != "TreeEnsembleRegressor":
        raise VerificationError(_UNSUPPORTED)
    return {one.name: onnx.helper.get_attribute_value(one) for one in trees[0].attribute}


def _read_numbers(attributes: dict[str, Any], name: str) -> tuple[Array, bool]:
    """Return an attribute as doubles, and whether it is stored as floats."""
    from onnx import numpy_helper

    if f"{name}_as_tensor" in attributes:
        return numpy_helper.to_array(attributes[f"{name}_as_tensor"]).astype(np.float64), False
    return np.array(attributes[name], dtype=np.float32).astype(np.float64), True


def _make_binary_tables(attributes: dict[str, Any], model: Model) -> BinaryTables:
    schema = model.schema

    def read_integers(name: str) -> Array:
        return np.array(attributes[name], dtype=np.int64)

    modes = np.array(attributes["nodes_modes"], dtype=object)
    leaf = modes == b"LEAF"
    second = sums_second_class_only(model)
    n_targets = 1 if second else schema.n_values
    if attributes["n_targets"] != n_targets or not np.isin(modes[~leaf], b"BRANCH_LEQ").all():
        raise VerificationError(_UNSUPPORTED)
    places = _NodeIndex(read_integers("nodes_treeids"), read_integers("nodes_nodeids"))
    tree, feature = read_integers("nodes_treeids"), read_integers("nodes_featureids")[~leaf]
    if np.any(feature >= schema.n_features):
        raise VerificationError(
            "unsupported ONNX graph: oblique splits, surrogates and rules cannot be read"
        )
    number = np.where(leaf, -np.cumsum(leaf), np.cumsum(~leaf) - 1)
    leaf_values = _sum_leaf_values(attributes, places, number, n_targets)
    if second:  # the first class has the remaining votes
        leaf_values = np.hstack([model.unit_total // model.n_trees - leaf_values, leaf_values])
    value, single = _read_numbers(attributes, "nodes_values")
    if single != (schema.dtype == "float32"):  # otherwise it compares converted columns
        raise VerificationError(_UNSUPPORTED)
    value = value[~leaf]
    if single:
        rounds = np.isfinite(value) & ~schema.nominal[feature]
        value[rounds] = to_double_threshold(value[rounds])
    tracks = read_integers("nodes_missing_value_tracks_true")[~leaf]
    return BinaryTables(
        feature=feature,
        kind=(tracks != 0).astype(np.int64),
        value=value,
        yes=number[places.find_positions(tree, read_integers("nodes_truenodeids"))[~leaf]],
        no=number[places.find_positions(tree, read_integers("nodes_falsenodeids"))[~leaf]],
        root=number[np.unique(tree, return_index=True)[1]],
        set_start=np.zeros(len(feature) + 1, dtype=np.int64),
        set_codes=np.empty(0, dtype=np.int64),
        leaves=leaf_values,
    )


class _NodeIndex:
    """Positions of the nodes of trees in the lists of the operator."""

    def __init__(self, tree: Array, node: Array) -> None:
        self.width = int(node.max()) + 1
        self.keys = tree * self.width + node
        self.order = np.argsort(self.keys, kind="stable")

    def find_positions(self, tree: Array, node: Array) -> Array:
        """Return the positions of nodes; raise an error if one does not exist."""
        wanted = tree * self.width + node
        at = np.minimum(np.searchsorted(self.keys, wanted, sorter=self.order), len(self.keys) - 1)
        found: Array = self.order[at]
        if np.any(self.keys[found] != wanted):
            raise VerificationError("a node that does not exist")
        return found


def _sum_leaf_values(
    attributes: dict[str, Any], places: _NodeIndex, number: Array, n_values: int
) -> Array:
    """Sum the values of each leaf, (leaves, values) int64."""
    weight, _ = _read_numbers(attributes, "target_weights")
    at = places.find_positions(
        np.array(attributes["target_treeids"]), np.array(attributes["target_nodeids"])
    )
    target = np.array(attributes["target_ids"], dtype=np.int64)
    if np.any(weight != np.rint(weight)) or np.any(number[at] >= 0) or np.any(target >= n_values):
        raise VerificationError(_UNSUPPORTED)
    leaf_values = np.zeros((int((number < 0).sum()), n_values), dtype=np.int64)
    np.add.at(leaf_values, (-1 - number[at], target), weight.astype(np.int64))
    return leaf_values
