"""Rules as JSON: the records of the format, the writer, and a strict, validating reader."""

from __future__ import annotations

import json
import re
import reprlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from treekit.data.schema import MISSING_MARKS, Column, Dtype, Label, Notation, Output, Schema
from treekit.documents import Listing
from treekit.errors import ModelFileError, find_repeated
from treekit.model.fixed_point import MASS, count_tree_units, floor_to_dtype
from treekit.model.links import Combine, Link
from treekit.model.model import MissingPolicy, UnknownPolicy, Voting
from treekit.model.validation import MAX_COST, check_header
from treekit.rules.read_text import complete_votes
from treekit.rules.rule_list import (
    Clause,
    ConditionTuple,
    LevelsClause,
    LinearClause,
    Order,
    ParsedRule,
    RuleList,
    Test,
    add_rules,
    make_empty_list,
)
from treekit.rules.wording import (
    OutcomeFormatter,
    format_bounds,
    format_number,
    format_numbers,
    parse_number,
    parse_share,
)

# ---------------------------------------------------------------- records of the format

Number = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """An object of the format."""


class TargetEntry(_Entry):
    """A target; `classes` is empty for a number."""

    name: str
    classes: tuple[bool | int | float | str, ...] | UnsetType = UNSET


class ColumnEntry(_Entry):
    """A column; `levels` are the categories of a nominal one."""

    name: str
    levels: tuple[str, ...] | UnsetType = UNSET


class ClauseEntry(_Entry):
    """A clause of a test: a column or sum with one bound, or categories that hold and fail."""

    column: str | UnsetType = UNSET
    sum: list[tuple[str, Number]] | UnsetType = UNSET
    at_most: Number | UnsetType = UNSET
    above: Number | UnsetType = UNSET
    holds: list[str] | UnsetType = UNSET
    fails: list[str] | UnsetType = UNSET


class ConditionEntry(_Entry):
    """A condition on a column or test, counted from 1."""

    column: str | UnsetType = UNSET
    test: Positive | UnsetType = UNSET
    known: bool | UnsetType = UNSET
    above: Number | UnsetType | None = UNSET
    at_most: Number | UnsetType | None = UNSET
    holds: bool | UnsetType = UNSET
    levels: list[str] | UnsetType = msgspec.field(default=UNSET, name="in")
    missing: bool | UnsetType = UNSET
    part: tuple[Count, Count] | UnsetType = UNSET
    dividing: list[str] | UnsetType = UNSET


class VotesEntry(_Entry):
    """Outcome of a rule for a target with classes; class weights of training rows."""

    label: bool | int | float | str | UnsetType = UNSET
    shares: dict[str, Any] | UnsetType = UNSET
    training: dict[str, Any] | UnsetType = UNSET


class MarginsEntry(_Entry):
    """Outcome of a rule that adds to the margins of classes."""

    margins: dict[str, Any]
    training: dict[str, Any] | UnsetType = UNSET


class NumberEntry(_Entry):
    """Outcome of a rule for a numeric target."""

    value: Number
    training: Number | UnsetType = UNSET


class RuleEntry(_Entry, kw_only=True):
    """A rule; trees are counted from 1."""

    tree: Positive = 1
    node: Annotated[int, Meta(ge=0, le=2**31 - 1)] | UnsetType = UNSET
    conditions: list[ConditionEntry] = msgspec.field(name="if")
    then: dict[str, Any]
    support: Annotated[float, Meta(ge=0, le=sys.float_info.max)] = 0.0
    as_parent: bool = False


_Power = Annotated[int, Meta(ge=-1074, le=1074)]


class HeaderEntry(_Entry, kw_only=True):
    """The facts of a list; see `RuleList`."""

    format: Literal["treekit rules"]
    version: Literal[1]
    targets: Annotated[list[TargetEntry], Meta(min_length=1)]
    columns: Annotated[list[ColumnEntry], Meta(min_length=1)]
    missing_marks: tuple[str, ...] = MISSING_MARKS
    notation: Notation | UnsetType = UNSET
    type: Dtype
    missing: MissingPolicy
    unknown: UnknownPolicy
    voting: Voting = "soft"
    order: Order = "disjoint"
    costs: list[list[Annotated[int, Meta(ge=0, le=MAX_COST)]]] | None = None
    trees: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 1
    combine: Combine = "mean"
    link: Link = "identity"
    exponent: _Power | tuple[_Power, ...] = 0
    decisions: bool = False
    rounding: None = None  # of earlier versions
    tests: list[Annotated[list[ClauseEntry], Meta(min_length=1)]] = []


_SHARED_FIELDS = (
    *("missing", "unknown", "voting", "order", "combine", "link", "exponent", "decisions"),
)
"""Fields of the header that are fields of `RuleList`."""


class DocumentEntry(HeaderEntry, kw_only=True):
    """The complete document."""

    rules: list[RuleEntry]


# ---------------------------------------------------------------- write JSON

_RULES_PER_PIECE = 2048
_LISTED_FIELDS = ("targets", "columns", "tests")
"""Fields of the header with one line per item."""


def render_json(listing: Listing) -> Iterator[str]:
    """Return the JSON text, one line per condition, in pieces of `_RULES_PER_PIECE` rules."""
    rules = listing.rules
    outcomes = OutcomeFormatter(rules, listing.language, format_key)
    yield "{\n" + "".join(_format_header(rules)) + ' "rules": [\n'
    for first in range(0, len(rules), _RULES_PER_PIECE):
        last = min(first + _RULES_PER_PIECE, len(rules))
        yield ",\n".join(map(_format_rule, _make_rules(outcomes, first, last))) + (
            ",\n" if last < len(rules) else "\n"
        )
    yield " ]\n}\n"


def format_key(label: Label) -> str:
    """Return the JSON key of a label: the label itself if it is a string, else its JSON text."""
    return label if isinstance(label, str) else json.dumps(label)


def _dump_json(value: Any) -> str:
    """Return JSON in one line; only characters that are not printable are escaped."""
    text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, allow_nan=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _format_header(rules: RuleList) -> Iterator[str]:
    header = _make_header(rules)
    for key in HeaderEntry.__struct_fields__:
        value = getattr(header, key)
        if value is UNSET:
            continue
        text = _dump_json(value)
        if key in _LISTED_FIELDS and value:
            text = "[\n  " + ",\n  ".join(map(_dump_json, value)) + "\n ]"
        yield f' "{key}": {text},\n'


def _format_rule(rule: RuleEntry) -> str:
    conditions = ",\n    ".join(map(_dump_json, rule.conditions))
    conditions = f"[\n    {conditions}\n   ]" if conditions else "[]"
    stated = (f"{_dump_json(name)}: {_dump_json(entry)}" for name, entry in rule.then.items())
    then = ",\n    ".join(stated)
    more = ', "as_parent": true' if rule.as_parent else ""
    return (
        f'  {{"tree": {rule.tree}, "node": {rule.node},\n   "if": {conditions},\n'
        f'   "then": {{{then}}},\n   "support": {_dump_json(rule.support)}{more}}}'
    )


# -------- the records of a list


def _make_header(rules: RuleList) -> HeaderEntry:
    schema = rules.schema
    return HeaderEntry(
        format="treekit rules",
        version=1,
        targets=[TargetEntry(output.name, output.classes or UNSET) for output in schema.outputs],
        columns=[
            ColumnEntry(column.name, column.levels if column.kind == "nominal" else UNSET)
            for column in schema.columns
        ],
        missing_marks=schema.missing_marks,
        notation=schema.notation,
        type=schema.dtype,
        costs=None if rules.costs is None else rules.costs.tolist(),
        trees=rules.n_trees,
        tests=[[_make_clause(schema, clause) for clause in test] for test in rules.tests],
        **{key: getattr(rules, key) for key in _SHARED_FIELDS},
    )


def _make_clause(schema: Schema, clause: Clause) -> ClauseEntry:
    if not isinstance(clause, LinearClause):
        column = schema.columns[clause.feature]
        holds, fails = (
            [level for level, b in zip(column.levels, clause.branches, strict=True) if b == side]
            for side in (0, 1)
        )
        return ClauseEntry(column.name, holds=holds, fails=fails)
    names = [schema.columns[feature].name for feature in clause.features]
    at, dtype = clause.threshold, schema.dtype
    alone = clause.weights == (1.0,) and floor_to_dtype(at, dtype) == at
    bound = _shorten(format_number(at, dtype if alone else "float64"))
    entry = ClauseEntry(names[0]) if alone else ClauseEntry()
    if not alone:
        weights = map(_shorten, format_numbers(np.array(clause.weights), dtype))
        entry.sum = list(zip(names, weights, strict=True))
    setattr(entry, "above" if clause.below else "at_most", bound)
    return entry


def _shorten(text: str) -> float:
    """Return the number of a numeral, an int if it is whole: JSON writes the same numeral."""
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def _make_rules(outcomes: OutcomeFormatter, first: int, last: int) -> Iterator[RuleEntry]:
    rules = outcomes.rules
    start, stop = rules.bounds(first)[0], rules.bounds(last - 1)[1]
    conditions = _make_conditions(rules, start, stop)
    ends = [0, *(rules.end[first:last] - start).tolist()]
    names = [output.name for output in rules.schema.outputs]
    columns = (_make_outcomes(outcomes, k, first, last) for k in range(len(names)))
    supports = map(_shorten, format_numbers(rules.support[first:last]))
    rows = zip(zip(*columns, strict=True), supports, strict=True)
    for at, (stated, support) in enumerate(rows):
        yield RuleEntry(
            tree=int(rules.tree[first + at]) + 1,
            node=int(rules.leaf[first + at]),
            conditions=conditions[ends[at] : ends[at + 1]],
            then=dict(zip(names, stated, strict=True)),
            support=support,
            as_parent=bool(rules.as_parent[first + at]),
        )


def _make_conditions(rules: RuleList, start: int, stop: int) -> list[ConditionEntry]:
    table, dtype = rules.conditions, rules.schema.dtype
    bounds = [
        [_shorten(text) if text else None for text in format_bounds(ends[start:stop], dtype)]
        for ends in (table.low, table.high)
    ]
    own = table.iterate_conditions(start, stop)
    return [_make_condition(rules.schema, *each) for each in zip(own, *bounds, strict=True)]


def _make_condition(
    schema: Schema, one: ConditionTuple, low: float | None, high: float | None
) -> ConditionEntry:
    number = one.column - schema.n_features
    is_test = number >= 0
    levels = () if is_test else schema.columns[one.column].levels
    entry = ConditionEntry(missing=one.missing)
    if is_test:
        entry.test = number + 1
    else:
        entry.column = schema.columns[one.column].name
    if not one.known:
        entry.known = False
    elif len(one.fits) < len(levels):
        entry.levels = [levels[code] for code in one.fits]
    elif low is None and high is None:
        entry.known = True
    elif is_test:
        entry.holds = low is None
    else:
        entry.above, entry.at_most = low, high
    if one.part != ((0, MASS) if one.missing else (0, 0)):
        entry.part = one.part
    if one.dividing:
        entry.dividing = [levels[code] for code in one.dividing]
    return entry


def _make_outcomes(
    outcomes: OutcomeFormatter, k: int, first: int, last: int
) -> list[VotesEntry | MarginsEntry | NumberEntry]:
    """Return the outcomes of some rules for one target."""
    rules, found = outcomes.rules, outcomes.format_target(k, first, last)
    classes = rules.schema.outputs[k].classes
    entries: list[VotesEntry | MarginsEntry | NumberEntry]
    if outcomes.has_votes:
        entries = [VotesEntry(classes[one.label], _make_pairs(one.shares)) for one in found]
    elif rules.margins:
        entries = [MarginsEntry(_make_pairs(one.shares)) for one in found]
    else:
        entries = [NumberEntry(_shorten(one.text)) for one in found]
    if rules.value is not None:
        values = rules.value[first:last, slice(*rules.schema.blocks[k : k + 2])]
        texts = np.array(format_numbers(values.ravel()), dtype=object).reshape(values.shape)
        for entry, row in zip(entries, texts.tolist(), strict=True):
            pairs = zip(outcomes.labels[k], row, strict=True) if classes else ()
            entry.training = (
                _make_pairs((label, text) for label, text in pairs if text != "0")
                if classes
                else _shorten(row[0])
            )
    return entries


def _make_pairs(pairs: Iterable[tuple[str, str]]) -> dict[str, float]:
    return {key: _shorten(text) for key, text in pairs}


# ---------------------------------------------------------------- read JSON


def read_json(text: str) -> RuleList:
    """Parse rules from JSON text.

    Raises
    ------
    ModelFileError
        If the text does not follow the format of `treekit.documents.json_rules`; names the path
        in the text, such as ``$.rules[3].if[0]`` (counted from 0).
    """
    try:
        with _errors_at("$"):
            stated = _convert(_parse_json(text), DocumentEntry)
            header, conditions = _read_header(stated)
            with _errors_at(".rules"):
                rules = list(_read_rules(stated.rules, header, conditions))
                found = add_rules(header, rules, fixed_step=False)
                _check_order(found)
                return found
    except JsonError as fault:
        raise ModelFileError(
            f"{fault.path} of the rules cannot be read: {fault}; correct it, or export the "
            "rules again from their model"
        ) from fault


class JsonError(ValueError):
    """An invalid value, with its path: ``$.rules[3].if``."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


@contextmanager
def _errors_at(path: str) -> Iterator[None]:
    """Prefix the path of errors: ``with _errors_at(".rules[3]"):``."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        rest = error.path if isinstance(error, JsonError) else ""
        raise JsonError(str(error), path + rest) from error


_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def _format_step(key: str) -> str:
    """Return the step of a path to a key."""
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{json.dumps(key)}]"


class _RepeatedKey:
    """A JSON object with a repeated key; its conversion to any record fails."""

    def __init__(self, key: str) -> None:
        self.key = key


def _collect_members(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _RepeatedKey:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    return _RepeatedKey(str(find_repeated(name for name, _ in pairs)))


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def _parse_json(source: str) -> Any:
    """Parse JSON text (RFC 8259)."""
    try:
        return json.loads(
            source.removeprefix("\ufeff"),
            parse_int=lambda text: int(text) if len(text) < 400 else float(text),
            parse_constant=_refuse_constant,
            object_pairs_hook=_collect_members,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from error


def _convert(value: Any, kind: Any) -> Any:
    """Convert a JSON value to a record; errors name path, value and rule."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        found, place = value, place.removesuffix("`")
        for key, number in re.findall(r"\.(\w+)|\[(\d+)\]", place):
            found = found[key] if key else found[int(number)]
        if isinstance(found, _RepeatedKey):
            raise JsonError(f"the key {found.key!r} appears twice", place) from error
        if message.startswith("Invalid enum value"):
            choices = get_args(get_type_hints(kind)[place[1:]])
            message = f"expected one of: {', '.join(map(str, choices))}"
        raise JsonError(f"{message}; the value is {reprlib.repr(found)}", place) from error


def _look_up(codes: Mapping[str, int], name: str, kind: str, path: str = "") -> int:
    """Return the code of a name; raise `JsonError` with its `path` if it is unknown."""
    if name not in codes:
        raise JsonError(f"{name!r} is not {kind}", path)
    return codes[name]


def _list_given(entry: _Entry) -> set[str]:
    """Return the names of the fields that an object states."""
    fields = zip(entry.__struct_encode_fields__, msgspec.structs.astuple(entry), strict=True)
    return {name for name, value in fields if value is not UNSET}


# ---------------------------------------------------------------- header


def _read_header(stated: HeaderEntry) -> tuple[RuleList, _ConditionReader]:
    """Return an empty rule list with the header's facts, and a reader of conditions."""
    first, *more = [Output(target.name, target.classes or ()) for target in stated.targets]
    schema = Schema(
        columns=tuple(
            Column(column.name)
            if isinstance(column.levels, UnsetType)
            else Column(column.name, "nominal", column.levels)
            for column in stated.columns
        ),
        target=first.name,
        task="classification" if any(o.classes for o in (first, *more)) else "regression",
        classes=first.classes,
        dtype=stated.type,
        missing_marks=stated.missing_marks,
        notation=stated.notation,
        more=tuple(more),
    )
    with _errors_at(".trees"):
        count_tree_units(stated.trees, schema.dtype)  # raises if a model cannot hold as many
    reader = _ConditionReader(schema, divides=stated.missing == "fractional")
    with _errors_at(".tests"):
        tests = tuple(reader.read_test(number, test) for number, test in enumerate(stated.tests))
    same = ("missing", "unknown", "voting", "exponent", "combine", "link", "order", "decisions")
    header = make_empty_list(
        schema,
        costs=None,
        n_trees=stated.trees,
        tests=tests,
        **{name: getattr(stated, name) for name in same},
    )
    votes = schema.task == "classification" and not header.margins
    if votes and header.exponent:
        raise JsonError("votes need exponent 0", ".exponent")
    if header.decisions and not votes:
        raise JsonError("'decisions' needs rules that predict labels", ".decisions")
    if stated.costs is not None:
        with _errors_at(".costs"):
            header = replace(header, costs=np.array(stated.costs, dtype=np.int64))
            check_header(header)
    return header, reader


# ---------------------------------------------------------------- conditions and tests

_BOUNDS = {"numeric": {"above", "at_most"}, "nominal": {"in"}, "test": {"holds"}}
_ALL_BOUNDS = {"above", "at_most", "in", "holds", "known"}


class _ConditionReader:
    """Reader of the conditions of rules, and of tests of several columns."""

    def __init__(self, schema: Schema, *, divides: bool) -> None:
        self.schema, self.divides = schema, divides
        self.round_number = cache(lambda number: parse_number(repr(number), schema.dtype))
        self.columns = {column.name: number for number, column in enumerate(schema.columns)}
        self.codes = [{level: k for k, level in enumerate(c.levels)} for c in schema.columns]

    def read_test(self, number: int, clauses: list[ClauseEntry]) -> Test:
        """Read the test at position `number` of the tests."""
        test: list[Clause] = []
        for at, clause in enumerate(clauses):
            with _errors_at(f"[{number}][{at}]"):
                levels = _list_given(clause) == {"column", "holds", "fails"}
                test.append(self._read_levels(clause) if levels else self._read_linear(clause))
        return tuple(test)

    def _read_linear(self, stated: Any) -> LinearClause:
        given = _list_given(stated)
        side = "above" if "above" in given else "at_most"
        bound, below = getattr(stated, side), int(side == "above")
        if given == {"column", side}:
            feature = self._find_column(stated.column, "numeric")
            return LinearClause((feature,), (1.0,), self.round_number(bound), below)
        if given != {"sum", side}:
            raise JsonError(
                "a clause needs 'column' or 'sum' with 'at_most' or 'above', or 'column' with "
                "'holds' and 'fails'"
            )
        features, weights = [], []
        for place, (name, weight) in enumerate(stated.sum):
            with _errors_at(f".sum[{place}]"):
                features.append(self._find_column(name, "numeric"))
                weights.append(self.round_number(weight))
        if not weights or 0.0 in weights:
            raise JsonError("a sum needs terms with weights other than 0")
        return LinearClause(tuple(features), tuple(weights), bound, below)

    def _read_levels(self, stated: Any) -> LevelsClause:
        feature = self._find_column(stated.column, "nominal")
        branches = [-1] * len(self.codes[feature])
        for branch, side in enumerate(("holds", "fails")):
            with _errors_at(f".{side}"):
                for code in self._look_up_levels(feature, getattr(stated, side)):
                    if branches[code] >= 0:
                        raise JsonError(
                            f"category {self.schema.columns[feature].levels[code]!r} is in both "
                            "'holds' and 'fails'"
                        )
                    branches[code] = branch
        return LevelsClause(feature, tuple(branches))

    def _find_column(self, name: str, kind: str) -> int:
        feature = _look_up(self.columns, name, "a column")
        if self.schema.columns[feature].kind != kind:
            raise JsonError(f"column {name!r} is not {kind}")
        return feature

    def _look_up_levels(self, column: int, levels: Sequence[str]) -> tuple[int, ...]:
        """Return the codes of distinct categories, ascending."""
        kind = "a category of its column"
        found = [
            _look_up(self.codes[column], level, kind, f"[{at}]") for at, level in enumerate(levels)
        ]
        if len(set(found)) != len(found):
            raise JsonError(f"a category is listed twice in {reprlib.repr(list(levels))}")
        return tuple(sorted(found))

    def read_conditions(self, stated: list[ConditionEntry], n_tests: int) -> list[ConditionTuple]:
        """Read the conditions of a rule."""
        found = []
        for at, condition in enumerate(stated):
            with _errors_at(f"[{at}]"):
                found.append(self._read_condition(condition, n_tests))
        if len({one.column for one in found}) < len(found) and not self.divides:
            raise JsonError("two conditions on one column or test; merge them")
        return found

    def _read_condition(self, stated: Any, n_tests: int) -> ConditionTuple:
        given = _list_given(stated)
        if ("column" in given) == ("test" in given):
            raise JsonError("a condition needs exactly one of 'column' and 'test'")
        if "column" in given:
            column = _look_up(self.columns, stated.column, "a column", ".column")
            kind: str = self.schema.columns[column].kind
        else:
            if stated.test > n_tests:
                raise JsonError(f"test {stated.test} does not exist: {n_tests} are listed", ".test")
            column, kind = self.schema.n_features + stated.test - 1, "test"
        low, high = self._read_bounds(stated, given & _ALL_BOUNDS, kind)
        known, missing = stated.known is not False, stated.missing is True
        fits: tuple[int, ...] = ()
        if "in" in given:
            with _errors_at(".in"):
                fits = self._look_up_levels(column, stated.levels)
        elif kind == "nominal" and known:
            fits = tuple(range(len(self.codes[column])))
        if given & {"part", "dividing"} and not (self.divides and missing):
            raise JsonError(
                "'part' and 'dividing' require the missing policy 'fractional' and 'missing': true"
            )
        part = stated.part or ((0, MASS) if missing else (0, 0))
        if "part" in given and not part[0] < part[1] <= MASS:
            raise JsonError(f"{part} is not a pair of ascending numbers, at most {MASS}", ".part")
        dividing: tuple[int, ...] = ()
        if "dividing" in given:
            with _errors_at(".dividing"):
                if kind != "nominal":
                    raise JsonError("'dividing' needs a nominal column")
                dividing = self._look_up_levels(column, stated.dividing)
                if set(dividing) & set(fits):
                    raise JsonError("a category of 'dividing' already fits")
        return ConditionTuple(column, low, high, known, missing, part, fits, dividing)

    def _read_bounds(self, stated: Any, bounds: set[str], kind: str) -> tuple[float, float]:
        """Return the lower and upper bound of a condition with some of `_ALL_BOUNDS`."""
        if bounds != {"known"} and not (bounds and bounds <= _BOUNDS[kind]):
            suits = ", ".join(sorted(_BOUNDS[kind]))
            raise JsonError(f"a condition on this column needs {suits}, or 'known' alone")
        if "holds" in bounds:
            return (-np.inf, 0.0) if stated.holds else (0.0, np.inf)
        found = []
        for side, none in (("above", -np.inf), ("at_most", np.inf)):
            with _errors_at(f".{side}"):
                bound = getattr(stated, side)
                found.append(self.round_number(bound) if isinstance(bound, float) else none)
        return found[0], found[1]


# ---------------------------------------------------------------- rules


def _read_rules(
    stated: list[RuleEntry], header: RuleList, conditions: _ConditionReader
) -> Iterator[ParsedRule]:
    outcomes = _OutcomeReader(header)
    leaves: dict[int, int] = {}  # of each tree the last one
    for number, rule in enumerate(stated):
        with _errors_at(f"[{number}]"):
            if rule.tree > header.n_trees:
                raise JsonError(
                    f"tree {rule.tree} does not exist: there are {header.n_trees}", ".tree"
                )
            if rule.as_parent and rule.support:
                raise JsonError("'as_parent' is true, so 'support' must be 0")
            leaf = leaves.get(rule.tree, -1) + 1 if isinstance(rule.node, UnsetType) else rule.node
            leaves[rule.tree] = leaf
            with _errors_at(".if"):
                own = conditions.read_conditions(rule.conditions, len(header.tests))
            with _errors_at(".then"):
                then = outcomes.read_outcomes(rule.then)
            yield ParsedRule(rule.tree - 1, leaf, own, rule.support, rule.as_parent, *then)


def _check_order(found: RuleList) -> None:
    """Check that the last rule of each tree of an ordered list has no conditions."""
    last = np.flatnonzero(np.diff(found.tree, append=-1))
    wrong = last[np.diff(found.end, prepend=0)[last] > 0]
    if found.order == "first" and len(wrong):
        path = f"[{wrong[0]}].if"
        raise JsonError("the last rule of an ordered list must have no conditions", path)


class _OutcomeReader:
    """Reader of the outcomes of rules."""

    def __init__(self, header: RuleList) -> None:
        self.rules, self.outputs = header, header.schema.outputs
        numeric = header.schema.task == "regression"
        self.kind = MarginsEntry if header.margins else NumberEntry if numeric else VotesEntry
        self.codes = [{format_key(c): k for k, c in enumerate(o.classes)} for o in self.outputs]
        self.labels = [
            {(type(label), label): k for k, label in enumerate(o.classes)} for o in self.outputs
        ]

    def read_outcomes(self, stated: dict[str, Any]) -> tuple[list[float], list[float] | None]:
        """Return votes or numbers, and training values (None if a target has none)."""
        names = [output.name for output in self.outputs]
        if stated.keys() != set(names):
            raise JsonError(f"expected an outcome for each of {names}, not for {list(stated)}")
        numbers: list[float] = []
        training: list[float] | None = []
        for k, name in enumerate(names):
            with _errors_at(_format_step(name)):
                outcome = _convert(stated[name], self.kind)
                numbers += self._read_numbers(k, outcome)
                if training is None or outcome.training is UNSET:
                    training = None
                elif isinstance(outcome, NumberEntry):
                    training = [*training, outcome.training]
                else:
                    training = training + self._read_classes(k, outcome, "training", Number)
        return numbers, training

    def _read_numbers(self, k: int, outcome: Any) -> Sequence[float]:
        if isinstance(outcome, NumberEntry):
            return [outcome.value]
        if isinstance(outcome, MarginsEntry):
            return self._read_classes(k, outcome, "margins", Number)
        total, label = self.rules.units_each, outcome.label
        code = None
        if label is not UNSET:
            with _errors_at(".label"):
                if (type(label), label) not in self.labels[k]:
                    raise JsonError(f"{label!r} is not a class")
                code = self.labels[k][type(label), label]
        if outcome.shares is not UNSET:
            shares = self._read_classes(k, outcome, "shares", Share)
            votes = [parse_share(f"{Decimal(repr(share)):f}", total) for share in shares]
            with _errors_at(".shares"):
                return complete_votes(self.rules, votes, code)
        if code is None:
            raise JsonError("an outcome needs 'label', 'shares' or both")
        return [total if at == code else 0 for at in range(len(self.labels[k]))]

    def _read_classes(self, k: int, outcome: Any, name: str, kind: Any) -> list[float]:
        """Return the numbers of an object whose keys are classes, 0 for the others."""
        found = [0.0] * len(self.codes[k])
        with _errors_at(f".{name}"):
            for key, stated in getattr(outcome, name).items():
                with _errors_at(_format_step(key)):
                    number = _convert(stated, kind)
                found[_look_up(self.codes[k], key, "a class")] = number
        return found
