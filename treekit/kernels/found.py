"""The split that a search has found so far: its cells, and how candidates compare."""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined, kernel

__all__ = [
    "AFTER",
    "BAD_CHOICE",
    "BAD_NUMBER",
    "BAD_ORDER",
    "BAD_PENALTY",
    "BAD_PRIORITY",
    "BAD_SCORE",
    "BAD_SPLIT",
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
    "finite",
]

TOLERANCE = 1e-9
"""Scores closer than this, relative, are ties (see the design's semantics)."""

THRESHOLD, SUBSET, MULTIWAY, MISSING = 1, 2, 3, 4

KIND, FEATURE, CUT, AFTER, MISSING_BRANCH, BRANCHES, LEVELS, RANK, FOUND = range(9)
"""Cells of `out`: the split found.

Kind 0 = none, below 0 one of `BAD_NUMBER` and the like.  Codes up to the cut go
left; after = the next code present at the node.  Levels are counted here and lie
in ``scratch.levels``.  Rank orders the splits of one column for ties.  FOUND is
the number of cells.
"""

THRESHOLD_VALUE, SCORE, SHRINK, NUMBERS = range(4)
"""Cells of `numbers`: the threshold (NaN = the builder's own), the score, and
what a penalty leaves of it (1 = all).  NUMBERS is the number of cells.
"""

BAD_NUMBER, BAD_SPLIT, BAD_SCORE, BAD_CHOICE, BAD_PRIORITY, BAD_PENALTY, BAD_ORDER = range(
    -1, -8, -1
)
"""Why growth stops: a criterion gave a number that is NaN or infinite (statistics of a
branch are in ``scratch.best``); a splitter named an impossible split, or one of such a
score; `choose` named no column that has a split; a priority, a penalty (of so many
candidates, which ``scratch.best`` begins with), or the order of levels is no finite
number.
"""


@inlined
def finite(number):
    """Whether a number is neither NaN nor infinite."""
    return abs(number) < np.inf


@kernel
def better(score, feature, rank, impurity, out, numbers):
    """Whether a split beats the best so far: ties go to the lower column, then rank."""
    if not finite(score):
        return False
    if out[KIND] == 0:
        return True
    slack = TOLERANCE * max(abs(numbers[SCORE]), impurity)
    if score > numbers[SCORE] + slack:
        return True
    if score < numbers[SCORE] - slack:
        return False
    return feature < out[FEATURE] or (feature == out[FEATURE] and rank < out[RANK])
