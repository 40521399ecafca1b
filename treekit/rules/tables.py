"""Tables as rules read them: rows as numbers and codes, targets as codes or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Output, Schema, level_text
from treekit.errors import DataError
from treekit.rules.measure import Measures, table_measures
from treekit.rules.rulelist import RuleList

if TYPE_CHECKING:
    from treekit.data.table import Table

__all__ = ["Known", "known_rows", "measured", "rows_of"]

Matrix = npt.NDArray[np.float64]


class Known(NamedTuple):
    """The rows of a table with their targets.

    Attributes
    ----------
    matrix : (rows, features) float64
        As `RuleList.sums` takes it.  A category that the schema lacks has a code beyond
        the vocabulary, so that `RuleList.refused` sees it.
    targets : (rows, targets) float64
        As `table_measures` takes them.
    """

    matrix: Matrix
    targets: Matrix


def measured(
    rules: RuleList, table: Any, targets: Sequence[str] | None = None, weight: str | None = None
) -> Measures:
    """What a table says of each rule; see `treekit.rules.measure.table_measures`.

    Parameters
    ----------
    rules : RuleList
    table : table
        Anything `treekit.data.table.read_table` takes; columns are found by name.
    targets : sequence of str, optional
        The columns that hold the targets, in the order of the schema; default those of
        the schema's names.
    weight : str, optional
        The column of the rows' weights; default 1 each.

    Raises
    ------
    DataError
        If a column is absent, or a cell cannot be read.
    """
    read = _read(table, rules.schema)
    known = known_rows(rules.schema, read, targets)
    weights = None if weight is None else _numbers(read, weight, "weight column")
    return table_measures(rules, known.matrix, known.targets, weights)


def known_rows(schema: Schema, table: Any, targets: Sequence[str] | None = None) -> Known:
    """The rows of a table and their targets, by the columns of a schema.

    Nothing is refused here: `RuleList.refused` says which rows a list does not answer.
    """
    read = _read(table, schema)
    names = [output.name for output in schema.outputs] if targets is None else list(targets)
    if len(names) != len(schema.outputs):
        raise DataError(
            f"{len(names)} target columns are named, but the rules answer "
            f"{len(schema.outputs)}: {', '.join(repr(o.name) for o in schema.outputs[:8])}"
        )
    for name in names:
        read.index(name, "target column")
    columns = [
        _target(read, name, output) for name, output in zip(names, schema.outputs, strict=True)
    ]
    return Known(rows_of(schema, read), np.stack(columns, axis=1))


def rows_of(schema: Schema, table: Any) -> Matrix:
    """(rows, features) float64: see `Known.matrix`."""
    from treekit.data.encoding import encode_rows
    from treekit.data.features import UNSEEN, level_codes

    read = _read(table, schema)
    matrix = np.array(encode_rows(read, schema, missing_marks=read.missing), dtype=np.float64)
    for feature, column in enumerate(schema.columns):
        if column.kind == "nominal":
            unseen = level_codes(read, _name(read, schema, feature), column.levels) == UNSEEN
            matrix[unseen, feature] = len(column.levels)
    return matrix


def _read(table: Any, schema: Schema) -> Table:
    from treekit.data.table import Table, read_table

    return table if isinstance(table, Table) else read_table(table, missing=schema.missing_marks)


def _name(table: Table, schema: Schema, feature: int) -> str:
    return schema.names[feature] if table.named else table.names[feature]


def _target(table: Table, name: str, output: Output) -> npt.NDArray[np.float64]:
    """(rows,) float64: codes of labels, or numbers."""
    if not output.classes:
        return _numbers(table, name, "target column")
    from treekit.data.features import level_codes

    # As texts: a file knows no types.  Other labels than the schema's are codes below -1.
    texts = [level_text(label) or "" for label in output.classes]
    return level_codes(table, name, texts).astype(np.float64)


def _numbers(table: Table, name: str, role: str) -> npt.NDArray[np.float64]:
    from treekit.data.features import numeric_cells

    table.index(name, role)
    return np.asarray(numeric_cells(table, name), dtype=np.float64)
