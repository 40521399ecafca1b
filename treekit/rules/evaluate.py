"""Running rules without their trees: what the rules that answer a row sum to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import DataError
from treekit.rules.fired import fired
from treekit.rules.policies import refused, rounded_rows
from treekit.rules.rulelist import RuleList

__all__ = ["sums"]


def sums(rules: RuleList, rows: Any) -> npt.NDArray[np.int64]:
    """(rows, outputs) int64: see `RuleList.sums`.

    Rules that overlap, or leave a gap, are summed as they are; of an ordered list the first
    of each tree that fits is taken.
    """
    matrix = rounded_rows(rules.schema, rows)
    if (stop := refused(rules, matrix)).any():
        raise DataError(
            f"row {int(np.argmax(stop))} has a missing value or an unseen category, which this "
            f"model refuses (missing: {rules.missing}, unknown: {rules.unknown}); fill or drop it"
        )
    result = np.zeros((len(matrix), rules.schema.n_values), dtype=np.int64)
    for piece in fired(rules, matrix):
        said = rules.units[piece.rule]
        np.add.at(result, piece.row, said * piece.mass[:, None] if rules.mass > 1 else said)
    return result
