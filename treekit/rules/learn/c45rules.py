r"""C4.5rules: a tree, or several, generalised to a short ordered list of rules.

Quinlan 1993, *C4.5: Programs for Machine Learning*, chapter 5; the idea is of Quinlan
1987, *Generating production rules from decision trees*.

>>> found = c45rules(treekit.train(table, "income", algorithm="c45"), table, rules=20)
>>> print(found, found.rules, sep="\n")
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset, make_validation
from treekit.errors import DataError, ModelError, SettingError
from treekit.model.model import Model, least_cost
from treekit.rules.learn.bare import refuse_lists
from treekit.rules.learn.choose import ClassRules, chosen
from treekit.rules.learn.coding import rule_bits
from treekit.rules.learn.conditions import Asked, merged, paths_of, rows_meeting
from treekit.rules.learn.generalise import base_rates, generalise, rate_bound
from treekit.rules.learn.ground import Bits, Ground, ground_of
from treekit.rules.learn.order import answered, by_false_positives, shortened
from treekit.rules.learn.ordered import ordered_list
from treekit.rules.learn.report import LearnedList, judged

__all__ = ["c45rules"]


class _Candidate(NamedTuple):
    """A generalised path: what it asks, the class it says, its rows, its pessimistic rate."""

    conditions: tuple[Asked, ...]
    label: int
    met: Bits
    rate: float


def c45rules(
    model: Model,
    rows: Any,
    *,
    weights: str | None = None,
    confidence: float = 0.25,
    rules: int | None = None,
    test: Any = None,
) -> LearnedList:
    """An ordered list of rules made from the paths of a model's trees.

    Each path is a rule; conditions are dropped as long as the pessimistic error of the rule
    on all rows does not rise (`generalise`), and rules that are then no surer than their
    class said of all rows go.  Of the rules for each class a subset is kept that tells it in
    the fewest bits (`choose`, `coding`); the classes are put in the order of their false
    positives, the most frequent class among the rows that no rule meets is said by default,
    and rules go without which the list errs no more (`order`).

    Rules are judged whatever rows the tree was trained on, but the training table is meant:
    the errors are made pessimistic because they are those of training.

    Parameters
    ----------
    model : Model
        Of one target, a class; a tree, or a forest, whose paths are then put together.
    rows : table or Dataset
        Anything `treekit.data.table.read_table` takes, with the target.
    weights : str, optional
        Column of row weights, of tables.
    confidence : float
        Confidence factor of the errors, above 0 and at most 0.5: less drops more conditions.
    rules : int, optional
        At most so many rules beside the default; those go first that cost the list least.
    test : table or Dataset, optional
        The rows that the report is about; default `rows`.

    Returns
    -------
    LearnedList
        Its `rules` are of order "first" and end with the default; what a rule says are the
        shares of the classes in the rows that it is the first to meet.

    Raises
    ------
    ModelError
        For models of numbers, of several targets, of margins or with costs, and for splits
        that ask several columns.
    SettingError, DataError

    Notes
    -----
    With R paths of d conditions over n rows: O(R d² n / 64) for the conditions, and
    O(R n / 64) for each rule that the choice adds or drops; a tree's conditions and the
    rules are held as bits, n / 8 bytes each.
    """
    _check(model, confidence, rules)
    dataset = _read(model, rows, weights)
    ground = ground_of(dataset)
    matrix = dataset.matrix()
    found = _candidates(model, matrix, ground, confidence)
    values = _n_values(model, matrix)
    kept: list[_Candidate] = []
    for label in range(len(ground.totals)):
        kept += _chosen([each for each in found if each.label == label], values, ground, label)
    met = _stacked(kept, ground)
    labels = np.array([each.label for each in kept], dtype=np.int64)
    order = by_false_positives(met, labels, ground)
    order = order[shortened(met[order], labels[order], ground, rules)]
    conditions = [kept[i].conditions for i in order.tolist()]
    made = ordered_list(model, conditions, answered(met[order], ground))
    column = None if isinstance(test, Dataset) else weights
    judges = dataset if test is None else _read(model, test, column)
    said = least_cost(made.sums(judges.matrix()), None)
    return judged(made, said, model, judges)


def _check(model: Model, confidence: float, rules: int | None) -> None:
    """Refuse what the algorithm has no answer for."""
    if not 0.0 < confidence <= 0.5:
        raise SettingError(f"confidence is {confidence!r}; give a number above 0, at most 0.5")
    if rules is not None and rules < 0:
        raise SettingError(f"rules is {rules!r}; give 0 or more rules, or None for no limit")
    if model.schema.task != "classification":
        raise ModelError("C4.5rules lists rules for classes; for a model of numbers use rulefit")
    if model.schema.more:
        raise ModelError("C4.5rules lists rules for one target; train a model for each of them")
    if model.margins:
        raise ModelError("leaves of this model add to margins and name no class; use rulefit")
    if model.costs is not None:
        raise ModelError(
            "C4.5rules counts errors, and this model weighs them by costs; train it without"
        )
    refuse_lists(model)


def _read(model: Model, rows: Any, weights: str | None) -> Dataset:
    if not isinstance(rows, Dataset):
        return make_validation(
            rows, model.schema, weights=weights, missing=model.missing, unknown=model.unknown,
            noun="the table of the rules",
        )  # fmt: skip
    if weights is not None:
        raise DataError("a dataset has weights of its own; name a weight column for tables only")
    if rows.schema != model.schema:
        raise DataError("the dataset has other columns or classes than the model; give a table")
    return rows


def _candidates(
    model: Model, matrix: npt.NDArray[Any], ground: Ground, confidence: float
) -> list[_Candidate]:
    """The distinct rules that paths are generalised to, of those that are of use."""
    bound = rate_bound(confidence)
    worst = base_rates(ground, bound)
    found: dict[tuple[int, frozenset[Asked]], _Candidate] = {}
    for number in range(model.n_trees):
        paths = paths_of(model, number)
        met = rows_meeting(paths.asked, matrix, model.schema.n_levels)
        made = generalise(paths, met, ground, bound)
        starts = np.append(0, paths.end[:-1]).tolist()
        seen: set[tuple[int, ...]] = set()
        for path, label in enumerate(paths.label.tolist()):
            own = slice(starts[path], int(paths.end[path]))
            nodes = paths.node[own][made.kept[own]]
            same = (label, *nodes.tolist())
            if made.rate[path] >= worst[label] or same in seen:
                continue
            seen.add(same)
            conditions = merged(paths.asked, nodes.tolist())
            key = label, frozenset(conditions)
            if key not in found:
                rows = np.bitwise_and.reduce(met[nodes], axis=0)
                found[key] = _Candidate(conditions, label, rows, float(made.rate[path]))
    return list(found.values())


def _chosen(
    rules: list[_Candidate], values: list[int], ground: Ground, label: int
) -> list[_Candidate]:
    """The rules to keep for a class, the surest first."""
    bits = [rule_bits(rule.conditions, values) for rule in rules]
    shortest: dict[bytes, int] = {}  # of rules that the same rows meet
    for i in np.argsort(bits, kind="stable").tolist():
        shortest.setdefault(rules[i].met.tobytes(), i)
    left = sorted(shortest.values())
    rules = [rules[i] for i in left]
    met = _stacked(rules, ground)
    some = chosen(ClassRules(met, np.array([bits[i] for i in left]), ground, label))
    return sorted((rules[i] for i in some.tolist()), key=lambda rule: rule.rate)


def _stacked(rules: list[_Candidate], ground: Ground) -> Bits:
    """(rules, words) uint64: the rows of rules, of which there may be none."""
    met = np.empty((len(rules), len(ground.everyone)), dtype=np.uint64)
    for row, rule in zip(met, rules, strict=True):
        row[:] = rule.met
    return met


def _n_values(model: Model, matrix: npt.NDArray[Any]) -> list[int]:
    """Distinct known values of each column: of numbers in the rows, of levels by the schema."""
    sizes: list[int] = model.schema.n_levels.tolist()
    for column in np.flatnonzero(~model.schema.nominal).tolist():
        values = np.unique(matrix[:, column])
        sizes[column] = int(np.count_nonzero(values == values))
    return sizes
