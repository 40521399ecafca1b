"""Input columns of a table: which kind each is, its levels, and what float32 would lose."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.columns import Columns, narrowed
from treekit.data.levels import UNSEEN, level_codes, vocabulary
from treekit.data.numbers import (
    Floats,
    InputType,
    Loss,
    check_input_type,
    choose_dtype,
    loss_of,
    numeric_cells,
    round_to,
    warn_if_merged,
)
from treekit.data.schema import Column, Dtype
from treekit.data.table import Table, near_names
from treekit.errors import DataError

__all__ = ["Kinds", "read_inputs"]

Codes = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Kinds:
    """What the caller says of the columns."""

    nominal: Sequence[str]
    numeric: Sequence[str]
    levels: Mapping[str, Sequence[Any]]

    def check(self, inputs: Collection[str]) -> None:
        """Raise `DataError` for names that are no inputs, or declared as both kinds."""
        roles = {"nominal": self.nominal, "numeric": self.numeric, "levels": self.levels}
        for role, names in roles.items():
            for name in names:
                if name not in inputs:
                    raise DataError(
                        f"{role} names {name!r}, which is no input column; "
                        + near_names(name, inputs)
                    )
        both = set(self.numeric) & (set(self.nominal) | set(self.levels))
        if both:
            raise DataError(
                f"column {min(both)!r} is declared both numeric and nominal; choose one"
            )

    def is_nominal(self, table: Table, name: str) -> bool:
        """Whether the column is one of categories."""
        if name in self.numeric:
            return False
        if name in self.nominal or name in self.levels or table.levels.get(name):
            return True
        return table.column(name).dtype.kind in "Ob"


def read_inputs(
    table: Table, names: Sequence[str], kinds: Kinds, dtype: InputType
) -> tuple[tuple[Column, ...], Dtype, Columns]:
    """The columns of a schema, its input type, and their cells; each column is read once.

    Raises
    ------
    DataError
        For cells that training cannot use; names column, row and value.
    """
    check_input_type(dtype)
    columns: list[Column] = []
    makers: list[Callable[[Dtype], npt.NDArray[Any]]] = []
    losses: dict[str, Loss] = {}
    for name in names:
        if kinds.is_nominal(table, name):
            column, codes = _nominal_column(table, name, kinds.levels.get(name))
            makers.append(partial(_codes, narrowed(codes)))
        else:
            column, values = Column(name), _numeric_column(table, name)
            if dtype == "float32" or (dtype == "auto" and not any(losses.values())):
                losses[name] = loss_of(values)
            parsed = table.column(name).dtype.kind == "O"  # not twice: it costs more than memory
            makers.append(partial(round_to, values) if parsed else partial(_numbers, table, name))
        columns.append(column)
    input_type = choose_dtype(losses, dtype)
    return tuple(columns), input_type, Columns([partial(maker, input_type) for maker in makers])


def _codes(codes: npt.NDArray[Any], dtype: Dtype) -> Codes:
    del dtype
    return codes.astype(np.int32, copy=False)


def _numbers(table: Table, name: str, dtype: Dtype) -> Floats:
    return round_to(numeric_cells(table, name), dtype)


def _nominal_column(
    table: Table, name: str, declared: Sequence[Any] | None
) -> tuple[Column, Codes]:
    levels = vocabulary(table, name, declared)
    codes = level_codes(table, name, levels)
    unseen = codes == UNSEEN
    if unseen.any():
        row = int(unseen.argmax())
        value = table.cells[table.index(name)][row]
        raise DataError(
            f"column {name!r} holds {value!r} in row {row} (counting from 0), which is not among "
            "its declared levels; declare it too"
        )
    return Column(name, "nominal", levels), codes


def _numeric_column(table: Table, name: str) -> Floats:
    values = numeric_cells(table, name)
    bad = np.isinf(values)
    if bad.any():
        raise DataError(
            f"column {name!r} is infinite in row {int(bad.argmax())} (counting from 0); training "
            "needs finite or missing numbers: correct the cell or make it missing"
        )
    warn_if_merged(table, name)
    return values
