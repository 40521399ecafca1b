"""Rules as JSON: the writer, and a strict, validating reader."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from types import TracebackType
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt

from treekit.data.schema import MISSING_MARKS, Column, Dtype, Label, Output, Schema
from treekit.documents import Listing
from treekit.errors import DataError, ModelError, ModelFileError
from treekit.model.fixed_point import MASS, count_tree_units, floor_to_dtype
from treekit.model.links import Combine, Link
from treekit.model.model import MissingPolicy, UnknownPolicy, Voting, predict_labels
from treekit.model.validation import MAX_COST
from treekit.rules.read_edited import to_fixed_point
from treekit.rules.rule_list import (
    Clause,
    ConditionTable,
    LevelsClause,
    LinearClause,
    Order,
    Rounding,
    RuleList,
    Test,
)
from treekit.rules.simplify_thresholds import MAX_DIGITS
from treekit.rules.wording import format_numbers, format_share, parse_number

# ---------------------------------------------------------------- write JSON


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
    """Writer of the outcomes of rules; each distinct share of votes is formatted once."""

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


# ---------------------------------------------------------------- read json

_REQUIRED_KEYS = ("format", "version", "targets", "columns", "type", "missing", "unknown", "rules")
_OPTIONAL_KEYS = (
    *("missing_marks", "voting", "order", "costs", "trees", "combine", "link", "exponent"),
    *("tests", "decisions", "rounding"),
)
_RULE_KEYS, _OPTIONAL_RULE_KEYS = ("if", "then"), ("tree", "node", "support", "as_parent")
_MAX_NODE_NUMBER = 2**31 - 1


def read_json(text: str) -> RuleList:
    """Parse rules from JSON text.

    Raises
    ------
    ModelFileError
        If the text does not follow the format of `treekit.documents.json_rules`; names the path
        in the text, such as ``$.rules[3].if[0]`` (counted from 0).
    """
    try:
        with PathContext():
            return _parse_document(parse_json(text))
    except JsonError as fault:
        raise ModelFileError(
            f"{fault.place} of the rules cannot be read: {fault}; correct it, or export the "
            "rules again from their model"
        ) from fault


def _parse_document(value: Any) -> RuleList:
    facts = check_object(value, _REQUIRED_KEYS, _OPTIONAL_KEYS)
    with PathContext("format"):
        check_string(facts["format"], (FORMAT,))
    with PathContext("version"):
        parse_integer(facts["version"], VERSION, VERSION)
    listed = parse_header(facts)
    with PathContext("rules"):
        return _parse_rules(check_array(facts["rules"]), listed)


def _parse_rules(stated: list[Any], listed: RuleList) -> RuleList:
    conditions, answers = ConditionReader(listed), OutcomeReader(listed)
    tree: list[int] = []
    leaf: list[int] = []
    support, as_parent, outcomes, training_values, end = [], [], [], [], [0]
    for number, value in enumerate(stated):
        with PathContext(number):
            rule = check_object(value, _RULE_KEYS, _OPTIONAL_RULE_KEYS)
            tree.append(_parse_tree_number(rule, tree[-1] if tree else -1, listed.n_trees))
            leaf.append(_parse_node_number(rule, leaf[-1] if tree[-2:-1] == tree[-1:] else -1))
            support.append(_parse_support(rule))
            as_parent.append(_parse_optional_flag(rule, "as_parent"))
            if as_parent[-1] and support[-1]:
                raise JsonError("'as_parent' is true, so 'support' must be 0")
            with PathContext("if"):
                end.append(conditions.read_rule(rule["if"]))
            with PathContext("then"):
                answer, training = answers.read_outcomes(rule["then"])
            outcomes.append(answer)
            training_values.append(training)
    if not tree or tree[-1] != listed.n_trees - 1:
        raise JsonError(f"there are {listed.n_trees} trees, and each needs at least one rule")
    if listed.order == "first":
        last = np.flatnonzero(np.diff(tree, append=-1))
        if (conditional := last[np.diff(end)[last] > 0]).size:
            path = (int(conditional[0]), "if")
            raise JsonError("the last rule of an ordered list must have no conditions", path)
    trees = np.array(tree, dtype=np.int32)
    units, exponent = to_fixed_point(np.array(outcomes, dtype=np.float64), trees, listed)
    return replace(
        listed,
        exponent=exponent,
        tree=trees,
        leaf=np.array(leaf, dtype=np.int32),
        support=np.array(support, dtype=np.float64),
        as_parent=np.array(as_parent, dtype=np.bool_),
        units=units,
        end=np.array(end[1:], dtype=np.int64),
        conditions=conditions.build_table(),
        value=None if None in training_values else np.array(training_values, dtype=np.float64),
    )


def _parse_tree_number(rule: dict[str, Any], before: int, n_trees: int) -> int:
    with PathContext("tree"):
        tree = parse_integer(rule.get("tree", Numeral("1")), 1, n_trees) - 1
        if tree not in (before, before + 1) or tree < 0:
            raise JsonError("rules must be in the order of their trees, without gaps")
        return tree


def _parse_node_number(rule: dict[str, Any], before: int) -> int:
    if "node" not in rule:
        return before + 1
    with PathContext("node"):
        return parse_integer(rule["node"], 0, _MAX_NODE_NUMBER)


def _parse_support(rule: dict[str, Any]) -> float:
    if "support" not in rule:
        return 0.0
    with PathContext("support"):
        support = parse_number(check_number(rule["support"]))
        if support < 0:
            raise JsonError("support must not be negative")
        return support


def _parse_optional_flag(rule: dict[str, Any], key: str) -> bool:
    if key not in rule:
        return False
    with PathContext(key):
        return check_boolean(rule[key])


# ---------------------------------------------------------------- json values
# Checks of untrusted JSON values, with the path of each in the text.
#
# Numbers are kept as text, so that each reader chooses the precision.

_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MAX_NUMBER_LENGTH = 400


class Numeral(str):
    """A number as it is written in the text."""

    __slots__ = ()


class JsonError(ValueError):
    """An invalid value, with the keys and indices that lead to it."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path

    @property
    def place(self) -> str:
        """Path from the root: ``$.rules[3].if``."""
        return "$" + "".join(map(_format_path_step, self.path))


def _format_path_step(piece: str | int) -> str:
    if isinstance(piece, int):
        return f"[{piece}]"
    return f".{piece}" if _PLAIN_KEY.fullmatch(piece) else f"[{json.dumps(piece)}]"


class PathContext:
    """Context that prefixes the path of errors: ``with At("rules", 3):``."""

    __slots__ = ("path",)

    def __init__(self, *path: str | int) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, JsonError):
            error.path = self.path + error.path
        elif isinstance(error, (ValueError, OverflowError, DataError, ModelError)):
            raise JsonError(str(error), self.path) from error


class _DuplicateKeyObject(dict[str, Any]):
    """A JSON object with a duplicate key."""

    key: str = ""


def _collect_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeated, seen = _DuplicateKeyObject(), set[str]()
    for name, _ in pairs:
        if name in seen:
            repeated.key = name
        seen.add(name)
    return repeated


def _refuse_constant(constant: str) -> Any:
    raise JsonError(f"{constant} is not a JSON number")


def parse_json(source: str) -> Any:
    """Parse JSON text (RFC 8259), with numbers as `Numeral`.

    Raises
    ------
    JsonError
        If it is not valid, or nested too deeply.
    """
    try:
        return json.loads(
            source.removeprefix("\ufeff"),
            parse_int=Numeral,
            parse_float=Numeral,
            parse_constant=_refuse_constant,
            object_pairs_hook=_collect_members,
        )
    except RecursionError:
        raise JsonError("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise JsonError(f"not valid JSON: {error}") from error


def check_object(
    value: Any, required: Collection[str] | None = None, optional: Collection[str] = ()
) -> dict[str, Any]:
    """Check that a value is an object and, with `required`, that its keys are valid.

    All `required` keys must be there, and no others except `optional` ones.
    """
    if type(value) is _DuplicateKeyObject:
        raise JsonError(f"the key {value.key!r} appears twice")
    if type(value) is not dict:
        raise JsonError(f"expected an object, not {_describe_value(value)}")
    if required is None:
        return value
    for key in required:
        if key not in value:
            raise JsonError(f"the key {key!r} is missing")
    for key in value:
        if key not in required and key not in optional:
            known = ", ".join([*required, *optional])
            raise JsonError(f"the key {key!r} is not known; known: {known}")
    return value


def check_array(value: Any) -> list[Any]:
    """Check that a value is an array."""
    if type(value) is not list:
        raise JsonError(f"expected an array, not {_describe_value(value)}")
    return value


def check_string(value: Any, choices: Collection[str] | None = None) -> str:
    """Check that a value is a string, one of `choices` if given."""
    if type(value) is not str:
        raise JsonError(f"expected a string, not {_describe_value(value)}")
    if choices is not None and value not in choices:
        raise JsonError(f"{value!r} is not one of: {', '.join(choices)}")
    return value


def check_boolean(value: Any, *path: str | int) -> bool:
    """Check that a value, at `path`, is a boolean."""
    if type(value) is not bool:
        raise JsonError(f"expected true or false, not {_describe_value(value)}", path)
    return value


def check_number(value: Any, *path: str | int) -> str:
    """Check that a value, at `path`, is a number; return its text."""
    if type(value) is not Numeral:
        raise JsonError(f"expected a number, not {_describe_value(value)}", path)
    if len(value) > _MAX_NUMBER_LENGTH:
        raise JsonError(f"a number has more than {_MAX_NUMBER_LENGTH} digits", path)
    return value


def parse_integer(value: Any, low: int, high: int) -> int:
    """Parse an integer from `low` to `high`."""
    text = check_number(value)
    number = int(text) if text.lstrip("-").isdigit() else None
    if number is None or not low <= number <= high:
        raise JsonError(f"expected an integer from {low} to {high}, not {text}")
    return number


def _describe_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Numeral):
        return f"the number {value[:30]}"
    if isinstance(value, str):
        return f"the string {value[:30]!r}"
    return "an array" if isinstance(value, list) else "an object"


# ---------------------------------------------------------------- json outcomes

_SHARE_PATTERN = re.compile(
    r"[01](?:\.[0-9]{1,60})?(?:[eE]-[0-9]{1,2})?|[1-9]\.[0-9]{1,60}[eE]-[0-9]{1,2}"
)
_SHARE_TOLERANCE = Fraction(1, 1_000_000)
"""Tolerance for the sum of shares written by hand, whose last digits are rounded."""


class OutcomeReader:
    """Reader of the outcomes of rules."""

    def __init__(self, listed: RuleList) -> None:
        self.rules, self.outputs = listed, listed.schema.outputs
        self.names = [output.name for output in self.outputs]
        self.class_keys = [
            {format_key(c): k for k, c in enumerate(o.classes)} for o in self.outputs
        ]
        self.class_labels = [
            {(type(label), label): k for k, label in enumerate(o.classes)} for o in self.outputs
        ]
        self.votes_by_share: dict[str, int] = {}

    def read_outcomes(self, value: Any) -> tuple[list[float], list[float] | None]:
        """Parse an outcome: votes or numbers, and training values (None if a target has none)."""
        stated = check_object(value, self.names)
        outcome: list[float] = []
        training: list[float] | None = []
        for k, output in enumerate(self.outputs):
            with PathContext(output.name):
                answer = check_object(stated[output.name], (), _list_outcome_keys(self.rules))
                outcome += self._read_outcome(k, output, answer)
                if training is not None and "training" in answer:
                    with PathContext("training"):
                        training = training + self._read_training(k, output, answer["training"])
                else:
                    training = None
        return outcome, training

    def _read_outcome(self, k: int, output: Output, answer: dict[str, Any]) -> Sequence[float]:
        if self.rules.margins:
            with PathContext("margins"):
                margins = self._read_class_numbers(k, answer.get("margins"))
                return [parse_number(margins.get(at, _ZERO)) for at in range(len(output.classes))]
        if not output.classes:
            with PathContext("value"):
                return [parse_number(check_number(answer.get("value")))]
        return self._read_votes(k, output, answer)

    def _read_votes(self, k: int, output: Output, answer: dict[str, Any]) -> list[int]:
        label = -1
        if "label" in answer:
            with PathContext("label"):
                value = parse_label(answer["label"])
                label = self.class_labels[k].get((type(value), value), -1)
                if label < 0:
                    raise JsonError(f"{value!r} is not a class")
        if "shares" in answer:
            with PathContext("shares"):
                votes = self._read_shares(k, answer["shares"])
        elif label >= 0:
            votes = [0] * len(output.classes)
            votes[label] = self.rules.units_each
        else:
            raise JsonError("an outcome needs 'label', 'shares' or both")
        best = int(predict_labels(np.array([votes]), self.rules.costs)[0])
        if label not in (-1, best):
            rule = "the largest share" if self.rules.costs is None else "the least cost"
            raise JsonError(
                f"label is {output.classes[label]!r}, but the class with {rule} is "
                f"{output.classes[best]!r}; correct the label or the shares"
            )
        return votes

    def _read_shares(self, k: int, value: Any) -> list[int]:
        """Return integer votes: each share rounded to the nearest.

        If they do not add up to the total, the largest remainders are rounded up, as everywhere
        when votes are distributed.
        """
        total = self.rules.units_each
        stated = self._read_class_numbers(k, value)
        votes = [0] * len(self.class_keys[k])
        for at, share in stated.items():
            if share not in self.votes_by_share:
                self.votes_by_share[share] = int(_parse_share(share) * total + Fraction(1, 2))
            votes[at] = self.votes_by_share[share]
        if sum(votes) == total:
            return votes
        exact = [_parse_share(stated.get(at, _ZERO)) * total for at in range(len(votes))]
        off = sum(exact, Fraction(0)) - total
        if abs(off) > max(_SHARE_TOLERANCE * total, Fraction(len(votes), 2)):
            raise JsonError(f"the shares sum to {float(1 + off / total):.6g}, not 1")
        votes = [int(some) for some in exact]
        order = sorted(range(len(votes)), key=lambda at: (votes[at] - exact[at], at))
        for at in itertools.islice(itertools.cycle(order), max(total - sum(votes), 0)):
            votes[at] += 1
        return votes

    def _read_training(self, k: int, output: Output, value: Any) -> list[float]:
        if not output.classes:
            return [parse_number(check_number(value))]
        weights = self._read_class_numbers(k, value)
        return [parse_number(weights.get(at, _ZERO)) for at in range(len(output.classes))]

    def _read_class_numbers(self, k: int, value: Any) -> dict[int, str]:
        """Return numbers by class index."""
        found = {}
        for key, number in check_object(value).items():
            found[look_up_code(self.class_keys[k], key, "a class")] = check_number(number, key)
        return found


_ZERO = Numeral("0")


def _parse_share(text: str) -> Fraction:
    if not _SHARE_PATTERN.fullmatch(text):
        raise JsonError(f"expected a share as a decimal from 0 to 1, not {text[:70]}")
    return Fraction(text)


def _list_outcome_keys(listed: RuleList) -> tuple[str, ...]:
    if listed.margins:
        return ("margins", "training")
    if listed.schema.task == "regression":
        return ("value", "training")
    return ("label", "shares", "training")


# ---------------------------------------------------------------- json conditions

_BOUND_KEYS = {"numeric": {"above", "at_most"}, "nominal": {"in"}, "test": {"holds"}}
_ALL_BOUND_KEYS = {"above", "at_most", "in", "holds", "known"}
_CONDITION_KEYS = ("column", "test", *sorted(_ALL_BOUND_KEYS), "missing", "part", "dividing")
_INTEGER_PATTERN = re.compile(r"-?[0-9]+")


def look_up_code(codes: dict[str, int], name: Any, kind: str, *path: str) -> int:
    """Return the code of a name; errors refer to `path`."""
    if type(name) is str and name in codes:
        return codes[name]
    with PathContext(*path):
        raise JsonError(f"{check_string(name)!r} is not {kind}")


def parse_level_codes(codes: dict[str, int], value: Any) -> list[int]:
    """Return the codes of distinct categories, ascending."""
    known = [codes.get(level, -1) for level in check_array(value) if type(level) is str]
    if len(known) == len(value) and -1 not in known and len(set(known)) == len(known):
        return sorted(known)
    found = []
    for at, level in enumerate(value):
        with PathContext(at):
            found.append(look_up_code(codes, level, "a category of its column"))
    if len(set(found)) != len(found):
        raise JsonError("a category is listed twice")
    return sorted(found)


def parse_label(value: Any) -> Label:
    """Return a label of the written type: ``3`` is an integer, ``3.0`` is a float."""
    if isinstance(value, bool) or type(value) is str:
        return value
    text = check_number(value)
    return int(text) if _INTEGER_PATTERN.fullmatch(text) else float(text)


class ConditionReader:
    """Reader of the conditions of rules, which it collects into a table."""

    def __init__(self, listed: RuleList) -> None:
        schema = listed.schema
        self.dtype, self.is_fractional = schema.dtype, listed.mass > 1
        self.n_features, self.n_tests = schema.n_features, len(listed.tests)
        self.columns = {column.name: number for number, column in enumerate(schema.columns)}
        self.kinds = [str(column.kind) for column in schema.columns]
        self.codes = [{level: k for k, level in enumerate(c.levels)} for c in schema.columns]
        self.fields: list[tuple[int, float, float, bool, bool, int, int, int, int]] = []
        self.levels: list[int] = []
        self.numbers: dict[str, float] = {}

    def read_rule(self, value: Any) -> int:
        """Read the conditions of a rule; return the number of conditions read so far."""
        first = len(self.fields)
        for at, condition in enumerate(check_array(value)):
            with PathContext(at):
                self._read_condition(check_object(condition, (), _CONDITION_KEYS))
        columns = {fields[0] for fields in self.fields[first:]}
        if len(columns) < len(self.fields) - first and not self.is_fractional:
            raise JsonError("two conditions on one column or test; merge them")
        return len(self.fields)

    def build_table(self) -> ConditionTable:
        """Return all conditions read."""
        columns = list(zip(*self.fields, strict=True)) if self.fields else [()] * 9
        column, low, high, known, missing, part_low, part_high, dividing, end = columns
        return ConditionTable(
            np.array(column, dtype=np.int32),
            np.array(low, dtype=np.float64),
            np.array(high, dtype=np.float64),
            np.array(known, dtype=np.bool_),
            np.array(missing, dtype=np.bool_),
            np.array(part_low, dtype=np.int32),
            np.array(part_high, dtype=np.int32),
            np.array(dividing, dtype=np.int64),
            np.array(end, dtype=np.int64),
            np.array(self.levels, dtype=np.int32),
        )

    def _read_condition(self, stated: dict[str, Any]) -> None:
        number, kind = self._read_column(stated)
        low, high, known = self._read_bounds(stated, kind)
        fits: Sequence[int] = ()
        if "in" in stated:
            with PathContext("in"):
                fits = parse_level_codes(self.codes[number], stated["in"])
        elif kind == "nominal" and known:
            fits = range(len(self.codes[number]))
        missing = check_boolean(stated.get("missing", False), "missing")
        part = self._read_part(stated, missing)
        dividing: list[int] = []
        if "dividing" in stated:
            with PathContext("dividing"):
                if not (self.is_fractional and missing and kind == "nominal"):
                    raise JsonError(
                        "'dividing' needs the missing policy 'fractional', a nominal column and "
                        "'missing': true"
                    )
                dividing = parse_level_codes(self.codes[number], stated["dividing"])
                if set(dividing) & set(fits):
                    raise JsonError("a category of 'dividing' already fits")
        self.levels.extend(fits)
        self.levels.extend(dividing)
        end = len(self.levels)
        self.fields.append((number, low, high, known, missing, *part, len(dividing), end))

    def _read_column(self, stated: dict[str, Any]) -> tuple[int, str]:
        """Return index and kind of the column or test."""
        if ("column" in stated) == ("test" in stated):
            raise JsonError("a condition needs exactly one of 'column' and 'test'")
        if "test" in stated:
            with PathContext("test"):
                return self.n_features + parse_integer(stated["test"], 1, self.n_tests) - 1, "test"
        number = look_up_code(self.columns, stated["column"], "a column", "column")
        return number, self.kinds[number]

    def _read_bounds(self, stated: dict[str, Any], kind: str) -> tuple[float, float, bool]:
        """Return the lower and upper bound, and whether known values can meet the condition."""
        keys = stated.keys() & _ALL_BOUND_KEYS
        low, high = -np.inf, np.inf
        if keys == {"known"}:
            return low, high, check_boolean(stated["known"], "known")
        if not keys or not keys <= _BOUND_KEYS[kind]:
            suits = ", ".join(sorted(_BOUND_KEYS[kind]))
            raise JsonError(f"a condition on this column needs {suits}, or 'known' alone")
        if kind == "test":
            holds = check_boolean(stated["holds"], "holds")
            return (-np.inf, 0.0, True) if holds else (0.0, np.inf, True)
        if stated.get("above") is not None:
            low = self._read_number(stated, "above")
        if stated.get("at_most") is not None:
            high = self._read_number(stated, "at_most")
        return low, high, True

    def _read_number(self, stated: dict[str, Any], key: str) -> float:
        text = check_number(stated[key], key)
        if text not in self.numbers:
            with PathContext(key):
                self.numbers[text] = parse_number(text, self.dtype)
        return self.numbers[text]

    def _read_part(self, stated: dict[str, Any], missing: bool) -> tuple[int, int]:
        """Return the part of a row with a missing value that fits: two bounds in 0 to `MASS`."""
        if "part" not in stated:
            return (0, MASS) if missing else (0, 0)
        with PathContext("part"):
            part = [parse_integer(bound, 0, MASS) for bound in check_array(stated["part"])]
            if not (self.is_fractional and missing) or len(part) != 2 or part[0] >= part[1]:
                raise JsonError(
                    "expected two ascending bounds, with the missing policy 'fractional' and "
                    "'missing': true"
                )
        return part[0], part[1]


# ---------------------------------------------------------------- json header

_DEFAULTS = {"voting": "soft", "order": "disjoint", "combine": "mean", "link": "identity"}
_CLAUSE_KEYS = ("column", "sum", "at_most", "above", "holds", "fails")
_MAX_TREES = 2**31 - 1
_MAX_COUNT = 2**63 - 1
_NO_CONDITIONS = ConditionTable(
    np.empty(0, np.int32),
    np.empty(0),
    np.empty(0),
    np.empty(0, np.bool_),
    np.empty(0, np.bool_),
    np.empty(0, np.int32),
    np.empty(0, np.int32),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.int32),
)


def parse_header(facts: dict[str, Any]) -> RuleList:
    """Return a rule list without rules, made from the header fields of the JSON.

    Raises
    ------
    JsonError
        If a field is invalid; names its path.
    """
    schema = _parse_schema(facts)
    with PathContext("trees"):
        n_trees = parse_integer(facts.get("trees", Numeral("1")), 1, _MAX_TREES)
        count_tree_units(n_trees, schema.dtype)  # raises if a model cannot hold as many trees
    with PathContext("exponent"):
        exponent = parse_integer(facts.get("exponent", Numeral("0")), -1074, 1074)
    with PathContext("tests"):
        reader = _TestReader(schema)
        stated = enumerate(check_array(facts.get("tests", [])))
        tests = tuple(reader.read_test(number, test) for number, test in stated)
    listed = RuleList(
        schema=schema,
        missing=cast(MissingPolicy, _parse_choice(facts, "missing", get_args(MissingPolicy))),
        unknown=cast(UnknownPolicy, _parse_choice(facts, "unknown", get_args(UnknownPolicy))),
        voting=cast(Voting, _parse_choice(facts, "voting", get_args(Voting))),
        costs=_parse_costs(facts.get("costs"), schema),
        n_trees=n_trees,
        exponent=exponent,
        tests=tests,
        tree=np.empty(0, np.int32),
        leaf=np.empty(0, np.int32),
        support=np.empty(0),
        as_parent=np.empty(0, np.bool_),
        units=np.empty((0, schema.n_values), np.int64),
        end=np.empty(0, np.int64),
        conditions=_NO_CONDITIONS,
        combine=cast(Combine, _parse_choice(facts, "combine", get_args(Combine))),
        link=cast(Link, _parse_choice(facts, "link", get_args(Link))),
        order=cast(Order, _parse_choice(facts, "order", get_args(Order))),
        decisions=_parse_decisions(facts),
        rounding=_parse_rounding(facts.get("rounding")),
    )
    votes = schema.task == "classification" and not listed.margins
    if (votes and exponent) or (not votes and listed.voting == "hard"):
        raise JsonError("votes need exponent 0, and numbers need voting 'soft'")
    if listed.decisions and not votes:
        raise JsonError("'decisions' needs rules that predict labels", ("decisions",))
    return listed


def _parse_decisions(facts: dict[str, Any]) -> bool:
    return "decisions" in facts and check_boolean(facts["decisions"], "decisions")


def _parse_rounding(value: Any) -> Rounding | None:
    if value is None:
        return None
    with PathContext("rounding"):
        stated = check_object(value, Rounding._fields)
        counts = []
        for key in Rounding._fields:
            with PathContext(key):
                counts.append(
                    parse_integer(stated[key], int(key in ("digits", "rows")), _MAX_COUNT)
                )
        found = Rounding(*counts)
        if found.digits > MAX_DIGITS or max(found.shortened, found.longer) > found.thresholds:
            raise JsonError(f"digits are at most {MAX_DIGITS}, and counts at most thresholds")
        return found


def _parse_choice(facts: dict[str, Any], key: str, choices: tuple[str, ...]) -> str:
    if key not in facts:
        return _DEFAULTS[key]
    with PathContext(key):
        return check_string(facts[key], choices)


def _parse_schema(facts: dict[str, Any]) -> Schema:
    targets = [
        _parse_target(k, value) for k, value in enumerate(_parse_nonempty_array(facts, "targets"))
    ]
    columns = [
        _parse_column(k, value) for k, value in enumerate(_parse_nonempty_array(facts, "columns"))
    ]
    marks: tuple[str, ...] = MISSING_MARKS
    if "missing_marks" in facts:
        with PathContext("missing_marks"):
            marks = tuple(check_string(mark) for mark in check_array(facts["missing_marks"]))
    return Schema(
        columns=tuple(columns),
        target=targets[0].name,
        task="classification" if any(target.classes for target in targets) else "regression",
        classes=targets[0].classes,
        dtype=cast(Dtype, _parse_choice(facts, "type", get_args(Dtype))),
        missing_marks=marks,
        more=tuple(targets[1:]),
    )


def _parse_nonempty_array(facts: dict[str, Any], key: str) -> list[Any]:
    with PathContext(key):
        if not check_array(facts[key]):
            raise JsonError("expected at least one element")
    return check_array(facts[key])


def _parse_target(k: int, value: Any) -> Output:
    with PathContext("targets", k):
        stated = check_object(value, ("name",), ("classes",))
        classes = tuple(parse_label(label) for label in check_array(stated.get("classes", [])))
        return Output(check_string(stated["name"]), classes)


def _parse_column(k: int, value: Any) -> Column:
    with PathContext("columns", k):
        stated = check_object(value, ("name",), ("levels",))
        name = check_string(stated["name"])
        if "levels" not in stated:
            return Column(name)
        return Column(
            name, "nominal", tuple(check_string(level) for level in check_array(stated["levels"]))
        )


def _parse_costs(value: Any, schema: Schema) -> npt.NDArray[np.int64] | None:
    if value is None:
        return None
    with PathContext("costs"):
        size = len(schema.classes)
        rows = [
            [parse_integer(cost, 0, MAX_COST) for cost in check_array(row)]
            for row in check_array(value)
        ]
        if [len(row) for row in rows] != [size] * size or schema.more or not size:
            raise JsonError("expected a square matrix over the classes of a single target")
        costs = np.array(rows, dtype=np.int64)
        if np.diagonal(costs).any():
            raise JsonError("the cost of a correct prediction must be 0")
        return costs


class _TestReader:
    """Reader of tests on the columns of a schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.features = {column.name: k for k, column in enumerate(schema.columns)}

    def read_test(self, number: int, value: Any) -> Test:
        """Read the test `value`, a list of clauses, at position `number` of the tests."""
        clauses: list[Clause] = []
        with PathContext(number):
            for at, stated in enumerate(check_array(value)):
                with PathContext(at):
                    clause = check_object(stated, (), _CLAUSE_KEYS)
                    levels = clause.keys() == {"column", "holds", "fails"}
                    clauses.append(
                        self._read_levels(clause) if levels else self._read_linear(clause)
                    )
            if not clauses:
                raise JsonError("a test needs at least one clause")
        return tuple(clauses)

    def _read_linear(self, stated: dict[str, Any]) -> LinearClause:
        dtype = self.schema.dtype
        side = next((side for side in ("at_most", "above") if side in stated), "")
        below = int(side == "above")
        if stated.keys() == {"column", side}:
            at = parse_number(check_number(stated[side]), dtype)
            return LinearClause(
                (self._find_column(stated["column"], "numeric"),), (1.0,), at, below
            )
        if stated.keys() != {"sum", side}:
            raise JsonError(
                "a clause needs 'column' or 'sum' with 'at_most' or 'above', or 'column' with "
                "'holds' and 'fails'"
            )
        features, weights = [], []
        for place, term in enumerate(check_array(stated["sum"])):
            with PathContext("sum", place):
                if len(check_array(term)) != 2:
                    raise JsonError(
                        f"expected [column, weight], got an array of {len(term)} elements"
                    )
                features.append(self._find_column(term[0], "numeric"))
                weights.append(parse_number(check_number(term[1]), dtype))
        if not weights or 0.0 in weights:
            raise JsonError("a sum needs terms with weights other than 0")
        return LinearClause(
            tuple(features), tuple(weights), parse_number(check_number(stated[side])), below
        )

    def _read_levels(self, stated: dict[str, Any]) -> LevelsClause:
        feature = self._find_column(stated["column"], "nominal")
        codes = {level: code for code, level in enumerate(self.schema.columns[feature].levels)}
        branches = [-1] * len(codes)
        for branch, side in enumerate(("holds", "fails")):
            with PathContext(side):
                for code in parse_level_codes(codes, stated[side]):
                    if branches[code] >= 0:
                        raise JsonError("a category is in both 'holds' and 'fails'")
                    branches[code] = branch
        return LevelsClause(feature, tuple(branches))

    def _find_column(self, name: Any, kind: str) -> int:
        feature = look_up_code(self.features, name, "a column")
        if self.schema.columns[feature].kind != kind:
            raise JsonError(f"{name!r} is not {kind}")
        return feature
