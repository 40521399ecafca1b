"""scikit-learn estimators for trees and forests.

The estimators wrap `treekit.training`: an estimator converts scikit-learn's
parameters and inputs to settings and a `Dataset`, `treekit.training.fit` trains, and
``estimator.model_`` is the `Model`, ready for export.
"""

from __future__ import annotations

from treekit.estimators.forests import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from treekit.estimators.trees import DecisionTreeClassifier, DecisionTreeRegressor
from treekit.interop.import_hook import register_when_imported

__all__ = [
    "DecisionTreeClassifier",
    "DecisionTreeRegressor",
    "ExtraTreesClassifier",
    "ExtraTreesRegressor",
    "RandomForestClassifier",
    "RandomForestRegressor",
]

# Deferred until skl2onnx is imported, if ever.
register_when_imported(
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
