"""Schemas: names, kinds and vocabularies of columns, and the target.

The schema is part of the model.  It alone defines how a raw row becomes numbers, in this
process and in every exported artifact.
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from enum import Enum
from typing import Any, Literal

import msgspec
import numpy as np

from treekit.data.text_format import MISSING_MARKS, NUMBER_MARKS, TextFormat, get_number_marks
from treekit.errors import DataError, find_repeated

__all__ = [
    "MISSING_MARKS",
    "NUMBER_MARKS",
    "Column",
    "Dtype",
    "Kind",
    "Label",
    "Output",
    "Rounding",
    "Schema",
    "Task",
    "level_text",
    "python_label",
]

Kind = Literal["numeric", "nominal"]
Dtype = Literal["float32", "float64"]
Task = Literal["classification", "regression"]
Label = bool | int | float | str


Rounding = Literal["to_zero", "float32_down"]


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One input column.

    Attributes
    ----------
    name : str
        Name in the table; any text (generated code always escapes it).
    kind : {"numeric", "nominal"}
    levels : tuple of str
        The categories of a nominal column, in declared order; the code of a category
        is its position.  Empty for numeric columns.
    rounds : {"to_zero", "float32_down"}, optional
        How a number that is no category becomes a whole number, as in the library of an
        imported model: cut towards 0, or rounded to float32 and then down.  Absent in other
        models, in which it is no category.
    """

    name: str
    kind: Kind = "numeric"
    levels: tuple[str, ...] = ()
    rounds: Rounding | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.kind == "numeric" and self.levels:
            raise DataError(f"column {self.name!r} is numeric and cannot declare levels")
        if len(set(self.levels)) != len(self.levels):
            raise DataError(f"column {self.name!r} declares a level twice")


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One target: the name of its column, and its class labels in order (empty for regression)."""

    name: str
    classes: tuple[Label, ...] = ()


class Notation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The notation of numbers in text, if it is not that of Python."""

    decimal: str
    thousands: str


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Columns, target and input type of a model.

    Attributes
    ----------
    columns : tuple of Column
        Inputs, in the order of every artifact's input vector.
    target : str
        Name of the target column.
    task : {"classification", "regression"}
    classes : tuple of bool, int, float or str
        Labels in schema order (ties go to the first); empty for regression.
    dtype : {"float32", "float64"}
        The input type, to which every numeric input is rounded first.
    missing_marks : tuple of str
        Texts that mean missing, unless they are categories of their column.
    more : tuple of Output
        Targets after the first, of the same task; `outputs` lists all.
    notation : Notation, optional
        Notation of numbers in text; unset for that of Python.  See `text_format`.
    """

    columns: tuple[Column, ...]
    target: str = "target"
    task: Task = "classification"
    classes: tuple[Label, ...] = ()
    dtype: Dtype = "float32"
    missing_marks: tuple[str, ...] = MISSING_MARKS
    more: tuple[Output, ...] = ()
    notation: Notation | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if not names:
            raise DataError("a model needs at least one input column")
        if (twice := find_repeated(names)) is not None:
            raise DataError(f"column name {twice!r} appears twice; rename one of them")
        targets = [output.name for output in self.outputs]
        if len(set(targets)) != len(targets):
            raise DataError("a target column is named twice; name each target once")
        for output in self.outputs:
            _check_output(output, self.task)
        self.text_format  # noqa: B018 - its own checks

    @property
    def n_features(self) -> int:
        """Number of input columns."""
        return len(self.columns)

    @property
    def outputs(self) -> tuple[Output, ...]:
        """All targets, at least one."""
        return (Output(self.target, self.classes), *self.more)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Offset of each output in a leaf's vector, and the end of the last."""
        sizes = [len(output.classes) or 1 for output in self.outputs]
        return tuple(itertools.accumulate(sizes, initial=0))

    @property
    def text_format(self) -> TextFormat:
        """Meaning of text in tables: marks of missing values, notation of numbers."""
        marks = frozenset(self.missing_marks)
        if isinstance(self.notation, msgspec.UnsetType):
            return TextFormat(marks)
        return TextFormat(marks, self.notation.decimal, self.notation.thousands)

    @property
    def number_marks(self) -> tuple[str, ...]:
        """Texts that mean missing in numeric columns."""
        return get_number_marks(self.missing_marks)

    @property
    def n_values(self) -> int:
        """Length of a leaf's vector: all classes of all outputs, or a number for each output."""
        return self.blocks[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the input columns."""
        return tuple(column.name for column in self.columns)

    @property
    def n_levels(self) -> np.ndarray:
        """Number of categories of each column, 0 for numeric columns: (features,) int64."""
        return np.array([len(column.levels) for column in self.columns], dtype=np.int64)

    @property
    def nominal(self) -> np.ndarray:
        """Mask of nominal columns: (features,) bool."""
        return np.array([column.kind == "nominal" for column in self.columns], dtype=np.bool_)


def _check_output(output: Output, task: Task) -> None:
    if task == "classification" and not output.classes:
        raise DataError("a classification schema needs at least one class")
    if task == "regression" and output.classes:
        raise DataError("a regression schema has no classes")
    if len({(type(label), label) for label in output.classes}) != len(output.classes):
        raise DataError("a class label appears twice in the schema; labels must be distinct")
    if len({type(label) for label in output.classes}) > 1:
        raise DataError("class labels must all be of one type (text, integer, float or bool)")
    if any(isinstance(label, float) and not math.isfinite(label) for label in output.classes):
        raise DataError("a class label is NaN or infinite; labels must be finite")


def level_text(value: Any) -> str | None:
    """Return the category text of a cell of a nominal column, None if it is missing.

    Text is unchanged.  A number or bool has Python's text, a whole number without a point:
    an integer column that a dataframe library widened because of a null cell keeps its texts.
    """
    if value is None or value != value:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    if isinstance(value, Decimal) and value.is_finite():
        return str(int(value)) if value == int(value) else repr(float(value))
    return value.name if isinstance(value, Enum) else str(value)


def python_label(value: Any) -> Label:
    """Convert a class label to the plain Python value stored in files and artifacts."""
    item = value.item() if isinstance(value, np.generic) else value
    if isinstance(item, (bool, int, float, str)):
        return item
    raise DataError(
        f"class label {value!r} is a {type(value).__name__}; labels are text, numbers or bools"
    )
