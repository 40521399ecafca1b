"""Discovery of plugins and their components, and checks of their records.

Each plugin is loaded in isolation: a failure names the plugin and does not affect others.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import inspect
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import pluggy

from treekit import hookspecs
from treekit._version import __version__
from treekit.contracts import (
    CONTRACT_VERSION,
    Criterion,
    CriterionFunctions,
    Document,
    Explainer,
    Exporter,
    Importer,
    Pruner,
    PrunerFunctions,
    Ranks,
    Setting,
    Simplifier,
    Splitter,
    SplitterFunctions,
    Sums,
    Task,
)
from treekit.errors import PluginError, SettingError, TreekitWarning
from treekit.settings import check_declaration

# ---------------------------------------------------------------- checks of records


Record = Criterion | Splitter | Pruner | Exporter | Importer | Document | Simplifier | Explainer
Functions = CriterionFunctions | SplitterFunctions | PrunerFunctions


@dataclass(frozen=True)
class Kind:
    """One of the kinds of component.

    Attributes
    ----------
    name : str
        As in messages: ``"criterion"``.
    record : type
    hook : str
        The hook that returns records of this kind.
    builtin : str
        Module of treekit's own components: a name, because the registry is a lower layer
        than the packages that implement them; imported on first use.
    callables : tuple of (str, int)
        Callable attributes of the record, each with its number of positional
        arguments; that of `settings_go_to` also takes the settings by keyword.
    settings_go_to : str
    """

    name: str
    record: type[Any]
    hook: str
    builtin: str
    callables: tuple[tuple[str, int], ...] = (("make", 0),)
    settings_go_to: str = "make"


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("criterion", Criterion, "treekit_criteria", "treekit.components.criteria"),
        Kind("splitter", Splitter, "treekit_splitters", "treekit.components.splitters"),
        Kind("pruner", Pruner, "treekit_pruners", "treekit.components.pruners"),
        Kind(
            "exporter",
            Exporter,
            "treekit_exporters",
            "treekit.export.builtin",
            (("export", 2),),
            "export",
        ),
        Kind(
            "importer",
            Importer,
            "treekit_importers",
            "treekit.interop.builtin",
            (("recognises", 1), ("read", 1)),
            "read",
        ),
        Kind(
            "document",
            Document,
            "treekit_documents",
            "treekit.documents",
            (("render", 1),),
            "render",
        ),
        Kind(
            "simplifier",
            Simplifier,
            "treekit_simplifiers",
            "treekit.rule_learning",
            (("simplify", 3),),
            "simplify",
        ),
        Kind(
            "explainer",
            Explainer,
            "treekit_explainers",
            "treekit.explain",
            (("explain", 1),),
            "explain",
        ),
    )
}


_RESERVED_SETTINGS: dict[type, tuple[str, ...]] = {
    Exporter: ("model", "target", "path"),
    Importer: ("source",),
    Document: ("source", "path", "form", "language", "table", "tree", "title", "table_name"),
    Simplifier: ("model", "table", "test"),
    Explainer: ("model", "row", "tree", "table"),
}
"""Arguments of the functions that take these settings, such as `treekit.export`; reserved names."""


def find_kind(record: Record) -> Kind:
    """Return the kind of a record."""
    return next(kind for kind in KINDS.values() if isinstance(record, kind.record))


def check_record(record: Any, kind: Kind) -> None:
    """Raise `PluginError` unless `record` is a well-formed record of `kind`.

    Checked: type, name (letters, digits, ``_``, ``-`` and ``.``, in any
    script), task, suffix, settings and their defaults, exempt laws, and that
    the function that takes the settings accepts them.
    """
    if not isinstance(record, kind.record):
        raise PluginError(
            f"{kind.hook} lists treekit.{kind.record.__name__} records, not "
            f"{_describe_type(record)}"
        )
    name: object = record.name
    if not isinstance(name, str) or not _is_name(name):
        raise PluginError(
            f"{kind.name} name {name!r} is not a word of letters, digits, '_', '-' and '.'"
        )
    where = f"{kind.name} {name!r}"
    _check_task(getattr(record, "task", "classification"), kind, where)
    suffix = getattr(record, "suffix", ".x")
    if not isinstance(suffix, str) or suffix[:1] not in (".", "/") or "/" in suffix[1:]:
        raise PluginError(
            f"{where} has suffix {suffix!r}; it must be a dot and a file ending, or, for a folder "
            "of files, a slash and the name of the main file"
        )
    summary: Any = record.summary
    if not isinstance(summary, str):
        raise PluginError(f"{where} has summary {_describe_type(summary)}; it must be a str")
    _check_settings(list_settings(record), where, _RESERVED_SETTINGS.get(type(record), ()))
    _check_exempt(record.exempt, where)
    for attribute, arguments in kind.callables:
        settings = record.settings if attribute == kind.settings_go_to else ()
        if attribute == "make" and find_custom_task(record):
            arguments += 1  # noqa: PLW2901 - the layout
        _check_callable(getattr(record, attribute), attribute, arguments, settings, where)


def find_custom_task(record: Any) -> Task | None:
    """Return the custom task of a criterion, or None for classification and regression."""
    if not isinstance(record, Criterion) or not isinstance(record.task, Task):
        return None
    return record.task


def list_settings(record: Record) -> tuple[Setting, ...]:
    """Return all settings of a component: those of its task, then its own."""
    task = find_custom_task(record)
    return record.settings if task is None else (*task.settings, *record.settings)


def _check_task(task: Any, kind: Kind, where: str) -> None:
    tasks = ("classification", "regression")
    if task in tasks or (task is None and kind.name == "pruner"):
        return
    if not isinstance(task, Task):
        raise PluginError(f"{where} has task {task!r}; known: {', '.join(tasks)}, a treekit.Task")
    name: object = task.name
    if not isinstance(name, str) or str(name) in tasks or not _is_name(name):
        raise PluginError(f"{where} has a task named {task.name!r}; the name must be one word")
    where = f"task {task.name!r} of {where}"
    for attribute in ("target", "answers"):
        if getattr(task, attribute) not in tasks:
            raise PluginError(
                f"{attribute} of {where} is {getattr(task, attribute)!r}; known: {', '.join(tasks)}"
            )
    if task.answers == "classification" and task.target != "classification":
        raise PluginError(
            f"{where} predicts classes, but its target is a number; set target='classification', "
            "or answers='regression'"
        )
    _check_settings(task.settings, where)
    texts = {setting.name for setting in task.settings if isinstance(setting.default, str)}
    columns: object = task.columns
    if not isinstance(columns, tuple) or not texts.issuperset(columns):
        raise PluginError(
            f"columns of {where} are {task.columns!r}; they must be names of its settings whose "
            "default is a str, the name of a column"
        )
    own = tuple(setting for setting in task.settings if setting.name not in task.columns)
    _check_callable(task.lay_out, "lay_out", 2, own, where)


_N_ARGUMENTS = {
    "impurity": 1,
    "score": 2,
    "choose": 3,
    "penalty": 2,
    "order": 1,
    "leaf_value": 1,
    "priority": 1,
    "loss": 2,
    "find": 3,
    "before": 4,
    "after": 2,
}
"""Fields that are functions, with their number of positional arguments."""


def check_functions(functions: Any, record: Record, where: str = "") -> None:
    """Raise `PluginError` unless `functions` is a valid result of ``record.make``.

    `where` names the component and its origin.
    """
    where = where or f"{find_kind(record).name} {record.name!r}"
    expected: Any = {
        Criterion: CriterionFunctions,
        Splitter: SplitterFunctions,
        Pruner: PrunerFunctions,
    }[type(record)]
    if not isinstance(functions, expected):
        raise PluginError(
            f"make of {where} returned {_describe_type(functions)}, not a "
            f"treekit.{expected.__name__}"
        )
    for name, value in vars(functions).items():
        if name in _N_ARGUMENTS and (value is not None or name == "find"):
            _check_callable(value, name, _N_ARGUMENTS[name], (), where)
    problem = _find_problem(functions)
    if isinstance(functions, CriterionFunctions) and not problem:
        problem = _find_statistics_problem(functions, getattr(record, "task", ""))
    if problem:
        raise PluginError(f"{where} {problem}")


def _find_problem(functions: Functions) -> str:
    """Return what is wrong with functions of the right types, or an empty text."""
    if isinstance(functions, CriterionFunctions):
        if functions.impurity is None and functions.score is None:
            return "defines neither impurity nor score; a criterion needs one of them"
        if functions.choose and not (functions.impurity and functions.score):
            return "defines choose, which needs both impurity and score"
        tolerance: Any = functions.tolerance
        if not (isinstance(tolerance, int | float) and 0.0 <= tolerance < math.inf):
            return f"has tolerance {tolerance!r}; it must be a number >= 0"
        by_score: Any = functions.levels_by_score
        if not isinstance(by_score, bool):
            return f"has levels_by_score {by_score!r}; it must be True or False"
        if by_score and not functions.choose:
            return "has levels_by_score, which needs choose; without it the score decides anyway"
    elif isinstance(functions, SplitterFunctions):
        return _find_splitter_problem(functions)
    elif functions.before is None and functions.after is None:
        return "gives neither before nor after; a pruner needs one of them"
    elif functions.holdout is not None and not _is_share(functions.holdout):
        return f"has holdout {functions.holdout!r}; it must be a share from 0 to below 1"
    return ""


def _find_splitter_problem(functions: SplitterFunctions) -> str:
    """Return what is wrong with a splitter's functions, or an empty text."""
    intervals: Any = functions.intervals
    if functions.coding not in ("exact", "histogram"):
        return f"has coding {functions.coding!r}; known: exact, histogram"
    if not isinstance(intervals, bool):
        return f"has intervals {intervals!r}; it must be True or False"
    if functions.sums is True and functions.coding != "exact":
        return "splits on sums of columns, which needs coding='exact'"
    return ""


def _find_statistics_problem(functions: CriterionFunctions, task: str | Task) -> str:
    """Return what is wrong with the statistics of a criterion, or an empty text."""
    statistics: Any = functions.statistics
    if not isinstance(statistics, Sums | Ranks):
        return f"has statistics {_describe_type(statistics)}; known: treekit.Sums, treekit.Ranks"
    if isinstance(task, Task):
        if statistics != Sums() or functions.leaf_value is not None:
            return (
                f"is for the task {task.name!r}, whose layout defines statistics and leaf values; "
                "leave out statistics and leaf_value"
            )
        if functions.loss is not None and task.answers == "classification":
            return "gives a loss, but predicts classes, which are judged by misclassification"
        return ""
    if task == "classification" and (statistics != Sums() or functions.loss is not None):
        return (
            "is for classification, whose statistics are the weights of the classes; leave out "
            "statistics and loss"
        )
    if isinstance(statistics, Ranks):
        if functions.penalty is not None:
            return "has a penalty, which Ranks do not support"
        if not 0.0 < statistics.quantile < 1.0:
            return f"has the quantile {statistics.quantile!r}; it must be between 0 and 1"
        if functions.impurity is None and functions.loss is None:
            return "has Ranks, but neither impurity nor loss, which pruners need"
    return ""


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value < 1.0


def _is_name(name: str) -> bool:
    # An identifier holds no space, "=", quote or control character, so that a
    # name can be typed after --criterion and printed anywhere.
    return len(name) <= 64 and name.replace("-", "_").replace(".", "_").isidentifier()


def _check_settings(settings: Any, where: str, taken: tuple[str, ...] = ()) -> None:
    if not isinstance(settings, tuple) or not all(isinstance(s, Setting) for s in settings):
        raise PluginError(f"settings of {where} must be a tuple of treekit.Setting records")
    try:
        for setting in settings:
            check_declaration(setting)
    except SettingError as error:
        raise PluginError(f"{where}: {error}") from error
    names = [setting.name for setting in settings]
    if twice := [name for name in names if names.count(name) > 1]:
        raise PluginError(f"{where} declares setting {twice[0]!r} twice")
    if own := [name for name in names if name in taken]:
        raise PluginError(
            f"{where} declares setting {own[0]!r}, which is an argument of treekit; rename it"
        )


def _check_exempt(exempt: Any, where: str) -> None:
    if not isinstance(exempt, Mapping):
        raise PluginError(
            f"exempt of {where} is {_describe_type(exempt)}; it must be a mapping of law names to "
            "reasons"
        )
    for law, reason in exempt.items():
        if not (isinstance(law, str) and isinstance(reason, str) and law and reason.strip()):
            raise PluginError(
                f"exempt of {where} has {law!r}: {reason!r}; give a law and the reason why it "
                "cannot hold"
            )


def _check_callable(
    function: Callable[..., Any],
    attribute: str,
    arguments: int,
    settings: tuple[Setting, ...],
    where: str,
) -> None:
    if not callable(function):
        raise PluginError(f"{attribute!r} of {where} is {_describe_type(function)}, not a function")
    try:
        signature = inspect.signature(getattr(function, "py_func", function))
    except (TypeError, ValueError):  # some C functions have no signature
        return
    try:
        signature.bind(*[None] * arguments, **{setting.name: None for setting in settings})
    except TypeError as error:
        raise PluginError(f"{attribute!r} of {where} has the wrong parameters: {error}") from error


def _describe_type(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


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
    """Adapt a criterion of contract 1, in which `choose` could take two arguments."""
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
