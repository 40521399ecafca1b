"""Rules as one SQL query: cells are read once, then a CASE has one WHEN for each rule."""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from treekit.documents.layout import decode_numbers
from treekit.errors import SettingError
from treekit.model.model import predict_labels
from treekit.rules.language import Language, load_phrases
from treekit.rules.rule_list import Clause, ConditionTuple, LinearClause, RuleList
from treekit.rules.wording import OutcomeFormatter, format_numbers, join_outcomes, quote_label
from treekit_sql.conditions import (
    make_category_sides,
    make_category_test,
    make_interval_test,
    make_threshold_sides,
    write_threshold,
)
from treekit_sql.dialects import DIALECTS, Dialect
from treekit_sql.inputs import (
    check_names,
    is_checked,
    list_refusals,
    make_prediction_names,
    parse_keys,
)
from treekit_sql.layout import (
    ReviewedQuery,
    When,
    chain_conditions,
    format_comment,
    make_end_comment,
)
from treekit_sql.syntax import (
    HEADER_PREFIX,
    Operand,
    Sql,
    as_sql,
    combine,
    make_binary,
    make_call,
    make_membership_test,
    make_null_test,
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
    query = _RuleQuery(rules, DIALECTS[dialect], parse_keys(keys), words, text=text)
    answered = rules.n_trees == 1 and not rules.margins and rules.link == "identity"
    each = each or rules.mass > 1
    shares = answered and not each and not rules.decisions and rules.schema.task != "regression"
    if share and not shares:
        raise SettingError(
            "share=True needs a query for the labels of one tree, with the shares of its leaves; "
            "leave it out, or export the model to sql"
        )
    yield format_comment(words.say("sql_head", engine=query.dialect.title, table=TABLE_NAME))
    if rules.unknown != "error" and any(c.kind == "nominal" for c in rules.schema.columns):
        yield format_comment(words.say("sql_unseen"))
    yield format_comment(words.say("sql_text" if text else "sql_typed"))
    yield format_comment(words.say("sql_each" if each else "sql_case"))
    if answered and not each:
        told = {"dialect": dialect, "form": "shares" if share else "labels", "table": TABLE_NAME}
        told |= {} if text else {"text": "no"}
        yield f"{HEADER_PREFIX}{json.dumps(told | {'keys': query.keys, 'rule': rule})}\n"
    if each:
        yield from query.render_each()
    elif answered:
        yield query.render_answers(rule=rule, share=share)
    else:
        yield from query.render_numbers()


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


class _RuleQuery(ReviewedQuery):
    """Queries for one rule list in one dialect.

    All read the table in steps: ``cells``, and ``checked`` if there are refused rows or tests.
    """

    def __init__(
        self,
        rules: RuleList,
        dialect: Dialect,
        keys: Sequence[str],
        words: Language,
        *,
        text: bool,
    ) -> None:
        check_names(rules.schema.names, "the column name", dialect)
        check_names(keys, "the key column", dialect)
        super().__init__(rules.schema, dialect, keys)
        self.rules, self.words, self.text = rules, words, text
        self.cells += [as_sql(self.make_name(f"test_{k + 1}")) for k in range(len(rules.tests))]
        self.values = RuleValues(rules)
        self.print_values = cache(self._print_values)
        self.list_categories = cache(self._list_categories)
        self.write_threshold = cache(
            partial(write_threshold, dtype=rules.schema.dtype, dialect=dialect)
        )
        self._add_steps()

    def _add_steps(self) -> None:
        """Add the steps that read the cells and compute the tests and the refused rows."""
        rules, n_features = self.rules, self.schema.n_features
        tests = [number - n_features for number in self.values.full if number >= n_features]
        used = {number for number in self.values.full if number < n_features}
        for clause in itertools.chain.from_iterable(rules.tests[test] for test in tests):
            used.update(clause.features if isinstance(clause, LinearClause) else (clause.feature,))
        used.update(f for f in range(n_features) if is_checked(rules, f))
        self.read_cells(sorted(used), [TABLE_NAME], text=self.text)
        checked = {
            self.print_sql(self.cells[n_features + test]): [self.print_sql(self._make_side(test))]
            for test in tests
        }
        refusals = [test for feature in sorted(used) for test in self._list_refusals(feature)]
        if refusals:
            tested = [self.refusal] if self.refusal else []
            tested += map(self.print_sql, refusals)
            parts = chain_conditions(tested, "OR")
            name = self.make_name("refused")
            checked[name] = ["CASE WHEN", *parts, "THEN 1 ELSE 0 END"]
            self.refusal, self.acceptance = f"{name} = 1", f"{name} = 0"
        if checked:
            self.add_step("checked", {"": ["cells.*"], **checked}, once=True)

    def _list_categories(self, number: int) -> list[Operand]:
        """Return the categories of a column, or the two results of a test."""
        if number >= self.schema.n_features:
            return [0, 1]
        return [*map(self.dialect.make_text, self.schema.columns[number].levels)]

    def _list_refusals(self, feature: int) -> list[Sql]:
        """Return the conditions of a column under which a row is refused."""
        rules, cell, unseen = self.rules, self.cells[feature], None
        if "error" in (rules.unknown, rules.missing):
            unseen = make_category_test(cell, self.list_categories(feature), outside=True)
            mark = self.dialect.is_missing_marker(cell, self.schema.missing_marks)
            if rules.missing != "error" and mark is not None:
                unseen = make_binary(exp.And, unseen, exp.Not(this=mark))
        is_text = self.dialect.is_not_number(cell) if self.text else None
        return [test for test, _ in list_refusals(rules, feature, cell, unseen, is_text)]

    def _make_side(self, test: int) -> Sql:
        """Build the result of a test, 0 or 1: that of the first clause that is not NULL."""
        clauses = [self._make_clause(clause, test) for clause in self.rules.tests[test]]
        return clauses[0] if len(clauses) == 1 else make_call("COALESCE", *clauses)

    def _make_clause(self, clause: Clause, test: int) -> Sql:
        """Build 0 where a clause holds, 1 where it fails, NULL if its value is unknown."""
        if not isinstance(clause, LinearClause):
            categories = self.list_categories(clause.feature)
            return make_category_sides(self.cells[clause.feature], categories, clause.branches)
        if clause.weights != (1.0,):
            raise SettingError(
                f"test {test + 1} of the rules sums columns, which an SQL predicate cannot "
                "compute exactly; write form 'text', or export the model to sql"
            )
        bound = self.write_threshold(clause.threshold)
        return make_threshold_sides(
            self.cells[clause.features[0]], bound, clause.below, 1 - clause.below
        )

    def _print_values(self, number: int, own: int, allowed: int, needed: int) -> tuple[str, str]:
        """Print the condition of a column, as it stands alone, and beside others in an AND."""
        test = self._make_values_test(number, own, allowed, needed)
        text = self.print_sql(test)
        return text, f"({text})" if isinstance(test, exp.Or) else text

    def _make_values_test(self, number: int, own: int, allowed: int, needed: int) -> Sql:
        """Build a condition that accepts the values `needed`, and others only if `allowed`."""
        cell, gone = self.cells[number], self.values.get_missing_bit(number)
        denied, or_missing = (gone - 1) & ~allowed, bool(needed & gone)
        if number not in self.values.bounds:
            names = self.list_categories(number)
            taken, others = (
                [name for code, name in enumerate(names) if codes >> code & 1]
                for codes in (needed & (gone - 1), denied)
            )
            outside = make_category_test(cell, others, outside=True, or_missing=or_missing)
            if or_missing:
                return outside
            inside = make_category_test(cell, taken)
            both = [inside, outside] if denied and allowed & gone else [inside]
            return min(both, key=lambda test: len(self.print_sql(test)))
        known = own & (gone - 1)
        if not known:
            return make_null_test(cell) if own & gone else combine(exp.EQ, 1, 0)
        bounds, begin, end = self.values.bounds[number], (known & -known).bit_length() - 1, known
        above = denied & ((1 << begin) - 1) and self.write_threshold(bounds[begin - 1])
        upto = denied >> end.bit_length() and self.write_threshold(bounds[end.bit_length() - 1])
        return make_interval_test(cell, above or None, upto or None, or_missing=or_missing)

    # ------------------------------------------------------------ queries

    def render_answers(self, *, rule: bool, share: bool) -> str:
        """Return the query for the labels, or numbers, of one tree."""
        rules, schema, cast = self.rules, self.schema, self.dialect.double_cast
        labels, shares = make_prediction_names(
            schema, "prediction", "probability", self.keys, self.dialect
        )
        names = [*labels, *(shares if share else ()), *(["rule"] if rule else ())]
        check_names([*self.keys, *names], "the answer column", self.dialect)
        answers: list[list[str]] = []
        for k, (first, last) in enumerate(itertools.pairwise(schema.blocks)):
            if schema.task == "regression":
                answers.append([*map(self.print_number, decode_numbers(rules)[:, k].tolist())])
                continue
            texts = [self.print_sql(self.dialect.make_label(x)) for x in schema.outputs[k].classes]
            codes = predict_labels(rules.units[:, first:last], rules.costs).tolist()
            answers.append([texts[code] for code in codes])
        if len(answers) == 1 and not rule and not share:
            comments = [
                self.words.say("sql_when", number=k, support=support)
                for k, support in enumerate(format_numbers(rules.support), 1)
            ]
            cases = [self.format_case(self._make_whens(0, len(rules), answers[0], comments), "  ")]
        else:
            name = self.make_name("rule")
            whens = self._make_whens(0, len(rules), *self._number_rules())
            matched = {own: [own] for own in self.key_names}
            self.add_step(
                "matched", {**matched, name: [self.format_case(whens, "    ")]}, once=True
            )
            cases = [self._look_up(name, own) for own in answers]
        if schema.task == "regression":
            cases = [case.join(cast) for case in cases]
        if share:
            for own in (rules.units.T / float(rules.units_each)).tolist():
                cases.append(self._look_up(name, [*map(self.print_number, own)]).join(cast))
        cases += [name] if rule else []
        return f"{self.write(zip(cases, names, strict=True))};\n"

    def _look_up(self, name: str, values: Sequence[str]) -> str:
        """Return the CASE that gives each rule its value."""
        numbers: dict[str, list[Operand]] = {}
        for k, value in enumerate(values, 1):
            numbers.setdefault(value, []).append(k)
        whens = [
            When([self.print_sql(make_membership_test(name, own))], value)
            for value, own in numbers.items()
        ]
        return self.format_case(whens, "  ")

    def _number_rules(self) -> tuple[list[str], list[str]]:
        """Return the number of each rule, and its comment."""
        answers = _format_outcomes(self.rules, self.words)
        texts = zip(answers, format_numbers(self.rules.support), strict=True)
        comments = [
            self.words.say("sql_rule", number=k, answer=answer, support=support)
            for k, (answer, support) in enumerate(texts, 1)
        ]
        return [str(k + 1) for k in range(len(self.rules))], comments

    def render_numbers(self) -> Iterator[str]:
        """Yield queries for the number of the rule that a row matches, in each tree."""
        rules, texts = self.rules, self._number_rules()
        trees, first = np.unique(rules.tree, return_index=True)
        parts = list(itertools.pairwise([*first.tolist(), len(rules)]))
        names = [f"rule_{tree + 1}" if rules.n_trees > 1 else "rule" for tree in trees.tolist()]
        check_names([*self.keys, *names], "the answer column", self.dialect)
        for k in range(0, len(parts), _MAX_COLUMNS):
            own = slice(k, k + _MAX_COLUMNS)
            cases = [self.format_case(self._make_whens(*part, *texts), "  ") for part in parts[own]]
            yield f"{self.write(zip(cases, names[own], strict=True))};\n"

    def render_each(self) -> Iterator[str]:
        """Yield queries with a column for each rule: 1 where a row meets its conditions."""
        comments = self._number_rules()[1]
        names = [f"rule_{k}" for k in range(1, len(comments) + 1)]
        check_names([*self.keys, *names], "the answer column", self.dialect)
        accepted = [self.acceptance] if self.acceptance else []
        for first in range(0, len(names), _MAX_COLUMNS):
            own, columns = slice(first, first + _MAX_COLUMNS), []
            for box, comment in zip(self.values.iterate_boxes(own), comments[own], strict=True):
                printed = [self.print_values(*values)[1] for values in self.values.list_values(box)]
                tested = chain_conditions([*accepted, *printed] or ["1 = 1"], "AND")
                case = self.wrap(["CASE WHEN", *tested, "THEN 1 ELSE 0 END"], "  ")
                columns.append(f"{make_end_comment(comment)}\n{case}")
            yield f"{self.write(zip(columns, names[own], strict=True))};\n"

    def _make_whens(
        self, first: int, end: int, values: Sequence[str], comments: Sequence[str]
    ) -> Iterator[When]:
        """Yield the branches of the CASE over the rules from `first` to `end`."""
        if self.refusal:
            yield When([self.refusal], "NULL")
        boxes = list(self.values.iterate_boxes(slice(first, end)))
        for k, found in enumerate(self.values.iterate_in_order(boxes), first):
            printed = [self.print_values(*own) for own in found]
            yield When([pair[len(printed) > 1] for pair in printed], values[k], comments[k])


# ---------------------------------------------------------------- sql values
# A condition is a set of values, as the bits of an integer: the intervals between the thresholds
# of a column, its categories, or the two results of a test; then a bit for missing values.

_MAX_SHORTENED = 100  # rules that a person reads
_MAX_STEPS = 2000

Box = dict[int, int]
"""Values that a rule accepts, for each of its columns."""

Values = tuple[int, int, int, int]
"""Column, the values that its rule accepts, those that its condition may, and those it must."""


class RuleValues:
    """Values that the rules of a list accept.

    Attributes
    ----------
    bounds : dict of int to list of float
        Thresholds of each column of numbers, ascending.
    full : Box
        All values of each column.
    """

    def __init__(self, rules: RuleList) -> None:
        self.rules = rules
        self.bounds: dict[int, list[float]] = {}
        self.full: Box = {}
        table, columns = rules.conditions, rules.schema.columns
        for number in np.unique(table.column).tolist():
            n = 2
            if number < len(columns) and columns[number].kind == "numeric":
                rows = table.column == number
                values = np.unique(np.concatenate([table.low[rows], table.high[rows]]))
                self.bounds[number] = values[np.isfinite(values)].tolist()
                n = len(self.bounds[number]) + 1
            elif number < len(columns):
                n = len(columns[number].levels)
            self.full[number] = (1 << (n + 1)) - 1

    def get_missing_bit(self, number: int) -> int:
        """Return the bit of missing values of a column."""
        return (self.full[number] + 1) >> 1

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
        gone, values = self.get_missing_bit(number), 0
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

    def list_values(self, box: Box) -> list[Values]:
        """Return the conditions of a rule."""
        return [(number, own, own, own) for number, own in box.items() if own != self.full[number]]

    def iterate_in_order(self, boxes: Sequence[Box]) -> Iterator[list[Values]]:
        """Yield the conditions of each rule for rows that match none of the rules before.

        Values with which a row would have matched a rule before may be accepted or not: what
        is shorter.
        """
        if len(self.rules) > _MAX_SHORTENED:
            yield from map(self.list_values, boxes)
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
                    parts.append((number, own, own | free, own & ~free or own))
            yield parts


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
