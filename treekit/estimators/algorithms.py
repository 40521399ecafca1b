"""Algorithms by name for estimators, whose parameters all have a value of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from treekit.errors import SettingError
from treekit.training.settings import PRESETS, preset

__all__ = ["by_algorithm", "effective"]

_PARAMETERS: dict[str, tuple[str, ...]] = {
    "min_weight_split": ("min_samples_split",),
    "min_weight_leaf": ("min_samples_leaf", "min_weight_fraction_leaf"),
    "max_leaves": ("max_leaf_nodes",),
    "pruner": ("pruner", "ccp_alpha"),
}
"""Settings of training that are parameters by other names."""

_OWN = ("ensemble", "trees")
"""What the estimator itself says, whatever the algorithm."""


def by_algorithm(estimator: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those that the algorithm named among them is to decide.

    These are the ones whose parameters are at their defaults.

    Parameters
    ----------
    estimator
    settings : mapping
        All parameters as settings of `treekit.train`, ``algorithm`` among them.
    """
    own = _preset(estimator, settings.get("algorithm"))
    further = estimator.train_settings or {}
    return {
        name: value
        for name, value in settings.items()
        if name not in own or name in _OWN or name in further or _is_given(estimator, name)
    }


def effective(estimator: Any, name: str) -> Any:
    """The value of a parameter that is a setting of that name, or the algorithm's."""
    further = estimator.train_settings
    given = {"algorithm": estimator.algorithm} | (
        dict(further) if isinstance(further, Mapping) else {}
    )
    if name in given:
        return given[name]
    own = getattr(estimator, name)
    if given["algorithm"] not in PRESETS or _is_given(estimator, name):
        return own
    return preset(given["algorithm"], estimator._task).get(name, own)


def _preset(estimator: Any, name: Any) -> dict[str, Any]:
    if name not in PRESETS:  # none, or a mistake that training will tell
        return {}
    forest = estimator._ensemble == "forest"
    if not forest and PRESETS[name].settings.get("ensemble") == "forest":
        raise SettingError(
            f"algorithm={name!r} grows a forest, and {type(estimator).__name__} is one tree; use "
            "RandomForestClassifier or RandomForestRegressor"
        )
    return preset(name, estimator._task, forest=forest)


def _is_given(estimator: Any, setting: str) -> bool:
    """Whether any of the parameters that stand for a setting is not at its default."""
    defaults = {field.name: field.default for field in fields(estimator)}
    names = _PARAMETERS.get(setting, (setting,))
    return any(getattr(estimator, name) != defaults[name] for name in names if name in defaults)
