"""The report of `treekit.rules.overlaps` in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from treekit.rules.language import Language, language
from treekit.rules.words import name_text, numerals, quote

if TYPE_CHECKING:
    from treekit.rules.overlaps import Overlaps

__all__ = ["overlaps_text"]


def overlaps_text(report: Overlaps, code: str | Language = "en", most: int = 20) -> str:
    """Lines of text, at most `most` of each kind; rules count from 1, as in their list."""
    words = language(code)
    lines = [words.say("overlap_title", rules=str(len(report.numbers)))]
    if not report.exact:
        lines.append(words.say("overlap_tests"))
    for kind in (_pairs(report, words), _shadows(report, words), _reach(report, words)):
        found = [*kind]
        lines += found[:most]
        if len(found) > most:
            lines.append(words.say("overlap_more", count=str(len(found) - most)))
    lines.append(_gap(report, words))
    if report.counts is not None:
        counts = report.counts._asdict()
        del counts["answered"]
        fields = {name: f"{count:,}" for name, count in counts.items()}
        lines.append(words.say("overlap_counts", **fields))
    return "\n".join(lines) + "\n"


def _pairs(report: Overlaps, words: Language) -> Iterator[str]:
    if not len(report.pairs):
        yield words.say("overlap_none")
        return
    order = np.argsort(~report.conflicts, kind="stable")  # conflicts first
    kinds = {True: "overlap_conflict", False: "overlap_pair"}
    for (a, b), other in zip(
        report.pairs[order].tolist(), report.conflicts[order].tolist(), strict=True
    ):
        yield words.say(kinds[other], rule=str(a + 1), other=str(b + 1))


def _shadows(report: Overlaps, words: Language) -> Iterator[str]:
    for rule, by in zip(report.numbers.tolist(), report.shadowed.tolist(), strict=True):
        if by >= 0:
            yield words.say("overlap_shadowed", rule=str(rule + 1), other=str(by + 1))


def _reach(report: Overlaps, words: Language) -> Iterator[str]:
    for rule, said in zip(report.numbers.tolist(), report.reach, strict=True):
        if said != "reached":
            yield words.say(f"overlap_{said}", rule=str(rule + 1))


def _gap(report: Overlaps, words: Language) -> str:
    if report.gap is None:
        return words.say("overlap_gap_undecided")
    if not report.gap:
        return words.say("overlap_no_gap")
    if report.witness is None:
        return words.say("overlap_gap_somewhere")
    said = [
        words.say("overlap_cell", name=name_text(name), value=_value(value, words))
        for name, value in report.witness.items()
    ]
    return words.say("overlap_gap", row=words.say("overlap_and").join(said))


def _value(value: float | str | None, words: Language) -> str:
    if value is None:
        return words.say("overlap_missing")
    if isinstance(value, str):
        return quote(value)
    return numerals(np.array([value]))[0] if np.isfinite(value) else repr(value)
