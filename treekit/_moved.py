"""Former import paths of public modules, supported for one release with a warning.

A module that is not found under its former path is looked up here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


MOVED_MODULES = {
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
    "treekit.rules.learn.c45rules": "treekit.rule_learning.c45rules",
}


class _MovedModuleFinder:
    """Finder and loader of modules under their former paths.

    Implements `importlib.abc.MetaPathFinder` and `importlib.abc.Loader` without importing them:
    ``import treekit`` installs it, and must stay fast.
    """

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in MOVED_MODULES:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Use the default module object."""

    def exec_module(self, module: ModuleType) -> None:
        import importlib
        import warnings

        present = MOVED_MODULES[module.__name__]
        warnings.warn(
            f"{module.__name__} has moved to {present}; the former path ends with the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        names = vars(importlib.import_module(present))
        vars(module).update({key: value for key, value in names.items() if key[:2] != "__"})


def install_finder() -> None:
    """Register the finder of former paths, after all others."""
    if not any(type(finder) is _MovedModuleFinder for finder in sys.meta_path):
        sys.meta_path.append(_MovedModuleFinder())
