"""Compare two rule lists, and the predictions of two models on a table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.groups import read_groups
from treekit.data.schema import Output, level_text
from treekit.data.table import Table
from treekit.errors import DataError
from treekit.model.model import Model
from treekit.model.scoring import (
    compute_label_codes,
    encode_table,
    predict_from_sums,
    sum_leaf_values,
)
from treekit.rules.language import Language, load_language
from treekit.rules.measure import as_table, encode_target
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import OutcomeFormatter, quote_unprintable, render_conditions

Doubles = npt.NDArray[np.float64]

# ---------------------------------------------------------------- rules

_SIMILAR = 0.5
"""Least similarity of a removed and an added rule that are shown as one changed rule."""

_MAX_PAIRS = 1_000_000
"""Most pairs of rules of a tree whose similarity is computed."""


class RuleChange(NamedTuple):
    """A rule that only one of two lists has, or that has changed.

    Attributes
    ----------
    kind : {"changed", "added", "removed"}
        A rule that only has another place in an ordered list has changed.
    tree : int
        Number of the tree, from 1.
    before, after : int or None
        Number of the rule in each list, from 1.
    lines : tuple of (str, str)
        Its conditions and prediction: ``-`` before, ``+`` after, or a blank for both, and the text.
    """

    kind: Literal["changed", "added", "removed"]
    tree: int
    before: int | None
    after: int | None
    lines: tuple[tuple[str, str], ...]

    def describe(self, words: Language) -> str:
        """Return the kind of change, and the number of the rule in each model, as text."""
        is_moved = self.kind == "changed" and all(mark == " " for mark, _ in self.lines)
        numbers = {"before": str(self.before), "after": str(self.after)}
        return words.say(f"edit_{'moved' if is_moved else self.kind}_rule", **numbers)


@dataclass(frozen=True)
class RuleComparison:
    """The differences of two rule lists.

    Attributes
    ----------
    unchanged : int
        Number of rules with the same conditions and prediction.
    changes : tuple of RuleChange
    n_trees : int
    """

    unchanged: int
    changes: tuple[RuleChange, ...]
    n_trees: int

    def lines(self, words: Language | None = None, most: int | None = None) -> Iterator[str]:
        """Generate the lines of text, of at most `most` changes."""
        words = words or load_language()
        if not self.changes:
            yield words.say("edit_none")
            return
        yield self.describe(words)
        tree = 0
        for change in self.changes[:most]:
            if self.n_trees > 1 and change.tree != tree:
                tree = change.tree
                yield words.say("edit_tree", tree=str(tree), trees=str(self.n_trees))
            yield change.describe(words)
            yield from (f"  {mark} {text}" for mark, text in change.lines)
        if most is not None and len(self.changes) > most:
            yield words.say("edit_more", more=f"{len(self.changes) - most:,}")

    def describe(self, words: Language) -> str:
        """Return the numbers of rules of each kind."""
        kinds = Counter[str](change.kind for change in self.changes)
        counts = {kind: f"{kinds[kind]:,}" for kind in ("changed", "added", "removed")}
        return words.say("edit_rules", unchanged=f"{self.unchanged:,}", **counts)


class _RuleText(NamedTuple):
    """A rule as text: its number in the list, its conditions with their columns, its outcome."""

    number: int
    conditions: tuple[tuple[str, str], ...]
    outcome: str


def compare_rules(
    before: RuleList, after: RuleList, words: Language | None = None
) -> RuleComparison | None:
    """Compare two lists tree by tree; None if they have different numbers of trees.

    Rules are compared by their conditions and predictions as text, not by support; those of an
    ordered list also by their order.
    """
    if before.n_trees != after.n_trees:
        return None
    catalogue = words or load_language()
    unchanged = 0
    changes: list[RuleChange] = []
    ordered = "first" in (before.order, after.order)
    formatters = [OutcomeFormatter(rules, catalogue) for rules in (before, after)]
    for tree in range(before.n_trees):
        old, new = (list(_read_rules(each, tree)) for each in formatters)
        kept = _match_ordered(old, new) if ordered else _match_any(old, new)
        unchanged += len(kept)
        gone = [rule for at, rule in enumerate(old) if at not in kept]
        come = [rule for at, rule in enumerate(new) if at not in set(kept.values())]
        changes += _pair_changes(tree + 1, gone, come, catalogue)
    return RuleComparison(unchanged, tuple(changes), before.n_trees)


def _read_rules(outcomes: OutcomeFormatter, tree: int) -> Iterator[_RuleText]:
    """Generate the rules of a tree."""
    rules, words = outcomes.rules, outcomes.words
    first, last = np.searchsorted(rules.tree, [tree, tree + 1]).tolist()
    start, stop = rules.bounds(first)[0], rules.bounds(last - 1)[1]
    texts = render_conditions(rules, start, stop, words)
    names = rules.schema.names
    numbers = rules.conditions.column[start:stop].tolist()
    columns = [names[f] if f < len(names) else f"test {f - len(names) + 1}" for f in numbers]
    for number, targets in enumerate(outcomes.format_outcomes(first, last), first):
        begin, end = (at - start for at in rules.bounds(number))
        answers = [
            f"{one.text} ({outcomes.join_shares(one.shares)})" if outcomes.has_votes else one.text
            for one in targets
        ]
        conditions = tuple(zip(columns[begin:end], texts[begin:end], strict=True))
        yield _RuleText(number - first + 1, conditions, "; ".join(answers))


def _match_ordered(old: Sequence[_RuleText], new: Sequence[_RuleText]) -> dict[int, int]:
    """Match equal rules of two ordered lists, in their order."""
    mine, theirs = ([(rule.conditions, rule.outcome) for rule in rules] for rules in (old, new))
    matcher = SequenceMatcher(None, mine, theirs, autojunk=False)
    return {a + k: b + k for a, b, size in matcher.get_matching_blocks() for k in range(size)}


def _match_any(old: Sequence[_RuleText], new: Sequence[_RuleText]) -> dict[int, int]:
    """Match equal rules, with their conditions in any order."""
    places = defaultdict(list)
    for at, rule in reversed(list(enumerate(new))):
        places[frozenset(rule.conditions), rule.outcome].append(at)
    kept = {}
    for at, rule in enumerate(old):
        if same := places[frozenset(rule.conditions), rule.outcome]:
            kept[at] = same.pop()
    return kept


def _pair_changes(
    tree: int, gone: list[_RuleText], come: list[_RuleText], words: Language
) -> Iterator[RuleChange]:
    """Pair removed rules with similar added ones; generate all changes in the order of rules."""
    pairs: dict[int, int] = {}
    if len(gone) * len(come) <= _MAX_PAIRS:
        found = [
            (-likeness, a, b)
            for a, old in enumerate(gone)
            for b, new in enumerate(come)
            if (likeness := _compute_likeness(old, new)) >= _SIMILAR
        ]
        taken = set()
        for _, a, b in sorted(found):
            if a not in pairs and b not in taken:
                pairs[a] = b
                taken.add(b)
    for a, old in enumerate(gone):
        if a in pairs:
            new = come[pairs[a]]
            lines = _align_lines(_write_lines(old, words), _write_lines(new, words))
            yield RuleChange("changed", tree, old.number, new.number, lines)
        else:
            lines = tuple(("-", line) for line in _write_lines(old, words))
            yield RuleChange("removed", tree, old.number, None, lines)
    for b, new in enumerate(come):
        if b not in pairs.values():
            lines = tuple(("+", line) for line in _write_lines(new, words))
            yield RuleChange("added", tree, None, new.number, lines)


def _compute_likeness(old: _RuleText, new: _RuleText) -> float:
    """Return the share of equal conditions and outcomes; others on the same column count half."""
    theirs = dict(new.conditions)
    equal = sum((column, text) in new.conditions for column, text in old.conditions)
    near = max(sum(column in theirs for column, _ in old.conditions) - equal, 0)
    if equal + near == 0 and (old.conditions or new.conditions):
        return 0.0  # an equal prediction alone is no likeness
    same = equal + 0.5 * near + (old.outcome == new.outcome)
    return same / (1 + max(len(old.conditions), len(new.conditions)))


def _write_lines(rule: _RuleText, words: Language) -> list[str]:
    """Return the lines of a rule, as in rule text."""
    lines = [] if rule.conditions else [words.phrases["rule_always"]]
    for at, (_, condition) in enumerate(rule.conditions):
        before, after = words.around("rule_and" if at else "rule_if", "condition")
        lines.append(f"{before.strip()} {condition}{after}")
    return [*lines, words.phrases["rule_then"].partition("{answer}")[0] + rule.outcome]


def _align_lines(old: list[str], new: list[str]) -> tuple[tuple[str, str], ...]:
    lines: list[tuple[str, str]] = []
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            lines += [(" ", line) for line in old[a:b]]
        else:
            lines += [("-", line) for line in old[a:b]] + [("+", line) for line in new[c:d]]
    return tuple(lines)


# ---------------------------------------------------------------- predictions

_SHOWN_ROWS = 5


class Switch(NamedTuple):
    """Rows whose label changes.

    Attributes
    ----------
    before, after : str
    rows : list of int
        Numbers of the rows, from 0.
    """

    before: str
    after: str
    rows: list[int]


class Scores(NamedTuple):
    """Scores of two models on the same rows.

    Attributes
    ----------
    before, after : float
    difference, low, high : float
        The second minus the first, and its 95% interval: Agresti and Min (2005) for shares of
        paired rows, else the normal one.
    """

    before: float
    after: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class Change:
    """Changes in the predictions for one target.

    Attributes
    ----------
    target : str
    rows : int
    changed : list of int
        Rows with a different label or number, from 0.
    switches : tuple of Switch
        Classification: the most frequent first.
    largest, mean : float
        Regression: absolute change of the number, over all rows; 0 for classes.
    figure : {"accuracy", "R squared"}
    scores : Scores or None
        That figure on the rows whose target is known; None if the table has none.
    groups : dict of str to (int, int, Scores or None)
        Rows, changed predictions and scores of each group.
    """

    target: str
    rows: int
    changed: list[int]
    switches: tuple[Switch, ...]
    largest: float
    mean: float
    figure: str
    scores: Scores | None
    groups: dict[str, tuple[int, int, Scores | None]]

    def lines(self, words: Language | None = None) -> list[str]:
        """Return the changes as lines of text."""
        language = words or load_language()
        say = language.say
        counts = {"changed": f"{len(self.changed):,}", "rows": f"{self.rows:,}"}
        found = [say("edit_changed", target=quote_unprintable(self.target), **counts)]
        for switch in self.switches:
            before, after = map(quote_unprintable, switch[:2])
            shown = ", ".join(map(str, switch.rows[:_SHOWN_ROWS]))
            shown += ", ..." * (len(switch.rows) > _SHOWN_ROWS)
            fields = {"rows": f"{len(switch.rows):,}", "numbers": shown}
            found.append(say("edit_switch", before=before, after=after, **fields))
        if self.figure != "accuracy" and self.changed:
            moved = {"largest": f"{self.largest:.6g}", "mean": f"{self.mean:.6g}"}
            found.append(say("edit_moved", **moved))
        if self.scores is not None:
            found.append(self._describe_scores(self.scores, language))
        for group, (rows, changed, scores) in self.groups.items():
            text = say("edit_group", group=group, changed=f"{changed:,}", rows=f"{rows:,}")
            told = "" if scores is None else f": {self._describe_scores(scores, language)}"
            found.append(text + told)
        return [found[0], *(f"  {line}" for line in found[1:])]

    def _describe_scores(self, scores: Scores, words: Language) -> str:
        key = "edit_accuracy" if self.figure == "accuracy" else "edit_r_squared"
        plain = {name: f"{getattr(scores, name):.4f}" for name in ("before", "after")}
        signed = {name: f"{getattr(scores, name):+.4f}" for name in ("difference", "low", "high")}
        return words.say(key, **plain, **signed)


def compare_predictions(
    before: Model, after: Model, rows: Any, by: str | None = None
) -> tuple[Change, ...]:
    """Compare the predictions of two models on the rows of a table, target by target.

    Parameters
    ----------
    before, after : Model
        With the same targets.
    rows : table
        Anything that `treekit.data.table.read_table` accepts; if it contains a target, the
        predictions are compared with it.
    by : str, optional
        Column of groups.

    Raises
    ------
    DataError
        If the models have different targets, or the table lacks a column.
    """
    check_same_targets(before, after)
    table = as_table(rows, before.schema)
    groups = {}
    if by is not None:
        codes, names = read_groups(table, by)
        groups = {f"{by}={name}": codes == code for code, name in enumerate(names)}
    predictions = [_predict_table(model, table) for model in (before, after)]
    return tuple(
        _compare_target(table, output, groups, *(each[:, k] for each in predictions))
        for k, output in enumerate(before.schema.outputs)
    )


def check_same_targets(before: Model, after: Model) -> None:
    """Raise `DataError` if two models predict different targets or classes."""
    if before.schema.outputs != after.schema.outputs:
        raise DataError(
            "the models have different targets or classes; compare models with the same targets"
        )


def _predict_table(model: Model, table: Table) -> Doubles:
    """Return (rows, targets) predicted class codes or numbers."""
    matrix = encode_table(model, table, missing_marks=table.missing)
    sums = sum_leaf_values(model, matrix)
    labels = model.schema.task == "classification"
    found = compute_label_codes(model, sums) if labels else predict_from_sums(model, sums)
    return found.reshape(table.n_rows, -1).astype(np.float64)


def _compare_target(
    table: Table,
    output: Output,
    groups: dict[str, npt.NDArray[np.bool_]],
    before: Doubles,
    after: Doubles,
) -> Change:
    differ = before != after
    largest = mean = 0.0
    if not output.classes and len(before):
        moved = np.abs(after - before)
        largest, mean = float(moved.max()), float(moved.mean())
    labels = [level_text(label) or "" for label in output.classes]
    rows_of = defaultdict(list)
    for row in np.flatnonzero(differ).tolist() if labels else ():
        rows_of[int(before[row]), int(after[row])].append(row)
    switches = [Switch(labels[old], labels[new], rows) for (old, new), rows in rows_of.items()]
    actual = encode_target(table, output.name, output) if output.name in table.names else None

    def score(some: npt.NDArray[np.bool_]) -> Scores | None:
        if actual is None:
            return None
        return _score_rows(actual[some], before[some], after[some], bool(labels))

    return Change(
        target=output.name,
        rows=len(before),
        changed=np.flatnonzero(differ).tolist(),
        switches=tuple(sorted(switches, key=lambda one: -len(one.rows))),
        largest=largest,
        mean=mean,
        figure="accuracy" if labels else "R squared",
        scores=score(np.ones(len(before), np.bool_)),
        groups={
            name: (int(some.sum()), int(differ[some].sum()), score(some))
            for name, some in groups.items()
        },
    )


_NORMAL = 1.959963984540054


def _score_rows(
    actual: Doubles, before: Doubles, after: Doubles, has_labels: bool
) -> Scores | None:
    """Return accuracy or R squared on the rows whose target is known; None if undefined."""
    known = ~np.isnan(actual) & (actual != -1 if has_labels else True)
    actual, before, after = actual[known], before[known], after[known]
    n = len(actual)
    if n == 0:
        return None
    if has_labels:
        first, second = before == actual, after == actual
        # Agresti and Min 2005: half a row is added to each cell of the paired table.
        better = float(np.sum(second & ~first)) + 0.5
        worse = float(np.sum(first & ~second)) + 0.5
        middle, spread = (better - worse) / (n + 2), better + worse
        half = _NORMAL * np.sqrt(spread - (better - worse) ** 2 / (n + 2)) / (n + 2)
        values = float(first.mean()), float(second.mean())
        return Scores(*values, values[1] - values[0], float(middle - half), float(middle + half))
    variance = float(np.var(actual))
    if variance == 0.0:
        return None
    errors = [(actual - predicted) ** 2 / variance for predicted in (before, after)]
    gain = errors[0] - errors[1]
    half = _NORMAL * float(gain.std(ddof=1)) / np.sqrt(n) if n > 1 else 0.0
    mean = float(gain.mean())
    return Scores(
        1.0 - float(errors[0].mean()), 1.0 - float(errors[1].mean()), mean, mean - half, mean + half
    )
