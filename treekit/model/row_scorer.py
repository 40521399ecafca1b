"""A warm handle for one row at a time: `Model.predict` without reading a table.

>>> score = model.scorer()
>>> rows = score.rows({"age": [41.0, 29.0], "town": ["Ulm", None]})  # or any other table
>>> score(rows[0])
'yes'
>>> score.proba(rows[0])
array([0.13, 0.87])

For models of numeric columns alone a row is their numbers, NaN where one is missing:
``np.array([41.0, 3.5], score.dtype)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.errors import DataError
from treekit.model.scoring import accepted, decide, encoded, label_codes, probabilities, sums

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = [
    "Scorer",
]

Sums = npt.NDArray[np.int64]


class Scorer:
    """Scores rows one by one, as `Model.predict` and `Model.predict_proba` do, to the bit.

    A row is an array of the model's input type: (features,) or (1, features) numbers,
    and codes of levels (their places among the levels of the column), as `rows` makes
    them.  Nothing but type and width is checked, and what the model's policies refuse:
    a number that is no code counts as missing.  It may be called from many threads: a
    call shares nothing.

    A forest of 100 trees of depth 8 answers within some 3 us.  Rows that divide, and
    nodes that ask for sums or have surrogates, take what a small table takes.
    """

    __slots__ = (
        *("_as_keys", "_cells", "_dtype", "_facts"),
        *("_model", "_say", "_shapes", "_total", "_walk"),
    )

    def __init__(self, model: Model) -> None:
        self._model = model
        self._dtype = np.dtype(model.schema.dtype)
        self._shapes = (model.schema.n_features,), (1, model.schema.n_features)
        votes = model.schema.task == "classification" and not model.margins
        self._total = model.unit_total if votes and not model.schema.more else 0
        self._say = _teller(model)
        self._walk, self._facts = _walker(model)
        # Cells are as wide as the keys, which need 64 bits where columns or nodes are many.
        self._cells = np.dtype(f"f{model.packed.trees.nodes.itemsize}")
        self._as_keys = self._cells == self._dtype

    def __call__(self, row: npt.NDArray[np.floating[Any]]) -> Any:
        """The label, as the schema has it, or the number; of several outputs (outputs,) of them.

        Raises
        ------
        DataError
            If it is no array of the model's type and width, or a policy refuses a cell.
        """
        first, total = self._sums(row)
        return self._say(first, total)

    def proba(self, row: npt.NDArray[np.floating[Any]]) -> Any:
        """(classes,) float64: the probability of each class; of several outputs a list of such.

        Raises
        ------
        DataError
            As for a call.
        ModelError
            If the model is one of numbers.
        """
        _, total = self._sums(row)
        if self._total:
            return total / self._total
        shares = probabilities(self._model, total[None])
        return [own[0] for own in shares] if isinstance(shares, list) else shares[0]

    def sums(self, row: npt.NDArray[np.floating[Any]]) -> Sums:
        """(values,) int64: the integer sums of the row, as `treekit.model.scoring.sums`.

        Raises
        ------
        DataError
            As for a call.
        """
        return self._sums(row)[1]

    def rows(self, table: Any) -> npt.NDArray[np.floating[Any]]:
        """(rows, features) of `dtype`: rows of any table, as `Model.predict` takes them, to score.

        Raises
        ------
        DataError
            Names the column, and the row and value where there is one.
        """
        return encoded(self._model, table)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a row's numbers: the model's input type."""
        return self._dtype

    def __reduce__(self) -> tuple[type[Scorer], tuple[Model]]:
        return type(self), (self._model,)

    def __repr__(self) -> str:
        (width,) = self._shapes[0]
        return f"<Scorer of rows ({width},) of {self._dtype}>"

    def _sums(self, row: npt.NDArray[np.floating[Any]]) -> tuple[int, Sums]:
        """Where the first largest sum is, and the sums (values,)."""
        narrow, wide = self._shapes
        if type(row) is not np.ndarray or row.dtype != self._dtype:
            raise DataError(
                f"a row to score is a plain array of {self._dtype}, not {_type_text(row)}; "
                "use rows() to make such rows of a table, or predict"
            )
        if row.shape == wide:
            row = row[0]
        elif row.shape != narrow:
            raise DataError(f"the row has shape {row.shape}; the model needs {narrow} or {wide}")
        flags = row.flags
        if not (self._as_keys and flags.c_contiguous and flags.writeable and flags.aligned):
            row = row.astype(self._cells)  # one type for the compiled loop
        if self._walk is None:
            total = sums(self._model, row[None])[0]
            return int(total.argmax()), total
        total = np.empty(self._model.units.shape[1], np.int64)
        first = self._walk(row, *self._facts, total)
        if first < 0:
            accepted(self._model, row[None])  # says which cell is refused, and why
        return first, total


def _type_text(row: Any) -> str:
    """What somebody gave in place of a row."""
    name = type(row).__name__
    return f"{name} of {row.dtype}" if hasattr(row, "dtype") and row.ndim else name


def _teller(model: Model) -> Callable[[int, Sums], Any]:
    """What turns the sums of a row, and the place of the first largest, into an answer."""
    schema = model.schema
    if schema.more:
        return lambda _, total: decide(model, total[None])[0]
    if schema.task == "classification":
        labels = schema.classes
        if model.label_costs is None:
            return lambda first, _: labels[first]
        return lambda _, total: labels[label_codes(model, total[None]).item()]
    if model.link != "identity":
        return lambda _, total: decide(model, total[None]).item()
    divisor, exponent = model.divisor, model.exponent
    return lambda _, total: math.ldexp(total.item() / divisor, exponent)


def _walker(model: Model) -> tuple[Callable[..., int] | None, tuple[Any, ...]]:
    """The compiled loop for one row and what it takes behind the row; None if it is not for it."""
    trees = model.packed.trees
    if trees.derived is not None:
        return None, ()
    from treekit.kernels.score_row import REFUSE_MISSING, REFUSE_UNKNOWN, sum_row

    schema = model.schema
    refuse = REFUSE_MISSING * (model.missing == "error")
    refuse |= REFUSE_UNKNOWN * (model.unknown == "error")
    return sum_row, (
        *(trees.nodes, trees.roots, trees.table, trees.child_shift),
        *(trees.columns, trees.n_codes),
        np.where(schema.nominal, schema.n_levels + 1, 0).astype(np.uint64),
        np.uint64(refuse),
        model.units,
    )
