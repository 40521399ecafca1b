"""What short lists are learnt from: rows of a table, and the trees to choose rules from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset, make_dataset, make_validation
from treekit.errors import DataError, SettingError
from treekit.model.model import Model
from treekit.training.class_weights import class_weights, keeping_weight, with_class_weights

__all__ = ["check_count", "read_rows", "rows_and_weights", "weighed"]


class Weighed(NamedTuple):
    """Rows with a weight, as arrays.

    Attributes
    ----------
    matrix : (rows, features) float32 or float64
    y : (rows, outputs) int64 or float64
    weight : (rows,) float64
    """

    matrix: npt.NDArray[np.floating[Any]]
    y: npt.NDArray[Any]
    weight: npt.NDArray[np.float64]

    def take(self, rows: npt.NDArray[Any]) -> Weighed:
        """Some of the rows (numbers, or a bool for each)."""
        return Weighed(self.matrix[rows], self.y[rows], self.weight[rows])


def read_rows(
    source: Any, target: str | Sequence[str] | None, model: Model | None, reading: Mapping[str, Any]
) -> Dataset:
    """The rows of a table, read anew or in the terms of a model.

    Parameters
    ----------
    source : table
    target : str, or sequence of str, optional
        Default, and all that there may be, with a model: its targets.
    model : Model, optional
    reading : mapping
        How to read a table without a model; see `treekit.data.dataset.make_dataset`.

    Raises
    ------
    DataError, SettingError
    """
    if model is None:
        if target is None:
            raise SettingError("name the target column, or give a model that has one")
        return make_dataset(source, target, **reading)
    own = [output.name for output in model.schema.outputs]
    if target is not None and own != ([target] if isinstance(target, str) else list(target)):
        raise SettingError(f"the model predicts {', '.join(map(repr, own))}, not {target!r}")
    strange = [key for key in reading if key != "weights"]
    if strange:
        raise SettingError(
            f"{strange[0]} says how to read a table for a new forest, but the model's schema "
            "says how to read this one; leave it out"
        )
    weights = reading.get("weights")
    return make_validation(
        source, model.schema, weights=weights, missing=model.missing, unknown=model.unknown,
        noun="the table",
    )  # fmt: skip


def weighed(dataset: Dataset, class_weight: Any, model: Model | None = None) -> Dataset:
    """The dataset with the class weights that are asked for, else those of the model."""
    recorded = {} if model is None else model.settings
    priors = recorded.get("priors") if class_weight is None else None
    if class_weight is None and priors is None:
        class_weight = recorded.get("class_weight")
    asked = class_weights(dataset, class_weight, priors)
    return dataset if asked is None else with_class_weights(dataset, keeping_weight(dataset, asked))


def rows_and_weights(dataset: Dataset) -> Weighed:
    """The rows that weigh something.

    Raises
    ------
    DataError
        If there is none.
    """
    statistical = dataset.statistical_weights
    weight = np.ones(dataset.n_rows) if statistical is None else statistical.astype(np.float64)
    some = weight > 0
    if not some.any():
        raise DataError("no row of the table has a weight; give at least one")
    kind = np.int64 if dataset.schema.task == "classification" else np.float64
    y = dataset.y.reshape(dataset.n_rows, -1).astype(kind)
    found = Weighed(dataset.matrix(), y, weight)
    return found if some.all() else found.take(some)


def check_count(name: str, value: Any, least: int, most: int) -> None:
    """Refuse what is no whole number from `least` to `most`."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        raise SettingError(f"{name} is {value!r}; give a whole number from {least} to {most}")
