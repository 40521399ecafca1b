"""ONNX files in service: treekit's own graphs as its models, all others by onnxruntime.

What is served is judged first (`treekit.serve.models.onnx_model`) and, where onnxruntime is to run
it, tried in a process of its own (`treekit.serve.models.onnx_model`).
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

from treekit.data.table import near_names
from treekit.errors import ModelError, ModelFileError
from treekit.model.model import Model
from treekit.serve.errors import InvalidRequestError, UnavailableError
from treekit.serve.models.served_model import Batch, Served
from treekit.serve.models.tensors import DATATYPES, Spec, Tensor
from treekit.serve.models.treekit_model import ONE_TENSOR, TreekitServed

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

__all__ = [
    "DATATYPES_OF_ONNX",
    "FREE",
    "OnnxServed",
    "OwnGraphServed",
    "answers_by_row",
    "effort_of",
    "graph_served",
    "is_memory",
    "judge",
    "make_session",
    "read_onnx_served",
    "sample_feeds",
    "samples_of",
    "spec_of",
    "tried",
    "without_maps",
]


# ---------------------------------------------------------------- of onnx

_TENSOR = "X"
"""What treekit's graphs call the input of all columns."""
_LOST = ("leaf", "contributions", "bias")
"""Outputs of numbers of nodes and weights of training rows, which a graph no longer has."""


def read_onnx_served(path: Path, name: str, version: str, digest: str) -> Served:
    """The graph in an ONNX file.

    Raises
    ------
    ModelFileError
        If it is no graph that can be served; the message names the file and why.
    """
    from treekit.interop.onnx_nodes import opened, recognises_onnx

    try:
        if not recognises_onnx(path):
            raise ModelFileError("it does not begin as an ONNX model does")
        proto = opened(path)
        own = _own_model(proto)
        if own is not None:
            return OwnGraphServed(name, version, digest, own, _columns_of(proto))
        return graph_served(proto, name, version, digest)
    except (ModelError, ModelFileError) as error:
        raise ModelFileError(f"{str(path)!r} cannot be served: {error}") from error


def graph_served(proto: ModelProto, name: str, version: str, digest: str) -> OnnxServed:
    """A graph by onnxruntime, whoever wrote it; its maps are taken away.

    Raises
    ------
    ModelFileError
        If it may do harm, dies in its trial, or has what the protocol has no words for.
    """
    loops = judge(proto)
    classes = without_maps(proto)
    content = proto.SerializeToString()
    tried(content)
    try:
        session = make_session(content)
    except Exception as error:  # onnxruntime's own kinds have no base of their own
        raise ModelFileError(f"onnxruntime refuses it: {error!s:.300}") from error
    return OnnxServed(name, version, digest, session, loops=loops, classes=classes)


def _own_model(proto: ModelProto) -> Model | None:
    """The model that treekit made a graph of; None if it must run as a graph.

    So must one that tells more than the usual answers (leaves, paths), or whose rows divide
    or ask derived columns: the importer refuses what a graph no longer has.
    """
    from treekit.interop.onnx import is_own, read_own

    if not is_own(proto) or {output.name for output in proto.graph.output} & {"leaf", "path"}:
        return None
    try:
        return read_own(proto, "predictions")
    except ModelError:
        return None


def _columns_of(proto: ModelProto) -> dict[str, str]:
    """The column of each input, where inputs are columns whose names they cannot all have."""
    told = {one.key: one.value for one in proto.metadata_props}
    try:
        names = json.loads(told.get("treekit.inputs", "{}"))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"its metadata are damaged: treekit.inputs: {error}") from error
    if not isinstance(names, dict) or not all(isinstance(one, str) for one in names.values()):
        raise ModelFileError("its metadata are damaged: treekit.inputs is no map of names")
    return names


class OwnGraphServed(TreekitServed):
    """A graph of treekit as the model that it was made of: same names, same bits.

    Besides the names of `TreekitServed` it takes those of the graph's inputs, so that clients
    of the graph elsewhere need not change.  What the graph lost is no output: contributions
    would be of other weights, and leaves would have other numbers.

    Parameters
    ----------
    columns : dict of str to str
        The column of each input of the graph.
    """

    def __init__(
        self, name: str, version: str, digest: str, model: Model, columns: dict[str, str]
    ) -> None:
        super().__init__(name, version, digest, model)
        self.outputs = tuple(spec for spec in self.outputs if spec.name not in _LOST)
        self.explaining = self.explaining - set(_LOST)
        self._columns = {one: own for one, own in columns.items() if one not in model.schema.names}

    def read(self, tensors: Sequence[Tensor]) -> Batch:
        """Check inputs, by their names in the graph or in the schema."""
        if len(tensors) == 1 and self._is_matrix(tensors[0]):
            return super().read([tensors[0]._replace(name=ONE_TENSOR)])
        if self._columns:
            tensors = [one._replace(name=self._columns.get(one.name, one.name)) for one in tensors]
        return super().read(tensors)

    def _is_matrix(self, tensor: Tensor) -> bool:
        return (
            tensor.name == _TENSOR
            and tensor.cells.ndim == 2
            and _TENSOR not in self._model.schema.names
        )


# ---------------------------------------------------------------- onnx graph
# An ONNX graph before it runs: what a hostile one could do is refused, maps become tensors.
#
# onnxruntime reads other files where a tensor says so, and even memory at an address that the
# file names; it loads a file of its own format by what its bytes 4 to 8 say.  So a file is
# parsed here, judged, and handed over as the bytes of what was judged.

_STANDARD = ("", "ai.onnx", "ai.onnx.ml")
"""Domains of operators that ONNX specifies."""
_LOOPS = ("Loop", "Scan")
_FLOAT = 1
_EXTERNAL = 1

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
"""The protocol's datatype for each type of onnxruntime that it has one for."""


def judge(proto: ModelProto) -> bool:
    """Look at every tensor and operator of a model, those of its subgraphs and functions too.

    Returns
    -------
    bool
        Whether it repeats a part of itself, as often as its data say.

    Raises
    ------
    ModelFileError
        If data are kept outside of the file, or an operator is none of ONNX's own.
    """
    known = {*_STANDARD, *(function.domain for function in proto.functions)}
    loops = False
    for message in _messages(proto):
        kind = message.DESCRIPTOR.name
        if kind == "TensorProto":
            if message.data_location == _EXTERNAL or len(message.external_data):
                raise ModelFileError(
                    f"its tensor {message.name!r:.60} is kept in another file, which a server "
                    "does not open: save the model with all its data in one file"
                )
        elif kind == "NodeProto":
            if message.domain not in known:
                raise ModelFileError(
                    f"its operator {message.op_type!r:.60} is of the domain "
                    f"{message.domain!r:.60}; a server runs those of ONNX (ai.onnx, ai.onnx.ml) "
                    "and functions of the file: convert the model without it"
                )
            loops = loops or message.op_type in _LOOPS
    return loops


def _messages(root: Any) -> Iterator[Any]:
    """All messages inside a message, however deep: parsers bound the depth at 100."""
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


def without_maps(proto: ModelProto) -> dict[str, tuple[str | int, ...]]:
    """Take each ZipMap at the end of a graph away, so that its output is a tensor.

    skl2onnx ends a classifier's graph so unless it is told not to; the protocol has no maps.
    `proto` is altered: the output keeps its name and is what the map was made of, float32
    (rows, classes).

    Returns
    -------
    dict
        The class of each column of such an output, by the output's name.
    """
    zipped = {node.output[0]: node for node in proto.graph.node if _is_map(node)}
    classes: dict[str, tuple[str | int, ...]] = {}
    for output in proto.graph.output:
        node = zipped.get(output.name)
        if node is None or output.name in _asked(proto.graph):
            continue
        classes[output.name] = _classes(node)
        del node.attribute[:]
        node.op_type, node.domain = "Identity", ""
        tensor = output.type.tensor_type  # of a oneof: the sequence goes
        tensor.elem_type = _FLOAT
        tensor.shape.dim.add()
        tensor.shape.dim.add().dim_value = len(classes[output.name])
    if classes and not any(one.domain in _STANDARD[:2] for one in proto.opset_import):
        proto.opset_import.add(domain="", version=13)
    return classes


def _is_map(node: NodeProto) -> bool:
    return node.op_type == "ZipMap" and node.domain == "ai.onnx.ml" and len(node.output) == 1


def _asked(graph: GraphProto) -> set[str]:
    """What other operators take."""
    return {name for node in graph.node for name in node.input}


def _classes(node: NodeProto) -> tuple[str | int, ...]:
    for attribute in node.attribute:
        if attribute.name == "classlabels_strings":
            return tuple(text.decode("utf-8", "replace") for text in attribute.strings)
        if attribute.name == "classlabels_int64s":
            return tuple(attribute.ints)
    return ()


# ---------------------------------------------------------------- onnx probe
# What a session's graph takes and gives, told by its types and by asking it.

FREE = -1
"""A length that the graph leaves open."""
_A_VISIT = 5e-9
"""Seconds of a visit, the unit of `Served.effort`."""
_VARIED = 3
"""Rows that differ cost so many times what equal ones do: a forest of 100 trees, measured."""

Cells = npt.NDArray[Any]


def spec_of(what: str, one: Any) -> Spec:
    """An ``input`` or ``output`` of a session; an output's shape is () where nothing tells it.

    Raises
    ------
    ModelFileError
        For what is no tensor of the protocol's datatypes, or an input without a dimension.
    """
    datatype = DATATYPES_OF_ONNX.get(one.type)
    if datatype is None:
        raise ModelFileError(
            f"its {what} {one.name!r:.60} is a {one.type}, which the protocol has no datatype "
            "for: convert the model so that it is a tensor of numbers, truth values or texts"
        )
    shape = tuple(size if isinstance(size, int) and size >= 0 else FREE for size in one.shape)
    if not shape and what == "input":
        raise ModelFileError(
            f"its input {one.name!r:.60} is a single value, or of no known shape; a request's "
            "tensors have at least one dimension: convert the model with a shape such as [N, 4]"
        )
    return Spec(one.name, datatype, shape)


Said = tuple[list[Cells], list[Cells], list[Cells]]


def samples_of(session: Any, inputs: Sequence[Spec], loops: bool) -> Said | None:
    """What the graph answers a row, another row, and both with the first again.

    None if it refuses plain cells, or may not end: then nothing is known of its answers.
    The two rows are one where the first dimension of an input is fixed.
    """
    if loops:
        return None
    try:
        one, two, three = (
            session.run(None, sample_feeds(session.get_inputs(), np.array(rows)))
            for rows in ([0], [1], [0, 1, 0])
        )
    except Exception:  # noqa: BLE001 - it may refuse what no client would send
        return None
    if any(spec.shape[0] != FREE for spec in inputs):
        three = []
    return one, two, three


def answers_by_row(one: list[Cells], two: list[Cells], three: list[Cells]) -> bool:
    """Whether rows asked together were answered as each alone, to the last bit."""
    if not three:
        return False
    for first, second, joined in zip(one, two, three, strict=True):
        if not (first.ndim and first.shape == second.shape and len(first) == 1):
            return False
        alone = np.concatenate([first, second, first])
        if alone.shape != joined.shape or _bits(alone) != _bits(joined):
            return False
    return True


def _bits(cells: Cells) -> object:
    """What tells arrays of one shape apart: bytes, or texts."""
    return cells.ravel().tolist() if cells.dtype.hasobject else cells.tobytes()


def effort_of(session: Any, *, by_rows: bool) -> float:
    """Visits that a row costs, by this thread's own time for some of them.

    What a request costs whatever its rows is left out, unless it is much.
    """
    once = _seconds(session, 1)
    if once > 50_000 * _A_VISIT or not by_rows:
        return once / _A_VISIT
    return _VARIED * _seconds(session, 64) / 64 / _A_VISIT


def _seconds(session: Any, rows: int) -> float:
    feeds = sample_feeds(session.get_inputs(), np.zeros(rows, dtype=np.int64))
    taken = []
    for _ in range(5):
        start = time.thread_time()
        session.run(None, feeds)
        taken.append(time.thread_time() - start)
    return max(min(taken), _A_VISIT)


# ---------------------------------------------------------------- onnx served
# A graph in service by onnxruntime: its own names, types and shapes, nothing converted.
#
# Datatypes of a request must be those of the metadata, as clients send them
# (``tritonclient`` and ``kserve`` take the datatype from the metadata or the array and refuse
# an array of another): a graph's FP32 is given FP32.  Numbers of JSON have the datatype that
# the request says.  A null is NaN where the input is of floats; elsewhere a graph has no mark
# for what is missing, and it is refused.

_MOST_SECONDS = 30.0
"""A graph that repeats itself is told to stop after so long; all others end by themselves."""


class OnnxServed(Served):
    """A graph that onnxruntime runs.

    Parameters
    ----------
    name, version, digest : str
        See `Served`.
    session : onnxruntime.InferenceSession
        One serves many threads.
    loops : bool
        Whether the graph repeats parts of itself, which need not end.
    classes : mapping of str to tuple
        The class of each column of an output that was a map, by the output's name.

    Attributes
    ----------
    by_rows : bool
        Whether the first dimension of each input and output is rows, each answered by itself.
        If not, a request is always answered alone (`Batch.alone`).

    Raises
    ------
    ModelFileError
        For an input or output that the protocol has no words for.
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
        self._session, self._loops = session, loops
        given = session.get_inputs()
        if not given:
            raise ModelFileError("its graph takes no input, so there is nothing to ask it")
        self.inputs = tuple(spec_of("input", one) for one in given)
        self._optional = {
            one.name: spec_of("input", one)
            for one in session.get_overridable_initializers()
            if one.shape and one.type in DATATYPES_OF_ONNX  # others keep their values
        }
        self._known = {spec.name: spec for spec in self.inputs} | self._optional
        outputs = [spec_of("output", one) for one in session.get_outputs()]
        said = samples_of(session, self.inputs, loops)
        self.by_rows = said is not None and answers_by_row(*said)
        self.outputs = tuple(
            spec if spec.shape or said is None else spec._replace(shape=(FREE,) * said[0][at].ndim)
            for at, spec in enumerate(outputs)
        )
        self.usual = tuple(spec.name for spec in self.outputs)
        self.effort = (
            float("inf") if loops or said is None else effort_of(session, by_rows=self.by_rows)
        )

    def read(self, tensors: Sequence[Tensor]) -> Batch:
        """Check inputs against the graph's: names, datatypes, shapes, no null but of floats."""
        given = {tensor.name: tensor for tensor in tensors}
        if len(given) < len(tensors):
            raise InvalidRequestError("an input is given twice; give each input once")
        for name in given:
            if name not in self._known:
                raise InvalidRequestError(
                    f"model {self.name!r} has no input {name!r}; {near_names(name, self._known)}"
                )
        for spec in self.inputs:
            if spec.name not in given:
                raise InvalidRequestError(
                    f"input {spec.name!r} is not among the request's inputs; model "
                    f"{self.name!r} needs: {', '.join(one.name for one in self.inputs)}"
                )
        more = [spec for name, spec in self._optional.items() if name in given]
        arrays = tuple(self._cells(spec, given[spec.name]) for spec in (*self.inputs, *more))
        rows = len(arrays[0])
        if self.by_rows:
            for spec, cells in zip(self.inputs, arrays, strict=False):
                if len(cells) != rows:
                    raise InvalidRequestError(
                        f"input {spec.name!r} has {len(cells)} rows but "
                        f"{self.inputs[0].name!r} has {rows}; all inputs need the same number"
                    )
        if not more:
            return Batch(rows, arrays, alone=not self.by_rows)
        return Batch(rows, (*arrays, _names(more)), alone=True)

    def _cells(self, spec: Spec, tensor: Tensor) -> Cells:
        name, cells = spec.name, tensor.cells
        if tensor.datatype != spec.datatype:
            raise InvalidRequestError(
                f"input {name!r} has datatype {tensor.datatype}, and model {self.name!r} takes "
                f"{spec.datatype}; send it as {spec.datatype}"
            )
        fits = cells.ndim == len(spec.shape) and all(
            want in (FREE, got) for want, got in zip(spec.shape, cells.shape, strict=True)
        )
        if not fits:
            raise InvalidRequestError(
                f"input {name!r} has shape {list(cells.shape)}; model {self.name!r} takes "
                f"{list(spec.shape)}, where -1 is any length"
            )
        dtype = DATATYPES[spec.datatype]
        if dtype.kind == "f":
            with np.errstate(over="ignore"):  # a number beyond the type is infinite in it
                return cells.astype(dtype, copy=False)
        null = _first_null(cells, dtype)
        if null is not None:
            raise InvalidRequestError(
                f"input {name!r} has a null at {list(null)}, and {spec.datatype} has no value "
                f"that is missing to model {self.name!r}, an ONNX graph: give a value"
            )
        return cells.astype(dtype, copy=False)

    def answer(self, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        """The outputs that are wanted, as the graph gives them."""
        names = [spec.name for spec in self.inputs]
        arrays = batch.arrays
        if len(arrays) > len(names):
            *arrays, more = arrays  # type: ignore[assignment]
            names += more.tolist()
        try:
            given = self._run(list(wanted), dict(zip(names, arrays, strict=True)))
        except Exception as error:  # onnxruntime's own kinds have no base of their own
            raise self._refusal(error) from error
        kinds = {spec.name: spec.datatype for spec in self.outputs}
        return [Tensor(name, kinds[name], cells) for name, cells in zip(wanted, given, strict=True)]

    def _run(self, wanted: list[str], feeds: dict[str, Cells]) -> list[Cells]:
        if not self._loops:
            found: list[Cells] = self._session.run(wanted, feeds)
            return found
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.log_severity_level = 4
        watch = threading.Timer(_MOST_SECONDS, setattr, (options, "terminate", True))
        watch.daemon = True
        watch.start()
        try:
            found = self._session.run(wanted, feeds, options)
        finally:
            watch.cancel()
        return found

    def _refusal(self, error: Exception) -> Exception:
        """What a failed run is to the client."""
        if is_memory(error):
            return UnavailableError(
                f"model {self.name!r}: there is not enough memory for this request; send fewer "
                "rows at once"
            )
        if "terminate flag" in str(error):
            return UnavailableError(
                f"model {self.name!r}: its graph did not end within {_MOST_SECONDS:g} s and was "
                "stopped"
            )
        if isinstance(error, UnicodeError):
            return UnavailableError(f"model {self.name!r}: it answers with text that is no UTF-8")
        return InvalidRequestError(f"model {self.name!r}: its graph refuses this: {_said(error)}")


def _first_null(cells: Cells, dtype: np.dtype[Any]) -> tuple[int, ...] | None:
    """Where the first null is; None if there is none."""
    if cells.dtype.hasobject:
        lost = np.array([cell is None for cell in cells.flat]).reshape(cells.shape)
    elif cells.dtype.kind == "f" and dtype.kind != "f":
        lost = np.isnan(cells)
    else:
        return None
    if not lost.any():
        return None
    return tuple(int(at) for at in np.argwhere(lost)[0])


def _names(specs: Sequence[Spec]) -> Cells:
    """Names of inputs as an array, so that they travel with the arrays."""
    names = np.empty(len(specs), dtype=object)
    names[:] = [spec.name for spec in specs]
    return names


def _said(error: Exception) -> str:
    """onnxruntime's words in one line: the operator, if it has a name, and what was wrong."""
    text = " ".join(str(error).split())
    node = re.search(r"Name:'([^']+)'", text)
    text = text.rpartition("Status Message: ")[2]
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    # The line of its source, and the function there.
    text = re.sub(r"\S*/\S+\.(?:cc|h|cpp):\d+ (?:[\w:*&<>~ ]+\([^()]*\) (?:const )?)?", "", text)
    return (f"{node[1]}: " if node else "") + (text[:300] or type(error).__name__)


# ---------------------------------------------------------------- onnx session
# onnxruntime's sessions, and a trial of a graph in a process that may die of it.
#
# A graph that makes onnxruntime crash, or that takes all memory, would take the server with
# it, and again whenever it starts; so a foreign file is first loaded and asked in a process
# of its own (``python -m treekit.serve.models.onnx_model``, the file on its standard input).
# What passes can still be made to fail by a later request: a trial is no sandbox.

Feeds = dict[str, npt.NDArray[Any]]

_SECONDS, _SECONDS_A_BYTE = 60.0, 1e-7
"""A trial may take so long: the time to read, optimise and ask a file grows with its size."""
_BYTES, _TIMES_THE_FILE = 4 << 30, 64
"""A trial may take so much memory."""
_OUT_OF_MEMORY = 3
"""Exit code of a trial."""


def make_session(content: bytes) -> Any:
    """A session that answers each request on the thread that asks.

    One thread a request: a row of a forest of 100 trees takes 10 us so, and 16 us with a pool
    of two, whose gain for many rows other requests then lack.  And onnxruntime's threads share
    out trees or rows by the number of rows, so that float sums have other last bits in larger
    batches; by one thread they have the same.
    """
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors arrive as exceptions
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Else a file that begins as onnxruntime's own format does would not be read as ONNX.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def sample_feeds(inputs: Iterable[Any], rows: npt.NDArray[np.int64]) -> Feeds:
    """Inputs of plain cells: zeros and empty texts where `rows` is 0, ones and "a" where 1.

    Parameters
    ----------
    inputs : iterable of onnxruntime.NodeArg
    rows : (rows,) int64
        One row where the first dimension is fixed at another number.
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


def is_memory(error: BaseException) -> bool:
    """Whether an error says that there is not enough memory."""
    said = str(error)
    return isinstance(error, MemoryError) or any(
        words in said for words in ("Failed to allocate memory", "bad_alloc")
    )


def tried(content: bytes) -> None:
    """Load a graph and ask it for a row and for three, in a process of its own.

    What onnxruntime says of it is left to whoever loads it next.

    Raises
    ------
    ModelFileError
        If the process dies, does not end, or needs too much memory.
    """
    seconds = _SECONDS + _SECONDS_A_BYTE * len(content)
    command = [sys.executable, "-P", "-m", __name__]
    # Where the parent found its modules, the child does.
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
            f"onnxruntime did not answer one row of it within {seconds:.0f} s, in a trial"
        ) from None
    if done.returncode == _OUT_OF_MEMORY:
        raise ModelFileError(
            f"onnxruntime needs more than {_bytes_for(content) >> 20:,} MiB to load it and to "
            "answer one row"
        )
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise ModelFileError(f"onnxruntime died of it ({name}) in a trial; it is not loaded")
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no word"]
        raise ModelFileError(f"its trial failed with {last[0]:.300}")


def _bytes_for(content: bytes) -> int:
    return _BYTES + _TIMES_THE_FILE * len(content)


def _bound_memory(most: int) -> None:
    """Let this process have so much, if the system has such bounds and lets it set them."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        own = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (own, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _trial() -> int:
    """Be the process of a trial; returns its exit code."""
    content = sys.stdin.buffer.read()
    _bound_memory(_bytes_for(content))
    try:
        session = make_session(content)
        for rows in ([0], [0, 1, 0]):
            session.run(None, sample_feeds(session.get_inputs(), np.array(rows)))
    except Exception as error:  # noqa: BLE001 - said by whoever loads it next
        return _OUT_OF_MEMORY if is_memory(error) else 0
    return 0


if __name__ == "__main__":
    sys.exit(_trial())
