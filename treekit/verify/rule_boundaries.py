"""Rows at and just beyond every bound of every rule.

In code one number is the bound of every leaf below a split; in rule text each
rule has its own bounds, and a wrong one makes a gap or an overlap that only
rows next to that rule can show.  A rule is a box; each of its faces gets
a row just inside and one just outside, with the other columns inside.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from treekit.model.model import Model
from treekit.rules import RuleList, rules
from treekit.rules.extract import is_rule_list
from treekit.verify.probe_values import find_next_above
from treekit.verify.probes import has_accepted_rows
from treekit.verify.routing import is_plain
from treekit.verify.targeted_search import search_boundary_rows

__all__ = [
    "make_rule_rows",
]

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]


def make_rule_rows(
    model: Model, max_rows: int, probes: Array, rng: np.random.Generator
) -> tuple[Array, int, int]:
    """Make rows for the faces of rules, at most `max_rows`.

    Parameters
    ----------
    model : Model
    max_rows : int
    probes : (rows, features) float64
        Accepted rows that reach every leaf.
    rng : numpy.random.Generator

    Returns
    -------
    rows : (rows, features) float64
    probed, rules : int
        Number of rules with rows, and of all rules; if not all fit, every k-th is probed.
    """
    if not has_accepted_rows(model):
        return probes[:0], model.n_leaves, model.n_leaves
    if is_rule_list(model):  # each condition occurs once in the text, as in code
        return probes[:0], model.n_leaves, model.n_leaves
    if not is_plain(model):
        return search_boundary_rows(model, probes, max_rows, rng)
    listed = rules(model)
    faces = _RuleFaces(model, listed)
    needed = faces.bound_row_counts()
    step = max(-(-int(needed.sum()) // max_rows), 1)
    chosen = np.arange(0, len(listed), step)
    chosen = chosen[np.cumsum(needed[chosen]) <= max_rows]
    rows = np.concatenate([*faces.iter_rows(chosen)])
    # A rule that no row satisfies has no inside: its rows would hold disallowed missing values.
    return rows[~listed.refused(rows)], len(chosen), len(listed)


class _RuleFaces:
    """Rules of a model as arrays, with values inside and outside of their conditions."""

    def __init__(self, model: Model, listed: RuleList) -> None:
        self.model, self.listed, self.table = model, listed, listed.conditions
        table, schema = self.table, model.schema
        self.rule = np.repeat(np.arange(len(listed)), np.diff(listed.end, prepend=0))
        self.nominal = schema.nominal[table.column]
        self.level_start = np.concatenate([[0], table.level_end[:-1]]).astype(np.int64)
        self.n_inside = np.where(self.nominal, table.level_end[: len(self.rule)], 0)
        self.n_inside -= np.where(self.nominal, self.level_start[: len(self.rule)], 0)
        self.n_levels = schema.n_levels[table.column]

    def bound_row_counts(self) -> Index:
        """Return an upper bound of the number of rows for each rule, (rules,) int64."""
        numbers = np.where(self.nominal, self.n_levels, 2) + 2
        outside = np.bincount(self.rule, weights=numbers, minlength=len(self.listed))
        inside = np.ones(len(self.listed), dtype=np.int64)
        np.maximum.at(inside, self.rule, self.n_inside)
        return outside.astype(np.int64) + inside + 3

    def iter_rows(self, chosen: Index) -> Iterator[Array]:
        """Yield rows inside and outside of the chosen rules."""
        place = np.full(len(self.listed), -1, dtype=np.int64)
        place[chosen] = np.arange(len(chosen))
        mine = np.flatnonzero(place[self.rule] >= 0)
        owner = place[self.rule[mine]]
        corner = self._make_corners(mine, owner, len(chosen))
        yield corner
        yield from self._iter_inside_rows(corner, mine, owner)
        for at, values in self._iter_outside_values(mine):
            rows = corner[place[self.rule[at]]]
            rows[np.arange(len(at)), self.table.column[at]] = values
            yield rows

    def _make_corners(self, mine: Index, owner: Index, n: int) -> Array:
        """Make a row inside of each rule: upper bounds, first categories."""
        empty = self.model.schema.nominal & (self.model.schema.n_levels == 0)
        corner = np.zeros((n, self.model.schema.n_features))
        corner[:, empty] = np.nan
        corner[owner, self.table.column[mine]] = self._choose_known_values(mine, upper=True)
        return corner

    def _choose_known_values(self, at: Index, *, upper: bool) -> Array:
        """Return a known value inside of each condition, at its upper or lower face; else NaN."""
        table = self.table
        low, high = table.low[at], table.high[at]
        above = find_next_above(low, self.model.schema.dtype)
        ends = [(np.isfinite(high), high), (np.isfinite(low), above)]
        first, second = ends if upper else ends[::-1]
        value = np.where(first[0], first[1], np.where(second[0], second[1], 0.0))
        levels = np.append(table.levels, -1)
        last = len(table.levels)
        value = np.where(self.nominal[at], levels[np.minimum(self.level_start[at], last)], value)
        return np.where(table.known[at], value, np.nan)

    def _iter_inside_rows(self, corner: Array, mine: Index, owner: Index) -> Iterator[Array]:
        """Yield rows at the lower bounds, with every further category, and with missing values."""
        table = self.table
        lower = corner.copy()
        lower[owner, table.column[mine]] = self._choose_known_values(mine, upper=False)
        yield lower
        for number in range(1, int(self.n_inside[mine].max(initial=0))):
            some = self.n_inside[mine] > number
            rows, to = np.unique(owner[some], return_inverse=True)
            more = corner[rows]
            levels = table.levels[self.level_start[mine[some]] + number]
            more[to, table.column[mine[some]]] = levels
            yield more
        if self.model.missing != "error":
            # Features without a condition may be missing.
            conditioned = np.zeros(corner.shape, dtype=np.bool_)
            conditioned[owner, table.column[mine]] = ~table.missing[mine]
            yield np.where(conditioned, corner, np.nan)

    def _iter_outside_values(self, mine: Index) -> Iterator[tuple[Index, Array]]:
        """Yield conditions, with a value just outside of each."""
        table, dtype = self.table, self.model.schema.dtype
        finite = mine[np.isfinite(table.high[mine])]
        yield finite, find_next_above(table.high[finite], dtype)
        finite = mine[np.isfinite(table.low[mine])]
        yield finite, table.low[finite]
        if self.model.missing != "error":
            barred = mine[~table.missing[mine]]
            yield barred, np.full(len(barred), np.nan)
        never = mine[~table.known[mine] & ~self.nominal[mine]]
        yield never, np.zeros(len(never))
        for level in range(int(self.n_levels[mine].max(initial=0))):
            nominal = mine[self.nominal[mine] & (self.n_levels[mine] > level)]
            out = nominal[~self._is_accepted(nominal, level)]
            yield out, np.full(len(out), float(level))

    def _is_accepted(self, at: Index, level: int) -> npt.NDArray[np.bool_]:
        """Return whether nominal conditions accept a category."""
        found = np.concatenate([[0], np.cumsum(self.table.levels == level)])
        return found[self.table.level_end[at]] > found[self.level_start[at]]
