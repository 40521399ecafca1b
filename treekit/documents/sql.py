"""Rules as SQL: the rule that matches a row, and a query for the rows of each rule."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from treekit.errors import MissingExtraError, SettingError

try:
    from sqlglot import exp
except ImportError as missing:
    raise MissingExtraError("sqlglot", "sql") from missing

from treekit.data.features import LevelIndex
from treekit.documents.layout import said
from treekit.export.sql.dialects import BLANKS, Dialect, DuckDB, SQLite
from treekit.export.sql.inputs import check_names
from treekit.export.sql.syntax import Sql, call, cast, integer, name_of, one_of
from treekit.model.fixed_point import double_threshold
from treekit.rules.language import Language
from treekit.rules.rule_list import Clause, Linear, RuleList
from treekit.rules.wording import numerals

if TYPE_CHECKING:
    from treekit.documents import Listing

__all__ = [
    "ALIAS",
    "DIALECTS",
    "branch_value",
    "comment",
    "predicates",
    "sql_pieces",
]


# ---------------------------------------------------------------- sql

TABLE = "rows"


def sql_pieces(listing: Listing, dialect: str = "sqlite") -> Iterator[str]:
    """Return a query for rule numbers (from 1), then one query per rule, in pieces.

    Fractional instances may match several rules of a tree; they get no query for rule numbers.
    """
    rules, language = listing.rules, listing.language
    source = f'FROM "{TABLE}" AS {ALIAS}'
    title = DIALECTS[dialect].title
    yield comment(language.say("sql_head", engine=title, table=TABLE)) + "\n"
    too_many = rules.n_trees + rules.schema.n_features > DIALECTS[dialect].most_answers
    if rules.mass > 1 or too_many:
        yield comment(language.say("sql_divided" if rules.mass > 1 else "sql_trees"))
    else:
        yield from _numbered(rules, predicates(rules, dialect), source, ALIAS)
    yield "\n" + comment(language.say(f"sql_each_{rules.order}")) + "\n"
    for head, predicate in zip(_heads(rules, language), predicates(rules, dialect), strict=True):
        yield f"{head}SELECT {ALIAS}.* {source}\nWHERE {predicate};\n\n"


def _numbered(rules: RuleList, found: Iterator[str], source: str, alias: str) -> Iterator[str]:
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


def _heads(rules: RuleList, language: Language) -> Iterator[str]:
    """Yield a comment for each rule."""
    texts = zip(said(rules, language), numerals(rules.support), strict=True)
    for number, (answer, support) in enumerate(texts, 1):
        yield comment(language.say("sql_rule", number=str(number), answer=answer, support=support))


def comment(text: str) -> str:
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

_CHAIN = 32  # terms of one AND; SQLite limits nesting to 1,000
_NUMBERS = ("integer", "real")


def predicates(rules: RuleList, dialect: str = "sqlite") -> Iterator[str]:
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
    made = _Conditions(rules, engine)
    refusals = made.refusals()
    table, end = rules.conditions, rules.end.tolist()
    plain = zip(
        table.column.tolist(),
        table.low.tolist(),
        table.high.tolist(),
        table.known.tolist(),
        table.missing.tolist(),
        strict=True,
    )
    at = 0
    for stop in end:
        parts = list(refusals)
        for number in range(at, stop):
            parts += made.condition(number, *next(plain))
        at = stop
        yield joined(parts)


def joined(parts: Sequence[str]) -> str:
    """Return the conjunction of conditions, each of which binds more tightly than AND."""
    if len(parts) <= _CHAIN:
        return " AND ".join(parts) or "1 = 1"
    groups = [parts[i : i + _CHAIN] for i in range(0, len(parts), _CHAIN)]
    return joined([f"({' AND '.join(group)})" for group in groups])


class _Conditions:
    """Conditions of one rule list in one dialect; each distinct piece is printed once."""

    def __init__(self, rules: RuleList, dialect: Dialect) -> None:
        self.rules, self.dialect = rules, dialect
        self.cells: dict[int, tuple[str, str, str]] = {}
        self.texts: dict[int, tuple[str, list[str]]] = {}
        self.bounds: dict[float, str] = {}
        self.made: dict[tuple[int, float, float, bool, bool], list[str]] = {}
        bounds = np.unique([rules.conditions.low, rules.conditions.high])
        finite = bounds[np.isfinite(bounds)]
        single = rules.schema.dtype == "float32"
        self.doubles: dict[float, float] = dict(
            zip(finite.tolist(), _doubles(finite, single).tolist(), strict=True)
        )

    def printed(self, value: Sql) -> str:
        """Return an expression in the engine's dialect."""
        return value.sql(dialect=self.dialect.name, comments=False, copy=False)

    def condition(
        self, at: int, number: int, low: float, high: float, known: bool, missing: bool
    ) -> list[str]:
        """Return the parts of condition `at`, all of which must hold."""
        schema = self.rules.schema
        if number < schema.n_features and schema.columns[number].kind == "nominal":
            return [self._levels(at, number, missing)]
        key = (number, low, high, known, missing)
        if key not in self.made:
            made = self._interval if number < schema.n_features else self._test
            self.made[key] = made(number, low, high, known, missing)
        return self.made[key]

    def refusals(self) -> list[str]:
        """Return conditions that hold for the rows that the policies accept."""
        rules, found = self.rules, []
        for number, column in enumerate(rules.schema.columns):
            if column.kind == "numeric":
                if rules.missing == "error":
                    found.append(self.cell(number)[1])
                continue
            if rules.missing != "error" and rules.unknown != "error":
                continue
            text, levels = self.text(number)
            parts = [_in(text, levels)] if levels else []
            if rules.missing != "error":
                parts = [f"{text} IS NULL", *parts]
                mark = self.dialect.is_mark(self.raw(number), rules.schema.missing_marks)
                if mark is not None:
                    parts.append(self.printed(mark))
            found.append(f"({' OR '.join(parts or ['1 = 0'])})")
        return found

    def raw(self, number: int) -> Sql:
        """Return a column of the table as an expression."""
        return exp.Column(
            this=name_of(self.rules.schema.names[number]),
            table=exp.Identifier(this=ALIAS, quoted=False),
        )

    def cell(self, number: int) -> tuple[str, str, str]:
        """Return the number of a numeric cell, and tests whether it is known, and missing."""
        if number not in self.cells:
            made = self._sqlite_cell if self.dialect.name == "sqlite" else self._typed_cell
            self.cells[number] = made(number)
        return self.cells[number]

    def _sqlite_cell(self, number: int) -> tuple[str, str, str]:
        raw = self.raw(number)
        kinds = [exp.Literal.string(kind) for kind in _NUMBERS]
        known = self.printed(one_of(call("TYPEOF", raw.copy()), kinds))
        gone = f"{self.printed(raw)} IS NULL"
        marks = self.rules.schema.missing_marks
        if marks:
            blanks = call("CHAR", *(integer(ord(char)) for char in BLANKS))
            stripped = call("TRIM", cast(raw.copy(), "TEXT"), blanks)
            mark = self.printed(one_of(stripped, [self.dialect.text(m) for m in marks]))
            gone = f"({gone} OR NOT {known} AND {mark})"
        return self.printed(cast(raw.copy(), "DOUBLE")), known, gone

    def _typed_cell(self, number: int) -> tuple[str, str, str]:
        value = self.printed(cast(self.raw(number), "DOUBLE"))
        real = self.printed(self.dialect.as_number(self.raw(number), ()))
        return value, f"{real} IS NOT NULL", f"{real} IS NULL"

    def text(self, number: int) -> tuple[str, list[str]]:
        """Return the text of a nominal cell, and the categories as literals."""
        if number not in self.texts:
            levels = self.rules.schema.columns[number].levels
            index = LevelIndex(levels, self.rules.schema.missing_marks)
            cell = self.printed(self.dialect.as_text(self.raw(number), index))
            self.texts[number] = cell, [self.printed(self.dialect.text(v)) for v in levels]
        return self.texts[number]

    def bound(self, value: float) -> str:
        """Return the literal of a threshold for doubles."""
        double = self.doubles[value]
        if double not in self.bounds:
            self.bounds[double] = self.printed(self.dialect.bound(double))
        return self.bounds[double]

    def _interval(
        self, number: int, low: float, high: float, known: bool, missing: bool
    ) -> list[str]:
        value, is_known, is_missing = self.cell(number)
        if not known:
            return [is_missing if missing else "1 = 0"]
        parts = []
        # Engines with NaN order it above all numbers; SQLite orders text above numbers.
        if self.dialect.name == "sqlite" or high == np.inf:
            parts.append(is_known)
        if low != -np.inf:
            parts.append(f"{value} > {self.bound(low)}")
        if high != np.inf:
            parts.append(f"{value} <= {self.bound(high)}")
        return [f"({' AND '.join(parts)} OR {is_missing})"] if missing else parts

    def _levels(self, at: int, number: int, missing: bool) -> str:
        text, levels = self.text(number)
        fits, dividing = self.rules.conditions.codes(at)
        accepted = {*fits, *dividing}
        if not missing:
            return _in(text, [levels[code] for code in sorted(accepted)]) if accepted else "1 = 0"
        others = [level for code, level in enumerate(levels) if code not in accepted]
        if not others:
            return "1 = 1"
        return f"({text} IS NULL OR NOT {_in(text, others)})"

    def _test(self, number: int, low: float, high: float, known: bool, missing: bool) -> list[str]:
        value = branch_value(self, self.rules, number - self.rules.schema.n_features)
        parts = []
        if known:
            sides = [side for side in (0, 1) if low < side <= high]
            parts = [f"{value} IN ({', '.join(map(str, sides))})"] if sides else []
        if missing:
            parts.append(f"{value} IS NULL")
        return [f"({' OR '.join(parts)})" if parts else "1 = 0"]


def _doubles(values: npt.NDArray[np.float64], single: bool) -> npt.NDArray[np.float64]:
    """Return thresholds that apply to doubles without rounding to the input type first."""
    return double_threshold(values) if single else values


def _in(text: str, literals: Sequence[str]) -> str:
    return f"{text} = {literals[0]}" if len(literals) == 1 else f"{text} IN ({', '.join(literals)})"


# ---------------------------------------------------------------- sql tests
# Tests with surrogate clauses: the first clause whose value is known decides.


class _Cells(Protocol):
    dialect: Dialect

    def cell(self, number: int) -> tuple[str, str, str]: ...
    def text(self, number: int) -> tuple[str, list[str]]: ...
    def printed(self, value: Sql) -> str: ...


def branch_value(cells: _Cells, rules: RuleList, number: int) -> str:
    """Return an expression: 0 where a test holds, 1 where it fails, NULL if all values are unknown.

    Raises
    ------
    SettingError
        If the test sums or weights columns.
    """
    made = [_clause(cells, rules, clause, number) for clause in rules.tests[number]]
    return made[0] if len(made) == 1 else f"COALESCE({', '.join(made)})"


def _clause(cells: _Cells, rules: RuleList, clause: Clause, number: int) -> str:
    if isinstance(clause, Linear):
        if clause.weights != (1.0,):
            raise SettingError(
                f"test {number + 1} of the rules sums columns, which an SQL predicate cannot "
                "compute exactly; write form 'text', or export the model to sql"
            )
        value, known, _ = cells.cell(clause.features[0])
        at = clause.threshold
        if rules.schema.dtype == "float32":
            at = float(double_threshold(np.float64(at)))
        bound = cells.printed(cells.dialect.bound(at))
        inside = f"WHEN {value} <= {bound} THEN {clause.below}"
        return f"CASE WHEN NOT {known} THEN NULL {inside} ELSE {1 - clause.below} END"
    text, levels = cells.text(clause.feature)
    whens = []
    for side in (0, 1):
        own = [
            level for level, branch in zip(levels, clause.branches, strict=True) if branch == side
        ]
        if own:
            whens.append(f"WHEN {text} IN ({', '.join(own)}) THEN {side}")
    return f"CASE {' '.join(whens)} END" if whens else "CAST(NULL AS INTEGER)"
