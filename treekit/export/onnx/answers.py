"""Conversion of the ``exact_sums`` of an ONNX graph to labels, probabilities and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Output
from treekit.errors import ExportError
from treekit.export.literals import encode_utf8
from treekit.export.onnx.graph import ML_DOMAIN, Graph
from treekit.model.fixed_point import MASS, scale_units
from treekit.model.links import EXP_COEFFICIENTS, EXP_LIMIT, LN2_HIGH, LN2_LOW, LOG2_E, Link
from treekit.model.model import Model

if TYPE_CHECKING:
    from onnx import ValueInfoProto


# ---------------------------------------------------------------- onnx answers

_MAX_EXACT_INTEGER = 2.0**53
"""Integers up to this are exact in double."""

_MAX_EXACT_EXPONENT = 900
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
        votes = "exact_sums"
        if several:
            own = np.arange(*model.schema.blocks[number : number + 2])
            votes = graph.add_selection(votes, f"classes{end}", own, f"votes{end}")
        labels = _make_label_array(output)
        graph.add_constant(f"labels{end}", labels)
        # Then the label of a class is its position.
        coded = labels.dtype == np.int64 and np.array_equal(labels, np.arange(len(labels)))
        code = f"label{end}" if coded else f"class{end}"
        if model.label_costs is not None:
            _add_least_cost(graph, model, code)
        else:
            graph.add_first_maximum(votes, code)
        if not coded:
            graph.add_operator("Gather", [f"labels{end}", code], f"label{end}", axis=0)
        kind = helper.np_dtype_to_tensor_dtype(labels.dtype)
        answers.append(helper.make_tensor_value_info(f"label{end}", kind, ["N"]))
        n_classes = len(output.classes)
        if zipmap:
            shares = _add_probabilities(graph, model, votes, n_classes, f"shares{end}")
            answers.append(_add_map(graph, output, shares, f"probabilities{end}"))
            continue
        name = _add_probabilities(graph, model, votes, n_classes, f"probabilities{end}")
        answers.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["N", n_classes]))
    return answers


def _add_probabilities(graph: Graph, model: Model, votes: str, n_classes: int, name: str) -> str:
    """Add probabilities: one correctly rounded division, or the link function of margins."""
    if model.margins:
        margins = _add_scaling(graph, model, votes, f"{name}_of_margins")
        return add_link(graph, model.link, margins, n_classes, name)
    graph.add_constant("unit_total", float(model.unit_total))
    return graph.add_operator("Div", [votes, "unit_total"], name)


def _add_scaling(graph: Graph, model: Model, total: str, name: str) -> str:
    """Add the scaling of sums to output values: one rounded division, and an exact factor."""
    if model.divisor != 1 and max(map(abs, model.exponents)) <= _MAX_EXACT_EXPONENT:
        divisors = np.ldexp(float(model.divisor), -np.asarray(model.exponent, dtype=np.int32))
        graph.add_constant("divisor", divisors)
        return graph.add_operator("Div", [total, "divisor"], name)
    if model.divisor != 1:
        graph.add_constant("divisor", float(model.divisor))
        total = graph.add_operator("Div", [total, "divisor"], f"{name}_mean")
    graph.add_constant("step", scale_units(1.0, model.exponent))
    return graph.add_operator("Mul", [total, "step"], name)


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
    graph.add_cast(shares, np.float32, f"{shares}_single")
    graph.add_operator("ZipMap", [f"{shares}_single"], name, domain=ML_DOMAIN, **given)
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, value))
    return helper.make_value_info(name, maps)


def _add_least_cost(graph: Graph, model: Model, name: str) -> str:
    """Add the first class of least expected cost, exactly although costs reach 2**62.

    Costs beyond 2**53, of fractional instances only, are computed in two digits of 24 bits or more.
    """
    costs = -np.asarray(model.label_costs, dtype=np.float64)
    graph.add_constant("negative_costs", costs)
    if model.unit_total * -costs.min() <= _MAX_EXACT_INTEGER:
        graph.add_operator("MatMul", ["exact_sums", "negative_costs"], "gains")
        return graph.add_first_maximum("gains", name)
    graph.add_constant("digit", float(MASS))
    high, low = _add_digits(graph, "exact_sums", "sums")
    graph.add_operator("MatMul", [high, "negative_costs"], "high_products")
    graph.add_operator("MatMul", [low, "negative_costs"], "low_products")
    carry, low = _add_digits(graph, "low_products", "products")
    graph.add_operator("Add", ["high_products", carry], "high_gains")
    # Of the classes with the largest high digit the low digit decides; others get numbers below 0.
    graph.add_reduction("ReduceMax", "high_gains", "largest_gain")
    graph.add_operator("Sub", ["high_gains", "largest_gain"], "lost")
    graph.add_operator("Mul", ["lost", "digit"], "lost_gains")
    graph.add_operator("Add", ["lost_gains", low], "gains")
    return graph.add_first_maximum("gains", name)


def _add_digits(graph: Graph, integers: str, name: str) -> tuple[str, str]:
    """Add the quotient and the remainder, from 0, of integers in double by ``digit``."""
    graph.add_operator("Div", [integers, "digit"], f"{name}_share")
    high = graph.add_operator("Floor", [f"{name}_share"], f"{name}_high")
    graph.add_operator("Mul", [high, "digit"], f"{name}_above")
    return high, graph.add_operator("Sub", [integers, f"{name}_above"], f"{name}_low")


def add_numbers(graph: Graph, model: Model) -> list[ValueInfoProto]:
    """Add the output values of a regression; return the type of the output."""
    from onnx import TensorProto, helper

    n_outputs = model.schema.n_values
    shape: list[str | int] = ["N", n_outputs] if model.schema.more else ["N"]
    numbers = "exact_sums"
    if not model.schema.more:
        numbers = graph.add_selection(numbers, "only", 0, "exact_sum")
    if model.link == "identity":
        _add_scaling(graph, model, numbers, "value")
    else:
        numbers = _add_scaling(graph, model, numbers, "numbers")
        add_link(graph, model.link, numbers, n_outputs, "value")
    return [helper.make_tensor_value_info("value", TensorProto.DOUBLE, shape)]


def _make_label_array(output: Output) -> npt.NDArray[Any]:
    """Return the class labels as an array for `Gather`."""
    labels = output.classes
    if isinstance(labels[0], str):
        for label in labels:
            encode_utf8(str(label))
        return np.array(labels, dtype=object)
    if isinstance(labels[0], int) and not isinstance(labels[0], bool):
        for label in labels:
            if not -(2**63) <= label < 2**63:  # type: ignore[operator]
                raise ExportError(f"onnx: the class label {label} exceeds 64 bits: use text labels")
        return np.array(labels, dtype=np.int64)
    return np.array(labels)


# ---------------------------------------------------------------- onnx links
# Link functions as ONNX operators in double, one IEEE operation each; see `treekit.model.links`.

_MAX_POWER = 1010
"""Largest abs(n) of the table of ``2**n``: normal doubles, all that `EXP_LIMIT` allows."""


def add_link(graph: Graph, link: Link, margins: str, n_values: int, output: str) -> str:
    """Add the link function of `margins` (N, values) double; return the name of the result."""
    if link == "exp":
        return _add_exp(graph, margins, output)
    if link == "sigmoid":
        return _add_sigmoid(graph, margins, output)
    if link == "softmax":
        return _add_softmax(graph, margins, n_values, output)
    return graph.add_operator("Identity", [margins], output)


def _add_exp(graph: Graph, x: str, output: str) -> str:
    def add_step(operator: str, a: str, b: str, name: str) -> str:
        return graph.add_operator(operator, [a, b], f"{output}_{name}")

    low = graph.add_constant("exp_least", -EXP_LIMIT)
    high = graph.add_constant("exp_most", EXP_LIMIT)
    x = graph.add_operator("Clip", [x, low, high], f"{output}_x")
    n = add_step("Mul", x, graph.add_constant("log2_e", LOG2_E), "n_product")
    n = add_step("Add", n, graph.add_constant("half", 0.5), "n_sum")
    n = graph.add_operator("Floor", [n], f"{output}_n")
    high_part = add_step("Mul", n, graph.add_constant("ln2_high", LN2_HIGH), "r_high")
    low_part = add_step("Mul", n, graph.add_constant("ln2_low", LN2_LOW), "r_low")
    r = add_step("Sub", add_step("Sub", x, high_part, "r_rest"), low_part, "r")
    p = graph.add_constant("exp_13", EXP_COEFFICIENTS[0])
    for power, coefficient in zip(range(12, -1, -1), EXP_COEFFICIENTS[1:], strict=True):
        p = add_step("Mul", p, r, f"product_{power}")
        p = add_step("Add", p, graph.add_constant(f"exp_{power}", coefficient), f"sum_{power}")
    # Scaling by 2**n is exact; a table gives exact powers in every runtime.
    graph.add_constant("powers_of_2", np.ldexp(1.0, np.arange(-_MAX_POWER, _MAX_POWER + 1)))
    graph.add_constant("power_of_0", _MAX_POWER)
    graph.add_cast(n, np.int64, f"{output}_whole")
    at = add_step("Add", f"{output}_whole", "power_of_0", "at")
    scale = graph.add_operator("Gather", ["powers_of_2", at], f"{output}_scale", axis=0)
    return graph.add_operator("Mul", [p, scale], output)


def _add_sigmoid(graph: Graph, m: str, output: str) -> str:
    zero, one = (graph.add_constant("link_zero", 0.0), graph.add_constant("link_one", 1.0))
    graph.add_operator("Abs", [m], f"{output}_size")
    graph.add_operator("Neg", [f"{output}_size"], f"{output}_below")
    e = _add_exp(graph, f"{output}_below", f"{output}_e")
    graph.add_operator("GreaterOrEqual", [m, zero], f"{output}_is_positive")
    graph.add_operator("Where", [f"{output}_is_positive", one, e], f"{output}_part")
    graph.add_operator("Add", [one, e], f"{output}_whole_part")
    return graph.add_operator("Div", [f"{output}_part", f"{output}_whole_part"], output)


def _add_softmax(graph: Graph, m: str, n_values: int, output: str) -> str:
    largest = graph.add_reduction("ReduceMax", m, f"{output}_largest")
    graph.add_operator("Sub", [m, largest], f"{output}_below")
    t = _add_exp(graph, f"{output}_below", f"{output}_t")
    total = ""
    for k in range(n_values):  # in class order, which ReduceSum does not guarantee
        part = graph.add_selection(t, f"class_{k}_only", [k], f"{output}_t_{k}")
        total = graph.add_operator("Add", [total, part], f"{output}_to_{k}") if total else part
    return graph.add_operator("Div", [t, total], output)
