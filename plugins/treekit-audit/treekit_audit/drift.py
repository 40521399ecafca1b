"""Report of each rule's performance on new rows, compared with training."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.documents import Listing
from treekit.errors import DataError, SettingError
from treekit.model.fixed_point import scale_units
from treekit.model.links import convert_sums
from treekit.model.model import predict_labels
from treekit.rules.evaluate import matching_rules, multiply_units
from treekit.rules.language import Language, load_language, load_phrases
from treekit.rules.measure import (
    LabelledRows,
    Measures,
    compute_rule_labels,
    read_labelled_rows,
    table_measures,
    training_measures,
)
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import quote_label, quote_name

__all__ = [
    "SIGNIFICANCE_LEVEL",
    "DriftReport",
    "Quality",
    "compare_means",
    "compare_shares",
    "compute_stability",
    "format_drift",
    "render_drift",
    "rules_against",
]

Numbers = npt.NDArray[np.float64]


# ---------------------------------------------------------------- drift report
# Two questions are answered separately.  Does each rule match the same share of rows as in
# training?  The population stability index measures how far the shares moved (as used in
# credit scoring: Siddiqi 2006, "Credit Risk Scorecards", with less than 0.1 stable and 0.25
# or more a shift; its distribution under no change: Yurdakul 2018).  Is a rule as accurate
# as before?  Each rule is tested, and the significance level is divided by the number of
# tests (Bonferroni), so that a long list raises no false alarm.

Stability = Literal["stable", "moved", "shifted", "unknown"]

SIGNIFICANCE_LEVEL = 0.05
"""Probability of a false alarm among all rules, if nothing has changed."""

_MOVED_INDEX, _SHIFTED_INDEX = 0.1, 0.25


class Quality(NamedTuple):
    """Predictive performance of the complete list for one target; rows count by their weights.

    Attributes
    ----------
    target : str
    rows : int
        Predicted rows whose target is known.
    accuracy : float
        Classification, else NaN.
    r_squared, mean_error : float
        Regression: 1 - squared error / variance, and the mean absolute error; else NaN.
    """

    target: str
    rows: int
    accuracy: float = math.nan
    r_squared: float = math.nan
    mean_error: float = math.nan


@dataclass(frozen=True, eq=False)
class DriftReport:
    """Expected and live performance of each rule and of the list.

    Attributes
    ----------
    rules : RuleList
    expected : Measures
        From training.
    live : Measures
        From the table: rows, weight and coverage of all rows, other measures of the rows whose
        targets are known.
    difference : (rules, targets) float64
        Live confidence (regression: mean) minus the expected one.
    low, high : (rules, targets) float64
        95% interval of the live figure: Wilson (1927) for shares, normal distribution for means.
    p_value : (rules, targets) float64
        Two-sample test of shares with a pooled variance, or of means with the live spread.  NaN
        where nothing is known.
    drift : (rules,) bool
        Whether a p-value is below `LEVEL` divided by the number of tests.
    move : (rules,) float64
        A rule's part of the stability index of its tree.
    stability_index, by_chance : (trees,) float64
        The index, and its 95% quantile if nothing has changed.
    rows, refused, unanswered : int
        Rows of the table; rows that a policy refuses; rows that match no rule of some tree.
    overall : tuple of Quality
        One for each target.
    """

    rules: RuleList = field(repr=False)
    expected: Measures = field(repr=False)
    live: Measures = field(repr=False)
    difference: Numbers = field(repr=False)
    low: Numbers = field(repr=False)
    high: Numbers = field(repr=False)
    p_value: Numbers = field(repr=False)
    drift: npt.NDArray[np.bool_] = field(repr=False)
    move: Numbers = field(repr=False)
    stability_index: Numbers = field(repr=False)
    by_chance: Numbers = field(repr=False)
    rows: int
    refused: int
    unanswered: int
    overall: tuple[Quality, ...]

    def stability(self, tree: int = 0) -> Stability:
        """Return how far the rule shares of a tree moved, compared with chance."""
        index = float(self.stability_index[tree])
        if math.isnan(index):
            return "unknown"
        if index < _MOVED_INDEX or index <= self.by_chance[tree]:
            return "stable"
        return "moved" if index < _SHIFTED_INDEX else "shifted"

    def text(self, language: str | Language = "en", sort: str = "rule") -> str:
        """Return a table for a terminal, one line per rule and target; `sort` is a record key."""
        return format_drift(self, language, sort)

    def records(self) -> list[dict[str, Any]]:
        """Return one record per rule and target, for JSON, CSV or a dataframe; NaN is None."""
        numbers = self.rules.schema.task == "regression"
        expected, live = self.expected, self.live
        figure = "mean" if numbers else "confidence"
        said = None if numbers or self.rules.margins else compute_rule_labels(self.rules)
        found: list[dict[str, Any]] = []
        for rule in range(len(self.rules)):
            for k, output in enumerate(self.rules.schema.outputs):
                record = {
                    "rule": rule + 1,
                    "tree": int(self.rules.tree[rule]) + 1,
                    "target": output.name,
                    "answer": None if said is None else output.classes[said[rule, k]],
                    "rows": 0 if live.rows is None else int(live.rows[rule]),
                    "expected_coverage": expected.coverage[rule],
                    "coverage": live.coverage[rule],
                    "move": self.move[rule],
                    f"expected_{figure}": getattr(expected, figure)[rule, k],
                    figure: getattr(live, figure)[rule, k],
                    "difference": self.difference[rule, k],
                    "low": self.low[rule, k],
                    "high": self.high[rule, k],
                    "p_value": self.p_value[rule, k],
                    "drift": bool(self.drift[rule]),
                }
                if numbers:
                    value = scale_units(self.rules.units[rule], self.rules.exponent)[k]
                    record["answer"] = float(value)
                found.append({name: _replace_nan(value) for name, value in record.items()})
        return found

    def summary(self) -> dict[str, Any]:
        """Return the figures of the complete list, for JSON."""
        trees = range(len(self.stability_index))
        return {
            "rows": self.rows,
            "refused": self.refused,
            "unanswered": self.unanswered,
            "drifting": int(self.drift.sum()),
            "stability_index": [_replace_nan(index) for index in self.stability_index],
            "by_chance": [_replace_nan(index) for index in self.by_chance],
            "stability": [self.stability(tree) for tree in trees],
            "overall": [
                {name: _replace_nan(value) for name, value in quality._asdict().items()}
                for quality in self.overall
            ],
        }


def _replace_nan(value: Any) -> Any:
    if isinstance(value, float):  # those of numpy, too
        return None if math.isnan(value) else float(value)
    return value


def rules_against(
    rules: RuleList, table: Any, targets: list[str] | None = None, weight: Numbers | None = None
) -> DriftReport:
    """Compare each rule's performance on a table with that on its training rows.

    Parameters
    ----------
    rules : RuleList
    table : table, or LabelledRows
        Anything `treekit.data.table.read_table` accepts, with the target columns.
    targets : list of str, optional
        Target columns; default the target names of the schema.
    weight : (rows,) float64, optional
        Default 1 each.

    Raises
    ------
    DataError
        If the table has no row, or lacks a column.
    """
    rows = (
        table
        if isinstance(table, LabelledRows)
        else read_labelled_rows(rules.schema, table, targets)
    )
    n_rows = len(rows.matrix)
    if n_rows == 0:
        raise DataError("the table has no rows; give at least one row")
    weight = np.ones(n_rows) if weight is None else np.asarray(weight, dtype=np.float64)
    known = _has_known_targets(rules, rows.targets)
    live = table_measures(rules, rows.matrix, rows.targets, weight)
    judged = live
    if not known.all():
        some = rows.matrix[known], rows.targets[known], weight[known]
        judged = table_measures(rules, *some)
        live = live._replace(**{name: getattr(judged, name) for name in _TARGET_MEASURES})
    expected = training_measures(rules)
    numbers = rules.schema.task == "regression"
    test = compare_means if numbers else compare_shares
    difference, low, high, p_value = test(expected, judged)
    tested = max(int(np.isfinite(p_value).sum()), 1)
    move, index, chance = compute_stability(rules, expected, live)
    return DriftReport(
        rules=rules,
        expected=expected,
        live=live,
        difference=difference,
        low=low,
        high=high,
        p_value=p_value,
        drift=np.logical_or.reduce(p_value < SIGNIFICANCE_LEVEL / tested, axis=1),
        move=move,
        stability_index=index,
        by_chance=chance,
        rows=n_rows,
        refused=int(rules.refused(rows.matrix).sum()),
        **_score_list(rules, rows, weight),
    )


def render_drift(listing: Listing) -> Iterator[str]:
    """Yield the report of drift on the listing's table as text."""
    if listing.table is None:
        raise SettingError("a drift report compares rules with new rows; give a table")
    rules = listing.complete or listing.rules
    yield rules_against(rules, listing.table).text(listing.language)


_TARGET_MEASURES = ("confidence", "lift", "mean", "spread")


def _has_known_targets(rules: RuleList, targets: Numbers) -> npt.NDArray[np.bool_]:
    """Return (rows,) bool: whether all targets of a row are known."""
    gone = ~np.isfinite(targets) if rules.schema.task == "regression" else targets == -1
    found: npt.NDArray[np.bool_] = ~np.logical_or.reduce(gone, axis=1)
    return found


def _score_list(rules: RuleList, rows: LabelledRows, weight: Numbers) -> dict[str, Any]:
    """Return the number of unpredicted rows, and the performance on the others."""
    total = np.zeros((len(rows.matrix), rules.schema.n_values), dtype=np.int64)
    mass = np.zeros(len(rows.matrix), dtype=np.int64)
    for piece in matching_rules(rules, rows.matrix):
        np.add.at(total, piece.row, multiply_units(rules, piece))
        np.add.at(mass, piece.row, piece.mass)
    usable = ~rules.refused(rows.matrix)
    answered = usable & (mass >= rules.mass * rules.n_trees)
    numbers, blocks = convert_sums(rules, total), rules.schema.blocks
    overall = []
    for k, output in enumerate(rules.schema.outputs):
        truth = rows.targets[:, k]
        some = answered & (np.isfinite(truth) if not output.classes else truth != -1)
        n, mine = int(some.sum()), weight[some]
        if not mine.sum() > 0:
            overall.append(Quality(output.name, n))
        elif output.classes:
            predicted = predict_labels(total[some, blocks[k] : blocks[k + 1]], rules.costs)
            right = float(np.average(predicted == truth[some], weights=mine))
            overall.append(Quality(output.name, n, accuracy=right))
        else:
            overall.append(_score_regression(output.name, truth[some], numbers[some, k], mine))
    return {"unanswered": int((usable & ~answered).sum()), "overall": tuple(overall)}


def _score_regression(name: str, y: Numbers, predicted: Numbers, weight: Numbers) -> Quality:
    spread = float(np.average((y - np.average(y, weights=weight)) ** 2, weights=weight))
    error = float(np.average((y - predicted) ** 2, weights=weight))
    fit = 1.0 - error / spread if spread > 0 else math.nan
    away = float(np.average(np.abs(y - predicted), weights=weight))
    return Quality(name, len(y), r_squared=fit, mean_error=away)


# ---------------------------------------------------------------- text of a drift report

_MAX_WIDTH = 24
"""Maximum width of labels and names; longer ones are truncated."""

_UNKNOWN_CELL = "-"


def format_drift(report: DriftReport, code: str | Language = "en", sort: str = "rule") -> str:
    """Return aligned lines, one per rule and target, with the figures of the complete list below.

    Raises
    ------
    SettingError
        If `sort` is not a field of a record.
    """
    words, records = load_phrases(load_language(code), "treekit_audit"), report.records()
    if records and sort not in records[0]:
        raise SettingError(f"unknown column {sort!r} to sort by; known: {', '.join(records[0])}")
    if sort not in ("rule", "tree"):  # the largest difference, the smallest p-value first
        records.sort(key=lambda record: _make_sort_key(record[sort], largest=sort != "p_value"))
    names = _list_columns(report)
    rows = [[words.say(f"against_{name}") for name in names]]
    rows += [[_format_cell(name, record, words) for name in names] for record in records]
    widths = [max(map(_measure_width, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            " " * (width - _measure_width(cell)) + cell
            for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, "", *_format_summary(report, words)]) + "\n"


def _list_columns(report: DriftReport) -> list[str]:
    figure = "mean" if report.rules.schema.task == "regression" else "confidence"
    return [
        "rule",
        *(["tree"] if report.rules.n_trees > 1 else []),
        *(["target"] if report.rules.schema.more else []),
        "answer",
        *("rows", "expected_coverage", "coverage", f"expected_{figure}", figure),
        *("difference", "p_value", "drift"),
    ]


def _make_sort_key(value: Any, *, largest: bool) -> tuple[bool, Any]:
    if value is None or isinstance(value, str):
        return value is None, value or ""
    return False, -abs(value) if largest else value


def _format_cell(name: str, record: dict[str, Any], words: Language) -> str:
    value = record[name]
    if name == "drift":
        return words.say("against_yes") if value else ""
    if value is None:
        return _UNKNOWN_CELL
    if name in ("answer", "target"):
        if isinstance(value, float):
            return f"{value:.6g}"
        text = quote_name(value) if name == "target" else quote_label(value)
        return text if len(text) <= _MAX_WIDTH else text[: _MAX_WIDTH - 1] + "…"
    if "coverage" in name or "confidence" in name:
        return f"{100 * value:.1f}%"
    if name == "difference" and "confidence" in record:
        return f"{100 * value:+.1f}%"
    if name == "difference":
        return f"{value:+.4g}"
    return f"{value:.3g}" if name == "p_value" else f"{value:.6g}" if "mean" in name else f"{value}"


def _measure_width(text: str) -> int:
    """Return the width of a text in terminal columns: two for wide characters."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _format_summary(report: DriftReport, words: Language) -> list[str]:
    counts = {name: f"{getattr(report, name):,}" for name in ("rows", "refused", "unanswered")}
    lines = [words.say("against_counts", **counts)]
    for quality in report.overall:
        name, rows = quote_name(quality.target), f"{quality.rows:,}"
        if not math.isnan(quality.accuracy):
            accuracy = f"{100 * quality.accuracy:.2f}%"
            lines.append(words.say("against_accuracy", target=name, rows=rows, accuracy=accuracy))
        elif not math.isnan(quality.mean_error):
            fit = _UNKNOWN_CELL if math.isnan(quality.r_squared) else f"{quality.r_squared:.4f}"
            error = f"{quality.mean_error:.6g}"
            lines.append(words.say("against_fit", target=name, rows=rows, fit=fit, error=error))
    if np.isnan(report.p_value).all():
        lines.append(words.say("against_unjudged"))
    else:
        lines.append(words.say("against_drifting", count=str(int(report.drift.sum()))))
    worst = max(
        range(len(report.stability_index)),
        key=lambda tree: -1.0 if math.isnan(x := float(report.stability_index[tree])) else x,
    )
    state = report.stability(worst)
    key = f"against_{state}" if report.rules.n_trees == 1 else f"against_{state}_tree"
    index, chance = (f"{float(v[worst]):.3f}" for v in (report.stability_index, report.by_chance))
    lines.append(words.say(key, index=index, chance=chance, tree=str(worst + 1)))
    return lines


# ---------------------------------------------------------------- statistics

_Z_TWO_SIDED = 1.959963984540054  # 95% quantile of the normal distribution, two-sided
_Z_ONE_SIDED = 1.6448536269514722  # the same, one-sided


def compare_shares(expected: Measures, live: Measures) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Return difference, interval and p-value of confidences."""
    was, now = expected.confidence, live.confidence
    n, m = expected.weight[:, None], live.weight[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = (was * n + now * m) / (n + m)
        error = np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
        middle = (now + _Z_TWO_SIDED**2 / (2 * m)) / (1 + _Z_TWO_SIDED**2 / m)
        half = (
            _Z_TWO_SIDED
            / (1 + _Z_TWO_SIDED**2 / m)
            * np.sqrt(now * (1 - now) / m + _Z_TWO_SIDED**2 / (4 * m**2))
        )
    low, high = np.clip(middle - half, 0.0, 1.0), np.clip(middle + half, 0.0, 1.0)
    return now - was, low, high, _compute_p_values(now - was, error)


def compare_means(expected: Measures, live: Measures) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Return difference, interval and p-value of means, with the live spread for both."""
    was, now = expected.mean, live.mean
    n, m = expected.weight[:, None], live.weight[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        # A single row has no spread.
        variance = np.where(m > 1, live.spread**2 * m / (m - 1), np.nan)
        half = _Z_TWO_SIDED * np.sqrt(variance / m)
        error = np.sqrt(variance * (1 / n + 1 / m))
    return now - was, now - half, now + half, _compute_p_values(now - was, error)


def _compute_p_values(difference: Numbers, error: Numbers) -> Numbers:
    """Return p-values of the normal distribution; 1 where the difference is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        z = np.abs(difference) / error
    z = np.where(difference == 0, 0.0, z)
    flat = [math.erfc(value / math.sqrt(2)) for value in z.ravel().tolist()]
    return np.array(flat).reshape(z.shape)


def compute_stability(
    rules: RuleList, expected: Measures, live: Measures
) -> tuple[Numbers, Numbers, Numbers]:
    """Return each rule's part of the stability index, each tree's index, and its 95% quantile."""
    tree, trees = rules.tree, rules.n_trees
    counts = np.bincount(tree, minlength=trees).astype(np.float64)
    shares, totals = [], []
    for weight in (expected.weight, live.weight):
        total = np.bincount(tree, weight, trees).astype(np.float64)
        # Half a row is added to each rule: the logarithm of a share of 0 is infinite.
        shares.append((weight + 0.5) / (total + 0.5 * counts)[tree])
        totals.append(np.where(total > 0, total, np.nan))
    was, now = shares
    move = (now - was) * np.log(now / was) + 0.0 * (totals[0] + totals[1])[tree]
    free = np.maximum(counts - 1, 1e-9)
    # Quantile of chi squared by Wilson and Hilferty (1931).
    spread = 2 / (9 * free)
    quantile = free * np.maximum(1 - spread + _Z_ONE_SIDED * np.sqrt(spread), 0.0) ** 3
    chance = np.where(counts > 1, quantile, 0.0) * (1 / totals[0] + 1 / totals[1])
    return move, np.bincount(tree, move, trees).astype(np.float64), chance
