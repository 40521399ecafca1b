"""Revise a model from edited rules.

If only predictions were edited, the trees stay, with other leaves.  Otherwise each tree
becomes an ordered list, whose first matching rule predicts.  A last rule without conditions
is not needed if the rules are proved to cover every row (`treekit.rules.cover`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.encoding import encode_rows
from treekit.data.schema import Column, Output, level_text
from treekit.data.table import Table
from treekit.errors import DataError, ModelError
from treekit.model.fixed_point import scale_units
from treekit.model.model import Model, hash_model
from treekit.model.scoring import compute_label_codes, predict_from_sums, sum_leaf_values
from treekit.model.validation import check_model
from treekit.rules.clean_text import fold_name
from treekit.rules.cover import find_unmatched_row
from treekit.rules.extract import rules
from treekit.rules.language import Language, load_language
from treekit.rules.measure import as_table, drop_support, encode_target, measure_support
from treekit.rules.merge import merge_rules, regroup_rules
from treekit.rules.rule_list import ConditionTuple, RuleList, list_conditions
from treekit.rules.wording import (
    OutcomeFormatter,
    format_number,
    quote_unprintable,
    render_conditions,
)

# ---------------------------------------------------------------- revised

Doubles = npt.NDArray[np.float64]


def revise_model(model: Model, edited: RuleList, rows: Any = None) -> Model:
    """Return the model of the edited rules of `model`.

    If only predictions were edited, rules keep the support of training.  Other conditions
    match other rows: the support is then that of `rows`, or 0.

    Parameters
    ----------
    model : Model
        Model of the original rules; its settings and provenance are kept, and its digest is added
        to the provenance as ``revised_from``.
    edited : RuleList
        With the model's columns and targets; see `treekit.rules.read_text.read_edited`.
    rows : table, optional
        With targets; measures rules with edited conditions.

    Raises
    ------
    DataError
        If the columns or targets of the rules differ from those of the model.
    ModelError
        If some row matches no rule, or conditions were edited although rules test several
        columns or have fractional instances.
    """
    return revise_and_match(model, edited, rows)[0]


def revise_and_match(
    model: Model, edited: RuleList, rows: Any = None
) -> tuple[Model, MatchedRules]:
    """Return the model of `revise_model`, and the edited rules matched with the original ones."""
    if edited.voting == "hard" != model.voting and model.n_trees == 1:
        edited = replace(edited, decisions=True)  # rules in JSON do not state it
    _check_compatible(model, edited)
    edited = replace(edited, schema=model.schema)
    found = match_rules(model, edited)
    provenance = {**model.provenance, "revised": True, "revised_from": hash_model(model)}
    if found.unchanged_trees.all():
        return _replace_answers(model, found, provenance), found
    _check_listable(found)
    # A list has no surrogate splits: its rules decide where missing values go.
    missing = "direction" if edited.missing == "surrogate" else edited.missing
    listed = _complete_list(replace(edited, order="first", missing=missing), found)
    listed = drop_support(listed) if rows is None else measure_support(listed, rows)
    return listed.model(settings=model.settings, provenance=provenance), found


def _check_compatible(model: Model, edited: RuleList) -> None:
    ours, theirs = model.schema, edited.schema
    facts: list[tuple[str, Any, Any]] = [
        ("columns", *_fold_names(ours.columns, theirs.columns)),
        ("targets", *_fold_names(ours.outputs, theirs.outputs)),
        ("type of numbers", ours.dtype, theirs.dtype),
        ("policies", (model.missing, model.unknown), (edited.missing, edited.unknown)),
        ("trees", model.n_trees, edited.n_trees),
        ("combine and link", (model.combine, model.link), (edited.combine, edited.link)),
    ]
    if not edited.decisions:
        costs = [None if c is None else c.tolist() for c in (model.label_costs, edited.costs)]
        facts += [("votes", model.voting, edited.voting), ("costs", costs[0], costs[1])]
    for what, one, other in facts:
        if one != other:
            raise DataError(
                f"the {what} of the edited rules differ from those of the model; write the rules "
                "of this model, and edit them"
            )


def _fold_names(ours: Sequence[Any], theirs: Sequence[Any]) -> tuple[Any, Any]:
    """Return columns or targets as they are compared.

    What word processors change in names is left out, unless two names of `ours` differ in it.
    """
    groups = [[each.name for each in ours], *map(_list_values, ours)]
    if ours == theirs or any(len({*map(fold_name, names)}) < len(names) for names in groups):
        return ours, theirs
    mine, other = (
        [
            (fold_name(each.name), [*map(fold_name, _list_values(each))], _list_others(each))
            for each in some
        ]
        for some in (ours, theirs)
    )
    return mine, other


def _list_values(each: Column | Output) -> list[str]:
    """Return the levels of a column, or the labels of a target that are texts."""
    values = each.levels if isinstance(each, Column) else each.classes
    return [value for value in values if isinstance(value, str)]


def _list_others(each: Column | Output) -> list[Any]:
    """Return the kind of a column, or the labels of a target that are not texts."""
    if isinstance(each, Column):
        return [each.kind]
    return [(type(label), label) for label in each.classes if not isinstance(label, str)]


def _check_listable(found: MatchedRules) -> None:
    """Refuse edited conditions where no ordered list can replace the model's rules."""
    remedy = "edit only predictions, or train a model without them and edit its rules"
    if found.before.mass > 1:
        raise ModelError(
            "conditions of a model with fractional instances (missing='fractional') cannot be "
            f"edited; {remedy}"
        )
    if found.after.tests:
        raise ModelError(
            "conditions of rules with tests of several columns (surrogates, or oblique splits) "
            f"cannot be edited; {remedy}"
        )


def _replace_answers(model: Model, found: MatchedRules, provenance: Mapping[str, Any]) -> Model:
    """Copy a model with the predictions of the rules; training statistics are unchanged."""
    edited = found.after
    rule_of = np.empty(len(edited), dtype=np.int64)
    rule_of[found.origin] = np.arange(len(edited))
    leaves = rules(model)
    mine = rule_of[found.rule_of_leaf]
    predictions = edited.units[mine]
    if edited.decisions:  # leaves with an unchanged label keep their shares
        other = _has_other_answer(found)[mine]
        predictions = np.where(other[:, None], predictions * leaves.units_each, leaves.units)
    units = predictions[np.lexsort((leaves.leaf, leaves.tree))]
    made = replace(model, units=units, exponent=edited.exponent, provenance=dict(provenance))
    check_model(made)
    return made


def _has_other_answer(found: MatchedRules) -> npt.NDArray[np.bool_]:
    """Return (rules of after,) bool: rules without origin, or with a different prediction."""
    before, after = found.before, found.after
    ours = scale_units(before.units[found.origin], before.exponent)
    theirs = scale_units(after.units, after.exponent)
    each = (before.voting, before.decisions) == (after.voting, after.decisions)
    differs: npt.NDArray[np.bool_] = (ours != theirs).any(axis=1) | (found.origin < 0)
    return differs if each else np.ones(len(after), dtype=np.bool_)


def _complete_list(listed: RuleList, found: MatchedRules) -> RuleList:
    """Return an ordered list whose trees end in a rule without conditions.

    Raises
    ------
    ModelError
        If some row matches no rule of a tree; names such a row.
    """
    last = np.append(np.flatnonzero(np.diff(listed.tree)), len(listed) - 1)
    sizes = np.diff(listed.end, prepend=0)
    for tree in np.flatnonzero(sizes[last] > 0).tolist():
        # Trees with unchanged conditions cover every row.
        if not found.unchanged_trees[tree]:
            _check_cover(listed, tree, found)
    return regroup_rules(listed, np.arange(len(listed)), {rule: [] for rule in last.tolist()})[0]


_MAX_NAMED = 10


def _check_cover(listed: RuleList, tree: int, matched: MatchedRules) -> None:
    gap, found = find_unmatched_row(listed, tree)
    if gap is False:
        return
    where = f"of tree {tree + 1} " if listed.n_trees > 1 else ""
    gone = np.setdiff1d(np.flatnonzero(matched.before.tree == tree), matched.origin) + 1
    numbers = ", ".join(map(str, gone[:_MAX_NAMED].tolist())) + ", ..." * (len(gone) > _MAX_NAMED)
    remedy = "add a last rule without conditions for all other rows"
    if len(gone):
        remedy = f"original rules deleted or with other conditions: {numbers}; {remedy}"
    if gap:
        row = ", ".join(
            f"{name}={_format_cell(cell, listed)}" for name, cell in (found or {}).items()
        )
        raise ModelError(f"no rule {where}matches the row {row or 'with any values'}; {remedy}")
    raise ModelError(f"the rules {where}could not be proved to match every row; {remedy}")


def _format_cell(cell: float | str | None, listed: RuleList) -> str:
    if isinstance(cell, float):
        return format_number(cell, listed.schema.dtype)
    return "missing" if cell is None else cell


# ---------------------------------------------------------------- matching with the original rules

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class MatchedRules:
    """An edited list, matched with the list that it was made from.

    Attributes
    ----------
    before : RuleList
        The rules of the model.
    after : RuleList
        The edited list.
    rule_of_leaf : (leaves,) int64
        The rule of `before` that contains each leaf of the model, in the order of
        `treekit.rules.rules`.
    origin : (rules of after,) int64
        The rule of `before` with the same conditions in the same tree, or -1.
    unchanged_trees : (trees,) bool
        Trees with unchanged conditions: each of their rules occurs once, and those of an
        ordered list are in their order.
    """

    before: RuleList
    after: RuleList
    rule_of_leaf: Index
    origin: Index
    unchanged_trees: npt.NDArray[np.bool_]


def match_rules(model: Model, edited: RuleList) -> MatchedRules:
    """Match the edited list with the rules of `model` that are most similar to it.

    A text may have one rule per leaf, or merge leaves with equal predictions.
    """
    if edited.decisions:
        merged, home = merge_rules(model, decisions=True)
        return _match_lists(merged, edited, home)
    merged, home = merge_rules(model)
    short = _match_lists(merged, edited, home)
    if short.unchanged_trees.all():
        return short
    leaves = rules(model)
    long = _match_lists(leaves, edited, np.arange(len(leaves)))
    return max(
        (short, long),
        key=lambda some: (int(some.unchanged_trees.sum()), int((some.origin >= 0).sum())),
    )


def _match_lists(before: RuleList, after: RuleList, home: Index) -> MatchedRules:
    origin = np.full(len(after), -1)
    if before.tests == after.tests:
        known: defaultdict[tuple[int, frozenset[ConditionTuple]], list[int]] = defaultdict(list)
        for rule in reversed(range(len(before))):
            known[_make_rule_key(before, rule)].append(rule)
        for rule in range(len(after)):
            if same := known.get(_make_rule_key(after, rule)):
                origin[rule] = same.pop()
    policies = (before.missing, before.unknown) == (after.missing, after.unknown)
    bounds = np.arange(before.n_trees + 1)
    old, new = np.searchsorted(before.tree, bounds), np.searchsorted(after.tree, bounds)
    kept = (np.diff(old) == np.diff(new)) & policies
    # With equal counts, if every new rule has an origin, every old rule is used.
    np.logical_and.at(kept, after.tree, origin >= 0)
    if before.order == "first":
        np.logical_and.at(kept, after.tree[1:], (np.diff(origin) > 0) | (np.diff(after.tree) > 0))
    return MatchedRules(before, after, home, origin, kept)


def _make_rule_key(rules: RuleList, rule: int) -> tuple[int, frozenset[ConditionTuple]]:
    return int(rules.tree[rule]), frozenset(list_conditions(rules, rule))


# ---------------------------------------------------------------- changed predictions


@dataclass(frozen=True)
class Change:
    """Changes in the predictions for one target.

    Attributes
    ----------
    target : str
    rows : int
    changed : (changed,) int64
        Rows with a different label or number, from 0.
    switches : tuple of (str, str, int)
        Classification: label before, label after and number of rows, the most frequent first.
    largest, mean : float
        Regression: absolute change of the number, over all rows; 0 for classes.
    figure : {"accuracy", "R squared"}
    before, after : float
        That figure on the rows whose target is known; NaN if the table has none.
    """

    target: str
    rows: int
    changed: npt.NDArray[np.int64]
    switches: tuple[tuple[str, str, int], ...]
    largest: float
    mean: float
    figure: str
    before: float
    after: float

    def lines(self, words: Language | None = None) -> list[str]:
        """Return the changes as lines of text."""
        say = (words or load_language()).say
        counts = {"changed": f"{len(self.changed):,}", "rows": f"{self.rows:,}"}
        found = [say("edit_changed", target=quote_unprintable(self.target), **counts)]
        for *labels, rows in self.switches:
            before, after = map(quote_unprintable, labels)
            found.append(say("edit_switch", before=before, after=after, rows=f"{rows:,}"))
        if self.figure != "accuracy" and len(self.changed):
            moved = {"largest": f"{self.largest:.6g}", "mean": f"{self.mean:.6g}"}
            found.append(say("edit_moved", **moved))
        if not np.isnan(self.before):
            key = "edit_accuracy" if self.figure == "accuracy" else "edit_r_squared"
            found.append(say(key, before=f"{self.before:.4f}", after=f"{self.after:.4f}"))
        return [found[0], *(f"  {line}" for line in found[1:])]


def changed(before: Model, after: Model, rows: Any) -> tuple[Change, ...]:
    """Compare the predictions of two models on the rows of a table, target by target.

    Parameters
    ----------
    before, after : Model
        With the same targets.
    rows : table
        Anything that `treekit.data.table.read_table` accepts; if it contains a target, the
        predictions are compared with it.

    Raises
    ------
    DataError
        If the models have different targets, or the table lacks a column.
    """
    if before.schema.outputs != after.schema.outputs:
        raise DataError(
            "the models have different targets or classes; compare models with the same targets"
        )
    table = as_table(rows, before.schema)
    predictions = [_predict_table(model, table) for model in (before, after)]
    return tuple(
        _compare_target(table, output, *(each[:, k] for each in predictions))
        for k, output in enumerate(before.schema.outputs)
    )


def _predict_table(model: Model, table: Table) -> Doubles:
    """Return (rows, targets) predicted class codes or numbers."""
    matrix = encode_rows(
        table,
        model.schema,
        missing=model.missing,
        unknown=model.unknown,
        missing_marks=table.missing,
    )
    sums = sum_leaf_values(model, matrix)
    labels = model.schema.task == "classification"
    found = compute_label_codes(model, sums) if labels else predict_from_sums(model, sums)
    return found.reshape(table.n_rows, -1).astype(np.float64)


def _compare_target(table: Table, output: Output, before: Doubles, after: Doubles) -> Change:
    differ = np.flatnonzero(before != after)
    largest = mean = 0.0
    if not output.classes and len(before):
        moved = np.abs(after - before)
        largest, mean = float(moved.max()), float(moved.mean())
    labels = [level_text(label) or "" for label in output.classes]
    pairs = zip(before[differ].tolist(), after[differ].tolist(), strict=True)
    counts = Counter(pairs).most_common() if labels else ()
    switches = [(labels[int(old)], labels[int(new)], n) for (old, new), n in counts]
    return Change(
        target=output.name,
        rows=len(before),
        changed=differ,
        switches=tuple(switches),
        largest=largest,
        mean=mean,
        figure="accuracy" if labels else "R squared",
        before=_score_target(table, output, before),
        after=_score_target(table, output, after),
    )


def _score_target(table: Table, output: Output, predicted: Doubles) -> float:
    """Return accuracy or R squared on the rows whose target is known; NaN if undefined."""
    if output.name not in table.names:
        return np.nan
    actual = encode_target(table, output.name, output)
    known = ~np.isnan(actual) & (actual != -1 if output.classes else True)
    actual, predicted = actual[known], predicted[known]
    if output.classes:
        return float(np.mean(actual == predicted)) if len(actual) else np.nan
    spread = float(np.var(actual)) if len(actual) else 0.0
    return 1.0 - float(np.mean((actual - predicted) ** 2)) / spread if spread else np.nan


def edits(before: RuleList, after: RuleList, words: Language | None = None) -> Iterator[str]:
    """Generate the rules that only one of two lists has: ``-`` before the edit, ``+`` after it.

    Unchanged trees are left out; rules are compared by conditions and predictions.
    """
    catalogue = words or load_language()
    writers = [OutcomeFormatter(rules, catalogue) for rules in (before, after)]
    for tree in range(before.n_trees):
        old, new = (list(_format_rules(each, tree)) for each in writers)
        if old == new:
            continue
        if before.n_trees > 1:
            yield catalogue.say("edit_tree", tree=str(tree + 1), trees=str(before.n_trees))
        for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if tag != "equal":
                yield from (f"- {text}" for text in old[a:b])
                yield from (f"+ {text}" for text in new[c:d])


def _format_rules(outcomes: OutcomeFormatter, tree: int) -> Iterator[str]:
    """Generate one line per rule of a tree, without its number and support."""
    rules, words = outcomes.rules, outcomes.words
    first, last = np.searchsorted(rules.tree, [tree, tree + 1]).tolist()
    start, stop = rules.bounds(first)[0], rules.bounds(last - 1)[1]
    conditions = render_conditions(rules, start, stop, words)
    then = words.phrases["rule_then"].partition("{answer}")[0]
    for number, targets in enumerate(outcomes.format_outcomes(first, last), first):
        begin, end = rules.bounds(number)
        lines = _format_condition_lines(conditions[begin - start : end - start], words)
        answers = [
            f"{one.text} ({outcomes.join_shares(one.shares)})" if outcomes.has_votes else one.text
            for one in targets
        ]
        yield " ".join([*lines, then + "; ".join(answers)])


def _format_condition_lines(conditions: list[str], words: Language) -> Iterator[str]:
    if not conditions:
        yield words.phrases["rule_always"]
    for at, condition in enumerate(conditions):
        before, after = words.around("rule_and" if at else "rule_if", "condition")
        yield f"{before.strip()} {condition}{after}"
