"""Settings and components that do not go together, refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treekit.contracts import CriterionFunctions, Ranks
from treekit.contracts import Task as OwnTask
from treekit.data.dataset import Dataset
from treekit.data.schema import Schema
from treekit.errors import SettingError
from treekit.records import task_of
from treekit.training.part import PARTS, Part
from treekit.training.settings import SETTINGS

__all__ = ["check_component_settings", "check_pruner", "check_together"]

_DEFAULT_TREES = next(setting.default for setting in SETTINGS if setting.name == "trees")


def check_together(
    settings: Mapping[str, Any], given: Mapping[str, Any], criterion: Part, dataset: Dataset
) -> None:
    """Refuse what does not go together, or not with the target."""
    task = dataset.schema.task
    own = task_of(criterion.record)
    if own is not None:
        _check_task(settings, given, criterion, own)
    elif criterion.record.task != task:
        raise SettingError(
            f"criterion {criterion.record.name!r}{_chosen_by(settings, given)} is for "
            f"{criterion.record.task}, but the target {dataset.schema.target!r} is a {task} "
            "target; choose another criterion or set task"
        )
    if dataset.schema.more:
        _check_several(criterion, _chosen_by(settings, given))
    if settings["ensemble"] == "tree" and given.get("trees", _DEFAULT_TREES) != _DEFAULT_TREES:
        raise SettingError("trees is given, but one tree is trained; set ensemble='forest'")
    if settings["numeric_side"] == "c45" and (task != "classification" or dataset.schema.more):
        given_target = "there are several targets" if dataset.schema.more else "it is a number"
        raise SettingError(
            f"numeric_side='c45' counts the classes of one target, but {given_target}; set "
            "numeric_side='leaf'"
        )
    if settings["voting"] == "hard" and (own.answers if own else task) != "classification":
        raise SettingError(
            "voting='hard' is for classes, but the target is a number; set voting='soft'"
        )
    _check_max_samples(settings, given)


def _check_task(
    settings: Mapping[str, Any], given: Mapping[str, Any], criterion: Part, task: OwnTask
) -> None:
    """Refuse what counts classes of the target, where a task counts in cells of its own."""
    refused: dict[str, Any] = {"monotonic": None, "numeric_side": "leaf"}
    if task.answers == "regression":
        refused |= {"class_weight": None, "priors": None, "costs": None}
    wrong = [name for name, plain in refused.items() if settings[name] != plain]
    if task.answers == "regression" and given.get("oob"):
        refused["oob"], wrong = False, [*wrong, "oob"]
    if wrong:
        raise SettingError(
            f"{wrong[0]} is set, but criterion {criterion.record.name!r} is for {task.name}, which "
            f"it is not defined for; set {wrong[0]}={refused[wrong[0]]!r}"
        )


def _check_same_task(criterion: Part, pruner: Part) -> None:
    """Refuse a pruner of one task beside a criterion of another."""
    task, only = task_of(criterion.record), pruner.record.task
    own = isinstance(only, OwnTask)
    if (own and only != task) or (only is not None and not own and task is not None):
        known = task.name if task is not None else criterion.record.task
        also = f"a criterion for {only.name}, or " if own else ""
        raise SettingError(
            f"pruner {pruner.record.name!r} is for {only.name if own else only}, but criterion "
            f"{criterion.record.name!r} is for {known}; choose {also}another pruner, such as "
            "cost_complexity"
        )


def _check_several(criterion: Part, by: str) -> None:
    """Refuse, for several targets, a criterion whose answers for each cannot be averaged."""
    functions: CriterionFunctions = criterion.functions
    if functions.choose is not None:
        why = "chooses between columns by the figures of one"
    elif isinstance(functions.statistics, Ranks):
        why = "looks at the order of one"
    else:
        return
    others = "squared_error" if criterion.record.task == "regression" else "gini or entropy"
    raise SettingError(
        f"criterion {criterion.record.name!r}{by} {why}, but there are several targets; choose "
        f"{others}, or train a model for each"
    )


def _check_max_samples(settings: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    wanted = settings["max_samples"]
    if wanted is None:
        return
    drawn = settings["ensemble"] == "forest" and settings["bootstrap"]
    if not drawn and given.get("max_samples") is not None:
        raise SettingError(
            "max_samples is given, but no rows are drawn; set ensemble='forest' and bootstrap=True"
        )
    if not 0 < wanted <= (1.0 if isinstance(wanted, float) else wanted):
        raise SettingError(
            f"max_samples is {wanted}; give a number of rows, or a share above 0.0 and at most 1.0"
        )


def check_pruner(criterion: Part, pruner: Part, schema: Schema, *, costs: bool) -> None:
    """Refuse a pruner that cannot judge this criterion, these targets or costs."""
    _check_same_task(criterion, pruner)
    if costs and not pruner.record.costs:
        raise SettingError(
            f"pruner {pruner.record.name!r} does not judge by what mistakes cost; prune by "
            "cost_complexity, reduced_error or error_based, or leave costs out"
        )
    only = None if isinstance(pruner.record.task, OwnTask) else pruner.record.task
    if schema.more and not only and pruner.functions.before is not None:
        raise SettingError(
            f"pruner {pruner.record.name!r} stops splits by the statistics of one target, but "
            "there are several; choose another pruner, such as cost_complexity"
        )
    if only not in (None, schema.task) or (only and schema.more):
        given = (
            "there are several" if schema.more else f"{schema.target!r} is a {schema.task} target"
        )
        raise SettingError(
            f"pruner {pruner.record.name!r} is for one target of {only}, but {given}; choose "
            "another pruner, such as cost_complexity"
        )


def check_component_settings(given: Mapping[str, Any], pruner: Part | None) -> None:
    """Refuse settings of components that there are not."""
    for key in given:
        if "." in key and key.partition(".")[0] not in PARTS:
            raise SettingError(
                f"unknown setting {key!r}; a component's own settings begin with "
                "'criterion.', 'splitter.' or 'pruner.'"
            )
        if key.startswith("pruner.") and pruner is None:
            raise SettingError(f"{key!r} is given but no pruner is chosen; set pruner=NAME")


def _chosen_by(settings: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    algorithm = settings["algorithm"]
    return "" if algorithm is None or given.get("criterion") else f" of algorithm {algorithm!r}"
