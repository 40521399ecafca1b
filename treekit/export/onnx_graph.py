"""Building an ONNX graph: operators and constants in order, large attributes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.export.onnx_nodes import OnnxNodes

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto, ValueInfoProto

__all__ = ["ML_DOMAIN", "ML_OPSET", "Graph"]

ML_DOMAIN, ML_OPSET = "ai.onnx.ml", 3
"""Version 5 replaces the tree operators, and older runtimes lack it."""


class Graph:
    """Nodes and constants, collected in order."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        """Add a constant; returns its name."""
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add an operator with one output; returns the output's name."""
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def proto(self, n_features: int, outputs: list[ValueInfoProto]) -> GraphProto:
        """The graph from ``X`` to `outputs`."""
        from onnx import TensorProto, helper

        x = helper.make_tensor_value_info("X", TensorProto.FLOAT, ["N", n_features])
        graph: GraphProto = helper.make_graph(
            self.nodes, "treekit", [x], outputs, initializer=self.constants
        )
        return graph

    def add_ensemble(
        self, x: str, nodes: OnnxNodes, units: npt.NDArray[np.int64], output: str
    ) -> str:
        """Add the trees: the sum over them of rows of `units`, (leaves, targets)."""
        units = units[nodes.row]
        kept = units != 0
        kept[:, 0] |= ~kept.any(axis=1)  # a leaf without any target is malformed
        leaf, target = np.nonzero(kept)
        at = np.flatnonzero(nodes.is_leaf)[leaf]
        modes = np.array([b"BRANCH_LEQ", b"LEAF"], dtype=object)
        self.add(
            "TreeEnsembleRegressor",
            [x],
            output,
            domain=ML_DOMAIN,
            n_targets=units.shape[1],
            aggregate_function="SUM",
            post_transform="NONE",
        )
        self.nodes[-1].attribute.extend(
            [
                _ints("nodes_treeids", nodes.tree),
                _ints("nodes_nodeids", nodes.node),
                _ints("nodes_featureids", nodes.feature),
                _strings("nodes_modes", modes[nodes.is_leaf.astype(np.int64)]),
                _floats("nodes_values", nodes.value),
                _ints("nodes_missing_value_tracks_true", nodes.missing_true),
                _ints("nodes_truenodeids", nodes.true),
                _ints("nodes_falsenodeids", nodes.false),
                _ints("target_treeids", nodes.tree[at]),
                _ints("target_nodeids", nodes.node[at]),
                _ints("target_ids", target),
                _floats("target_weights", units[kept]),
            ]
        )
        return output


# `onnx.helper.make_attribute` looks at every element; these take arrays whole.


def _ints(name: str, values: npt.NDArray[Any]) -> AttributeProto:
    from onnx import AttributeProto

    return AttributeProto(
        name=name, type=AttributeProto.INTS, ints=values.astype(np.int64).tolist()
    )


def _floats(name: str, values: npt.NDArray[Any]) -> AttributeProto:
    from onnx import AttributeProto

    return AttributeProto(
        name=name, type=AttributeProto.FLOATS, floats=values.astype(np.float32).tolist()
    )


def _strings(name: str, values: npt.NDArray[Any]) -> AttributeProto:
    from onnx import AttributeProto

    return AttributeProto(name=name, type=AttributeProto.STRINGS, strings=values.tolist())
