"""CHAID: multiway splits by independence tests on merged categories (Kass 1980).

G. V. Kass, "An exploratory technique for investigating large quantities of
categorical data", Applied Statistics 29(2), 1980, pp. 119-127.
"""

from __future__ import annotations

from functools import lru_cache

from treekit import Setting, Splitter, SplitterFunctions, hookimpl

__all__ = ["make", "treekit_splitters"]

SETTINGS = (
    Setting("alpha_split", 0.05, "largest adjusted p-value of a split", above=0.0, maximum=1.0),
    Setting("alpha_merge", 0.05, "merge categories with a larger p-value", above=0.0, maximum=1.0),
    Setting(
        "alpha_split_merged",
        0.0,
        "split merged categories again at a p-value up to this, at most alpha_merge; 0: never",
        minimum=0.0,
        maximum=1.0,
    ),
    Setting("bonferroni", True, "multiply p-values by the number of ways to merge categories"),
    Setting("bins", 10, "maximum quantile bins of a number at a node", minimum=2, maximum=500),
    Setting(
        "most_levels",
        500,
        "skip nominal columns with more categories at a node",
        minimum=2,
        maximum=5000,
    ),
)


@lru_cache(maxsize=32)
def make(
    alpha_split: float,
    alpha_merge: float,
    alpha_split_merged: float,
    bonferroni: bool,
    bins: int,
    most_levels: int,
) -> SplitterFunctions:
    """Return the splitter's functions for given settings; cached, so they compile only once."""
    from treekit_chaid.search import make_find  # imports numba

    find = make_find(alpha_split, alpha_merge, alpha_split_merged, bonferroni, bins, most_levels)
    return SplitterFunctions(find=find, intervals=True)


@hookimpl
def treekit_splitters() -> list[Splitter]:
    """Register the splitter."""
    return [Splitter("chaid", make, SETTINGS, "multiway splits by chi-squared tests (Kass 1980)")]
