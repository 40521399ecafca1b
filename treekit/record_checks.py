"""Check the records of components.

Records come from third-party packages or a user's own script.  They are checked on
discovery, so that an error names the mistake and is not a traceback from the middle of
training.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from treekit.contracts import (
    Criterion,
    CriterionFunctions,
    Exporter,
    Importer,
    Pruner,
    PrunerFunctions,
    Ranks,
    Setting,
    Splitter,
    SplitterFunctions,
    Sums,
    Task,
)
from treekit.errors import PluginError, SettingError
from treekit.settings import check_declaration

__all__ = [
    "KINDS",
    "Kind",
    "Record",
    "check_functions",
    "check_record",
    "find_custom_task",
    "find_kind",
    "list_settings",
]

Record = Criterion | Splitter | Pruner | Exporter | Importer
Functions = CriterionFunctions | SplitterFunctions | PrunerFunctions


@dataclass(frozen=True)
class Kind:
    """One of the five kinds of component.

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
    )
}


_RESERVED_SETTINGS: dict[type, tuple[str, ...]] = {
    Exporter: ("model", "target", "path"),
    Importer: ("source",),
}
"""Arguments of `treekit.export` and `treekit.read_model`, which settings may not be named like."""


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
        raise PluginError(f"{where} predicts classes, but its target is a number")
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
            return "gives neither impurity nor score; a criterion needs one of them"
        if functions.choose and not (functions.impurity and functions.score):
            return "gives choose, which needs both impurity and score"
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
        raise PluginError(f"settings of {where} are not a tuple of treekit.Setting records")
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
        raise PluginError(f"exempt of {where} is {_describe_type(exempt)}, not a mapping")
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
