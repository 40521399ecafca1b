"""The scikit-learn face: trees and forests as estimators over `treekit.training`.

A second face over the same parts, not a second implementation: an estimator
turns scikit-learn's words into a `Dataset` and settings, `treekit.training.fit`
does the rest, and ``estimator.model_`` is the `Model`, ready to be exported.
"""

from __future__ import annotations

from treekit.estimators.forests import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from treekit.estimators.trees import DecisionTreeClassifier, DecisionTreeRegressor
from treekit.interop.skl2onnx import register_when_imported

__all__ = [
    "DecisionTreeClassifier",
    "DecisionTreeRegressor",
    "ExtraTreesClassifier",
    "ExtraTreesRegressor",
    "RandomForestClassifier",
    "RandomForestRegressor",
]

# skl2onnx knows them from the moment that somebody imports it.
register_when_imported(
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
