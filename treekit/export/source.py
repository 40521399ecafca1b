"""Nested trees as lines that a template writes, one macro a kind of line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from treekit.data.schema import Schema
from treekit.export.derived import Term, inline_terms, words
from treekit.export.literals import Code, float_literal
from treekit.export.lower import LoweredTree, Step
from treekit.export.nesting import Line, nested
from treekit.export.table import LeafTable, plain_thresholds
from treekit.model.derived_features import DerivedColumns

__all__ = ["SourceFunction", "SourceLine", "source_functions"]

_NONE = Code("")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line, ready to be written.

    Attributes
    ----------
    op : str
        The template's macro: ``le_missing_no``, ``le_missing_yes``,
        ``sum_missing_no``, ``sum_missing_yes``, ``derived_missing_no``,
        ``derived_missing_yes``, ``in_codes``,
        ``missing_number``, ``missing_level``, ``otherwise``, ``end``, ``leaf``,
        ``call``, and ``unused`` where a function does not look at its row.
    indent : Code
    column : Code
        Identifier of the column that is asked.
    value : Code
        Threshold, for inputs in double.
    codes : list of int
        Members of the set that is asked.
    levels : int
        Size of the column's vocabulary.
    terms : list of (Code, Code)
        Columns of a sum and their weights.
    words : Code
        What a derived column asks.
    tree, at : int
        A leaf's vector, a derived column, or the tree and function that is called.
    """

    op: str
    indent: Code
    column: Code = _NONE
    value: Code = _NONE
    codes: Sequence[int] = ()
    levels: int = 0
    terms: Sequence[Term] = ()
    words: Code = _NONE
    tree: int = 0
    at: int = 0


@dataclass(frozen=True, slots=True)
class SourceFunction:
    """Function number `part` of tree number `tree`; part 0 is the tree itself."""

    tree: int
    part: int
    lines: tuple[SourceLine, ...]


def source_functions(
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
    """Every tree as functions of nested tests, a called one before its callers.

    Parameters
    ----------
    columns : sequence of Code
        Identifier of each input column.
    deepest : int
        Most levels of tests in one function.
    thresholds : callable, optional
        What rows are compared with in each node, as literals; default: doubles,
        for rows that nobody rounded.
    most : int, optional
        Most tests in one function.
    indent, outer : str, int
        One level of indentation, and how many there are around a function's body.
    """
    made: list[SourceFunction] = []
    for number, tree in enumerate(trees):
        literals = _doubles(tree, schema) if thresholds is None else thresholds(tree)
        writer = _Writer(
            *(number, tree, schema, leaves, columns, derived, literals),
            indent=indent,
            outer=outer,
        )
        parts = enumerate(nested(tree, deepest, most))
        functions = [SourceFunction(number, part, writer.lines(nest)) for part, nest in parts]
        made += reversed(functions)
    return made


def _doubles(tree: LoweredTree, schema: Schema) -> list[Code]:
    return [float_literal(t) for t in plain_thresholds(tree, schema).tolist()]


class _Writer:
    """Turns the nested lines of one tree into source lines."""

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

    def lines(self, nest: list[Line]) -> tuple[SourceLine, ...]:
        body = Code(self.indent * self.outer)
        unused = [SourceLine("unused", body)] if nest[0].op == "leaf" else []
        return (*unused, *map(self._line, nest))

    def _line(self, line: Line) -> SourceLine:
        indent = Code(self.indent * (line.depth + self.outer))
        if line.op == "test":
            return self._test(line.at, indent)
        if line.op == "leaf":
            vector = int(self.leaves.row[self.tree.leaf[line.at]])
            return SourceLine("leaf", indent, at=vector)
        return SourceLine(line.op, indent, tree=self.number, at=line.at)

    def _test(self, node: int, indent: Code) -> SourceLine:
        feature = int(self.tree.feature[node])
        if feature >= self.schema.n_features:
            return self._derived(node, feature - self.schema.n_features, indent)
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

    def _derived(self, node: int, number: int, indent: Code) -> SourceLine:
        """A question to a derived column: a short sum is written out, others are called."""
        side = "missing_yes" if self.tree.missing_yes[node] else "missing_no"
        terms = inline_terms(self.derived, number, self.columns)
        if terms is None:
            told = words(self.derived, number, self.columns)
            return SourceLine(f"derived_{side}", indent, words=told, at=number)
        threshold = self.derived.threshold[self.derived.test_start[number]]
        return SourceLine(f"sum_{side}", indent, value=float_literal(threshold), terms=terms)
