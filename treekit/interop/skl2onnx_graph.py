"""A model's graph inside skl2onnx's: the inputs joined, the trees, the answers as declared.

treekit's own graph is built as for its ONNX files (`treekit.export.onnx`), so
that the answers are the same bits, and then moved over under names that are
new there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError
from treekit.export.onnx import add_sums
from treekit.export.onnx.answers import add_labels, add_numbers
from treekit.export.onnx.graph import ML_DOMAIN, NEWEST_OPSET, OLDEST_OPSET, Graph
from treekit.export.onnx.trees import add_leaves, add_paths
from treekit.interop.skl2onnx_inputs import join_inputs
from treekit.model.model import Model

__all__ = ["convert"]

_ML_OPSET = 3
"""skl2onnx refuses newer operators of ai.onnx.ml."""


def convert(scope: Any, operator: Any, container: Any) -> None:
    """Add an estimator's graph to skl2onnx's container; skl2onnx calls this.

    Parameters
    ----------
    scope : skl2onnx.common._topology.Scope
        Gives names.
    operator : skl2onnx.common._topology.Operator
        The estimator with its inputs and declared outputs.
    container : skl2onnx.common._container.ModelComponentContainer
        Takes operators and constants.

    Raises
    ------
    ExportError
        If the graph cannot say what the estimator does, or not from these inputs.
    """
    from onnx import TensorProto

    estimator = operator.raw_operator
    model: Model = estimator.model_
    if container.target_opset < OLDEST_OPSET:
        raise ExportError(
            f"skl2onnx: treekit's graphs need the standard operators of version {OLDEST_OPSET}, "
            f"and target_opset is {container.target_opset}: raise it"
        )
    graph = Graph(min(container.target_opset, NEWEST_OPSET), _ML_OPSET, model.schema.dtype)
    names = join_inputs(graph, model.schema, operator.inputs)
    given = container.get_options(estimator, {"decision_path": False, "decision_leaf": False})
    reached = add_sums(graph, model, tell_leaves=any(given.values()))
    made = (
        _add_classes(graph, estimator, container)
        if model.schema.task == "classification"
        else _add_numbers(graph, model)
    )
    made += [add_paths(graph, model, reached).name] if given["decision_path"] else []
    made += [add_leaves(graph, model, reached).name] if given["decision_leaf"] else []
    if graph.ml_used > _ML_OPSET:
        raise ExportError(
            "skl2onnx: the model's sets of categories need TreeEnsemble of ai.onnx.ml 5, which "
            "skl2onnx does not write: treekit.export it, or set max_depth"
        )
    for name, output in zip(made, operator.outputs, strict=True):
        element = _element_type(output.type)
        if element == TensorProto.STRING:  # Cast would copy it
            graph.add("Identity", [name], f"out_{name}")
        else:
            graph.add("Cast", [name], f"out_{name}", to=element)
        names[f"out_{name}"] = output.full_name
    _move(graph, scope, container, names)


def _element_type(kind: Any) -> int:
    """ONNX's number for the elements of a declared output."""
    return int(kind.to_onnx_type().tensor_type.elem_type)


def _add_numbers(graph: Graph, model: Model) -> list[str]:
    """``value`` (N, outputs)."""
    add_numbers(graph, model)
    if model.schema.more:
        return ["value"]
    graph.constant("column", np.array([-1, 1]))
    return [graph.add("Reshape", ["value", "column"], "value_column")]


def _add_classes(graph: Graph, estimator: Any, container: Any) -> list[str]:
    """Labels of skl2onnx's types, and probabilities."""
    add_labels(graph, estimator.model_)
    if estimator.n_outputs_ == 1:
        ends, classes = [""], [estimator.classes_]
    else:
        ends, classes = [f"_{k}" for k in range(estimator.n_outputs_)], estimator.classes_
    positions = container.get_options(estimator, {"nocl": False})["nocl"]
    labels = []
    for end, own in zip(ends, classes, strict=True):
        said = next(f"{one}{end}" for one in ("class", "label") if graph.has(f"{one}{end}"))
        if not positions:
            graph.constant(f"said{end}", _plain_labels(own))
            said = graph.add("Gather", [f"said{end}", said], f"saying{end}", axis=0)
        labels.append(said)
    if len(ends) == 1:
        return [labels[0], "probabilities"]
    return [_side_by_side(graph, labels), _planes(graph, [len(own) for own in classes])]


def _plain_labels(classes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """(classes,) int64, or object of text."""
    if classes.dtype.kind in "UTO":
        return np.array([str(label) for label in classes], dtype=object)
    return classes.astype(np.int64)


def _side_by_side(graph: Graph, labels: list[str]) -> str:
    """(N, outputs) from the (N,) of each output."""
    graph.constant("upright", np.array([-1, 1]))
    columns = [graph.add("Reshape", [one, "upright"], f"{one}_column") for one in labels]
    return graph.add("Concat", columns, "labels_of_outputs", axis=1)


def _planes(graph: Graph, sizes: list[int]) -> str:
    """(outputs, N, most classes) from ``probabilities_0`` and so on, filled up with 0."""
    graph.constant("plane", np.array([0]))
    planes = []
    for k, size in enumerate(sizes):
        plane = f"probabilities_{k}"
        if size < max(sizes):
            graph.constant(f"filling_{k}", np.array([0, 0, 0, max(sizes) - size]))
            plane = graph.add("Pad", [plane, f"filling_{k}"], f"filled_{k}")
        planes.append(graph.add("Unsqueeze", [plane, "plane"], f"plane_{k}"))
    return graph.add("Concat", planes, "planes", axis=0)


def _move(graph: Graph, scope: Any, container: Any, names: dict[str, str]) -> None:
    """Nodes and constants into the container; `names` maps what has a name there already."""
    from onnx import NodeProto, TensorProto, defs

    nodes = _needed(graph, set(names))
    used = {name for node in nodes for name in node.input}

    def renamed(name: str) -> str:
        if name not in names:
            names[name] = scope.get_unique_variable_name(f"treekit_{name}")
        return names[name]

    for constant in graph.constants:
        if constant.name in used:
            moved = TensorProto()
            moved.CopyFrom(constant)
            moved.name = renamed(constant.name)
            container.initializers.append(moved)
    for node in nodes:
        container.check_white_black_list(node.op_type)
        moved_node = NodeProto()
        moved_node.CopyFrom(node)
        moved_node.name = scope.get_unique_operator_name(f"treekit_{node.op_type}")
        if node.name:  # what onnxruntime shows where it refuses a row
            moved_node.name += f": {node.name}"
        moved_node.input[:] = [renamed(name) for name in node.input]
        moved_node.output[:] = [renamed(name) for name in node.output]
        container.nodes.append(moved_node)
        highest = _ML_OPSET if node.domain == ML_DOMAIN else graph.opset
        version = defs.get_schema(node.op_type, highest, node.domain).since_version
        container.node_domain_version_pair_sets.add((node.domain, version))


def _needed(graph: Graph, outputs: set[str]) -> list[Any]:
    """The nodes that `outputs` follow from, in order."""
    wanted, kept = set(outputs), []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            kept.append(node)
    return kept[::-1]
