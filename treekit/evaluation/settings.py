"""Cross-validation of several values of a setting, by the same folds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.errors import SettingError
from treekit.evaluation import (
    SCORES,
    Progress,
    Score,
    align_columns,
    average_folds,
    compute_t_interval,
    format_difference,
    format_interval,
    format_number,
    run_folds,
)
from treekit.evaluation.groups import Estimate


@dataclass(frozen=True)
class ValueScores:
    """The scores of a value of a setting.

    Attributes
    ----------
    value : str
    scores : dict of str to Score
        As in `treekit.evaluation.Evaluation`.
    differences : dict of str to Estimate or None
        From the first value; empty for the first. None where a score is undefined.
    """

    value: str
    scores: dict[str, Score]
    differences: dict[str, Estimate | None]


@dataclass(frozen=True)
class SettingsComparison:
    """The scores of several values of a setting; ``str()`` returns them as text.

    Attributes
    ----------
    target, setting : str
    rows, folds, repeats : int
    values : list of ValueScores
    """

    target: str
    setting: str
    rows: int
    folds: int
    repeats: int
    values: list[ValueScores]

    @property
    def title(self) -> str:
        """Description of the estimation, in one line."""
        again = f", {self.repeats} times" if self.repeats > 1 else ""
        return (
            f"{self.target!r} by {self.folds}-fold cross-validation on {self.rows:,} rows{again}, "
            f"by {self.setting}"
        )

    @property
    def note(self) -> str:
        """Description of the differences."""
        return (
            f"Differences are from {self.setting}={self.values[0].value}, by the same folds, with "
            "95% intervals corrected for overlapping training rows (Nadeau and Bengio 2003)."
        )

    def list_tables(self) -> list[tuple[str, list[list[str]]]]:
        """Return the name and the rows of the table of each score."""
        tables = []
        for name in self.values[0].scores:
            rows = [[self.setting, SCORES[name][0], "95% interval", "difference", "95% interval"]]
            for one in self.values:
                score = one.scores[name]
                cells = [one.value, format_number(score.value), format_interval(score)]
                rows.append([*cells, *format_difference(one.differences.get(name))])
            tables.append((SCORES[name][0], rows))
        return tables

    def list_bars(self, name: str) -> list[tuple[str, float, float, float]]:
        """Return the value of each bar of a score's chart, its middle and ends from -1 to 1."""
        bars = []
        for one in self.values[1:]:
            each = one.differences.get(name)
            if each is not None:
                low, high = (each.value if end is None else end for end in each[1:])
                bars.append((one.value, each.value, low, high))
        most = max((abs(end) for bar in bars for end in bar[1:]), default=0.0) or 1.0
        return [(value, *(end / most for end in ends)) for value, *ends in bars]  # type: ignore[misc]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        found = asdict(self)
        for one, value in zip(found["values"], self.values, strict=True):
            one["differences"] = {
                name: None if each is None else each._asdict()
                for name, each in value.differences.items()
            }
        return found

    def to_json(self) -> str:
        """Return the comparison as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"

    def to_html(self, title: str = "") -> str:
        """Return one HTML page, with a chart of the differences in the first score."""
        from treekit.documents.pages import render_page

        first = next(iter(self.values[0].scores))
        return render_page(
            "settings",
            found=self,
            title=title or self.title,
            charted=SCORES[first][0],
            bars=self.list_bars(first),
        )

    def __str__(self) -> str:
        lines = [self.title, ""]
        for _, rows in self.list_tables():
            lines += [*align_columns(rows), ""]
        return "\n".join([*lines, self.note])


def compare_settings(
    dataset: Dataset,
    setting: str,
    settings: Mapping[str, Mapping[str, Any]],
    *,
    cv: int = 10,
    repeats: int = 1,
    groups: npt.NDArray[np.int64] | None = None,
    progress: Progress | None = None,
) -> SettingsComparison:
    """Cross-validate several values of a setting by the same folds.

    Parameters
    ----------
    dataset : Dataset
    setting : str
        Its name, for the report.
    settings : mapping
        All settings of a training, for each value of the setting as text.
    cv, repeats, groups
        See `treekit.evaluation.evaluate`.
    progress : callable, optional
        ``progress(done, total)`` after each fold of each value.

    Raises
    ------
    SettingError
        If there are fewer than two values.
    """
    if len(settings) < 2:
        raise SettingError(f"{setting} has {len(settings)} value to compare; give two or more")
    first: list[dict[str, float | None]] = []
    values = []
    for at, (value, own) in enumerate(settings.items()):

        def report(done: int, total: int, at: int = at) -> None:
            if progress is not None:
                progress(at * total + done, len(settings) * total)

        scored, _ = run_folds(dataset, own, cv, repeats, groups, report)
        each = [part.compute_scores() for part in scored]
        baselines = [part.compute_baseline() for part in scored]
        first = first or each
        scores = {
            name: average_folds(
                name, [one[name] for one in each], [one[name] for one in baselines], cv
            )
            for name in each[0]
        }
        differences = {}
        if at:
            differences = {name: _subtract_folds(name, first, each, cv) for name in each[0]}
        values.append(ValueScores(value, scores, differences))
    name = dataset.schema.outputs[0].name
    return SettingsComparison(name, setting, dataset.n_rows, cv, repeats, values)


def _subtract_folds(
    name: str, first: Sequence[Mapping[str, Any]], each: Sequence[Mapping[str, Any]], cv: int
) -> Estimate | None:
    """Return the mean difference over folds, with the interval of the corrected t-test."""
    pairs = [(one[name], other[name]) for one, other in zip(first, each, strict=True)]
    known = [b - a for a, b in pairs if a is not None and b is not None]
    if not known:
        return None
    mean = math.fsum(known) / len(known)
    factor = 1.0 / len(known) + 1.0 / (cv - 1)
    return Estimate(mean, *compute_t_interval(None, mean, known, factor))
