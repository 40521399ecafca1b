"""The split that a search has found so far: its cells, and how candidates compare."""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import kernel

__all__ = [
    "AFTER",
    "BRANCHES",
    "CUT",
    "FEATURE",
    "FOUND",
    "KIND",
    "LEVELS",
    "MISSING",
    "MISSING_BRANCH",
    "MULTIWAY",
    "NUMBERS",
    "RANK",
    "SCORE",
    "SHRINK",
    "SUBSET",
    "THRESHOLD",
    "THRESHOLD_VALUE",
    "TOLERANCE",
    "better",
]

TOLERANCE = 1e-9
"""Scores closer than this, relative, are ties (see the design's semantics)."""

THRESHOLD, SUBSET, MULTIWAY, MISSING = 1, 2, 3, 4

KIND, FEATURE, CUT, AFTER, MISSING_BRANCH, BRANCHES, LEVELS, RANK, FOUND = range(9)
"""Cells of `out`: the split found.

Kind 0 = none, -1 = NaN from the criterion, -3 = an impossible split.  Codes up
to the cut go left; after = the next code present at the node.  Levels are
counted here and lie in ``scratch.levels``.  Rank orders the splits of one
column for ties.  FOUND is the number of cells.
"""

THRESHOLD_VALUE, SCORE, SHRINK, NUMBERS = range(4)
"""Cells of `numbers`: the threshold (NaN = the builder's own), the score, and
what a penalty leaves of it (1 = all).  NUMBERS is the number of cells.
"""


@kernel
def better(score, feature, rank, impurity, out, numbers):
    """Whether a split beats the best so far: ties go to the lower column, then rank."""
    if not (score > -np.inf and score < np.inf):
        return False
    if out[KIND] == 0:
        return True
    slack = TOLERANCE * max(abs(numbers[SCORE]), impurity)
    if score > numbers[SCORE] + slack:
        return True
    if score < numbers[SCORE] - slack:
        return False
    return feature < out[FEATURE] or (feature == out[FEATURE] and rank < out[RANK])
