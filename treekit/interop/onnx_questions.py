"""What the nodes of ONNX trees ask, as thresholds and sets of codes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype
from treekit.errors import ModelError, ModelFileError
from treekit.interop.build import Nodes
from treekit.interop.onnx_graph import SOURCE
from treekit.interop.onnx_trees import EQ, GT, GTE, LT, MEMBER, NEQ, OnnxTrees
from treekit.interop.vocabulary import Vocabulary, whole_vocabulary
from treekit.model.fixed_point import floor_to

__all__ = ["nodes_of", "vocabularies_of"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def vocabularies_of(trees: OnnxTrees, n_features: int) -> list[Vocabulary | None]:
    """Of the columns that are asked whether they equal a number; None for the others."""
    found: list[Vocabulary | None] = [None] * n_features
    nodes, start, values = _questions(trees)
    asks = np.zeros(len(trees.mode), dtype=np.bool_)
    asks[nodes] = True
    owner = np.repeat(trees.feature[nodes], np.diff(start))
    compared = np.unique(trees.feature[(trees.true >= 0) & ~asks])
    for feature in np.unique(trees.feature[nodes]).tolist():
        if not 0 <= feature < n_features:
            raise ModelFileError(f"{SOURCE} is damaged: a split asks none of {n_features} columns")
        if feature in compared:
            raise ModelError(
                f"{SOURCE} compares column {feature} by order and by equality (EQ, NEQ, MEMBER), "
                "which no column of treekit's is asked by"
            )
        own = values[owner == feature]
        whole = (own >= 0) & (own < 2**24) & (own == np.floor(own))
        if not np.all(whole):
            raise ModelError(
                f"{SOURCE} asks whether column {feature} equals {own[~whole][0]}; treekit reads "
                "whole numbers from 0, as codes of categories"
            )
        found[feature] = whole_vocabulary(own.astype(np.int64))
    return found


def _questions(trees: OnnxTrees) -> tuple[Ints, Ints, Floats]:
    """Nodes of EQ, NEQ and MEMBER, where the numbers of each begin, and the numbers."""
    single = np.flatnonzero((trees.mode == EQ) | (trees.mode == NEQ))
    several = np.flatnonzero(trees.mode == MEMBER)
    sizes = np.ones(len(trees.mode), dtype=np.int64)
    parts = [trees.members[node] for node in several.tolist()]
    sizes[several] = [len(part) for part in parts]
    nodes = np.concatenate([single, several])
    owner = np.repeat(nodes, sizes[nodes])
    values = np.concatenate([trees.split[single], *parts])
    order = np.argsort(owner, kind="stable")
    nodes = np.sort(nodes)
    return nodes, np.concatenate([[0], np.cumsum(sizes[nodes])]), values[order]


def nodes_of(
    trees: OnnxTrees, dtype: Dtype, vocabularies: list[Vocabulary | None]
) -> tuple[Nodes, bool]:
    """The nodes with ``<=`` and sets alone, and whether unseen numbers go the way of NaN."""
    mode, inner = trees.mode, trees.true >= 0
    sets, set_start, values = _questions(trees)
    # Branch 0 is "at most", or "one of them": the false branch of the opposite questions.
    turned = (mode == GTE) | (mode == GT) | (mode == NEQ)
    with np.errstate(over="ignore"):
        below = np.nextafter(trees.split, -np.inf)
    asked = np.where((mode == LT) | (mode == GTE), below, trees.split)
    asked[sets] = 0.0
    threshold = floor_to(asked, dtype)
    if np.any(inner & (threshold == -np.inf)):
        raise ModelError(
            f"{SOURCE} has a threshold that minus infinity alone is below, which no split of "
            "treekit's can ask"
        )
    missing_true = trees.missing_true | (mode == NEQ)
    set_codes = np.full(len(values), -1, dtype=np.int64)
    owner = np.repeat(trees.feature[sets], np.diff(set_start))
    for feature in np.unique(owner).tolist():
        vocabulary, own = vocabularies[feature], owner == feature
        if vocabulary is not None:
            set_codes[own] = vocabulary.positions(values[own].astype(np.int64))
    nodes = Nodes(
        roots=trees.roots,
        tree=trees.tree,
        left=np.where(turned, trees.false, trees.true),
        right=np.where(turned, trees.true, trees.false),
        feature=trees.feature,
        threshold=threshold,
        missing_left=missing_true != turned,
        value=trees.value,
        weight=np.zeros(len(mode)),
        gain=np.zeros(len(mode)),
        set_node=sets,
        set_start=set_start,
        set_codes=set_codes,
    )
    # Numbers that no node asks for are no members: they take branch 1.
    return nodes, not bool(np.any(nodes.missing_left[sets]))
