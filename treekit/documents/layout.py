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
from treekit.model.model import least_cost
from treekit.rules.language import Language
from treekit.rules.rule_list import Rounding, RuleList
from treekit.rules.wording import (
    condition_texts,
    label_text,
    name_text,
    numerals,
    quote,
    share_text,
    test_text,
)

__all__ = [
    "Asked",
    "Columns",
    "Entry",
    "Fact",
    "Figure",
    "Said",
    "Says",
    "Sheet",
    "conditions_said",
    "entries",
    "facts",
    "figure_texts",
    "label_codes",
    "notes",
    "numbers",
    "percent",
    "rules_said",
    "safe",
    "said",
    "shares",
    "sheet",
    "shown",
    "tests_said",
    "title",
]


# ---------------------------------------------------------------- outcome texts

_TAME = re.compile(r"[\w<>=+-](?:[\w<>=+\-./%()&' ]*[\w<>=+\-.%)])?")

Units = npt.NDArray[np.int64]


def shown(label: Label) -> str:
    """Return a name or label for display on its own, quoted where it might be misread."""
    if not isinstance(label, str):
        return label_text(label)
    return label if label.isprintable() and _TAME.fullmatch(label) else quote(label)


class Said(NamedTuple):
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
    def pairs(self) -> str:
        """Labels and shares in one line."""
        return ", ".join(f"{label}: {share}" for label, share in self.shares)


class Says:
    """Texts of the outcomes of a listing; each distinct share is formatted once."""

    def __init__(self, listing: Listing) -> None:
        self.rules = rules = listing.rules
        self.nothing = listing.language.say("page_nothing")
        outputs = rules.schema.outputs
        self.names = [shown(output.name) if len(outputs) > 1 else "" for output in outputs]
        self.labels = [[shown(label) for label in output.classes] for output in outputs]
        self.votes = rules.schema.task == "classification" and not rules.margins
        self.share: dict[int, str] = {}
        if self.votes:
            distinct, total = np.unique(rules.units).tolist(), rules.units_each
            self.share = {units: share_text(units, total) for units in distinct}

    def of(self, first: int, last: int) -> Iterator[tuple[Said, ...]]:
        """Return the outcomes for each target of the rules from `first` to `last`."""
        units = self.rules.units[first:last]
        if self.rules.margins:
            return zip(self._margins(units), strict=True)
        blocks = itertools.pairwise(self.rules.schema.blocks)
        say = self._shares if self.votes else self._numbers
        targets = [say(k, units[:, start:end]) for k, (start, end) in enumerate(blocks)]
        return zip(*targets, strict=True)

    def _shares(self, k: int, votes: Units) -> list[Said]:
        labels, share, name = self.labels[k], self.share, self.names[k]
        codes = least_cost(votes, self.rules.costs).tolist()
        texts = []
        for label, row in zip(codes, votes.tolist(), strict=True):
            labelled = zip(labels, row, strict=True)
            pairs = tuple((text, share[units]) for text, units in labelled if units)
            texts.append(Said(name, labels[label], pairs, label))
        return texts

    def _numbers(self, k: int, units: Units) -> list[Said]:
        return [Said(self.names[k], text) for text in self._on_grid(units[:, 0])]

    def _margins(self, units: Units) -> list[Said]:
        texts = iter(self._on_grid(units[units != 0]))
        outcomes = []
        for row in units:
            added = tuple((self.labels[0][k], next(texts)) for k in np.flatnonzero(row).tolist())
            text = ", ".join(f"{label}: {number}" for label, number in added)
            outcomes.append(Said(self.names[0], text or self.nothing, added))
        return outcomes

    def _on_grid(self, units: Units) -> list[str]:
        return numerals(np.ldexp(units.astype(np.float64), self.rules.exponent))


# ---------------------------------------------------------------- sheet

Numbers = npt.NDArray[np.float64]
_RULES_A_BLOCK = 2048
_DIGITS, _LIFT_DIGITS = 6, 3
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
class Sheet:
    """Layout of a listing.

    Attributes
    ----------
    weighted : bool
        Whether a row stands for a tree of at most two rules: the rule, and otherwise.
    shown : (entries,) int64
        The rules that have a row.
    figures : tuple of Figure
        Measures with any data.
    says : Says
    """

    listing: Listing
    weighted: bool
    shown: npt.NDArray[np.int64]
    figures: tuple[Figure, ...]
    says: Says


class Entry(NamedTuple):
    """One row of a document.

    Attributes
    ----------
    rule, tree : int
        From 0.
    conditions : list of Asked
    last : bool
        Whether the rule has no conditions and covers the rows that earlier rules leave.
    said, otherwise : tuple of Said
        Outcomes for each target; `otherwise` is empty except in weighted lists.
    as_parent : bool
    """

    rule: int
    tree: int
    conditions: list[Asked]
    last: bool
    said: tuple[Said, ...]
    otherwise: tuple[Said, ...]
    as_parent: bool


def sheet(listing: Listing) -> Sheet:
    """Return the layout of a listing."""
    rules = listing.rules
    first = np.flatnonzero(np.diff(rules.tree, prepend=-1))
    in_pairs = len(rules) <= 2 * len(first) and np.bincount(rules.tree).max(initial=0) <= 2
    weighted = rules.order == "first" and rules.n_trees > 1 and bool(in_pairs)
    shown = first if weighted else np.arange(len(rules))
    return Sheet(listing, weighted, shown, tuple(_figures(listing)), Says(listing))


def _tree_ends(rules: RuleList) -> npt.NDArray[np.int64]:
    """Return (trees,) int64: the index after the last rule of each tree."""
    return np.searchsorted(rules.tree, np.arange(rules.n_trees), side="right")


def _figures(listing: Listing) -> Iterator[Figure]:
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
            if np.isnan(values).all() or (key == "mean" and _is_said(listing, k)):
                continue
            heading = say(f"page_head_{key}")
            if len(outputs) > 1:
                heading = say("page_head_of", measure=heading, target=shown(output.name))
            yield Figure(key, heading, "part" if key == "confidence" else "number", values)


def _is_said(listing: Listing, target: int) -> bool:
    """Check whether the means equal the rules' own values, up to fixed-point rounding."""
    rules = listing.rules
    own = np.ldexp(rules.units[:, target].astype(np.float64), rules.exponent)
    return bool(np.allclose(listing.measures.mean[:, target], own, rtol=1e-9, atol=1e-12))


def entries(page: Sheet, start: int = 0, stop: int | None = None) -> Iterator[Entry]:
    """Yield the rows from `start` to `stop`, made in blocks of `_RULES_A_BLOCK` rules."""
    shown = page.shown[start:stop]
    for at in range(0, len(shown), _RULES_A_BLOCK):
        yield from _block(page, shown[at : at + _RULES_A_BLOCK])


def _block(page: Sheet, shown: npt.NDArray[np.int64]) -> Iterator[Entry]:
    rules = page.listing.rules
    first = int(shown[0])
    last = int(_tree_ends(rules)[rules.tree[shown[-1]]]) if page.weighted else int(shown[-1]) + 1
    begin = rules.bounds(first)[0]
    texts = conditions_said(page.listing, begin, rules.bounds(last - 1)[1])
    outcomes = list(page.says.of(first, last))
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
        yield Entry(number, tree[place], conditions, ending, outcome, otherwise, as_parent[place])


def figure_texts(figure: Figure) -> list[str]:
    """Format the values of a figure, "" for NaN; each distinct value is formatted once."""
    distinct, place = np.unique(figure.values, return_inverse=True)
    digits = _LIFT_DIGITS if figure.key == "lift" else _DIGITS
    write = percent if figure.kind == "part" else partial(_number, digits=digits)
    texts = list(map(write, distinct.tolist()))
    return [texts[at] for at in place.tolist()]


def percent(part: float) -> str:
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


def _number(value: float, digits: int) -> str:
    """Format integers exactly, other numbers to some significant digits, and NaN as ""."""
    if math.isnan(value):
        return ""
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return numerals(np.array([float(f"{value:.{digits}g}")]))[0]


# ---------------------------------------------------------------- columns

_FORMULA = frozenset("=+-@＝＋－＠")
"""Half-width and full-width characters that start a formula in spreadsheets."""


def safe(label: Label) -> Label:
    """Return a label, quoted if a spreadsheet or a reader could misinterpret it.

    Labels that begin with a double quote are quoted, too: `treekit.rules.wording.unquote`
    restores the original.
    """
    if not isinstance(label, str):
        return label
    start = label.strip()[:1]
    tame = start and start != '"' and start not in _FORMULA and label.isprintable()
    return label if tame else quote(label)


class Columns:
    """Table columns of a listing, made for some rules at a time; shared by CSV and dataframes.

    Attributes
    ----------
    names : list of str
        ``rule``, ``tree``, ``node`` (from 1, from 1, and from 0 as in the text), ``if``, the
        outcome for each target, the shares of its classes (or the amounts added to their
        margins), ``as_parent``, and the measures, for each target if there are several.
    """

    def __init__(self, listing: Listing) -> None:
        self.listing, self.says = listing, Says(listing)
        self.several = bool(listing.rules.schema.more)
        self.names = ["rule", "tree", "node", "if", *self._answer_names(), "as_parent"]
        self.names += [name for name, _ in self._measures()]

    def block(self, first: int, last: int) -> list[list[Any]]:
        """Return the columns of the rules from `first` to `last`."""
        rules = self.listing.rules
        columns: list[list[Any]] = [
            list(range(first + 1, last + 1)),
            (rules.tree[first:last] + 1).tolist(),
            rules.leaf[first:last].tolist(),
            rules_said(self.listing, first, last),
            *self._answers(first, last),
            rules.as_parent[first:last].tolist(),
        ]
        return columns + [values[first:last].tolist() for _, values in self._measures()]

    def _of(self, what: str, target: str) -> str:
        return f"{what} of {label_text(target)}" if self.several else what

    def _answer_names(self) -> Iterator[str]:
        for output in self.listing.rules.schema.outputs:
            if not self.listing.rules.margins:
                yield self._of("then", output.name)
            what = "margin" if self.listing.rules.margins else "share"
            yield from (
                self._of(f"{what} {label_text(label)}", output.name) for label in output.classes
            )

    def _answers(self, first: int, last: int) -> Iterator[list[Any]]:
        rules, units = self.listing.rules, self.listing.rules.units[first:last]
        if rules.schema.task == "regression" or rules.margins:
            yield from np.ldexp(units.astype(np.float64), rules.exponent).T.tolist()
            return
        codes = [[said.label for said in row] for row in self.says.of(first, last)]
        blocks = itertools.pairwise(rules.schema.blocks)
        for k, (output, (start, end)) in enumerate(zip(rules.schema.outputs, blocks, strict=True)):
            texts = list(map(safe, output.classes))
            yield [texts[row[k]] for row in codes]
            yield from (units[:, start:end] / rules.units_each).T.tolist()

    def _measures(self) -> Iterator[tuple[str, np.ndarray]]:
        measures = self.listing.measures
        if measures.rows is not None:
            yield "rows", measures.rows
        yield "support", measures.weight
        yield "coverage", measures.coverage
        for key in ("confidence", "lift", "mean", "spread"):
            table = getattr(measures, key)
            for k, output in enumerate(self.listing.rules.schema.outputs):
                if not np.isnan(table[:, k]).all():
                    yield self._of(key, output.name), table[:, k]


# ---------------------------------------------------------------- facts
# Document header: subject, reading notes and provenance.


def title(listing: Listing, marked: Callable[[str], str] = str) -> str:
    """Return the heading; text from the table or the caller is passed through `marked`."""
    given = listing.title
    if given:
        return marked(_printable(given))
    return listing.language.say("page_title", target=marked(shown(listing.rules.schema.target)))


def _printable(name: str) -> str:
    return name if name.isprintable() else quote(name)


class Fact(NamedTuple):
    """A fact about a listing; `verbatim` values come from a table or a model."""

    name: str
    values: tuple[str, ...]
    verbatim: bool = False


def facts(page: Sheet) -> Iterator[Fact]:
    """Yield the facts of a listing, in document order."""
    listing = page.listing
    rules, say = listing.rules, listing.language.say
    outputs = rules.schema.outputs
    if len(outputs) == 1:
        yield Fact(say("page_target"), (shown(outputs[0].name),), verbatim=True)
        if labels := tuple(map(shown, outputs[0].classes)):
            yield Fact(say("page_classes"), labels, verbatim=True)
    else:
        kinds = tuple(_kind(listing, output) for output in outputs)
        yield Fact(say("page_targets"), kinds, verbatim=True)
    yield Fact(say("page_columns"), (str(rules.schema.n_features),))
    if rules.n_trees > 1 and not page.weighted:
        yield Fact(say("page_trees"), (str(rules.n_trees),))
    yield Fact(say("page_rules"), (str(len(page.shown)),))
    if listing.measures.source == "table" and listing.table_name:
        yield Fact(say("page_measured"), (_printable(listing.table_name),), verbatim=True)
    else:
        yield Fact(say("page_measured"), (say(f"page_measured_{listing.measures.source}"),))
    if listing.model_digest:
        yield Fact(say("page_model_digest"), (listing.model_digest,), verbatim=True)
    yield Fact(say("page_text_digest"), (_digest(listing),), verbatim=True)


def _kind(listing: Listing, output: Output) -> str:
    labels = ", ".join(shown(label) for label in output.classes)
    return f"{shown(output.name)}: {labels or listing.language.say('page_number')}"


def _digest(listing: Listing) -> str:
    """Return the SHA-256 of the text form, which identifies equal rules in different documents."""
    digest = hashlib.sha256()
    for piece in listing.rules.text():
        digest.update(piece.encode())
    return digest.hexdigest()


def notes(page: Sheet) -> Iterator[str]:
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


class Asked(NamedTuple):
    """Condition in words, split at the column name; for a test all text is in `before`."""

    before: str
    name: str
    behind: str


def conditions_said(listing: Listing, start: int, stop: int) -> list[Asked]:
    """Return the wording of the conditions from `start` to `stop`."""
    rules, words = listing.rules, listing.language
    names = [name_text(column.name, words) for column in rules.schema.columns]
    names += [""] * len(rules.tests)
    column_ids = rules.conditions.column[start:stop].tolist()
    texts = condition_texts(rules, start, stop, words)
    places = {column: _place_of(names[column]) for column in set(column_ids)}
    return [_cut(text, places[column]) for column, text in zip(column_ids, texts, strict=True)]


def _place_of(name: str) -> re.Pattern[str] | None:
    """Return a pattern that finds a name in text, but not as a part of a word or number."""
    return re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)") if name else None


def _cut(text: str, place: re.Pattern[str] | None) -> Asked:
    found = place.search(text) if place else None
    if found is None:
        return Asked(text, "", "")
    return Asked(text[: found.start()], found.group(), text[found.end() :])


def tests_said(listing: Listing) -> list[str]:
    """Return the wording of the tests used in conditions, in order."""
    rules, words = listing.rules, listing.language
    return [test_text(test, rules.schema, words) for test in rules.tests]


def rules_said(listing: Listing, first: int, last: int) -> list[str]:
    """Return the conditions of each rule from `first` to `last` as one line of plain text.

    The conjunction ("; and") distinguishes ``a <= 1, or missing; and b is c`` from "a <= 1, or
    (missing and b is c)"; other forms mark up each condition.
    """
    rules, words = listing.rules, listing.language
    begin = rules.bounds(first)[0]
    texts = condition_texts(rules, begin, rules.bounds(last - 1)[1], words)
    ends = [0, *(rules.end[first:last] - begin).tolist()]
    joined, always = words.say("page_and_also"), words.say("page_always")
    lines = [joined.join(texts[start:end]) for start, end in itertools.pairwise(ends)]
    same_tree = np.diff(rules.tree[max(first - 1, 0) : last], prepend=-1)[-len(lines) :] == 0
    otherwise = same_tree & (rules.order == "first")
    nothing = np.where(otherwise, words.say("page_otherwise"), always).tolist()
    return [text or none for text, none in zip(lines, nothing, strict=True)]


# ---------------------------------------------------------------- outcome arrays


def label_codes(rules: RuleList) -> list[npt.NDArray[np.int64]]:
    """Return, for each target, (rules,) int64: the class that each rule predicts on its own."""
    return [
        least_cost(rules.units[:, first:last], rules.costs)
        for first, last in itertools.pairwise(rules.schema.blocks)
    ]


def shares(rules: RuleList) -> npt.NDArray[np.float64]:
    """Return (rules, values) float64: each class's share of a rule's votes, one division each."""
    return rules.units / rules.units_each


def numbers(rules: RuleList) -> npt.NDArray[np.float64]:
    """Return (rules, values) float64: the exact number that a rule predicts or adds."""
    return np.ldexp(rules.units.astype(np.float64), rules.exponent)


def said(rules: RuleList, words: Language) -> list[str]:
    """Return the outcome of each rule in one line of printable text, with unsafe names quoted."""
    outputs = rules.schema.outputs
    names = [f"{name_text(o.name, words)}: " if rules.schema.more else "" for o in outputs]
    if rules.schema.task == "classification" and not rules.margins:
        texts = [[label_text(label, words) for label in output.classes] for output in outputs]
        codes = label_codes(rules)
        columns: Iterable[Sequence[str]] = (
            [own[code] for code in found.tolist()] for own, found in zip(texts, codes, strict=True)
        )
    else:
        if rules.margins:
            names = [f"{label_text(label, words)}: " for label in rules.schema.classes]
        columns = (numerals(column) for column in numbers(rules).T)
    named = ([name + text for text in own] for name, own in zip(names, columns, strict=True))
    return [", ".join(row) for row in zip(*named, strict=True)]
