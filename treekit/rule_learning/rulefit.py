"""RuleFit: rules of a forest with weights, few of which are not 0.

Friedman and Popescu 2008, "Predictive learning via rule ensembles", Annals of Applied
Statistics 2, pp. 916-954: every node of every tree is a rule; the answer is a sum of
weights, one for each rule that a row meets, chosen under an absolute penalty.  The
paper's linear terms are left out: they are no rules.  Numbers are summed as they are;
classes by margins, whose shares are their softmax.

>>> learned = rulefit("bank.csv", "y", rules=20)
>>> learned = rulefit("bank.csv", model=forest, rules=20, to="model")
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.errors import DataError, SettingError
from treekit.model.links import values_of
from treekit.model.model import Model
from treekit.model.scoring import sums
from treekit.rule_learning.candidates import (
    Weighed,
    candidate_rules,
    check_count,
    indicators,
    interned,
    read_rows,
    rows_and_weights,
    weighed,
)
from treekit.rule_learning.linear_models import Weights, penalised, refitted
from treekit.rule_learning.report import ShortList, judged_short
from treekit.rule_learning.weighted_rules import weighted_list
from treekit.rules.rule_list import RuleList, taken

__all__ = [
    "rulefit",
]

Truths = npt.NDArray[np.bool_]
Doubles = npt.NDArray[np.float64]

_ROWS = 25_000
"""Rows that rules are chosen by, drawn if there are more; weights are fitted to all."""
_RARE, _FEW = 0.005, 5
"""Rules that a smaller part of the rows meets, or fewer rows, are no candidates: what
they say is chance.  (Of tables of less than 50 rows, a tenth of them.)"""


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
    """Choose and weigh rules of a forest that is grown for it, or of a model that there is.

    Parameters
    ----------
    source : table
        Any table with the target.
    target : str, optional
        Needed without a model.
    model : Model, optional
        What rules are taken from, trained or read.
    rules : int
        How many, at most: the penalty is the least one that leaves no more.
    to : {"target", "model"}
        What weights are fitted to: the table's target, or what the model says of its rows
        (the shares of classes), for fidelity.
    trees, depth : int
        Of the forest; a model's nodes count down to that depth.
    candidates : int
        Rules that are weighed at most, those of the first trees; of rules that the same
        rows meet the one of fewest conditions.
    refit : bool
        Whether the rules that are left are weighed once more without the penalty, which
        draws weights to 0 (the relaxed Lasso of Meinshausen 2007).
    class_weight, test, reading, **settings
        As in `treekit.rule_learning.sirus.sirus`.

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
        raise SettingError(f"to is {to!r}; weights are fitted to 'target' or 'model'")
    if model is not None and settings:
        raise SettingError(
            f"{next(iter(settings))} is a setting of a new forest, but a model is given; leave "
            "one of them out"
        )
    dataset = weighed(read_rows(source, target, model, reading or {}), class_weight, model)
    if dataset.schema.more:
        raise DataError("RuleFit weighs rules for one target; make a list for each of them")
    forest = model or _grown(dataset, {"trees": trees, "max_depth": depth, "seed": seed} | settings)
    rows = rows_and_weights(dataset)
    wanted = _wanted(forest, rows, to)
    listed = _listed(forest, rows, wanted, _Limits(rules, depth, candidates, seed), refit=refit)
    judges = dataset if test is None else read_rows(test, None, forest, {})
    return judged_short(listed, forest, judges)


def _grown(dataset: Dataset, settings: dict[str, Any]) -> Model:
    """A forest of many sorts of rules: each node tries a fifth of the columns.

    Lists from forests that try half of them were worse on all of three tables (measured).
    """
    from treekit.training import fit

    usual = {"ensemble": "forest", "max_features": 0.2, "oob": False, "max_bins": 64}
    if settings.get("splitter") not in (None, "auto", "histogram"):
        del usual["max_bins"]
    else:
        usual["splitter"] = "histogram"
    return fit(dataset, usual | settings).model


def _wanted(forest: Model, rows: Weighed, to: str) -> Doubles:
    """(rows, values) float64: shares of the classes, or numbers."""
    if to == "model":
        return values_of(forest, sums(forest, rows.matrix))
    if forest.schema.task == "regression":
        return rows.y.astype(np.float64)
    shares: Doubles = np.eye(forest.schema.n_values)[rows.y[:, 0]]
    return shares


class _Limits:
    """How many rules of which nodes are looked at, and how many are kept."""

    def __init__(self, rules: int, depth: int, candidates: int, seed: int) -> None:
        self.rules, self.depth, self.candidates, self.seed = rules, depth, candidates, seed


def _listed(
    forest: Model, rows: Weighed, wanted: Doubles, limits: _Limits, *, refit: bool
) -> RuleList:
    draw = np.random.default_rng(limits.seed).permutation(len(rows.weight))[:_ROWS]
    draw.sort()
    some = rows.take(draw)
    chosen, met = _distinct(candidate_rules(forest, limits.depth), some, limits.candidates)
    classes = forest.schema.task == "classification"
    found = penalised(met, wanted[draw], some.weight, limits.rules, classes=classes)
    chosen, found = taken(chosen, found.used), Weights(found.intercept, found.slope[found.used])
    met = indicators(chosen, rows.matrix)
    if refit and len(chosen):
        found = refitted(met, wanted, rows.weight, classes=classes)
    value = np.stack([found.slope, np.zeros_like(found.slope)], axis=1)
    support = np.stack([met @ rows.weight, ~met @ rows.weight], axis=1)
    return weighted_list(
        chosen, value, support, combine="sum", link="softmax" if classes else "identity",
        intercept=found.intercept, total=float(rows.weight.sum()),
    )  # fmt: skip


def _distinct(found: RuleList, rows: Weighed, most: int) -> tuple[RuleList, Truths]:
    """Rules that different rows meet, and which these are; of a rule and its opposite one.

    Rules that nearly all rows meet, or nearly none, are left out.
    """
    first = np.unique(interned(found), return_index=True)[1]
    order = first[np.argsort(found.tree[first], kind="stable")][:most]
    found = taken(found, np.sort(order))  # those of few conditions first
    met = indicators(found, rows.matrix)
    packed = np.packbits(met ^ met[:, :1], axis=1)
    one = np.unique(packed.view(f"V{packed.shape[1]}").reshape(-1), return_index=True)[1]
    count = met.sum(axis=1)
    few = max(_RARE * met.shape[1], min(_FEW, met.shape[1] / 10))
    common = np.minimum(count, met.shape[1] - count) >= few
    kept = np.sort(one[common[one]])
    return taken(found, kept), met[kept]
