"""ONNX operators between the inputs and the trees: invalid codes and refused cells.

A graph refuses a batch by an invalid Gather: the count of refused cells is the index
into a vector of one element.  "It is an error if any of the index values are out of
bounds" (ONNX), so the complete batch fails, as in `treekit.model.scoring`; the message of
onnxruntime contains the name of the node.  GatherElements repeats this, because OpenVINO
2026.4 checks only its indices, and the reference evaluator of onnx 1.23 only Gather's.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from treekit.data.features import LevelIndex
from treekit.data.schema import Column, Schema
from treekit.export.literals import encode_utf8
from treekit.export.onnx.graph import ML_DOMAIN, Graph
from treekit.export.template_values import needs_missing_markers
from treekit.model.model import Model

if TYPE_CHECKING:
    from onnx import ValueInfoProto


# ---------------------------------------------------------------- onnx inputs


def add_inputs(graph: Graph, model: Model, *, clean: bool = False) -> str:
    """Add the operators between the input and the trees.

    Parameters
    ----------
    clean : bool
        Whether ``X`` has no codes outside the vocabularies.

    Returns
    -------
    str
        (N, features): numbers, and codes of the vocabularies; NaN if
        a value is missing, or is not a code of its column.
    """
    schema = model.schema
    columns = "X"
    if schema.nominal.any() and not clean:
        columns = _add_clean_codes(graph, model)
    if model.missing == "error":
        graph.add_operator("Equal", [columns, columns], "is_known")
        graph.add_operator("Not", ["is_known"], "is_refused")
        return _add_refusal(graph, columns, "this model refuses missing values")
    if model.unknown == "error" and schema.nominal.any() and not clean:
        graph.add_operator("Equal", ["X", "X"], "is_known")
        graph.add_operator("Not", ["usable"], "is_no_code")
        graph.add_operator("And", ["is_known", "is_no_code"], "is_refused")
        return _add_refusal(graph, columns, "this model refuses unseen categories")
    return columns


def _add_clean_codes(graph: Graph, model: Model) -> str:
    """Replace values of nominal columns that are not codes of their vocabulary by NaN."""
    schema = model.schema
    graph.add_constant("numeric", ~schema.nominal)
    graph.add_number("zero", 0)
    graph.add_constant("last_code", (schema.n_levels - 1).astype(graph.real))
    graph.add_number("missing", np.nan)
    graph.add_operator("Floor", ["X"], "whole")
    graph.add_operator("Equal", ["X", "whole"], "is_whole")
    graph.add_operator("GreaterOrEqual", ["X", "zero"], "not_below")
    graph.add_operator("LessOrEqual", ["X", "last_code"], "not_above")
    graph.add_operator("And", ["not_below", "not_above"], "inside")
    graph.add_operator("And", ["is_whole", "inside"], "is_code")
    graph.add_operator("Or", ["numeric", "is_code"], "usable")
    return graph.add_operator("Where", ["usable", "X", "missing"], "codes")


def _add_refusal(graph: Graph, columns: str, message: str) -> str:
    """Return the columns; running the graph fails if any cell ``is_refused``.

    `message` is the error message, which becomes the name of the failing node.
    """
    graph.add_constant("nothing", np.zeros(1, dtype=graph.real))
    graph.add_cast("is_refused", np.int64, "refused")
    graph.add_operator("ReduceSum", ["refused"], "n_refused", keepdims=1)
    graph.add_operator("Gather", ["nothing", "n_refused"], "accepted_by_vector", name=message)
    graph.add_operator("GatherElements", ["accepted_by_vector", "n_refused"], "accepted")
    return graph.add_operator("Add", [columns, "accepted"], "columns")


# ---------------------------------------------------------------- onnx columns
# One input for each column: numbers, or texts of nominal columns.
#
# Each is (N, 1), as in skl2onnx.  A text becomes the code of its category, by the rules of
# `treekit.data.features.LevelIndex`.
# An input has the name of its column.  A name that is invalid for an input (empty, with a
# NUL, not UTF-8, or that of an output) is changed; the metadata contain the mapping.

_BLANKS_PATTERN = (
    r"[\x{9}-\x{d}\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}"
    r"\x{202f}\x{205f}\x{3000}]*"
)
"""Whitespace removed by `str.strip`, in the syntax of RE2."""
_UNSEEN_CODE = -1.0


def make_input_names(schema: Schema, taken: Collection[str]) -> list[str]:
    """Return distinct names for the inputs of the columns, none of them in `taken`."""
    # The name of an input cannot contain all characters of a column's name.
    escaped = [name.encode("utf-8", "backslashreplace").decode() for name in schema.names]
    given = [name.replace("\0", "\\x00") or f"column {at}" for at, name in enumerate(escaped)]
    # Valid names are unchanged; others get a free one.
    stay = {name for name, own in zip(given, schema.names, strict=True) if name == own}
    used = set(taken) | stay
    names = []
    for name, own in zip(given, schema.names, strict=True):
        found, number = name, 1
        while (name != own or name in taken) and found in used:
            number += 1
            found = f"{name}_{number}"
        used.add(found)
        names.append(found)
    return names


def add_column_inputs(graph: Graph, model: Model) -> list[ValueInfoProto]:
    """Add ``X`` (N, features), concatenated from one input per column; return the inputs.

    A missing cell is NaN.  An unseen category is NaN too, or, if the model distinguishes
    them, a number that is not a code.
    """
    from onnx import TensorProto, helper

    inputs, columns = [], []
    for at, column in enumerate(model.schema.columns):
        name = f"input_{at}"
        kind = TensorProto.STRING if column.kind == "nominal" else graph.real_type
        inputs.append(helper.make_tensor_value_info(name, kind, ["N", 1]))
        if column.kind == "nominal":
            name = _add_codes(graph, model, column, name)
        columns.append(name)
    graph.add_operator("Concat", columns, "X", axis=1)
    return inputs


def _add_codes(graph: Graph, model: Model, column: Column, name: str) -> str:
    """Add the operators that encode a column of texts; return the name of the codes (N, 1)."""
    unseen = _UNSEEN_CODE if needs_missing_markers(model) else np.nan
    # LabelEncoder needs a key: a column without categories gets a dummy.
    where, remedy = f" of column {column.name!r}", "rename it, or choose inputs='tensor'"
    known = LevelIndex(column.levels, model.schema.missing_marks).codes
    texts = [encode_utf8(text, where, remedy) for text in known] or [b""]
    codes = list(map(float, known.values())) or [unseen]
    code = graph.add_operator(
        "LabelEncoder",
        [name],
        f"{name}_code",
        domain=ML_DOMAIN,
        keys_strings=texts,
        values_floats=codes,
        default_float=unseen,
    )
    if graph.real == np.float64:
        code = graph.add_cast(code, graph.real, f"{name}_real_code")
    pattern = _make_marker_pattern(model.schema)
    if not needs_missing_markers(model) or not pattern:
        return code
    graph.add_number("unseen", _UNSEEN_CODE)
    graph.add_number("missing", np.nan)
    graph.add_operator("RegexFullMatch", [name], f"{name}_is_mark", pattern=pattern)
    graph.add_operator("Equal", [code, "unseen"], f"{name}_is_no_level")
    graph.add_operator("And", [f"{name}_is_mark", f"{name}_is_no_level"], f"{name}_is_missing")
    return graph.add_operator("Where", [f"{name}_is_missing", "missing", code], f"{name}_column")


def _make_marker_pattern(schema: Schema) -> str:
    """Return an RE2 pattern of the texts that mean missing, within blanks; "" if there are none."""
    # A text that begins or ends with a blank never matches: blanks are removed first.  Nor
    # does half a surrogate pair, which UTF-8 cannot write.
    texts = [mark.encode(errors="ignore").decode().strip() for mark in schema.missing_marks]
    marks = [mark for mark, text in zip(schema.missing_marks, texts, strict=True) if mark == text]
    written = ["".join(f"\\x{{{ord(letter):x}}}" for letter in mark) for mark in marks]
    if not marks:
        return ""
    return f"{_BLANKS_PATTERN}(?:{'|'.join(written)}){_BLANKS_PATTERN}"
