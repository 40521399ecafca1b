"""Text of an explanation, part by part."""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from treekit.data.schema import Dtype
from treekit.explain.contributions import figures_of, total_of
from treekit.explain.explanation import (
    Change,
    Changes,
    Clause,
    Explanation,
    Given,
    Said,
    Step,
    Sums,
)
from treekit.rules.language import Language, language
from treekit.rules.wording import label_text, name_text, numerals, quote

__all__ = [
    "Words",
    "lines",
    "padded",
    "width_of",
]


# ---------------------------------------------------------------- parts

_COLUMNS = 12
"""Maximum number of contributions listed singly; the others are summed."""
_NAMES = 12
_WIDE = 56
"""Maximum width for alignment; the text after a longer condition is not aligned."""
_STEPS = 60
_LEAVES = 10
_SINGLE = 3
"""Maximum number of single-column changes listed."""

Lines = Iterator[tuple[str, bool]]


def lines(found: Explanation, chosen: Language | None = None) -> Lines:
    """Yield the lines of the text, and whether each is a heading."""
    nominal = {
        name
        for clause in (*found.rule, *(step.clause for step in found.path if step.clause))
        if clause.levels is not None
        for name in clause.columns
    }
    words = Words(chosen or language(), found.dtype, nominal)
    if found.refused:
        yield words.say("refused"), True
        for cell in found.row:
            if cell.refused:
                key = "refused_unseen" if cell.state == "unseen" else "refused_missing"
                value = words.cell(cell.column, cell.text)
                yield f"  {words.say(key, column=name_text(cell.column), value=value)}", False
        return
    for said in found.says:
        yield words.answer(said), True
    parts = [
        _path(found, words),
        _rule(found, words),
        _votes(found, words),
        *(_sums(one, found.row, words) for one in _chosen(found)),
        _changes(found.changes, words),
        _cells(found, words),
    ]
    for part in parts:
        part_lines = list(part)
        if part_lines:
            yield "", False
            yield from part_lines


def _path(found: Explanation, words: Words) -> Lines:
    if found.tree is None:
        return
    if found.trees > 1:
        number, all_trees = str(found.tree + 1), str(found.trees)
        yield words.say("path_of", tree=number, trees=all_trees), True
    else:
        yield words.say("path"), True
    if not found.path:
        yield f"  {words.say('no_questions')}", False
    rules = itertools.count(1)
    rows = [_step(step, rules, words) for step in found.path[:_STEPS]]
    widths = [width_of(left) for left, right in rows if right]
    width = max((width for width in widths if width <= _WIDE), default=0)
    digits = len(str(len(rows)))
    parts = [sum(part for _, part in step.goes) for step in found.path[:_STEPS]]
    if min(parts, default=1.0) < 1.0:
        rows = [(f"{100 * p:5.3g}%  {a}", b) for p, (a, b) in zip(parts, rows, strict=True)]
        width += len("100.0%  ") - 1
    for place, (left, right) in enumerate(rows, 1):
        text = f"{padded(left, width)}   {right}" if right else left
        yield f"  {place:>{digits}}  {text}", False
    if len(found.path) > _STEPS:
        yield f"  {words.say('more', count=str(len(found.path) - _STEPS))}", False
    yield from _leaves(found, words)


def _leaves(found: Explanation, words: Words) -> Lines:
    for leaf in found.leaves[:_LEAVES]:
        facts = [words.say("leaf", node=str(leaf.node))]
        if len(found.leaves) > 1:
            facts.append(words.say("part", share=f"{100 * leaf.part:.3g}%"))
        facts.append(words.say("support", support=f"{leaf.support:.6g}"))
        if len(found.leaves) > 1 or found.trees > 1:
            facts += map(words.answer, leaf.says)
        yield f"  {', '.join(facts)}", False
    if len(found.leaves) > _LEAVES:
        yield f"  {words.say('more', count=str(len(found.leaves) - _LEAVES))}", False


def _step(step: Step, rules: Iterator[int], words: Words) -> tuple[str, str]:
    """Return the condition at a node, and the reason."""
    number = str(next(rules)) if step.why in ("held", "failed") else ""
    if step.why == "held":
        return words.say("held", rule=number), ""
    if step.why == "divided":
        text = words.say("divided", column=words.names([column for column, _ in step.decided]))
        return text, ", ".join(f"{node}: {100 * part:.3g}%" for node, part in step.goes)
    condition = words.clause(step.clause) if step.clause else ""
    value = ", ".join(words.cell(column, text) for column, text in step.decided)
    if len(step.decided) > 1:
        value = ", ".join(
            f"{name_text(column)} = {words.cell(column, text)}" for column, text in step.decided
        )
    if step.why == "failed":
        if step.decided[0][1] is None:
            name = name_text(step.decided[0][0])
            return words.say("failed_missing", rule=number, column=name), ""
        return words.say("failed", rule=number, condition=condition, value=value), ""
    if step.why == "lost":
        return condition, _lost(step, words)
    if step.why == "surrogate":
        column, lost = step.asked[0]
        if lost is None:
            return condition, words.say("instead_missing", column=name_text(column), value=value)
        fields = {"column": name_text(column), "lost": words.cell(column, lost), "value": value}
        return condition, words.say("instead_level", **fields)
    if step.clause is not None and not step.clause.known:
        return condition, ""
    key = "sum_is" if len(step.decided) > 1 else "it_is"
    return condition, words.say(key, cells=value, value=value)


def _lost(step: Step, words: Words) -> str:
    gone = [column for column, text in step.decided if text is None]
    if gone:
        return words.say("lost_missing", column=words.names(gone))
    column, text = step.decided[0]
    return words.say("lost_level", column=name_text(column), value=words.cell(column, text))


def _rule(found: Explanation, words: Words) -> Lines:
    if found.tree is None or not found.rule:
        return
    yield words.say("rule"), True
    for clause in found.rule:
        yield f"  {words.clause(clause)}", False


def _votes(found: Explanation, words: Words) -> Lines:
    for votes in found.votes:
        key = "numbers" if votes.quantiles else "votes"
        key += "_of" if len(found.says) > 1 else ""
        yield words.say(key, target=name_text(votes.target)), True
        if votes.quantiles:
            names = ("least", "lower", "middle", "upper", "most")
            texts = {n: f"{q:.6g}" for n, q in zip(names, votes.quantiles, strict=True)}
            yield f"  {words.say('quantiles', **texts)}", False
        counts = sorted(votes.trees, key=lambda one: -one[1])
        yield from _table([(label_text(label), str(count)) for label, count in counts if count])


def _chosen(found: Explanation) -> Iterator[Sums]:
    """Yield the sums to show: of the predicted class, but for two margins that of the second."""
    for said in found.says:
        own = [one for one in found.sums if one.target == said.target]
        if len(own) == 2 and own[0].margin:
            yield own[1]
        else:
            yield from (one for one in own if _same(one, said))


def _same(one: Sums, said: Said) -> bool:
    return one.label == said.label


def _sums(one: Sums, row: Sequence[Given], words: Words) -> Lines:
    fields = {"target": name_text(one.target)}
    key = "adds_before_link" if one.margin else "adds_number"
    if one.label is not None:
        key = "adds_margin" if one.margin else "adds_probability"
        fields["label"] = label_text(one.label)
    yield words.say(key, **fields), True
    cells = {cell.column: words.cell(cell.column, cell.text) for cell in row}
    nonzero = [(name, units) for name, units in one.columns if units]
    shown, others = nonzero[:_COLUMNS], nonzero[_COLUMNS:]
    names = [words.say("on_average"), *(name_text(name) for name, _ in shown)]
    values = ["", *(cells[name] for name, _ in shown)]
    parts = [one.bias, *(units for _, units in shown)]
    if others:
        names.append(words.say("other_columns", count=str(len(others))))
        values.append("")
        parts.append(sum(units for _, units in others))
    figures = figures_of(one, parts)
    total = total_of(one, parts)
    rows = zip(names, figures, values, strict=True)
    yield from _table([*rows, (words.say("together"), total, "")], right=1)


def _changes(changes: Changes | None, words: Words) -> Lines:
    if changes is None:
        return
    if changes.wish:
        fields = {"target": name_text(changes.target), "wish": words.wish(changes.wish)}
        yield words.say("change_to", **fields), True
    else:
        yield words.say("change"), True
    if changes.met:
        yield f"  {words.say('met')}", False
        return
    listed = [("", change) for change in changes.single[:1]]
    listed += [(words.say("or"), change) for change in changes.single[1:_SINGLE]]
    if changes.pair is not None:
        key = "both" if changes.single else "both_only"
        listed.append((words.say(key), changes.pair))
    yield from _table(
        [(_change(change, words, before), _then(change, words)) for before, change in listed], gap=3
    )
    if not listed and changes.complete and not changes.apart:
        count = words.say("one" if changes.most == 1 else "two")
        yield f"  {words.say('none', count=count)}", False
    if changes.apart:
        yield f"  {words.say('apart', count=str(changes.apart))}", False
    if not changes.complete:
        yield f"  {words.say('incomplete')}", False


def _change(change: Change, words: Words, before: str) -> str:
    cells = (
        words.say(
            "set",
            column=name_text(cell.column),
            before=words.cell(cell.column, cell.before),
            after=words.cell(cell.column, cell.after),
        )
        for cell in change.cells
    )
    return f"{before}{': ' if len(change.cells) > 1 else ' ' if before else ''}" + words.say(
        "and"
    ).join(cells)


def _then(change: Change, words: Words) -> str:
    return words.say("then", answer=words.say("and").join(map(words.answer, change.says)))


def _cells(found: Explanation, words: Words) -> Lines:
    """Yield the missing and the unused columns."""
    gone = [cell.column for cell in found.row if cell.state in ("missing", "absent")]
    unseen = [cell for cell in found.row if cell.state == "unseen"]
    if gone or unseen:
        yield words.say("missing"), True
        if gone:
            yield f"  {words.names(gone)}", False
        for cell in unseen:
            fields = {"column": name_text(cell.column), "value": words.cell("", cell.text)}
            yield f"  {words.say('unseen', **fields)}", False
    idle = [cell.column for cell in found.row if cell.state == "known" and not cell.asked]
    if idle:
        yield words.say("not_asked"), True
        more = str(len(idle) - _NAMES)
        behind = " " + words.say("more", count=more) if len(idle) > _NAMES else ""
        yield f"  {words.names(idle[:_NAMES])}{behind}", False


def _table(rows: Sequence[Sequence[str]], *, right: int = -1, gap: int = 2) -> Lines:
    """Yield rows of aligned cells; the column `right` is right-aligned."""
    if not rows:
        return
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            " " * (width - width_of(cell)) + cell if place == right else padded(cell, width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"  {(' ' * gap).join(cells).rstrip()}", False


# ---------------------------------------------------------------- phrases
# Wording of conditions, cells and predictions.

_LEVELS = 6
"""Maximum number of categories of a set listed."""


_RANGE = re.compile(r"[<>]=? -?[0-9.]+(e[-+]?[0-9]+)?")


class Words:
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

    def say(self, key: str, **fields: str) -> str:
        """Return a phrase of the catalogue."""
        return self.language.say(f"explain_{key}", **fields)

    def cell(self, column: str, text: str | None) -> str:
        """Format a cell; categories are quoted."""
        if text is None:
            return self.say("gone")
        return quote(text) if column in self._nominal or not _is_number(text) else text

    def wish(self, wish: str) -> str:
        """Format a wish: a range unchanged, a label like other labels."""
        return wish if _RANGE.fullmatch(wish) else name_text(wish)

    def names(self, columns: Sequence[str]) -> str:
        """Join column names."""
        return ", ".join(map(name_text, columns))

    def clause(self, clause: Clause) -> str:
        """Format a condition."""
        name = self._left(clause)
        if not clause.known:
            return self.say("is_missing" if clause.missing else "impossible", name=name)
        if clause.levels is not None:
            text = self._set(name, clause.levels)
        else:
            text = self._interval(clause, name)
        if clause.missing:
            return self.say("or_missing", condition=text)
        return text

    def _left(self, clause: Clause) -> str:
        names = list(map(name_text, clause.columns))
        if not clause.weights:
            return names[0]
        weights = numerals(np.array(clause.weights), self._dtype)
        return " + ".join(f"{w} * {n}" for w, n in zip(weights, names, strict=True))

    def _interval(self, clause: Clause, name: str) -> str:
        # Sums and their thresholds are doubles.
        dtype: Dtype = "float64" if clause.weights else self._dtype
        low, high = (
            numerals(np.array([end]), dtype)[0] if math.isfinite(end) else ""
            for end in (clause.low, clause.high)
        )
        if low and high:
            return self.say("between", low=low, name=name, high=high)
        if low or high:
            return f"{name} > {low}" if low else f"{name} <= {high}"
        return self.say("is_known", name=name)

    def _set(self, name: str, levels: Sequence[str]) -> str:
        if len(levels) == 1:
            return self.say("is", name=name, level=quote(levels[0]))
        text = ", ".join(map(quote, levels[:_LEVELS]))
        if len(levels) > _LEVELS:
            text += " " + self.say("more", count=str(len(levels) - _LEVELS))
        return self.say("one_of", name=name, levels="{" + text + "}")

    def answer(self, said: Said) -> str:
        """Format the prediction for one target."""
        target = name_text(said.target)
        if said.label is None:
            return self.say("number", target=target, value=repr(said.value).removesuffix(".0"))
        label = label_text(said.label)
        shares = [share for other, share in said.shares if other == said.label]
        return self.say("label", target=target, label=label, share=_share(shares[0]))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isprintable()


def _share(share: float) -> str:
    """Format a probability to four decimals."""
    return f"{share:.4f}"


def padded(text: str, width: int) -> str:
    """Pad a text with blanks; wide East Asian characters take two columns."""
    return text + " " * max(width - width_of(text), 0)


def width_of(text: str) -> int:
    """Return the number of terminal columns that a text takes."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
