"""Whether an exporter keeps the laws of its contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treekit.contracts import Exporter
from treekit.testing.artifacts import Run, builtin_run, by_function
from treekit.testing.component import opened
from treekit.testing.exporter_laws import EXPORTER_LAWS, Subject
from treekit.testing.laws import judge
from treekit.testing.report import Report

__all__ = ["check_exporter"]


def check_exporter(
    exporter: str | Exporter,
    settings: Mapping[str, Any] | None = None,
    *,
    run: Run | None = None,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Judge an exporter by the laws of its contract, on models of every sort.

    Parameters
    ----------
    exporter : str or Exporter
        An installed name, or a record.
    settings : mapping, optional
        The exporter's own settings; the others take their defaults.
    run : callable, optional
        ``run(path, schema, rows)`` executes the main file at `path` and
        returns one answer a row: ``(labels, numbers)``, or None where the row
        is refused.  `rows` are lists of cells in the order of
        ``schema.columns``: numbers, texts of categories, None for a missing
        value.  `labels` has one label for each of ``schema.outputs`` (none for
        a regression), `numbers` the probabilities of all their classes, or the
        predicted numbers, one output after the other.  Without it only files
        that `treekit.verify` can run are run.
    strict : bool
        A law that the exporter declares broken, and that holds, is a breach.
    fail : bool
        Raise for a breach; False: return the report whatever it says.

    Returns
    -------
    Report

    Raises
    ------
    ConformanceError
        An AssertionError, whose message shows every breach.
    SettingError
        For a name that is not installed, or an unknown setting.
    """
    found = opened("exporter", exporter, settings, strict)
    if not found.usable:
        return found.report.settled(fail=fail)
    record = found.record
    execute = builtin_run(record.suffix) if run is None else by_function(run)
    subject = Subject(record, found.settings, execute)
    return judge(found.report, subject, EXPORTER_LAWS, record.exempt).settled(fail=fail)
