"""Registry of components: resolves names to records.

Components come from treekit itself and from plugins, through the same hooks.
A broken plugin does not affect the others: a `TreekitWarning` names plugin,
distribution, version and cause.  Strict discovery, by
`configure`, ``--strict-plugins`` or ``TREEKIT_STRICT_PLUGINS=1``, raises
`PluginError` instead.
"""

from __future__ import annotations

import builtins
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar, overload

from treekit.contracts import (
    Criterion,
    Document,
    Explainer,
    Exporter,
    Importer,
    Layout,
    Pruner,
    Simplifier,
    Splitter,
)
from treekit.errors import PluginError, SettingError, TreekitError, TreekitWarning
from treekit.registry.discovery import (
    Component,
    Declaration,
    Plugin,
    Source,
    builtin_plugin,
    find_declarations,
    load_plugin,
)
from treekit.registry.isolation import FOREIGN_ERRORS, call_isolated, describe_error
from treekit.registry.kinds import (
    KINDS,
    Kind,
    Record,
    check_functions,
    check_record,
    find_custom_task,
    find_kind,
    list_settings,
)
from treekit.settings import resolve, suggestion

__all__ = [
    "Catalogue",
    "Component",
    "Host",
    "call",
    "components",
    "configure",
    "described",
    "explain_absence",
    "faults",
    "get",
    "is_foreign",
    "list",
    "make",
    "origin",
    "settings_of",
]


# ---------------------------------------------------------------- registry

_ABSENT_PLUGINS = {
    ("criterion", "fairness"): "treekit-fairness",
    ("criterion", "hellinger"): "treekit-hellinger",
    ("criterion", "log_rank"): "treekit-survival",
    ("criterion", "relative_risk"): "treekit-survival",
    ("criterion", "uplift"): "treekit-uplift",
    ("splitter", "chaid"): "treekit-chaid",
    ("splitter", "random_threshold"): "treekit-random-threshold",
    ("pruner", "relabel"): "treekit-fairness",
    ("pruner", "significance"): "treekit-significance",
    ("exporter", "sql"): "treekit-sql",
    ("exporter", "treelite"): "treekit-interchange",
    ("exporter", "zig"): "treekit-zig",
    ("document", "dmn"): "treekit-interchange",
    ("document", "pmml"): "treekit-interchange",
    ("document", "pmml-rules"): "treekit-interchange",
    ("document", "sql"): "treekit-sql",
    ("document", "sql-duckdb"): "treekit-sql",
    ("document", "sql-postgres"): "treekit-sql",
    ("document", "overlaps"): "treekit-audit",
    ("document", "drift"): "treekit-audit",
    **{
        ("document", name): "treekit-plot"
        for name in ("svg", "dot", "importances", "roc", "calibration", "pruning-path")
    },
    ("importer", "catboost"): "treekit-importers",
    ("importer", "lightgbm"): "treekit-importers",
    ("importer", "onnx"): "treekit-importers",
    ("importer", "skops"): "treekit-importers",
    ("importer", "xgboost"): "treekit-importers",
    ("importer", "ydf"): "treekit-importers",
    ("simplifier", "c45rules"): "treekit-rule-learning",
    ("simplifier", "sirus"): "treekit-rule-learning",
    ("simplifier", "rulefit"): "treekit-rule-learning",
    ("explainer", "counterfactuals"): "treekit-counterfactuals",
}
"""Distributions of treekit's own plugins, for messages that name the one to install."""
T = TypeVar("T")


_host: Host | None = None


def configure(*, strict: bool | None = None) -> None:
    """Discard discovered components, and set how faulty plugins are treated from now on.

    Parameters
    ----------
    strict : bool, optional
        True: a faulty plugin raises `PluginError`.  None: use the environment
        variable ``TREEKIT_STRICT_PLUGINS`` (``1`` is strict).
    """
    global _host  # noqa: PLW0603 - the one registry of the process
    if strict is None:
        strict = os.environ.get("TREEKIT_STRICT_PLUGINS", "") not in ("", "0")
    _host = Host(strict)


def _get_host() -> Host:
    if _host is None:
        configure()
    assert _host is not None  # noqa: S101 - for the type checker
    return _host


@overload
def get(kind: Literal["criterion"], wanted: str | Criterion) -> Criterion: ...
@overload
def get(kind: Literal["splitter"], wanted: str | Splitter) -> Splitter: ...
@overload
def get(kind: Literal["pruner"], wanted: str | Pruner) -> Pruner: ...
@overload
def get(kind: Literal["exporter"], wanted: str | Exporter) -> Exporter: ...
@overload
def get(kind: Literal["importer"], wanted: str | Importer) -> Importer: ...
@overload
def get(kind: Literal["document"], wanted: str | Document) -> Document: ...
@overload
def get(kind: Literal["simplifier"], wanted: str | Simplifier) -> Simplifier: ...
@overload
def get(kind: Literal["explainer"], wanted: str | Explainer) -> Explainer: ...
@overload
def get(kind: str, wanted: Any) -> Any: ...
def get(kind: str, wanted: Any) -> Any:
    """Return the record of a kind, such as a `Criterion`, by its name.

    Parameters
    ----------
    kind : str
        Such as ``"criterion"``, see `treekit.registry.kinds.KINDS`.
    wanted : str, Criterion, Splitter, ...
        A name; a record itself is checked and returned unchanged.

    Raises
    ------
    SettingError
        If there is no such kind, or no installed component has that name.
    PluginError
        If two plugins provide it, or a given record is malformed.
    """
    record_type = _get_kind(kind).record
    if isinstance(wanted, record_type):
        if _find_component(wanted) is None:  # others were checked when they were found
            check_record(wanted, _get_kind(kind))
        return wanted
    if not isinstance(wanted, str):
        raise SettingError(
            f"expected the name of a {kind} or a treekit.{record_type.__name__}, "
            f"got {type(wanted).__name__}"
        )
    host = _get_host()
    own = host.own(_get_kind(kind))
    if wanted in own and not host.strict:  # no plugin can replace it: none is imported
        return own[wanted].record
    catalogue = list(kind)
    if wanted in catalogue:
        return catalogue[wanted].record
    if absence := explain_absence(kind, wanted):
        raise SettingError(absence)
    faults = host.faults
    left_out = f"; left out: {'; '.join(faults)}" if faults else ""
    by_suffix = {getattr(part.record, "suffix", ""): part.name for part in catalogue.found}
    same = [by_suffix[end] for end in by_suffix if len(wanted) > 1 and end.endswith(wanted)]
    near = f"; did you mean {same[0]!r}?" if same else suggestion(wanted, catalogue)
    raise SettingError(
        f"unknown {kind} {wanted!r}; installed: {', '.join(catalogue) or 'none'}{near}{left_out}"
    )


def list(kind: str) -> Catalogue:  # noqa: A001 - read as registry.list
    """Return a mapping from name to `Component` of all that are installed of a kind."""
    return _get_host().catalogue(_get_kind(kind))


def _get_kind(kind: str) -> Kind:
    if kind not in KINDS:
        raise SettingError(f"unknown kind of component {kind!r}; known: {', '.join(KINDS)}")
    return KINDS[kind]


def explain_absence(kind: str, name: str) -> str:
    """Return a message that names the plugin of a component that is not installed, or ``""``."""
    plugin = _ABSENT_PLUGINS.get((kind, name))
    if plugin is None or name in list(kind):
        return ""
    return (
        f"{kind} {name!r} is in the plugin {plugin}, which is not installed; run "
        f"pip install {plugin}, or in treekit's repository pip install ./plugins/{plugin}"
    )


def components(kind: str | None = None) -> tuple[Component, ...]:
    """Return all components, of one kind or of all, including those with clashing names."""
    kinds = KINDS if kind is None else (kind,)
    return tuple(component for name in kinds for component in list(name).found)


def faults() -> tuple[str, ...]:
    """Return what was left out so far and why, one sentence each; call `components` first."""
    return tuple(_get_host().faults)


def origin(record: Record) -> dict[str, str]:
    """Return the origin of a record as plain values, for a model's provenance.

    Returns
    -------
    dict
        ``kind``, ``name``, ``plugin``, ``distribution`` and ``version``; the
        last three are empty for a record that no installed plugin provides.
    """
    found = _find_component(record)
    return {
        "kind": find_kind(record).name,
        "name": record.name,
        "plugin": found.plugin if found else "",
        "distribution": found.distribution if found else "",
        "version": found.version if found else "",
    }


def described(record: Record) -> str:
    """Return a component's name for messages: ``criterion 'x' (from treekit-survival 0.1.0)``."""
    found, where = _find_component(record), f"{find_kind(record).name} {record.name!r}"
    return f"{where} (from {found.distribution} {found.version})" if found else where


def is_foreign(record: Record) -> bool:
    """Return whether a record is not one of treekit's own components."""
    found = _find_component(record)
    return found is None or found.distribution != "treekit"


def _find_component(record: Record) -> Component | None:
    """Return the component of this record object, or None if no plugin provides it."""
    kind = find_kind(record)
    own = _get_host().own(kind).by_record.get(id(record))
    return own or list(kind.name).by_record.get(id(record))


def make(
    record: Criterion | Splitter | Pruner, given: Mapping[str, Any], layout: Layout | None = None
) -> tuple[Any, dict[str, Any]]:
    """Return the functions of a record for given settings.

    Parameters
    ----------
    record : Criterion, Splitter or Pruner
    given : mapping
        Settings by name; the others take their defaults.
    layout : Layout, optional
        Layout of a criterion's `Task`.

    Returns
    -------
    functions : CriterionFunctions, SplitterFunctions or PrunerFunctions
    settings : dict
        Every setting's value.

    Raises
    ------
    SettingError
        For an unknown setting or a value outside its declaration.
    PluginError
        If ``record.make`` fails, or returns something else.
    """
    settings = settings_of(record, given)
    key = id(record), *((type(value), value) for value in settings.values())
    if layout is None and key in _own_functions:
        return _own_functions[key], settings
    own = {setting.name: settings[setting.name] for setting in record.settings}
    first = () if find_custom_task(record) is None else (layout,)
    who = described(record)
    try:
        functions = call_isolated(who, record.make, *first, **own)
    except SettingError:
        raise
    except FOREIGN_ERRORS as error:
        raise PluginError(
            f"{who} failed in make with settings {own}: {describe_error(error)}"
        ) from error
    check_functions(functions, record, who)
    if layout is None and not is_foreign(record):
        _own_functions[key] = functions
    return functions, settings


_own_functions: dict[tuple[Any, ...], Any] = {}
"""Functions of treekit's own records, which are module constants, by record and settings."""


def settings_of(record: Record, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all settings of a component, its task's included; see `make`."""
    return resolve(list_settings(record), given, f"{find_kind(record).name} {record.name!r}")


def call(record: Record, function: Callable[..., T], *arguments: Any, **settings: Any) -> T:
    """Return ``function(*arguments, **settings)``, a function of `record`.

    Raises
    ------
    TreekitError
        As the function raises it.
    PluginError
        If the function of a plugin raises another error.
    """
    if not is_foreign(record):
        return function(*arguments, **settings)
    who = described(record)
    try:
        return call_isolated(who, function, *arguments, **settings)
    except TreekitError:
        raise
    except FOREIGN_ERRORS as error:
        raise PluginError(f"{who} failed: {describe_error(error)}") from error


# ---------------------------------------------------------------- catalogue


class Catalogue(Mapping[str, Component]):
    """Components of one kind by name.

    A name that two plugins provide is listed, and looking it up raises
    `PluginError`; all other names work.
    """

    def __init__(self, kind: Kind, found: Iterable[Component]) -> None:
        self.kind = kind
        self.found = tuple(sorted(found, key=lambda c: (c.name, c.distribution)))
        self.by_record = {id(component.record): component for component in self.found}
        self._offers: dict[str, builtins.list[Component]] = {}
        for component in self.found:
            self._offers.setdefault(component.name, []).append(component)

    def __getitem__(self, name: str) -> Component:
        first, *others = self._offers[name]
        if others:
            owners = [str(Source(o.plugin, o.distribution, o.version)) for o in (first, *others)]
            raise PluginError(
                f"{self.kind.name} {name!r} is provided by {' and by '.join(owners)}; "
                "uninstall one of them"
            )
        return first

    def __iter__(self) -> Iterator[str]:
        return iter(self._offers)

    def __len__(self) -> int:
        return len(self._offers)

    def __contains__(self, name: object) -> bool:
        return name in self._offers


class Host:
    """Discovered components.

    The plugins of a kind are imported when it is first asked for something that treekit itself
    does not have; if strict, all plugins then.
    """

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.faults: builtins.list[str] = []
        self._declared: builtins.list[Declaration] | None = None
        self._plugins: dict[Declaration, Plugin | None] = {}
        self._own: dict[str, Catalogue] = {}
        self._catalogues: dict[str, Catalogue] = {}
        # Reentrant: a plugin may use the registry while it is imported.
        self._lock = threading.RLock()

    def own(self, kind: Kind) -> Catalogue:
        """Return treekit's own components of one kind."""
        with self._lock:
            if kind.name not in self._own:
                own: builtins.list[Component] = []
                if kind.builtin:
                    own = builtin_plugin(kind).list_components(kind, _raise_fault)
                self._own[kind.name] = Catalogue(kind, own)
            return self._own[kind.name]

    def catalogue(self, kind: Kind) -> Catalogue:
        """Return all components of one kind."""
        with self._lock:
            if kind.name not in self._catalogues:
                self._catalogues[kind.name] = self._discover_kind(kind)
            return self._catalogues[kind.name]

    def _discover_kind(self, kind: Kind) -> Catalogue:
        own = self.own(kind)
        found = [*own.found]
        for plugin in self._load_plugins(kind):
            for component in plugin.list_components(kind, self._report_plugin_fault):
                if component.name in own:  # plugins cannot replace treekit's own components
                    self._report_plugin_fault(
                        plugin.source,
                        f"provides {kind.name} {component.name!r}, the name of treekit's own; "
                        "its author must rename it",
                    )
                else:
                    found.append(component)
        catalogue = Catalogue(kind, found)
        if self.strict:
            dict(catalogue)  # a clash raises
        return catalogue

    def _load_plugins(self, kind: Kind) -> Iterator[Plugin]:
        """Generate the plugins that may have components of a kind."""
        if self._declared is None:
            self._declared = find_declarations(self._report_plugin_fault)
        for declared in self._declared:
            concerned = declared.has_kind(kind)
            if (concerned or self.strict) and declared not in self._plugins:
                self._plugins[declared] = load_plugin(declared, self._report_plugin_fault)
            plugin = self._plugins.get(declared)
            if concerned and plugin is not None:
                yield plugin

    def _report_plugin_fault(self, source: Source, what: str) -> None:
        fault = f"{source} {what}"
        if self.strict:
            raise PluginError(fault)
        self.faults.append(fault)
        warning = f"{fault}. treekit ignores it; to silence this warning, update or uninstall "
        warnings.warn(f"{warning}{source.distribution}", TreekitWarning, stacklevel=2)


def _raise_fault(source: Source, what: str) -> None:
    raise PluginError(f"{source} {what}")
