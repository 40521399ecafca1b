"""Training plans: settings, monotonic constraints too, resolved to components and numbers."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit.contracts import Criterion, Layout, Pruner, Ranks, Setting, Splitter
from treekit.contracts import Task as OwnTask
from treekit.data.dataset import Dataset
from treekit.data.schema import Schema, Task
from treekit.errors import SettingError
from treekit.registry.kinds import find_custom_task, list_settings
from treekit.settings import resolve
from treekit.training.class_weights import (
    BALANCED_BAGS,
    compute_class_shares,
    compute_class_weights,
    get_label_names,
    parse_costs,
    parse_named_numbers,
    rescale_factors,
)
from treekit.training.settings import (
    NAMED_NUMBER_SETTINGS,
    PRESETS,
    SETTINGS,
    check_n_jobs,
    count_features_to_try,
    get_preset_settings,
    select_settings,
)
from treekit.training.tasks import fit_layout, place_rows

# ---------------------------------------------------------------- monotonic constraints


Signs = npt.NDArray[np.float64]


def parse_monotonic(dataset: Dataset, given: str | Mapping[Any, Any] | None) -> Signs | None:
    """Return 1, -1 or 0 (unconstrained) for each column, or None if all are unconstrained.

    Parameters
    ----------
    given : text, mapping, or None
        ``"age=1,debt=-1"``: the number, or the share of the second class, never decreases
        with age and never increases with debt.

    Returns
    -------
    (features,) float64 or None

    Raises
    ------
    SettingError
        For unknown and nominal columns, other values, several targets, and more than two
        classes.
    """
    if given is None:
        return None
    schema = dataset.schema
    signs = np.zeros(schema.n_features)
    for at, sign in parse_named_numbers(given, schema.names, "monotonic", "column").items():
        if sign not in (-1.0, 0.0, 1.0):
            raise SettingError(
                f"monotonic of {schema.names[at]!r} is {sign:g}; give 1 for predictions that "
                "increase with the column, -1 for predictions that decrease, or 0"
            )
        if sign and schema.nominal[at]:
            raise SettingError(
                f"monotonic names {schema.names[at]!r}, a nominal column without an order; declare "
                "it numeric, or leave it out"
            )
        signs[at] = sign
    if not signs.any():
        return None
    if schema.more:
        raise SettingError("monotonic is for one target, but there are several; leave it out")
    if schema.task == "classification" and len(schema.classes) != 2:
        raise SettingError(
            f"monotonic needs regression or two classes, but the target {schema.target!r} has "
            f"{len(schema.classes)} classes; leave it out, or train a tree for each class against "
            "the rest"
        )
    return signs


def check_monotonic(
    dataset: Dataset,
    settings: Mapping[str, Any],
    criterion: PlannedComponent,
    splitter: PlannedComponent,
) -> None:
    """Raise `SettingError` for components and settings that do not support constraints."""
    functions = criterion.functions
    if isinstance(functions.statistics, Ranks) or functions.leaf_value is not None:
        raise SettingError(
            f"monotonic compares the means of branches, but criterion "
            f"{criterion.record.name!r} computes other leaf values; choose another criterion"
        )
    if not getattr(splitter.functions.find, "supports_monotonic", False):
        raise SettingError(
            f"splitter {splitter.record.name!r} does not support monotonic; choose exact, "
            "histogram or random"
        )
    if settings["nominal_splits"] == "multiway" and dataset.schema.nominal.any():
        raise SettingError(
            "monotonic needs binary splits; set nominal_splits='subset' or 'one_vs_rest'"
        )


# ---------------------------------------------------------------- plan

MAX_EXACT_ROWS = 10_000
"""Largest number of rows for which ``splitter="auto"`` is exact; above, it is histogram."""


MIN_LARGE_LEAF_ROWS = 5_000
"""Number of rows from which 5 is the default of min_weight_leaf in classification forests.

Validated on 9 such tables and 11 smaller ones: benchmarks/RESULTS.md, "Defaults of forests".
"""


@dataclass(frozen=True)
class Plan:
    """The resolved settings and components of a training.

    Attributes
    ----------
    settings : dict
        All training settings, with defaults and ``auto`` resolved.
    criterion, splitter : PlannedComponent
    pruner : PlannedComponent or None
    n_try : int
        Columns tried at a node.
    class_weights : (classes,) float64 or None
        Factors of row weights in statistics; they preserve the total weight.
    costs : (classes, classes) int64 or None
        ``costs[i][j]``: cost of predicting class j for class i.
    monotonic_signs : (features,) float64 or None
        Monotonic constraints.
    """

    settings: dict[str, Any]
    criterion: PlannedComponent
    splitter: PlannedComponent
    pruner: PlannedComponent | None
    n_try: int
    class_weights: npt.NDArray[np.float64] | None = None
    costs: npt.NDArray[np.int64] | None = None
    monotonic_signs: npt.NDArray[np.float64] | None = None

    @property
    def holdout_share(self) -> float:
        """Share of the rows that the pruner holds out."""
        return self.pruner.functions.holdout or 0.0 if self.pruner else 0.0

    @property
    def balances_bags(self) -> bool:
        """Whether all classes weigh the same in the bootstrap sample of each tree."""
        return bool(self.settings["class_weight"] == BALANCED_BAGS)

    @property
    def draws_rows(self) -> bool:
        """Whether each tree is grown on a bootstrap sample."""
        return bool(self.settings["ensemble"] == "forest" and self.settings["bootstrap"])

    @property
    def recorded_settings(self) -> dict[str, Any]:
        """The settings, including those of components, as plain values for the model file."""
        plain = dict(self.settings)
        del plain["n_jobs"]  # the model file must not depend on the number of threads
        for name in COMPONENT_KINDS:
            part: PlannedComponent | None = getattr(self, name)
            plain[name] = part.record.name if part else None
            for key, value in (part.settings if part else {}).items():
                plain[f"{name}.{key}"] = value
        return plain

    @property
    def component_origins(self) -> list[dict[str, str]]:
        """The origin of each component."""
        parts = [getattr(self, name) for name in COMPONENT_KINDS]
        return [part.origin for part in parts if part]


def make_plan(dataset: Dataset, given: Mapping[str, Any]) -> Plan:
    """Resolve settings and components for a dataset.

    Raises
    ------
    SettingError
        For unknown names and values out of range, or a criterion of another task.
    """
    task = dataset.schema.task
    wanted = _apply_preset(given, task)
    own = {key: value for key, value in wanted.items() if "." not in key}
    # Records, and mappings of classes or columns, are not plain values: `resolve` skips them.
    apart = {
        name: own.pop(name)
        for name in (*COMPONENT_KINDS, *NAMED_NUMBER_SETTINGS)
        if not isinstance(own.get(name, ""), str)
    }
    settings = resolve(SETTINGS, own, "training")
    settings |= {name: value for name, value in apart.items() if value is not None}
    check_n_jobs(settings["n_jobs"])
    _resolve_defaults(settings, dataset)
    records = resolve_components(settings)
    record, own = records["criterion"], select_settings("criterion", wanted)
    criterion = make_component(record, own, fit_layout(record, own, dataset))
    check_compatible(settings, given, criterion, dataset)
    if criterion.layout is not None and criterion.layout.names:
        settings["oob"] = False  # no score compares several predictions with one target
    pruner = None
    if "pruner" in records:
        pruner = make_component(records["pruner"], select_settings("pruner", wanted))
        check_pruner(criterion, pruner, dataset.schema, costs=settings["costs"] is not None)
    check_component_settings(given, pruner)
    if settings["class_weight"] == BALANCED_BAGS:
        if settings["ensemble"] == "tree":
            raise SettingError(
                f"class_weight={BALANCED_BAGS!r} is for forests only; for a tree, set "
                "class_weight='balanced'"
            )
        if not settings["bootstrap"]:  # all trees have the same rows
            settings["class_weight"] = "balanced"
    factors = compute_class_weights(dataset, settings["class_weight"], settings["priors"])
    weights = None if factors is None else rescale_factors(dataset, factors)
    costs = parse_costs(dataset, settings["costs"])
    # Recorded as numbers by name, which are accepted as settings.
    if factors is not None:
        name = "class_weight" if settings["priors"] is None else "priors"
        shares = factors if name == "class_weight" else compute_class_shares(dataset, factors)
        labels = get_label_names(dataset.schema.classes)
        settings[name] = dict(zip(labels, shares.tolist(), strict=True))
    if costs is not None:
        settings["costs"] = costs.tolist()
    signs = parse_monotonic(dataset, settings["monotonic"])
    settings["monotonic"] = None
    if signs is not None:
        by_name = zip(dataset.schema.names, signs.tolist(), strict=True)
        settings["monotonic"] = {name: int(sign) for name, sign in by_name if sign}
    n_try = count_features_to_try(settings["max_features"], dataset.schema.n_features)
    splitter = make_component(records["splitter"], select_settings("splitter", wanted))
    if signs is not None:
        check_monotonic(dataset, settings, criterion, splitter)
    return Plan(settings, criterion, splitter, pruner, n_try, weights, costs, signs)


def _apply_preset(given: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Return the settings of the named algorithm, if any, updated by those given."""
    name = given.get("algorithm")
    if name not in PRESETS:  # none, or an unknown name that `resolve` will report
        return dict(given)
    base = get_preset_settings(name, task, given.get("ensemble"))
    for part in COMPONENT_KINDS:
        if part in given and given[part] != base.get(part):
            base = {key: value for key, value in base.items() if not key.startswith(f"{part}.")}
    return base | dict(given)


def _resolve_defaults(settings: dict[str, Any], dataset: Dataset) -> None:
    """Fill in, in place, the defaults that depend on the data."""
    task = dataset.schema.task
    settings["criterion"] = settings["criterion"] or (
        "gini" if task == "classification" else "squared_error"
    )
    if settings["splitter"] in (None, "auto"):
        settings["splitter"] = "exact" if dataset.n_rows <= MAX_EXACT_ROWS else "histogram"
    forest_of_classes = settings["ensemble"] == "forest" and task == "classification"
    if settings["max_features"] is None:
        settings["max_features"] = "sqrt" if forest_of_classes else "all"
    relative = dataset.has_relative_weights
    if settings["min_weight_split"] is None:
        settings["min_weight_split"] = 0.0 if relative else 2.0
    if settings["min_weight_leaf"] is None and relative:
        settings["min_weight_leaf"] = 0.0
    if settings["min_weight_leaf"] is None:
        many = dataset.n_rows >= MIN_LARGE_LEAF_ROWS and dataset.weights is None
        larger = forest_of_classes and many and settings["algorithm"] is None
        settings["min_weight_leaf"] = 5.0 if larger else 1.0
    if settings["pruner"] == "none":
        settings["pruner"] = None
    if settings["seed"] is None:
        settings["seed"] = secrets.randbits(32)


# ---------------------------------------------------------------- components

COMPONENT_KINDS = ("criterion", "splitter", "pruner")
"""Kinds of components of a training; their settings have these words and a dot as prefix."""


@dataclass(frozen=True)
class PlannedComponent:
    """A chosen component with its settings.

    Attributes
    ----------
    record : Criterion, Splitter or Pruner
    functions
        The functions returned by the record's ``make``.
    settings : dict
    origin : dict
        Kind, name, plugin, distribution and version.
    layout : Layout or None
        Layout of a criterion's custom task, fitted to the training rows.

    Notes
    -----
    A pickled component holds no functions: they are created again when it is unpickled.
    """

    record: Any
    functions: Any
    settings: dict[str, Any]
    origin: dict[str, str]
    layout: Layout | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        wanted = self.record.name if self.origin["distribution"] else self.record
        return _restore_component, (self.origin["kind"], wanted, self.settings, self.layout)

    def place_rows(self, dataset: Dataset) -> Any:
        """Return the cells or statistics of the rows of a custom task, else their target."""
        return dataset.y if self.layout is None else place_rows(self.record, self.layout, dataset)


def get_component_settings(
    kind: str, wanted: str | Criterion | Splitter | Pruner
) -> tuple[Setting, ...]:
    """Return the settings that a component declares, for parsing ``KEY=VALUE`` texts."""
    return list_settings(registry.get(kind, wanted))


def resolve_components(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the records of the chosen components by kind; `settings` then has their names."""
    chosen = [kind for kind in COMPONENT_KINDS if settings[kind] is not None]
    records = {kind: registry.get(kind, settings[kind]) for kind in chosen}
    settings |= {kind: record.name for kind, record in records.items()}
    return records


def make_component(
    record: Criterion | Splitter | Pruner, given: Mapping[str, Any], layout: Layout | None = None
) -> PlannedComponent:
    """Create a component of a record, configured by its own settings `given`."""
    functions, settings = registry.make(record, given, layout)
    return PlannedComponent(record, functions, settings, registry.origin(record), layout)


def _restore_component(
    kind: str, wanted: Any, given: Mapping[str, Any], layout: Layout | None
) -> PlannedComponent:
    """Create a pickled component, of its installed record if it has one."""
    return make_component(registry.get(kind, wanted), given, layout)


# ---------------------------------------------------------------- compatibility

_DEFAULT_TREES = next(setting.default for setting in SETTINGS if setting.name == "trees")


def check_compatible(
    settings: Mapping[str, Any],
    given: Mapping[str, Any],
    criterion: PlannedComponent,
    dataset: Dataset,
) -> None:
    """Raise `SettingError` for settings incompatible with each other or with the target."""
    schema, functions = dataset.schema, criterion.functions
    task, own = schema.task, find_custom_task(criterion.record)
    who = f"criterion {criterion.record.name!r}"
    if settings["algorithm"] is not None and not given.get("criterion"):
        who += f" of algorithm {settings['algorithm']!r}"
    if own is not None:
        _check_task_settings(settings, given, who, own)
    elif criterion.record.task != task:
        raise SettingError(
            f"{who} is for {criterion.record.task}, but the target {schema.target!r} is a {task} "
            "target; choose another criterion or set task"
        )
    wrong = [output for output in schema.outputs if len(output.classes) != criterion.record.classes]
    if criterion.record.classes is not None and wrong:
        raise SettingError(
            f"{who} supports {criterion.record.classes} classes, but the target {wrong[0].name!r} "
            f"has {len(wrong[0].classes)}; choose another criterion"
        )
    chooses = functions.extras.choose is not None
    if schema.more and (chooses or isinstance(functions.statistics, Ranks)):
        why = "chooses between columns by the scores" if chooses else "uses the order"
        others = "gini or entropy" if task == "classification" else "squared_error or friedman"
        raise SettingError(
            f"{who} {why} of one target, but there are several; choose {others}, or train a model "
            "for each target (sklearn.multioutput does it for estimators)"
        )
    if settings["ensemble"] == "tree" and given.get("trees", _DEFAULT_TREES) != _DEFAULT_TREES:
        raise SettingError("trees is given, but a single tree is trained; set ensemble='forest'")
    if settings["numeric_side"] == "c45" and (task != "classification" or schema.more):
        raise SettingError(
            "numeric_side='c45' counts the classes of one target, but the target is a number or "
            "there are several; set numeric_side='leaf'"
        )
    if settings["voting"] == "hard" and (own.answers if own else task) != "classification":
        raise SettingError(
            "voting='hard' is for classification, but the target is a number; set voting='soft'"
        )
    drawn = settings["ensemble"] == "forest" and settings["bootstrap"]
    if given.get("max_samples") is not None and not drawn:
        raise SettingError(
            "max_samples is given, but no rows are drawn; set ensemble='forest' and bootstrap=True"
        )
    most = settings["max_samples"]
    if most is not None and not most > 0:
        raise SettingError(f"max_samples is {most}; give a number of rows, or a share above 0.0")


def _check_task_settings(
    settings: Mapping[str, Any], given: Mapping[str, Any], who: str, task: OwnTask
) -> None:
    """Raise `SettingError` for settings that a criterion's custom task does not support."""
    required: dict[str, Any] = {"monotonic": None, "numeric_side": "leaf"}
    if task.answers == "regression":
        required |= {"class_weight": None, "priors": None, "costs": None, "oob": False}
    # Training turns oob, which is on by default, off.
    chosen = {**settings, "oob": bool(given.get("oob"))}
    for name, value in required.items():
        if chosen[name] != value:
            raise SettingError(
                f"{name} is set, but it is not defined for {task.name}, the task of {who}; set "
                f"{name}={value!r}"
            )


def check_pruner(
    criterion: PlannedComponent, pruner: PlannedComponent, schema: Schema, *, costs: bool
) -> None:
    """Raise `SettingError` for a pruner that does not support the criterion, targets or costs."""
    name, only = pruner.record.name, pruner.record.task
    own = find_custom_task(criterion.record)
    custom = isinstance(only, OwnTask)
    if costs and not pruner.record.costs:
        raise SettingError(
            f"pruner {name!r} does not support misclassification costs; choose "
            "cost_complexity, reduced_error or error_based, or leave costs out"
        )
    choose = "another pruner, such as cost_complexity"
    if only is not None and (own != only if custom else own is not None):
        known = criterion.record.task if own is None else own.name
        needs, found = only, f"criterion {criterion.record.name!r} is for {known}"
        if custom:
            needs, choose = only.name, f"a criterion for {only.name}, or {choose}"
    elif schema.more and (only or pruner.functions.before is not None):
        needs, found = f"one target{f' of {only}' * (only is not None)}", "there are several"
    elif not custom and only not in (None, schema.task):
        needs, found = f"one target of {only}", f"{schema.target!r} is a {schema.task} target"
    else:
        return
    raise SettingError(f"pruner {name!r} is for {needs}, but {found}; choose {choose}")


def check_component_settings(given: Mapping[str, Any], pruner: PlannedComponent | None) -> None:
    """Raise `SettingError` for settings of unknown components, or of a pruner not chosen."""
    for key in given:
        if "." in key and key.partition(".")[0] not in COMPONENT_KINDS:
            raise SettingError(
                f"unknown setting {key!r}; a component's own settings begin with "
                "'criterion.', 'splitter.' or 'pruner.'"
            )
        if key.startswith("pruner.") and pruner is None:
            raise SettingError(f"{key!r} is given, but no pruner is chosen; set pruner=NAME")
