"""Components by kind and name, discovered when they are first asked for."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping

from treekit.discovery import Component, Plugin, Source, builtin_plugin, find_plugins
from treekit.errors import PluginError, TreekitWarning
from treekit.records import Kind

__all__ = ["Catalogue", "Host"]


class Catalogue(Mapping[str, Component]):
    """Components of one kind by name.

    A name that two plugins offer is listed, and asking for it raises
    `PluginError`; all other names work.
    """

    def __init__(self, kind: Kind, found: list[Component]) -> None:
        self.kind = kind
        self.found = tuple(sorted(found, key=lambda c: (c.name, c.distribution)))

    def __getitem__(self, name: str) -> Component:
        offers = [component for component in self.found if component.name == name]
        if not offers:
            raise KeyError(name)
        if len(offers) > 1:
            raise PluginError(_clash(self.kind, offers))
        return offers[0]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(component.name for component in self.found))

    def __len__(self) -> int:
        return len(set(self))

    def __contains__(self, name: object) -> bool:
        return any(component.name == name for component in self.found)


class Host:
    """What was discovered; each kind when it is first asked for."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.faults: list[str] = []
        self._plugins: list[Plugin] | None = None
        self._catalogues: dict[str, Catalogue] = {}
        self._told: set[str] = set()
        self._left_out: list[str] = []
        # Reentrant: a plugin may ask the registry while it is imported.
        self._lock = threading.RLock()

    def catalogue(self, kind: Kind) -> Catalogue:
        """All components of one kind."""
        with self._lock:
            if kind.name not in self._catalogues:
                self._catalogues[kind.name] = self._discover(kind)
            return self._catalogues[kind.name]

    def first_time(self, who: str) -> bool:
        """Whether this was not asked before: a component's age is told once."""
        with self._lock:
            new = who not in self._told
            self._told.add(who)
            return new

    def leave_out(self, what: str) -> None:
        """Note a fault of what the user added to treekit's own, told once that is listed."""
        with self._lock:
            self._left_out.append(what)

    def _discover(self, kind: Kind) -> Catalogue:
        own = builtin_plugin(kind).components(kind, _own_fault)
        # Not while treekit's own hook runs: a strict error would name that instead.
        left_out, self._left_out = self._left_out, []
        for what in left_out:
            self._tell(what, f"{what}. That part is left out")
        taken = {component.name for component in own}
        found = list(own)
        if self._plugins is None:
            self._plugins = find_plugins(self._complain)
        for plugin in self._plugins:
            for component in plugin.components(kind, self._complain):
                if component.name in taken:  # what everyone's settings name stays what it is
                    self._complain(
                        plugin.source,
                        f"offers {kind.name} {component.name!r}, the name of treekit's own; "
                        "its author is to rename it",
                    )
                else:
                    found.append(component)
        catalogue = Catalogue(kind, found)
        if self.strict:
            dict(catalogue)  # a clash raises
        return catalogue

    def _complain(self, source: Source, what: str) -> None:
        self._tell(
            f"{source} {what}",
            f"{source} {what}. That part is left out (without {source.distribution}, or with a "
            "release of it that fits, this goes away)",
        )

    def _tell(self, fault: str, warning: str) -> None:
        if self.strict:
            raise PluginError(fault)
        self.faults.append(fault)
        warnings.warn(warning, TreekitWarning, stacklevel=3)


def _own_fault(source: Source, what: str) -> None:
    raise PluginError(f"{source} {what}")


def _clash(kind: Kind, offers: list[Component]) -> str:
    owners = [str(Source(o.plugin, o.distribution, o.version)) for o in offers]
    return (
        f"{kind.name} {offers[0].name!r} is offered by {' and by '.join(owners)}; "
        "uninstall one of them"
    )
