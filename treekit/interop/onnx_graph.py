"""The one tree operator of an ONNX graph, and what stands around it.

A graph is read if it is a tree ensemble between casts, reshapes and a ZipMap,
none of which changes an answer; any other operator is refused by its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype
from treekit.errors import ModelError, ModelFileError
from treekit.interop.files import beginning, read_whole

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

__all__ = [
    "OPERATORS",
    "SOURCE",
    "Attributes",
    "TreeOperator",
    "opened",
    "recognises_onnx",
    "tensor_values",
    "tree_operator",
]

SOURCE = "the ONNX model"
OPERATORS = ("TreeEnsembleRegressor", "TreeEnsembleClassifier", "TreeEnsemble")
"""Of ai.onnx.ml."""
_FLOAT, _UINT8, _INT32, _INT64, _DOUBLE = 1, 2, 6, 7, 11
"""Of `TensorProto.DataType`."""
_STORED = {_FLOAT: "<f4", _DOUBLE: "<f8", _UINT8: "u1", _INT32: "<i4", _INT64: "<i8"}
_EXTERNAL = 1
_SHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")


def recognises_onnx(source: Any) -> bool:
    """Whether `source` is an ONNX file (``.onnx``), or a `ModelProto`."""
    # A ModelProto begins with its field 1, the version of the format.
    return beginning(source, (".onnx",), 1) == b"\x08" or _is_proto(source)


def _is_proto(source: Any) -> bool:
    kind = type(source)
    return kind.__name__ == "ModelProto" and kind.__module__.partition(".")[0] == "onnx"


def opened(source: Any) -> ModelProto:
    """The parsed model of a file or an object."""
    if _is_proto(source):
        proto: ModelProto = source
        return proto
    if not isinstance(source, Path) or not recognises_onnx(source):
        raise ModelError(f"a {type(source).__qualname__} is no ONNX model")
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    parsed = ModelProto()
    try:
        parsed.ParseFromString(read_whole(source))
    except (DecodeError, ValueError, RuntimeError) as error:
        raise ModelFileError(f"{SOURCE} is damaged, or none: {error}") from error
    _check_texts(parsed)
    return parsed


def _check_texts(proto: ModelProto) -> None:
    """Refuse texts that are no UTF-8, which the parser hands on as bytes."""
    named = [*proto.graph.input, *proto.graph.output, *proto.graph.initializer]
    texts: list[Any] = [proto.producer_name, *(one.name for one in named)]
    for node in proto.graph.node:
        texts += [node.op_type, node.domain, node.name, *node.input, *node.output]
        texts += [attribute.name for attribute in node.attribute]
    for told in proto.metadata_props:
        texts += [told.key, told.value]
    if not all(isinstance(text, str) for text in texts):
        raise ModelFileError(f"{SOURCE} is damaged: it holds a text that is no UTF-8")


class Attributes:
    """Attributes of an operator as arrays, texts and numbers of the types they must have."""

    def __init__(self, node: NodeProto) -> None:
        self.of: dict[str, AttributeProto] = {one.name: one for one in node.attribute}

    def ints(self, name: str) -> npt.NDArray[np.int64]:
        """Whole numbers, from a list or a tensor; none if it is absent."""
        found = self._array(name, "ints", np.int64)
        if found.dtype.kind == "f":
            raise ModelFileError(f"{SOURCE} is damaged: {name} holds no whole numbers")
        return found.astype(np.int64)

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """Numbers, from a list, a tensor, or the ``_as_tensor`` of that name."""
        wide = f"{name}_as_tensor"
        return self._array(wide if wide in self.of else name, "floats", np.float64)

    def texts(self, name: str) -> list[str]:
        """Texts; none if it is absent."""
        try:
            return (
                [text.decode("utf-8") for text in self.of[name].strings] if name in self.of else []
            )
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{SOURCE} is damaged: {name}: {error}") from error

    def text(self, name: str, default: str) -> str:
        """One text."""
        return self.of[name].s.decode("utf-8", "replace") if name in self.of else default

    def whole(self, name: str, default: int) -> int:
        """One whole number."""
        return int(self.of[name].i) if name in self.of else default

    def _array(self, name: str, field: str, dtype: Any) -> npt.NDArray[Any]:
        if name not in self.of:
            return np.zeros(0, dtype=dtype)
        attribute = self.of[name]
        if attribute.HasField("t"):
            return tensor_values(attribute.t, name)
        return np.array(getattr(attribute, field), dtype=dtype)


def tensor_values(tensor: Any, name: str) -> npt.NDArray[Any]:
    """A tensor's numbers, flat; never from a file that it names."""
    if tensor.data_location == _EXTERNAL or tensor.data_type not in _STORED:
        raise ModelError(
            f"{SOURCE} keeps {name} in another file, or in a type that is none of float, double, "
            "uint8, int32 and int64; save it in one file"
        )
    dtype = np.dtype(_STORED[tensor.data_type])
    if tensor.raw_data:
        if len(tensor.raw_data) % dtype.itemsize:
            raise ModelFileError(f"{SOURCE} is damaged: {name} is cut off")
        return np.frombuffer(tensor.raw_data, dtype=dtype)
    typed = {
        _FLOAT: "float_data",
        _DOUBLE: "double_data",
        _UINT8: "int32_data",
        _INT32: "int32_data",
    }
    values = np.array(getattr(tensor, typed.get(tensor.data_type, "int64_data")))
    return values.astype(dtype) if values.size else np.zeros(0, dtype=dtype)


@dataclass(frozen=True, slots=True)
class TreeOperator:
    """A tree operator and its input.

    Attributes
    ----------
    kind : str
        The operator's name.
    attributes : Attributes
    dtype : {"float32", "float64"}
        Of the numbers that it compares.
    n_features : int
        Columns of the input, 0 if the graph does not say.
    """

    kind: str
    attributes: Attributes
    dtype: Dtype
    n_features: int


def tree_operator(graph: GraphProto) -> TreeOperator:
    """The only tree operator of a graph.

    Raises
    ------
    ModelError
        If there are several, or any other operator could change an answer.
    """
    trees = [node for node in graph.node if node.op_type in OPERATORS]
    if len(trees) != 1:
        others = ", ".join(sorted({node.op_type for node in graph.node})[:8]) or "none"
        raise ModelError(
            f"{SOURCE} has {len(trees)} tree operators ({', '.join(OPERATORS)}), and treekit "
            f"reads models of one; its operators: {others}"
        )
    (tree,) = trees
    dtype, n_features = _input(graph, tree)
    _check_outputs(graph, tree)
    return TreeOperator(tree.op_type, Attributes(tree), dtype, n_features)


def _input(graph: GraphProto, tree: NodeProto) -> tuple[Dtype, int]:
    """Type of the numbers that the trees compare, and how many columns they have."""
    constants = {one.name for one in graph.initializer}
    inputs = {one.name: one for one in graph.input if one.name not in constants}
    makers = {name: node for node in graph.node for name in node.output}
    narrowed, at = False, tree.input[0] if tree.input else ""
    for _ in range(len(graph.node) + 1):
        if at in inputs or at not in makers:
            break
        node = makers[at]
        to = next((one.i for one in node.attribute if one.name == "to"), 0)
        cast = node.op_type == "Cast" and to in (_FLOAT, _DOUBLE)
        if not cast and node.op_type != "Identity":
            raise _refused(node, "before its trees")
        narrowed |= cast and to == _FLOAT
        at = node.input[0] if node.input else ""
    if len(inputs) != 1 or at not in inputs:
        raise ModelError(f"{SOURCE} has {len(inputs)} inputs; treekit reads models of one tensor")
    tensor = inputs[at].type.tensor_type
    if tensor.elem_type not in (_FLOAT, _DOUBLE, _INT32, _INT64):
        raise ModelError(f"{SOURCE} takes numbers of type {tensor.elem_type}, not float or double")
    wide = tensor.elem_type == _DOUBLE and not narrowed
    width = tensor.shape.dim[1].dim_value if len(tensor.shape.dim) == 2 else 0
    return "float64" if wide else "float32", int(width)


def _check_outputs(graph: GraphProto, tree: NodeProto) -> None:
    """Refuse what stands behind the trees, unless it changes shapes and types alone."""
    labels = tree.op_type == "TreeEnsembleClassifier"
    says = dict.fromkeys(tree.output, "scores")
    if labels and tree.output:
        says[tree.output[0]] = "label"
    before = _ancestors(graph, tree)
    for node in graph.node:
        if node is tree or any(name in before for name in node.output):
            continue
        what = says.get(node.input[0] if node.input else "")
        if what is None and node.op_type == "Constant":
            continue
        to = next((one.i for one in node.attribute if one.name == "to"), 0)
        casts = (_INT64,) if what == "label" else (_FLOAT, _DOUBLE)
        plain = node.op_type in _SHAPES or (node.op_type == "Cast" and to in casts)
        zipped = node.op_type == "ZipMap" and what == "scores"
        if what is None or not (plain or zipped):
            raise _refused(node, "behind its trees")
        says |= dict.fromkeys(node.output, what)


def _ancestors(graph: GraphProto, tree: NodeProto) -> set[str]:
    """Outputs of the nodes between the graph's input and its trees."""
    makers = {name: node for node in graph.node for name in node.output}
    found: set[str] = set()
    at = tree.input[0] if tree.input else ""
    while at in makers and at not in found:
        found.add(at)
        at = makers[at].input[0] if makers[at].input else ""
    return found


def _refused(node: NodeProto, where: str) -> ModelError:
    return ModelError(
        f"{SOURCE} has the operator {node.op_type!r:.60} {where}, which treekit does not read; "
        "convert the trees alone, without scaling and post-processing"
    )
