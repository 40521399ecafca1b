"""Rules as one SQL query: cells are read once, then a CASE has one WHEN for each rule.

`treekit_sql.inputs` defines missing cells, unseen categories and numbers of the input type;
sqlglot prints each distinct piece once, and rules are composed of the pieces.
"""

from __future__ import annotations

import itertools
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from treekit.data.features import LevelIndex
from treekit.documents.layout import decode_numbers
from treekit.errors import SettingError
from treekit.model.fixed_point import to_double_threshold
from treekit.model.model import predict_labels
from treekit.rules.language import Language, load_phrases
from treekit.rules.rule_list import Clause, ConditionTuple, LinearClause, RuleList
from treekit.rules.wording import (
    OutcomeFormatter,
    format_number,
    format_numbers,
    join_outcomes,
    quote_label,
)
from treekit_sql.bounds import write_bound
from treekit_sql.dialects import BLANKS, DIALECTS, Dialect
from treekit_sql.inputs import check_names, make_prediction_names, parse_keys
from treekit_sql.syntax import (
    HEADER_PREFIX,
    Sql,
    make_call,
    make_cast,
    quote_identifier,
)

if TYPE_CHECKING:
    from treekit.documents import Listing


# ---------------------------------------------------------------- sql

TABLE_NAME = "rows"

_MAX_COLUMNS = 100  # of one query: SQLite allows a million bytes


def render_sql(
    listing: Listing,
    dialect: str = "sqlite",
    *,
    keys: str = "",
    rule: bool = False,
    share: bool = False,
    each: bool = False,
    text: bool = True,
) -> Iterator[str]:
    """Return a query for the label, or number, of each row of a table, in pieces.

    Rules of several trees, and of margins, get a query for the number of the rule (from 1) in
    each tree; fractional instances, which may match several rules of a tree, the one of `each`.

    Parameters
    ----------
    listing : Listing
    dialect : {"sqlite", "duckdb", "postgres"}
    keys : str
        Columns of the table to copy: comma-separated names, or a JSON list.
    rule : bool
        Whether to add the number of the rule that a row matches.
    share : bool
        Whether to add the share of each class.
    each : bool
        Whether to write, instead, a column for each rule: 1 where a row meets its conditions.
    text : bool
        Whether columns of numbers may hold text, and those of categories other notations.

    Raises
    ------
    SettingError
        For a test on a sum of columns, which SQL cannot compute exactly, and for `share` without
        the shares of a single tree.
    ExportError
        If the engine does not support a name or a text.
    """
    rules, words = listing.rules, load_phrases(listing.language, "treekit_sql")
    query = _Query(rules, DIALECTS[dialect], parse_keys(keys), text=text)
    answered = rules.n_trees == 1 and not rules.margins and rules.link == "identity"
    each = each or rules.mass > 1
    shares = answered and not each and not rules.decisions and rules.schema.task != "regression"
    if share and not shares:
        raise SettingError(
            "share=True needs a query for the labels of one tree, with the shares of its leaves; "
            "leave it out, or export the model to sql"
        )
    yield format_comment(words.say("sql_head", engine=query.dialect.title, table=TABLE_NAME))
    yield format_comment(words.say("sql_text" if text else "sql_typed"))
    yield format_comment(words.say("sql_each" if each else "sql_case"))
    if answered and not each:
        told = {"dialect": dialect, "form": "shares" if share else "labels", "table": TABLE_NAME}
        told |= {} if text else {"text": "no"}
        yield f"{HEADER_PREFIX}{json.dumps(told | {'keys': query.keys, 'rule': rule})}\n"
    if each:
        yield from query.render_each(words)
    elif answered:
        yield from query.render_answers(words, rule=rule, share=share)
    else:
        yield from query.render_numbers(words)


def format_comment(text: str) -> str:
    """Return comment lines; each line of the text is commented out."""
    return "".join(f"-- {line}\n" for line in text.splitlines())


def _format_outcomes(rules: RuleList, words: Language) -> Iterator[str]:
    """Yield the outcome of each rule in one line of printable text, with unsafe names quoted."""
    if rules.margins:  # of all classes
        labels = [quote_label(label, words) for label in rules.schema.classes]
        pairs = zip(labels, decode_numbers(rules).T, strict=True)
        columns = [[f"{label}: {x}" for x in format_numbers(own)] for label, own in pairs]
        yield from map(", ".join, zip(*columns, strict=True))
        return
    for outcomes in OutcomeFormatter(rules, words, nothing="").format_outcomes(0, len(rules)):
        yield join_outcomes(outcomes, ", ")


# ---------------------------------------------------------------- sql queries


class _Query:
    """Queries for one rule list in one dialect.

    All read the table in steps: ``cells``, and ``checked`` if there are refused rows or tests.
    """

    def __init__(self, rules: RuleList, dialect: Dialect, keys: list[str], *, text: bool) -> None:
        check_names(rules.schema.names, "the column name", dialect)
        check_names(keys, "the key column", dialect)
        self.rules, self.dialect, self.keys = rules, dialect, keys
        self.taken = {name.lower() for name in rules.schema.names}
        self.key_names = [self._make_name(f"key_{k}") for k in range(len(keys))]
        tests = [self._make_name(f"test_{k + 1}") for k in range(len(rules.tests))]
        self.conditions = _ConditionPrinter(rules, dialect, tests, text=text)
        self.refused = ""
        self.steps: list[str] = []
        self._add_steps()

    def _make_name(self, name: str) -> str:
        """Return `name`, with ``_`` appended until no column has it."""
        while name in self.taken:
            name += "_"
        return name

    def _add_steps(self) -> None:
        """Add the steps that read the cells and compute the tests and the refused rows."""
        rules, made = self.rules, self.conditions
        columns = rules.schema.columns
        used = made.tested | {number for number in made.full if number < len(columns)}
        for number, column in enumerate(columns):
            if rules.missing == "error" or (column.kind == "nominal" and rules.unknown == "error"):
                used.add(number)
        cells = [
            f"{made.print_expression(make_raw(key))} AS {name}"
            for key, name in zip(self.keys, self.key_names, strict=True)
        ]
        cells += [f"{made.print_cell(number)} AS {made.names[number]}" for number in sorted(used)]
        self._add_step("cells", cells or ["NULL AS unused"], f'"{TABLE_NAME}" AS t')
        checked = [
            f"{made.print_test(number - len(columns))} AS {made.names[number]}"
            for number in made.full
            if number >= len(columns)
        ]
        refusals = [text for number in sorted(used) for text in made.list_refusals(number)]
        if refusals:
            self.refused = self._make_name("refused")
            tested = " ".join(chain_conditions(refusals, "OR"))
            checked.append(f"CASE WHEN {tested} THEN 1 ELSE 0 END AS {self.refused}")
        if checked:
            self._add_step("checked", ["cells.*", *checked], "cells")

    def _add_step(self, name: str, columns: Sequence[str], source: str) -> None:
        if not self.steps and any(_CHARACTERS in text for text in columns):
            blanks = self.conditions.print_expression(self.dialect.make_characters(BLANKS))
            self.steps.append(wrap_sql([f"blanks AS (SELECT {blanks} AS characters)"], ""))
            source += ", blanks"
        self._append_step(name, ",\n".join(wrap_sql([text], "    ") for text in columns), source)

    def _append_step(self, name: str, body: str, source: str) -> None:
        self.steps.append(f"{name} AS MATERIALIZED (\n  SELECT\n{body}\n  FROM {source}\n)")
        self.source = name

    def _render(self, columns: Iterable[tuple[str, str]]) -> str:
        """Return the query of the steps, and `columns` with their names after the keys."""
        handed = list(zip(self.key_names, self.keys, strict=True))
        entries = []
        for text, name in itertools.chain(handed, columns):
            last = text[text.rfind("\n") + 1 :]
            alias = f"AS {self._quote(name)}"
            fits = len(last) + len(alias) < _LINE_LENGTH - 4
            entries.append(f"  {text} {alias}" if fits else f"  {text}\n    {alias}")
        body = ",\n".join(entries)
        return f"WITH {', '.join(self.steps)}\nSELECT\n{body}\nFROM {self.source};\n"

    def _quote(self, name: str) -> str:
        return self.conditions.print_expression(quote_identifier(name))

    def render_answers(self, words: Language, *, rule: bool, share: bool) -> Iterator[str]:
        """Yield the query for the labels, or numbers, of one tree."""
        rules, schema, number = self.rules, self.rules.schema, self.conditions.print_number
        printed = self.conditions.print_expression
        labels, shares = make_prediction_names(
            schema, "prediction", "probability", self.keys, self.dialect
        )
        names = [*labels, *(shares if share else ()), *(["rule"] if rule else ())]
        check_names([*self.keys, *names], "the answer column", self.dialect)
        convert = self.conditions.print_as_double if schema.task == "regression" else str
        answers: list[list[str]] = []
        for k, block in enumerate(itertools.pairwise(schema.blocks)):
            votes = rules.units[:, slice(*block)]
            if schema.task == "regression":
                answers.append(list(map(number, decode_numbers(rules)[:, k].tolist())))
                continue
            texts = [printed(self.dialect.make_label(x)) for x in schema.outputs[k].classes]
            answers.append([texts[code] for code in predict_labels(votes, rules.costs).tolist()])
        if len(answers) == 1 and not rule and not share:
            comments = [
                words.say("sql_when", number=k, support=support)
                for k, support in enumerate(format_numbers(rules.support), 1)
            ]
            case = self._print_case(0, len(rules), answers[0], comments, "  ")
            yield self._render([(convert(case), labels[0])])
            return
        case = self._print_case(0, len(rules), *self._number_rules(words), "    ")
        name = self._make_name("rule")
        columns = ",\n    ".join([*self.key_names, f"{case} AS {name}"])
        self._append_step("matched", f"    {columns}", self.source)
        made = [convert(_look_up(name, own)) for own in answers]
        if share:
            total = number(float(rules.units_each))
            looked_up = [_look_up(name, list(map(str, own))) for own in rules.units.T.tolist()]
            made += [f"{self.conditions.print_as_double(own)} / {total}" for own in looked_up]
        if rule:
            made.append(name)
        yield self._render(zip(made, names, strict=True))

    def _number_rules(self, words: Language) -> tuple[list[str], list[str]]:
        """Return the number of each rule, and its comment."""
        answers = _format_outcomes(self.rules, words)
        texts = zip(answers, format_numbers(self.rules.support), strict=True)
        comments = [
            words.say("sql_rule", number=k, answer=answer, support=support)
            for k, (answer, support) in enumerate(texts, 1)
        ]
        return [str(k + 1) for k in range(len(self.rules))], comments

    def render_numbers(self, words: Language) -> Iterator[str]:
        """Yield queries for the number of the rule that a row matches, in each tree."""
        rules, texts = self.rules, self._number_rules(words)
        trees, first = np.unique(rules.tree, return_index=True)
        parts = list(itertools.pairwise([*first.tolist(), len(rules)]))
        names = [f"rule_{tree + 1}" if rules.n_trees > 1 else "rule" for tree in trees.tolist()]
        check_names([*self.keys, *names], "the answer column", self.dialect)
        for k in range(0, len(parts), _MAX_COLUMNS):
            own = slice(k, k + _MAX_COLUMNS)
            cases = [self._print_case(*part, *texts, "  ") for part in parts[own]]
            yield self._render(zip(cases, names[own], strict=True))

    def render_each(self, words: Language) -> Iterator[str]:
        """Yield queries with a column for each rule: 1 where a row meets its conditions."""
        comments = self._number_rules(words)[1]
        names = [f"rule_{k}" for k in range(1, len(comments) + 1)]
        check_names([*self.keys, *names], "the answer column", self.dialect)
        refused = [f"{self.refused} = 0"] if self.refused else []
        for first in range(0, len(names), _MAX_COLUMNS):
            own, columns = slice(first, first + _MAX_COLUMNS), []
            for box, comment in zip(self.conditions.iterate_boxes(own), comments[own], strict=True):
                tested = [*refused, *self.conditions.print_box(box)] or ["1 = 1"]
                parts = ["CASE WHEN", *chain_conditions(tested, "AND"), "THEN 1 ELSE 0 END"]
                columns.append(f"{_end_comment(comment)}\n{wrap_sql(parts, '  ')}")
            yield self._render(zip(columns, names[own], strict=True))

    def _print_case(
        self, first: int, end: int, values: Sequence[str], comments: Sequence[str], indent: str
    ) -> str:
        """Return the CASE over the rules from `first` to `end`, with the value of each rule."""
        lines = [f"{indent}  WHEN {self.refused} = 1 THEN NULL"] if self.refused else []
        boxes = self.conditions.iterate_boxes(slice(first, end))
        for k, parts in enumerate(self.conditions.print_in_order(list(boxes)), first):
            if not parts and not lines:
                return values[k]
            whole = chain_conditions(parts, "AND")
            last = f"THEN {values[k]}" if parts else f"ELSE {values[k]}"
            line = wrap_sql(["WHEN", *whole, last] if parts else [last], f"{indent}  ")
            comment = _end_comment(comments[k])
            fits = len(line) - line.rfind("\n") + len(comment) < _LINE_LENGTH
            lines.append(f"{line} {comment}" if fits else f"{line}\n{indent}    {comment}")
            if not parts:
                break
        return "\n".join(["CASE", *lines, f"{indent}END"])


def _end_comment(text: str) -> str:
    """Return a comment at the end of a line."""
    return f"-- {' '.join(text.splitlines())}"


def _look_up(name: str, values: Sequence[str]) -> str:
    """Return the CASE that gives each rule its value."""
    numbers: dict[str, list[str]] = {}
    for k, value in enumerate(values, 1):
        numbers.setdefault(value, []).append(str(k))
    whens = [f"WHEN {_format_membership(name, own)} THEN {value}" for value, own in numbers.items()]
    return wrap_sql(["     CASE", *whens, "END"], "  ").lstrip()  # room for CAST(


_LINE_LENGTH = 118
_PIECES = re.compile(r"""(?:(?:AND|OR|THEN|WHEN) )?(?:'[^']*'|"[^"]*"|[^\s'"])+""")


def wrap_sql(parts: Iterable[str], indent: str) -> str:
    """Return SQL in indented lines, broken between parts, or at spaces outside of names and texts.

    A part that does not fit into a line is broken at its spaces.
    """
    lines, line = [], indent
    for part in parts:
        pieces = [part]
        if len(part) > _LINE_LENGTH - len(indent):
            pieces = _PIECES.findall(part)
        for piece in pieces:
            if line.strip() and len(line) + len(piece) >= _LINE_LENGTH:
                lines.append(line)
                line = f"{indent}  "
            line += f" {piece}" if line.strip() else piece
    return "\n".join([*lines, line])


# ---------------------------------------------------------------- sql conditions
# A condition is a set of values, as the bits of an integer: the intervals between the thresholds
# of a column, its categories, or the two results of a test; then a bit for missing values.

_MAX_CHAIN = 32  # terms of one AND; SQLite limits nesting to 1,000
_MAX_SHORTENED = 100  # rules that a person reads
_MAX_STEPS = 2000
_FAR = 1e300
_CHARACTERS = "blanks.characters"

Box = dict[int, int]
"""Values that a rule accepts, for each of its columns."""


def chain_conditions(parts: Sequence[str], word: str) -> list[str]:
    """Return the terms of ``AND`` or ``OR`` in order, each but the first after the word."""
    while len(parts) > _MAX_CHAIN:
        groups = [parts[i : i + _MAX_CHAIN] for i in range(0, len(parts), _MAX_CHAIN)]
        parts = [f"({f' {word} '.join(group)})" for group in groups]
    return [*parts[:1], *(f"{word} {part}" for part in parts[1:])]


def make_raw(name: str) -> Sql:
    """Return a column of the table as an expression."""
    return exp.Column(this=quote_identifier(name), table=exp.to_identifier("t"))


def is_covered(box: Box, others: Sequence[Box], full: Box) -> bool:
    """Return whether `others` contain all of a box; False if that takes too many steps."""
    pending = [(box, 0)]
    for _ in range(_MAX_STEPS):
        if not pending:
            return True
        box, at = pending.pop()
        while at < len(others) and not _meet(box, others[at], full):
            at += 1
        if at == len(others):
            return False
        for column, values in others[at].items():
            own = box.get(column, full[column])
            if own & ~values:
                pending.append(({**box, column: own & ~values}, at + 1))
            box = {**box, column: own & values}
    return False


def _meet(box: Box, other: Box, full: Box) -> bool:
    return all(box.get(column, full[column]) & values for column, values in other.items())


class _ConditionPrinter:
    """Printer of one rule list's cells, tests and conditions in one dialect."""

    def __init__(
        self, rules: RuleList, dialect: Dialect, tests: Sequence[str], *, text: bool
    ) -> None:
        self.rules, self.dialect, self.text = rules, dialect, text
        self.names = [self.print_expression(quote_identifier(name)) for name in rules.schema.names]
        self.names += tests
        self.levels: dict[int, list[str]] = {}
        self.bounds: dict[int, list[float]] = {}
        self.print_bound = cache(self._print_bound)
        self.full: Box = {}
        table, n_features = rules.conditions, rules.schema.n_features
        for number in np.unique(table.column).tolist():
            if number < n_features and rules.schema.columns[number].kind == "numeric":
                rows = table.column == number
                values = np.unique(np.concatenate([table.low[rows], table.high[rows]]))
                self.bounds[number] = values[np.isfinite(values)].tolist()
                n = len(self.bounds[number]) + 1
            else:
                n = len(self.list_levels(number))
            self.full[number] = (1 << (n + 1)) - 1
        self.tested: set[int] = set()
        for clause in itertools.chain.from_iterable(
            rules.tests[number - n_features] for number in self.full if number >= n_features
        ):
            own = clause.features if isinstance(clause, LinearClause) else (clause.feature,)
            self.tested |= set(own)
        self.replacements = self._choose_replacements()

    def print_expression(self, value: Sql) -> str:
        """Return an expression in the engine's dialect."""
        return value.sql(dialect=self.dialect.name, comments=False, copy=False)

    def print_number(self, number: float) -> str:
        """Return a number, which is a double next to one or in `print_as_double`."""
        return self.print_expression(self.dialect.make_bound(number))

    def print_as_double(self, text: str) -> str:
        """Return an expression converted to a double."""
        return self.print_expression(make_cast("value", "DOUBLE")).replace("value", text, 1)

    # ------------------------------------------------------------ cells and tests

    def _choose_replacements(self) -> dict[int, Sql]:
        """Return the value of missing cells, for columns in which no condition singles them out.

        It is a number below, or above, all thresholds, or a text that is not a category.
        """
        made: dict[int, Sql] = {}
        masks: dict[int, set[int]] = {}
        for box in self.iterate_boxes():
            for number, own in box.items():
                masks.setdefault(number, set()).add(own)
        for number, found in masks.items():
            gone, bounds = (self.full[number] + 1) >> 1, self.bounds.get(number, [])
            if self.rules.missing == "error" or not any(own & gone for own in found):
                continue
            if number in self.levels and self.rules.unknown != "error":
                text = ""
                while text in self.rules.schema.columns[number].levels:
                    text += "?"
                made[number] = exp.Literal.string(text)
            if not bounds or number in self.tested or max(map(abs, bounds)) >= _FAR:
                continue
            for value, bit in ((-_FAR, 1), (_FAR, gone >> 1)):
                if all(bool(own & gone) == bool(own & bit) for own in found):
                    made[number] = exp.Literal.number(repr(value))
        return made

    def list_levels(self, number: int) -> list[str]:
        """Return the categories of a column, or the results of a test, as literals."""
        if number >= self.rules.schema.n_features:
            return ["0", "1"]
        if number not in self.levels:
            levels = self.rules.schema.columns[number].levels
            self.levels[number] = [
                self.print_expression(self.dialect.make_text(level)) for level in levels
            ]
        return self.levels[number]

    def print_cell(self, number: int) -> str:
        """Return the expression of a cell: a double or text; NULL if it is missing."""
        schema, raw = self.rules.schema, make_raw(self.rules.schema.names[number])
        marks, column = schema.missing_marks, schema.columns[number]
        if not self.text:
            return self._print_typed_cell(number, raw)
        if column.kind == "nominal":
            cell = self.dialect.convert_to_text(raw, LevelIndex(column.levels, marks))
            written = cell.this
            if number in self.replacements:
                whole = make_call("COALESCE", written.this, self.replacements[number])
                written.set("this", whole)
            return self.print_expression(written)
        plain = schema.text_format.is_plain
        cell = self.dialect.convert_to_number(raw, schema.number_marks, plain=plain)
        if number in self.replacements:
            cell = make_call("COALESCE", cell, self.replacements[number])
        # The conversions of all columns share the blanks.
        shared = exp.column("characters", table="blanks")
        cell = cell.transform(
            lambda node: shared if isinstance(node, exp.Literal) and node.this == BLANKS else node
        )
        return self.print_expression(cell)

    def _print_typed_cell(self, number: int, raw: Sql) -> str:
        """Return the expression of a cell of a column that holds numbers, or texts, alone."""
        nominal = self.rules.schema.columns[number].kind == "nominal"
        cell = (self.dialect.clean_text if nominal else self.dialect.convert_typed_cell)(raw)
        if number in self.replacements:
            cell = make_call("COALESCE", cell, self.replacements[number])
        return self.print_expression(cell)

    def list_refusals(self, number: int) -> list[str]:
        """Return conditions of the column that hold for the rows that the policies refuse."""
        rules, name, found = self.rules, self.names[number], []
        column = rules.schema.columns[number]
        cell = exp.Column(this=quote_identifier(column.name))
        if column.kind == "numeric":
            if self.text or self.dialect.find_text(cell) is not None:
                found.append(self.print_expression(self.dialect.is_not_number(cell)))
        elif rules.unknown == "error" or rules.missing == "error":
            found.append(_format_membership(name, self.list_levels(number), True))
            mark = self.dialect.is_missing_marker(cell, rules.schema.missing_marks)
            if rules.missing != "error" and mark is not None:
                found = [f"({found[0]} AND NOT {self.print_expression(mark)})"]
        if rules.missing == "error":
            found.append(f"{name} IS NULL")
        return found

    def print_test(self, number: int) -> str:
        """Return the result of a test, 0 or 1: the first clause whose value is known decides."""
        clauses = [self._print_clause(clause, number) for clause in self.rules.tests[number]]
        return clauses[0] if len(clauses) == 1 else f"COALESCE({', '.join(clauses)})"

    def _print_clause(self, clause: Clause, number: int) -> str:
        """Return an expression: 0 where a clause holds, 1 where it fails, NULL if unknown."""
        if isinstance(clause, LinearClause):
            if clause.weights != (1.0,):
                raise SettingError(
                    f"test {number + 1} of the rules sums columns, which an SQL predicate cannot "
                    "compute exactly; write form 'text', or export the model to sql"
                )
            name, bound = self.names[clause.features[0]], self.print_bound(clause.threshold)
            sides = f"{clause.below} WHEN {name} > {bound} THEN {1 - clause.below}"
            return f"CASE WHEN {name} <= {bound} THEN {sides} END"
        name, levels = self.names[clause.feature], self.list_levels(clause.feature)
        whens = []
        for side in (0, 1):
            own = [x for x, branch in zip(levels, clause.branches, strict=True) if branch == side]
            if own:
                whens.append(f"WHEN {_format_membership(name, own)} THEN {side}")
        return f"CASE {' '.join(whens)} END" if whens else "CAST(NULL AS INTEGER)"

    def _print_bound(self, value: float) -> str:
        """Return the literal of a threshold for doubles, which are not rounded first."""
        if self.rules.schema.dtype != "float32":
            return self.print_number(value)
        double = float(to_double_threshold(np.float64(value)))
        return self.print_expression(
            write_bound(format_number(value, "float32"), double, self.dialect)
        )

    # ------------------------------------------------------------ conditions

    def iterate_boxes(self, which: slice = slice(None)) -> Iterator[Box]:
        """Yield the values that each rule accepts, of the rules `which`."""
        sizes = np.diff(self.rules.end, prepend=0)[which].tolist()
        begin = int(self.rules.end[which.start - 1]) if which.start else 0
        found = self.rules.conditions.iterate_conditions(begin, begin + sum(sizes))
        for size in sizes:
            box: Box = {}
            for condition in itertools.islice(found, size):
                number = condition.column
                box[number] = box.get(number, self.full[number]) & self._find_values(condition)
            yield box

    def _find_values(self, condition: ConditionTuple) -> int:
        """Return the values that a condition accepts."""
        number, low, high = condition.column, condition.low, condition.high
        gone, values = (self.full[number] + 1) >> 1, 0
        if number in self.bounds and condition.known:
            bounds = self.bounds[number]
            begin = bisect_right(bounds, low) if low < np.inf else len(bounds) + 1
            end = bisect_left(bounds, high) + 1 if high > -np.inf else 0
            values = ((1 << end) - 1) & -(1 << begin)
        elif number >= self.rules.schema.n_features and condition.known:
            values = sum(1 << side for side in (0, 1) if low < side <= high)
        for code in (*condition.fits, *condition.dividing):
            values |= 1 << code
        return values | gone if condition.missing else values

    def print_box(self, box: Box) -> list[str]:
        """Return the conditions of a rule."""
        return [
            self._print_values(number, own, own, own)
            for number, own in box.items()
            if own != self.full[number]
        ]

    def print_in_order(self, boxes: Sequence[Box]) -> Iterator[list[str]]:
        """Yield the conditions of each rule for rows that match none of the rules before.

        Values with which a row would have matched a rule before may be accepted or not: what
        is shorter.
        """
        if len(self.rules) > _MAX_SHORTENED:
            yield from map(self.print_box, boxes)
            return
        full = self.full
        for k, box in enumerate(boxes):
            parts, wide = [], dict(box)
            for number, own in box.items():
                wide.pop(number)
                near = [other for other in boxes[:k] if _meet(wide, other, full)]
                free = 0
                # Values that are in the same boxes are alike.
                seen: dict[tuple[int, ...], bool] = {(): False}
                for bit in range(full[number].bit_length()):
                    value = 1 << bit
                    own_boxes = tuple(
                        at for at, other in enumerate(near) if other.get(number, value) & value
                    )
                    if own_boxes not in seen:
                        others = [near[at] for at in own_boxes]
                        seen[own_boxes] = is_covered({**wide, number: value}, others, full)
                    free |= value * seen[own_boxes]
                wide[number] = own | free
                if wide[number] != full[number]:
                    parts.append(self._print_values(number, own, own | free, own & ~free))
            yield parts

    def _print_values(self, number: int, own: int, allowed: int, needed: int) -> str:
        """Return a condition that accepts the values `needed`, and others only if `allowed`."""
        name, gone = self.names[number], (self.full[number] + 1) >> 1
        known, needed = gone - 1, needed or own
        denied, or_missing = known & ~allowed, f" OR {name} IS NULL)"
        if number not in self.bounds:
            levels = self.list_levels(number)
            inside, others = (
                _format_membership(
                    name, [x for code, x in enumerate(levels) if codes >> code & 1], negated
                )
                for codes, negated in ((needed & known, False), (denied, True))
            )
            if needed & gone:
                return others if number in self.replacements else f"({others}{or_missing}"
            return min(inside, others, key=len) if denied and allowed & gone else inside
        own_known = own & known
        if not own_known:
            return f"{name} IS NULL" if own & gone else "1 = 0"
        begin, end = (own_known & -own_known).bit_length() - 1, own_known.bit_length()
        parts, bounds = [], self.bounds[number]
        if denied & ((1 << begin) - 1):
            parts.append(f"{name} > {self.print_bound(bounds[begin - 1])}")
        if denied >> end:
            parts.append(f"{name} <= {self.print_bound(bounds[end - 1])}")
        text = " AND ".join(parts) or f"{name} IS NOT NULL"
        wants_missing = needed & gone and number not in self.replacements
        return f"({text}{or_missing}" if wants_missing else text


def _format_membership(name: str, literals: Sequence[str], negated: bool = False) -> str:
    if len(literals) == 1:
        return f"{name} {'<>' if negated else '='} {literals[0]}"
    if not literals:
        return f"{name} IS NOT NULL" if negated else "1 = 0"
    return f"{name} {'NOT ' * negated}IN ({', '.join(literals)})"
