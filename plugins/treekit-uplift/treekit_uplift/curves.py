"""Qini and uplift curves: how well a ranking by effect finds rows that respond to a treatment.

Rows of an experiment are sorted by predicted effect, largest first. For each share of
top rows, a curve gives the gain of treating only these, estimated from the treated and
the control rows among them. Rows with equal predictions form one step.
"""

import numpy as np

from treekit import DataError

__all__ = ["auuc_score", "qini_curve", "qini_score", "uplift_curve"]


def qini_curve(effect, treated, outcome):
    """Compute the Qini curve (Radcliffe 2007, "Using control groups to target on predicted lift").

    Parameters
    ----------
    effect : (rows,) numbers
        Predicted effects, by which rows are ranked.
    treated, outcome : (rows,) bool, or 0 and 1

    Returns
    -------
    share, gain : (points,) float64
        Share of the rows, from 0 to 1, and additional successes by treating them,
        ``R_t - R_c * n_t / n_c``, per treated row of the table.
    """
    n, n_t, r_t, r_c = _counts(effect, treated, outcome)
    # Before the first control row, r_c is 0.
    gain = r_t - r_c * n_t / np.maximum(n - n_t, 1)
    return n / n[-1], gain / n_t[-1]


def uplift_curve(effect, treated, outcome):
    """Compute the uplift curve: additional successes per row by treating a share of the rows.

    The difference of the rates of treated and control rows, times the share
    (Rzepakowski and Jaroszewicz 2012, section 6). Parameters and results are those of
    `qini_curve`; the rate of an arm without rows is 0.
    """
    n, n_t, r_t, r_c = _counts(effect, treated, outcome)
    lift = r_t / np.maximum(n_t, 1) - r_c / np.maximum(n - n_t, 1)
    return n / n[-1], lift * n / n[-1]


def qini_score(effect, treated, outcome):
    """Compute the area between the Qini curve and the line to its end; 0 for a random ranking."""
    return _area(*qini_curve(effect, treated, outcome))


def auuc_score(effect, treated, outcome):
    """Compute the area between the uplift curve and the line to its end."""
    return _area(*uplift_curve(effect, treated, outcome))


def _area(share, gain):
    under = ((gain[1:] + gain[:-1]) / 2 * np.diff(share)).sum()
    return float(under - gain[-1] / 2)


def _counts(effect, treated, outcome):
    """Return cumulative counts of rows, treated rows and each arm's successes, by prediction."""
    effect = np.asarray(effect, dtype=np.float64)
    arms = [_truth(values, len(effect), name) for values, name in
            ((treated, "treated"), (outcome, "outcome"))]  # fmt: skip
    if effect.ndim != 1 or not len(effect) or np.isnan(effect).any():
        raise DataError("effect must be one number for each row, none missing")
    order = np.argsort(-effect, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(effect[order]) != 0, True))
    in_arm, came = (values[order] for values in arms)
    if in_arm.all() or not in_arm.any():
        raise DataError("a curve compares treated and control rows, but all rows have one arm")
    columns = (np.ones(len(effect)), in_arm, in_arm & came, ~in_arm & came)
    return [np.append(0.0, np.cumsum(column, dtype=np.float64)[ends]) for column in columns]


def _truth(values, rows, name):
    values = np.asarray(values)
    if values.shape != (rows,) or not np.isin(values, (0, 1)).all():
        raise DataError(f"{name} must be True or False (1 or 0) for each of {rows} rows")
    return values.astype(bool)
