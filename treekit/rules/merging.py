"""Rules that say the same and differ in one column alone become one rule.

Rules of one tree are disjoint boxes.  Two boxes that agree in all columns but one make a
box together if there their intervals touch, or if they are sets of levels, or if one
takes nothing but missing values; it holds the rows of both, and no others.  Candidates
are found by a hash of all that a rule asks but one condition; whether they agree is then
compared exactly.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.model.fixed_point import MASS
from treekit.model.tree import gathered
from treekit.rules.conditions import ConditionTable
from treekit.rules.rulelist import RuleList

__all__ = ["Asked", "asked", "merge_boxes", "regrouped", "union_of"]

Index = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


class Asked(NamedTuple):
    """One condition; the fields are those of `treekit.rules.conditions.ConditionTable`."""

    column: int
    low: float
    high: float
    known: bool
    missing: bool
    part: tuple[int, int]
    fits: tuple[int, ...]
    dividing: tuple[int, ...]


def asked(rules: RuleList, rule: int) -> list[Asked]:
    """The conditions of one rule."""
    table = rules.conditions
    return [
        Asked(
            int(table.column[at]),
            float(table.low[at]),
            float(table.high[at]),
            bool(table.known[at]),
            bool(table.missing[at]),
            (int(table.part_low[at]), int(table.part_high[at])),
            *(tuple(codes) for codes in table.codes(at)),
        )
        for at in range(*rules.bounds(rule))
    ]


def merge_boxes(rules: RuleList) -> tuple[RuleList, Index]:
    """A disjoint list in which no two rules can become one; rows do not divide.

    Returns
    -------
    rules : RuleList
        With the conditions of the joined rules; all else is as in the first of those
        joined (see `treekit.rules.joined`, which sums it up).
    home : (rules,) int64
        Which of the new rules each of the given ones is part of.
    """
    home = np.arange(len(rules))
    while True:
        merged = _sweep(rules)
        if not merged:
            return rules, home
        lead = np.arange(len(rules))
        for first, (others, _) in merged.items():
            lead[others] = first
        rules, moved = regrouped(rules, lead, {first: own for first, (_, own) in merged.items()})
        home = moved[home]


def regrouped(
    rules: RuleList, lead: Index, replaced: dict[int, list[Asked]]
) -> tuple[RuleList, Index]:
    """The rules that lead, some with other conditions, and the new number of each rule's leader.

    Parameters
    ----------
    rules : RuleList
    lead : (rules,) int64
        For each rule itself, or the one that stands for it.
    replaced : dict of int to list of Asked
        New conditions of rules that lead.
    """
    table = rules.conditions
    own = [condition for conditions in replaced.values() for condition in conditions]
    whole = _joined_tables(table, own)
    start = np.append(0, rules.end[:-1])
    size = rules.end - start
    sizes = [len(conditions) for conditions in replaced.values()]
    at = len(table.column) + np.cumsum([0, *sizes])
    for k, rule in enumerate(replaced):
        start[rule], size[rule] = at[k], sizes[k]
    leaders, home = np.unique(lead, return_inverse=True)
    start, size = start[leaders], size[leaders]
    level_start = np.append(0, whole.level_end)[: len(whole.column)]
    first = gathered(level_start, start, size)
    entries = gathered(whole.level_end, start, size) - first
    names = [name for name in table._fields if name not in ("levels", "level_end")]
    fields = {name: gathered(getattr(whole, name), start, size) for name in names}
    fields |= {"level_end": np.cumsum(entries), "levels": gathered(whole.levels, first, entries)}
    taken = {
        name: getattr(rules, name)[leaders]
        for name in ("tree", "leaf", "support", "as_parent", "units")
    }
    value = None if rules.value is None else rules.value[leaders]
    shorter = replace(
        rules, **taken, value=value, end=np.cumsum(size), conditions=ConditionTable(**fields)
    )
    return shorter, home.reshape(-1)


def _joined_tables(table: ConditionTable, more: list[Asked]) -> ConditionTable:
    """A table with further conditions behind its own."""
    parts = np.array([c.part for c in more], dtype=np.int32).reshape(-1, 2)
    codes = [(*c.fits, *c.dividing) for c in more]
    counts = np.array([len(own) for own in codes], dtype=np.int64)
    behind = ConditionTable(
        column=np.array([c.column for c in more], dtype=np.int32),
        low=np.array([c.low for c in more], dtype=np.float64),
        high=np.array([c.high for c in more], dtype=np.float64),
        known=np.array([c.known for c in more], dtype=np.bool_),
        missing=np.array([c.missing for c in more], dtype=np.bool_),
        part_low=parts[:, 0],
        part_high=parts[:, 1],
        dividing=np.array([len(c.dividing) for c in more], dtype=np.int64),
        level_end=len(table.levels) + np.cumsum(counts),
        levels=np.array([code for own in codes for code in own], dtype=np.int32),
    )
    fields: dict[str, Any] = {
        name: np.concatenate([getattr(table, name), getattr(behind, name)])
        for name in table._fields
    }
    return ConditionTable(**fields)


def _sweep(rules: RuleList) -> dict[int, tuple[list[int], list[Asked]]]:
    """For rules that others join: those others, and the conditions of all of them together."""
    merged: dict[int, tuple[list[int], list[Asked]]] = {}
    used: set[int] = set()
    known: dict[int, list[Asked]] = {}
    for column, candidates in _candidates(rules):
        groups = defaultdict(list)
        for rule in candidates:
            if rule not in used:
                own = known.setdefault(rule, asked(rules, rule))
                others = frozenset(c for c in own if c.column != column)
                groups[int(rules.tree[rule]), rules.units[rule].tobytes(), others].append(rule)
        for group in groups.values():
            here = [next(c for c in known[rule] if c.column == column) for rule in group]
            for some, union in _unions(rules, column, here):
                first, *rest = sorted(group[k] for k in some)
                used.update((first, *rest))
                own = [union if c.column == column else c for c in known[first]]
                merged[first] = (rest, [c for c in own if not _is_free(rules, c)])
    return merged


def _candidates(rules: RuleList) -> Iterator[tuple[int, list[int]]]:
    """Columns, and rules that may agree in all others; most rules are in none."""
    table = rules.conditions
    owner = np.repeat(np.arange(len(rules)), np.diff(rules.end, prepend=0))
    own = _condition_hashes(table)
    ends = np.append(np.uint64(0), np.cumsum(own, dtype=np.uint64))  # sums may wrap around
    total = ends[rules.end] - ends[np.append(0, rules.end[:-1])]
    said = np.zeros(len(rules), dtype=np.uint64)
    for column in rules.units.T:
        said = _mixed(said ^ column.astype(np.uint64))
    said = _mixed(said ^ rules.tree.astype(np.uint64))
    rest = _mixed(total[owner] - own + said[owner]) ^ _mixed(table.column.astype(np.uint64))
    order = np.argsort(rest, kind="stable")
    begins = np.flatnonzero(np.append(True, rest[order][1:] != rest[order][:-1]))
    sizes = np.diff(np.append(begins, len(order)))
    for begin, size in zip(begins[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
        at = order[begin : begin + size]
        yield int(table.column[at[0]]), owner[at].tolist()


def _condition_hashes(table: ConditionTable) -> Hashes:
    """(conditions,) uint64: alike for like conditions; others differ, but for rare accidents."""
    ends = np.append(
        np.uint64(0), np.cumsum(_mixed(table.levels.astype(np.uint64)), dtype=np.uint64)
    )
    found: Hashes = (
        ends[table.level_end] - ends[np.append(0, table.level_end[:-1])[: len(table.column)]]
    )
    flags = table.known.astype(np.uint64) * 2 + table.missing.astype(np.uint64)
    bounds = [(bound + 0.0).view(np.uint64) for bound in (table.low, table.high)]
    for part in (*bounds, flags, table.column.astype(np.uint64)):
        found = _mixed(found ^ part)
    return found


def _mixed(values: Hashes) -> Hashes:
    """A number scattered over 64 bits (the finalizer of SplitMix64: Steele et al. 2014)."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _unions(
    rules: RuleList, column: int, conditions: Sequence[Asked]
) -> Iterator[tuple[list[int], Asked]]:
    """Which of some conditions on one column join, and what they are together."""
    if column < rules.schema.n_features and rules.schema.columns[column].kind == "nominal":
        chains = [list(range(len(conditions)))]
    else:
        chains = _chains(conditions)
    for chain in chains:
        if len(chain) > 1:
            yield chain, union_of([conditions[k] for k in chain])


def _chains(conditions: Sequence[Asked]) -> list[list[int]]:
    """Intervals that touch; what holds no number (missing values or nothing) joins the first."""
    order = sorted(range(len(conditions)), key=lambda k: conditions[k].low)
    chains: list[list[int]] = []
    for k in (k for k in order if conditions[k].known):
        if chains and conditions[chains[-1][-1]].high == conditions[k].low:
            chains[-1].append(k)
        else:
            chains.append([k])
    others = [k for k in order if not conditions[k].known]
    if not chains:
        return [others]
    chains[0].extend(others)
    return chains


def union_of(conditions: Iterable[Asked]) -> Asked:
    """What meets any of some conditions on one column, whose sets touch."""
    some = list(conditions)
    known = [c for c in some if c.known]
    parts = [c.part for c in some if c.missing]
    return Asked(
        column=some[0].column,
        low=min((c.low for c in known), default=-np.inf),
        high=max((c.high for c in known), default=np.inf),
        known=bool(known),
        missing=bool(parts),
        part=(min(a for a, _ in parts), max(b for _, b in parts)) if parts else (0, 0),
        fits=tuple(sorted(set(itertools.chain.from_iterable(c.fits for c in some)))),
        dividing=tuple(sorted(set(itertools.chain.from_iterable(c.dividing for c in some)))),
    )


def _is_free(rules: RuleList, condition: Asked) -> bool:
    """Whether a condition is met by every value that the list does not refuse."""
    test = condition.column >= rules.schema.n_features
    if not condition.known or (condition.low, condition.high) != (-np.inf, np.inf):
        return False
    if not test and len(condition.fits) < rules.schema.n_levels[condition.column]:
        return False
    # A test may be unknown where nothing is missing: infinities that cancel.
    refused = rules.missing == "error" and not test
    return refused or (condition.missing and condition.part == (0, MASS))
