"""ROC and calibration curves of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from treekit.errors import SettingError
from treekit.plot.chart import Chart, Point, Series, make_share_axis
from treekit.rules.wording import format_picture_label


class EvaluatedClass(Protocol):
    """What is drawn of `treekit.evaluation.ClassScores`."""

    @property
    def label(self) -> Any: ...  # noqa: D102

    @property
    def roc(self) -> Sequence[Point]: ...  # noqa: D102

    @property
    def calibration(self) -> Sequence[Point]: ...  # noqa: D102


class Evaluated(Protocol):
    """What is drawn of `treekit.evaluation.Evaluation`."""

    @property
    def title(self) -> str: ...  # noqa: D102

    @property
    def warning(self) -> str: ...  # noqa: D102

    @property
    def scores(self) -> Any: ...  # noqa: D102

    @property
    def classes(self) -> Sequence[EvaluatedClass]: ...  # noqa: D102


def plot_roc(evaluation: Evaluated) -> Chart:
    """Draw the ROC curve of each class against the rest; of two classes, of the second.

    Raises
    ------
    SettingError
        For a regression, or if the rows have one class only.
    """
    area = evaluation.scores.get("roc_auc")
    notes = []
    if area is not None and area.value is not None:
        several = "mean area" if len(evaluation.classes) > 2 else "area"
        interval = "" if area.low is None else f" (95% interval {area.low:.3f} to {area.high:.3f})"
        notes = [f"{several} under the curve: {area.value:.3f}{interval}".capitalize()]
    return _make_chart(
        evaluation, "roc", "ROC curve", "false positive rate", "true positive rate", notes
    )


def plot_calibration(evaluation: Evaluated) -> Chart:
    """Draw observed frequencies by predicted probability, in bins of equally many rows.

    Raises
    ------
    SettingError
        For a regression, and for weighted rows.
    """
    notes = [
        "Points: up to ten bins of about equally many rows. On the grey line, probabilities are "
        "calibrated."
    ]
    across, down = "mean predicted probability", "observed frequency"
    return _make_chart(evaluation, "calibration", "Calibration", across, down, notes)


def _make_chart(
    evaluation: Evaluated,
    name: Literal["roc", "calibration"],
    title: str,
    across: str,
    down: str,
    notes: list[str],
) -> Chart:
    if not evaluation.classes:
        raise SettingError(f"a {title} needs classes, but the target is a number")
    first = 1 if len(evaluation.classes) == 2 else 0
    curves = []
    for entry, one in enumerate(evaluation.classes):
        if entry >= first and (points := getattr(one, name)):
            kind: Literal["line", "dots"] = "line" if name == "roc" else "dots"
            curves.append(Series(format_picture_label(str(one.label)), tuple(points), entry, kind))
    if not curves:
        lacking = "rows of several classes" if name == "roc" else "rows without weights"
        raise SettingError(f"a {title} needs {lacking}; evaluate another table")
    guide = Series("", ((0.0, 0.0), (1.0, 1.0)), kind="guide")
    if evaluation.warning:
        notes = [*notes, evaluation.warning]
    names = ", ".join(series.name for series in curves)
    return Chart(
        f"{title}: {format_picture_label(evaluation.title)}",
        f"{title} of {names}: {down} by {across}.",
        make_share_axis(across),
        make_share_axis(down),
        (guide, *curves),
        tuple(notes),
    )
