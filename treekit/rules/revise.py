"""From edited rules to the model that they are.

Where only answers were edited the trees stay, with other leaves.  Otherwise each tree
becomes an ordered list, whose first rule that fits answers.  Rules that together fit every
row need no last one without conditions: that they do is proved (`treekit.rules.analysis`).
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.encoding import encode_rows
from treekit.data.features import level_codes, numeric_cells
from treekit.data.schema import level_text
from treekit.data.table import Table, read_table
from treekit.errors import DataError, ModelError
from treekit.model.model import Model
from treekit.model.scoring import decide, sums
from treekit.model.validation import check_model
from treekit.rules.analysis import overlapping_rules
from treekit.rules.extract import rules
from treekit.rules.language import Language, language
from treekit.rules.measure import supported, unsupported
from treekit.rules.merge import Asked, asked, joined
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import condition_texts, numerals, quote
from treekit.rules.write_text import AnswerTexts

__all__ = [
    "Change",
    "Matched",
    "Switch",
    "changed",
    "edits",
    "matched",
    "revised",
    "revision",
]


# ---------------------------------------------------------------- revised

Doubles = npt.NDArray[np.float64]


def revised(model: Model, edited: RuleList, rows: Any = None) -> Model:
    """The model that answers as the edited rules of `model` say.

    Where only answers were edited, rules keep the support of training.  Other conditions
    are met by other rows: rules then have that of `rows`, or none.

    Parameters
    ----------
    model : Model
        What the rules were written of; its settings and provenance stay.
    edited : RuleList
        Of the model's columns and targets; see `treekit.rules.read_edited.read_edited`.
    rows : table, optional
        With targets: what rules of other conditions are measured on.

    Raises
    ------
    DataError
        If the rules are of other columns or targets.
    ModelError
        If there are rows that no rule answers, or rules divide rows or ask tests of several
        columns and more was edited than answers.
    """
    return revision(model, edited, rows)[0]


def revision(model: Model, edited: RuleList, rows: Any = None) -> tuple[Model, Matched]:
    """The model of `revised`, and the edited rules beside those that they were."""
    if edited.voting == "hard" != model.voting and model.n_trees == 1:
        edited = replace(edited, decisions=True)  # which JSON says by its votes alone
    _require_same(model, edited)
    edited = replace(edited, schema=model.schema)
    found = matched(model, edited)
    provenance = {**model.provenance, "revised": True}
    if found.kept.all():
        return _with_answers(model, found, provenance), found
    _require_listable(found)
    # Rules alone say what is missing; a list has no stand-ins.
    missing = "direction" if edited.missing == "surrogate" else edited.missing
    listed = _completed(replace(edited, order="first", missing=missing), found)
    listed = unsupported(listed) if rows is None else supported(listed, rows)
    return listed.model(settings=model.settings, provenance=provenance), found


def _require_same(model: Model, edited: RuleList) -> None:
    ours, theirs = model.schema, edited.schema
    facts: list[tuple[str, Any, Any]] = [
        ("columns", ours.columns, theirs.columns),
        ("targets", ours.outputs, theirs.outputs),
        ("type of numbers", ours.dtype, theirs.dtype),
        ("policies", (model.missing, model.unknown), (edited.missing, edited.unknown)),
        ("ways to combine trees", (model.combine, model.link), (edited.combine, edited.link)),
    ]
    if not edited.decisions:
        facts.append(("votes of rules", model.voting, edited.voting))
        facts.append(("costs", _listed(model.label_costs), _listed(edited.costs)))
    for what, one, other in facts:
        if one != other:
            raise DataError(
                f"the {what} of the edited rules are not those of the model; write the rules "
                "of this model, and edit those"
            )
    if edited.n_trees != model.n_trees:
        raise DataError(
            f"the edited rules are of {edited.n_trees} trees, and the model has {model.n_trees}"
        )


def _listed(costs: npt.NDArray[np.int64] | None) -> list[list[int]]:
    return [] if costs is None else costs.tolist()


def _require_listable(found: Matched) -> None:
    """Refuse other conditions where no ordered list can say what the model's rules say."""
    remedy = "edit answers alone, or take the rules of a model that was trained without"
    if found.before.mass > 1:
        raise ModelError(
            "the model divides rows with missing values among its rules (missing='fractional'), "
            f"so that conditions cannot be edited: {remedy}"
        )
    if found.after.tests:
        raise ModelError(
            "rules ask tests of several columns (surrogates, or oblique splits), so that "
            f"conditions cannot be edited: {remedy}"
        )


def _with_answers(model: Model, found: Matched, provenance: Mapping[str, Any]) -> Model:
    """The same trees, whose leaves answer as the rules do; what training rows said stays."""
    edited = found.after
    rule_of = np.empty(len(edited), dtype=np.int64)
    rule_of[found.origin] = np.arange(len(edited))
    leaves = rules(model)
    mine = rule_of[found.home]
    said = edited.units[mine]
    if edited.decisions:  # shares stay where the label does
        other = _differs(found)[mine]
        said = np.where(other[:, None], said * leaves.units_each, leaves.units)
    units = np.empty((len(leaves), model.schema.n_values), dtype=np.int64)
    for number, tree in enumerate(model.trees):
        first, last = np.searchsorted(leaves.tree, [number, number + 1]).tolist()
        places = np.searchsorted(tree.leaves, leaves.leaf[first:last])
        units[model.leaf_offsets[number] + places] = said[first:last]
    made = replace(model, units=units, exponent=edited.exponent, provenance=dict(provenance))
    check_model(made)
    return made


def _differs(found: Matched) -> npt.NDArray[np.bool_]:
    """(rules of after,) bool: which have no origin, or answer otherwise than it does."""
    before, after = found.before, found.after
    ours = np.ldexp(before.units[found.origin].astype(np.float64), before.exponent)
    theirs = np.ldexp(after.units.astype(np.float64), after.exponent)
    each = (before.voting, before.decisions) == (after.voting, after.decisions)
    differs: npt.NDArray[np.bool_] = (ours != theirs).any(axis=1) | (found.origin < 0)
    return differs if each else np.ones(len(after), dtype=np.bool_)


def _completed(listed: RuleList, found: Matched) -> RuleList:
    """An ordered list whose trees end in a rule without conditions.

    Raises
    ------
    ModelError
        If there is a row that no rule of a tree fits; names one.
    """
    last = np.append(np.flatnonzero(np.diff(listed.tree)), len(listed) - 1)
    sizes = np.diff(listed.end, prepend=0)
    for tree in np.flatnonzero(sizes[last] > 0).tolist():
        # The rules of a tree that asks what it asked fit every row.
        if not found.kept[tree]:
            _require_cover(listed, tree)
    return _without_conditions(listed, last)


def _require_cover(listed: RuleList, tree: int) -> None:
    found = overlapping_rules(listed, tree)
    if found.gap is False and found.exact:
        return
    where = f"of tree {tree + 1} " if listed.n_trees > 1 else ""
    remedy = "add a last rule without conditions, which answers all other rows"
    if found.gap and found.exact:
        row = ", ".join(
            f"{name}={_cell(cell, listed)}" for name, cell in (found.witness or {}).items()
        )
        raise ModelError(f"no rule {where}answers a row of {row or 'any kind'}; {remedy}")
    raise ModelError(f"the rules {where}could not be shown to answer every row; {remedy}")


def _cell(cell: float | str | None, listed: RuleList) -> str:
    if isinstance(cell, float):
        return numerals(np.array([cell]), listed.schema.dtype)[0]
    return "missing" if cell is None else cell


def _without_conditions(listed: RuleList, last: npt.NDArray[np.int64]) -> RuleList:
    """The list, but that some rules ask nothing."""
    sizes = np.diff(listed.end, prepend=0)
    none = np.isin(np.arange(len(listed)), last)
    kept = np.flatnonzero(~np.repeat(none, sizes))
    return replace(
        listed,
        end=np.cumsum(np.where(none, 0, sizes)),
        conditions=listed.conditions.take(kept),
    )


# ---------------------------------------------------------------- matched
# Which rules of a model an edited list still has.

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Matched:
    """An edited list beside the one that it was made from.

    Attributes
    ----------
    before : RuleList
        Of the model: what was edited.
    after : RuleList
        The edited list.
    home : (leaves,) int64
        The rule of `before` that each leaf of the model is said by, in the order of
        `treekit.rules.rules`.
    origin : (rules of after,) int64
        The rule of `before` with the same conditions in the same tree, or -1.
    kept : (trees,) bool
        Trees that ask what they asked: each of their rules is there once, and those of an
        ordered list stand in their order.
    """

    before: RuleList
    after: RuleList
    home: Index
    origin: Index
    kept: npt.NDArray[np.bool_]


def matched(model: Model, edited: RuleList) -> Matched:
    """The edited list beside the rules of `model` that it is most like.

    A text may say each leaf in a rule of its own, or join leaves that say the same.
    """
    if edited.decisions:
        found = joined(model, decisions=True)
        return _beside(found.rules, edited, found.home)
    found = joined(model)
    short = _beside(found.rules, edited, found.home)
    if short.kept.all():
        return short
    leaves = rules(model)
    long = _beside(leaves, edited, np.arange(len(leaves)))
    return max(
        (short, long), key=lambda some: (int(some.kept.sum()), int((some.origin >= 0).sum()))
    )


def _beside(before: RuleList, after: RuleList, home: Index) -> Matched:
    origin = np.full(len(after), -1)
    if before.tests == after.tests:
        known: defaultdict[tuple[int, frozenset[Asked]], list[int]] = defaultdict(list)
        for rule in reversed(range(len(before))):
            known[_key(before, rule)].append(rule)
        for rule in range(len(after)):
            if same := known.get(_key(after, rule)):
                origin[rule] = same.pop()
    policies = (before.missing, before.unknown) == (after.missing, after.unknown)
    bounds = np.arange(before.n_trees + 1)
    old, new = np.searchsorted(before.tree, bounds), np.searchsorted(after.tree, bounds)
    kept = (np.diff(old) == np.diff(new)) & policies
    # Whether every rule of a tree has its origin there follows from the counts.
    np.logical_and.at(kept, after.tree, origin >= 0)
    if before.order == "first":
        np.logical_and.at(kept, after.tree[1:], (np.diff(origin) > 0) | (np.diff(after.tree) > 0))
    return Matched(before, after, home, origin, kept)


def _key(rules: RuleList, rule: int) -> tuple[int, frozenset[Asked]]:
    return int(rules.tree[rule]), frozenset(asked(rules, rule))


# ---------------------------------------------------------------- changed
# What an edit of rules changes: the rows that get another answer, and who was right.


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
