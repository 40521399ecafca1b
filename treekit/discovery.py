"""Discovery of plugins and their components.

Each plugin is loaded in isolation: a failure names the plugin and does not affect others.
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
    "CONTRACT_ATTRIBUTE",
    "ENTRY_POINT_GROUP",
    "FOREIGN_ERRORS",
    "OLDEST_CONTRACT",
    "Component",
    "Plugin",
    "Source",
    "adapt_functions",
    "builtin_plugin",
    "call_isolated",
    "describe_error",
    "find_plugins",
    "read_contract_version",
    "read_maker_contract",
]


# ---------------------------------------------------------------- discovery

ENTRY_POINT_GROUP = "treekit"
"""The entry-point group of plugins."""


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
        ``"criterion"``, ``"splitter"``, ``"pruner"``, ``"exporter"`` or ``"importer"``.
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
        # Not called through pluggy, which drops a None: the result of a hook without `return`
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
                self._add_record(record, kind, found, complain)
        return found

    def _add_record(
        self, record: object, kind: Kind, to: list[Component], complain: Complain
    ) -> None:
        try:
            check_record(record, kind)
        except PluginError as error:
            complain(self.source, f"has an invalid record: {error}")
            return
        except FOREIGN_ERRORS as error:  # a field of a type whose comparison fails
            complain(self.source, f"has a record that cannot be checked: {describe_error(error)}")
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
            complain(source, f"has two {kind.hook[8:]} named {new.name!r}; the second is ignored")
            return
        to.append(new)


def find_plugins(complain: Complain) -> list[Plugin]:
    """Import every plugin of the entry-point group, sorted by distribution and name."""
    plugins = []
    for source, entry_point in sorted(
        _iterate_entry_points(complain), key=lambda found: str(found[0])
    ):
        try:
            module = call_isolated(str(source), entry_point.load)
            contract = read_contract_version(module)
            manager = _make_manager(module)
            faults = _find_misspelt_hooks(manager)
        except PluginError as error:
            complain(source, str(error))
            continue
        except FOREIGN_ERRORS as error:
            complain(source, f"could not be loaded: {describe_error(error)}")
            continue
        for fault in faults:
            complain(source, fault)
        plugins.append(Plugin(source, manager, contract))
    return plugins


def builtin_plugin(kind: Kind) -> Plugin:
    """Return treekit's own components of one kind as a plugin."""
    module = importlib.import_module(kind.builtin)
    return Plugin(Source("built-in", "treekit", __version__), _make_manager(module))


def _iterate_entry_points(complain: Complain) -> Iterator[tuple[Source, metadata.EntryPoint]]:
    """Generate the entry points of the group, one distribution at a time.

    `importlib.metadata.entry_points` would fail completely on one malformed file.
    """
    seen = set()
    for distribution in metadata.distributions():
        text = distribution.read_text("entry_points.txt") or ""
        if f"[{ENTRY_POINT_GROUP}]" not in text:
            continue
        name, version = _read_identity(distribution)
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in seen:  # the first on sys.path is the one that imports
            continue
        seen.add(key)
        try:
            for entry_point in distribution.entry_points.select(group=ENTRY_POINT_GROUP):
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


# ---------------------------------------------------------------- compatibility
# Only this part of treekit handles plugins of older contracts; the promises of each version
# are in `treekit.contracts`.

CONTRACT_ATTRIBUTE = "treekit_contract"
"""Attribute of a plugin's module: the contract version that it was written for."""

OLDEST_CONTRACT = 1
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
    if version > CONTRACT_VERSION:
        raise PluginError(
            f"was written for version {version} of the contract, but this treekit supports "
            f"versions up to {CONTRACT_VERSION}; upgrade treekit"
        )
    if version < OLDEST_CONTRACT:
        raise PluginError(
            f"was written for version {version} of the contract, but this treekit supports "
            f"versions {OLDEST_CONTRACT} to {CONTRACT_VERSION}; update the plugin"
        )
    return version


def read_maker_contract(make: Callable[..., Any]) -> int:
    """Return the contract version of the module of `make`, for records without a plugin."""
    return read_contract_version(sys.modules.get(getattr(make, "__module__", None) or ""))


def adapt_functions(functions: Any, contract: int) -> tuple[Any, str]:
    """Adapt the result of ``make`` to the current contract.

    Parameters
    ----------
    functions : object
        Not checked yet: objects that need no adapting are returned unchanged.
    contract : int
        The version that its plugin was written for.

    Returns
    -------
    functions : object
    note : str
        The obsolete feature that was used, and its replacement, as the end of a
        sentence; empty if there is none.
    """
    if contract < 2 and isinstance(functions, CriterionFunctions):
        return _adapt_choose(functions)
    return functions, ""


def _adapt_choose(functions: CriterionFunctions) -> tuple[CriterionFunctions, str]:
    """Adapt contract 1, in which `choose` could take two arguments."""
    if not _takes_two_arguments(functions.choose):
        return functions, ""
    note = (
        "has a choose with two arguments, as in version 1 of the contract; write "
        "choose(gains, scores, levels), and treekit_contract = 2 in the plugin's module"
    )
    return replace(functions, choose=_ignoring_levels(functions.choose)), note


def _takes_two_arguments(function: Any) -> bool:
    """Return whether a function can be called with two positional arguments, but not three."""
    if not callable(function):
        return False
    try:
        signature = inspect.signature(getattr(function, "py_func", function))
    except (TypeError, ValueError):  # some C functions have no signature
        return False
    return _can_bind(signature, 2) and not _can_bind(signature, 3)


def _can_bind(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def _ignoring_levels(choose: Any) -> Callable[..., int]:
    def of_three(gains: Any, scores: Any, levels: Any) -> int:  # noqa: ARG001 - what is new in 2
        result: int = choose(gains, scores)
        return result

    # In the plugin's package, so that numba also compiles the functions that it calls.
    of_three.__module__ = getattr(choose, "__module__", None) or __name__
    return of_three


# ---------------------------------------------------------------- isolation
# Calls of third-party functions.
#
# Isolated is everything that could affect other components or end the process: exceptions,
# ``sys.exit``, NumPy's error state, and the working directory, from which relative
# paths are resolved.  A plugin may print, seed NumPy's global generator, and set warning
# filters like any imported library; treekit does not depend on them.  A plugin that
# never returns, or crashes the interpreter, cannot be stopped in the same process.

R = TypeVar("R")

FOREIGN_ERRORS = (Exception, SystemExit)
"""Exceptions that are the fault of third-party code: all but an interruption."""


def call_isolated(who: str, function: Callable[..., R], /, *arguments: Any, **settings: Any) -> R:
    """Return ``function(*arguments, **settings)``, called in its own context and directory.

    Parameters
    ----------
    who : str
        Owner of the function, for a warning if it changes the working directory.

    Raises
    ------
    Exception, SystemExit
        Exceptions of the function; `FOREIGN` catches them.
    """
    before = _find_working_directory()
    try:
        # NumPy and decimal store their error handling in context variables.
        return contextvars.copy_context().run(function, *arguments, **settings)
    finally:
        if before is not None and _find_working_directory() != before:
            os.chdir(before)
            warnings.warn(
                f"{who} changed the working directory; it was restored",
                TreekitWarning,
                stacklevel=3,
            )


def describe_error(error: BaseException) -> str:
    """Return an exception as ``Type: message``, even if its ``__str__`` fails."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception class of third-party code
        return name
    return f"{name}: {text}" if text else name


def _find_working_directory() -> Path | None:
    with contextlib.suppress(OSError):  # it may have been deleted
        return Path.cwd()
    return None
