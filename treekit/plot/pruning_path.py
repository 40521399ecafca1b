"""Charts of cost-complexity pruning: the risk of each tree of the sequence, and the chosen one."""

from __future__ import annotations

from typing import Any, Literal

from treekit.errors import SettingError
from treekit.model.model import as_model
from treekit.plot.chart import Chart, Series, make_axis, make_count_axis
from treekit.rules.wording import format_picture_label

MOST_DOTS = 25
"""Trees of a sequence that are drawn as dots; more are drawn as a line."""

_JUDGED = {"cv": "cross-validation", "held": "rows held out"}


def plot_pruning_path(source: Any) -> Chart:
    """Draw the risk of the pruned trees by their number of leaves.

    The estimate by cross-validation, or on the rows held out, has lines of one standard error,
    as in Breiman et al. 1984, section 3.4; the tree that was chosen is marked.

    Parameters
    ----------
    source : Model or fitted treekit estimator
        Trained with the pruner ``cost_complexity``.

    Returns
    -------
    Chart

    Raises
    ------
    SettingError
        If the model was not pruned so.
    """
    model = as_model(source)
    report = model.provenance.get("pruner") or {}
    sequence = report.get("sequence") if isinstance(report, dict) else None
    if not sequence:
        raise SettingError(
            "the model has no sequence of pruned trees; train one tree with "
            "pruner='cost_complexity'"
        )
    leaves, risk = sequence["leaves"], sequence["risk"]
    kind: Literal["line", "dots"] = "dots" if len(leaves) <= MOST_DOTS else "line"
    series = [Series("training rows", tuple(zip(leaves, risk, strict=True)), 0, kind)]
    for name, text in _JUDGED.items():
        if (judged := sequence.get(f"{name}_risk")) is None:
            continue
        errors = sequence[f"{name}_standard_error"]
        ends = tuple((r - e, r + e) for r, e in zip(judged, errors, strict=True))
        points = tuple(zip(leaves, judged, strict=True))
        series.append(Series(text, points, 1, kind, ends))
    alpha = report["alpha"]
    chosen = max(k for k, a in enumerate(sequence["alpha"]) if a <= alpha * (1 + 1e-12))
    values = [y for one in series for _, y in one.points]
    values += [end for one in series for ends in one.intervals for end in ends if end == end]
    y = make_axis("risk per row", values, zero=True)
    at = leaves[chosen]
    series.insert(0, Series("", ((at, y.low), (at, y.high)), kind="guide"))
    note = f"Chosen (grey line): {at:,.0f} leaves, alpha {alpha:.4g}."
    if any(one.intervals for one in series):
        note += f" {'Area' if kind == 'line' else 'Bars'}: one standard error on either side."
    target = format_picture_label(model.schema.outputs[0].name)
    return Chart(
        f"Cost-complexity pruning: {target}",
        f"Risk of {len(leaves)} trees of 1 to {max(leaves):,.0f} leaves; chosen: {at:,.0f}.",
        make_count_axis("leaves", max(leaves)),
        y,
        tuple(series),
        (note,),
    )
