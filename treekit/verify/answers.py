"""What a model or an artifact says to rows, and whether two of them say the same bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Label, Schema
from treekit.model.ensemble import Model

__all__ = ["INCONSISTENT", "REFUSED", "STRANGE", "Answers", "differing", "expected", "label_codes"]

REFUSED = -1
STRANGE = -2
"""A label that is not one of the model's."""
INCONSISTENT = -3
"""Two functions of one artifact disagree whether the row is refused."""


@dataclass(frozen=True)
class Answers:
    """Answers to n rows.

    Attributes
    ----------
    label : (n,) int64
        Class number, or `REFUSED`, `STRANGE`, `INCONSISTENT`; 0 for regression.
    number : (n, outputs) float64
        Probabilities of the classes, or the predicted number; no matter in
        rows without an answer.
    """

    label: npt.NDArray[np.int64]
    number: npt.NDArray[np.float64]


def expected(model: Model, rows: npt.NDArray[np.float64], n_refused: int) -> Answers:
    """The definition: integer sums, the first largest class, one division.

    The last `n_refused` rows are those that the policies refuse.
    """
    from treekit.model.predict import sums

    n_accepted = len(rows) - n_refused
    label = np.full(len(rows), REFUSED, dtype=np.int64)
    number = np.zeros((len(rows), model.schema.n_values))
    total = sums(model, rows[:n_accepted])
    if model.schema.task == "classification":
        label[:n_accepted] = total.argmax(axis=1)
        number[:n_accepted] = total / model.unit_total
    else:
        label[:n_accepted] = 0
        number[:n_accepted] = np.ldexp(total / model.n_trees, model.exponent)
    return Answers(label, number)


def differing(a: Answers, b: Answers) -> npt.NDArray[np.int64]:
    """Rows in which labels or any bit of the numbers differ, ascending."""
    other = a.label != b.label
    bits = a.number.view(np.int64) != b.number.view(np.int64)
    return np.flatnonzero(other | (bits.any(axis=1) & (a.label >= 0)))


def label_codes(schema: Schema, labels: list[Label]) -> npt.NDArray[np.int64]:
    """Class numbers of labels; a label of another type is `STRANGE`."""
    codes = {(type(label), label): code for code, label in enumerate(schema.classes)}
    return np.array([codes.get((type(x), x), STRANGE) for x in labels], dtype=np.int64)
