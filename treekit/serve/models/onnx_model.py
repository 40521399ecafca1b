"""Served ONNX files: graphs written by treekit as treekit models, others with onnxruntime.

Every file is checked for unsafe content first; files for onnxruntime are also loaded and run in a
separate process once.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.table import suggest_names
from treekit.errors import ModelError, ModelFileError
from treekit.model.model import Model
from treekit.serve.errors import InvalidRequestError, UnavailableError
from treekit.serve.models.served_model import Batch, Served
from treekit.serve.models.tensors import DATATYPES, Tensor, TensorSpec
from treekit.serve.models.treekit_model import ONE_TENSOR, TreekitServed

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

__all__ = [
    "ANY_LENGTH",
    "DATATYPES_OF_ONNX",
    "OnnxServed",
    "OwnGraphServed",
    "check_graph",
    "estimate_visits",
    "has_independent_rows",
    "is_memory_error",
    "load_graph",
    "make_sample_feeds",
    "make_session",
    "make_spec",
    "predict_samples",
    "read_onnx_served",
    "remove_maps",
    "run_trial",
]


# ---------------------------------------------------------------- reading

_MATRIX_INPUT = "X"
"""Name of the input with all columns in graphs written by treekit."""
_LOST_OUTPUTS = ("leaf", "contributions", "bias")
"""Outputs that need node numbers or weights of training rows, which a graph does not contain."""


def read_onnx_served(path: Path, name: str, version: str, digest: str) -> Served:
    """Read an ONNX file.

    Raises
    ------
    ModelFileError
        If the graph cannot be served; the message names the file and the reason.
    """
    from treekit.interop.onnx_nodes import load_proto, recognises_onnx

    try:
        if not recognises_onnx(path):
            raise ModelFileError("it does not begin like an ONNX model")
        proto = load_proto(path)
        own = _read_own_model(proto)
        if own is not None:
            return OwnGraphServed(name, version, digest, own, _read_input_columns(proto))
        return load_graph(proto, name, version, digest)
    except (ModelError, ModelFileError) as error:
        raise ModelFileError(f"{str(path)!r} cannot be served: {error}") from error


def load_graph(proto: ModelProto, name: str, version: str, digest: str) -> OnnxServed:
    """Load a graph with onnxruntime after removing its ZipMap operators.

    Raises
    ------
    ModelFileError
        If the graph is unsafe, crashes in its trial, or has types unknown to the protocol.
    """
    loops = check_graph(proto)
    classes = remove_maps(proto)
    content = proto.SerializeToString()
    run_trial(content)
    try:
        session = make_session(content)
    except Exception as error:  # exceptions of onnxruntime have no common base class
        raise ModelFileError(f"onnxruntime cannot load it: {error!s:.300}") from error
    return OnnxServed(name, version, digest, session, loops=loops, classes=classes)


def _read_own_model(proto: ModelProto) -> Model | None:
    """Return the model that treekit exported as this graph, or None if it must run as a graph.

    Graphs with additional outputs (leaves, paths), fractional instances or derived columns run
    as graphs: the importer rejects them, as a graph lacks the information.
    """
    from treekit.interop.onnx import is_treekit_graph, read_treekit_graph

    if not is_treekit_graph(proto) or {output.name for output in proto.graph.output} & {
        "leaf",
        "path",
    }:
        return None
    try:
        return read_treekit_graph(proto, "predictions")
    except ModelError:
        return None


def _read_input_columns(proto: ModelProto) -> dict[str, str]:
    """Return the column of each input whose name differs from the column's name."""
    metadata = {one.key: one.value for one in proto.metadata_props}
    try:
        names = json.loads(metadata.get("treekit.inputs", "{}"))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"its metadata are damaged: treekit.inputs: {error}") from error
    if not isinstance(names, dict) or not all(isinstance(one, str) for one in names.values()):
        raise ModelFileError("its metadata are damaged: treekit.inputs is not a map of names")
    return names


class OwnGraphServed(TreekitServed):
    """Graph written by treekit, served as the original model with identical predictions.

    Accepts the input names of the graph in addition to those of `TreekitServed`, so clients of
    the graph on other servers need no change.  Outputs that a graph does not preserve are
    removed: contributions would have other weights, and leaves other numbers.

    Parameters
    ----------
    columns : dict of str to str
        Column of each input of the graph.
    """

    def __init__(
        self, name: str, version: str, digest: str, model: Model, columns: dict[str, str]
    ) -> None:
        super().__init__(name, version, digest, model)
        self.outputs = tuple(spec for spec in self.outputs if spec.name not in _LOST_OUTPUTS)
        self.explanation_outputs = self.explanation_outputs - set(_LOST_OUTPUTS)
        self._columns = {one: own for one, own in columns.items() if one not in model.schema.names}

    def parse_inputs(self, tensors: Sequence[Tensor]) -> Batch:
        """Validate inputs, named as in the graph or in the schema."""
        if len(tensors) == 1 and self._is_matrix_input(tensors[0]):
            return super().parse_inputs([tensors[0]._replace(name=ONE_TENSOR)])
        if self._columns:
            tensors = [one._replace(name=self._columns.get(one.name, one.name)) for one in tensors]
        return super().parse_inputs(tensors)

    def _is_matrix_input(self, tensor: Tensor) -> bool:
        return (
            tensor.name == _MATRIX_INPUT
            and tensor.cells.ndim == 2
            and _MATRIX_INPUT not in self._model.schema.names
        )


# ---------------------------------------------------------------- graph checks
# Unsafe graphs are rejected before they run, and maps are converted to tensors.
#
# onnxruntime reads external files, and even memory addresses, named by a tensor; it recognises its
# own format by bytes 4 to 8 of a file.  So the file is parsed and checked here, and onnxruntime
# receives the serialized checked graph.

_STANDARD_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
"""Domains of the standard ONNX operators."""
_LOOP_OPERATORS = ("Loop", "Scan")
_FLOAT_TYPE = 1
_EXTERNAL_LOCATION = 1

DATATYPES_OF_ONNX = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}
"""Datatype of the protocol for each supported onnxruntime type."""


def check_graph(proto: ModelProto) -> bool:
    """Check all tensors and operators of a model, including subgraphs and functions.

    Returns
    -------
    bool
        Whether the graph contains loops, with a data-dependent number of iterations.

    Raises
    ------
    ModelFileError
        If data are stored outside the file, or an operator is not a standard one.
    """
    known = {*_STANDARD_DOMAINS, *(function.domain for function in proto.functions)}
    loops = False
    for message in _iterate_messages(proto):
        kind = message.DESCRIPTOR.name
        if kind == "TensorProto":
            if message.data_location == _EXTERNAL_LOCATION or len(message.external_data):
                raise ModelFileError(
                    f"its tensor {message.name!r:.60} is stored in another file, which the server "
                    "does not open; save the model with all data in one file"
                )
        elif kind == "NodeProto":
            if message.domain not in known:
                raise ModelFileError(
                    f"its operator {message.op_type!r:.60} is of the domain "
                    f"{message.domain!r:.60}; only ai.onnx, ai.onnx.ml and functions of the file "
                    "are supported; convert the model without it"
                )
            loops = loops or message.op_type in _LOOP_OPERATORS
    return loops


def _iterate_messages(root: Any) -> Iterator[Any]:
    """Yield all nested messages of a message; parsers limit the depth to 100."""
    waiting = [root]
    while waiting:
        message = waiting.pop()
        yield message
        for _, value in message.ListFields():
            if hasattr(value, "DESCRIPTOR"):
                waiting.append(value)
            elif not isinstance(value, str | bytes | int | float) and hasattr(
                value[0], "DESCRIPTOR"
            ):
                waiting.extend(value)


def remove_maps(proto: ModelProto) -> dict[str, tuple[str | int, ...]]:
    """Replace each ZipMap at the end of a graph, so that its output is a tensor.

    skl2onnx adds it to classifiers by default; the protocol has no maps.  `proto` is modified
    in place: the output keeps its name and becomes the map's input, float32 (rows, classes).

    Returns
    -------
    dict
        Class of each column of such an output, by the output's name.
    """
    zipped = {node.output[0]: node for node in proto.graph.node if _is_zipmap(node)}
    classes: dict[str, tuple[str | int, ...]] = {}
    for output in proto.graph.output:
        node = zipped.get(output.name)
        if node is None or output.name in _list_operator_inputs(proto.graph):
            continue
        classes[output.name] = _read_classes(node)
        del node.attribute[:]
        node.op_type, node.domain = "Identity", ""
        tensor = output.type.tensor_type  # a oneof: this replaces the sequence type
        tensor.elem_type = _FLOAT_TYPE
        tensor.shape.dim.add()
        tensor.shape.dim.add().dim_value = len(classes[output.name])
    if classes and not any(one.domain in _STANDARD_DOMAINS[:2] for one in proto.opset_import):
        proto.opset_import.add(domain="", version=13)
    return classes


def _is_zipmap(node: NodeProto) -> bool:
    return node.op_type == "ZipMap" and node.domain == "ai.onnx.ml" and len(node.output) == 1


def _list_operator_inputs(graph: GraphProto) -> set[str]:
    """Return the names of all operator inputs."""
    return {name for node in graph.node for name in node.input}


def _read_classes(node: NodeProto) -> tuple[str | int, ...]:
    for attribute in node.attribute:
        if attribute.name == "classlabels_strings":
            return tuple(text.decode("utf-8", "replace") for text in attribute.strings)
        if attribute.name == "classlabels_int64s":
            return tuple(attribute.ints)
    return ()


# ---------------------------------------------------------------- graph probing
# Inputs, outputs and cost of a session's graph, from its types and from sample predictions.

ANY_LENGTH = -1
"""Dimension without a fixed length."""
_VISIT_SECONDS = 5e-9
"""Seconds of a node visit, the unit of `Served.visits_per_row`."""
_DISTINCT_ROWS_FACTOR = 3
"""Cost of distinct rows relative to equal rows, measured for a forest of 100 trees."""

Cells = npt.NDArray[Any]


def make_spec(what: str, one: Any) -> TensorSpec:
    """Return the spec of an ``input`` or ``output`` of a session; () is an unknown output shape.

    Raises
    ------
    ModelFileError
        If it is not a tensor of a supported datatype, or an input without a dimension.
    """
    datatype = DATATYPES_OF_ONNX.get(one.type)
    if datatype is None:
        raise ModelFileError(
            f"its {what} {one.name!r:.60} is a {one.type}, which has no datatype in the protocol; "
            "convert the model so that it is a tensor of numbers, booleans or strings"
        )
    shape = tuple(size if isinstance(size, int) and size >= 0 else ANY_LENGTH for size in one.shape)
    if not shape and what == "input":
        raise ModelFileError(
            f"its input {one.name!r:.60} is a scalar or has an unknown shape; a request's "
            "tensors have at least one dimension; convert the model with a shape such as [N, 4]"
        )
    return TensorSpec(one.name, datatype, shape)


SampleOutputs = tuple[list[Cells], list[Cells], list[Cells]]


def predict_samples(
    session: Any, inputs: Sequence[TensorSpec], loops: bool
) -> SampleOutputs | None:
    """Return the outputs of a row, of another row, and of both plus the first row again.

    None if the graph rejects sample cells or has loops.  The two rows are equal if the first
    dimension of an input is fixed.
    """
    if loops:
        return None
    try:
        one, two, three = (
            session.run(None, make_sample_feeds(session.get_inputs(), np.array(rows)))
            for rows in ([0], [1], [0, 1, 0])
        )
    except Exception:  # noqa: BLE001 - the graph may reject the sample rows
        return None
    if any(spec.shape[0] != ANY_LENGTH for spec in inputs):
        three = []
    return one, two, three


def has_independent_rows(one: list[Cells], two: list[Cells], three: list[Cells]) -> bool:
    """Return whether joint predictions equal separate ones bit for bit."""
    if not three:
        return False
    for first, second, joined in zip(one, two, three, strict=True):
        if not (first.ndim and first.shape == second.shape and len(first) == 1):
            return False
        alone = np.concatenate([first, second, first])
        if alone.shape != joined.shape or _exact_key(alone) != _exact_key(joined):
            return False
    return True


def _exact_key(cells: Cells) -> object:
    """Return a value that is equal for arrays of one shape iff they are identical."""
    return cells.ravel().tolist() if cells.dtype.hasobject else cells.tobytes()


def estimate_visits(session: Any, *, by_rows: bool) -> float:
    """Estimate the cost of a row in node visits from the CPU time of this thread.

    The fixed cost of a request is ignored unless it is high.
    """
    once = _measure_seconds(session, 1)
    if once > 50_000 * _VISIT_SECONDS or not by_rows:
        return once / _VISIT_SECONDS
    return _DISTINCT_ROWS_FACTOR * _measure_seconds(session, 64) / 64 / _VISIT_SECONDS


def _measure_seconds(session: Any, rows: int) -> float:
    feeds = make_sample_feeds(session.get_inputs(), np.zeros(rows, dtype=np.int64))
    taken = []
    for _ in range(5):
        start = time.thread_time()
        session.run(None, feeds)
        taken.append(time.thread_time() - start)
    return max(min(taken), _VISIT_SECONDS)


# ---------------------------------------------------------------- served graph
# Graphs run by onnxruntime keep their names, types and shapes; nothing is converted.
#
# Datatypes of a request must equal those of the metadata, as sent by clients (``tritonclient`` and
# ``kserve`` take the datatype from the metadata or the array and reject other arrays): FP32 inputs
# require FP32.  JSON numbers have the datatype declared in the request.  A null is NaN for float
# inputs; for other inputs it is rejected, as a graph has no representation of missing values.

_MAX_LOOP_SECONDS = 30.0
"""Time limit of a graph with loops; all others terminate."""


class OnnxServed(Served):
    """Graph run by onnxruntime.

    Parameters
    ----------
    name, version, digest : str
        See `Served`.
    session : onnxruntime.InferenceSession
        Session, shared by all threads.
    loops : bool
        Whether the graph contains loops, which may not terminate.
    classes : mapping of str to tuple
        Class of each column of an output that was a map, by the output's name.

    Attributes
    ----------
    has_rows : bool
        Whether the first dimension of each input and output is an axis of independent rows.
        If not, requests are never joined (`Batch.must_run_alone`).

    Raises
    ------
    ModelFileError
        If an input or output has a type or shape unknown to the protocol.
    """

    platform = "onnxruntime_onnx"

    def __init__(
        self,
        name: str,
        version: str,
        digest: str,
        session: Any,
        *,
        loops: bool = False,
        classes: Mapping[str, tuple[str | int, ...]] | None = None,
    ) -> None:
        self.name, self.version, self.digest = name, version, digest
        self.classes = dict(classes or {})
        self._session, self._has_loops = session, loops
        given = session.get_inputs()
        if not given:
            raise ModelFileError("its graph has no inputs")
        self.inputs = tuple(make_spec("input", one) for one in given)
        self._optional = {
            one.name: make_spec("input", one)
            for one in session.get_overridable_initializers()
            if one.shape and one.type in DATATYPES_OF_ONNX  # others cannot be overridden
        }
        self._known_inputs = {spec.name: spec for spec in self.inputs} | self._optional
        outputs = [make_spec("output", one) for one in session.get_outputs()]
        samples = predict_samples(session, self.inputs, loops)
        self.has_rows = samples is not None and has_independent_rows(*samples)
        self.outputs = tuple(
            spec
            if spec.shape or samples is None
            else spec._replace(shape=(ANY_LENGTH,) * samples[0][at].ndim)
            for at, spec in enumerate(outputs)
        )
        self.default_outputs = tuple(spec.name for spec in self.outputs)
        self.visits_per_row = (
            float("inf")
            if loops or samples is None
            else estimate_visits(session, by_rows=self.has_rows)
        )

    def parse_inputs(self, tensors: Sequence[Tensor]) -> Batch:
        """Validate names, datatypes and shapes of inputs; nulls are allowed for floats only."""
        given = {tensor.name: tensor for tensor in tensors}
        if len(given) < len(tensors):
            raise InvalidRequestError("duplicate input; give each input once")
        for name in given:
            if name not in self._known_inputs:
                raise InvalidRequestError(
                    f"model {self.name!r} has no input {name!r}; "
                    f"{suggest_names(name, self._known_inputs)}"
                )
        for spec in self.inputs:
            if spec.name not in given:
                raise InvalidRequestError(
                    f"input {spec.name!r} is missing from the request; model "
                    f"{self.name!r} requires: {', '.join(one.name for one in self.inputs)}"
                )
        more = [spec for name, spec in self._optional.items() if name in given]
        arrays = tuple(
            self._convert_cells(spec, given[spec.name]) for spec in (*self.inputs, *more)
        )
        rows = len(arrays[0])
        if self.has_rows:
            for spec, cells in zip(self.inputs, arrays, strict=False):
                if len(cells) != rows:
                    raise InvalidRequestError(
                        f"input {spec.name!r} has {len(cells)} rows but "
                        f"{self.inputs[0].name!r} has {rows}; all inputs must have the same number"
                    )
        if not more:
            return Batch(rows, arrays, must_run_alone=not self.has_rows)
        return Batch(rows, (*arrays, _make_name_array(more)), must_run_alone=True)

    def _convert_cells(self, spec: TensorSpec, tensor: Tensor) -> Cells:
        name, cells = spec.name, tensor.cells
        if tensor.datatype != spec.datatype:
            raise InvalidRequestError(
                f"input {name!r} has datatype {tensor.datatype}, but model {self.name!r} requires "
                f"{spec.datatype}; send it as {spec.datatype}"
            )
        fits = cells.ndim == len(spec.shape) and all(
            want in (ANY_LENGTH, got) for want, got in zip(spec.shape, cells.shape, strict=True)
        )
        if not fits:
            raise InvalidRequestError(
                f"input {name!r} has shape {list(cells.shape)}; model {self.name!r} takes "
                f"{list(spec.shape)}, where -1 is any length"
            )
        dtype = DATATYPES[spec.datatype]
        if dtype.kind == "f":
            with np.errstate(over="ignore"):  # numbers out of range become infinite
                return cells.astype(dtype, copy=False)
        null = _find_null(cells, dtype)
        if null is not None:
            raise InvalidRequestError(
                f"input {name!r} has a null at {list(null)}, but {spec.datatype} cannot represent "
                f"missing values in model {self.name!r}, an ONNX graph; give a value"
            )
        return cells.astype(dtype, copy=False)

    def compute_outputs(self, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        """Compute the selected outputs of the graph."""
        names = [spec.name for spec in self.inputs]
        arrays = batch.arrays
        if len(arrays) > len(names):
            *arrays, more = arrays  # type: ignore[assignment]
            names += more.tolist()
        try:
            given = self._run_session(list(wanted), dict(zip(names, arrays, strict=True)))
        except Exception as error:  # exceptions of onnxruntime have no common base class
            raise self._convert_error(error) from error
        kinds = {spec.name: spec.datatype for spec in self.outputs}
        return [Tensor(name, kinds[name], cells) for name, cells in zip(wanted, given, strict=True)]

    def _run_session(self, wanted: list[str], feeds: dict[str, Cells]) -> list[Cells]:
        if not self._has_loops:
            found: list[Cells] = self._session.run(wanted, feeds)
            return found
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.log_severity_level = 4
        watch = threading.Timer(_MAX_LOOP_SECONDS, setattr, (options, "terminate", True))
        watch.daemon = True
        watch.start()
        try:
            found = self._session.run(wanted, feeds, options)
        finally:
            watch.cancel()
        return found

    def _convert_error(self, error: Exception) -> Exception:
        """Convert an error of the session to an error for the client."""
        if is_memory_error(error):
            return UnavailableError(
                f"model {self.name!r}: not enough memory for this request; send fewer rows at once"
            )
        if "terminate flag" in str(error):
            return UnavailableError(
                f"model {self.name!r}: its graph did not end within {_MAX_LOOP_SECONDS:g} s and "
                "was "
                "terminated"
            )
        if isinstance(error, UnicodeError):
            return UnavailableError(f"model {self.name!r}: its output is not valid UTF-8")
        return InvalidRequestError(
            f"model {self.name!r}: its graph failed: {_shorten_message(error)}"
        )


def _find_null(cells: Cells, dtype: np.dtype[Any]) -> tuple[int, ...] | None:
    """Return the index of the first null, or None."""
    if cells.dtype.hasobject:
        lost = np.array([cell is None for cell in cells.flat]).reshape(cells.shape)
    elif cells.dtype.kind == "f" and dtype.kind != "f":
        lost = np.isnan(cells)
    else:
        return None
    if not lost.any():
        return None
    return tuple(int(at) for at in np.argwhere(lost)[0])


def _make_name_array(specs: Sequence[TensorSpec]) -> Cells:
    """Return the names of inputs as an array, to store them with the arrays of a batch."""
    names = np.empty(len(specs), dtype=object)
    names[:] = [spec.name for spec in specs]
    return names


def _shorten_message(error: Exception) -> str:
    """Return the message of onnxruntime in one line: operator name, if any, and error."""
    text = " ".join(str(error).split())
    node = re.search(r"Name:'([^']+)'", text)
    text = text.rpartition("Status Message: ")[2]
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    # Remove the source file, line and function.
    text = re.sub(r"\S*/\S+\.(?:cc|h|cpp):\d+ (?:[\w:*&<>~ ]+\([^()]*\) (?:const )?)?", "", text)
    return (f"{node[1]}: " if node else "") + (text[:300] or type(error).__name__)


# ---------------------------------------------------------------- sessions and trials
# A graph that crashes onnxruntime or exhausts the memory would end the server, again after each
# restart; so a foreign file is first loaded and run in a separate process
# (``python -m treekit.serve.models.onnx_model`` with the file on stdin).  A later request may still
# make it fail: a trial is not a sandbox.

Feeds = dict[str, npt.NDArray[Any]]

_TRIAL_SECONDS, _TRIAL_SECONDS_PER_BYTE = 60.0, 1e-7
"""Time limit of a trial: constant plus per byte, as loading time grows with the file size."""
_TRIAL_BYTES, _TRIAL_FILE_FACTOR = 4 << 30, 64
"""Memory limit of a trial: constant in bytes plus multiple of the file size."""
_MEMORY_EXIT_CODE = 3
"""Exit code of a trial."""


def make_session(content: bytes) -> Any:
    """Create a session that runs each request on the calling thread.

    One thread per request: a row of a forest of 100 trees takes 10 us, and 16 us with a pool of
    two threads, whose gain for many rows is lost by other requests.  Also, onnxruntime
    distributes trees or rows to threads depending on the number of rows, which changes the last
    bits of float sums in larger batches; with one thread they are equal.
    """
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors arrive as exceptions
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Otherwise a file that begins like onnxruntime's own format would not be parsed as ONNX.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def make_sample_feeds(inputs: Iterable[Any], rows: npt.NDArray[np.int64]) -> Feeds:
    """Return sample inputs: zeros and empty strings where `rows` is 0, ones and "a" where 1.

    Parameters
    ----------
    inputs : iterable of onnxruntime.NodeArg
    rows : (rows,) int64
        Sample rows; only the first is used for inputs with a fixed first dimension.
    """
    feeds: Feeds = {}
    for one in inputs:
        sizes = [size if isinstance(size, int) and size >= 0 else 1 for size in one.shape]
        cells = np.array(["", "a"], dtype=object) if one.type == "tensor(string)" else [0, 1]
        free = bool(one.shape) and not isinstance(one.shape[0], int)
        column = np.asarray(cells, dtype=DATATYPES[DATATYPES_OF_ONNX[one.type]])[
            rows if free else [0]
        ]
        shape = (len(column), *sizes[1:]) if free else tuple(sizes)
        spread = column.reshape((-1,) + (1,) * (len(shape) - 1))
        feeds[one.name] = np.ascontiguousarray(np.broadcast_to(spread, shape))
    return feeds


def is_memory_error(error: BaseException) -> bool:
    """Return whether an error reports insufficient memory."""
    message = str(error)
    return isinstance(error, MemoryError) or any(
        words in message for words in ("Failed to allocate memory", "bad_alloc")
    )


def run_trial(content: bytes) -> None:
    """Load a graph and predict one row and three rows in a separate process.

    Errors of onnxruntime are ignored here, as loading the graph afterwards reports them.

    Raises
    ------
    ModelFileError
        If the process crashes, does not end, or needs too much memory.
    """
    seconds = _TRIAL_SECONDS + _TRIAL_SECONDS_PER_BYTE * len(content)
    command = [sys.executable, "-P", "-m", __name__]
    # The child imports modules from the same folders as the parent.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(  # noqa: S603 - this module, by the interpreter that runs
            command,
            input=content,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModelFileError(
            f"onnxruntime did not load it and predict one row within {seconds:.0f} s in a trial"
        ) from None
    if done.returncode == _MEMORY_EXIT_CODE:
        raise ModelFileError(
            f"onnxruntime needs more than {_trial_memory(content) >> 20:,} MiB to load it and to "
            "predict one row"
        )
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise ModelFileError(f"onnxruntime crashed ({name}) in a trial; the file is not loaded")
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise ModelFileError(f"its trial failed: {last[0]:.300}")


def _trial_memory(content: bytes) -> int:
    return _TRIAL_BYTES + _TRIAL_FILE_FACTOR * len(content)


def _limit_memory(most: int) -> None:
    """Limit the memory of this process, if the system supports and permits it."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        own = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (own, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _run_trial_process() -> int:
    """Run a trial in this process; return its exit code."""
    content = sys.stdin.buffer.read()
    _limit_memory(_trial_memory(content))
    try:
        session = make_session(content)
        for rows in ([0], [0, 1, 0]):
            session.run(None, make_sample_feeds(session.get_inputs(), np.array(rows)))
    except Exception as error:  # noqa: BLE001 - reported when the graph is loaded afterwards
        return _MEMORY_EXIT_CODE if is_memory_error(error) else 0
    return 0


if __name__ == "__main__":
    sys.exit(_run_trial_process())
