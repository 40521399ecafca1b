"""Rows that prove a model's artifacts: every leaf, and every way a split can turn.

See `treekit.kernels.witness_search` for how a row that reaches a node is constructed,
and `treekit.kernels.witness_search` for how it is made to tell.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.model.model import Model
from treekit.model.scoring import sums
from treekit.model.tree import Split, Tree
from treekit.verify.probe_values import (
    AROUND,
    UNSEEN_CODES,
    around_thresholds,
    divided_rows,
    next_above,
    random_rows,
)
from treekit.verify.routing import accepts_any, is_plain
from treekit.verify.targeted_search import search

if TYPE_CHECKING:
    from treekit.kernels.reachability import Can, Marks
    from treekit.kernels.witness_search import Probing

__all__ = [
    "Budget",
    "Pool",
    "Probes",
    "accepts_any",
    "cost_rows",
    "make_probes",
    "pool_of",
    "refused_rows",
]


# ---------------------------------------------------------------- probes

Array = npt.NDArray[np.float64]

ROWS_CUT = "some splits got no rows: raise max_rows"
TIME_CUT = "some splits got no rows within the budget of time: raise it"

_BUDGET = 256
"""Pairs of leaves compared before the search for a telling row is given up."""


@dataclass(frozen=True)
class Pool:
    """All thresholds of a model, ascending in each column.

    Attributes
    ----------
    value : (thresholds,) float64
    start : (features + 1,) int64
    """

    value: Array
    start: npt.NDArray[np.int64]

    def of(self, column: int) -> Array:
        """Thresholds of one column."""
        return self.value[self.start[column] : self.start[column + 1]]


@dataclass(frozen=True)
class Probes:
    """Rows to feed to artifacts, and what is known about them.

    Attributes
    ----------
    rows : (rows, features) float64
        Numbers as they are, codes of levels (any other code is an unseen
        category), NaN for missing; all accepted by the model's policies.
    refused : (rows, features) float64
        Rows that the policies refuse.
    reachable : tuple of Marks, or Can
        For each tree what inputs can do in it; `Can` of all trees of a model that is not plain.
    wrong_turns : (3,) int64
        Wrong turns of single splits: how many some row shows in the answer;
        how many no input can show; how many were given up.
    cut : str
        Why nodes had to be left out, in words; empty if none was.
    last_bits : (int, int)
        Faults of one bit in weights and thresholds of sums: how many some row
        shows, of how many; no input may show the others.
    """

    rows: Array
    refused: Array
    reachable: tuple[Marks, ...] | Can
    wrong_turns: npt.NDArray[np.int64]
    cut: str = ""
    last_bits: tuple[int, int] = (0, 0)

    @property
    def complete(self) -> bool:
        """Whether no node had to be left out."""
        return not self.cut


def make_probes(
    model: Model, n_random: int, seed: int, max_rows: int, until: float = math.inf
) -> Probes:
    """Construct the probes of a model; the same seed makes the same ones.

    If all of them are more than `max_rows`, leaves go first (a row for each
    leaf takes every side of every split), then splits evenly over the model.
    At `until`, as `time.monotonic` counts, construction ends.
    """
    if max_rows < 1 or n_random < 0:
        raise VerificationError(
            f"verify needs max_rows of at least 1 and random_rows of at least 0, "
            f"not {max_rows} and {n_random}"
        )
    rng = np.random.default_rng(seed)
    if not is_plain(model):
        return _searched(model, n_random, max_rows, rng, until)
    pool = pool_of(model)
    wanted, complete = _wanted(model, max_rows)
    cut = "" if complete else ROWS_CUT
    parts, reachable = [], []
    wrong_turns = np.zeros(3, dtype=np.int64)
    for number in range(model.n_trees):
        if time.monotonic() > until and not cut.startswith(TIME_CUT):
            cut = f"{TIME_CUT}: trees from number {number} on got no rows of their own"
        if cut.startswith(TIME_CUT):
            wanted[number][:] = False
        rows, can = _tree_rows(model, number, wanted[number], pool, wrong_turns, rng)
        parts.append(rows)
        reachable.append(can)
    if not cut and accepts_any(model):
        unused = np.zeros(3, dtype=np.int64)
        parts.append(
            divided_rows(
                model,
                np.concatenate(parts),
                lambda number, mask: _tree_rows(model, number, mask, pool, unused, rng)[0],
            )
        )
    pools = [pool.of(f) for f in range(model.schema.n_features)]
    spread = random_rows(model, pools, n_random if accepts_any(model) else 0, rng)
    rows = np.concatenate([*parts, spread])
    rows = np.concatenate([rows, cost_rows(model, rows, rng)])
    refused = refused_rows(model, rows, rng)
    return Probes(rows, refused, tuple(reachable), wrong_turns, cut)


def _searched(
    model: Model, n_random: int, max_rows: int, rng: np.random.Generator, until: float
) -> Probes:
    """The probes of a model that is not plain."""
    found = search(model, n_random, max_rows, rng, until)
    rows = found.rows if accepts_any(model) else found.rows[:0]
    rows = np.concatenate([rows, cost_rows(model, rows, rng)])
    refused = refused_rows(model, rows, rng)
    cut = "" if found.complete else ROWS_CUT if time.monotonic() < until else TIME_CUT
    return Probes(rows, refused, found.can, found.wrong_turns, cut, found.last_bits)


def pool_of(model: Model) -> Pool:
    """Distinct thresholds of all trees, column by column."""
    at = [tree.kind == Split.THRESHOLD for tree in model.trees]
    features = np.concatenate(
        [tree.feature[here] for tree, here in zip(model.trees, at, strict=True)]
    )
    values = np.concatenate(
        [tree.threshold[here] for tree, here in zip(model.trees, at, strict=True)]
    )
    pairs = np.unique(np.stack([features.astype(np.float64), values + 0.0], axis=1), axis=0)
    start = np.searchsorted(pairs[:, 0], np.arange(model.schema.n_features + 1))
    return Pool(np.ascontiguousarray(pairs[:, 1]), start.astype(np.int64))


def _rows_needed(tree: Tree, schema: Schema) -> npt.NDArray[np.int64]:
    """(nodes,) int64: at least as many rows as the probes of each node are."""
    from treekit.kernels.witness_search import MOST_WRONG_BRANCHES

    needed = np.ones(tree.n_nodes, dtype=np.int64)
    inner = np.flatnonzero(tree.kind != Split.LEAF)
    levels = schema.n_levels[tree.feature[inner]]
    candidates = np.where(schema.nominal[tree.feature[inner]], levels + 2, 3)
    turns = np.clip(tree.n_children[inner] - 1, 1, MOST_WRONG_BRANCHES)
    around = np.where(tree.kind[inner] == Split.THRESHOLD, AROUND - 2, 0)
    needed[inner] = candidates * turns + around
    return needed


def _wanted(model: Model, max_rows: int) -> tuple[list[npt.NDArray[np.bool_]], bool]:
    """(nodes,) bool for each tree: the nodes to probe; and whether they are all."""
    needed = np.concatenate([_rows_needed(tree, model.schema) for tree in model.trees])
    ends = np.cumsum([tree.n_nodes for tree in model.trees])[:-1]
    if needed.sum() <= max_rows:
        return np.split(np.ones(len(needed), dtype=np.bool_), ends), True
    leaf = np.concatenate([tree.kind == Split.LEAF for tree in model.trees])
    wanted = np.zeros(len(needed), dtype=np.bool_)
    left = max_rows
    for group in (np.flatnonzero(leaf), np.flatnonzero(~leaf)):
        # Every k-th node, so that what fits is spread over all trees.
        step = max(int(-(-needed[group].sum() // max(left, 1))), 1)
        chosen = group[::step]
        chosen = chosen[np.cumsum(needed[chosen]) <= left]
        wanted[chosen] = True
        left -= int(needed[chosen].sum())
    return np.split(wanted, ends), False


def _tree_rows(
    model: Model,
    number: int,
    wanted: npt.NDArray[np.bool_],
    pool: Pool,
    wrong_turns: npt.NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[Array, Marks]:
    from treekit.kernels.reachability import make_walk
    from treekit.kernels.witness_search import probe_rows

    tree, schema = model.trees[number], model.schema
    capacity = int(_rows_needed(tree, schema)[wanted].sum())
    rows = np.empty((capacity, schema.n_features))
    can = _no_marks(tree)
    if not accepts_any(model):
        return rows[:0], can
    bar = int(model.missing == "error")
    # Three depths: the way to a split, one below it on the right side, one on the wrong.
    walk = make_walk(tree, schema.n_levels, schema.nominal, bar, 3 * tree.depth + 1)
    after = next_above(tree.threshold, schema.dtype)
    probing = _probing(model, number, wanted, pool)
    count = probe_rows(walk, probing, after, rows, can, wrong_turns, rng)
    return rows[:count], can


def _no_marks(tree: Tree) -> Marks:
    from treekit.kernels.reachability import Marks

    sizes = [tree.n_nodes] * 4 + [len(tree.level_branch)]
    return Marks(*(np.zeros(size, dtype=np.bool_) for size in sizes))


def _probing(model: Model, number: int, wanted: npt.NDArray[np.bool_], pool: Pool) -> Probing:
    from treekit.kernels.witness_search import Probing

    tree, dtype = model.trees[number], model.schema.dtype
    leaf = tree.kind == Split.LEAF
    chosen = wanted & (tree.kind == Split.THRESHOLD)
    return Probing(
        wanted=wanted,
        place=np.where(leaf, np.cumsum(leaf), np.cumsum(chosen)) - 1,
        units=model.tree_units(number),
        around=around_thresholds(tree.threshold[chosen], dtype),
        pool=np.stack([pool.value, next_above(pool.value, dtype)], axis=1),
        pool_start=pool.start,
        unseen=model.unknown == "missing" and model.missing != "error",
        narrow=dtype == "float32",
        budget=_BUDGET,
    )


def chunks(rows: Array, size: int) -> Iterator[Array]:
    """Successive blocks of rows."""
    for at in range(0, len(rows), size):
        yield rows[at : at + size]


# ---------------------------------------------------------------- budget
# The time that a verification may take, and what it left out to keep within it.


@dataclass
class Budget:
    """Seconds from now on.

    Attributes
    ----------
    seconds : float
        Positive; infinite = no bound.
    cuts : list of str
        What was left out for lack of time, in words.
    """

    seconds: float
    cuts: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise VerificationError(f"a budget is a positive number of seconds, not {self.seconds}")

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(self.started + self.seconds - time.monotonic(), 0.0)

    def until(self, share: float) -> float:
        """When a share of what is left is over, as `time.monotonic` counts; may be infinite."""
        return math.inf if math.isinf(self.seconds) else time.monotonic() + share * self.left


# ---------------------------------------------------------------- refusals
# Rows that a model's policies refuse, and which every artifact must refuse too.

_MOST_COLUMNS = 1000


def refused_rows(model: Model, accepted: Array, rng: np.random.Generator) -> Array:
    """Spoil accepted rows, one cell each: missing, or an unseen category.

    Returns
    -------
    (rows, features) float64
        Without rows if the policies accept everything.
    """
    spoilt: list[tuple[int, float]] = []
    for f, column in enumerate(model.schema.columns[:_MOST_COLUMNS]):
        if model.missing == "error":
            spoilt.append((f, np.nan))
        if column.kind == "nominal" and "error" in (model.missing, model.unknown):
            sizes = [0, *([len(column.levels)] * (len(UNSEEN_CODES) - 1))]
            spoilt += [(f, n + code) for n, code in zip(sizes, UNSEEN_CODES, strict=True)]
    rows = (
        accepted[rng.integers(len(accepted), size=len(spoilt))]
        if len(accepted)
        else (np.zeros((len(spoilt), model.schema.n_features)))
    )
    for row, (f, value) in zip(rows, spoilt, strict=True):
        row[f] = value
    return rows


# ---------------------------------------------------------------- costs
# Rows in which single costs decide.
#
# A label is the class of least expected cost; that one entry of the table of
# costs is off by 1 shows only where two classes cost almost the same.  Such
# rows are bred: rows that come nearest exchange cells with others, and their
# children are measured again.

Index = npt.NDArray[np.int64]

_POOL = 20_000
_GENERATIONS = 5
_KEPT = 3
"""So many rows are kept for each entry of the table and each direction."""


def cost_rows(model: Model, rows: Array, rng: np.random.Generator) -> Array:
    """Rows whose label changes, or nearly, if one entry of the costs grows or shrinks by 1.

    Parameters
    ----------
    model : Model
    rows : (rows, features) float64
        Rows that the policies accept, to begin with; cells of accepted rows
        put together are an accepted row.
    rng : numpy.random.Generator

    Returns
    -------
    (rows, features) float64
        None without costs.
    """
    if model.label_costs is None or not len(rows):
        return rows[:0]
    pool = rows[rng.permutation(len(rows))[:_POOL]]
    for _ in range(_GENERATIONS):
        parents = pool[_nearest(sums(model, pool), model.label_costs)]
        n_children = max(_POOL // 4, len(parents))
        first = parents[rng.integers(len(parents), size=n_children)]
        second = rows[rng.integers(len(rows), size=n_children)]
        share = rng.random((n_children, 1)) * 0.5
        children = np.where(rng.random(first.shape) < share, second, first)
        pool = np.concatenate([parents, children])
    best: Array = pool[_nearest(sums(model, pool), model.label_costs)]
    return best


def _nearest(votes: Index, costs: Index) -> Index:
    """Numbers of the rows that are nearest to another label, for each entry and direction."""
    chosen = [np.argsort(-margin, kind="stable")[:_KEPT] for margin in _margins(votes, costs)]
    return np.unique(np.concatenate(chosen))


def _margins(votes: Index, costs: Index) -> Iterator[Index]:
    """(rows,) int64 for each entry and direction: from 0 on, the label changes."""
    expected = votes @ costs
    label = expected.argmin(axis=1)
    n_rows, n_classes = votes.shape
    least = expected[np.arange(n_rows), label]
    never = -(2**62)
    for said in range(n_classes):
        # Among equals the first class wins.
        behind = label < said
        dearer = np.delete(expected + (np.arange(n_classes) > said), said, axis=1)
        others = dearer.min(axis=1, initial=2**62) - expected[:, said]
        lead = expected[:, said] - least + behind
        for true in range(n_classes):
            yield np.where(label == said, votes[:, true] - others, never)
            yield np.where(label == said, never, votes[:, true] - lead)
