"""Finding plugins and asking them what they provide.

Every plugin is met alone: whatever goes wrong in one is told by its name and
costs the others nothing.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata

import pluggy

from treekit import hookspecs
from treekit._version import __version__
from treekit.compatibility import contract_of
from treekit.contracts import CONTRACT_VERSION
from treekit.errors import PluginError
from treekit.isolation import FOREIGN, cause, isolated
from treekit.records import KINDS, Kind, Record, check_record

__all__ = ["GROUP", "Component", "Plugin", "Source", "builtin_plugin", "find_plugins"]

GROUP = "treekit"
"""The entry-point group of plugins."""


@dataclass(frozen=True)
class Source:
    """Where a plugin comes from: an entry point of an installed distribution."""

    plugin: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"plugin {self.plugin!r} of {self.distribution} {self.version}"


@dataclass(frozen=True)
class Component:
    """A record, and where it comes from.

    Attributes
    ----------
    kind : str
        ``"criterion"``, ``"splitter"``, ``"pruner"``, ``"exporter"`` or ``"importer"``.
    record : Record
    plugin, distribution, version : str
        Entry point, and the installed distribution that declares it.
    contract : int
        The version of the contract that the plugin was written for.
    """

    kind: str
    record: Record
    plugin: str
    distribution: str
    version: str
    contract: int = CONTRACT_VERSION

    @property
    def name(self) -> str:
        """The record's name."""
        return self.record.name


Complain = Callable[[Source, str], None]
"""Told of a fault: the source, and what is wrong, as the end of a sentence."""


@dataclass(frozen=True)
class Plugin:
    """A plugin whose module was imported.

    It has a hook manager of its own, so that a fault stays with its owner.
    """

    source: Source
    manager: pluggy.PluginManager
    contract: int = CONTRACT_VERSION

    def components(self, kind: Kind, complain: Complain) -> list[Component]:
        """What the plugin provides of one kind; faulty records are left out."""
        found: list[Component] = []
        # Called one by one and not through pluggy, which drops a None, the
        # result of a hook whose author forgot to return.
        for hook in getattr(self.manager.hook, kind.hook).get_hookimpls():
            try:
                records = isolated(str(self.source), hook.function)
            except FOREIGN as error:
                complain(self.source, f"failed in {kind.hook}: {cause(error)}")
                continue
            if not isinstance(records, list):
                got = type(records).__name__
                complain(self.source, f"returned {got} from {kind.hook}, not a list of records")
                continue
            for record in records:
                self._add(record, kind, found, complain)
        return found

    def _add(self, record: object, kind: Kind, to: list[Component], complain: Complain) -> None:
        try:
            check_record(record, kind)
        except PluginError as error:
            complain(self.source, f"has a faulty record: {error}")
            return
        except FOREIGN as error:  # a field of a type whose comparison fails
            complain(self.source, f"has a record that cannot be looked at: {cause(error)}")
            return
        source = self.source
        new = Component(
            kind.name,
            record,  # type: ignore[arg-type]
            source.plugin,
            source.distribution,
            source.version,
            self.contract,
        )
        if any(new.name == other.name for other in to):
            complain(source, f"names two {kind.hook[8:]} {new.name!r}; the second is ignored")
            return
        to.append(new)


def find_plugins(complain: Complain) -> list[Plugin]:
    """Import every plugin of the entry-point group, in the order of distribution and name."""
    plugins = []
    for source, entry_point in sorted(_entry_points(complain), key=lambda found: str(found[0])):
        try:
            module = isolated(str(source), entry_point.load)
            contract = contract_of(module)
            manager = _manager(module)
            faults = _misspelt_hooks(manager)
        except PluginError as error:
            complain(source, str(error))
            continue
        except FOREIGN as error:
            complain(source, f"could not be loaded: {cause(error)}")
            continue
        for fault in faults:
            complain(source, fault)
        plugins.append(Plugin(source, manager, contract))
    return plugins


def builtin_plugin(kind: Kind) -> Plugin:
    """Treekit's own components of one kind, met as those of any plugin."""
    module = importlib.import_module(kind.builtin)
    return Plugin(Source("built-in", "treekit", __version__), _manager(module))


def _entry_points(complain: Complain) -> Iterator[tuple[Source, metadata.EntryPoint]]:
    """Entry points of the group, one distribution at a time.

    `importlib.metadata.entry_points` would fail as a whole on one malformed file.
    """
    seen = set()
    for distribution in metadata.distributions():
        text = distribution.read_text("entry_points.txt") or ""
        if f"[{GROUP}]" not in text:
            continue
        name, version = _identity(distribution)
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in seen:  # the first on sys.path is the one that imports
            continue
        seen.add(key)
        try:
            for entry_point in distribution.entry_points.select(group=GROUP):
                yield Source(entry_point.name, name, version), entry_point
        except (TypeError, ValueError, AttributeError) as error:
            complain(Source("?", name, version), f"has a malformed entry_points.txt: {error}")


def _identity(distribution: metadata.Distribution) -> tuple[str, str]:
    """Name and version; a broken installation may lack either."""
    try:
        name, version = distribution.metadata["Name"], distribution.metadata["Version"]
    except (TypeError, KeyError):
        name, version = "", ""
    return name or "an unnamed distribution", version or "of unknown version"


def _manager(plugin: object) -> pluggy.PluginManager:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin)
    return manager


def _misspelt_hooks(manager: pluggy.PluginManager) -> list[str]:
    """Hooks of a plugin that treekit would never call."""
    known = ", ".join(kind.hook for kind in KINDS.values())
    (plugin,) = manager.get_plugins()
    callers = {caller.name: caller for caller in manager.get_hookcallers(plugin) or []}
    faults = [
        f"implements {name}, which is not a hook of treekit; hooks: {known}"
        for name, caller in callers.items()
        if not caller.has_spec()
    ]
    faults += [
        f"defines {kind.hook} without @treekit.hookimpl above it"
        for kind in KINDS.values()
        if kind.hook not in callers and callable(getattr(plugin, kind.hook, None))
    ]
    if not callers and not faults:
        faults.append(f"implements none of the hooks {known}")
    return faults
