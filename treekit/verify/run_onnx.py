"""Execution of ONNX files in onnxruntime, and their comparison with a fresh export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Schema
from treekit.errors import VerificationError
from treekit.export.onnx import export_onnx
from treekit.model.model import Model
from treekit.verify.answers import Answers, concatenate_answers, encode_labels, make_refusals
from treekit.verify.probe_values import find_levels, make_unseen_text
from treekit.verify.runtime import Job, Runtime
from treekit.verify.tree_equivalence import NOT_FRESH, StructureComparison, compare_with_export

# ---------------------------------------------------------------- comparison with a fresh export

_MAX_BYTES = 2**31
"""Maximum size of an ONNX file, a limit of its format."""


def compare_onnx_structure(path: Path, model: Model) -> StructureComparison:
    """Compare a graph with the one that this version of treekit writes for the model."""
    settings = _find_graph_settings(path)
    if settings is None:
        return NOT_FRESH
    return compare_with_export(path, lambda: export_onnx(model, path.stem, **settings))


def _find_graph_settings(path: Path) -> dict[str, Any] | None:
    """Return the settings that a graph was exported with, None if treekit did not export it."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    proto = ModelProto()
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        proto.ParseFromString(path.read_bytes())
    except (DecodeError, OSError, ValueError, RuntimeError):
        return None
    metadata = {one.key: one.value for one in proto.metadata_props}
    maker, _, runtime = str(metadata.get("treekit.runtime", "")).partition(" ")
    if maker != "onnxruntime":
        return None
    outputs = {one.name for one in proto.graph.output}
    return {
        "target_runtime": runtime,
        "opset": next((one.version for one in proto.opset_import if not one.domain), None),
        "inputs": "columns" if "treekit.inputs" in metadata else "tensor",
        "zipmap": any(node.op_type == "ZipMap" for node in proto.graph.node),
        "leaf": "leaf" in outputs,
        "decision_path": "path" in outputs,
    }


# ---------------------------------------------------------------- run onnx


_BATCH_ROWS = 8192
_SINGLE_ROWS = 300
"""Rows run one by one, for one input; divided by the number of inputs."""
_NUMBER_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64}
_EXTRA_OUTPUTS = {"leaf", "path"}
"""Outputs other than predictions, which are ignored."""

Rows = npt.NDArray[np.float64]
Feeds = dict[str, npt.NDArray[Any]]


def run_onnx(job: Job, rows: Rows) -> Iterator[tuple[str, Answers]]:
    """Run rows in onnxruntime, in batches and, for some, one at a time."""
    import onnxruntime

    path, schema = job.path, job.schema
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors arrive as exceptions
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        _check_shape(session, path, schema)
        feeds = _make_feeds(session, schema, rows)
        # A failure without rows is an error, not a refusal of rows.
        session.run(None, _slice_feeds(feeds, 0, 0))
        yield "batches", _predict_batches(session, schema, feeds, len(rows), _BATCH_ROWS)
        # onnxruntime runs single rows in other loops.
        alone = max(_SINGLE_ROWS // len(feeds), 10)
        yield "single rows", _predict_batches(session, schema, feeds, min(len(rows), alone), 1)
    except VerificationError:
        raise
    except Exception as error:  # onnxruntime raises its own types, some bare RuntimeErrors
        raise VerificationError(f"onnxruntime cannot run {path.name!r}: {error}") from error


# ------------------------------------------------------------------ inputs


def _check_shape(session: Any, path: Path, schema: Schema) -> None:
    """Reject a graph of another width; an undeclared width fails when the graph runs."""
    inputs = session.get_inputs()
    alone = [one.name for one in inputs] == ["X"] and _get_width(inputs[0]) in (
        None,
        schema.n_features,
    )
    wanted = _list_outputs(schema)
    given = {one.name: _get_width(one) for one in session.get_outputs()}
    fits = all(given.get(name) in (None, width) for name, width in wanted.items())
    if (
        not (alone or _has_column_inputs(inputs, schema))
        or not wanted.keys() <= given.keys() <= wanted.keys() | _EXTRA_OUTPUTS
        or not fits
    ):
        raise VerificationError(
            f"{path.name!r} differs from the model in columns or classes; export it again"
        )


def _get_width(place: Any) -> int | None:
    """Return the declared width of an input or output (rows, width), if it has one."""
    width = place.shape[1] if len(place.shape) == 2 else None
    return width if isinstance(width, int) else None


def _has_column_inputs(inputs: list[Any], schema: Schema) -> bool:
    """Whether each column has an input, in order: texts or numbers, (rows, 1)."""
    return len(inputs) == schema.n_features and all(
        _get_width(one) == 1 and (one.type == "tensor(string)") == (column.kind == "nominal")
        for one, column in zip(inputs, schema.columns, strict=True)
    )


def _make_feeds(session: Any, schema: Schema, rows: Rows) -> Feeds:
    """Convert rows of numbers and codes to the inputs of the graph."""
    inputs = session.get_inputs()
    known = {*_NUMBER_TYPES, "tensor(string)"}
    unknown = next((one.type for one in inputs if one.type not in known), None)
    if unknown is not None:
        raise VerificationError(f"an input has type {unknown}, which treekit does not write")
    with np.errstate(over="ignore", under="ignore"):
        if not _has_column_inputs(inputs, schema):
            return {"X": rows.astype(_NUMBER_TYPES[inputs[0].type])}
        return {
            one.name: _make_texts(schema, column, cells)
            if column.kind == "nominal"
            else cells[:, np.newaxis].astype(_NUMBER_TYPES[one.type])
            for one, column, cells in zip(inputs, schema.columns, rows.T, strict=True)
        }


def _make_texts(schema: Schema, column: Column, codes: Rows) -> npt.NDArray[Any]:
    """Convert codes to texts (rows, 1): categories, a missing value mark, or an unseen text."""
    unseen = make_unseen_text(column)
    # Blanks around a mark are ignored; without a mark an unseen text stands for missing.
    marks = (f" {mark}\t" for mark in schema.missing_marks if mark == mark.strip())
    missing = next((mark for mark in marks if mark not in column.levels), unseen)
    texts = np.array([*column.levels, unseen, missing], dtype=object)
    return texts[find_levels(column, codes) + np.isnan(codes)][:, np.newaxis]


def _slice_feeds(feeds: Feeds, first: int, last: int) -> Feeds:
    return {name: cells[first:last] for name, cells in feeds.items()}


# ------------------------------------------------------------------ outputs


def _predict_batches(session: Any, schema: Schema, feeds: Feeds, n: int, size: int) -> Answers:
    blocks = [(at, min(at + size, n)) for at in range(0, n, size)]
    none = make_refusals(0, schema, schema.n_values)
    parts = [_predict_batch(session, schema, feeds, *block) for block in blocks]
    return concatenate_answers([none, *parts])


def _predict_batch(session: Any, schema: Schema, feeds: Feeds, first: int, last: int) -> Answers:
    """Predict rows in order; halve a batch that fails because a row of it is an error."""
    names = list(_list_outputs(schema))
    try:
        outputs = session.run(names, _slice_feeds(feeds, first, last))
    except Exception:  # noqa: BLE001 - onnxruntime raises its own types, some bare RuntimeErrors
        if last - first == 1:
            return make_refusals(1, schema, schema.n_values)
        middle = (first + last) // 2
        halves = ((first, middle), (middle, last))
        return concatenate_answers(
            [_predict_batch(session, schema, feeds, *half) for half in halves]
        )
    return _decode_outputs(dict(zip(names, outputs, strict=True)), schema, last - first)


def _decode_outputs(outputs: dict[str, Any], schema: Schema, n: int) -> Answers:
    """Convert the outputs of a graph for n rows, named as in `_list_outputs`."""
    labels = [outputs.pop(name) for name in list(outputs) if name.startswith("label")]
    codes = np.zeros((n, len(schema.outputs)), dtype=np.int64)
    for k, own in enumerate(labels):
        codes[:, k] = encode_labels(schema.outputs[k], own.tolist())
    numbers: list[npt.NDArray[Any]] = []
    for (name, given), output in zip(outputs.items(), schema.outputs, strict=False):
        if isinstance(given, list):  # maps of label to rounded probability
            if any(set(one) != set(output.classes) for one in given):
                raise VerificationError(
                    "the maps of probabilities have different labels from the model"
                )
            rounded = [[one[label] for label in output.classes] for one in given]
            numbers.append(np.array(rounded, dtype=np.float32).reshape(n, -1))
        elif given.dtype != np.float64:
            raise VerificationError(f"output {name!r}: expected double, got {given.dtype}")
        else:
            numbers.append(given.reshape(n, -1))
    return Answers(codes, np.concatenate(numbers, axis=1).reshape(n, schema.n_values))


def _list_outputs(schema: Schema) -> dict[str, int | None]:
    """Return the names of a graph's outputs, labels first, with their widths."""
    if schema.task == "regression":
        return {"value": schema.n_values if schema.more else None}
    ends = [f"_{k}" for k in range(len(schema.outputs))] if schema.more else [""]
    labels: dict[str, int | None] = {f"label{end}": None for end in ends}
    sizes = zip(ends, schema.outputs, strict=True)
    return labels | {f"probabilities{end}": len(output.classes) for end, output in sizes}


def _get_version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)


ONNX_RUNTIMES = (Runtime("onnxruntime", run_onnx, _get_version),)
