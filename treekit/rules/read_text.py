"""Parser for rule text: strict, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Dtype, Label, Output, Schema
from treekit.errors import DataError, ModelError, ModelFileError
from treekit.model.fixed_point import MASS, units_per_tree
from treekit.model.links import Combine, Link
from treekit.model.model import MissingPolicy, UnknownPolicy, Voting, least_cost, units_each
from treekit.model.validation import MAX_COST
from treekit.rules import language as languages
from treekit.rules.language import ENGLISH, FIRST_LINE, Language, known_languages
from treekit.rules.rule_list import (
    Clause,
    ConditionTable,
    Levels,
    Linear,
    Order,
    Rounding,
    RuleList,
    Test,
)
from treekit.rules.wording import (
    NUMBER,
    SHARE,
    WHOLE,
    Atoms,
    Patterns,
    cut,
    name_text,
    part_text,
    read_label,
    read_name,
    read_numeral,
    read_share,
    shape,
    test_gist,
)
from treekit.rules.write_text import header, pieces

__all__ = [
    "AnswerReader",
    "ConditionReader",
    "Facts",
    "Fields",
    "Lines",
    "TestReader",
    "condition_table",
    "language_of",
    "parse_rules",
    "read_header",
]


# ---------------------------------------------------------------- rules

_FIRST_LINE = re.compile(rf"{re.escape(FIRST_LINE)}(?:, language ([A-Za-z0-9-]+))?")


def parse_rules(text: str, language: str | Path | Language | None = None) -> RuleList:
    """Parse rule text; `RuleList.text` of the result is the text again.

    Parameters
    ----------
    text : str
    language : str, Path or Language, optional
        The language of the text; by default the one that its first line names.  A text in the
        phrases of a catalogue file is parsed with that file.

    Raises
    ------
    ModelFileError
        For any line that `treekit.rules.write_text` does not write; names the line.
    SettingError
        If the language is unknown.
    """
    words = language_of(text) if language is None else languages.language(language)
    lines = Lines(text, words)
    try:
        facts = read_header(lines)
        result = _rules(lines, facts)
        _require_same(result, text, words)
        return result
    except (ValueError, KeyError, IndexError, OverflowError, DataError, ModelError) as error:
        raise ModelFileError(
            f"line {lines.at} of the rules cannot be read ({error}); "
            "export the rules again: only unchanged text is executed"
        ) from error


def language_of(text: str) -> Language:
    """Return the language that a text names; English if it names none."""
    match = _FIRST_LINE.fullmatch(text.partition("\n")[0])
    code = match[1] if match is not None and match[1] else ENGLISH
    if code not in known_languages():  # never a file name: the text is untrusted
        raise ModelFileError(
            f"line 1 of the rules names the language {code!r}, which treekit does not include; "
            "give its catalogue file"
        )
    return languages.language(code)


def _rules(lines: Lines, facts: Facts) -> RuleList:
    n, end_of_header = facts.n_rules, lines.at
    places, ends = np.zeros((n, 2), np.int32), np.zeros(n, np.int64)
    support, as_parent = np.zeros(n), np.zeros(n, dtype=np.bool_)
    units = np.zeros((n, facts.schema.n_values), dtype=np.int64)
    conditions: list[Fields] = []
    words = lines.words
    reader, frame = AnswerReader(facts, words), _Frame(lines, facts)
    rule = ConditionReader(facts.schema, facts.tests, words, divides=facts.mass > 1)
    for number in range(n):
        places[number] = frame.place(number + 1)
        conditions.extend(rule.read(condition) for condition in frame.conditions())
        ends[number] = len(conditions)
        support[number], as_parent[number], units[number] = reader.read(lines)
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
        conditions=condition_table(conditions),
        combine=facts.combine,
        link=facts.link,
        order=facts.order,
        decisions=facts.decisions,
        rounding=facts.rounding,
    )
    if result.order == "first" and bool(np.any(np.diff(result.tree) < 0)):
        raise ValueError("the trees of an ordered list are out of order")
    if header(result, words) != lines.lines[:end_of_header]:
        raise ValueError("the header's explanations do not follow from its facts")
    return result


def _require_same(result: RuleList, text: str, words: Language) -> None:
    """Check that the text is in canonical form; ``01`` or ``1e0`` is refused."""
    at = 0
    for piece in pieces(result, words):
        if not text.startswith(piece, at):
            said = zip(piece.split("\n"), text[at:].split("\n"), strict=False)
            line = text.count("\n", 0, at) + [one == other for one, other in said].index(False) + 1
            raise ValueError(f"line {line} differs from the text that treekit writes")
        at += len(piece)


class _Frame:
    """Parser of the lines of a rule up to its prediction."""

    def __init__(self, lines: Lines, facts: Facts) -> None:
        self.lines, self.facts, words = lines, facts, lines.words
        self.several = facts.n_trees > 1
        numbers = dict.fromkeys(("rule", "rules", "tree", "trees", "node"), WHOLE)
        key = "rule_place_tree" if self.several else "rule_place"
        self.header = Patterns(words, (key,), numbers)
        # Either is accepted here; `_require_same` checks that it is the right one.
        self.without = [f"  {words.phrases[key]}" for key in ("rule_always", "rule_otherwise")]
        self.starts = [words.around(key, "condition") for key in ("rule_if", "rule_and")]

    def place(self, number: int) -> tuple[int, int]:
        """Return tree and node of rule `number`, which is next."""
        if self.lines.next() != "":
            raise ValueError("expected an empty line before a rule")
        found = self.header.read(self.lines.next())
        if found is None:
            raise ValueError("expected a line with the number of a rule")
        numbers = {field: int(text) for field, text in found[1].items()}
        facts = self.facts
        if (numbers["rule"], numbers["rules"]) != (number, facts.n_rules):
            raise ValueError("a rule is out of place")
        if self.several and numbers["trees"] != facts.n_trees:
            raise ValueError("a rule is out of place")
        return (numbers["tree"] - 1 if self.several else 0), numbers["node"]

    def conditions(self) -> Iterator[str]:
        """Generate the conditions of the rule."""
        line = self.lines.next()
        if line in self.without:
            return
        (start, end), (more, more_end) = self.starts
        yield self._inside(line, start, end)
        while self.lines.begins(f"  {more}"):
            yield self._inside(self.lines.next(), more, more_end)

    def _inside(self, line: str, start: str, end: str) -> str:
        if not (line.startswith(f"  {start}") and line.endswith(end)):
            raise ValueError(f"expected '  {start}', or one of {self.without}")
        return line[len(start) + 2 : len(line) - len(end)]


def condition_table(conditions: Sequence[Fields]) -> ConditionTable:
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

    def __init__(self, facts: Facts, words: Language) -> None:
        self.facts, self.words, atoms = facts, words, Atoms(words)
        outputs, several = facts.schema.outputs, bool(facts.schema.more)
        self.shared = facts.schema.task == "classification" and not facts.margins
        end = "_shares" if self.shared else ""
        say = words.phrases
        self.comma, self.nothing = say["rule_comma"], say["rule_nothing"]
        known = {"name": atoms.name, "label": atoms.label, "support": NUMBER}
        known |= {"share": NUMBER if facts.margins else SHARE, "answer": atoms.label}
        reached = ("rule_as_above", "rule_support")
        self.support = Patterns(words, reached, known)
        self.pair = Patterns(words, ("rule_share",), known)
        if facts.margins:
            pair = shape(say["rule_share"], known)
            many = rf"{pair}(?:{re.escape(self.comma)}{pair})*"
            known["answer"] = rf"(?:{many}|{re.escape(self.nothing)})"
        if several:
            known["answer"] = shape(say["rule_target"], known)
        known["support"] = rf"(?:{'|'.join(shape(say[key], known) for key in reached)})"
        known["shares"] = ".+"
        self.then = Patterns(words, (f"rule_then{end}",), known)
        self.also = Patterns(words, (f"rule_also{end}",), known)
        self.around = [
            words.around("rule_target", "answer", name=name_text(output.name, words))
            if several
            else ("", "")
            for output in outputs
        ]
        self.classes = [
            {(type(label), label): i for i, label in enumerate(output.classes)}
            for output in outputs
        ]
        self.units: dict[str, int] = {}
        self.said: dict[str, tuple[str, str]] = {}

    def read(self, lines: Lines) -> tuple[float, bool, list[int]]:
        """Return support, whether the rule predicts what its parent does, and units."""
        outputs = self.facts.schema.outputs
        found = self._line(lines, self.then)
        reached = self.support.read(found["support"])
        if reached is None:
            raise ValueError("expected a line 'then ...'")
        support, as_parent = read_numeral(reached[1]["support"]), reached[0] == "rule_as_above"
        if as_parent and support != 0:
            raise ValueError("only a rule without support is as above")
        if self.facts.margins:
            return support, as_parent, self._margins(found["answer"])
        units = self._output(0, found)
        for k in range(1, len(outputs)):
            units += self._output(k, self._line(lines, self.also))
        return support, as_parent, units

    def _line(self, lines: Lines, pattern: Patterns) -> dict[str, str]:
        line = lines.next()
        found = pattern.read(line[2:]) if line.startswith("  ") else None
        if found is None:
            which = (
                "a line 'then ...'"
                if pattern is self.then
                else "the prediction for the next target"
            )
            raise ValueError(f"expected {which}")
        return found[1]

    def _output(self, k: int, found: dict[str, str]) -> list[int]:
        start, end = self.around[k]
        answer = found["answer"]
        if not (answer.startswith(start) and answer.endswith(end)):
            raise ValueError("expected the next target")
        answer = answer[len(start) : len(answer) - len(end)]
        if not self.shared:
            return [self._steps(answer)]
        votes = [0] * len(self.classes[k])
        for pair in cut(found["shares"], self.comma):
            label, share = self._pair(pair)
            if share not in self.units:
                self.units[share] = read_share(share, self.facts.units_each)
            votes[self._class(k, label)] = self.units[share]
        best = int(least_cost(np.array([votes]), self.facts.costs)[0])
        if best != self._class(k, answer):
            what = "the largest share" if self.facts.costs is None else "the least expected cost"
            raise ValueError(f"{answer} is not the class with {what}")
        return self._all(votes, best)

    def _all(self, votes: list[int], said: int) -> list[int]:
        """Check that the votes of a rule that predicts class `said` add up to the total."""
        del said
        if sum(votes) != self.facts.units_each:
            raise ValueError("the shares do not add to 1")
        return votes

    def _pair(self, text: str) -> tuple[str, str]:
        """Return a class and its number."""
        if text not in self.said:
            found = self.pair.read(text)
            if found is None:
                raise ValueError(f"{text!r} is not a class and its number")
            self.said[text] = found[1]["label"], found[1]["share"]
        return self.said[text]

    def _margins(self, said: str) -> list[int]:
        units = [0] * len(self.classes[0])
        named = [] if said == self.nothing else [self._pair(p) for p in cut(said, self.comma)]
        for label, number in named:
            units[self._class(0, label)] = self._steps(number)
        if np.count_nonzero(units) != len(named):
            raise ValueError(f"{said!r} names a class twice, or adds 0 to it")
        return units

    def _steps(self, numeral: str) -> int:
        units = float(np.ldexp(read_numeral(numeral), -self.facts.exponent))
        if not units.is_integer() or abs(units) >= 2.0**62:
            raise ValueError(f"{numeral} is not a multiple of the step")
        return int(units)

    def _class(self, k: int, token: str) -> int:
        label = read_label(token)
        return self.classes[k][type(label), label]


# ---------------------------------------------------------------- header


@dataclass(frozen=True)
class Facts:
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
        """Whether rules add to margins of the classes."""
        return self.schema.task == "classification" and self.combine == "sum"

    @property
    def units_each(self) -> int:
        """Votes of one rule."""
        return units_each(self)


class Lines:
    """The lines of a text, read once; `at` is the number of the next line."""

    def __init__(self, text: str, words: Language) -> None:
        self.lines = text.split("\n")
        self.words = words
        self.at = 0

    def next(self) -> str:
        """Return the next line and advance."""
        if self.at >= len(self.lines):
            raise ValueError("the text ends too early")
        self.at += 1
        return self.lines[self.at - 1]

    def begins(self, start: str) -> bool:
        """Return whether the next line begins with `start`."""
        return self.at < len(self.lines) and self.lines[self.at].startswith(start)

    def fact(self, key: str) -> str:
        """Return the value that the next line states for `key`."""
        line, start = self.next(), self.words.facts[key]
        if not line.startswith(start):
            raise ValueError(f"expected {start.rstrip()!r}")
        return line[len(start) :]

    def states(self, key: str) -> bool:
        """Return whether the next line states `key`."""
        return self.begins(self.words.facts[key])

    def counted(self, key: str) -> list[str]:
        """Return the lines whose number the next line states for `key`."""
        return [self.next() for _ in range(int(self.fact(key)))]

    def skip_words(self) -> None:
        """Skip explanations."""
        while self.begins("  "):
            self.at += 1


def read_header(lines: Lines) -> Facts:
    """Return the facts of a header; raise ValueError or KeyError if it is invalid."""
    lines.at = 2
    if lines.lines[:2] != [lines.words.first_line, ""]:
        raise ValueError(f"rule text must begin with {lines.words.first_line!r} and an empty line")
    read = _Named(lines)
    (target, *more), task = read.targets()
    columns = tuple(read.column(line) for line in lines.counted("columns"))
    dtype = lines.fact("type")
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
    lines.skip_words()
    missing, unknown = _stated(lines, "missing"), _stated(lines, "unknown")
    tests: tuple[Test, ...] = ()
    if lines.states("tests"):
        tests = read.tests(schema)
        lines.skip_words()
    n_trees = int(_stated(lines, "trees"))
    units_per_tree(n_trees, schema.dtype)  # refuses more trees than a model may have
    order = _stated(lines, "order") if lines.states("order") else "disjoint"
    if order not in get_args(Order):
        raise ValueError(f"unknown order {order!r}")
    costs = read.costs(schema) if lines.states("costs") else None
    combine = lines.fact("combine") if lines.states("combine") else "mean"
    decisions = lines.states("says")
    if decisions and _stated(lines, "says") != "labels":
        raise ValueError("unknown kind of predictions; expected labels")
    in_steps = task == "regression" or combine == "sum"
    votes = _stated(lines, "step" if in_steps else "votes")
    exponent = int(votes.removeprefix("2**")) if in_steps else 0
    if abs(exponent) > 1074:
        raise ValueError("the step is not a double")
    link = _stated(lines, "link") if lines.states("link") else "identity"
    if combine not in get_args(Combine) or link not in get_args(Link):
        raise ValueError(f"unknown combine {combine!r}, or link {link!r}")
    rounding = read.rounding() if lines.states("digits") else None
    n_rules = int(lines.fact("rules"))
    if not 0 < n_rules <= len(lines.lines):
        raise ValueError("the number of rules does not match the text")
    return Facts(
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


def _stated(lines: Lines, key: str) -> str:
    """Return a fact that is followed by an explanation."""
    value = lines.fact(key)
    lines.skip_words()
    return value


class _Named:
    """Parser of the header lines that contain names."""

    def __init__(self, lines: Lines) -> None:
        self.lines, self.words, self.atoms = lines, lines.words, Atoms(lines.words)
        atoms, comma = self.atoms, self.words.phrases["if_comma"]
        known = {"name": atoms.name, "levels": atoms.listed, "costs": ".+", "label": atoms.label}
        keys = ("head_number", "head_levels", "head_no_levels")
        self.kinds = Patterns(self.words, keys, known)
        self.cost = Patterns(self.words, ("head_cost",), known)
        known |= {"share": SHARE, "test": atoms.test, "clauses": ".+"}
        self.share = Patterns(self.words, ("rule_share",), known)
        self.test = Patterns(self.words, ("head_test",), known)
        self.comma = comma

    def targets(self) -> tuple[list[Output], Literal["classification", "regression"]]:
        """Return the targets and the task."""
        lines = self.lines
        if not lines.states("targets"):
            name, stated = read_name(lines.fact("target")), lines.fact("classes")
            if stated == self.words.phrases["head_regression"]:
                return [Output(name)], "regression"
            return [Output(name, self.labels(stated))], "classification"
        outputs = []
        for line in lines.counted("targets"):
            key, fields = self.kind(line)
            classes = self.labels(fields["levels"]) if key == "head_levels" else ()
            outputs.append(Output(read_name(fields["name"]), classes))
        return outputs, "classification" if any(o.classes for o in outputs) else "regression"

    def labels(self, text: str) -> tuple[Label, ...]:
        """Return class labels in their order."""
        return tuple(read_label(token) for token in cut(text, self.comma))

    def kind(self, line: str) -> tuple[str, dict[str, str]]:
        """Return the kind of the values of a name, and the fields of the line."""
        found = self.kinds.read(line[2:]) if line.startswith("  ") else None
        if found is None:
            raise ValueError("expected a name and the kind of its values")
        return found

    def column(self, line: str) -> Column:
        """Return a column."""
        key, fields = self.kind(line)
        name = read_name(fields["name"])
        if key == "head_number":
            return Column(name)
        levels = cut(fields["levels"], self.comma) if key == "head_levels" else ()
        return Column(name, "nominal", tuple(read_name(level) for level in levels))

    def rounding(self) -> Rounding:
        """Return the rounding of the thresholds."""
        counts = dict.fromkeys(Rounding._fields, WHOLE)
        digits = int(self.lines.fact("digits"))
        found = Patterns(self.words, ("head_rounded",), counts).read(self.lines.next()[2:])
        if found is None:
            raise ValueError("expected the numbers of shortened thresholds")
        self.lines.skip_words()
        return Rounding(digits, **{field: int(text) for field, text in found[1].items()})

    def tests(self, schema: Schema) -> tuple[Test, ...]:
        """Return the tests of several columns."""
        reader, tests = TestReader(schema, self.words), []
        for number, line in enumerate(self.lines.counted("tests"), 1):
            found = self.test.read(line.removeprefix("  "))
            if not found or found[1]["test"] != self.words.say("test_name", number=str(number)):
                raise ValueError(f"expected test {number}")
            tests.append(reader.read(found[1]["clauses"]))
        return tuple(tests)

    def costs(self, schema: Schema) -> npt.NDArray[np.int64]:
        """Return the misclassification costs: classes, and per class a cost per prediction."""
        rows = []
        for line, label in zip(self.lines.counted("costs"), schema.classes, strict=True):
            found = self.cost.read(line.removeprefix("  "))
            if found is None or read_label(found[1]["label"]) != label:
                raise ValueError("expected the costs of each class in order")
            parts = [
                self.share.read(part)
                for part in cut(found[1]["costs"], self.words.phrases["rule_comma"])
            ]
            pairs = [part[1] for part in parts if part is not None]
            if [read_label(pair["label"]) for pair in pairs] != list(schema.classes):
                raise ValueError("expected the cost of each prediction in order")
            rows.append([int(pair["share"]) for pair in pairs])
        costs = np.array(rows, dtype=np.int64)
        if np.diagonal(costs).any() or costs.max(initial=0) > MAX_COST or schema.more:
            raise ValueError(
                f"costs must be 0 to {MAX_COST}, 0 for a correct prediction, and of one target"
            )
        return costs


# ---------------------------------------------------------------- conditions and tests

CORE = (
    *("if_above", "if_upto", "if_between", "if_known", "if_missing", "if_missing_levels"),
    *("if_is", "if_never", "if_holds", "if_holds_as", "if_fails", "if_fails_as"),
    *("if_decided", "if_unknown", "if_undecidable"),
)
TAILS = ("if_or_missing_levels", "if_or_missing", "if_or_unknown")
_OF_NUMBERS = ("if_above", "if_upto", "if_between")
_ABSENT = ("if_missing", "if_missing_levels", "if_unknown")
_NEVER = ("if_never", "if_undecidable")


class Fields(NamedTuple):
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
        self.atoms = Atoms(words)
        self.core = Patterns(words, CORE, self.atoms.known)
        self.tail = Patterns(words, TAILS, self.atoms.known)
        bounds = {"low": WHOLE, "high": WHOLE}
        self.part = Patterns(words, ("if_part",), self.atoms.known | bounds)
        self.known: dict[str, Fields] = {}

    def read(self, text: str) -> Fields:
        """Return the condition that a text states."""
        if text not in self.known:
            self.known[text] = self._read(text)
        return self.known[text]

    def _read(self, text: str) -> Fields:
        part = self.part.read(text) if self.divides else None
        if part is None:
            return self._whole(text)
        low, high, condition = int(part[1]["low"]), int(part[1]["high"]), part[1]["condition"]
        if part_text(condition, low, high, self.words) != text:
            raise ValueError("the percentage does not follow from its bounds")
        if not 0 <= low < high <= MASS:
            raise ValueError(f"{text!r} does not state a part of a row")
        found = self._whole(condition, (low, high))
        if not found.missing:
            raise ValueError(f"{text!r} does not state a part of a row")
        return found

    def _whole(self, text: str, part: tuple[int, int] = (0, MASS)) -> Fields:
        """Return a condition whose missing values keep `part` of the mass."""
        core = self.core.read(text)
        if core is not None:
            return self._core(text, *core, part)
        tail = self.tail.read(text)
        core = self.core.read(tail[1]["condition"]) if tail is not None else None
        if core is None or tail is None:
            cut = self.part.read(text) is not None
            problem = "does not state a part of a row" if cut else "is not a condition"
            raise ValueError(f"{text!r} {problem}; expected a text such as {self._forms()}")
        found = self._core(text, *core, part)
        if not found.known or (tail[0] == "if_or_unknown") != self._asks_test(found):
            raise ValueError(f"{text!r} does not suit the kind of its column")
        found = found._replace(missing=True, part=part)
        return self._divided(text, found, tail[1].get("levels"))

    def _forms(self) -> str:
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

    def _core(self, text: str, key: str, said: dict[str, str], part: tuple[int, int]) -> Fields:
        if "test" in said:
            return self._outcome(key, said, part)
        column = self.columns[read_name(said["name"])]
        if key in _ABSENT:
            found = Fields(column, missing=True, part=part)
            return self._divided(text, found, said.get("levels"))
        if key in _NEVER:
            return Fields(column)
        numeric = self.schema.columns[column].kind == "numeric"
        if key in _OF_NUMBERS and numeric:
            low, high = said.get("low"), said.get("high")
            return Fields(column, self._bound(low, -np.inf), self._bound(high, np.inf), known=True)
        if key == "if_known":
            return Fields(column, known=True, fits=tuple(range(len(self.codes[column]))))
        if key == "if_is" and not numeric:
            return Fields(column, known=True, fits=self._codes(column, said["levels"]))
        raise ValueError(f"{text!r} does not suit the kind of its column")

    def _outcome(self, key: str, said: dict[str, str], part: tuple[int, int]) -> Fields:
        """Return a condition on the outcome of a test."""
        if said["test"] not in self.of_test:
            raise ValueError(f"unknown test {said['test']!r}")
        number = self.of_test[said["test"]] - 1
        column = self.schema.n_features + number
        if key in _ABSENT:
            return Fields(column, missing=True, part=part)
        if key in _NEVER:
            return Fields(column)
        if key == "if_decided":
            return Fields(column, known=True)
        holds = key in ("if_holds", "if_holds_as")
        gist = said.get("gist", "")
        if gist != test_gist(self.tests[number], self.schema, self.words, holds=holds):
            raise ValueError(f"{gist!r} does not follow from the test")
        bounds = (-np.inf, 0.0) if holds else (0.0, np.inf)
        return Fields(column, *bounds, known=True)

    def _divided(self, text: str, found: Fields, levels: str | None) -> Fields:
        """Return a condition with the categories that split a row there."""
        if levels is None:
            return found
        if not self.divides or self._asks_test(found):
            raise ValueError(f"{text!r} does not state a part of a row")
        dividing = self._codes(found.column, levels)
        if not dividing or set(dividing) & set(found.fits):
            raise ValueError("a category is named twice, or none is named")
        return found._replace(dividing=dividing)

    def _asks_test(self, found: Fields) -> bool:
        return found.column >= self.schema.n_features

    def _bound(self, numeral: str | None, none: float) -> float:
        return none if numeral is None else read_numeral(numeral, self.schema.dtype)

    def _codes(self, column: int, levels: str) -> tuple[int, ...]:
        return _ordered(tuple(self.codes[column][name] for name in self.atoms.levels_of(levels)))


class TestReader:
    """Parser of tests of several columns."""

    __test__ = False

    def __init__(self, schema: Schema, words: Language) -> None:
        self.schema, self.words, self.atoms = schema, words, Atoms(words)
        name = self.atoms.name
        self.term = re.compile(rf"({NUMBER}) \* ({name})")
        terms = rf"{NUMBER} \* {name}(?: \+ {NUMBER} \* {name})*"
        atoms = self.atoms.known | {"sum": rf"(?:{name}|{terms})", "at": NUMBER}
        self.clause = Patterns(words, ("test_above", "test_upto", "test_rather", "if_is"), atoms)

    def read(self, text: str) -> Test:
        """Return the test that a text states."""
        clauses: list[Clause] = []
        for part in cut(text, self.words.phrases["test_otherwise"]):
            found = self.clause.read(part)
            if found is None:
                raise ValueError(f"{part!r} is not a test")
            key, fields = found
            is_sum = key in ("test_above", "test_upto")
            clauses.append(self._sum(key, fields) if is_sum else self._branches(fields))
        return tuple(clauses)

    def _sum(self, key: str, said: dict[str, str]) -> Linear:
        below = int(key == "test_above")
        terms = self.term.findall(said["sum"])
        if not terms:
            at = read_numeral(said["at"], self.schema.dtype)
            return Linear((self._column(said["sum"], "numeric")[0],), (1.0,), at, below)
        features = tuple(self._column(name, "numeric")[0] for _, name in terms)
        weights = tuple(read_numeral(weight, self.schema.dtype) for weight, _ in terms)
        if any(weight == 0 for weight in weights):
            raise ValueError("a weight is 0")
        return Linear(features, weights, read_numeral(said["at"]), below)

    def _branches(self, said: dict[str, str]) -> Levels:
        feature, column = self._column(said["name"], "nominal")
        branches = [-1 if "others" in said else 1] * len(column.levels)
        for branch, field in enumerate(("levels", "others")):
            named = self.atoms.levels_of(said[field]) if field in said else ()
            for code in _ordered(tuple(column.levels.index(name) for name in named)):
                branches[code] = branch
        return Levels(feature, tuple(branches))

    def _column(self, token: str, kind: str) -> tuple[int, Column]:
        feature = self.schema.names.index(read_name(token))
        column = self.schema.columns[feature]
        if column.kind != kind:
            raise ValueError(
                f"column {token} is not {'numeric' if kind == 'numeric' else 'categorical'}"
            )
        return feature, column


def _ordered(codes: tuple[int, ...]) -> tuple[int, ...]:
    if any(a >= b for a, b in pairwise(codes)):
        raise ValueError("categories are not in declared order")
    return codes
