"""What an edit of rules changes: the rows that get another answer, and who was right."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.encoding import encode_rows
from treekit.data.features import level_codes, numeric_cells
from treekit.data.schema import level_text
from treekit.data.table import Table, read_table
from treekit.errors import DataError
from treekit.model.model import Model
from treekit.model.scoring import decide, sums
from treekit.rules.language import Language, language
from treekit.rules.phrases import condition_texts
from treekit.rules.rulelist import RuleList
from treekit.rules.words import quote
from treekit.rules.write import AnswerTexts

__all__ = ["Change", "Switch", "changed", "edits"]


@dataclass(frozen=True)
class Switch:
    """Rows that one model answers so and the other so.

    Attributes
    ----------
    before, after : str
        Labels as text.
    rows : int
    """

    before: str
    after: str
    rows: int


@dataclass(frozen=True)
class Change:
    """What became of one target's answers.

    Attributes
    ----------
    target : str
    rows : int
    changed : (changed,) int64
        Rows of another label, or another number, from 0.
    switches : tuple of Switch
        Classification: which labels became which, the most frequent first.
    largest, mean : float
        Regression: absolute change of the number, over all rows; 0 for classes.
    figure : {"accuracy", "R squared"}
    before, after : float
        That figure on the rows whose target is known; NaN if the table has none.
    """

    target: str
    rows: int
    changed: npt.NDArray[np.int64]
    switches: tuple[Switch, ...]
    largest: float
    mean: float
    figure: str
    before: float
    after: float

    def lines(self, words: Language | None = None) -> list[str]:
        """What changed, in words."""
        say = (words or language()).say
        many = len(self.changed)
        text = [
            say(
                "edit_changed",
                target=_told(self.target),
                changed=f"{many:,}",
                rows=f"{self.rows:,}",
            )
        ]
        text += [
            "  "
            + say("edit_switch", before=_told(s.before), after=_told(s.after), rows=f"{s.rows:,}")
            for s in self.switches
        ]
        if self.figure != "accuracy" and many:
            text.append(
                "  " + say("edit_moved", largest=_short(self.largest), mean=_short(self.mean))
            )
        if not np.isnan(self.before):
            key = "edit_accuracy" if self.figure == "accuracy" else "edit_r_squared"
            text.append("  " + say(key, before=_figure(self.before), after=_figure(self.after)))
        return text


def _told(text: str) -> str:
    """A name or a label as it is, unless that would hide something or break a line."""
    return text if text.isprintable() else quote(text)


def changed(before: Model, after: Model, rows: Any) -> tuple[Change, ...]:
    """What `after` says otherwise than `before` of the rows of a table, target by target.

    Parameters
    ----------
    before, after : Model
        Of the same targets.
    rows : table
        Anything that `treekit.data.table.read_table` reads; where it has a target, the
        answers are compared with it.

    Raises
    ------
    DataError
        If the models have other targets, or the table lacks a column.
    """
    if before.schema.outputs != after.schema.outputs:
        raise DataError("the models have other targets or classes, so that answers cannot differ")
    marks = before.schema.missing_marks
    table = rows if isinstance(rows, Table) else read_table(rows, missing=marks)
    answers = [_answers(model, table) for model in (before, after)]
    return tuple(
        _change(before, table, k, answers[0][:, k], answers[1][:, k])
        for k in range(len(before.schema.outputs))
    )


def _answers(model: Model, table: Table) -> npt.NDArray[Any]:
    """(rows, targets) labels or numbers."""
    matrix = encode_rows(
        table,
        model.schema,
        missing=model.missing,
        unknown=model.unknown,
        missing_marks=table.missing,
    )
    return decide(model, sums(model, matrix)).reshape(table.n_rows, -1)


def _change(
    model: Model, table: Table, k: int, before: npt.NDArray[Any], after: npt.NDArray[Any]
) -> Change:
    target = model.schema.outputs[k].name
    differ = np.flatnonzero(before != after)
    known = target in table.names
    if model.schema.task == "regression":
        apart = np.abs(after.astype(np.float64) - before.astype(np.float64))
        largest, mean = (float(apart.max()), float(apart.mean())) if len(apart) else (0.0, 0.0)
        figures = _squared(table, target, before, after) if known else (np.nan, np.nan)
        return Change(target, len(before), differ, (), largest, mean, "R squared", *figures)
    said = [[level_text(label) or "" for label in some.tolist()] for some in (before, after)]
    counts = Counter((said[0][row], said[1][row]) for row in differ.tolist())
    switches = tuple(Switch(*pair, many) for pair, many in counts.most_common())
    figures = _accuracy(table, target, said) if known else (np.nan, np.nan)
    return Change(target, len(before), differ, switches, 0.0, 0.0, "accuracy", *figures)


def _accuracy(table: Table, target: str, said: list[list[str]]) -> tuple[float, float]:
    # As texts: a file knows no types, and a label that the models lack is just wrong.
    code = {text: at for at, text in enumerate(dict.fromkeys([*said[0], *said[1]]))}
    actual = level_codes(table, target, list(code))
    known = actual != -1
    if not known.any():
        return np.nan, np.nan
    before, after = (
        float((np.array([code[text] for text in some]) == actual)[known].mean()) for some in said
    )
    return before, after


def _squared(
    table: Table, target: str, before: npt.NDArray[Any], after: npt.NDArray[Any]
) -> tuple[float, float]:
    actual = numeric_cells(table, target).astype(np.float64)
    known = ~np.isnan(actual)
    total = float(((actual[known] - actual[known].mean()) ** 2).sum()) if known.any() else 0.0
    if total == 0:
        return np.nan, np.nan
    first, second = (
        1.0 - float(((actual - said.astype(np.float64))[known] ** 2).sum()) / total
        for said in (before, after)
    )
    return first, second


def _figure(value: float) -> str:
    return f"{value:.4f}"


def _short(value: float) -> str:
    return f"{value:.6g}"


def edits(before: RuleList, after: RuleList, words: Language | None = None) -> Iterator[str]:
    """The rules that only one of two lists has: ``-`` before the edit, ``+`` after it.

    Trees that did not change say nothing; rules are compared by what they ask and answer.
    """
    said = words or language()
    answers = [(rules, AnswerTexts(rules, said)) for rules in (before, after)]
    for tree in range(before.n_trees):
        old, new = (list(_rule_texts(*each, tree, said)) for each in answers)
        if old == new:
            continue
        if before.n_trees > 1:
            yield said.say("edit_tree", tree=str(tree + 1), trees=str(before.n_trees))
        for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if tag != "equal":
                yield from (f"- {text}" for text in old[a:b])
                yield from (f"+ {text}" for text in new[c:d])


def _rule_texts(rules: RuleList, texts: AnswerTexts, tree: int, words: Language) -> Iterator[str]:
    """Each rule of a tree on a line, without its number and support."""
    first, last = np.searchsorted(rules.tree, [tree, tree + 1]).tolist()
    start, stop = rules.bounds(first)[0], rules.bounds(last - 1)[1]
    conditions = condition_texts(rules, start, stop, words)
    blocks = itertools.pairwise(rules.schema.blocks)
    said = zip(*(texts.said(*block, first, last) for block in blocks), strict=True)
    then = words.phrases["rule_then"].partition("{answer}")[0]
    for number, answers in enumerate(said, first):
        begin, end = rules.bounds(number)
        asked = _asked(conditions[begin - start : end - start], words)
        yield " ".join([*asked, then + "; ".join(map(_answered, answers))])


def _asked(conditions: list[str], words: Language) -> Iterator[str]:
    if not conditions:
        yield words.phrases["rule_always"]
    for at, condition in enumerate(conditions):
        before, after = words.around("rule_and" if at else "rule_if", "condition")
        yield f"{before.strip()} {condition}{after}"


def _answered(said: tuple[str, str]) -> str:
    answer, shares = said
    return f"{answer} ({shares})" if shares else answer
