"""Predictions of a model or an artifact, and their comparison bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Label, Output, Schema
from treekit.errors import VerificationError
from treekit.model.links import convert_sums
from treekit.model.model import Model, predict_labels
from treekit.rules import RuleList

REFUSED = -1
UNKNOWN_LABEL = -2
"""A label that is not one of the model's."""
INCONSISTENT = -3
"""Two functions of one artifact disagree on whether the row is refused."""


@dataclass(frozen=True)
class Answers:
    """Predictions for n rows.

    Attributes
    ----------
    label : (n, outputs) int64
        Class number in each output, or `REFUSED`, `UNKNOWN_LABEL`, `INCONSISTENT`;
        0 for regression.
    number : (n, values) float64, or float32 of artifacts without doubles
        Class probabilities or predicted numbers, one output after the other;
        undefined in rows without a prediction.  (n, 0) from an artifact that
        returns labels only.
    """

    label: npt.NDArray[np.int64]
    number: npt.NDArray[np.float64]


def take_answers(answers: Answers, rows: slice | npt.NDArray[np.int64]) -> Answers:
    """Return the answers of some rows."""
    return Answers(answers.label[rows], answers.number[rows])


def concatenate_answers(parts: Sequence[Answers]) -> Answers:
    """Concatenate answers; a number is float32 if it is in any part."""
    numbers = [part.number for part in parts]
    dtype = np.float32 if any(one.dtype == np.float32 for one in numbers) else np.float64
    return Answers(
        np.concatenate([part.label for part in parts]),
        np.concatenate(numbers, dtype=dtype, casting="same_kind"),
    )


def parse_predictions(
    name: str, content: bytes, n: int, schema: Schema, n_labels: int, label: str, number: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Parse the labels (n, labels) and numbers (n, values) that a program wrote row by row.

    Labels that are no classes become `UNKNOWN_LABEL`; `label` and `number` are the types.
    """
    record = np.dtype([("label", label, (n_labels,)), ("number", number, (schema.n_values,))])
    if len(content) != n * record.itemsize:
        raise VerificationError(f"{name!r} did not return a prediction for every row")
    table = np.frombuffer(content, dtype=record)
    labels = table["label"].astype(np.int64)
    n_classes = [max(len(output.classes), 1) for output in schema.outputs[:n_labels]]
    labels[(labels < INCONSISTENT) | (labels >= n_classes)] = UNKNOWN_LABEL
    return labels, np.ascontiguousarray(table["number"].astype(number[1:]))


def parse_plain_predictions(
    name: str, content: bytes, n: int, schema: Schema, label: str = "<f8", number: str = "<f8"
) -> Answers:
    """Parse what a program of the readable form wrote: the code of a label, or a number, a row.

    `label` and `number` are the types.
    """
    regression = schema.task == "regression"
    kind = np.dtype(number if regression else label)
    if len(content) != n * kind.itemsize:
        raise VerificationError(f"{name!r} did not return a prediction for every row")
    column = np.frombuffer(content, dtype=kind)[:, None]
    if regression:
        return Answers(np.zeros((n, 1), dtype=np.int64), column.astype(np.float64))
    codes = column.astype(np.int64)
    codes[(codes < 0) | (codes >= len(schema.classes))] = UNKNOWN_LABEL
    return Answers(codes, np.empty((n, 0)))


def make_refusals(n: int, schema: Schema, n_numbers: int) -> Answers:
    """Return the answers of n refused rows."""
    label = np.full((n, len(schema.outputs)), REFUSED, dtype=np.int64)
    return Answers(label, np.zeros((n, n_numbers)))


def expected(model: Model, rows: npt.NDArray[np.float64], n_refused: int) -> Answers:
    """Compute the predictions that every artifact must return, from fixed-point leaf values.

    The last `n_refused` rows are refused: they get no prediction.
    """
    from treekit.model.scoring import sum_leaf_values

    answered = np.arange(len(rows)) < len(rows) - n_refused
    return answers_from_sums(model, sum_leaf_values(model, rows[answered]), answered)


def answers_from_sums(
    source: Model | RuleList, total: npt.NDArray[np.int64], answered: npt.NDArray[np.bool_]
) -> Answers:
    """Convert integer sums to predictions.

    Parameters
    ----------
    source : Model or RuleList
        Source of the sums.
    total : (answered rows, values) int64
    answered : (rows,) bool
        Rows that are not refused.
    """
    schema = source.schema
    label = np.full((len(answered), len(schema.outputs)), REFUSED, dtype=np.int64)
    number = np.zeros((len(answered), schema.n_values))
    costs = source.label_costs if isinstance(source, Model) else source.costs
    if schema.task == "classification":
        for k, (first, last) in enumerate(itertools.pairwise(schema.blocks)):
            label[answered, k] = predict_labels(total[:, first:last], costs)
    else:
        label[answered] = 0
    number[answered] = convert_sums(source, total)
    return Answers(label, number)


def differing(a: Answers, b: Answers) -> npt.NDArray[np.int64]:
    """Return the rows in which labels or any bit of the numbers differ, ascending.

    Float32 numbers of `b` are compared with those of `a` rounded to float32.
    """
    other = (a.label != b.label).any(axis=1)
    if b.number.shape[1] == 0:  # labels alone
        return np.flatnonzero(other)
    integer = {4: np.int32, 8: np.int64}[b.number.itemsize]
    rounded = np.ascontiguousarray(a.number, dtype=b.number.dtype)
    bits = (rounded.view(integer) != b.number.view(integer)).any(axis=1)
    return np.flatnonzero(other | (bits & (a.label[:, 0] >= 0)))


def encode_labels(output: Output, labels: list[Label]) -> npt.NDArray[np.int64]:
    """Convert labels to class numbers; a label that is no class is `UNKNOWN_LABEL`."""
    codes = {(type(label), label): code for code, label in enumerate(output.classes)}
    return np.array([codes.get((type(x), x), UNKNOWN_LABEL) for x in labels], dtype=np.int64)


def describe_answer(schema: Schema, answers: Answers, row: int) -> str:
    """Describe the prediction for a row."""
    labels, numbers = answers.label[row].tolist(), answers.number[row].tolist()
    if REFUSED in labels:
        return "row refused"
    if INCONSISTENT in labels:
        return "both a prediction and a refusal"
    words = []
    blocks = itertools.pairwise(schema.blocks)
    for output, label, (first, last) in zip(schema.outputs, labels, blocks, strict=True):
        answer = repr(numbers[first]) if numbers else ""
        if output.classes:
            strange = "a label that is not one of the classes"
            name = strange if label == UNKNOWN_LABEL else repr(output.classes[label])
            answer = f"{name}, probabilities {numbers[first:last]}" if numbers else name
        words.append(f"{output.name!r} is {answer}" if schema.more else answer)
    return "; ".join(words)
