"""Columns of float32 as order-preserving integers, for splitters that sort nothing.

A key is a code that says its value itself: it costs no sort to make, and no
look-up of the value to compare with a threshold that lies anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.matrix import WAYS, NominalSplits
from treekit.data.room import matrix_room
from treekit.kernels.drawn import KEYS
from treekit.kernels.node import Table

__all__ = ["keys_of", "make_key_table"]

_TOP = np.uint32(0x80000000)


def make_key_table(
    columns: Sequence[npt.NDArray[Any]],
    n_levels: npt.NDArray[np.int64],
    nominal: npt.NDArray[np.bool_],
    *,
    nominal_splits: NominalSplits = "subset",
    n_rows: int | None = None,
) -> Table:
    """Code the training columns of a float32 model by `keys_of`, the nominal ones as ever.

    Parameters are those of `treekit.data.matrix.make_table`.

    Returns
    -------
    Table
        uint32 codes; ``n_codes`` of a numeric column is `KEYS`, which means
        missing, and `low` and `high` are empty.  Cost: a pass over the cells.
    """
    n_rows = len(columns[0]) if n_rows is None else n_rows
    codes = matrix_room((len(columns), n_rows), np.uint32)
    for f in range(len(columns)):
        column = columns[f]
        if nominal[f]:
            codes[f] = np.where(column < 0, n_levels[f], column)
        else:
            codes[f] = keys_of(column)
    return Table(
        codes=codes,
        n_codes=np.where(nominal, n_levels, int(KEYS)).astype(np.uint32),
        nominal=np.where(nominal, WAYS[nominal_splits], 0).astype(np.uint8),
        value_start=np.zeros(len(columns), dtype=np.int64),
        low=np.empty(0),
        high=np.empty(0),
    )


def keys_of(column: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """Integers that order as the float32 numbers of a column do; NaN is `KEYS`.

    The bits of a float order as integers do, those of the negative ones
    backwards; 0.0 and -0.0 are one number and have one key.
    """
    bits = np.ascontiguousarray(column, dtype=np.float32).view(np.uint32)
    keys = np.where(bits > _TOP, ~bits, bits | _TOP)
    keys[column != column] = KEYS
    return keys
