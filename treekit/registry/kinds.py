"""Kinds of components, and the checks of their records and functions."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from treekit.contracts import (
    Criterion,
    CriterionExtras,
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
from treekit.errors import PluginError, SettingError
from treekit.hookspecs import PROJECT
from treekit.settings import check_declaration

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
        than the packages that implement them; imported on first use.  Empty if plugins alone
        have this kind.
    callables : tuple of (str, int)
        Callable attributes of the record, each with its number of positional
        arguments; the last one also takes the settings by keyword.
    """

    name: str
    record: type[Any]
    hook: str
    builtin: str
    callables: tuple[tuple[str, int], ...] = (("make", 0),)

    @property
    def group(self) -> str:
        """The entry-point group of plugins of this kind, such as ``treekit.criteria``."""
        return f"{PROJECT}.{self.hook.removeprefix(f'{PROJECT}_')}"


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("criterion", Criterion, "treekit_criteria", "treekit.components.criteria"),
        Kind("splitter", Splitter, "treekit_splitters", "treekit.components.splitters"),
        Kind("pruner", Pruner, "treekit_pruners", "treekit.components.pruners"),
        Kind(
            "exporter", Exporter, "treekit_exporters", "treekit.export.languages", (("export", 2),)
        ),
        Kind(
            "importer",
            Importer,
            "treekit_importers",
            "treekit.interop.sklearn",
            (("recognises", 1), ("read", 1)),
        ),
        Kind("document", Document, "treekit_documents", "treekit.documents", (("render", 1),)),
        Kind("simplifier", Simplifier, "treekit_simplifiers", "", (("simplify", 3),)),
        Kind("explainer", Explainer, "treekit_explainers", "", (("explain", 1),)),
    )
}


_KINDS_BY_RECORD = {kind.record: kind for kind in KINDS.values()}

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
    own = _KINDS_BY_RECORD.get(type(record))
    return own or next(kind for kind in KINDS.values() if isinstance(record, kind.record))


def check_record(record: Any, kind: Kind) -> None:
    """Raise `PluginError` unless `record` is a well-formed record of `kind`.

    Checked: type, name (letters, digits, ``_``, ``-`` and ``.``, in any
    script), task, suffix, settings and their defaults, exempt laws, and that
    the function that takes the settings accepts them.
    """
    lists = f"{kind.hook} lists treekit.{kind.record.__name__} records"
    _require(isinstance(record, kind.record), f"{lists}, not {_describe_type(record)}")
    name, suffix = record.name, getattr(record, "suffix", ".x")
    rule = "is not a word of letters, digits, '_', '-' and '.'"
    _require(_is_name(name), f"{kind.name} name {name!r} {rule}")
    where = f"{kind.name} {name!r}"
    _check_task(getattr(record, "task", "classification"), kind, where)
    if isinstance(record, Criterion) and record.classes is not None:
        _require(
            record.task == "classification" and record.classes in range(2, 1001),
            f"{where} has classes {record.classes!r}; it must be a number of at least 2, of a "
            "classification criterion",
        )
    _require(
        isinstance(suffix, str) and suffix[:1] in (".", "/") and "/" not in suffix[1:],
        f"{where} has suffix {suffix!r}; it must be a dot and a file ending, or, for a folder "
        "of files, a slash and the name of the main file",
    )
    got = _describe_type(record.summary)
    _require(isinstance(record.summary, str), f"{where} has summary {got}; it must be a str")
    _check_settings(list_settings(record), where, _RESERVED_SETTINGS.get(type(record), ()))
    _check_exempt(record.exempt, where)
    for attribute, arguments in kind.callables:
        settings = record.settings if attribute == kind.callables[-1][0] else ()
        if attribute == "make" and find_custom_task(record):
            arguments += 1  # noqa: PLW2901 - the layout
        _check_callable(getattr(record, attribute), attribute, arguments, settings, where)
    if isinstance(record, Exporter) and record.runner is not None:
        _check_callable(record.runner, "runner", 0, (), where)


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise PluginError(rule)


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
    known = ", ".join(tasks)
    _require(isinstance(task, Task), f"{where} has task {task!r}; known: {known}, a treekit.Task")
    name = task.name
    is_new = _is_name(name) and name not in tasks
    _require(is_new, f"{where} has a task named {name!r}; the name must be one word")
    where = f"task {name!r} of {where}"
    for attribute in ("target", "answers"):
        value = getattr(task, attribute)
        _require(value in tasks, f"{attribute} of {where} is {value!r}; known: {known}")
    _require(
        task.answers == "regression" or task.target == "classification",
        f"{where} predicts classes, but its target is a number; set target='classification', or "
        "answers='regression'",
    )
    _check_settings(task.settings, where)
    texts = {setting.name for setting in task.settings if isinstance(setting.default, str)}
    _require(
        isinstance(task.columns, tuple) and texts.issuperset(task.columns),
        f"columns of {where} are {task.columns!r}; they must be names of its settings whose "
        "default is a str, the name of a column",
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


_RESULTS: dict[type, type] = {
    Criterion: CriterionFunctions,
    Splitter: SplitterFunctions,
    Pruner: PrunerFunctions,
}
"""Results of ``make``."""


def check_functions(functions: Any, record: Record, where: str = "") -> None:
    """Raise `PluginError` unless `functions` is a valid result of ``record.make``.

    `where` names the component and its origin.
    """
    where = where or f"{find_kind(record).name} {record.name!r}"
    expected = _RESULTS[type(record)]
    got = f"make of {where} returned {_describe_type(functions)}"
    _require(isinstance(functions, expected), f"{got}, not a treekit.{expected.__name__}")
    given = vars(functions)
    if isinstance(functions, CriterionFunctions):
        extras: Any = functions.extras
        got = f"extras of {where} are {_describe_type(extras)}"
        _require(isinstance(extras, CriterionExtras), f"{got}, not a treekit.CriterionExtras")
        given = given | vars(extras)
    for name, value in given.items():
        if name in _N_ARGUMENTS and (value is not None or name == "find"):
            _check_callable(value, name, _N_ARGUMENTS[name], (), where)
    problem = _find_problem(functions, getattr(record, "task", ""))
    _require(not problem, f"{where} {problem}")


def _find_problem(functions: Any, task: str | Task) -> str:
    """Return what is wrong with functions of the right types, or an empty text."""
    if isinstance(functions, CriterionFunctions):
        return _find_criterion_problem(functions) or _find_statistics_problem(functions, task)
    if isinstance(functions, SplitterFunctions):
        if functions.coding not in ("exact", "histogram"):
            return f"has coding {functions.coding!r}; known: exact, histogram"
        intervals: object = functions.intervals
        if not isinstance(intervals, bool):
            return f"has intervals {intervals!r}; it must be True or False"
        if functions.sums is True and functions.coding != "exact":
            return "splits on sums of columns, which needs coding='exact'"
    elif functions.before is None and functions.after is None:
        return "gives neither before nor after; a pruner needs one of them"
    elif functions.holdout is not None and not _is_number(functions.holdout, below=1.0):
        return f"has holdout {functions.holdout!r}; it must be a share from 0 to below 1"
    return ""


def _find_criterion_problem(functions: Any) -> str:
    if functions.impurity is None and functions.score is None:
        return "defines neither impurity nor score; a criterion needs one of them"
    extras = functions.extras
    if extras.choose and not (functions.impurity and functions.score):
        return "defines choose, which needs both impurity and score"
    if not _is_number(extras.tolerance, below=math.inf):
        return f"has tolerance {extras.tolerance!r}; it must be a number >= 0"
    if not isinstance(extras.levels_by_score, bool):
        return f"has levels_by_score {extras.levels_by_score!r}; it must be True or False"
    if extras.levels_by_score and not extras.choose:
        return "has levels_by_score, which needs choose; without it the score decides anyway"
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
        if functions.extras.penalty is not None:
            return "has a penalty, which Ranks do not support"
        if not 0.0 < statistics.quantile < 1.0:
            return f"has the quantile {statistics.quantile!r}; it must be between 0 and 1"
        if functions.impurity is None and functions.loss is None:
            return "has Ranks, but neither impurity nor loss, which pruners need"
    return ""


def _is_number(value: Any, below: float) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and 0.0 <= value < below


def _is_name(name: Any) -> bool:
    # An identifier holds no space, "=", quote or control character, so that a
    # name can be typed after --criterion and printed anywhere.
    is_short = isinstance(name, str) and len(name) <= 64
    return is_short and name.replace("-", "_").replace(".", "_").isidentifier()


def _check_settings(settings: Any, where: str, taken: tuple[str, ...] = ()) -> None:
    are_records = isinstance(settings, tuple) and all(isinstance(s, Setting) for s in settings)
    _require(are_records, f"settings of {where} must be a tuple of treekit.Setting records")
    try:
        for setting in settings:
            check_declaration(setting)
    except SettingError as error:
        raise PluginError(f"{where}: {error}") from error
    for name, times in Counter(setting.name for setting in settings).items():
        _require(times == 1, f"{where} declares setting {name!r} twice")
        rule = f"{where} declares setting {name!r}, which is an argument of treekit; rename it"
        _require(name not in taken, rule)


def _check_exempt(exempt: Any, where: str) -> None:
    got = f"exempt of {where} is {_describe_type(exempt)}"
    _require(isinstance(exempt, Mapping), f"{got}; it must be a mapping of law names to reasons")
    for law, reason in exempt.items():
        _require(
            isinstance(law, str) and isinstance(reason, str) and law != "" and reason.strip() != "",
            f"exempt of {where} has {law!r}: {reason!r}; give a law and the reason why it cannot "
            "hold",
        )


def _check_callable(
    function: Any, attribute: str, arguments: int, settings: tuple[Setting, ...], where: str
) -> None:
    whose, got = f"{attribute!r} of {where}", _describe_type(function)
    _require(callable(function), f"{whose} is {got}, not a function")
    mismatch = _find_mismatch(function, arguments, settings)
    _require(not mismatch, f"{whose} has the wrong parameters: {mismatch}")


def _find_mismatch(function: Any, arguments: int, settings: tuple[Setting, ...] = ()) -> str:
    """Return why a function does not take these arguments, or an empty text."""
    core = getattr(function, "py_func", function)
    if isinstance(core, FunctionType) and not settings and not hasattr(core, "__wrapped__"):
        code = core.__code__
        if code.co_argcount == arguments and not code.co_kwonlyargcount:
            return ""  # the usual case; `inspect.signature` is slow
    try:
        signature = inspect.signature(core)
    except (TypeError, ValueError):  # some C functions have no signature
        return ""
    try:
        signature.bind(*[None] * arguments, **{setting.name: None for setting in settings})
    except TypeError as error:
        return str(error)
    return ""


def _describe_type(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
