"""Read the trees of exported Python back from its arrays and nested tests: an oracle."""

from __future__ import annotations

import ast
import base64
import binascii
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.export.fractional import build_fractional_table
from treekit.export.lowering import LeafTable
from treekit.model.model import Model
from treekit.model.tree import DerivedColumns, make_derived_columns
from treekit.verify.tree_equivalence import (
    BinaryTables,
    StructureComparison,
    compare_paths,
    has_same_columns,
)

# ---------------------------------------------------------------- tables

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

_ARRAY_LINES = re.compile(
    r'^(_[A-Z_]+) = (_ints|_longs|_doubles)\("""\\\n([^"]*)"""\)$', re.MULTILINE
)
_ARRAY_TYPES = {"_ints": "<i4", "_longs": "<i8", "_doubles": "<f8"}
_DERIVED_NAMES = {
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
_FRACTIONAL_NAMES = {
    "value": "_VALUE",
    "question": "_QUESTION",
    "child": "_CHILD",
    "low": "_LOW",
    "high": "_HIGH",
    "root": "_ROOTS",
    "level_branch": "_BRANCHES",
}


def compare_python_structure(path: Path, model: Model) -> StructureComparison:
    """Compare the trees of the file with the model's, on every path."""
    try:
        text = path.read_text(encoding="ascii")
        arrays = _parse_arrays(text)
        if model.missing == "fractional":
            return _compare_fractional_table(arrays, model)
        if "_LEAF_NODE" not in arrays:
            return compare_paths(
                model, parse_nested_tests(text, model.schema, _make_derived_columns(arrays))
            )
        return compare_paths(
            model, _make_binary_tables(arrays, model.schema.n_features, model.schema.n_values)
        )
    except (VerificationError, UnicodeDecodeError, LookupError, ValueError) as error:
        return StructureComparison(False, f"not proved: its tables cannot be read ({error})")


def _parse_arrays(text: str) -> Arrays:
    found: Arrays = {}
    for name, function, content in _ARRAY_LINES.findall(text):
        try:
            decoded = base64.b64decode(content)
        except binascii.Error as error:
            raise VerificationError(f"{name}: {error}") from error
        found[name] = np.frombuffer(decoded, dtype=_ARRAY_TYPES[function])
    return found


def _make_binary_tables(arrays: Arrays, n_features: int, n_values: int) -> BinaryTables:
    """Invert `treekit.export.template_values.encode_cell_tests`."""
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
        raise VerificationError("a test without a threshold has a value")
    sizes = np.where(is_set, np.diff(set_start, append=0)[np.where(is_set, number, -1)], 0)
    members = [np.arange(set_start[k], set_start[k + 1]) for k in number[is_set].tolist()]
    places = np.concatenate([np.empty(0, np.int64), *members])
    vector, leaves = _parse_leaf_values(arrays, n_values)

    def resolve_targets(nodes: Array) -> Array:
        at = nodes.astype(np.int64)
        return np.where(at < 0, -1 - vector[np.where(at < 0, -1 - at, 0)], at)

    return BinaryTables(
        feature=feature,
        kind=kind,
        value=np.where(is_derived, 0.0, value),
        yes=resolve_targets(arrays["_YES"]),
        no=resolve_targets(arrays["_NO"]),
        root=resolve_targets(arrays["_ROOTS"]),
        set_start=np.cumsum(np.append(0, sizes)),
        set_codes=arrays["_SET_CODES"].astype(np.int64)[places],
        leaves=leaves,
        derived=_make_derived_columns(arrays),
    )


def _parse_leaf_values(arrays: Arrays, n_values: int) -> tuple[Array, Array]:
    """Return the distinct leaf values, and which of them each leaf has."""
    units = arrays["_UNITS"]
    if "_LEAF_VECTOR" not in arrays:
        return np.arange(len(units)), units[:, np.newaxis].astype(np.int64)
    start = arrays["_UNITS_START"].astype(np.int64)
    leaf_values = np.zeros((len(start) - 1, n_values), dtype=np.int64)
    row = np.repeat(np.arange(len(leaf_values)), np.diff(start))
    np.add.at(leaf_values, (row, arrays["_UNITS_COLUMN"].astype(np.int64)), units)
    return arrays["_LEAF_VECTOR"].astype(np.int64), leaf_values


def _make_derived_columns(arrays: Arrays) -> DerivedColumns | None:
    if "_TEST_START" not in arrays:
        return None
    own = {field: arrays[name] for field, name in _DERIVED_NAMES.items()}
    return DerivedColumns(column=np.empty(0, np.int64), **own)


def _compare_fractional_table(arrays: Arrays, model: Model) -> StructureComparison:
    """Compare the table for fractional instances with the model's nodes, entry by entry."""
    derived = make_derived_columns(model)
    every_leaf = LeafTable(np.arange(model.n_leaves), model.units)
    table = build_fractional_table(model, every_leaf)
    vector, leaves = _parse_leaf_values(arrays, model.schema.n_values)
    is_equal = all(
        np.array_equal(getattr(table, f), arrays[name]) for f, name in _FRACTIONAL_NAMES.items()
    )
    is_equal &= np.array_equal(leaves[vector], model.units)
    if derived.n_columns:
        is_equal &= has_same_columns(derived, _make_derived_columns(arrays))
    if not is_equal:
        return StructureComparison(False, "NOT the model's: an entry of its tables differs")
    return StructureComparison(
        True, f"proved: every entry of its tables, of {len(table.value):,} nodes"
    )


# ---------------------------------------------------------------- nested tests
# Nested tests of Python source, read as tables of binary nodes.

_MAX_CHARACTERS = 20_000_000
"""Maximum number of characters; parsing takes some hundred bytes for each."""

NodeTest = tuple[int, int, float, tuple[int, ...]]
"""Feature, kind and value as in `tree_equivalence.BinaryNodes`, and the set of codes."""


def parse_nested_tests(text: str, schema: Schema, derived: DerivedColumns | None) -> BinaryTables:
    """Read the tables that correspond to an exported file of nested tests.

    Raises
    ------
    VerificationError
        If it contains code that was not exported, or sums that are written out.
    """
    if len(text) > _MAX_CHARACTERS:
        raise VerificationError("the file is too long to be parsed")
    try:
        module = ast.parse(text)
    except (SyntaxError, RecursionError) as error:
        raise VerificationError(f"not valid Python: {error}") from error
    return _NestedTestsReader(module, schema).make_tables(derived)


class _NestedTestsReader:
    """Functions and constants of a module, and the nodes read so far."""

    def __init__(self, module: ast.Module, schema: Schema) -> None:
        self.schema = schema
        self.functions = {f.name: f.body for f in module.body if isinstance(f, ast.FunctionDef)}
        self.numbers: dict[str, Any] = {}
        self.trees: list[str] = []
        for line in module.body:
            if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                name = line.targets[0].id
                if isinstance(line.value, ast.Constant):
                    self.numbers[name] = line.value.value
                elif name == "_TREES" and isinstance(line.value, ast.Tuple):
                    self.trees = [one.id for one in line.value.elts if isinstance(one, ast.Name)]
            elif isinstance(line, ast.AnnAssign) and ast.unparse(line.target) == "_LEAVES":
                self.leaves = ast.literal_eval(line.value or ast.Tuple([]))
        self.questions: list[NodeTest] = []
        self.ends: list[list[int]] = []

    def make_tables(self, derived: DerivedColumns | None) -> BinaryTables:
        """Read every tree, a parent before its children."""
        roots = [self._parse_tree(name) for name in self.trees]
        leaf_values = np.zeros((len(self.leaves), self.schema.n_values), dtype=np.int64)
        for leaf, (_, pairs) in enumerate(self.leaves):
            for position, units in pairs:
                leaf_values[leaf, position] += units
        ends = np.array(self.ends, dtype=np.int64).reshape(-1, 2)
        sizes = [len(question[3]) for question in self.questions]
        return BinaryTables(
            feature=np.array([question[0] for question in self.questions], dtype=np.int64),
            kind=np.array([question[1] for question in self.questions], dtype=np.int64),
            value=np.array([question[2] for question in self.questions]),
            yes=ends[:, 0],
            no=ends[:, 1],
            root=np.array(roots, dtype=np.int64),
            set_start=np.cumsum([0, *sizes]),
            set_codes=np.array([c for q in self.questions for c in q[3]], dtype=np.int64),
            leaves=leaf_values,
            derived=derived,
        )

    def _parse_tree(self, name: str) -> int:
        """Read a function and those that it calls; return its first node, or leaf."""
        root = [0]
        waiting: list[tuple[list[ast.stmt], list[int], int]] = [(self.functions[name], root, 0)]
        while waiting:
            body, above, side = waiting.pop()
            match [line for line in body if not _is_docstring(line)]:
                case [ast.If(test=test, body=yes, orelse=no)] if no:
                    above[side] = len(self.questions)
                    ends = [0, 0]
                    self.questions.append(self._parse_test(test))
                    self.ends.append(ends)
                    waiting += [(no, ends, 1), (yes, ends, 0)]
                case [ast.Return(value=ast.Constant(value=int(leaf)))]:
                    above[side] = -1 - leaf
                case [ast.Return(value=ast.Call(func=ast.Name(id=called)))]:
                    waiting.append((self.functions[called], above, side))
                case _:
                    raise VerificationError(f"{name} is not a tree of tests")
        return root[0]

    def _parse_test(self, test: ast.expr) -> NodeTest:
        """Parse the test of an if; ``not x > t`` is true for NaN."""
        match test:
            case ast.Compare(left=asked, ops=[ast.LtE()], comparators=[value]):
                return self._parse_feature(asked), 0, _parse_number(value), ()
            case ast.UnaryOp(
                op=ast.Not(),
                operand=ast.Compare(left=asked, ops=[ast.Gt()], comparators=[value]),
            ):
                return self._parse_feature(asked), 1, _parse_number(value), ()
            case ast.Compare(left=asked, ops=[ast.In()], comparators=[ast.Set(elts=codes)]):
                return (
                    self._parse_feature(asked),
                    2,
                    0.0,
                    tuple(sorted(int(_parse_number(c)) for c in codes)),
                )
            case ast.Compare(left=asked, ops=[ast.NotEq()], comparators=[same]):
                if ast.dump(asked) == ast.dump(same):
                    return self._parse_feature(asked), 3, 0.0, ()
        raise VerificationError(f"a test of an unknown kind: {ast.unparse(test)[:80]}")

    def _parse_feature(self, expression: ast.expr) -> int:
        match expression:
            case ast.Subscript(value=ast.Name(id="x"), slice=ast.Name(id=name)):
                return int(self.numbers[name])
            case ast.Call(func=ast.Name(id="_derived"), args=[_, ast.Constant(value=int(number))]):
                return self.schema.n_features + number
        raise VerificationError(f"neither cell nor derived column: {ast.unparse(expression)[:80]}")


def _is_docstring(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def _parse_number(value: ast.expr) -> float:
    number = ast.literal_eval(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise VerificationError(f"{number!r} is not a number")
    return float(number)
