"""Read rule text, as treekit writes it or edited by a person.

A text is parsed tolerantly: the lines before and after the rules must be treekit's, and
conditions and predictions must use its phrases, but rules may be added, moved and deleted,
their numbers and nodes are free, supports and shares may be left out, and blank lines and
lines that begin with ``#`` are allowed anywhere; `treekit.rules.clean_text` undoes what editors
do to characters.  A text that is to be executed must also be
equal, byte for byte, to the text that treekit writes for the parsed rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise, zip_longest
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Dtype, Output, Schema
from treekit.data.table import suggest_names
from treekit.errors import ModelFileError
from treekit.model.fixed_point import MASS, Exponent, count_tree_units, make_exponent
from treekit.model.links import Combine, Link
from treekit.model.model import MissingPolicy, UnknownPolicy, predict_labels
from treekit.rules import language as languages
from treekit.rules.clean_text import (
    TextCleaner,
    collapse_blanks,
    describe_number,
    describe_operator,
    find_folded,
    split_rows,
    warn_of_thousands,
)
from treekit.rules.format_3 import FORMAT_3, Format3Rewriter, is_format_3
from treekit.rules.language import ENGLISH, FIRST_LINE, Language, list_languages
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
    merge_conditions,
)
from treekit.rules.wording import (
    FREE_TEXT_PATTERN,
    INTEGER_PATTERN,
    NUMBER_PATTERN,
    SHARE_PATTERN,
    FieldPatterns,
    PhrasePatterns,
    format_part,
    format_test_gist,
    parse_label,
    parse_name,
    parse_number,
    parse_share,
    quote_name,
    split_outside_quotes,
)
from treekit.rules.write_text import format_notes, generate_text

# ---------------------------------------------------------------- entry points

Line = tuple[int, str]
"""Number, from 1, and text without blanks at its end."""

_FIRST_LINE = re.compile(r"(treekit rules, format [0-9]+)(?:, language ([A-Za-z0-9-]+))?")


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
    reader = _RuleTextReader(text, language)
    try:
        found = reader.read_rules(fixed_step=True)
        reader.check_text(found, text)
    except (ValueError, OverflowError) as error:
        raise ModelFileError(
            f"line {reader.at} of the rules cannot be read ({error}); "
            "export the rules again: only unchanged text is executed"
        ) from error
    return found


def read_edited(text: str, language: str | Language | None = None) -> RuleList:
    """Parse an edited text as an ordered list.

    Conditions of one rule on one column are intersected; a rule without shares gives all votes
    to its label.  Numbers that are not multiples of the step get a finer or a coarser
    fixed-point unit, as those of a new model would.

    Parameters
    ----------
    text : str
    language : str or Language, optional
        As for `parse_rules`.

    Raises
    ------
    ModelFileError
        For a line that cannot be parsed; names it.
    SettingError
        If the language is unknown.
    """
    reader = _RuleTextReader(text, language, edited=True)
    try:
        found = reader.read_rules(fixed_step=False)
        reader.check_header(found)
    except (ValueError, OverflowError) as error:
        raise ModelFileError(f"line {reader.at} of the edited rules: {error}") from error
    number = np.arange(len(found)) - np.searchsorted(found.tree, found.tree)
    return replace(found, leaf=number.astype(np.int32), order="first")


def detect_language(first_line: str) -> Language:
    """Return the language that the first line of a text names; English if it names none."""
    match = _FIRST_LINE.fullmatch(first_line)
    if match is not None and match[1] not in (FIRST_LINE, FORMAT_3):
        raise ModelFileError(
            f"line 1 of the rules is {match[1]!r}, but this version of treekit reads "
            f"{FIRST_LINE!r} and {FORMAT_3!r}; export the rules again (treekit rules MODEL -o "
            "FILE) and repeat edits"
        )
    code = match[2] if match is not None and match[2] else ENGLISH
    if code not in list_languages():  # never a file name: the text is untrusted
        raise ModelFileError(
            f"line 1 of the rules names the language {code!r}, which treekit does not include; "
            "write the rules in another language"
        )
    return languages.load_language(code)


def _look_up(codes: Mapping[str, int], name: str, kind: str) -> int:
    """Return the code of a name, or of the only name that an editor may have made it of."""
    if name not in codes:
        if (typed := find_folded(name, codes)) is not None:
            return codes[typed]
        hint = suggest_names(name, list(codes))
        raise ValueError(f"the line names {name!r}, which is not a {kind}; {hint}")
    return codes[name]


# ---------------------------------------------------------------- header


class _HeaderReader:
    """Parser of the lines before and after the rules; `at` is the number of the current line."""

    def __init__(self, head: list[Line], notes: list[Line], words: Language) -> None:
        self.words, self.head, self.notes = words, head, notes
        self.at, self.first = head[0] if head else (1, "")
        self.facts: dict[str, tuple[Line, list[Line]]] = {}
        atoms = FieldPatterns(words)
        known = {"name": atoms.name, "levels": atoms.listed, "label": atoms.label}
        known |= {"share": SHARE_PATTERN, "test": atoms.test, "costs": ".+", "clauses": ".+"}
        known |= dict.fromkeys(("rules", "trees"), INTEGER_PATTERN)
        known["outputs"] = FREE_TEXT_PATTERN
        self.predicts = PhrasePatterns(words, ("head_predicts_trees", "head_predicts"), known)
        kinds = ("head_number", "head_levels", "head_no_levels")
        self.kinds = PhrasePatterns(words, kinds, known)
        self.cost = PhrasePatterns(words, ("head_cost",), known)
        self.share = PhrasePatterns(words, ("rule_share",), known)
        self.test = PhrasePatterns(words, ("head_test",), known)

    def read_header(self) -> RuleList:
        """Return a list without rules, with the facts that the header states."""
        n_trees, outputs = self._read_head()
        self._collect_facts()
        schema = Schema(
            columns=tuple(self._read_columns()),
            target=outputs[0].name,
            task="classification" if any(o.classes for o in outputs) else "regression",
            classes=outputs[0].classes,
            dtype=self._get_choice("type", Dtype),
            more=tuple(outputs[1:]),
        )
        missing = self._get_choice("missing", MissingPolicy)
        self.conditions = ConditionReader(schema, self.words, divides=missing == "fractional")
        if "tests" in self.facts:
            self.conditions.tests = tuple(self._read_tests())
        count_tree_units(n_trees, schema.dtype)  # refuses more trees than a model may have
        decisions = self._get_fact("says", "") == "labels"
        combine = self._get_choice("combine", Combine, "mean")
        in_steps = schema.task == "regression" or combine == "sum"
        exponent = self._read_steps(schema) if in_steps else 0
        return make_empty_list(
            schema,
            missing=missing,
            unknown=self._get_choice("unknown", UnknownPolicy),
            voting="hard" if not in_steps and self._get_fact("votes") == "1" else "soft",
            n_trees=n_trees,
            exponent=exponent,
            tests=self.conditions.tests,
            order=self._get_choice("order", Order, "disjoint"),
            decisions=decisions,
            combine=combine,
            link=self._get_choice("link", Link, "identity"),
            costs=self._read_costs(schema) if "costs" in self.facts else None,
        )

    def _collect_facts(self) -> None:
        """Collect the value of each fact, and the indented lines that follow it."""
        if not self.notes:
            reading = self.words.phrases["head_reading"]
            raise ValueError(f"the text has no line {reading!r}; keep the lines after the rules")
        own: list[Line] = []
        for number, row in self.notes[1:]:
            self.at = number
            if row.startswith("  "):
                own.append((number, row[2:]))
                continue
            starts = self.words.facts.items()
            key, start = next((each for each in starts if row.startswith(each[1])), ("", ""))
            if not key:
                known = ", ".join(repr(start.rstrip()) for _, start in starts)
                raise ValueError(f"{row!r} does not begin with a fact: {known}")
            own = []
            self.facts[key] = (number, row[len(start) :]), own

    def _read_steps(self, schema: Schema) -> Exponent:
        """Read the step of all numbers, or of each target."""
        stated = [part.strip() for part in self._get_fact("step").split(",")]
        exponents = [int(part.removeprefix("2**")) for part in stated]
        if wrong := [own for own in exponents if abs(own) > 1074]:
            raise ValueError(f"the step is 2**{wrong[0]}; expected 2**-1074 to 2**1074")
        if len(exponents) not in (1, schema.n_values):
            raise ValueError(
                f"{len(exponents)} steps are stated; expected 1, or one for each of the "
                f"{schema.n_values} numbers"
            )
        return make_exponent(exponents)

    def _get_fact(self, key: str, default: str | None = None) -> str:
        """Return the value of a fact, and move to its line."""
        if key in self.facts:
            (self.at, value), _ = self.facts[key]
            return value
        if default is None:
            raise ValueError(f"the text has no line {self.words.facts[key].rstrip()!r}")
        return default

    def _get_choice(self, key: str, choices: Any, default: str | None = None) -> Any:
        """Return the value of a fact that is one of several words, given as a `Literal`."""
        value = self._get_fact(key, default)
        if value not in get_args(choices):
            known = ", ".join(get_args(choices))
            raise ValueError(f"{key} is {value!r}; expected one of: {known}")
        return value

    def _iterate_lines(self, key: str) -> Iterator[str]:
        """Generate the lines that follow a fact, whose value is their number."""
        count, lines = int(self._get_fact(key)), self.facts[key][1]
        if count != len(lines):
            raise ValueError(f"{count} {key} are stated, but {len(lines)} lines follow")
        for self.at, row in lines:
            yield row

    def _read_head(self) -> tuple[int, list[Output]]:
        """Return the number of trees, and the targets."""
        if self.first != self.words.first_line:
            raise ValueError(f"rule text must begin with {self.words.first_line!r}")
        self.at, row = self.head[1] if len(self.head) > 1 else (self.at, "")
        found = self.predicts.match_phrase(row) if len(self.head) == 2 else None
        if found is None:
            start = self.words.phrases["rule_place"].partition("{")[0].strip()
            for number, row in self.head[2:]:
                if row.startswith(start):
                    self.at = number
                    example = self.words.say("rule_place", rule="1", rules="1", node="0")
                    raise ValueError(f"{row!r} begins no rule; expected {example!r}, or {start!r}")
            self.at = self.head[min(1, len(self.head) - 1)][0]
            example = self.words.say("head_predicts", outputs="...", rules="1")
            raise ValueError(f"expected one line before the rules, such as {example!r}")
        then = re.escape(self.words.phrases["head_next"])
        parts = split_outside_quotes(found[1]["outputs"], then)
        outputs = [
            Output(name, tuple(map(parse_label, self._split_levels(levels))))
            for _, name, levels in map(self._parse_kind, parts)
        ]
        return int(found[1].get("trees", 1)), outputs

    def _split_levels(self, text: str) -> list[str]:
        comma = re.escape(self.words.phrases["if_comma"])
        return [*split_outside_quotes(text, comma)] if text else []

    def _parse_kind(self, row: str) -> tuple[str, str, str]:
        """Return the kind of the values of a name, the name, and its levels."""
        found = self.kinds.match_phrase(row)
        if found is None:
            raise ValueError("expected a name and the kind of its values")
        key, fields = found
        return key, parse_name(fields["name"]), fields.get("levels", "")

    def _read_columns(self) -> Iterator[Column]:
        """Generate the columns."""
        for row in self._iterate_lines("columns"):
            key, name, levels = self._parse_kind(row)
            texts = tuple(map(parse_name, self._split_levels(levels)))
            yield Column(name) if key == "head_number" else Column(name, "nominal", texts)

    def _read_tests(self) -> Iterator[Test]:
        """Generate the tests of several columns."""
        for number, row in enumerate(self._iterate_lines("tests"), 1):
            found = self.test.match_phrase(row)
            if not found or found[1]["test"] != self.words.say("test_name", number=str(number)):
                raise ValueError(f"expected test {number}")
            yield self.conditions.parse_test(found[1]["clauses"])

    def _read_costs(self, schema: Schema) -> npt.NDArray[np.int64]:
        """Return the misclassification costs: classes, and per class a cost per prediction."""
        comma, rows, labels = re.escape(self.words.phrases["rule_comma"]), [], []
        for row in self._iterate_lines("costs"):
            found = self.cost.match_phrase(row)
            parts = split_outside_quotes(found[1]["costs"], comma) if found is not None else ()
            pairs = [part[1] for part in map(self.share.match_phrase, parts) if part is not None]
            if found is None or tuple(parse_label(p["label"]) for p in pairs) != schema.classes:
                raise ValueError("expected the cost of each prediction in order")
            labels.append(parse_label(found[1]["label"]))
            rows.append([int(pair["share"]) for pair in pairs])
        if tuple(labels) != schema.classes:
            raise ValueError("expected the costs of each class in order")
        return np.array(rows, dtype=np.int64)


# ---------------------------------------------------------------- rules


class _RuleTextReader(_HeaderReader):
    """Parser of the lines of a text; `at` is the number of the current line."""

    def __init__(self, text: str, language: str | Language | None, *, edited: bool = False) -> None:
        if edited:
            rows = split_rows(text)
        else:
            rows = [row.rstrip() for row in text.removeprefix("\ufeff").split("\n")]
        kept = [n for n, row in enumerate(rows) if row and row.lstrip()[0] != "#"]
        # Two lists in the place of pairs, which the garbage collector would visit.
        self.numbers, self.rows = [n + 1 for n in kept], [rows[n] for n in kept]
        first = self.rows[0] if kept else ""
        words = detect_language(first) if language is None else languages.load_language(language)
        self.edited = edited
        if edited:
            self.rows = [*map(TextCleaner(words).clean_row, self.rows)]
        self.older = Format3Rewriter(words, edited=edited) if is_format_3(self.rows) else None
        if self.older is not None:
            self.rows = self.older.rewrite_notes(self.rows)
        numbers = dict.fromkeys(("rule", "rules", "tree", "trees", "node"), INTEGER_PATTERN)
        self.place = PhrasePatterns(words, ("rule_place_tree", "rule_place"), numbers)
        self.rule_start = words.phrases["rule_place"].partition("{")[0].strip()
        self.bare = re.compile(rf"{re.escape(self.rule_start)}\s*[0-9]*")
        starts = [at for at, row in enumerate(self.rows) if self._is_rule_start(row)]
        reading = words.phrases["head_reading"]
        end = self.rows.index(reading) if reading in self.rows else len(kept)
        above = [*(at for at in starts if at < end), end]
        below = [*(at for at in starts if at > end), len(kept)]  # rules that a person appended
        self.blocks = [*pairwise(above), *pairwise(below)]
        head, notes = self._take_lines(0, above[0]), self._take_lines(end, below[0])
        super().__init__(list(head), list(notes), words)
        self.around = [
            [part.strip() for part in words.around(key, "condition")]
            for key in ("rule_if", "rule_and")
        ]
        self.known: dict[str, list[ConditionTuple]] = {}  # by line
        self.without = [words.phrases[key] for key in ("rule_always", "rule_otherwise")]
        self.then = words.phrases["rule_then"].partition("{answer}")[0].strip()

    def _take_lines(self, first: int, last: int) -> Iterator[Line]:
        return zip(self.numbers[first:last], self.rows[first:last], strict=True)

    def _is_rule_start(self, row: str) -> bool:
        if not row.startswith(self.rule_start):
            return False
        return self.bare.fullmatch(row) is not None or self.place.match_phrase(row) is not None

    def read_rules(self, *, fixed_step: bool) -> RuleList:
        """Return the list of all rules, sorted by tree."""
        self.header = header = self.read_header()
        if self.older is not None:
            self.rows = self.older.rewrite_rules(self.rows, self.conditions)
        if not self.blocks:
            raise ValueError(
                "the text contains no rule; begin each rule with a line such as "
                f"{self.words.say('rule_place', rule='1', rules='1', node='0')!r}"
            )
        answers = AnswerReader(header, self.words)
        rules = [self._read_rule(*block, answers) for block in self.blocks]
        return add_rules(header, rules, fixed_step=fixed_step)

    def check_text(self, found: RuleList, text: str) -> None:
        """Check that a text is the one that treekit writes; ``01`` or ``1e0`` is refused."""
        if self.older is not None:
            text = self.older.rewrite_text(text, zip(self.numbers, self.rows, strict=True))
        at, piece = 0, ""
        for piece in generate_text(found, self.words):
            if not text.startswith(piece, at):
                break
            at += len(piece)
        else:
            piece = ""
        pairs = zip_longest(
            text[at:].split("\n"), piece.split("\n"), fillvalue="the end of the text"
        )
        for number, (row, line) in enumerate(pairs, text.count("\n", 0, at) + 1):
            if row != line:
                self.at = number
                raise ValueError(f"{row!r} should be {line!r}")

    def check_header(self, found: RuleList) -> None:
        """Check that the notes state only facts that treekit would write."""
        stated = replace(found, exponent=self.header.exponent)
        written = enumerate(row.rstrip() for row in format_notes(stated, self.words))
        lines, theirs = (
            [(n, row) for n, row in some if row and not row.startswith(" ")]
            for some in (written, self.notes)
        )
        for (self.at, row), (_, line) in zip(theirs, lines, strict=False):
            if row != line:
                raise ValueError(f"{row!r} should be {line!r}; edit the rules, not the notes")

    def _read_rule(self, first: int, last: int, answers: AnswerReader) -> ParsedRule:
        lines, then = self._take_lines(first, last), f"{self.then} "
        self.at, place = next(lines)
        tree, leaf = self._parse_place(place)
        conditions: list[ConditionTuple] = []
        for self.at, row in lines:
            found = self.known.get(row)
            if found is None:
                if row.lstrip().startswith(then):
                    break
                found = self.known[row] = self._parse_condition_line(row.strip())
                if self.edited:
                    warn_of_thousands(row, self.at)
            conditions += found
        else:
            raise ValueError(f"the rule ends without a line '{self.then} ...'")
        # Fractional instances may need several conditions on a column.
        if self.header.mass == 1 and len({c.column for c in conditions}) < len(conditions):
            merged = merge_conditions(conditions)
            if any(not (c.known or c.missing) and c not in conditions for c in merged):
                raise ValueError("no value satisfies all conditions on one column; delete the rule")
            conditions = [*merged]
        support, as_parent, numbers = answers.parse_answer(0, row)
        stated, outputs = 1, len(self.header.schema.outputs)
        for stated, (self.at, row) in enumerate(lines, 2):
            if stated > outputs:
                raise ValueError(f"unexpected line {row.strip()!r} after the prediction of a rule")
            numbers = numbers + answers.parse_answer(stated - 1, row)[2]
        if stated < outputs:
            raise ValueError(f"the rule predicts {stated} of {outputs} targets; add the others")
        return ParsedRule(tree, leaf, conditions, support, as_parent, numbers)

    def _parse_place(self, row: str) -> tuple[int, int]:
        """Return tree and node of a rule, from 0; those that are not stated are 0."""
        found = self.place.match_phrase(row)
        fields = {} if found is None else found[1]
        n_trees = self.header.n_trees
        if n_trees > 1 and "tree" not in fields:
            raise ValueError(f"the rule names no tree; the list has {n_trees} trees, so name one")
        tree = int(fields.get("tree", 1))
        if not 1 <= tree <= n_trees:
            raise ValueError(f"unknown tree {tree}; trees are 1 to {n_trees}")
        return tree - 1, int(fields.get("node", 0))

    def _parse_condition_line(self, row: str) -> list[ConditionTuple]:
        if row in self.without:
            return []
        for start, end in self.around:
            if row.startswith(f"{start} ") and row.endswith(end):
                text = row[len(start) : len(row) - len(end)].strip()
                text = collapse_blanks(text) if self.edited and "  " in text else text
                try:
                    return [self.conditions.parse_condition(text)]
                except ValueError as error:
                    raise ValueError(f"{error}{self._describe_wrap()}") from error
        starts = ", ".join(repr(start) for start, _ in self.around)
        raise ValueError(
            f"{row!r} must begin with one of {starts}, {self.then!r}, or be one of {self.without}"
        )

    def _describe_wrap(self) -> str:
        """Describe a line that continues the current one; empty if there is none."""
        after = self.numbers.index(self.at) + 1
        row = self.rows[after] if after < len(self.rows) else self.rule_start
        starts = (f"{start} " for start in (*(start for start, _ in self.around), self.then))
        if self._is_rule_start(row) or row.strip().startswith(tuple(starts)):
            return ""
        if row.strip() in self.without or row == self.words.phrases["head_reading"]:
            return ""
        return f"; if an editor has wrapped it, join it with line {self.numbers[after]}"


# ---------------------------------------------------------------- predictions

_SHARE_PRECISION = 1_000_000
"""Shares written by hand may add to 1 with an error of one part in this number."""


class AnswerReader:
    """Parser of the last lines of a rule, one for each target.

    A line is as treekit writes it, or the prediction, followed in any order by the support and
    the shares, each after two blanks or more; both may be left out.
    """

    def __init__(self, rules: RuleList, words: Language) -> None:
        self.rules, atoms, outputs = rules, FieldPatterns(words), rules.schema.outputs
        say = words.phrases
        self.comma, self.nothing = re.escape(say["rule_comma"]), say["rule_nothing"]
        self.begin = say["rule_then"].partition("{answer}")[0].strip()
        share = NUMBER_PATTERN if rules.margins else SHARE_PATTERN
        known = {"label": atoms.label, "support": NUMBER_PATTERN, "share": share}
        self.support = PhrasePatterns(words, ("rule_as_above", "rule_support"), known)
        self.pair = PhrasePatterns(words, ("rule_share",), known)
        self.around = [
            words.around("rule_target", "answer", name=quote_name(output.name, words))
            if rules.schema.more
            else ("", "")
            for output in outputs
        ]
        self.classes = [
            {(type(label), label): i for i, label in enumerate(output.classes)}
            for output in outputs
        ]
        self.parse_pair = cache(self._parse_pair)
        self.parse_answer = cache(self._parse_answer)  # forests repeat lines

    def _parse_answer(self, k: int, row: str) -> tuple[float, bool, list[float]]:
        """Return support, whether the rule predicts what its parent does, and votes or numbers."""
        text = row.strip().removeprefix("" if k else self.begin).strip()
        answer, *parts = split_outside_quotes(text, r" {2,}|\t+")
        reached = [self.support.match_phrase(part) for part in parts]
        supports = [found for found in reached if found is not None]
        shares = [part for part, found in zip(parts, reached, strict=True) if found is None]
        if len(supports) > 1 or len(shares) > 1:
            fault = describe_number(text) or "is not a prediction, a support and shares"
            raise ValueError(f"{text!r} {fault}")
        support, as_parent = 0.0, False
        for key, fields in supports:
            support, as_parent = parse_number(fields["support"]), key == "rule_as_above"
        if as_parent and support != 0:
            raise ValueError(
                f"{text!r} has the prediction of its parent node, which only a rule without "
                "training rows may have; write support 0"
            )
        return support, as_parent, self._parse_values(k, answer, "".join(shares))

    def _parse_values(self, k: int, answer: str, shares: str) -> list[float]:
        if self.rules.margins:
            return self._parse_margins(answer)
        start, end = self.around[k]
        if not (answer.startswith(start) and answer.endswith(end)):
            raise ValueError(f"expected the next target, {start + end!r}, not {answer!r}")
        answer = answer[len(start) : len(answer) - len(end)]
        if not self.classes[k]:
            if re.fullmatch(NUMBER_PATTERN, answer) is None:
                raise ValueError(f"{answer!r} {describe_number(answer) or 'is not a number'}")
            return [parse_number(answer)]
        label = self._find_class(k, answer)
        if shares:
            return self._parse_shares(k, shares, label)
        votes = [0.0] * len(self.classes[k])
        votes[label] = self.rules.units_each
        return votes

    def _parse_shares(self, k: int, text: str, said: int) -> list[float]:
        """Return the votes of a rule that predicts class `said`."""
        votes = [0] * len(self.classes[k])
        for pair in split_outside_quotes(text, self.comma):
            code, number = self.parse_pair(k, pair)
            votes[code] = int(number)
        return [float(vote) for vote in complete_votes(self.rules, votes, said)]

    def _parse_margins(self, said: str) -> list[float]:
        margins = [0.0] * len(self.classes[0])
        pairs = [] if said == self.nothing else [*split_outside_quotes(said, self.comma)]
        for pair in pairs:
            code, margins[code] = self.parse_pair(0, pair)
        if np.count_nonzero(margins) != len(pairs):
            raise ValueError(f"{said!r} names a class twice, or adds 0 to one; leave that out")
        return margins

    def _parse_pair(self, k: int, text: str) -> tuple[int, float]:
        """Return the code of a class, and its votes or margin."""
        found = self.pair.match_phrase(text)
        if found is None:
            fault = describe_number(text) or "is not a class with a share or margin"
            raise ValueError(f"{text!r} {fault}")
        share, margins = found[1]["share"], self.rules.margins
        number = parse_number(share) if margins else parse_share(share, self.rules.units_each)
        return self._find_class(k, found[1]["label"]), number

    def _find_class(self, k: int, token: str) -> int:
        label = parse_label(token)
        if isinstance(label, str) and (type(label), label) not in self.classes[k]:
            names = [name for _, name in self.classes[k] if isinstance(name, str)]
            label = find_folded(label, names) or label
        if (type(label), label) not in self.classes[k]:
            known = ", ".join(str(one) for _, one in self.classes[k])
            raise ValueError(f"unknown class {token!r}; known: {known}")
        return self.classes[k][type(label), label]


def complete_votes(rules: RuleList, votes: list[int], said: int | None) -> list[int]:
    """Correct votes for the rounding of their decimals, so that they add up to the total.

    The difference is added to the votes of one class: the class with most votes for which
    the prediction of the rule is unchanged.

    Parameters
    ----------
    rules : RuleList
    votes : list of int
        Stated votes of one rule for one target.
    said : int, optional
        The class that the rule is stated to predict.

    Raises
    ------
    ValueError
        If another class has most votes, or the difference is too large for a rounding error.
    """
    total, best = rules.units_each, votes.index(max(votes))
    if rules.costs is not None:
        best = int(predict_labels(np.array([votes]), rules.costs)[0])
    if said not in (None, best):
        what = "the largest share" if rules.costs is None else "the least expected cost"
        raise ValueError(
            f"the prediction is not the class with {what}; change the shares as well, or delete "
            "them"
        )
    missed = total - sum(votes)
    if not missed:
        return votes
    if abs(missed) <= max(len(votes), total // _SHARE_PRECISION):
        for at in sorted(range(len(votes)), key=lambda at: -votes[at]):
            even = [*votes[:at], votes[at] + missed, *votes[at + 1 :]]
            if min(even) >= 0 and predict_labels(np.array([even]), rules.costs)[0] == best:
                return even
    raise ValueError(
        f"the shares add to {sum(votes) / total:.6g}; they must add to 1; change the shares as "
        "well, or delete them"
    )


# ---------------------------------------------------------------- conditions and tests

CORE_PHRASES = (
    *("if_above", "if_upto", "if_between", "if_known", "if_missing", "if_missing_levels"),
    *("if_is", "if_other", "if_never", "if_holds", "if_holds_as", "if_fails", "if_fails_as"),
    *("if_decided", "if_unknown", "if_undecidable"),
)
TAIL_PHRASES = ("if_or_missing_levels", "if_or_missing", "if_or_unknown")
_NUMERIC_PHRASES = ("if_above", "if_upto", "if_between")
_MISSING_PHRASES = ("if_missing", "if_missing_levels", "if_unknown")
_NEVER_PHRASES = ("if_never", "if_undecidable")
_NO_FRACTION = "a fraction of a row, but this model sends each row to a single branch"


_QUOTED_PATTERN = re.compile(r'"(?:[^"\\]|\\.)*"')


def _describe_fault(text: str) -> str:
    """Describe why a text is not a condition."""
    bare = _QUOTED_PATTERN.sub("", text)
    if '"' in bare:
        return "has a quote that is not closed"
    return describe_number(text) or describe_operator(text) or "is not a condition"


class ConditionReader:
    """Parser of conditions and of tests of several columns.

    `tests` are those that conditions may refer to.
    """

    def __init__(self, schema: Schema, words: Language, *, divides: bool) -> None:
        self.schema, self.words, self.divides = schema, words, divides
        self.tests: tuple[Test, ...] = ()
        self.columns = {column.name: i for i, column in enumerate(schema.columns)}
        self.codes = [
            {level: code for code, level in enumerate(column.levels)} for column in schema.columns
        ]
        self.atoms = atoms = FieldPatterns(words)
        fields = atoms.by_field
        self.core = PhrasePatterns(words, CORE_PHRASES, fields)
        self.tail = PhrasePatterns(words, TAIL_PHRASES, fields)
        bounds = {"low": INTEGER_PATTERN, "high": INTEGER_PATTERN}
        self.part = PhrasePatterns(words, ("if_part",), fields | bounds)
        self.term = re.compile(rf"({NUMBER_PATTERN}) \* ({atoms.name})")
        terms = rf"{NUMBER_PATTERN} \* {atoms.name}(?: \+ {NUMBER_PATTERN} \* {atoms.name})*"
        fields = fields | {"sum": rf"(?:{atoms.name}|{terms})", "at": NUMBER_PATTERN}
        clauses = ("test_above", "test_upto", "test_rather", "if_is")
        self.clause = PhrasePatterns(words, clauses, fields)

    # -------- conditions

    def parse_condition(self, text: str) -> ConditionTuple:
        """Return the condition that a text states after 'if' or 'and'."""
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
        found = self._parse_with_tail(condition)
        if not found.missing:
            raise ValueError(
                f"{text!r} states a fraction of a row with a missing value, but {condition!r} "
                "excludes missing values; let it include them, or leave out the fraction"
            )
        return found._replace(part=(low, high))

    def _parse_with_tail(self, text: str) -> ConditionTuple:
        core = self.core.match_phrase(text)
        if core is not None:
            return self.parse_core(text, *core)
        tail = self.tail.match_phrase(text)
        core = self.core.match_phrase(tail[1]["condition"]) if tail is not None else None
        if core is None or tail is None:
            cut = self.part.match_phrase(text) is not None
            problem = f"states {_NO_FRACTION}" if cut else _describe_fault(text)
            raise ValueError(f"{text!r} {problem}; expected a text such as {self._list_examples()}")
        found = self.parse_core(text, *core)
        if not found.known or (tail[0] == "if_or_unknown") != self._is_test(found):
            raise ValueError(
                f"{text!r} does not fit the type of its column, numeric or categorical"
            )
        return self._add_missing(text, found, tail[1].get("levels"))

    def _list_examples(self) -> str:
        """Return examples of conditions on columns x and c."""
        say = self.words.say
        either = f"a{self.words.phrases['if_or']}b"
        known = say("if_upto", name="x", high="3")
        examples = [known, say("if_above", name="x", low="3"), say("if_missing", name="x")]
        examples += [say(key, name="c", levels=either) for key in ("if_is", "if_other")]
        examples.append(say("if_or_missing", condition=known))
        return ", ".join(map(repr, examples))

    def parse_core(self, text: str, key: str, said: dict[str, str]) -> ConditionTuple:
        """Return the condition of a phrase of `CORE_PHRASES` and its fields."""
        column = self.find_test(said["test"]) if "test" in said else self._find_column(said)
        if key in _MISSING_PHRASES:
            return self._add_missing(text, ConditionTuple(column), said.get("levels"))
        if key in _NEVER_PHRASES:
            return ConditionTuple(column)
        if key == "if_decided":
            return ConditionTuple(column, known=True)
        if "test" in said:
            return self._parse_outcome(column, said.get("gist", ""), holds=key.startswith("if_ho"))
        if key == "if_known":
            return ConditionTuple(column, known=True, fits=tuple(range(len(self.codes[column]))))
        numeric = self.schema.columns[column].kind == "numeric"
        if key in _NUMERIC_PHRASES and numeric:
            low, high = (
                parse_number(said[side], self.schema.dtype) if side in said else none
                for side, none in (("low", -np.inf), ("high", np.inf))
            )
            return ConditionTuple(column, low, high, known=True)
        if key in ("if_is", "if_other") and not numeric:
            codes = self._parse_codes(column, said["levels"])
            others = tuple(code for code in range(len(self.codes[column])) if code not in codes)
            return ConditionTuple(column, known=True, fits=codes if key == "if_is" else others)
        raise ValueError(f"{text!r} does not fit the type of its column, numeric or categorical")

    def _parse_outcome(self, column: int, gist: str, *, holds: bool) -> ConditionTuple:
        """Return a condition on the outcome of a test."""
        test = self.tests[column - self.schema.n_features]
        expected = format_test_gist(test, self.schema, self.words, holds=holds)
        if gist != expected:
            raise ValueError(
                f"this line states the test as {gist!r}, but its definition is {expected!r}"
            )
        bounds = (-np.inf, 0.0) if holds else (0.0, np.inf)
        return ConditionTuple(column, *bounds, known=True)

    def _add_missing(self, text: str, found: ConditionTuple, levels: str | None) -> ConditionTuple:
        """Return a condition that missing values meet, and the categories that split a row."""
        found = found._replace(missing=True, part=(0, MASS))
        if levels is None:
            return found
        if not self.divides or self._is_test(found):
            raise ValueError(f"{text!r} states {_NO_FRACTION}")
        dividing = self._parse_codes(found.column, levels)
        if not dividing or set(dividing) & set(found.fits):
            raise ValueError(
                f"{levels!r} must list at least one category, and none that the condition lists"
            )
        return found._replace(dividing=dividing)

    def _is_test(self, found: ConditionTuple) -> bool:
        return found.column >= self.schema.n_features

    def find_test(self, name: str) -> int:
        """Return the number of a test, behind those of the columns."""
        for number in range(len(self.tests)):
            if name == self.words.say("test_name", number=str(number + 1)):
                return self.schema.n_features + number
        raise ValueError(f"unknown test {name!r}")

    def _find_column(self, said: Mapping[str, str]) -> int:
        return _look_up(self.columns, parse_name(said["name"]), "column")

    def find_code(self, column: int, level: str) -> int:
        """Return the code of a category."""
        return _look_up(self.codes[column], level, "category of its column")

    def _parse_codes(self, column: int, levels: str) -> tuple[int, ...]:
        codes = tuple(self.find_code(column, name) for name in self.atoms.parse_levels(levels))
        if any(a >= b for a, b in pairwise(codes)):
            raise ValueError("categories must be in declared order, each once")
        return codes

    # -------- tests

    def parse_test(self, text: str) -> Test:
        """Parse the text of a test."""
        clauses: list[Clause] = []
        for part in split_outside_quotes(text, re.escape(self.words.phrases["test_otherwise"])):
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
            return LinearClause((self._find_feature(said["sum"], "numeric"),), (1.0,), at, below)
        features = tuple(self._find_feature(name, "numeric") for _, name in terms)
        weights = tuple(parse_number(weight, self.schema.dtype) for weight, _ in terms)
        if any(weight == 0 for weight in weights):
            raise ValueError("a weight is 0")
        return LinearClause(features, weights, parse_number(said["at"]), below)

    def _parse_branches(self, said: dict[str, str]) -> LevelsClause:
        feature = self._find_feature(said["name"], "nominal")
        branches = [-1 if "others" in said else 1] * len(self.codes[feature])
        for branch, field in enumerate(("levels", "others")):
            for code in self._parse_codes(feature, said[field]) if field in said else ():
                branches[code] = branch
        return LevelsClause(feature, tuple(branches))

    def _find_feature(self, token: str, kind: str) -> int:
        feature = self._find_column({"name": token})
        if self.schema.columns[feature].kind != kind:
            raise ValueError(
                f"column {token} is not {'numeric' if kind == 'numeric' else 'categorical'}"
            )
        return feature
