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
    are rounded to float32 and down in both (``Column.rounds``; SQL, and ONNX whose inputs
    are columns, read them as unseen: cast the column there).  Unseen categories are missing if all
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
Dropout
    leaves are multiplied by the weight of their tree in double and rounded with the
    sums; XGBoost rounds each product to float32.

`tests/test_xgboost.py` measures these differences.
"""

from __future__ import annotations

import itertools
import json
import re
import struct
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit import Model
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
    make_boosted_model,
    make_columns,
)

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

    def read_value(self, depth: int) -> Any:
        """Read any value, at a depth of containers."""
        marker = self.read_marker()
        if marker not in (b"{", b"["):
            return self.read_scalar(marker)
        kind, count = self.read_container_header()
        if kind is not None and marker == b"[":
            return self.read_typed_array(kind, count or 0)
        if kind is not None or depth > MAX_NESTING:
            raise ModelFileError(
                f"the UBJSON is nested too deep, or has a typed object, at byte {self.position}"
            )
        keys: list[str] = []
        values: list[Any] = []
        end = b"}" if marker == b"{" else b"]"
        while len(values) != count:
            if count is None and self.peek_byte() == end:
                self.read_bytes(1)
                break
            if marker == b"{":
                keys.append(self.read_text())
            values.append(self.read_value(depth + 1))
        return dict(zip(keys, values, strict=True)) if marker == b"{" else values

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
    return _Reader(content).read_value(1)


# ---------------------------------------------------------------- models

SOURCE = "the XGBoost model"
_JSON_START = re.compile(rb'\s*\{\s*"(learner|version)"\s*:')
_UBJSON_START = b"{L" + (7).to_bytes(8, "big") + b"learner"

_REGRESSION_LINKS: dict[str, tuple[Any, str]] = {
    "reg:logistic": ("sigmoid", "logit"),
    "count:poisson": ("exp", "log"),
    "reg:gamma": ("exp", "log"),
    "reg:tweedie": ("exp", "log"),
    "survival:cox": ("exp", "log"),
    "survival:aft": ("exp", "log"),
    **dict.fromkeys(
        (
            *("reg:squarederror", "reg:linear", "reg:squaredlogerror", "reg:pseudohubererror"),
            *("reg:absoluteerror", "reg:quantileerror", "reg:expectileerror", "binary:logitraw"),
            *("rank:pairwise", "rank:ndcg", "rank:map"),
        ),
        ("identity", ""),
    ),
}
"""Regression objectives: link function, and conversion of the base score to a margin."""


_CLASSES = ("Booster", "XGBModel")


def recognises_xgboost(source: Any) -> bool:
    """Return whether `source` is an XGBoost model file (``.json``, ``.ubj``) or object."""
    if _JSON_START.match(beginning(source, (".json",))):
        return True
    is_ubjson = beginning(source, (".ubj",)).startswith(_UBJSON_START)
    return is_ubjson or find_class_name(source, "xgboost", _CLASSES) is not None


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
        Number of boosting rounds to read; by default up to the best one if it is known,
        else all.

    Raises
    ------
    ModelError
        If the source is not an XGBoost model, is damaged, or uses unsupported features.
    """
    content = _decode(_read_source(source))
    file = _convert(content)
    learner = file.learner
    forest, scale = _select_forest(learner)
    _refuse_unknown_keys(content, _FILE_TYPE, "")
    param = learner.learner_model_param
    if param.num_class > 1 and param.num_target > 1:
        raise ModelError(
            f"{SOURCE} has {param.num_class} classes and {param.num_target} targets, which treekit "
            "does not read; train a model for each target"
        )
    if strange := sorted(set(learner.feature_types) - _FEATURE_TYPES):
        raise ModelError(
            f"{SOURCE} has columns of the unknown type {strange[0]!r:.40}; treekit reads "
            f"{', '.join(sorted(_FEATURE_TYPES))}; {UNKNOWN_REMEDY}"
        )
    n_margins = max(param.num_class, param.num_target, 1)
    if n_margins > max(len(forest.trees), *(len(tree.leaf_weights) for tree in forest.trees)):
        raise ModelFileError(f"{SOURCE} is damaged: it has {n_margins} margins, but fewer trees")
    outcome, start = _make_outcome(learner.objective.name, n_margins, file.version)
    best = learner.attributes.best_iteration
    rounds = iterations or (None if best is None else best + 1)
    n_trees = _count_trees(forest, rounds, n_margins)
    group = np.array(forest.tree_info[:n_trees])
    if np.any((group < 0) | (group >= n_margins)):
        raise ModelFileError(
            f"{SOURCE} is damaged: a tree adds to a margin outside the {n_margins} margins"
        )
    names = check_names(learner.feature_names, param.num_feature, SOURCE)
    encodings = forest.cats.enc
    if encodings and len(encodings) != len(names):
        raise ModelFileError(
            f"{SOURCE} is damaged: {len(encodings)} vocabularies for {len(names)} columns"
        )
    named = {f: _read_levels(own, f) for f, own in enumerate(encodings) if own.values}
    sizes = {tree.tree_param.size_leaf_vector for tree in forest.trees[:n_trees]}
    if not (sizes <= {0, 1} or sizes == {n_margins}):
        raise ModelFileError(
            f"{SOURCE} is damaged: leaves of {sorted(sizes)} values, but {n_margins} margins"
        )
    tables = [
        _make_table(tree, weight, n_margins)
        for tree, weight in zip(forest.trees[:n_trees], scale.tolist(), strict=False)
    ]
    nodes = concatenate_tables(tables, SOURCE)
    columns = make_columns(nodes, names, SOURCE, named=named, rounds="float32_down")
    return make_boosted_model(
        nodes,
        columns,
        outcome,
        source=SOURCE,
        dtype="float32",
        margin_of_tree=group,
        initial_margins=_parse_base_score(param.base_score, n_margins, start),
        unknown="error" if np.any(nodes.missing_left[nodes.set_node]) else "missing",
        answer=answer,
        settings={"objective": learner.objective.name},
        provenance={"importer": "xgboost", "xgboost": ".".join(map(str, file.version))},
    )


def _read_source(source: Any) -> bytes:
    """Return the bytes of a file, or the JSON of an object."""
    kind = find_class_name(source, "xgboost", _CLASSES)
    if kind is None:
        if not isinstance(source, Path) or not recognises_xgboost(source):
            raise ModelError(f"expected an XGBoost model, got {type(source).__qualname__}")
        return read_whole(source)
    refuse_overrides(source, "xgboost")
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
    # Up to XGBoost 3.3, dropout is a booster of its own, which wraps a gbtree.
    is_wrapped = booster.name == "dart" and booster.gbtree is not None
    inner = booster.gbtree if is_wrapped else booster
    if (
        inner is None
        or inner.name != "gbtree"
        or inner.model is None
        or is_wrapped == (booster.model is not None)
        or is_wrapped != (booster.gbtree is not None)
    ):
        raise ModelFileError(
            f"{SOURCE} has the unknown booster {booster.name!r:.40}, which treekit does not read; "
            "train with booster='gbtree' or 'dart'"
        )
    forest = inner.model
    n = len(forest.trees)
    if not n or len(forest.tree_info) != n:
        raise ModelFileError(
            f"{SOURCE} has {n} trees, but tree_info has {len(forest.tree_info)} entries"
        )
    given = [weights for weights in (booster.weight_drop, forest.weight_drop) if weights]
    if len(given) > 1:
        raise ModelFileError(f"{SOURCE} is damaged: it has two lists of the weights of trees")
    if not given and not is_wrapped:
        return forest, np.ones(n)
    dropped = given[0] if given else []
    if len(dropped) != n:
        raise ModelFileError(f"{SOURCE} is damaged: {len(dropped)} weights for {n} trees")
    with np.errstate(over="ignore"):
        weights = np.array(dropped).astype(np.float32)
    if not np.all(np.isfinite(weights)):
        raise ModelFileError(f"{SOURCE} is damaged: a tree's weight is not finite")
    return forest, weights.astype(np.float64)


def _count_trees(forest: Forest, rounds: int | None, n_margins: int) -> int:
    """Return the number of trees of the first `rounds`."""
    n = len(forest.trees)
    if rounds is None:
        return n
    ends = forest.iteration_indptr
    if not ends:  # before XGBoost 2.0
        parallel = max(forest.gbtree_model_param.num_parallel_tree, 1)
        ends = list(range(0, n + 1, parallel * n_margins))
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
    if objective == "reg:expectileerror" and n_margins > 1:
        raise ModelError(
            f"{SOURCE} has the objective 'reg:expectileerror' with {n_margins} expectiles, each "
            "the one below it and the softplus of a sum, which treekit does not support; train a "
            "model for each expectile_alpha"
        )
    if objective not in _REGRESSION_LINKS:
        raise ModelError(
            f"{SOURCE} has the unknown objective {objective!r:.60}; known: "
            "binary:logistic, multi:softprob, multi:softmax, binary:hinge, "
            f"{', '.join(_REGRESSION_LINKS)}; train with one of these"
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


# ---------------------------------------------------------------- nodes

_CATEGORICAL_TYPE = 1
_MAX_CATEGORY = 2**24
"""``OutOfRangeCat``: categories are below this largest contiguous integer of float32."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def _make_table(tree: TreeRecord, weight: float, n_margins: int) -> NodeTable:
    """Make the nodes of a tree, whose leaves are multiplied by `weight`."""
    n = len(tree.left_children)

    def read_field(name: str, dtype: Any, *, optional: bool = False) -> npt.NDArray[Any]:
        values = getattr(tree, name)
        if optional and len(values) != n:
            return np.zeros(n, dtype=dtype)
        if len(values) != n:
            raise ModelFileError(
                f"{SOURCE} is damaged: {name} has {len(values)} entries for {n} nodes"
            )
        return np.array(values, dtype=dtype)

    left, right = read_field("left_children", np.int64), read_field("right_children", np.int64)
    inner = left >= 0
    set_node, set_sizes, set_codes = _read_sets(tree)
    categorical = np.zeros(n, dtype=np.bool_)
    categorical[set_node] = True
    split_type = read_field("split_type", np.int64, optional=True)
    if np.any(strange := inner & ~np.isin(split_type, (0, _CATEGORICAL_TYPE))):
        raise ModelError(
            f"{SOURCE} has splits of the unknown type {split_type[strange][0]}; treekit reads 0 "
            f"(numbers) and {_CATEGORICAL_TYPE} (categories): {UNKNOWN_REMEDY}"
        )
    if np.any(inner & ((split_type == _CATEGORICAL_TYPE) != categorical)):
        raise ModelFileError(
            f"{SOURCE} is damaged: categorical splits without a category set, or the reverse"
        )
    with np.errstate(over="ignore"):  # overflow becomes infinite, and is rejected in leaves
        condition = read_field("split_conditions", np.float64).astype(np.float32)
        below = np.nextafter(condition, -np.float32(np.inf)).astype(np.float64)
    if tree.tree_param.size_leaf_vector in (0, 1):
        base_weights = read_field("base_weights", np.float64, optional=True)
        value = np.where(inner, base_weights, condition.astype(np.float64))[:, None]
    else:
        value = _read_leaf_vectors(tree, inner, right, n_margins)
    return NodeTable(
        # Categories of a set go right in XGBoost, but to branch 0 here.
        left=np.where(categorical & inner, right, left),
        right=np.where(categorical, left, right),
        feature=read_field("split_indices", np.int64),
        threshold=np.where(categorical, 0.0, below),
        missing_left=(read_field("default_left", np.int64) != 0) != categorical,
        value=value * weight,
        weight=read_field("sum_hessian", np.float64, optional=True),
        gain=read_field("loss_changes", np.float64, optional=True),
        set_node=set_node,
        set_sizes=set_sizes,
        set_codes=set_codes,
    )


def _read_sets(tree: TreeRecord) -> tuple[Ints, Ints, Ints]:
    """Return the categorical splits, the sizes of their sets, and the categories."""
    node, begin, sizes, codes = (
        np.array(values, dtype=np.int64)
        for values in (
            tree.categories_nodes,
            tree.categories_segments,
            tree.categories_sizes,
            tree.categories,
        )
    )
    if not len(node):
        return node, node, node
    fits = np.all((node >= 0) & (node < len(tree.left_children))) and np.all(sizes >= 0)
    contiguous = np.array_equal(begin, np.cumsum(sizes) - sizes) and len(begin) == len(node)
    if not (fits and contiguous and sizes.sum() == len(codes)):
        raise ModelFileError(f"{SOURCE} is damaged: inconsistent sets of categories")
    if np.any((codes < 0) | (codes >= _MAX_CATEGORY)):
        raise ModelFileError(f"{SOURCE} is damaged: a category is out of range")
    return node, sizes, codes


def _read_leaf_vectors(tree: TreeRecord, inner: Any, number: Ints, n_margins: int) -> Floats:
    """Return values (n, margins) of leaves, which are rows `number` of ``leaf_weights``."""
    if not tree.leaf_weights:
        raise ModelError(
            f"{SOURCE} has leaves with several values in the format of XGBoost 2; load it with "
            "XGBoost 3 and save it again"
        )
    with np.errstate(over="ignore"):
        weights = np.array(tree.leaf_weights).astype(np.float32).astype(np.float64)
    which = number[~inner]
    if len(weights) % n_margins or np.any((which < 0) | (which >= len(weights) // n_margins)):
        raise ModelFileError(f"{SOURCE} is damaged: a leaf without values")
    value = np.zeros((len(inner), n_margins))
    value[~inner] = weights.reshape(-1, n_margins)[which]
    return value


def _read_levels(categories: Categories, feature: int) -> tuple[str, ...]:
    """Return the vocabulary of a column in the file."""
    what = f"column {feature} of {SOURCE}"
    if categories.offsets is None:
        return check_levels(categories.values, what)
    ends = categories.offsets
    try:
        text = bytes(int(value) & 0xFF for value in categories.values)
        if ends[0] != 0 or ends[-1] != len(text) or sorted(ends) != ends:
            raise ValueError("invalid offsets")
        names = [text[a:b].decode("utf-8") for a, b in itertools.pairwise(ends)]
    except (ValueError, IndexError, OverflowError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: the categories of {what}: {error}") from error
    return check_levels(names, what)


# ---------------------------------------------------------------- files
# Records of XGBoost's model files, JSON or UBJSON, tested with the versions 2.1 to 3.4.
#
# The fields of a record are all known keys: a file with another one is refused.  Fields of
# type Any are not read, as predictions do not depend on them.

JsonInteger = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""Integers of arrays, limited to the exact integers of a double."""
Count = Annotated[int, msgspec.Meta(ge=0, lt=10**9)]
"""Counts, which are stored as text."""
_FEATURE_TYPES = {"int", "float", "i", "q", "c"}


class TreeParam(msgspec.Struct):
    """Sizes of a tree."""

    size_leaf_vector: Count = 1
    num_deleted: Any = None
    num_feature: Any = None
    num_nodes: Any = None


class TreeRecord(msgspec.Struct):
    """Arrays of one tree, with an entry per node; ``categories*`` describe categorical splits."""

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
    id: Any = None
    parents: Any = None


class Categories(msgspec.Struct):
    """The vocabulary of one column: concatenated UTF-8 with offsets, or numbers."""

    values: list[float]
    offsets: list[JsonInteger] | None = None
    type: Any = None
    """XGBoost's number of the type of `values`."""


class Encodings(msgspec.Struct):
    """The vocabularies of all columns; empty if the training data had codes."""

    enc: list[Categories] = []
    feature_segments: Any = None
    sorted_idx: Any = None


class ForestParam(msgspec.Struct):
    """Sizes of a forest."""

    num_parallel_tree: Count = 1
    num_trees: Any = None
    size_leaf_vector: Any = None


class Forest(msgspec.Struct):
    """All trees, and the margin that each adds to; ``weight_drop`` since XGBoost 3.4."""

    trees: list[TreeRecord] = []
    tree_info: list[JsonInteger] = []
    iteration_indptr: list[JsonInteger] = []
    gbtree_model_param: ForestParam = msgspec.field(default_factory=ForestParam)
    cats: Encodings = msgspec.field(default_factory=Encodings)
    weight_drop: list[float] = []


class GbTree(msgspec.Struct):
    """The inner booster of ``dart``."""

    model: Forest | None = None
    name: str = "gbtree"


class Booster(msgspec.Struct):
    """``gbtree`` has a model, ``dart`` a gbtree and weights, ``gblinear`` a model of no trees."""

    name: str
    model: Forest | None = None
    gbtree: GbTree | None = None
    weight_drop: list[float] = []


class ModelParam(msgspec.Struct):
    """Parameters of the model."""

    base_score: str
    num_class: Count = 0
    num_feature: Count = 0
    num_target: Count = 1
    boost_from_average: Any = None


class ObjectiveParam(msgspec.Struct):
    """Parameters of objectives, on which only training depends."""

    aft_loss_distribution: Any = None
    aft_loss_distribution_scale: Any = None
    expectile_alpha: Any = None
    fix_list_weight: Any = None
    huber_slope: Any = None
    lambdarank_bias_norm: Any = None
    lambdarank_normalization: Any = None
    lambdarank_num_pair_per_sample: Any = None
    lambdarank_pair_method: Any = None
    lambdarank_score_normalization: Any = None
    lambdarank_unbiased: Any = None
    max_delta_step: Any = None
    ndcg_exp_gain: Any = None
    num_class: Any = None
    num_pairsample: Any = None
    quantile_alpha: Any = None
    scale_pos_weight: Any = None
    tweedie_variance_power: Any = None


class Objective(msgspec.Struct):
    """The objective's name and parameters."""

    name: str
    aft_loss_param: ObjectiveParam | None = None
    expectile_loss_param: ObjectiveParam | None = None
    lambda_rank_param: ObjectiveParam | None = None
    lambdarank_param: ObjectiveParam | None = None
    poisson_regression_param: ObjectiveParam | None = None
    pseudo_huber_param: ObjectiveParam | None = None
    quantile_loss_param: ObjectiveParam | None = None
    reg_loss_param: ObjectiveParam | None = None
    softmax_multiclass_param: ObjectiveParam | None = None
    tweedie_regression_param: ObjectiveParam | None = None


class Attributes(msgspec.Struct):
    """Attributes, of which users may set others: XGBoost predicts without them."""

    best_iteration: Count | None = None


class Learner(msgspec.Struct):
    """The model without its version."""

    gradient_booster: Booster
    learner_model_param: ModelParam
    objective: Objective
    feature_names: list[str] = []
    feature_types: list[str] = []
    attributes: Attributes = msgspec.field(default_factory=Attributes)


class XgboostFile(msgspec.Struct):
    """A complete file."""

    learner: Learner
    version: list[JsonInteger] = []


_FILE_TYPE = msgspec.inspect.type_info(XgboostFile)


def _decode(content: bytes) -> Any:
    """Decode JSON or UBJSON.

    Raises
    ------
    ModelFileError
        If it is neither.
    """
    # UBJSON's first key starts with a length, JSON's with a quotation mark.
    if content[:1] == b"{" and content[1:2] in b"LlIUi#$" and content[1:2]:
        return decode_ubjson(content)
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass
    try:
        return json.loads(content)  # XGBoost writes -Infinity, which JSON does not have
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            f"the XGBoost model is damaged, or not an XGBoost model: {error}"
        ) from error


def _convert(content: Any) -> XgboostFile:
    """Convert a decoded file to its record; other keys are ignored.

    Raises
    ------
    ModelFileError
        If it lacks required fields, or one has another type.
    """
    try:
        return msgspec.convert(content, XgboostFile, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ModelFileError(
            f"the XGBoost model is damaged, or not an XGBoost model: {error}"
        ) from error


def _refuse_unknown_keys(content: Any, kind: msgspec.inspect.Type, path: str) -> None:
    """Raise `ModelError` for a key of `content` that its record does not have."""
    if isinstance(kind, msgspec.inspect.UnionType):
        for one in kind.types:
            _refuse_unknown_keys(content, one, path)
    elif isinstance(kind, msgspec.inspect.ListType) and isinstance(content, list):
        if isinstance(kind.item_type, msgspec.inspect.StructType):
            for number, one in enumerate(content):
                _refuse_unknown_keys(one, kind.item_type, f"{path[:-1]}[{number}].")
    elif isinstance(kind, msgspec.inspect.StructType) and isinstance(content, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        if kind.cls is not Attributes:
            refuse_unknown(content, fields, SOURCE, path)
        for name in fields.keys() & content.keys():
            _refuse_unknown_keys(content[name], fields[name], f"{path}{name}.")
