"""How differently a model treats groups."""

import numpy as np

from treekit import DataError

__all__ = ["demographic_parity_difference", "equalised_odds_difference"]


def demographic_parity_difference(said, groups, positive):
    """Largest difference between two groups in how often they are told `positive`.

    Parameters
    ----------
    said : (rows,) labels
        What the model says.
    groups : (rows,) labels
    positive : label

    Returns
    -------
    float
        From 0 (alike) to 1.
    """
    said, groups = _alike(said, groups)
    return _difference(said == positive, groups, np.ones(len(said), dtype=bool), "rows")


def equalised_odds_difference(true, said, groups, positive):
    """The same among the rows that are truly `positive`, and among the others: the larger of both.

    M. Hardt, E. Price and N. Srebro, "Equality of opportunity in supervised learning",
    NIPS 2016: a model has equalised odds if this is 0.

    Parameters
    ----------
    true, said, groups : (rows,) labels
    positive : label

    Raises
    ------
    DataError
        If a group has no rows of either kind.
    """
    true, said, groups = _alike(true, said, groups)
    chosen, due = said == positive, true == positive
    return max(
        _difference(chosen, groups, due, f"rows that are {positive!r}"),
        _difference(chosen, groups, ~due, f"rows that are not {positive!r}"),
    )


def _alike(*columns):
    """The columns as arrays of one length."""
    arrays = [np.asarray(column) for column in columns]
    lengths = {array.shape for array in arrays}
    if len(lengths) > 1 or arrays[0].ndim != 1 or not len(arrays[0]):
        raise DataError(
            "labels and groups are to be columns of one length, not "
            + ", ".join(str(array.shape) for array in arrays)
        )
    return arrays


def _difference(chosen, groups, among, what):
    rates = []
    for group in np.unique(groups):
        own = among & (groups == group)
        if not own.any():
            raise DataError(f"group {group.item()!r} has no {what}: its rate is not known")
        rates.append(float(chosen[own].mean()))
    return max(rates) - min(rates)
