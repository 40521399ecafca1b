"""Built-in splitters, registered through the same hook as those of plugins."""

from __future__ import annotations

from treekit.contracts import Setting, Splitter, SplitterFunctions
from treekit.hookspecs import hookimpl
from treekit.kernels.axis_splits import (
    find_axis_split,
    find_binned_split,
)
from treekit.kernels.compile import SplitterKernel
from treekit.kernels.oblique_splits import (
    COORDINATE,
    LINEAR,
    PRINCIPAL,
    find_oblique_split,
)
from treekit.kernels.quantile_splits import find_quantile_split
from treekit.kernels.random_splits import find_random_split

# ---------------------------------------------------------------- registration


def make_exact() -> SplitterFunctions:
    """Search every cut of each column."""
    return SplitterFunctions(find=AXIS_SPLITTER, coding="exact")


def make_histogram() -> SplitterFunctions:
    """Search the cuts between the bins of each column."""
    return SplitterFunctions(find=BINNED_SPLITTER, coding="histogram")


def make_random() -> SplitterFunctions:
    """Draw one test of each column (Geurts, Ernst and Wehenkel 2006)."""
    find = SplitterKernel(find_random_split, supports_monotonic=True, supports_keys=True)
    return SplitterFunctions(find=find, coding="exact")


@hookimpl
def treekit_splitters() -> list[Splitter]:
    """Return the exact, histogram, random and oblique splitters."""
    return [
        Splitter("exact", make_exact, summary="every cut between values present in the node"),
        Splitter("histogram", make_histogram, summary="at most 255 cuts per column, at quantiles"),
        Splitter("random", make_random, summary="one random test per column (Geurts et al. 2006)"),
        Splitter(
            "oblique",
            make_oblique,
            settings=(
                Setting(
                    "method", "linear", "find weights by ridge regression, coordinate search "
                    "with random restarts (OC1), or principal axes",
                    choices=("linear", "coordinate", "principal"),
                ),
                Setting("terms", 3, "maximum number of columns in a sum", minimum=2),
                Setting("restarts", 10, "coordinate: random restarts", minimum=0, maximum=1000),
                Setting("digits", 3, "significant digits of the weights", minimum=1, maximum=7),
                Setting("ridge", 0.01, "linear: penalty on squared weights", minimum=1e-9),
            ),
            summary="thresholds on weighted sums of columns and on single columns",
        ),
    ]  # fmt: skip


# ---------------------------------------------------------------- axis-aligned

AXIS_SPLITTER = SplitterKernel(
    find_axis_split,
    quantile_kernel=find_quantile_split,
    supports_monotonic=True,
)

BINNED_SPLITTER = SplitterKernel(
    find_axis_split,
    quantile_kernel=find_quantile_split,
    supports_monotonic=True,
    records_kernel=find_binned_split,
)


# ---------------------------------------------------------------- oblique

OBLIQUE_METHODS = {"linear": LINEAR, "coordinate": COORDINATE, "principal": PRINCIPAL}


def make_oblique(
    method: str, terms: int, restarts: int, digits: int, ridge: float
) -> SplitterFunctions:
    """Search single columns and sums of columns; a sum is used only if it scores higher.

    Sums have few columns and weights of few digits, to keep rules readable; the
    threshold is then chosen again among all rows of the node.  With
    ``thresholds="readable"`` weights and threshold are rounded to the fewest digits that
    keep each training row on its side.

    Parameters
    ----------
    method : {"linear", "coordinate", "principal"}
        A ridge regression of the target; the coordinate search of Murthy, Kasif and
        Salzberg (1994); or the principal axes of the node's rows.
    terms : int
        Maximum number of columns in a sum.
    restarts : int
        ``coordinate``: random restarts.
    digits : int
        Significant decimal digits of the weights.
    ridge : float
        ``linear``: penalty on squared standardised weights.
    """
    options = (OBLIQUE_METHODS[method], terms, restarts, digits, ridge)
    numbers = tuple(float(option) for option in options)
    find = SplitterKernel(find_oblique_split, numbers)
    return SplitterFunctions(find=find, coding="exact", sums=True)
