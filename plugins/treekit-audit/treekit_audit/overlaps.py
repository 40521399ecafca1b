"""Report of rules that overlap, contradict each other, are never reached, or leave gaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.documents import Listing
from treekit.errors import DataError
from treekit.rules.cover import (
    MAX_STEPS,
    Boxes,
    BoxSpace,
    Cell,
    StepBudget,
    build_space,
    find_covering_prefix,
    find_gap,
    find_meeting_pairs,
    find_uncovered_part,
    is_exact,
    name_cells,
)
from treekit.rules.evaluate import fitting_rules, matching_rules
from treekit.rules.language import Language, load_language, load_phrases
from treekit.rules.measure import compute_rule_labels, encode_table
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import format_numbers, quote_name, quote_text

__all__ = [
    "EMPTY",
    "NEVER",
    "REACHED",
    "UNDECIDED",
    "MatchCounts",
    "Overlaps",
    "classify_reach",
    "find_shadowing_boxes",
    "format_overlaps",
    "overlapping_rules",
    "render_overlaps",
]

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Reach = Literal["reached", "empty", "never", "undecided"]


class MatchCounts(NamedTuple):
    """Counts of the rows of a table by the rules that they match.

    Attributes
    ----------
    rows, refused : int
    none : int
        Rows that match no rule.
    several : int
        Rows that match more than one rule, not counting the default rule.
    conflicting : int
        Rows that match rules with different predictions, not counting the default rule.
    answered : (rules,) int64
        Rows that each rule predicts.
    """

    rows: int
    refused: int
    none: int
    several: int
    conflicting: int
    answered: Index


@dataclass(frozen=True, eq=False)
class Overlaps:
    """Overlaps between the rules of one tree; rules are numbered as in the list.

    Attributes
    ----------
    rules : RuleList
    tree : int
    numbers : (n,) int64
        The rules of the tree.
    exact : bool
        False if rules test several columns at once.  Outcomes of tests are then treated as
        independent of the columns and of each other, so reported overlaps may not occur.
    pairs : (pairs, 2) int64
        Pairs of rules that match a common row, the earlier rule first.  Pairs with the default
        rule, the last rule of an ordered list if it has no conditions, are left out.
    conflicts : (pairs,) bool
        Whether the predictions of a pair differ.
    shadowed : (n,) int64
        The first earlier rule that matches every row that this rule matches; -1 if there is
        none.  In a list without order, any such rule; of equal rules the earlier one.
    reach : (n,) of {"reached", "empty", "never", "undecided"}
        Whether a rule ever predicts a row: ``empty`` matches no row; ``never`` matches only
        rows that earlier rules predict; ``undecided`` if the step budget ran out.
    gap : bool or None
        Whether some row matches no rule; None if the step budget ran out.
    witness : dict of str to (float, str or None), or None
        Such a row, by the columns that rules test; None = missing.  Other columns are free.
    counts : MatchCounts or None
        Counts of a table, if one was given.
    """

    rules: RuleList = field(repr=False)
    tree: int
    numbers: Index = field(repr=False)
    exact: bool
    pairs: Index = field(repr=False)
    conflicts: Mask = field(repr=False)
    shadowed: Index = field(repr=False)
    reach: tuple[Reach, ...] = field(repr=False)
    gap: bool | None
    witness: dict[str, Cell] | None
    counts: MatchCounts | None = None

    def text(self, language: str | Language = "en", most: int = 20) -> str:
        """Return the report as text, with at most `most` lines of each kind."""
        return format_overlaps(self, language, most)

    def plain(self) -> dict[str, Any]:
        """Return the report as JSON values; rules are numbered from 1 as in texts."""
        unreached = zip(self.numbers.tolist(), self.reach, strict=True)
        shadows = zip(self.numbers.tolist(), self.shadowed.tolist(), strict=True)
        return {
            "tree": self.tree + 1,
            "rules": len(self.numbers),
            "exact": self.exact,
            "overlapping": (self.pairs + 1).tolist(),
            "conflicts": (self.pairs[self.conflicts] + 1).tolist(),
            "shadowed": [[a + 1, b + 1] for a, b in shadows if b >= 0],
            "reach": {str(k + 1): reach for k, reach in unreached if reach != "reached"},
            "gap": self.gap,
            "witness": self.witness,
            "counts": None if self.counts is None else _convert_counts(self.counts),
        }


def _convert_counts(counts: MatchCounts) -> dict[str, Any]:
    return counts._asdict() | {"answered": counts.answered.tolist()}


def overlapping_rules(
    rules: RuleList, tree: int | None = None, *, table: Any = None, steps: int = MAX_STEPS
) -> Overlaps:
    """Find overlapping rules of a list, by exact arithmetic on their conditions.

    Parameters
    ----------
    rules : RuleList
    tree : int, optional
        From 0; required if the list has several trees.
    table : table, optional
        Anything `treekit.data.table.read_table` accepts; its rows are counted.
    steps : int
        Maximum number of boxes to examine when searching for unreachable rules and for rows
        that match no rule.

    Raises
    ------
    DataError
        If the rules split rows into fractional instances, or `tree` is omitted for a list of
        several trees.
    """
    number = _check_tree(rules, tree)
    numbers = np.flatnonzero(rules.tree == number)
    space = build_space(rules, numbers)
    alive = space.find_meeting(space.boxes, space.boxes)
    pairs = find_meeting_pairs(space, alive)
    shadowed = find_shadowing_boxes(space, pairs, ordered=rules.order == "first")
    gap, witness = find_gap(space, alive, pairs, StepBudget(steps // 2))
    reach = alive.astype(np.int64)
    if rules.order == "first":
        reach = classify_reach(space, alive, pairs, shadowed, StepBudget(steps - steps // 2))
    pairs = pairs[numbers[pairs[:, 1]] != _find_default_rule(rules, numbers)]
    units = compute_rule_labels(rules) if _has_labels(rules) else rules.units
    predictions = units[numbers]
    return Overlaps(
        rules=rules,
        tree=number,
        numbers=numbers,
        exact=is_exact(rules, space),
        pairs=numbers[pairs],
        conflicts=(predictions[pairs[:, 0]] != predictions[pairs[:, 1]]).any(axis=1),
        shadowed=np.where(shadowed >= 0, numbers[shadowed], -1),
        reach=tuple(_REACH_NAMES[int(code)] for code in reach),
        gap=gap,
        witness=None if witness is None else name_cells(rules, space, witness),
        counts=None if table is None else _count_rows(rules, number, table, predictions, numbers),
    )


def render_overlaps(listing: Listing) -> Iterator[str]:
    """Yield the report of overlaps as text, with counts of the listing's table, if any."""
    rules = listing.complete or listing.rules
    yield overlapping_rules(rules, listing.tree, table=listing.table).text(listing.language)


_REACH_NAMES: tuple[Reach, ...] = ("empty", "reached", "never", "undecided")


def _check_tree(rules: RuleList, tree: int | None) -> int:
    if rules.mass > 1:
        raise DataError(
            "rules of a model with missing='fractional' share rows by design; overlaps are not "
            "defined for them"
        )
    if tree is None and rules.n_trees > 1:
        raise DataError(
            f"the list has rules of {rules.n_trees} trees, and overlaps are those of one tree; "
            "give a tree"
        )
    if tree is not None and not 0 <= tree < rules.n_trees:
        raise DataError(f"there is no tree {tree}; trees are 0 to {rules.n_trees - 1}")
    return tree or 0


def _find_default_rule(rules: RuleList, numbers: Index) -> int:
    """Return the default rule of an ordered list, its last rule without conditions, or -1."""
    last = int(numbers[-1])
    asks = bool(np.diff(rules.end, prepend=0)[last])
    return -1 if asks or rules.order != "first" else last


def _has_labels(rules: RuleList) -> bool:
    return rules.schema.task == "classification" and not rules.margins


def _count_rows(
    rules: RuleList, tree: int, table: Any, predictions: npt.NDArray[np.int64], numbers: Index
) -> MatchCounts:
    """Count the rows of a table by the rules that they match."""
    rest = _find_default_rule(rules, numbers)
    matrix = encode_table(rules.schema, table)
    refused = rules.refused(matrix)
    fitting, conflict = np.zeros(len(matrix), np.int64), np.zeros(len(matrix), np.bool_)
    answer = np.unique(predictions, axis=0, return_inverse=True)[1].reshape(-1)
    first = np.full(len(matrix), -1, dtype=np.int64)
    for piece in fitting_rules(rules, matrix):
        mine = (rules.tree[piece.rule] == tree) & (piece.rule != rest)
        row, own = piece.row[mine], answer[np.searchsorted(numbers, piece.rule[mine])]
        fitting += np.bincount(row, minlength=len(matrix))
        new = first[row] < 0
        first[row[new]] = own[new]
        conflict[row[first[row] != own]] = True
    answered = np.zeros(len(numbers), dtype=np.int64)
    for piece in matching_rules(rules, matrix):
        mine = rules.tree[piece.rule] == tree
        at = np.searchsorted(numbers, piece.rule[mine])
        answered += np.bincount(at, minlength=len(numbers))
    return MatchCounts(
        rows=len(matrix),
        refused=int(refused.sum()),
        none=int(((fitting == 0) & ~refused).sum()) if rest < 0 else 0,
        several=int((fitting > 1).sum()),
        conflicting=int(conflict.sum()),
        answered=answered,
    )


# ---------------------------------------------------------------- overlaps text


def format_overlaps(report: Overlaps, code: str | Language = "en", most: int = 20) -> str:
    """Return the report as text, at most `most` lines of each kind; rules count from 1."""
    words = load_phrases(load_language(code), "treekit_audit")
    lines = [words.say("overlap_title", rules=str(len(report.numbers)))]
    if not report.exact:
        lines.append(words.say("overlap_tests"))
    for kind in (
        _format_pairs(report, words),
        _format_shadows(report, words),
        _format_reach(report, words),
    ):
        found = [*kind]
        lines += found[:most]
        if len(found) > most:
            lines.append(words.say("overlap_more", count=str(len(found) - most)))
    lines.append(_format_gap(report, words))
    if report.counts is not None:
        counts = report.counts._asdict()
        del counts["answered"]
        fields = {name: f"{count:,}" for name, count in counts.items()}
        lines.append(words.say("overlap_counts", **fields))
    return "\n".join(lines) + "\n"


def _format_pairs(report: Overlaps, words: Language) -> Iterator[str]:
    if not len(report.pairs):
        yield words.say("overlap_none")
        return
    order = np.argsort(~report.conflicts, kind="stable")  # conflicts first
    kinds = {True: "overlap_conflict", False: "overlap_pair"}
    for (a, b), conflict in zip(
        report.pairs[order].tolist(), report.conflicts[order].tolist(), strict=True
    ):
        yield words.say(kinds[conflict], rule=str(a + 1), other=str(b + 1))


def _format_shadows(report: Overlaps, words: Language) -> Iterator[str]:
    for rule, by in zip(report.numbers.tolist(), report.shadowed.tolist(), strict=True):
        if by >= 0:
            yield words.say("overlap_shadowed", rule=str(rule + 1), other=str(by + 1))


def _format_reach(report: Overlaps, words: Language) -> Iterator[str]:
    for rule, reach in zip(report.numbers.tolist(), report.reach, strict=True):
        if reach != "reached":
            yield words.say(f"overlap_{reach}", rule=str(rule + 1))


def _format_gap(report: Overlaps, words: Language) -> str:
    if report.gap is None:
        return words.say("overlap_gap_undecided")
    if not report.gap:
        return words.say("overlap_no_gap")
    if report.witness is None:
        return words.say("overlap_gap_somewhere")
    cells = [
        words.say("overlap_cell", name=quote_name(name), value=_format_value(value, words))
        for name, value in report.witness.items()
    ]
    return words.say("overlap_gap", row=words.say("overlap_and").join(cells))


def _format_value(value: float | str | None, words: Language) -> str:
    if value is None:
        return words.say("overlap_missing")
    if isinstance(value, str):
        return quote_text(value)
    return format_numbers(np.array([value]))[0] if np.isfinite(value) else repr(value)


# ---------------------------------------------------------------- relations between rules

EMPTY, REACHED, NEVER, UNDECIDED = 0, 1, 2, 3
"""Whether a rule ever predicts a row."""

_PAIRS_PER_BLOCK = 1 << 17
_FIRST_STEPS = 16
"""Steps of a rule's first search for rows, before its cells are counted."""


def find_shadowing_boxes(space: BoxSpace, pairs: Index, *, ordered: bool) -> Index:
    """Return (boxes,) int64: the first box that contains each box; -1 if there is none."""
    n = len(space.boxes)
    first = np.full(n, n, dtype=np.int64)
    for at in range(0, len(pairs), _PAIRS_PER_BLOCK):
        earlier, later = pairs[at : at + _PAIRS_PER_BLOCK].T
        one, other = space.boxes.take(earlier), space.boxes.take(later)
        inside = space.find_containing(one, other)
        np.minimum.at(first, later[inside], earlier[inside])
        if not ordered:
            inside = space.find_containing(other, one) & ~inside
            np.minimum.at(first, earlier[inside], later[inside])
    return np.where(first < n, first, -1)


def classify_reach(
    space: BoxSpace, alive: Mask, pairs: Index, shadowed: Index, budget: StepBudget
) -> npt.NDArray[np.int64]:
    """Return (boxes,) int64: `REACHED`, `NEVER`, `EMPTY` or, if the budget runs out, `UNDECIDED`.

    A box that meets no earlier box is reached.
    """
    code = np.where(alive, REACHED, EMPTY)
    code[shadowed >= 0] = NEVER
    # If the rules of a complete tree come first, they predict every row.
    full = find_covering_prefix(space, alive, pairs)
    if full is not None:
        code[full:][alive[full:]] = NEVER
    order = np.argsort(pairs[:, 1], kind="stable")
    starts = np.searchsorted(pairs[order, 1], np.arange(len(alive) + 1))
    for rule in np.flatnonzero((code == REACHED) & (np.diff(starts) > 0)).tolist():
        earlier = pairs[order[starts[rule] : starts[rule + 1]], 0]
        box = space.boxes.take(slice(rule, rule + 1))
        code[rule] = _decide_reach(space, box, space.boxes.take(np.sort(earlier)), budget)
    return code


def _decide_reach(space: BoxSpace, box: Boxes, earlier: Boxes, budget: StepBudget) -> int:
    """Decide whether a box is reached: a few steps, then a count of cells, then many steps."""
    for share in (_FIRST_STEPS, budget.steps // 20):
        own = StepBudget(min(share, budget.steps))
        allowed = own.steps
        try:
            return NEVER if find_uncovered_part(space, box, earlier, own) is None else REACHED
        except TimeoutError:
            pass
        finally:
            budget.steps -= allowed - own.steps
        if share == _FIRST_STEPS and _is_surely_covered(space, box, earlier, budget):
            return NEVER
    return UNDECIDED


def _is_surely_covered(space: BoxSpace, box: Boxes, boxes: Boxes, budget: StepBudget) -> bool:
    """Return whether a disjoint subset of `boxes`, chosen greedily, covers `box`.

    Cells are counted, one step for each box: a quick check where the boxes are rules of one
    tree.  False does not mean that `box` is uncovered.
    """
    parts = space.intersect_boxes(boxes.take(space.find_meeting(boxes, box)), box)
    left, chosen = np.ones(len(parts), dtype=np.bool_), []
    while left.any() and budget.steps > 0:
        budget.steps -= 1
        first = int(left.argmax())
        chosen.append(first)
        left[first] = False
        left &= ~space.find_meeting(parts, parts.take(slice(first, first + 1)))
    disjoint = parts.take(np.array(chosen, np.int64))
    return sum(space.count_cells(disjoint)) == space.count_cells(box)[0]
