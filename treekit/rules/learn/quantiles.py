"""Cut points at the quantiles of a table: few enough that trees agree on them.

The r-th of q quantiles is the smallest value of the column that r/q of the rows do not
exceed (Bénard et al. 2021, section 2.1): cuts are values of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.errors import SettingError
from treekit.model.model import Model
from treekit.model.tree import Split, Tree
from treekit.rules.rule_list import RuleList

__all__ = ["Cuts", "cuts_of"]

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
