"""An ONNX graph before it runs: what a hostile one could do is refused, maps become tensors.

onnxruntime reads other files where a tensor says so, and even memory at an address that the
file names; it loads a file of its own format by what its bytes 4 to 8 say.  So a file is
parsed here, judged, and handed over as the bytes of what was judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from treekit.errors import ModelFileError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

__all__ = ["DATATYPES_OF_ONNX", "judge", "without_maps"]

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
