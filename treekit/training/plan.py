"""Settings resolved to components and numbers: the edge where names end."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from treekit import registry
from treekit.contracts import (
    Criterion,
    CriterionFunctions,
    Pruner,
    PrunerFunctions,
    Setting,
    Splitter,
    SplitterFunctions,
)
from treekit.data.dataset import Dataset
from treekit.errors import SettingError
from treekit.settings import resolve
from treekit.training.settings import SETTINGS, features_to_try

__all__ = ["EXACT_ROWS", "Part", "Plan", "make_plan"]

EXACT_ROWS = 10_000
"""``splitter="auto"`` is exact up to so many rows and histogram above."""

_DEFAULT_TREES = next(setting.default for setting in SETTINGS if setting.name == "trees")
_PARTS = ("criterion", "splitter", "pruner")


@dataclass(frozen=True)
class Part:
    """A component under its settings.

    Attributes
    ----------
    record : Criterion, Splitter or Pruner
    functions
        What its ``make`` returned.
    settings : dict
    origin : dict
        Kind, name, plugin, distribution and version.
    """

    record: Any
    functions: Any
    settings: dict[str, Any]
    origin: dict[str, str]


@dataclass(frozen=True)
class Plan:
    """All that one training needs to know.

    Attributes
    ----------
    settings : dict
        Every training setting, defaults filled in, ``auto`` decided.
    criterion, splitter : Part
    pruner : Part or None
    n_try : int
        Columns tried at a node.
    """

    settings: dict[str, Any]
    criterion: Part
    splitter: Part
    pruner: Part | None
    n_try: int

    @property
    def recorded(self) -> dict[str, Any]:
        """The settings as plain values for the model's file, components' own included."""
        plain = dict(self.settings)
        del plain["n_jobs"]  # the same forest, and the same file, for any number of threads
        for name in _PARTS:
            part: Part | None = getattr(self, name)
            plain[name] = part.record.name if part else None
            for key, value in (part.settings if part else {}).items():
                plain[f"{name}.{key}"] = value
        return plain

    @property
    def origins(self) -> list[dict[str, str]]:
        """Where each component comes from."""
        parts = [getattr(self, name) for name in _PARTS]
        return [part.origin for part in parts if part]


def make_plan(dataset: Dataset, given: Mapping[str, Any]) -> Plan:
    """Resolve settings and components for a dataset.

    Raises
    ------
    SettingError
        For unknown names and values out of range, or a criterion of another task.
    """
    own = {key: value for key, value in given.items() if "." not in key}
    records = {name: own.pop(name) for name in _PARTS if not isinstance(own.get(name, ""), str)}
    settings = resolve(SETTINGS, own, "training")
    settings |= {name: record for name, record in records.items() if record is not None}
    task = dataset.schema.task
    settings["criterion"] = settings["criterion"] or (
        "gini" if task == "classification" else "squared_error"
    )
    if settings["splitter"] in (None, "auto"):
        settings["splitter"] = "exact" if dataset.n_rows <= EXACT_ROWS else "histogram"
    if settings["ensemble"] == "tree" and settings["trees"] != _DEFAULT_TREES:
        raise SettingError("trees is given, but one tree is trained; set ensemble='forest'")
    if settings["pruner"] == "none":
        settings["pruner"] = None
    if settings["seed"] is None:
        settings["seed"] = secrets.randbits(32)
    criterion = _part("criterion", settings, given)
    if criterion.record.task != task:
        raise SettingError(
            f"criterion {criterion.record.name!r} is for {criterion.record.task}, but the target "
            f"{dataset.schema.target!r} is a {task} target; choose another criterion or set task"
        )
    pruner = _part("pruner", settings, given) if settings["pruner"] is not None else None
    for key in given:
        if "." in key and key.partition(".")[0] not in _PARTS:
            raise SettingError(
                f"unknown setting {key!r}; a component's own settings begin with "
                "'criterion.', 'splitter.' or 'pruner.'"
            )
        if key.startswith("pruner.") and pruner is None:
            raise SettingError(f"{key!r} is given but no pruner is chosen; set pruner=NAME")
    forest = settings["ensemble"] == "forest"
    n_features = dataset.schema.n_features
    n_try = features_to_try(
        settings["max_features"], n_features, forest and task == "classification"
    )
    return Plan(settings, criterion, _part("splitter", settings, given), pruner, n_try)


def component_settings(
    kind: str, wanted: str | Criterion | Splitter | Pruner
) -> tuple[Setting, ...]:
    """The settings that a component declares, for reading ``KEY=VALUE`` texts."""
    resolver: Any = getattr(registry, kind)
    settings: tuple[Setting, ...] = resolver(wanted).settings
    return settings


def _part(kind: str, settings: Mapping[str, Any], given: Mapping[str, Any]) -> Part:
    resolver: Any = getattr(registry, kind)
    record = resolver(settings[kind])
    prefix = f"{kind}."
    wanted = {key[len(prefix) :]: v for key, v in given.items() if key.startswith(prefix)}
    functions: CriterionFunctions | SplitterFunctions | PrunerFunctions
    functions, made = registry.make(record, wanted)
    return Part(record, functions, made, registry.origin(record))
