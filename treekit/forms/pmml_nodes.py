"""The nodes of one tree as PMML, from the root down, without recursion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from treekit.forms.pmml_fields import Fields
from treekit.model.fixed_point import double_threshold
from treekit.model.tree import Split, Tree

__all__ = ["Distribution", "tree_nodes"]

_NODES_A_PIECE = 2048


class Distribution(NamedTuple):
    """What each leaf says of the classes."""

    labels: Sequence[str]
    shares: Sequence[Sequence[float]]
    weights: Sequence[Sequence[float]]


def tree_nodes(
    fields: Fields, tree: Tree, scores: Sequence[str], leaves: Distribution | None
) -> Iterator[str]:
    """Write the nodes; a child's predicate is unknown where the value is missing.

    Then the parent's ``defaultChild`` is taken: the side of missing values.

    Parameters
    ----------
    fields : Fields
    tree : Tree
    scores : sequence of str
        What each leaf answers, in node order.
    leaves : Distribution, optional
    """
    xml, walk = fields.xml, _Walk(fields, tree)
    leaf_of = np.cumsum(tree.kind == Split.LEAF) - 1
    kind, first, count = tree.kind.tolist(), tree.first_child.tolist(), tree.n_children.tolist()
    weight, written = tree.weight.tolist(), 0
    stack: list[tuple[int, int, int]] = [(0, -1, 0)]
    while stack:
        node, parent, branch = stack.pop()
        if node < 0:
            xml.end()
            continue
        told = {"id": str(node)}
        if kind[node] == Split.LEAF:
            told["score"] = scores[leaf_of[node]]
        elif kind[node] != Split.MISSING:
            told["defaultChild"] = str(first[node] + int(tree.missing[node]))
        xml.begin("Node", {**told, "recordCount": repr(weight[node])})
        walk.predicate(parent, branch)
        if kind[node] == Split.LEAF and leaves is not None:
            at = int(leaf_of[node])
            for label, share, own in zip(
                leaves.labels, leaves.shares[at], leaves.weights[at], strict=True
            ):
                said = {"value": label, "recordCount": repr(own), "probability": repr(share)}
                xml.leaf("ScoreDistribution", "", said)
        stack.append((-1, -1, 0))
        stack += [(first[node] + b, node, b) for b in range(count[node] - 1, -1, -1)]
        written += 1
        if written % _NODES_A_PIECE == 0:
            yield xml.take()
    yield xml.take()


class _Walk:
    """The predicates of the branches of a tree."""

    def __init__(self, fields: Fields, tree: Tree) -> None:
        self.fields, self.tree = fields, tree
        finite = np.where(tree.kind == Split.THRESHOLD, tree.threshold, 0.0)
        single = fields.schema.dtype == "float32"
        self.threshold = (double_threshold(finite) if single else finite).tolist()

    def predicate(self, node: int, branch: int) -> None:
        """What a row must meet that goes from `node` to its `branch`."""
        fields = self.fields
        if node < 0:
            fields.guard()
            return
        kind, column = self.tree.kind[node], int(self.tree.feature[node])
        asked = fields.schema.columns[column]
        if asked.kind == "nominal" and not asked.levels:  # every value is missing
            missing = 0 if kind == Split.MISSING else self.tree.missing[node]
            fields.xml.leaf("True" if branch == missing else "False")
        elif kind == Split.THRESHOLD:
            operator = "greaterThan" if branch else "lessOrEqual"
            fields.compared(column, operator, repr(self.threshold[node]))
        elif kind == Split.MISSING:
            fields.compared(column, "isNotMissing" if branch else "isMissing")
        else:
            first, last = self.tree.level_start[node : node + 2].tolist()
            goes = self.tree.level_branch[first:last]
            goes = np.where(goes < 0, self.tree.missing[node], goes)
            fields.one_of(column, [asked.levels[c] for c in np.flatnonzero(goes == branch)])
