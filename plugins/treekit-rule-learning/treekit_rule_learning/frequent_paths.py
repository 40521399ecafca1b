"""SIRUS: a short list of the rules that occur in most trees of a forest.

Bénard, Biau, da Veiga and Scornet 2021, "SIRUS: Stable and interpretable rule set for
classification", Electronic Journal of Statistics 15, pp. 427-505; for numbers,
"Interpretable random forests via rule extraction", AISTATS 2021.

Trees are shallow and split only at quantiles of the table, so that the same paths recur in
many of them.  The list consists of the most frequent ones, without linear combinations of
others.  Classification: each rule predicts the class shares of the rows that match it, or of
those that do not, and the list predicts the mean, which shrinks towards the overall shares;
use class weights to predict rare classes.  Regression: the means of the rules are combined
by ridge regression with nonnegative weights.

>>> learned = sirus("bank.csv", "y", rules=20, class_weight="balanced")
>>> print(learned.rules)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.errors import SettingError
from treekit.model.fixed_point import MASS
from treekit.model.model import Model
from treekit.model.tree import Split, Tree
from treekit.rules.rule_list import RuleList, concatenate_rules, take_rules
from treekit_rule_learning.candidates import (
    WeightedRows,
    check_count,
    compute_indicators,
    extract_candidates,
    find_independent,
    make_weighted_rows,
    number_distinct_rules,
    read_rows,
    weigh_classes,
)
from treekit_rule_learning.linear_models import (
    draw_folds,
    fit_nonnegative_ridge,
    select_smallest_size,
)
from treekit_rule_learning.report import (
    ShortList,
    compute_mean_auc,
    compute_r_squared,
    evaluate_short_list,
)
from treekit_rule_learning.weighted_rules import make_weighted_list

__all__ = [
    "CutPoints",
    "FrequentRules",
    "SirusTask",
    "compute_cut_points",
    "compute_dice_index",
    "compute_half_stability",
    "count_paths",
    "find_complete_columns",
    "make_additive_list",
    "make_mean_list",
    "predict_stages",
    "select_independent_rules",
    "select_size",
    "sirus",
]


# ---------------------------------------------------------------- sirus


def sirus(
    source: Any,
    target: str | Sequence[str] | None = None,
    *,
    model: Model | None = None,
    rules: int | None = 10,
    most: int = 25,
    above: float = 0.0,
    trees: int = 300,
    depth: int = 2,
    quantiles: int = 10,
    seed: int = 0,
    class_weight: Any = None,
    test: Any = None,
    reading: dict[str, Any] | None = None,
    **settings: Any,
) -> ShortList:
    """Select a short list of rules from a new forest, or from a given one.

    Parameters
    ----------
    source : table
        Any table with the target.
    target : str, or sequence of str, optional
        Needed without a model.
    model : Model, optional
        Source of the rules, trained or imported.  Its thresholds are moved to the nearest
        quantile of the table, and its paths are cut at `depth`.
    rules : int, optional
        Maximum number of rules; None: the smallest number up to `most` whose cross-validation
        error is within one standard error of the best; see `treekit_rule_learning.sirus`.
    above : float
        Rules in at most this fraction of the trees are left out: the paper's p0.
    trees, depth, quantiles : int
        Size of the forest; the cut points of a column are its 1/q, ..., (q - 1)/q quantiles.
    class_weight : optional
        As in training, also applied to the shares; default the model's.
    test : table, optional
        Rows for the report; default those of `source`.
    reading : dict, optional
        Options for reading the table; see `treekit.data.dataset.make_dataset`.
    **settings
        Settings of a new forest, as in `treekit.train`.

    Returns
    -------
    ShortList

    Raises
    ------
    DataError, SettingError
    """
    if rules is not None:
        check_count("rules", rules, 1, 10_000)
    for name, value, least in (("most", most, 1), ("depth", depth, 1), ("quantiles", quantiles, 2)):
        check_count(name, value, least, 10_000)
    if not 0 <= above < 1:
        raise SettingError(f"above is {above!r}; expected a fraction from 0 to below 1")
    if model is not None and settings:
        raise SettingError(
            f"{next(iter(settings))} is a setting of a new forest, but a model is given; leave "
            "one of them out"
        )
    dataset = weigh_classes(read_rows(source, target, model, reading or {}), class_weight, model)
    own = {"trees": trees, "seed": seed} | settings
    task = SirusTask(dataset, model, compute_cut_points(dataset, quantiles), depth, above, own)
    found = task.count_forest_paths(task.forest)
    size, fold_stability = (rules, np.nan) if rules is not None else select_size(task, most, seed)
    listed, frequency = task.make_list(found, make_weighted_rows(dataset), size)
    judges = dataset if test is None else read_rows(test, None, task.forest, {})
    return evaluate_short_list(
        listed, task.forest, judges, frequency=frequency, fold_stability=fold_stability,
        stability=compute_half_stability(task, size),
    )  # fmt: skip


# ---------------------------------------------------------------- stable
# Path frequencies, the first half of SIRUS (Bénard et al. 2021, "SIRUS", section 2).


class FrequentRules(NamedTuple):
    """Distinct rules, most frequent first; ties: shallow rules, then the first found.

    Attributes
    ----------
    rules : RuleList
    frequency : (rules,) float64
        Fraction of the trees that contain the path.
    """

    rules: RuleList
    frequency: npt.NDArray[np.float64]


def find_complete_columns(dataset: Dataset) -> npt.NDArray[np.bool_]:
    """Return (features,) bool: columns without missing values."""
    return np.array(
        [not ((c < 0) if c.dtype.kind == "i" else np.isnan(c)).any() for c in dataset.columns],
        dtype=np.bool_,
    )


def count_paths(
    model: Model,
    depth: int,
    cuts: CutPoints | None,
    complete: npt.NDArray[np.bool_],
    trees: slice = slice(None),
) -> FrequentRules:
    """Count the distinct paths of a forest's trees down to a depth.

    Parameters
    ----------
    model : Model
    depth : int
    cuts : CutPoints, optional
        Cut points that bounds are moved to first; None if they are there already.
    complete : (features,) bool
        Columns without missing values.  The missing direction in them is arbitrary and must
        not distinguish paths: a missing value matches no condition.
    trees : slice
        Subset of the trees.
    """
    some = replace(model, trees=model.trees[trees])
    found = extract_candidates(some, depth)
    found = found if cuts is None else cuts.snap_rules(found)
    table = found.conditions
    sure = complete[table.column] & table.known
    missing = table.missing & ~sure
    whole = np.where(missing, MASS, 0).astype(np.int32)
    found = replace(found, conditions=table._replace(missing=missing, part_high=whole))
    found = take_rules(found, np.flatnonzero(_find_satisfiable(found)))
    key = number_distinct_rules(found)
    # A path counts once per tree; moved bounds may make the paths of two nodes equal.
    pairs = np.unique(np.column_stack([key, found.tree]), axis=0)
    count = np.bincount(pairs[:, 0])
    first = np.unique(key, return_index=True)[1]
    order = np.lexsort((first, -count))
    return FrequentRules(take_rules(found, first[order]), count[order] / some.n_trees)


def _find_satisfiable(found: RuleList) -> npt.NDArray[np.bool_]:
    """Return (rules,) bool: rules that some value satisfies; moved bounds may have collided."""
    table = found.conditions
    owner = np.repeat(np.arange(len(found)), np.diff(found.end, prepend=0))
    empty = np.bincount(owner, ~table.known & ~table.missing, len(found))
    possible: npt.NDArray[np.bool_] = empty == 0
    return possible


def select_independent_rules(
    frequent: FrequentRules, rows: WeightedRows, most: int, above: float
) -> tuple[RuleList, npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Select the first rules that are not linear combinations of earlier ones.

    Parameters
    ----------
    frequent : FrequentRules
    rows : WeightedRows
        Rows on which the rules are compared.
    most : int
        Maximum number of rules.
    above : float
        Rules of this frequency or a lower one are left out.

    Returns
    -------
    rules : RuleList
    met : (rules, rows) bool
    frequency : (rules,) float64
    """
    n = int(np.count_nonzero(frequent.frequency > above))
    step = max(4 * most, 64)
    blocks: list[tuple[RuleList, npt.NDArray[np.bool_]]] = []
    numbers = np.empty(0, dtype=np.int64)
    for first in range(0, n, step):
        block = take_rules(frequent.rules, np.arange(first, min(first + step, n)))
        before = [met for _, met in blocks]
        met = np.concatenate([*before, compute_indicators(block, rows.matrix)])
        found = find_independent(met, most)
        new = found[found >= len(numbers)] - len(numbers)
        blocks.append((take_rules(block, new), met[len(numbers) :][new]))
        numbers = np.append(numbers, first + new)
        if len(numbers) >= most:
            break
    if not blocks:
        none = take_rules(frequent.rules, numbers)
        return none, np.empty((0, len(rows.weight)), dtype=np.bool_), np.empty(0)
    chosen = concatenate_rules([own for own, _ in blocks])
    return chosen, np.concatenate([met for _, met in blocks]), frequent.frequency[numbers]


def compute_dice_index(first: RuleList, second: RuleList) -> float:
    """Return the Dice-Sorensen index of two sets of rules: 1 if equal, 0 if disjoint.

    Twice the number of common rules, divided by the sum of both sizes.
    """
    if not len(first) and not len(second):
        return 1.0
    key = number_distinct_rules(concatenate_rules([first, second]))
    both = np.intersect1d(key[: len(first)], key[len(first) :])
    return 2 * len(both) / (len(first) + len(second))


# ---------------------------------------------------------------- selection


@dataclass(eq=False)
class SirusTask:
    """Selection of short lists from forests on various subsets of the rows.

    Attributes
    ----------
    dataset : Dataset
    given_forest : Model, optional
        Given forest; None: forests are grown.
    cuts : CutPoints
        Cut points from all rows; they do not depend on the target.
    depth : int
    min_frequency : float
        Rules in at most this fraction of the trees are left out.
    settings : dict
        Settings of grown forests.
    """

    dataset: Dataset
    given_forest: Model | None
    cuts: CutPoints
    depth: int
    min_frequency: float
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        self.complete_columns = find_complete_columns(self.dataset)
        self.encoded_dataset = self.cuts.encode_dataset(self.dataset)
        self.forest = self.get_forest(None)

    def get_forest(self, rows: npt.NDArray[np.int64] | None) -> Model:
        """Return the given forest, or grow shallow trees on `rows`, with splits at the cuts."""
        if self.given_forest is not None:
            return self.given_forest
        from treekit.training import fit

        usual = {
            "ensemble": "forest", "max_depth": self.depth, "oob": False,
            "max_features": max(self.dataset.schema.n_features // 3, 1),
            # One category against the rest recurs in many trees; sets of categories vary.
            "nominal_splits": "one_vs_rest",
        }  # fmt: skip
        part = self.encoded_dataset if rows is None else self.encoded_dataset.take(rows)
        return self.cuts.decode_model(fit(part, usual | self.settings).model)

    def count_forest_paths(self, forest: Model, trees: slice = slice(None)) -> FrequentRules:
        """Count the forest's paths."""
        cuts = None if self.given_forest is None else self.cuts
        return count_paths(forest, self.depth, cuts, self.complete_columns, trees)

    def make_list(
        self, found: FrequentRules, rows: WeightedRows, size: int
    ) -> tuple[RuleList, npt.NDArray[np.float64]]:
        """Return a list of at most `size` rules, and their frequencies."""
        chosen, met, frequency = select_independent_rules(found, rows, size, self.min_frequency)
        if self.dataset.schema.task == "classification":
            return make_mean_list(chosen, met, rows), frequency
        made, kept = make_additive_list(chosen, met, rows)
        return made, frequency[kept]


# ---------------------------------------------------------------- sizes
# Choice of the size by cross-validation of the error, and stability as the Dice-Sorensen
# index of lists from different folds (Bénard et al. 2021, section 4).


def select_size(task: SirusTask, most: int, seed: int) -> tuple[int, float]:
    """Choose the smallest number of rules with about the lowest cross-validation error.

    Each fold is held out once: a list is selected from a forest grown on the other rows (or
    from the given forest, with rules fitted to the other rows) and evaluated on the fold.
    The error is 1 - AUC, or the unexplained fraction of the variance; `fewest` chooses.

    Returns
    -------
    size : int
    stability : float
        Mean Dice-Sorensen index of the lists of this size from any two folds.
    """
    fold = draw_folds(task.dataset.n_rows, seed)
    errors = np.full((int(fold.max()) + 1, most), np.nan)
    lists: list[RuleList] = []
    for number in range(len(errors)):
        training = make_weighted_rows(task.dataset.take(np.flatnonzero(fold != number)))
        held_out = make_weighted_rows(task.dataset.take(np.flatnonzero(fold == number)))
        found = task.count_forest_paths(task.get_forest(np.flatnonzero(fold != number)))
        chosen, met, _ = select_independent_rules(found, training, most, task.min_frequency)
        lists.append(chosen)
        met_by_others = compute_indicators(chosen, held_out.matrix)
        for at, predicted in enumerate(predict_stages(chosen, met, training, met_by_others)):
            errors[number, at] = _compute_error(chosen, predicted, held_out)
    if np.isnan(errors).all():  # one class in each fold, or no rules: all sizes are equal
        return 1, np.nan
    size = select_smallest_size(errors[:, ~np.isnan(errors).all(axis=0)])
    short = [take_rules(own, np.arange(min(size, len(own)))) for own in lists]
    pairs = [compute_dice_index(a, b) for a, b in itertools.combinations(short, 2)]
    return size, float(np.mean(pairs)) if pairs else np.nan


def _compute_error(like: RuleList, predicted: npt.NDArray[np.float64], rows: WeightedRows) -> float:
    """Return 1 - AUC (classes) or 1 - R squared (numbers), averaged over the targets."""
    if like.schema.task == "regression":
        over = range(rows.y.shape[1])
        return 1 - float(
            np.mean([compute_r_squared(predicted[:, k], rows.y[:, k], rows.weight) for k in over])
        )
    blocks = enumerate(itertools.pairwise(like.schema.blocks))
    return 1 - float(
        np.mean(
            [compute_mean_auc(predicted[:, a:b], rows.y[:, k], rows.weight) for k, (a, b) in blocks]
        )
    )


def compute_half_stability(task: SirusTask, size: int) -> float:
    """Return the Dice-Sorensen index of the lists from the even and the odd trees of the forest."""
    if task.forest.n_trees < 2:
        return np.nan
    rows = make_weighted_rows(task.dataset)
    halves = [
        select_independent_rules(
            task.count_forest_paths(task.forest, slice(start, None, 2)),
            rows,
            size,
            task.min_frequency,
        )[0]
        for start in (0, 1)
    ]
    return compute_dice_index(*halves)


# ---------------------------------------------------------------- quantiles
# Cut points at the quantiles of a table, few enough to recur in many trees.
#
# The r-th of q quantiles is the smallest value of the column that r/q of the rows do not
# exceed (Bénard et al. 2021, section 2.1): cuts are values of the table.

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CutPoints:
    """Cut points of a table's columns.

    Attributes
    ----------
    thresholds : tuple of (cuts,) float64
        Ascending, for each column; empty for nominal columns and constants.
    cumulative_shares : tuple of (values,) float64, (values,) float64
        Distinct values of each numeric column, and the cumulative share of their weight.
    """

    thresholds: tuple[Doubles, ...]
    cumulative_shares: tuple[tuple[Doubles, Doubles], ...]

    def encode_dataset(self, dataset: Dataset) -> Dataset:
        """Return the dataset with each number replaced by the number of cuts below it."""
        columns = []
        for column, cuts, nominal in zip(
            dataset.columns, self.thresholds, dataset.schema.nominal, strict=True
        ):
            if nominal:
                columns.append(column)
                continue
            code = np.searchsorted(cuts, column.astype(np.float64)).astype(column.dtype)
            columns.append(np.where(np.isnan(column), column, code))
        return replace(dataset, columns=tuple(columns))

    def decode_model(self, model: Model) -> Model:
        """Convert a model of `coded` rows to a model of the original rows.

        Raises
        ------
        SettingError
            If it has oblique splits, which cannot be converted.
        """
        if any((tree.kind == Split.OBLIQUE).any() for tree in model.trees):
            raise SettingError(
                "the splitter makes oblique splits, but SIRUS needs splits on single columns at "
                "quantiles; choose another splitter"
            )

        def decode_thresholds(feature: int, thresholds: Doubles) -> Doubles:
            return self.thresholds[feature][np.floor(thresholds).astype(np.int64)]

        return replace(
            model, trees=tuple(_map_thresholds(tree, decode_thresholds) for tree in model.trees)
        )

    def snap_rules(self, found: RuleList) -> RuleList:
        """Move the bounds of rules to the nearest cut, by the weight of rows in between.

        Columns without cuts keep their bounds.  Where bounds collide, no known value fits.
        """
        table = found.conditions
        low, high = table.low.copy(), table.high.copy()
        for feature, cuts in enumerate(self.thresholds):
            if not len(cuts):
                continue
            here = np.flatnonzero(table.column == feature)
            for bound in (low, high):
                finite = here[np.isfinite(bound[here])]
                bound[finite] = self._find_nearest(feature, bound[finite])
        met = low >= high
        low[met], high[met] = -np.inf, np.inf
        known = table.known & ~met
        return replace(found, conditions=table._replace(low=low, high=high, known=known))

    def _find_nearest(self, feature: int, bounds: Doubles) -> Doubles:
        """Return the cut with the least weight between it and each bound; ties: the lower one."""
        values, share = self.cumulative_shares[feature]

        def compute_share_below(numbers: Doubles) -> Doubles:
            return np.append(0.0, share)[np.searchsorted(values, numbers, side="right")]

        cuts = self.thresholds[feature]
        far = np.abs(compute_share_below(bounds)[:, None] - compute_share_below(cuts)[None, :])
        nearest: Doubles = cuts[far.argmin(axis=1)]
        return nearest


def _map_thresholds(tree: Tree, decode: Callable[[int, Doubles], Doubles]) -> Tree:
    """Return a tree with replaced thresholds of splits and surrogates."""
    is_threshold = tree.kind == Split.THRESHOLD
    own = _replace_thresholds(tree.feature, tree.threshold, is_threshold, decode)
    if not len(tree.surrogate_feature):
        return replace(tree, threshold=own)
    bounds = tree.surrogate_threshold
    behind = _replace_thresholds(tree.surrogate_feature, bounds, ~np.isnan(bounds), decode)
    return replace(tree, threshold=own, surrogate_threshold=behind)


def _replace_thresholds(
    feature: npt.NDArray[np.int32],
    threshold: Doubles,
    where: npt.NDArray[np.bool_],
    decode: Callable[[int, Doubles], Doubles],
) -> Doubles:
    found = threshold.copy()
    for column in np.unique(feature[where]).tolist():
        here = np.flatnonzero(where & (feature == column))
        found[here] = decode(column, threshold[here])
    return found


def compute_cut_points(dataset: Dataset, quantiles: int) -> CutPoints:
    """Compute the cut points of a dataset at its weighted quantiles.

    The largest value of a column is not a cut: it separates nothing.
    """
    at: list[Doubles] = []
    shares: list[tuple[Doubles, Doubles]] = []
    none = np.empty(0)
    for column, nominal in zip(dataset.columns, dataset.schema.nominal, strict=True):
        if nominal:
            at.append(none)
            shares.append((none, none))
            continue
        known = ~np.isnan(column)
        weights = None if dataset.weights is None else dataset.weights[known]
        values, inverse = np.unique(column[known].astype(np.float64), return_inverse=True)
        share: Doubles = np.cumsum(
            np.bincount(inverse.reshape(-1), weights, len(values)).astype(np.float64)
        )
        share = share / share[-1] if len(share) and share[-1] > 0 else share
        at.append(_compute_quantiles(values, share, quantiles))
        shares.append((values, share))
    return CutPoints(tuple(at), tuple(shares))


def _compute_quantiles(values: Doubles, share: Doubles, quantiles: int) -> Doubles:
    if len(values) <= quantiles:
        return values[:-1]
    # Tolerance: a sum of weights that should be r/q may be rounded down.
    places = np.searchsorted(share, np.arange(1, quantiles) / quantiles - 1e-12)
    return values[np.unique(places[places < len(values) - 1])]


# ---------------------------------------------------------------- rule values
# Shares or means of the rows that match a rule, and of the rest: a rule is a function with
# two values (Bénard et al. 2021, equation 2.5).

Truths = npt.NDArray[np.bool_]


def make_mean_list(chosen: RuleList, met: Truths, rows: WeightedRows) -> RuleList:
    """Make a classifying list that averages the class shares of its rules.

    Without rules, it predicts the shares of all rows.

    Parameters
    ----------
    chosen : RuleList
        Rules without values.
    met : (rules, rows) bool
    rows : WeightedRows
    """
    cells = _spread_weights(chosen, rows)
    return make_weighted_list(
        chosen, _sum_by_match(met, cells), _weigh_by_match(met, rows), combine="mean",
        intercept=None if len(chosen) else cells.sum(axis=0), total=float(rows.weight.sum()),
    )  # fmt: skip


def make_additive_list(
    chosen: RuleList, met: Truths, rows: WeightedRows
) -> tuple[RuleList, npt.NDArray[np.int64]]:
    """Make a regression list that predicts a weighted sum of its rules' means.

    Returns
    -------
    rules : RuleList
    kept : (rules,) int64
        Rules with a nonzero weight for some target; the others are left out.
    """
    means, intercept, slopes = _fit_rule_means(met, rows)
    value = slopes[:, None, :] * means
    kept = np.flatnonzero(slopes.any(axis=1))
    made = make_weighted_list(
        take_rules(chosen, kept), value[kept], _weigh_by_match(met[kept], rows), combine="sum",
        intercept=intercept, total=float(rows.weight.sum()),
    )  # fmt: skip
    return made, kept


def predict_stages(
    chosen: RuleList, met: Truths, rows: WeightedRows, met_by_other_rows: Truths
) -> Iterator[Doubles]:
    """Yield the predictions of the first rule alone, of the first two rules, and so on.

    Returns
    -------
    iterator of (other rows, values) float64
        Shares or numbers for the rows of `met_by_other_rows`.
    """
    if chosen.schema.task == "classification":
        sums = _sum_by_match(met, _spread_weights(chosen, rows))
        total = np.zeros((met_by_other_rows.shape[1], chosen.schema.n_values))
        weight = _weigh_by_match(met, rows)
        for number in range(len(chosen)):
            shares = sums[number] / weight[number][:, None]
            total += np.where(met_by_other_rows[number][:, None], shares[0], shares[1])
            yield total / (number + 1)
        return
    for number in range(len(chosen)):
        means, intercept, slopes = _fit_rule_means(met[: number + 1], rows)
        added = slopes[:, None, :] * means
        here = met_by_other_rows[: number + 1, :, None]
        yield intercept + np.where(here, added[:, :1], added[:, 1:]).sum(axis=0)


def _spread_weights(like: RuleList, rows: WeightedRows) -> Doubles:
    """Return (rows, values) float64: each row's weight at its class, for each target."""
    cells = np.zeros((len(rows.weight), like.schema.n_values))
    at = np.arange(len(rows.weight))
    for output, first in enumerate(like.schema.blocks[:-1]):
        cells[at, first + rows.y[:, output]] = rows.weight
    return cells


def _sum_by_match(met: Truths, cells: Doubles) -> Doubles:
    """Return (rules, 2, values) float64: sums over the rows that match a rule, and the others."""
    inside = met @ cells
    return np.stack([inside, ~met @ cells], axis=1)


def _weigh_by_match(met: Truths, rows: WeightedRows) -> Doubles:
    """Return (rules, 2) float64: weights of the rows that match a rule, and of the others."""
    return np.stack([met @ rows.weight, ~met @ rows.weight], axis=1)


def _fit_rule_means(met: Truths, rows: WeightedRows) -> tuple[Doubles, Doubles, Doubles]:
    """Fit means (rules, 2, targets), intercepts (targets,) and weights (rules, targets)."""
    weight = _weigh_by_match(met, rows)
    centre = np.average(rows.y, axis=0, weights=rows.weight)
    # Centring preserves the digits of numbers far from 0.
    far = _sum_by_match(met, (rows.y - centre) * rows.weight[:, None])
    means = centre + far / weight[:, :, None]
    folds = draw_folds(len(rows.weight))
    intercept, slopes = np.empty(len(centre)), np.empty((len(met), len(centre)))
    for k in range(len(centre)):
        x = np.where(met, means[:, :1, k], means[:, 1:, k]).T
        intercept[k], slopes[:, k] = fit_nonnegative_ridge(x, rows.y[:, k], rows.weight, folds)
    return means, intercept, slopes
