"""How well a ranking by effect finds those whom a treatment moves.

Rows of an experiment are sorted by what a model says their effect is, largest first.
Of the best share of them, a curve tells the gain of treating just these, estimated from
the treated and the control rows among them.  Rows of one prediction are one step: their
order says nothing.
"""

import numpy as np

from treekit import DataError

__all__ = ["auuc_score", "qini_curve", "qini_score", "uplift_curve"]


def qini_curve(effect, treated, outcome):
    """The Qini curve (Radcliffe 2007, "Using control groups to target on predicted lift").

    Parameters
    ----------
    effect : (rows,) numbers
        What ranks the rows.
    treated, outcome : (rows,) bool, or 0 and 1

    Returns
    -------
    share, gain : (points,) float64
        Share of the rows, from 0 to 1, and additional successes by treating them,
        ``R_t - R_c * n_t / n_c``, for each treated row of the table.
    """
    n, n_t, r_t, r_c = _counts(effect, treated, outcome)
    # Where no control row has come yet, none has succeeded.
    gain = r_t - r_c * n_t / np.maximum(n - n_t, 1)
    return n / n[-1], gain / n_t[-1]


def uplift_curve(effect, treated, outcome):
    """The uplift curve: successes that treating a share of the rows adds, for each row.

    The difference of the rates of treated and control rows, times the share
    (Rzepakowski and Jaroszewicz 2012, section 6).  Parameters and results are those of
    `qini_curve`; without rows of an arm, its rate is taken for 0.
    """
    n, n_t, r_t, r_c = _counts(effect, treated, outcome)
    lift = r_t / np.maximum(n_t, 1) - r_c / np.maximum(n - n_t, 1)
    return n / n[-1], lift * n / n[-1]


def qini_score(effect, treated, outcome):
    """Area between the Qini curve and the straight line to its end; 0 for a ranking by chance."""
    return _area(*qini_curve(effect, treated, outcome))


def auuc_score(effect, treated, outcome):
    """Area between the uplift curve and the straight line to its end."""
    return _area(*uplift_curve(effect, treated, outcome))


def _area(share, gain):
    under = ((gain[1:] + gain[:-1]) / 2 * np.diff(share)).sum()
    return float(under - gain[-1] / 2)


def _counts(effect, treated, outcome):
    """Rows, treated rows, and successes of either arm, from 0 to all, a prediction at a time."""
    effect = np.asarray(effect, dtype=np.float64)
    arms = [_truth(values, len(effect), name) for values, name in
            ((treated, "treated"), (outcome, "outcome"))]  # fmt: skip
    if effect.ndim != 1 or not len(effect) or np.isnan(effect).any():
        raise DataError("effect is to be one number for each row, none of them missing")
    order = np.argsort(-effect, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(effect[order]) != 0, True))
    in_arm, came = (values[order] for values in arms)
    if in_arm.all() or not in_arm.any():
        raise DataError("a curve compares treated and control rows, and all rows are of one arm")
    columns = (np.ones(len(effect)), in_arm, in_arm & came, ~in_arm & came)
    return [np.append(0.0, np.cumsum(column, dtype=np.float64)[ends]) for column in columns]


def _truth(values, rows, name):
    values = np.asarray(values)
    if values.shape != (rows,) or not np.isin(values, (0, 1)).all():
        raise DataError(f"{name} is to say True or False (1 or 0) for each of {rows} rows")
    return values.astype(bool)
