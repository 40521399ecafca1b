"""ONNX files in service: treekit's own graphs as its models, all others by onnxruntime.

What is served is judged first (`treekit.serve.models.onnx_graph`) and, where onnxruntime is to run
it, tried in a process of its own (`treekit.serve.models.onnx_session`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treekit.errors import ModelError, ModelFileError
from treekit.model.model import Model
from treekit.serve.models.of_treekit import ONE_TENSOR, TreekitServed
from treekit.serve.models.onnx_graph import judge, without_maps
from treekit.serve.models.onnx_served import OnnxServed
from treekit.serve.models.onnx_session import make_session, tried
from treekit.serve.models.served import Batch, Served
from treekit.serve.models.tensors import Tensor

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["OwnGraphServed", "graph_served", "read_onnx_served"]

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
