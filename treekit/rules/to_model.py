"""Convert a rule list to a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError
from treekit.model.fixed_point import MASS
from treekit.model.model import Model
from treekit.model.rule_trees import make_rule_trees
from treekit.model.validation import check_model

if TYPE_CHECKING:
    from treekit.rules.rule_list import RuleList

__all__ = [
    "compute_values",
    "rules_to_model",
]


def rules_to_model(
    rules: RuleList,
    settings: Mapping[str, Any] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Model:
    """Return the model of an ordered list, or of weighted lists; see `RuleList.model`.

    Raises
    ------
    ModelError
        If conditions test sums or surrogates, or rules have fractional instances, or a tree's
        last rule has conditions, or an earlier rule has none.
    """
    _check_convertible(rules)
    units = np.array(rules.units, dtype=np.int64)
    trees = make_rule_trees(
        rules.schema,
        rules.tree,
        rules.end,
        rules.conditions,
        compute_values(rules) if rules.value is None else rules.value,
        rules.support,
        margins=rules.margins,
    )
    model = Model(
        schema=rules.schema,
        trees=trees,
        units=units,
        exponent=rules.exponent,
        missing=rules.missing,
        unknown=rules.unknown,
        voting=rules.voting,
        costs=rules.costs,
        combine=rules.combine,
        link=rules.link,
        settings=dict(settings or {}),
        provenance=dict(provenance or {}),
    )
    check_model(model)
    if model.n_trees != rules.n_trees:
        raise ModelError(
            f"the list has rules of {model.n_trees} trees, but n_trees is {rules.n_trees}"
        )
    return model


def _check_convertible(rules: RuleList) -> None:
    """Raise `ModelError` for conditions that a model of rule lists cannot express."""
    table = rules.conditions
    asked = table.column >= rules.schema.n_features
    if asked.any():
        rule = int(np.searchsorted(rules.end, np.argmax(asked), "right"))
        raise ModelError(
            f"rule {rule + 1} has a test of several columns, which is not supported in a list; "
            "use the rules of a tree without oblique splits and surrogates"
        )
    whole = np.where(table.missing, MASS, 0)
    parts = (table.part_low != 0) | (table.part_high != whole) | (table.dividing > 0)
    if rules.mass > 1 or parts.any():
        raise ModelError(
            "these rules have fractional instances, but in a list one rule predicts each row; "
            "train with missing='direction', and use its rules"
        )


def compute_values(rules: RuleList) -> npt.NDArray[np.float64]:
    """Return (rules, values) float64: values as in `Tree.value`, computed from the votes."""
    if rules.schema.task == "regression" or rules.margins:
        return np.ldexp(rules.units.astype(np.float64), rules.exponent)
    support = np.where(rules.support > 0, rules.support, 1.0)
    return rules.units / rules.units_each * support[:, None]
