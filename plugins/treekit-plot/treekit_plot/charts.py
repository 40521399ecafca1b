"""Charts of scores and of columns as SVG: importances, ROC, calibration, the pruning path.

Charts and pictures of trees share one style, and contain no script and no link: see
`treekit_plot.svg`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from treekit.documents import Listing
from treekit.errors import SettingError
from treekit.model.model import Model, as_model
from treekit_plot.draw import get_model
from treekit_plot.layout import clip_text, estimate_text_width, wrap_text
from treekit_plot.svg import (
    EDGE,
    INK,
    MARGIN,
    MUTED,
    PAPER,
    SMALL_FONT_SIZE,
    SMALL_LINE_HEIGHT,
    TITLE_FONT_SIZE,
    class_colour,
    element,
    format_coordinate,
    mixed,
    write_frame,
    write_rect,
    write_text,
)
from treekit_plot.wording import format_picture_label

if TYPE_CHECKING:  # imported on first use: the documents of rules need no chart
    from treekit.evaluation import Evaluation
    from treekit.training.importance import Importances

WIDTH, HEIGHT, ROW_HEIGHT, BAR_SHARE = 440.0, 300.0, 26.0, 0.6
MAX_NAME_WIDTH = 220.0
_DASHES = ("", "7 3", "2 3", "9 3 2 3")

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """An axis of a chart.

    Attributes
    ----------
    label : str
    low, high : float
        Ends of the axis.
    ticks : tuple of (float, str)
        Value and text of each tick.
    log : bool
        Whether the axis is logarithmic; both ends are then positive.
    """

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def place(self, value: float) -> float:
        """Return the position of a value: 0 at the low end, 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Series:
    """Points drawn in one colour.

    Attributes
    ----------
    name : str
        Name in the legend; if empty, the legend omits the series.
    points : tuple of (float, float)
    entry : int
        Index of the colour among those of the classes, from 0.
    kind : {"line", "dots", "bars", "guide"}
        ``dots`` are joined by a line.  ``bars`` are horizontal and begin at 0.  A ``guide`` is a
        thin grey line.
    intervals : tuple of (float, float), optional
        Low and high end of each point's interval, in x for bars and in y otherwise; NaN: no
        interval.  The intervals of a ``line`` are drawn as a band.
    """

    name: str
    points: tuple[Point, ...]
    entry: int = 0
    kind: Literal["line", "dots", "bars", "guide"] = "line"
    intervals: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Chart:
    """A chart: ``svg()`` returns its SVG, and a notebook displays it.

    Attributes
    ----------
    title : str
    described : str
        Description for screen readers.
    x, y : Axis
    series : tuple of Series
    notes : tuple of str
        Texts below the chart.
    """

    title: str
    described: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()

    def svg(self) -> str:
        """Return the chart as a self-contained SVG element."""
        return _write_chart(self)

    def save(self, path: str | Path) -> None:
        """Write the chart to an ``.svg`` file; missing folders are created."""
        from treekit.model.model_file import replace_atomically

        with replace_atomically(path) as file:
            file.write(self.svg().encode())

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.svg()}</div>'


def make_axis(label: str, values: Sequence[float], *, zero: bool = False) -> Axis:
    """Make an axis for finite values, with round numbers at its ticks; `zero`: 0 is on it."""
    low, high = min(values), max(values)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = low - (not zero), high + 1.0
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple((k * step, f"{k * step:.6g}") for k in range(first, last + 1))
    return Axis(label, first * step, last * step, ticks)


def make_share_axis(label: str) -> Axis:
    """Make an axis from 0 to 1."""
    return Axis(label, 0.0, 1.0, tuple((k / 5, f"{k / 5:g}") for k in range(6)))


def make_count_axis(label: str, largest: float) -> Axis:
    """Make a logarithmic axis of counts from 1."""
    high = max(largest * 1.1, 2.0)
    ticks = [10**k * n for k in range(16) for n in (1, 2, 5) if 10**k * n <= high]
    return Axis(label, 1.0, high, tuple((float(tick), f"{tick:,}") for tick in ticks), log=True)


def make_name_axis(names: Sequence[str]) -> Axis:
    """Make an axis with a row for each name, the first at the top."""
    n = len(names)
    ticks = tuple((float(n - 1 - place), name) for place, name in enumerate(names))
    return Axis("", -0.5, n - 0.5, ticks)


def line_colour(entry: int) -> str:
    """Return the colour of a legend entry, darkened until a line of it is visible on paper."""
    return mixed(class_colour(entry), INK, 0.3 if entry == 2 else 0.1)


def _write_chart(chart: Chart) -> str:
    named_rows = not chart.y.label
    tall = ROW_HEIGHT * len(chart.y.ticks) if named_rows else HEIGHT
    ticks = [
        (place, clip_text(text, MAX_NAME_WIDTH, SMALL_FONT_SIZE)) for place, text in chart.y.ticks
    ]
    left = MARGIN + 8 + max(estimate_text_width(text, SMALL_FONT_SIZE) for _, text in ticks)
    left += 0 if named_rows else SMALL_LINE_HEIGHT + 4
    width = left + WIDTH + MARGIN
    title = wrap_text(chart.title, width - 2 * MARGIN, TITLE_FONT_SIZE, 3, bold=True)
    y = MARGIN - 6
    parts = []
    for line in title:
        y += TITLE_FONT_SIZE + 4
        parts.append(write_text(line, MARGIN, y, TITLE_FONT_SIZE, font_weight="bold"))
    legend, y = _write_legend(chart, y, width)
    top = y + 16
    frame = _Frame(chart, left, top, WIDTH, tall)
    parts += [*legend, *frame.write_grid(ticks)]
    for series in chart.series:
        parts.append(element("g", *frame.write_series(series)))
    y = top + tall + 2 * SMALL_LINE_HEIGHT + 8
    place = left + WIDTH / 2
    parts.append(write_text(chart.x.label, place, y, SMALL_FONT_SIZE, text_anchor="middle"))
    if chart.y.label:
        x, middle = MARGIN + SMALL_FONT_SIZE - 2, top + tall / 2
        turn = f"rotate(-90 {format_coordinate(x)} {format_coordinate(middle)})"
        look: dict[str, str | float] = {"text_anchor": "middle", "transform": turn}
        parts.append(write_text(chart.y.label, x, middle, SMALL_FONT_SIZE, **look))
    for note in chart.notes:
        for line in wrap_text(note, width - 2 * MARGIN, SMALL_FONT_SIZE, 6):
            y += SMALL_LINE_HEIGHT + 3
            parts.append(write_text(line, MARGIN, y, SMALL_FONT_SIZE, fill=MUTED))
    return write_frame(chart.title, chart.described, width, y + MARGIN - 4, parts)


def _write_legend(chart: Chart, y: float, width: float) -> tuple[list[str], float]:
    """Write the names of the series in rows; return them and the last baseline."""
    named = [series for series in chart.series if series.name]
    parts: list[str] = []
    x = math.inf
    for series in named:
        text = clip_text(series.name, MAX_NAME_WIDTH, SMALL_FONT_SIZE)
        room = 28 + estimate_text_width(text, SMALL_FONT_SIZE)
        if x + room > width - MARGIN:
            x, y = MARGIN, y + 20
        line = f"M{format_coordinate(x)} {format_coordinate(y - 4)}h22"
        parts.append(element("path", d=line, **_choose_look(series)))
        parts.append(write_text(text, x + 28, y, SMALL_FONT_SIZE))
        x += room + 16
    return parts, y


def _choose_look(series: Series) -> dict[str, str | float]:
    if series.kind == "guide":
        return {"fill": "none", "stroke": MUTED, "stroke_width": 1.0, "stroke_dasharray": "3 3"}
    look: dict[str, str | float] = {"fill": "none", "stroke": line_colour(series.entry)}
    look["stroke_width"] = 2.25
    if dash := _DASHES[series.entry % len(_DASHES)]:
        look["stroke_dasharray"] = dash
    return look


class _Frame:
    """The rectangle of the data, and what is written in it."""

    def __init__(self, chart: Chart, left: float, top: float, width: float, height: float) -> None:
        self.chart, self.left, self.top = chart, left, top
        self.width, self.height = width, height

    def find_x(self, value: float) -> float:
        return self.left + self.width * self.chart.x.place(value)

    def find_y(self, value: float) -> float:
        return self.top + self.height * (1 - self.chart.y.place(value))

    def write_grid(self, names: list[tuple[float, str]]) -> Iterator[str]:
        """Write the lines and texts of the ticks."""
        rows = not self.chart.y.label
        grid: dict[str, str | float] = {"stroke": mixed(PAPER, EDGE, 0.5), "stroke_width": 1.0}
        bottom, right = self.top + self.height, self.left + self.width
        for value, text in self.chart.x.ticks:
            x = self.find_x(value)
            yield _write_line((x, self.top), (x, bottom), **grid)
            here = x, bottom + SMALL_LINE_HEIGHT, SMALL_FONT_SIZE
            yield write_text(text, *here, text_anchor="middle", fill=MUTED)
        for value, text in names:
            y = self.find_y(value)
            if not rows:
                yield _write_line((self.left, y), (right, y), **grid)
            here = self.left - 8, y + 4, SMALL_FONT_SIZE
            yield write_text(text, *here, text_anchor="end", fill=INK if rows else MUTED)

    def write_series(self, series: Series) -> Iterator[str]:
        """Write lines, dots or bars, and the intervals."""
        colour = line_colour(series.entry)
        if series.kind == "bars":
            thick = BAR_SHARE * ROW_HEIGHT
            zero = self.find_x(0.0)
            yield _write_line((zero, self.top), (zero, self.top + self.height), stroke=EDGE)
            for value, row in series.points:
                a, b = sorted((zero, self.find_x(value)))
                y, fill = self.find_y(row) - thick / 2, class_colour(series.entry)
                yield write_rect(a, y, b - a, thick, fill=fill)
        elif series.points:
            if series.kind == "line" and series.intervals:
                yield self._write_band(series, colour)
            path = "L".join(
                f"{format_coordinate(self.find_x(x))} {format_coordinate(self.find_y(y))}"
                for x, y in series.points
            )
            yield element("path", d="M" + path, stroke_linejoin="round", **_choose_look(series))
        whiskers = () if series.kind == "line" else series.intervals
        for (x, y), (low, high) in zip(series.points, whiskers, strict=False):
            if math.isnan(low) or math.isnan(high):
                continue
            if series.kind == "bars":
                ends, cap, ink = [(low, y), (high, y)], (0.0, 5.0), INK
            else:
                ends, cap, ink = [(x, low), (x, high)], (4.0, 0.0), colour
            start, end = ((self.find_x(x), self.find_y(y)) for x, y in ends)
            yield _write_line(start, end, stroke=ink, stroke_width=1.5)
            for right, down in (start, end):
                across = (right - cap[0], down - cap[1]), (right + cap[0], down + cap[1])
                yield _write_line(*across, stroke=ink, stroke_width=1.5)
        if series.kind == "dots":
            for x, y in series.points:
                place = {"cx": self.find_x(x), "cy": self.find_y(y), "r": 4.0}
                yield element("circle", **place, fill=colour, stroke=PAPER, stroke_width=1.0)

    def _write_band(self, series: Series, colour: str) -> str:
        """Write the intervals of a line as one area; those that are NaN have no width."""
        ends = [
            (self.find_x(x), self.find_y(y if math.isnan(low) else low),
             self.find_y(y if math.isnan(high) else high))
            for (x, y), (low, high) in zip(series.points, series.intervals, strict=True)
        ]  # fmt: skip
        around = [(x, low) for x, low, _ in ends] + [(x, high) for x, _, high in reversed(ends)]
        path = "L".join(f"{format_coordinate(x)} {format_coordinate(y)}" for x, y in around)
        return element("path", d=f"M{path}Z", fill=colour, fill_opacity=0.2)


def _write_line(start: Point, end: Point, **attributes: str | float) -> str:
    path = "M{} {}L{} {}".format(*map(format_coordinate, (*start, *end)))
    return element("path", d=path, **attributes)


# ---------------------------------------------------------------- ROC and calibration


def plot_roc(evaluation: Evaluation) -> Chart:
    """Draw the ROC curve of each class against the rest; for two classes, only of the second.

    Parameters
    ----------
    evaluation : Evaluation
        Result of `treekit.evaluate`.

    Returns
    -------
    Chart

    Raises
    ------
    SettingError
        For a regression, or if all rows are of one class.
    """
    area = evaluation.scores.get("roc_auc")
    notes = []
    if area is not None and area.value is not None:
        several = "mean area" if len(evaluation.classes) > 2 else "area"
        interval = "" if area.low is None else f" (95% interval {area.low:.3f} to {area.high:.3f})"
        notes = [f"{several} under the curve: {area.value:.3f}{interval}".capitalize()]
    return _draw_curves(
        evaluation, "roc", "ROC curve", "false positive rate", "true positive rate", notes
    )


def plot_calibration(evaluation: Evaluation) -> Chart:
    """Draw the observed frequency of each class over its predicted probability, in bins.

    Parameters
    ----------
    evaluation : Evaluation
        Result of `treekit.evaluate`.

    Returns
    -------
    Chart

    Raises
    ------
    SettingError
        For a regression, or for weighted rows.
    """
    notes = [
        "Points: up to ten bins of about equally many rows. On the grey line, probabilities are "
        "calibrated."
    ]
    across, down = "mean predicted probability", "observed frequency"
    return _draw_curves(evaluation, "calibration", "Calibration", across, down, notes)


def _draw_curves(
    evaluation: Evaluation,
    name: Literal["roc", "calibration"],
    title: str,
    across: str,
    down: str,
    notes: list[str],
) -> Chart:
    if not evaluation.classes:
        raise SettingError(
            f"the chart {title!r} needs classes, but the target is a number; evaluate a "
            "classification model"
        )
    first = 1 if len(evaluation.classes) == 2 else 0
    curves = []
    for entry, one in enumerate(evaluation.classes):
        if entry >= first and (points := getattr(one, name)):
            kind: Literal["line", "dots"] = "line" if name == "roc" else "dots"
            curves.append(Series(format_picture_label(str(one.label)), tuple(points), entry, kind))
    if not curves:
        lacking = "rows of several classes" if name == "roc" else "rows without weights"
        raise SettingError(f"the chart {title!r} needs {lacking}; evaluate such rows")
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


# ---------------------------------------------------------------- importances

MOST_COLUMNS = 30
"""Maximum number of columns drawn, by importance; a note counts the others."""

_MEASURES = {"accuracy": "decrease of accuracy", "r2": "decrease of R squared"}


def plot_importances(source: Any, *, most: int = MOST_COLUMNS) -> Chart:
    """Draw feature importances as bars, the largest first.

    Parameters
    ----------
    source : Importances, Model or fitted treekit estimator
        `Importances` are permutation importances, drawn with 95% intervals (Student's t over
        the shuffles, or out of bag over the trees).  For a model or an estimator, each column's
        share of the gain of all splits is drawn, without intervals.
    most : int
        Maximum number of columns.

    Returns
    -------
    Chart

    Raises
    ------
    TypeError
        If `source` is none of these.
    """
    from treekit.training.importance import Importances, gain_importances

    if isinstance(source, Importances):
        names, values, title = source.columns, source.mean, "Permutation importances"
        label, low, high = _MEASURES[source.measure], *compute_intervals(source)
        notes = ["Decrease of the score when the column is shuffled."]
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


# ---------------------------------------------------------------- pruning path

MOST_DOTS = 25
"""Trees of a sequence that are drawn as dots; more are drawn as a line."""

_JUDGED = {"cv": "cross-validation", "held": "rows held out"}


def plot_pruning_path(source: Any) -> Chart:
    """Draw the risk of each pruned tree over its number of leaves.

    Risks estimated by cross-validation or on held-out rows have error bars of one standard error
    (Breiman et al. 1984, section 3.4).  A grey line marks the chosen tree.

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
        If the model was trained without this pruner, or is a forest.
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


# ---------------------------------------------------------------- documents


def render_importances(listing: Listing, most: int) -> Iterator[str]:
    """Yield a chart of importances: permutation importances if the listing has a table."""
    from treekit.training.importance import permutation_importances

    model = _get_whole_model(listing, "importances")
    source = model if listing.table is None else permutation_importances(model, listing.table)
    yield plot_importances(source, most=most).svg()


def render_roc(listing: Listing) -> Iterator[str]:
    """Yield the ROC curves of the listing's table."""
    yield plot_roc(_evaluate(listing, "roc")).svg()


def render_calibration(listing: Listing) -> Iterator[str]:
    """Yield the calibration curves of the listing's table."""
    yield plot_calibration(_evaluate(listing, "calibration")).svg()


def render_pruning_path(listing: Listing) -> Iterator[str]:
    """Yield a chart of the pruned trees of the listing's model."""
    model = _get_whole_model(listing, "pruning-path")
    if listing.table is not None:
        raise SettingError("--table is not used by the chart 'pruning-path'; leave it out")
    yield plot_pruning_path(model).svg()


def _get_whole_model(listing: Listing, chart: str) -> Model:
    if listing.tree is not None:
        raise SettingError(f"the chart {chart!r} is of the whole model; leave --tree out")
    return get_model(listing)


def _evaluate(listing: Listing, chart: str) -> Evaluation:
    from treekit.evaluation import evaluate_model

    model = _get_whole_model(listing, chart)
    if listing.table is None:
        raise SettingError(
            f"the chart {chart!r} needs rows with the target; give a table (--table TABLE)"
        )
    return evaluate_model(model, listing.table)
