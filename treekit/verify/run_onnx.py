"""Running ONNX graphs with onnxruntime, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.verify.answers import REFUSED, Answers, label_codes
from treekit.verify.runtime import Job, Runtime

__all__ = ["ONNX_RUNTIMES", "run_onnx"]

_BATCH = 8192
_SINGLE_ROWS = 300


def run_onnx(job: Job, rows: npt.NDArray[np.float64]) -> Iterator[tuple[str, Answers]]:
    """Feed float32 rows to onnxruntime, in batches and, for some, one at a time."""
    import onnxruntime

    path, schema = job.path, job.schema

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors arrive as exceptions
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        _check_onnx(session, path, schema)
        with np.errstate(over="ignore", under="ignore"):
            inputs = rows.astype(np.float32)
        # What fails without any row does not refuse rows: it cannot run.
        session.run(None, {"X": inputs[:0]})
        yield "batches", _onnx_answers(session, schema, inputs, _BATCH)
        # One row alone takes other loops inside onnxruntime.
        yield "single rows", _onnx_answers(session, schema, inputs[:_SINGLE_ROWS], 1)
    except VerificationError:
        raise
    except Exception as error:  # onnxruntime raises kinds of its own, some bare RuntimeErrors
        raise VerificationError(f"onnxruntime cannot run {path.name!r}: {error}") from error


def _check_onnx(session: Any, path: Path, schema: Schema) -> None:
    """Refuse a graph of another width; a width that is not declared shows when it runs."""
    wanted = _onnx_outputs(schema)
    wanted["X"] = schema.n_features
    told = {
        place.name: place.shape[1] if len(place.shape) == 2 else None
        for place in (*session.get_inputs(), *session.get_outputs())
    }
    declared = all(
        not isinstance(width, int) or wanted.get(name) in (None, width)
        for name, width in told.items()
    )
    if set(told) != set(wanted) or not declared:
        raise VerificationError(f"{path.name!r} has other columns or classes than the model")


def _onnx_answers(
    session: Any, schema: Schema, inputs: npt.NDArray[np.float32], size: int
) -> Answers:
    blocks = [inputs[at : at + size] for at in range(0, len(inputs), size)]
    answers = [part for block in blocks for part in _answered(session, schema, block)]
    label = [np.zeros((0, len(schema.outputs)), np.int64), *(one.label for one in answers)]
    number = [np.zeros((0, schema.n_values)), *(one.number for one in answers)]
    return Answers(np.concatenate(label), np.concatenate(number))


def _answered(session: Any, schema: Schema, block: npt.NDArray[np.float32]) -> Iterator[Answers]:
    """Answers in the order of the rows; a row refuses the batch that it is in, so halve it."""
    try:
        told = session.run(list(_onnx_outputs(schema)), {"X": block})
    except Exception:  # noqa: BLE001 - onnxruntime has kinds of its own, some bare RuntimeErrors
        if len(block) > 1:
            half = len(block) // 2
            yield from _answered(session, schema, block[:half])
            yield from _answered(session, schema, block[half:])
        else:
            refused = np.full((len(block), len(schema.outputs)), REFUSED, dtype=np.int64)
            yield Answers(refused, np.zeros((len(block), schema.n_values)))
        return
    yield _read(told, schema, len(block))


def _read(told: list[npt.NDArray[Any]], schema: Schema, n: int) -> Answers:
    """What a graph told n rows, in the order of `_onnx_outputs`."""
    n_labels = len(schema.outputs) if schema.task == "classification" else 0
    codes = np.zeros((n, len(schema.outputs)), dtype=np.int64)
    for k in range(n_labels):
        codes[:, k] = label_codes(schema.outputs[k], told[k].tolist())
    for name, part in zip(list(_onnx_outputs(schema))[n_labels:], told[n_labels:], strict=True):
        if part.dtype != np.float64:
            raise VerificationError(f"{name} is {part.dtype}, not double")
    numbers = [part if part.ndim == 2 else part[:, np.newaxis] for part in told[n_labels:]]
    return Answers(codes, np.concatenate(numbers, axis=1).reshape(n, schema.n_values))


def _onnx_outputs(schema: Schema) -> dict[str, int | None]:
    """Names of a graph's outputs, labels first, and how wide each is."""
    if schema.task == "regression":
        return {"value": schema.n_values if schema.more else None}
    ends = [f"_{k}" for k in range(len(schema.outputs))] if schema.more else [""]
    labels: dict[str, int | None] = {f"label{end}": None for end in ends}
    sizes = zip(ends, schema.outputs, strict=True)
    return labels | {f"probabilities{end}": len(output.classes) for end, output in sizes}


def _version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)


ONNX_RUNTIMES = (Runtime("onnxruntime", run_onnx, _version),)
