"""SIRUS: a short list of the rules that most trees of a forest agree on.

Bénard, Biau, da Veiga and Scornet 2021, "SIRUS: Stable and interpretable rule set for
classification", Electronic Journal of Statistics 15, pp. 427-505; for numbers,
"Interpretable random forests via rule extraction", AISTATS 2021.

Trees are shallow and split at quantiles of the table only, so that the same paths
return in many of them.  The most frequent ones, without those that are linear
combinations of others, are the list.  Classes: each rule says the shares of the rows
that meet it, or of those that do not, and the list says the mean, which is drawn towards the
shares of all rows: for labels of a rare class, weigh the classes.  Numbers: each
rule's means are weighed by ridge regression with weights that are not negative, and added.

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
from treekit.rule_learning.candidates import (
    Weighed,
    candidate_rules,
    check_count,
    independent,
    indicators,
    interned,
    joined,
    read_rows,
    rows_and_weights,
    weighed,
)
from treekit.rule_learning.linear_models import fewest, folds_of, nonnegative_ridge
from treekit.rule_learning.report import ShortList, judged_short, mean_auc, r_squared
from treekit.rule_learning.weighted_rules import weighted_list
from treekit.rules.rule_list import RuleList, taken

__all__ = [
    "Cuts",
    "Drawing",
    "Frequent",
    "added_list",
    "chosen_size",
    "cuts_of",
    "dice",
    "drawn",
    "frequent_rules",
    "mean_list",
    "never_missing",
    "sirus",
    "stability_of_halves",
    "staged",
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
    """Draw a short list from a forest that is grown for it, or from one that there is.

    Parameters
    ----------
    source : table
        Any table with the target.
    target : str, or sequence of str, optional
        Needed without a model.
    model : Model, optional
        The forest to draw from, trained or read.  Its thresholds are moved to the nearest
        quantile of the table, and its paths cut at `depth`.
    rules : int, optional
        How many, at most; None: as few as answer about as well as any number up to
        `most`, by cross-validation; see `treekit.rule_learning.sirus`.
    above : float
        Rules that this part of the trees has, or less, are left out: the paper's p0.
    trees, depth, quantiles : int
        Of the forest; the cut points of a column are its 1/q, ..., (q - 1)/q quantiles.
    class_weight : optional
        As in training, of the shares as well; default the model's.
    test : table, optional
        The rows that the report is about; default those of `source`.
    reading : dict, optional
        How to read the table; see `treekit.data.dataset.make_dataset`.
    **settings
        Of the forest that is grown, as in `treekit.train`.

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
        raise SettingError(f"above is {above!r}; give a part of the trees, 0 or more and below 1")
    if model is not None and settings:
        raise SettingError(
            f"{next(iter(settings))} is a setting of a new forest, but a model is given; leave "
            "one of them out"
        )
    dataset = weighed(read_rows(source, target, model, reading or {}), class_weight, model)
    own = {"trees": trees, "seed": seed} | settings
    task = Drawing(dataset, model, cuts_of(dataset, quantiles), depth, above, own)
    found = task.frequent(task.forest)
    size, fold_stability = (rules, np.nan) if rules is not None else chosen_size(task, most, seed)
    listed, frequency = task.listed(found, rows_and_weights(dataset), size)
    judges = dataset if test is None else read_rows(test, None, task.forest, {})
    return judged_short(
        listed, task.forest, judges, frequency=frequency, fold_stability=fold_stability,
        stability=stability_of_halves(task, size),
    )  # fmt: skip


# ---------------------------------------------------------------- stable
# Rules by how many trees of a forest ask them: the first half of SIRUS.
#
# Bénard, Biau, da Veiga and Scornet 2021, "SIRUS: Stable and interpretable rule set for
# classification", Electronic Journal of Statistics 15, section 2.


class Frequent(NamedTuple):
    """Distinct rules, the most frequent first; of equals the shallow, then the first met.

    Attributes
    ----------
    rules : RuleList
    frequency : (rules,) float64
        The part of the trees that have such a path.
    """

    rules: RuleList
    frequency: npt.NDArray[np.float64]


def never_missing(dataset: Dataset) -> npt.NDArray[np.bool_]:
    """(features,) bool: the columns without a missing value."""
    return np.array(
        [not ((c < 0) if c.dtype.kind == "i" else np.isnan(c)).any() for c in dataset.columns],
        dtype=np.bool_,
    )


def frequent_rules(
    model: Model,
    depth: int,
    cuts: Cuts | None,
    complete: npt.NDArray[np.bool_],
    trees: slice = slice(None),
) -> Frequent:
    """The paths of a forest's trees down to a depth, counted.

    Parameters
    ----------
    model : Model
    depth : int
    cuts : Cuts, optional
        Where bounds are moved to first; None: they are there already.
    complete : (features,) bool
        Columns whose values are all known.  Where a missing value goes in them is chance,
        and no reason to tell paths apart: it meets no condition.
    trees : slice
        Which of them.
    """
    some = replace(model, trees=model.trees[trees])
    found = candidate_rules(some, depth)
    found = found if cuts is None else cuts.snapped(found)
    table = found.conditions
    sure = complete[table.column] & table.known
    missing = table.missing & ~sure
    whole = np.where(missing, MASS, 0).astype(np.int32)
    found = replace(found, conditions=table._replace(missing=missing, part_high=whole))
    found = taken(found, np.flatnonzero(_possible(found)))
    key = interned(found)
    # A path counts once a tree: snapped bounds may make two nodes' paths one.
    pairs = np.unique(np.column_stack([key, found.tree]), axis=0)
    count = np.bincount(pairs[:, 0])
    first = np.unique(key, return_index=True)[1]
    order = np.lexsort((first, -count))
    return Frequent(taken(found, first[order]), count[order] / some.n_trees)


def _possible(found: RuleList) -> npt.NDArray[np.bool_]:
    """(rules,) bool: those that some value meets; bounds that were moved may have met."""
    table = found.conditions
    owner = np.repeat(np.arange(len(found)), np.diff(found.end, prepend=0))
    empty = np.bincount(owner, ~table.known & ~table.missing, len(found))
    possible: npt.NDArray[np.bool_] = empty == 0
    return possible


def drawn(
    frequent: Frequent, rows: Weighed, most: int, above: float
) -> tuple[RuleList, npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """The first rules that are no linear combination of those before them.

    Parameters
    ----------
    frequent : Frequent
    rows : Weighed
        The functions are compared on these rows.
    most : int
        How many are kept at most.
    above : float
        Rules of this frequency or a lower one are not.

    Returns
    -------
    rules : RuleList
    met : (rules, rows) bool
    frequency : (rules,) float64
    """
    n = int(np.count_nonzero(frequent.frequency > above))
    step = max(4 * most, 64)
    kept: list[tuple[RuleList, npt.NDArray[np.bool_]]] = []
    numbers = np.empty(0, dtype=np.int64)
    for first in range(0, n, step):
        block = taken(frequent.rules, np.arange(first, min(first + step, n)))
        before = [met for _, met in kept]
        met = np.concatenate([*before, indicators(block, rows.matrix)])
        found = independent(met, most)
        new = found[found >= len(numbers)] - len(numbers)
        kept.append((taken(block, new), met[len(numbers) :][new]))
        numbers = np.append(numbers, first + new)
        if len(numbers) >= most:
            break
    if not kept:
        none = taken(frequent.rules, numbers)
        return none, np.empty((0, len(rows.weight)), dtype=np.bool_), np.empty(0)
    chosen = joined([own for own, _ in kept])
    return chosen, np.concatenate([met for _, met in kept]), frequent.frequency[numbers]


def dice(first: RuleList, second: RuleList) -> float:
    """The Dice-Sorensen index of two lists' sets of rules: 1 if they are equal, 0 if disjoint.

    Twice the number of rules in both, divided by the sum of their numbers.
    """
    if not len(first) and not len(second):
        return 1.0
    key = interned(joined([first, second]))
    both = np.intersect1d(key[: len(first)], key[len(first) :])
    return 2 * len(both) / (len(first) + len(second))


# ---------------------------------------------------------------- drawing
# Drawing short lists from a forest, as often as a choice of their size needs.


@dataclass(eq=False)
class Drawing:
    """What lists of one call have in common, whatever rows they are drawn from.

    Attributes
    ----------
    dataset : Dataset
    given : Model, optional
        The forest that there is; None: forests are grown.
    cuts : Cuts
        Of all rows: they know nothing of the target.
    depth : int
    above : float
        Rules that this part of the trees has, or less, are left out.
    settings : dict
        Of forests that are grown.
    """

    dataset: Dataset
    given: Model | None
    cuts: Cuts
    depth: int
    above: float
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        self.complete = never_missing(self.dataset)
        self.coded = self.cuts.coded(self.dataset)
        self.forest = self.on(None)

    def on(self, rows: npt.NDArray[np.int64] | None) -> Model:
        """The forest given, or one of shallow trees on some of the rows, split at the cuts."""
        if self.given is not None:
            return self.given
        from treekit.training import fit

        usual = {
            "ensemble": "forest", "max_depth": self.depth, "oob": False,
            "max_features": max(self.dataset.schema.n_features // 3, 1),
            # One level against the rest returns in many trees; sets of levels vary.
            "nominal_splits": "one_vs_rest",
        }  # fmt: skip
        part = self.coded if rows is None else self.coded.take(rows)
        return self.cuts.decoded(fit(part, usual | self.settings).model)

    def frequent(self, forest: Model, trees: slice = slice(None)) -> Frequent:
        """The forest's paths, counted."""
        cuts = None if self.given is None else self.cuts
        return frequent_rules(forest, self.depth, cuts, self.complete, trees)

    def listed(
        self, found: Frequent, rows: Weighed, size: int
    ) -> tuple[RuleList, npt.NDArray[np.float64]]:
        """The list of at most so many rules, and their frequencies."""
        chosen, met, frequency = drawn(found, rows, size, self.above)
        if self.dataset.schema.task == "classification":
            return mean_list(chosen, met, rows), frequency
        made, kept = added_list(chosen, met, rows)
        return made, frequency[kept]


# ---------------------------------------------------------------- sizes
# How many rules are enough, and whether another sample would have given the same ones.
#
# Bénard et al. 2021, section 4: the size is chosen by cross-validation, of error and of
# stability, which is the Dice-Sorensen index of lists from different folds.


def chosen_size(task: Drawing, most: int, seed: int) -> tuple[int, float]:
    """The smallest number of rules that answer about as well as any number up to `most`.

    Each fold is left out once: a list is drawn from a forest of the other rows (or from
    the forest given, whose rules are fitted to the other rows), and judged by the fold.
    The error is 1 - AUC, or the unexplained part of the variance; `fewest` chooses.

    Returns
    -------
    size : int
    stability : float
        Mean Dice-Sorensen index of the lists of that size of any two folds.
    """
    fold = folds_of(task.dataset.n_rows, seed)
    errors = np.full((int(fold.max()) + 1, most), np.nan)
    lists: list[RuleList] = []
    for number in range(len(errors)):
        known = rows_and_weights(task.dataset.take(np.flatnonzero(fold != number)))
        held = rows_and_weights(task.dataset.take(np.flatnonzero(fold == number)))
        found = task.frequent(task.on(np.flatnonzero(fold != number)))
        chosen, met, _ = drawn(found, known, most, task.above)
        lists.append(chosen)
        for at, said in enumerate(staged(chosen, met, known, indicators(chosen, held.matrix))):
            errors[number, at] = _error(chosen, said, held)
    if np.isnan(errors).all():  # a class alone in each fold, or no rules: all sizes are equal
        return 1, np.nan
    size = fewest(errors[:, ~np.isnan(errors).all(axis=0)])
    short = [taken(own, np.arange(min(size, len(own)))) for own in lists]
    pairs = [dice(a, b) for a, b in itertools.combinations(short, 2)]
    return size, float(np.mean(pairs)) if pairs else np.nan


def _error(like: RuleList, said: npt.NDArray[np.float64], rows: Weighed) -> float:
    """1 - AUC, or 1 - R squared; the mean over several targets."""
    if like.schema.task == "regression":
        over = range(rows.y.shape[1])
        return 1 - float(np.mean([r_squared(said[:, k], rows.y[:, k], rows.weight) for k in over]))
    blocks = enumerate(itertools.pairwise(like.schema.blocks))
    return 1 - float(
        np.mean([mean_auc(said[:, a:b], rows.y[:, k], rows.weight) for k, (a, b) in blocks])
    )


def stability_of_halves(task: Drawing, size: int) -> float:
    """Dice-Sorensen index of the lists from every other tree of the forest and from the rest."""
    if task.forest.n_trees < 2:
        return np.nan
    rows = rows_and_weights(task.dataset)
    halves = [
        drawn(task.frequent(task.forest, slice(start, None, 2)), rows, size, task.above)[0]
        for start in (0, 1)
    ]
    return dice(*halves)


# ---------------------------------------------------------------- quantiles
# Cut points at the quantiles of a table: few enough that trees agree on them.
#
# The r-th of q quantiles is the smallest value of the column that r/q of the rows do not
# exceed (Bénard et al. 2021, section 2.1): cuts are values of the table.

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cuts:
    """Cut points of a table's columns.

    Attributes
    ----------
    at : tuple of (cuts,) float64
        Ascending, for each column; none for nominal columns and constants.
    share : tuple of (values,) float64, (values,) float64
        Distinct values of each numeric column, and the part of its weight that does not
        exceed them.
    """

    at: tuple[Doubles, ...]
    share: tuple[tuple[Doubles, Doubles], ...]

    def coded(self, dataset: Dataset) -> Dataset:
        """The dataset with each number replaced by how many cuts lie below it."""
        columns = []
        for column, cuts, nominal in zip(
            dataset.columns, self.at, dataset.schema.nominal, strict=True
        ):
            if nominal:
                columns.append(column)
                continue
            code = np.searchsorted(cuts, column.astype(np.float64)).astype(column.dtype)
            columns.append(np.where(np.isnan(column), column, code))
        return replace(dataset, columns=tuple(columns))

    def decoded(self, model: Model) -> Model:
        """A model of `coded` rows as one of the rows themselves.

        Raises
        ------
        SettingError
            If it splits by sums of columns, which mean nothing of how many cuts lie below.
        """
        if any((tree.kind == Split.OBLIQUE).any() for tree in model.trees):
            raise SettingError(
                "the splitter adds columns up, and a forest for SIRUS splits single columns at "
                "quantiles; choose another splitter"
            )

        def meant(feature: int, thresholds: Doubles) -> Doubles:
            return self.at[feature][np.floor(thresholds).astype(np.int64)]

        return replace(model, trees=tuple(_mapped(tree, meant) for tree in model.trees))

    def snapped(self, found: RuleList) -> RuleList:
        """Rules whose bounds are moved to the nearest cut, by rows in between.

        The bounds of a column without cuts stay.  Where bounds meet, no known value fits.
        """
        table = found.conditions
        low, high = table.low.copy(), table.high.copy()
        for feature, cuts in enumerate(self.at):
            if not len(cuts):
                continue
            here = np.flatnonzero(table.column == feature)
            for bound in (low, high):
                finite = here[np.isfinite(bound[here])]
                bound[finite] = self._nearest(feature, bound[finite])
        met = low >= high
        low[met], high[met] = -np.inf, np.inf
        known = table.known & ~met
        return replace(found, conditions=table._replace(low=low, high=high, known=known))

    def _nearest(self, feature: int, bounds: Doubles) -> Doubles:
        """The cut of each bound that fewest rows separate it from; of two, the lower."""
        values, share = self.share[feature]

        def below(numbers: Doubles) -> Doubles:
            return np.append(0.0, share)[np.searchsorted(values, numbers, side="right")]

        cuts = self.at[feature]
        far = np.abs(below(bounds)[:, None] - below(cuts)[None, :])
        nearest: Doubles = cuts[far.argmin(axis=1)]
        return nearest


def _mapped(tree: Tree, meant: Callable[[int, Doubles], Doubles]) -> Tree:
    """A tree with the thresholds of its splits and of their surrogates replaced."""
    asks = tree.kind == Split.THRESHOLD
    own = _replaced(tree.feature, tree.threshold, asks, meant)
    if not len(tree.surrogate_feature):
        return replace(tree, threshold=own)
    bounds = tree.surrogate_threshold
    behind = _replaced(tree.surrogate_feature, bounds, ~np.isnan(bounds), meant)
    return replace(tree, threshold=own, surrogate_threshold=behind)


def _replaced(
    feature: npt.NDArray[np.int32],
    threshold: Doubles,
    where: npt.NDArray[np.bool_],
    meant: Callable[[int, Doubles], Doubles],
) -> Doubles:
    found = threshold.copy()
    for column in np.unique(feature[where]).tolist():
        here = np.flatnonzero(where & (feature == column))
        found[here] = meant(column, threshold[here])
    return found


def cuts_of(dataset: Dataset, quantiles: int) -> Cuts:
    """The cuts of a dataset at the first to the last but one of so many quantiles.

    Weights count.  The largest value of a column is no cut: it separates nothing.
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
        at.append(_quantiles(values, share, quantiles))
        shares.append((values, share))
    return Cuts(tuple(at), tuple(shares))


def _quantiles(values: Doubles, share: Doubles, quantiles: int) -> Doubles:
    if len(values) <= quantiles:
        return values[:-1]
    # Sums of weights round: a share that should be r/q may lie a little below.
    places = np.searchsorted(share, np.arange(1, quantiles) / quantiles - 1e-12)
    return values[np.unique(places[places < len(values) - 1])]


# ---------------------------------------------------------------- said
# What each rule of a short list says: shares or means of the rows that meet it, and of the rest.
#
# Bénard et al. 2021, equation 2.5: a rule is a function of two values.

Truths = npt.NDArray[np.bool_]


def mean_list(chosen: RuleList, met: Truths, rows: Weighed) -> RuleList:
    """The list of classes whose answer is the mean of what its rules say.

    Without a rule, it says the shares of all rows.

    Parameters
    ----------
    chosen : RuleList
        Bare rules.
    met : (rules, rows) bool
    rows : Weighed
    """
    cells = _cells(chosen, rows)
    return weighted_list(
        chosen, _two_sums(met, cells), _two_weights(met, rows), combine="mean",
        intercept=None if len(chosen) else cells.sum(axis=0), total=float(rows.weight.sum()),
    )  # fmt: skip


def added_list(
    chosen: RuleList, met: Truths, rows: Weighed
) -> tuple[RuleList, npt.NDArray[np.int64]]:
    """The list of numbers whose answer is a weighted sum of its rules' means.

    Returns
    -------
    rules : RuleList
    kept : (rules,) int64
        Which of the rules have a weight, for some target; the others are left out.
    """
    means, intercept, slopes = _fitted(met, rows)
    value = slopes[:, None, :] * means
    kept = np.flatnonzero(slopes.any(axis=1))
    made = weighted_list(
        taken(chosen, kept), value[kept], _two_weights(met[kept], rows), combine="sum",
        intercept=intercept, total=float(rows.weight.sum()),
    )  # fmt: skip
    return made, kept


def staged(
    chosen: RuleList, met: Truths, rows: Weighed, met_by_others: Truths
) -> Iterator[Doubles]:
    """What the lists of the first rule, of the first two and so on say of other rows.

    Returns
    -------
    iterator of (other rows, values) float64
        Shares, or numbers.
    """
    if chosen.schema.task == "classification":
        sums = _two_sums(met, _cells(chosen, rows))
        total = np.zeros((met_by_others.shape[1], chosen.schema.n_values))
        weight = _two_weights(met, rows)
        for number in range(len(chosen)):
            shares = sums[number] / weight[number][:, None]
            total += np.where(met_by_others[number][:, None], shares[0], shares[1])
            yield total / (number + 1)
        return
    for number in range(len(chosen)):
        means, intercept, slopes = _fitted(met[: number + 1], rows)
        added = slopes[:, None, :] * means
        here = met_by_others[: number + 1, :, None]
        yield intercept + np.where(here, added[:, :1], added[:, 1:]).sum(axis=0)


def _cells(like: RuleList, rows: Weighed) -> Doubles:
    """(rows, values) float64: each row's weight in the cell of its class, for each target."""
    cells = np.zeros((len(rows.weight), like.schema.n_values))
    at = np.arange(len(rows.weight))
    for output, first in enumerate(like.schema.blocks[:-1]):
        cells[at, first + rows.y[:, output]] = rows.weight
    return cells


def _two_sums(met: Truths, cells: Doubles) -> Doubles:
    """(rules, 2, values) float64: sums of the rows that meet rules, and of the others."""
    inside = met @ cells
    return np.stack([inside, ~met @ cells], axis=1)


def _two_weights(met: Truths, rows: Weighed) -> Doubles:
    """(rules, 2) float64: the weight of the rows that meet rules, and of the others."""
    return np.stack([met @ rows.weight, ~met @ rows.weight], axis=1)


def _fitted(met: Truths, rows: Weighed) -> tuple[Doubles, Doubles, Doubles]:
    """Means (rules, 2, targets), intercepts (targets,), weights (rules, targets)."""
    weight = _two_weights(met, rows)
    centre = np.average(rows.y, axis=0, weights=rows.weight)
    # Of numbers far from 0, differences keep their digits.
    far = _two_sums(met, (rows.y - centre) * rows.weight[:, None])
    means = centre + far / weight[:, :, None]
    folds = folds_of(len(rows.weight))
    intercept, slopes = np.empty(len(centre)), np.empty((len(met), len(centre)))
    for k in range(len(centre)):
        x = np.where(met, means[:, :1, k], means[:, 1:, k]).T
        intercept[k], slopes[:, k] = nonnegative_ridge(x, rows.y[:, k], rows.weight, folds)
    return means, intercept, slopes
