"""The input columns of a dataset, each made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

__all__ = ["Columns", "narrowed"]

Column = npt.NDArray[Any]


class Columns(Sequence[Column]):
    """Columns by position; none is kept.

    A column that must be rounded, or that lies in a file, would take four bytes
    a cell or more for as long as the dataset lives; coding wants one at a time.

    Parameters
    ----------
    makers : sequence of callables
        ``maker()`` gives the column (rows,): read only, it may be a view of the source.
    """

    def __init__(self, makers: Sequence[Callable[[], Column]]) -> None:
        self._makers = tuple(makers)

    def __len__(self) -> int:
        return len(self._makers)

    @overload
    def __getitem__(self, position: int) -> Column: ...

    @overload
    def __getitem__(self, position: slice) -> Columns: ...

    def __getitem__(self, position: int | slice) -> Column | Columns:
        if isinstance(position, slice):
            return Columns(self._makers[position])
        return self._makers[position]()


def narrowed(codes: npt.NDArray[np.int32]) -> npt.NDArray[np.signedinteger[Any]]:
    """Codes of levels (rows,), -1 = missing, in the smallest type that holds them."""
    most = int(codes.max(initial=0))
    for dtype in (np.int8, np.int16):
        if most <= np.iinfo(dtype).max:
            return codes.astype(dtype)
    return codes
