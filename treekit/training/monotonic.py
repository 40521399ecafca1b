"""Monotonic constraints: parsing and validation of the setting ``monotonic``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.contracts import Ranks
from treekit.data.dataset import Dataset
from treekit.errors import SettingError
from treekit.training.class_weights import parse_named_numbers

__all__ = ["check_monotonic", "get_signs_by_name", "parse_monotonic"]

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
            f"monotonic needs a number or two classes, but the target {schema.target!r} has "
            f"{len(schema.classes)}; leave it out, or train a tree for each class against the rest"
        )
    return signs


def get_signs_by_name(dataset: Dataset, signs: Signs) -> dict[str, int]:
    """Return the constrained columns in the form of the setting."""
    return {dataset.schema.names[at]: int(signs[at]) for at in np.flatnonzero(signs).tolist()}


def check_monotonic(
    dataset: Dataset, settings: Mapping[str, Any], criterion: Any, splitter: Any
) -> None:
    """Raise `SettingError` for components and settings that do not support constraints.

    Parameters
    ----------
    criterion, splitter : treekit.training.plan.PlannedComponent
    """
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
