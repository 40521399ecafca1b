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
    are cut towards 0 in both (``Column.rounds``); SQL, and ONNX whose inputs are
    columns, read them as unseen: cast the column there.
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

`tests/test_lightgbm.py` measures these differences.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit import Model
from treekit.data.schema import Dtype, python_label
from treekit.errors import ModelError, ModelFileError
from treekit.interop import (
    UNKNOWN_REMEDY,
    beginning,
    find_class_name,
    read_whole,
    refuse_overrides,
    refuse_unknown,
)
from treekit.interop.tree_assembly import (
    NodeTable,
    Outcome,
    check_levels,
    check_names,
    concatenate_tables,
    floor_thresholds,
    make_boosted_model,
    make_columns,
)

# ---------------------------------------------------------------- models

SOURCE = "the LightGBM model"

_IDENTITY_OBJECTIVES = (
    *("regression", "regression_l1", "huber", "fair", "quantile", "mape"),
    *("lambdarank", "rank_xendcg", "custom"),
)
_REGRESSION_LINKS: dict[str, Any] = {
    "poisson": "exp",
    "gamma": "exp",
    "tweedie": "exp",
    "cross_entropy": "sigmoid",
    **dict.fromkeys(_IDENTITY_OBJECTIVES, "identity"),
}
"""Regression objectives and their link functions."""
_OBJECTIVE_OPTIONS = {
    "binary": ("sigmoid",),
    "multiclass": ("num_class",),
    "multiclassova": ("num_class", "sigmoid"),
}
"""Options of objectives; those of regression have ``sqrt``."""


_CLASSES = ("Booster", "LGBMModel")


def recognises_lightgbm(source: Any) -> bool:
    """Return whether `source` is a LightGBM text (``.txt``, ``.lgb``, ``.model``) or object."""
    is_text = beginning(source, (".txt", ".lgb", ".model"), 5) in (b"tree\n", b"tree\r")
    return is_text or find_class_name(source, "lightgbm", _CLASSES) is not None


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
        If the source is not a LightGBM model, is damaged, or uses unsupported features.
    """
    text, labels, best = _read_source(source)
    input_type: Dtype = "float32" if dtype == "float32" else "float64"
    header, blocks, frame_categories = _parse_text(text)
    per_round = header.num_tree_per_iteration
    if not blocks or len(blocks) % per_round:
        raise ModelFileError(
            f"{SOURCE} has {len(blocks)} trees, which is not a multiple of {per_round} per round"
        )
    rounds = iterations or best or len(blocks) // per_round
    if rounds * per_round > len(blocks):
        raise ModelError(
            f"{SOURCE} has {len(blocks) // per_round} iterations, not {rounds}; request fewer"
        )
    tables = [_parse_tree(block) for block in blocks][: rounds * per_round]
    nodes = concatenate_tables(tables, SOURCE)
    infos = header.feature_infos.split()
    if strange := [info for info in infos if not _INFO.fullmatch(info)]:
        raise ModelError(
            f"{SOURCE} has a column of the unknown form {strange[0]!r:.60} in feature_infos; "
            f"{UNKNOWN_REMEDY}"
        )
    width = len(infos) or header.max_feature_idx + 1
    names = check_names(header.feature_names.split(), width, SOURCE)
    listed = {
        f: _parse_categories(info) for f, info in enumerate(infos) if ":" in info and info[0] != "["
    }
    named = _name_categories(frame_categories, sorted({*listed, *nodes.set_features.tolist()}))
    columns = make_columns(nodes, names, SOURCE, named=named, listed=listed, rounds="to_zero")
    floor_thresholds(nodes, input_type, SOURCE)
    return make_boosted_model(
        nodes,
        columns,
        _make_outcome(header, labels),
        source=SOURCE,
        dtype=input_type,
        margin_of_tree=np.arange(len(tables)) % per_round,
        initial_margins=np.zeros(per_round),
        divisor=1 if header.average_output is None else rounds,
        answer=answer,
        settings={"objective": header.objective},
        provenance={"importer": "lightgbm", "lightgbm": header.version},
    )


def _read_source(source: Any) -> tuple[str, tuple[Any, ...] | None, int | None]:
    """Return the text, the class labels if known, and the best round if there is one."""
    kind = find_class_name(source, "lightgbm", _CLASSES)
    if kind is None:
        if not recognises_lightgbm(source):
            raise ModelError(f"expected a LightGBM model, got {type(source).__qualname__}")
        try:
            return read_whole(source).decode("utf-8"), None, None
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{SOURCE} is damaged: not UTF-8 text: {error}") from error
    refuse_overrides(source, "lightgbm")
    labels = None
    if kind == "LGBMModel":
        if not getattr(source, "fitted_", False):
            raise ModelError(f"the {type(source).__name__} is not fitted: call fit first")
        if hasattr(source, "classes_"):
            labels = tuple(python_label(label) for label in source.classes_)
        source = source.booster_
    return source.model_to_string(num_iteration=-1), labels, max(source.best_iteration, 0) or None


def _make_outcome(header: _Header, labels: tuple[Any, ...] | None) -> Outcome:
    """Return the outcome of an objective with options, such as ``binary sigmoid:1``."""
    objective, *texts = header.objective.split() or ["custom"]
    options = {key: value for key, _, value in (text.partition(":") for text in texts)}
    known = _OBJECTIVE_OPTIONS.get(objective, ("sqrt",))
    refuse_unknown(options, known, SOURCE, f"objective {objective} ")
    per_round = header.num_tree_per_iteration
    if objective in ("binary", "multiclass", "multiclassova"):
        n_classes = 2 if objective == "binary" else per_round
        labels = labels or tuple(range(n_classes))
        if (per_round == 1) != (objective == "binary") or len(labels) != n_classes:
            raise ModelFileError(
                f"{SOURCE} is damaged: objective {objective!r} with {per_round} trees per round"
            )
        if objective == "multiclass":
            return Outcome("softmax", labels)
        return Outcome("sigmoid", labels, scale=_parse_sigmoid(options.get("sigmoid", "1")))
    if objective not in _REGRESSION_LINKS or "sqrt" in options:
        full_name = objective + (" sqrt" if "sqrt" in options else "")
        is_known = objective in (*_REGRESSION_LINKS, "cross_entropy_lambda")
        effect = "transforms the sums" if is_known else "is unknown, and may transform the sums"
        return Outcome("identity", unsupported_reason=f"the objective {full_name!r:.80} {effect}")
    return Outcome(_REGRESSION_LINKS[objective])


def _parse_sigmoid(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < np.inf:
        raise ModelFileError(f"{SOURCE} is damaged: sigmoid is {text!r:.40}, expected above 0")
    return value


def _name_categories(
    categories: list[list[Any]] | None, nominal: list[int]
) -> dict[int, tuple[str, ...]]:
    """Assign the training frame's categories to the nominal columns, in order."""
    if not categories:
        return {}
    if len(categories) != len(nominal):
        raise ModelError(
            f"{SOURCE} has the categories of {len(categories)} columns, but {len(nominal)} "
            "categorical columns, so they cannot be matched: drop constant columns, or encode "
            "categories as integers, and train again"
        )
    return {
        feature: check_levels(own, f"column {feature} of {SOURCE}")
        for feature, own in zip(nominal, categories, strict=True)
    }


# ---------------------------------------------------------------- text
# LightGBM's model text is defined by ``gbdt_model_text.cpp`` and ``Tree::ToString`` (LightGBM
# 3 and 4, ``version=v3`` and ``v4``): ``key=value`` lines of a header, a block of such lines
# for each tree, and at the end importances of columns, parameters of training, on which
# predictions do not depend, and JSON of the training frame's categories.  The known keys are
# those of `_Header` and `_TREE_KEYS`: a text with another one is refused.

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_END_OF_TREES = "end of trees"
_SECTIONS = ("feature_importances:", "feature importances:", "parameters:")
"""Sections after the trees, which are not read."""
_END_OF_PARAMETERS = "end of parameters"
_CATEGORIES_PREFIX = "pandas_categorical:"
_TREE_KEYS = frozenset(
    (
        *("num_leaves", "num_cat", "split_feature", "split_gain", "threshold", "decision_type"),
        *("left_child", "right_child", "leaf_value", "leaf_weight", "leaf_count", "internal_value"),
        *("internal_weight", "internal_count", "cat_boundaries", "cat_threshold", "is_linear"),
        "shrinkage",
    )
)
_CATEGORICAL_BIT, _DEFAULT_LEFT_BIT = 1, 2
_MISSING_NONE, _MISSING_ZERO, _MISSING_NAN = 0, 1, 2
"""Missing types, bits 2 and 3 of the decision type."""
_INFO = re.compile(r"none|\[.*\]|-?\d+(:-?\d+)*")
"""Entry of feature_infos: of an unused, a numeric and a nominal column."""
_ZERO_BAND = float(np.float32(1e-35))
"""``kZeroThreshold``: LightGBM replaces numbers this close to 0 by 0 before it compares."""


class _Header(msgspec.Struct):
    """The lines of the header; predictions do not depend on those of type Any."""

    version: str = "none"
    num_class: Annotated[int, msgspec.Meta(ge=1)] | None = None
    num_tree_per_iteration: Annotated[int, msgspec.Meta(ge=1)] = 1
    max_feature_idx: Annotated[int, msgspec.Meta(ge=0)] = 0
    feature_names: str = ""
    feature_infos: str = ""
    objective: str = "custom"
    average_output: str | None = None
    label_index: Any = None
    monotone_constraints: Any = None
    tree_sizes: Any = None


def _parse_text(text: str) -> tuple[_Header, list[dict[str, str]], list[list[Any]] | None]:
    """Parse a model file: its header, the blocks of trees, and the frame's categories if any."""
    lines = text.split("\n")
    if lines[0].strip() != "tree":
        raise ModelFileError("the text is not a LightGBM model: its first line is not 'tree'")
    (head, *blocks), end = _split_blocks(lines)
    try:
        header = msgspec.convert(head, _Header, strict=False)
        found = _find_categories(lines[end + 1 :])
        categories = found and msgspec.json.decode(found, type=list[list[Any]] | None)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: {error}") from error
    if header.version not in ("v2", "v3", "v4"):
        raise ModelFileError(
            f"{SOURCE} has version {header.version!r:.40}; treekit reads v2, v3 and v4"
        )
    if any(block.get("is_linear", "0") != "0" for block in blocks):
        raise ModelError(
            f"{SOURCE} was trained with linear_tree: its leaves are linear models, "
            "which treekit does not support; train with linear_tree=False"
        )
    refuse_unknown(head, _Header.__struct_fields__, SOURCE)
    for number, block in enumerate(blocks):
        refuse_unknown(block, _TREE_KEYS, SOURCE, f"Tree={number} ")
    if header.num_class not in (None, header.num_tree_per_iteration):
        raise ModelError(
            f"{SOURCE} has {header.num_tree_per_iteration} trees per round for num_class="
            f"{header.num_class}, a form that treekit does not know; {UNKNOWN_REMEDY}"
        )
    return header, blocks, categories


def _find_categories(lines: list[str]) -> str:
    """Return the JSON of the training frame's categories, or an empty text."""
    categories, section = "", ""
    for line in map(str.strip, lines):
        if line.startswith(_CATEGORIES_PREFIX):
            categories, section = line.removeprefix(_CATEGORIES_PREFIX), ""
        elif line in (*_SECTIONS, _END_OF_PARAMETERS):
            section = line if line in _SECTIONS else ""
        elif line and not section:
            raise ModelError(
                f"{SOURCE} has the unknown line {line!r:.80} after its trees, which may change "
                f"predictions; {UNKNOWN_REMEDY}"
            )
    return categories


def _split_blocks(lines: list[str]) -> tuple[list[dict[str, str]], int]:
    """Parse the ``key=value`` lines of the header and of each tree; return their last line, too."""
    blocks: list[dict[str, str]] = [{}]
    for number, line in enumerate(lines[1:], start=1):
        if line.startswith("Tree="):
            if line.strip() != f"Tree={len(blocks) - 1}":
                raise ModelFileError(
                    f"line {number + 1} of {SOURCE} is {line!r:.40}, expected tree "
                    f"{len(blocks) - 1}"
                )
            blocks.append({})
        elif line.startswith(_END_OF_TREES):
            return blocks, number
        elif line.strip():
            key, _, value = map(str.strip, line.partition("="))
            if key in blocks[-1]:
                raise ModelFileError(f"{SOURCE} has {key!r:.40} twice in one block")
            blocks[-1][key] = value
    raise ModelFileError(f"{SOURCE} is truncated: it has no line 'end of trees'")


def _parse_categories(info: str) -> Ints:
    """Parse categories of the header, such as ``-1:2:0:1``; negative ones mean missing."""
    try:
        return np.array([int(text) for text in info.split(":")], dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: feature_infos {error}") from error


def _parse_tree(block: dict[str, str]) -> NodeTable:
    """Parse the block of a tree: its splits become the first nodes, then its leaves."""
    n_leaves = int(_parse_integers(block, "num_leaves", 1)[0])
    if not 1 <= n_leaves <= len(block.get("leaf_value", "")):
        raise ModelFileError(f"{SOURCE} is damaged: a tree has {n_leaves} leaves")
    n = n_leaves - 1
    feature = _parse_integers(block, "split_feature", n)
    decision = _parse_integers(block, "decision_type", n)
    threshold = _parse_numbers(block, "threshold", n)
    categorical = (decision & _CATEGORICAL_BIT) != 0
    default_left, missing_type = (decision & _DEFAULT_LEFT_BIT) != 0, decision >> 2
    if np.any(strange := (decision < 0) | (missing_type > _MISSING_NAN)):
        raise ModelError(
            f"{SOURCE} has a split of the unknown decision_type {decision[strange][0]}; treekit "
            f"reads 0 to {4 * _MISSING_NAN + 3}: {UNKNOWN_REMEDY}"
        )
    set_sizes, set_codes = _parse_sets(block, threshold[categorical])
    threshold = np.where(categorical, 0.0, _clear_zero_band(threshold))
    zero_as_missing = ~categorical & (missing_type == _MISSING_ZERO)
    if np.any(zero_as_missing & ((threshold >= 0) != default_left)):
        raise ModelError(
            f"{SOURCE} was trained with zero_as_missing, and a split separates zeros from the "
            "numbers around them, which treekit does not support; train with "
            "zero_as_missing=false"
        )
    missing = np.where(missing_type == _MISSING_NONE, threshold >= 0, default_left) & ~categorical
    weights = "count" if "leaf_count" in block and "internal_count" in block else "weight"
    leaf, zero = np.full(n_leaves, -1), np.zeros(n_leaves)
    inner_value = _parse_numbers(block, "internal_value", n, optional=True)
    return NodeTable(
        left=np.append(_parse_children(block, "left_child", n), leaf),
        right=np.append(_parse_children(block, "right_child", n), leaf),
        feature=np.append(feature, leaf),
        threshold=np.append(threshold, zero),
        missing_left=np.append(missing, leaf > 0),
        value=np.append(inner_value, _parse_numbers(block, "leaf_value", n_leaves))[:, None],
        weight=np.append(
            _parse_numbers(block, f"internal_{weights}", n, optional=True),
            _parse_numbers(block, f"leaf_{weights}", n_leaves, optional=True),
        ),
        gain=np.append(_parse_numbers(block, "split_gain", n, optional=True), zero),
        set_node=np.flatnonzero(categorical),
        set_sizes=set_sizes,
        set_codes=set_codes,
    )


def _parse_children(block: dict[str, str], key: str, n: int) -> Ints:
    """Parse the children of `n` splits: a split's number, or ``~leaf``."""
    child = _parse_integers(block, key, n)
    if np.any((child >= n) | (child < -n - 1)):
        raise ModelFileError(f"{SOURCE} is damaged: a node's child does not exist")
    return np.where(child >= 0, child, n - 1 - child)


def _parse_sets(block: dict[str, str], which: Floats) -> tuple[Ints, Ints]:
    """Parse the sets of the categorical splits: their sizes, and the categories that go left.

    Split i has set ``which[i]``; set s is the words ``bounds[s]:bounds[s + 1]`` of 32 bits,
    and bit b of its word w is the category ``32 * w + b``.
    """
    n_sets = int(_parse_integers(block, "num_cat", 1, optional=True)[0])
    if n_sets < 0 or np.any((which < 0) | (which >= n_sets) | (which != np.floor(which))):
        raise ModelFileError(f"{SOURCE} is damaged: a categorical split has no set")
    if not n_sets:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    bounds = _parse_integers(block, "cat_boundaries", n_sets + 1)
    if bounds[0] != 0 or np.any(np.diff(bounds) < 0):
        raise ModelFileError(f"{SOURCE} is damaged: cat_boundaries are not ascending from 0")
    words = _parse_integers(block, "cat_threshold", int(bounds[-1]))
    if np.any((words < 0) | (words >= 2**32)):
        raise ModelFileError(f"{SOURCE} is damaged: cat_threshold is out of range")
    at = np.flatnonzero(np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little"))
    first_word = np.repeat(bounds[:-1], np.diff(bounds))
    codes = at - 32 * first_word[at // 32]
    sets = np.split(codes, np.searchsorted(at, 32 * bounds[1:-1]))
    chosen = [sets[s] for s in which.astype(np.int64)]
    sizes = np.array([len(one) for one in chosen], dtype=np.int64)
    return sizes, np.concatenate([codes[:0], *chosen])


def _clear_zero_band(threshold: Floats) -> Floats:
    """Move thresholds out of the zero band, so that all numbers in it take the branch of 0."""
    inside = (threshold >= -_ZERO_BAND) & (threshold < _ZERO_BAND)
    moved = np.where(threshold >= 0, _ZERO_BAND, np.nextafter(-_ZERO_BAND, -np.inf))
    return np.where(inside, moved, threshold)


def _parse_numbers(block: dict[str, str], key: str, n: int, *, optional: bool = False) -> Floats:
    """Parse `n` numbers; if `optional`, as predictions do not depend on them, 0 if absent."""
    if optional and not block.get(key):
        return np.zeros(n)
    texts = block.get(key, "").split() if n else []
    if len(texts) != n:
        raise ModelFileError(f"{SOURCE} is damaged: {key} has {len(texts)} entries, expected {n}")
    try:
        return np.array(texts, dtype=np.float64)
    except ValueError as error:
        raise ModelFileError(f"{SOURCE} is damaged: {key}: {error}") from error


def _parse_integers(block: dict[str, str], key: str, n: int, *, optional: bool = False) -> Ints:
    """Parse `n` integers."""
    numbers = _parse_numbers(block, key, n, optional=optional)
    if not np.all((np.abs(numbers) <= 2.0**53) & (numbers == np.floor(numbers))):
        raise ModelFileError(f"{SOURCE} is damaged: {key} contains a non-integer")
    return numbers.astype(np.int64)
