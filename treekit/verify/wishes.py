"""What is wished of rows at the nodes of a model: every outcome of every test."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from treekit.model.tree import Split
from treekit.verify.around import around_thresholds
from treekit.verify.routed import Routed

__all__ = ["level_wishes", "no_wishes", "uniform_nodes", "wishes", "wishes_of"]

Index = npt.NDArray[np.int64]
Wishes = npt.NDArray[np.void]

_MOST_WRONG_BRANCHES = 8


def wishes_of(of: Routed) -> Wishes:
    """(wishes,) `treekit.kernels.witness_search.WISH`: for each wrong branch one of each."""
    from treekit.kernels.witness_search import ABOVE, ANY, AT_MOST, SET, UNKNOWN

    model, tests = of.model, of.tests
    linear, levels = np.flatnonzero(of.linear), np.flatnonzero(~of.linear)
    test, term = _terms_of_sums(of)
    inner = np.flatnonzero(tests.column >= 0)
    absence = np.flatnonzero((tests.column < 0) & (of.routes.nodes["n_children"] > 0))
    takes_missing = model.missing != "error"
    parts = [
        wishes(of.owner[linear], linear, AT_MOST),
        wishes(of.owner[linear], linear, ABOVE),
        wishes(of.owner[test], test, AT_MOST, -np.inf, term=term, sharp=True),
        wishes(of.owner[test], test, AT_MOST, np.inf, term=term, sharp=True),
        level_wishes(of, levels),
        wishes(inner, tests.test_start[tests.column[inner]], UNKNOWN),
        wishes(absence, -1, ANY),
        _around_wishes(of),
    ]
    if takes_missing:
        parts.append(_lost_wishes(of))
    if of.routes.divides:
        parts.append(wishes(inner, tests.test_start[tests.column[inner]], UNKNOWN, sharp=True))
    if takes_missing:
        parts.append(wishes(absence, -1, UNKNOWN))
    if takes_missing and model.unknown == "missing":
        sizes = np.diff(tests.level_start)[levels]
        parts.append(wishes(of.owner[levels], levels, SET, sizes))
    once = np.concatenate(parts)
    turns = np.clip(of.routes.nodes["n_children"][once["node"]] - 1, 1, _MOST_WRONG_BRANCHES)
    turns = np.where(once["goal"] == SET, 1, turns)
    every = np.repeat(once, turns)
    every["step"] += np.arange(len(every)) - np.repeat(np.cumsum(turns) - turns, turns)
    return every


def wishes(
    node: Index,
    test: Index | int,
    goal: int,
    value: npt.ArrayLike = 0.0,
    target: Index | None = None,
    term: Index | int = -1,
    sharp: bool = False,
) -> Wishes:
    """One wish for each node, or pair of node and target; see
    `treekit.kernels.witness_search.WISH`.
    """
    from treekit.kernels.witness_search import WISH

    made = np.zeros(len(node), dtype=WISH)
    made["node"], made["test"], made["goal"], made["value"] = node, test, goal, value
    made["target"] = node if target is None else target
    made["step"], made["term"], made["sharp"] = 1, term, sharp
    return made


def no_wishes() -> Wishes:
    """None, to be added to."""
    return wishes(np.zeros(0, dtype=np.int64), -1, 0)


def level_wishes(of: Routed, tests: Index, target: Index | None = None) -> Wishes:
    """For each of some tests by levels, each level."""
    from treekit.kernels.witness_search import LEVEL

    counts = np.diff(of.tests.level_start)[tests]
    test = np.repeat(tests, counts)
    code = np.arange(len(test)) - np.repeat(np.cumsum(counts) - counts, counts)
    to = None if target is None else np.repeat(target, counts)
    return wishes(of.owner[test], test, LEVEL, code, to)


def _terms_of_sums(of: Routed) -> tuple[Index, Index]:
    """Tests of several terms, and each of their terms after a -1 for the threshold."""
    counts = np.diff(of.tests.term_start)
    several = np.flatnonzero(counts > 1)
    test = np.repeat(several, counts[several] + 1)
    starts = np.cumsum(counts[several] + 1) - (counts[several] + 1)
    return test, np.arange(len(test)) - np.repeat(starts, counts[several] + 1) - 1


def _around_wishes(of: Routed) -> Wishes:
    """Values around the thresholds of single columns, on which a wrong comparison would show."""
    from treekit.kernels.witness_search import SET

    starts = of.tests.term_start
    single = np.flatnonzero(of.linear & (np.diff(starts) == 1))
    single = single[of.tests.term_weight[starts[single]] == 1.0]
    values = around_thresholds(of.tests.threshold[single], of.model.schema.dtype)[:, 2:]
    row, column = np.nonzero(~np.isnan(values))
    return wishes(of.owner[single[row]], single[row], SET, values[row, column])


def _lost_wishes(of: Routed) -> Wishes:
    """Missing values at the conditions of rules, which say themselves what they do."""
    from treekit.kernels.witness_search import SET

    at = np.flatnonzero(of.routes.nodes["kind"][of.owner] == Split.RULE)
    return wishes(of.owner[at], at, SET, np.nan)


def uniform_nodes(of: Routed) -> npt.NDArray[np.bool_]:
    """(nodes,) bool: below which all leaves say the same, so that no wrong turn can show."""
    routes = of.routes
    said = routes.units.copy()
    same = np.ones(len(said), dtype=np.bool_)
    for first, last in itertools.pairwise(of.roots.tolist()):
        for node in range(last - 1, first - 1, -1):
            if routes.nodes["n_children"][node]:
                child = routes.nodes["first_child"][node]
                below = slice(child, child + routes.nodes["n_children"][node])
                said[node] = said[child]
                same[node] = same[below].all() and (said[below] == said[child]).all()
    return same
