"""Conformance checks for authors of plugins.

>>> from treekit.testing import check_criterion
>>> def test_criterion_passes_the_contract_checks():
...     check_criterion("hellinger")

Each check takes an installed name or a record and raises `ConformanceError`,
an AssertionError that lists every broken law, the smallest example found and
what to look at; ``fail=False`` returns the `Report` instead.  The same from
the command line: ``treekit plugin check NAME``.  A law that cannot hold for
a component by its nature is declared in its record: ``exempt={"law": "why"}``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from treekit import registry
from treekit.contracts import (
    Criterion,
    Document,
    Explainer,
    Exporter,
    Importer,
    Pruner,
    Simplifier,
    Splitter,
)
from treekit.errors import PluginError
from treekit.registry.kinds import KINDS
from treekit.testing.check_criterion import CRITERION_LAWS, make_criterion_subject
from treekit.testing.check_exporter import EXPORTER_LAWS, RunFunction, make_exporter_subject
from treekit.testing.check_importer import IMPORTER_LAWS, ImporterSubject, PredictFunction
from treekit.testing.check_pruner import PRUNER_LAWS, make_pruner_subject
from treekit.testing.check_rule_plugins import DOCUMENT_LAWS, EXPLAINER_LAWS, SIMPLIFIER_LAWS
from treekit.testing.check_splitter import SPLITTER_LAWS, make_splitter_subject
from treekit.testing.laws import MAKES, WELL_FORMED, Laws, Subject, judge_laws
from treekit.testing.report import Breach, ConformanceError, Law, Report, Verdict

__all__ = [
    "Breach",
    "ConformanceError",
    "Law",
    "Report",
    "Verdict",
    "check",
    "check_criterion",
    "check_document",
    "check_explainer",
    "check_exporter",
    "check_importer",
    "check_pruner",
    "check_simplifier",
    "check_splitter",
]

_KINDS: dict[str, tuple[Callable[..., Subject], Sequence[Laws]]] = {
    "criterion": (make_criterion_subject, CRITERION_LAWS),
    "splitter": (make_splitter_subject, SPLITTER_LAWS),
    "pruner": (make_pruner_subject, PRUNER_LAWS),
    "exporter": (make_exporter_subject, [EXPORTER_LAWS]),
    "importer": (ImporterSubject, [IMPORTER_LAWS]),
    "document": (Subject, [DOCUMENT_LAWS]),
    "simplifier": (Subject, [SIMPLIFIER_LAWS]),
    "explainer": (Subject, [EXPLAINER_LAWS]),
}
"""What makes the component under test of record, settings and options, and the stages of laws."""

Settings = Mapping[str, Any] | None


def check(
    kind: str,
    component: Any,
    settings: Settings = None,
    *,
    strict: bool = False,
    fail: bool = True,
    **options: Any,
) -> Report:
    """Check that a component satisfies the laws of its contract.

    Parameters
    ----------
    kind : str
        ``"criterion"``, ``"splitter"``, ``"pruner"``, ``"exporter"``, ``"importer"``,
        ``"document"``, ``"simplifier"`` or ``"explainer"``.
    component : str or record
        An installed name, or a record.
    settings : mapping, optional
        The component's own settings; the others take their defaults.
    strict : bool
        Treat a law that is declared broken, but holds, as a breach.
    fail : bool
        Raise for a breach; False: return the report in any case.
    **options
        Those of `check_criterion`, `check_exporter` and `check_importer`.

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
    report = _judge_component(kind, component, dict(settings or {}), strict, options)
    return report.settled(fail=fail)


def _judge_component(
    kind: str, component: Any, settings: dict[str, Any], strict: bool, options: dict[str, Any]
) -> Report:
    try:
        record = registry.get(kind, component)
    except PluginError as error:
        if isinstance(component, str):
            raise
        name = str(getattr(component, "name", component))
        return _add_breach(Report(kind, name, "", settings, strict), WELL_FORMED, error)
    owner = registry.origin(record)
    origin = f"{owner['distribution']} {owner['version']}".strip()
    report = Report(kind, record.name, origin, settings, strict, (Verdict(WELL_FORMED, "holds"),))
    try:
        if "make" not in dict(KINDS[kind].callables):
            settings = registry.settings_of(record, settings)
        make_subject, stages = _KINDS[kind]
        subject = make_subject(record, settings, **options)
    except PluginError as error:
        return _add_breach(report, MAKES, error)
    made = [] if subject.functions is None else [Verdict(MAKES, "holds")]
    report = report.with_verdicts([*made, *judge_laws(subject, stages)])
    return report.with_facts(subject.measure()) if report.ok else report


def _add_breach(report: Report, law: Law, error: Exception) -> Report:
    breach = Breach(law, report.title, str(error), law.sentence, law.look)
    return report.with_verdicts([Verdict(law, "broken", "", breach)])


def check_criterion(
    criterion: str | Criterion,
    settings: Settings = None,
    *,
    rows: Mapping[str, Sequence[Any]] | None = None,
    **options: bool,
) -> Report:
    """Check a criterion; see `check`.

    Parameters
    ----------
    criterion : str or Criterion
    settings : mapping, optional
    rows : mapping of str to sequence, optional
        For a `Task` that cannot be judged by generated tables: about 30 rows of
        its target, ``y``, and of its columns, by role.
    **options
        `strict` and `fail`.

    Examples
    --------
    >>> from treekit.testing import check_criterion
    >>> check_criterion("gini").ok
    True
    """
    return check("criterion", criterion, settings, rows=rows, **options)


def check_splitter(splitter: str | Splitter, settings: Settings = None, **options: bool) -> Report:
    """Check a splitter; see `check`.

    Its ``find`` is called as plain Python on nodes of small tables, and trees
    for classification and regression are grown with it.
    """
    return check("splitter", splitter, settings, **options)


def check_pruner(pruner: str | Pruner, settings: Settings = None, **options: bool) -> Report:
    """Check a pruner; see `check`.

    Its ``before`` is called as plain Python on the statistics of small splits,
    its ``after`` on trees grown for it, and trees are trained with it.
    """
    return check("pruner", pruner, settings, **options)


def check_exporter(
    exporter: str | Exporter,
    settings: Settings = None,
    *,
    run: RunFunction | None = None,
    **options: bool,
) -> Report:
    """Check an exporter on models of every kind; see `check`.

    Parameters
    ----------
    exporter : str or Exporter
    settings : mapping, optional
    run : callable, optional
        ``run(path, schema, rows)`` executes the main file at `path` and
        returns one prediction a row: ``(labels, numbers)``, or None where the row
        is refused.  `rows` are lists of cells in the order of
        ``schema.columns``: numbers, texts of categories, None for a missing
        value.  `labels` has one label for each of ``schema.outputs`` (none for
        a regression), `numbers` the probabilities of all their classes, or the
        predicted numbers, one output after the other.  Without it, files
        are run by the exporter's runner, or by that of `treekit.verify` for its suffix.
    **options
        `strict` and `fail`.
    """
    return check("exporter", exporter, settings, run=run, **options)


def check_importer(
    importer: str | Importer,
    settings: Settings = None,
    *,
    sources: Sequence[Any] = (),
    predict: PredictFunction | None = None,
    missing: bool = True,
    **options: bool,
) -> Report:
    """Check an importer; see `check`.

    Parameters
    ----------
    importer : str or Importer
    settings : mapping, optional
    sources : sequence
        Fitted objects, or paths of files, that it reads: small ones of every
        kind.  Copies of the files are damaged in various ways.  Without
        sources, only the treatment of foreign objects is tested.
    predict : callable, optional
        ``predict(source, schema, rows)`` returns the predictions of the source
        itself, a label or a number a row (for several outputs a list of them).
        `rows` are lists of cells in the order of ``schema.columns``: numbers, texts
        of categories, None for a missing value.
    missing : bool
        Whether these rows contain missing and unseen values, if the model
        accepts them; False for a source whose own library does not.
    **options
        `strict` and `fail`.
    """
    options["missing"] = missing
    return check("importer", importer, settings, sources=sources, predict=predict, **options)


def check_document(document: str | Document, settings: Settings = None, **options: bool) -> Report:
    """Check a document form; see `check`."""
    return check("document", document, settings, **options)


def check_simplifier(
    simplifier: str | Simplifier, settings: Settings = None, **options: bool
) -> Report:
    """Check a simplifier; see `check`."""
    return check("simplifier", simplifier, settings, **options)


def check_explainer(
    explainer: str | Explainer, settings: Settings = None, **options: bool
) -> Report:
    """Check an explainer; see `check`."""
    return check("explainer", explainer, settings, **options)
