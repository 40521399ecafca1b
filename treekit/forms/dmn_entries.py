"""What decision tables say: the entries of rules, tests and refusals in FEEL."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from treekit.errors import SettingError
from treekit.forms.feel import bounds, feel_names, interval, levels_test, string
from treekit.rules.rule_list import Clause, Linear, RuleList

__all__ = ["REFUSED", "Entries"]

REFUSED = "refused"
"""The decision that says whether a policy refuses a row."""


class Entries:
    """The input entries of a list's rules, each distinct one made once.

    Attributes
    ----------
    variables : list of str
        Of the columns, and behind them of the tests.
    """

    def __init__(self, rules: RuleList) -> None:
        self.rules = rules
        n_tests, table = len(rules.tests), rules.conditions
        trees = [f"tree_{tree + 1}" for tree in range(rules.n_trees)]
        tests = [f"test_{test + 1}" for test in range(n_tests)]
        own = {REFUSED, "answer", *trees, *tests}
        self.variables = [*feel_names(rules.schema.names, own), *tests]
        linear = [
            clause.threshold
            for test in rules.tests
            for clause in test
            if isinstance(clause, Linear)
        ]
        self.bounds = bounds(np.concatenate([table.low, table.high, linear]), rules.schema.dtype)
        self.made: dict[tuple[int, float, float, bool, bool], str] = {}
        self.sets: dict[tuple[int, bool, tuple[int, ...]], str] = {}

    def entry(self, at: int) -> tuple[int, str]:
        """The column of condition `at`, and its unary tests."""
        table, schema = self.rules.conditions, self.rules.schema
        number, missing = int(table.column[at]), bool(table.missing[at])
        if number < schema.n_features and schema.columns[number].kind == "nominal":
            fits, _ = table.codes(at)
            wanted = (number, missing, tuple(fits))
            if wanted not in self.sets:
                levels, chosen = schema.columns[number].levels, set(fits)
                others = [level for code, level in enumerate(levels) if code not in chosen]
                own = [levels[code] for code in fits]
                self.sets[wanted] = levels_test(own, others, missing=missing)
            return number, self.sets[wanted]
        low, high, known = float(table.low[at]), float(table.high[at]), bool(table.known[at])
        key = (number, low, high, known, missing)
        if key not in self.made:
            made = self._interval if number < schema.n_features else self._sides
            self.made[key] = made(low, high, known, missing)
        return number, self.made[key]

    def _interval(self, low: float, high: float, known: bool, missing: bool) -> str:
        ends = [self.bounds[end + 0.0] if np.isfinite(end) else None for end in (low, high)]
        return interval(ends[0], ends[1], known=known, missing=missing)

    def _sides(self, low: float, high: float, known: bool, missing: bool) -> str:
        sides = [str(side) for side in (0, 1) if known and low < side <= high]
        return ",".join(["null"] * missing + sides) or "false"

    def test(self, number: int) -> str:
        """An expression: 0 where a test holds, 1 where it fails, null if it is unknown."""
        text = "null"
        for clause in reversed(self.rules.tests[number]):
            text = self._clause(clause, number, text)
        return text

    def _clause(self, clause: Clause, number: int, otherwise: str) -> str:
        if isinstance(clause, Linear):
            if clause.weights != (1.0,):
                raise SettingError(
                    f"test {number + 1} of the rules adds up columns in double precision, which "
                    "FEEL's decimals cannot: write form 'text'"
                )
            variable = self.variables[clause.features[0]]
            decimal, closed = self.bounds[clause.threshold + 0.0]
            compared = f"{variable} {'<=' if closed else '<'} {decimal}"
            known = f"if {compared} then {clause.below} else {1 - clause.below}"
            return f"if {variable} = null then {otherwise} else {known}"
        variable = self.variables[clause.feature]
        levels = self.rules.schema.columns[clause.feature].levels
        for side in (1, 0):
            own = [string(v) for v, b in zip(levels, clause.branches, strict=True) if b == side]
            if own:
                member = f"list contains([{','.join(own)}], {variable})"
                otherwise = f"if {member} then {side} else {otherwise}"
        return otherwise

    def refusals(self) -> str:
        """When a policy refuses a row; nothing if none does."""
        rules, found = self.rules, []
        for column, variable in zip(rules.schema.columns, self.variables, strict=False):
            absent = f"{variable} = null"
            if rules.missing == "error":
                found.append(absent)
            if column.kind == "nominal" and "error" in (rules.missing, rules.unknown):
                known = f"list contains([{','.join(map(string, column.levels))}], {variable})"
                found.append(f"{variable} != null and not({known})")
        return " or ".join(found)

    def asked(self, first: int, last: int) -> list[int]:
        """Columns and tests that some rules ask, in order."""
        start, stop = self.rules.bounds(first)[0], self.rules.bounds(last - 1)[1]
        numbers: list[int] = np.unique(self.rules.conditions.column[start:stop]).tolist()
        return numbers

    def columns_of(self, test: int) -> list[int]:
        """Columns that a test asks."""
        parts: list[Sequence[int]] = [
            clause.features if isinstance(clause, Linear) else (clause.feature,)
            for clause in self.rules.tests[test]
        ]
        return sorted(set(itertools.chain.from_iterable(parts)))
