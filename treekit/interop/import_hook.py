"""Run a callback when another library is imported, without importing it.

A converter must be registered before a user calls the library, but importing skl2onnx, and what
converts for it, takes seconds for users who never need it.  A finder in ``sys.meta_path``
(PEP 451) therefore watches for the library's name.  It delegates to the other finders,
runs the callback when their loader has executed the module, and removes itself.  Other
imports only cost the comparison of one string.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from treekit.errors import TreekitWarning

__all__ = ["register_when_imported", "when_imported"]


def register_when_imported(*estimators: type) -> None:
    """Call `register_skl2onnx` as soon as skl2onnx is imported."""

    def register_estimators() -> None:
        try:
            from treekit.interop import skl2onnx

            skl2onnx.register_skl2onnx(*estimators)
        except Exception as error:  # noqa: BLE001 - must not break the import of skl2onnx
            warnings.warn(
                f"treekit's estimators are not registered in skl2onnx: {error}; install a version "
                "of skl2onnx that treekit's package metadata allows",
                TreekitWarning,
                stacklevel=2,
            )

    when_imported("skl2onnx", register_estimators)


def when_imported(name: str, callback: Callable[[], None]) -> None:
    """Call `callback` when the top-level module `name` is imported, or at once if it already is.

    The callback should not raise: exceptions propagate to the import statement, which
    can be repeated.
    """
    if name in sys.modules:
        importlib.import_module(name)  # waits for a running import in another thread
        callback()
    else:
        sys.meta_path.insert(0, _ImportHook(name, callback))


class _ImportHook(MetaPathFinder):
    """Finder that runs a callback after the import of one module."""

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self.name = name
        self.callback = callback

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the other finders, whose loader then runs the callback once."""
        if fullname != self.name:
            return None
        others = [one for one in sys.meta_path if one is not self and hasattr(one, "find_spec")]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next(filter(None, specs), None)
        if spec is None or spec.loader is None:
            return spec
        loader, execute = spec.loader, spec.loader.exec_module

        def execute_and_call(module: ModuleType) -> None:
            del loader.exec_module  # the method of its class again
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self.callback()

        loader.exec_module = execute_and_call  # type: ignore[method-assign]
        return spec
