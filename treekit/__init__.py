"""Decision trees and forests you can extend in fifteen lines, and export bit for bit.

>>> import treekit
>>> model = treekit.train("adult.csv", target="income", ensemble="forest", trees=100, seed=0)
>>> treekit.export(model, "c", "out/adult.c")
>>> treekit.verify(model, ["out/adult.c"])

Public names are imported on first use, so ``import treekit`` is fast; ``__init__.pyi`` lists them.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import lazy_loader

from treekit._version import __version__ as __version__

_import_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_PLUGIN_OF_NAME = {
    **dict.fromkeys(("c45rules", "rulefit", "sirus"), "rule-learning"),
    "plot": "plot",
}
_CALLABLE_PACKAGES = ("export", "verify")


class _CallablePackage(ModuleType):
    """A module that calls its function of the same name: ``treekit.export(...)``."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)

    def __reduce__(self) -> Any:
        """Pickle by name, as `_LazyPackage`."""
        return importlib.import_module, (self.__name__,)


class _LazyPackage(ModuleType):
    """Make ``treekit.export`` both a package and its public function.

    Importing the package binds the module to that name; a callable module serves as both.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _CALLABLE_PACKAGES and type(value) is ModuleType:
            value.__class__ = _CallablePackage
        super().__setattr__(name, value)

    def __reduce__(self) -> Any:
        """Pickle by name, as functions of a notebook are sent to Dask and Spark."""
        return importlib.import_module, (self.__name__,)


sys.modules[__name__].__class__ = _LazyPackage


def __getattr__(name: str) -> Any:
    if name in _CALLABLE_PACKAGES:
        return importlib.import_module(f"treekit.{name}")
    if name in ("Bootstrapped", "bootstrap"):
        raise AttributeError(
            "treekit.bootstrap is removed; use scipy.stats.bootstrap with method='percentile' and "
            "rng=numpy.random.default_rng(seed), which draws the same samples"
        )
    if plugin := _PLUGIN_OF_NAME.get(name):
        raise AttributeError(
            f"{name} is in a plugin: run 'pip install treekit-{plugin}', then use "
            f"'from treekit_{plugin.replace('-', '_')} import {name}'"
        )
    return _import_name(name)
