"""Measures of disparity between groups."""

import numpy as np

from treekit import DataError

__all__ = ["demographic_parity_difference", "equalised_odds_difference"]


def demographic_parity_difference(said, groups, positive):
    """Return the largest difference between two groups in their rate of `positive` predictions.

    Parameters
    ----------
    said : (rows,) labels
        Predictions.
    groups : (rows,) labels
    positive : label

    Returns
    -------
    float
        From 0 (equal rates) to 1.
    """
    said, groups = _alike(said, groups)
    return _difference(said == positive, groups, np.ones(len(said), dtype=bool), "rows")


def equalised_odds_difference(true, said, groups, positive):
    """Return the larger parity difference among truly `positive` rows and among the others.

    0 means equalised odds (M. Hardt, E. Price and N. Srebro, "Equality of opportunity in
    supervised learning", NIPS 2016).

    Parameters
    ----------
    true, said, groups : (rows,) labels
    positive : label

    Raises
    ------
    DataError
        If a group has no positive or no other rows.
    """
    true, said, groups = _alike(true, said, groups)
    chosen, due = said == positive, true == positive
    return max(
        _difference(chosen, groups, due, f"rows that are {positive!r}"),
        _difference(chosen, groups, ~due, f"rows that are not {positive!r}"),
    )


def _alike(*columns):
    """Return the columns as arrays, checked to have one length."""
    arrays = [np.asarray(column) for column in columns]
    lengths = {array.shape for array in arrays}
    if len(lengths) > 1 or arrays[0].ndim != 1 or not len(arrays[0]):
        raise DataError(
            "labels and groups must be non-empty columns of one length, not "
            + ", ".join(str(array.shape) for array in arrays)
        )
    return arrays


def _difference(chosen, groups, among, what):
    rates = []
    for group in np.unique(groups):
        own = among & (groups == group)
        if not own.any():
            raise DataError(f"group {group.item()!r} has no {what}: its rate is undefined")
        rates.append(float(chosen[own].mean()))
    return max(rates) - min(rates)
