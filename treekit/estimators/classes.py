"""Class weights in scikit-learn's words: of one output a setting, of several the rows' own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import compute_class_weight

from treekit.data.dataset import Dataset
from treekit.errors import SettingError

__all__ = ["class_factors", "class_weight_setting", "row_factors"]

Numbers = npt.NDArray[np.float64]


def class_factors(
    class_weight: Any, labels: Sequence[npt.NDArray[Any]], codes: npt.NDArray[Any]
) -> list[Numbers]:
    """What the rows of each class weigh, (classes,) of each output.

    Parameters
    ----------
    class_weight : dict, "balanced", or of several outputs a sequence of these
        ``balanced``: rows over the rows of the class and the number of classes,
        whatever the rows weigh; as in scikit-learn.
    labels : sequence of (classes,) arrays
        Of each output.
    codes : (rows,) or (rows, outputs) int
        Training rows; all classes occur.

    Raises
    ------
    SettingError
        If several outputs are not given as many.
    """
    columns = codes.reshape(len(codes), -1).T
    each = [class_weight] * len(labels)
    if len(labels) > 1 and not isinstance(class_weight, str):
        each = list(class_weight) if isinstance(class_weight, (list, tuple)) else []
        if len(each) != len(labels):
            raise SettingError(
                f"class_weight is {class_weight!r}, but there are {len(labels)} outputs; give "
                "'balanced', or a list of as many dicts"
            )
    return [
        compute_class_weight(given, classes=own, y=own[code])
        for given, own, code in zip(each, labels, columns, strict=True)
    ]


def row_factors(factors: Sequence[Numbers], codes: npt.NDArray[Any]) -> Numbers:
    """(rows,): the product over the outputs of what each row's class weighs."""
    columns = codes.reshape(len(codes), -1).T
    each = [own[code] for own, code in zip(factors, columns, strict=True)]
    return np.asarray(np.prod(each, axis=0), dtype=np.float64)


def class_weight_setting(
    class_weight: Any, labels: npt.NDArray[Any], dataset: Dataset
) -> str | Mapping[Any, float] | None:
    """`class_weight` of a single output as the setting of `treekit.train`.

    The two agree, but that ``balanced`` is there by the weight of a class.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced" and dataset.weights is None:
        return class_weight
    (factors,) = class_factors(class_weight, [labels], dataset.y)
    return dict(zip(dataset.schema.classes, factors.tolist(), strict=True))
