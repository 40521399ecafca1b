"""From n-ary trees to the one plain binary node that every target writes.

A lowered node is a leaf or one of three questions.  All that a target must
know about missing values, unseen categories and levels that a node never saw
is in the question: what `Step.IN` does not list goes the other way.

Oblique splits and splits with surrogates become questions to derived columns
(see `treekit.model.derived_features`), which stand behind the columns of the row.
Where rows divide at missing values, `treekit.export.divided` is the form to write.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError
from treekit.model.derived_features import DerivedColumns, derive
from treekit.model.model import Model
from treekit.model.tree import MAX_DEPTH, Split, Tree

__all__ = ["LoweredTree", "Step", "lower", "require_depth"]

_MOST_NODES = 2**31 - 1


class Step(IntEnum):
    """What a lowered node does."""

    LEAF = 0
    LE = 1
    """``x[feature] <= threshold``: yes.  Missing: yes if `LoweredTree.missing_yes`."""
    IN = 2
    """The category code of ``x[feature]`` is in the node's set: yes.  All else,
    missing and unseen values included: no."""
    MISSING = 3
    """``x[feature]`` is missing: yes.  In a nominal column every value that is
    not a whole number in ``[0, levels)`` is missing."""


@dataclass(frozen=True, slots=True)
class LoweredTree:
    """A tree of m binary nodes in pre-order, the yes branch first.

    Attributes
    ----------
    kind : (m,) uint8
        A `Step`.
    feature : (m,) int32
        Column that the node asks; -1 in leaves.  With F input columns, F + d is
        derived column d: 0.0, 1.0 or missing, asked by LE nodes only.
    threshold : (m,) float64
        LE nodes: a finite number of the model's input type, 0.0 for derived
        columns; NaN elsewhere.
    missing_yes : (m,) bool
        LE nodes: whether a missing value takes the yes branch; True in MISSING
        nodes, False elsewhere.
    yes, no : (m,) int32
        Next nodes, -1 in leaves; ``yes`` of an inner node is the node after it.
    leaf : (m,) int64
        Row of `Model.units`; -1 in inner nodes.
    set_start : (m + 1,) int64
        IN node i owns ``set_codes[set_start[i]:set_start[i + 1]]``.
    set_codes : (codes,) int32
        Category codes, ascending within a node, at least one in each IN node.
    depth : int
        Edges from the root to the deepest leaf, a chain of IN nodes counted in full.
    """

    kind: npt.NDArray[np.uint8]
    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    missing_yes: npt.NDArray[np.bool_]
    yes: npt.NDArray[np.int32]
    no: npt.NDArray[np.int32]
    leaf: npt.NDArray[np.int64]
    set_start: npt.NDArray[np.int64]
    set_codes: npt.NDArray[np.int32]
    depth: int

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @property
    def n_nodes(self) -> int:
        """Number of nodes, leaves included."""
        return len(self.kind)

    def codes(self, node: int) -> npt.NDArray[np.int32]:
        """Category codes of an IN node (a view)."""
        return self.set_codes[self.set_start[node] : self.set_start[node + 1]]


def lower(model: Model, derived: DerivedColumns | None = None) -> tuple[LoweredTree, ...]:
    """Turn the trees of a model into plain binary nodes.

    A multiway split becomes a chain of IN nodes, one for each branch that some
    level takes, except the missing branch, which is where the chain ends.  A
    split all of whose levels go the missing way vanishes.

    Parameters
    ----------
    model : Model
    derived : DerivedColumns, optional
        What `derive` makes of the model, for callers that need it as well.

    Raises
    ------
    ExportError
        If rows divide at missing values, which such nodes cannot say, or a
        tree has too many nodes.
    """
    if model.missing == "fractional":
        raise ExportError(
            "this target sends each row to one leaf, and the model's missing policy is "
            "'fractional': rows divide; export to another target, or train with "
            "missing='direction'"
        )
    columns = (derive(model) if derived is None else derived).column
    ends = np.cumsum([tree.n_nodes for tree in model.trees])
    return tuple(
        _lower_tree(tree, int(offset), columns[end - tree.n_nodes : end], model.schema.n_features)
        for tree, offset, end in zip(
            model.trees, model.leaf_offsets[:-1], ends.tolist(), strict=True
        )
    )


def require_depth(trees: tuple[LoweredTree, ...], target: str) -> None:
    """Raise `ExportError` if a lowered tree is deeper than `MAX_DEPTH`."""
    deepest = max(tree.depth for tree in trees)
    if deepest > MAX_DEPTH:
        raise ExportError(
            f"{target} handles trees up to {MAX_DEPTH} binary splits deep, and this model needs "
            f"{deepest} (a multiway split counts one for each branch): set max_depth"
        )


def _lower_tree(
    tree: Tree, first_row: int, column: npt.NDArray[np.int64], n_features: int
) -> LoweredTree:
    """Lower one tree; `column` (n,) is the derived column of each node, -1 = none."""
    from treekit.kernels.tree_passes import lower_nodes

    asks_derived = column >= 0
    inner = tree.kind != Split.LEAF
    bound = tree.n_leaves + int((tree.n_children[inner].astype(np.int64) - 1).sum())
    if bound > _MOST_NODES:
        raise ExportError(f"a tree has more than {_MOST_NODES} binary nodes: set max_depth")
    kind, source, no, set_start, set_codes, depth = lower_nodes(
        np.where(asks_derived, np.uint8(Split.THRESHOLD), tree.kind),
        tree.first_child,
        tree.n_children,
        tree.missing,
        tree.level_start,
        tree.level_branch,
        bound,
    )
    row_of_node = first_row - 1 + np.cumsum(~inner)
    is_leaf, is_le = kind == Step.LEAF, kind == Step.LE
    feature = np.where(asks_derived, n_features + column, tree.feature).astype(np.int32)
    threshold = np.where(asks_derived, 0.0, tree.threshold)
    return LoweredTree(
        kind=kind,
        feature=feature[source],
        threshold=np.where(is_le, threshold[source], np.nan),
        missing_yes=(is_le & (tree.missing[source] == 0)) | (kind == Step.MISSING),
        yes=np.where(is_leaf, -1, np.arange(1, len(kind) + 1)).astype(np.int32),
        no=no,
        leaf=np.where(is_leaf, row_of_node[source], -1),
        set_start=set_start,
        set_codes=set_codes,
        depth=int(depth),
    )
