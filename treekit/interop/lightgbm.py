"""Import LightGBM's boosted trees from text files and fitted objects.

A text is parsed without LightGBM; an object is converted by ``model_to_string``.
Reading takes about 10 times the file's size in memory.

Comparison with LightGBM's predictions:

Decision paths
    equal.  LightGBM compares doubles; with ``dtype="float32"`` numbers are
    rounded first, and for a float32 x, ``x <= t`` is ``x <= floor32(t)``.
    LightGBM treats numbers within 1e-35 of 0 as 0, so thresholds in this band
    are moved to its edge.
Missing values
    follow each split: its default branch (missing type NaN), or that of 0 (None).
    Models with ``zero_as_missing`` are imported if the default branch of each split
    is that of 0, and rejected otherwise.
Categories
    a column's categories are those of the training frame, or the integers
    0, 1, 2, ...; unseen and missing ones go right in both.  Non-integers
    are unseen here; LightGBM truncates them.
Column names
    are LightGBM's, which replaces blanks of a frame's names by ``_`` and does not
    store the original names.
Margins
    leaf values are doubles, rounded to multiples of ``2**exponent``: the sum of T
    trees is off by at most ``T * 2**(exponent - 1)``, about ``T * 2**-53`` of
    the largest sum, and is rounded once where LightGBM rounds T times.
    Random forests (``boosting=rf``) predict the mean of their trees: leaf values
    are divided by T; their ``raw_score`` is the sum.
Labels
    equal unless two classes are closer than these rounding errors.
Probabilities and exponentials
    within 4 ulp of the exact link function of the margin (see `treekit.model.links`).

`tests/test_import_lightgbm.py` measures these differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Dtype, python_label
from treekit.errors import ModelError, ModelFileError
from treekit.interop import beginning, read_whole
from treekit.interop.boosting import BoostedTrees, Outcome, make_boosted_model
from treekit.interop.tree_assembly import (
    NodeList,
    Vocabulary,
    check_names,
    check_width,
    make_columns,
    make_integer_vocabulary,
    make_named_vocabulary,
)
from treekit.model.fixed_point import MAX_TREES, floor_to_dtype
from treekit.model.links import Link
from treekit.model.model import Model
from treekit.model.tree import take_slices

# ---------------------------------------------------------------- lightgbm

_IDENTITY_OBJECTIVES = (
    *("regression", "regression_l1", "huber", "fair", "quantile", "mape"),
    *("lambdarank", "rank_xendcg", "custom"),
)
_REGRESSION_LINKS: dict[str, Link] = {
    "poisson": "exp",
    "gamma": "exp",
    "tweedie": "exp",
    "cross_entropy": "sigmoid",
    **dict.fromkeys(_IDENTITY_OBJECTIVES, "identity"),
}
"""Regression objectives and their link functions."""


def recognises_lightgbm(source: Any) -> bool:
    """Return whether `source` is a LightGBM text (``.txt``, ``.lgb``, ``.model``) or object."""
    if beginning(source, (".txt", ".lgb", ".model"), 5) in (b"tree\n", b"tree\r"):
        return True
    return _find_class_name(source) is not None


def _find_class_name(source: Any) -> str | None:
    """Return ``Booster`` or ``LGBMModel`` for instances, without importing LightGBM."""
    for kind in type(source).__mro__:
        if kind.__module__.partition(".")[0] == "lightgbm":
            for name in ("Booster", "LGBMModel"):
                if kind.__name__ == name:
                    return name
    return None


def read_lightgbm(
    source: Any,
    *,
    dtype: str = "auto",
    answer: str = "predictions",
    iterations: int | None = None,
) -> Model:
    """Read a LightGBM text or object.

    Parameters
    ----------
    source : pathlib.Path, lightgbm.Booster or lightgbm.LGBMModel
    dtype : {"auto", "float32", "float64"}
        Input type of the model; auto: float64, in which LightGBM compares.
    answer : {"predictions", "margins"}
        ``margins``: the raw scores of the classes, as numbers.
    iterations : int, optional
        Boosting rounds to read; default up to the best round if the object has
        one, else all.

    Raises
    ------
    ModelError
        If it is not such a model, is damaged, or uses unsupported features.
    """
    text, labels, best = _read_source(source)
    input_type: Dtype = "float32" if dtype == "float32" else "float64"
    parsed = parse_model_text(text)
    objective, options = _parse_objective(parsed.header)
    per_round = parse_integer_option(
        parsed.header, "num_tree_per_iteration", len(parsed.trees) or 1
    )
    trees = _select_trees(parsed.trees, per_round, iterations if iterations is not None else best)
    vocabularies = collect_vocabularies(parsed, trees)
    names = check_names(parsed.header.get("feature_names", "").split(), len(vocabularies), SOURCE)
    columns = make_columns(names, vocabularies)
    outcome = _make_outcome(objective, options, per_round, labels)
    averaged = "average_output" in parsed.header
    return make_boosted_model(
        BoostedTrees(
            source=SOURCE,
            columns=columns,
            dtype=input_type,
            nodes=make_nodes(trees, columns, vocabularies, input_type),
            margin_of_tree=np.arange(len(trees)) % per_round,
            initial_margins=np.zeros(per_round),
            divisor=len(trees) // per_round if averaged else 1,
            outcome=outcome,
        ),
        answer=answer,
        settings={"objective": parsed.header.get("objective", "custom")},
        provenance={"importer": "lightgbm", "lightgbm": parsed.header["version"]},
    )


def _read_source(source: Any) -> tuple[str, tuple[Any, ...] | None, int | None]:
    """Return the text, the class labels if known, and the best round if there is one."""
    kind = _find_class_name(source)
    if kind is None:
        if not recognises_lightgbm(source):
            raise ModelError(f"expected a LightGBM model, got {type(source).__qualname__}")
        try:
            return read_whole(source).decode("utf-8"), None, None
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{SOURCE} is damaged: not UTF-8 text: {error}") from error
    labels = None
    if kind == "LGBMModel":
        if not getattr(source, "fitted_", False):
            raise ModelError(f"the {type(source).__name__} is not fitted: call fit first")
        if hasattr(source, "classes_"):
            labels = tuple(python_label(label) for label in source.classes_)
        source = source.booster_
    return source.model_to_string(num_iteration=-1), labels, max(source.best_iteration, 0) or None


def _select_trees(trees: list[TreeText], per_round: int, rounds: int | None) -> list[TreeText]:
    """Return the trees of the first `rounds`."""
    if not trees or len(trees) % per_round:
        raise ModelFileError(
            f"{SOURCE} has {len(trees)} trees, which is not a multiple of {per_round} per round"
        )
    if rounds is None:
        return trees
    if rounds * per_round > len(trees):
        raise ModelError(
            f"{SOURCE} has {len(trees) // per_round} iterations, not {rounds}; request fewer"
        )
    return trees[: rounds * per_round]


def _parse_objective(header: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return name and options: ``binary sigmoid:1`` is ``binary``, ``{"sigmoid": "1"}``."""
    name, *rest = header.get("objective", "").split() or ["custom"]
    return name, {key: value for key, _, value in (text.partition(":") for text in rest)}


def _make_outcome(
    objective: str, options: dict[str, str], per_round: int, labels: tuple[Any, ...] | None
) -> Outcome:
    if objective in ("binary", "multiclass", "multiclassova"):
        n_classes = 2 if objective == "binary" else per_round
        if (per_round == 1) != (objective == "binary") or len(
            labels or range(n_classes)
        ) != n_classes:
            raise ModelFileError(
                f"{SOURCE} is damaged: objective {objective!r} with {per_round} trees per round"
            )
        if objective == "multiclass":
            return Outcome("softmax", labels or tuple(range(n_classes)))
        scale = _parse_sigmoid(options.get("sigmoid", "1"))
        return Outcome("sigmoid", labels or tuple(range(n_classes)), scale=scale)
    if objective not in _REGRESSION_LINKS or "sqrt" in options:
        full_name = objective + (" sqrt" if "sqrt" in options else "")
        return Outcome(
            "identity", unsupported_reason=f"the objective {full_name!r} transforms the sums"
        )
    return Outcome(_REGRESSION_LINKS[objective])


def _parse_sigmoid(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < np.inf:
        raise ModelFileError(f"{SOURCE} is damaged: sigmoid is {text!r:.40}")
    return value


# ---------------------------------------------------------------- lightgbm nodes
# LightGBM's trees as node lists: thresholds, missing values and sets of categories.

SOURCE = "the LightGBM model"
_CATEGORICAL_BIT, _DEFAULT_LEFT_BIT = 1, 2
_MISSING_NONE, _MISSING_ZERO = 0, 1
"""Missing types, bits 2 and 3 of the decision type; NaN is 2."""
_ZERO_BAND = float(np.float32(1e-35))
"""``kZeroThreshold``: LightGBM replaces numbers this close to 0 by 0 before it compares."""


def parse_integer_option(header: dict[str, str], key: str, most: int, least: int = 1) -> int:
    """Parse an integer of the header, from `least` to `most`."""
    text = header.get(key, str(least))
    plain = text.isascii() and text.isdigit() and len(text) < 10
    if not (plain and least <= int(text) <= most):
        raise ModelFileError(f"{SOURCE} is damaged: {key} is {text!r:.40}")
    return int(text)


def collect_vocabularies(parsed: ModelText, trees: list[TreeText]) -> list[Vocabulary | None]:
    """Return the vocabulary of each column, None for numeric columns."""
    infos = parsed.header.get("feature_infos", "").split()
    last = parse_integer_option(parsed.header, "max_feature_idx", 10**9, least=0)
    n = check_width(len(infos) or last + 1, SOURCE)
    listed = {
        f: _parse_categories(info) for f, info in enumerate(infos) if ":" in info and info[0] != "["
    }
    used: dict[int, list[npt.NDArray[np.int64]]] = {}
    for tree in trees:
        nodes, start, codes = _decode_sets(tree)
        for feature in np.unique(tree.feature[nodes]).tolist():
            is_feature = tree.feature[nodes] == feature
            used.setdefault(feature, []).append(codes[np.repeat(is_feature, np.diff(start))])
    if bad := [f for f in used if not 0 <= f < n]:
        raise ModelFileError(f"{SOURCE} is damaged: a split uses column {bad[0]} of {n}")
    nominal = sorted(set(listed) | set(used))
    if parsed.categories:
        return _make_frame_vocabularies(parsed.categories, nominal, n)
    empty = np.zeros(0, dtype=np.int64)
    return [
        make_integer_vocabulary(np.concatenate([listed.get(f, empty), *used.get(f, [])]))
        if f in nominal
        else None
        for f in range(n)
    ]


def _parse_categories(info: str) -> npt.NDArray[np.int64]:
    """Parse categories of the header, such as ``-1:2:0:1``; negative ones mean missing."""
    try:
        return np.array([int(text) for text in info.split(":")], dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: feature_infos {error}") from error


def _make_frame_vocabularies(
    categories: list[list[Any]], nominal: list[int], n: int
) -> list[Vocabulary | None]:
    """Assign the training frame's categories to the nominal columns, in order."""
    if len(categories) != len(nominal):
        raise ModelError(
            f"{SOURCE} has the categories of {len(categories)} columns, but {len(nominal)} "
            "categorical columns, so they cannot be matched: drop constant columns, or encode "
            "categories as integers, and train again"
        )
    vocabularies: list[Vocabulary | None] = [None] * n
    for feature, own in zip(nominal, categories, strict=True):
        vocabularies[feature] = make_named_vocabulary(own, f"column {feature} of {SOURCE}")
    return vocabularies


def _decode_sets(tree: TreeText) -> tuple[Any, Any, Any]:
    """Return the categorical splits, the offsets of their codes, and the codes that go left."""
    nodes = np.flatnonzero(tree.decision & _CATEGORICAL_BIT)
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
    positions, start = take_slices(set_start, which.astype(np.int64))
    return nodes, start, codes[positions]


def make_nodes(
    trees: list[TreeText],
    columns: tuple[Column, ...],
    vocabularies: list[Vocabulary | None],
    dtype: Dtype,
) -> NodeList:
    """Concatenate the nodes of all trees: the splits of a tree, then its leaves."""
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
        nodes, start, codes = _decode_sets(tree)
        features = tree.feature[nodes]
        set_codes.append(_map_to_levels(codes, np.repeat(features, np.diff(start)), vocabularies))
        set_node.append(nodes + at)
        set_start.append(start[1:] + n_codes)
        n_codes += len(codes)
        threshold, missing = _convert_thresholds(tree, columns, dtype)
        none, zero = np.full(n + 1, -1), np.zeros(n + 1)
        for name, inner, leaf in (
            ("left", _resolve_children(tree.left, n) + at, none),
            ("right", _resolve_children(tree.right, n) + at, none),
            ("feature", tree.feature, none),
            ("threshold", threshold, zero),
            ("missing", missing, zero.astype(bool)),
            ("value", tree.inner_value, tree.leaf_value),
            ("weight", tree.inner_weight, tree.leaf_weight),
            ("gain", tree.gain, zero),
        ):
            parts[name] += [inner, leaf]
    joined = {name: np.concatenate(own) for name, own in parts.items()}
    return NodeList(
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
        set_offsets=np.concatenate(set_start),
        set_codes=np.concatenate(set_codes),
    )


def _resolve_children(child: npt.NDArray[np.int64], n_inner: int) -> npt.NDArray[np.int64]:
    """Convert LightGBM's child numbers to positions of nodes: all splits, then all leaves."""
    if np.any((child >= n_inner) | (child < -n_inner - 1)):
        raise ModelFileError(f"{SOURCE} is damaged: a node's child does not exist")
    return np.where(child >= 0, child, n_inner - 1 - child)


def _map_to_levels(
    codes: npt.NDArray[np.int64],
    features: npt.NDArray[np.int64],
    vocabularies: list[Vocabulary | None],
) -> npt.NDArray[np.int64]:
    """Map LightGBM's category numbers to codes of the vocabularies."""
    levels = np.full(len(codes), -1, dtype=np.int64)
    for feature in np.unique(features).tolist():
        vocabulary, own = vocabularies[feature], features == feature
        if vocabulary is not None:
            levels[own] = vocabulary.map_to_levels(codes[own])
    return levels


def _convert_thresholds(
    tree: TreeText, columns: tuple[Column, ...], dtype: Dtype
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return thresholds (splits,) of the input type, and whether missing values go left."""
    categorical = (tree.decision & _CATEGORICAL_BIT) != 0
    nominal = np.array([column.kind == "nominal" for column in columns])
    inside = (tree.feature >= 0) & (tree.feature < len(columns))
    if not inside.all() or np.any(nominal[tree.feature] & ~categorical):
        raise ModelFileError(f"{SOURCE} is damaged: a split uses a column that does not exist")
    default_left = (tree.decision & _DEFAULT_LEFT_BIT) != 0
    threshold = np.where(categorical, 0.0, _clear_zero_band(tree.threshold))
    missing_type = (tree.decision >> 2) & 3
    _check_zero_as_missing(threshold, ~categorical & (missing_type == _MISSING_ZERO), default_left)
    missing = np.where(missing_type == _MISSING_NONE, threshold >= 0, default_left) & ~categorical
    at = floor_to_dtype(threshold, dtype)
    if np.any(at == -np.inf):
        raise ModelError(
            f"{SOURCE} has the threshold {threshold[at == -np.inf][0]}, below all finite "
            f"{dtype} numbers: read it with dtype='float64'"
        )
    return at, missing


def _clear_zero_band(threshold: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Move thresholds out of the zero band, so that all numbers in it take the branch of 0."""
    inside = (threshold >= -_ZERO_BAND) & (threshold < _ZERO_BAND)
    moved = np.where(threshold >= 0, _ZERO_BAND, np.nextafter(-_ZERO_BAND, -np.inf))
    return np.where(inside, moved, threshold)


def _check_zero_as_missing(
    threshold: npt.NDArray[np.float64],
    zero: npt.NDArray[np.bool_],
    default_left: npt.NDArray[np.bool_],
) -> None:
    """Check that splits with zero as missing send both to the side of numbers near 0."""
    if np.any(zero & ((threshold >= 0) != default_left)):
        raise ModelError(
            f"{SOURCE} was trained with zero_as_missing, and a split separates zeros from the "
            "numbers around them, which treekit does not support; train with "
            "zero_as_missing=false"
        )


# ---------------------------------------------------------------- lightgbm text
# Parsing of LightGBM's model text.
#
# The format is defined by ``gbdt_model_text.cpp`` and ``Tree::ToString`` (LightGBM
# 3 and 4, ``version=v3`` and ``v4``): ``key=value`` lines of a header, a block of
# such lines for each tree, and JSON of the training frame's categories at the
# end.  Unknown keys are ignored.

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_END_OF_TREES = "end of trees"
_CATEGORIES_PREFIX = "pandas_categorical:"


@dataclass(frozen=True, slots=True)
class TreeText:
    """One tree of L leaves and L - 1 splits, in LightGBM's numbering.

    Attributes
    ----------
    feature, decision : (L - 1,) int64
    threshold : (L - 1,) float64
        For a categorical split, the number of its set.
    left, right : (L - 1,) int64
        A split's number, or ``~leaf``.
    gain, inner_value, inner_weight : (L - 1,) float64
    leaf_value, leaf_weight : (L,) float64
    set_bounds : (sets + 1,) int64
        Set s is ``set_words[set_bounds[s]:set_bounds[s + 1]]``.
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
    """Header, trees, and any categories of the training frame's columns."""

    header: dict[str, str]
    trees: list[TreeText]
    categories: list[list[Any]] | None


def parse_model_text(text: str) -> ModelText:
    """Parse the text of a LightGBM model file.

    Raises
    ------
    ModelFileError
        If it is invalid, truncated or inconsistent.
    ModelError
        If its leaves are linear models.
    """
    lines = text.split("\n")
    if lines[0].strip() != "tree":
        raise ModelFileError("the text is not a LightGBM model: its first line is not 'tree'")
    head, *blocks = _split_blocks(lines)
    if head.get("version") not in ("v2", "v3", "v4"):
        raise ModelFileError(
            f"the LightGBM model has version {head.get('version', 'none')!r:.40}; "
            "treekit reads v2, v3 and v4"
        )
    if len(blocks) > MAX_TREES:
        raise ModelFileError(f"the LightGBM model has more than {MAX_TREES} trees, the maximum")
    if any(block.get("is_linear", "0") != "0" for block in blocks):
        raise ModelError(
            "the LightGBM model was trained with linear_tree: its leaves are linear models, "
            "which treekit does not support; train with linear_tree=False"
        )
    try:
        trees = [_parse_tree(block) for block in blocks]
    except (ValueError, OverflowError, KeyError) as error:
        raise ModelFileError(f"the LightGBM model is damaged: {error}") from error
    return ModelText(head, trees, _parse_frame_categories(lines))


def _split_blocks(lines: list[str]) -> list[dict[str, str]]:
    """Parse the ``key=value`` lines of the header and of each tree."""
    blocks: list[dict[str, str]] = [{}]
    for number, line in enumerate(lines[1:], start=1):
        if line.startswith("Tree="):
            if line.strip() != f"Tree={len(blocks) - 1}":
                raise ModelFileError(
                    f"line {number + 1} of the LightGBM model is {line!r:.40}, expected tree "
                    f"{len(blocks) - 1}"
                )
            blocks.append({})
        elif line.startswith(_END_OF_TREES):
            return blocks
        elif line.strip():
            key, _, value = line.partition("=")
            if key in blocks[-1]:
                raise ModelFileError(f"the LightGBM model has {key!r:.40} twice in one block")
            blocks[-1][key.strip()] = value.strip()
    raise ModelFileError("the LightGBM model is truncated: it has no line 'end of trees'")


def _parse_tree(block: dict[str, str]) -> TreeText:
    """Parse the block of a tree."""
    n_leaves = int(block["num_leaves"])
    if not 1 <= n_leaves <= len(block["leaf_value"]):
        raise ValueError(f"a tree has {n_leaves} leaves")
    n, n_sets = n_leaves - 1, int(block.get("num_cat", "0"))
    if n_sets < 0:
        raise ValueError(f"a tree has {n_sets} sets of categories")
    bounds, words = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint32)
    if n_sets:
        bounds = _parse_integers(block, "cat_boundaries", n_sets + 1)
        ascending = bounds[0] == 0 and bool(np.all(np.diff(bounds) >= 0))
        if not ascending:
            raise ValueError("cat_boundaries are not ascending from 0")
        wide = _parse_integers(block, "cat_threshold", int(bounds[-1]))
        if np.any((wide < 0) | (wide >= 2**32)):
            raise ValueError("cat_threshold is out of range")
        words = wide.astype(np.uint32)
    weights = "count" if "leaf_count" in block and "internal_count" in block else "weight"
    return TreeText(
        feature=_parse_integers(block, "split_feature", n),
        decision=_parse_integers(block, "decision_type", n),
        threshold=_parse_floats(block, "threshold", n),
        left=_parse_integers(block, "left_child", n),
        right=_parse_integers(block, "right_child", n),
        gain=_parse_optional_floats(block, "split_gain", n),
        inner_value=_parse_optional_floats(block, "internal_value", n),
        inner_weight=_parse_optional_floats(block, f"internal_{weights}", n),
        leaf_value=_parse_floats(block, "leaf_value", n_leaves),
        leaf_weight=_parse_optional_floats(block, f"leaf_{weights}", n_leaves),
        set_bounds=bounds,
        set_words=words,
    )


def _parse_floats(block: dict[str, str], key: str, n: int) -> Floats:
    """Parse `n` numbers."""
    texts = block[key].split() if n else []
    if len(texts) != n:
        raise ValueError(f"{key} has {len(texts)} entries, expected {n}")
    return np.array(texts, dtype=np.float64)


def _parse_optional_floats(block: dict[str, str], key: str, n: int) -> Floats:
    """Parse optional numbers, which predictions do not depend on; 0 if absent."""
    return _parse_floats(block, key, n) if block.get(key) else np.zeros(n)


def _parse_integers(block: dict[str, str], key: str, n: int) -> Ints:
    """Parse `n` integers."""
    numbers = _parse_floats(block, key, n)
    if not bool(np.all((np.abs(numbers) <= 2.0**53) & (numbers == np.floor(numbers)))):
        raise ValueError(f"{key} contains a non-integer")
    return numbers.astype(np.int64)


def _parse_frame_categories(lines: list[str]) -> list[list[Any]] | None:
    """Parse the last ``pandas_categorical:`` line."""
    for line in reversed(lines[-8:]):
        if line.startswith(_CATEGORIES_PREFIX):
            try:
                found: list[list[Any]] | None = msgspec.json.decode(
                    line[len(_CATEGORIES_PREFIX) :], type=list[list[Any]] | None
                )
                return found
            except (msgspec.MsgspecError, RecursionError) as error:
                raise ModelFileError(
                    f"the LightGBM model is damaged: {_CATEGORIES_PREFIX} {error}"
                ) from error
    return None
