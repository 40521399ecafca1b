"""Conversion of the ``exact_sums`` of an ONNX graph to labels, probabilities and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Output
from treekit.errors import ExportError
from treekit.export.onnx.graph import ML_DOMAIN, Graph
from treekit.model.links import COEFFICIENTS, LIMIT, LN2_HIGH, LN2_LOW, LOG2_E, Link
from treekit.model.model import Model

if TYPE_CHECKING:
    from onnx import ValueInfoProto

__all__ = [
    "add_labels",
    "add_link",
    "add_numbers",
]


# ---------------------------------------------------------------- onnx answers

_EXACT_POWER = 900
"""Scaling by powers of 2 up to this does not make a divisor or mean of integers subnormal."""


def add_labels(graph: Graph, model: Model, *, zipmap: bool = False) -> list[ValueInfoProto]:
    """Add labels and probabilities; return the types of the outputs.

    Parameters
    ----------
    zipmap : bool
        Whether probabilities are a map of label to float32 for each row.
    """
    from onnx import TensorProto, helper

    several = len(model.schema.outputs) > 1
    answers = []
    for number, output in enumerate(model.schema.outputs):
        end = f"_{number}" if several else ""
        votes = _block(graph, model, number, end) if several else "exact_sums"
        kind = graph.constant_type(graph.constant(f"labels{end}", _labels(output)))
        coded = all(type(label) is int for label in output.classes) and (
            output.classes == tuple(range(len(output.classes)))
        )  # then the label of a class is its position
        code = f"label{end}" if coded else f"class{end}"
        if model.label_costs is not None:
            _add_least_cost(graph, model, code)
        else:
            graph.add("ArgMax", [votes], code, axis=1, keepdims=0, select_last_index=0)
        if not coded:
            graph.add("Gather", [f"labels{end}", code], f"label{end}", axis=0)
        answers.append(helper.make_tensor_value_info(f"label{end}", kind, ["N"]))
        n_classes = len(output.classes)
        if zipmap:
            shares = _shares(graph, model, votes, n_classes, f"shares{end}")
            answers.append(_add_map(graph, output, shares, f"probabilities{end}"))
            continue
        name = _shares(graph, model, votes, n_classes, f"probabilities{end}")
        answers.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["N", n_classes]))
    return answers


def _block(graph: Graph, model: Model, number: int, end: str) -> str:
    """Add the selection of the votes for the classes of one output."""
    first, last = model.schema.blocks[number : number + 2]
    graph.constant(f"classes{end}", np.arange(first, last))
    return graph.add("Gather", ["exact_sums", f"classes{end}"], f"votes{end}", axis=1)


def _shares(graph: Graph, model: Model, votes: str, n_classes: int, name: str) -> str:
    """Add probabilities: one correctly rounded division, or the link function of margins."""
    if model.margins:
        margins = _scaled(graph, model, votes, f"{name}_of_margins")
        return add_link(graph, model.link, margins, n_classes, name)
    graph.constant("unit_total", np.array(float(model.unit_total)))
    return graph.add("Div", [votes, "unit_total"], name)


def _scaled(graph: Graph, model: Model, total: str, name: str) -> str:
    """Add the scaling of sums to output values: one rounded division, and an exact factor."""
    if model.divisor != 1 and abs(model.exponent) <= _EXACT_POWER:
        graph.constant("divisor", np.ldexp(float(model.divisor), np.array(-model.exponent)))
        return graph.add("Div", [total, "divisor"], name)
    if model.divisor != 1:
        graph.constant("divisor", np.array(float(model.divisor)))
        total = graph.add("Div", [total, "divisor"], f"{name}_mean")
    graph.constant("step", np.ldexp(1.0, np.array(model.exponent)))
    return graph.add("Mul", [total, "step"], name)


def _add_map(graph: Graph, output: Output, shares: str, name: str) -> ValueInfoProto:
    """Add a map of label to float32 for each row, as in skl2onnx."""
    from onnx import TensorProto, helper

    labels = output.classes
    given: dict[str, Any]
    if isinstance(labels[0], str):
        key, given = TensorProto.STRING, {"classlabels_strings": list(labels)}
    elif isinstance(labels[0], int) and not isinstance(labels[0], bool):
        key, given = TensorProto.INT64, {"classlabels_int64s": list(labels)}
    else:
        raise ExportError(
            f"onnx: zipmap=True needs labels that are text or integers, but those of "
            f"{output.name!r} are of type {type(labels[0]).__name__}: choose zipmap=False"
        )
    graph.add("Cast", [shares], f"{shares}_single", to=TensorProto.FLOAT)
    graph.add("ZipMap", [f"{shares}_single"], name, domain=ML_DOMAIN, **given)
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, value))
    return helper.make_value_info(name, maps)


def _add_least_cost(graph: Graph, model: Model, name: str) -> str:
    """Add the first class of least expected cost, in int64 because costs reach 2**62."""
    from onnx import TensorProto

    graph.constant("cost_table", np.asarray(model.label_costs, dtype=np.int64))
    graph.add("Cast", ["exact_sums"], "whole_sums", to=TensorProto.INT64)
    graph.add("MatMul", ["whole_sums", "cost_table"], "costs")
    graph.add_reduction("ReduceMin", "costs", "least")
    graph.add("Equal", ["costs", "least"], "is_least")
    graph.add("Cast", ["is_least"], "is_least_number", to=TensorProto.FLOAT)
    return graph.add("ArgMax", ["is_least_number"], name, axis=1, keepdims=0, select_last_index=0)


def add_numbers(graph: Graph, model: Model) -> list[ValueInfoProto]:
    """Add the output values of a regression; return the type of the output."""
    from onnx import TensorProto, helper

    n_outputs = model.schema.n_values
    shape: list[str | int] = ["N", n_outputs] if model.schema.more else ["N"]
    numbers = "exact_sums"
    if not model.schema.more:
        graph.constant("only", np.array(0))
        numbers = graph.add("Gather", [numbers, "only"], "exact_sum", axis=1)
    if model.link == "identity":
        _scaled(graph, model, numbers, "value")
    else:
        numbers = _scaled(graph, model, numbers, "numbers")
        add_link(graph, model.link, numbers, n_outputs, "value")
    return [helper.make_tensor_value_info("value", TensorProto.DOUBLE, shape)]


def _labels(output: Output) -> npt.NDArray[Any]:
    """Return the class labels as an array for `Gather`."""
    labels = output.classes
    if isinstance(labels[0], str):
        for label in labels:
            _require_utf8(str(label))
        return np.array(labels, dtype=object)
    if isinstance(labels[0], int) and not isinstance(labels[0], bool):
        for label in labels:
            if not -(2**63) <= label < 2**63:  # type: ignore[operator]
                raise ExportError(f"onnx: the class label {label} exceeds 64 bits: use text labels")
        return np.array(labels, dtype=np.int64)
    return np.array(labels)


def _require_utf8(label: str) -> None:
    try:
        label.encode()
    except UnicodeEncodeError:
        raise ExportError(
            f"onnx: the class label {label!r} contains half a surrogate pair, but ONNX text is "
            "UTF-8: rename the class"
        ) from None


# ---------------------------------------------------------------- onnx links
# Link functions as ONNX operators in double, one IEEE operation each; see `treekit.model.links`.

_MOST = 1010
"""Largest abs(n) of the table of ``2**n``: normal doubles, all that `LIMIT` allows."""


def add_link(graph: Graph, link: Link, margins: str, n_values: int, output: str) -> str:
    """Add the link function of `margins` (N, values) double; return the name of the result."""
    if link == "exp":
        return _add_exp(graph, margins, output)
    if link == "sigmoid":
        return _add_sigmoid(graph, margins, output)
    if link == "softmax":
        return _add_softmax(graph, margins, n_values, output)
    return graph.add("Identity", [margins], output)


def _real(graph: Graph, name: str, value: float) -> str:
    return graph.constant(name, np.array(value))


def _add_exp(graph: Graph, x: str, output: str) -> str:
    from onnx import TensorProto

    def step(operator: str, a: str, b: str, name: str) -> str:
        return graph.add(operator, [a, b], f"{output}_{name}")

    low, high = _real(graph, "exp_least", -LIMIT), _real(graph, "exp_most", LIMIT)
    x = graph.add("Clip", [x, low, high], f"{output}_x")
    n = step("Mul", x, _real(graph, "log2_e", LOG2_E), "n_product")
    n = step("Add", n, _real(graph, "half", 0.5), "n_sum")
    n = graph.add("Floor", [n], f"{output}_n")
    high_part = step("Mul", n, _real(graph, "ln2_high", LN2_HIGH), "r_high")
    low_part = step("Mul", n, _real(graph, "ln2_low", LN2_LOW), "r_low")
    r = step("Sub", step("Sub", x, high_part, "r_rest"), low_part, "r")
    p = _real(graph, "exp_13", COEFFICIENTS[0])
    for power, coefficient in zip(range(12, -1, -1), COEFFICIENTS[1:], strict=True):
        p = step("Mul", p, r, f"product_{power}")
        p = step("Add", p, _real(graph, f"exp_{power}", coefficient), f"sum_{power}")
    # Scaling by 2**n is exact; a table gives exact powers in every runtime.
    graph.constant("powers_of_2", np.ldexp(1.0, np.arange(-_MOST, _MOST + 1)))
    graph.constant("power_of_0", np.array(_MOST))
    graph.add("Cast", [n], f"{output}_whole", to=TensorProto.INT64)
    at = step("Add", f"{output}_whole", "power_of_0", "at")
    scale = graph.add("Gather", ["powers_of_2", at], f"{output}_scale", axis=0)
    return graph.add("Mul", [p, scale], output)


def _add_sigmoid(graph: Graph, m: str, output: str) -> str:
    zero, one = _real(graph, "link_zero", 0.0), _real(graph, "link_one", 1.0)
    graph.add("Abs", [m], f"{output}_size")
    graph.add("Neg", [f"{output}_size"], f"{output}_below")
    e = _add_exp(graph, f"{output}_below", f"{output}_e")
    graph.add("GreaterOrEqual", [m, zero], f"{output}_is_positive")
    graph.add("Where", [f"{output}_is_positive", one, e], f"{output}_part")
    graph.add("Add", [one, e], f"{output}_whole_part")
    return graph.add("Div", [f"{output}_part", f"{output}_whole_part"], output)


def _add_softmax(graph: Graph, m: str, n_values: int, output: str) -> str:
    largest = graph.add_reduction("ReduceMax", m, f"{output}_largest")
    graph.add("Sub", [m, largest], f"{output}_below")
    t = _add_exp(graph, f"{output}_below", f"{output}_t")
    total = ""
    for k in range(n_values):  # in class order, which ReduceSum does not guarantee
        graph.constant(f"class_{k}_only", np.array([k]))
        part = graph.add("Gather", [t, f"class_{k}_only"], f"{output}_t_{k}", axis=1)
        total = graph.add("Add", [total, part], f"{output}_to_{k}") if total else part
    return graph.add("Div", [t, total], output)
