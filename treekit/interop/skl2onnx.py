"""treekit's estimators in skl2onnx: what they answer, of which type and shape.

``skl2onnx.to_onnx`` converts a pipeline, a search or an ensemble of estimators
that holds one of treekit's, because importing `treekit.estimators` registers
them as soon as somebody imports skl2onnx (`register_when_imported`);
`treekit.register_skl2onnx` does so now, and takes classes derived from them.

Outputs
    ``label`` and ``probabilities``, or ``variable``, as skl2onnx's own
    converters have them: whole numbers for int, bool and whole float labels,
    text for text.  Of several outputs labels (N, outputs) and probabilities
    (outputs, N, most classes), 0 where an output has fewer; no ZipMap then.
Types
    double where a graph or a pipeline ends in the estimator: the bits of
    ``predict_proba`` and ``predict``.  ONNX's ZipMap takes float32 only, and
    skl2onnx's ensembles (votes, bags, stacks, calibrations) reckon in the type
    of their input: there the same numbers, rounded once to that type.
Options
    ``zipmap``, ``nocl``, ``output_class_labels``, ``decision_path`` and
    ``decision_leaf``.  There is no ``raw_scores``: it stands for
    ``decision_function``, which the estimators do not have, and skl2onnx would
    calibrate by it instead of by the probabilities.

What skl2onnx does before and after is its own: a scaler or an imputer in
float32 may be a bit off scikit-learn's double, and a threshold between the two
then tells them apart.  `treekit.verify` proves what treekit exports.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from treekit.errors import ExportError, TreekitWarning
from treekit.interop.on_import import when_imported

__all__ = ["register_skl2onnx", "register_when_imported"]

_SHARED = {"decision_path": [True, False], "decision_leaf": [True, False]}
_OPTIONS = {
    "classification": {
        "zipmap": [True, False, "columns"],
        "nocl": [True, False],
        "output_class_labels": [False, True],
        **_SHARED,
    },
    "regression": _SHARED,
}


def register_skl2onnx(*estimators: type) -> None:
    """Make classes of estimators known to skl2onnx, which is imported if it is not.

    treekit's own are known anyway; skl2onnx looks up a class, not what it
    derives from, so that classes derived from them need this call.

    Parameters
    ----------
    *estimators : type
        treekit's estimators, or classes derived from them.

    Raises
    ------
    ExportError
        If a class is neither.
    """
    from skl2onnx import update_registered_converter

    from treekit.interop.skl2onnx_graph import convert

    for estimator in estimators:
        task = getattr(estimator, "_task", None)
        if task not in _OPTIONS:
            raise ExportError(
                f"{estimator.__qualname__} is none of treekit's estimators, nor derived from one; "
                "others go to skl2onnx.update_registered_converter"
            )
        update_registered_converter(
            estimator,
            f"Treekit{estimator.__qualname__}",
            _set_shapes,
            convert,
            parser=_parse,
            options=_OPTIONS[task],
        )


def register_when_imported(*estimators: type) -> None:
    """`register_skl2onnx`, once skl2onnx is imported by somebody."""

    def callback() -> None:
        try:
            register_skl2onnx(*estimators)
        except Exception as error:  # noqa: BLE001 - importing skl2onnx must not fail by it
            warnings.warn(
                f"treekit's estimators are not registered in skl2onnx: {error}; install a version "
                "of skl2onnx that treekit's package metadata allows",
                TreekitWarning,
                stacklevel=2,
            )

    when_imported("skl2onnx", callback)


def _parse(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
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
                "skl2onnx: the option output_class_labels needs zipmap=False; a ZipMap names the "
                "classes itself"
            )
        mapped = _apply_zipmap(zipmap, scope, model, FloatTensorType(), outputs[:2])
        return [*mapped, *outputs[2:]]
    if options["output_class_labels"]:
        return [*outputs, _class_labels(scope, model)]
    return outputs


def _class_labels(scope: Any, model: Any) -> Any:
    """An output of all class labels, in the order of the probabilities."""
    from skl2onnx.common.utils_classifier import get_label_classes

    if model.n_outputs_ > 1:
        raise ExportError(
            "skl2onnx: the option output_class_labels is for one output, and the model has "
            f"{model.n_outputs_}; read the metadata of treekit.export"
        )
    operator = scope.declare_local_operator("SklearnClassLabels")
    operator.classes = get_label_classes(scope, model)
    kind = _label_type(operator.classes)
    labels = scope.declare_local_variable("class_labels", kind(operator.classes.shape))
    operator.outputs.append(labels)
    return labels


def _set_shapes(operator: Any) -> None:
    """Types and shapes of the outputs, (N, columns); what is declared as double stays so."""
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
        said = operator.scope_inst.get_options(model, {"nocl": False})
        kind = Int64TensorType if said["nocl"] else _label_type(*classes)
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


def _label_type(*classes: Any) -> Any:
    """skl2onnx's type of labels: whole numbers, or text.

    Raises
    ------
    ExportError
        For labels that are neither, or of both kinds.
    """
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType

    kinds = set()
    for labels in classes:
        text = labels.dtype.kind in "UTO"
        if not text and not _are_int64(labels):
            raise ExportError(
                "skl2onnx has whole numbers of 64 bits and text as class labels, and "
                f"{labels[-1]!r} is neither: use text labels, the option nocl, or treekit.export"
            )
        kinds.add("text" if text else "number")
    if len(kinds) > 1:
        raise ExportError(
            "skl2onnx: labels of all outputs are one tensor, and some here are text and some "
            "numbers: fit one estimator for each output, or use the option nocl"
        )
    return StringTensorType if "text" in kinds else Int64TensorType


def _are_int64(labels: Any) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(np.all(labels.astype(np.int64) == labels))
