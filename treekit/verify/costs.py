"""Rows in which single costs decide.

A label is the class of least expected cost; that one entry of the table of
costs is off by 1 shows only where two classes cost almost the same.  Such
rows are bred: rows that come nearest exchange cells with others, and their
children are measured again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from treekit.model.model import Model
from treekit.model.scoring import sums

__all__ = ["cost_rows"]

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

_POOL = 20_000
_GENERATIONS = 5
_KEPT = 3
"""So many rows are kept for each entry of the table and each direction."""


def cost_rows(model: Model, rows: Array, rng: np.random.Generator) -> Array:
    """Rows whose label changes, or nearly, if one entry of the costs grows or shrinks by 1.

    Parameters
    ----------
    model : Model
    rows : (rows, features) float64
        Rows that the policies accept, to begin with; cells of accepted rows
        put together are an accepted row.
    rng : numpy.random.Generator

    Returns
    -------
    (rows, features) float64
        None without costs.
    """
    if model.label_costs is None or not len(rows):
        return rows[:0]
    pool = rows[rng.permutation(len(rows))[:_POOL]]
    for _ in range(_GENERATIONS):
        parents = pool[_nearest(sums(model, pool), model.label_costs)]
        n_children = max(_POOL // 4, len(parents))
        first = parents[rng.integers(len(parents), size=n_children)]
        second = rows[rng.integers(len(rows), size=n_children)]
        share = rng.random((n_children, 1)) * 0.5
        children = np.where(rng.random(first.shape) < share, second, first)
        pool = np.concatenate([parents, children])
    best: Array = pool[_nearest(sums(model, pool), model.label_costs)]
    return best


def _nearest(votes: Index, costs: Index) -> Index:
    """Numbers of the rows that are nearest to another label, for each entry and direction."""
    chosen = [np.argsort(-margin, kind="stable")[:_KEPT] for margin in _margins(votes, costs)]
    return np.unique(np.concatenate(chosen))


def _margins(votes: Index, costs: Index) -> Iterator[Index]:
    """(rows,) int64 for each entry and direction: from 0 on, the label changes."""
    expected = votes @ costs
    label = expected.argmin(axis=1)
    n_rows, n_classes = votes.shape
    least = expected[np.arange(n_rows), label]
    never = -(2**62)
    for said in range(n_classes):
        # Among equals the first class wins.
        behind = label < said
        dearer = np.delete(expected + (np.arange(n_classes) > said), said, axis=1)
        others = dearer.min(axis=1, initial=2**62) - expected[:, said]
        lead = expected[:, said] - least + behind
        for true in range(n_classes):
            yield np.where(label == said, votes[:, true] - others, never)
            yield np.where(label == said, never, votes[:, true] - lead)
