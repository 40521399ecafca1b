"""Whether an importer keeps the laws of its contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from treekit.contracts import Importer
from treekit.data.schema import Schema
from treekit.testing.component import opened
from treekit.testing.importer_laws import IMPORTER_LAWS
from treekit.testing.importer_subject import Subject
from treekit.testing.laws import judge
from treekit.testing.report import Report

__all__ = ["check_importer"]

Predict = Callable[[Any, Schema, Sequence[Sequence[float | str | None]]], Sequence[Any]]


def check_importer(
    importer: str | Importer,
    settings: Mapping[str, Any] | None = None,
    *,
    sources: Sequence[Any] = (),
    predict: Predict | None = None,
    missing: bool = True,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Judge an importer by the laws of its contract.

    Parameters
    ----------
    importer : str or Importer
        An installed name, or a record.
    settings : mapping, optional
        The importer's own settings; the others take their defaults.
    sources : sequence
        Fitted objects, or paths of files, that it reads: small ones of every
        sort.  Files are damaged in all sorts of ways, in copies.  Without
        sources only what it does with foreign things is judged.
    predict : callable, optional
        ``predict(source, schema, rows)``: what the source itself answers, a
        label or a number a row (of several outputs a list of them).  `rows`
        are lists of cells in the order of ``schema.columns``: numbers, texts
        of categories, None for a missing value.
    missing : bool
        Whether these rows hold missing and unseen values, as far as the model
        takes them; False for a source whose own library does not.
    strict : bool
        A law that the importer declares broken, and that holds, is a breach.
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
    found = opened("importer", importer, settings, strict)
    if not found.usable:
        return found.report.settled(fail=fail)
    record = found.record
    subject = Subject(record, found.settings, tuple(sources), predict, missing)
    return judge(found.report, subject, IMPORTER_LAWS, record.exempt).settled(fail=fail)
