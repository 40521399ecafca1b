"""What a model or an artifact says to rows, and whether two of them say the same bits."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Label, Output, Schema
from treekit.model.links import values_of
from treekit.model.model import Model, least_cost
from treekit.rules import RuleList

__all__ = [
    "INCONSISTENT",
    "REFUSED",
    "STRANGE",
    "Answers",
    "answers_of",
    "differing",
    "expected",
    "label_codes",
    "said",
]

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
    label : (n, outputs) int64
        Class number in each output, or `REFUSED`, `STRANGE`, `INCONSISTENT`;
        0 for regression.
    number : (n, values) float64, or float32 of artifacts that have no more
        Probabilities of the classes, or the predicted numbers, one output
        after the other; no matter in rows without an answer.  (n, 0) from an
        artifact that tells labels alone.
    """

    label: npt.NDArray[np.int64]
    number: npt.NDArray[np.float64]


def expected(model: Model, rows: npt.NDArray[np.float64], n_refused: int) -> Answers:
    """The definition: integer sums, the first largest class, one division.

    The last `n_refused` rows are those that the policies refuse.
    """
    from treekit.model.scoring import sums

    answered = np.arange(len(rows)) < len(rows) - n_refused
    return answers_of(model, sums(model, rows[answered]), answered)


def answers_of(
    said: Model | RuleList, total: npt.NDArray[np.int64], answered: npt.NDArray[np.bool_]
) -> Answers:
    """The answers that integer sums stand for.

    Parameters
    ----------
    said : Model or RuleList
        What the sums are of.
    total : (answered rows, values) int64
    answered : (rows,) bool
        The rows that are not refused.
    """
    schema = said.schema
    label = np.full((len(answered), len(schema.outputs)), REFUSED, dtype=np.int64)
    number = np.zeros((len(answered), schema.n_values))
    costs = said.label_costs if isinstance(said, Model) else said.costs
    if schema.task == "classification":
        for k, (first, last) in enumerate(itertools.pairwise(schema.blocks)):
            label[answered, k] = least_cost(total[:, first:last], costs)
    else:
        label[answered] = 0
    number[answered] = values_of(said, total)
    return Answers(label, number)


def differing(a: Answers, b: Answers) -> npt.NDArray[np.int64]:
    """Rows in which labels or any bit of the numbers differ, ascending.

    Numbers that `b` has in float32 only are held against those of `a`, rounded.
    """
    other = (a.label != b.label).any(axis=1)
    if b.number.shape[1] == 0:  # labels alone
        return np.flatnonzero(other)
    whole = {4: np.int32, 8: np.int64}[b.number.itemsize]
    wanted = np.ascontiguousarray(a.number, dtype=b.number.dtype)
    bits = (wanted.view(whole) != b.number.view(whole)).any(axis=1)
    return np.flatnonzero(other | (bits & (a.label[:, 0] >= 0)))


def label_codes(output: Output, labels: list[Label]) -> npt.NDArray[np.int64]:
    """Class numbers of labels; a label of another type is `STRANGE`."""
    codes = {(type(label), label): code for code, label in enumerate(output.classes)}
    return np.array([codes.get((type(x), x), STRANGE) for x in labels], dtype=np.int64)


def said(schema: Schema, answers: Answers, row: int) -> str:
    """What the answers say to a row, in words."""
    labels, numbers = answers.label[row].tolist(), answers.number[row].tolist()
    if REFUSED in labels:
        return "that it refuses the row"
    if INCONSISTENT in labels:
        return "both an answer and that it refuses the row"
    words = []
    blocks = itertools.pairwise(schema.blocks)
    for output, label, (first, last) in zip(schema.outputs, labels, blocks, strict=True):
        answer = repr(numbers[first]) if numbers else ""
        if output.classes:
            strange = "a label that is none of the classes"
            name = strange if label == STRANGE else repr(output.classes[label])
            answer = f"{name}, probabilities {numbers[first:last]}" if numbers else name
        words.append(f"{output.name!r} is {answer}" if schema.more else answer)
    return "; ".join(words)
