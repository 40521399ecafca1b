"""Surrogates of a grown tree: memory to find them in, and their part of a `Tree`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.binning import Coding
from treekit.data.schema import Dtype
from treekit.grow.recipe import SurrogateRule
from treekit.kernels.grow_tree import Grown
from treekit.kernels.records import Table
from treekit.kernels.surrogate_splits import Surrogacy
from treekit.model.fixed_point import threshold_between
from treekit.model.tree import gathered

__all__ = ["make_surrogacy", "surrogate_fields"]


def make_surrogacy(
    rule: SurrogateRule, table: Table, held_table: Table | None, n_rows: int
) -> Surrogacy:
    """Working memory for a tree of `n_rows` rows whose nodes keep surrogates by `rule`."""
    n_features = len(table.n_codes)
    held = table if held_table is None else held_table
    return Surrogacy(
        most=rule.most,
        of_known=rule.of_known,
        right_and_wrong=rule.right_and_wrong,
        ids=np.empty(n_rows + 1, np.uint32),
        cells=np.empty(n_rows + 1, np.uint32),
        values=np.empty((n_rows + 1, 1)),
        routed=np.zeros((1, table.codes.shape[1]), table.codes.dtype),
        held_routed=np.zeros((1, held.codes.shape[1]), held.codes.dtype),
        agreement=np.empty(n_features),
        tests=np.zeros((n_features, 2), np.int64),
    )


def surrogate_fields(
    grown: Grown,
    inner: npt.NDArray[np.bool_],
    table: Table,
    coding: Coding,
    dtype: Dtype,
) -> dict[str, npt.NDArray[Any]]:
    """The fields ``surrogate_*`` of a `Tree`; none for trees without surrogates.

    Parameters
    ----------
    grown : Grown
    inner : (n,) bool
        Nodes that are split; surrogates of nodes that were closed again go.
    table : Table
        What the codes of thresholds mean.
    """
    if grown.found is None or grown.replies is None:
        return {}
    found = grown.found[inner[grown.found["node"]]]
    found = found[np.argsort(found["node"], kind="stable")]
    counts = np.bincount(found["node"], minlength=len(inner))
    sizes = found["n_levels"]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    threshold = np.full(len(found), np.nan)
    numeric = table.nominal[found["feature"]] == 0
    base = table.value_start[found["feature"][numeric]]
    cut = found["cut"][numeric]
    after = found["after"][numeric] if coding == "exact" else cut + 1
    threshold[numeric] = threshold_between(table.high[base + cut], table.low[base + after], dtype)
    return {
        "surrogate_start": np.concatenate([[0], np.cumsum(counts)]),
        "surrogate_feature": found["feature"],
        "surrogate_threshold": threshold,
        "surrogate_below": found["below"],
        "surrogate_level_start": starts,
        "surrogate_level_branch": gathered(grown.replies, found["level_start"], sizes),
    }
