"""Lowered trees as nested if/else, in functions of bounded depth and size."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.export.literals import Code, float_literal
from treekit.export.lowering import (
    LeafTable,
    LoweredTree,
    Step,
    compute_double_thresholds,
    set_words,
)
from treekit.model.derived_features import DerivedColumns

__all__ = [
    "FORM_REASON",
    "MAX_IF_ELSE_NODES",
    "Form",
    "Line",
    "SourceFunction",
    "SourceLine",
    "Term",
    "choose_form",
    "describe_derived_column",
    "list_inline_terms",
    "replace_large_sets",
    "split_into_functions",
    "write_source_functions",
]


# ---------------------------------------------------------------- nesting

Form = Literal["if_else", "table"]
FORM_REASON = "as the setting form asks"
"""Reason of a form that the user set."""
MAX_IF_ELSE_NODES = 2000
"""Maximum number of nodes that `choose_form` writes as if/else."""


class Line(NamedTuple):
    """Line of nested source.

    Attributes
    ----------
    op : {"test", "otherwise", "end", "leaf", "call"}
    depth : int
        Nesting depth in its function.
    at : int
        Node of a test or leaf; number of the called function.
    """

    op: Literal["test", "otherwise", "end", "leaf", "call"]
    depth: int
    at: int


def choose_form(wanted: str, n_nodes: int, most: int = MAX_IF_ELSE_NODES) -> tuple[Form, str]:
    """Choose the form of the source; return the form and the reason in words."""
    if wanted == "if_else":
        return "if_else", FORM_REASON
    if wanted == "table":
        return "table", FORM_REASON
    if n_nodes <= most:
        return "if_else", f"the model has {n_nodes} nodes, and up to {most} can be read as tests"
    return (
        "table",
        f"the model has {n_nodes} nodes; beyond {most}, tables are smaller and ready sooner",
    )


def split_into_functions(
    tree: LoweredTree, deepest: int, most: int | None = None
) -> list[list[Line]]:
    """Split a tree into functions of nested tests; function 0 is the root.

    Subtrees at depth `deepest` become separate functions.  If a function would have more than
    `most` tests, the subtrees farthest from its root become separate functions, too.
    The number of a called function is larger than that of its caller.
    """
    roots = deque([0])
    functions: list[list[Line]] = []
    while roots:
        made: list[Line] = []
        root = roots.popleft()
        own = None if most is None else _find_nearest_tests(tree, root, most)
        todo = [("node", 0, root)]
        while todo:
            op, depth, at = todo.pop()
            if op != "node":
                made.append(Line("end" if op == "end" else "otherwise", depth, at))
            elif tree.kind[at] == Step.LEAF:
                made.append(Line("leaf", depth, at))
            elif depth == deepest or (own is not None and at not in own):
                roots.append(at)
                made.append(Line("call", depth, len(functions) + len(roots)))
            else:
                made.append(Line("test", depth, at))
                todo += [
                    ("end", depth, at),
                    ("node", depth + 1, int(tree.no[at])),
                    ("otherwise", depth, at),
                    ("node", depth + 1, int(tree.yes[at])),
                ]
        functions.append(made)
    return functions


def _find_nearest_tests(tree: LoweredTree, root: int, most: int) -> set[int]:
    """Find the `most` tests of a subtree that are nearest to its root."""
    found: set[int] = set()
    todo = deque([root])
    while todo and len(found) < most:
        at = todo.popleft()
        if tree.kind[at] != Step.LEAF:
            found.add(at)
            todo += [int(tree.yes[at]), int(tree.no[at])]
    return found


# ---------------------------------------------------------------- derived columns

Term = tuple[Code, Code]
"""Identifier of a column and its weight."""

_MAX_INLINE_TERMS = (
    8  # terms of a sum that is written inline: readable, and not too deep for parsers
)
_MAX_SHOWN = 8  # tests, and categories of a set, listed in a comment


def list_inline_terms(
    derived: DerivedColumns, number: int, columns: Sequence[Code]
) -> list[Term] | None:
    """Return the terms of a derived column that is a single short sum, else None."""
    first = int(derived.test_start[number])
    count = int(derived.term_start[first + 1] - derived.term_start[first])
    alone = derived.test_start[number + 1] == first + 1 and not _is_one_sided(derived, first)
    return (
        _list_terms(derived, first, columns) if alone and 0 < count <= _MAX_INLINE_TERMS else None
    )


def describe_derived_column(derived: DerivedColumns, number: int, columns: Sequence[Code]) -> Code:
    """Describe when a derived column takes branch 0, for a comment in the source.

    The text contains identifiers only, no raw names.
    """
    tests = range(int(derived.test_start[number]), int(derived.test_start[number + 1]))
    texts = [_describe_test(derived, test, columns) for test in tests[:_MAX_SHOWN]]
    texts += ["..."] * (len(tests) > _MAX_SHOWN)
    rule = all(_is_one_sided(derived, test) for test in tests)
    return Code("unless " + ", or ".join(texts) if rule else "; if unknown, ".join(texts))


def _is_one_sided(derived: DerivedColumns, test: int) -> bool:
    """Return whether a test is a condition of a rule, which gives 1 or unknown, never 0."""
    by_level = derived.level_feature[test] >= 0
    branches = derived.level_branch[derived.level_start[test] : derived.level_start[test + 1]]
    results = branches if by_level else np.array([derived.below[test], derived.above[test]])
    return bool(derived.lost[test] >= 0 or not np.any(results == 0))


def _describe_failure(derived: DerivedColumns, test: int, columns: Sequence[Code]) -> str:
    """Describe when a condition of a rule fails."""
    at, column = float_literal(derived.threshold[test]), int(derived.level_feature[test])
    cases = []
    if column >= 0:
        own = slice(int(derived.level_start[test]), int(derived.level_start[test + 1]))
        failing = derived.level_branch[own] == 1
        cases += [f"{columns[column]} in {_format_codes(failing)}"] * bool(failing.any())
    else:
        column = int(derived.term_feature[derived.term_start[test]])
        cases += [f"{columns[column]} <= {at}"] * bool(derived.below[test] == 1)
        cases += [f"{columns[column]} > {at}"] * bool(derived.above[test] == 1)
    cases += [f"{columns[column]} missing"] * bool(derived.lost[test] == 1)
    return " or ".join(cases) or "never"


def _describe_test(derived: DerivedColumns, test: int, columns: Sequence[Code]) -> str:
    if _is_one_sided(derived, test):
        return _describe_failure(derived, test, columns)
    column = int(derived.level_feature[test])
    if column >= 0:
        branches = derived.level_branch[derived.level_start[test] : derived.level_start[test + 1]]
        members, known = _format_codes(branches == 0), _format_codes(branches >= 0)
        return f"{columns[column]} in {members}, known in {known}"
    terms = _list_terms(derived, test, columns)
    if len(terms) > _MAX_INLINE_TERMS:
        total = f"a sum over {len(terms)} columns"
    else:
        total = " + ".join(name if w == "1.0" else f"{w} * {name}" for name, w in terms)
    relation = ">" if derived.below[test] else "<="
    return f"{total} {relation} {float_literal(derived.threshold[test])}"


def _format_codes(member: Any) -> str:
    codes = np.flatnonzero(member).tolist()
    shown = [str(code) for code in codes[:_MAX_SHOWN]] + ["..."] * (len(codes) > _MAX_SHOWN)
    return "{" + ", ".join(shown) + "}"


def _list_terms(derived: DerivedColumns, test: int, columns: Sequence[Code]) -> list[Term]:
    own = slice(int(derived.term_start[test]), int(derived.term_start[test + 1]))
    features, weights = derived.term_feature[own].tolist(), derived.term_weight[own].tolist()
    return [(columns[f], float_literal(w)) for f, w in zip(features, weights, strict=True)]


# ---------------------------------------------------------------- source lines
# A template has one macro for each kind of line.

_NO_CODE = Code("")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Line of source, ready to be written by a template.

    Attributes
    ----------
    op : str
        Macro of the template: ``le_missing_no``, ``le_missing_yes``,
        ``sum_missing_no``, ``sum_missing_yes``, ``derived_missing_no``,
        ``derived_missing_yes``, ``in_codes``,
        ``missing_number``, ``missing_level``, ``otherwise``, ``end``, ``leaf``,
        ``call``, and ``unused`` in a function that ignores its row.
    indent : Code
    column : Code
        Identifier of the split feature.
    value : Code
        Threshold, for inputs in double.
    codes : list of int
        Members of the tested set.
    levels : int
        Number of categories of the column.
    terms : list of (Code, Code)
        Columns of a sum and their weights.
    words : Code
        Description of a derived column.
    tree, at : int
        Vector of a leaf, number of a derived column, or tree and number of the called function.
    """

    op: str
    indent: Code
    column: Code = _NO_CODE
    value: Code = _NO_CODE
    codes: Sequence[int] = ()
    levels: int = 0
    terms: Sequence[Term] = ()
    words: Code = _NO_CODE
    tree: int = 0
    at: int = 0


@dataclass(frozen=True, slots=True)
class SourceFunction:
    """Function number `part` of tree number `tree`; part 0 is the tree itself."""

    tree: int
    part: int
    lines: tuple[SourceLine, ...]


def write_source_functions(
    trees: tuple[LoweredTree, ...],
    schema: Schema,
    leaves: LeafTable,
    columns: Sequence[Code],
    derived: DerivedColumns,
    deepest: int,
    thresholds: Callable[[LoweredTree], Sequence[Code]] | None = None,
    *,
    most: int | None = None,
    indent: str = "    ",
    outer: int = 1,
) -> list[SourceFunction]:
    """Write each tree as functions of nested tests, callees before callers.

    Parameters
    ----------
    columns : sequence of Code
        Identifier of each input column.
    deepest : int
        Maximum nesting depth of the tests in one function.
    thresholds : callable, optional
        Returns the threshold of each node as a literal; default: doubles,
        for unrounded rows.
    most : int, optional
        Maximum number of tests in one function.
    indent, outer : str, int
        One level of indentation, and the number of levels around a function's body.
    """
    made: list[SourceFunction] = []
    for number, tree in enumerate(trees):
        literals = _format_thresholds(tree, schema) if thresholds is None else thresholds(tree)
        writer = _LineWriter(
            *(number, tree, schema, leaves, columns, derived, literals),
            indent=indent,
            outer=outer,
        )
        parts = enumerate(split_into_functions(tree, deepest, most))
        functions = [SourceFunction(number, part, writer.write_lines(nest)) for part, nest in parts]
        made += reversed(functions)
    return made


def _format_thresholds(tree: LoweredTree, schema: Schema) -> list[Code]:
    return [float_literal(t) for t in compute_double_thresholds(tree, schema).tolist()]


class _LineWriter:
    """Converter from the nested lines of one tree to source lines."""

    def __init__(
        self,
        number: int,
        tree: LoweredTree,
        schema: Schema,
        leaves: LeafTable,
        columns: Sequence[Code],
        derived: DerivedColumns,
        thresholds: Sequence[Code],
        indent: str,
        outer: int,
    ) -> None:
        self.indent, self.outer = indent, outer
        self.number, self.tree, self.schema = number, tree, schema
        self.leaves, self.columns, self.derived = leaves, columns, derived
        self.thresholds = thresholds

    def write_lines(self, nest: list[Line]) -> tuple[SourceLine, ...]:
        body = Code(self.indent * self.outer)
        unused = [SourceLine("unused", body)] if nest[0].op == "leaf" else []
        return (*unused, *map(self._write_line, nest))

    def _write_line(self, line: Line) -> SourceLine:
        indent = Code(self.indent * (line.depth + self.outer))
        if line.op == "test":
            return self._write_test(line.at, indent)
        if line.op == "leaf":
            vector = int(self.leaves.row[self.tree.leaf[line.at]])
            return SourceLine("leaf", indent, at=vector)
        return SourceLine(line.op, indent, tree=self.number, at=line.at)

    def _write_test(self, node: int, indent: Code) -> SourceLine:
        feature = int(self.tree.feature[node])
        if feature >= self.schema.n_features:
            return self._write_derived_test(node, feature - self.schema.n_features, indent)
        name, levels = self.columns[feature], len(self.schema.columns[feature].levels)
        kind = self.tree.kind[node]
        if kind == Step.IN:
            return SourceLine("in_codes", indent, name, codes=self.tree.codes(node).tolist())
        if kind == Step.MISSING:
            nominal = self.schema.columns[feature].kind == "nominal"
            op = "missing_level" if nominal else "missing_number"
            return SourceLine(op, indent, name, levels=levels)
        op = "le_missing_yes" if self.tree.missing_yes[node] else "le_missing_no"
        return SourceLine(op, indent, name, value=self.thresholds[node])

    def _write_derived_test(self, node: int, number: int, indent: Code) -> SourceLine:
        """Write a test of a derived column: a short sum inline, any other as a call."""
        side = "missing_yes" if self.tree.missing_yes[node] else "missing_no"
        terms = list_inline_terms(self.derived, number, self.columns)
        if terms is None:
            comment = describe_derived_column(self.derived, number, self.columns)
            return SourceLine(f"derived_{side}", indent, words=comment, at=number)
        threshold = self.derived.threshold[self.derived.test_start[number]]
        return SourceLine(f"sum_{side}", indent, value=float_literal(threshold), terms=terms)


# ---------------------------------------------------------------- sets
# Tests of large category sets become lookups in one table.

_MAX_INLINE_CODES = 4
"""Maximum number of codes of a set that is written inline; larger sets become bit masks."""


def replace_large_sets(
    functions: Sequence[SourceFunction],
) -> tuple[list[SourceFunction], npt.NDArray[np.uint32]]:
    """Replace the tests of large sets by lookups, ``in_set``.

    Returns
    -------
    functions : list of SourceFunction
        ``at`` of such a line is the start of its set in the packed words.
    words : (words,) uint32
        Packed sets, see `treekit.export.lowering.set_words`.
    """
    sets = [
        line.codes for f in functions for line in f.lines if len(line.codes) > _MAX_INLINE_CODES
    ]
    starts = np.cumsum([0, *map(len, sets)])
    words, offsets = set_words(starts, np.array([c for codes in sets for c in codes], np.int64))
    offset = iter(offsets.tolist())

    def replace_set(line: SourceLine) -> SourceLine:
        asks_set = len(line.codes) > _MAX_INLINE_CODES
        return replace(line, op="in_set", at=next(offset)) if asks_set else line

    made = [replace(f, lines=tuple(map(replace_set, f.lines))) for f in functions]
    return made, words
