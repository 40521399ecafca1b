"""Revise a model from edited rules.

If only predictions were edited, the trees stay, with other leaves.  Otherwise each tree
becomes an ordered list, whose first matching rule predicts.  A last rule without conditions
is not needed if the rules are proved to cover every row (`treekit.rules.cover`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Output
from treekit.errors import DataError, ModelError
from treekit.model.fixed_point import scale_units
from treekit.model.model import Model, hash_model
from treekit.model.validation import check_model
from treekit.rules.clean_text import fold_name
from treekit.rules.cover import find_unmatched_row
from treekit.rules.extract import rules
from treekit.rules.measure import drop_support, measure_support
from treekit.rules.merge import merge_rules, regroup_rules
from treekit.rules.rule_list import ConditionTuple, RuleList, list_conditions
from treekit.rules.wording import format_number

# ---------------------------------------------------------------- revised


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
