"""The row that somebody asks about: its cells as given, and as the model reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.encoding import encode_rows
from treekit.data.features import UNSEEN, level_codes
from treekit.data.schema import level_text
from treekit.data.table import Table, make_table, near_names, objects, read_table
from treekit.errors import DataError
from treekit.rules.explain.records import Given

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = ["Row", "read_row", "with_cells"]


class Row(NamedTuple):
    """A row.

    Attributes
    ----------
    table : Table
        Of one row, with each column of the model.
    codes : (features,) list of float
        Encoded; see `treekit.data.encoding`.
    cells : tuple of Given
    """

    table: Table
    codes: list[float]
    cells: tuple[Given, ...]


def read_row(model: Model, given: Any) -> Row:
    """A row of any kind.

    Parameters
    ----------
    model : Model
    given : mapping, (features,) array, row of a dataframe, or table of one row
        A mapping from columns to cells may leave columns out, which are missing then, and
        may hold targets, which are not looked at; it names no others.

    Raises
    ------
    DataError
        For unknown columns, another number of rows, and cells that cannot be read.
    """
    schema = model.schema
    if hasattr(given, "to_dict") and getattr(given, "ndim", 2) == 1:  # a row of a dataframe
        given = {name: cell for name, cell in given.to_dict().items() if name in schema.names}
    if isinstance(given, Mapping) and not any(map(_is_column, given.values())):
        table = _of_cells(model, given)
    else:
        if isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype.names is None:
            given = given[None]
        table = read_table(given, missing=schema.missing_marks)
    if table.n_rows != 1:
        raise DataError(f"one row can be explained at a time, not {table.n_rows}; choose one")
    absent: set[str] = set()
    if table.named:
        absent = {name for name in schema.names if name not in table.names}
        table = _with_absent(table, absent)
    # Policies are looked at below: a refused row is explained, too.
    codes = encode_rows(table, schema, missing_marks=table.missing)[0].astype(np.float64)
    cells = []
    for place, (column, code) in enumerate(zip(schema.columns, codes.tolist(), strict=True)):
        at = table.index(column.name) if table.named else place
        state: Any = "missing" if math.isnan(code) else "known"
        nominal = column.kind == "nominal"
        if nominal and level_codes(table, table.names[at], column.levels)[0] == UNSEEN:
            state = "unseen"
        if column.name in absent:
            state = "absent"
        text = None if state in ("missing", "absent") else level_text(table.cells[at][0])
        refused = model.missing == "error" if state != "known" else False
        refused |= model.unknown == "error" and state == "unseen"
        cells.append(Given(column.name, text, state, refused=refused))
    return Row(table, codes.tolist(), tuple(cells))


def with_cells(row: Row, model: Model, texts: Mapping[int, str]) -> npt.NDArray[Any]:
    """(1, features): the row with other texts in some columns, encoded as any table is."""
    cells, untyped = list(row.table.cells), set(row.table.untyped)
    for column, text in texts.items():
        name = model.schema.names[column]
        at = row.table.index(name) if row.table.named else column
        cells[at] = objects([text])
        if model.schema.columns[column].kind == "numeric":
            untyped.add(row.table.names[at])
    table = Table(
        row.table.names,
        tuple(cells),
        row.table.levels,
        frozenset(untyped),
        row.table.named,
        row.table.missing,
    )
    return encode_rows(table, model.schema, missing_marks=table.missing)


def _is_column(value: Any) -> bool:
    return not isinstance(value, str) and hasattr(value, "__len__")


def _of_cells(model: Model, given: Mapping[Any, Any]) -> Table:
    schema = model.schema
    known = {*schema.names, *(output.name for output in schema.outputs)}
    for name in given:
        if name not in known:
            hint = near_names(str(name), schema.names)
            raise DataError(f"the model has no column {str(name)!r}; {hint}")
    names = [name for name in given if name in schema.names]
    if not names:
        first = schema.names[0]
        raise DataError(f"the row names no column of the model; its first column is {first!r}")
    untyped = all(isinstance(given[name], str) for name in names)
    columns = [objects([given[name]]) for name in names]
    table = make_table(names, columns, untyped=untyped)
    return read_table(table, missing=schema.missing_marks)


def _with_absent(table: Table, absent: set[str]) -> Table:
    if not absent:
        return table
    names = (*table.names, *sorted(absent))
    cells = (*table.cells, *(np.array([np.nan]) for _ in absent))
    return Table(names, cells, table.levels, table.untyped, True, table.missing)
