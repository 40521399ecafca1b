"""Execution of ONNX files in onnxruntime: tensor or named columns, maps and additional outputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Schema
from treekit.errors import VerificationError
from treekit.verify.answers import REFUSED, Answers, encode_labels
from treekit.verify.probe_values import make_unseen_text
from treekit.verify.runtime import Job, Runtime

__all__ = ["ONNX_RUNTIMES", "run_onnx"]

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
        raise VerificationError(f"{path.name!r} differs from the model in columns or classes")


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
    unknown = next((one.type for one in inputs if one.type not in _list_input_types()), None)
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


def _list_input_types() -> set[str]:
    return {*_NUMBER_TYPES, "tensor(string)"}


def _make_texts(schema: Schema, column: Column, codes: Rows) -> npt.NDArray[Any]:
    """Convert codes to texts (rows, 1): categories, a missing value mark, or an unseen text."""
    n = len(column.levels)
    unseen = make_unseen_text(column)
    # Blanks around a mark are ignored; without a mark an unseen text stands for missing.
    marks = (f" {mark}\t" for mark in schema.missing_marks if mark == mark.strip())
    missing = next((mark for mark in marks if mark not in column.levels), unseen)
    texts = np.array([*column.levels, unseen, missing], dtype=object)
    known = (codes >= 0) & (codes < n) & (codes == np.floor(codes))
    at = np.where(np.isnan(codes), n + 1, np.where(known, codes, n)).astype(np.int64)
    return texts[at][:, np.newaxis]


def _slice_feeds(feeds: Feeds, first: int, last: int) -> Feeds:
    return {name: cells[first:last] for name, cells in feeds.items()}


# ------------------------------------------------------------------ outputs


def _predict_batches(session: Any, schema: Schema, feeds: Feeds, n: int, size: int) -> Answers:
    blocks = [(at, min(at + size, n)) for at in range(0, n, size)]
    answers = [part for block in blocks for part in _predict_batch(session, schema, feeds, *block)]
    label = [np.zeros((0, len(schema.outputs)), np.int64), *(one.label for one in answers)]
    number = [np.zeros((0, schema.n_values)), *(one.number for one in answers)]
    single = any(one.dtype == np.float32 for one in number)
    return Answers(
        np.concatenate(label),
        np.concatenate(number, dtype=np.float32 if single else np.float64, casting="same_kind"),
    )


def _predict_batch(
    session: Any, schema: Schema, feeds: Feeds, first: int, last: int
) -> Iterator[Answers]:
    """Yield predictions in the order of the rows; halve a batch that fails for a refused row."""
    try:
        outputs = session.run(list(_list_outputs(schema)), _slice_feeds(feeds, first, last))
    except Exception:  # noqa: BLE001 - onnxruntime raises its own types, some bare RuntimeErrors
        if last - first > 1:
            middle = (first + last) // 2
            yield from _predict_batch(session, schema, feeds, first, middle)
            yield from _predict_batch(session, schema, feeds, middle, last)
        else:
            refused = np.full((last - first, len(schema.outputs)), REFUSED, dtype=np.int64)
            yield Answers(refused, np.zeros((last - first, schema.n_values)))
        return
    yield _decode_outputs(
        dict(zip(_list_outputs(schema), outputs, strict=True)), schema, last - first
    )


def _decode_outputs(outputs: dict[str, Any], schema: Schema, n: int) -> Answers:
    """Convert the outputs of a graph for n rows, named as in `_list_outputs`."""
    codes = np.zeros((n, len(schema.outputs)), dtype=np.int64)
    if schema.task == "classification":
        labels = [outputs[name] for name in outputs if name.startswith("label")]
        for k, output in enumerate(schema.outputs):
            codes[:, k] = encode_labels(output, labels[k].tolist())
    names = [name for name in outputs if not name.startswith("label")]
    numbers = [
        _convert_maps(outputs[name], schema.outputs[k].classes)
        if isinstance(outputs[name], list)
        else _check_doubles(name, outputs[name])
        for k, name in enumerate(names)
    ]
    number = np.concatenate([one.reshape(n, -1) for one in numbers], axis=1)
    return Answers(codes, number.reshape(n, schema.n_values))


def _check_doubles(name: str, numbers: npt.NDArray[Any]) -> Rows:
    if numbers.dtype != np.float64:
        raise VerificationError(f"output {name!r}: expected double, got {numbers.dtype}")
    return numbers


def _convert_maps(maps: list[dict[Any, float]], labels: tuple[Any, ...]) -> npt.NDArray[np.float32]:
    """Convert maps of label to rounded probability, (rows, classes) float32."""
    if any(set(one) != set(labels) for one in maps):
        raise VerificationError("the maps of probabilities have different labels from the model")
    cells = [[one[label] for label in labels] for one in maps]
    return np.array(cells, dtype=np.float32).reshape(len(maps), len(labels))


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
