"""The splitters that come with treekit, provided through the same hook as everyone's."""

from __future__ import annotations

from treekit.contracts import Splitter, SplitterFunctions
from treekit.hookspecs import hookimpl

__all__ = ["treekit_splitters"]


def _exact() -> SplitterFunctions:
    from treekit.kernels.axis import find_axis

    return SplitterFunctions(find=find_axis, coding="exact")


def _histogram() -> SplitterFunctions:
    from treekit.kernels.axis import find_axis

    return SplitterFunctions(find=find_axis, coding="histogram")


def _random() -> SplitterFunctions:
    from treekit.kernels.random import find_random

    return SplitterFunctions(find=find_random, coding="exact")


@hookimpl
def treekit_splitters() -> list[Splitter]:
    """The exact and the histogram splitter, one search over two codings; and random tests."""
    return [
        Splitter("exact", _exact, summary="every cut between values present in the node"),
        Splitter("histogram", _histogram, summary="at most 255 cuts a column, at quantiles"),
        Splitter("random", _random, summary="one test drawn a column (Geurts et al. 2006)"),
    ]
