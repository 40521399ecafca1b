"""Import CatBoost's boosted trees from JSON files, CBM files and fitted objects.

A JSON file (``save_model(path, format="json")``) is parsed without CatBoost; CBM files and objects
are converted to JSON by CatBoost.  Trees are symmetric (oblivious) or not.

Comparison with CatBoost's predictions:

Decision paths
    equal.  CatBoost rounds numbers to float32 and compares ``x > border``; that is
    ``x <= border`` with the branches exchanged.
Missing values
    count as below all numbers, or with ``nan_mode="Max"`` above, in both.
Categories
    one-hot splits only; CTRs are refused.  A file holds hashes of categories, not their texts:
    give these by ``categories``, JSON of a list for each column.  An unseen category
    equals none of the split's; a missing one, which CatBoost refuses, is read as unseen.
Margins
    leaf values are doubles, multiplied by the scale of the model and rounded to multiples of
    ``2**exponent``: the sum of T trees is off by at most ``(T + 1) * 2**-52`` of the sum of the
    largest leaves, CatBoost's rounding included.
Labels
    equal unless two classes are closer than these rounding errors.
Probabilities and exponentials
    within 4 ulp of the exact link function of the margin (see `treekit.model.links`).

`tests/test_catboost.py` measures these differences.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from treekit import Model
from treekit.errors import ModelError, ModelFileError, SettingError
from treekit.interop import (
    UNKNOWN_REMEDY,
    beginning,
    find_class_name,
    read_whole,
    refuse_overrides,
)
from treekit.interop.tree_assembly import (
    MAX_COLUMNS,
    NodeTable,
    Outcome,
    check_levels,
    check_names,
    concatenate_tables,
    floor_thresholds,
    make_boosted_model,
    make_columns,
)
from treekit.model.tree import MAX_DEPTH
from treekit_importers.cityhash import city_hash_64

# ---------------------------------------------------------------- models

SOURCE = "the CatBoost model"
_JSON_START = re.compile(rb'\s*\{\s*"(ctr_data|features_info|oblivious_trees|trees)"\s*:')
_CBM_START = b"CBM1"
_CLASSES = ("CatBoost",)

_BINARY_LOSSES = ("Logloss", "CrossEntropy", "Focal")
_CLASS_LOSSES = {"MultiClass": "softmax", "MultiClassOneVsAll": "sigmoid"}
_EXPONENTIAL_LOSSES = ("Poisson", "Tweedie")
_IDENTITY_LOSSES = frozenset(
    (
        *("RMSE", "MAE", "Quantile", "MultiQuantile", "LogLinQuantile", "MAPE", "Huber"),
        *("Expectile", "Lq", "LogCosh", "MultiRMSE", "MultiRMSEWithMissingValues", "SurvivalAft"),
        *("Cox", "PairLogit", "PairLogitPairwise", "YetiRank", "YetiRankPairwise", "LambdaMart"),
        *("StochasticRank", "QueryRMSE", "QuerySoftMax", "QueryCrossEntropy", "GroupQuantile"),
    )
)


def recognises_catboost(source: Any) -> bool:
    """Return whether `source` is a CatBoost file (``.json``, ``.cbm``) or object."""
    return bool(
        _JSON_START.match(beginning(source, (".json",)))
        or beginning(source, (".cbm",)).startswith(_CBM_START)
        or find_class_name(source, "catboost", _CLASSES) is not None
    )


def read_catboost(
    source: Any,
    *,
    answer: str = "predictions",
    iterations: int | None = None,
    categories: str = "",
) -> Model:
    """Read a CatBoost file or object.

    Parameters
    ----------
    source : pathlib.Path or catboost.CatBoost
    answer : {"predictions", "margins"}
        ``margins``: the raw scores of the classes, as numbers.
    iterations : int, optional
        Number of trees to read; default all.
    categories : str
        JSON of the categories of each column with one-hot splits, which a file does not
        hold: ``{"colour": ["red", "blue"], "floor": [1, 2, 3]}``.

    Raises
    ------
    ModelError, ModelFileError
        If the source is not a CatBoost model, is damaged, or uses unsupported features.
    SettingError
        If `categories` are not those of the model.
    """
    file = _convert(_read_source(source))
    _refuse_other_features(file)
    levels = _parse_categories(categories)
    columns = _list_columns(file.features_info, levels)
    n_margins = _count_margins(file)
    trees = file.oblivious_trees or file.trees
    n_trees = len(trees) if iterations is None else iterations
    if n_trees > len(trees):
        raise ModelError(f"{SOURCE} has {len(trees)} trees, not {n_trees}; request fewer")
    make_table = _make_symmetric_table if file.oblivious_trees else _make_tree_table
    scale, bias = file.scale_and_bias
    tables = [make_table(tree, columns, n_margins) for tree in trees[:n_trees]]
    nodes = concatenate_tables(tables, SOURCE)
    with np.errstate(invalid="ignore", over="ignore"):  # the assembly rejects infinities and NaN
        nodes.value = nodes.value * scale
    names = check_names(columns.names, len(columns.names), SOURCE)
    features = make_columns(nodes, names, SOURCE, named=columns.levels)
    floor_thresholds(nodes, "float32", SOURCE)
    loss = _find_loss(file.model_info)
    version = re.search(r"\d+(\.\d+)+", str(file.model_info.get("catboost_version_info", "")))
    return make_boosted_model(
        nodes,
        features,
        _make_outcome(file.model_info, loss, n_margins),
        source=SOURCE,
        dtype="float32",
        margin_of_tree=np.zeros(n_trees, dtype=np.int64),
        initial_margins=np.broadcast_to(np.array(bias, dtype=np.float64), n_margins).copy(),
        answer=answer,
        settings={"objective": loss},
        provenance={"importer": "catboost", "catboost": version[0] if version else ""},
    )


def _read_source(source: Any) -> bytes:
    """Return JSON of a file or an object."""
    if find_class_name(source, "catboost", _CLASSES) is not None:
        refuse_overrides(source, "catboost")
        if not source.is_fitted():
            raise ModelError(f"the {type(source).__name__} is not fitted: call fit first")
        return _convert_to_json(source)
    if not recognises_catboost(source):
        raise ModelError(f"expected a CatBoost model, got {type(source).__qualname__}")
    if beginning(source, (".json",)):
        return read_whole(source)
    return _convert_cbm(source)


_CONVERT = """
import sys
import catboost
catboost.CatBoost().load_model(sys.argv[1]).save_model(sys.argv[2], format="json")
"""


def _convert_cbm(path: Path) -> bytes:
    """Convert a CBM file in a process of its own, which a damaged file may abort."""
    if importlib.util.find_spec("catboost") is None:
        raise ModelError(
            f"converting {path.name!r} needs CatBoost, which is not installed: install it, or save "
            'the model as JSON, by save_model("model.json", format="json")'
        )
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        made = Path(folder) / "model.json"
        command = [sys.executable, "-c", _CONVERT, str(path.resolve()), str(made)]
        done = subprocess.run(  # noqa: S603 - Python itself
            command, capture_output=True, check=False, cwd=folder
        )
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"it ended with exit code {done.returncode}"
            raise ModelFileError(f"CatBoost cannot read {path.name!r}: {reason:.300}")
        return read_whole(made)


def _convert_to_json(model: Any) -> bytes:
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        return read_whole(path)


def _find_loss(info: Mapping[str, Any]) -> str:
    """Return the name of the loss function; empty if the file has none."""
    params = info.get("params")
    if isinstance(params, str):
        try:
            params = msgspec.json.decode(params)
        except msgspec.MsgspecError:
            return ""
    loss = params.get("loss_function") if isinstance(params, dict) else None
    name = loss.get("type") if isinstance(loss, dict) else None
    return name if isinstance(name, str) else ""


def _make_outcome(info: Mapping[str, Any], loss: str, n_margins: int) -> Outcome:
    """Return the conversion of margins to predictions."""
    if str(info.get("binclass_probability_threshold", "0.5")) not in ("0.5", "0.500000"):
        threshold = str(info["binclass_probability_threshold"])
        return Outcome(
            "sigmoid", unsupported_reason=f"its probability threshold is {threshold:.20}, not 0.5"
        )
    if loss in _BINARY_LOSSES and n_margins == 1:
        return Outcome("sigmoid", _read_labels(info, 2))
    if loss in _CLASS_LOSSES and n_margins > 1:
        link: Any = _CLASS_LOSSES[loss]
        return Outcome(link, _read_labels(info, n_margins))
    if loss in _EXPONENTIAL_LOSSES and n_margins == 1:
        return Outcome("exp")
    if loss in _IDENTITY_LOSSES:
        return Outcome("identity")
    reason = f"its loss function {loss!r:.60} is unknown, or transforms the sums"
    return Outcome("identity", unsupported_reason=reason)


_LABEL_TYPES: dict[str, type] = {"Integer": int, "Float": float, "String": str, "Boolean": bool}


def _read_labels(info: Mapping[str, Any], n: int) -> tuple[Any, ...]:
    """Return the class labels; those of a model without any are 0, 1, ..."""
    given = info.get("class_params")
    params = given if isinstance(given, dict) else {}
    names = params.get("class_names") or list(range(n))
    kind = _LABEL_TYPES.get(str(params.get("class_label_type", "Integer")))
    in_order = params.get("class_to_label", list(range(n))) == list(range(n))
    if kind is None or not isinstance(names, list) or len(names) != n or not in_order:
        raise ModelFileError(f"{SOURCE} is damaged: class_params {given!r:.80} for {n} classes")
    convertible = (int, float) if kind is float else kind
    if any(not isinstance(x, convertible) or isinstance(x, bool) != (kind is bool) for x in names):
        raise ModelFileError(f"{SOURCE} is damaged: class names {names!r:.80}")
    return tuple(map(kind, names))


# ---------------------------------------------------------------- columns


class _Columns(NamedTuple):
    """The columns of a row, and the place of each feature of a kind among them.

    Attributes
    ----------
    names : list of str
    numbers, nominal : dict of int to int
        Column of a numeric, or of a categorical feature.
    missing_above : set of int
        Numeric features whose missing values count as above all borders, instead of below.
    levels : dict of int to tuple of str
        Categories of a column.
    codes : dict of int to dict of int to list of int
        Positions of the categories of a column by their hash.
    """

    names: list[str]
    numbers: dict[int, int]
    nominal: dict[int, int]
    missing_above: set[int]
    levels: dict[int, tuple[str, ...]]
    codes: dict[int, dict[int, list[int]]]


_MISSING_TREATMENTS = ("AsIs", "AsFalse", "AsTrue")


def _parse_categories(text: str) -> dict[str, tuple[str, ...]]:
    """Parse the setting ``categories``."""
    if not text:
        return {}
    try:
        given = msgspec.json.decode(text, type=dict[str, list[str | int]])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SettingError(
            f"categories must be JSON of the categories of each column, such as "
            f'{{"colour": ["red", "blue"]}}: {error}'
        ) from error
    return {name: check_levels(own, f"column {name!r}") for name, own in given.items()}


def _list_columns(info: _FeaturesInfo, given: Mapping[str, tuple[str, ...]]) -> _Columns:
    """List the columns, and match the given categories with the hashes of the file."""
    features = [*info.float_features, *info.categorical_features]
    at = [one.flat_feature_index for one in features]
    for kind in (info.float_features, info.categorical_features):
        own = [one.feature_index for one in kind]
        if len(set(own)) != len(own):
            raise ModelFileError(f"{SOURCE} is damaged: two features have one number")
    if len(set(at)) != len(at) or not at:
        raise ModelFileError(
            f"{SOURCE} is damaged: two features have one column, or there are none"
        )
    names = [f"x{i}" for i in range(max(at) + 1)]
    if all(one.feature_name or one.feature_id for one in features):
        for one in features:
            names[one.flat_feature_index] = one.feature_name or one.feature_id
    nominal = {one.feature_index: one.flat_feature_index for one in info.categorical_features}
    own_names = {names[column] for column in nominal.values()}
    if unknown := sorted(given.keys() - own_names):
        raise SettingError(
            f"categories are given for {unknown[0]!r}, which is no column of categories of "
            f"{SOURCE}; it has {', '.join(map(repr, sorted(own_names))) or 'none'}"
        )
    levels, codes = {}, {}
    for one in info.categorical_features:
        column = one.flat_feature_index
        levels[column] = given.get(names[column], ())
        codes[column] = _hash_levels(levels[column])
        if absent := [value for value in one.values if value not in codes[column]]:
            raise SettingError(
                f"{SOURCE} stores hashes of the categories of column {names[column]!r}, not their "
                f"texts, and {len(absent)} of its {len(one.values)} hashes match none of the "
                f"{len(levels[column])} categories given: give all categories of the training rows "
                f"by categories='{{{json.dumps(names[column])}: [...]}}'"
            )
    return _Columns(
        names,
        {one.feature_index: one.flat_feature_index for one in info.float_features},
        nominal,
        {one.feature_index for one in info.float_features if one.nan_value_treatment == "AsTrue"},
        levels,
        codes,
    )


def _hash_levels(levels: Iterable[str]) -> dict[int, list[int]]:
    """Return the positions of categories by their hash: the lower half of CityHash, signed."""
    found: dict[int, list[int]] = {}
    for code, level in enumerate(levels):
        low = city_hash_64(level.encode()) & 0xFFFFFFFF
        found.setdefault(low - ((low >> 31) << 32), []).append(code)
    return found


# ---------------------------------------------------------------- files

_Index = Annotated[int, msgspec.Meta(ge=0, lt=MAX_COLUMNS)]
_Hash = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a file on which predictions depend: all its keys are known."""


class _FloatFeature(_Part):
    flat_feature_index: _Index
    feature_index: _Index
    nan_value_treatment: str = "AsIs"
    feature_id: str = ""
    feature_name: str = ""
    borders: Any = None
    has_nans: Any = None

    def __post_init__(self) -> None:
        if self.nan_value_treatment not in _MISSING_TREATMENTS:
            raise ValueError(f"unknown nan_value_treatment {self.nan_value_treatment!r:.40}")


class _CategoricalFeature(_Part):
    flat_feature_index: _Index
    feature_index: _Index
    feature_id: str = ""
    feature_name: str = ""
    values: list[_Hash] = []


class _FeaturesInfo(_Part):
    float_features: list[_FloatFeature] = []
    categorical_features: list[_CategoricalFeature] = []
    ctrs: Any = None
    text_features: list[Any] = []
    embedding_features: list[Any] = []


class _FloatSplit(_Part, tag_field="split_type", tag="FloatFeature"):
    border: float
    float_feature_index: int
    split_index: Any = None


class _OneHotSplit(_Part, tag_field="split_type", tag="OneHotFeature"):
    cat_feature_index: int
    value: _Hash
    split_index: Any = None


class _CtrSplit(msgspec.Struct, tag_field="split_type", tag="OnlineCtr"):
    """A split on target statistics of categories, which is refused."""


_Split = _FloatSplit | _OneHotSplit | _CtrSplit


class _SymmetricTree(_Part):
    leaf_values: list[float]
    splits: list[_Split]
    leaf_weights: list[float] = []


class _Node(_Part):
    left: _Node | None = None
    right: _Node | None = None
    split: _Split | None = None
    value: float | list[float] | None = None
    weight: float = 0.0


class _File(_Part):
    features_info: _FeaturesInfo
    model_info: dict[str, Any]
    oblivious_trees: list[_SymmetricTree] = []
    trees: list[_Node] = []
    scale_and_bias: tuple[float, float | list[float]] = (1.0, 0.0)
    ctr_data: Any = None


def _convert(content: bytes) -> _File:
    """Parse a file; keys that predictions may depend on must be known."""
    try:
        return msgspec.json.decode(content, type=_File)
    except msgspec.ValidationError as error:
        raise ModelError(
            f"{SOURCE} is damaged, or has a part that treekit does not know: {error!s:.300}; "
            f"{UNKNOWN_REMEDY}"
        ) from error
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: {error!s:.300}") from error


def _refuse_other_features(file: _File) -> None:
    """Raise `ModelError` for trees or features of other kinds."""
    for name, found in (
        ("texts", file.features_info.text_features),
        ("embeddings", file.features_info.embedding_features),
    ):
        if found:
            raise ModelError(
                f"{SOURCE} has columns of {name}, which treekit does not support; train without"
            )
    if bool(file.oblivious_trees) == bool(file.trees):
        raise ModelFileError(f"{SOURCE} is damaged: it has no trees, or trees of two kinds")
    if any(isinstance(s, _CtrSplit) for tree in file.oblivious_trees for s in tree.splits):
        raise ModelError(_CTR_MESSAGE)


_CTR_MESSAGE = (
    f"{SOURCE} has splits on CTRs (target statistics of categories), which treekit does not "
    "support; train with one_hot_max_size of at least the number of categories (up to 255), or "
    "without the columns of more"
)


def _count_margins(file: _File) -> int:
    """Return the number of margins: the values of a leaf."""
    bias = file.scale_and_bias[1]
    if isinstance(bias, list):
        n = len(bias)
    elif file.oblivious_trees:
        first = file.oblivious_trees[0]
        n = len(first.leaf_values) >> min(len(first.splits), 64)
    else:
        node: _Node | None = file.trees[0]
        while node is not None and node.left is not None:
            node = node.left
        value = node.value if node is not None else None
        n = len(value) if isinstance(value, list) else 1
    if not 1 <= n <= MAX_COLUMNS:
        raise ModelFileError(f"{SOURCE} is damaged: {n} values in a leaf")
    return n


# ---------------------------------------------------------------- trees


class _SplitColumns(NamedTuple):
    """Splits as columns of a `NodeTable`; of a set the first branch is that of its category."""

    feature: list[int]
    threshold: list[float]
    missing_left: list[bool]
    codes: list[list[int] | None]


def _convert_splits(splits: Sequence[_Split], columns: _Columns) -> _SplitColumns:
    found = _SplitColumns([], [], [], [])
    for split in splits:
        if isinstance(split, _CtrSplit):
            raise ModelError(_CTR_MESSAGE)
        if isinstance(split, _FloatSplit):
            index, places = split.float_feature_index, columns.numbers
            own: list[int] | None = None
            border = split.border
            missing_left = index not in columns.missing_above
        else:
            index, places = split.cat_feature_index, columns.nominal
            own = columns.codes.get(places.get(index, -1), {}).get(split.value)
            border, missing_left = 0.0, False
            if index in places and own is None:
                raise ModelFileError(
                    f"{SOURCE} is damaged: a split has a category that is not among those of its "
                    "column"
                )
        if index not in places:
            raise ModelFileError(f"{SOURCE} is damaged: a split has the unknown feature {index}")
        found.feature.append(places[index])
        found.threshold.append(border)
        found.missing_left.append(missing_left)
        found.codes.append(own)
    return found


def _make_symmetric_table(tree: _SymmetricTree, columns: _Columns, n_margins: int) -> NodeTable:
    """Make the complete binary tree of a list of splits, one for each level.

    Node i has the children ``2 * i + 1`` and ``2 * i + 2``; bit l of a leaf's number
    tells whether its rows meet split l.
    """
    depth, n_values = len(tree.splits), len(tree.leaf_values)
    if depth > 32 or n_values != n_margins << depth:
        raise ModelFileError(
            f"{SOURCE} is damaged: {n_values} leaf values for {depth} splits and {n_margins} "
            "margins"
        )
    n_leaves = 1 << depth
    path = np.arange(n_leaves)
    number = np.zeros(n_leaves, dtype=np.int64)
    for level in range(depth):
        number |= (path >> (depth - 1 - level) & 1) << level
    values = np.array(tree.leaf_values, dtype=np.float64).reshape(n_leaves, n_margins)[number]
    weights = np.zeros(n_leaves)
    if len(tree.leaf_weights) == n_leaves:
        weights = np.array(tree.leaf_weights)[number]
    level_of = np.repeat(np.arange(depth), 1 << np.arange(depth))
    inner = np.arange(n_leaves - 1)
    splits = _convert_splits(tree.splits, columns)
    is_set = np.array([codes is not None for codes in splits.codes], dtype=np.bool_)[level_of]
    return _make_node_table(
        np.where(is_set, 2 * inner + 2, 2 * inner + 1),
        np.where(is_set, 2 * inner + 1, 2 * inner + 2),
        splits,
        level_of,
        values,
        weights,
    )


def _make_node_table(
    left: npt.NDArray[np.int64],
    right: npt.NDArray[np.int64],
    splits: _SplitColumns,
    split_of: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
) -> NodeTable:
    """Make the table of inner nodes, whose splits are `split_of`, followed by leaves."""
    n, n_leaves = len(left), len(values)
    none = np.full(n_leaves, -1, dtype=np.int64)
    own = [splits.codes[at] for at in split_of.tolist()]
    sets = [codes for codes in own if codes is not None]
    is_set = np.array([codes is not None for codes in own], dtype=np.bool_)
    return NodeTable(
        left=np.append(left, none),
        right=np.append(right, none),
        feature=np.append(np.array(splits.feature, dtype=np.int64)[split_of], none),
        threshold=np.append(np.array(splits.threshold)[split_of], np.zeros(n_leaves)),
        missing_left=np.append(np.array(splits.missing_left, dtype=np.bool_)[split_of], none > 0),
        value=np.concatenate([np.zeros((n, values.shape[1])), values]),
        weight=np.append(np.zeros(n), weights),
        set_node=np.flatnonzero(is_set),
        set_sizes=np.array([len(codes) for codes in sets], dtype=np.int64),
        set_codes=np.array([code for codes in sets for code in codes], dtype=np.int64),
    )


def _make_tree_table(root: _Node, columns: _Columns, n_margins: int) -> NodeTable:
    """Make the table of a tree of nodes: its splits become the first nodes, then its leaves."""
    nodes, leaves = _list_nodes(root)
    splits = _convert_splits([split for split, _, _ in nodes], columns)
    children = np.array([[a, b] for _, a, b in nodes], dtype=np.int64).reshape(-1, 2)
    children = np.where(children < 0, len(nodes) - 1 - children, children)  # leaves are ~number
    is_set = np.array([codes is not None for codes in splits.codes], dtype=np.bool_)
    values = []
    for leaf in leaves:
        value = leaf.value if isinstance(leaf.value, list) else [leaf.value]
        if len(value) != n_margins or None in value:
            raise ModelFileError(
                f"{SOURCE} is damaged: a leaf has {len(value)} values for {n_margins} margins"
            )
        values.append(value)
    return _make_node_table(
        np.where(is_set, children[:, 1], children[:, 0]),
        np.where(is_set, children[:, 0], children[:, 1]),
        splits,
        np.arange(len(nodes)),
        np.array(values, dtype=np.float64).reshape(len(leaves), n_margins),
        np.array([leaf.weight for leaf in leaves]),
    )


def _list_nodes(root: _Node) -> tuple[list[tuple[_Split, int, int]], list[_Node]]:
    """List the splits with their children, leaf l as ``~l``, and the leaves of a tree."""
    inner: list[list[Any]] = []
    leaves: list[_Node] = []
    todo: list[tuple[_Node, int, int, int]] = [(root, -1, 0, 0)]
    while todo:
        node, parent, branch, depth = todo.pop()
        if depth > MAX_DEPTH:
            raise ModelError(f"{SOURCE} has a tree deeper than {MAX_DEPTH}, the maximum")
        if node.left is None or node.right is None or node.split is None:
            if node.left is not None or node.right is not None or node.split is not None:
                raise ModelFileError(f"{SOURCE} is damaged: a node lacks a split or a child")
            number = ~len(leaves)
            leaves.append(node)
        else:
            number = len(inner)
            inner.append([node.split, 0, 0])
            todo += [(node.right, number, 2, depth + 1), (node.left, number, 1, depth + 1)]
        if parent >= 0:
            inner[parent][branch] = number
    return [(split, a, b) for split, a, b in inner], leaves
