"""How each kind of artifact is run; a runner knows the file and the schema, not the model."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ModelFileError, VerificationError
from treekit.rules import parse_rules
from treekit.verify.answers import REFUSED, Answers, answers_of, label_codes
from treekit.verify.run_c import compiler_version, run_c
from treekit.verify.run_python import run_python

__all__ = ["RUNNERS", "Runner", "runner_of"]

Run = Callable[[Path, Schema, npt.NDArray[np.float64]], Iterator[tuple[str, Answers]]]

_BATCH = 8192
_SINGLE_ROWS = 300


@dataclass(frozen=True)
class Runner:
    """A kind of artifact.

    Attributes
    ----------
    kind, suffix : str
    run : callable
        ``run(path, schema, rows)`` yields a name and the answers for each way
        of calling the artifact; the answers are to the first rows if they are
        fewer.  Raises `VerificationError` if the artifact cannot be run.
    files : callable
        Every file that the artifact consists of.
    version : callable
        Name and version of what runs it.
    states_rules : bool
        Whether every leaf states its own bounds, so that each must be probed.
    """

    kind: str
    suffix: str
    run: Run
    files: Callable[[Path], list[Path]]
    version: Callable[[], tuple[str, str]]
    states_rules: bool = False


def runner_of(path: Path) -> Runner:
    """Find the runner by the ending of a file name."""
    for runner in RUNNERS:
        if path.name.endswith(runner.suffix):
            return runner
    raise VerificationError(
        f"verify cannot run {path.name!r}; it runs files that end in "
        + ", ".join(runner.suffix for runner in RUNNERS)
    )


def run_onnx(
    path: Path, schema: Schema, rows: npt.NDArray[np.float64]
) -> Iterator[tuple[str, Answers]]:
    """Feed float32 rows to onnxruntime, in batches and, for some, one at a time."""
    import onnxruntime

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


def run_rules(
    path: Path, schema: Schema, rows: npt.NDArray[np.float64]
) -> Iterator[tuple[str, Answers]]:
    """Read the text and execute it; the text alone, not the model, decides."""
    try:
        rules = parse_rules(path.read_bytes().decode())
    except (ModelFileError, UnicodeDecodeError) as error:
        raise VerificationError(f"{path.name!r} cannot be read: {error}") from error
    if (rules.schema.columns, rules.schema.outputs) != (schema.columns, schema.outputs):
        raise VerificationError(f"{path.name!r} has other columns or classes than the model")
    answered = ~rules.refused(rows)
    yield "rules", answers_of(rules, rules.sums(rows[answered]), answered)


def _onnxruntime_version() -> tuple[str, str]:
    import onnxruntime

    return "onnxruntime", str(onnxruntime.__version__)


def _treekit_version() -> tuple[str, str]:
    from treekit._version import __version__

    return "treekit", __version__


def _itself(path: Path) -> list[Path]:
    return [path]


RUNNERS = (
    Runner("onnx", ".onnx", run_onnx, _itself, _onnxruntime_version),
    Runner("c", ".c", run_c, lambda path: [path, path.with_suffix(".h")], compiler_version),
    Runner("python", ".py", run_python, _itself, lambda: ("python", platform.python_version())),
    Runner("rules", ".rules.txt", run_rules, _itself, _treekit_version, states_rules=True),
)
