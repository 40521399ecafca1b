"""Converters of treekit's estimators for skl2onnx.

``skl2onnx.to_onnx`` converts pipelines, searches and ensembles that contain estimators
of treekit, because importing `treekit.estimators` registers converters as soon as
skl2onnx is imported (`treekit.interop.import_hook`); `treekit.register_skl2onnx` registers
at once, and also accepts subclasses.

Outputs
    ``label`` and ``probabilities``, or ``variable``, like skl2onnx's own
    converters: integers for int, bool and integral float labels, text for text.
    For several outputs, labels (N, outputs) and probabilities (outputs, N, most
    classes), padded with 0 and without ZipMap.
Types
    double where a graph or a pipeline ends in the estimator: bit-identical to
    ``predict_proba`` and ``predict``.  ONNX's ZipMap takes float32 only, and
    skl2onnx's ensembles (voting, bagging, stacking, calibration) compute in the
    type of their input: there the same numbers are rounded once to that type.
Options
    ``zipmap``, ``nocl``, ``output_class_labels``, ``decision_path`` and
    ``decision_leaf``.  There is no ``raw_scores``: it represents
    ``decision_function``, which the estimators do not have, and skl2onnx would
    calibrate it instead of the probabilities.

Runtimes
    onnxruntime 1.26.0 and 1.27.0 are wrong for scikit-learn's trees of two classes, which
    the conversion warns of (`WRONG_RUNTIMES`).

Other operators are skl2onnx's: a scaler or an imputer in float32 may differ slightly
from scikit-learn's double, so that a threshold between the two results changes the
prediction.  `treekit.verify` verifies what treekit exports.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np

from treekit.data.features import LevelIndex
from treekit.data.schema import Column, Schema, level_text
from treekit.errors import ExportError, warn
from treekit.export.onnx import add_sums
from treekit.export.onnx.answers import add_labels, add_numbers
from treekit.export.onnx.graph import ML_DOMAIN, NEWEST_OPSET, OLDEST_OPSET, Graph
from treekit.export.onnx.trees import add_leaves, add_paths
from treekit.model.model import Model

__all__ = [
    "convert",
    "join_inputs",
    "register_skl2onnx",
]


# ---------------------------------------------------------------- registration

_SHARED_OPTIONS = {"decision_path": [True, False], "decision_leaf": [True, False]}
_TASK_OPTIONS = {
    "classification": {
        "zipmap": [True, False, "columns"],
        "nocl": [True, False],
        "output_class_labels": [False, True],
        **_SHARED_OPTIONS,
    },
    "regression": _SHARED_OPTIONS,
}


def register_skl2onnx(*estimators: type) -> None:
    """Register estimator classes in skl2onnx, importing it if necessary.

    treekit's classes are registered automatically.  Subclasses need this call, because
    skl2onnx looks up the exact class.

    Parameters
    ----------
    *estimators : type
        treekit's estimators, or subclasses of them.

    Raises
    ------
    ExportError
        For any other class.
    """
    from skl2onnx import update_registered_converter

    for estimator in estimators:
        task = getattr(estimator, "_task", None)
        if task not in _TASK_OPTIONS:
            raise ExportError(
                f"{estimator.__qualname__} is not an estimator of treekit or a subclass; register "
                "other classes with skl2onnx.update_registered_converter"
            )
        update_registered_converter(
            estimator,
            f"Treekit{estimator.__qualname__}",
            _set_output_shapes,
            convert,
            parser=_declare_outputs,
            options=_TASK_OPTIONS[task],
        )


def _declare_outputs(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    """Declare the outputs where a graph or a pipeline ends in the estimator."""
    from skl2onnx._parse import _apply_zipmap, _parse_sklearn_simple_model
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType

    outputs = _parse_sklearn_simple_model(scope, model, inputs, custom_parsers=custom_parsers)
    if model._task == "regression":
        outputs[0].set_type(DoubleTensorType())
        return outputs
    options = scope.get_options(model, {"zipmap": True, "output_class_labels": False})
    zipmap = options["zipmap"] if model.n_outputs_ == 1 else False
    outputs[1].set_type(FloatTensorType() if zipmap is True else DoubleTensorType())
    if zipmap:
        if options["output_class_labels"]:
            raise ExportError(
                "skl2onnx: the option output_class_labels requires zipmap=False; a ZipMap contains "
                "the class labels already"
            )
        mapped = _apply_zipmap(zipmap, scope, model, FloatTensorType(), outputs[:2])
        return [*mapped, *outputs[2:]]
    if options["output_class_labels"]:
        return [*outputs, _declare_class_labels(scope, model)]
    return outputs


def _declare_class_labels(scope: Any, model: Any) -> Any:
    """Declare an output of all class labels, in the order of the probabilities."""
    from skl2onnx.common.utils_classifier import get_label_classes

    if model.n_outputs_ > 1:
        raise ExportError(
            "skl2onnx: the option output_class_labels requires one output, but the model has "
            f"{model.n_outputs_}; use the metadata of treekit.export"
        )
    operator = scope.declare_local_operator("SklearnClassLabels")
    operator.classes = get_label_classes(scope, model)
    kind = _get_label_type(operator.classes)
    labels = scope.declare_local_variable("class_labels", kind(operator.classes.shape))
    operator.outputs.append(labels)
    return labels


def _set_output_shapes(operator: Any) -> None:
    """Set types and shapes (N, columns) of the outputs; double outputs remain double."""
    from skl2onnx.common.data_types import (
        DoubleTensorType,
        FloatTensorType,
        Int64TensorType,
        StringTensorType,
    )

    model = operator.raw_operator
    n_rows = operator.inputs[0].get_first_dimension()
    n_outputs, n_trees = model.n_outputs_, model.model_.n_trees
    answer = operator.outputs[-1]
    if model._task == "classification":
        classes = model.classes_ if n_outputs > 1 else [model.classes_]
        options = operator.scope_inst.get_options(model, {"nocl": False})
        kind = Int64TensorType if options["nocl"] else _get_label_type(*classes)
        operator.outputs[0].set_type(kind([n_rows, n_outputs] if n_outputs > 1 else [n_rows]))
        answer, further = operator.outputs[1], list(operator.outputs)[2:]
        most = max(map(len, classes))
        shape = [n_outputs, n_rows, most] if n_outputs > 1 else [n_rows, most]
    else:
        answer, further = operator.outputs[0], list(operator.outputs)[1:]
        shape = [n_rows, n_outputs]
    number = DoubleTensorType if isinstance(answer.type, DoubleTensorType) else FloatTensorType
    answer.set_type(number(shape))
    for output in further:
        text = isinstance(output.type, StringTensorType)
        output.set_type((StringTensorType if text else Int64TensorType)([n_rows, n_trees]))


def _get_label_type(*classes: Any) -> Any:
    """Return skl2onnx's type of labels: integers, or text.

    Raises
    ------
    ExportError
        For labels of other types, or of both types.
    """
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType

    are_texts = [labels.dtype.kind in "UTO" for labels in classes]
    for labels, is_text in zip(classes, are_texts, strict=True):
        with np.errstate(invalid="ignore"):
            exact = is_text or np.array_equal(labels.astype(np.int64), labels)
        if not exact:
            raise ExportError(
                "skl2onnx supports 64-bit integers and text as class labels, but "
                f"{labels[-1]!r} is neither: use text labels, the option nocl, or treekit.export"
            )
    if any(are_texts) and not all(are_texts):
        raise ExportError(
            "skl2onnx: labels of all outputs form one tensor, but some are text and some "
            "numbers: fit one estimator for each output, or use the option nocl"
        )
    return StringTensorType if all(are_texts) else Int64TensorType


# ---------------------------------------------------------------- runtimes

WRONG_RUNTIMES = ("1.26.0", "1.27.0")
"""Versions of onnxruntime that answer wrongly for ``TreeEnsembleClassifier`` of two classes.

skl2onnx writes scikit-learn's forests with that operator: of a forest of 100 trees on the 569
rows of breast cancer 91 labels are wrong, and probabilities by up to 1.  Releases from 1.21.0
to 1.25.1 and from 1.28.0 to 1.32.0 are right, and graphs of treekit in all (measured)."""


def warn_of_runtime() -> None:
    """Warn if the installed onnxruntime is one of `WRONG_RUNTIMES`."""
    for name in ("onnxruntime", "onnxruntime-gpu"):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if version in WRONG_RUNTIMES:
            warn(
                f"{name} {version} returns wrong labels for scikit-learn's trees and forests of "
                "two classes that skl2onnx converts (not for treekit's estimators); run the "
                f"pipeline with another version: pip install '{name}>=1.28'"
            )


# ---------------------------------------------------------------- graph conversion
# treekit's graph is built as for its ONNX files (`treekit.export.onnx`), so that the
# predictions are bit-identical, and then moved to skl2onnx's graph under new names.

_ML_OPSET = 3
"""skl2onnx rejects newer operators of ai.onnx.ml."""


def convert(scope: Any, operator: Any, container: Any) -> None:
    """Add an estimator's graph to skl2onnx's container; called by skl2onnx.

    Parameters
    ----------
    scope : skl2onnx.common._topology.Scope
        Generates names.
    operator : skl2onnx.common._topology.Operator
        The estimator with its inputs and declared outputs.
    container : skl2onnx.common._container.ModelComponentContainer
        Collects operators and constants.

    Raises
    ------
    ExportError
        If the graph cannot represent the estimator, or does not fit the inputs.
    """
    from onnx import TensorProto

    warn_of_runtime()
    estimator = operator.raw_operator
    model: Model = estimator.model_
    if container.target_opset < OLDEST_OPSET:
        raise ExportError(
            f"skl2onnx: treekit's graphs require standard operators of version {OLDEST_OPSET}, "
            f"but target_opset is {container.target_opset}: increase it"
        )
    graph = Graph(min(container.target_opset, NEWEST_OPSET), _ML_OPSET, model.schema.dtype)
    names = join_inputs(graph, model.schema, operator.inputs)
    options = container.get_options(estimator, {"decision_path": False, "decision_leaf": False})
    reached = add_sums(graph, model, need_leaves=any(options.values()))
    if model.schema.task == "classification":
        outputs = _add_classes(graph, estimator, container)
    else:
        add_numbers(graph, model)
        outputs = ["value"]
        if not model.schema.more:
            graph.add_constant("column", np.array([-1, 1]))
            outputs = [graph.add_operator("Reshape", ["value", "column"], "value_column")]
    outputs += [add_paths(graph, model, reached).name] if options["decision_path"] else []
    outputs += [add_leaves(graph, model, reached).name] if options["decision_leaf"] else []
    if graph.ml_used > _ML_OPSET:
        raise ExportError(
            "skl2onnx: the model's sets of categories require TreeEnsemble of ai.onnx.ml 5, which "
            "skl2onnx does not support: use treekit.export, or set max_depth"
        )
    for name, output in zip(outputs, operator.outputs, strict=True):
        element = _get_element(output)
        if element == TensorProto.STRING:  # cheaper than Cast, which would copy the strings
            graph.add_operator("Identity", [name], f"out_{name}")
        else:
            graph.add_operator("Cast", [name], f"out_{name}", to=element)
        names[f"out_{name}"] = output.full_name
    _move_nodes(graph, scope, container, names)


def _get_element(variable: Any) -> int:
    """Return ONNX's number of the element type of a variable."""
    return int(variable.type.to_onnx_type().tensor_type.elem_type)


def _add_classes(graph: Graph, estimator: Any, container: Any) -> list[str]:
    """Add labels of skl2onnx's types and probabilities, and return their names."""
    add_labels(graph, estimator.model_)
    if estimator.n_outputs_ == 1:
        ends, classes = [""], [estimator.classes_]
    else:
        ends, classes = [f"_{k}" for k in range(estimator.n_outputs_)], estimator.classes_
    positions = container.get_options(estimator, {"nocl": False})["nocl"]
    labels = []
    for end, own in zip(ends, classes, strict=True):
        name = next(f"{one}{end}" for one in ("class", "label") if graph.has_output(f"{one}{end}"))
        if not positions:
            text = own.dtype.kind in "UTO"
            texts = np.array([str(label) for label in own], dtype=object)
            graph.add_constant(f"said{end}", texts if text else own.astype(np.int64))
            name = graph.add_operator("Gather", [f"said{end}", name], f"saying{end}", axis=0)
        labels.append(name)
    if len(ends) == 1:
        return [labels[0], "probabilities"]
    graph.add_constant("upright", np.array([-1, 1]))
    columns = [graph.add_operator("Reshape", [one, "upright"], f"{one}_column") for one in labels]
    return [
        graph.add_operator("Concat", columns, "labels_of_outputs", axis=1),
        _stack_probabilities(graph, [len(own) for own in classes]),
    ]


def _stack_probabilities(graph: Graph, sizes: list[int]) -> str:
    """Stack ``probabilities_0``, ... to (outputs, N, most classes), padded with 0."""
    graph.add_constant("plane", np.array([0]))
    planes = []
    for k, size in enumerate(sizes):
        plane = f"probabilities_{k}"
        if size < max(sizes):
            graph.add_constant(f"filling_{k}", np.array([0, 0, 0, max(sizes) - size]))
            plane = graph.add_operator("Pad", [plane, f"filling_{k}"], f"filled_{k}")
        planes.append(graph.add_operator("Unsqueeze", [plane, "plane"], f"plane_{k}"))
    return graph.add_operator("Concat", planes, "planes", axis=0)


def _move_nodes(graph: Graph, scope: Any, container: Any, names: dict[str, str]) -> None:
    """Move nodes and constants to the container; `names` maps names that exist there."""
    from onnx import NodeProto, TensorProto, defs

    nodes = _select_needed_nodes(graph, set(names))
    used = {name for node in nodes for name in node.input}

    def get_new_name(name: str) -> str:
        if name not in names:
            names[name] = scope.get_unique_variable_name(f"treekit_{name}")
        return names[name]

    for constant in graph.constants.values():
        if constant.name in used:
            moved = TensorProto()
            moved.CopyFrom(constant)
            moved.name = get_new_name(constant.name)
            container.initializers.append(moved)
    for node in nodes:
        container.check_white_black_list(node.op_type)
        moved_node = NodeProto()
        moved_node.CopyFrom(node)
        moved_node.name = scope.get_unique_operator_name(f"treekit_{node.op_type}")
        if node.name:  # shown by onnxruntime if it rejects a row
            moved_node.name += f": {node.name}"
        moved_node.input[:] = [get_new_name(name) for name in node.input]
        moved_node.output[:] = [get_new_name(name) for name in node.output]
        container.nodes.append(moved_node)
        highest = _ML_OPSET if node.domain == ML_DOMAIN else graph.opset
        version = defs.get_schema(node.op_type, highest, node.domain).since_version
        container.node_domain_version_pair_sets.add((node.domain, version))


def _select_needed_nodes(graph: Graph, outputs: set[str]) -> list[Any]:
    """Return the nodes that `outputs` depend on, in order."""
    needed, nodes = set(outputs), []
    for node in reversed(graph.nodes):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.append(node)
    return nodes[::-1]


# ---------------------------------------------------------------- input conversion
# From the tensors of skl2onnx to the input matrix of treekit's graphs.
#
# Numbers are converted to the model's input type through double, as in
# `treekit.data.encoding`.  Values of nominal columns, text or numbers, are converted to
# codes: text by LabelEncoder; numbers by LabelEncoder on float32 and a comparison with
# the category in double, because distinct doubles may be equal in float32.  Missing
# values become NaN and unknown categories -1; the graph applies the model's policies.


def join_inputs(graph: Graph, schema: Schema, inputs: Sequence[Any]) -> dict[str, str]:
    """Add ``X``, (N, features) of the model's input type, from skl2onnx's variables.

    Parameters
    ----------
    graph : Graph
    schema : Schema
    inputs : sequence of skl2onnx.common._topology.Variable
        One tensor of all columns, or several to be concatenated.

    Returns
    -------
    dict
        skl2onnx's names of the tensors ``input_0``, ... of this graph.

    Raises
    ------
    ExportError
        If the number of columns differs from the schema's, or a type does not fit
        the column.
    """
    parts, first = [], 0
    for k, variable in enumerate(inputs):
        shape = getattr(variable.type, "shape", None) or [None, None]
        width = shape[1] if len(shape) > 1 else 1
        if not isinstance(width, int):  # unknown width: a single input has all columns
            width = schema.n_features if len(inputs) == 1 else 1
        columns = schema.columns[first : first + width]
        parts += _convert_tensor(
            graph, schema, columns, f"input_{k}", _get_element(variable), first
        )
        first += width
    if first != schema.n_features:
        raise ExportError(
            f"skl2onnx: the inputs have {first} columns, but the estimator was fitted on "
            f"{schema.n_features}: pass initial types, or rows X, with the columns used in fit"
        )
    if len(parts) == 1:
        graph.add_operator("Identity", parts, "X")
    else:
        graph.add_operator("Concat", parts, "X", axis=1)
    return {f"input_{k}": variable.full_name for k, variable in enumerate(inputs)}


def _convert_tensor(
    graph: Graph, schema: Schema, columns: Sequence[Column], tensor: str, element: int, first: int
) -> list[str]:
    """Convert runs of numeric columns, and each nominal one, to the model's input type.

    Parameters
    ----------
    columns : sequence of Column
        Columns of the tensor, of which `first` is the number of the first one.
    tensor : str
    element : int
        ONNX's number of its type.
    """
    parts, start = [], 0
    for at in range(1, len(columns) + 1):
        run = columns[start:at]
        if at < len(columns) and run[0].kind == columns[at].kind == "numeric":
            continue
        cells = tensor
        if len(run) < len(columns):
            cells = f"columns_{first + start}"
            graph.add_constant(f"{cells}_at", np.arange(start, at))
            graph.add_operator("Gather", [tensor, f"{cells}_at"], cells, axis=1)
        own = _round_numbers if run[0].kind == "numeric" else _encode_categories
        parts.append(own(graph, schema, element, cells, run[0]))
        start = at
    return parts


def _round_numbers(graph: Graph, schema: Schema, element: int, cells: str, column: Column) -> str:
    """Round numeric cells to the model's input type."""
    from onnx import TensorProto

    if element == TensorProto.STRING:
        raise ExportError(
            f"skl2onnx: column {column.name!r} is numeric, but the graph's input is text: give "
            "initial types, or rows X, as in fit"
        )
    wanted = TensorProto.FLOAT if schema.dtype == "float32" else TensorProto.DOUBLE
    if element == wanted:
        return cells
    if element not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        cells = graph.add_operator("Cast", [cells], f"{cells}_double", to=TensorProto.DOUBLE)
        if wanted == TensorProto.DOUBLE:
            return cells
    return graph.add_operator("Cast", [cells], f"{cells}_rounded", to=wanted)


def _encode_categories(
    graph: Graph, schema: Schema, element: int, cells: str, column: Column
) -> str:
    """Convert cells of a nominal column to codes of the model's input type."""
    from onnx import TensorProto

    name = f"code_of_{cells}"
    if element == TensorProto.STRING:
        codes = _encode_text(graph, schema, cells, column, name)
    else:
        codes = _encode_numbers(graph, element, cells, column, name)
    if schema.dtype == "float32":
        return codes
    return graph.add_operator("Cast", [codes], f"{name}_double", to=TensorProto.DOUBLE)


def _encode_text(graph: Graph, schema: Schema, cells: str, column: Column, name: str) -> str:
    """Map categories to their codes, marks of missing values to NaN, other text to -1."""
    known = LevelIndex(column.levels, schema.missing_marks).codes
    marks = [mark for mark in schema.missing_marks if mark not in known]
    codes = np.append(list(known.values()), np.full(len(marks), np.nan))
    return graph.add_operator(
        "LabelEncoder",
        [cells],
        name,
        domain=ML_DOMAIN,
        keys_strings=[*known, *marks],
        values_floats=codes.astype(np.float32).tolist(),
        default_float=-1.0,
    )


def _encode_numbers(graph: Graph, element: int, cells: str, column: Column, name: str) -> str:
    """Map numeric categories to their codes, NaN to NaN, other numbers to -1."""
    from onnx import TensorProto

    levels = _map_level_numbers(column, truth=element == TensorProto.BOOL)
    if element != TensorProto.DOUBLE:
        cells = graph.add_operator("Cast", [cells], f"{name}_cells", to=TensorProto.DOUBLE)
    graph.add_constant(f"{name}_levels", np.array(list(levels) or [np.nan]))
    graph.add_constant(f"{name}_zero", np.array(0.0, dtype=np.float32))
    graph.add_constant(f"{name}_no_level", np.array(-1.0, dtype=np.float32))
    graph.add_constant(f"{name}_missing", np.array(np.nan, dtype=np.float32))
    graph.add_operator("Cast", [cells], f"{name}_short", to=TensorProto.FLOAT)
    graph.add_operator("Add", [f"{name}_short", f"{name}_zero"], f"{name}_unsigned")  # -0.0 is 0
    graph.add_operator(
        "LabelEncoder",
        [f"{name}_unsigned"],
        f"{name}_place",
        domain=ML_DOMAIN,
        keys_floats=[float(np.float32(level)) for level in levels] or [0.0],
        values_floats=[float(place) for place in range(len(levels))] or [0.0],
        default_float=0.0,
    )
    graph.add_operator("Cast", [f"{name}_place"], f"{name}_at", to=TensorProto.INT64)
    graph.add_constant(f"{name}_codes", np.array(list(levels.values()) or [-1], dtype=np.float32))
    graph.add_operator("Gather", [f"{name}_levels", f"{name}_at"], f"{name}_level", axis=0)
    graph.add_operator("Gather", [f"{name}_codes", f"{name}_at"], f"{name}_code", axis=0)
    graph.add_operator("Equal", [f"{name}_level", cells], f"{name}_is_level")
    graph.add_operator("Equal", [cells, cells], f"{name}_known")
    graph.add_operator(
        "Where", [f"{name}_known", f"{name}_no_level", f"{name}_missing"], f"{name}_otherwise"
    )
    return graph.add_operator(
        "Where", [f"{name}_is_level", f"{name}_code", f"{name}_otherwise"], name
    )


def _map_level_numbers(column: Column, *, truth: bool) -> dict[float, int]:
    """Map the numbers that represent a category to its code; bools, if `truth`, are 0 and 1."""
    numbers: dict[float, int] = {}
    for level, code in LevelIndex(column.levels).codes.items():
        if truth and level in ("False", "True"):
            numbers.setdefault(float(level == "True"), code)
            continue
        try:
            number = float(level)
        except ValueError:
            continue
        if math.isfinite(number) and level_text(number) == level:
            numbers[number] = code
    with np.errstate(over="ignore"):
        short = np.array(list(numbers), dtype=np.float64).astype(np.float32)
    if len(np.unique(short)) < len(short):
        raise ExportError(
            f"skl2onnx: categories of column {column.name!r} are equal in float32, the type of "
            "LabelEncoder: convert them to text"
        )
    return numbers
