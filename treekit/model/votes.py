"""How leaves vote, and how sums of votes become a label."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.model.joined import GROUP, groups
from treekit.model.portable import UNITS, quotas, units_per_tree

if TYPE_CHECKING:
    from treekit.model.ensemble import Voting
    from treekit.model.tree import Tree

__all__ = ["Ballot", "least_cost", "spread", "spread_trees", "units_each"]


class Ballot(Protocol):
    """What decides how many votes a leaf has; see `treekit.model.ensemble.Model`."""

    @property
    def schema(self) -> Schema: ...  # noqa: D102
    @property
    def n_trees(self) -> int: ...  # noqa: D102
    @property
    def mass(self) -> int: ...  # noqa: D102
    @property
    def voting(self) -> Voting: ...  # noqa: D102
    @property
    def costs(self) -> npt.NDArray[np.int64] | None: ...  # noqa: D102


def units_each(model: Ballot) -> int:
    """Votes that each leaf of a model spreads over the classes of an output."""
    if model.voting == "hard":
        return 1
    wide = model.mass == 1 and model.costs is None
    return units_per_tree(model.n_trees, model.schema.dtype if wide else "float32")


def spread(model: Ballot, values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Class weights (leaves, values) as votes, each output's classes apart."""
    blocks = model.schema.blocks
    parts = []
    for first, last in itertools.pairwise(blocks):
        weights = values[:, first:last]
        if model.voting == "hard":
            label = least_cost(quotas(weights, UNITS["float32"]), model.costs)
            weights = np.eye(last - first)[label]
        parts.append(quotas(weights, units_each(model)))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def spread_trees(model: Ballot, trees: Sequence[Tree]) -> npt.NDArray[np.int64]:
    """The votes of all leaves, tree after tree and in node order."""
    units = np.empty((sum(tree.n_leaves for tree in trees), model.schema.n_values), dtype=np.int64)
    at = 0
    for group in groups(trees, GROUP):  # all weights at once would be as large as the votes
        weights = np.concatenate([tree.value[tree.leaves] for tree in group])
        units[at : at + len(weights)] = spread(model, weights)
        at += len(weights)
    return units


def least_cost(
    votes: npt.NDArray[np.int64], costs: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.int64]:
    """(rows,) int64: the first class of most votes, or of least expected cost."""
    label: npt.NDArray[np.int64]
    if costs is not None:
        label = (votes @ costs).argmin(axis=1)
    elif votes.shape[1] == 2:  # an argmax along a short axis costs a call a row
        label = (votes[:, 1] > votes[:, 0]).astype(np.int64)
    else:
        label = votes.argmax(axis=1)
    return label
