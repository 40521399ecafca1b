"""Groups of rows: the categories of a column, by which scores are compared."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from treekit.data.schema import level_text
from treekit.data.table import Table
from treekit.errors import DataError

MAX_GROUPS = 50
"""Most groups of a column."""


def read_groups(table: Table, name: str) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the group of each row, and the names of the groups, the largest first.

    A missing cell is the group ``missing``.

    Raises
    ------
    DataError
        If there is no such column, or it has more than `MAX_GROUPS` different cells.
    """
    table.find_column(name, "column of groups")
    texts = [level_text(cell) for cell in table.get_typed_cells(name).tolist()]
    labels = ["missing" if text is None else text for text in texts]
    names = [label for label, _ in Counter(labels).most_common()]
    if len(names) > MAX_GROUPS:
        raise DataError(
            f"column {name!r} has {len(names):,} different cells, too many for groups; give a "
            f"column with at most {MAX_GROUPS}"
        )
    code = {label: at for at, label in enumerate(names)}
    return np.array([code[label] for label in labels], dtype=np.int64), names
