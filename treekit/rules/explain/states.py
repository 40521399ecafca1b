"""The values of one column, put together where no leaf that a row can reach tells them apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.rules.explain.reach import Allowed
from treekit.rules.explain.scales import Scale

__all__ = ["States", "states_of"]

Index = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]


class States(NamedTuple):
    """What a column can be, n states of it, and which of them each of R leaves allows.

    Attributes
    ----------
    size : (n,) float64
        How much the change from the row to the nearest value of a state counts;
        infinite for the row's own state, and where there is no value.
    low, high : (n,) float64
        Numbers: ``low < x <= high``.
    code : (n,) int64
        Nominal columns: the first level of the state; -1 for no level.
    start : (R + 1,) int64
        Runs of a leaf.
    first, last : (runs,) int64
        A run allows the states ``first`` to ``last - 1``.
    """

    size: Doubles
    low: Doubles
    high: Doubles
    code: Index
    start: Index
    first: Index
    last: Index


def states_of(
    asked: list[tuple[int, Allowed]],
    n_leaves: int,
    x: float,
    scale: Scale,
    n_levels: int | None,
) -> States:
    """The states of a column.

    Parameters
    ----------
    asked : list of (int, Allowed)
        Leaves, ascending, that ask for the column, and the values that lead there.
    n_leaves : int
        R; the leaves that are not in `asked` allow each state.
    x : float
        The row's value, NaN for none to compare with.
    scale : Scale
    n_levels : int or None
        Of a nominal column.
    """
    if n_levels is not None:
        return _of_levels(asked, n_leaves, x, n_levels)
    ends = [end for _, one in asked if isinstance(one, tuple) for end in one]
    cuts = np.unique(np.array(ends, dtype=np.float64))
    cuts = cuts[np.isfinite(cuts)]
    low, high = np.append(-np.inf, cuts), np.append(cuts, np.inf)
    unknown = int(np.isnan(x))
    if unknown:  # the row's own state stands first
        low, high = np.append(np.nan, low), np.append(np.nan, high)
    own = 0 if unknown else int(np.searchsorted(cuts, x))
    size = scale.sizes(scale.nearest(low, high))
    size[own] = np.inf
    leaves = np.array([leaf for leaf, _ in asked], dtype=np.int64)
    bounds = np.array([one if isinstance(one, tuple) else (np.nan, np.nan) for _, one in asked])
    bounds = bounds.reshape(-1, 2)
    kept = np.isnan(bounds[:, 0])
    first = np.where(kept, own, np.searchsorted(low[unknown:], bounds[:, 0]) + unknown)
    last = np.where(kept, own + 1, np.searchsorted(high[unknown:], bounds[:, 1]) + unknown + 1)
    code = np.full(len(low), -1)
    return States(size, low, high, code, *_with_others(leaves, first, last, n_leaves, len(low)))


def _of_levels(asked: list[tuple[int, Allowed]], n_leaves: int, x: float, n_levels: int) -> States:
    unknown = np.isnan(x)
    sets = {one for _, one in asked if isinstance(one, frozenset)}
    member = np.zeros((n_levels, len(sets) + 1), dtype=np.bool_)
    for place, one in enumerate(sets):
        member[sorted(one), place] = True
    if not unknown:
        member[int(x), -1] = True  # the row's own level is a state of its own
    _, code, group = np.unique(member, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(code, kind="stable")  # states in the order of their first levels
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    code, group = code[order].astype(np.int64), rank[group.ravel()]
    own = len(code) if unknown else int(group[int(x)])
    if unknown:
        code = np.append(code, -1)
    size = np.ones(len(code))
    size[own] = np.inf
    fits = member[code[code >= 0], :-1].T
    runs = {one: _runs(np.flatnonzero(some)) for one, some in zip(sets, fits, strict=True)}
    stays = [(own, own + 1)]
    told = [
        (leaf, *run)
        for leaf, allowed in asked
        for run in (runs[allowed] if isinstance(allowed, frozenset) else stays)
    ]
    leaves, first, last = np.array(told, dtype=np.int64).reshape(-1, 3).T
    nothing = np.full(len(code), np.nan)
    others = _with_others(leaves, first, last, n_leaves, len(code))
    return States(size, nothing, nothing, code, *others)


def _runs(states: Index) -> list[tuple[int, int]]:
    """Neighbouring states, put together."""
    breaks = np.flatnonzero(np.diff(states) != 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(states, breaks)]


def _with_others(
    leaves: Index, first: Index, last: Index, n_leaves: int, n_states: int
) -> tuple[Index, Index, Index]:
    """The runs of all leaves, those that do not ask included."""
    others = np.setdiff1d(np.arange(n_leaves), leaves)
    leaves = np.concatenate([leaves, others])
    first = np.concatenate([first, np.zeros(len(others), np.int64)])
    last = np.concatenate([last, np.full(len(others), n_states)])
    order = np.argsort(leaves, kind="stable")
    start = np.searchsorted(leaves[order], np.arange(n_leaves + 1))
    return start, first[order], last[order]
