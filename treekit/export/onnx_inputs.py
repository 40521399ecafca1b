"""ONNX operators between the input and the trees: codes that are none, and cells refused.

A graph refuses as an operator may: it asks a vector of one element for the
element whose number is the count of refused cells.  "It is an error if any of
the index values are out of bounds" (ONNX, Gather), so the whole batch fails, as
it does in `treekit.model.scoring`; onnxruntime's message holds the node's name.
"""

from __future__ import annotations

import numpy as np

from treekit.export.onnx_graph import Graph
from treekit.model.model import Model

__all__ = ["add_inputs"]


def add_inputs(graph: Graph, model: Model, *, clean: bool = False) -> str:
    """Add what a row passes before the trees see it.

    Parameters
    ----------
    clean : bool
        Whether ``X`` holds nothing but codes of the vocabularies already.

    Returns
    -------
    str
        (N, features): numbers, and codes of the vocabularies; NaN where
        a value is missing, or is not a code of its column.
    """
    schema = model.schema
    columns = "X"
    if schema.nominal.any() and not clean:
        columns = _add_clean_codes(graph, model)
    if model.missing == "error":
        graph.add("Equal", [columns, columns], "is_known")
        graph.add("Not", ["is_known"], "is_refused")
        return _add_refusal(graph, columns, "this model refuses missing values")
    if model.unknown == "error" and schema.nominal.any() and not clean:
        graph.add("Equal", ["X", "X"], "is_known")
        graph.add("Not", ["usable"], "is_no_code")
        graph.add("And", ["is_known", "is_no_code"], "is_refused")
        return _add_refusal(graph, columns, "this model refuses unseen categories")
    return columns


def _add_clean_codes(graph: Graph, model: Model) -> str:
    """NaN for every value of a nominal column that is not a code of its vocabulary."""
    schema = model.schema
    graph.constant("numeric", ~schema.nominal)
    graph.number("zero", 0)
    graph.constant("last_code", (schema.n_levels - 1).astype(graph.real))
    graph.number("missing", np.nan)
    graph.add("Floor", ["X"], "whole")
    graph.add("Equal", ["X", "whole"], "is_whole")
    graph.add("GreaterOrEqual", ["X", "zero"], "not_below")
    graph.add("LessOrEqual", ["X", "last_code"], "not_above")
    graph.add("And", ["not_below", "not_above"], "inside")
    graph.add("And", ["is_whole", "inside"], "is_code")
    graph.add("Or", ["numeric", "is_code"], "usable")
    return graph.add("Where", ["usable", "X", "missing"], "codes")


def _add_refusal(graph: Graph, columns: str, said: str) -> str:
    """The columns, if no cell ``is_refused``; otherwise running the graph is an error."""
    from onnx import TensorProto

    graph.constant("nothing", np.zeros(1, dtype=graph.real))
    graph.add("Cast", ["is_refused"], "refused", to=TensorProto.INT64)
    graph.add("ReduceSum", ["refused"], "n_refused", keepdims=0)
    graph.add("Gather", ["nothing", "n_refused"], "accepted", name=said)
    return graph.add("Add", [columns, "accepted"], "columns")
