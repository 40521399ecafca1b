"""The splitters that come with treekit, provided through the same hook as everyone's."""

from __future__ import annotations

from typing import Any

from treekit.contracts import Setting, Splitter, SplitterFunctions
from treekit.hookspecs import hookimpl

__all__ = ["treekit_splitters"]


def _exact() -> SplitterFunctions:
    from treekit.splitters.axis import AXIS

    return SplitterFunctions(find=AXIS, coding="exact")


def _histogram() -> SplitterFunctions:
    from treekit.splitters.axis import AXIS

    return SplitterFunctions(find=AXIS, coding="histogram")


def _oblique(**settings: Any) -> SplitterFunctions:
    from treekit.splitters.oblique import oblique

    return oblique(**settings)


def _random() -> SplitterFunctions:
    from treekit.kernels.compile import Finder
    from treekit.kernels.random_splits import find_random

    return SplitterFunctions(find=Finder(find_random, bounded=True, keys=True), coding="exact")


@hookimpl
def treekit_splitters() -> list[Splitter]:
    """The exact and the histogram search, random tests, and tests of sums."""
    return [
        Splitter("exact", _exact, summary="every cut between values present in the node"),
        Splitter("histogram", _histogram, summary="at most 255 cuts a column, at quantiles"),
        Splitter("random", _random, summary="one test drawn a column (Geurts et al. 2006)"),
        Splitter(
            "oblique",
            _oblique,
            settings=(
                Setting(
                    "method", "linear", "how weights are found: ridge regression, coordinate "
                    "search with random restarts (OC1), or principal axes",
                    choices=("linear", "coordinate", "principal"),
                ),
                Setting("terms", 3, "columns in a sum, at most", minimum=2),
                Setting("restarts", 10, "coordinate: random starts", minimum=0, maximum=1000),
                Setting("digits", 3, "significant digits of weights", minimum=1, maximum=7),
                Setting("ridge", 0.01, "linear: penalty on squared weights", minimum=1e-9),
            ),
            summary="thresholds on sums of columns, and on single ones",
        ),
    ]  # fmt: skip
