"""A model asked about the rows of a file."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from treekit.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from treekit.data.table import Table
    from treekit.model.model import Model

__all__ = ["answers", "quality", "read_rows", "summed"]


def summed(model: Model, table: Table) -> npt.NDArray[np.int64]:
    """(rows, outputs) int64: summed leaf units, the table's own marks of missing cells kept."""
    from treekit.data.encoding import encode_rows
    from treekit.model.scoring import sums

    matrix = encode_rows(
        table,
        model.schema,
        missing=model.missing,
        unknown=model.unknown,
        missing_marks=table.missing,
    )
    return sums(model, matrix)


def answers(model: Model, table: Table) -> npt.NDArray[Any]:
    """(rows,) labels or numbers."""
    from treekit.model.scoring import decide

    return decide(model, summed(model, table))


def quality(model: Model, table: Table) -> list[tuple[str, float]]:
    """``("accuracy", share)`` or ``("R squared", value)`` of each target, on rows that have it.

    Raises
    ------
    DataError
        If the table lacks a target, in a row or as a whole.
    """
    from treekit.training.tasks import refuse_answers

    refuse_answers(model, "accuracy or R squared")
    outputs = model.schema.outputs
    for output in outputs:
        table.index(output.name, "target column")
    given = answers(model, table).reshape(table.n_rows, -1)
    found = [_quality(model, table, k, given[:, k]) for k in range(len(outputs))]
    if len(outputs) == 1:
        return found
    return [
        (f"{name} of {o.name!r}", value) for o, (name, value) in zip(outputs, found, strict=True)
    ]


def _quality(model: Model, table: Table, k: int, given: npt.NDArray[Any]) -> tuple[str, float]:
    """The figure of target k, whose answers are `given` (rows,)."""
    import numpy as np

    from treekit.data.features import level_codes, numeric_cells
    from treekit.data.schema import level_text

    output = model.schema.outputs[k]
    target = output.name
    if model.schema.task == "classification":
        # As texts: a file knows no types, and a label that the model lacks is just wrong.
        texts = [level_text(label) or "" for label in output.classes]
        actual = level_codes(table, target, texts)
        gone = actual == -1
        right = actual == [texts.index(level_text(label) or "") for label in given.tolist()]
    else:
        number = numeric_cells(table, target).astype(np.float64)
        gone = np.isnan(number)
    if gone.any():
        raise DataError(
            f"the target {target!r} is missing in {int(gone.sum())} rows, the first is row "
            f"{int(gone.argmax())} (counting from 0); a test needs every target: drop those rows"
        )
    if model.schema.task == "classification":
        return "accuracy", float(right.mean())
    spread = float(((number - number.mean()) ** 2).sum())
    error = float(((number - given) ** 2).sum())
    return "R squared", 1.0 - error / spread if spread > 0 else 0.0


def read_rows(path: str, marks: Collection[str] | None) -> Table:
    """The table in a file; `marks` are texts that mean missing."""
    from treekit.cli.waiting import reading_progress
    from treekit.data.cells import MISSING_MARKS
    from treekit.data.table import read_table

    with reading_progress() as progress:
        return read_table(
            path, missing=MISSING_MARKS if marks is None else marks, progress=progress
        )
