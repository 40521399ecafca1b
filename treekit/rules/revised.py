"""From edited rules to the model that they are.

Where only answers were edited the trees stay, with other leaves.  Otherwise each tree
becomes an ordered list, whose first rule that fits answers.  Rules that together fit every
row need no last one without conditions: that they do is proved (`treekit.rules.covering`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import DataError, ModelError
from treekit.model.check import check_model
from treekit.model.ensemble import Model
from treekit.rules.as_model import said_values
from treekit.rules.conditions import ConditionTable
from treekit.rules.extract import rules
from treekit.rules.overlaps import overlapping_rules
from treekit.rules.rulelist import RuleList

__all__ = ["completed", "revised"]


def revised(model: Model, edited: RuleList) -> Model:
    """The model that answers as the edited rules of `model` say.

    Parameters
    ----------
    model : Model
        What the rules were written of; its settings and provenance stay.
    edited : RuleList
        Of the model's columns and targets; see `treekit.rules.edited.read_edited`.

    Raises
    ------
    DataError
        If the rules are of other columns or targets.
    ModelError
        If there are rows that no rule answers, or rules divide rows or ask sums of columns
        and more was edited than answers.
    """
    _require_same(model, edited)
    edited = replace(edited, schema=model.schema)
    provenance = {**model.provenance, "revised": True}
    leaves = rules(model)
    if leaves.order == "disjoint" and _same_conditions(leaves, edited):
        return _with_answers(model, leaves, edited, provenance)
    # Rules alone say what is missing; a list has no surrogates.
    missing = "direction" if edited.missing == "surrogate" else edited.missing
    listed = completed(replace(edited, order="first", missing=missing))
    return listed.model(settings=model.settings, provenance=provenance)


def _require_same(model: Model, edited: RuleList) -> None:
    ours, theirs = model.schema, edited.schema
    for what, one, other in (
        ("columns", ours.columns, theirs.columns),
        ("targets", ours.outputs, theirs.outputs),
        ("type of numbers", ours.dtype, theirs.dtype),
    ):
        if one != other:
            raise DataError(
                f"the {what} of the edited rules are not those of the model; write the rules "
                "of this model, and edit those"
            )
    if edited.n_trees != model.n_trees:
        raise DataError(
            f"the edited rules are of {edited.n_trees} trees, and the model has {model.n_trees}"
        )


def _same_conditions(one: RuleList, other: RuleList) -> bool:
    return (
        np.array_equal(one.tree, other.tree)
        and np.array_equal(one.end, other.end)
        and (one.missing, one.unknown) == (other.missing, other.unknown)
        and one.tests == other.tests
        and all(
            np.array_equal(getattr(one.conditions, name), getattr(other.conditions, name))
            for name in ConditionTable._fields
        )
    )


def _with_answers(
    model: Model, leaves: RuleList, edited: RuleList, provenance: Mapping[str, Any]
) -> Model:
    """The same trees, whose leaves answer as the rules do."""
    units = np.empty_like(model.units)
    units.flags.writeable = True
    trees = []
    said = said_values(replace(edited, support=leaves.support))
    before = said_values(leaves)
    for number, tree in enumerate(model.trees):
        mine = np.flatnonzero(leaves.tree == number)
        places = np.searchsorted(tree.leaves, leaves.leaf[mine])
        units[model.leaf_offsets[number] + places] = edited.units[mine]
        other = mine[(said[mine] != before[mine]).any(axis=1)]
        value = tree.value.copy()
        value[leaves.leaf[other]] = said[other]
        trees.append(tree.with_value(value))
    units.flags.writeable = False
    made = replace(
        model,
        trees=tuple(trees),
        units=units,
        exponent=edited.exponent,
        provenance=dict(provenance),
    )
    check_model(made)
    return made


def completed(listed: RuleList) -> RuleList:
    """An ordered list whose trees end in a rule without conditions.

    Raises
    ------
    ModelError
        If there is a row that no rule of a tree fits; names one.
    """
    last = np.append(np.flatnonzero(np.diff(listed.tree)), len(listed) - 1)
    sizes = np.diff(listed.end, prepend=0)
    for rule in last[sizes[last] > 0].tolist():
        _require_cover(listed, int(listed.tree[rule]))
    return _without_conditions(listed, last)


def _require_cover(listed: RuleList, tree: int) -> None:
    found = overlapping_rules(listed, tree)
    if found.gap is False and found.exact:
        return
    where = f"of tree {tree + 1} " if listed.n_trees > 1 else ""
    remedy = "add a last rule without conditions, which answers all other rows"
    if found.gap and found.exact:
        row = ", ".join(
            f"{name}={'missing' if cell is None else cell}"
            for name, cell in (found.witness or {}).items()
        )
        raise ModelError(f"no rule {where}answers a row of {row or 'any kind'}; {remedy}")
    raise ModelError(f"the rules {where}could not be shown to answer every row; {remedy}")


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
