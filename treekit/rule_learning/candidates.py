"""Candidate rules from the paths of a model's trees, and the rows to learn rule lists from.

Every node except the roots is a rule: the conjunction of the conditions on its path
(Friedman and Popescu 2008, "Predictive learning via rule ensembles", section 3), merged to
at most one per column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset, make_dataset, make_validation
from treekit.errors import DataError, ModelError, SettingError
from treekit.grow.target_statistics import gridded_weights
from treekit.model.fixed_point import MASS
from treekit.model.model import Model, least_cost, make_model
from treekit.model.tree import Split, Tree
from treekit.rules.evaluate import packed
from treekit.rules.extract import depth_first, is_listed, node_paths, rules, steps
from treekit.rules.rule_list import ConditionTable, RuleList, coded, taken
from treekit.training.class_weights import class_weights, keeping_weight, with_class_weights

__all__ = [
    "Asked",
    "Bits",
    "Ground",
    "Paths",
    "candidate_rules",
    "check_count",
    "ground_of",
    "independent",
    "indicators",
    "interned",
    "joined",
    "merged",
    "once",
    "paths_of",
    "read_rows",
    "refuse_lists",
    "rows_and_weights",
    "rows_meeting",
    "unpacked",
    "weighed",
]


# ---------------------------------------------------------------- candidate rules

Index = npt.NDArray[np.int64]


def candidate_rules(model: Model, depth: int) -> RuleList:
    """Return the rules of the nodes down to `depth` edges below the roots, without the roots.

    Parameters
    ----------
    model : Model
        Missing values follow the direction stored in each split, even if the model uses
        fractional instances or surrogates.  Nodes below oblique splits are left out, because
        these are not conditions on one column.
    depth : int
        At least 1.

    Returns
    -------
    RuleList
        Rules with tree numbers and training weights, but without values (units are 0).
        Shallow rules first.

    Raises
    ------
    DataError
        If there are no candidates.
    ModelError
        If the model is a rule list.
    """
    refuse_lists(model)
    plain = [_plain(tree) for tree in model.trees]
    parts = [_of_depth(model, plain, k) for k in range(1, depth + 1) if k <= model.depth]
    parts = [part for part in parts if len(part)]
    if not parts:
        raise DataError(
            "the model has no rules to choose from: its trees are single leaves or have only "
            "oblique splits; train a forest with splits on single columns"
        )
    return joined(parts)


def refuse_lists(model: Model) -> None:
    """Raise `ModelError` if the model is a rule list, which has no paths."""
    if is_listed(model):
        raise ModelError(
            "the model is a rule list already and has no paths; pass the tree or forest that the "
            "list was made from"
        )


def _plain(tree: Tree) -> Tree:
    """Return a tree without surrogates."""
    if not len(tree.surrogate_feature):
        return tree
    none = np.zeros(tree.n_nodes + 1, dtype=np.int64)
    empty, no_numbers = np.empty(0, dtype=np.int32), np.empty(0)
    return replace(
        tree, surrogate_start=none, surrogate_feature=empty, surrogate_threshold=no_numbers,
        surrogate_below=empty, surrogate_above=empty, surrogate_lost=empty,
        surrogate_level_start=none[:1], surrogate_level_branch=empty,
    )  # fmt: skip


def _of_depth(model: Model, trees: Sequence[Tree], depth: int) -> RuleList:
    """Return the rules of the nodes exactly `depth` edges below a root."""
    cut, at_depth = [], []
    for tree in trees:
        depths = tree.depths
        nodes = np.flatnonzero(depths <= depth)
        cut.append(tree.take(nodes, depths[nodes] == depth))
        at_depth.append(depths[nodes] == depth)
    found = rules(
        make_model(
            model.schema, cut, unknown=model.unknown, combine=model.combine, link=model.link,
            missing="error" if model.missing == "error" else "direction",
        )
    )  # fmt: skip
    first = np.cumsum([0] + [tree.n_nodes for tree in cut])
    here = np.concatenate(at_depth)[first[found.tree] + found.leaf]
    sums = found.conditions.column >= model.schema.n_features
    oblique = np.add.reduceat(np.append(sums, False), _starts(found)) > 0
    # reduceat gives rules without conditions the value of the next rule.
    oblique &= found.end > _starts(found)
    bare = taken(found, np.flatnonzero(here & ~oblique))
    return replace(bare, tests=(), units=np.zeros_like(bare.units), value=None)


def _starts(found: RuleList) -> Index:
    """Return (rules,) int64: where the conditions of each rule begin."""
    return np.append(0, found.end[:-1])


def joined(parts: Iterable[RuleList]) -> RuleList:
    """Concatenate rule lists of one schema."""
    parts = list(parts)
    n_conditions = np.cumsum([0] + [len(part.conditions.column) for part in parts])
    n_levels = np.cumsum([0] + [len(part.conditions.levels) for part in parts])
    tables = [
        part.conditions._replace(level_end=part.conditions.level_end + n)
        for part, n in zip(parts, n_levels, strict=False)
    ]
    ends = [part.end + n for part, n in zip(parts, n_conditions, strict=False)]
    return replace(
        parts[0],
        tree=np.concatenate([part.tree for part in parts]),
        leaf=np.concatenate([part.leaf for part in parts]),
        support=np.concatenate([part.support for part in parts]),
        as_parent=np.concatenate([part.as_parent for part in parts]),
        units=np.concatenate([part.units for part in parts]),
        end=np.concatenate(ends),
        conditions=ConditionTable(*(np.concatenate(own) for own in zip(*tables, strict=True))),
        value=None,
    )


def interned(found: RuleList) -> Index:
    """Return (rules,) int64: equal numbers for rules with equal conditions, in any order."""
    if not len(found):
        return np.empty(0, dtype=np.int64)
    table = found.conditions
    sets: dict[bytes, int] = {}
    begins = np.append(0, table.level_end[:-1])
    level_set = np.zeros(len(table.column), dtype=np.int64)
    for at in np.flatnonzero(found.schema.nominal[table.column]).tolist():
        own = table.levels[begins[at] : table.level_end[at]].tobytes()
        level_set[at] = sets.setdefault(own, len(sets))
    keys = np.column_stack(
        [table.column, table.low, table.high, table.known, table.missing, level_set]
    )
    number = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    sizes = np.diff(found.end, prepend=0)
    wide = np.full((len(found), int(sizes.max(initial=1))), -1)
    owner = np.repeat(np.arange(len(found)), sizes)
    wide[owner, np.arange(len(owner)) - np.repeat(found.end - sizes, sizes)] = number
    wide.sort(axis=1)
    return np.unique(wide, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


# ---------------------------------------------------------------- conditions
# The paths of a tree as lists of conditions, and the rows that match each condition.

_CELLS = 1 << 22
"""Number of (condition, row) cells evaluated at once, one byte each."""


class Asked(NamedTuple):
    """Condition on one column; the fields are those of `ConditionTable`.

    `levels` are the codes of the accepted categories, ascending; empty for numeric columns.
    """

    column: int
    low: float
    high: float
    known: bool
    missing: bool
    levels: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Paths:
    """Paths of one tree.

    Attributes
    ----------
    asked : ConditionTable
        Condition of the step to each node; the root accepts everything.
    leaf : (leaves,) int64
        From the leftmost path to the rightmost.
    node, end : (steps,) and (leaves,) int64
        Nodes from below the root to each leaf, path after path, and where each path ends.
    label : (leaves,) int64
        Class predicted by each leaf.
    """

    asked: ConditionTable
    leaf: Index
    node: Index
    end: Index
    label: Index


def paths_of(model: Model, number: int) -> Paths:
    """Return the paths of one tree of a classifier of one target.

    With fractional instances (Quinlan 1993, section 3.2), missing values, and categories that a
    node has not seen, match only a test for missing values, as in C4.5rules.  Otherwise they
    match the condition of the branch that they take.

    Raises
    ------
    ModelError
        For splits on more than one column.
    """
    tree = model.trees[number]
    _refuse(tree, number)
    leaf = depth_first(tree)
    node, end = node_paths(tree, leaf)
    units = model.tree_units(number)[np.searchsorted(tree.leaves, leaf)]
    return Paths(_asked(model, tree), leaf, node, end, least_cost(units, None))


def _refuse(tree: Tree, number: int) -> None:
    if len(tree.term_feature):
        what = "oblique splits"
    elif len(tree.surrogate_feature):
        what = "surrogate splits"
    else:
        return
    raise ModelError(
        f"tree {number} has {what}, but an ordered list needs conditions on single columns; train "
        "with splitter='axis' and missing='fractional' or 'direction'"
    )


def _asked(model: Model, tree: Tree) -> ConditionTable:
    """Return the condition of each node's step, without fractional instances."""
    parent = tree.parent
    up = np.maximum(parent, 0)
    branch = np.arange(tree.n_nodes) - tree.first_child[up]
    absence = (parent >= 0) & (tree.kind[up] == Split.MISSING)
    takes = np.where(absence, branch == 0, branch == tree.missing[up]) & (parent >= 0)
    if model.missing == "fractional":
        takes &= absence
    bounds = np.stack([np.zeros(tree.n_nodes, np.int64), np.where(takes, MASS, 0)], axis=1)
    table = steps(tree, bounds, model.schema.n_levels)
    if model.missing == "error":
        table = table._replace(missing=table.missing & ~table.known)
    # Categories that follow the missing direction are accepted like others.
    known = table.known | (table.dividing > 0)
    return table._replace(known=known, dividing=np.zeros_like(table.dividing))


def merged(asked: ConditionTable, nodes: Iterable[int]) -> tuple[Asked, ...]:
    """Merge the conditions of some steps to one per column, in the order of first use."""
    found: dict[int, Asked] = {}
    for node in nodes:
        column = int(asked.column[node])
        own = Asked(
            column, float(asked.low[node]), float(asked.high[node]), bool(asked.known[node]),
            bool(asked.missing[node]), tuple(sorted(asked.codes(node)[0])),
        )  # fmt: skip
        found[column] = _both(found[column], own) if column in found else own
    return tuple(found.values())


def _both(one: Asked, other: Asked) -> Asked:
    """Intersect two conditions on a column; a bare "is known" lists every category."""
    known = one.known and other.known
    levels = tuple(level for level in one.levels if level in set(other.levels)) if known else ()
    low, high = max(one.low, other.low), min(one.high, other.high)
    if not known:
        low, high = -np.inf, np.inf
    elif one.levels:
        known = len(levels) > 0
    return Asked(one.column, low, high, known, one.missing and other.missing, levels)


def rows_meeting(asked: ConditionTable, matrix: npt.NDArray[np.floating], n_levels: Index) -> Bits:
    """Return (conditions, words) uint64: the rows that match each condition.

    Parameters
    ----------
    asked : ConditionTable
        Conditions without fractional instances.
    matrix : (rows, features) float32 or float64
        Encoded rows.
    n_levels : (features,) int64
        0 for numeric columns.
    """
    n_rows = len(matrix)
    found = np.zeros((len(asked.column), -(-n_rows // 64)), dtype=np.uint64)
    block = max(_CELLS // max(n_rows, 1), 1)
    for column in np.unique(asked.column).tolist():
        at = np.flatnonzero(asked.column == column)
        values = matrix[:, column].astype(np.float64)
        for first in range(0, len(at), block):
            own = at[first : first + block]
            if n_levels[column] > 0:
                cells = coded(values, int(n_levels[column]))
                met = _accepted(asked, own, int(n_levels[column]))[:, cells]
            else:
                met = _within(asked, own, values)
            found[own] = packed(met)
    return found


def _within(
    asked: ConditionTable, at: Index, values: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Return (conditions, rows) bool, for a numeric column."""
    met = values <= asked.high[at, None]
    bounded = np.flatnonzero(asked.low[at] > -np.inf)
    met[bounded] &= values > asked.low[at[bounded], None]
    met[~asked.known[at]] = False
    met[:, np.isnan(values)] = asked.missing[at, None]
    return met


def _accepted(asked: ConditionTable, at: Index, n_levels: int) -> npt.NDArray[np.bool_]:
    """Return (conditions, levels + 1) bool: accepted categories and, last, missing values."""
    accepts = np.zeros((len(at), n_levels + 1), dtype=np.bool_)
    for row, condition in enumerate(at.tolist()):
        accepts[row, asked.codes(condition)[0]] = True
    accepts[:, -1] = asked.missing[at]
    return accepts


# ---------------------------------------------------------------- row sets
# Sets of rows as 64-bit words with one bit per row: intersections and differences are word
# operations on 64 rows at a time, and the weight of a set is a count of its bits.

Bits = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.float64]

_BLOCK = 1 << 17
"""Words processed at once, so that they and their results stay in the cache."""


@dataclass(frozen=True, eq=False)
class Ground:
    """Rows to evaluate rules on, as bit sets.

    Attributes
    ----------
    y : (rows,) int32
        Class of each row.
    w : (rows,) float64
        Weights rounded to fixed point, so that their sums are exact in any order.
    counted : bool
        Whether every row has weight 1.
    everyone : (words,) uint64
        All rows.
    classes : (classes, words) uint64
        Rows of each class.
    totals : (classes,) float64
        Their weights.
    """

    y: npt.NDArray[np.int32]
    w: Numbers
    counted: bool
    everyone: Bits
    classes: Bits
    totals: Numbers

    @property
    def n_rows(self) -> int:
        """Number of rows, including those without weight."""
        return len(self.y)

    def weight(self, sets: Bits, within: Bits) -> Numbers:
        """Return (sets,) float64: weight of the intersection of each set with `within`.

        Linear in the words, plus a third of that for each set bit if rows have weights.
        """
        found = np.empty(len(sets))
        block = max(_BLOCK // max(sets.shape[1], 1), 1)
        for first in range(0, len(sets), block):
            both = sets[first : first + block] & within
            found[first : first + block] = self._weight(both)
        return found

    def _weight(self, sets: Bits) -> Numbers:
        if self.counted:
            return np.asarray(np.bitwise_count(sets).sum(axis=1, dtype=np.int64), np.float64)
        from treekit.kernels.rule_bitsets import weigh

        sums = np.empty(len(sets))
        weigh(sets, self.w, sums)
        return sums


def ground_of(rows: Dataset) -> Ground:
    """Return the rows of a dataset with one class target."""
    w, _ = gridded_weights(rows.n_rows, rows.weights)
    y = np.ascontiguousarray(rows.y, dtype=np.int32)
    n_classes = len(rows.schema.classes)
    totals = np.bincount(y, w, n_classes).astype(np.float64)
    if not totals.sum() > 0:
        raise DataError("no row has a positive weight; at least one is needed")
    return Ground(
        y=y,
        w=w,
        counted=bool((w == 1.0).all()),
        everyone=packed(np.ones((1, len(y)), dtype=np.bool_))[0],
        classes=packed(y == np.arange(n_classes)[:, None]),
        totals=totals,
    )


def unpacked(sets: Bits, n_rows: int) -> npt.NDArray[np.bool_]:
    """Unpack bit sets to (sets, rows) bool."""
    octets = np.ascontiguousarray(sets.astype("<u8", copy=False)).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=n_rows, bitorder="little").view(np.bool_)


def once(sets: Bits, n_words: int) -> tuple[Bits, Bits]:
    """Return (words,) uint64: members of at least one set, and of at least two."""
    some = np.zeros(n_words, dtype=np.uint64)
    several = np.zeros(n_words, dtype=np.uint64)
    for each in sets:
        several |= some & each
        some |= each
    return some, several


# ---------------------------------------------------------------- indicators

Truths = npt.NDArray[np.bool_]


def indicators(found: RuleList, matrix: npt.NDArray[np.floating]) -> Truths:
    """Return which rows match the conditions of each rule.

    Parameters
    ----------
    found : RuleList
        Rules with conditions on single columns, without fractional instances.
    matrix : (rows, features) float
        Numbers of the input type, codes of categories, NaN = missing.

    Returns
    -------
    (rules, rows) bool
        C-ordered: each condition is one pass over a column.
    """
    table, schema = found.conditions, found.schema
    result = np.ones((len(found), len(matrix)), dtype=np.bool_)
    owner = np.repeat(np.arange(len(found)), np.diff(found.end, prepend=0))
    for feature in np.unique(table.column).tolist():
        here = np.flatnonzero(table.column == feature)
        values = matrix[:, feature].astype(np.float64)
        levels = len(schema.columns[feature].levels)
        if schema.columns[feature].kind == "nominal":
            code = coded(values, levels)
            for at in here.tolist():
                accepts = np.zeros(levels + 1, dtype=np.bool_)
                accepts[table.codes(at)[0]] = True
                accepts[levels] = table.missing[at]
                result[owner[at]] &= accepts[code]
        else:
            _numeric(found, here, owner, values, result)
    return result


def _numeric(
    found: RuleList,
    here: npt.NDArray[np.int64],
    owner: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    result: Truths,
) -> None:
    """Narrow `result` by the conditions `here`, all on one numeric column.

    Each value is replaced by the number of bounds below it, so that an interval of small
    integers is tested with one comparison.
    """
    table = found.conditions
    low, high = table.low[here], table.high[here]
    bounds = np.unique(np.concatenate([low, high]))
    bounds = bounds[np.isfinite(bounds)]
    first = np.where(low == -np.inf, 0, np.searchsorted(bounds, low) + 1)
    last = np.where(high == np.inf, len(bounds), np.searchsorted(bounds, high))
    gone = np.isnan(values)
    cell = np.searchsorted(bounds, values).astype(np.uint32)
    cell[gone] = np.iinfo(np.uint32).max
    absent = np.flatnonzero(gone)
    for at, start, stop in zip(here.tolist(), first.tolist(), last.tolist(), strict=True):
        met = np.zeros(len(values), dtype=np.bool_)
        if table.known[at] and start <= stop:
            # Unsigned: cells below the first wrap around to large numbers.
            met = cell - np.uint32(start) <= np.uint32(stop - start)
        met[absent] = table.missing[at]
        result[owner[at]] &= met


# ---------------------------------------------------------------- weighted rows


class Weighed(NamedTuple):
    """Rows with weights, as arrays.

    Attributes
    ----------
    matrix : (rows, features) float32 or float64
    y : (rows, outputs) int64 or float64
    weight : (rows,) float64
    """

    matrix: npt.NDArray[np.floating[Any]]
    y: npt.NDArray[Any]
    weight: npt.NDArray[np.float64]

    def take(self, rows: npt.NDArray[Any]) -> Weighed:
        """Return some of the rows, given by index or by mask."""
        return Weighed(self.matrix[rows], self.y[rows], self.weight[rows])


def read_rows(
    source: Any, target: str | Sequence[str] | None, model: Model | None, reading: Mapping[str, Any]
) -> Dataset:
    """Read the rows of a table, with the model's schema if a model is given.

    Parameters
    ----------
    source : table
    target : str, or sequence of str, optional
        Defaults to the model's targets, and must equal them.
    model : Model, optional
    reading : mapping
        Options for reading a table without a model; see `treekit.data.dataset.make_dataset`.

    Raises
    ------
    DataError, SettingError
    """
    if model is None:
        if target is None:
            raise SettingError("name the target column, or pass a model")
        return make_dataset(source, target, **reading)
    own = [output.name for output in model.schema.outputs]
    if target is not None and own != ([target] if isinstance(target, str) else list(target)):
        raise SettingError(f"the model predicts {', '.join(map(repr, own))}, not {target!r}")
    strange = [key for key in reading if key != "weights"]
    if strange:
        raise SettingError(
            f"{strange[0]} configures how to read a table for a new forest, but the model's schema "
            "defines it; leave it out"
        )
    weights = reading.get("weights")
    return make_validation(
        source, model.schema, weights=weights, missing=model.missing, unknown=model.unknown,
        noun="the table",
    )  # fmt: skip


def weighed(dataset: Dataset, class_weight: Any, model: Model | None = None) -> Dataset:
    """Return the dataset with the given class weights, by default those of the model."""
    recorded = {} if model is None else model.settings
    priors = recorded.get("priors") if class_weight is None else None
    if class_weight is None and priors is None:
        class_weight = recorded.get("class_weight")
    weights = class_weights(dataset, class_weight, priors)
    if weights is None:
        return dataset
    return with_class_weights(dataset, keeping_weight(dataset, weights))


def rows_and_weights(dataset: Dataset) -> Weighed:
    """Return the rows with positive weight.

    Raises
    ------
    DataError
        If there is none.
    """
    statistical = dataset.statistical_weights
    weight = np.ones(dataset.n_rows) if statistical is None else statistical.astype(np.float64)
    some = weight > 0
    if not some.any():
        raise DataError("no row of the table has a positive weight; at least one is needed")
    kind = np.int64 if dataset.schema.task == "classification" else np.float64
    y = dataset.y.reshape(dataset.n_rows, -1).astype(kind)
    found = Weighed(dataset.matrix(), y, weight)
    return found if some.all() else found.take(some)


def check_count(name: str, value: Any, least: int, most: int) -> None:
    """Check that a value is an integer from `least` to `most`."""
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or not least <= value <= most:
        raise SettingError(f"{name} is {value!r}; expected an integer from {least} to {most}")


# ---------------------------------------------------------------- dependence
# SIRUS drops rules that are linear combinations of more frequent ones and the constant
# (Bénard, Biau, da Veiga and Scornet 2021, "SIRUS: Stable and interpretable rule set for
# classification", Electronic Journal of Statistics 15, section 2.2).

_NOISE = 1e-10
"""Relative squared length attributed to rounding; a rule of ten million rows that differs
in one row from a combination of others leaves 1e-7."""


def independent(met: npt.NDArray[np.bool_], most: int | None = None) -> npt.NDArray[np.int64]:
    """Select the rules that are not linear combinations of earlier ones and the constant.

    Twice iterated Gram-Schmidt (Giraud, Langou and Rozložník 2005): each rule costs two
    products with the current basis.

    Parameters
    ----------
    met : (rules, rows) bool
        In the order of preference.
    most : int, optional
        Maximum number of rules to select.

    Returns
    -------
    (kept,) int64
        Ascending.
    """
    n_rules, n_rows = met.shape
    room = min(n_rules, max(n_rows - 1, 0), n_rules if most is None else most)
    basis = np.empty((room, n_rows))
    selected: list[int] = []
    for number, indicator in enumerate(met):
        if len(selected) == room:
            break
        known = basis[: len(selected)]
        rest = indicator - indicator.mean()
        for _ in range(2):
            rest -= (known @ rest) @ known
            rest -= rest.mean()
        left = float(rest @ rest)
        if left > _NOISE * max(float(np.count_nonzero(indicator)), 1.0):
            basis[len(selected)] = rest / np.sqrt(left)
            selected.append(number)
    return np.array(selected, dtype=np.int64)
