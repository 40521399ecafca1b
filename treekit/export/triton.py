"""Target "triton": a model folder for the repository of NVIDIA's inference server.

``NAME/config.pbtxt`` describes the inputs and outputs of ``NAME/VERSION/model.onnx`` in the text
format of protocol buffers.  The schema is ``inference.ModelConfig`` of
https://github.com/triton-inference-server/common, ``protobuf/model_config.proto``; the fields
are documented in ``docs/user_guide/model_configuration.md`` of the server's repository.

The graph is that of the ONNX target without maps, which Triton does not support.  Without
batching (``max_batch_size=0``, the default) tensors have the shapes of the graph, as in
``treekit serve``.  With batching Triton owns the dimension of the rows, and a label, which has
no other, is returned as (rows, 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from treekit.contracts import Setting
from treekit.data.schema import python_label
from treekit.errors import ExportError
from treekit.export.literals import Code, encode_utf8
from treekit.export.onnx import ONNX_SETTINGS, export_onnx
from treekit.model.model import Model

if TYPE_CHECKING:
    from onnx import ValueInfoProto


TRITON_SUFFIX = "/config.pbtxt"
TRITON_SETTINGS = (
    Setting("version", 1, "version of the model, the name of its folder", minimum=1),
    Setting(
        "max_batch_size",
        0,
        "maximum number of rows in a batch; 0 disables batching",
        minimum=0,
        maximum=2**31 - 1,
    ),
    Setting(
        "batch_delay",
        None,
        "microseconds that a request waits to be batched with others; none: no waiting",
        type=int,
        minimum=0,
    ),
    Setting("instances", 1, "number of requests processed in parallel", minimum=1),
    Setting("threads", 1, "threads per instance; 0: one per core", minimum=0),
    *(setting for setting in ONNX_SETTINGS if setting.name != "zipmap"),
)

_TRITON_TYPES = {1: "TYPE_FP32", 7: "TYPE_INT64", 8: "TYPE_STRING", 9: "TYPE_BOOL", 11: "TYPE_FP64"}
"""Triton's datatype for each `onnx.TensorProto.DataType` of an input or output."""


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
    """Write the model folder: configuration, graph and class names.

    Parameters
    ----------
    model : Model
    name : str
        Name of the folder and of the model in Triton.
    version, max_batch_size, batch_delay, instances, threads
        See `TRITON_SETTINGS`.
    **settings
        Settings of `treekit.export.onnx.export_onnx`.

    Returns
    -------
    dict
        Contents by path, ``NAME/config.pbtxt`` first.

    Raises
    ------
    ExportError
        If the graph cannot be built, or requests to this model must not be batched.
    """
    from onnx import load_from_string

    _check_settings(model, name, max_batch_size, batch_delay)
    content = export_onnx(model, "model", **settings)["model.onnx"]
    graph = load_from_string(content).graph
    labels = _make_label_files(model)
    fields: list[tuple[str, Any]] = [
        ("name", name),
        ("platform", "onnxruntime_onnx"),
        ("backend", "onnxruntime"),
        ("default_model_filename", "model.onnx"),
        ("max_batch_size", max_batch_size),
        *(("input", _describe_tensor(one, max_batch_size)) for one in graph.input),
        *(("output", _describe_tensor(one, max_batch_size, labels)) for one in graph.output),
        ("version_policy", {"latest": {"num_versions": 1}}),
        ("instance_group", {"kind": Code("KIND_CPU"), "count": instances}),
        ("parameters", {"key": "intra_op_thread_count", "value": {"string_value": str(threads)}}),
    ]
    if batch_delay is not None:
        fields.append(("dynamic_batching", {"max_queue_delay_microseconds": batch_delay}))
    config = "".join(f"{line}\n" for line in _format_lines(fields))
    return {
        f"{name}{TRITON_SUFFIX}": config.encode(),
        f"{name}/{version}/model.onnx": content,
        **{f"{name}/{file}": text for file, text in labels.values()},
    }


def _check_settings(model: Model, name: str, max_batch_size: int, batch_delay: int | None) -> None:
    encode_utf8(name)
    if batch_delay is None:
        return
    if max_batch_size < 2:
        raise ExportError(
            f"triton: batch_delay={batch_delay} needs max_batch_size of at least 2, got "
            f"{max_batch_size}"
        )
    if model.missing == "error" or (model.unknown == "error" and model.schema.nominal.any()):
        raise ExportError(
            "triton: this model refuses some rows, and one refused row would fail all requests "
            "of its batch: leave out batch_delay"
        )


def _make_label_files(model: Model) -> dict[str, tuple[str, bytes]]:
    """Return name and content of the file of class labels for each output of probabilities.

    An output with a class label that is not a single line of text has no file.
    """
    files = {}
    for number, output in enumerate(model.schema.outputs):
        end = f"_{number}" if model.schema.more else ""
        names = [str(python_label(label)) for label in output.classes]
        if names and all(name.splitlines() == [name] for name in names):
            text = "".join(f"{name}\n" for name in names)
            files[f"probabilities{end}"] = (f"labels{end}.txt", text.encode())
    return files


def _describe_tensor(
    one: ValueInfoProto, max_batch_size: int, labels: Mapping[str, tuple[str, bytes]] | None = None
) -> dict[str, Any]:
    """Describe an input or output of the graph."""
    kind = one.type.tensor_type
    sizes = [size.dim_value if size.HasField("dim_value") else -1 for size in kind.shape.dim]
    dims = sizes[1:] if max_batch_size else sizes
    data_type = Code(_TRITON_TYPES[kind.elem_type])
    fields: dict[str, Any] = {"name": one.name, "data_type": data_type, "dims": dims}
    if not dims:  # only the batch dimension; Triton does not accept an empty shape
        fields |= {"dims": [1], "reshape": {"shape": []}}
    if labels and one.name in labels:
        fields["label_filename"] = labels[one.name][0]
    return fields


def _format_lines(fields: Iterable[tuple[str, Any]], indent: str = "") -> Iterator[str]:
    """Yield the lines of a message: its fields are texts, numbers, enums (`Code`) or messages."""
    for name, value in fields:
        if isinstance(value, dict):
            yield f"{indent}{name} {{"
            yield from _format_lines(value.items(), f"{indent}  ")
            yield f"{indent}}}"
        elif isinstance(value, str) and not isinstance(value, Code):
            yield f'{indent}{name}: "{"".join(map(_escape_character, value))}"'
        else:
            yield f"{indent}{name}: {value}"


def _escape_character(letter: str) -> str:
    """Escape a character of a literal, as octal bytes if it is special or not printable."""
    if letter.isprintable() and letter not in '"\\':
        return letter
    return "".join(f"\\{byte:03o}" for byte in letter.encode())
