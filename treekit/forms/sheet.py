"""What documents show of a list: a row for each rule, and figures beside it.

A weighted list, whose trees are a rule and what holds where it does not fit, is shown
with one row a tree: Markdown, pages and notebooks all read their rows here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.forms import Listing
from treekit.forms.says import Said, Says, shown
from treekit.forms.wording import Asked, conditions_said
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import numerals

__all__ = ["Entry", "Figure", "Sheet", "entries", "figure_texts", "percent", "sheet"]

Numbers = npt.NDArray[np.float64]
_RULES_A_BLOCK = 2048
_DIGITS, _LIFT_DIGITS = 6, 3
"""Significant digits of numbers, and of lift, a quotient of two parts of the rows."""


class Figure(NamedTuple):
    """A column of numbers beside the rules.

    Attributes
    ----------
    key : str
        Of the measure: ``support``.
    heading : str
        In the reader's language.
    kind : {"number", "part"}
        Parts of a whole are shown in per cent, with a bar.
    values : (rules,) float64
        NaN where there is none.
    """

    key: str
    heading: str
    kind: Literal["number", "part"]
    values: Numbers


@dataclass(frozen=True)
class Sheet:
    """How a list is laid out.

    Attributes
    ----------
    weighted : bool
        Whether a row stands for a tree of at most two rules: the rule, and otherwise.
    shown : (entries,) int64
        The rules that have a row.
    figures : tuple of Figure
        Those with any data.
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
        Whether the rule has no conditions and answers what the rules before it leave.
    said, otherwise : tuple of Said
        For each target; `otherwise` is empty but in weighted lists.
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
    """The layout of a listing."""
    rules = listing.rules
    first = np.flatnonzero(np.diff(rules.tree, prepend=-1))
    in_pairs = len(rules) <= 2 * len(first) and np.bincount(rules.tree).max(initial=0) <= 2
    weighted = rules.order == "first" and rules.n_trees > 1 and bool(in_pairs)
    shown = first if weighted else np.arange(len(rules))
    return Sheet(listing, weighted, shown, tuple(_figures(listing)), Says(listing))


def _tree_ends(rules: RuleList) -> npt.NDArray[np.int64]:
    """(trees,) int64: the rule behind the last one of each tree."""
    return np.searchsorted(rules.tree, np.arange(rules.n_trees), side="right")


def _figures(listing: Listing) -> Iterator[Figure]:
    """The measures of which any is known, in the order of the page."""
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
    """Whether the means are what the rules say already: put on the grid, and no more."""
    rules = listing.rules
    said = np.ldexp(rules.units[:, target].astype(np.float64), rules.exponent)
    return bool(np.allclose(listing.measures.mean[:, target], said, rtol=1e-9, atol=1e-12))


def entries(page: Sheet, start: int = 0, stop: int | None = None) -> Iterator[Entry]:
    """The rows from `start` to `stop`, made some thousand rules at a time."""
    shown = page.shown[start:stop]
    for at in range(0, len(shown), _RULES_A_BLOCK):
        yield from _block(page, shown[at : at + _RULES_A_BLOCK])


def _block(page: Sheet, shown: npt.NDArray[np.int64]) -> Iterator[Entry]:
    rules = page.listing.rules
    first = int(shown[0])
    last = int(_tree_ends(rules)[rules.tree[shown[-1]]]) if page.weighted else int(shown[-1]) + 1
    begin = rules.bounds(first)[0]
    texts = conditions_said(page.listing, begin, rules.bounds(last - 1)[1])
    said = list(page.says.of(first, last))
    follows = rules.order == "first"
    tree, as_parent = rules.tree[first:last].tolist(), rules.as_parent[first:last].tolist()
    ends = [begin, *rules.end[first:last].tolist()]
    for number in shown.tolist():
        here = number - first
        mine = texts[ends[here] - begin : ends[here + 1] - begin]
        paired = page.weighted and here + 1 < len(tree) and tree[here + 1] == tree[here]
        before = here > 0 or first > 0
        same = before and int(rules.tree[number - 1]) == tree[here]
        otherwise = said[here + 1] if paired else ()
        ending = follows and same and not mine
        yield Entry(number, tree[here], mine, ending, said[here], otherwise, as_parent[here])


def figure_texts(figure: Figure) -> list[str]:
    """Its values to read, "" for what there is none of; each distinct one is written once."""
    distinct, place = np.unique(figure.values, return_inverse=True)
    digits = _LIFT_DIGITS if figure.key == "lift" else _DIGITS
    write = percent if figure.kind == "part" else partial(_number, digits=digits)
    texts = list(map(write, distinct.tolist()))
    return [texts[at] for at in place.tolist()]


def percent(part: float) -> str:
    """A part of a whole in per cent; 0% and 100% are said of nothing and all alone.

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
    """Whole numbers as they are, others to some significant digits; "" for NaN."""
    if math.isnan(value):
        return ""
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return numerals(np.array([float(f"{value:.{digits}g}")]))[0]
