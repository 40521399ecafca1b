"""Layout of rule documents: one row per rule, measures, header facts and notes.

A weighted list, whose trees consist of a rule and its "otherwise", is shown with one row
per tree; Markdown and HTML pages share these rows.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.documents import Listing
from treekit.model.fixed_point import scale_units
from treekit.rules.measure import compute_rule_labels
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import (
    OutcomeFormatter,
    OutcomeText,
    find_otherwise_rules,
    format_label,
    format_percent,
    format_rounded,
    format_test,
    quote_name,
    quote_unprintable,
    render_conditions,
)

# ---------------------------------------------------------------- rows

Numbers = npt.NDArray[np.float64]
_RULES_PER_BLOCK = 2048
_SIGNIFICANT_DIGITS = 6
_SHARE_TOLERANCE = 1e-6  # votes are rounded to 2**-24


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

    def format_values(self) -> list[str]:
        """Format the values, "" for NaN; each distinct value is formatted once."""
        distinct, place = np.unique(self.values, return_inverse=True)
        rounded = partial(format_rounded, digits=_SIGNIFICANT_DIGITS)
        texts = list(map(format_percent if self.kind == "part" else rounded, distinct.tolist()))
        return [texts[at] for at in place.tolist()]


class ConditionText(NamedTuple):
    """Condition in words, split at the column name; for a test all text is in `before`."""

    before: str
    name: str
    behind: str


class DocumentRow(NamedTuple):
    """One row of a document.

    Attributes
    ----------
    rule, tree : int
        From 0.
    conditions : list of ConditionText
    is_otherwise : bool
        Whether the rule has no conditions and covers the rows that earlier rules leave.
    outcomes, otherwise : tuple of OutcomeText
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


class DocumentLayout:
    """Layout of a listing.

    Parameters
    ----------
    listing : Listing

    Attributes
    ----------
    weighted : bool
        Whether a row stands for a tree of at most two rules: the rule, and otherwise.
    shown_rules : (entries,) int64
        The rules that have a row.
    otherwise : (rules,) bool
        Rules without conditions that cover the rows that earlier rules leave.
    figures : tuple of Figure
        Measures with any data.
    outcomes : OutcomeFormatter
    has_shares : bool
        Whether rules state the shares of classes.
    """

    def __init__(self, listing: Listing) -> None:
        self.listing, rules = listing, listing.rules
        first = np.flatnonzero(np.diff(rules.tree, prepend=-1))
        self.weighted = (
            rules.order == "first"
            and rules.n_trees > 1
            and bool(np.bincount(rules.tree).max(initial=0) <= 2)
        )
        self.shown_rules = first if self.weighted else np.arange(len(rules))
        self.otherwise = find_otherwise_rules(rules)
        self.figures = tuple(_list_figures(listing))
        self.outcomes = OutcomeFormatter(
            rules,
            listing.language,
            format_label,
            listing.language.say("page_nothing"),
            lambda units, total: format_percent(units / total),
        )
        self.has_shares = self.outcomes.has_votes and not rules.decisions

    def iter_rows(self) -> Iterator[DocumentRow]:
        """Yield the rows, made in blocks of `_RULES_PER_BLOCK` rules."""
        for at in range(0, len(self.shown_rules), _RULES_PER_BLOCK):
            yield from self._iter_block(self.shown_rules[at : at + _RULES_PER_BLOCK].tolist())

    def _iter_block(self, shown: list[int]) -> Iterator[DocumentRow]:
        rules, first = self.listing.rules, shown[0]
        # The row of a weighted list includes the rule that follows in its tree, if there is one.
        last = min(shown[-1] + 1 + self.weighted, len(rules))
        begin = rules.bounds(first)[0]
        texts = format_conditions(self.listing, begin, rules.bounds(last - 1)[1])
        outcomes = list(self.outcomes.format_outcomes(first, last))
        tree, as_parent = rules.tree[first:last].tolist(), rules.as_parent[first:last].tolist()
        ends = [0, *(rules.end[first:last] - begin).tolist()]
        for rule in shown:
            at = rule - first
            paired = self.weighted and tree[at + 1 : at + 2] == [tree[at]]
            yield DocumentRow(
                rule,
                tree[at],
                texts[ends[at] : ends[at + 1]],
                bool(self.otherwise[rule]),
                outcomes[at],
                outcomes[at + 1] if paired else (),
                as_parent[at],
            )


def _list_figures(listing: Listing) -> Iterator[Figure]:
    """Yield the measures with any known value, in page order."""
    measures, say = listing.measures, listing.language.say
    if measures.rows is not None and not np.array_equal(measures.rows, measures.weight):
        yield Figure("rows", say("page_head_rows"), "number", measures.rows.astype(np.float64))
    yield Figure("support", say("page_head_support"), "number", measures.weight)
    yield Figure("coverage", say("page_head_coverage"), "part", measures.coverage)
    outputs = listing.rules.schema.outputs
    for key, k, values in list_target_measures(listing):
        if key == "lift" or (key == "mean" and _is_redundant_mean(listing, k)):
            continue
        if key == "confidence" and _is_redundant_confidence(listing, k):
            continue
        heading = say(f"page_head_{key}")
        if len(outputs) > 1:
            heading = say("page_head_of", measure=heading, target=format_label(outputs[k].name))
        yield Figure(key, heading, "part" if key == "confidence" else "number", values)


def list_target_measures(listing: Listing) -> Iterator[tuple[str, int, Numbers]]:
    """Yield the measures with any known value for each target: name, target and values."""
    for key in ("confidence", "lift", "mean", "spread"):
        table: Numbers = getattr(listing.measures, key)
        for k in range(len(listing.rules.schema.outputs)):
            if not np.isnan(table[:, k]).all():
                yield key, k, table[:, k]


def _is_redundant_mean(listing: Listing, target: int) -> bool:
    """Check whether the means equal the rules' own values, up to fixed-point rounding."""
    own = decode_numbers(listing.rules)[:, target]
    return bool(np.allclose(listing.measures.mean[:, target], own, rtol=1e-9, atol=1e-12))


def _is_redundant_confidence(listing: Listing, target: int) -> bool:
    """Check whether confidences equal the shares of the rules' classes, up to rounding of votes."""
    rules, own = listing.rules, listing.measures.confidence[:, target]
    if rules.decisions:
        return False
    shares = compute_shares(rules)[:, slice(*rules.schema.blocks[target : target + 2])]
    labels = compute_rule_labels(rules)[:, [target]]
    stated = np.take_along_axis(shares, labels, 1)[:, 0]
    return bool(np.all(np.isnan(own) | (np.abs(own - stated) < _SHARE_TOLERANCE)))


# ---------------------------------------------------------------- facts
# Document header: subject, reading notes and provenance.


def make_title(listing: Listing, markup: Callable[[str], str] = str) -> str:
    """Return the heading; text from the table or the caller is passed through `markup`."""
    if listing.title:
        return markup(quote_unprintable(listing.title))
    target = markup(format_label(listing.rules.schema.target))
    return listing.language.say("page_title", target=target)


class Fact(NamedTuple):
    """A named property of the listed rules.

    Attributes
    ----------
    name : str
    values : tuple of str
    verbatim : bool
        Whether the values are copied from a table or a model, such as class labels, rather
        than phrases or counts of treekit.
    """

    name: str
    values: tuple[str, ...]
    verbatim: bool = False


def list_facts(page: DocumentLayout) -> Iterator[Fact]:
    """Yield the properties of the listed rules in document order: target, classes, columns, ..."""
    listing = page.listing
    rules, say = listing.rules, listing.language.say
    outputs, source = rules.schema.outputs, listing.measures.source
    if len(outputs) == 1:
        yield Fact(say("page_target"), (format_label(outputs[0].name),), verbatim=True)
        if labels := tuple(map(format_label, outputs[0].classes)):
            yield Fact(say("page_classes"), labels, verbatim=True)
    else:
        kinds = (", ".join(map(format_label, o.classes)) or say("page_number") for o in outputs)
        described = (f"{format_label(o.name)}: {k}" for o, k in zip(outputs, kinds, strict=True))
        yield Fact(say("page_targets"), tuple(described), verbatim=True)
    yield Fact(say("page_columns"), (str(rules.schema.n_features),))
    if rules.n_trees > 1 and not page.weighted:
        yield Fact(say("page_trees"), (str(rules.n_trees),))
    yield Fact(say("page_rules"), (str(len(page.shown_rules)),))
    named = source == "table" and bool(listing.table_name)
    table = quote_unprintable(listing.table_name) if named else say(f"page_measured_{source}")
    yield Fact(say("page_measured"), (table,), verbatim=named)


def list_digests(listing: Listing) -> Iterator[Fact]:
    """Yield the digests of the model and of the rules, which stand at the end of a document."""
    say = listing.language.say
    if listing.model_digest:
        yield Fact(say("page_model_digest"), (listing.model_digest,), verbatim=True)
    digest = hashlib.sha256()  # identifies equal rules in different documents
    for piece in listing.rules.text():
        digest.update(piece.encode())
    yield Fact(say("page_text_digest"), (digest.hexdigest(),), verbatim=True)


def list_notes(page: DocumentLayout) -> Iterator[str]:
    """Yield the items of the list that explains how to read the rules."""
    rules, say = page.listing.rules, page.listing.language.say
    several = rules.n_trees > 1
    if page.weighted:
        yield say(f"page_how_weighted_{rules.combine}")
    elif rules.order == "first":
        yield say("page_how_first_trees" if several else "page_how_first", trees=rules.n_trees)
    else:
        key = "page_how_added" if rules.combine == "sum" else "page_how_forest"
        yield say(key if several else "page_how_one", trees=rules.n_trees)
    if rules.mass > 1:
        yield say("page_how_parts")
    yield say("page_missing_error" if rules.missing == "error" else "page_missing_asked")
    yield say(f"page_unknown_{rules.unknown}")
    numeric = any(column.kind == "numeric" for column in rules.schema.columns)
    if rules.schema.dtype == "float32" and numeric:
        yield say("page_rounded")
    if rules.decisions:
        yield say("page_decisions")
    if page.has_shares:
        yield say("page_define_share")
    yield say("page_define_support")
    yield say("page_define_coverage")
    if any(figure.key == "confidence" for figure in page.figures):
        yield say("page_define_confidence")


# ---------------------------------------------------------------- conditions


def format_conditions(listing: Listing, start: int, stop: int) -> list[ConditionText]:
    """Return the conditions from `start` to `stop` in words."""
    rules, words = listing.rules, listing.language
    columns, n = rules.conditions.column[start:stop].tolist(), rules.schema.n_features
    texts = render_conditions(rules, start, stop, words)
    names = {k: quote_name(rules.schema.names[k], words) for k in {*columns} & {*range(n)}}
    # Not as a part of a word or number.
    patterns = {k: re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)") for k, name in names.items()}
    found = []
    for column, text in zip(columns, texts, strict=True):
        match = patterns[column].search(text) if column in patterns else None
        start, end = match.span() if match else (len(text), len(text))
        found.append(ConditionText(text[:start], text[start:end], text[end:]))
    return found


def format_tests(listing: Listing) -> list[str]:
    """Return the text of each test that conditions refer to, in the order of their numbers."""
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
    joined = words.say("page_and_also")
    lines = [joined.join(texts[start:end]) for start, end in itertools.pairwise(ends)]
    otherwise = find_otherwise_rules(rules)[first:last].tolist()
    return [
        line or words.say("page_otherwise" if last_rule else "page_always")
        for line, last_rule in zip(lines, otherwise, strict=True)
    ]


# ---------------------------------------------------------------- outcome arrays


def predict_rule_labels(rules: RuleList) -> list[npt.NDArray[np.int64]]:
    """Return, for each target, (rules,) int64: the class that each rule predicts on its own."""
    return list(compute_rule_labels(rules).T)


def compute_shares(rules: RuleList) -> npt.NDArray[np.float64]:
    """Return (rules, values) float64: each class's share of a rule's votes, rounded once."""
    return rules.units / rules.units_each


def decode_numbers(rules: RuleList) -> npt.NDArray[np.float64]:
    """Return (rules, values) float64: the exact number that a rule predicts or adds."""
    return scale_units(rules.units, rules.exponent)
