"""Import XGBoost's boosted trees from JSON and UBJSON files and fitted objects.

A file is parsed without XGBoost; an object is converted by ``save_raw("json")``.
Reading takes about 20 times the file's size in memory.

Comparison with XGBoost's predictions:

Decision paths
    equal.  XGBoost compares float32 numbers, ``x < t``; that is ``x <= t'`` for
    the float32 t' before t.  Infinite numbers, which XGBoost rejects, are
    compared like others here.
Missing values
    take each split's default branch in both.
Categories
    a column's categories are those of the training frame where the file has them
    (XGBoost 3.1 and later), else the integers 0, 1, 2, ...; XGBoost sends unseen
    ones left, regardless of the default branch, or rejects them.  Non-integers
    are unseen here; XGBoost truncates them.  Unseen categories are missing if all
    categorical splits send missing values left; else the model rejects them
    (``unknown="error"``).
Margins
    XGBoost adds T leaves in float32, in sequence; the sum of the same float32 leaves
    is exact here except for rounding to multiples of ``2**exponent``, about
    ``T * 2**-53`` of the largest sum.  So margins differ by XGBoost's rounding
    error, at most ``T * 2**-24`` of the sum of the leaves' magnitudes.
Labels
    equal unless two classes are closer than that.
Probabilities and exponentials
    equal for the same margin within the precision of float32, the type of XGBoost.
Rounds
    up to the best one, if training stopped early, like XGBoost's scikit-learn
    estimators; ``Booster.predict`` uses all rounds: request them by ``iterations``.

`tests/test_import_xgboost.py` measures these differences.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

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
from treekit.model.links import Link
from treekit.model.model import Model

# ---------------------------------------------------------------- UBJSON


MAX_NESTING = 64

_INTEGER_CODES = {b"i": ">b", b"U": ">B", b"I": ">h", b"l": ">i", b"L": ">q"}
_NUMBER_CODES = _INTEGER_CODES | {b"d": ">f", b"D": ">d"}
_CONSTANTS = {b"Z": None, b"N": None, b"T": True, b"F": False}


class _Reader:
    """Reader of the bytes from a position."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.position = 0

    def read_bytes(self, n: int) -> bytes:
        """Read the next n bytes."""
        if n < 0 or n > len(self.content) - self.position:
            raise ModelFileError(f"the UBJSON is truncated or damaged at byte {self.position}")
        self.position += n
        return self.content[self.position - n : self.position]

    def read_marker(self) -> bytes:
        """Read the next marker, skipping no-ops."""
        marker = self.read_bytes(1)
        while marker == b"N":
            marker = self.read_bytes(1)
        return marker

    def peek_byte(self) -> bytes:
        """Return the next byte without consuming it."""
        return self.content[self.position : self.position + 1]

    def read_length(self) -> int:
        """Read a length: an integer marker and the integer."""
        marker = self.read_marker()
        if marker not in _INTEGER_CODES:
            raise ModelFileError(f"the UBJSON lacks a length at byte {self.position}")
        value = int(self.read_number(marker))
        if not 0 <= value <= len(self.content):
            raise ModelFileError(
                f"the UBJSON has an invalid length {value} at byte {self.position}"
            )
        return value

    def read_number(self, marker: bytes) -> Any:
        """Read a number of the marker's type."""
        code = _NUMBER_CODES[marker]
        return struct.unpack(code, self.read_bytes(struct.calcsize(code)))[0]

    def read_text(self) -> str:
        """Read a length and UTF-8 text."""
        try:
            return self.read_bytes(self.read_length()).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ModelFileError(f"the UBJSON has text that is not UTF-8: {error}") from error

    def read_scalar(self, marker: bytes) -> Any:
        """Read a value that is not a container."""
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker in _NUMBER_CODES:
            return self.read_number(marker)
        if marker in (b"S", b"H"):
            return self.read_text()
        if marker == b"C":
            return self.read_bytes(1).decode("latin-1")
        raise ModelFileError(f"the UBJSON has an unknown marker {marker!r} at byte {self.position}")

    def read_container_header(self) -> tuple[bytes | None, int | None]:
        """Read the optional type and count of a container."""
        kind = None
        if self.peek_byte() == b"$":
            self.read_bytes(1)
            kind = self.read_bytes(1)
        if self.peek_byte() != b"#":
            if kind is not None:
                raise ModelFileError(
                    f"the UBJSON is damaged: a type without a count at byte {self.position}"
                )
            return None, None
        self.read_bytes(1)
        return kind, self.read_length()

    def read_typed_array(self, kind: bytes, count: int) -> list[Any]:
        """Read an array of numbers of one type."""
        if kind not in _NUMBER_CODES:
            raise ModelFileError(f"the UBJSON has an array of non-numeric type {kind!r}")
        dtype = np.dtype(_NUMBER_CODES[kind])
        numbers: list[Any] = np.frombuffer(
            self.read_bytes(count * dtype.itemsize), dtype=dtype
        ).tolist()
        return numbers


class _Container:
    """An object or array that is being read."""

    def __init__(self, values: dict[str, Any] | list[Any], left: int | None) -> None:
        self.values = values
        self.n_remaining = left
        self.key = ""

    def add_value(self, value: Any) -> None:
        """Add the next value."""
        if isinstance(self.values, dict):
            self.values[self.key] = value
        else:
            self.values.append(value)
        if self.n_remaining is not None:
            self.n_remaining -= 1

    def is_complete(self, reader: _Reader) -> bool:
        """Return whether all values have been read, consuming an end marker."""
        if self.n_remaining is not None:
            return self.n_remaining == 0
        if reader.peek_byte() == (b"}" if isinstance(self.values, dict) else b"]"):
            reader.read_bytes(1)
            return True
        return False


def decode_ubjson(content: bytes) -> Any:
    """Decode UBJSON.

    Returns
    -------
    dict, list, str, int, float, bool or None
        Typed arrays as lists.

    Raises
    ------
    ModelFileError
        If `content` is not UBJSON, is truncated, or is nested deeper than `MAX_NESTING`.
    """
    reader = _Reader(content)
    outer = _Container([], 1)
    within = [outer]
    while within:
        top = within[-1]
        if top.is_complete(reader):
            within.pop()
            continue
        if isinstance(top.values, dict):
            top.key = reader.read_text()
        marker = reader.read_marker()
        if marker not in (b"{", b"["):
            top.add_value(reader.read_scalar(marker))
            continue
        kind, count = reader.read_container_header()
        if kind is not None and marker == b"[":
            top.add_value(reader.read_typed_array(kind, count or 0))
            continue
        if kind is not None or len(within) > MAX_NESTING:
            raise ModelFileError(
                f"the UBJSON is nested too deep, or has a typed object, at byte {reader.position}"
            )
        values: dict[str, Any] | list[Any] = {} if marker == b"{" else []
        top.add_value(values)
        within.append(_Container(values, count))
    return outer.values[0] if isinstance(outer.values, list) else None


# ---------------------------------------------------------------- xgboost models

_JSON_START = re.compile(rb'\s*\{\s*"(learner|version)"\s*:')
_UBJSON_START = b"{L" + (7).to_bytes(8, "big") + b"learner"

_IDENTITY: Link = "identity"
_REGRESSION_LINKS: dict[str, tuple[Link, str]] = {
    "reg:logistic": ("sigmoid", "logit"),
    "count:poisson": ("exp", "log"),
    "reg:gamma": ("exp", "log"),
    "reg:tweedie": ("exp", "log"),
    "survival:cox": ("exp", "log"),
    "survival:aft": ("exp", "log"),
    **dict.fromkeys(
        (
            *("reg:squarederror", "reg:linear", "reg:squaredlogerror", "reg:pseudohubererror"),
            *("reg:absoluteerror", "reg:quantileerror", "binary:logitraw"),
            *("rank:pairwise", "rank:ndcg", "rank:map"),
        ),
        (_IDENTITY, ""),
    ),
}
"""Regression objectives: link function, and conversion of the base score to a margin."""


def recognises_xgboost(source: Any) -> bool:
    """Return whether `source` is an XGBoost model file (``.json``, ``.ubj``) or object."""
    if _JSON_START.match(beginning(source, (".json",))):
        return True
    return (
        beginning(source, (".ubj",)).startswith(_UBJSON_START)
        or _find_class_name(source) is not None
    )


def _find_class_name(source: Any) -> str | None:
    """Return ``Booster`` or ``XGBModel`` for instances, without importing XGBoost."""
    for kind in type(source).__mro__:
        if kind.__module__.partition(".")[0] == "xgboost":
            for name in ("Booster", "XGBModel"):
                if kind.__name__ == name:
                    return name
    return None


def read_xgboost(
    source: Any, *, answer: str = "predictions", iterations: int | None = None
) -> Model:
    """Read an XGBoost file or object.

    Parameters
    ----------
    source : pathlib.Path, xgboost.Booster or xgboost.XGBModel
    answer : {"predictions", "margins"}
        ``margins``: the raw scores of the classes, as numbers.
    iterations : int, optional
        Boosting rounds to read; default up to the best one if known, else all.

    Raises
    ------
    ModelError
        If it is not such a model, is damaged, or uses unsupported features.
    """
    file = parse_model(_read_source(source))
    learner = file.learner
    forest, scale = _select_forest(learner)
    n_margins = _count_margins(learner, forest)
    outcome, start = _make_outcome(learner.objective.name, n_margins, file.version)
    n_trees = _count_trees(forest, _resolve_rounds(learner, iterations), n_margins)
    trees = forest.trees[:n_trees]
    group = make_array(forest.tree_info[:n_trees], np.int64, "tree_info")
    if np.any((group < 0) | (group >= n_margins)):
        raise ModelFileError(
            f"{SOURCE} is damaged: a tree adds to a margin outside the {n_margins} margins"
        )
    width = learner.learner_model_param.num_feature
    n_features = check_width(_parse_integer(width, "num_feature"), SOURCE)
    vocabularies = collect_vocabularies(forest.cats.enc, trees, n_features)
    names = check_names(learner.feature_names, n_features, SOURCE)
    nodes, unseen_is_missing = make_nodes(trees, scale[:n_trees], vocabularies, n_margins)
    return make_boosted_model(
        BoostedTrees(
            source=SOURCE,
            columns=make_columns(names, vocabularies),
            dtype="float32",
            nodes=nodes,
            margin_of_tree=group,
            initial_margins=_parse_base_score(
                learner.learner_model_param.base_score, n_margins, start
            ),
            outcome=outcome,
            unknown="missing" if unseen_is_missing else "error",
        ),
        answer=answer,
        settings={"objective": learner.objective.name},
        provenance={"importer": "xgboost", "xgboost": ".".join(map(str, file.version))},
    )


def _read_source(source: Any) -> bytes:
    """Return the bytes of a file, or the JSON of an object."""
    kind = _find_class_name(source)
    if kind is None:
        if not isinstance(source, Path) or not recognises_xgboost(source):
            raise ModelError(f"expected an XGBoost model, got {type(source).__qualname__}")
        return read_whole(source)
    if kind == "XGBModel":
        if not source.__sklearn_is_fitted__():
            raise ModelError(f"the {type(source).__name__} is not fitted: call fit first")
        missing = source.missing
        if missing is not None and missing == missing:
            raise ModelError(
                f"the {type(source).__name__} treats {missing!r} as missing, but treekit only NaN; "
                "replace it in the data, and train with missing=nan"
            )
        source = source.get_booster()
    return bytes(source.save_raw("json"))


def _select_forest(learner: Learner) -> tuple[Forest, npt.NDArray[np.float64]]:
    """Return the trees, and the weight of each."""
    booster = learner.gradient_booster
    if booster.name == "gblinear":
        raise ModelError(f"{SOURCE} is linear (gblinear); train with booster='gbtree'")
    forest = booster.gbtree.model if booster.gbtree is not None else booster.model
    if booster.name not in ("gbtree", "dart") or forest is None:
        raise ModelFileError(f"{SOURCE} has the unknown booster {booster.name!r:.40}")
    n = len(forest.trees)
    if not n or len(forest.tree_info) != n:
        raise ModelFileError(
            f"{SOURCE} has {n} trees, but tree_info has {len(forest.tree_info)} entries"
        )
    if booster.name == "gbtree":
        return forest, np.ones(n)
    if len(booster.weight_drop) != n:
        raise ModelFileError(
            f"{SOURCE} is damaged: {len(booster.weight_drop)} weights for {n} trees"
        )
    with np.errstate(over="ignore"):
        weights = np.array(booster.weight_drop).astype(np.float32)
    if not np.all(np.isfinite(weights)):
        raise ModelFileError(f"{SOURCE} is damaged: a tree's weight is not finite")
    return forest, weights.astype(np.float64)


def _parse_integer(text: str, what: str) -> int:
    """Parse a non-negative integer."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ModelFileError(f"{SOURCE} is damaged: {what} is {text!r:.40}")
    return int(text)


def _count_margins(learner: Learner, forest: Forest) -> int:
    """Return the number of margins: each has a tree, or leaves have values of all."""
    param = learner.learner_model_param
    n_margins = max(
        _parse_integer(param.num_class, "num_class"),
        _parse_integer(param.num_target, "num_target"),
        1,
    )
    if n_margins > max(len(forest.trees), *(len(tree.leaf_weights) for tree in forest.trees)):
        raise ModelFileError(f"{SOURCE} is damaged: it has {n_margins} margins, but fewer trees")
    return n_margins


def _resolve_rounds(learner: Learner, iterations: int | None) -> int | None:
    """Return the number of rounds to read: `iterations`, up to the best round, or None for all."""
    best = learner.attributes.get("best_iteration")
    return (
        iterations
        if iterations is not None or best is None
        else _parse_integer(best, "best_iteration") + 1
    )


def _count_trees(forest: Forest, rounds: int | None, n_margins: int) -> int:
    """Return the number of trees of the first `rounds`."""
    n = len(forest.trees)
    if rounds is None:
        return n
    ends = forest.iteration_indptr
    if not ends:  # before XGBoost 2.0
        parallel = _parse_integer(
            forest.gbtree_model_param.get("num_parallel_tree", "1"), "num_parallel_tree"
        )
        ends = list(range(0, n + 1, max(parallel, 1) * n_margins))
    if rounds >= len(ends):
        raise ModelError(f"{SOURCE} has {len(ends) - 1} iterations, not {rounds}; request fewer")
    if not 1 <= ends[rounds] <= n:
        raise ModelFileError(f"{SOURCE} is damaged: iteration_indptr does not match its {n} trees")
    return ends[rounds]


def _make_outcome(objective: str, n_margins: int, version: list[int]) -> tuple[Outcome, str]:
    """Return the conversions of margins to predictions, and of the base score to a margin."""
    if objective == "binary:logistic":
        several = "" if n_margins == 1 else "it has several labels per row"
        return Outcome(
            "sigmoid", (0, 1) if n_margins == 1 else (), unsupported_reason=several
        ), "logit"
    if objective in ("multi:softprob", "multi:softmax") and n_margins > 1:
        return Outcome("softmax", tuple(range(n_margins))), ""
    if objective == "binary:hinge":
        return Outcome(
            "identity", unsupported_reason="its objective 'binary:hinge' has no probabilities"
        ), ""
    if objective == "binary:logitraw" and version[:1] < [3]:
        raise ModelError(
            f"{SOURCE} has the objective 'binary:logitraw' and a version before 3, in which "
            "the meaning of base_score varies; train again with XGBoost 3"
        )
    if objective not in _REGRESSION_LINKS:
        raise ModelError(
            f"{SOURCE} has the unknown objective {objective!r:.60}; known: "
            "binary:logistic, multi:softprob, multi:softmax, binary:hinge, "
            f"{', '.join(_REGRESSION_LINKS)}"
        )
    link, start = _REGRESSION_LINKS[objective]
    return Outcome(link), start


def _parse_base_score(text: str, n_margins: int, start: str) -> npt.NDArray[np.float64]:
    """Convert the base score to initial margins (margins,), in float32 like XGBoost."""
    parts = text.removeprefix("[").removesuffix("]").split(",")
    try:
        with np.errstate(over="ignore"):
            score = np.array([float(part) for part in parts]).astype(np.float32)
    except ValueError:
        score = np.array([np.nan], dtype=np.float32)
    if len(score) == 1:
        score = np.repeat(score, n_margins)
    one = np.float32(1)
    with np.errstate(all="ignore"):
        odds = one / score - one if start == "logit" else score
        if start:
            # NumPy's float32 logarithm is off by some ulp; rounding the double's matches C's.
            score = np.log(odds.astype(np.float64)).astype(np.float32)
            score = -score if start == "logit" else score
    if len(score) != n_margins or not np.all(np.isfinite(score)):
        raise ModelFileError(f"{SOURCE} is damaged: base_score is {text!r:.60}")
    return score.astype(np.float64) + 0.0


# ---------------------------------------------------------------- xgboost nodes
# XGBoost's trees as node lists: thresholds, default branches and sets of categories.

SOURCE = "the XGBoost model"
_CATEGORICAL_TYPE = 1
_MAX_CATEGORY = 2**24
"""``OutOfRangeCat``: categories are below this largest contiguous integer of float32."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class _ConcatenatedTrees:
    """The concatenated arrays of all trees."""

    def __init__(self, trees: Sequence[TreeRecord]) -> None:
        self.sizes = np.array([len(tree.left_children) for tree in trees], dtype=np.int64)
        self.first = np.cumsum(self.sizes) - self.sizes
        self.tree = np.repeat(np.arange(len(trees)), self.sizes)
        self.trees = trees
        if np.any(self.sizes == 0):
            raise ModelFileError(f"{SOURCE} is damaged: a tree has no node")
        left = self.concatenate_field("left_children", np.int64)
        self.inner = left >= 0
        self.left = np.where(self.inner, left + self.first[self.tree], -1)
        right = self.concatenate_field("right_children", np.int64)
        self.right = np.where(self.inner & (right >= 0), right + self.first[self.tree], right)
        ends = (self.first + self.sizes)[self.tree]
        if np.any(self.inner & ((self.left >= ends) | (self.right >= ends) | (right < 0))):
            raise ModelFileError(f"{SOURCE} is damaged: a node's child does not exist")
        self.feature = self.concatenate_field("split_indices", np.int64)

    def concatenate_field(self, name: str, dtype: Any, fill: bool = False) -> npt.NDArray[Any]:
        """Concatenate the arrays of a field; with `fill`, use zeros where a tree has none."""
        parts = []
        for tree, size in zip(self.trees, self.sizes.tolist(), strict=True):
            values = getattr(tree, name)
            if fill and len(values) != size:
                values = [0] * size
            if len(values) != size:
                raise ModelFileError(
                    f"{SOURCE} is damaged: {name} has {len(values)} entries of {size} nodes"
                )
            parts.append(make_array(values, dtype, name))
        return np.concatenate(parts)

    def collect_sets(self) -> tuple[Ints, Ints, Ints]:
        """Return the categorical splits, the offsets of their categories, and the categories."""
        nodes, starts, codes, total = [], [np.zeros(1, dtype=np.int64)], [], 0
        for tree, at, size in zip(
            self.trees, self.first.tolist(), self.sizes.tolist(), strict=True
        ):
            if not tree.categories_nodes:
                continue
            own = make_array(tree.categories_nodes, np.int64, "categories_nodes")
            begin = make_array(tree.categories_segments, np.int64, "categories_segments")
            sizes = make_array(tree.categories_sizes, np.int64, "categories_sizes")
            categories = make_array(tree.categories, np.int64, "categories")
            fits = len(own) == len(begin) == len(sizes) and np.all((own >= 0) & (own < size))
            if (
                not fits
                or not np.array_equal(begin, np.cumsum(sizes) - sizes)
                or (np.any(sizes < 0) or sizes.sum() != len(categories))
            ):
                raise ModelFileError(f"{SOURCE} is damaged: inconsistent sets of categories")
            nodes.append(own + at)
            starts.append(np.cumsum(sizes) + total)
            codes.append(categories)
            total += len(categories)
        if not nodes:
            return np.zeros(0, dtype=np.int64), starts[0], np.zeros(0, dtype=np.int64)
        joined = np.concatenate(codes)
        if np.any((joined < 0) | (joined >= _MAX_CATEGORY)):
            raise ModelFileError(f"{SOURCE} is damaged: a category is out of range")
        return np.concatenate(nodes), np.concatenate(starts), joined


def make_array(values: Sequence[Any], dtype: Any, name: str) -> npt.NDArray[Any]:
    """Convert the numbers of a field; raise ModelFileError if they do not fit the type."""
    try:
        return np.array(values, dtype=dtype)
    except (OverflowError, ValueError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: {name}: {error}") from error


def collect_vocabularies(
    encodings: Sequence[Categories], trees: Sequence[TreeRecord], n_features: int
) -> list[Vocabulary | None]:
    """Return the vocabulary of each column; None for numeric and unused ones."""
    if encodings and len(encodings) != n_features:
        raise ModelFileError(
            f"{SOURCE} is damaged: {len(encodings)} vocabularies for {n_features} columns"
        )
    joined = _ConcatenatedTrees(trees)
    nodes, start, codes = joined.collect_sets()
    set_features = joined.feature[nodes]
    if np.any((set_features < 0) | (set_features >= n_features)):
        raise ModelFileError(f"{SOURCE} is damaged: a split uses none of the {n_features} columns")
    owner = np.repeat(set_features, np.diff(start))
    vocabularies: list[Vocabulary | None] = []
    for feature in range(n_features):
        own = _read_vocabulary(encodings[feature], feature) if encodings else None
        if own is None and np.any(set_features == feature):
            own = make_integer_vocabulary(codes[owner == feature])
        vocabularies.append(own)
    return vocabularies


def _read_vocabulary(categories: Categories, feature: int) -> Vocabulary | None:
    """Return the vocabulary of a column in the file, if any."""
    if not categories.values:
        return None
    what = f"column {feature} of {SOURCE}"
    if categories.offsets is None:
        return make_named_vocabulary(categories.values, what)
    ends = categories.offsets
    try:
        text = bytes(int(value) & 0xFF for value in categories.values)
        if ends[0] != 0 or ends[-1] != len(text) or sorted(ends) != ends:
            raise ValueError("invalid offsets")
        names = [text[a:b].decode("utf-8") for a, b in itertools.pairwise(ends)]
    except (ValueError, IndexError, OverflowError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: the categories of {what}: {error}") from error
    return make_named_vocabulary(names, what)


def make_nodes(
    trees: Sequence[TreeRecord],
    scale: Floats,
    vocabularies: Sequence[Vocabulary | None],
    n_margins: int,
) -> tuple[NodeList, bool]:
    """Make the nodes of all trees; also return whether unseen categories act as missing."""
    joined = _ConcatenatedTrees(trees)
    set_node, set_start, codes = joined.collect_sets()
    set_features = joined.feature[set_node]
    categorical = np.zeros(len(joined.left), dtype=np.bool_)
    categorical[set_node] = True
    is_categorical = (
        joined.concatenate_field("split_type", np.int64, fill=True) == _CATEGORICAL_TYPE
    )
    nominal = np.array([one is not None for one in vocabularies], dtype=np.bool_)
    inside = (joined.feature >= 0) & (joined.feature < len(vocabularies))
    at = np.where(inside, joined.feature, 0)
    if np.any(
        joined.inner & (~inside | (is_categorical != categorical) | (nominal[at] != categorical))
    ):
        raise ModelFileError(f"{SOURCE} is damaged: a split uses a column that does not exist")
    with np.errstate(over="ignore"):  # overflow becomes infinite, and is rejected in leaves
        condition = joined.concatenate_field("split_conditions", np.float64).astype(np.float32)
        below = np.nextafter(condition, -np.float32(np.inf))
    default_left = joined.concatenate_field("default_left", np.int64) != 0
    # Categories of a set go right in XGBoost, but to branch 0 here.
    left = np.where(categorical, joined.right, joined.left)
    nodes = NodeList(
        roots=joined.first,
        tree=joined.tree,
        left=np.where(joined.inner, left, -1),
        right=np.where(joined.inner, np.where(categorical, joined.left, joined.right), -1),
        feature=joined.feature,
        threshold=np.where(categorical, 0.0, below),
        missing_left=default_left != categorical,
        value=_compute_values(joined, condition, scale, n_margins),
        weight=joined.concatenate_field("sum_hessian", np.float64, fill=True),
        gain=joined.concatenate_field("loss_changes", np.float64, fill=True),
        set_node=set_node,
        set_offsets=set_start,
        set_codes=_map_to_levels(codes, np.repeat(set_features, np.diff(set_start)), vocabularies),
    )
    return nodes, bool(np.all(default_left[set_node]))


def _compute_values(
    joined: _ConcatenatedTrees, condition: npt.NDArray[np.float32], scale: Floats, n_margins: int
) -> Floats:
    """Return node values (n, 1), or (n, margins) if leaves have values of all margins."""
    sizes = {tree.tree_param.size_leaf_vector for tree in joined.trees}
    if sizes <= {"0", "1"}:
        inner_values = joined.concatenate_field("base_weights", np.float64, fill=True)
        value = np.where(joined.inner, inner_values, condition.astype(np.float64))
        return (value * scale[joined.tree])[:, None]
    if sizes != {str(n_margins)}:
        raise ModelFileError(f"{SOURCE} is damaged: leaves of {sorted(sizes)} values: {n_margins}")
    value = np.zeros((len(joined.left), n_margins))
    for number, (tree, at, size) in enumerate(
        zip(joined.trees, joined.first.tolist(), joined.sizes.tolist(), strict=True)
    ):
        if not tree.leaf_weights:
            raise ModelError(
                f"{SOURCE} has leaves with several values in the format of XGBoost 2; load it with "
                "XGBoost 3 and save it again"
            )
        weights = _round_to_float32(make_array(tree.leaf_weights, np.float64, "leaf_weights"))
        leaf = np.flatnonzero(~joined.inner[at : at + size]) + at
        which = joined.right[leaf]
        if (
            len(weights) % n_margins
            or np.any(which < 0)
            or np.any((which + 1) * n_margins > len(weights))
        ):
            raise ModelFileError(f"{SOURCE} is damaged: a leaf has no values")
        value[leaf] = weights.reshape(-1, n_margins)[which] * scale[number]
    return value


def _round_to_float32(values: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64)


def _map_to_levels(codes: Ints, features: Ints, vocabularies: Sequence[Vocabulary | None]) -> Ints:
    """Map XGBoost's category numbers to codes of the vocabularies."""
    levels = np.full(len(codes), -1, dtype=np.int64)
    for feature in np.unique(features).tolist():
        vocabulary, own = vocabularies[feature], features == feature
        if vocabulary is not None:
            levels[own] = vocabulary.map_to_levels(codes[own])
    return levels


# ---------------------------------------------------------------- xgboost json
# Records of XGBoost's model files, JSON or UBJSON.
#
# The schema is ``doc/model.schema`` of XGBoost; keys that are not declared here are
# ignored.

JsonInteger = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""Integers of arrays, limited to the exact integers of a double."""


class TreeParam(msgspec.Struct):
    """Sizes of a tree, as text."""

    size_leaf_vector: str = "1"


class TreeRecord(msgspec.Struct):
    """The arrays of one tree, by node; those of categories, by split."""

    left_children: list[JsonInteger]
    right_children: list[JsonInteger]
    split_indices: list[JsonInteger]
    split_conditions: list[float]
    default_left: list[JsonInteger | bool]
    tree_param: TreeParam = msgspec.field(default_factory=TreeParam)
    split_type: list[JsonInteger] = []
    categories: list[JsonInteger] = []
    categories_nodes: list[JsonInteger] = []
    categories_segments: list[JsonInteger] = []
    categories_sizes: list[JsonInteger] = []
    sum_hessian: list[float] = []
    loss_changes: list[float] = []
    base_weights: list[float] = []
    leaf_weights: list[float] = []


class Categories(msgspec.Struct):
    """The vocabulary of one column: concatenated UTF-8 with offsets, or numbers."""

    values: list[float]
    offsets: list[JsonInteger] | None = None


class Encodings(msgspec.Struct):
    """The vocabularies of all columns; empty if the training data had codes."""

    enc: list[Categories] = []


class Forest(msgspec.Struct):
    """All trees, and the margin that each adds to."""

    trees: list[TreeRecord] = []
    tree_info: list[JsonInteger] = []
    iteration_indptr: list[JsonInteger] = []
    gbtree_model_param: dict[str, str] = {}
    cats: Encodings = msgspec.field(default_factory=Encodings)


class GbTree(msgspec.Struct):
    """The inner booster of ``dart``."""

    model: Forest


class Booster(msgspec.Struct):
    """``gbtree`` has a model, ``dart`` a gbtree and weights, ``gblinear`` a model of no trees."""

    name: str
    model: Forest | None = None
    gbtree: GbTree | None = None
    weight_drop: list[float] = []


class ModelParam(msgspec.Struct):
    """Parameters of the model: numbers as text."""

    base_score: str
    num_class: str = "0"
    num_feature: str = "0"
    num_target: str = "1"


class Objective(msgspec.Struct):
    """The objective's name; its other fields are ignored."""

    name: str


class Learner(msgspec.Struct):
    """The model without its version."""

    gradient_booster: Booster
    learner_model_param: ModelParam
    objective: Objective
    feature_names: list[str] = []
    feature_types: list[str] = []
    attributes: dict[str, str] = {}


class XgboostFile(msgspec.Struct):
    """A complete file."""

    learner: Learner
    version: list[JsonInteger] = []


def parse_model(content: bytes) -> XgboostFile:
    """Parse JSON or UBJSON.

    Raises
    ------
    ModelFileError
        If it is neither, or lacks required fields.
    """
    try:
        # UBJSON's first key starts with a length, JSON's with a quotation mark.
        if content[:1] == b"{" and content[1:2] in b"LlIUi#$" and content[1:2]:
            return msgspec.convert(decode_ubjson(content), XgboostFile)
        return msgspec.json.decode(content, type=XgboostFile)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ModelFileError(
            f"the XGBoost model is damaged, or not an XGBoost model: {error}"
        ) from error
