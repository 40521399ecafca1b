"""Target "onnx": a graph of standard operators for onnxruntime, exact at every step.

Inputs (setting ``inputs``): ``tensor`` is one ``X`` (N, features) of the model's
input dtype: numbers, and the code of each category (its position in the
vocabulary, which is in the metadata).  NaN is missing; a code outside the
vocabulary, or one that is not an integer, is an unseen category.  ``columns`` is one
input (N, 1) for each column, texts for categories (`treekit.export.onnx.inputs`).

Before the trees, invalid codes become NaN and refused cells make the run fail
(`treekit.export.onnx.inputs`); oblique splits and surrogates become derived columns
(`treekit.export.onnx.special_splits`).  The trees compute ``exact_sums`` with tree operators
(`treekit.export.onnx.sums`) or, for fractional instances, with masses
(`treekit.export.onnx.special_splits`).  ArgMax, Div and link functions turn the sums into
predictions (`treekit.export.onnx.answers`).  A runtime profile determines the
operators (`treekit.export.onnx.graph`).

Outputs: ``label`` (N,) and ``probabilities`` double (N, classes), or ``value``
double (N,).  A model of several outputs has ``label_0``, ``probabilities_0``,
``label_1`` and so on, or ``value`` (N, outputs).  Optional outputs are ``leaf`` and ``path``
(`treekit.export.onnx.trees`), and maps instead of probabilities.  Maps are rounded to
float32, the only type of maps in ONNX.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from treekit._version import __version__
from treekit.contracts import Setting
from treekit.errors import ExportError
from treekit.export.onnx.answers import add_labels, add_numbers
from treekit.export.onnx.graph import (
    FLOAT64_INPUTS,
    MISSING_MARKERS,
    ML_DOMAIN,
    NEWEST_OPSET,
    OLDEST_OPSET,
    SET_MEMBERSHIP,
    Ability,
    Graph,
    choose_profile,
    format_version,
    serialize_checked,
)
from treekit.export.onnx.inputs import (
    add_column_inputs,
    add_inputs,
    make_input_names,
)
from treekit.export.onnx.special_splits import add_derived_columns, add_largest_leaves, add_masses
from treekit.export.onnx.sums import LoweredModel, add_tree_sums, lower_model
from treekit.export.onnx.trees import add_leaves, add_paths
from treekit.export.template_values import needs_missing_markers
from treekit.model.model import Model

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

__all__ = ["ONNX_SETTINGS", "add_sums", "export_onnx"]

ONNX_SETTINGS = (
    Setting(
        "target_runtime",
        "",
        "oldest onnxruntime that must run the file, such as 1.20; empty: 1.12 (2022), or the "
        "oldest that supports the model",
    ),
    Setting(
        "opset",
        None,
        "version of the standard operators; none: that of target_runtime",
        type=int,
        minimum=OLDEST_OPSET,
        maximum=NEWEST_OPSET,
    ),
    Setting(
        "inputs",
        "tensor",
        "one tensor X of numbers and category codes, or one input per column, with text categories",
        choices=("tensor", "columns"),
    ),
    Setting(
        "zipmap",
        False,
        "output probabilities as a map of label to float32 for each row, as in skl2onnx",
    ),
    Setting("leaf", False, "additional output: the node number of the leaf of each tree"),
    Setting(
        "decision_path",
        False,
        "additional output: a text for each tree, 1 for each node on the decision path, else 0",
    ),
)


def export_onnx(
    model: Model,
    name: str,
    *,
    target_runtime: str = "",
    opset: int | None = None,
    inputs: str = "tensor",
    zipmap: bool = False,
    leaf: bool = False,
    decision_path: bool = False,
) -> dict[str, bytes]:
    """Write the model as one ONNX file, checked by ``onnx`` and run once by ``onnxruntime``.

    Parameters
    ----------
    model : Model
        The graph fails for rows that its policies refuse.
    name : str
        Stem of the file.
    target_runtime, opset, inputs, zipmap, leaf, decision_path
        See `ONNX_SETTINGS`.

    Returns
    -------
    dict
        ``{name + ".onnx": content}``.

    Raises
    ------
    ExportError
        If ONNX or the runtime does not support a feature of the model, which the message names.
    """
    from onnx import helper

    columns = inputs == "columns"
    if zipmap and model.schema.task == "regression":
        raise ExportError(
            "onnx: zipmap=True needs class probabilities, but the model is a regression: choose "
            "zipmap=False"
        )
    form = lower_model(model)
    profile = choose_profile(_list_needs(model, form, columns), target_runtime, opset)
    graph = Graph(profile.opset, profile.ml_opset, model.schema.dtype)
    shape: list[str | int | None] = ["N", model.schema.n_features]
    if columns:
        places = add_column_inputs(graph, model)
    else:
        places = [helper.make_tensor_value_info("X", graph.real_type, shape)]
    clean = columns and not needs_missing_markers(model)
    reached = add_sums(graph, model, form, clean=clean, need_leaves=leaf or decision_path)
    if model.schema.task == "classification":
        outputs = add_labels(graph, model, zipmap=zipmap)
    else:
        outputs = add_numbers(graph, model)
    outputs += [add_leaves(graph, model, reached)] if leaf else []
    outputs += [add_paths(graph, model, reached)] if decision_path else []
    names = make_input_names(model.schema, [one.name for one in outputs]) if columns else ["X"]
    metadata = _make_metadata(model)
    metadata["treekit.runtime"] = f"onnxruntime {format_version(profile.runtime)}"
    if columns:
        of_inputs = dict(zip(names, model.schema.names, strict=True))
        metadata["treekit.inputs"] = json.dumps(of_inputs)
    proto = _make_model_proto(graph, places, outputs, names, metadata)
    return {f"{name}.onnx": serialize_checked(proto, model, columns=columns)}


def _list_needs(model: Model, form: LoweredModel, columns: bool) -> list[Ability]:
    """List the abilities that the model needs and not every runtime has."""
    asked = {
        FLOAT64_INPUTS: model.schema.dtype == "float64",
        MISSING_MARKERS: columns and needs_missing_markers(model),
        SET_MEMBERSHIP: form.chains_too_deep,
    }
    return [ability for ability, needed in asked.items() if needed]


def add_sums(
    graph: Graph,
    model: Model,
    form: LoweredModel | None = None,
    *,
    clean: bool = False,
    need_leaves: bool = False,
) -> str:
    """Add the operators from ``X`` (N, features) to ``exact_sums`` (N, values) double.

    Parameters
    ----------
    form : LoweredModel, optional
        Result of `lower_model` for the model, if the caller already has it.
    clean : bool
        Whether ``X`` has no codes outside the vocabularies.
    need_leaves : bool
        Whether the graph must compute the leaves.

    Returns
    -------
    str
        Name of (N, trees) int64, rows of `Model.units`; meaningful only with `need_leaves`.
    """
    form = lower_model(model) if form is None else form
    columns = add_inputs(graph, model, clean=clean)
    if model.derived.n_columns:
        columns = add_derived_columns(graph, model.derived, columns)
    if model.missing == "fractional":
        masses, row = add_masses(graph, model, columns, model.derived.column)
        return add_largest_leaves(graph, model, masses, row) if need_leaves else ""
    return add_tree_sums(graph, model, form, columns, need_leaves=need_leaves)


def _make_model_proto(
    graph: Graph,
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    names: list[str],
    metadata: dict[str, str],
) -> ModelProto:
    from onnx import helper

    opsets = [helper.make_opsetid("", graph.opset), helper.make_opsetid(ML_DOMAIN, graph.ml_used)]
    proto: ModelProto = helper.make_model(
        graph.make_graph_proto(inputs, outputs, names),
        opset_imports=opsets,
        # The oldest IR version with these operators, so that old runtimes can read the file.
        ir_version=helper.find_min_ir_version_for(opsets),
        producer_name="treekit",
        producer_version=__version__,
    )
    helper.set_model_props(proto, metadata)
    return proto


def _make_metadata(model: Model) -> dict[str, str]:
    """Return the metadata needed to fill the inputs and to read the outputs, as ASCII text."""
    schema = model.schema
    units: dict[str, int | str | tuple[int, ...]]
    if schema.task == "classification" and not model.margins:
        units = {"trees": model.n_trees, "unit_total": model.unit_total}
    else:
        units = {"trees": model.n_trees, "divisor": model.divisor, "exponent": model.exponent}
        units["link"] = model.link
    policies = {name: getattr(model, name) for name in ("missing", "unknown", "voting", "combine")}
    costs = None if model.costs is None else model.costs.tolist()
    return {
        "treekit.version": __version__,
        "treekit.schema": json.dumps(msgspec.to_builtins(schema)),
        "treekit.features": json.dumps(schema.names),
        "treekit.classes": json.dumps(schema.classes),
        "treekit.units": json.dumps(units),
        "treekit.policies": json.dumps(policies | {"costs": costs}),
    }
