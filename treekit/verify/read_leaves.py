"""Reading back what the leaves of C source say.

See ``templates/c/leaves_dense.jinja``, ``leaves_sparse.jinja`` and ``leaves_text.jinja``.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError

__all__ = ["leaves_in"]

Array = npt.NDArray[Any]


def leaves_in(text: str, arrays: dict[str, Array], schema: Schema) -> Array:
    """(leaves, values) int64: what each leaf says.

    Raises
    ------
    VerificationError, LookupError, ValueError
        If the tables of leaves are not treekit's.
    """
    units, n_values = arrays["leaf_units"], schema.n_values
    if units.dtype == np.uint8:  # each what it is more than the least
        width = re.search(r"_leaf_units\[i / \d+\] \+ i % \d+ \* ([1248]);", text)
        least = re.search(r"\)more \+ \((-?\d{1,18})\);", text)
        if width is None or least is None:
            raise VerificationError("leaves that are not treekit's")
        units = units.view(f"<u{width[1]}").astype(np.int64) + int(least[1])
    if "leaf_starts" not in arrays:
        return units.reshape(-1, n_values)
    start = arrays["leaf_starts"]
    said = np.zeros((len(start) - 1, n_values), dtype=np.int64)
    row = np.repeat(np.arange(len(said)), np.diff(start))
    at = np.arange(start[0], start[-1])
    np.add.at(said, (row, arrays["leaf_columns"][at]), units[at])
    return said
