"""LightGBM's model text as arrays: parsed, not yet understood.

The format is that of ``gbdt_model_text.cpp`` and ``Tree::ToString`` (LightGBM
3 and 4, ``version=v3`` and ``v4``): ``key=value`` lines of a header, a block of
such lines for each tree, and JSON of the training frame's categories at the
end.  Lines with other keys are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError, ModelFileError
from treekit.model.fixed_point import MAX_TREES

__all__ = ["ModelText", "TreeText", "parse_text"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_END_OF_TREES = "end of trees"
_CATEGORIES = "pandas_categorical:"


@dataclass(frozen=True, slots=True)
class TreeText:
    """One tree of L leaves and L - 1 splits, as LightGBM numbers them.

    Attributes
    ----------
    feature, decision : (L - 1,) int64
    threshold : (L - 1,) float64
        Of a categorical split the number of its set.
    left, right : (L - 1,) int64
        A split's number, or ``~leaf``.
    gain, inner_value, inner_weight : (L - 1,) float64
    leaf_value, leaf_weight : (L,) float64
    set_bounds : (sets + 1,) int64
        Set s owns ``set_words[set_bounds[s]:set_bounds[s + 1]]``.
    set_words : (words,) uint32
        Bit b of word w: category ``32 * w + b``.
    """

    feature: Ints
    decision: Ints
    threshold: Floats
    left: Ints
    right: Ints
    gain: Floats
    inner_value: Floats
    inner_weight: Floats
    leaf_value: Floats
    leaf_weight: Floats
    set_bounds: Ints
    set_words: npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class ModelText:
    """Header lines, trees, and the categories of the training frame's columns, if any."""

    header: dict[str, str]
    trees: list[TreeText]
    categories: list[list[Any]] | None


def parse_text(text: str) -> ModelText:
    """Read a model text.

    Raises
    ------
    ModelFileError
        If it is none, is cut off, or does not agree with itself.
    ModelError
        If its leaves hold linear models.
    """
    lines = text.split("\n")
    if lines[0].strip() != "tree":
        raise ModelFileError("the text is no LightGBM model: its first line is not 'tree'")
    head, *blocks = _blocks(lines)
    if head.get("version") not in ("v2", "v3", "v4"):
        raise ModelFileError(
            f"the LightGBM model has version {head.get('version', 'none')!r:.40}; "
            "treekit reads v2, v3 and v4"
        )
    if len(blocks) > MAX_TREES:
        raise ModelFileError(f"the LightGBM model has more than {MAX_TREES} trees, the bound")
    if any(block.get("is_linear", "0") != "0" for block in blocks):
        raise ModelError(
            "the LightGBM model was trained with linear_tree: its leaves hold linear models, "
            "which treekit has not; train with linear_tree=False"
        )
    try:
        trees = [_tree(block) for block in blocks]
    except (ValueError, OverflowError, KeyError) as error:
        raise ModelFileError(f"the LightGBM model is damaged: {error}") from error
    return ModelText(head, trees, _categories(lines))


def _blocks(lines: list[str]) -> list[dict[str, str]]:
    """The ``key=value`` lines of the header and of each tree."""
    blocks: list[dict[str, str]] = [{}]
    for number, line in enumerate(lines[1:], start=1):
        if line.startswith("Tree="):
            if line.strip() != f"Tree={len(blocks) - 1}":
                raise ModelFileError(
                    f"line {number + 1} of the LightGBM model is {line!r:.40}, but tree "
                    f"{len(blocks) - 1} should be next"
                )
            blocks.append({})
        elif line.startswith(_END_OF_TREES):
            return blocks
        elif line.strip():
            key, _, value = line.partition("=")
            if key in blocks[-1]:
                raise ModelFileError(f"the LightGBM model says {key!r:.40} twice in one place")
            blocks[-1][key.strip()] = value.strip()
    raise ModelFileError("the LightGBM model is cut off: it has no line 'end of trees'")


def _tree(block: dict[str, str]) -> TreeText:
    n_leaves = int(block["num_leaves"])
    if not 1 <= n_leaves <= len(block["leaf_value"]):
        raise ValueError(f"a tree has {n_leaves} leaves")
    n, n_sets = n_leaves - 1, int(block.get("num_cat", "0"))
    if n_sets < 0:
        raise ValueError(f"a tree has {n_sets} sets of categories")
    bounds, words = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint32)
    if n_sets:
        bounds = _whole(block, "cat_boundaries", n_sets + 1)
        ascending = bounds[0] == 0 and bool(np.all(np.diff(bounds) >= 0))
        if not ascending:
            raise ValueError("cat_boundaries does not ascend from 0")
        wide = _whole(block, "cat_threshold", int(bounds[-1]))
        if np.any((wide < 0) | (wide >= 2**32)):
            raise ValueError("cat_threshold is out of range")
        words = wide.astype(np.uint32)
    weights = "count" if "leaf_count" in block and "internal_count" in block else "weight"
    return TreeText(
        feature=_whole(block, "split_feature", n),
        decision=_whole(block, "decision_type", n),
        threshold=_numbers(block, "threshold", n),
        left=_whole(block, "left_child", n),
        right=_whole(block, "right_child", n),
        gain=_told(block, "split_gain", n),
        inner_value=_told(block, "internal_value", n),
        inner_weight=_told(block, f"internal_{weights}", n),
        leaf_value=_numbers(block, "leaf_value", n_leaves),
        leaf_weight=_told(block, f"leaf_{weights}", n_leaves),
        set_bounds=bounds,
        set_words=words,
    )


def _numbers(block: dict[str, str], key: str, n: int) -> Floats:
    texts = block[key].split() if n else []
    if len(texts) != n:
        raise ValueError(f"{key} has {len(texts)} entries, not {n}")
    return np.array(texts, dtype=np.float64)


def _told(block: dict[str, str], key: str, n: int) -> Floats:
    """What a model may leave out, as no answer depends on it."""
    return _numbers(block, key, n) if block.get(key) else np.zeros(n)


def _whole(block: dict[str, str], key: str, n: int) -> Ints:
    numbers = _numbers(block, key, n)
    if not bool(np.all((np.abs(numbers) <= 2.0**53) & (numbers == np.floor(numbers)))):
        raise ValueError(f"{key} holds what is no whole number")
    return numbers.astype(np.int64)


def _categories(lines: list[str]) -> list[list[Any]] | None:
    """The last ``pandas_categorical:`` line."""
    for line in reversed(lines[-8:]):
        if line.startswith(_CATEGORIES):
            try:
                found: list[list[Any]] | None = msgspec.json.decode(
                    line[len(_CATEGORIES) :], type=list[list[Any]] | None
                )
                return found
            except (msgspec.MsgspecError, RecursionError) as error:
                raise ModelFileError(
                    f"the LightGBM model is damaged: {_CATEGORIES} {error}"
                ) from error
    return None
