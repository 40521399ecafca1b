"""Layout of rule documents: one row per rule, measures, header facts and wording.

A weighted list, whose trees consist of a rule and its "otherwise", is shown with one row
per tree; Markdown, HTML pages and notebooks share these rows.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Label, Output
from treekit.documents import Listing
from treekit.model.model import predict_labels
from treekit.rules.language import Language
from treekit.rules.rule_list import Rounding, RuleList
from treekit.rules.wording import (
    format_numbers,
    format_share,
    format_test,
    quote_label,
    quote_name,
    quote_text,
    render_conditions,
)

# ---------------------------------------------------------------- outcome texts

_PLAIN_NAME = re.compile(r"[\w<>=+-](?:[\w<>=+\-./%()&' ]*[\w<>=+\-.%)])?")

Units = npt.NDArray[np.int64]


def format_name(label: Label) -> str:
    """Return a name or label for display on its own, quoted where it might be misread."""
    if not isinstance(label, str):
        return quote_label(label)
    return label if label.isprintable() and _PLAIN_NAME.fullmatch(label) else quote_text(label)


class OutcomeText(NamedTuple):
    """Outcome of one rule for one target.

    Attributes
    ----------
    target : str
        Name of the target if there are several; else empty.
    text : str
        The label, or the number.
    shares : tuple of (str, str)
        Labels with votes and their shares, or margins with the amounts added to them.
    label : int
        Number of the class; -1 if the rule names none.
    """

    target: str
    text: str
    shares: tuple[tuple[str, str], ...] = ()
    label: int = -1

    @property
    def shares_text(self) -> str:
        """Labels and shares in one line."""
        return ", ".join(f"{label}: {share}" for label, share in self.shares)


class OutcomeFormatter:
    """Texts of the outcomes of a listing; each distinct share is formatted once."""

    def __init__(self, listing: Listing) -> None:
        self.rules = rules = listing.rules
        self.no_margins_text = listing.language.say("page_nothing")
        outputs = rules.schema.outputs
        self.target_names = [
            format_name(output.name) if len(outputs) > 1 else "" for output in outputs
        ]
        self.labels = [[format_name(label) for label in output.classes] for output in outputs]
        self.has_votes = rules.schema.task == "classification" and not rules.margins
        self.share_texts: dict[int, str] = {}
        if self.has_votes:
            distinct, total = np.unique(rules.units).tolist(), rules.units_each
            self.share_texts = {units: format_share(units, total) for units in distinct}

    def format_outcomes(self, first: int, last: int) -> Iterator[tuple[OutcomeText, ...]]:
        """Return the outcomes for each target of the rules from `first` to `last`."""
        units = self.rules.units[first:last]
        if self.rules.margins:
            return zip(self._format_margins(units), strict=True)
        blocks = itertools.pairwise(self.rules.schema.blocks)
        say = self._format_shares if self.has_votes else self._format_numbers
        targets = [say(k, units[:, start:end]) for k, (start, end) in enumerate(blocks)]
        return zip(*targets, strict=True)

    def _format_shares(self, k: int, votes: Units) -> list[OutcomeText]:
        labels, share, name = self.labels[k], self.share_texts, self.target_names[k]
        codes = predict_labels(votes, self.rules.costs).tolist()
        texts = []
        for label, row in zip(codes, votes.tolist(), strict=True):
            labelled = zip(labels, row, strict=True)
            pairs = tuple((text, share[units]) for text, units in labelled if units)
            texts.append(OutcomeText(name, labels[label], pairs, label))
        return texts

    def _format_numbers(self, k: int, units: Units) -> list[OutcomeText]:
        return [OutcomeText(self.target_names[k], text) for text in self._format_units(units[:, 0])]

    def _format_margins(self, units: Units) -> list[OutcomeText]:
        texts = iter(self._format_units(units[units != 0]))
        outcomes = []
        for row in units:
            added = tuple((self.labels[0][k], next(texts)) for k in np.flatnonzero(row).tolist())
            text = ", ".join(f"{label}: {number}" for label, number in added)
            outcomes.append(OutcomeText(self.target_names[0], text or self.no_margins_text, added))
        return outcomes

    def _format_units(self, units: Units) -> list[str]:
        return format_numbers(np.ldexp(units.astype(np.float64), self.rules.exponent))


# ---------------------------------------------------------------- sheet

Numbers = npt.NDArray[np.float64]
_RULES_PER_BLOCK = 2048
_SIGNIFICANT_DIGITS, _LIFT_DIGITS = 6, 3
"""Significant digits of numbers, and of lift, a ratio of two shares."""


class Figure(NamedTuple):
    """A column of measures of the rules.

    Attributes
    ----------
    key : str
        Name of the measure: ``support``.
    heading : str
        In the language of the document.
    kind : {"number", "part"}
        Parts are shown in per cent, with a bar.
    values : (rules,) float64
        NaN where undefined.
    """

    key: str
    heading: str
    kind: Literal["number", "part"]
    values: Numbers


@dataclass(frozen=True)
class DocumentLayout:
    """Layout of a listing.

    Attributes
    ----------
    weighted : bool
        Whether a row stands for a tree of at most two rules: the rule, and otherwise.
    shown_rules : (entries,) int64
        The rules that have a row.
    figures : tuple of Figure
        Measures with any data.
    outcomes : OutcomeFormatter
    """

    listing: Listing
    weighted: bool
    shown_rules: npt.NDArray[np.int64]
    figures: tuple[Figure, ...]
    outcomes: OutcomeFormatter


class DocumentRow(NamedTuple):
    """One row of a document.

    Attributes
    ----------
    rule, tree : int
        From 0.
    conditions : list of ConditionText
    is_otherwise : bool
        Whether the rule has no conditions and covers the rows that earlier rules leave.
    outcomes, otherwise : tuple of Said
        Outcomes for each target; `otherwise` is empty except in weighted lists.
    as_parent : bool
    """

    rule: int
    tree: int
    conditions: list[ConditionText]
    is_otherwise: bool
    outcomes: tuple[OutcomeText, ...]
    otherwise: tuple[OutcomeText, ...]
    as_parent: bool


def make_layout(listing: Listing) -> DocumentLayout:
    """Return the layout of a listing."""
    rules = listing.rules
    first = np.flatnonzero(np.diff(rules.tree, prepend=-1))
    in_pairs = len(rules) <= 2 * len(first) and np.bincount(rules.tree).max(initial=0) <= 2
    weighted = rules.order == "first" and rules.n_trees > 1 and bool(in_pairs)
    shown = first if weighted else np.arange(len(rules))
    return DocumentLayout(
        listing, weighted, shown, tuple(_list_figures(listing)), OutcomeFormatter(listing)
    )


def _find_tree_ends(rules: RuleList) -> npt.NDArray[np.int64]:
    """Return (trees,) int64: the index after the last rule of each tree."""
    return np.searchsorted(rules.tree, np.arange(rules.n_trees), side="right")


def _list_figures(listing: Listing) -> Iterator[Figure]:
    """Yield the measures with any known value, in page order."""
    measures, say = listing.measures, listing.language.say
    if measures.rows is not None and not np.array_equal(measures.rows, measures.weight):
        yield Figure("rows", say("page_head_rows"), "number", measures.rows.astype(np.float64))
    yield Figure("support", say("page_head_support"), "number", measures.weight)
    yield Figure("coverage", say("page_head_coverage"), "part", measures.coverage)
    outputs = listing.rules.schema.outputs
    for key in ("confidence", "lift", "mean", "spread"):
        table: Numbers = getattr(measures, key)
        for k, output in enumerate(outputs):
            values = table[:, k]
            if np.isnan(values).all() or (key == "mean" and _is_redundant_mean(listing, k)):
                continue
            heading = say(f"page_head_{key}")
            if len(outputs) > 1:
                heading = say("page_head_of", measure=heading, target=format_name(output.name))
            yield Figure(key, heading, "part" if key == "confidence" else "number", values)


def _is_redundant_mean(listing: Listing, target: int) -> bool:
    """Check whether the means equal the rules' own values, up to fixed-point rounding."""
    rules = listing.rules
    own = np.ldexp(rules.units[:, target].astype(np.float64), rules.exponent)
    return bool(np.allclose(listing.measures.mean[:, target], own, rtol=1e-9, atol=1e-12))


def iter_rows(
    page: DocumentLayout, start: int = 0, stop: int | None = None
) -> Iterator[DocumentRow]:
    """Yield the rows from `start` to `stop`, made in blocks of `_RULES_PER_BLOCK` rules."""
    shown = page.shown_rules[start:stop]
    for at in range(0, len(shown), _RULES_PER_BLOCK):
        yield from _iter_block(page, shown[at : at + _RULES_PER_BLOCK])


def _iter_block(page: DocumentLayout, shown: npt.NDArray[np.int64]) -> Iterator[DocumentRow]:
    rules = page.listing.rules
    first = int(shown[0])
    last = (
        int(_find_tree_ends(rules)[rules.tree[shown[-1]]]) if page.weighted else int(shown[-1]) + 1
    )
    begin = rules.bounds(first)[0]
    texts = format_conditions(page.listing, begin, rules.bounds(last - 1)[1])
    outcomes = list(page.outcomes.format_outcomes(first, last))
    follows = rules.order == "first"
    tree, as_parent = rules.tree[first:last].tolist(), rules.as_parent[first:last].tolist()
    ends = [begin, *rules.end[first:last].tolist()]
    for number in shown.tolist():
        place = number - first
        conditions = texts[ends[place] - begin : ends[place + 1] - begin]
        paired = page.weighted and place + 1 < len(tree) and tree[place + 1] == tree[place]
        before = place > 0 or first > 0
        same = before and int(rules.tree[number - 1]) == tree[place]
        otherwise = outcomes[place + 1] if paired else ()
        ending = follows and same and not conditions
        outcome = outcomes[place]
        yield DocumentRow(
            number, tree[place], conditions, ending, outcome, otherwise, as_parent[place]
        )


def format_figure(figure: Figure) -> list[str]:
    """Format the values of a figure, "" for NaN; each distinct value is formatted once."""
    distinct, place = np.unique(figure.values, return_inverse=True)
    digits = _LIFT_DIGITS if figure.key == "lift" else _SIGNIFICANT_DIGITS
    write = format_percent if figure.kind == "part" else partial(_format_number, digits=digits)
    texts = list(map(write, distinct.tolist()))
    return [texts[at] for at in place.tolist()]


def format_percent(part: float) -> str:
    """Format a fraction in per cent; only 0 and 1 themselves give 0% and 100%.

    >>> percent(0.99996)
    '99.996%'
    """
    if math.isnan(part):
        return ""
    for digits in range(1, 16):
        text = f"{100 * part:.{digits}f}"
        if float(text) not in (0.0, 100.0):
            return f"{text}%"
    return "0%" if part < 0.5 else "100%"


def _format_number(value: float, digits: int) -> str:
    """Format integers exactly, other numbers to some significant digits, and NaN as ""."""
    if math.isnan(value):
        return ""
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return format_numbers(np.array([float(f"{value:.{digits}g}")]))[0]


# ---------------------------------------------------------------- columns

_FORMULA_SIGNS = frozenset("=+-@＝＋－＠")
"""Half-width and full-width characters that start a formula in spreadsheets."""


def quote_unsafe(label: Label) -> Label:
    """Return a label, quoted if a spreadsheet or a reader could misinterpret it.

    Labels that begin with a double quote are quoted, too: `treekit.rules.wording.unquote_text`
    restores the original.
    """
    if not isinstance(label, str):
        return label
    start = label.strip()[:1]
    tame = start and start != '"' and start not in _FORMULA_SIGNS and label.isprintable()
    return label if tame else quote_text(label)


class RuleColumns:
    """Columns of a listing as a table, for CSV files and dataframes; built in blocks of rules.

    Attributes
    ----------
    names : list of str
        ``rule``, ``tree``, ``node`` (from 1, from 1, and from 0 as in the text), ``if``, the
        outcome for each target, the shares of its classes (or the amounts added to their
        margins), ``as_parent``, and the measures, for each target if there are several.
    """

    def __init__(self, listing: Listing) -> None:
        self.listing, self.outcomes = listing, OutcomeFormatter(listing)
        self.has_several_targets = bool(listing.rules.schema.more)
        self.names = ["rule", "tree", "node", "if", *self._list_outcome_names(), "as_parent"]
        self.names += [name for name, _ in self._list_measures()]

    def make_block(self, first: int, last: int) -> list[list[Any]]:
        """Return the columns of the rules from `first` to `last`."""
        rules = self.listing.rules
        columns: list[list[Any]] = [
            list(range(first + 1, last + 1)),
            (rules.tree[first:last] + 1).tolist(),
            rules.leaf[first:last].tolist(),
            format_rules(self.listing, first, last),
            *self._list_outcomes(first, last),
            rules.as_parent[first:last].tolist(),
        ]
        return columns + [values[first:last].tolist() for _, values in self._list_measures()]

    def _label_column(self, measure: str, target: str) -> str:
        return f"{measure} of {quote_label(target)}" if self.has_several_targets else measure

    def _list_outcome_names(self) -> Iterator[str]:
        for output in self.listing.rules.schema.outputs:
            if not self.listing.rules.margins:
                yield self._label_column("then", output.name)
            what = "margin" if self.listing.rules.margins else "share"
            yield from (
                self._label_column(f"{what} {quote_label(label)}", output.name)
                for label in output.classes
            )

    def _list_outcomes(self, first: int, last: int) -> Iterator[list[Any]]:
        rules, units = self.listing.rules, self.listing.rules.units[first:last]
        if rules.schema.task == "regression" or rules.margins:
            yield from np.ldexp(units.astype(np.float64), rules.exponent).T.tolist()
            return
        codes = [[said.label for said in row] for row in self.outcomes.format_outcomes(first, last)]
        blocks = itertools.pairwise(rules.schema.blocks)
        for k, (output, (start, end)) in enumerate(zip(rules.schema.outputs, blocks, strict=True)):
            texts = list(map(quote_unsafe, output.classes))
            yield [texts[row[k]] for row in codes]
            yield from (units[:, start:end] / rules.units_each).T.tolist()

    def _list_measures(self) -> Iterator[tuple[str, np.ndarray]]:
        measures = self.listing.measures
        if measures.rows is not None:
            yield "rows", measures.rows
        yield "support", measures.weight
        yield "coverage", measures.coverage
        for key in ("confidence", "lift", "mean", "spread"):
            table = getattr(measures, key)
            for k, output in enumerate(self.listing.rules.schema.outputs):
                if not np.isnan(table[:, k]).all():
                    yield self._label_column(key, output.name), table[:, k]


# ---------------------------------------------------------------- facts
# Document header: subject, reading notes and provenance.


def make_title(listing: Listing, markup: Callable[[str], str] = str) -> str:
    """Return the heading; text from the table or the caller is passed through `markup`."""
    given = listing.title
    if given:
        return markup(_quote_unprintable(given))
    return listing.language.say(
        "page_title", target=markup(format_name(listing.rules.schema.target))
    )


def _quote_unprintable(name: str) -> str:
    return name if name.isprintable() else quote_text(name)


class Fact(NamedTuple):
    """A named fact about the listed rules; `verbatim` values come from a table or a model."""

    name: str
    values: tuple[str, ...]
    verbatim: bool = False


def list_facts(page: DocumentLayout) -> Iterator[Fact]:
    """Yield the facts about the listed rules, in document order: target, classes, columns, ..."""
    listing = page.listing
    rules, say = listing.rules, listing.language.say
    outputs = rules.schema.outputs
    if len(outputs) == 1:
        yield Fact(say("page_target"), (format_name(outputs[0].name),), verbatim=True)
        if labels := tuple(map(format_name, outputs[0].classes)):
            yield Fact(say("page_classes"), labels, verbatim=True)
    else:
        kinds = tuple(_describe_target(listing, output) for output in outputs)
        yield Fact(say("page_targets"), kinds, verbatim=True)
    yield Fact(say("page_columns"), (str(rules.schema.n_features),))
    if rules.n_trees > 1 and not page.weighted:
        yield Fact(say("page_trees"), (str(rules.n_trees),))
    yield Fact(say("page_rules"), (str(len(page.shown_rules)),))
    if listing.measures.source == "table" and listing.table_name:
        yield Fact(say("page_measured"), (_quote_unprintable(listing.table_name),), verbatim=True)
    else:
        yield Fact(say("page_measured"), (say(f"page_measured_{listing.measures.source}"),))
    if listing.model_digest:
        yield Fact(say("page_model_digest"), (listing.model_digest,), verbatim=True)
    yield Fact(say("page_text_digest"), (_hash_text(listing),), verbatim=True)


def _describe_target(listing: Listing, output: Output) -> str:
    labels = ", ".join(format_name(label) for label in output.classes)
    return f"{format_name(output.name)}: {labels or listing.language.say('page_number')}"


def _hash_text(listing: Listing) -> str:
    """Return the SHA-256 of the text form, which identifies equal rules in different documents."""
    digest = hashlib.sha256()
    for piece in listing.rules.text():
        digest.update(piece.encode())
    return digest.hexdigest()


def list_notes(page: DocumentLayout) -> Iterator[str]:
    """Yield sentences that explain how to read the rules."""
    rules, say = page.listing.rules, page.listing.language.say
    several = rules.n_trees > 1
    if page.weighted:
        yield say(f"page_how_weighted_{rules.combine}")
    elif rules.order == "first":
        yield say("page_how_first_trees" if several else "page_how_first", trees=str(rules.n_trees))
    else:
        key = ("page_how_added" if rules.combine == "sum" else "page_how_forest") if several else ""
        yield say(key or "page_how_one", trees=str(rules.n_trees))
    if rules.mass > 1:
        yield say("page_how_parts")
    yield say("page_missing_error" if rules.missing == "error" else "page_missing_asked")
    yield say(f"page_unknown_{rules.unknown}")
    numeric = any(column.kind == "numeric" for column in rules.schema.columns)
    if rules.schema.dtype == "float32" and numeric:
        yield say("page_rounded")
    if rules.decisions:
        yield say("page_decisions")
    if rules.rounding is not None:
        yield say(
            "page_shortened", **dict(zip(Rounding._fields, map(str, rules.rounding), strict=True))
        )
    confident = any(figure.key == "confidence" for figure in page.figures)
    yield say("page_support" if confident else "page_support_number")


# ---------------------------------------------------------------- wording


class ConditionText(NamedTuple):
    """Condition in words, split at the column name; for a test all text is in `before`."""

    before: str
    name: str
    behind: str


def format_conditions(listing: Listing, start: int, stop: int) -> list[ConditionText]:
    """Return the wording of the conditions from `start` to `stop`."""
    rules, words = listing.rules, listing.language
    names = [quote_name(column.name, words) for column in rules.schema.columns]
    names += [""] * len(rules.tests)
    column_ids = rules.conditions.column[start:stop].tolist()
    texts = render_conditions(rules, start, stop, words)
    places = {column: _compile_name_pattern(names[column]) for column in set(column_ids)}
    return [
        _split_at_name(text, places[column]) for column, text in zip(column_ids, texts, strict=True)
    ]


def _compile_name_pattern(name: str) -> re.Pattern[str] | None:
    """Return a pattern that finds a name in text, but not as a part of a word or number."""
    return re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)") if name else None


def _split_at_name(text: str, place: re.Pattern[str] | None) -> ConditionText:
    found = place.search(text) if place else None
    if found is None:
        return ConditionText(text, "", "")
    return ConditionText(text[: found.start()], found.group(), text[found.end() :])


def format_tests(listing: Listing) -> list[str]:
    """Return the wording of the tests used in conditions, in order."""
    rules, words = listing.rules, listing.language
    return [format_test(test, rules.schema, words) for test in rules.tests]


def format_rules(listing: Listing, first: int, last: int) -> list[str]:
    """Return the conditions of each rule from `first` to `last` as one line of plain text.

    The conjunction ("; and") distinguishes ``a <= 1, or missing; and b is c`` from "a <= 1, or
    (missing and b is c)"; other forms mark up each condition.
    """
    rules, words = listing.rules, listing.language
    begin = rules.bounds(first)[0]
    texts = render_conditions(rules, begin, rules.bounds(last - 1)[1], words)
    ends = [0, *(rules.end[first:last] - begin).tolist()]
    joined, always = words.say("page_and_also"), words.say("page_always")
    lines = [joined.join(texts[start:end]) for start, end in itertools.pairwise(ends)]
    same_tree = np.diff(rules.tree[max(first - 1, 0) : last], prepend=-1)[-len(lines) :] == 0
    otherwise = same_tree & (rules.order == "first")
    nothing = np.where(otherwise, words.say("page_otherwise"), always).tolist()
    return [text or none for text, none in zip(lines, nothing, strict=True)]


# ---------------------------------------------------------------- outcome arrays


def predict_rule_labels(rules: RuleList) -> list[npt.NDArray[np.int64]]:
    """Return, for each target, (rules,) int64: the class that each rule predicts on its own."""
    return [
        predict_labels(rules.units[:, first:last], rules.costs)
        for first, last in itertools.pairwise(rules.schema.blocks)
    ]


def compute_shares(rules: RuleList) -> npt.NDArray[np.float64]:
    """Return (rules, values) float64: each class's share of a rule's votes, rounded once."""
    return rules.units / rules.units_each


def decode_numbers(rules: RuleList) -> npt.NDArray[np.float64]:
    """Return (rules, values) float64: the exact number that a rule predicts or adds."""
    return np.ldexp(rules.units.astype(np.float64), rules.exponent)


def format_rule_outcomes(rules: RuleList, words: Language) -> list[str]:
    """Return the outcome of each rule in one line of printable text, with unsafe names quoted."""
    outputs = rules.schema.outputs
    names = [f"{quote_name(o.name, words)}: " if rules.schema.more else "" for o in outputs]
    if rules.schema.task == "classification" and not rules.margins:
        texts = [[quote_label(label, words) for label in output.classes] for output in outputs]
        codes = predict_rule_labels(rules)
        columns: Iterable[Sequence[str]] = (
            [own[code] for code in found.tolist()] for own, found in zip(texts, codes, strict=True)
        )
    else:
        if rules.margins:
            names = [f"{quote_label(label, words)}: " for label in rules.schema.classes]
        columns = (format_numbers(column) for column in decode_numbers(rules).T)
    named = ([name + text for text in own] for name, own in zip(names, columns, strict=True))
    return [", ".join(row) for row in zip(*named, strict=True)]
