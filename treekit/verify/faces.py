"""Rows at the bounds of the rules of models that are not plain.

What `treekit.verify.bounds` reads from the box of a rule is searched for here:
for every split on the way to a leaf, rows on either side, with every level
and with nothing known, that meet all other conditions of the leaf's rule.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.model.model import Model
from treekit.verify.hunt import Hunt
from treekit.verify.routed import Routed, routed
from treekit.verify.wishes import level_wishes, no_wishes, wishes

__all__ = ["face_rows"]

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

_ROUNDS = 20


def face_rows(
    model: Model, rows: Array, max_rows: int, rng: np.random.Generator
) -> tuple[Array, int, int]:
    """Rows for the bounds of rules, at most `max_rows`; grown out of `rows`.

    Returns
    -------
    As `treekit.verify.bounds.rule_rows`.
    """
    from treekit.kernels.witness_search import REACHED

    of = routed(model)
    leaves = np.flatnonzero(of.routes.nodes["n_children"] == 0)
    asked = _face_wishes(of, leaves)
    counts = np.bincount(asked["target"], minlength=len(of.routes.nodes))[leaves]
    step = max(-(-int(counts.sum()) // max_rows), 1)
    chosen = leaves[::step]
    chosen = chosen[np.cumsum(counts[::step]) <= max_rows]
    hunt = Hunt(of, asked[np.isin(asked["target"], chosen)], rows, rng)
    hunt.run(np.full(len(hunt.wishes), REACHED), rounds=_ROUNDS)
    return hunt.best[hunt.outcome > 0], len(chosen), len(leaves)


def _face_wishes(of: Routed, leaves: Index) -> npt.NDArray[np.void]:
    """For each leaf, what a row may do at each node on the way to it."""
    from treekit.kernels.witness_search import ABOVE, ANY, AT_MOST, UNKNOWN

    parts = [no_wishes()]
    takes_missing = of.model.missing != "error"
    target, node = leaves, of.routes.nodes["parent"][leaves]
    while len(target := target[node >= 0]):
        node = node[node >= 0]
        column = of.tests.column[node]
        absence = column < 0
        test = np.where(absence, -1, of.tests.test_start[np.maximum(column, 0)])
        linear = ~absence & of.linear[np.maximum(test, 0)] if len(of.linear) else absence & False
        levels = ~absence & ~linear
        parts += [
            wishes(node[linear], test[linear], AT_MOST, target=target[linear]),
            wishes(node[linear], test[linear], ABOVE, target=target[linear]),
            level_wishes(of, test[levels], target[levels]),
            wishes(node[absence], -1, ANY, target=target[absence]),
        ]
        unknown = np.ones(len(node), dtype=np.bool_) if takes_missing else ~absence
        parts.append(wishes(node[unknown], test[unknown], UNKNOWN, target=target[unknown]))
        node = of.routes.nodes["parent"][node]
    return np.concatenate(parts)
