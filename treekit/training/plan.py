"""Settings resolved to components and numbers: the edge where names end."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.data.schema import Task
from treekit.settings import resolve
from treekit.training.classes import class_weights, keeping_weight, shares
from treekit.training.costs import costs_of_mistakes
from treekit.training.monotonic import monotonic_signs, named_signs, refuse_monotonic
from treekit.training.named import label_names
from treekit.training.part import PARTS, Part, make_part
from treekit.training.presets import PRESETS, preset
from treekit.training.settings import BY_NAME, SETTINGS, check_threads, features_to_try
from treekit.training.together import check_component_settings, check_pruner, check_together

__all__ = ["EXACT_ROWS", "MANY_ROWS", "Plan", "make_plan"]

EXACT_ROWS = 10_000
"""``splitter="auto"`` is exact up to so many rows and histogram above."""


MANY_ROWS = 5_000
"""Rows from which leaves of 5 rows make the better default forest of classes.

By validation on 9 such tables and 11 smaller ones: benchmarks/README.md, "Defaults of forests".
"""


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
    class_weights : (classes,) float64 or None
        Factors of the rows' statistics, which leave the sum of all weight as it is.
    costs : (classes, classes) int64 or None
        ``costs[i][j]``: cost of saying class j when it is i.
    signs : (features,) float64 or None
        Monotonic constraints.
    """

    settings: dict[str, Any]
    criterion: Part
    splitter: Part
    pruner: Part | None
    n_try: int
    class_weights: npt.NDArray[np.float64] | None = None
    costs: npt.NDArray[np.int64] | None = None
    signs: npt.NDArray[np.float64] | None = None

    @property
    def holdout(self) -> float:
        """Share of the rows that the pruner wants held out."""
        return self.pruner.functions.holdout or 0.0 if self.pruner else 0.0

    @property
    def recorded(self) -> dict[str, Any]:
        """The settings as plain values for the model's file, components' own included."""
        plain = dict(self.settings)
        del plain["n_jobs"]  # the same forest, and the same file, for any number of threads
        for name in PARTS:
            part: Part | None = getattr(self, name)
            plain[name] = part.record.name if part else None
            for key, value in (part.settings if part else {}).items():
                plain[f"{name}.{key}"] = value
        return plain

    @property
    def origins(self) -> list[dict[str, str]]:
        """Where each component comes from."""
        parts = [getattr(self, name) for name in PARTS]
        return [part.origin for part in parts if part]


def make_plan(dataset: Dataset, given: Mapping[str, Any]) -> Plan:
    """Resolve settings and components for a dataset.

    Raises
    ------
    SettingError
        For unknown names and values out of range, or a criterion of another task.
    """
    task = dataset.schema.task
    wanted = _with_preset(given, task)
    own = {key: value for key, value in wanted.items() if "." not in key}
    # Records, and mappings of classes or columns: no plain values, so kept aside.
    apart = {name: own.pop(name) for name in PARTS if not isinstance(own.get(name, ""), str)}
    apart |= {name: own.pop(name) for name in BY_NAME if not isinstance(own.get(name, ""), str)}
    settings = resolve(SETTINGS, own, "training")
    settings |= {name: value for name, value in apart.items() if value is not None}
    check_threads(settings["n_jobs"])
    _decide(settings, dataset)
    criterion = make_part("criterion", settings, wanted, dataset)
    check_together(settings, given, criterion, dataset)
    if criterion.layout is not None and criterion.layout.names:
        settings["oob"] = False  # no score compares a vector of answers with the target
    pruner = None
    if settings["pruner"] is not None:
        pruner = make_part("pruner", settings, wanted, dataset)
        check_pruner(criterion, pruner, dataset.schema, costs=settings["costs"] is not None)
    check_component_settings(given, pruner)
    asked = class_weights(dataset, settings["class_weight"], settings["priors"])
    weights = None if asked is None else keeping_weight(dataset, asked)
    costs = costs_of_mistakes(dataset, settings["costs"])
    settings |= _recorded_by_name(dataset, settings, asked, costs)
    signs = monotonic_signs(dataset, settings["monotonic"])
    settings["monotonic"] = None if signs is None else named_signs(dataset, signs)
    n_try = features_to_try(settings["max_features"], dataset.schema.n_features)
    splitter = make_part("splitter", settings, wanted, dataset)
    if signs is not None:
        refuse_monotonic(dataset, settings, criterion, splitter)
    return Plan(settings, criterion, splitter, pruner, n_try, weights, costs, signs)


def _with_preset(given: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """The settings of the algorithm that is named, and over them those given."""
    name = given.get("algorithm")
    if name not in PRESETS:  # none, or a mistake that `resolve` will tell
        return dict(given)
    ensemble = given.get("ensemble")
    base = preset(name, task, forest=None if ensemble is None else ensemble == "forest")
    for part in PARTS:
        if part in given and given[part] != base.get(part):
            base = {key: value for key, value in base.items() if not key.startswith(f"{part}.")}
    return base | dict(given)


def _decide(settings: dict[str, Any], dataset: Dataset) -> None:
    """Fill in, in place, what depends on the data."""
    task = dataset.schema.task
    settings["criterion"] = settings["criterion"] or (
        "gini" if task == "classification" else "squared_error"
    )
    if settings["splitter"] in (None, "auto"):
        settings["splitter"] = "exact" if dataset.n_rows <= EXACT_ROWS else "histogram"
    forest_of_classes = settings["ensemble"] == "forest" and task == "classification"
    if settings["max_features"] is None:
        settings["max_features"] = "sqrt" if forest_of_classes else "all"
    if settings["min_weight_leaf"] is None:
        many = dataset.n_rows >= MANY_ROWS and dataset.weights is None
        larger = forest_of_classes and many and settings["algorithm"] is None
        settings["min_weight_leaf"] = 5.0 if larger else 1.0
    if settings["pruner"] == "none":
        settings["pruner"] = None
    if settings["seed"] is None:
        settings["seed"] = secrets.randbits(32)


def _recorded_by_name(
    dataset: Dataset,
    settings: Mapping[str, Any],
    weights: npt.NDArray[np.float64] | None,
    costs: npt.NDArray[np.int64] | None,
) -> dict[str, Any]:
    """What was said of classes as plain values, which may be given again as they are."""
    plain: dict[str, Any] = {}
    if weights is not None:
        names = label_names(dataset.schema.classes)
        if settings["priors"] is not None:
            weights = shares(dataset, weights)
        name = "class_weight" if settings["priors"] is None else "priors"
        plain[name] = dict(zip(names, weights.tolist(), strict=True))
    if costs is not None:
        plain["costs"] = costs.tolist()
    return plain
