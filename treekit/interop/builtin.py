"""The importers that come with treekit, through the hook that plugins use."""

from __future__ import annotations

from treekit.contracts import Importer
from treekit.hookspecs import hookimpl
from treekit.interop.boosting import ANSWER, DTYPE, ITERATIONS
from treekit.interop.lightgbm import read_lightgbm, recognises_lightgbm
from treekit.interop.onnx import read_onnx, recognises_onnx
from treekit.interop.sklearn import read_sklearn, recognises_sklearn
from treekit.interop.skops import read_skops, recognises_skops
from treekit.interop.xgboost import read_xgboost, recognises_xgboost

__all__ = ["treekit_importers"]


@hookimpl
def treekit_importers() -> list[Importer]:
    """scikit-learn's, LightGBM's and XGBoost's trees, and those of ONNX graphs."""
    return [
        Importer(
            name="scikit-learn",
            recognises=recognises_sklearn,
            read=read_sklearn,
            settings=(DTYPE, ANSWER),
            summary="fitted trees, forests, bagged and boosted trees of scikit-learn",
        ),
        Importer(
            name="lightgbm",
            recognises=recognises_lightgbm,
            read=read_lightgbm,
            settings=(DTYPE, ANSWER, ITERATIONS),
            summary="model texts, boosters and estimators of LightGBM",
        ),
        Importer(
            name="onnx",
            recognises=recognises_onnx,
            read=read_onnx,
            settings=(ANSWER,),
            summary="ONNX models of one tree operator, whatever wrote them",
        ),
        Importer(
            name="skops",
            recognises=recognises_skops,
            read=read_skops,
            settings=(DTYPE, ANSWER),
            summary="scikit-learn's trees in files of skops",
        ),
        Importer(
            name="xgboost",
            recognises=recognises_xgboost,
            read=read_xgboost,
            settings=(ANSWER, ITERATIONS),
            summary="JSON and UBJSON models, boosters and estimators of XGBoost",
        ),
    ]
