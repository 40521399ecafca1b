"""How much classes count: class weights and priors, checked, to factors of statistics.

Only the ratios of factors matter: the sum of all weight stays as it is, so that
limits of weight mean what they mean without them.

Breiman, Friedman, Olshen and Stone 1984, section 4.4.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.data.features import LevelIndex
from treekit.data.schema import Label, level_text
from treekit.data.table import near_names
from treekit.errors import SettingError
from treekit.model.validation import MAX_COST

__all__ = [
    "class_weights",
    "costs_of_mistakes",
    "keeping_weight",
    "label_names",
    "need_classes",
    "read_named",
    "read_pairs",
    "shares",
    "whole_costs",
    "with_class_weights",
    "written",
]


# ---------------------------------------------------------------- classes

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


# ---------------------------------------------------------------- costs
# What mistakes cost: a setting to whole numbers, checked.
#
# Costs change the labels of leaves and what pruners call an error, not the search
# of splits (Breiman, Friedman, Olshen and Stone 1984, section 4.4.2; for costs in
# the search, give priors).


def costs_of_mistakes(dataset: Dataset, costs: Any) -> npt.NDArray[np.int64] | None:
    """What it costs to say column j when it is row i: (classes, classes), or None.

    Parameters
    ----------
    costs : text, mapping, matrix, or None
        ``"yes>no=5"`` or ``{("yes", "no"): 5}``: saying no when it is yes
        costs 5.  Mistakes not named cost 1, right answers nothing.

    Raises
    ------
    SettingError
        If the target is a number, or a class or value is wrong.
    """
    if costs is None:
        return None
    need_classes(dataset, "costs")
    names = label_names(dataset.schema.classes)
    k = len(names)
    if isinstance(costs, (str, Mapping)):
        matrix = 1.0 - np.eye(k)
        for (true, said), cost in read_pairs(costs, names, "costs").items():
            matrix[true, said] = cost
    else:
        matrix = _matrix(costs, k)
    if (matrix < 0).any():
        true, said = np.argwhere(matrix < 0)[0]
        raise SettingError(
            f"saying {names[said]!r} for {names[true]!r} costs {matrix[true, said]:g}; costs are "
            "0 or more"
        )
    if np.diagonal(matrix).any():
        right = names[int(np.flatnonzero(np.diagonal(matrix))[0])]
        raise SettingError(f"saying {right!r} for {right!r} is no mistake and costs 0")
    return whole_costs(matrix)


def _matrix(costs: Any, k: int) -> npt.NDArray[np.float64]:
    try:
        matrix = np.array(costs, dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.shape != (k, k) or not np.isfinite(matrix).all():
        raise SettingError(
            f"costs are {costs!r}; give TRUE>SAID=COST,..., a dict of pairs, or a matrix of finite "
            f"numbers, {k} x {k}"
        )
    return matrix


def whole_costs(matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Costs as whole numbers of at most `MAX_COST`, in the same ratios.

    Whole numbers that fit stay as they are.  Others are multiplied by the
    smallest factor that makes all of them whole; where there is none, the
    largest becomes `MAX_COST` and the others are rounded.

    Raises
    ------
    SettingError
        If all costs are 0, or the largest is more than `MAX_COST` times the smallest.
    """
    values = np.unique(matrix[matrix > 0])
    if not len(values):
        raise SettingError("all costs are 0; give a mistake a cost")
    if values[-1] <= MAX_COST and np.array_equal(values, np.floor(values)):
        return matrix.astype(np.int64)
    ratios = values / values[0]
    if ratios[-1] > MAX_COST:
        raise SettingError(
            f"costs reach from {values[0]:g} to {values[-1]:g}; the largest may be {MAX_COST:,} "
            "times the smallest"
        )
    steps = np.arange(1, int(MAX_COST / ratios[-1]) + 1)
    off = np.zeros(len(steps))
    for ratio in ratios:
        off = np.maximum(off, np.abs(steps * ratio - np.rint(steps * ratio)) / (steps * ratio))
    exact = np.flatnonzero(off <= 1e-12)
    step = steps[exact[0]] if len(exact) else MAX_COST / ratios[-1]
    return np.asarray(np.rint(matrix / values[0] * step), dtype=np.int64)


# ---------------------------------------------------------------- named
# Numbers for classes and columns by name: ``"yes=2,no=1"``, a dict, or a word.
#
# One reader for class weights, priors, costs and directions.  A text is what the
# command line passes; Python may pass a mapping whose keys are the labels.

Find = Callable[[Any], int]


def label_names(labels: Iterable[Label]) -> tuple[str, ...]:
    """Class labels as the texts that name them in settings."""
    return tuple(level_text(label) or "" for label in labels)


def read_named(
    given: str | Mapping[Any, Any], names: Sequence[str], where: str, noun: str = "class"
) -> dict[int, float]:
    """The finite number of each name given, by position in `names`.

    Parameters
    ----------
    given : str or mapping
        ``"yes=2,no=1"``, with quotes around a part that holds a comma; or the
        names (of any type that reads alike: 1, 1.0 and "1" are one) to numbers.
    names : sequence of str
    where : str
        The setting, for messages.
    noun : str
        What the names are names of.

    Raises
    ------
    SettingError
        For texts that are not of that form, names that are unknown or given
        twice, and values that are no finite numbers.
    """

    def find(name: Any) -> int:
        return _position(name, names, where, noun)

    found: dict[int, float] = _collected(_items(given, where), find, where)
    return found


def read_pairs(
    given: str | Mapping[Any, Any], names: Sequence[str], where: str
) -> dict[tuple[int, int], float]:
    """The finite number of each pair of names: ``"yes>no=5"``, or ``{("yes", "no"): 5}``.

    Parameters and errors are those of `read_named`.
    """

    def find(pair: Any) -> tuple[int, int]:
        if isinstance(pair, str):
            pair = _split_pair(pair, names, where)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise SettingError(f"{where}: {pair!r} is no pair; write (true class, said class)")
        true, said = (_position(name, names, where, "class") for name in pair)
        return true, said

    found: dict[tuple[int, int], float] = _collected(_items(given, where), find, where)
    return found


def written(numbers: Mapping[str, Any]) -> str:
    """The text that `read_named` or `read_pairs` reads as these numbers."""
    text = io.StringIO()
    cells = [f"{name}={number!r}" for name, number in numbers.items()]
    csv.writer(text).writerow(cells)
    return text.getvalue().removesuffix("\r\n")


def _items(given: str | Mapping[Any, Any], where: str) -> list[tuple[Any, Any]]:
    if isinstance(given, Mapping):
        return list(given.items())
    if not isinstance(given, str):
        raise SettingError(f"{where} is {given!r}; give NAME=NUMBER,... or a dict")
    try:
        cells = next(csv.reader([given], strict=True, skipinitialspace=True), [])
    except csv.Error as error:
        raise SettingError(f"{where} is {given!r}: {error}; write NAME=NUMBER,...") from None
    parts = [cell.rpartition("=") for cell in cells]
    for name, equals, number in parts:
        if not equals:
            raise SettingError(f"{where} holds {name + number!r}; write NAME=NUMBER,...")
    return [(name.strip(), number) for name, _, number in parts]


def _collected(items: Iterable[tuple[Any, Any]], find: Callable[[Any], Any], where: str) -> Any:
    found: dict[Any, float] = {}
    for key, value in items:
        at = find(key)
        if at in found:
            raise SettingError(f"{where} names {key!r} twice; give it once")
        found[at] = _number(value, key, where)
    return found


def _number(value: Any, key: Any, where: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise SettingError(f"{where} gives {key!r} the value {value!r}; give a finite number")
    return number


def _position(name: Any, names: Sequence[str], where: str, noun: str) -> int:
    at = LevelIndex(names).code(name)
    if at < 0:
        raise SettingError(
            f"{where} names {noun} {name!r}; {near_names(level_text(name) or '', names)}"
        )
    return at


def _split_pair(text: str, names: Sequence[str], where: str) -> tuple[str, str]:
    """The only way to read ``a>b`` as two names; names may hold ``>`` themselves."""
    parts = [
        (text[:at].strip(), text[at + 1 :].strip()) for at, sign in enumerate(text) if sign == ">"
    ]
    if not parts:
        raise SettingError(f"{where} holds {text!r}; write TRUE>SAID=COST,...")
    index = LevelIndex(names)
    known = [pair for pair in parts if all(index.code(name) >= 0 for name in pair)]
    if len(known) > 1:
        raise SettingError(
            f"{where} holds {text!r}, which reads in {len(known)} ways; from Python, give a dict "
            "of pairs (true class, said class)"
        )
    return (known or parts)[0]
