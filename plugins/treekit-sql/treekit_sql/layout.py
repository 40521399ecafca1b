"""Queries for people to review: cells are read, then each column is a CASE in short lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import sqlglot
from sqlglot import exp

from treekit.data.schema import Schema
from treekit.export.literals import BLANKS
from treekit.rules.wording import format_number
from treekit_sql.conditions import write_bound
from treekit_sql.dialects import Dialect
from treekit_sql.inputs import read_cell
from treekit_sql.syntax import Sql, make_table, quote_identifier

# ---------------------------------------------------------------- sql lines

_LINE_LENGTH = 118
_KEYWORDS = frozenset({"AND", "OR", "WHEN", "THEN", "ELSE", "END"})
CASE_START = "CASE\n"
"""Start of a CASE in lines."""

_NEGATIONS: dict[type[Sql], tuple[str, str]] = {
    exp.EQ: ("=", "<>"),
    exp.In: ("IN", "NOT IN"),
    exp.Is: ("IS", "IS NOT"),
}
_MAX_CHAIN = 32  # terms of one AND; SQLite limits nesting to 1,000


def chain_conditions(parts: Sequence[str], word: str) -> list[str]:
    """Return the terms of ``AND`` or ``OR`` in order, each but the first after the word."""
    while len(parts) > _MAX_CHAIN:
        groups = [parts[i : i + _MAX_CHAIN] for i in range(0, len(parts), _MAX_CHAIN)]
        parts = [f"({f' {word} '.join(group)})" for group in groups]
    return [*parts[:1], *(f"{word} {part}" for part in parts[1:])]


def format_comment(text: str) -> str:
    """Return comment lines; each line of the text is commented out."""
    return "".join(f"-- {line}\n" for line in text.splitlines())


def make_end_comment(text: str) -> str:
    """Return a comment at the end of a line."""
    return f"-- {' '.join(text.splitlines())}"


class When(NamedTuple):
    """A branch of a CASE: its conditions, all of which must hold, a value, and a comment.

    Without conditions it is the ELSE.
    """

    conditions: Sequence[str]
    value: str
    comment: str = ""


class ReviewedQuery:
    """Readable query of common table expressions: the cells, and values computed from them.

    Attributes
    ----------
    key_names : list of str
        Names of the keys in the steps.
    refusal, acceptance : str
        Condition under which a row is refused, and its contrary; empty if none is.
    source : str
        Name of the last step.
    """

    def __init__(self, schema: Schema, dialect: Dialect, keys: Sequence[str]) -> None:
        self.schema, self.dialect, self.keys = schema, dialect, keys
        self.taken = {name.lower() for name in schema.names}
        self.key_names = [self.make_name(f"key_{k}") for k in range(len(keys))]
        self.cells = [exp.Column(this=quote_identifier(name)) for name in schema.names]
        self.steps: list[str] = []
        self.source = self.refusal = self.acceptance = ""

    def make_name(self, name: str) -> str:
        """Return `name`, with ``_`` appended until no column has it."""
        while name in self.taken:
            name += "_"
        return name

    # ------------------------------------------------------------ expressions

    def print_sql(self, value: Sql) -> str:
        """Print an expression; in a condition ``<>``, ``NOT IN`` and ``IS NOT NULL`` for NOT."""
        if isinstance(value, (exp.Or, exp.And)):
            word = "OR" if isinstance(value, exp.Or) else "AND"
            return f"{self.print_sql(value.left)} {word} {self.print_sql(value.right)}"
        if isinstance(value, exp.Paren):
            return f"({self.print_sql(value.this)})"
        if isinstance(value, exp.Not):
            word, negated = _NEGATIONS[type(value.this)]
            test = value.this.copy()  # ClickHouse's has parentheses below a NOT
            start = f"{self.print_sql(test.this)} "
            return f"{start}{negated}{self.print_sql(test).removeprefix(start + word)}"
        return value.sql(dialect=self.dialect.name, copy=False)

    def print_name(self, name: str) -> str:
        """Print a quoted name."""
        return self.print_sql(quote_identifier(name))

    def print_number(self, value: float) -> str:
        """Print a probability or number, as a sum if the engine could misread its digits."""
        if self.dialect.reads_exactly(value):
            return self.print_sql(self.dialect.make_result(value))
        return self.print_sql(
            write_bound(format_number(float(f"{value:.7g}")), value, self.dialect)
        )

    # ------------------------------------------------------------ steps

    def read_cells(self, features: Iterable[int], place: Sequence[str], *, text: bool) -> None:
        """Add the step that reads the keys and the cells; see `read_cell`."""
        columns: dict[str, Sql] = dict(
            zip(self.key_names, map(_make_raw_cell, self.keys), strict=True)
        )
        tests = []
        for feature in features:
            column = self.schema.columns[feature]
            raw = _make_raw_cell(column.name)
            cell = read_cell(raw, feature, self.schema, self.dialect, text=text).unnest()
            columns[self.print_name(column.name)] = cell
            test = None if text or column.kind == "nominal" else self.dialect.find_text(raw)
            tests += [] if test is None else [test]
        table = make_table(place)
        # Qualified names: SQLite reads an unknown bare name as text.
        table.set("alias", exp.TableAlias(this=exp.to_identifier("t")))
        source = self.print_sql(table)
        if text and any(list(map(_share_blanks, columns.values()))):
            made = self.print_sql(self.dialect.make_characters(BLANKS))
            self.steps.append(self.wrap([f"blanks AS (SELECT {made} AS characters)"], ""))
            source += ", blanks"
        printed = {name: [self.print_sql(cell)] for name, cell in columns.items()}
        if tests:
            self.refusal = self.make_name("has_text")
            self.acceptance = f"NOT {self.refusal}"
            printed[self.refusal] = chain_conditions(list(map(self.print_sql, tests)), "OR")
        self.add_step("cells", printed or {"unused": ["1"]}, source, once=text)

    def add_step(
        self, name: str, columns: Mapping[str, Sequence[str]], source: str = "", *, once: bool
    ) -> None:
        """Add a step; its columns are given by name, in parts that fit into lines.

        With `once`, it is computed once, not again at each reference.
        """
        lines = []
        for own, parts in columns.items():
            entry = [*parts, f"AS {own}"] if own else parts
            is_case = parts[0].startswith(CASE_START)
            lines.append(f"    {' '.join(entry)}" if is_case else self.wrap(entry, "    "))
        body = ",\n".join(lines)
        kind = " MATERIALIZED" if once else ""
        source = source or self.source
        self.steps.append(f"{name} AS{kind} (\n  SELECT\n{body}\n  FROM {source}\n)")
        self.source = name

    def write(self, columns: Iterable[tuple[str, str]]) -> str:
        """Return the query of the steps, for the keys and `columns` with their names."""
        entries = []
        for value, name in itertools.chain(zip(self.key_names, self.keys, strict=True), columns):
            alias = f"AS {self.print_name(name)}"
            fits = len(value) - value.rfind("\n") + len(alias) < _LINE_LENGTH - 4
            entries.append(f"  {value} {alias}" if fits else f"  {value}\n    {alias}")
        body = ",\n".join(entries)
        return f"WITH {', '.join(self.steps)}\nSELECT\n{body}\nFROM {self.source}"

    # ------------------------------------------------------------ lines

    def format_case(self, whens: Iterable[When], indent: str) -> str:
        """Return a CASE in lines, or the value of an ELSE that is alone.

        Lines after the first begin with the indent.
        """
        lines: list[str] = []
        for conditions, value, comment in whens:
            if not conditions and not lines:
                return value
            nested, end = value.startswith(CASE_START), make_end_comment(comment)
            parts = chain_conditions(conditions, "AND")
            parts[:1] = [f"WHEN {part}" for part in parts[:1]]
            word = "THEN" if conditions else "ELSE"
            line = self.wrap([*parts, word if nested else f"{word} {value}"], f"{indent}  ")
            if nested:
                line += f"\n{indent}    {value}"
            elif comment:
                fits = len(line) - line.rfind("\n") + len(end) < _LINE_LENGTH
                line += f" {end}" if fits else f"\n{indent}    {end}"
            lines.append(line)
            if not conditions:
                break
        return CASE_START + "\n".join([*lines, f"{indent}END"])

    def wrap(self, parts: Iterable[str], indent: str) -> str:
        """Return SQL in indented lines, broken between parts.

        A part that does not fit into a line is broken before keywords and after commas.
        """
        lines, line = [], indent
        for part in parts:
            fits = len(part) <= _LINE_LENGTH - len(indent)
            for piece in [part] if fits else self._split(part):
                if line.strip() and len(line) + len(piece) >= _LINE_LENGTH:
                    lines.append(line)
                    line = f"{indent}  "
                line += f" {piece}" if line.strip() else piece
        return "\n".join([*lines, line])

    def _split(self, part: str) -> list[str]:
        """Split SQL at blanks between tokens: a name or text of the model is never broken."""
        pieces, start, last = [], 0, ""
        for token in sqlglot.Dialect.get_or_raise(self.dialect.name).tokenize(part):
            word = part[token.start : token.end + 1]
            breaks = (word in _KEYWORDS or last == ",") and last not in _KEYWORDS
            if breaks and part[token.start - 1 : token.start] == " ":
                pieces.append(part[start : token.start - 1])
                start = token.start
            last = word
        return [*pieces, part[start:]]


def _make_raw_cell(name: str) -> exp.Column:
    """Return a column of the table, which is named t."""
    return exp.Column(this=quote_identifier(name), table=exp.to_identifier("t"))


def _share_blanks(cell: Sql) -> bool:
    """Read blanks from their own step, wherever a cell has them; return whether it has any."""
    found = [node for node in cell.find_all(exp.Literal) if node.this == BLANKS]
    for node in found:
        node.replace(exp.column("characters", table="blanks"))
    return bool(found)
