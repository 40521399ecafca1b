"""ONNX operators between the input and the trees: codes that are none, and cells refused.

A graph refuses as an operator may: it asks a vector of one element for the
element whose number is the count of refused cells.  "It is an error if any of
the index values are out of bounds" (ONNX, Gather), so the whole batch fails, as
it does in `treekit.model.scoring`; onnxruntime's message holds the node's name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from treekit.data.schema import Column, Schema
from treekit.errors import ExportError
from treekit.export.onnx.graph import ML_DOMAIN, Graph
from treekit.model.model import Model

if TYPE_CHECKING:
    from onnx import ValueInfoProto

__all__ = [
    "add_columns",
    "add_inputs",
    "input_names",
    "tells_marks",
]


# ---------------------------------------------------------------- onnx inputs


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


# ---------------------------------------------------------------- onnx columns
# One named input for each column of an ONNX graph: numbers, and texts of nominal columns.
#
# Each is (N, 1), as skl2onnx makes them.  A text becomes the code of its level;
# one that is no level is missing, or a category never seen, as `treekit.data`
# reads it: the model's marks of missing values count without the blanks around.
# An input is called as its column.  A name that no input can have (empty, with a
# NUL, not UTF-8, or that of an output) is changed; the metadata hold the map.

_BLANKS = (
    r"[\x{9}-\x{d}\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}"
    r"\x{202f}\x{205f}\x{3000}]*"
)
"""What `str.strip` drops, in the syntax of RE2."""
_UNSEEN = -1.0


def tells_marks(model: Model) -> bool:
    """Whether a text that means missing is something else than one never seen."""
    return bool(
        model.unknown == "error" and model.missing != "error" and model.schema.nominal.any()
    )


def input_names(schema: Schema, taken: Collection[str]) -> list[str]:
    """A name for the input of each column, all different and none in `taken`."""
    given = [_plain(name) or f"column {at}" for at, name in enumerate(schema.names)]
    # Names that can stay do; others find a free one.
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


def add_columns(graph: Graph, model: Model) -> list[ValueInfoProto]:
    """Add ``X`` (N, features), joined from an input for each column; returns the inputs.

    A missing cell is NaN.  A text never seen is NaN too, or, if the model tells
    them apart, a number that is no code.
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
    graph.add("Concat", columns, "X", axis=1)
    return inputs


def _add_codes(graph: Graph, model: Model, column: Column, name: str) -> str:
    """(N, 1): the code of each text."""
    unseen = _UNSEEN if tells_marks(model) else np.nan
    # An encoder needs a key: a column without levels gets one that means nothing.
    levels = [_utf8(column, level) for level in column.levels] or [b""]
    codes = [float(code) for code in range(len(column.levels))] or [unseen]
    code = graph.add(
        "LabelEncoder",
        [name],
        f"{name}_code",
        domain=ML_DOMAIN,
        keys_strings=levels,
        values_floats=codes,
        default_float=unseen,
    )
    if graph.real == np.float64:
        code = graph.add("Cast", [code], f"{name}_real_code", to=graph.real_type)
    pattern = _pattern(model.schema)
    if not tells_marks(model) or not pattern:
        return code
    graph.number("unseen", _UNSEEN)
    graph.number("missing", np.nan)
    graph.add("RegexFullMatch", [name], f"{name}_is_mark", pattern=pattern)
    graph.add("Equal", [code, "unseen"], f"{name}_is_no_level")
    graph.add("And", [f"{name}_is_mark", f"{name}_is_no_level"], f"{name}_is_missing")
    return graph.add("Where", [f"{name}_is_missing", "missing", code], f"{name}_column")


def _pattern(schema: Schema) -> str:
    """RE2: the marks of missing values, with blanks around them; empty if there are none."""
    # A mark that begins or ends with a blank is never met: blanks are dropped first.
    marks = [mark for mark in schema.missing_marks if mark == mark.strip() and _is_utf8(mark)]
    written = ["".join(f"\\x{{{ord(letter):x}}}" for letter in mark) for mark in marks]
    if not marks:
        return ""
    return f"{_BLANKS}(?:{'|'.join(written)}){_BLANKS}"


def _plain(name: str) -> str:
    """`name` as text that an input can be called; what cannot be is written as an escape."""
    return name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _utf8(column: Column, level: str) -> bytes:
    if not _is_utf8(level):
        raise ExportError(
            f"onnx: the level {level!r} of column {column.name!r} holds half a surrogate pair, "
            "and ONNX text is UTF-8: rename the level, or choose inputs='tensor'"
        )
    return level.encode()
