"""Triton: the folder of a model in a repository of NVIDIA's inference server.

``NAME/config.pbtxt`` says what ``NAME/VERSION/model.onnx`` takes and gives, in the text
format of protocol buffers; the schema is ``inference.ModelConfig`` of
https://github.com/triton-inference-server/common, ``protobuf/model_config.proto``, and the
meaning of its fields ``docs/user_guide/model_configuration.md`` of the server's repository.

The graph is the ONNX target's, but for maps, which Triton does not take.  Without batching
(``max_batch_size=0``, the default) tensors have the graph's own shapes, as ``treekit serve``
has them.  With it Triton keeps the rows' dimension for itself, and a label, which has no
other, comes back as (rows, 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from treekit.contracts import Setting
from treekit.data.schema import python_label
from treekit.errors import ExportError
from treekit.export.onnx import ONNX_SETTINGS, export_onnx
from treekit.model.model import Model

if TYPE_CHECKING:
    from onnx import ValueInfoProto

__all__ = ["TRITON_SETTINGS", "TRITON_SUFFIX", "export_triton"]

TRITON_SUFFIX = "/config.pbtxt"
TRITON_SETTINGS = (
    Setting("version", 1, "number of the model's version, the name of its folder", minimum=1),
    Setting(
        "max_batch_size",
        0,
        "most rows of a batch; 0: requests are answered as they come, of any number of rows",
        minimum=0,
        maximum=2**31 - 1,
    ),
    Setting(
        "batch_delay",
        None,
        "microseconds that a request waits for others to be answered with; none: not at all",
        type=int,
        minimum=0,
    ),
    Setting("instances", 1, "how many requests are answered at once", minimum=1),
    Setting("threads", 1, "threads of one instance; 0: one a core", minimum=0),
    *(setting for setting in ONNX_SETTINGS if setting.name != "zipmap"),
)

_TYPES = {
    1: "TYPE_FP32",
    2: "TYPE_UINT8",
    3: "TYPE_INT8",
    4: "TYPE_UINT16",
    5: "TYPE_INT16",
    6: "TYPE_INT32",
    7: "TYPE_INT64",
    8: "TYPE_STRING",
    9: "TYPE_BOOL",
    10: "TYPE_FP16",
    11: "TYPE_FP64",
    12: "TYPE_UINT32",
    13: "TYPE_UINT64",
}
"""Triton's datatype for each of `onnx.TensorProto.DataType`."""


class _Word(NamedTuple):
    """A word of the schema, written without quotes."""

    text: str


class _Message(NamedTuple):
    """Fields of a message, in the order in which they are written."""

    fields: Sequence[tuple[str, Any]]


def export_triton(
    model: Model,
    name: str,
    *,
    version: int = 1,
    max_batch_size: int = 0,
    batch_delay: int | None = None,
    instances: int = 1,
    threads: int = 1,
    **settings: Any,
) -> dict[str, bytes]:
    """The folder of a model: its configuration, its graph, and the names of its classes.

    Parameters
    ----------
    model : Model
    name : str
        Of the folder, and of the model to Triton.
    version, max_batch_size, batch_delay, instances, threads
        See `TRITON_SETTINGS`.
    **settings
        Of `treekit.export.onnx.export_onnx`.

    Returns
    -------
    dict
        Contents by path, ``NAME/config.pbtxt`` first.

    Raises
    ------
    ExportError
        If the graph cannot be made, or requests of this model must not be batched.
    """
    from onnx import load_from_string

    _check(model, name, max_batch_size, batch_delay)
    content = export_onnx(model, "model", **settings)["model.onnx"]
    graph = load_from_string(content).graph
    labels = _label_files(model)
    fields: list[tuple[str, Any]] = [
        ("name", name),
        ("platform", "onnxruntime_onnx"),
        ("backend", "onnxruntime"),
        ("default_model_filename", "model.onnx"),
        ("max_batch_size", max_batch_size),
        *(("input", _tensor(one, max_batch_size)) for one in graph.input),
        *(("output", _tensor(one, max_batch_size, labels)) for one in graph.output),
        ("version_policy", _Message([("latest", _Message([("num_versions", 1)]))])),
        ("instance_group", _Message([("kind", _Word("KIND_CPU")), ("count", instances)])),
        ("parameters", _parameter("intra_op_thread_count", threads)),
    ]
    if batch_delay is not None:
        waits = _Message([("max_queue_delay_microseconds", batch_delay)])
        fields.append(("dynamic_batching", waits))
    config = "".join(f"{line}\n" for line in _lines(fields))
    return {
        f"{name}{TRITON_SUFFIX}": config.encode(),
        f"{name}/{version}/model.onnx": content,
        **{f"{name}/{file}": text for file, text in labels.values()},
    }


def _check(model: Model, name: str, max_batch_size: int, batch_delay: int | None) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ExportError(
            f"triton: the name {name!r} is not UTF-8, which Triton's are: name the folder otherwise"
        ) from None
    if batch_delay is None:
        return
    if max_batch_size < 2:
        raise ExportError(
            f"triton: batch_delay={batch_delay} lets requests wait for others, and "
            f"max_batch_size={max_batch_size} allows no batch of several: raise it"
        )
    if model.missing == "error" or (model.unknown == "error" and model.schema.nominal.any()):
        raise ExportError(
            "triton: this model refuses some rows, and a batch of several requests would be "
            "refused for a row of one of them: leave batch_delay out"
        )


def _label_files(model: Model) -> dict[str, tuple[str, bytes]]:
    """Name and content of the file of classes, one a line, by the output of probabilities.

    None where a class is no line of text.
    """
    schema = model.schema
    if schema.task != "classification":
        return {}
    files = {}
    for number, output in enumerate(schema.outputs):
        end = f"_{number}" if schema.more else ""
        names = [str(python_label(label)) for label in output.classes]
        if all(name.splitlines() == [name] for name in names):
            text = "".join(f"{name}\n" for name in names)
            files[f"probabilities{end}"] = (f"labels{end}.txt", text.encode())
    return files


def _tensor(
    one: ValueInfoProto, max_batch_size: int, labels: Mapping[str, tuple[str, bytes]] | None = None
) -> _Message:
    """An input or output of the graph."""
    kind = one.type.tensor_type
    sizes = [size.dim_value if size.HasField("dim_value") else -1 for size in kind.shape.dim]
    dims = sizes[1:] if max_batch_size else sizes
    fields: list[tuple[str, Any]] = [
        ("name", one.name),
        ("data_type", _Word(_TYPES[kind.elem_type])),
    ]
    fields.append(("dims", dims or [1]))
    if not dims:  # what is rows alone; the server knows no empty shape
        fields.append(("reshape", _Message([("shape", [])])))
    if labels and one.name in labels:
        fields.append(("label_filename", labels[one.name][0]))
    return _Message(fields)


def _parameter(key: str, value: int) -> _Message:
    return _Message([("key", key), ("value", _Message([("string_value", str(value))]))])


def _lines(fields: Sequence[tuple[str, Any]], indent: str = "") -> Iterator[str]:
    for name, value in fields:
        if isinstance(value, _Message):
            yield f"{indent}{name} {{"
            yield from _lines(value.fields, f"{indent}  ")
            yield f"{indent}}}"
        else:
            yield f"{indent}{name}: {_written(value)}"


def _written(value: Any) -> str:
    if isinstance(value, _Word):
        return value.text
    if isinstance(value, str):
        return f'"{"".join(map(_escaped, value))}"'
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


def _escaped(letter: str) -> str:
    """A letter in a literal; as the octal numbers of its bytes if it could act or not show."""
    if letter.isprintable() and letter not in '"\\':
        return letter
    return "".join(f"\\{byte:03o}" for byte in letter.encode())
