"""LightGBM's trees as node lists: questions, missing values and sets of categories."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Dtype
from treekit.errors import ModelError, ModelFileError
from treekit.interop.build import Nodes
from treekit.interop.lightgbm_text import ModelText, TreeText
from treekit.interop.vocabulary import (
    Vocabulary,
    checked_width,
    named_vocabulary,
    whole_vocabulary,
)
from treekit.model.fixed_point import floor_to
from treekit.model.tree import ranges

__all__ = ["SOURCE", "nodes_of", "vocabularies_of", "whole_option"]

SOURCE = "the LightGBM model"
_CATEGORICAL, _DEFAULT_LEFT = 1, 2
_NONE, _ZERO = 0, 1
"""Missing types, bits 2 and 3 of a decision; the third, NaN, is 2."""
_ZERO_BAND = float(np.float32(1e-35))
"""``kZeroThreshold``: LightGBM takes numbers this close to 0 for 0 before it compares."""


def whole_option(header: dict[str, str], key: str, most: int, least: int = 1) -> int:
    """A whole number of the header, `least` to `most`."""
    text = header.get(key, str(least))
    plain = text.isascii() and text.isdigit() and len(text) < 10
    if not (plain and least <= int(text) <= most):
        raise ModelFileError(f"{SOURCE} is damaged: {key} is {text!r:.40}")
    return int(text)


def vocabularies_of(parsed: ModelText, trees: list[TreeText]) -> list[Vocabulary | None]:
    """Of each column; None for the numeric ones."""
    infos = parsed.header.get("feature_infos", "").split()
    last = whole_option(parsed.header, "max_feature_idx", 10**9, least=0)
    n = checked_width(len(infos) or last + 1, SOURCE)
    told = {
        f: _told_categories(info) for f, info in enumerate(infos) if ":" in info and info[0] != "["
    }
    asked: dict[int, list[npt.NDArray[np.int64]]] = {}
    for tree in trees:
        nodes, start, codes = _sets(tree)
        for feature in np.unique(tree.feature[nodes]).tolist():
            own = tree.feature[nodes] == feature
            asked.setdefault(feature, []).append(codes[np.repeat(own, np.diff(start))])
    if bad := [f for f in asked if not 0 <= f < n]:
        raise ModelFileError(f"{SOURCE} is damaged: a split asks column {bad[0]} of {n}")
    nominal = sorted(set(told) | set(asked))
    if parsed.categories:
        return _frame_vocabularies(parsed.categories, nominal, n)
    empty = np.zeros(0, dtype=np.int64)
    return [
        whole_vocabulary(np.concatenate([told.get(f, empty), *asked.get(f, [])]))
        if f in nominal
        else None
        for f in range(n)
    ]


def _told_categories(info: str) -> npt.NDArray[np.int64]:
    """``-1:2:0:1`` of the header; negative ones stand for missing."""
    try:
        return np.array([int(text) for text in info.split(":")], dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: feature_infos {error}") from error


def _frame_vocabularies(
    categories: list[list[Any]], nominal: list[int], n: int
) -> list[Vocabulary | None]:
    """The training frame's categories belong to its nominal columns, in order."""
    if len(categories) != len(nominal):
        raise ModelError(
            f"{SOURCE} lists the categories of {len(categories)} columns, but splits or names "
            f"{len(nominal)} as categorical, so that whose they are is unknown: drop constant "
            "columns, or give categories as whole numbers, and train again"
        )
    found: list[Vocabulary | None] = [None] * n
    for feature, own in zip(nominal, categories, strict=True):
        found[feature] = named_vocabulary(own, f"column {feature} of {SOURCE}")
    return found


def _sets(tree: TreeText) -> tuple[Any, Any, Any]:
    """Categorical splits, where the codes of each begin, and the codes that go left."""
    nodes = np.flatnonzero(tree.decision & _CATEGORICAL)
    which = tree.threshold[nodes]
    if np.any((which < 0) | (which >= len(tree.set_bounds) - 1) | (which != np.floor(which))):
        raise ModelFileError(f"{SOURCE} is damaged: a categorical split has no set")
    bits = np.unpackbits(
        np.ascontiguousarray(tree.set_words, dtype="<u4").view(np.uint8), bitorder="little"
    )
    at = np.flatnonzero(bits)
    first_word = np.repeat(tree.set_bounds[:-1], np.diff(tree.set_bounds))
    codes = at - 32 * first_word[at // 32] if len(at) else at
    set_start = np.searchsorted(at, 32 * tree.set_bounds)
    positions, start = ranges(set_start, which.astype(np.int64))
    return nodes, start, codes[positions]


def nodes_of(
    trees: list[TreeText],
    columns: tuple[Column, ...],
    vocabularies: list[Vocabulary | None],
    dtype: Dtype,
) -> Nodes:
    """All trees' nodes: of each tree its splits, then its leaves."""
    n_inner = np.array([len(tree.feature) for tree in trees])
    sizes = 2 * n_inner + 1
    first = np.cumsum(sizes) - sizes
    parts: dict[str, list[Any]] = {
        name: []
        for name in ("left", "right", "feature", "threshold", "missing", "value", "weight", "gain")
    }
    set_node, set_start, set_codes = [], [np.zeros(1, dtype=np.int64)], []
    n_codes = 0
    for tree, at, n in zip(trees, first.tolist(), n_inner.tolist(), strict=True):
        nodes, start, codes = _sets(tree)
        features = tree.feature[nodes]
        set_codes.append(_positions(codes, np.repeat(features, np.diff(start)), vocabularies))
        set_node.append(nodes + at)
        set_start.append(start[1:] + n_codes)
        n_codes += len(codes)
        threshold, missing = _questions(tree, columns, dtype)
        none, zero = np.full(n + 1, -1), np.zeros(n + 1)
        for name, inner, leaf in (
            ("left", _children(tree.left, n) + at, none),
            ("right", _children(tree.right, n) + at, none),
            ("feature", tree.feature, none),
            ("threshold", threshold, zero),
            ("missing", missing, zero.astype(bool)),
            ("value", tree.inner_value, tree.leaf_value),
            ("weight", tree.inner_weight, tree.leaf_weight),
            ("gain", tree.gain, zero),
        ):
            parts[name] += [inner, leaf]
    joined = {name: np.concatenate(own) for name, own in parts.items()}
    return Nodes(
        roots=first,
        tree=np.repeat(np.arange(len(trees)), sizes),
        left=joined["left"],
        right=joined["right"],
        feature=joined["feature"],
        threshold=joined["threshold"],
        missing_left=joined["missing"],
        value=joined["value"][:, None],
        weight=joined["weight"],
        gain=joined["gain"],
        set_node=np.concatenate(set_node),
        set_start=np.concatenate(set_start),
        set_codes=np.concatenate(set_codes),
    )


def _children(child: npt.NDArray[np.int64], n_inner: int) -> npt.NDArray[np.int64]:
    """Children by the position of a split, or of a leaf behind the splits."""
    if np.any((child >= n_inner) | (child < -n_inner - 1)):
        raise ModelFileError(f"{SOURCE} is damaged: a node's child does not exist")
    return np.where(child >= 0, child, n_inner - 1 - child)


def _positions(
    codes: npt.NDArray[np.int64],
    features: npt.NDArray[np.int64],
    vocabularies: list[Vocabulary | None],
) -> npt.NDArray[np.int64]:
    """The levels of LightGBM's category numbers."""
    levels = np.full(len(codes), -1, dtype=np.int64)
    for feature in np.unique(features).tolist():
        vocabulary, own = vocabularies[feature], features == feature
        if vocabulary is not None:
            levels[own] = vocabulary.positions(codes[own])
    return levels


def _questions(
    tree: TreeText, columns: tuple[Column, ...], dtype: Dtype
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """(splits,) thresholds of the input type, and whether missing values go left."""
    categorical = (tree.decision & _CATEGORICAL) != 0
    nominal = np.array([column.kind == "nominal" for column in columns])
    inside = (tree.feature >= 0) & (tree.feature < len(columns))
    if not inside.all() or np.any(nominal[tree.feature] & ~categorical):
        raise ModelFileError(f"{SOURCE} is damaged: a split asks a column that it does not have")
    default_left = (tree.decision & _DEFAULT_LEFT) != 0
    threshold = np.where(categorical, 0.0, _around_zeros(tree.threshold))
    way = (tree.decision >> 2) & 3
    _check_zeros(threshold, ~categorical & (way == _ZERO), default_left)
    missing = np.where(way == _NONE, threshold >= 0, default_left) & ~categorical
    at = floor_to(threshold, dtype)
    if np.any(at == -np.inf):
        raise ModelError(
            f"{SOURCE} has the threshold {threshold[at == -np.inf][0]}, below every finite "
            f"{dtype}: read it with dtype='float64'"
        )
    return at, missing


def _around_zeros(threshold: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Thresholds that send each number within the band of zeros the way of 0."""
    inside = (threshold >= -_ZERO_BAND) & (threshold < _ZERO_BAND)
    moved = np.where(threshold >= 0, _ZERO_BAND, np.nextafter(-_ZERO_BAND, -np.inf))
    return np.where(inside, moved, threshold)


def _check_zeros(
    threshold: npt.NDArray[np.float64],
    zero: npt.NDArray[np.bool_],
    default_left: npt.NDArray[np.bool_],
) -> None:
    """Refuse splits whose missing values include zeros, and do not go their way."""
    if np.any(zero & ((threshold >= 0) != default_left)):
        raise ModelError(
            f"{SOURCE} was trained with zero_as_missing, and a split sends zeros another way "
            "than the numbers around them, which no treekit split does; train with "
            "zero_as_missing=false"
        )
