"""How much classes count: class weights and priors, checked, to factors of statistics.

Only the ratios of factors matter: the sum of all weight stays as it is, so that
limits of weight mean what they mean without them.

Breiman, Friedman, Olshen and Stone 1984, section 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.errors import SettingError
from treekit.training.named import label_names, read_named

__all__ = [
    "class_weights",
    "keeping_weight",
    "need_classes",
    "shares",
    "with_class_weights",
]

Numbers = npt.NDArray[np.float64]


def class_weights(
    dataset: Dataset, class_weight: str | Mapping[Any, Any] | None, priors: Any
) -> Numbers | None:
    """What to multiply the weights of each class's rows by, as it is asked for.

    (classes,), or None; training takes `keeping_weight` of them.

    Parameters
    ----------
    class_weight : "balanced", text, mapping, or None
        The factors; 1 for classes not named.  ``balanced``: all weight over
        the weight of the class and the number of classes present.
    priors : text, mapping, or None
        The shares of all weight that the classes shall have; every class that
        has rows needs one.  The sum of all weights stays as it is.

    Raises
    ------
    SettingError
        If both are given, or the target is a number, or a class or value is wrong.
    """
    if class_weight is None and priors is None:
        return None
    if class_weight is not None and priors is not None:
        raise SettingError("class_weight and priors both weigh the classes; give one of them")
    where = "class_weight" if priors is None else "priors"
    need_classes(dataset, where)
    names = label_names(dataset.schema.classes)
    present = _weight_of_classes(dataset)
    if priors is not None:
        return _by_priors(read_named(priors, names, where), names, present)
    if class_weight == "balanced":
        return _factors(present.sum() / np.count_nonzero(present), present)
    factors = np.ones(len(names))
    for at, number in read_named(class_weight or {}, names, where).items():
        if number < 0:
            raise SettingError(f"class_weight of {names[at]!r} is {number:g}; give 0 or more")
        factors[at] = number
    if not (factors * present).any():
        raise SettingError("class_weight leaves no row any weight; give one class more than 0")
    return factors


def _by_priors(given: dict[int, float], names: tuple[str, ...], present: Numbers) -> Numbers:
    for at in np.flatnonzero(present).tolist():
        if at not in given:
            raise SettingError(f"priors name no share of class {names[at]!r}; each class needs one")
    for at, share in given.items():
        if share < 0 or (share == 0 and present[at] > 0):
            raise SettingError(f"the prior of {names[at]!r} is {share:g}; give more than 0")
    wanted = np.zeros(len(names))
    wanted[list(given)] = list(given.values())
    wanted[present == 0] = 0.0
    return _factors(wanted / wanted.sum() * present.sum(), present)


def _factors(wanted: Any, present: Numbers) -> Numbers:
    """What brings the weight of each class to the one wanted; 1 where there is no row."""
    factors: Numbers = np.divide(wanted, present, out=np.ones(len(present)), where=present > 0)
    return factors


def _weight_of_classes(dataset: Dataset) -> Numbers:
    k = len(dataset.schema.classes)
    return np.bincount(dataset.y, weights=dataset.weights, minlength=k).astype(np.float64)


def keeping_weight(dataset: Dataset, factors: Numbers) -> Numbers:
    """(classes,) float64: factors in the same ratios that leave the sum of all weight as it is."""
    present = _weight_of_classes(dataset)
    ratios = factors / factors[present > 0].max()  # equal ones become 1 exactly
    return np.asarray(ratios * (present.sum() / (ratios @ present)))


def with_class_weights(dataset: Dataset, factors: Numbers | None) -> Dataset:
    """The dataset, each row's factor multiplied by that of its class; None: as it is."""
    if factors is None:
        return dataset
    own = factors[dataset.y]
    return replace(dataset, factors=own if dataset.factors is None else own * dataset.factors)


def shares(dataset: Dataset, factors: Numbers) -> Numbers:
    """(classes,) float64: the share of all weight of each class under these factors."""
    weight: Numbers = _weight_of_classes(dataset) * factors
    return np.asarray(weight / weight.sum())


def need_classes(dataset: Dataset, where: str) -> None:
    """Raise `SettingError` unless the target is one of classes."""
    if dataset.schema.more:
        raise SettingError(f"{where} is for one target, but there are several; leave it out")
    if dataset.schema.task != "classification":
        raise SettingError(
            f"{where} is for classes, but the target {dataset.schema.target!r} is a number; leave "
            "it out or set task"
        )
