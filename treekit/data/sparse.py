"""Read sparse matrices as tables, converting one column at a time to a dense array.

A zero is a number like any other; NaN is a missing cell.  The whole matrix is never a dense array
of floats: training stores the code of each cell, and prediction converts blocks of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["SparseColumns", "is_sparse"]

_BLOCK_CELLS = 1 << 21
"""Number of cells of a dense block of rows."""


def is_sparse(source: Any) -> bool:
    """Check for a scipy sparse matrix or array."""
    return hasattr(source, "tocsr") and hasattr(source, "nnz")


class SparseColumns(Sequence[npt.NDArray[Any]]):
    """Columns of a sparse matrix, each converted to a dense array on access and not cached."""

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix.tocsc()
        if self._matrix.dtype.kind not in "fiu" or self._matrix.dtype.itemsize < 4:
            self._matrix = self._matrix.astype(np.float64)
        if not self._matrix.has_canonical_format:
            self._matrix = self._matrix.copy()
            self._matrix.sum_duplicates()
        self.n_rows, self.n_columns = self._matrix.shape

    def __len__(self) -> int:
        return int(self.n_columns)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return [self[at] for at in range(*position.indices(len(self)))]
        position = range(len(self))[position]
        own = self._matrix
        stored = slice(own.indptr[position], own.indptr[position + 1])
        column = np.zeros(self.n_rows, own.dtype)
        column[own.indices[stored]] = own.data[stored]
        return column

    def take(self, rows: Any) -> SparseColumns:
        """Select rows."""
        return SparseColumns(self._matrix[rows])

    def to_dense(self) -> npt.NDArray[Any]:
        """Return the dense matrix (rows, columns)."""
        dense: npt.NDArray[Any] = self._matrix.toarray()
        return dense

    def iterate_blocks(self) -> Iterator[tuple[int, SparseColumns]]:
        """Yield the index of the first row and the rows of each block."""
        size = max(_BLOCK_CELLS // max(len(self), 1), 1)
        rows = self._matrix.tocsr()
        for first in range(0, self.n_rows, size):
            yield first, SparseColumns(rows[first : first + size])
