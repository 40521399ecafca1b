"""Charts of feature importances."""

from __future__ import annotations

from typing import Any

import numpy as np

from treekit.model.model import as_model
from treekit.plot.chart import Chart, Series, make_axis, make_name_axis
from treekit.rules.wording import format_picture_label
from treekit.training.importance import Importances, gain_importances

MOST_COLUMNS = 30
"""Columns that are drawn, the largest importances; the chart states how many it omits."""

_MEASURES = {"accuracy": "decrease of accuracy", "r2": "decrease of R squared"}


def plot_importances(source: Any, *, most: int = MOST_COLUMNS) -> Chart:
    """Draw importances as bars, the largest first.

    Parameters
    ----------
    source : Importances, Model or fitted treekit estimator
        Permutation importances have 95% intervals (Student's t over the shuffles, or the
        trees out of bag); those of a model are shares of the gain, without intervals.
    most : int
        Maximum number of columns.

    Returns
    -------
    Chart

    Raises
    ------
    TypeError
        For another source.
    """
    if isinstance(source, Importances):
        names, values, title = source.columns, source.mean, "Permutation importances"
        label, low, high = _MEASURES[source.measure], *compute_intervals(source)
        notes = ["The score of the rows decreases by this much when the column is shuffled."]
        if not np.isnan(low).all():
            notes[0] += " Lines: 95% intervals."
    else:
        model = as_model(source)
        names, values, title = model.schema.names, gain_importances(model), "Feature importances"
        label, notes = "share of the gain of all splits", []
        low = high = np.full(len(values), np.nan)
    order = np.argsort(-values, kind="stable")[:most]
    if more := len(values) - len(order):
        notes.append(f"{more} more column{'s' * (more > 1)} with smaller importances.")
    ends = np.concatenate([values[order], low[order], high[order], [0.0]])
    rows = range(len(order) - 1, -1, -1)
    shown = [format_picture_label(names[f]) for f in order.tolist()]
    series = Series(
        "",
        tuple(zip(values[order].tolist(), map(float, rows), strict=True)),
        kind="bars",
        intervals=tuple(zip(low[order].tolist(), high[order].tolist(), strict=True)),
    )
    axis = make_axis(label, ends[np.isfinite(ends)].tolist(), zero=True)
    described = f"{label} of {len(shown)} columns; {shown[0]} has the largest."
    return Chart(title, described, axis, make_name_axis(shown), (series,), tuple(notes))


def compute_intervals(found: Importances) -> tuple[Any, Any]:
    """Return the lower and upper ends of 95% intervals, (columns,) float64; NaN if unknown."""
    from scipy.stats import t

    samples = found.decreases.shape[1]
    half = t.ppf(0.975, max(samples - 1, 1)) * found.standard_error
    return found.mean - half, found.mean + half
