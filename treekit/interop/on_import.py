"""Doing something once another library is imported, without importing it.

A converter must be known to its library before a user calls that library, and
importing it for users who never will costs them seconds.  So a finder waits in
``sys.meta_path`` (PEP 451) for the library's name.  It finds nothing itself:
it asks the other finders, and runs the callback when their loader is done with
the module; then it takes itself off the list.  All other imports cost the
comparison of one string.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

__all__ = ["when_imported"]


def when_imported(name: str, callback: Callable[[], None]) -> None:
    """Call `callback` once the top-level module `name` is imported; at once if it is.

    What the callback raises goes to whoever imports the module, who can import
    it again: a callback should not raise.
    """
    if name in sys.modules:
        importlib.import_module(name)  # waits for an import under way in another thread
        callback()
    else:
        sys.meta_path.insert(0, _Waiting(name, callback))


class _Waiting(MetaPathFinder):
    """Waits for the import of one module."""

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self.name = name
        self.callback = callback
        self._asking = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders find, with a loader that calls back."""
        del path, target
        if fullname != self.name or getattr(self._asking, "now", False):
            return None
        self._asking.now = True  # the search below comes by here again
        try:
            spec = find_spec(fullname)
        finally:
            self._asking.now = False
        if spec is not None and spec.loader is not None:
            spec.loader = _CallingBack(spec.loader, self)
        return spec

    def done(self) -> None:
        """The module is there."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self.callback()


class _CallingBack(Loader):
    """A loader that loads as another does, and then says so."""

    def __init__(self, loader: Loader, waiting: _Waiting) -> None:
        self._loader = loader
        self._waiting = waiting

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its own loader: resources and sources are read through it.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._waiting.done()
