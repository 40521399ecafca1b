"""ONNX: one graph of operators that every runtime has, exact at every step.

Input ``X``, float32 (N, features): numbers, and the code of each category (its
position in the vocabulary, which the metadata holds).  NaN is missing; a code
outside the vocabulary, or one that is not whole, is an unseen category.

Floor, Equal, GreaterOrEqual, LessOrEqual, And, Or, Where
    only with nominal columns: turn every value that is no code into NaN, so
    that the trees meet whole codes and NaN only.
Not, Cast, ReduceSum, Gather, Add
    only with the policy ``error``: a refused cell makes the run an error
    (`treekit.export.onnx_inputs`).
Gather, Mul, Add, LessOrEqual, Where, Concat
    only with oblique splits or surrogates: derived columns behind the others
    (`treekit.export.onnx_derived`).
TreeEnsembleRegressor, ``SUM``
    one target a class, holding the integer votes as float32.  Their sums stay
    within 2**24: exact in any order, batch and number of threads.  The
    classifier operator is not used: with two classes onnxruntime gives wrong
    labels.  Targets that are 0 are left out.
Gather, Mul, Div, Sub, Where, MatMul of int64
    in its place where missing values divide a row (`treekit.export.onnx_fractional`).
ArgMax, ``select_last_index=0``; Gather
    the first class with the largest sum, and its label.  With costs, MatMul
    of int64 and the first class that reaches ReduceMin.
Cast to double, Div
    the probability: one correctly rounded division of exact numbers.

A regression has two targets an output, the limbs of the grid integer (one
float32 cannot hold it), which Cast, Mul and Add join exactly in double; Div by
the number of trees rounds once, and Mul by the step, a power of two, is exact.

Outputs: ``label`` (N,) and ``probabilities`` double (N, classes), or ``value``
double (N,).  A model of several outputs has ``label_0``, ``probabilities_0``,
``label_1`` and so on, or ``value`` (N, outputs).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from treekit._version import __version__
from treekit.contracts import Setting
from treekit.errors import ExportError
from treekit.export.lower import lower
from treekit.export.onnx_answers import add_labels, add_numbers
from treekit.export.onnx_derived import add_derived
from treekit.export.onnx_fractional import add_masses
from treekit.export.onnx_graph import ML_DOMAIN, ML_OPSET, Graph
from treekit.export.onnx_inputs import add_inputs
from treekit.export.onnx_nodes import onnx_nodes
from treekit.model.derived import derive
from treekit.model.ensemble import Model
from treekit.model.tree import MAX_DEPTH

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["ONNX_SETTINGS", "export_onnx"]

ONNX_SETTINGS = (
    Setting(
        "opset",
        17,
        "version of the standard operators; 17 runs since onnxruntime 1.12 (2022)",
        minimum=13,
        maximum=21,
    ),
)


def export_onnx(model: Model, name: str, *, opset: int = 17) -> dict[str, bytes]:
    """The model as one ONNX file, checked by ``onnx`` and loaded by ``onnxruntime``.

    Parameters
    ----------
    model : Model
        A float32 model.  What its policies refuse makes the graph's run an error.
    name : str
        Stem of the file.
    opset : int
        Version of the standard operators.

    Returns
    -------
    dict
        ``{name + ".onnx": content}``.

    Raises
    ------
    ExportError
        If ONNX cannot say what the model does; the message names it.
    """
    _require_expressible(model)
    content = _serialised(_model_proto(model, opset))
    return {f"{name}.onnx": content}


def _require_expressible(model: Model) -> None:
    schema = model.schema
    if schema.dtype != "float32":
        raise ExportError(
            f"onnx: the model's input type is {schema.dtype}, and ONNX tree operators compare in "
            'float32: train with dtype="float32"'
        )


def _model_proto(model: Model, opset: int) -> ModelProto:
    from onnx import helper

    graph = Graph(opset)
    _add_sums(graph, model)
    add_answers = add_labels if model.schema.task == "classification" else add_numbers
    outputs = add_answers(graph, model)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(ML_DOMAIN, ML_OPSET)]
    proto: ModelProto = helper.make_model(
        graph.proto(model.schema.n_features, outputs),
        opset_imports=opsets,
        # The oldest container that knows these operators, so that old runtimes read it.
        ir_version=helper.find_min_ir_version_for(opsets),
        producer_name="treekit",
    )
    helper.set_model_props(proto, _metadata(model))
    return proto


def _add_sums(graph: Graph, model: Model) -> None:
    """``sums``: the integers of the leaves, added up over the trees.

    Votes (N, values), float32 from the tree operator and int64 from masses; for
    numbers the high limbs of all outputs and then the low ones, or int64.
    """
    columns = add_inputs(graph, model)
    derived = derive(model)
    if derived.n_columns:
        columns = add_derived(graph, derived, columns)
    if model.missing == "fractional":
        add_masses(graph, model, columns, derived.column)
        return
    nodes = onnx_nodes(lower(model, derived))
    if nodes.depth > MAX_DEPTH:
        raise ExportError(
            f"onnx handles trees up to {MAX_DEPTH} tests deep, and this model needs {nodes.depth} "
            "(a split by categories counts a test for each run of codes): set max_depth"
        )
    units = model.units
    if model.schema.task == "regression":
        units = np.hstack(model.grid.limbs(units))
    graph.add_ensemble(columns, nodes, units, "sums")


def _metadata(model: Model) -> dict[str, str]:
    """What a reader needs to fill ``X`` and to read the sums, as ASCII text."""
    schema = model.schema
    units: dict[str, int]
    if schema.task == "classification":
        units = {"trees": model.n_trees, "unit_total": model.unit_total}
    else:
        grid = model.grid
        units = {"trees": model.n_trees, "base": grid.base, "exponent": grid.exponent}
    return {
        "treekit.version": __version__,
        "treekit.schema": json.dumps(msgspec.to_builtins(schema)),
        "treekit.classes": json.dumps(schema.classes),
        "treekit.units": json.dumps(units),
    }


def _serialised(proto: ModelProto) -> bytes:
    """The file's content, after ``onnx`` checked it and ``onnxruntime`` loaded it."""
    import onnx
    import onnxruntime

    try:
        content: bytes = proto.SerializeToString(deterministic=True)
        onnx.checker.check_model(content, full_check=True)
        onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception as error:  # each library has its own kinds, some bare RuntimeErrors
        raise ExportError(f"onnx: the graph was refused when it was checked: {error}") from error
    return content
