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
    """Nodes and constants, collected in order, for a version of the standard operators."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[NodeProto] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        """Add a constant; returns its name."""
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def constant_type(self, name: str) -> int:
        """ONNX's number for the element type of a constant."""
        return next(int(one.data_type) for one in self.constants if one.name == name)

    def add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add an operator with one output; returns the output's name."""
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def add_least(self, numbers: str, output: str) -> str:
        """Add the least of each row of `numbers` (N, columns): (N, 1)."""
        if self.opset < 18:
            return self.add("ReduceMin", [numbers], output, axes=[1], keepdims=1)
        self.constant(f"{output}_axis", np.array([1]))
        return self.add("ReduceMin", [numbers, f"{output}_axis"], output, keepdims=1)

    def proto(self, n_features: int, outputs: list[ValueInfoProto]) -> GraphProto:
        """The graph from ``X`` to `outputs`, with the constants that it uses."""
        from onnx import TensorProto, helper

        used = {name for node in self.nodes for name in node.input}
        constants = [one for one in self.constants if one.name in used]

        x = helper.make_tensor_value_info("X", TensorProto.FLOAT, ["N", n_features])
        graph: GraphProto = helper.make_graph(
            self.nodes, "treekit", [x], outputs, initializer=constants
        )
        return graph

    def add_look_up(
        self,
        codes: str,
        features: npt.NDArray[np.int64],
        replies: list[npt.NDArray[Any]],
        missing: np.generic,
        output: str,
    ) -> str:
        """Add tables over codes: (N, tables), of each row the reply to its code.

        Parameters
        ----------
        codes : str
            (N, columns) float32: codes of the vocabulary, NaN = missing.
        features : (tables,) int64
            Column that each table is asked by.
        replies : list of (levels,) arrays
            One for each table.
        missing : scalar
            The reply to a missing value.
        """
        from onnx import TensorProto

        sizes = np.array([len(reply) + 1 for reply in replies])
        entries = np.concatenate([np.append(missing, reply) for reply in replies])
        self.constant(f"{output}_features", features)
        self.constant(f"{output}_starts", np.cumsum(sizes) - sizes)
        self.constant(f"{output}_entries", entries.astype(missing.dtype))
        self.constant(f"{output}_absent", np.array(-1, dtype=np.float32))
        self.constant(f"{output}_first", np.array(1))
        x = self.add("Gather", [codes, f"{output}_features"], f"{output}_x", axis=1)
        self.add("Equal", [x, x], f"{output}_known")
        self.add("Where", [f"{output}_known", x, f"{output}_absent"], f"{output}_code")
        self.add("Cast", [f"{output}_code"], f"{output}_whole", to=TensorProto.INT64)
        self.add("Add", [f"{output}_whole", f"{output}_first"], f"{output}_entry")
        self.add("Add", [f"{output}_entry", f"{output}_starts"], f"{output}_at")
        return self.add("Gather", [f"{output}_entries", f"{output}_at"], output, axis=0)

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
