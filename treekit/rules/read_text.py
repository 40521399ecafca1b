"""Parser for rule text: strict, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, cast, get_args

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Dtype, Label, Output, Schema
from treekit.errors import DataError, ModelError, ModelFileError
from treekit.model.fixed_point import MASS, count_tree_units
from treekit.model.links import Combine, Link
from treekit.model.model import (
    MissingPolicy,
    UnknownPolicy,
    Voting,
    count_leaf_units,
    predict_labels,
)
from treekit.model.validation import MAX_COST
from treekit.rules import language as languages
from treekit.rules.language import ENGLISH, FIRST_LINE, Language, list_languages
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
from treekit.rules.wording import (
    INTEGER_PATTERN,
    NUMBER_PATTERN,
    SHARE_PATTERN,
    FieldPatterns,
    PhrasePatterns,
    format_part,
    format_test_gist,
    make_plain_pattern,
    parse_label,
    parse_name,
    parse_number,
    parse_share,
    quote_name,
    split_outside_quotes,
)
from treekit.rules.write_text import format_header, generate_text

# ---------------------------------------------------------------- rules

_FIRST_LINE = re.compile(rf"{re.escape(FIRST_LINE)}(?:, language ([A-Za-z0-9-]+))?")


def parse_rules(text: str, language: str | Language | None = None) -> RuleList:
    """Parse rule text; `RuleList.text` of the result is the text again.

    Parameters
    ----------
    text : str
    language : str or Language, optional
        The language of the text; by default the one that its first line names.

    Raises
    ------
    ModelFileError
        For any line that `treekit.rules.write_text` does not write; names the line.
    SettingError
        If the language is unknown.
    """
    words = detect_language(text) if language is None else languages.load_language(language)
    lines = LineReader(text, words)
    try:
        facts = read_header(lines)
        result = _parse_body(lines, facts)
        _check_canonical(result, text, words)
        return result
    except (ValueError, KeyError, IndexError, OverflowError, DataError, ModelError) as error:
        raise ModelFileError(
            f"line {lines.at} of the rules cannot be read ({error}); "
            "export the rules again: only unchanged text is executed"
        ) from error


def detect_language(text: str) -> Language:
    """Return the language that a text names; English if it names none."""
    match = _FIRST_LINE.fullmatch(text.partition("\n")[0])
    code = match[1] if match is not None and match[1] else ENGLISH
    if code not in list_languages():  # never a file name: the text is untrusted
        raise ModelFileError(
            f"line 1 of the rules names the language {code!r}, which treekit does not include; "
            "write the rules in another language"
        )
    return languages.load_language(code)


def _parse_body(lines: LineReader, facts: HeaderFacts) -> RuleList:
    n, end_of_header = facts.n_rules, lines.at
    places, ends = np.zeros((n, 2), np.int32), np.zeros(n, np.int64)
    support, as_parent = np.zeros(n), np.zeros(n, dtype=np.bool_)
    units = np.zeros((n, facts.schema.n_values), dtype=np.int64)
    conditions: list[ParsedCondition] = []
    words = lines.words
    reader, frame = AnswerReader(facts, words), _RuleFrameReader(lines, facts)
    rule = ConditionReader(facts.schema, facts.tests, words, divides=facts.mass > 1)
    for number in range(n):
        places[number] = frame.read_place(number + 1)
        conditions.extend(
            rule.parse_condition(condition) for condition in frame.iterate_conditions()
        )
        ends[number] = len(conditions)
        support[number], as_parent[number], units[number] = reader.read_answer(lines)
    if lines.lines[lines.at :] != [""]:
        raise ValueError("unexpected text after the last rule")
    result = RuleList(
        schema=facts.schema,
        missing=facts.missing,
        unknown=facts.unknown,
        voting=facts.voting,
        costs=facts.costs,
        n_trees=facts.n_trees,
        exponent=facts.exponent,
        tests=facts.tests,
        tree=places[:, 0],
        leaf=places[:, 1],
        support=support,
        as_parent=as_parent,
        units=units,
        end=ends,
        conditions=make_condition_table(conditions),
        combine=facts.combine,
        link=facts.link,
        order=facts.order,
        decisions=facts.decisions,
        rounding=facts.rounding,
    )
    if result.order == "first" and bool(np.any(np.diff(result.tree) < 0)):
        raise ValueError("tree numbers of an ordered list must ascend")
    if format_header(result, words) != lines.lines[:end_of_header]:
        raise ValueError("the header's explanations do not follow from its facts")
    return result


def _check_canonical(result: RuleList, text: str, words: Language) -> None:
    """Check that the text is in canonical form; ``01`` or ``1e0`` is refused."""
    at = 0
    for piece in generate_text(result, words):
        if not text.startswith(piece, at):
            said = zip(piece.split("\n"), text[at:].split("\n"), strict=False)
            line = text.count("\n", 0, at) + [one == other for one, other in said].index(False) + 1
            raise ValueError(f"line {line} differs from the text that treekit writes")
        at += len(piece)


class _RuleFrameReader:
    """Parser of the lines of a rule up to its prediction."""

    def __init__(self, lines: LineReader, facts: HeaderFacts) -> None:
        self.lines, self.facts, words = lines, facts, lines.words
        self.several = facts.n_trees > 1
        numbers = dict.fromkeys(("rule", "rules", "tree", "trees", "node"), INTEGER_PATTERN)
        key = "rule_place_tree" if self.several else "rule_place"
        self.header = PhrasePatterns(words, (key,), numbers)
        # Either is accepted here; `_check_canonical` checks that it is the right one.
        self.without = [f"  {words.phrases[key]}" for key in ("rule_always", "rule_otherwise")]
        self.starts = [words.around(key, "condition") for key in ("rule_if", "rule_and")]

    def read_place(self, number: int) -> tuple[int, int]:
        """Return tree and node of rule `number`, which is next."""
        if self.lines.read_line() != "":
            raise ValueError("expected an empty line before a rule")
        found = self.header.match_phrase(self.lines.read_line())
        if found is None:
            raise ValueError("expected a line with the number of a rule")
        numbers = {field: int(text) for field, text in found[1].items()}
        facts = self.facts
        if (numbers["rule"], numbers["rules"]) != (number, facts.n_rules):
            raise ValueError("a rule is out of place")
        if self.several and numbers["trees"] != facts.n_trees:
            raise ValueError("a rule is out of place")
        return (numbers["tree"] - 1 if self.several else 0), numbers["node"]

    def iterate_conditions(self) -> Iterator[str]:
        """Generate the conditions of the rule."""
        line = self.lines.read_line()
        if line in self.without:
            return
        (start, end), (more, more_end) = self.starts
        yield self._strip_phrase(line, start, end)
        while self.lines.begins_with(f"  {more}"):
            yield self._strip_phrase(self.lines.read_line(), more, more_end)

    def _strip_phrase(self, line: str, start: str, end: str) -> str:
        if not (line.startswith(f"  {start}") and line.endswith(end)):
            raise ValueError(f"expected '  {start}', or one of {self.without}")
        return line[len(start) + 2 : len(line) - len(end)]


def make_condition_table(conditions: Sequence[ParsedCondition]) -> ConditionTable:
    """Return a list of conditions as a table."""
    column, low, high, known, missing, part, fits, dividing = (
        zip(*conditions, strict=True) if conditions else ((),) * 8
    )
    parts = np.array(part, dtype=np.int32).reshape(-1, 2)
    counts = [len(a) + len(b) for a, b in zip(fits, dividing, strict=True)]
    return ConditionTable(
        np.array(column, dtype=np.int32),
        np.array(low, dtype=np.float64),
        np.array(high, dtype=np.float64),
        np.array(known, dtype=np.bool_),
        np.array(missing, dtype=np.bool_),
        parts[:, 0],
        parts[:, 1],
        np.array([len(some) for some in dividing], dtype=np.int64),
        np.cumsum(counts, dtype=np.int64),
        np.array([c for f in conditions for c in (*f.fits, *f.dividing)], dtype=np.int32),
    )


# ---------------------------------------------------------------- predictions


class AnswerReader:
    """Parser of the last lines of a rule: one for each target."""

    def __init__(self, facts: HeaderFacts, words: Language) -> None:
        self.facts, self.words, atoms = facts, words, FieldPatterns(words)
        outputs, several = facts.schema.outputs, bool(facts.schema.more)
        self.shared = facts.schema.task == "classification" and not facts.margins
        end = "_shares" if self.shared else ""
        say = words.phrases
        self.comma, self.nothing = say["rule_comma"], say["rule_nothing"]
        known = {"name": atoms.name, "label": atoms.label, "support": NUMBER_PATTERN}
        known |= {
            "share": NUMBER_PATTERN if facts.margins else SHARE_PATTERN,
            "answer": atoms.label,
        }
        reached = ("rule_as_above", "rule_support")
        self.support = PhrasePatterns(words, reached, known)
        self.pair = PhrasePatterns(words, ("rule_share",), known)
        if facts.margins:
            pair = make_plain_pattern(say["rule_share"], known)
            many = rf"{pair}(?:{re.escape(self.comma)}{pair})*"
            known["answer"] = rf"(?:{many}|{re.escape(self.nothing)})"
        if several:
            known["answer"] = make_plain_pattern(say["rule_target"], known)
        known["support"] = (
            rf"(?:{'|'.join(make_plain_pattern(say[key], known) for key in reached)})"
        )
        known["shares"] = ".+"
        self.then = PhrasePatterns(words, (f"rule_then{end}",), known)
        self.also = PhrasePatterns(words, (f"rule_also{end}",), known)
        self.around = [
            words.around("rule_target", "answer", name=quote_name(output.name, words))
            if several
            else ("", "")
            for output in outputs
        ]
        self.classes = [
            {(type(label), label): i for i, label in enumerate(output.classes)}
            for output in outputs
        ]
        self.units: dict[str, int] = {}
        self.pair_of_text: dict[str, tuple[str, str]] = {}

    def read_answer(self, lines: LineReader) -> tuple[float, bool, list[int]]:
        """Return support, whether the rule predicts what its parent does, and units."""
        outputs = self.facts.schema.outputs
        found = self._read_line(lines, self.then)
        reached = self.support.match_phrase(found["support"])
        if reached is None:
            raise ValueError("expected a line 'then ...'")
        support, as_parent = parse_number(reached[1]["support"]), reached[0] == "rule_as_above"
        if as_parent and support != 0:
            raise ValueError("only a rule without support is as above")
        if self.facts.margins:
            return support, as_parent, self._parse_margins(found["answer"])
        units = self._parse_output(0, found)
        for k in range(1, len(outputs)):
            units += self._parse_output(k, self._read_line(lines, self.also))
        return support, as_parent, units

    def _read_line(self, lines: LineReader, pattern: PhrasePatterns) -> dict[str, str]:
        line = lines.read_line()
        found = pattern.match_phrase(line[2:]) if line.startswith("  ") else None
        if found is None:
            which = (
                "a line 'then ...'"
                if pattern is self.then
                else "the prediction for the next target"
            )
            raise ValueError(f"expected {which}")
        return found[1]

    def _parse_output(self, k: int, found: dict[str, str]) -> list[int]:
        start, end = self.around[k]
        answer = found["answer"]
        if not (answer.startswith(start) and answer.endswith(end)):
            raise ValueError("expected the next target")
        answer = answer[len(start) : len(answer) - len(end)]
        if not self.shared:
            return [self._parse_steps(answer)]
        votes = [0] * len(self.classes[k])
        for pair in split_outside_quotes(found["shares"], self.comma):
            label, share = self._parse_pair(pair)
            if share not in self.units:
                self.units[share] = parse_share(share, self.facts.units_each)
            votes[self._find_class_code(k, label)] = self.units[share]
        best = int(predict_labels(np.array([votes]), self.facts.costs)[0])
        if best != self._find_class_code(k, answer):
            what = "the largest share" if self.facts.costs is None else "the least expected cost"
            raise ValueError(f"{answer} is not the class with {what}")
        return self._check_votes(votes, best)

    def _check_votes(self, votes: list[int], said: int) -> list[int]:
        """Check that the votes of a rule that predicts class `said` add up to the total."""
        del said
        if sum(votes) != self.facts.units_each:
            raise ValueError("the shares do not add to 1")
        return votes

    def _parse_pair(self, text: str) -> tuple[str, str]:
        """Return a class and its number."""
        if text not in self.pair_of_text:
            found = self.pair.match_phrase(text)
            if found is None:
                raise ValueError(f"{text!r} is not a class and its number")
            self.pair_of_text[text] = found[1]["label"], found[1]["share"]
        return self.pair_of_text[text]

    def _parse_margins(self, said: str) -> list[int]:
        units = [0] * len(self.classes[0])
        named = (
            []
            if said == self.nothing
            else [self._parse_pair(p) for p in split_outside_quotes(said, self.comma)]
        )
        for label, number in named:
            units[self._find_class_code(0, label)] = self._parse_steps(number)
        if np.count_nonzero(units) != len(named):
            raise ValueError(f"{said!r} names a class twice, or adds 0 to one; leave that out")
        return units

    def _parse_steps(self, numeral: str) -> int:
        units = float(np.ldexp(parse_number(numeral), -self.facts.exponent))
        if not units.is_integer() or abs(units) >= 2.0**62:
            raise ValueError(f"{numeral} is not a multiple of the step")
        return int(units)

    def _find_class_code(self, k: int, token: str) -> int:
        label = parse_label(token)
        return self.classes[k][type(label), label]


# ---------------------------------------------------------------- header


@dataclass(frozen=True)
class HeaderFacts:
    """The facts of a header, with the names of `treekit.rules.rule_list.RuleList`."""

    schema: Schema
    missing: MissingPolicy
    unknown: UnknownPolicy
    voting: Voting
    costs: npt.NDArray[np.int64] | None
    n_trees: int
    exponent: int
    tests: tuple[Test, ...]
    n_rules: int
    combine: Combine
    link: Link
    order: Order = "disjoint"
    decisions: bool = False
    rounding: Rounding | None = None

    @property
    def mass(self) -> int:
        """Mass of a row."""
        return MASS if self.missing == "fractional" else 1

    @property
    def margins(self) -> bool:
        """Whether rules add to margins of the classes instead of voting."""
        return self.schema.task == "classification" and self.combine == "sum"

    @property
    def units_each(self) -> int:
        """Votes of one rule."""
        return count_leaf_units(self)


class LineReader:
    """The lines of a text, read once; `at` is the number of the next line."""

    def __init__(self, text: str, words: Language) -> None:
        self.lines = text.split("\n")
        self.words = words
        self.at = 0

    def read_line(self) -> str:
        """Return the next line and advance."""
        if self.at >= len(self.lines):
            raise ValueError("the text ends too early")
        self.at += 1
        return self.lines[self.at - 1]

    def begins_with(self, start: str) -> bool:
        """Return whether the next line begins with `start`."""
        return self.at < len(self.lines) and self.lines[self.at].startswith(start)

    def read_fact(self, key: str) -> str:
        """Return the value that the next line states for `key`."""
        line, start = self.read_line(), self.words.facts[key]
        if not line.startswith(start):
            raise ValueError(f"expected {start.rstrip()!r}")
        return line[len(start) :]

    def states_fact(self, key: str) -> bool:
        """Return whether the next line states `key`."""
        return self.begins_with(self.words.facts[key])

    def read_counted_lines(self, key: str) -> list[str]:
        """Return the lines whose number the next line states for `key`."""
        return [self.read_line() for _ in range(int(self.read_fact(key)))]

    def skip_notes(self) -> None:
        """Skip explanations."""
        while self.begins_with("  "):
            self.at += 1


def read_header(lines: LineReader) -> HeaderFacts:
    """Return the facts of a header; raise ValueError or KeyError if it is invalid."""
    lines.at = 2
    if lines.lines[:2] != [lines.words.first_line, ""]:
        raise ValueError(f"rule text must begin with {lines.words.first_line!r} and an empty line")
    read = _HeaderReader(lines)
    (target, *more), task = read.read_targets()
    columns = tuple(read.parse_column(line) for line in lines.read_counted_lines("columns"))
    dtype = lines.read_fact("type")
    if dtype not in ("float32", "float64"):
        raise ValueError(f"unknown type {dtype!r}")
    schema = Schema(
        columns=columns,
        target=target.name,
        task=task,
        classes=target.classes,
        dtype=cast(Dtype, dtype),
        more=tuple(more),
    )
    lines.skip_notes()
    missing, unknown = (
        _read_explained_fact(lines, "missing"),
        _read_explained_fact(lines, "unknown"),
    )
    tests: tuple[Test, ...] = ()
    if lines.states_fact("tests"):
        tests = read.read_tests(schema)
        lines.skip_notes()
    n_trees = int(_read_explained_fact(lines, "trees"))
    count_tree_units(n_trees, schema.dtype)  # refuses more trees than a model may have
    order = _read_explained_fact(lines, "order") if lines.states_fact("order") else "disjoint"
    if order not in get_args(Order):
        raise ValueError(f"unknown order {order!r}")
    costs = read.read_costs(schema) if lines.states_fact("costs") else None
    combine = lines.read_fact("combine") if lines.states_fact("combine") else "mean"
    decisions = lines.states_fact("says")
    if decisions and _read_explained_fact(lines, "says") != "labels":
        raise ValueError("unknown kind of predictions; expected labels")
    in_steps = task == "regression" or combine == "sum"
    votes = _read_explained_fact(lines, "step" if in_steps else "votes")
    exponent = int(votes.removeprefix("2**")) if in_steps else 0
    if abs(exponent) > 1074:
        raise ValueError("the step is not a double")
    link = _read_explained_fact(lines, "link") if lines.states_fact("link") else "identity"
    if combine not in get_args(Combine) or link not in get_args(Link):
        raise ValueError(f"unknown combine {combine!r}, or link {link!r}")
    rounding = read.read_rounding() if lines.states_fact("digits") else None
    n_rules = int(lines.read_fact("rules"))
    if not 0 < n_rules <= len(lines.lines):
        raise ValueError("the number of rules does not match the text")
    return HeaderFacts(
        schema=schema,
        missing=cast(MissingPolicy, missing),
        unknown=cast(UnknownPolicy, unknown),
        voting="hard" if votes == "1" else "soft",
        costs=costs,
        n_trees=n_trees,
        exponent=exponent,
        tests=tests,
        n_rules=n_rules,
        combine=cast(Combine, combine),
        link=cast(Link, link),
        order=cast(Order, order),
        decisions=decisions,
        rounding=rounding,
    )


def _read_explained_fact(lines: LineReader, key: str) -> str:
    """Return a fact that is followed by an explanation."""
    value = lines.read_fact(key)
    lines.skip_notes()
    return value


class _HeaderReader:
    """Parser of the header lines that contain names."""

    def __init__(self, lines: LineReader) -> None:
        self.lines, self.words, self.atoms = lines, lines.words, FieldPatterns(lines.words)
        atoms, comma = self.atoms, self.words.phrases["if_comma"]
        known = {"name": atoms.name, "levels": atoms.listed, "costs": ".+", "label": atoms.label}
        keys = ("head_number", "head_levels", "head_no_levels")
        self.kinds = PhrasePatterns(self.words, keys, known)
        self.cost = PhrasePatterns(self.words, ("head_cost",), known)
        known |= {"share": SHARE_PATTERN, "test": atoms.test, "clauses": ".+"}
        self.share = PhrasePatterns(self.words, ("rule_share",), known)
        self.test = PhrasePatterns(self.words, ("head_test",), known)
        self.comma = comma

    def read_targets(self) -> tuple[list[Output], Literal["classification", "regression"]]:
        """Return the targets and the task."""
        lines = self.lines
        if not lines.states_fact("targets"):
            name, stated = parse_name(lines.read_fact("target")), lines.read_fact("classes")
            if stated == self.words.phrases["head_regression"]:
                return [Output(name)], "regression"
            return [Output(name, self.parse_labels(stated))], "classification"
        outputs = []
        for line in lines.read_counted_lines("targets"):
            key, fields = self.parse_kind(line)
            classes = self.parse_labels(fields["levels"]) if key == "head_levels" else ()
            outputs.append(Output(parse_name(fields["name"]), classes))
        return outputs, "classification" if any(o.classes for o in outputs) else "regression"

    def parse_labels(self, text: str) -> tuple[Label, ...]:
        """Return class labels in their order."""
        return tuple(parse_label(token) for token in split_outside_quotes(text, self.comma))

    def parse_kind(self, line: str) -> tuple[str, dict[str, str]]:
        """Return the kind of the values of a name, and the fields of the line."""
        found = self.kinds.match_phrase(line[2:]) if line.startswith("  ") else None
        if found is None:
            raise ValueError("expected a name and the kind of its values")
        return found

    def parse_column(self, line: str) -> Column:
        """Return a column."""
        key, fields = self.parse_kind(line)
        name = parse_name(fields["name"])
        if key == "head_number":
            return Column(name)
        levels = split_outside_quotes(fields["levels"], self.comma) if key == "head_levels" else ()
        return Column(name, "nominal", tuple(parse_name(level) for level in levels))

    def read_rounding(self) -> Rounding:
        """Return the rounding of the thresholds."""
        counts = dict.fromkeys(Rounding._fields, INTEGER_PATTERN)
        digits = int(self.lines.read_fact("digits"))
        found = PhrasePatterns(self.words, ("head_rounded",), counts).match_phrase(
            self.lines.read_line()[2:]
        )
        if found is None:
            raise ValueError("expected the numbers of shortened thresholds")
        self.lines.skip_notes()
        return Rounding(digits, **{field: int(text) for field, text in found[1].items()})

    def read_tests(self, schema: Schema) -> tuple[Test, ...]:
        """Return the tests of several columns."""
        reader, tests = TestReader(schema, self.words), []
        for number, line in enumerate(self.lines.read_counted_lines("tests"), 1):
            found = self.test.match_phrase(line.removeprefix("  "))
            if not found or found[1]["test"] != self.words.say("test_name", number=str(number)):
                raise ValueError(f"expected test {number}")
            tests.append(reader.parse_test(found[1]["clauses"]))
        return tuple(tests)

    def read_costs(self, schema: Schema) -> npt.NDArray[np.int64]:
        """Return the misclassification costs: classes, and per class a cost per prediction."""
        rows = []
        for line, label in zip(self.lines.read_counted_lines("costs"), schema.classes, strict=True):
            found = self.cost.match_phrase(line.removeprefix("  "))
            if found is None or parse_label(found[1]["label"]) != label:
                raise ValueError("expected the costs of each class in order")
            parts = [
                self.share.match_phrase(part)
                for part in split_outside_quotes(
                    found[1]["costs"], self.words.phrases["rule_comma"]
                )
            ]
            pairs = [part[1] for part in parts if part is not None]
            if [parse_label(pair["label"]) for pair in pairs] != list(schema.classes):
                raise ValueError("expected the cost of each prediction in order")
            rows.append([int(pair["share"]) for pair in pairs])
        costs = np.array(rows, dtype=np.int64)
        if np.diagonal(costs).any() or costs.max(initial=0) > MAX_COST or schema.more:
            raise ValueError(
                f"costs must be from 0 to {MAX_COST}, with 0 for a correct prediction, and need a "
                "single target"
            )
        return costs


# ---------------------------------------------------------------- conditions and tests

CORE_PHRASES = (
    *("if_above", "if_upto", "if_between", "if_known", "if_missing", "if_missing_levels"),
    *("if_is", "if_never", "if_holds", "if_holds_as", "if_fails", "if_fails_as"),
    *("if_decided", "if_unknown", "if_undecidable"),
)
TAIL_PHRASES = ("if_or_missing_levels", "if_or_missing", "if_or_unknown")
_NUMERIC_PHRASES = ("if_above", "if_upto", "if_between")
_MISSING_PHRASES = ("if_missing", "if_missing_levels", "if_unknown")
_NEVER_PHRASES = ("if_never", "if_undecidable")


class ParsedCondition(NamedTuple):
    """One condition, with the fields of `treekit.rules.rule_list.ConditionTable`."""

    column: int
    low: float = -np.inf
    high: float = np.inf
    known: bool = False
    missing: bool = False
    part: tuple[int, int] = (0, 0)
    fits: tuple[int, ...] = ()
    dividing: tuple[int, ...] = ()


class ConditionReader:
    """Parser of the conditions after 'if' and 'and'; each distinct text is parsed once."""

    def __init__(
        self, schema: Schema, tests: tuple[Test, ...], words: Language, *, divides: bool
    ) -> None:
        self.schema, self.tests, self.words, self.divides = schema, tests, words, divides
        self.columns = {column.name: i for i, column in enumerate(schema.columns)}
        self.codes = [
            {level: code for code, level in enumerate(column.levels)} for column in schema.columns
        ]
        numbers = range(1, len(tests) + 1)
        self.of_test = {words.say("test_name", number=str(number)): number for number in numbers}
        self.atoms = FieldPatterns(words)
        self.core = PhrasePatterns(words, CORE_PHRASES, self.atoms.by_field)
        self.tail = PhrasePatterns(words, TAIL_PHRASES, self.atoms.by_field)
        bounds = {"low": INTEGER_PATTERN, "high": INTEGER_PATTERN}
        self.part = PhrasePatterns(words, ("if_part",), self.atoms.by_field | bounds)
        self.known: dict[str, ParsedCondition] = {}

    def parse_condition(self, text: str) -> ParsedCondition:
        """Return the condition that a text states."""
        if text not in self.known:
            self.known[text] = self._parse_text(text)
        return self.known[text]

    def _parse_text(self, text: str) -> ParsedCondition:
        part = self.part.match_phrase(text) if self.divides else None
        if part is None:
            return self._parse_with_tail(text)
        low, high, condition = int(part[1]["low"]), int(part[1]["high"]), part[1]["condition"]
        if format_part(condition, low, high, self.words) != text:
            raise ValueError(f"the percentage in {text!r} does not match its bounds")
        if not 0 <= low < high <= MASS:
            raise ValueError(
                f"{text!r} has bounds {low} and {high}; expected 0 <= low < high <= {MASS}"
            )
        found = self._parse_with_tail(condition, (low, high))
        if not found.missing:
            raise ValueError(f"{text!r} does not state a fraction of a row")
        return found

    def _parse_with_tail(self, text: str, part: tuple[int, int] = (0, MASS)) -> ParsedCondition:
        """Return a condition whose missing values keep `part` of the mass."""
        core = self.core.match_phrase(text)
        if core is not None:
            return self._parse_core(text, *core, part)
        tail = self.tail.match_phrase(text)
        core = self.core.match_phrase(tail[1]["condition"]) if tail is not None else None
        if core is None or tail is None:
            cut = self.part.match_phrase(text) is not None
            problem = "does not state a fraction of a row" if cut else "is not a condition"
            raise ValueError(f"{text!r} {problem}; expected a text such as {self._list_examples()}")
        found = self._parse_core(text, *core, part)
        if not found.known or (tail[0] == "if_or_unknown") != self._is_test(found):
            raise ValueError(
                f"{text!r} does not fit the type of its column, numeric or categorical"
            )
        found = found._replace(missing=True, part=part)
        return self._add_dividing_levels(text, found, tail[1].get("levels"))

    def _list_examples(self) -> str:
        """Return examples of conditions on columns x and c."""
        say = self.words.say
        either = f"a{self.words.phrases['if_or']}b"
        known = say("if_upto", name="x", high="3")
        return ", ".join(
            repr(form)
            for form in (
                *(known, say("if_above", name="x", low="3")),
                say("if_between", name="x", low="1", high="3"),
                *(say("if_is", name="c", levels=either), say("if_missing", name="x")),
                say("if_or_missing", condition=known),
            )
        )

    def _parse_core(
        self, text: str, key: str, said: dict[str, str], part: tuple[int, int]
    ) -> ParsedCondition:
        if "test" in said:
            return self._parse_outcome(key, said, part)
        column = self.columns[parse_name(said["name"])]
        if key in _MISSING_PHRASES:
            found = ParsedCondition(column, missing=True, part=part)
            return self._add_dividing_levels(text, found, said.get("levels"))
        if key in _NEVER_PHRASES:
            return ParsedCondition(column)
        numeric = self.schema.columns[column].kind == "numeric"
        if key in _NUMERIC_PHRASES and numeric:
            low, high = said.get("low"), said.get("high")
            return ParsedCondition(
                column, self._parse_bound(low, -np.inf), self._parse_bound(high, np.inf), known=True
            )
        if key == "if_known":
            return ParsedCondition(column, known=True, fits=tuple(range(len(self.codes[column]))))
        if key == "if_is" and not numeric:
            return ParsedCondition(
                column, known=True, fits=self._parse_codes(column, said["levels"])
            )
        raise ValueError(f"{text!r} does not fit the type of its column, numeric or categorical")

    def _parse_outcome(
        self, key: str, said: dict[str, str], part: tuple[int, int]
    ) -> ParsedCondition:
        """Return a condition on the outcome of a test."""
        if said["test"] not in self.of_test:
            raise ValueError(f"unknown test {said['test']!r}")
        number = self.of_test[said["test"]] - 1
        column = self.schema.n_features + number
        if key in _MISSING_PHRASES:
            return ParsedCondition(column, missing=True, part=part)
        if key in _NEVER_PHRASES:
            return ParsedCondition(column)
        if key == "if_decided":
            return ParsedCondition(column, known=True)
        holds = key in ("if_holds", "if_holds_as")
        gist = said.get("gist", "")
        if gist != format_test_gist(self.tests[number], self.schema, self.words, holds=holds):
            raise ValueError(f"{gist!r} does not follow from the test")
        bounds = (-np.inf, 0.0) if holds else (0.0, np.inf)
        return ParsedCondition(column, *bounds, known=True)

    def _add_dividing_levels(
        self, text: str, found: ParsedCondition, levels: str | None
    ) -> ParsedCondition:
        """Return a condition with the categories that split a row there."""
        if levels is None:
            return found
        if not self.divides or self._is_test(found):
            raise ValueError(f"{text!r} does not state a fraction of a row")
        dividing = self._parse_codes(found.column, levels)
        if not dividing or set(dividing) & set(found.fits):
            raise ValueError("a category is named twice, or none is named")
        return found._replace(dividing=dividing)

    def _is_test(self, found: ParsedCondition) -> bool:
        return found.column >= self.schema.n_features

    def _parse_bound(self, numeral: str | None, none: float) -> float:
        return none if numeral is None else parse_number(numeral, self.schema.dtype)

    def _parse_codes(self, column: int, levels: str) -> tuple[int, ...]:
        return _check_ascending(
            tuple(self.codes[column][name] for name in self.atoms.parse_levels(levels))
        )


class TestReader:
    """Parser of tests of several columns."""

    __test__ = False

    def __init__(self, schema: Schema, words: Language) -> None:
        self.schema, self.words, self.atoms = schema, words, FieldPatterns(words)
        name = self.atoms.name
        self.term = re.compile(rf"({NUMBER_PATTERN}) \* ({name})")
        terms = rf"{NUMBER_PATTERN} \* {name}(?: \+ {NUMBER_PATTERN} \* {name})*"
        atoms = self.atoms.by_field | {"sum": rf"(?:{name}|{terms})", "at": NUMBER_PATTERN}
        self.clause = PhrasePatterns(
            words, ("test_above", "test_upto", "test_rather", "if_is"), atoms
        )

    def parse_test(self, text: str) -> Test:
        """Return the test that a text states."""
        clauses: list[Clause] = []
        for part in split_outside_quotes(text, self.words.phrases["test_otherwise"]):
            found = self.clause.match_phrase(part)
            if found is None:
                raise ValueError(f"{part!r} is not a test")
            key, fields = found
            is_sum = key in ("test_above", "test_upto")
            clauses.append(self._parse_sum(key, fields) if is_sum else self._parse_branches(fields))
        return tuple(clauses)

    def _parse_sum(self, key: str, said: dict[str, str]) -> LinearClause:
        below = int(key == "test_above")
        terms = self.term.findall(said["sum"])
        if not terms:
            at = parse_number(said["at"], self.schema.dtype)
            return LinearClause((self._find_column(said["sum"], "numeric")[0],), (1.0,), at, below)
        features = tuple(self._find_column(name, "numeric")[0] for _, name in terms)
        weights = tuple(parse_number(weight, self.schema.dtype) for weight, _ in terms)
        if any(weight == 0 for weight in weights):
            raise ValueError("a weight is 0")
        return LinearClause(features, weights, parse_number(said["at"]), below)

    def _parse_branches(self, said: dict[str, str]) -> LevelsClause:
        feature, column = self._find_column(said["name"], "nominal")
        branches = [-1 if "others" in said else 1] * len(column.levels)
        for branch, field in enumerate(("levels", "others")):
            named = self.atoms.parse_levels(said[field]) if field in said else ()
            for code in _check_ascending(tuple(column.levels.index(name) for name in named)):
                branches[code] = branch
        return LevelsClause(feature, tuple(branches))

    def _find_column(self, token: str, kind: str) -> tuple[int, Column]:
        feature = self.schema.names.index(parse_name(token))
        column = self.schema.columns[feature]
        if column.kind != kind:
            raise ValueError(
                f"column {token} is not {'numeric' if kind == 'numeric' else 'categorical'}"
            )
        return feature, column


def _check_ascending(codes: tuple[int, ...]) -> tuple[int, ...]:
    if any(a >= b for a, b in pairwise(codes)):
        raise ValueError("categories must be in declared order, each once")
    return codes
