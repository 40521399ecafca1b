"""Names to components: resolved once, at the edge.

Components come from treekit itself and from plugins, through the same hooks.
One broken plugin never takes the tool down: a `TreekitWarning` names plugin,
distribution, version and cause, and the others work.  Strict discovery, by
`configure`, ``--strict-plugins`` or ``TREEKIT_STRICT_PLUGINS=1``, raises
`PluginError` instead.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from treekit.contracts import Criterion, Exporter, Importer, Layout, Pruner, Splitter
from treekit.discovery import (
    FOREIGN,
    Component,
    Plugin,
    Source,
    adapted,
    builtin_plugin,
    cause,
    contract_of_maker,
    find_plugins,
    isolated,
)
from treekit.errors import PluginError, SettingError, TreekitWarning
from treekit.record_checks import (
    KINDS,
    Kind,
    Record,
    check_functions,
    check_record,
    declared_settings,
    kind_of,
    task_of,
)
from treekit.settings import resolve, suggestion

__all__ = [
    "Catalogue",
    "Component",
    "Host",
    "components",
    "configure",
    "criteria",
    "criterion",
    "described",
    "exporter",
    "exporters",
    "faults",
    "importer",
    "importers",
    "is_foreign",
    "leave_out",
    "make",
    "origin",
    "pruner",
    "pruners",
    "settings_of",
    "splitter",
    "splitters",
]


# ---------------------------------------------------------------- registry

R = TypeVar("R", Criterion, Splitter, Pruner, Exporter, Importer)


_host: Host | None = None
_host_lock = threading.Lock()


def configure(*, strict: bool | None = None) -> None:
    """Forget what was discovered, and set how faults are met from now on.

    Parameters
    ----------
    strict : bool, optional
        True: a faulty plugin raises `PluginError`.  None: as the environment
        variable ``TREEKIT_STRICT_PLUGINS`` says (``1`` is strict).
    """
    global _host  # noqa: PLW0603 - the one registry of the process
    if strict is None:
        strict = os.environ.get("TREEKIT_STRICT_PLUGINS", "") not in ("", "0")
    with _host_lock:
        _host = Host(strict)


def _discovered() -> Host:
    if _host is None:
        configure()
    assert _host is not None  # noqa: S101 - for the type checker
    return _host


def _catalogue(kind: str) -> Catalogue:
    return _discovered().catalogue(KINDS[kind])


def _resolve(record_type: type[R], wanted: str | R) -> R:
    kind = next(kind for kind in KINDS.values() if kind.record is record_type)
    if isinstance(wanted, record_type):
        check_record(wanted, kind)
        return wanted
    if not isinstance(wanted, str):
        raise SettingError(
            f"a {kind.name} is given by name or as a treekit.{record_type.__name__}, "
            f"not as a {type(wanted).__name__}"
        )
    catalogue = _catalogue(kind.name)
    if wanted in catalogue:
        found: R = catalogue[wanted].record  # type: ignore[assignment]  # of this kind
        return found
    faults = _discovered().faults
    left_out = f"; left out: {'; '.join(faults)}" if faults else ""
    raise SettingError(
        f"unknown {kind.name} {wanted!r}; installed: {', '.join(catalogue) or 'none'}"
        f"{suggestion(wanted, catalogue)}{left_out}"
    )


def criterion(wanted: str | Criterion) -> Criterion:
    """The criterion of that name; a record passes through, checked.

    Raises
    ------
    SettingError
        If no installed component has that name.
    PluginError
        If two plugins offer it, or a record passed in is malformed.
    """
    return _resolve(Criterion, wanted)


def splitter(wanted: str | Splitter) -> Splitter:
    """The splitter of that name; as `criterion`."""
    return _resolve(Splitter, wanted)


def pruner(wanted: str | Pruner) -> Pruner:
    """The pruner of that name; as `criterion`."""
    return _resolve(Pruner, wanted)


def exporter(wanted: str | Exporter) -> Exporter:
    """The exporter of that name; as `criterion`."""
    return _resolve(Exporter, wanted)


def importer(wanted: str | Importer) -> Importer:
    """The importer of that name; as `criterion`."""
    return _resolve(Importer, wanted)


def criteria() -> Catalogue:
    """All criteria by name."""
    return _catalogue("criterion")


def splitters() -> Catalogue:
    """All splitters by name."""
    return _catalogue("splitter")


def pruners() -> Catalogue:
    """All pruners by name."""
    return _catalogue("pruner")


def exporters() -> Catalogue:
    """All exporters by name."""
    return _catalogue("exporter")


def importers() -> Catalogue:
    """All importers by name."""
    return _catalogue("importer")


def components(kind: str | None = None) -> tuple[Component, ...]:
    """Every component, of one kind or of all, clashing ones included: for listings."""
    kinds = KINDS if kind is None else (kind,)
    return tuple(component for name in kinds for component in _catalogue(name).found)


def faults() -> tuple[str, ...]:
    """What was left out so far and why, a sentence each: for listings, after `components`."""
    return tuple(_discovered().faults)


def leave_out(what: str) -> None:
    """Note a fault of a part of the user's, such as a folder; for hooks of treekit's own.

    It is told as a plugin's faults are, a `TreekitWarning` and one of `faults`, or
    `PluginError` where discovery is strict, as soon as the hook has returned.
    """
    _discovered().leave_out(what)


def origin(record: Record) -> dict[str, str]:
    """Where a record comes from, as plain values for a model's provenance.

    Returns
    -------
    dict
        ``kind``, ``name``, ``plugin``, ``distribution`` and ``version``; the
        last three are empty for a record that no installed plugin offers.
    """
    found = _listed(record)
    return {
        "kind": kind_of(record).name,
        "name": record.name,
        "plugin": found.plugin if found else "",
        "distribution": found.distribution if found else "",
        "version": found.version if found else "",
    }


def described(record: Record) -> str:
    """A component as messages name it: ``criterion 'log_rank' (from treekit-survival 0.1.0)``."""
    found, where = _listed(record), f"{kind_of(record).name} {record.name!r}"
    return f"{where} (from {found.distribution} {found.version})" if found else where


def is_foreign(record: Record) -> bool:
    """Whether a record is anything but a component of treekit's own."""
    found = _listed(record)
    return found is None or found.distribution != "treekit"


def _listed(record: Record) -> Component | None:
    """The component that an installed plugin lists this very record as."""
    return next((c for c in _catalogue(kind_of(record).name).found if c.record is record), None)


def make(
    record: Criterion | Splitter | Pruner,
    given: Mapping[str, Any],
    layout: Layout | None = None,
) -> tuple[Any, dict[str, Any]]:
    """The functions of a record under settings.

    Parameters
    ----------
    record : Criterion, Splitter or Pruner
    given : mapping
        Settings by name; the others take their defaults.
    layout : Layout, optional
        Of a criterion's `Task`.

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
    own = {setting.name: settings[setting.name] for setting in record.settings}
    first = () if task_of(record) is None else (layout,)
    who, found = described(record), _listed(record)
    try:
        functions = isolated(who, record.make, *first, **own)
    except SettingError:
        raise
    except FOREIGN as error:
        raise PluginError(f"{who} failed in make with {own}: {cause(error)}") from error
    try:
        contract = found.contract if found else contract_of_maker(record.make)
    except PluginError as error:
        raise PluginError(f"{who} {error}") from None
    functions, note = adapted(functions, contract)
    if note and _discovered().first_time(who):
        warnings.warn(f"{who} {note}", TreekitWarning, stacklevel=2)
    check_functions(functions, record, who)
    return functions, settings


def settings_of(record: Criterion | Splitter | Pruner, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting's value of a component, and of its task; see `make`."""
    return resolve(declared_settings(record), given, f"{kind_of(record).name} {record.name!r}")


# ---------------------------------------------------------------- catalogue
# Components by kind and name, discovered when they are first asked for.


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
