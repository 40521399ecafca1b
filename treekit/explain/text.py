"""Text of an explanation, part by part."""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from treekit.data.schema import Dtype
from treekit.explain.contributions import format_contributions, format_total
from treekit.explain.explanation import (
    Clause,
    Explanation,
    Given,
    Said,
    Step,
    Sums,
)
from treekit.rules.language import Language, load_language
from treekit.rules.wording import format_numbers, quote_label, quote_name, quote_text

# ---------------------------------------------------------------- parts

_MAX_COLUMNS = 12
"""Maximum number of contributions listed singly; the others are summed."""
_MAX_NAMES = 12
_MAX_ALIGNED_WIDTH = 56
"""Maximum width for alignment; the text after a longer condition is not aligned."""
_MAX_STEPS = 60
_MAX_LEAVES = 10

Lines = Iterator[tuple[str, bool]]


def format_lines(found: Explanation, chosen: Language | None = None) -> Lines:
    """Yield the lines of the text, and whether each is a heading."""
    nominal = {
        name
        for clause in (*found.rule, *(step.clause for step in found.path if step.clause))
        if clause.levels is not None
        for name in clause.columns
    }
    words = ExplanationWords(chosen or load_language(), found.dtype, nominal)
    if found.refused:
        yield words.get_phrase("refused"), True
        for cell in found.row:
            if cell.refused:
                key = "refused_unseen" if cell.state == "unseen" else "refused_missing"
                value = words.format_cell(cell.column, cell.text)
                yield (
                    f"  {words.get_phrase(key, column=quote_name(cell.column), value=value)}",
                    False,
                )
        return
    for said in found.says:
        yield words.format_prediction(said), True
    parts = [
        _format_path(found, words),
        _format_rule(found, words),
        _format_votes(found, words),
        *(_format_sums(one, found.row, words) for one in _select_sums(found)),
        *(part.lines(words) for _, part in found.parts),
        _format_unused_cells(found, words),
    ]
    for part in parts:
        part_lines = list(part)
        if part_lines:
            yield "", False
            yield from part_lines


def _format_path(found: Explanation, words: ExplanationWords) -> Lines:
    if found.tree is None:
        return
    if found.trees > 1:
        number, all_trees = str(found.tree + 1), str(found.trees)
        yield words.get_phrase("path_of", tree=number, trees=all_trees), True
    else:
        yield words.get_phrase("path"), True
    if not found.path:
        yield f"  {words.get_phrase('no_questions')}", False
    rules = itertools.count(1)
    rows = [_format_step(step, rules, words) for step in found.path[:_MAX_STEPS]]
    widths = [measure_width(left) for left, right in rows if right]
    width = max((width for width in widths if width <= _MAX_ALIGNED_WIDTH), default=0)
    digits = len(str(len(rows)))
    parts = [sum(part for _, part in step.goes) for step in found.path[:_MAX_STEPS]]
    if min(parts, default=1.0) < 1.0:
        rows = [(f"{100 * p:5.3g}%  {a}", b) for p, (a, b) in zip(parts, rows, strict=True)]
        width += len("100.0%  ") - 1
    for place, (left, right) in enumerate(rows, 1):
        text = f"{pad_text(left, width)}   {right}" if right else left
        yield f"  {place:>{digits}}  {text}", False
    if len(found.path) > _MAX_STEPS:
        yield f"  {words.get_phrase('more', count=str(len(found.path) - _MAX_STEPS))}", False
    yield from _format_leaves(found, words)


def _format_leaves(found: Explanation, words: ExplanationWords) -> Lines:
    for leaf in found.leaves[:_MAX_LEAVES]:
        facts = [words.get_phrase("leaf", node=str(leaf.node))]
        if len(found.leaves) > 1:
            facts.append(words.get_phrase("part", share=f"{100 * leaf.part:.3g}%"))
        facts.append(words.get_phrase("support", support=f"{leaf.support:.6g}"))
        if len(found.leaves) > 1 or found.trees > 1:
            facts += map(words.format_prediction, leaf.says)
        yield f"  {', '.join(facts)}", False
    if len(found.leaves) > _MAX_LEAVES:
        yield f"  {words.get_phrase('more', count=str(len(found.leaves) - _MAX_LEAVES))}", False


def _format_step(step: Step, rules: Iterator[int], words: ExplanationWords) -> tuple[str, str]:
    """Return the condition at a node, and the reason."""
    number = str(next(rules)) if step.why in ("held", "failed") else ""
    if step.why == "held":
        return words.get_phrase("held", rule=number), ""
    if step.why == "divided":
        text = words.get_phrase(
            "divided", column=words.format_names([column for column, _ in step.decided])
        )
        return text, ", ".join(f"{node}: {100 * part:.3g}%" for node, part in step.goes)
    condition = words.format_clause(step.clause) if step.clause else ""
    value = ", ".join(words.format_cell(column, text) for column, text in step.decided)
    if len(step.decided) > 1:
        value = ", ".join(
            f"{quote_name(column)} = {words.format_cell(column, text)}"
            for column, text in step.decided
        )
    if step.why == "failed":
        if step.decided[0][1] is None:
            name = quote_name(step.decided[0][0])
            return words.get_phrase("failed_missing", rule=number, column=name), ""
        return words.get_phrase("failed", rule=number, condition=condition, value=value), ""
    if step.why == "lost":
        return condition, _format_missing_step(step, words)
    if step.why == "surrogate":
        column, lost = step.asked[0]
        if lost is None:
            return condition, words.get_phrase(
                "instead_missing", column=quote_name(column), value=value
            )
        fields = {
            "column": quote_name(column),
            "lost": words.format_cell(column, lost),
            "value": value,
        }
        return condition, words.get_phrase("instead_level", **fields)
    if step.clause is not None and not step.clause.known:
        return condition, ""
    key = "sum_is" if len(step.decided) > 1 else "it_is"
    return condition, words.get_phrase(key, cells=value, value=value)


def _format_missing_step(step: Step, words: ExplanationWords) -> str:
    gone = [column for column, text in step.decided if text is None]
    if gone:
        return words.get_phrase("lost_missing", column=words.format_names(gone))
    column, text = step.decided[0]
    return words.get_phrase(
        "lost_level", column=quote_name(column), value=words.format_cell(column, text)
    )


def _format_rule(found: Explanation, words: ExplanationWords) -> Lines:
    if found.tree is None or not found.rule:
        return
    yield words.get_phrase("rule"), True
    for clause in found.rule:
        yield f"  {words.format_clause(clause)}", False


def _format_votes(found: Explanation, words: ExplanationWords) -> Lines:
    for votes in found.votes:
        key = "numbers" if votes.quantiles else "votes"
        key += "_of" if len(found.says) > 1 else ""
        yield words.get_phrase(key, target=quote_name(votes.target)), True
        if votes.quantiles:
            names = ("least", "lower", "middle", "upper", "most")
            texts = {n: f"{q:.6g}" for n, q in zip(names, votes.quantiles, strict=True)}
            yield f"  {words.get_phrase('quantiles', **texts)}", False
        counts = sorted(votes.trees, key=lambda one: -one[1])
        yield from format_table(
            [(quote_label(label), str(count)) for label, count in counts if count]
        )


def _select_sums(found: Explanation) -> Iterator[Sums]:
    """Yield the sums to show: of the predicted class, but for two margins that of the second."""
    for said in found.says:
        own = [one for one in found.sums if one.target == said.target]
        if len(own) == 2 and own[0].margin:
            yield own[1]
        else:
            yield from (one for one in own if _is_same_label(one, said))


def _is_same_label(one: Sums, prediction: Said) -> bool:
    return one.label == prediction.label


def _format_sums(one: Sums, row: Sequence[Given], words: ExplanationWords) -> Lines:
    fields = {"target": quote_name(one.target)}
    key = "adds_before_link" if one.margin else "adds_number"
    if one.label is not None:
        key = "adds_margin" if one.margin else "adds_probability"
        fields["label"] = quote_label(one.label)
    yield words.get_phrase(key, **fields), True
    cells = {cell.column: words.format_cell(cell.column, cell.text) for cell in row}
    nonzero = [(name, units) for name, units in one.columns if units]
    shown, others = nonzero[:_MAX_COLUMNS], nonzero[_MAX_COLUMNS:]
    names = [words.get_phrase("on_average"), *(quote_name(name) for name, _ in shown)]
    values = ["", *(cells[name] for name, _ in shown)]
    parts = [one.bias, *(units for _, units in shown)]
    if others:
        names.append(words.get_phrase("other_columns", count=str(len(others))))
        values.append("")
        parts.append(sum(units for _, units in others))
    figures = format_contributions(one, parts)
    total = format_total(one, parts)
    rows = zip(names, figures, values, strict=True)
    yield from format_table([*rows, (words.get_phrase("together"), total, "")], right=1)


def _format_unused_cells(found: Explanation, words: ExplanationWords) -> Lines:
    """Yield the missing and the unused columns."""
    gone = [cell.column for cell in found.row if cell.state in ("missing", "absent")]
    unseen = [cell for cell in found.row if cell.state == "unseen"]
    if gone or unseen:
        yield words.get_phrase("missing"), True
        if gone:
            yield f"  {words.format_names(gone)}", False
        for cell in unseen:
            fields = {"column": quote_name(cell.column), "value": words.format_cell("", cell.text)}
            yield f"  {words.get_phrase('unseen', **fields)}", False
    idle = [cell.column for cell in found.row if cell.state == "known" and not cell.asked]
    if idle:
        yield words.get_phrase("not_asked"), True
        more = str(len(idle) - _MAX_NAMES)
        behind = " " + words.get_phrase("more", count=more) if len(idle) > _MAX_NAMES else ""
        yield f"  {words.format_names(idle[:_MAX_NAMES])}{behind}", False


def format_table(rows: Sequence[Sequence[str]], *, right: int = -1, gap: int = 2) -> Lines:
    """Yield rows of aligned cells; the column `right` is right-aligned."""
    if not rows:
        return
    widths = [max(map(measure_width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            " " * (width - measure_width(cell)) + cell if place == right else pad_text(cell, width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"  {(' ' * gap).join(cells).rstrip()}", False


# ---------------------------------------------------------------- phrases
# Wording of conditions, cells and predictions.

_MAX_LEVELS = 6
"""Maximum number of categories of a set listed."""


_RANGE_PATTERN = re.compile(r"[<>]=? -?[0-9.]+(e[-+]?[0-9]+)?")


class ExplanationWords:
    """Wording of an explanation.

    Parameters
    ----------
    language : Language
    dtype : {"float32", "float64"}
        Type of thresholds.
    nominal : set of str
        Columns whose cells are texts.
    """

    def __init__(self, language: Language, dtype: Dtype, nominal: set[str]) -> None:
        self.language, self._dtype, self._nominal = language, dtype, nominal

    def get_phrase(self, key: str, **fields: str) -> str:
        """Return a phrase of the catalogue."""
        return self.language.say(f"explain_{key}", **fields)

    def format_cell(self, column: str, text: str | None) -> str:
        """Format a cell; categories are quoted."""
        if text is None:
            return self.get_phrase("gone")
        return quote_text(text) if column in self._nominal or not _is_number(text) else text

    def format_wish(self, wish: str) -> str:
        """Format a wish: a range unchanged, a label like other labels."""
        return wish if _RANGE_PATTERN.fullmatch(wish) else quote_name(wish)

    def format_names(self, columns: Sequence[str]) -> str:
        """Join column names."""
        return ", ".join(map(quote_name, columns))

    def format_clause(self, clause: Clause) -> str:
        """Format a condition."""
        name = self._format_left_side(clause)
        if not clause.known:
            return self.get_phrase("is_missing" if clause.missing else "impossible", name=name)
        if clause.levels is not None:
            text = self._format_levels(name, clause.levels)
        else:
            text = self._format_interval(clause, name)
        if clause.missing:
            return self.get_phrase("or_missing", condition=text)
        return text

    def _format_left_side(self, clause: Clause) -> str:
        names = list(map(quote_name, clause.columns))
        if not clause.weights:
            return names[0]
        weights = format_numbers(np.array(clause.weights), self._dtype)
        return " + ".join(f"{w} * {n}" for w, n in zip(weights, names, strict=True))

    def _format_interval(self, clause: Clause, name: str) -> str:
        # Sums and their thresholds are doubles.
        dtype: Dtype = "float64" if clause.weights else self._dtype
        low, high = (
            format_numbers(np.array([end]), dtype)[0] if math.isfinite(end) else ""
            for end in (clause.low, clause.high)
        )
        if low and high:
            return self.get_phrase("between", low=low, name=name, high=high)
        if low or high:
            return f"{name} > {low}" if low else f"{name} <= {high}"
        return self.get_phrase("is_known", name=name)

    def _format_levels(self, name: str, levels: Sequence[str]) -> str:
        if len(levels) == 1:
            return self.get_phrase("is", name=name, level=quote_text(levels[0]))
        text = ", ".join(map(quote_text, levels[:_MAX_LEVELS]))
        if len(levels) > _MAX_LEVELS:
            text += " " + self.get_phrase("more", count=str(len(levels) - _MAX_LEVELS))
        return self.get_phrase("one_of", name=name, levels="{" + text + "}")

    def format_prediction(self, prediction: Said) -> str:
        """Format the prediction for one target."""
        target = quote_name(prediction.target)
        if prediction.label is None:
            return self.get_phrase(
                "number", target=target, value=repr(prediction.value).removesuffix(".0")
            )
        label = quote_label(prediction.label)
        shares = [share for other, share in prediction.shares if other == prediction.label]
        return self.get_phrase("label", target=target, label=label, share=_format_share(shares[0]))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isprintable()


def _format_share(share: float) -> str:
    """Format a probability to four decimals."""
    return f"{share:.4f}"


def pad_text(text: str, width: int) -> str:
    """Pad a text with blanks; wide East Asian characters take two columns."""
    return text + " " * max(width - measure_width(text), 0)


def measure_width(text: str) -> int:
    """Return the number of terminal columns that a text takes."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
