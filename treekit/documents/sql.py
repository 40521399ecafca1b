"""Rules as SQL: the rule that matches a row, and a query for the rows of each rule."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from treekit.errors import MissingExtraError, SettingError

try:
    from sqlglot import exp
except ImportError as missing:
    raise MissingExtraError("sqlglot", "sql") from missing

from treekit.data.features import LevelIndex
from treekit.documents.layout import decode_numbers
from treekit.export.sql.dialects import BLANKS, Dialect, DuckDB, SQLite
from treekit.export.sql.inputs import check_names
from treekit.export.sql.syntax import (
    Sql,
    make_call,
    make_cast,
    make_membership_test,
    quote_identifier,
)
from treekit.model.fixed_point import to_double_threshold
from treekit.rules.language import Language
from treekit.rules.rule_list import Clause, LinearClause, RuleList
from treekit.rules.wording import OutcomeFormatter, format_numbers, join_outcomes, quote_label

if TYPE_CHECKING:
    from treekit.documents import Listing


# ---------------------------------------------------------------- sql

TABLE_NAME = "rows"


def render_sql(listing: Listing, dialect: str = "sqlite") -> Iterator[str]:
    """Return a query for rule numbers (from 1), then one query per rule, in pieces.

    Fractional instances may match several rules of a tree; they get no query for rule numbers.
    """
    rules, language = listing.rules, listing.language
    source = f'FROM "{TABLE_NAME}" AS {ALIAS}'
    title = DIALECTS[dialect].title
    yield format_comment(language.say("sql_head", engine=title, table=TABLE_NAME)) + "\n"
    too_many = rules.n_trees + rules.schema.n_features > DIALECTS[dialect].max_result_columns
    if rules.mass > 1 or too_many:
        yield format_comment(language.say("sql_divided" if rules.mass > 1 else "sql_trees"))
    else:
        yield from _render_rule_numbers(rules, render_predicates(rules, dialect), source, ALIAS)
    yield "\n" + format_comment(language.say(f"sql_each_{rules.order}")) + "\n"
    for head, predicate in zip(
        _render_rule_comments(rules, language), render_predicates(rules, dialect), strict=True
    ):
        yield f"{head}SELECT {ALIAS}.* {source}\nWHERE {predicate};\n\n"


def _render_rule_numbers(
    rules: RuleList, found: Iterator[str], source: str, alias: str
) -> Iterator[str]:
    """Yield a query for the number of the rule that each row matches, in each tree."""
    yield f"SELECT {alias}.*"
    for tree, own in itertools.groupby(
        zip(rules.tree.tolist(), range(1, len(rules) + 1), found, strict=True), lambda rule: rule[0]
    ):
        yield ",\n  CASE\n"
        for _, number, predicate in own:
            yield f"    WHEN {predicate} THEN {number}\n"
        yield "  END AS rule" + (f"_{tree + 1}" if rules.n_trees > 1 else "")
    yield f"\n{source};\n"


def _render_rule_comments(rules: RuleList, words: Language) -> Iterator[str]:
    """Yield a comment for each rule."""
    texts = zip(_format_outcomes(rules, words), format_numbers(rules.support), strict=True)
    for number, (answer, support) in enumerate(texts, 1):
        yield format_comment(words.say("sql_rule", number=number, answer=answer, support=support))


def _format_outcomes(rules: RuleList, words: Language) -> Iterator[str]:
    """Yield the outcome of each rule in one line of printable text, with unsafe names quoted."""
    name = partial(quote_label, words=words)
    if rules.margins:  # of all classes
        pairs = zip(rules.schema.classes, decode_numbers(rules).T, strict=True)
        columns = [[f"{name(label)}: {x}" for x in format_numbers(own)] for label, own in pairs]
        yield from map(", ".join, zip(*columns, strict=True))
        return
    for outcomes in OutcomeFormatter(rules, words, name, "").format_outcomes(0, len(rules)):
        yield join_outcomes(outcomes, ", ")


def format_comment(text: str) -> str:
    """Return comment lines; each line of the text is commented out."""
    return "".join(f"-- {line}\n" for line in text.splitlines())


# ---------------------------------------------------------------- sql predicates
# Each rule as one SQL condition on the columns of a table.
#
# `treekit.export.sql` defines missing cells, unseen categories and numbers of the input
# type; sqlglot prints each distinct piece once, and rules are composed of the pieces.

ALIAS = "t"
"""Alias of the table in predicates."""

DIALECTS: dict[str, Dialect] = {d.name: d for d in (SQLite(), DuckDB(), Dialect())}

_MAX_CHAIN = 32  # terms of one AND; SQLite limits nesting to 1,000
_NUMBER_TYPES = ("integer", "real")


def render_predicates(rules: RuleList, dialect: str = "sqlite") -> Iterator[str]:
    """Yield, for each rule, a condition that is TRUE for the rows that match it.

    For other rows it is FALSE or NULL, which WHERE and CASE treat alike.  Rows that the policies
    refuse match no rule.  Fractional instances match several rules; in an ordered list the first
    match counts.

    Parameters
    ----------
    rules : RuleList
    dialect : {"sqlite", "duckdb", "postgres"}

    Raises
    ------
    SettingError
        For a test on a sum of columns, which a predicate cannot compute exactly.
    ExportError
        If the engine does not support a name or a text.
    """
    engine = DIALECTS[dialect]
    check_names(rules.schema.names, "the column name", engine)
    made = _ConditionPrinter(rules, engine)
    refusals = made.list_refusals()
    table = rules.conditions
    fields = (table.column, table.low, table.high, table.known, table.missing)
    conditions = enumerate(zip(*(field.tolist() for field in fields), strict=True))
    for size in np.diff(rules.end, prepend=0).tolist():
        parts = list(refusals)
        for number, condition in itertools.islice(conditions, size):
            parts += made.print_condition(number, *condition)
        yield join_conditions(parts)


def join_conditions(parts: Sequence[str]) -> str:
    """Return the conjunction of conditions, each of which binds more tightly than AND."""
    if len(parts) <= _MAX_CHAIN:
        return " AND ".join(parts) or "1 = 1"
    groups = [parts[i : i + _MAX_CHAIN] for i in range(0, len(parts), _MAX_CHAIN)]
    return join_conditions([f"({' AND '.join(group)})" for group in groups])


class _ConditionPrinter:
    """Printer of one rule list's conditions in one dialect; repeated parts are cached."""

    def __init__(self, rules: RuleList, dialect: Dialect) -> None:
        self.rules, self.dialect = rules, dialect
        self.numeric_cells: dict[int, tuple[str, str, str]] = {}
        self.nominal_cells: dict[int, tuple[str, list[str]]] = {}
        self.bound_texts: dict[float, str] = {}
        self.condition_parts: dict[tuple[int, float, float, bool, bool], list[str]] = {}

    def print_expression(self, value: Sql) -> str:
        """Return an expression in the engine's dialect."""
        return value.sql(dialect=self.dialect.name, comments=False, copy=False)

    def print_condition(
        self, at: int, number: int, low: float, high: float, known: bool, missing: bool
    ) -> list[str]:
        """Return the parts of condition `at`, all of which must hold."""
        schema = self.rules.schema
        if number < schema.n_features and schema.columns[number].kind == "nominal":
            return [self._print_levels(at, number, missing)]
        key = (number, low, high, known, missing)
        if key not in self.condition_parts:
            made = self._print_interval if number < schema.n_features else self._print_test
            self.condition_parts[key] = made(number, low, high, known, missing)
        return self.condition_parts[key]

    def list_refusals(self) -> list[str]:
        """Return conditions that hold for the rows that the policies accept."""
        rules, found = self.rules, []
        for number, column in enumerate(rules.schema.columns):
            if column.kind == "numeric":
                if rules.missing == "error":
                    found.append(self.print_numeric_cell(number)[1])
                continue
            if rules.missing != "error" and rules.unknown != "error":
                continue
            text, levels = self.print_nominal_cell(number)
            parts = [_format_membership(text, levels)] if levels else []
            if rules.missing != "error":
                parts = [f"{text} IS NULL", *parts]
                cell, marks = self.make_column(number), rules.schema.missing_marks
                if (mark := self.dialect.is_missing_marker(cell, marks)) is not None:
                    parts.append(self.print_expression(mark))
            found.append(f"({' OR '.join(parts or ['1 = 0'])})")
        return found

    def make_column(self, number: int) -> Sql:
        """Return a column of the table as an expression."""
        return exp.Column(
            this=quote_identifier(self.rules.schema.names[number]),
            table=exp.Identifier(this=ALIAS, quoted=False),
        )

    def print_numeric_cell(self, number: int) -> tuple[str, str, str]:
        """Return SQL for the number in a cell, for a test of a known value and of a missing one."""
        if number not in self.numeric_cells:
            sqlite = self.dialect.name == "sqlite"
            made = self._print_sqlite_cell if sqlite else self._print_typed_cell
            self.numeric_cells[number] = made(number)
        return self.numeric_cells[number]

    def _print_sqlite_cell(self, number: int) -> tuple[str, str, str]:
        raw = self.make_column(number)
        kinds = [exp.Literal.string(kind) for kind in _NUMBER_TYPES]
        known = self.print_expression(make_membership_test(make_call("TYPEOF", raw.copy()), kinds))
        gone = f"{self.print_expression(raw)} IS NULL"
        marks = self.rules.schema.missing_marks
        if marks:
            blanks = make_call("CHAR", *map(ord, BLANKS))
            stripped = make_call("TRIM", make_cast(raw.copy(), "TEXT"), blanks)
            texts = [self.dialect.make_text(mark) for mark in marks]
            marked = self.print_expression(make_membership_test(stripped, texts))
            gone = f"({gone} OR NOT {known} AND {marked})"
        return self.print_expression(make_cast(raw.copy(), "DOUBLE")), known, gone

    def _print_typed_cell(self, number: int) -> tuple[str, str, str]:
        value = self.print_expression(make_cast(self.make_column(number), "DOUBLE"))
        real = self.print_expression(self.dialect.convert_to_number(self.make_column(number), ()))
        return value, f"{real} IS NOT NULL", f"{real} IS NULL"

    def print_nominal_cell(self, number: int) -> tuple[str, list[str]]:
        """Return the text of a nominal cell, and the categories as literals."""
        if number not in self.nominal_cells:
            levels = self.rules.schema.columns[number].levels
            index = LevelIndex(levels, self.rules.schema.missing_marks)
            cell = self.dialect.convert_to_text(self.make_column(number), index)
            literals = [self.print_expression(self.dialect.make_text(level)) for level in levels]
            self.nominal_cells[number] = self.print_expression(cell), literals
        return self.nominal_cells[number]

    def print_bound(self, value: float) -> str:
        """Return the literal of a threshold for doubles, which are not rounded first."""
        if value not in self.bound_texts:
            single = self.rules.schema.dtype == "float32"
            double = float(to_double_threshold(np.float64(value))) if single else value
            self.bound_texts[value] = self.print_expression(self.dialect.make_bound(double))
        return self.bound_texts[value]

    def _print_interval(
        self, number: int, low: float, high: float, known: bool, missing: bool
    ) -> list[str]:
        value, is_known, is_missing = self.print_numeric_cell(number)
        if not known:
            return [is_missing if missing else "1 = 0"]
        parts = []
        # Engines with NaN order it above all numbers; SQLite orders text above numbers.
        if self.dialect.name == "sqlite" or high == np.inf:
            parts.append(is_known)
        if low != -np.inf:
            parts.append(f"{value} > {self.print_bound(low)}")
        if high != np.inf:
            parts.append(f"{value} <= {self.print_bound(high)}")
        return [f"({' AND '.join(parts)} OR {is_missing})"] if missing else parts

    def _print_levels(self, at: int, number: int, missing: bool) -> str:
        text, levels = self.print_nominal_cell(number)
        fits, dividing = self.rules.conditions.list_codes(at)
        accepted = sorted({*fits, *dividing})
        if not missing:
            return _format_membership(text, [levels[code] for code in accepted])
        others = [level for code, level in enumerate(levels) if code not in accepted]
        if not others:
            return "1 = 1"
        return f"({text} IS NULL OR NOT {_format_membership(text, others)})"

    def _print_test(
        self, number: int, low: float, high: float, known: bool, missing: bool
    ) -> list[str]:
        """Return the condition on a test: the first clause whose value is known decides."""
        index = number - self.rules.schema.n_features
        clauses = [self._print_clause(clause, index) for clause in self.rules.tests[index]]
        value = clauses[0] if len(clauses) == 1 else f"COALESCE({', '.join(clauses)})"
        parts = []
        sides = ", ".join(str(side) for side in (0, 1) if low < side <= high)
        if known and sides:
            parts.append(f"{value} IN ({sides})")
        if missing:
            parts.append(f"{value} IS NULL")
        return [f"({' OR '.join(parts)})" if parts else "1 = 0"]

    def _print_clause(self, clause: Clause, index: int) -> str:
        """Return an expression: 0 where a clause holds, 1 where it fails, NULL if unknown."""
        if isinstance(clause, LinearClause):
            if clause.weights != (1.0,):
                raise SettingError(
                    f"test {index + 1} of the rules sums columns, which an SQL predicate cannot "
                    "compute exactly; write form 'text', or export the model to sql"
                )
            value, known, _ = self.print_numeric_cell(clause.features[0])
            inside = f"WHEN {value} <= {self.print_bound(clause.threshold)} THEN {clause.below}"
            return f"CASE WHEN NOT {known} THEN NULL {inside} ELSE {1 - clause.below} END"
        text, levels = self.print_nominal_cell(clause.feature)
        whens = []
        for side in (0, 1):
            own = [x for x, branch in zip(levels, clause.branches, strict=True) if branch == side]
            if own:
                whens.append(f"WHEN {text} IN ({', '.join(own)}) THEN {side}")
        return f"CASE {' '.join(whens)} END" if whens else "CAST(NULL AS INTEGER)"


def _format_membership(text: str, literals: Sequence[str]) -> str:
    if len(literals) < 2:
        return f"{text} = {literals[0]}" if literals else "1 = 0"
    return f"{text} IN ({', '.join(literals)})"
