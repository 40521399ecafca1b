r"""C4.5rules: a tree, or several, generalised to a short ordered list of rules.

Quinlan 1993, *C4.5: Programs for Machine Learning*, chapter 5; the idea is of Quinlan
1987, *Generating production rules from decision trees*.

>>> found = c45rules(treekit.train(table, "income", algorithm="c45"), table, rules=20)
>>> print(found, found.rules, sep="\n")
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset, make_validation
from treekit.errors import DataError, ModelError, SettingError
from treekit.model.fixed_point import MASS
from treekit.model.model import Model, least_cost, spread
from treekit.rule_learning.candidates import (
    Asked,
    Bits,
    Ground,
    Paths,
    ground_of,
    merged,
    once,
    paths_of,
    refuse_lists,
    rows_meeting,
    unpacked,
)
from treekit.rule_learning.report import LearnedList, judged
from treekit.rules.rule_list import ConditionTable, RuleList

__all__ = [
    "EXHAUSTIVE",
    "THEORY",
    "ClassRules",
    "Generalised",
    "answered",
    "any_order",
    "base_rates",
    "by_false_positives",
    "c45rules",
    "chosen",
    "condition_table",
    "exception_bits",
    "generalise",
    "ordered_list",
    "rate_bound",
    "rule_bits",
    "shortened",
]


# ---------------------------------------------------------------- c45rules


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


# ---------------------------------------------------------------- choose
# Which of the rules for a class to keep: those that tell it in the fewest bits.
#
# Quinlan 1993, *C4.5*, section 5.2.  All subsets are tried of few rules; of many, subsets
# that no single rule more or less makes shorter, from several starts.

Numbers = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

EXHAUSTIVE = 10
"""Up to so many rules every subset is tried, as in C4.5."""

_DOWNHILL = 1000
"""Up to so many rules the search also starts from all of them, and from halves."""

_HALVES = 3
_SMALL = 1e-9


class ClassRules:
    """The rules for one class, and what subsets of them take.

    Parameters
    ----------
    met : (rules, words) uint64
        Rows that meet each rule.
    bits : (rules,) float64
        What the conditions of each rule take.
    ground : Ground
    label : int
        The class.
    """

    def __init__(self, met: Bits, bits: Numbers, ground: Ground, label: int) -> None:
        self.met, self.bits, self.ground = met, bits, ground
        self.own = ground.classes[label]
        self.total, self.of_class = float(ground.totals.sum()), float(ground.totals[label])

    def __len__(self) -> int:
        return len(self.met)

    def length(self, covered: Numbers, right: Numbers, bits: Numbers, n: Index) -> Numbers:
        """(subsets,) float64: description length of subsets of `n` rules of so many `bits`."""
        theory = np.maximum(bits - any_order(n), 0.0)
        exceptions = exception_bits(covered, right, self.total, self.of_class)
        return np.asarray(exceptions + THEORY * theory)

    def weights(self, sets: Bits, within: Bits) -> tuple[Numbers, Numbers]:
        """Weight of `sets` (sets, words) in `within`, and of the class's rows of that."""
        return self.ground.weight(sets, within), self.ground.weight(sets, within & self.own)


def chosen(rules: ClassRules) -> Index:
    """Positions of the subset of least description length that the search finds, ascending."""
    if len(rules) <= EXHAUSTIVE:
        return _best_subset(rules)
    best, least = np.zeros(len(rules), np.bool_), np.inf
    for start in _starts(len(rules)):
        found, length = _improved(rules, start)
        if length < least - _SMALL:
            best, least = found, length
    return np.flatnonzero(best)


def _best_subset(rules: ClassRules) -> Index:
    """The first of the shortest subsets, in the order of binary numbers."""
    n = len(rules)
    covers = np.zeros((2, len(rules.ground.everyone)), dtype=np.uint64)[:1]
    covered, right = np.zeros(1), np.zeros(1)
    # Those with rule r are those without, and r: their covers are made half by half.
    for rule in range(n):
        more = covers | rules.met[rule]
        own = rules.weights(more, rules.ground.everyone)
        covered, right = np.append(covered, own[0]), np.append(right, own[1])
        covers = np.concatenate([covers, more])
    members = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    length = rules.length(covered, right, members @ rules.bits, members.sum(axis=1))
    near = np.flatnonzero(length <= length.min() + _SMALL)
    return np.flatnonzero(members[near[0]])


def _starts(n: int) -> Iterator[Mask]:
    """Subsets to start from: none, all, and drawn halves (always the same ones)."""
    yield np.zeros(n, np.bool_)
    if n <= _DOWNHILL:
        yield np.ones(n, np.bool_)
        rng = np.random.default_rng(0)
        for _ in range(_HALVES):
            yield rng.random(n) < 0.5


def _improved(rules: ClassRules, inside: Mask) -> tuple[Mask, float]:
    """Add or drop the rule that shortens most, until none does; the subset and its length.

    A step is linear in the words of all rules.
    """
    inside, least = inside.copy(), np.inf
    while True:
        some, several = once(rules.met[inside], len(rules.ground.everyone))
        now = np.array([*rules.weights(some[None], rules.ground.everyone)])[:, 0]
        covered, right = np.full(len(rules), now[0]), np.full(len(rules), now[1])
        for rows, within, sign in ((inside, some & ~several, -1), (~inside, ~some, 1)):
            some_more = rules.weights(rules.met[rows], within)
            covered[rows] += sign * some_more[0]
            right[rows] += sign * some_more[1]
        n, bits = int(inside.sum()), float(rules.bits[inside].sum())
        if least == np.inf:
            least = float(rules.length(now[:1], now[1:], np.array([bits]), np.array([n]))[0])
        change = np.where(inside, -1, 1)
        length = rules.length(covered, right, bits + change * rules.bits, n + change)
        best = int(length.argmin())
        if not length[best] < least - _SMALL:
            return inside, least
        inside[best] = ~inside[best]
        least = float(length[best])


# ---------------------------------------------------------------- coding
# How many bits rules take, and the exceptions to them: what C4.5rules chooses rules by.
#
# Quinlan 1993, *C4.5*, section 5.2: the better rules for a class are those that a sender
# can tell, with the cases that they get wrong, in fewer bits (Rissanen's minimum description
# length).  What a condition takes is coded as `treekit.components.pruners` codes splits.

THEORY = 0.5
"""What a bit of a rule counts against one of an exception: rules say the same in many ways."""


def rule_bits(conditions: Sequence[Asked], n_values: Sequence[int]) -> float:
    """Bits that tell the conditions of a rule, in any order.

    Parameters
    ----------
    conditions : sequence of Asked
    n_values : (features,) sequence of int
        Distinct known values of each column: numbers in the rows, or the vocabulary's size.
    """
    own = [_condition_bits(condition, n_values) for condition in conditions]
    bits = [each for several in own for each in several]
    return max(sum(bits) - math.lgamma(len(bits) + 1.0) / math.log(2.0), 0.0)


def _condition_bits(asked: Asked, n_values: Sequence[int]) -> list[float]:
    """Bits of each test that a condition is made of: an interval is two."""
    values = n_values[asked.column]
    column = math.log2(len(n_values))
    if asked.levels and len(asked.levels) < values:
        one = math.log2(values)
        some = math.log2(2.0**values - 2.0) if 2 < values < 60 else float(values)
        return [column + (one if len(asked.levels) == 1 else min(some, one * len(asked.levels)))]
    bounds = math.isfinite(asked.low) + math.isfinite(asked.high)
    # Which of the values, and on which side of it; one bit for "is known" and "is missing".
    return [column + 1.0 + math.log2(max(values - 1, 1))] * bounds or [column + 1.0]


def any_order(n: npt.NDArray[np.int64]) -> Numbers:
    """(subsets,) float64: bits of the order of `n` rules, which nobody needs to be told."""
    from scipy.special import gammaln

    return np.asarray(gammaln(n + 1.0) / math.log(2.0))


def exception_bits(covered: Numbers, right: Numbers, total: float, of_class: float) -> Numbers:
    """Bits that tell which rows some rules for a class get wrong.

    ``log2 C(covered, wrong among them) + log2 C(others, of the class among them)``
    (Quinlan 1993, page 53); a row of weight w counts as w rows.

    Parameters
    ----------
    covered, right : (n,) float64
        Weight of the rows that the rules cover, and of those of their class among them.
    total, of_class : float
        Weight of all rows, and of the class.
    """
    wrong, others, lost = covered - right, total - covered, of_class - right
    return np.asarray(_choices(covered, wrong) + _choices(others, lost))


def _choices(n: Numbers, k: Numbers) -> Numbers:
    """``log2 C(n, k)`` for any numbers ``0 <= k <= n``."""
    from scipy.special import gammaln

    bits = (gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)) / math.log(2.0)
    return np.asarray(bits)


# ---------------------------------------------------------------- generalise
# From paths to rules: conditions are dropped while that makes a rule no less sure.
#
# Quinlan 1993, *C4.5*, section 5.1 (first in Quinlan 1987, *Generating production rules from
# decision trees*, with another test of a condition's worth).  How sure a rule is says the
# upper limit of its errors on all rows, by which `treekit.components.error_based` judges leaves.


class Generalised(NamedTuple):
    """What is left of the paths of a tree.

    Attributes
    ----------
    kept : (steps,) bool
        Which conditions of the paths.
    rate : (paths,) float64
        Pessimistic error rate with these.
    """

    kept: npt.NDArray[np.bool_]
    rate: Numbers


def rate_bound(confidence: float) -> Any:
    """The upper limit of errors at a confidence factor (`treekit.kernels.pruning.Bound`)."""
    from treekit.kernels.pruning import Bound

    z = NormalDist().inv_cdf(1.0 - confidence)
    return Bound(confidence, z, False, 1.0 - np.eye(2))


def base_rates(ground: Ground, bound: Any) -> list[float]:
    """Pessimistic error rate of each class said of all rows: what rules are to be better than."""
    from treekit.kernels.rule_bitsets import error_rate

    total = float(ground.totals.sum())
    return [float(error_rate(total, own, bound)) for own in ground.totals.tolist()]


def generalise(paths: Paths, met: Bits, ground: Ground, bound: Any) -> Generalised:
    """Drop conditions of each path as long as its pessimistic error rate does not rise.

    Time and again that condition goes without which the rate is lowest, the first of equals.

    Parameters
    ----------
    paths : Paths
    met : (nodes, words) uint64
        Rows that meet the condition of the step to each node.
    ground : Ground
    bound
        See `rate_bound`.

    Notes
    -----
    A path of d conditions takes up to d rounds over the words of these: O(d² rows / 64).
    """
    from treekit.kernels.rule_bitsets import drop_conditions

    kept = np.zeros(len(paths.node), dtype=np.bool_)
    rate = np.empty(len(paths.end))
    drop_conditions(
        met, paths.node, paths.end, paths.label, ground.classes, ground.everyone,
        ground.w[:0] if ground.counted else ground.w, bound, kept, rate,
    )  # fmt: skip
    return Generalised(kept, rate)


# ---------------------------------------------------------------- order
# The rules of all classes in one list: which class comes first, what is said by default.
#
# Quinlan 1993, *C4.5*, section 5.2.


def by_false_positives(met: Bits, label: Index, ground: Ground) -> Index:
    """The order of rules by their classes: the class of fewest false positives first.

    False positives are counted on the rows that no class before covers; of classes of as
    many the one of fewer rules comes first, then the first of the schema.

    Parameters
    ----------
    met : (rules, words) uint64
        Rows that meet each rule.
    label : (rules,) int64
        Their classes.

    Returns
    -------
    (rules,) int64
        Positions; rules of a class in their order.
    """
    covers = {c: np.bitwise_or.reduce(met[label == c], axis=0) for c in np.unique(label).tolist()}
    left, order = ground.everyone, np.empty(0, dtype=np.int64)
    while covers:
        wrong = {
            c: float(ground.weight(cover[None], left & ~ground.classes[c])[0])
            for c, cover in covers.items()
        }
        first = min(covers, key=lambda c: (wrong[c], np.count_nonzero(label == c), c))
        left = left & ~covers.pop(first)
        order = np.append(order, np.flatnonzero(label == first))
    return order


@dataclass(eq=False)
class _Matches:
    """The first and the second rule that each row meets; the number of rules if there is none."""

    met: npt.NDArray[np.bool_]
    first: Index
    second: Index

    @classmethod
    def of(cls, met: npt.NDArray[np.bool_]) -> _Matches:
        none = np.full(met.shape[1], len(met), dtype=np.int64)
        made = cls(met, none, none.copy())
        made.find(np.arange(met.shape[1]))
        return made

    def find(self, rows: Index) -> None:
        """Anew for some rows."""
        met = self.met[:, rows]
        first = np.full(len(rows), len(met), dtype=np.int64)
        second = first.copy()
        for rule in range(len(met) - 1, -1, -1):
            own = met[rule]
            second[own] = first[own]
            first[own] = rule
        self.first[rows], self.second[rows] = first, second

    def drop(self, rule: int) -> None:
        """Take a rule out; the others keep their numbers."""
        rows = np.flatnonzero((self.first == rule) | (self.second == rule))
        self.met[rule] = False
        self.find(rows)


def shortened(met: Bits, label: Index, ground: Ground, most: int | None = None) -> Index:
    """The rules of an ordered list that it errs no more without others, ascending.

    By default the class is said of most weight among the rows that no rule meets, of equal
    ones the first of the schema, as everywhere.  Rules are dropped one by one, that one first
    without which the list errs least, of equal ones the last, as long as the errors do not
    rise.  Then, if there are more than `most`, those go that cost least.

    Rules also go that answer no row, or more (or as many, of a class that is first in the
    schema) rows of another class than of their own, so that what a rule says is what its
    rows say; hence no list errs more than any class said of all rows.  And some rows are
    always left to the default, since it could say what the last rule does.

    Parameters
    ----------
    met : (rules, words) uint64
        Rows that meet each rule, in the order of the list.
    label : (rules,) int64
    most : int, optional

    Notes
    -----
    Quinlan drops rules without which the list errs less; those that make no difference go
    here, too.  Linear in the rows for each rule dropped, and in the rules for each row that
    this moves.
    """
    matches = _Matches.of(unpacked(met, ground.n_rows))
    kept = np.ones(len(met), dtype=np.bool_)
    while kept.any():
        now, without = _errors(matches, label, ground)
        without[~kept] = np.inf
        least = float(without.min())
        odd = kept & ~_sincere(matches, label, ground)
        too_many = most is not None and int(kept.sum()) > most
        if least <= now or (too_many and not odd.any()):
            worst = int(np.flatnonzero(without <= least)[-1])
        elif odd.any():
            worst = int(np.flatnonzero(odd)[-1])
        else:
            break
        kept[worst] = False
        matches.drop(worst)
    return np.flatnonzero(kept)


def answered(met: Bits, ground: Ground) -> Numbers:
    """(rules + 1, classes) float64: weights of the rows that each rule is the first to meet.

    The last row is what no rule meets.
    """
    return _weights(_Matches.of(unpacked(met, ground.n_rows)), ground)


def _weights(matches: _Matches, ground: Ground) -> Numbers:
    k = len(ground.totals)
    cells = matches.first * k + ground.y
    sums = np.bincount(cells, ground.w, (len(matches.met) + 1) * k)
    return sums.reshape(-1, k).astype(np.float64)


def _sincere(matches: _Matches, label: Index, ground: Ground) -> npt.NDArray[np.bool_]:
    """(rules,) bool: which rules answer rows, and mostly of their own class."""
    own = _weights(matches, ground)[:-1]
    return np.asarray(own.any(axis=1) & (own.argmax(axis=1) == label))


def _errors(matches: _Matches, label: Index, ground: Ground) -> tuple[float, Numbers]:
    """Errors of the list, and of the list without each rule."""
    n, k = len(label), len(ground.totals)
    weights = _weights(matches, ground)
    wrong = weights[:-1].sum(axis=1) - weights[np.arange(n), label]
    uncovered = weights[-1]
    now = float(wrong.sum() + uncovered.sum() - uncovered.max())
    # The rows of a rule that goes fall to the second rule they meet, or to the default.
    covered = np.flatnonzero(matches.first < n)
    first, second = matches.first[covered], matches.second[covered]
    w, y = ground.w[covered], ground.y[covered]
    falls = second == n
    answer = np.append(label, -1)[second]
    passed = np.bincount(first, w * (~falls & (answer != y)), n)
    left = np.bincount(first[falls] * k + y[falls], w[falls], n * k).reshape(n, k) + uncovered
    without = wrong.sum() - wrong + passed + left.sum(axis=1) - left.max(axis=1)
    return now, np.asarray(without)


# ---------------------------------------------------------------- ordered
# Conditions and class weights put together to an ordered `RuleList`.


def ordered_list(model: Model, rules: Sequence[Sequence[Asked]], weight: Numbers) -> RuleList:
    """A list of order "first" that answers rows of a model of classes.

    Where the model divides rows of missing values, the list does not: a missing value meets
    the conditions that say so.

    Parameters
    ----------
    model : Model
        Whose schema and other policies are kept.
    rules : sequence of sequence of Asked
        Conditions of each rule but the last, which has none.
    weight : (rules, classes) float64
        Weights of the rows that each rule answers, those of the last one included.
    """
    n = len(weight)
    made = RuleList(
        schema=model.schema,
        missing="direction" if model.missing == "fractional" else model.missing,
        unknown=model.unknown,
        voting=model.voting,
        costs=None,
        n_trees=1,
        exponent=0,
        tests=(),
        tree=np.zeros(n, np.int32),
        # As the nodes of a chain: rule, leaf, rule, leaf, ..., the last leaf.
        leaf=np.append(2 * np.arange(n - 1) + 1, 2 * n - 2).astype(np.int32),
        support=weight.sum(axis=1),
        as_parent=np.zeros(n, np.bool_),
        units=np.zeros(weight.shape, np.int64),
        end=np.cumsum([*(len(rule) for rule in rules), 0]).astype(np.int64),
        conditions=condition_table([each for rule in rules for each in rule]),
        order="first",
        value=weight,
    )
    return replace(made, units=spread(made, weight))


def condition_table(conditions: Sequence[Asked]) -> ConditionTable:
    """Conditions that divide no row, one after the other."""
    missing = np.array([each.missing for each in conditions], dtype=np.bool_)
    sizes = [len(each.levels) for each in conditions]
    return ConditionTable(
        column=np.array([each.column for each in conditions], dtype=np.int32),
        low=np.array([each.low for each in conditions], dtype=np.float64),
        high=np.array([each.high for each in conditions], dtype=np.float64),
        known=np.array([each.known for each in conditions], dtype=np.bool_),
        missing=missing,
        part_low=np.zeros(len(conditions), np.int32),
        part_high=np.where(missing, MASS, 0).astype(np.int32),
        dividing=np.zeros(len(conditions), np.int64),
        level_end=np.cumsum(sizes, dtype=np.int64),
        levels=np.array([code for each in conditions for code in each.levels], dtype=np.int32),
    )
