"""RuleFit: a sparse linear model of the rules of a forest.

Friedman and Popescu 2008, "Predictive learning via rule ensembles", Annals of Applied
Statistics 2, pp. 916-954: every node of every tree is a rule; the prediction is the sum of
the weights of the rules that a row matches, fitted with an L1 penalty.  The paper's linear
terms are left out, because they are not rules.  Numbers are summed directly; classes have
margins, whose softmax gives the shares.

>>> learned = rulefit("bank.csv", "y", rules=20)
>>> learned = rulefit("bank.csv", model=forest, rules=20, to="model")
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.errors import DataError, SettingError
from treekit.model.links import convert_sums
from treekit.model.model import Model
from treekit.model.scoring import sum_leaf_values
from treekit.rules.rule_list import RuleList, take_rules
from treekit_rule_learning.candidates import (
    WeightedRows,
    check_count,
    compute_indicators,
    extract_candidates,
    make_weighted_rows,
    number_distinct_rules,
    read_rows,
    weigh_classes,
)
from treekit_rule_learning.linear_models import RuleWeights, fit_penalised, refit_weights
from treekit_rule_learning.report import ShortList, evaluate_short_list
from treekit_rule_learning.weighted_rules import make_weighted_list

__all__ = [
    "rulefit",
]

Truths = npt.NDArray[np.bool_]
Doubles = npt.NDArray[np.float64]

_MAX_SELECTION_ROWS = 25_000
"""Maximum number of rows for rule selection, sampled; weights are fitted to all rows."""
_MIN_ROW_SHARE, _MIN_ROWS = 0.005, 5
"""Minimum share and minimum number of rows that a candidate must match; rarer rules reflect
chance.  (In tables with fewer than 50 rows, a tenth of them.)"""


def rulefit(
    source: Any,
    target: str | None = None,
    *,
    model: Model | None = None,
    rules: int = 20,
    to: Literal["target", "model"] = "target",
    trees: int = 100,
    depth: int = 3,
    candidates: int = 1000,
    refit: bool = True,
    seed: int = 0,
    class_weight: Any = None,
    test: Any = None,
    reading: dict[str, Any] | None = None,
    **settings: Any,
) -> ShortList:
    """Select and weight rules of a new forest, or of a given model.

    Parameters
    ----------
    source : table
        Any table with the target.
    target : str, optional
        Needed without a model.
    model : Model, optional
        Source of the rules, trained or imported.
    rules : int
        Maximum number of rules; the penalty is the smallest that leaves no more.
    to : {"target", "model"}
        Values that the weights are fitted to: the table's target, or the model's predictions
        (class shares or numbers), for fidelity.
    trees, depth : int
        Size of a new forest; nodes of a given model are used down to `depth`.
    candidates : int
        Maximum number of candidate rules, taken from the first trees; of rules that match the
        same rows only the one with the fewest conditions.
    refit : bool
        Whether the selected rules are fitted again without the penalty, which shrinks weights
        (relaxed Lasso, Meinshausen 2007).
    class_weight, test, reading, **settings
        See `treekit_rule_learning.sirus.sirus`.

    Returns
    -------
    ShortList

    Raises
    ------
    DataError, SettingError
    """
    for name, value, least in (
        ("rules", rules, 1),
        ("depth", depth, 1),
        ("candidates", candidates, 1),
    ):
        check_count(name, value, least, 100_000)
    if to not in ("target", "model"):
        raise SettingError(f"to is {to!r}; expected 'target' or 'model'")
    if model is not None and settings:
        raise SettingError(
            f"{next(iter(settings))} is a setting of a new forest, but a model is given; leave "
            "one of them out"
        )
    dataset = weigh_classes(read_rows(source, target, model, reading or {}), class_weight, model)
    if dataset.schema.more:
        raise DataError("RuleFit needs a single target; fit one list for each target")
    forest = model or _grow_forest(
        dataset, {"trees": trees, "max_depth": depth, "seed": seed} | settings
    )
    rows = make_weighted_rows(dataset)
    wanted = _make_target_values(forest, rows, to)
    listed = _fit_rule_list(
        forest, rows, wanted, _RuleLimits(rules, depth, candidates, seed), refit=refit
    )
    judges = dataset if test is None else read_rows(test, None, forest, {})
    return evaluate_short_list(listed, forest, judges)


def _grow_forest(dataset: Dataset, settings: dict[str, Any]) -> Model:
    """Grow a forest of diverse rules: each node tries a fifth of the columns.

    Trying half of them gave worse lists on all of three tables (measured).
    """
    from treekit.training import fit

    usual = {"ensemble": "forest", "max_features": 0.2, "oob": False, "max_bins": 64}
    if settings.get("splitter") not in (None, "auto", "histogram"):
        del usual["max_bins"]
    else:
        usual["splitter"] = "histogram"
    return fit(dataset, usual | settings).model


def _make_target_values(forest: Model, rows: WeightedRows, to: str) -> Doubles:
    """Return (rows, values) float64: class shares, or numbers."""
    if to == "model":
        return convert_sums(forest, sum_leaf_values(forest, rows.matrix))
    if forest.schema.task == "regression":
        return rows.y.astype(np.float64)
    shares: Doubles = np.eye(forest.schema.n_values)[rows.y[:, 0]]
    return shares


class _RuleLimits:
    """Limits on the candidate and selected rules."""

    def __init__(self, rules: int, depth: int, candidates: int, seed: int) -> None:
        self.rules, self.depth, self.candidates, self.seed = rules, depth, candidates, seed


def _fit_rule_list(
    forest: Model, rows: WeightedRows, target_values: Doubles, limits: _RuleLimits, *, refit: bool
) -> RuleList:
    draw = np.random.default_rng(limits.seed).permutation(len(rows.weight))[:_MAX_SELECTION_ROWS]
    draw.sort()
    some = rows.take(draw)
    chosen, met = _select_distinct(
        extract_candidates(forest, limits.depth), some, limits.candidates
    )
    classes = forest.schema.task == "classification"
    found = fit_penalised(met, target_values[draw], some.weight, limits.rules, classes=classes)
    chosen, found = (
        take_rules(chosen, found.used_rules),
        RuleWeights(found.intercept, found.slope[found.used_rules]),
    )
    met = compute_indicators(chosen, rows.matrix)
    if refit and len(chosen):
        found = refit_weights(met, target_values, rows.weight, classes=classes)
    value = np.stack([found.slope, np.zeros_like(found.slope)], axis=1)
    support = np.stack([met @ rows.weight, ~met @ rows.weight], axis=1)
    return make_weighted_list(
        chosen, value, support, combine="sum", link="softmax" if classes else "identity",
        intercept=found.intercept, total=float(rows.weight.sum()),
    )  # fmt: skip


def _select_distinct(found: RuleList, rows: WeightedRows, most: int) -> tuple[RuleList, Truths]:
    """Return rules that match different rows, and these rows; a rule equals its complement.

    Rules that nearly all rows match, or nearly none, are left out.
    """
    first = np.unique(number_distinct_rules(found), return_index=True)[1]
    order = first[np.argsort(found.tree[first], kind="stable")][:most]
    found = take_rules(found, np.sort(order))  # fewest conditions first
    met = compute_indicators(found, rows.matrix)
    packed = np.packbits(met ^ met[:, :1], axis=1)
    one = np.unique(packed.view(f"V{packed.shape[1]}").reshape(-1), return_index=True)[1]
    count = met.sum(axis=1)
    few = max(_MIN_ROW_SHARE * met.shape[1], min(_MIN_ROWS, met.shape[1] / 10))
    common = np.minimum(count, met.shape[1] - count) >= few
    selected = np.sort(one[common[one]])
    return take_rules(found, selected), met[selected]
