"""What inputs can touch in models that are not plain, and whether rows touch the sharpest of it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.model.tree import Split, Tree
from treekit.verify.routed import Routed, trees_of

if TYPE_CHECKING:
    from treekit.kernels.reachability import Can, Touched

__all__ = ["next_to_thresholds", "reachable"]

Array = npt.NDArray[np.float64]

_ROWS = 50_000


def next_to_thresholds(of: Routed, cells: Array, touched: Touched) -> npt.NDArray[np.bool_]:
    """(tests, 2) bool: on which sides the nearest sum is as near as one step of a number."""
    from treekit.kernels.reachability import are_next

    found = np.zeros((len(of.owner), 2), dtype=np.bool_)
    tests, sides = np.nonzero((touched.side >= 0) & of.linear[:, None])
    for at in range(0, len(tests), _ROWS):
        part = slice(at, at + _ROWS)
        near = np.zeros(len(tests[part]), dtype=np.bool_)
        rows = cells[touched.side[tests[part], sides[part]]]
        are_next(of.routes, tests[part], sides[part], rows, of.narrow, near)
        found[tests[part], sides[part]] = near
    return found


def reachable(of: Routed) -> Can:
    """What inputs can touch, as far as boxes and the corners of sums exclude the rest."""
    from treekit.kernels.reachability import Can, can_touch, make_walk

    model, tests = of.model, of.tests
    n, n_tests = len(of.routes.nodes), len(of.owner)
    can = Can(
        node=np.zeros(n, np.bool_),
        unknown=np.zeros(n, np.bool_),
        side=np.zeros((n_tests, 2), np.bool_),
        near=np.zeros((n_tests, 2), np.bool_),
        level=np.zeros(len(tests.level_branch), np.bool_),
        enter=np.zeros(n, np.bool_),
    )
    for tree, root in trees_of(model, of.roots):
        plain, n_behind = _with_columns_behind(of, tree)
        behind = np.zeros(n_behind, dtype=np.int64)
        bar = np.append(np.full(model.schema.n_features, int(model.missing == "error")), behind)
        n_levels = np.append(model.schema.n_levels, behind)
        nominal = np.append(model.schema.nominal, behind.astype(np.bool_))
        walk = make_walk(plain, n_levels, nominal, bar, tree.depth + 1)
        can_touch(walk, of.routes, root, of.narrow, can)
    return can


def _with_columns_behind(of: Routed, tree: Tree) -> tuple[Tree, int]:
    """The tree with a column for each distinct sum, and one for each node with surrogates.

    Nodes that compare the same sum narrow the same interval.
    """
    n_features = of.model.schema.n_features
    sums: dict[bytes, int] = {}
    kind, feature = tree.kind.copy(), tree.feature.copy()
    threshold = tree.threshold.copy()
    bounds = itertools.pairwise(tree.term_start.tolist())
    instead = np.diff(tree.surrogate_start) > 0
    for node, (first, last) in enumerate(bounds):
        if first == last and not instead[node]:
            continue
        key = tree.term_feature[first:last].tobytes() + tree.term_weight[first:last].tobytes()
        number = sums.setdefault(key if first < last else node.to_bytes(8, "big"), len(sums))
        kind[node], feature[node] = Split.THRESHOLD, n_features + number
        threshold[node] = 0.0 if instead[node] else threshold[node]
    missing: Any = -1 if of.routes.divides else tree.missing
    lowered = replace(
        tree,
        kind=kind,
        feature=feature,
        threshold=threshold,
        missing=np.broadcast_to(missing, tree.missing.shape),
    )
    return lowered, len(sums)
