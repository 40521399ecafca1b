"""Class weights, priors and misclassification costs: parsing, validation and conversion.

Only the ratios of class weights matter: the total weight is preserved, so that limits such
as ``min_weight_leaf`` keep their meaning.

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
from treekit.data.table import suggest_names
from treekit.errors import SettingError
from treekit.model.validation import MAX_COST

# ---------------------------------------------------------------- class weights

Numbers = npt.NDArray[np.float64]

BALANCED_BAGS = "balanced_subsample"
"""The class weights that give all classes the same total in the bootstrap sample of each tree."""


def compute_class_weights(
    dataset: Dataset, class_weight: str | Mapping[Any, Any] | None, priors: Any
) -> Numbers | None:
    """Return the factor by which the settings multiply the row weights of each class.

    Training rescales them by `rescale_factors`.

    Parameters
    ----------
    class_weight : "balanced", text, mapping, or None
        The factors; 1 for classes not named.  ``balanced``: the total weight divided by
        the weight of the class and by the number of classes present.
        ``balanced_subsample``: None, because each tree balances its own rows.
    priors : text, mapping, or None
        The shares of the total weight that classes should have; every class that has
        rows needs one.  The total weight is preserved.

    Returns
    -------
    (classes,) float64 or None

    Raises
    ------
    SettingError
        If both are given, the target is a number, or a class or value is invalid.
    """
    if class_weight is None and priors is None:
        return None
    if class_weight is not None and priors is not None:
        raise SettingError("class_weight and priors both weigh the classes; give one of them")
    where = "class_weight" if priors is None else "priors"
    check_single_class_target(dataset, where)
    if class_weight == BALANCED_BAGS:
        return None
    names = get_label_names(dataset.schema.classes)
    present = _sum_class_weights(dataset)
    if priors is not None:
        return _compute_prior_factors(priors, names, present)
    if class_weight == "balanced":
        return _compute_factors(present.sum() / np.count_nonzero(present), present)
    factors = np.ones(len(names))
    for at, number in parse_named_numbers(class_weight or {}, names, where).items():
        if number < 0:
            raise SettingError(f"class_weight of {names[at]!r} is {number:g}; give 0 or more")
        factors[at] = number
    if not (factors * present).any():
        raise SettingError("class_weight is 0 for all rows; give one class more than 0")
    return factors


def _compute_prior_factors(priors: Any, names: Sequence[str], present: Numbers) -> Numbers:
    """Return the factors that give classes the shares of the total weight in `priors`."""
    given = parse_named_numbers(priors, names, "priors")
    for at in np.flatnonzero(present).tolist():
        if at not in given:
            raise SettingError(f"priors lack the class {names[at]!r}; give a share for each class")
    wanted = np.zeros(len(names))
    for at, share in given.items():
        if share < 0 or (share == 0 and present[at] > 0):
            raise SettingError(f"the prior of {names[at]!r} is {share:g}; give more than 0")
        wanted[at] = share if present[at] > 0 else 0.0
    return _compute_factors(wanted / wanted.sum() * present.sum(), present)


def _compute_factors(wanted: Any, present: Numbers) -> Numbers:
    """Return the factors that change class weights to those wanted; 1 for classes without rows."""
    factors: Numbers = np.divide(wanted, present, out=np.ones(len(present)), where=present > 0)
    return factors


def _sum_class_weights(dataset: Dataset) -> Numbers:
    k = len(dataset.schema.classes)
    return np.bincount(dataset.y, weights=dataset.weights, minlength=k).astype(np.float64)


def rescale_factors(dataset: Dataset, factors: Numbers) -> Numbers:
    """Rescale class factors to preserve the total weight: (classes,) float64."""
    present = _sum_class_weights(dataset)
    ratios = factors / factors[present > 0].max()  # equal factors become exactly 1
    return np.asarray(ratios * (present.sum() / (ratios @ present)))


def apply_class_weights(dataset: Dataset, factors: Numbers | None) -> Dataset:
    """Multiply the factor of each row by that of its class; None changes nothing."""
    if factors is None:
        return dataset
    own = factors[dataset.y]
    return replace(dataset, factors=own if dataset.factors is None else own * dataset.factors)


def compute_class_shares(dataset: Dataset, factors: Numbers) -> Numbers:
    """Return each class's share of the total weight after applying class factors: (classes,)."""
    weight: Numbers = _sum_class_weights(dataset) * factors
    return np.asarray(weight / weight.sum())


def check_single_class_target(dataset: Dataset, where: str) -> None:
    """Raise `SettingError` unless there is a single classification target."""
    if dataset.schema.more:
        raise SettingError(f"{where} is for one target, but there are several; leave it out")
    if dataset.schema.task != "classification":
        raise SettingError(
            f"{where} is for classification, but the target {dataset.schema.target!r} is a number; "
            "leave it out, or set task"
        )


# ---------------------------------------------------------------- misclassification costs
# Costs affect the labels of leaves and the errors counted by pruners, not the search for
# splits (Breiman, Friedman, Olshen and Stone 1984, section 4.4.2; use priors to affect the
# search).


def parse_costs(dataset: Dataset, costs: Any) -> npt.NDArray[np.int64] | None:
    """Return the integer costs of predicting class j (column) for class i (row), or None.

    Parameters
    ----------
    costs : text, mapping, matrix, or None
        ``"yes>no=5"`` or ``{("yes", "no"): 5}``: predicting no for yes costs 5.
        Mistakes not named cost 1, correct predictions 0.

    Returns
    -------
    (classes, classes) int64 or None

    Raises
    ------
    SettingError
        If the target is a number, or a class or value is invalid.
    """
    if costs is None:
        return None
    check_single_class_target(dataset, "costs")
    names = get_label_names(dataset.schema.classes)
    k = len(names)
    if isinstance(costs, (str, Mapping)):
        matrix = 1.0 - np.eye(k)
        for (true, predicted), cost in parse_number_pairs(costs, names, "costs").items():
            matrix[true, predicted] = cost
    else:
        try:
            matrix = np.array(costs, dtype=np.float64)
        except (TypeError, ValueError):
            matrix = np.empty(0)
        if matrix.shape != (k, k) or not np.isfinite(matrix).all():
            raise SettingError(
                f"costs are {costs!r}; give TRUE>PREDICTED=COST,..., a dict of pairs, or a matrix "
                f"of finite numbers, {k} x {k}"
            )
    if (matrix < 0).any():
        true, predicted = np.argwhere(matrix < 0)[0]
        raise SettingError(
            f"the cost of predicting {names[predicted]!r} for {names[true]!r} is "
            f"{matrix[true, predicted]:g}; costs must be 0 or more"
        )
    if np.diagonal(matrix).any():
        right = names[int(np.flatnonzero(np.diagonal(matrix))[0])]
        raise SettingError(
            f"predicting {right!r} for {right!r} is not a mistake; its cost must be 0"
        )
    return scale_costs_to_integers(matrix)


def scale_costs_to_integers(matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Scale costs to integers of at most `MAX_COST` with the same ratios.

    Integers that fit are not changed.  Others are multiplied by the smallest factor that
    makes all of them integers; if there is none, the largest becomes `MAX_COST` and the
    others are rounded.

    Raises
    ------
    SettingError
        If all costs are 0, or the largest is more than `MAX_COST` times the smallest.
    """
    values = np.unique(matrix[matrix > 0])
    if not len(values):
        raise SettingError("all costs are 0; give at least one mistake a cost")
    if values[-1] <= MAX_COST and np.array_equal(values, np.floor(values)):
        return matrix.astype(np.int64)
    ratios = values / values[0]
    if ratios[-1] > MAX_COST:
        raise SettingError(
            f"costs range from {values[0]:g} to {values[-1]:g}; the largest may be at most "
            f"{MAX_COST:,} times the smallest"
        )
    steps = np.arange(1, int(MAX_COST / ratios[-1]) + 1)
    off = np.zeros(len(steps))
    for ratio in ratios:
        off = np.maximum(off, np.abs(steps * ratio - np.rint(steps * ratio)) / (steps * ratio))
    exact = np.flatnonzero(off <= 1e-12)
    step = steps[exact[0]] if len(exact) else MAX_COST / ratios[-1]
    return np.asarray(np.rint(matrix / values[0] * step), dtype=np.int64)


# ---------------------------------------------------------------- numbers by name
# Parsers of numbers for classes or columns by name, for class weights, priors, costs and
# monotonic constraints: text (``"yes=2,no=1"``) from the command line, or a mapping.


def get_label_names(labels: Iterable[Label]) -> tuple[str, ...]:
    """Return the texts that name class labels in settings."""
    return tuple(level_text(label) or "" for label in labels)


def parse_named_numbers(
    given: str | Mapping[Any, Any], names: Sequence[str], where: str, noun: str = "class"
) -> dict[int, float]:
    """Parse finite numbers by name; return them by position in `names`.

    Parameters
    ----------
    given : str or mapping
        ``"yes=2,no=1"``, with quotes around a part that contains a comma; or a mapping
        of names to numbers.  Names are compared as text: 1, 1.0 and "1" are equal.
    names : sequence of str
    where : str
        Name of the setting, for messages.
    noun : str
        Kind of the names, for messages.

    Raises
    ------
    SettingError
        For malformed text, unknown or repeated names, and values that are not finite
        numbers.
    """
    found: dict[int, float] = _parse_numbers(
        given, where, lambda name: _find_position(name, names, where, noun)
    )
    return found


def parse_number_pairs(
    given: str | Mapping[Any, Any], names: Sequence[str], where: str
) -> dict[tuple[int, int], float]:
    """Parse finite numbers by pairs of names: ``"yes>no=5"``, or ``{("yes", "no"): 5}``.

    Parameters and errors are those of `parse_named_numbers`.
    """

    def find_pair(pair: Any) -> tuple[int, int]:
        if isinstance(pair, str):
            pair = _split_pair(pair, names, where)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise SettingError(
                f"{where}: {pair!r} is not a pair; write (true class, predicted class)"
            )
        true, predicted = (_find_position(name, names, where, "class") for name in pair)
        return true, predicted

    found: dict[tuple[int, int], float] = _parse_numbers(given, where, find_pair)
    return found


def format_named_numbers(numbers: Mapping[str, Any]) -> str:
    """Format numbers by name as text that `parse_named_numbers` or `parse_number_pairs` parses."""
    text = io.StringIO()
    cells = [f"{name}={number!r}" for name, number in numbers.items()]
    csv.writer(text).writerow(cells)
    return text.getvalue().removesuffix("\r\n")


def _parse_numbers(
    given: str | Mapping[Any, Any], where: str, find: Callable[[Any], Any]
) -> dict[Any, float]:
    """Parse finite numbers; return them by the position that `find` returns for their name."""
    if not isinstance(given, (str, Mapping)):
        raise SettingError(f"{where} is {given!r}; give NAME=NUMBER,... or a dict")
    found: dict[Any, float] = {}
    for key, value in _split_items(given, where) if isinstance(given, str) else given.items():
        at = find(key)
        if at in found:
            raise SettingError(f"{where} names {key!r} twice; give it once")
        try:
            found[at] = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            found[at] = math.nan
        if not math.isfinite(found[at]):
            raise SettingError(f"{where} gives {key!r} the value {value!r}; give a finite number")
    return found


def _split_items(text: str, where: str) -> list[tuple[str, str]]:
    try:
        cells = next(csv.reader([text], strict=True, skipinitialspace=True), [])
    except csv.Error as error:
        raise SettingError(f"{where} is {text!r}: {error}; write NAME=NUMBER,...") from None
    if wrong := [cell for cell in cells if "=" not in cell]:
        raise SettingError(f"{where} holds {wrong[0]!r}; write NAME=NUMBER,...")
    parts = [cell.rpartition("=") for cell in cells]
    return [(name.strip(), number) for name, _, number in parts]


def _find_position(name: Any, names: Sequence[str], where: str, noun: str) -> int:
    at = LevelIndex(names).code(name)
    if at < 0:
        raise SettingError(
            f"{where} names unknown {noun} {name!r}; {suggest_names(level_text(name) or '', names)}"
        )
    return at


def _split_pair(text: str, names: Sequence[str], where: str) -> tuple[str, str]:
    """Split ``a>b`` into two known names, which may themselves contain ``>``."""
    parts = [
        (text[:at].strip(), text[at + 1 :].strip()) for at, sign in enumerate(text) if sign == ">"
    ]
    if not parts:
        raise SettingError(f"{where} holds {text!r}; write TRUE>PREDICTED=COST,...")
    index = LevelIndex(names)
    known = [pair for pair in parts if all(index.code(name) >= 0 for name in pair)]
    if len(known) > 1:
        raise SettingError(
            f"{where} holds {text!r}, which can be split in {len(known)} ways; in Python, give a "
            "dict of pairs (true class, predicted class)"
        )
    return (known or parts)[0]
