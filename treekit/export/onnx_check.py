"""An ONNX file, loaded and run before anyone gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from treekit.errors import ExportError
from treekit.model.model import Model

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["checked_content"]

_MOST_BYTES = 2**31 - 1


def checked_content(proto: ModelProto, model: Model, *, columns: bool) -> bytes:
    """The file's content, after ``onnx`` checked it and ``onnxruntime`` ran it.

    It runs on no row, on one whose cells are all known and on one whose cells
    are all missing; what the model refuses it must refuse.

    Parameters
    ----------
    columns : bool
        Whether there is an input for each column.

    Raises
    ------
    ExportError
        If a library refuses the graph, or it answers otherwise.
    """
    import onnx
    import onnxruntime

    if proto.ByteSize() > _MOST_BYTES:
        raise ExportError(
            f"onnx: the file would have {proto.ByteSize():,} bytes, and a protobuf file holds up "
            "to 2 GiB: train fewer or smaller trees"
        )
    content: bytes = proto.SerializeToString(deterministic=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors arrive as exceptions
    try:
        onnx.checker.check_model(content, full_check=True)
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        _require_rows(session, model, 0, columns)
        if all(column.kind == "numeric" or column.levels for column in model.schema.columns):
            _require_rows(session, model, 1, columns)
    except ExportError:
        raise
    except Exception as error:  # each library has its own kinds, some bare RuntimeErrors
        raise ExportError(f"onnx: the graph was refused when it was checked: {error}") from error
    try:
        _require_rows(session, model, 1, columns, missing=True)
    except ExportError:
        raise
    except Exception as error:
        if model.missing != "error" and model.unknown != "error":
            raise ExportError(f"onnx: the graph refuses missing values: {error}") from error
    else:
        if model.missing == "error":
            raise ExportError("onnx: the graph answers missing values, which the model refuses")
    return content


def _require_rows(
    session: Any, model: Model, n_rows: int, columns: bool, *, missing: bool = False
) -> None:
    """Run rows that are all alike, and look at the number of answers."""
    told = session.run(None, _feeds(session, model, n_rows, columns, missing=missing))
    for output, answers in zip(session.get_outputs(), told, strict=True):
        if len(answers) != n_rows:
            raise ExportError(
                f"onnx: {output.name!r} holds {len(answers)} answers to {n_rows} rows"
            )


def _feeds(
    session: Any, model: Model, n_rows: int, columns: bool, *, missing: bool
) -> dict[str, Any]:
    """Zeros, or nothing but missing values, for one tensor or for columns."""
    schema, cell = model.schema, np.nan if missing else 0.0
    if not columns:
        return {"X": np.full((n_rows, schema.n_features), cell, schema.dtype)}
    feeds: dict[str, Any] = {}
    for one, column in zip(session.get_inputs(), schema.columns, strict=True):
        text = "" if missing or not column.levels else column.levels[0]
        nominal = column.kind == "nominal"
        value, kind = (text, object) if nominal else (cell, schema.dtype)
        feeds[one.name] = np.full((n_rows, 1), value, dtype=kind)
    return feeds
