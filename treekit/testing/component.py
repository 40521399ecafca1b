"""A component to be checked: found by name or given as a record, and made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from treekit import registry
from treekit.contracts import Layout
from treekit.errors import PluginError
from treekit.record_checks import KINDS, kind_of
from treekit.settings import resolve
from treekit.testing.report import Breach, Law, Report, Verdict

__all__ = ["MAKES", "WELL_FORMED", "Opened", "opened"]

WELL_FORMED = Law(
    "record-is-well-formed",
    "The record says what its kind of component has to say.",
    "the record that the hook lists, and `treekit.contracts`",
)
MAKES = Law(
    "makes-its-functions",
    "`make(**settings)` returns the functions that the contract names.",
    "the record's `make`",
)


@dataclass(frozen=True)
class Opened:
    """A component under its settings.

    Attributes
    ----------
    record : Criterion, Splitter, Pruner, Exporter or Importer
    functions : object
        What ``make`` returned; None for kinds that have no ``make``, and where
        the report holds a breach already.
    settings : dict
        Every setting's value.
    report : Report
        Still without the verdicts of the laws, but for a record or a ``make``
        that is no good.
    """

    record: Any
    functions: Any
    settings: dict[str, Any]
    report: Report

    @property
    def usable(self) -> bool:
        """Whether there is anything to judge."""
        return self.report.ok


def opened(
    kind: str,
    wanted: Any,
    settings: Mapping[str, Any] | None,
    strict: bool,
    ground: Callable[[Any, dict[str, Any]], tuple[dict[str, Any], Layout | None]] | None = None,
) -> Opened:
    """Find a component and call its ``make``.

    Parameters
    ----------
    kind : str
        ``"criterion"``, ``"splitter"``, ``"pruner"``, ``"exporter"`` or ``"importer"``.
    wanted : str or record
    settings : mapping or None
        Its own settings; the others take their defaults.
    strict : bool
        See `Report`.
    ground : callable, optional
        ``ground(record, settings)``: more settings, and the layout of a task.

    Raises
    ------
    SettingError
        For a name that is not installed, or a setting that the component
        does not have: mistakes of the caller, no breach.
    """
    given = dict(settings or {})
    if isinstance(wanted, str):
        record = getattr(registry, kind)(wanted)
    else:
        record = wanted
        try:
            getattr(registry, kind)(wanted)
        except PluginError as error:
            name = str(getattr(record, "name", record))
            report = Report(kind, name, settings=given, strict=strict)
            return Opened(record, None, given, _failed(report, WELL_FORMED, error))
    owner = registry.origin(record)
    origin = " ".join(owner[key] for key in ("distribution", "version")).strip()
    report = Report(kind, record.name, origin, given, strict)
    report = report.with_verdicts([Verdict(WELL_FORMED, "holds")])
    if "make" not in dict(KINDS[kind].callables):
        where = f"{kind_of(record).name} {record.name!r}"
        return Opened(record, None, resolve(record.settings, given, where), report)
    layout = None
    try:
        if ground is not None:
            given, layout = ground(record, given)
        functions, made = registry.make(record, given, layout)
    except PluginError as error:
        return Opened(record, None, given, _failed(report, MAKES, error))
    return Opened(record, functions, made, report.with_verdicts([Verdict(MAKES, "holds")]))


def _failed(report: Report, law: Law, error: Exception) -> Report:
    breach = Breach(law, report.title, str(error), law.sentence, law.look)
    return report.with_verdicts([Verdict(law, "broken", "", breach)])
