"""A single tree as nested CASE on the columns of the table, for people to review.

A column of the query is the label or number, and one for each class its probability.  Cells are
compared as they are: columns of numbers hold numbers, and columns of categories the texts of
the training table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from treekit.data.schema import Column
from treekit.export.lowering import LoweredTree, Step, compute_double_thresholds
from treekit.export.readable import explain_unreadable
from treekit.model.links import convert_sums
from treekit.model.model import Model, predict_labels
from treekit.rules.wording import format_number
from treekit_sql.bounds import write_bound
from treekit_sql.dialects import Dialect
from treekit_sql.rules import wrap_sql
from treekit_sql.syntax import (
    Sql,
    combine,
    make_membership_test,
    make_null_test,
    make_table,
    quote_identifier,
)
from treekit_sql.trees import compute_nesting, count_subtree_nodes, order_children

_MAX_LINES = 2000
"""Maximum number of tests of all columns of the query."""
_SHOWN_DIGITS = 7
_MAX_DEPTH = 12
"""Maximum nesting of CASE, as SQLite's parser allows."""


def explain_unreadable_sql(model: Model, trees: Sequence[LoweredTree], dialect: Dialect) -> str:
    """Return the reason why a model has no nested CASE for people; empty if it has one."""
    if reason := explain_unreadable(model, trees):
        return reason
    n_columns = 1 + len(model.schema.classes)
    if trees[0].n_nodes * n_columns > _MAX_LINES:
        return f"{n_columns} columns of {trees[0].n_nodes} nodes are more than {_MAX_LINES} lines"
    if compute_nesting(trees[0]) > _MAX_DEPTH:
        return f"CASE would nest more than {_MAX_DEPTH} deep"
    return "" if dialect.compares_bytes else _find_equal_levels(model.schema.columns)


def _find_equal_levels(columns: Sequence[Column]) -> str:
    """Return which categories differ only in case or blanks at their end; empty if none do."""
    for column in columns:
        seen: dict[str, str] = {}
        for level in column.levels:
            other = seen.setdefault(level.casefold().rstrip(), level)
            if other != level:
                return f"{other!r} and {level!r} of {column.name!r} may be equal in its collation"
    return ""


def render_readable(
    model: Model,
    tree: LoweredTree,
    dialect: Dialect,
    place: Sequence[str],
    keys: Sequence[str],
    names: Sequence[str],
) -> str:
    """Return the query.

    Parameters
    ----------
    place : sequence of str
        Name of the table, after its catalog and schema.
    keys : sequence of str
        Columns to copy.
    names : sequence of str
        Names of the label or number, and of the probabilities.
    """
    return "\n".join(_ReadableQuery(model, tree, dialect).write_lines(place, keys, names))


class _ReadableQuery:
    """Writer of the query of one tree; each condition is printed once."""

    def __init__(self, model: Model, tree: LoweredTree, dialect: Dialect) -> None:
        self.model, self.tree, self.dialect = model, tree, dialect
        self.thresholds = compute_double_thresholds(tree, model.schema).tolist()
        self.sizes = count_subtree_nodes(tree)
        tested = tree.feature[tree.kind != Step.LEAF].tolist()
        self.features = sorted(set(tested))
        self.has_text = ""

    def print_sql(self, value: Sql) -> str:
        return value.sql(dialect=self.dialect.name, copy=False, comments=False)

    def write_lines(
        self, place: Sequence[str], keys: Sequence[str], names: Sequence[str]
    ) -> Iterator[str]:
        """Generate the lines of the query."""
        schema = self.model.schema
        taken = {schema.names[f].lower() for f in self.features}
        own = [_make_free_name(f"key_{k}", taken) for k in range(len(keys))]
        columns = [
            f"{self.print_sql(_make_cell(key))} AS {name}"
            for key, name in zip(keys, own, strict=True)
        ]
        columns += [self._write_cell(f) for f in self.features]
        if tests := [test for f in self.features if (test := self._find_text(f))]:
            self.has_text = _make_free_name("has_text", taken)
            columns.append(f"{' OR '.join(tests)} AS {self.has_text}")
        # Qualified names: SQLite reads an unknown bare name as text.
        source = make_table(place)
        source.set("alias", exp.TableAlias(this=exp.to_identifier("t")))
        yield "WITH cells AS ("
        yield "  SELECT"
        yield ",\n".join(f"    {column}" for column in columns or ["1 AS unused"])
        yield f"  FROM {self.print_sql(source)}"
        yield ")"
        selected = [
            f"  {name} AS {self.print_sql(quote_identifier(key))}"
            for name, key in zip(own, keys, strict=True)
        ]
        numbers = convert_sums(self.model, self.model.units)
        if schema.task == "classification":
            labels = predict_labels(self.model.units, self.model.label_costs).tolist()
            texts = [self.print_sql(self.dialect.make_label(x)) for x in schema.classes]
            selected.append(self._write_column([texts[code] for code in labels], names[0]))
        shares = names[1:] if schema.task == "classification" else names
        for values, name in zip(numbers.T.tolist(), shares, strict=True):
            selected.append(
                self._write_column(list(map(self._print_result, values)), name, double=True)
            )
        yield "SELECT"
        yield ",\n".join(selected)
        yield "FROM cells"

    def _print_result(self, value: float) -> str:
        """Print a probability or number, as a sum if the engine could misread its digits."""
        if self.dialect.reads_exactly(value):
            return self.print_sql(self.dialect.make_result(value))
        shown = format_number(float(f"{value:.{_SHOWN_DIGITS}g}"))
        return self.print_sql(write_bound(shown, value, self.dialect))

    def _write_cell(self, feature: int) -> str:
        """Return a column of the first step, with NULL for NaN, and text compared by bytes."""
        column = self.model.schema.columns[feature]
        raw = _make_cell(column.name)
        clean = self.dialect.replace_nan if column.kind == "numeric" else self.dialect.clean_text
        return f"{self.print_sql(clean(raw))} AS {self.print_sql(quote_identifier(column.name))}"

    def _find_text(self, feature: int) -> str:
        """Return the test whether a column of numbers holds text; empty if it cannot."""
        column = self.model.schema.columns[feature]
        test = None if column.kind == "nominal" else self.dialect.find_text(_make_cell(column.name))
        return "" if test is None else self.print_sql(test)

    def _write_column(self, values: list[str], name: str, *, double: bool = False) -> str:
        self.single = self._find_single_values(values)
        lines = [*self._write_case(0, "  ")]
        if self.has_text and len(lines) > 1:
            lines.insert(1, f"    WHEN {self.has_text} THEN NULL")
        start, end = self.dialect.double_cast if double else ("", "")
        lines[0] = f"  {start}{lines[0].lstrip()}"
        lines[-1] += f"{end} AS {self.print_sql(quote_identifier(name))}"
        return "\n".join(lines)

    def _write_case(self, node: int, indent: str) -> Iterator[str]:
        """Generate the lines of the CASE of a subtree."""
        if self.single[node] is not None:
            yield f"{indent}{self.single[node]}"
            return
        yield f"{indent}CASE"
        inner = f"{indent}  "
        while (same := self.single[node]) is None:
            light, heavy = order_children(self.tree, self.sizes, node)
            test = self._print_test(node, wanted=light == int(self.tree.yes[node]))
            value = self.single[light]
            yield wrap_sql([f"WHEN {test}", "THEN" if value is None else f"THEN {value}"], inner)
            if value is None:
                yield from self._write_case(light, f"{inner}  ")
            node = heavy
        yield f"{inner}ELSE {same}"
        yield f"{indent}END"

    def _find_single_values(self, values: Sequence[str]) -> list[str | None]:
        """Return for each node the value of all its leaves, None if they differ."""
        tree = self.tree
        single: list[str | None] = [None] * tree.n_nodes
        for node in range(tree.n_nodes - 1, -1, -1):  # children have higher numbers
            if tree.kind[node] == Step.LEAF:
                single[node] = values[int(tree.leaf[node])]
            elif single[tree.yes[node]] == single[tree.no[node]]:
                single[node] = single[tree.yes[node]]
        return single

    def _print_test(self, node: int, *, wanted: bool) -> str:
        """Print the condition of the yes branch, or of the no branch."""
        tree, feature = self.tree, int(self.tree.feature[node])
        column = self.model.schema.columns[feature]
        cell = quote_identifier(column.name)
        missing = bool(tree.missing_yes[node]) == wanted
        if column.kind == "nominal":
            return self._print_level_test(node, column, cell, wanted=wanted, missing=missing)
        if tree.kind[node] == Step.MISSING:
            gone = make_null_test(cell)
            return self.print_sql(gone if wanted else exp.Not(this=gone))
        shown = format_number(float(tree.threshold[node]), self.model.schema.dtype)
        bound = write_bound(shown, self.thresholds[node], self.dialect)
        test = self.print_sql(combine(exp.LTE if wanted else exp.GT, cell, bound))
        return f"{test} OR {self.print_sql(make_null_test(cell))}" if missing else test

    def _print_level_test(
        self, node: int, column: Column, cell: Sql, *, wanted: bool, missing: bool
    ) -> str:
        """Print the condition on a category; one that training did not see is missing."""
        some = self.tree.kind[node] == Step.IN
        inside = set(self.tree.codes(node).tolist()) if some else set()
        if not some:  # the test whether the cell is missing
            missing = wanted
        taken = [c for c in range(len(column.levels)) if (c in inside) == wanted]
        others = [c for c in range(len(column.levels)) if c not in taken]
        asked = others if missing else taken
        if not asked:
            return "1 = 1" if missing else "1 = 0"
        texts = [self.dialect.make_text(column.levels[code]) for code in asked]
        member = make_membership_test(cell, texts)
        if not missing:
            return self.print_sql(member)
        outside = exp.Not(this=member)
        return f"{self.print_sql(outside)} OR {self.print_sql(make_null_test(cell))}"


def _make_cell(name: str) -> exp.Column:
    """Return a column of the table, which is named t."""
    return exp.Column(this=quote_identifier(name), table=exp.to_identifier("t"))


def _make_free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
