"""Columns that a task reads beside the target: an event, a treatment, a protected group."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from treekit.contracts import TaskColumn
from treekit.data.cells import is_text, map_cells
from treekit.data.numbers import numeric_cells
from treekit.data.schema import python_label
from treekit.data.table import Table
from treekit.data.target import refuse_missing
from treekit.errors import DataError

__all__ = ["read_beside"]


def read_beside(
    table: Table, names: Mapping[str, str], known: Mapping[str, TaskColumn] | None = None
) -> dict[str, TaskColumn]:
    """The columns `names` (role to name) of a table, by their roles.

    Parameters
    ----------
    known : mapping of str to TaskColumn, optional
        Those of the training table: text is coded by their levels.

    Raises
    ------
    DataError
        If a column is not there, a cell is missing or infinite, or not among
        the levels of training.
    """
    known = known or {}
    return {role: _read(table, role, name, known.get(role)) for role, name in names.items()}


def _read(table: Table, role: str, name: str, known: TaskColumn | None) -> TaskColumn:
    table.index(name, f"{role} column")
    cells = table.column(name)
    refuse_missing(name, cells, f"the {role} column")
    labelled = is_text(cells) or cells.dtype.kind in "Ob" or bool(table.levels.get(name))
    if known is not None and labelled != bool(known.levels):
        raise DataError(
            f"the {role} column {name!r} held {'labels' if known.levels else 'numbers'} in "
            f"training and holds {'labels' if labelled else 'numbers'} here; write them alike"
        )
    if not labelled:
        values = numeric_cells(table, name).astype(np.float64)
        if np.isinf(values).any():
            row = int(np.isinf(values).argmax())
            raise DataError(
                f"the {role} column {name!r} is infinite in row {row} (counting from 0); its "
                "numbers must be finite"
            )
        return TaskColumn(name, values)
    present = sorted(set(cells.tolist()))
    levels = known.levels if known else tuple(python_label(level) for level in present)
    code = {level: position for position, level in enumerate(levels)}
    if strange := [level for level in present if level not in code]:
        raise DataError(
            f"the {role} column {name!r} holds {strange[0]!r}, which training did not see: it saw "
            + ", ".join(map(repr, levels))
        )
    return TaskColumn(name, map_cells(cells, code.__getitem__, np.int32), levels)
