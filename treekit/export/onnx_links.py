"""Links as ONNX operators in double, one IEEE operation each; see `treekit.model.links`."""

from __future__ import annotations

import numpy as np

from treekit.export.onnx_graph import Graph
from treekit.model.links import COEFFICIENTS, LIMIT, LN2_HIGH, LN2_LOW, LOG2_E, Link

__all__ = ["add_link"]

_MOST = 1010
"""``2**n`` is a normal double for the n that `LIMIT` allows, and is looked up in a table."""


def add_link(graph: Graph, link: Link, margins: str, n_values: int, output: str) -> str:
    """Add what `link` makes of `margins` (N, values) double; returns its name."""
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
    # Scaling by 2**n is exact: IEEE has the power, and a table has it in every runtime.
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
    for k in range(n_values):  # in class order: ReduceSum may add in another
        graph.constant(f"class_{k}_only", np.array([k]))
        part = graph.add("Gather", [t, f"class_{k}_only"], f"{output}_t_{k}", axis=1)
        total = graph.add("Add", [total, part], f"{output}_to_{k}") if total else part
    return graph.add("Div", [t, total], output)
