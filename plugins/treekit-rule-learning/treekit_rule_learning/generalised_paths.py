r"""C4.5rules: generalise one or several trees to a short ordered rule list.

Quinlan 1993, *C4.5: Programs for Machine Learning*, chapter 5, after Quinlan 1987,
*Generating production rules from decision trees*.

>>> found = c45rules(treekit.train(table, "income", algorithm="c45"), table, rules=20)
>>> print(found, found.rules, sep="\n")
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset, make_validation
from treekit.errors import DataError, ModelError, SettingError
from treekit.grow.target_statistics import round_weights
from treekit.model.fixed_point import MASS
from treekit.model.model import Model, distribute_votes, predict_labels
from treekit.model.tree import Split, Tree
from treekit.rule_learning import LearnedList, evaluate_list
from treekit.rules.evaluate import make_cells, pack_bits, unpack_bits
from treekit.rules.extract import (
    is_rule_list,
    list_leaves_depth_first,
    list_path_nodes,
    make_edge_conditions,
)
from treekit.rules.rule_list import (
    ConditionTable,
    ConditionTuple,
    ParsedRule,
    RuleList,
    add_rules,
    make_empty_list,
    merge_conditions,
)

# ---------------------------------------------------------------- candidate rules

Index = npt.NDArray[np.int64]


def check_not_rule_list(model: Model) -> None:
    """Raise `ModelError` if the model is a rule list, which has no paths."""
    if is_rule_list(model):
        raise ModelError(
            "the model is a rule list already and has no paths; pass the tree or forest that the "
            "list was made from"
        )


# ---------------------------------------------------------------- conditions
# The paths of a tree as lists of conditions, and the rows that match each condition.

_MAX_CELLS = 1 << 22
"""Number of (condition, row) cells evaluated at once, one byte each."""


@dataclass(frozen=True, eq=False)
class TreePaths:
    """Paths of one tree.

    Attributes
    ----------
    conditions : ConditionTable
        Condition of the branch to each node; the root's matches every row.
    leaf : (leaves,) int64
        From the leftmost path to the rightmost.
    node, end : (steps,) and (leaves,) int64
        Nodes from below the root to each leaf, path after path, and the end of each path in
        `node`.
    label : (leaves,) int64
        Class predicted by each leaf.
    """

    conditions: ConditionTable
    leaf: Index
    node: Index
    end: Index
    label: Index

    def merge_conditions(self, nodes: Index) -> tuple[ConditionTuple, ...]:
        """Merge the conditions of the branches to `nodes` to one per column."""
        return merge_conditions(self.conditions.take(nodes).iterate_conditions(0, len(nodes)))


def extract_paths(model: Model, number: int) -> TreePaths:
    """Return the paths of one tree of a classifier of one target.

    With fractional instances (Quinlan 1993, section 3.2), missing values, and categories that a
    node has not seen, match only a test for missing values, as in C4.5rules.  Otherwise they
    match the condition of the branch that they take.

    Raises
    ------
    ModelError
        For splits on more than one column.
    """
    tree = model.trees[number]
    _check_axis_splits(tree, number)
    leaf = list_leaves_depth_first(tree)
    node, end = list_path_nodes(tree, leaf)
    units = model.tree_units(number)[np.searchsorted(tree.leaves, leaf)]
    return TreePaths(
        _make_step_conditions(model, tree), leaf, node, end, predict_labels(units, None)
    )


def _check_axis_splits(tree: Tree, number: int) -> None:
    if len(tree.term_feature):
        what = "oblique splits"
    elif len(tree.surrogate_feature):
        what = "surrogate splits"
    else:
        return
    raise ModelError(
        f"tree {number} has {what}, but an ordered rule list needs conditions on single columns; "
        "train with splitter='axis' and missing='fractional' or 'direction'"
    )


def _make_step_conditions(model: Model, tree: Tree) -> ConditionTable:
    """Return the condition of the branch to each node, without fractional instances."""
    parent = tree.parent
    up = np.maximum(parent, 0)
    branch = np.arange(tree.n_nodes) - tree.first_child[up]
    absence = (parent >= 0) & (tree.kind[up] == Split.MISSING)
    takes = np.where(absence, branch == 0, branch == tree.missing[up]) & (parent >= 0)
    if model.missing == "fractional":
        takes &= absence
    bounds = np.stack([np.zeros(tree.n_nodes, np.int64), np.where(takes, MASS, 0)], axis=1)
    table = make_edge_conditions(tree, bounds, model.schema.n_levels)
    missing = table.missing & ~table.known if model.missing == "error" else table.missing
    # Categories that follow the missing direction are accepted like others.
    owner = np.repeat(np.arange(tree.n_nodes), np.diff(table.level_end, prepend=0))
    return table._replace(
        known=table.known | (table.dividing > 0),
        missing=missing,
        part_high=np.where(missing, MASS, 0).astype(np.int32),
        dividing=np.zeros_like(table.dividing),
        levels=table.levels[np.lexsort((table.levels, owner))],
    )


def find_matching_rows(
    asked: ConditionTable, matrix: npt.NDArray[np.floating], n_levels: Index
) -> Bits:
    """Return (conditions, words) uint64: the rows that match each condition.

    Parameters
    ----------
    asked : ConditionTable
        Conditions without fractional instances.
    matrix : (rows, features) float32 or float64
        Encoded rows.
    n_levels : (features,) int64
        0 for numeric columns.
    """
    n_rows = len(matrix)
    found = np.zeros((len(asked.column), -(-n_rows // 64)), dtype=np.uint64)
    block = max(_MAX_CELLS // max(n_rows, 1), 1)
    for column in np.unique(asked.column).tolist():
        at = np.flatnonzero(asked.column == column)
        values = matrix[:, column].astype(np.float64)
        for first in range(0, len(at), block):
            own = at[first : first + block]
            find_cells, accepts = make_cells(asked, own, int(n_levels[column]) or None)
            found[own] = pack_bits(accepts.T[:, find_cells(values)])
    return found


# ---------------------------------------------------------------- row sets
# Sets of rows as 64-bit words with one bit per row: intersections and differences are word
# operations on 64 rows at a time, and the weight of a set is a count of its bits.

Bits = npt.NDArray[np.uint64]

Numbers = npt.NDArray[np.float64]

_BLOCK_WORDS = 1 << 17
"""Words processed at once, so that they and their results stay in the cache."""


@dataclass(frozen=True, eq=False)
class RowSets:
    """Rows to evaluate rules on, as bit sets.

    Attributes
    ----------
    y : (rows,) int32
        Class of each row.
    row_weights : (rows,) float64
        Weights rounded to fixed point, so that their sums are exact in any order.
    is_unweighted : bool
        Whether every row has weight 1.
    all_rows : (words,) uint64
        All rows.
    class_rows : (classes, words) uint64
        Rows of each class.
    class_totals : (classes,) float64
        Their weights.
    """

    y: npt.NDArray[np.int32]
    row_weights: Numbers
    is_unweighted: bool
    all_rows: Bits
    class_rows: Bits
    class_totals: Numbers

    @property
    def n_rows(self) -> int:
        """Number of rows, including those without weight."""
        return len(self.y)

    def weigh_intersections(self, sets: Bits, within: Bits) -> Numbers:
        """Return (sets,) float64: weight of the intersection of each set with `within`.

        The cost is proportional to the number of words; with row weights, each set bit costs
        a third of a word more.
        """
        found = np.empty(len(sets))
        block = max(_BLOCK_WORDS // max(sets.shape[1], 1), 1)
        for first in range(0, len(sets), block):
            both = sets[first : first + block] & within
            found[first : first + block] = self._weigh_sets(both)
        return found

    def _weigh_sets(self, sets: Bits) -> Numbers:
        if self.is_unweighted:
            return np.asarray(np.bitwise_count(sets).sum(axis=1, dtype=np.int64), np.float64)
        from treekit_rule_learning.row_bitsets import weigh_sets

        sums = np.empty(len(sets))
        weigh_sets(sets, self.row_weights, sums)
        return sums


def make_row_sets(rows: Dataset) -> RowSets:
    """Return the rows of a dataset as bit sets; the dataset has one target, a class."""
    w, _ = round_weights(rows.n_rows, rows.weights)
    y = np.ascontiguousarray(rows.y, dtype=np.int32)
    n_classes = len(rows.schema.classes)
    totals = np.bincount(y, w, n_classes).astype(np.float64)
    if not totals.sum() > 0:
        raise DataError("no row has a positive weight; at least one is needed")
    return RowSets(
        y=y,
        row_weights=w,
        is_unweighted=bool((w == 1.0).all()),
        all_rows=pack_bits(np.ones((1, len(y)), dtype=np.bool_))[0],
        class_rows=pack_bits(y == np.arange(n_classes)[:, None]),
        class_totals=totals,
    )


# ---------------------------------------------------------------- c45rules


class _CandidateRule(NamedTuple):
    """A generalised path: conditions, predicted class, matching rows, pessimistic error rate."""

    conditions: tuple[ConditionTuple, ...]
    label: int
    matching_rows: Bits
    error_rate: float


def c45rules(
    model: Model,
    rows: Any,
    *,
    weights: str | None = None,
    confidence: float = 0.25,
    rules: int | None = None,
    test: Any = None,
) -> LearnedList:
    """Make an ordered rule list from the paths of a model's trees.

    Each path is a rule; conditions are dropped as long as the pessimistic error of the rule on
    all rows does not rise (`generalise_paths`), and rules that do no better than predicting their
    class for all rows are dropped.  For each class, the subset of rules with the shortest
    description length is kept (`select_shortest_subset`, `compute_exception_bits`).  The classes
    are ordered by false positives (`order_by_false_positives`), the default is the most frequent
    class among the rows that match no rule, and rules are dropped while the errors of the list do
    not rise (`prune_rule_list`).

    Any rows are accepted, but the training table is intended: error estimates are pessimistic
    because they are training errors.

    Parameters
    ----------
    model : Model
        Classifier of one target: a tree, or a forest, whose paths are pooled.
    rows : table or Dataset
        Any table accepted by `treekit.data.table.read_table`, with the target.
    weights : str, optional
        Column of row weights, for tables.
    confidence : float
        Confidence factor of the error estimates, above 0 and at most 0.5: lower values drop
        more conditions.
    rules : int, optional
        Maximum number of rules, not counting the default; the rules that reduce the errors
        least are dropped.
    test : table or Dataset, optional
        Rows for the report; default `rows`.

    Returns
    -------
    LearnedList
        Its `rules` have order "first" and end with the default; a rule predicts the class
        shares of the rows that match it first.

    Raises
    ------
    ModelError
        For regression, several targets, margins, misclassification costs, and splits on several
        columns.
    SettingError, DataError

    Notes
    -----
    With R paths of d conditions over n rows: O(R d² n / 64) for the conditions, and
    O(R n / 64) for each rule that the selection adds or drops; the rows of a tree's conditions
    and of the rules are stored as bits, n / 8 bytes each.
    """
    _check_inputs(model, confidence, rules)
    dataset = _read_dataset(model, rows, weights)
    ground = make_row_sets(dataset)
    matrix = dataset.to_matrix()
    found = _find_candidates(model, matrix, ground, confidence)
    values = _count_values(model, matrix)
    selected: list[_CandidateRule] = []
    for label in range(len(ground.class_totals)):
        selected += _select_class_rules(
            [each for each in found if each.label == label], values, ground, label
        )
    met = _stack_row_sets(selected, ground)
    labels = np.array([each.label for each in selected], dtype=np.int64)
    order = order_by_false_positives(met, labels, ground)
    order = order[prune_rule_list(met[order], labels[order], ground, rules)]
    conditions = [selected[i].conditions for i in order.tolist()]
    made = make_ordered_list(model, conditions, sum_first_match_weights(met[order], ground))
    column = None if isinstance(test, Dataset) else weights
    judges = dataset if test is None else _read_dataset(model, test, column)
    return evaluate_list(made, model, judges)


def _check_inputs(model: Model, confidence: float, rules: int | None) -> None:
    """Check that the algorithm supports the model and the parameters."""
    if not 0.0 < confidence <= 0.5:
        raise SettingError(f"confidence is {confidence!r}; expected above 0 and at most 0.5")
    if rules is not None and rules < 0:
        raise SettingError(f"rules is {rules!r}; expected 0 or more, or None for no limit")
    for refused, remedy in (
        (model.schema.task != "classification", "a classifier; use rulefit for regression"),
        (model.schema.more, "a single target; train one model for each target"),
        (model.margins, "leaves that vote for classes, not margins; use rulefit"),
        (model.costs is not None, "a model without misclassification costs; train without costs"),
    ):
        if refused:
            raise ModelError(f"C4.5rules needs {remedy}")
    check_not_rule_list(model)


def _read_dataset(model: Model, rows: Any, weights: str | None) -> Dataset:
    if not isinstance(rows, Dataset):
        return make_validation(
            rows, model.schema, weights=weights, missing=model.missing, unknown=model.unknown,
            noun="the table of the rules",
        )  # fmt: skip
    if weights is not None:
        raise DataError(
            f"weights is {weights!r}, but a Dataset has its own weights; leave weights out, or "
            "give a table"
        )
    if rows.schema != model.schema:
        raise DataError("the dataset's schema differs from the model's; pass a table instead")
    return rows


def _find_candidates(
    model: Model, matrix: npt.NDArray[Any], ground: RowSets, confidence: float
) -> list[_CandidateRule]:
    """Return the distinct generalised rules that beat a constant prediction of their class."""
    bound = make_rate_bound(confidence)
    worst = compute_base_rates(ground, bound)
    found: dict[tuple[int, frozenset[ConditionTuple]], _CandidateRule] = {}
    for number in range(model.n_trees):
        paths = extract_paths(model, number)
        met = find_matching_rows(paths.conditions, matrix, model.schema.n_levels)
        made = generalise_paths(paths, met, ground, bound)
        starts = np.append(0, paths.end[:-1]).tolist()
        seen: set[tuple[int, ...]] = set()
        for path, label in enumerate(paths.label.tolist()):
            own = slice(starts[path], int(paths.end[path]))
            nodes = paths.node[own][made.kept[own]]
            same = (label, *nodes.tolist())
            if made.rate[path] >= worst[label] or same in seen:
                continue
            seen.add(same)
            conditions = paths.merge_conditions(nodes)
            key = label, frozenset(conditions)
            if key not in found:
                rows = np.bitwise_and.reduce(met[nodes], axis=0)
                found[key] = _CandidateRule(conditions, label, rows, float(made.rate[path]))
    return list(found.values())


def _select_class_rules(
    rules: list[_CandidateRule], values: list[int], ground: RowSets, label: int
) -> list[_CandidateRule]:
    """Select the rules to keep for a class, lowest error rate first."""
    bits = [compute_rule_bits(rule.conditions, values) for rule in rules]
    shortest: dict[bytes, int] = {}  # shortest rule for each set of matching rows
    for i in np.argsort(bits, kind="stable").tolist():
        shortest.setdefault(rules[i].matching_rows.tobytes(), i)
    left = sorted(shortest.values())
    rules = [rules[i] for i in left]
    met = _stack_row_sets(rules, ground)
    some = select_shortest_subset(ClassRules(met, np.array([bits[i] for i in left]), ground, label))
    return sorted((rules[i] for i in some.tolist()), key=lambda rule: rule.error_rate)


def _stack_row_sets(rules: list[_CandidateRule], ground: RowSets) -> Bits:
    """Return the rows that match each rule as bits, (rules, words) uint64; `rules` may be empty."""
    sets = [rule.matching_rows for rule in rules]
    return np.array(sets, dtype=np.uint64).reshape(len(rules), len(ground.all_rows))


def _count_values(model: Model, matrix: npt.NDArray[Any]) -> list[int]:
    """Count the distinct known values of numeric columns, and the categories of nominal ones."""
    sizes: list[int] = model.schema.n_levels.tolist()
    for column in np.flatnonzero(~model.schema.nominal).tolist():
        values = np.unique(matrix[:, column])
        sizes[column] = int(np.count_nonzero(values == values))
    return sizes


# ---------------------------------------------------------------- choose
# Selection of the rules for a class by minimum description length (Quinlan 1993, *C4.5*,
# section 5.2).  With few rules all subsets are tried; with many, greedy search adds or drops
# one rule at a time, from several starts.

Mask = npt.NDArray[np.bool_]

MAX_EXHAUSTIVE = 10
"""Number of rules up to which every subset is tried, as in C4.5."""

_MAX_RESTARTS = 1000
"""Number of rules up to which the search also starts from all rules and random halves."""

_N_RANDOM_STARTS = 3
_TOLERANCE = 1e-9


class ClassRules:
    """Rules for one class, and the description length of their subsets.

    Parameters
    ----------
    matching_rows : (rules, words) uint64
        Rows that match each rule.
    bits : (rules,) float64
        Description length of each rule's conditions; see `compute_rule_bits`.
    ground : RowSets
        The rows to encode.
    label : int
        The class that the rules predict.
    """

    def __init__(self, met: Bits, bits: Numbers, ground: RowSets, label: int) -> None:
        self.matching_rows, self.bits, self.ground = met, bits, ground
        self.class_rows = ground.class_rows[label]
        self.total_weight, self.class_weight = (
            float(ground.class_totals.sum()),
            float(ground.class_totals[label]),
        )

    def __len__(self) -> int:
        return len(self.matching_rows)

    def compute_lengths(self, covered: Numbers, right: Numbers, bits: Numbers, n: Index) -> Numbers:
        """Return (subsets,) float64: description lengths; `n` and `bits` are sums over a subset."""
        theory = np.maximum(bits - compute_ordering_bits(n), 0.0)
        exceptions = compute_exception_bits(covered, right, self.total_weight, self.class_weight)
        return np.asarray(exceptions + THEORY_WEIGHT * theory)

    def weigh_sets(self, sets: Bits, within: Bits) -> tuple[Numbers, Numbers]:
        """Return the weights of each set's rows in `within`: of all, and of those of the class."""
        return self.ground.weigh_intersections(sets, within), self.ground.weigh_intersections(
            sets, within & self.class_rows
        )


def select_shortest_subset(rules: ClassRules) -> Index:
    """Search for the subset of shortest description length; return its positions, ascending."""
    if len(rules) <= MAX_EXHAUSTIVE:
        return _search_all_subsets(rules)
    best, least = np.zeros(len(rules), np.bool_), np.inf
    for start in _iter_starts(len(rules)):
        found, length = _improve_subset(rules, start)
        if length < least - _TOLERANCE:
            best, least = found, length
    return np.flatnonzero(best)


def _search_all_subsets(rules: ClassRules) -> Index:
    """Return the first of the shortest subsets, in the order of binary numbers."""
    n = len(rules)
    covers = np.zeros((2, len(rules.ground.all_rows)), dtype=np.uint64)[:1]
    covered, right = np.zeros(1), np.zeros(1)
    # Each rule doubles the subsets: those without it, then the same with it.
    for rule in range(n):
        more = covers | rules.matching_rows[rule]
        own = rules.weigh_sets(more, rules.ground.all_rows)
        covered, right = np.append(covered, own[0]), np.append(right, own[1])
        covers = np.concatenate([covers, more])
    members = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    length = rules.compute_lengths(covered, right, members @ rules.bits, members.sum(axis=1))
    near = np.flatnonzero(length <= length.min() + _TOLERANCE)
    return np.flatnonzero(members[near[0]])


def _iter_starts(n: int) -> Iterator[Mask]:
    """Yield the starting subsets: none, all, and random halves from a fixed seed."""
    yield np.zeros(n, np.bool_)
    if n <= _MAX_RESTARTS:
        yield np.ones(n, np.bool_)
        rng = np.random.default_rng(0)
        for _ in range(_N_RANDOM_STARTS):
            yield rng.random(n) < 0.5


def _improve_subset(rules: ClassRules, inside: Mask) -> tuple[Mask, float]:
    """Add or drop the rule that shortens the description most, until none does.

    Returns the subset and its length.  A step is linear in the words of all rules.
    """
    inside, least = inside.copy(), np.inf
    while True:
        some, several = np.zeros((2, len(rules.ground.all_rows)), dtype=np.uint64)
        for rows in rules.matching_rows[inside]:  # members of one set or more, and of two or more
            several |= some & rows
            some |= rows
        now = np.array([*rules.weigh_sets(some[None], rules.ground.all_rows)])[:, 0]
        covered, right = np.full(len(rules), now[0]), np.full(len(rules), now[1])
        for which, within, sign in ((inside, some & ~several, -1), (~inside, ~some, 1)):
            some_more = rules.weigh_sets(rules.matching_rows[which], within)
            covered[which] += sign * some_more[0]
            right[which] += sign * some_more[1]
        n, bits = int(inside.sum()), float(rules.bits[inside].sum())
        if least == np.inf:
            least = float(
                rules.compute_lengths(now[:1], now[1:], np.array([bits]), np.array([n]))[0]
            )
        change = np.where(inside, -1, 1)
        length = rules.compute_lengths(covered, right, bits + change * rules.bits, n + change)
        best = int(length.argmin())
        if not length[best] < least - _TOLERANCE:
            return inside, least
        inside[best] = ~inside[best]
        least = float(length[best])


# ---------------------------------------------------------------- coding
# Description length of rules and of their exceptions, the selection criterion of C4.5rules.
#
# Quinlan 1993, *C4.5*, section 5.2: better rules for a class need fewer bits to transmit,
# together with their errors (Rissanen's minimum description length).  Conditions are encoded
# as `treekit.components.pruners` encodes splits.

THEORY_WEIGHT = 0.5
"""Weight of rule bits relative to exception bits: rules have redundant encodings."""


def compute_rule_bits(conditions: Sequence[ConditionTuple], n_values: Sequence[int]) -> float:
    """Return the description length in bits of the conditions of a rule, in any order.

    Parameters
    ----------
    conditions : sequence of ConditionTuple
    n_values : (features,) sequence of int
        Distinct known values of each column: numbers in the rows, or the vocabulary size.
    """
    own = [_list_condition_bits(condition, n_values) for condition in conditions]
    bits = [each for several in own for each in several]
    return max(sum(bits) - math.lgamma(len(bits) + 1.0) / math.log(2.0), 0.0)


def _list_condition_bits(asked: ConditionTuple, n_values: Sequence[int]) -> list[float]:
    """Return the description length in bits of each test of a condition; an interval has two."""
    values = n_values[asked.column]
    column = math.log2(len(n_values))
    if asked.fits and len(asked.fits) < values:
        one = math.log2(values)
        some = math.log2(2.0**values - 2.0) if 2 < values < 60 else float(values)
        return [column + (one if len(asked.fits) == 1 else min(some, one * len(asked.fits)))]
    bounds = math.isfinite(asked.low) + math.isfinite(asked.high)
    # Threshold and side of each bound; one bit for "is known" and "is missing".
    return [column + 1.0 + math.log2(max(values - 1, 1))] * bounds or [column + 1.0]


def compute_ordering_bits(n: npt.NDArray[np.int64]) -> Numbers:
    """Return (subsets,) float64: bits saved because the order of `n` rules is irrelevant."""
    from scipy.special import gammaln

    return np.asarray(gammaln(n + 1.0) / math.log(2.0))


def compute_exception_bits(
    covered: Numbers, right: Numbers, total: float, of_class: float
) -> Numbers:
    """Return the bits that encode which rows the rules for a class get wrong.

    ``log2 C(covered, false positives) + log2 C(uncovered, false negatives)``
    (Quinlan 1993, page 53); a row of weight w counts as w rows.

    Parameters
    ----------
    covered, right : (n,) float64
        Weight of the rows that the rules cover, and of the class's rows among them.
    total, of_class : float
        Weight of all rows, and of the class.
    """
    wrong, others, lost = covered - right, total - covered, of_class - right
    return np.asarray(_log2_binomial(covered, wrong) + _log2_binomial(others, lost))


def _log2_binomial(n: Numbers, k: Numbers) -> Numbers:
    """Return ``log2 C(n, k)`` for real ``0 <= k <= n``."""
    from scipy.special import gammaln

    bits = (gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)) / math.log(2.0)
    return np.asarray(bits)


# ---------------------------------------------------------------- generalise
# From paths to rules: conditions are dropped while the error estimate does not rise.
#
# Quinlan 1993, *C4.5*, section 5.1 (first in Quinlan 1987, *Generating production rules from
# decision trees*, with another criterion for conditions).  The estimate is the upper limit of
# a rule's errors on all rows, as `treekit.components.pruners` uses for leaves.


class GeneralisedPaths(NamedTuple):
    """Paths of a tree after conditions have been dropped by `generalise_paths`.

    Attributes
    ----------
    kept : (steps,) bool
        Which conditions of the paths remain.
    rate : (paths,) float64
        Pessimistic error rate of each path with the conditions that remain.
    """

    kept: npt.NDArray[np.bool_]
    rate: Numbers


def make_rate_bound(confidence: float) -> Any:
    """Return the upper limit of errors for a confidence factor.

    A `treekit.kernels.pruning.ErrorBound`.
    """
    from treekit.kernels.pruning import ErrorBound

    z = NormalDist().inv_cdf(1.0 - confidence)
    return ErrorBound(confidence, z, False, 1.0 - np.eye(2))


def compute_base_rates(ground: RowSets, bound: Any) -> list[float]:
    """Return, for each class, the pessimistic error rate of predicting it for all rows."""
    from treekit_rule_learning.row_bitsets import estimate_error_rate

    total = float(ground.class_totals.sum())
    return [float(estimate_error_rate(total, own, bound)) for own in ground.class_totals.tolist()]


def generalise_paths(paths: TreePaths, met: Bits, ground: RowSets, bound: Any) -> GeneralisedPaths:
    """Drop conditions of each path as long as its pessimistic error rate does not rise.

    Each round drops the condition whose removal gives the lowest rate; ties drop the first.

    Parameters
    ----------
    paths : TreePaths
    met : (nodes, words) uint64
        Rows that match the condition of the branch to each node.
    ground : RowSets
    bound
        See `make_rate_bound`.

    Notes
    -----
    A path of d conditions takes up to d rounds over their words: O(d² rows / 64).
    """
    from treekit_rule_learning.row_bitsets import drop_conditions

    kept = np.zeros(len(paths.node), dtype=np.bool_)
    rate = np.empty(len(paths.end))
    drop_conditions(
        met, paths.node, paths.end, paths.label, ground.class_rows, ground.all_rows,
        ground.row_weights[:0] if ground.is_unweighted else ground.row_weights, bound, kept, rate,
    )  # fmt: skip
    return GeneralisedPaths(kept, rate)


# ---------------------------------------------------------------- order
# Order of the classes, default class and pruning of the list (Quinlan 1993, section 5.2).


def order_by_false_positives(met: Bits, label: Index, ground: RowSets) -> Index:
    """Order rules by class: the class with the fewest false positives first.

    False positives are counted on the rows that no earlier class covers; ties go to the class
    with fewer rules, then to the first class of the schema.

    Parameters
    ----------
    met : (rules, words) uint64
        Rows that match each rule.
    label : (rules,) int64
        Their classes.

    Returns
    -------
    (rules,) int64
        Positions; rules of a class stay in order.
    """
    covers = {c: np.bitwise_or.reduce(met[label == c], axis=0) for c in np.unique(label).tolist()}
    left, order = ground.all_rows, np.empty(0, dtype=np.int64)
    while covers:
        wrong = {
            c: float(ground.weigh_intersections(cover[None], left & ~ground.class_rows[c])[0])
            for c, cover in covers.items()
        }
        first = min(covers, key=lambda c: (wrong[c], np.count_nonzero(label == c), c))
        left = left & ~covers.pop(first)
        order = np.append(order, np.flatnonzero(label == first))
    return order


class _RuleMatches:
    """Matching rules of each row, while rules are dropped.

    Attributes
    ----------
    met : (rules, rows) bool
        Whether a row matches a rule.
    first, second : (rows,) int64
        First and second matching rule; if a row has none, the number of rules.
    """

    def __init__(self, met: npt.NDArray[np.bool_]) -> None:
        self.met = met
        self.first, self.second = np.full((2, met.shape[1]), len(met), dtype=np.int64)
        self.update_rows(np.arange(met.shape[1]))

    def update_rows(self, rows: Index) -> None:
        """Recompute the first and second matching rule of the given rows."""
        met = self.met[:, rows]
        first = np.full(len(rows), len(met), dtype=np.int64)
        second = first.copy()
        for rule in range(len(met) - 1, -1, -1):
            own = met[rule]
            second[own] = first[own]
            first[own] = rule
        self.first[rows], self.second[rows] = first, second

    def drop_rule(self, rule: int) -> None:
        """Remove a rule; the others keep their numbers."""
        rows = np.flatnonzero((self.first == rule) | (self.second == rule))
        self.met[rule] = False
        self.update_rows(rows)


def prune_rule_list(met: Bits, label: Index, ground: RowSets, most: int | None = None) -> Index:
    """Return the rules of an ordered list that remain after pruning, ascending.

    The default class has the most weight among the rows that match no rule; ties go to the
    first class of the schema, as everywhere.  Rules are dropped one by one, first the rule whose
    removal gives the fewest errors (ties: the last rule), as long as the errors do not rise.
    If more than `most` rules remain, dropping continues in the same way.

    Rules are also dropped if they match no row first, or if another class has more weight in
    their rows (or equal weight, and comes first in the schema), so that each rule predicts the
    majority of its rows; hence no list makes more errors than a constant prediction.  Some rows
    always remain for the default, because it could replace the last rule.

    Parameters
    ----------
    met : (rules, words) uint64
        Rows that match each rule, in the order of the list.
    label : (rules,) int64
    most : int, optional

    Notes
    -----
    Quinlan drops rules only if that reduces the errors; here rules that make no difference are
    dropped as well.  Linear in the rows for each rule dropped, and in the rules for each row
    that this reassigns.
    """
    matches = _RuleMatches(unpack_bits(met, ground.n_rows))
    kept = np.ones(len(met), dtype=np.bool_)
    while kept.any():
        now, without = _sum_errors(matches, label, ground)
        without[~kept] = np.inf
        least = float(without.min())
        odd = kept & ~_find_majority_rules(matches, label, ground)
        too_many = most is not None and int(kept.sum()) > most
        if least <= now or (too_many and not odd.any()):
            worst = int(np.flatnonzero(without <= least)[-1])
        elif odd.any():
            worst = int(np.flatnonzero(odd)[-1])
        else:
            break
        kept[worst] = False
        matches.drop_rule(worst)
    return np.flatnonzero(kept)


def sum_first_match_weights(met: Bits, ground: RowSets) -> Numbers:
    """Return (rules + 1, classes) float64: weights of the rows that match each rule first.

    The last entry is for the rows that match no rule.
    """
    return _sum_class_weights(_RuleMatches(unpack_bits(met, ground.n_rows)), ground)


def _sum_class_weights(matches: _RuleMatches, ground: RowSets) -> Numbers:
    k = len(ground.class_totals)
    cells = matches.first * k + ground.y
    sums = np.bincount(cells, ground.row_weights, (len(matches.met) + 1) * k)
    return sums.reshape(-1, k).astype(np.float64)


def _find_majority_rules(
    matches: _RuleMatches, label: Index, ground: RowSets
) -> npt.NDArray[np.bool_]:
    """Return (rules,) bool: rules that match rows first, mostly of their own class."""
    own = _sum_class_weights(matches, ground)[:-1]
    return np.asarray(own.any(axis=1) & (own.argmax(axis=1) == label))


def _sum_errors(matches: _RuleMatches, label: Index, ground: RowSets) -> tuple[float, Numbers]:
    """Return the errors of the list, and of the list without each rule."""
    n, k = len(label), len(ground.class_totals)
    weights = _sum_class_weights(matches, ground)
    wrong = weights[:-1].sum(axis=1) - weights[np.arange(n), label]
    uncovered = weights[-1]
    now = float(wrong.sum() + uncovered.sum() - uncovered.max())
    # The rows of a dropped rule move to their second matching rule, or to the default.
    covered = np.flatnonzero(matches.first < n)
    first, second = matches.first[covered], matches.second[covered]
    w, y = ground.row_weights[covered], ground.y[covered]
    falls = second == n
    answer = np.append(label, -1)[second]
    passed = np.bincount(first, w * (~falls & (answer != y)), n)
    left = np.bincount(first[falls] * k + y[falls], w[falls], n * k).reshape(n, k) + uncovered
    without = wrong.sum() - wrong + passed + left.sum(axis=1) - left.max(axis=1)
    return now, np.asarray(without)


# ---------------------------------------------------------------- ordered list


def make_ordered_list(
    model: Model, rules: Sequence[Sequence[ConditionTuple]], weight: Numbers
) -> RuleList:
    """Make a classifying list of order "first".

    The list has no fractional instances even if the model has: a missing value matches the
    conditions that accept it.

    Parameters
    ----------
    model : Model
        Source of the schema and of the other policies.
    rules : sequence of sequence of ConditionTuple
        Conditions of each rule but the last, which has none.
    weight : (rules, classes) float64
        Weights of the rows that match each rule first, including the last rule.
    """
    header = make_empty_list(
        model.schema,
        missing="direction" if model.missing == "fractional" else model.missing,
        unknown=model.unknown,
        voting=model.voting,
        costs=None,
        n_trees=1,
        exponent=0,
        tests=(),
        order="first",
    )
    # Numbered as a chain of nodes: rule, leaf, rule, leaf, ..., the last leaf.
    leaves = [*range(1, 2 * len(rules), 2), 2 * len(rules)]
    votes, support = distribute_votes(header, weight).tolist(), weight.sum(axis=1).tolist()
    listed = zip(leaves, [*rules, ()], support, votes, weight.tolist(), strict=True)
    parsed = [ParsedRule(0, leaf, own, w, False, *values) for leaf, own, w, *values in listed]
    return add_rules(header, parsed, fixed_step=True)
