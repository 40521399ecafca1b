"""Execution of ONNX files in several runtimes, and their comparison with a fresh export.

onnxruntime runs a graph unless another runtime is named: OpenVINO, the reference evaluator of
onnx, or a function ``module:function`` of the user (`OpenGraph`).
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Schema
from treekit.errors import VerificationError
from treekit.export.onnx import export_onnx
from treekit.model.model import Model
from treekit.verify.answers import Answers, concatenate_answers, encode_labels, make_refusals
from treekit.verify.fresh_export import equals_export
from treekit.verify.probe_values import find_levels, make_unseen_text
from treekit.verify.runtime import Job, Run, Runtime

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

# ---------------------------------------------------------------- comparison with a fresh export

_MAX_BYTES = 2**31
"""Maximum size of an ONNX file, a limit of its format."""


def is_fresh_onnx(path: Path, model: Model) -> bool:
    """Return whether this version of treekit writes the same graph for the model."""
    settings = _find_graph_settings(path)
    if settings is None:
        return False
    return equals_export(path, lambda: export_onnx(model, path.stem, **settings))


def _find_graph_settings(path: Path) -> dict[str, Any] | None:
    """Return the settings that a graph was exported with, None if treekit did not export it."""
    from google.protobuf.message import DecodeError

    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        proto = _read_proto(path)
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


def _read_proto(path: Path) -> ModelProto:
    from onnx import ModelProto

    proto = ModelProto()
    proto.ParseFromString(path.read_bytes())
    return proto


# ---------------------------------------------------------------- run onnx


_BATCH_ROWS = 8192
_SINGLE_ROWS = 300
"""Rows run one by one, for one input; divided by the number of inputs."""
_NUMBER_TYPES = (np.float32, np.float64)
_EXTRA_OUTPUTS = {"leaf", "path"}
"""Outputs other than predictions, which are ignored."""

Rows = npt.NDArray[np.float64]
Feeds = dict[str, npt.NDArray[Any]]
RunGraph = Callable[[list[str], Feeds], list[Any]]
"""``run(names, feeds)`` returns the outputs of the given names; raises if it refuses the rows."""
OpenGraph = Callable[[Path], RunGraph]
"""``open(path)`` loads an ONNX file; raises if the runtime does not support the graph."""


def _open_onnxruntime(path: Path) -> RunGraph:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors arrive as exceptions
    run: RunGraph = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    ).run
    return run


def _open_openvino(path: Path) -> RunGraph:
    import openvino

    # Otherwise some processors compute in bfloat16.
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    graph = openvino.Core().compile_model(str(path), "CPU", settings)

    def run(names: list[str], feeds: Feeds) -> list[Any]:
        outputs = graph(feeds)
        return [outputs[name] for name in names]

    return run


def _open_reference(path: Path) -> RunGraph:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(path))
    return lambda names, feeds: list(evaluator.run(names, feeds))


def run_onnx(
    job: Job, rows: Rows, open_graph: OpenGraph = _open_onnxruntime, runtime: str = "onnxruntime"
) -> Iterator[tuple[str, Answers]]:
    """Run rows in an ONNX runtime, in batches and, for some, one at a time."""
    path, schema = job.path, job.schema
    try:
        run = open_graph(path)
        proto = _read_proto(path)
        inputs = list(proto.graph.input)
        _check_shape(inputs, list(proto.graph.output), path, schema)
        feeds = _make_feeds(inputs, schema, rows)
        # A failure without rows is an error, not a refusal of rows.
        run(list(_list_outputs(schema)), _slice_feeds(feeds, 0, 0))
        yield "batches", _predict_batches(run, schema, feeds, len(rows), _BATCH_ROWS)
        # onnxruntime runs single rows in other loops.
        alone = max(_SINGLE_ROWS // len(feeds), 10)
        yield "single rows", _predict_batches(run, schema, feeds, min(len(rows), alone), 1)
    except VerificationError:
        raise
    except Exception as error:  # runtimes raise their own types, some bare RuntimeErrors
        raise VerificationError(f"{runtime} cannot run {path.name!r}: {error}") from error


# ------------------------------------------------------------------ inputs


def _check_shape(
    inputs: list[ValueInfoProto], outputs: list[ValueInfoProto], path: Path, schema: Schema
) -> None:
    """Reject a graph of another width; an undeclared width fails when the graph runs."""
    alone = [one.name for one in inputs] == ["X"] and _get_width(inputs[0]) in (
        None,
        schema.n_features,
    )
    wanted = _list_outputs(schema)
    given = {one.name: _get_width(one) for one in outputs}
    fits = all(given.get(name) in (None, width) for name, width in wanted.items())
    if (
        not (alone or _has_column_inputs(inputs, schema))
        or not wanted.keys() <= given.keys() <= wanted.keys() | _EXTRA_OUTPUTS
        or not fits
    ):
        raise VerificationError(
            f"{path.name!r} differs from the model in columns or classes; export it again"
        )


def _get_width(place: ValueInfoProto) -> int | None:
    """Return the declared width of an input or output (rows, width), if it has one."""
    sizes = place.type.tensor_type.shape.dim
    return sizes[1].dim_value or None if len(sizes) == 2 else None


def _get_dtype(place: ValueInfoProto) -> np.dtype[Any]:
    """Return the type of numpy of an input; that of texts is ``object``."""
    from onnx import helper

    return helper.tensor_dtype_to_np_dtype(place.type.tensor_type.elem_type)


def _has_column_inputs(inputs: list[ValueInfoProto], schema: Schema) -> bool:
    """Whether each column has an input, in order: texts or numbers, (rows, 1)."""
    return len(inputs) == schema.n_features and all(
        _get_width(one) == 1 and (_get_dtype(one).kind == "O") == (column.kind == "nominal")
        for one, column in zip(inputs, schema.columns, strict=True)
    )


def _make_feeds(inputs: list[ValueInfoProto], schema: Schema, rows: Rows) -> Feeds:
    """Convert rows of numbers and codes to the inputs of the graph."""
    dtypes = [_get_dtype(one) for one in inputs]
    unknown = next((one for one in dtypes if one not in (*_NUMBER_TYPES, object)), None)
    if unknown is not None:
        raise VerificationError(f"an input has type {unknown}, which treekit does not write")
    with np.errstate(over="ignore", under="ignore"):
        if not _has_column_inputs(inputs, schema):
            return {"X": rows.astype(dtypes[0])}
        return {
            one.name: _make_texts(schema, column, cells)
            if column.kind == "nominal"
            else cells[:, np.newaxis].astype(dtype)
            for one, dtype, column, cells in zip(
                inputs, dtypes, schema.columns, rows.T, strict=True
            )
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


def _predict_batches(run: RunGraph, schema: Schema, feeds: Feeds, n: int, size: int) -> Answers:
    blocks = [(at, min(at + size, n)) for at in range(0, n, size)]
    none = make_refusals(0, schema, schema.n_values)
    parts = [_predict_batch(run, schema, feeds, *block) for block in blocks]
    return concatenate_answers([none, *parts])


def _predict_batch(run: RunGraph, schema: Schema, feeds: Feeds, first: int, last: int) -> Answers:
    """Predict rows in order; halve a batch that fails because a row of it is an error."""
    names = list(_list_outputs(schema))
    try:
        outputs = run(names, _slice_feeds(feeds, first, last))
    except Exception:  # noqa: BLE001 - runtimes raise their own types, some bare RuntimeErrors
        if last - first == 1:
            return make_refusals(1, schema, schema.n_values)
        middle = (first + last) // 2
        halves = ((first, middle), (middle, last))
        return concatenate_answers([_predict_batch(run, schema, feeds, *half) for half in halves])
    return _decode_outputs(dict(zip(names, outputs, strict=True)), schema, last - first)


def _decode_outputs(outputs: dict[str, Any], schema: Schema, n: int) -> Answers:
    """Convert the outputs of a graph for n rows, named as in `_list_outputs`."""
    for name, given in outputs.items():  # OpenVINO 2026.4 may repeat a batch after a refused one
        if len(given) != n:
            raise VerificationError(f"output {name!r} has {len(given)} rows for {n} rows of inputs")
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


# ------------------------------------------------------------------ runtimes


def _make_runtime(
    name: str, package: str, open_graph: OpenGraph, *, only_if_named: bool = True
) -> Runtime:
    """Make a runtime of a package of the same name on PyPI."""

    def explain_unavailable(path: Path) -> str:
        del path
        found = importlib.util.find_spec(package)
        return "" if found else f"{package} is not installed: pip install {package}"

    get_version = partial(_get_version, package)
    return Runtime(
        *(name, _bind(open_graph, name, get_version), get_version, explain_unavailable),
        only_if_named=only_if_named,
    )


def _bind(open_graph: OpenGraph, name: str, get_version: Callable[[], str]) -> Run:
    return lambda job, rows: run_onnx(job, rows, open_graph, f"{name} {get_version()}")


def _get_version(module: str) -> str:
    return str(getattr(importlib.import_module(module), "__version__", "unknown"))


ONNX_RUNTIMES = (
    _make_runtime("onnxruntime", "onnxruntime", _open_onnxruntime, only_if_named=False),
    _make_runtime("openvino", "openvino", _open_openvino),
    _make_runtime("reference", "onnx", _open_reference),
)


def load_onnx_runtime(name: str) -> Runtime:
    """Load a user's own runtime: ``module:function``, an `OpenGraph`.

    Raises
    ------
    VerificationError
        If it cannot be imported, or is not a function.
    """
    module = name.partition(":")[0]
    try:
        open_graph = pkgutil.resolve_name(name)
    except Exception as error:  # whatever the user's module raises
        raise VerificationError(
            f"runtime {name!r} cannot be imported: {error}; name a function as module:function, "
            "and put the folder of the module on PYTHONPATH"
        ) from error
    if not callable(open_graph):
        raise VerificationError(
            f"runtime {name!r} is not a function: name one that takes the path of an ONNX file "
            "and returns run(names, feeds)"
        )
    get_version = partial(_get_version, module)
    return Runtime(name, _bind(open_graph, name, get_version), get_version, only_if_named=True)
