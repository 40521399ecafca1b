"""Former import paths of public modules, which work for one release with a warning.

A module that is not found under its former path is looked up here.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["MOVED", "install"]

MOVED = {
    "treekit.forms": "treekit.documents",
    "treekit.model.build": "treekit.model.builder",
    "treekit.model.ensemble": "treekit.model.model",
    "treekit.model.predict": "treekit.model.scoring",
    "treekit.model.store": "treekit.model.model_file",
    "treekit.plot.colours": "treekit.plot.svg",
    "treekit.plot.markup": "treekit.plot.svg",
    "treekit.pruners": "treekit.components",
    "treekit.pruners.collapse": "treekit.components.pruning",
    "treekit.pruners.context": "treekit.components.pruning",
    "treekit.rules.changed": "treekit.rules.revise",
    "treekit.rules.explain": "treekit.explain",
    "treekit.rules.learn": "treekit.rule_learning",
}


class _Finder(MetaPathFinder, Loader):
    """Fill a module under a former path with the names of the present one."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        present = MOVED[module.__name__]
        warnings.warn(
            f"{module.__name__} has moved to {present}; the former path ends with the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        names = vars(importlib.import_module(present))
        vars(module).update({key: value for key, value in names.items() if key[:2] != "__"})


def install() -> None:
    """Look up modules under their former paths, after all other ways of finding them."""
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.append(_Finder())
