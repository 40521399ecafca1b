"""Derived columns as plain ONNX operators: every test of every row, in double.

The columns are of the model's input type, as those of the table.  Sums are chains
of Mul and Add, term by term: a MatMul would add in an order of its own, and
products of float32 numbers are exact in double only one by one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.export.onnx_graph import Graph
from treekit.model.derived_features import DerivedColumns

__all__ = ["add_derived"]


def add_derived(graph: Graph, derived: DerivedColumns, codes: str) -> str:
    """Add the derived columns behind the columns of `codes` (N, features).

    Returns the name of (N, features + D): 0.0, 1.0, or NaN where no test says a branch.
    """
    linear = np.flatnonzero(derived.level_feature < 0)
    levels = np.flatnonzero(derived.level_feature >= 0)
    counts = np.diff(derived.term_start)[linear]
    parts, order = [], []
    for count in np.unique(counts).tolist():
        tests = linear[counts == count]
        parts.append(_linear_tests(graph, derived, tests, count, codes))
        order.append(tests)
    if len(levels):
        parts.append(_level_tests(graph, derived, levels, codes))
        order.append(levels)
    place = np.argsort(np.concatenate(order))  # where each test is among the parts
    tests_name = graph.add("Concat", parts, "tests", axis=1) if len(parts) > 1 else parts[0]
    sides = _first_known(graph, derived, tests_name, place)
    return graph.add("Concat", [codes, sides], "with_derived", axis=1)


def _linear_tests(
    graph: Graph, derived: DerivedColumns, tests: npt.NDArray[np.int64], count: int, codes: str
) -> str:
    """(N, tests): which side of its threshold each sum of `count` terms lies on."""
    from onnx import TensorProto

    name = f"sums_of_{count}"
    total = ""
    for term in range(count):
        at = derived.term_start[tests] + term
        graph.constant(f"{name}_column_{term}", derived.term_feature[at])
        graph.constant(f"{name}_weight_{term}", derived.term_weight[at])
        graph.add("Gather", [codes, f"{name}_column_{term}"], f"{name}_x_{term}", axis=1)
        graph.add("Cast", [f"{name}_x_{term}"], f"{name}_exact_{term}", to=TensorProto.DOUBLE)
        part = graph.add(
            "Mul", [f"{name}_exact_{term}", f"{name}_weight_{term}"], f"{name}_part_{term}"
        )
        total = graph.add("Add", [total, part], f"{name}_total_{term}") if total else part
    below, above, lost = (
        np.where(said < 0, np.nan, said).astype(graph.real)
        for said in (derived.below[tests], derived.above[tests], derived.lost[tests])
    )
    graph.constant(f"{name}_threshold", derived.threshold[tests])
    graph.constant(f"{name}_below", below)
    graph.constant(f"{name}_above", above)
    if np.isnan(lost).all():
        graph.number(f"{name}_unknown", np.nan)
    else:
        graph.constant(f"{name}_unknown", lost)
    graph.add("LessOrEqual", [total, f"{name}_threshold"], f"{name}_is_below")
    graph.add("Equal", [total, total], f"{name}_is_known")
    graph.add("Where", [f"{name}_is_below", f"{name}_below", f"{name}_above"], f"{name}_side")
    return graph.add("Where", [f"{name}_is_known", f"{name}_side", f"{name}_unknown"], name)


def _level_tests(
    graph: Graph, derived: DerivedColumns, tests: npt.NDArray[np.int64], codes: str
) -> str:
    """(N, tests): the branch of each test's level, NaN where it says none."""
    replies = []
    for test in tests.tolist():
        own = derived.level_branch[derived.level_start[test] : derived.level_start[test + 1]]
        replies.append(np.where(own < 0, np.nan, own))
    lost = derived.lost[tests]
    lost = np.where(lost < 0, np.nan, lost).astype(graph.real)
    return graph.add_look_up(codes, derived.level_feature[tests], replies, lost, "level_tests")


def _first_known(
    graph: Graph, derived: DerivedColumns, tests: str, place: npt.NDArray[np.int64]
) -> str:
    """(N, D): of each column the first test that is not NaN."""
    first, last = derived.test_start[:-1], derived.test_start[1:] - 1
    name = ""
    for step in range(int((last - first).max()) + 1):
        # A column without so many tests asks its last one again.
        at = place[np.minimum(first + step, last)]
        graph.constant(f"test_{step}_of", at)
        asked = graph.add("Gather", [tests, f"test_{step}_of"], f"test_{step}", axis=1)
        if not name:
            name = asked
            continue
        graph.add("Equal", [name, name], f"known_before_{step}")
        name = graph.add("Where", [f"known_before_{step}", name, asked], f"known_after_{step}")
    return name
