"""Trees that cut obliquely: thresholds on sums of columns beside those on single ones."""

from __future__ import annotations

from treekit.contracts import SplitterFunctions
from treekit.kernels.compile import Finder
from treekit.kernels.oblique_splits import (
    COORDINATE,
    LINEAR,
    PRINCIPAL,
    find_oblique,
    find_oblique_of_numbers,
)

__all__ = ["METHODS", "oblique"]

METHODS = {"linear": LINEAR, "coordinate": COORDINATE, "principal": PRINCIPAL}


def oblique(method: str, terms: int, restarts: int, digits: int, ridge: float) -> SplitterFunctions:
    """Search single columns and sums of columns; a sum must score higher to be taken.

    Sums have few columns and weights of few digits, so that rules stay
    readable; the threshold is then chosen anew among all rows of the node.

    Parameters
    ----------
    method : {"linear", "coordinate", "principal"}
        A ridge regression of the target; Murthy, Kasif and Salzberg's (1994)
        coordinate search; or the principal axes of the node's rows.
    terms : int
        Columns in a sum, at most.
    restarts : int
        ``coordinate``: random starts.
    digits : int
        Significant decimal digits of the weights.
    ridge : float
        ``linear``: penalty on squared standardised weights.
    """
    options = (METHODS[method], terms, restarts, digits, ridge)
    numbers = tuple(float(option) for option in options)
    find = Finder(find_oblique, numbers, find_oblique_of_numbers)
    return SplitterFunctions(find=find, coding="exact", sums=True)
