"""The built-in importers, registered through the plugin hook."""

from __future__ import annotations

from treekit.contracts import Importer
from treekit.hookspecs import hookimpl
from treekit.interop.onnx import read_onnx, recognises_onnx
from treekit.interop.sklearn import read_sklearn, read_skops, recognises_sklearn, recognises_skops
from treekit.interop.tree_assembly import ANSWER_SETTING, DTYPE_SETTING


@hookimpl
def treekit_importers() -> list[Importer]:
    """Return the importers of scikit-learn, ONNX and skops."""
    return [
        Importer(
            name="scikit-learn",
            recognises=recognises_sklearn,
            read=read_sklearn,
            settings=(DTYPE_SETTING, ANSWER_SETTING),
            summary="fitted scikit-learn trees, forests, bagged and boosted trees",
        ),
        Importer(
            name="onnx",
            recognises=recognises_onnx,
            read=read_onnx,
            settings=(ANSWER_SETTING,),
            summary="ONNX models with one tree operator, from any converter",
        ),
        Importer(
            name="skops",
            recognises=recognises_skops,
            read=read_skops,
            settings=(DTYPE_SETTING, ANSWER_SETTING),
            summary="scikit-learn trees in skops files",
        ),
    ]
