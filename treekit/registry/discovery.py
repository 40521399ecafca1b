"""Discovery of plugins and their components.

A plugin is an entry point of a group that names the kind of its components, such as
``treekit.criteria``: its module is imported when components of that kind are first needed.  The
group ``treekit`` stands for all kinds.  Each plugin is loaded in isolation: a failure names the
plugin and does not affect others.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import pluggy

from treekit import hookspecs
from treekit._version import __version__
from treekit.contracts import (
    CONTRACT_VERSION,
)
from treekit.errors import PluginError
from treekit.registry.isolation import FOREIGN_ERRORS, call_isolated, describe_error
from treekit.registry.kinds import KINDS, Kind, Record, check_record

GENERAL_GROUP = hookspecs.PROJECT
"""The entry-point group of plugins with components of any kind."""

GROUPS = {kind.group: kind for kind in KINDS.values()}
"""The entry-point groups of plugins with components of one kind: ``treekit.criteria``, ..."""


@dataclass(frozen=True)
class Source:
    """Origin of a plugin: an entry point of an installed distribution."""

    plugin: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"plugin {self.plugin!r} of {self.distribution} {self.version}"


@dataclass(frozen=True)
class Component:
    """A record and its origin.

    Attributes
    ----------
    kind : str
        A key of `KINDS`, such as ``"criterion"``.
    record : Record
    plugin, distribution, version : str
        Entry point, and the installed distribution that declares it.
    contract : int
        The contract version that the plugin was written for.
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
"""Callback for faults: the source, and the fault as the end of a sentence."""


@dataclass(frozen=True)
class Declaration:
    """A plugin as its distribution declares it, not yet imported.

    Attributes
    ----------
    source : Source
    entry_point : EntryPoint
        The first one; those of the other groups name the same object.
    groups : frozenset of str
        Its groups: the general one, or some of `GROUPS`.
    """

    source: Source
    entry_point: metadata.EntryPoint
    groups: frozenset[str]

    def has_kind(self, kind: Kind) -> bool:
        """Return whether the plugin may have components of a kind."""
        return GENERAL_GROUP in self.groups or any(GROUPS[g] is kind for g in self.groups)


@dataclass(frozen=True)
class Plugin:
    """A plugin whose module was imported.

    Each has its own hook manager, so that failures can be attributed.
    """

    source: Source
    manager: pluggy.PluginManager
    contract: int = CONTRACT_VERSION

    def list_components(self, kind: Kind, complain: Complain) -> list[Component]:
        """Return the plugin's components of one kind; invalid records are left out."""
        found: list[Component] = []
        # Not called through pluggy, which drops a None: the result of a hook without ``return``
        # must be reported.
        for hook in getattr(self.manager.hook, kind.hook).get_hookimpls():
            try:
                records = call_isolated(str(self.source), hook.function)
            except FOREIGN_ERRORS as error:
                complain(self.source, f"failed in {kind.hook}: {describe_error(error)}")
                continue
            if not isinstance(records, list):
                got = type(records).__name__
                complain(
                    self.source, f"returned {got} from {kind.hook}, expected a list of records"
                )
                continue
            for record in records:
                try:
                    check_record(record, kind)
                except PluginError as error:
                    complain(self.source, f"has an invalid record: {error}")
                except FOREIGN_ERRORS as error:  # a field of a type whose comparison fails
                    fault = f"has a record that cannot be checked: {describe_error(error)}"
                    complain(self.source, fault)
                else:
                    if any(record.name == other.name for other in found):
                        named = f"two {kind.hook[8:]} named {record.name!r}"
                        complain(self.source, f"has {named}; the second is ignored")
                    else:
                        source = asdict(self.source)
                        found.append(Component(kind.name, record, **source, contract=self.contract))
        return found


def find_declarations(complain: Complain) -> list[Declaration]:
    """Return the declared plugins, sorted by distribution and name; imports none of them."""
    groups: dict[tuple[Source, str], set[str]] = {}
    first: dict[tuple[Source, str], metadata.EntryPoint] = {}
    for source, entry_point in _iterate_entry_points(complain):
        group = entry_point.group
        if group != GENERAL_GROUP and group not in GROUPS:
            known = ", ".join((GENERAL_GROUP, *GROUPS))
            complain(source, f"is in {group}, which is not a group of treekit; groups: {known}")
            continue
        key = source, entry_point.value
        first.setdefault(key, entry_point)
        groups.setdefault(key, set()).add(group)
    found = [Declaration(key[0], first[key], frozenset(groups[key])) for key in first]
    return sorted(found, key=lambda declared: str(declared.source))


def load_plugin(declared: Declaration, complain: Complain) -> Plugin | None:
    """Import a declared plugin; None if it is left out."""
    source = declared.source
    try:
        module = call_isolated(str(source), declared.entry_point.load)
        contract = read_contract_version(module)
        manager = _make_manager(module)
        faults = _find_misspelt_hooks(manager) + _find_misplaced_hooks(manager, declared)
    except PluginError as error:
        complain(source, str(error))
        return None
    except FOREIGN_ERRORS as error:
        complain(source, f"could not be loaded: {describe_error(error)}")
        return None
    for fault in faults:
        complain(source, fault)
    return Plugin(source, manager, contract)


def builtin_plugin(kind: Kind) -> Plugin:
    """Return treekit's own components of one kind as a plugin."""
    module = importlib.import_module(kind.builtin)
    return Plugin(Source("built-in", "treekit", __version__), _make_manager(module))


_GROUP_LINE = re.compile(rf"^\[{GENERAL_GROUP}(\.[^\]]*)?\]", re.M)
"""The line of ``entry_points.txt`` that begins a group of treekit, known or misspelt."""


def _iterate_entry_points(complain: Complain) -> Iterator[tuple[Source, metadata.EntryPoint]]:
    """Generate the entry points of treekit's groups, one distribution at a time.

    `importlib.metadata.entry_points` would fail completely on one malformed file.
    """
    seen = set()
    for distribution in metadata.distributions():
        text = distribution.read_text("entry_points.txt") or ""
        if not _GROUP_LINE.search(text):
            continue
        name, version = _read_identity(distribution)
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in seen:  # the first on sys.path is the one that imports
            continue
        seen.add(key)
        try:
            for entry_point in distribution.entry_points:
                if _GROUP_LINE.match(f"[{entry_point.group}]"):
                    yield Source(entry_point.name, name, version), entry_point
        except (TypeError, ValueError, AttributeError) as error:
            complain(Source("?", name, version), f"has a malformed entry_points.txt: {error}")


def _read_identity(distribution: metadata.Distribution) -> tuple[str, str]:
    """Return name and version; a broken installation may lack either."""
    try:
        name, version = distribution.metadata["Name"], distribution.metadata["Version"]
    except (TypeError, KeyError):
        name, version = "", ""
    return name or "an unnamed distribution", version or "of unknown version"


def _make_manager(plugin: object) -> pluggy.PluginManager:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin)
    return manager


def _find_misspelt_hooks(manager: pluggy.PluginManager) -> list[str]:
    """Return faults of a plugin's hooks that treekit would never call."""
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


def _find_misplaced_hooks(manager: pluggy.PluginManager, declared: Declaration) -> list[str]:
    """Return an error for each hook without an entry point, and each entry point without a hook."""
    if GENERAL_GROUP in declared.groups:
        return []
    (plugin,) = manager.get_plugins()
    implemented = {caller.name for caller in manager.get_hookcallers(plugin) or []}
    faults = []
    for group, kind in GROUPS.items():
        if kind.hook in implemented and group not in declared.groups:
            faults.append(
                f"implements {kind.hook}, but has no entry point in {group}; add it to "
                "pyproject.toml and install the package again"
            )
        if group in declared.groups and not hasattr(plugin, kind.hook):
            faults.append(f"has an entry point in {group}, but no hook {kind.hook}")
    return faults


# ---------------------------------------------------------------- compatibility
# The changes of each version are in `treekit.contracts`.

CONTRACT_ATTRIBUTE = "treekit_contract"
"""Attribute of a plugin's module: the contract version that it was written for."""

OLDEST_CONTRACT = 2
"""The oldest supported version, and the default of modules without the attribute."""


def read_contract_version(plugin: object) -> int:
    """Return the contract version that a plugin was written for.

    Parameters
    ----------
    plugin : module, or any other object of an entry point

    Raises
    ------
    PluginError
        If it is not an integer, or not supported by this treekit; the message is the
        end of a sentence that begins with the plugin.
    """
    version: Any = getattr(plugin, CONTRACT_ATTRIBUTE, OLDEST_CONTRACT)
    if type(version) is not int:
        raise PluginError(
            f"has {CONTRACT_ATTRIBUTE} = {version!r}, which is not an integer; this treekit's "
            "contract "
            f"is {CONTRACT_VERSION}"
        )
    if not OLDEST_CONTRACT <= version <= CONTRACT_VERSION:
        remedy = (
            "upgrade treekit"
            if version > CONTRACT_VERSION
            else "update the plugin: choose takes (gains, scores, levels), and its module declares "
            f"{CONTRACT_ATTRIBUTE} = {CONTRACT_VERSION}"
        )
        raise PluginError(
            f"was written for version {version} of the contract, but this treekit supports "
            f"version {CONTRACT_VERSION}; {remedy}"
        )
    return version
