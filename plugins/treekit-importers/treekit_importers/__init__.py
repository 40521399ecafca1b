"""Importers of the models of CatBoost, LightGBM, ONNX, skops, XGBoost and YDF."""

from __future__ import annotations

from treekit import Importer, Setting, hookimpl
from treekit.interop.tree_assembly import ANSWER_SETTING, DTYPE_SETTING
from treekit_importers.catboost import read_catboost, recognises_catboost
from treekit_importers.lightgbm import read_lightgbm, recognises_lightgbm
from treekit_importers.onnx import read_onnx, recognises_onnx
from treekit_importers.skops import read_skops, recognises_skops
from treekit_importers.xgboost import read_xgboost, recognises_xgboost
from treekit_importers.ydf import read_ydf, recognises_ydf

__all__ = ["treekit_importers"]

treekit_contract = 2

_ITERATIONS_SETTING = Setting(
    "iterations",
    None,
    type=int,
    minimum=1,
    help="boosting rounds to read; none: up to the best one if known, else all",
)
_CATEGORIES_SETTING = Setting(
    "categories",
    "",
    "categories of columns with one-hot splits, of which a file has hashes only, as JSON: "
    '{"colour": ["red", "blue"], "floor": [1, 2, 3]}',
)


@hookimpl
def treekit_importers() -> list[Importer]:
    """Register the importers."""
    return [
        Importer(
            name="catboost",
            recognises=recognises_catboost,
            read=read_catboost,
            settings=(ANSWER_SETTING, _ITERATIONS_SETTING, _CATEGORIES_SETTING),
            summary="CatBoost JSON and CBM files, and fitted objects",
        ),
        Importer(
            name="lightgbm",
            recognises=recognises_lightgbm,
            read=read_lightgbm,
            settings=(DTYPE_SETTING, ANSWER_SETTING, _ITERATIONS_SETTING),
            summary="LightGBM text files, boosters and estimators",
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
        Importer(
            name="xgboost",
            recognises=recognises_xgboost,
            read=read_xgboost,
            settings=(ANSWER_SETTING, _ITERATIONS_SETTING),
            summary="XGBoost JSON and UBJSON files, boosters and estimators",
        ),
        Importer(
            name="ydf",
            recognises=recognises_ydf,
            read=read_ydf,
            settings=(ANSWER_SETTING, _ITERATIONS_SETTING),
            summary="random forests and boosted trees in folders of YDF, and objects",
        ),
    ]
