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
from treekit.model.model import Model
from treekit.model.validation import check_model
from treekit.rules.extract import rules
from treekit.rules.matched import Matched, matched
from treekit.rules.overlaps import overlapping_rules
from treekit.rules.rulelist import RuleList
from treekit.rules.supported import supported, unsupported
from treekit.rules.words import numerals

__all__ = ["revised", "revision"]

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
        Of the model's columns and targets; see `treekit.rules.edited.read_edited`.
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
