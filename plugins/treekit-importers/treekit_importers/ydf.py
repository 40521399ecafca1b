"""Import random forests and gradient boosted trees of YDF from their folders and objects.

A folder (``model.save(path)``) is parsed without YDF; an object is saved to a folder first.  The
folder's files are protocol buffers (``yggdrasil_decision_forests/model`` in YDF's repository):
``header.pb`` (AbstractModel), ``data_spec.pb`` (DataSpecification), a header of the kind of model,
and the nodes of all trees in pre-order, the negative child first.

Comparison with YDF's predictions:

Decision paths
    equal.  YDF rounds numbers to float32 and compares ``x >= t``; that is ``x <= t'`` for the
    float32 t' before t.  Columns of booleans are numbers, 0 and 1.
Missing values
    take the branch that each node stores (``na_value``), in both.
Categories
    are texts, in the order of YDF's dictionary.  YDF reads all categories outside of it as one,
    "<OOD>".  They are missing here if each split sends them and missing ones to one side; else
    the model rejects them (``unknown="error"``).
Votes of a forest
    exact with ``winner_take_all`` (the default of random forests): the share of a class is a
    count of trees divided by their number, which YDF adds in float32.  Otherwise (also CART) shares
    are rounded to votes: off by at most ``T * 2**-24 + 2**-24`` for T trees.
Labels
    equal, except in an exact tie of two classes: the first here, the second by
    ``predict_class``.
Numbers and margins
    YDF adds T leaves in float32; the sum of the same leaves is exact here except for rounding to
    multiples of ``2**exponent``.  They differ by at most ``(T + 1) * 2**-24`` of the sum of the
    largest leaves and of the initial prediction.
Probabilities and exponentials
    equal for the same margin within the precision of float32; YDF limits margins of Poisson
    losses to 19.

`tests/test_ydf.py` measures these differences.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from treekit import Model
from treekit._version import __version__
from treekit.data.schema import Column, Schema
from treekit.errors import ModelError, ModelFileError
from treekit.interop import UNKNOWN_REMEDY, find_class_name, read_whole, refuse_overrides
from treekit.interop.tree_assembly import (
    MAX_COLUMNS,
    NodeTable,
    Outcome,
    check_levels,
    check_names,
    concatenate_tables,
    make_boosted_model,
    make_columns,
    make_trees,
)
from treekit.model.fixed_point import MAX_TREES
from treekit.model.model import make_model
from treekit.model.tree import MAX_DEPTH

SOURCE = "the YDF model"
_CLASSES = ("RandomForestModel", "GradientBoostedTreesModel")
_HEADERS = {
    "RANDOM_FOREST": "random_forest_header.pb",
    "GRADIENT_BOOSTED_TREES": "gradient_boosted_trees_header.pb",
}

# ---------------------------------------------------------------- protocol buffers
# A message is a list of fields: a number, a wire type, and a value.  Of each message all fields
# are known, because an unknown one may change predictions.

Fields = dict[int, list[Any]]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_KINDS = {
    "int": (_VARINT, ""),
    "double": (_FIXED64, "<d"),
    "float": (_FIXED32, "<f"),
    "bytes": (_BYTES, ""),
}


class _Message(NamedTuple):
    """A type of messages: the kinds of its fields by number; "any" are not read."""

    name: str
    kinds: Mapping[int, str]


def _fields(*numbers: int) -> dict[int, str]:
    return dict.fromkeys(numbers, "any")


_MODEL = _Message(
    "AbstractModel",
    {
        **_fields(1, 4, 6, 7, 9, 10, 11, 12, 13, 14, 15),
        1: "bytes",
        2: "int",
        3: "int",
        5: "ints",
        8: "int",
    },
)
_SPEC = _Message("DataSpecification", {1: "bytes", **_fields(2, 3)})
_COLUMN = _Message(
    "Column",
    {**_fields(3, 4, 5, 7, 9, 10, 11, 12, 13), 1: "int", 2: "bytes", 6: "bytes", 8: "bytes"},
)
_CATEGORICAL = _Message("CategoricalSpec", {**_fields(1, 3, 4, 8), 2: "int", 5: "int", 7: "bytes"})
_ITEM = _Message("ItemsEntry", {1: "bytes", 2: "bytes"})
_VOCABULARY = _Message("VocabValue", {1: "int", 2: "any"})
_DISCRETIZED = _Message("DiscretizedNumericalSpec", {1: "floats", **_fields(2, 3, 4, 5)})
_FOREST = _Message(
    "random_forest.Header", {1: "int", 2: "int", 3: "int", 7: "bytes", **_fields(4, 5, 6, 8)}
)
_BOOSTED = _Message(
    "gradient_boosted_trees.Header",
    {
        1: "int",
        2: "int",
        3: "int",
        4: "floats",
        5: "int",
        7: "bytes",
        9: "int",
        **_fields(6, 8, 10),
    },
)
_NODE = _Message("Node", {1: "bytes", 2: "bytes", 3: "bytes", 4: "any"})
_CLASSIFIER = _Message("NodeClassifierOutput", {1: "int", 2: "bytes"})
_DISTRIBUTION = _Message("IntegerDistributionDouble", {1: "doubles", 2: "double"})
_REGRESSOR = _Message("NodeRegressorOutput", {1: "float", **_fields(2, 3, 4, 5)})
_NODE_CONDITION = _Message(
    "NodeCondition", {1: "int", 2: "int", 3: "bytes", 5: "double", 6: "float", **_fields(4, 7, 8)}
)
_CONDITION = _Message("Condition", dict.fromkeys(range(1, 9), "bytes"))
_HIGHER = _Message("Higher", {1: "float"})
_CONTAINS = _Message("ContainsVector", {1: "ints"})
_BITMAP = _Message("ContainsBitmap", {1: "bytes"})
_DISCRETIZED_HIGHER = _Message("DiscretizedHigher", {1: "int"})


def _parse(content: bytes, message: _Message) -> Fields:
    """Parse a message to the values of each field, in order."""
    found: Fields = {}
    for number, wire, value in _iter_fields(content, message.name):
        kind = message.kinds.get(number)
        if kind is None:
            raise ModelError(
                f"{SOURCE} has the unknown field {number} of {message.name}, which may change "
                f"predictions; {UNKNOWN_REMEDY}"
            )
        if kind == "any":
            continue
        single = kind.removesuffix("s") if kind != "bytes" else kind
        expected, code = _KINDS[single]
        if wire == expected:
            found.setdefault(number, []).append(struct.unpack(code, value)[0] if code else value)
        elif wire == _BYTES and single != kind:  # packed
            found.setdefault(number, []).extend(_unpack(value, single, message.name))
        else:
            raise ModelFileError(f"{SOURCE} is damaged: field {number} of {message.name}")
    return found


def _iter_fields(content: bytes, name: str) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value of each field: an integer, or bytes."""
    at, end = 0, len(content)
    while at < end:
        key, at = _read_varint(content, at, name)
        number, wire = key >> 3, key & 7
        value: Any
        if wire == _VARINT:
            value, at = _read_varint(content, at, name)
            value -= (value >> 63) << 64
        else:
            if wire == _BYTES:
                size, at = _read_varint(content, at, name)
            else:
                size = {_FIXED64: 8, _FIXED32: 4}.get(wire, end + 1)
            if size > end - at:
                raise ModelFileError(f"{SOURCE} is damaged: {name} is truncated")
            value, at = content[at : at + size], at + size
        yield number, wire, value


def _read_varint(content: bytes, at: int, name: str) -> tuple[int, int]:
    """Return an unsigned integer of 64 bits and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            break
        byte = content[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, at
    raise ModelFileError(f"{SOURCE} is damaged: {name} is truncated")


def _unpack(content: bytes, kind: str, name: str) -> list[Any]:
    """Return the numbers of a packed field."""
    if kind != "int":
        dtype = np.dtype(_KINDS[kind][1])
        if len(content) % dtype.itemsize:
            raise ModelFileError(f"{SOURCE} is damaged: {name} is truncated")
        numbers: list[Any] = np.frombuffer(content, dtype=dtype).tolist()
        return numbers
    values, at = [], 0
    while at < len(content):
        value, at = _read_varint(content, at, name)
        values.append(value - ((value >> 63) << 64))
    return values


def _take(fields: Fields, number: int, default: Any = 0) -> Any:
    """Return the last value of a field."""
    return fields[number][-1] if number in fields else default


def _decode_text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{SOURCE} has text that is not UTF-8: {error}") from error


# ---------------------------------------------------------------- models

_CLASSIFICATION, _REGRESSION, _RANKING = 1, 2, 3
_BINOMIAL, _MULTINOMIAL, _FOCAL, _POISSON = 1, 3, 6, 7
_IDENTITY_LOSSES = (2, 4, 5, 8, 9)
"""Squared and absolute errors, and losses of ranking."""


def recognises_ydf(source: Any) -> bool:
    """Return whether `source` is the folder of a YDF model, or an object."""
    if not isinstance(source, Path):
        return find_class_name(source, "ydf", _CLASSES) is not None
    try:
        return source.is_dir() and all(
            (source / name).is_file() for name in ("header.pb", "data_spec.pb")
        )
    except (OSError, ValueError):  # ValueError: an invalid path
        return False


def read_ydf(source: Any, *, answer: str = "predictions", iterations: int | None = None) -> Model:
    """Read the folder of a YDF model, or an object.

    Parameters
    ----------
    source : pathlib.Path, ydf.RandomForestModel or ydf.GradientBoostedTreesModel
    answer : {"predictions", "margins"}
        ``margins``: the raw scores of boosted trees, as numbers.
    iterations : int, optional
        Boosting rounds, or trees of a forest, to read; default all.

    Raises
    ------
    ModelError, ModelFileError
        If the source is not a YDF model, is damaged, or uses unsupported features.
    """
    if isinstance(source, Path):
        if not recognises_ydf(source):
            raise ModelError(f"expected the folder of a YDF model, got {source.name!r}")
        return _read_folder(source, answer, iterations)
    if not recognises_ydf(source):
        raise ModelError(f"expected a YDF model, got {type(source).__qualname__}")
    refuse_overrides(source, "ydf")
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        source.save(str(Path(folder) / "model"))
        return _read_folder(Path(folder) / "model", answer, iterations)


def _read_folder(folder: Path, answer: str, iterations: int | None) -> Model:
    header = _parse(read_whole(folder / "header.pb"), _MODEL)
    kind = _decode_text(_take(header, 1, b""))
    if kind not in _HEADERS:
        raise ModelError(
            f"{SOURCE} is of the kind {kind!r:.60}; treekit reads RANDOM_FOREST (also CART) and "
            "GRADIENT_BOOSTED_TREES"
        )
    message = _FOREST if kind == "RANDOM_FOREST" else _BOOSTED
    own = _parse(read_whole(folder / _HEADERS[kind]), message)
    spec = _parse(read_whole(folder / "data_spec.pb"), _SPEC)
    columns = [_parse_column(content) for content in spec.get(1, [])]
    inputs, label = header.get(5, []), _take(header, 3)
    if not (0 <= label < len(columns) and all(0 <= i < len(columns) for i in inputs)):
        raise ModelFileError(f"{SOURCE} is damaged: a column of the header does not exist")
    if len(set(inputs)) != len(inputs):
        raise ModelFileError(f"{SOURCE} is damaged: a column is an input twice")
    per_round = _take(own, 5, 1) if kind == "GRADIENT_BOOSTED_TREES" else 1
    n_trees = _count_trees(_take(own, 2), per_round, iterations)
    reader = _TreeReader(columns, {column: at for at, column in enumerate(inputs)})
    records = _Records(folder, _take(own, 1), _decode_text(_take(own, 7, b"TFE_RECORDIO")))
    task, classes = _take(header, 2), columns[label].levels
    if not _take(header, 8, 1):
        raise ModelError(f"{SOURCE} predicts classes without probabilities; {UNKNOWN_REMEDY}")
    names = check_names([columns[i].name for i in inputs], len(inputs), SOURCE)
    levels = {at: columns[i].levels for at, i in enumerate(inputs) if columns[i].is_nominal}
    if kind == "RANDOM_FOREST":
        if answer == "margins":
            raise ModelError(f"{SOURCE} is a forest, which has no margins; omit answer='margins'")
        votes = _Votes(len(classes), winner=bool(_take(own, 3, 1)))
        tables = [reader.read_tree(records, task, votes) for _ in range(n_trees)]
        nodes = concatenate_tables(tables, SOURCE)
        features = make_columns(nodes, names, SOURCE, named=levels)
        return _make_forest(nodes, features, task, columns[label], reader.unknown)
    tables = [reader.read_tree(records, _REGRESSION, _Votes(0)) for _ in range(n_trees)]
    nodes = concatenate_tables(tables, SOURCE)
    features = make_columns(nodes, names, SOURCE, named=levels)
    initial = np.array(own.get(4, []), dtype=np.float64)
    if len(initial) != per_round:
        raise ModelFileError(
            f"{SOURCE} is damaged: {len(initial)} initial predictions, {per_round} trees a round"
        )
    return make_boosted_model(
        nodes,
        features,
        _make_outcome(own, task, classes),
        source=SOURCE,
        dtype="float32",
        margin_of_tree=np.arange(n_trees) % per_round,
        initial_margins=initial,
        unknown=reader.unknown,
        answer=answer,
        settings={"loss": _take(own, 3)},
        provenance={"importer": "ydf"},
    )


def _count_trees(n_trees: int, per_round: int, iterations: int | None) -> int:
    """Return the number of trees of the first rounds."""
    if not (1 <= per_round <= MAX_TREES and 1 <= n_trees <= MAX_TREES) or n_trees % per_round:
        raise ModelFileError(
            f"{SOURCE} is damaged, or too large: it has {n_trees} trees, {per_round} a round; a "
            f"model must have 1 to {MAX_TREES}"
        )
    rounds = n_trees // per_round
    if iterations is not None and iterations > rounds:
        raise ModelError(f"{SOURCE} has {rounds} iterations, not {iterations}; request fewer")
    return n_trees if iterations is None else iterations * per_round


def _make_outcome(header: Fields, task: int, classes: tuple[str, ...]) -> Outcome:
    """Return the conversion of margins to predictions."""
    loss, n_margins = _take(header, 3), _take(header, 5, 1)
    if _take(header, 9):
        return Outcome("identity", unsupported_reason="it returns margins (output_logits)")
    if task == _CLASSIFICATION:
        if loss in (_BINOMIAL, _FOCAL) and n_margins == 1 and len(classes) == 2:
            return Outcome("sigmoid", classes)
        if loss == _MULTINOMIAL and n_margins == len(classes) > 1:
            return Outcome("softmax", classes)
    elif task in (_REGRESSION, _RANKING) and n_margins == 1:
        if loss == _POISSON:
            return Outcome("exp")
        if loss in _IDENTITY_LOSSES:
            return Outcome("identity")
    return Outcome("identity", unsupported_reason=f"loss {loss} for task {task} is unknown")


def _make_forest(
    nodes: NodeTable, columns: tuple[Column, ...], task: int, label: _Column, unknown: Any
) -> Model:
    """Make a model that averages the trees."""
    if task == _CLASSIFICATION:
        schema = Schema(columns, target=label.name, classes=label.levels, dtype="float32")
    elif task == _REGRESSION:
        schema = Schema(columns, target=label.name, task="regression", dtype="float32")
    else:
        raise ModelError(
            f"{SOURCE} is a forest of task {task}; treekit reads classification and regression"
        )
    return make_model(
        schema,
        make_trees(nodes, schema, SOURCE),
        unknown=unknown,
        provenance={"treekit": __version__, "importer": "ydf"},
    )


# ---------------------------------------------------------------- columns

_NUMERICAL, _CATEGORICAL_TYPE, _BOOLEAN, _DISCRETIZED_NUMERICAL = 1, 4, 7, 9


class _Column(NamedTuple):
    """A column of the data specification.

    Attributes
    ----------
    name : str
    type : int
    levels : tuple of str
        Categories 1, 2, ...; category 0 is that of all others.
    boundaries : list of float
        Of discretized numbers.
    """

    name: str
    type: int
    levels: tuple[str, ...]
    boundaries: list[float]

    @property
    def is_nominal(self) -> bool:
        return self.type == _CATEGORICAL_TYPE


def _parse_column(content: bytes) -> _Column:
    fields = _parse(content, _COLUMN)
    name, kind = _decode_text(_take(fields, 2, b"")), _take(fields, 1)
    boundaries: list[float] = []
    if kind == _DISCRETIZED_NUMERICAL:
        boundaries = _parse(_take(fields, 8, b""), _DISCRETIZED).get(1, [])
    levels: tuple[str, ...] = ()
    if kind == _CATEGORICAL_TYPE:
        levels = _parse_levels(_parse(_take(fields, 6, b""), _CATEGORICAL), name)
    return _Column(name, kind, levels, boundaries)


def _parse_levels(fields: Fields, name: str) -> tuple[str, ...]:
    """Return the categories 1, 2, ... of a column."""
    if _take(fields, 5):
        raise ModelError(
            f"{SOURCE} has integers as categories of column {name!r:.80}, without a dictionary; "
            "train with texts"
        )
    found: dict[int, str] = {}
    for content in fields.get(7, []):
        item = _parse(content, _ITEM)
        index = _take(_parse(_take(item, 2, b""), _VOCABULARY), 1)
        if index in found:
            raise ModelFileError(f"{SOURCE} is damaged: two categories of {name!r:.80} are {index}")
        found[index] = _decode_text(_take(item, 1, b""))
    found.pop(0, None)
    if sorted(found) != list(range(1, len(found) + 1)) or _take(fields, 2) != len(found) + 1:
        raise ModelFileError(f"{SOURCE} is damaged: the categories of {name!r:.80} are incomplete")
    return check_levels([found[i] for i in sorted(found)], f"column {name!r}")


# ---------------------------------------------------------------- nodes

_BLOB_HEADER = 8


class _Records:
    """The nodes of all trees: blobs of bytes, in one or more files.

    A file starts with ``BS``, a version, and from version 1 a compression, in 8 bytes; a
    blob is its size in 4 bytes, and its bytes.
    """

    def __init__(self, folder: Path, n_files: int, node_format: str) -> None:
        if node_format != "BLOB_SEQUENCE":
            raise ModelError(
                f"{SOURCE} stores its nodes as {node_format!r:.40}; treekit reads BLOB_SEQUENCE: "
                "load and save the model with a current release of YDF"
            )
        if not 1 <= n_files <= MAX_COLUMNS:
            raise ModelFileError(f"{SOURCE} is damaged: its nodes are in {n_files} files")
        self._files = (folder / f"nodes-{i:05d}-of-{n_files:05d}" for i in range(n_files))
        self._content = b""
        self._at = 0

    def read(self) -> bytes:
        """Return the next blob."""
        while self._at >= len(self._content):
            path = next(self._files, None)
            if path is None:
                raise ModelFileError(f"{SOURCE} is truncated: it has fewer nodes than its trees")
            self._content, self._at = read_whole(path), _BLOB_HEADER
            start = self._content[:_BLOB_HEADER].ljust(_BLOB_HEADER, b"\xff")
            if start[:2] != b"BS" or int.from_bytes(start[2:4], "little") > 1:
                raise ModelFileError(f"{path.name!r} of {SOURCE} is not a sequence of nodes")
            if start[4]:
                raise ModelError(
                    f"{path.name!r} of {SOURCE} is compressed; save the model without compression"
                )
        start = self._at + 4
        end = start + int.from_bytes(self._content[self._at : start], "little")
        if end > len(self._content):
            raise ModelFileError(f"{SOURCE} is truncated: a node ends after its file")
        self._at = end
        return self._content[start:end]


class _Votes(NamedTuple):
    """The values of a leaf: those of classes, or one number if there are none."""

    n_classes: int
    winner: bool = False


class _Split(NamedTuple):
    """A condition; `codes` are the categories that meet it."""

    feature: int
    threshold: float
    missing_meets: bool
    codes: list[int] | None


class _TreeReader:
    """Reader of trees, which collects whether unseen categories differ from missing ones."""

    def __init__(self, columns: list[_Column], place: Mapping[int, int]) -> None:
        self._columns = columns
        self._place = place
        self.unknown: Any = "missing"

    def read_tree(self, records: _Records, task: int, votes: _Votes) -> NodeTable:
        """Read a tree in pre-order, the child of rows that do not meet the condition first."""
        left: list[int] = []
        right: list[int] = []
        splits: list[_Split | None] = []
        values: list[list[float]] = []
        figures: list[tuple[float, float]] = []
        todo = [(-1, False, 0)]
        width = max(votes.n_classes, 1) if task == _CLASSIFICATION else 1
        while todo:
            parent, meets, depth = todo.pop()
            if depth > MAX_DEPTH:
                raise ModelError(f"{SOURCE} has a tree deeper than {MAX_DEPTH}, the maximum")
            node = _parse(records.read(), _NODE)
            number = len(splits)
            if parent >= 0:
                (right if meets else left)[parent] = number
            left.append(-1)
            right.append(-1)
            if 3 in node:
                condition = _parse(_take(node, 3), _NODE_CONDITION)
                splits.append(self._read_split(condition))
                values.append([0.0] * width)
                figures.append((_take(condition, 5, 0.0), _take(condition, 6, 0.0)))
                todo += [(number, True, depth + 1), (number, False, depth + 1)]
            else:
                splits.append(None)
                values.append(_read_leaf(node, task, votes))
                figures.append((0.0, 0.0))
        return _make_table(left, right, splits, values, figures)

    def _read_split(self, fields: Fields) -> _Split:
        """Return the condition of a node."""
        attribute, missing = _take(fields, 2), bool(_take(fields, 1))
        if attribute not in self._place:
            raise ModelFileError(f"{SOURCE} is damaged: a split has the unknown column {attribute}")
        column, place = self._columns[attribute], self._place[attribute]
        condition = _parse(_take(fields, 3, b""), _CONDITION)
        if len(condition) != 1:
            raise ModelFileError(f"{SOURCE} is damaged: a node has {len(condition)} conditions")
        kind, content = next(iter(condition)), next(iter(condition.values()))[-1]
        if column.is_nominal and kind in (4, 5):
            return self._read_set(kind, content, column, place, missing)
        if kind == 2 and column.type == _NUMERICAL:
            return _Split(place, _take(_parse(content, _HIGHER), 1, 0.0), missing, None)
        if kind == 3 and column.type == _BOOLEAN:
            return _Split(place, 0.5, missing, None)
        if kind == 6 and column.type == _DISCRETIZED_NUMERICAL:
            at = _take(_parse(content, _DISCRETIZED_HIGHER), 1)
            if not 1 <= at <= len(column.boundaries):
                raise ModelFileError(f"{SOURCE} is damaged: a split has the unknown boundary {at}")
            return _Split(place, column.boundaries[at - 1], missing, None)
        what = _UNSUPPORTED.get(kind, f"conditions of kind {kind}")
        raise ModelError(
            f"{SOURCE} has {what} on column {column.name!r:.80} of type {column.type}, which "
            "treekit does not support"
        )

    def _read_set(
        self, kind: int, content: bytes, column: _Column, place: int, missing: bool
    ) -> _Split:
        if kind == 4:
            codes = _parse(content, _CONTAINS).get(1, [])
        else:
            bits = np.frombuffer(_take(_parse(content, _BITMAP), 1, b""), dtype=np.uint8)
            codes = np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()
        if not all(0 <= code <= len(column.levels) for code in codes):
            raise ModelFileError(
                f"{SOURCE} is damaged: a split has an unknown category of {column.name!r:.80}"
            )
        if (0 in codes) != missing:
            self.unknown = "error"
        return _Split(place, 0.0, missing, sorted({code - 1 for code in codes} - {-1}))


_UNSUPPORTED = {
    1: "tests for missing values",
    4: "sets of categories",
    5: "sets of categories",
    7: "splits on sums of columns (sparse oblique)",
    8: "splits on sequences of vectors",
}


def _read_leaf(node: Fields, task: int, votes: _Votes) -> list[float]:
    """Return the values of a leaf: a number, or the weight of each class."""
    if task != _CLASSIFICATION:
        if 2 not in node:
            raise ModelFileError(f"{SOURCE} is damaged: a leaf has no number")
        return [_take(_parse(_take(node, 2), _REGRESSOR), 1, 0.0)]
    if 1 not in node:
        raise ModelFileError(f"{SOURCE} is damaged: a leaf has no class")
    fields = _parse(_take(node, 1), _CLASSIFIER)
    if votes.winner:
        label = _take(fields, 1)
        if not 1 <= label <= votes.n_classes:
            raise ModelFileError(f"{SOURCE} is damaged: a leaf has the unknown class {label}")
        return [float(label == k + 1) for k in range(votes.n_classes)]
    counts = _parse(_take(fields, 2, b""), _DISTRIBUTION).get(1, [])
    if len(counts) != votes.n_classes + 1 or counts[0]:
        raise ModelFileError(
            f"{SOURCE} is damaged: a leaf has {len(counts)} counts for {votes.n_classes} classes"
        )
    return list(counts[1:])


def _make_table(
    left: list[int],
    right: list[int],
    splits: list[_Split | None],
    values: list[list[float]],
    figures: list[tuple[float, float]],
) -> NodeTable:
    """Make the table of a tree; of sets the first branch is that of their categories."""
    own = [split or _Split(-1, 0.0, False, None) for split in splits]
    is_set = np.array([split.codes is not None for split in own])
    sets = [split.codes for split in own if split.codes is not None]
    misses, meets = np.array(left, dtype=np.int64), np.array(right, dtype=np.int64)
    missing_meets = np.array([split.missing_meets for split in own])
    threshold = np.array([split.threshold for split in own], dtype=np.float32)
    below = np.nextafter(threshold, np.float32(-np.inf), dtype=np.float32)
    return NodeTable(
        left=np.where(is_set, meets, misses),
        right=np.where(is_set, misses, meets),
        feature=np.array([split.feature for split in own], dtype=np.int64),
        threshold=np.where(is_set, 0.0, below.astype(np.float64)),
        missing_left=np.where(is_set, missing_meets, ~missing_meets),
        value=np.array(values, dtype=np.float64),
        weight=np.array([weight for weight, _ in figures]),
        gain=np.array([gain for _, gain in figures]),
        set_node=np.flatnonzero(is_set),
        set_sizes=np.array([len(codes) for codes in sets], dtype=np.int64),
        set_codes=np.array([code for codes in sets for code in codes], dtype=np.int64),
    )
