"""Foreign ONNX files in service: the graph's own names and types, by onnxruntime."""

from __future__ import annotations

from pathlib import Path

from treekit.errors import ModelFileError
from treekit.serve.served import Served

__all__ = ["read_onnx_served"]


def read_onnx_served(path: Path, name: str, version: str, digest: str) -> Served:
    """The graph in an ONNX file.

    Raises
    ------
    ModelFileError
        If it is no graph that can be served.
    """
    raise ModelFileError(f"{path}: {name} {version} {digest}: not yet")  # helper: onnx
