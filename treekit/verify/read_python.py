"""Reading back the tables of an exported Python file, to compare them with the model."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import VerificationError
from treekit.export.fractional import divided_table
from treekit.export.lowering import LeafTable
from treekit.model.derived_features import DerivedColumns, derive
from treekit.model.model import Model
from treekit.verify.read_nested import nested_tables
from treekit.verify.structure import Structure, Tables, proved, same_columns

__all__ = ["structure_of_python"]

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

_ARRAY = re.compile(r'^(_[A-Z_]+) = (_ints|_longs|_doubles)\("""\\\n([^"]*)"""\)$', re.MULTILINE)
_TYPES = {"_ints": "<i4", "_longs": "<i8", "_doubles": "<f8"}
_DERIVED = {
    "test_start": "_TEST_START",
    "threshold": "_THRESHOLD",
    "below": "_BELOW",
    "above": "_ABOVE",
    "lost": "_LOST",
    "term_start": "_TERM_START",
    "term_feature": "_TERM_COLUMN",
    "term_weight": "_TERM_WEIGHT",
    "level_feature": "_LEVEL_COLUMN",
    "level_start": "_LEVEL_START",
    "level_branch": "_LEVEL_BRANCH",
}
_DIVIDED = {
    "value": "_VALUE",
    "question": "_QUESTION",
    "child": "_CHILD",
    "low": "_LOW",
    "high": "_HIGH",
    "root": "_ROOTS",
    "level_branch": "_BRANCHES",
}


def structure_of_python(path: Path, model: Model) -> Structure:
    """Compare what the file says of trees with the model, on every path."""
    try:
        text = path.read_text(encoding="ascii")
        arrays = _arrays(text)
        if model.missing == "fractional":
            return _divided(arrays, model)
        if "_LEAF_NODE" not in arrays:
            return proved(model, nested_tables(text, model.schema, _derived(arrays)))
        return proved(model, _tables(arrays, model.schema.n_features, model.schema.n_values))
    except (VerificationError, UnicodeDecodeError, LookupError, ValueError) as error:
        return Structure(False, f"not proved: its tables cannot be read ({error})")


def _arrays(text: str) -> Arrays:
    found: Arrays = {}
    for name, function, content in _ARRAY.findall(text):
        try:
            decoded = base64.b64decode(content)
        except binascii.Error as error:
            raise VerificationError(f"{name}: {error}") from error
        found[name] = np.frombuffer(decoded, dtype=_TYPES[function])
    return found


def _tables(arrays: Arrays, n_features: int, n_values: int) -> Tables:
    """Undo what `treekit.export.python.node_tables` did."""
    asks, low, gone = arrays["_ASKS"].astype(np.int64), arrays["_LOW"], arrays["_GONE"]
    set_column, set_start = arrays["_SET_COLUMN"], arrays["_SET_START"].astype(np.int64)
    value = arrays["_VALUE"]
    columns = np.concatenate([np.arange(n_features), low, gone]).astype(np.int64)
    kinds = np.repeat([0, 1, 3], [n_features, len(low), len(gone)])
    plain = asks >= 0
    number = -1 - asks
    is_set = ~plain & (number < len(set_column))
    is_derived = ~plain & ~is_set
    feature, kind = np.empty_like(asks), np.empty_like(asks)
    feature[plain], kind[plain] = columns[asks[plain]], kinds[asks[plain]]
    feature[is_set], kind[is_set] = set_column[number[is_set]], 2
    feature[is_derived] = n_features + number[is_derived] - len(set_column)
    kind[is_derived] = value[is_derived] == 0.0
    flags = (kind == 3) | is_derived
    if not np.isin(value[flags], (0.0, 1.0)).all() or (value[kind == 3] != 0.0).any():
        raise VerificationError("a question has a threshold of its own kind")
    sizes = np.where(is_set, np.diff(set_start, append=0)[np.where(is_set, number, -1)], 0)
    members = [np.arange(set_start[k], set_start[k + 1]) for k in number[is_set].tolist()]
    places = np.concatenate([np.empty(0, np.int64), *members])
    vector, leaves = _leaves(arrays, n_values)

    def ends(nodes: Array) -> Array:
        at = nodes.astype(np.int64)
        return np.where(at < 0, -1 - vector[np.where(at < 0, -1 - at, 0)], at)

    return Tables(
        feature=feature,
        kind=kind,
        value=np.where(is_derived, 0.0, value),
        yes=ends(arrays["_YES"]),
        no=ends(arrays["_NO"]),
        root=ends(arrays["_ROOTS"]),
        set_start=np.cumsum(np.append(0, sizes)),
        set_codes=arrays["_SET_CODES"].astype(np.int64)[places],
        leaves=leaves,
        derived=_derived(arrays),
    )


def _leaves(arrays: Arrays, n_values: int) -> tuple[Array, Array]:
    """What is said, each thing once, and which of it each leaf says."""
    units = arrays["_UNITS"]
    if "_LEAF_VECTOR" not in arrays:
        return np.arange(len(units)), units[:, np.newaxis].astype(np.int64)
    start = arrays["_UNITS_START"].astype(np.int64)
    said = np.zeros((len(start) - 1, n_values), dtype=np.int64)
    row = np.repeat(np.arange(len(said)), np.diff(start))
    np.add.at(said, (row, arrays["_UNITS_COLUMN"].astype(np.int64)), units)
    return arrays["_LEAF_VECTOR"].astype(np.int64), said


def _derived(arrays: Arrays) -> DerivedColumns | None:
    if "_TEST_START" not in arrays:
        return None
    own = {field: arrays[name] for field, name in _DERIVED.items()}
    return DerivedColumns(column=np.empty(0, np.int64), **own)


def _divided(arrays: Arrays, model: Model) -> Structure:
    """Rows divide: the table is the trees' own nodes, and is compared entry by entry."""
    derived = derive(model)
    each = LeafTable(np.arange(model.n_leaves), model.units)
    table = divided_table(model, each, derived)
    vector, leaves = _leaves(arrays, model.schema.n_values)
    same = all(np.array_equal(getattr(table, f), arrays[name]) for f, name in _DIVIDED.items())
    same &= np.array_equal(leaves[vector], model.units)
    if derived.n_columns:
        same &= same_columns(derived, _derived(arrays))
    if not same:
        return Structure(False, "NOT the model's: an entry of its tables is another")
    return Structure(True, f"proved: every entry of its tables, of {len(table.value):,} nodes")
