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
from treekit.grow.target_statistics import round_weights
from treekit.model.fixed_point import MASS
from treekit.model.model import Model, make_model, predict_labels
from treekit.model.tree import Split, Tree
from treekit.rules.evaluate import pack_bits
from treekit.rules.extract import (
    is_rule_list,
    list_leaves_depth_first,
    list_path_nodes,
    make_edge_conditions,
    rules,
)
from treekit.rules.rule_list import ConditionTable, RuleList, sanitize_codes, take_rules
from treekit.training.class_weights import (
    apply_class_weights,
    compute_class_weights,
    rescale_factors,
)

__all__ = [
    "Bits",
    "PathCondition",
    "RowSets",
    "TreePaths",
    "check_count",
    "check_not_rule_list",
    "compute_indicators",
    "concatenate_rules",
    "extract_candidates",
    "extract_paths",
    "find_independent",
    "find_matching_rows",
    "find_union_and_repeats",
    "make_row_sets",
    "make_weighted_rows",
    "merge_conditions",
    "number_distinct_rules",
    "read_rows",
    "unpack_bits",
    "weigh_classes",
]


# ---------------------------------------------------------------- candidate rules

Index = npt.NDArray[np.int64]


def extract_candidates(model: Model, depth: int) -> RuleList:
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
    check_not_rule_list(model)
    plain = [_drop_surrogates(tree) for tree in model.trees]
    parts = [_extract_at_depth(model, plain, k) for k in range(1, depth + 1) if k <= model.depth]
    parts = [part for part in parts if len(part)]
    if not parts:
        raise DataError(
            "the model has no rules to choose from: its trees are single leaves or have only "
            "oblique splits; train a forest with splits on single columns"
        )
    return concatenate_rules(parts)


def check_not_rule_list(model: Model) -> None:
    """Raise `ModelError` if the model is a rule list, which has no paths."""
    if is_rule_list(model):
        raise ModelError(
            "the model is a rule list already and has no paths; pass the tree or forest that the "
            "list was made from"
        )


def _drop_surrogates(tree: Tree) -> Tree:
    """Return a tree without surrogates."""
    if not len(tree.surrogate_feature):
        return tree
    none = np.zeros(tree.n_nodes + 1, dtype=np.int64)
    empty, no_numbers = np.empty(0, dtype=np.int32), np.empty(0)
    return replace(
        tree, surrogate_offsets=none, surrogate_feature=empty, surrogate_threshold=no_numbers,
        surrogate_below=empty, surrogate_above=empty, surrogate_lost=empty,
        surrogate_level_offsets=none[:1], surrogate_level_branch=empty,
    )  # fmt: skip


def _extract_at_depth(model: Model, trees: Sequence[Tree], depth: int) -> RuleList:
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
    oblique = np.add.reduceat(np.append(sums, False), _find_condition_starts(found)) > 0
    # reduceat gives rules without conditions the value of the next rule.
    oblique &= found.end > _find_condition_starts(found)
    bare = take_rules(found, np.flatnonzero(here & ~oblique))
    return replace(bare, tests=(), units=np.zeros_like(bare.units), value=None)


def _find_condition_starts(found: RuleList) -> Index:
    """Return (rules,) int64: where the conditions of each rule begin."""
    return np.append(0, found.end[:-1])


def concatenate_rules(parts: Iterable[RuleList]) -> RuleList:
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


def number_distinct_rules(found: RuleList) -> Index:
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

_MAX_CELLS = 1 << 22
"""Number of (condition, row) cells evaluated at once, one byte each."""


class PathCondition(NamedTuple):
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
class TreePaths:
    """Paths of one tree.

    Attributes
    ----------
    conditions : ConditionTable
        Condition of the step to each node; the root accepts everything.
    leaf : (leaves,) int64
        From the leftmost path to the rightmost.
    node, end : (steps,) and (leaves,) int64
        Nodes from below the root to each leaf, path after path, and where each path ends.
    label : (leaves,) int64
        Class predicted by each leaf.
    """

    conditions: ConditionTable
    leaf: Index
    node: Index
    end: Index
    label: Index


def extract_paths(model: Model, number: int) -> TreePaths:
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
    _check_axis_splits(tree, number)
    leaf = list_leaves_depth_first(tree)
    node, end = list_path_nodes(tree, leaf)
    units = model.tree_units(number)[np.searchsorted(tree.leaves, leaf)]
    return TreePaths(
        _make_step_conditions(model, tree), leaf, node, end, predict_labels(units, None)
    )


def _check_axis_splits(tree: Tree, number: int) -> None:
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


def _make_step_conditions(model: Model, tree: Tree) -> ConditionTable:
    """Return the condition of each node's step, without fractional instances."""
    parent = tree.parent
    up = np.maximum(parent, 0)
    branch = np.arange(tree.n_nodes) - tree.first_child[up]
    absence = (parent >= 0) & (tree.kind[up] == Split.MISSING)
    takes = np.where(absence, branch == 0, branch == tree.missing[up]) & (parent >= 0)
    if model.missing == "fractional":
        takes &= absence
    bounds = np.stack([np.zeros(tree.n_nodes, np.int64), np.where(takes, MASS, 0)], axis=1)
    table = make_edge_conditions(tree, bounds, model.schema.n_levels)
    if model.missing == "error":
        table = table._replace(missing=table.missing & ~table.known)
    # Categories that follow the missing direction are accepted like others.
    known = table.known | (table.dividing > 0)
    return table._replace(known=known, dividing=np.zeros_like(table.dividing))


def merge_conditions(asked: ConditionTable, nodes: Iterable[int]) -> tuple[PathCondition, ...]:
    """Merge the conditions of some steps to one per column, in the order of first use."""
    found: dict[int, PathCondition] = {}
    for node in nodes:
        column = int(asked.column[node])
        own = PathCondition(
            column, float(asked.low[node]), float(asked.high[node]), bool(asked.known[node]),
            bool(asked.missing[node]), tuple(sorted(asked.list_codes(node)[0])),
        )  # fmt: skip
        found[column] = _intersect_conditions(found[column], own) if column in found else own
    return tuple(found.values())


def _intersect_conditions(one: PathCondition, other: PathCondition) -> PathCondition:
    """Intersect two conditions on a column; a bare "is known" lists every category."""
    known = one.known and other.known
    levels = tuple(level for level in one.levels if level in set(other.levels)) if known else ()
    low, high = max(one.low, other.low), min(one.high, other.high)
    if not known:
        low, high = -np.inf, np.inf
    elif one.levels:
        known = len(levels) > 0
    return PathCondition(one.column, low, high, known, one.missing and other.missing, levels)


def find_matching_rows(
    asked: ConditionTable, matrix: npt.NDArray[np.floating], n_levels: Index
) -> Bits:
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
    block = max(_MAX_CELLS // max(n_rows, 1), 1)
    for column in np.unique(asked.column).tolist():
        at = np.flatnonzero(asked.column == column)
        values = matrix[:, column].astype(np.float64)
        for first in range(0, len(at), block):
            own = at[first : first + block]
            if n_levels[column] > 0:
                cells = sanitize_codes(values, int(n_levels[column]))
                met = _list_accepted_levels(asked, own, int(n_levels[column]))[:, cells]
            else:
                met = _test_intervals(asked, own, values)
            found[own] = pack_bits(met)
    return found


def _test_intervals(
    asked: ConditionTable, at: Index, values: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Return (conditions, rows) bool, for a numeric column."""
    met = values <= asked.high[at, None]
    bounded = np.flatnonzero(asked.low[at] > -np.inf)
    met[bounded] &= values > asked.low[at[bounded], None]
    met[~asked.known[at]] = False
    met[:, np.isnan(values)] = asked.missing[at, None]
    return met


def _list_accepted_levels(asked: ConditionTable, at: Index, n_levels: int) -> npt.NDArray[np.bool_]:
    """Return the levels each condition accepts, missing last: (conditions, levels + 1) bool."""
    accepts = np.zeros((len(at), n_levels + 1), dtype=np.bool_)
    for row, condition in enumerate(at.tolist()):
        accepts[row, asked.list_codes(condition)[0]] = True
    accepts[:, -1] = asked.missing[at]
    return accepts


# ---------------------------------------------------------------- row sets
# Sets of rows as 64-bit words with one bit per row: intersections and differences are word
# operations on 64 rows at a time, and the weight of a set is a count of its bits.

Bits = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.float64]

_BLOCK_WORDS = 1 << 17
"""Words processed at once, so that they and their results stay in the cache."""


@dataclass(frozen=True, eq=False)
class RowSets:
    """Rows to evaluate rules on, as bit sets.

    Attributes
    ----------
    y : (rows,) int32
        Class of each row.
    row_weights : (rows,) float64
        Weights rounded to fixed point, so that their sums are exact in any order.
    is_unweighted : bool
        Whether every row has weight 1.
    all_rows : (words,) uint64
        All rows.
    class_rows : (classes, words) uint64
        Rows of each class.
    class_totals : (classes,) float64
        Their weights.
    """

    y: npt.NDArray[np.int32]
    row_weights: Numbers
    is_unweighted: bool
    all_rows: Bits
    class_rows: Bits
    class_totals: Numbers

    @property
    def n_rows(self) -> int:
        """Number of rows, including those without weight."""
        return len(self.y)

    def weigh_intersections(self, sets: Bits, within: Bits) -> Numbers:
        """Return (sets,) float64: weight of the intersection of each set with `within`.

        Linear in the words, plus a third of that for each set bit if rows have weights.
        """
        found = np.empty(len(sets))
        block = max(_BLOCK_WORDS // max(sets.shape[1], 1), 1)
        for first in range(0, len(sets), block):
            both = sets[first : first + block] & within
            found[first : first + block] = self._weigh_sets(both)
        return found

    def _weigh_sets(self, sets: Bits) -> Numbers:
        if self.is_unweighted:
            return np.asarray(np.bitwise_count(sets).sum(axis=1, dtype=np.int64), np.float64)
        from treekit.kernels.rule_bitsets import weigh_sets

        sums = np.empty(len(sets))
        weigh_sets(sets, self.row_weights, sums)
        return sums


def make_row_sets(rows: Dataset) -> RowSets:
    """Return the rows of a dataset with one class target."""
    w, _ = round_weights(rows.n_rows, rows.weights)
    y = np.ascontiguousarray(rows.y, dtype=np.int32)
    n_classes = len(rows.schema.classes)
    totals = np.bincount(y, w, n_classes).astype(np.float64)
    if not totals.sum() > 0:
        raise DataError("no row has a positive weight; at least one is needed")
    return RowSets(
        y=y,
        row_weights=w,
        is_unweighted=bool((w == 1.0).all()),
        all_rows=pack_bits(np.ones((1, len(y)), dtype=np.bool_))[0],
        class_rows=pack_bits(y == np.arange(n_classes)[:, None]),
        class_totals=totals,
    )


def unpack_bits(sets: Bits, n_rows: int) -> npt.NDArray[np.bool_]:
    """Unpack bit sets to (sets, rows) bool."""
    octets = np.ascontiguousarray(sets.astype("<u8", copy=False)).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=n_rows, bitorder="little").view(np.bool_)


def find_union_and_repeats(sets: Bits, n_words: int) -> tuple[Bits, Bits]:
    """Return (words,) uint64: members of at least one set, and of at least two."""
    some = np.zeros(n_words, dtype=np.uint64)
    several = np.zeros(n_words, dtype=np.uint64)
    for each in sets:
        several |= some & each
        some |= each
    return some, several


# ---------------------------------------------------------------- indicators

Truths = npt.NDArray[np.bool_]


def compute_indicators(found: RuleList, matrix: npt.NDArray[np.floating]) -> Truths:
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
            code = sanitize_codes(values, levels)
            for at in here.tolist():
                accepts = np.zeros(levels + 1, dtype=np.bool_)
                accepts[table.list_codes(at)[0]] = True
                accepts[levels] = table.missing[at]
                result[owner[at]] &= accepts[code]
        else:
            _apply_numeric_conditions(found, here, owner, values, result)
    return result


def _apply_numeric_conditions(
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


class WeightedRows(NamedTuple):
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

    def take(self, rows: npt.NDArray[Any]) -> WeightedRows:
        """Return some of the rows, given by index or by mask."""
        return WeightedRows(self.matrix[rows], self.y[rows], self.weight[rows])


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
        raise SettingError(
            f"the model predicts {', '.join(map(repr, own))}, not {target!r}; pass no target"
        )
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


def weigh_classes(dataset: Dataset, class_weight: Any, model: Model | None = None) -> Dataset:
    """Return the dataset with the given class weights, by default those of the model."""
    recorded = {} if model is None else model.settings
    priors = recorded.get("priors") if class_weight is None else None
    if class_weight is None and priors is None:
        class_weight = recorded.get("class_weight")
    weights = compute_class_weights(dataset, class_weight, priors)
    if weights is None:
        return dataset
    return apply_class_weights(dataset, rescale_factors(dataset, weights))


def make_weighted_rows(dataset: Dataset) -> WeightedRows:
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
    found = WeightedRows(dataset.to_matrix(), y, weight)
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

_ROUNDING_NOISE = 1e-10
"""Relative squared length attributed to rounding; a rule of ten million rows that differs
in one row from a combination of others leaves 1e-7."""


def find_independent(met: npt.NDArray[np.bool_], most: int | None = None) -> npt.NDArray[np.int64]:
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
        if left > _ROUNDING_NOISE * max(float(np.count_nonzero(indicator)), 1.0):
            basis[len(selected)] = rest / np.sqrt(left)
            selected.append(number)
    return np.array(selected, dtype=np.int64)
