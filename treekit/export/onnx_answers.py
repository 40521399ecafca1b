"""From the integer ``sums`` of an ONNX graph to labels, probabilities and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Output
from treekit.errors import ExportError
from treekit.export.onnx_graph import Graph
from treekit.model.ensemble import Model

if TYPE_CHECKING:
    from onnx import ValueInfoProto

__all__ = ["add_labels", "add_numbers"]


def add_labels(graph: Graph, model: Model) -> list[ValueInfoProto]:
    """Add labels and probabilities; returns the outputs' types."""
    from onnx import TensorProto, helper

    graph.constant("unit_total", np.array(float(model.unit_total)))
    graph.add("Cast", ["sums"], "exact_sums", to=TensorProto.DOUBLE)
    several = len(model.schema.outputs) > 1
    answers = []
    for number, output in enumerate(model.schema.outputs):
        end = f"_{number}" if several else ""
        votes = _block(graph, model, number, end) if several else "exact_sums"
        labels = _labels(output)
        kind = graph.constant_type(graph.constant(f"labels{end}", labels))
        code = (
            _least_cost(graph, model)
            if model.label_costs is not None
            else graph.add(
                "ArgMax", [votes], f"class{end}", axis=1, keepdims=0, select_last_index=0
            )
        )
        graph.add("Gather", [f"labels{end}", code], f"label{end}", axis=0)
        graph.add("Div", [votes, "unit_total"], f"probabilities{end}")
        answers += [
            helper.make_tensor_value_info(f"label{end}", kind, ["N"]),
            helper.make_tensor_value_info(
                f"probabilities{end}", TensorProto.DOUBLE, ["N", len(labels)]
            ),
        ]
    return answers


def _block(graph: Graph, model: Model, number: int, end: str) -> str:
    """The votes of one output's classes."""
    first, last = model.schema.blocks[number : number + 2]
    graph.constant(f"classes{end}", np.arange(first, last))
    return graph.add("Gather", ["exact_sums", f"classes{end}"], f"votes{end}", axis=1)


def _least_cost(graph: Graph, model: Model) -> str:
    """The first class of least expected cost; costs reach 2**62, so they stay int64."""
    from onnx import TensorProto

    graph.constant("cost_table", np.asarray(model.label_costs, dtype=np.int64))
    graph.add("Cast", ["exact_sums"], "whole_sums", to=TensorProto.INT64)
    graph.add("MatMul", ["whole_sums", "cost_table"], "costs")
    graph.add_least("costs", "least")
    graph.add("Equal", ["costs", "least"], "is_least")
    graph.add("Cast", ["is_least"], "is_least_number", to=TensorProto.FLOAT)
    return graph.add(
        "ArgMax", ["is_least_number"], "class", axis=1, keepdims=0, select_last_index=0
    )


def add_numbers(graph: Graph, model: Model) -> list[ValueInfoProto]:
    """Add the numbers of a regression; returns the output's type."""
    from onnx import TensorProto, helper

    grid, n_outputs = model.grid, model.schema.n_values
    graph.constant("rows_of_trees", np.array(float(model.n_trees * model.mass)))
    graph.constant("step", np.ldexp(1.0, np.array(grid.exponent)))
    graph.add("Cast", ["sums"], "exact_sums", to=TensorProto.DOUBLE)
    total = "exact_sums"
    if model.missing != "fractional":
        graph.constant("high_targets", np.arange(n_outputs))
        graph.constant("low_targets", np.arange(n_outputs, 2 * n_outputs))
        graph.constant("base", np.array(float(grid.base)))
        graph.add("Gather", ["exact_sums", "high_targets"], "high", axis=1)
        graph.add("Gather", ["exact_sums", "low_targets"], "low", axis=1)
        graph.add("Mul", ["high", "base"], "shifted")
        total = graph.add("Add", ["shifted", "low"], "sum")
    graph.add("Div", [total, "rows_of_trees"], "mean")
    if model.schema.more:
        graph.add("Mul", ["mean", "step"], "value")
        return [helper.make_tensor_value_info("value", TensorProto.DOUBLE, ["N", n_outputs])]
    graph.constant("only", np.array(0))
    graph.add("Mul", ["mean", "step"], "values")
    graph.add("Gather", ["values", "only"], "value", axis=1)
    return [helper.make_tensor_value_info("value", TensorProto.DOUBLE, ["N"])]


def _labels(output: Output) -> npt.NDArray[Any]:
    """The class labels as a tensor that `Gather` picks from."""
    labels = output.classes
    if isinstance(labels[0], str):
        for label in labels:
            _require_utf8(str(label))
        return np.array(labels, dtype=object)
    if isinstance(labels[0], int) and not isinstance(labels[0], bool):
        for label in labels:
            if not -(2**63) <= label < 2**63:  # type: ignore[operator]
                raise ExportError(
                    f"onnx: the class label {label} does not fit 64 bits: use text labels"
                )
        return np.array(labels, dtype=np.int64)
    return np.array(labels)


def _require_utf8(label: str) -> None:
    try:
        label.encode()
    except UnicodeEncodeError:
        raise ExportError(
            f"onnx: the class label {label!r} holds half a surrogate pair, and ONNX text is "
            "UTF-8: rename the class"
        ) from None
