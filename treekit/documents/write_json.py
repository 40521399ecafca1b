"""Rules as JSON: all that determines a prediction, for programs and for editing.

`treekit.documents.read_json.read_json` restores the same list.  Format ``treekit rules``,
version 1; keys in parentheses are optional in files written by hand:

``format``, ``version``
    ``"treekit rules"`` and 1.
``targets``
    ``{"name": ..., "classes": [...]}``; no ``classes`` for a numeric target.
``columns``
    ``{"name": ..., "levels": [...]}``; no ``levels`` for a numeric column.
(``missing_marks``)
    Texts of a table that mean a missing value.
``type``, ``missing``, ``unknown``, (``voting``), (``costs``), (``order``), (``trees``),
(``combine``), (``link``), (``exponent``), (``decisions``)
    As in `treekit.rules.rule_list.RuleList`; ``trees`` is their number.  Numbers in outcomes are
    multiples of ``2 ** exponent``; others use a finer exponent, or the finest possible.
(``rounding``)
    If thresholds were shortened, the counts of `treekit.rules.rule_list.Rounding` by their
    names: ``{"digits": 3, "thresholds": 8, ...}``; else null.
(``tests``)
    Each a list of clauses, the first of which with a known value decides: ``{"column": ...,
    "at_most": 3}`` (or ``above``) holds for such numbers; ``{"sum": [["a", 0.5], ["b", -1]],
    "at_most": 3}`` for such sums, computed in this order in double precision; ``{"column": ...,
    "holds": [...], "fails": [...]}`` for categories; others are unknown.
``rules``
    In the order of their trees: (``tree``), from 1; (``node``); ``if``, a list of conditions
    that must all hold; ``then``, from each target's name to its outcome; (``support``);
    (``as_parent``).

A condition refers to a ``column`` or to the number of a ``test``, from 1: ``"above": 1,
"at_most": 2`` is 1 < x <= 2, null for no bound; ``"in": [...]`` lists categories; ``"holds"`` is
the result of a test; ``"known": true`` accepts any value, ``"known": false`` none.  A missing
value is accepted if (``"missing"``) is true; a fractional instance then keeps (``"part"``) of
its mass, two bounds out of 2 ** 24, and so do the categories in (``"dividing"``).

An outcome is ``{"label": ..., "shares": {...}}`` (either implies the other: a label alone has
all votes), ``{"value": ...}`` or ``{"margins": {...}}``.  Classes not named are 0.
``training`` describes the training rows there as stored in the model: weights, or a mean.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from treekit.data.schema import Label, Output
from treekit.documents import Listing
from treekit.model.fixed_point import MASS, floor_to_dtype
from treekit.model.model import predict_labels
from treekit.rules.rule_list import Clause, LinearClause, RuleList
from treekit.rules.wording import format_numbers, format_share

__all__ = [
    "FORMAT",
    "VERSION",
    "format_key",
    "render_json",
]

FORMAT, VERSION = "treekit rules", 1
_RULES_PER_PIECE = 2048


def render_json(listing: Listing) -> Iterator[str]:
    """Return the JSON text, one line per condition, in pieces of `_RULES_PER_PIECE` rules."""
    rules = listing.rules
    yield (
        "{\n"
        + "".join(f' "{key}": {text},\n' for key, text in _list_header_fields(rules))
        + ' "rules": [\n'
    )
    then = _OutcomeWriter(rules)
    for first in range(0, len(rules), _RULES_PER_PIECE):
        last = min(first + _RULES_PER_PIECE, len(rules))
        yield ",\n".join(_format_rules(rules, first, last, then)) + (
            ",\n" if last < len(rules) else "\n"
        )
    yield " ]\n}\n"


def format_key(label: Label) -> str:
    """Return the JSON key of a label: the label itself if it is a string, else its JSON text."""
    return label if isinstance(label, str) else json.dumps(label)


def _dump_json(value: Any) -> str:
    """Return JSON in one line; only characters that are not printable are escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _format_lines(values: list[str]) -> str:
    """Return a JSON list with one line per value."""
    return "[\n  " + ",\n  ".join(values) + "\n ]" if values else "[]"


def _list_header_fields(rules: RuleList) -> Iterator[tuple[str, str]]:
    schema = rules.schema
    yield "format", _dump_json(FORMAT)
    yield "version", str(VERSION)
    yield (
        "targets",
        _format_lines([_dump_json(_describe_target(output)) for output in schema.outputs]),
    )
    columns = [
        {"name": column.name} | ({"levels": column.levels} if column.kind == "nominal" else {})
        for column in schema.columns
    ]
    yield "columns", _format_lines(list(map(_dump_json, columns)))
    yield "missing_marks", _dump_json(schema.missing_marks)
    yield "type", _dump_json(schema.dtype)
    for key in ("missing", "unknown", "voting", "order"):
        yield key, _dump_json(getattr(rules, key))
    yield "costs", "null" if rules.costs is None else _dump_json(rules.costs.tolist())
    yield "trees", str(rules.n_trees)
    yield "combine", _dump_json(rules.combine)
    yield "link", _dump_json(rules.link)
    yield "exponent", str(rules.exponent)
    yield "decisions", _dump_json(rules.decisions)
    yield "rounding", _dump_json(None if rules.rounding is None else rules.rounding._asdict())
    tests = (", ".join(_format_clause(rules, clause) for clause in test) for test in rules.tests)
    yield "tests", _format_lines([f"[{clauses}]" for clauses in tests])


def _describe_target(output: Output) -> dict[str, Any]:
    return {"name": output.name} | ({"classes": output.classes} if output.classes else {})


def _format_clause(rules: RuleList, clause: Clause) -> str:
    columns, dtype = rules.schema.columns, rules.schema.dtype
    if not isinstance(clause, LinearClause):
        column = columns[clause.feature]
        sides = [
            [level for level, b in zip(column.levels, clause.branches, strict=True) if b == side]
            for side in (0, 1)
        ]
        return _dump_json({"column": column.name, "holds": sides[0], "fails": sides[1]})
    names = [_dump_json(columns[feature].name) for feature in clause.features]
    side = "above" if clause.below else "at_most"
    if clause.weights == (1.0,) and floor_to_dtype(clause.threshold, dtype) == clause.threshold:
        (at,) = format_numbers(np.array([clause.threshold]), dtype)
        return f'{{"column": {names[0]}, "{side}": {at}}}'
    weights = format_numbers(np.array(clause.weights), dtype)
    terms = ", ".join(f"[{name}, {weight}]" for name, weight in zip(names, weights, strict=True))
    (at,) = format_numbers(np.array([clause.threshold]))
    return f'{{"sum": [{terms}], "{side}": {at}}}'


def _format_rules(rules: RuleList, first: int, last: int, then: _OutcomeWriter) -> Iterator[str]:
    start, stop = rules.bounds(first)[0], rules.bounds(last - 1)[1]
    conditions = _format_conditions(rules, start, stop)
    ends = [0, *(rules.end[first:last] - start).tolist()]
    supports = format_numbers(rules.support[first:last])
    tree, leaf = rules.tree[first:last].tolist(), rules.leaf[first:last].tolist()
    as_parent = rules.as_parent[first:last].tolist()
    for at, answer in enumerate(then.format_outcomes(first, last)):
        own = ",\n    ".join(conditions[ends[at] : ends[at + 1]])
        place = f'"tree": {tree[at] + 1}, "node": {leaf[at]}'
        conditions_text = f"[\n    {own}\n   ]" if own else "[]"
        more = ', "as_parent": true' if as_parent[at] else ""
        yield (
            f'  {{{place},\n   "if": {conditions_text},\n   "then": {answer},\n'
            f'   "support": {supports[at]}{more}}}'
        )


def _format_conditions(rules: RuleList, start: int, stop: int) -> list[str]:
    table, schema = rules.conditions, rules.schema
    heads = [f'"column": {_dump_json(column.name)}' for column in schema.columns]
    heads += [f'"test": {number + 1}' for number in range(len(rules.tests))]
    levels = [list(map(_dump_json, column.levels)) for column in schema.columns]
    fields = zip(
        table.column[start:stop].tolist(),
        _format_bounds(rules, table.low[start:stop]),
        _format_bounds(rules, table.high[start:stop]),
        table.known[start:stop].tolist(),
        table.missing[start:stop].tolist(),
        table.part_low[start:stop].tolist(),
        table.part_high[start:stop].tolist(),
        strict=True,
    )
    texts = []
    for at, (column, low, high, known, missing, *part) in enumerate(fields, start):
        test = column >= schema.n_features
        numeric = not test and schema.columns[column].kind == "numeric"
        fits, dividing = ([], []) if test or numeric else table.list_codes(at)
        if not known:
            test_text = '"known": false'
        elif test or numeric:
            unbounded = low == high == "null"
            test_text = f'"above": {low}, "at_most": {high}'
            test_text = f'"holds": {"true" if low == "null" else "false"}' if test else test_text
            test_text = '"known": true' if unbounded else test_text
        elif len(fits) == len(levels[column]):
            test_text = '"known": true'
        else:
            test_text = f'"in": [{", ".join(levels[column][code] for code in fits)}]'
        text = f'{{{heads[column]}, {test_text}, "missing": {"true" if missing else "false"}'
        if part != ([0, MASS] if missing else [0, 0]):
            text += f', "part": [{part[0]}, {part[1]}]'
        if dividing:
            text += f', "dividing": [{", ".join(levels[column][code] for code in dividing)}]'
        texts.append(text + "}")
    return texts


def _format_bounds(rules: RuleList, bounds: np.ndarray) -> list[str]:
    texts = np.full(len(bounds), "null", dtype=object)
    finite = np.isfinite(bounds)
    texts[finite] = format_numbers(bounds[finite], rules.schema.dtype)
    found: list[str] = texts.tolist()
    return found


class _OutcomeWriter:
    """Writer of the outcomes of rules; each distinct share is formatted once."""

    def __init__(self, rules: RuleList) -> None:
        self.rules, outputs = rules, rules.schema.outputs
        self.names = [_dump_json(output.name) for output in outputs]
        self.keys = [[_dump_json(format_key(label)) for label in o.classes] for o in outputs]
        self.labels = [list(map(_dump_json, output.classes)) for output in outputs]
        self.has_votes = rules.schema.task == "classification" and not rules.margins
        distinct, total = np.unique(rules.units).tolist(), rules.units_each if self.has_votes else 1
        self.share_texts = {u: format_share(u, total) for u in distinct} if self.has_votes else {}

    def format_outcomes(self, first: int, last: int) -> Iterator[str]:
        """Yield the values of ``then`` of the rules from `first` to `last`."""
        blocks = list(enumerate(itertools.pairwise(self.rules.schema.blocks)))
        if self.rules.margins:
            blocks = [(0, (0, self.rules.schema.n_values))]
        outcomes = [self._format_target(k, start, end, first, last) for k, (start, end) in blocks]
        for row in zip(*outcomes, strict=True):
            named = zip(self.names, row, strict=True)
            yield "{" + ",\n    ".join(f"{name}: {{{text}}}" for name, text in named) + "}"

    def _format_target(self, k: int, start: int, end: int, first: int, last: int) -> list[str]:
        rules, keys, labels = self.rules, self.keys[k], self.labels[k]
        units = rules.units[first:last, start:end]
        if self.has_votes:
            codes, share = predict_labels(units, rules.costs).tolist(), self.share_texts
            texts = [
                f'"label": {labels[label]}, '
                f'"shares": {{{_format_nonzero(keys, [share[u] for u in row])}}}'
                for label, row in zip(codes, units.tolist(), strict=True)
            ]
        elif rules.margins:
            rows = self._format_units(units)
            texts = [f'"margins": {{{_format_nonzero(keys, row)}}}' for row in rows]
        else:
            texts = [f'"value": {row[0]}' for row in self._format_units(units)]
        if rules.value is None:
            return texts
        training = _format_numerals(rules.value[first:last, start:end])
        training_texts = [
            f"{{{_format_nonzero(keys, row)}}}" if keys else row[0] for row in training
        ]
        pairs = zip(texts, training_texts, strict=True)
        return [f'{text}, "training": {own}' for text, own in pairs]

    def _format_units(self, units: np.ndarray) -> list[list[str]]:
        return _format_numerals(np.ldexp(units.astype(np.float64), self.rules.exponent))


def _format_nonzero(keys: list[str], numbers: list[str]) -> str:
    """Return the nonzero numbers by their keys."""
    named = zip(keys, numbers, strict=True)
    return ", ".join(f"{key}: {number}" for key, number in named if number != "0")


def _format_numerals(values: np.ndarray) -> list[list[str]]:
    texts = iter(format_numbers(values.ravel()))
    width = values.shape[1]
    return [list(itertools.islice(texts, width)) for _ in range(len(values))]
