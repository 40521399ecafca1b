"""Finding plugins and asking them what they provide.

Every plugin is met alone: whatever goes wrong in one is told by its name and
costs the others nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import pluggy

from treekit import hookspecs
from treekit._version import __version__
from treekit.contracts import CONTRACT_VERSION, CriterionFunctions
from treekit.errors import PluginError, TreekitWarning
from treekit.record_checks import KINDS, Kind, Record, check_record

__all__ = [
    "ATTRIBUTE",
    "FOREIGN",
    "GROUP",
    "OLDEST_CONTRACT",
    "Component",
    "Plugin",
    "Source",
    "adapted",
    "builtin_plugin",
    "cause",
    "contract_of",
    "contract_of_maker",
    "find_plugins",
    "isolated",
]


# ---------------------------------------------------------------- discovery

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


# ---------------------------------------------------------------- compatibility
# Plugins of older contracts: the one module that knows what they may look like.
#
# What a version promises, and for how long, is written in `treekit.contracts`.  Here a
# plugin's version is read, and what it makes is brought to the present one.

ATTRIBUTE = "treekit_contract"
"""Of a plugin's module: the version of the contract that it was written for."""

OLDEST_CONTRACT = 1
"""The oldest version that is still adapted, and that of a module that does not say."""


def contract_of(plugin: object) -> int:
    """The version of the contract that a plugin was written for.

    Parameters
    ----------
    plugin : module, or whatever else an entry point names

    Raises
    ------
    PluginError
        If it is no whole number, or one that this treekit does not support; the
        message is the end of a sentence that begins with the plugin.
    """
    said: Any = getattr(plugin, ATTRIBUTE, OLDEST_CONTRACT)
    if type(said) is not int:
        raise PluginError(
            f"has {ATTRIBUTE} = {said!r}, which is no whole number; this treekit's contract "
            f"is {CONTRACT_VERSION}"
        )
    if said > CONTRACT_VERSION:
        raise PluginError(
            f"was written for version {said} of the contract, and this treekit knows versions "
            f"up to {CONTRACT_VERSION}; upgrade treekit"
        )
    if said < OLDEST_CONTRACT:
        raise PluginError(
            f"was written for version {said} of the contract, and this treekit supports "
            f"versions {OLDEST_CONTRACT} to {CONTRACT_VERSION}; update the plugin"
        )
    return said


def contract_of_maker(make: Callable[..., Any]) -> int:
    """The version that the module of a record's `make` says, for records no plugin lists."""
    return contract_of(sys.modules.get(getattr(make, "__module__", None) or ""))


def adapted(functions: Any, contract: int) -> tuple[Any, str]:
    """What ``make`` returned, as the present contract has it.

    Parameters
    ----------
    functions : object
        Not checked yet: anything that needs no adapting is passed through.
    contract : int
        The version that its plugin was written for.

    Returns
    -------
    functions : object
    note : str
        What of an older contract was used, and what to write instead, as the end of a
        sentence; empty if nothing was.
    """
    if contract < 2 and isinstance(functions, CriterionFunctions):
        return _with_levels(functions)
    return functions, ""


def _with_levels(functions: CriterionFunctions) -> tuple[CriterionFunctions, str]:
    """Contract 1: `choose` might take two arguments."""
    if not _takes_two(functions.choose):
        return functions, ""
    note = (
        "gives a choose of two arguments, which is of version 1 of the contract; write "
        "choose(gains, scores, levels), and treekit_contract = 2 in the plugin's module"
    )
    return replace(functions, choose=_ignoring_levels(functions.choose)), note


def _takes_two(function: Any) -> bool:
    """Whether a function can be called with two positional arguments, and not with three."""
    if not callable(function):
        return False
    try:
        signature = inspect.signature(getattr(function, "py_func", function))
    except (TypeError, ValueError):  # some functions written in C do not say
        return False
    return _binds(signature, 2) and not _binds(signature, 3)


def _binds(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def _ignoring_levels(choose: Any) -> Callable[..., int]:
    def of_three(gains: Any, scores: Any, levels: Any) -> int:  # noqa: ARG001 - what is new in 2
        result: int = choose(gains, scores)
        return result

    # Of the plugin's own package, so that numba compiles what it calls along with it.
    of_three.__module__ = getattr(choose, "__module__", None) or __name__
    return of_three


# ---------------------------------------------------------------- isolation
# Calling a stranger's function, so that what it does wrong stays its own.
#
# Isolated is what would change the answers of others, or end the process: exceptions,
# ``sys.exit``, NumPy's error state, and the working directory, from which relative
# paths are read.  A plugin may print, seed NumPy's global generator, and set filters
# of warnings as any imported library may; treekit relies on none of them.  A plugin
# that never returns, or crashes the interpreter, cannot be stopped from within.

R = TypeVar("R")

FOREIGN = (Exception, SystemExit)
"""What a stranger's code may raise that is its fault: all but an interruption."""


def isolated(who: str, function: Callable[..., R], /, *arguments: Any, **settings: Any) -> R:
    """``function(*arguments, **settings)``, in a context and a folder of its own.

    Parameters
    ----------
    who : str
        Whose function it is, for a warning if it leaves another working directory.

    Raises
    ------
    Exception, SystemExit
        Whatever the function raises; `FOREIGN` catches it.
    """
    before = _folder()
    try:
        # NumPy and decimal keep how they meet errors in context variables.
        return contextvars.copy_context().run(function, *arguments, **settings)
    finally:
        if before is not None and _folder() != before:
            os.chdir(before)
            warnings.warn(
                f"{who} changed the working directory; it was changed back",
                TreekitWarning,
                stacklevel=3,
            )


def cause(error: BaseException) -> str:
    """An exception as ``Type: message``, whatever its own ``__str__`` does."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a stranger's exception
        return name
    return f"{name}: {text}" if text else name


def _folder() -> Path | None:
    with contextlib.suppress(OSError):  # it may have been deleted
        return Path.cwd()
    return None
