"""The table of `treekit.rules.against` for a terminal."""

from __future__ import annotations

import math
import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np

from treekit.errors import SettingError
from treekit.rules.language import Language, language
from treekit.rules.words import label_text, name_text

if TYPE_CHECKING:
    from treekit.rules.against import Against

__all__ = ["against_text"]

_WIDEST = 24
"""Longer labels and names are cut."""

_UNKNOWN = "-"


def against_text(report: Against, code: str | Language = "en", sort: str = "rule") -> str:
    """Aligned lines, one for each rule and target, and the figures of the whole list below.

    Raises
    ------
    SettingError
        If `sort` is no field of a record.
    """
    words, records = language(code), report.records()
    if records and sort not in records[0]:
        raise SettingError(
            f"there is no column {sort!r} to sort by; known: {', '.join(records[0])}"
        )
    if sort not in ("rule", "tree"):  # the largest difference, the smallest p-value first
        records.sort(key=lambda record: _rank(record[sort], largest=sort != "p_value"))
    names = _columns(report)
    rows = [[words.say(f"against_{name}") for name in names]]
    rows += [[_cell(name, record, words) for name in names] for record in records]
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            " " * (width - _width(cell)) + cell for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, "", *_whole(report, words)]) + "\n"


def _columns(report: Against) -> list[str]:
    figure = "mean" if report.rules.schema.task == "regression" else "confidence"
    return [
        "rule",
        *(["tree"] if report.rules.n_trees > 1 else []),
        *(["target"] if report.rules.schema.more else []),
        "answer",
        *("rows", "expected_coverage", "coverage", f"expected_{figure}", figure),
        *("difference", "p_value", "drift"),
    ]


def _rank(value: Any, *, largest: bool) -> tuple[bool, Any]:
    if value is None or isinstance(value, str):
        return value is None, value or ""
    return False, -abs(value) if largest else value


def _cell(name: str, record: dict[str, Any], words: Language) -> str:
    value = record[name]
    if name == "drift":
        return words.say("against_yes") if value else ""
    if value is None:
        return _UNKNOWN
    if name in ("answer", "target"):
        if isinstance(value, float):
            return f"{value:.6g}"
        text = name_text(value) if name == "target" else label_text(value)
        return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
    if "coverage" in name or "confidence" in name:
        return f"{100 * value:.1f}%"
    if name == "difference" and "confidence" in record:
        return f"{100 * value:+.1f}%"
    if name == "difference":
        return f"{value:+.4g}"
    return f"{value:.3g}" if name == "p_value" else f"{value:.6g}" if "mean" in name else f"{value}"


def _width(text: str) -> int:
    """Columns of a terminal: two for wide characters."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _whole(report: Against, words: Language) -> list[str]:
    counts = {name: f"{getattr(report, name):,}" for name in ("rows", "refused", "unanswered")}
    lines = [words.say("against_counts", **counts)]
    for quality in report.overall:
        name, rows = name_text(quality.target), f"{quality.rows:,}"
        if not math.isnan(quality.accuracy):
            accuracy = f"{100 * quality.accuracy:.2f}%"
            lines.append(words.say("against_accuracy", target=name, rows=rows, accuracy=accuracy))
        elif not math.isnan(quality.mean_error):
            fit = _UNKNOWN if math.isnan(quality.r_squared) else f"{quality.r_squared:.4f}"
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
    said = report.stability(worst)
    key = f"against_{said}" if report.rules.n_trees == 1 else f"against_{said}_tree"
    index, chance = (f"{float(v[worst]):.3f}" for v in (report.stability_index, report.by_chance))
    lines.append(words.say(key, index=index, chance=chance, tree=str(worst + 1)))
    return lines
