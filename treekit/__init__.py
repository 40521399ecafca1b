"""Decision trees and forests you can extend in fifteen lines, and export bit for bit.

>>> import treekit
>>> model = treekit.train("adult.csv", target="income", ensemble="forest", trees=100, seed=0)
>>> treekit.export(model, "c", "out/adult.c")
>>> treekit.verify(model, ["out/adult.c"])

Public names are imported on first use, so ``import treekit`` is fast.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from treekit import _moved
from treekit._version import __version__ as __version__

_moved.install_finder()

if TYPE_CHECKING:
    from treekit.contracts import Criterion as Criterion
    from treekit.contracts import CriterionFunctions as CriterionFunctions
    from treekit.contracts import Document as Document
    from treekit.contracts import Explainer as Explainer
    from treekit.contracts import Exporter as Exporter
    from treekit.contracts import Importer as Importer
    from treekit.contracts import Layout as Layout
    from treekit.contracts import Pruner as Pruner
    from treekit.contracts import PrunerFunctions as PrunerFunctions
    from treekit.contracts import Ranks as Ranks
    from treekit.contracts import Setting as Setting
    from treekit.contracts import Simplifier as Simplifier
    from treekit.contracts import Splitter as Splitter
    from treekit.contracts import SplitterFunctions as SplitterFunctions
    from treekit.contracts import Sums as Sums
    from treekit.contracts import Task as Task
    from treekit.contracts import TaskColumn as TaskColumn
    from treekit.documents.files import revise as revise
    from treekit.documents.files import write_rules as write_rules
    from treekit.errors import AbsentError as AbsentError
    from treekit.errors import DataError as DataError
    from treekit.errors import ExportError as ExportError
    from treekit.errors import MissingExtraError as MissingExtraError
    from treekit.errors import ModelError as ModelError
    from treekit.errors import ModelFileAccessError as ModelFileAccessError
    from treekit.errors import ModelFileError as ModelFileError
    from treekit.errors import ModelFileNotFoundError as ModelFileNotFoundError
    from treekit.errors import PluginError as PluginError
    from treekit.errors import SettingError as SettingError
    from treekit.errors import TreekitError as TreekitError
    from treekit.errors import TreekitWarning as TreekitWarning
    from treekit.errors import VerificationError as VerificationError
    from treekit.estimators import DecisionTreeClassifier as DecisionTreeClassifier
    from treekit.estimators import DecisionTreeRegressor as DecisionTreeRegressor
    from treekit.estimators import ExtraTreesClassifier as ExtraTreesClassifier
    from treekit.estimators import ExtraTreesRegressor as ExtraTreesRegressor
    from treekit.estimators import RandomForestClassifier as RandomForestClassifier
    from treekit.estimators import RandomForestRegressor as RandomForestRegressor
    from treekit.evaluation import Evaluation as Evaluation
    from treekit.evaluation import evaluate as evaluate
    from treekit.export import export as export
    from treekit.hookspecs import hookimpl as hookimpl
    from treekit.interop import read_model as read_model
    from treekit.interop.skl2onnx import register_skl2onnx as register_skl2onnx
    from treekit.model.model import Model as Model
    from treekit.model.model_file import load as load
    from treekit.plot import plot as plot
    from treekit.resampling import Bootstrapped as Bootstrapped
    from treekit.resampling import bootstrap as bootstrap
    from treekit.rule_learning import simplify as simplify
    from treekit.rule_learning.c45rules import c45rules as c45rules
    from treekit.training import train as train
    from treekit.training.importance import gain_importances as gain_importances
    from treekit.training.importance import permutation_importances as permutation_importances
    from treekit.training.split_scores import split_scores as split_scores
    from treekit.verify import verify as verify

_MODULE_OF = {
    name: module
    for module, names in {
        "treekit.contracts": (
            "Criterion",
            "CriterionFunctions",
            "Document",
            "Explainer",
            "Exporter",
            "Importer",
            "Layout",
            "Pruner",
            "PrunerFunctions",
            "Ranks",
            "Setting",
            "Simplifier",
            "Splitter",
            "SplitterFunctions",
            "Sums",
            "Task",
            "TaskColumn",
        ),
        "treekit.errors": (
            "AbsentError",
            "DataError",
            "ExportError",
            "MissingExtraError",
            "ModelError",
            "ModelFileAccessError",
            "ModelFileError",
            "ModelFileNotFoundError",
            "PluginError",
            "SettingError",
            "TreekitError",
            "TreekitWarning",
            "VerificationError",
        ),
        "treekit.estimators": (
            "DecisionTreeClassifier",
            "DecisionTreeRegressor",
            "ExtraTreesClassifier",
            "ExtraTreesRegressor",
            "RandomForestClassifier",
            "RandomForestRegressor",
        ),
        "treekit.evaluation": ("Evaluation", "evaluate"),
        "treekit.documents.files": ("revise", "write_rules"),
        "treekit.hookspecs": ("hookimpl",),
        "treekit.interop": ("read_model",),
        "treekit.interop.skl2onnx": ("register_skl2onnx",),
        "treekit.model.model": ("Model",),
        "treekit.model.model_file": ("load",),
        "treekit.resampling": ("Bootstrapped", "bootstrap"),
        "treekit.rule_learning": ("simplify",),
        "treekit.rule_learning.c45rules": ("c45rules",),
        "treekit.training": ("train",),
        "treekit.training.importance": ("gain_importances", "permutation_importances"),
        "treekit.training.split_scores": ("split_scores",),
    }.items()
    for name in names
}
_PLUGIN_NAMES = ("rulefit", "sirus")
_CALLABLE_PACKAGES = ("export", "plot", "verify")

__all__ = [*_MODULE_OF, *_CALLABLE_PACKAGES]  # noqa: PLE0604 - one list of names, above


class _CallablePackage(ModuleType):
    """A module that calls its function of the same name: ``treekit.export(...)``."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


class _LazyPackage(ModuleType):
    """Make ``treekit.export`` both a package and its public function.

    Importing the package binds the module to that name; a callable module serves as both.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _CALLABLE_PACKAGES and type(value) is ModuleType:
            value.__class__ = _CallablePackage
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _LazyPackage


def __getattr__(name: str) -> Any:
    if name in _CALLABLE_PACKAGES:
        return importlib.import_module(f"treekit.{name}")
    if name in _PLUGIN_NAMES:
        raise AttributeError(
            "sirus and rulefit are in a plugin: pip install treekit-rule-learning, and "
            f"from treekit_rule_learning import {name}"
        )
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'treekit' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_MODULE_OF, *_CALLABLE_PACKAGES, "__version__"])
