"""Candidate rules of a model's trees, and the rows that they match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset, make_dataset, make_validation
from treekit.errors import DataError, SettingError
from treekit.model.model import Model, make_model
from treekit.model.tree import Tree
from treekit.rules.evaluate import make_cells
from treekit.rules.extract import (
    rules,
)
from treekit.rules.rule_list import RuleList, concatenate_rules, take_rules
from treekit.training.class_weights import (
    apply_class_weights,
    compute_class_weights,
    rescale_factors,
)
from treekit_rule_learning.generalised_paths import check_not_rule_list

__all__ = [
    "WeightedRows",
    "check_count",
    "compute_indicators",
    "extract_candidates",
    "find_independent",
    "make_weighted_rows",
    "number_distinct_rules",
    "read_rows",
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


# ---------------------------------------------------------------- indicators

Truths = npt.NDArray[np.bool_]

_CONDITIONS_PER_BLOCK = 1024
"""Conditions whose bounds cut a column at once."""


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
        column = schema.columns[feature]
        n_levels = len(column.levels) if column.kind == "nominal" else None
        for first in range(0, len(here), _CONDITIONS_PER_BLOCK):
            at = here[first : first + _CONDITIONS_PER_BLOCK]
            find_cells, accepts = make_cells(table, at, n_levels)
            cells = find_cells(values)
            for rule, accepted in zip(owner[at].tolist(), accepts.T.copy(), strict=True):
                result[rule] &= accepted[cells]
    return result


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
    if class_weight == "balanced_subsample":  # rules are weighed by all rows
        class_weight = "balanced"
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
