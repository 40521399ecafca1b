"""Rows as rules see them: numbers of the input type; and the rows that policies refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import DataError
from treekit.rules.rulelist import RuleList

__all__ = ["refused", "rounded_rows"]


def rounded_rows(schema: Schema, rows: Any) -> npt.NDArray[np.float64]:
    """(rows, features) float64: a copy of `rows`, numbers rounded to the input type.

    Raises
    ------
    DataError
        If they are of another width.
    """
    matrix = np.array(rows, dtype=np.float64, ndmin=2)
    if matrix.shape[1] != schema.n_features:
        raise DataError(f"rows have {matrix.shape[1]} columns; the rules need {schema.n_features}")
    if schema.dtype == "float32":
        numeric = ~schema.nominal
        with np.errstate(over="ignore", under="ignore"):
            matrix[:, numeric] = matrix[:, numeric].astype(np.float32)
    return matrix


def refused(rules: RuleList, rows: Any) -> npt.NDArray[np.bool_]:
    """(rows,) bool: a missing value or an unseen category where the policy is ``error``."""
    matrix = rounded_rows(rules.schema, rows)
    nominal, n_levels = rules.schema.nominal, rules.schema.n_levels
    absent = np.isnan(matrix)
    # Only whole numbers below the vocabulary's size are codes of levels.
    codes = (matrix >= 0) & (matrix < n_levels) & (matrix == np.floor(matrix))
    strange = nominal & ~codes & ~absent
    result = np.zeros(len(matrix), dtype=np.bool_)
    if rules.missing == "error":
        result |= absent.any(axis=1)
        if rules.unknown == "missing":
            result |= strange.any(axis=1)
    if rules.unknown == "error":
        result |= strange.any(axis=1)
    return result
