"""Columns that answers rise or fall with: the setting ``monotonic``, checked, to signs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.contracts import Ranks
from treekit.data.dataset import Dataset
from treekit.errors import SettingError
from treekit.training.class_weights import read_named

__all__ = ["monotonic_signs", "named_signs", "refuse_monotonic"]

Signs = npt.NDArray[np.float64]


def monotonic_signs(dataset: Dataset, given: str | Mapping[Any, Any] | None) -> Signs | None:
    """(features,) float64: 1, -1, or 0 = free, for each column; None where all are free.

    Parameters
    ----------
    given : text, mapping, or None
        ``"age=1,debt=-1"``: the number, or the share of the second class,
        never falls with age and never rises with debt.

    Raises
    ------
    SettingError
        For unknown and nominal columns, other values, and targets without an
        order of their answers.
    """
    if given is None:
        return None
    schema = dataset.schema
    signs = np.zeros(schema.n_features)
    for at, sign in read_named(given, schema.names, "monotonic", "column").items():
        if sign not in (-1.0, 0.0, 1.0):
            raise SettingError(
                f"monotonic of {schema.names[at]!r} is {sign:g}; give 1 for answers that rise "
                "with the column, -1 for answers that fall, or 0"
            )
        if sign and schema.nominal[at]:
            raise SettingError(
                f"monotonic names {schema.names[at]!r}, whose categories have no order; declare "
                "it numeric, or leave it out"
            )
        signs[at] = sign
    if not signs.any():
        return None
    if schema.more:
        raise SettingError("monotonic is for one target, but there are several; leave it out")
    if schema.task == "classification" and len(schema.classes) != 2:
        raise SettingError(
            f"monotonic needs a number or two classes, and the target {schema.target!r} has "
            f"{len(schema.classes)}; leave it out, or train a tree for each class against the rest"
        )
    return signs


def named_signs(dataset: Dataset, signs: Signs) -> dict[str, int]:
    """The columns that are not free, as the setting takes them."""
    return {dataset.schema.names[at]: int(signs[at]) for at in np.flatnonzero(signs).tolist()}


def refuse_monotonic(
    dataset: Dataset, settings: Mapping[str, Any], criterion: Any, splitter: Any
) -> None:
    """Refuse parts that do not know of constraints, by name.

    Parameters
    ----------
    criterion, splitter : treekit.training.plan.Part
    """
    functions = criterion.functions
    if isinstance(functions.statistics, Ranks) or functions.leaf_value is not None:
        raise SettingError(
            f"monotonic compares the means of branches, but leaves of criterion "
            f"{criterion.record.name!r} answer otherwise; choose another criterion"
        )
    if not getattr(splitter.functions.find, "bounded", False):
        raise SettingError(
            f"monotonic is known to the splitters exact, histogram and random, not to "
            f"{splitter.record.name!r}; choose one of them"
        )
    if settings["nominal_splits"] == "multiway" and dataset.schema.nominal.any():
        raise SettingError(
            "monotonic needs splits in two; set nominal_splits='subset' or 'one_vs_rest'"
        )
