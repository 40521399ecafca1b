"""The dataset's target as the statistics that the criterion asks for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.contracts import CriterionFunctions, Ranks
from treekit.data.dataset import Dataset
from treekit.errors import DataError
from treekit.grow.target_statistics import (
    Target,
    class_target,
    classes_target,
    layout_target,
    number_target,
    numbers_target,
    rank_target,
)
from treekit.training.part import Part
from treekit.training.tasks import place_rows

__all__ = ["criterion_target"]


def criterion_target(dataset: Dataset, criterion: Part, drawn: bool) -> Target:
    """Statistics of each row.

    Parameters
    ----------
    drawn : bool
        Rows will be drawn in proportion to their weight (a bootstrap), not weighted by it.

    Raises
    ------
    DataError
        For numbers that the criterion is not defined for, or whose squares leave float64.
    """
    schema, weights = dataset.schema, dataset.weights
    if criterion.layout is not None:
        placed = place_rows(criterion.record, criterion.layout, dataset)
        n_answers = len(criterion.layout.names) or len(schema.classes)
        return layout_target(
            placed, criterion.layout, n_answers, weights, dataset.factors, drawn=drawn
        )
    if schema.task == "classification":
        codes = np.asarray(dataset.y, dtype=np.int32)
        if schema.more:
            sizes = [len(output.classes) for output in schema.outputs]
            return classes_target(codes, sizes, weights, dataset.factors, drawn=drawn)
        return class_target(codes, len(schema.classes), weights, dataset.factors, drawn=drawn)
    functions: CriterionFunctions = criterion.functions
    statistics = functions.statistics
    y = np.asarray(dataset.y, dtype=np.float64)
    if isinstance(statistics, Ranks):
        return rank_target(y, weights, statistics.quantile, drawn=drawn)
    if statistics.smallest is not None:
        for output, own in zip(schema.outputs, y.reshape(len(y), -1).T, strict=True):
            _refuse_below(statistics.smallest, own, output.name, criterion.record.name)
    if schema.more:
        return numbers_target(y, weights, drawn=drawn, centred=statistics.centred)
    return number_target(y, weights, drawn=drawn, centred=statistics.centred)


def _refuse_below(smallest: float, y: npt.NDArray[np.float64], target: str, criterion: str) -> None:
    below = y < smallest
    if below.any():
        row = int(below.argmax())
        raise DataError(
            f"criterion {criterion!r} needs a target of at least {smallest:g}, but {target!r} is "
            f"{y[row]:g} in row {row} (counting from 0; {int(below.sum())} such rows): drop or "
            "correct them, or choose another criterion"
        )
