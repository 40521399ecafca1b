"""Laws of a splitter's `find`, tested by calling it as plain Python on prepared nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit.compiling.splitter import write_checked_split
from treekit.contracts import Splitter, SplitterFunctions
from treekit.data.binning import encode_columns
from treekit.errors import DataError
from treekit.kernels.compile import SplitterKernel
from treekit.kernels.records import BAD_SPLIT, PLAIN_RULES, SPLIT_DTYPE, Node
from treekit.model.tree import Split as SplitKind
from treekit.splitting import Split, branch_stats, code_range, missing_to
from treekit.testing.example_tables import SmallTable, iter_small_tables, make_small_table
from treekit.testing.laws import (
    ANSWERS,
    BOUNDS,
    WRITES,
    Laws,
    Subject,
    blame_error,
    break_law,
    check_bounds,
    skip_law,
)
from treekit.testing.report import Law
from treekit.testing.training import (
    LEAF_WEIGHT,
    ROW_COPIES,
    ROW_ORDER,
    TRAINS,
    Trainer,
    check_row_copies,
    check_row_order,
    iter_trainings,
    make_trainer,
    train_tree,
)
from treekit.training.plan import PlannedComponent
from treekit.training.prepare import make_criterion_target

# ---------------------------------------------------------------- splitter under test

SEEDS = 3
"""Number of seeds with which `find` is called for each node."""


@dataclass(frozen=True)
class Proposal:
    """Result of `find` for a node, and the call."""

    made: PreparedNode
    split: Any
    call: str

    @cached_property
    def children(self) -> npt.NDArray[np.float64]:
        """Statistics (branches, S) of the split, including missing rows."""
        children, split = branch_stats(self.made.node, self.split), self.split
        if split.missing < 0:
            heaviest = int(np.argmax(self.made.sum_weights(children)))
            children = branch_stats(self.made.node, missing_to(split, heaviest))
        return children


@dataclass(frozen=True)
class SplitterSubject(Subject):
    """A splitter, and trainers for classification and regression."""

    @property
    def is_python(self) -> bool:
        """Whether `find` is a plugin's function, not one of treekit's kernels."""
        return not isinstance(self.functions.find, SplitterKernel)

    @cached_property
    def proposals(self) -> list[Proposal]:
        """Proposals for several seeds and all nodes, small ones first."""
        if not self.is_python:
            skip_law("its search is a kernel, which the tests of treekit compare with a reference")
        return [
            self.call_find(made, seed)
            for made in iter_prepared_nodes(self.functions)
            for seed in range(SEEDS)
        ]

    def call_find(self, made: PreparedNode, seed: int) -> Proposal:
        """Call `find` for a node; raise `LawBroken` if it raises or changes the node."""
        core = getattr(self.functions.find, "py_func", self.functions.find)
        arrays = _list_arrays(made.node)
        before = {name: array.copy() for name, array in arrays}
        call = f"find({made.text}, rng of seed {seed})"
        try:
            split = core(made.node, made.criterion, np.random.default_rng(seed))
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            blame_error(call, error, "a split, or None", ANSWERS)
        for name, array in arrays:
            if not np.array_equal(array, before[name], equal_nan=True):
                break_law(call, f"node.{name} was changed", "the node unchanged", law=WRITES)
        return Proposal(made, split, call)

    def use_functions(self) -> None:
        """Call `find` for all nodes."""
        if self.is_python:
            _ = self.proposals


def make_splitter_subject(record: Splitter, given: Mapping[str, Any]) -> SplitterSubject:
    """Make the functions of a splitter, and trainers for classification and regression."""
    functions, settings = registry.make(record, given)
    trainers = tuple(
        make_trainer("splitter", record, settings, criterion, task=task, classes=classes)
        for task, classes, criterion in (
            ("classification", (3,), "gini"),
            ("regression", (0,), "squared_error"),
        )
    )
    return SplitterSubject(record, settings, functions, trainers=trainers)


def _list_arrays(node: Any) -> list[tuple[str, Any]]:
    found = [(f"table.{name}", array) for name, array in node.table._asdict().items()]
    found += [(f"rows.{name}", array) for name, array in node.rows._asdict().items()]
    return [*found, ("stats", node.stats)]


# ---------------------------------------------------------------- laws of `find`

Describe = Callable[[SplitterSubject, Proposal], str]
"""Describes the fault of a proposal; empty if there is none."""


def _check_proposals(
    subject: SplitterSubject, describe: Describe, expected: str, first: tuple[Describe, ...] = ()
) -> None:
    """Describe a fault of every proposal that has none of the faults of other laws."""
    for proposal in subject.proposals:
        if proposal.split is None or any(other(subject, proposal) for other in first):
            continue
        if fault := describe(subject, proposal):
            break_law(proposal.call, fault, expected)


PROPOSES = Law(
    "returns-a-split-or-none",
    "`find` returns a Split made by the functions of treekit.splitting, or None for a leaf.",
    "each `return` of `find`",
)


def _describe_type(_: SplitterSubject, proposal: Proposal) -> str:
    return "" if isinstance(proposal.split, Split) else repr(proposal.split)[:80]


SCORED = Law(
    "finite-values",
    "The score of a split is neither NaN nor infinite.",
    "0 / 0 and log(0) on the way to `scored(split, score)`",
)


def _describe_score(_: SplitterSubject, proposal: Proposal) -> str:
    score = proposal.split.score
    return "" if np.isfinite(score) else f"score {score}"


REPEATS = Law(
    "reproducible-by-its-rng",
    "The same node and the same state of `rng` give the same split.",
    "np.random, random, sets, time: draw from `rng` only",
)


def _check_repeated_calls(subject: SplitterSubject) -> None:
    for number, one in enumerate(subject.proposals):
        again = subject.call_find(one.made, number % SEEDS)
        if str(again.split) != str(one.split):
            break_law(one.call, f"{one.split}, then {again.split}", "one split")


LEGAL = Law(
    "split-fits-its-column",
    "A split tests a column of the table according to its kind, and has a branch for missing rows.",
    "the kind (threshold for numbers, level_split for categories), `levels`, `missing`, `branches`",
)


def _describe_fault(subject: SplitterSubject, proposal: Proposal) -> str:
    node, split, functions = proposal.made.node, proposal.split, subject.functions
    found = np.zeros(1, SPLIT_DTYPE)[0]
    levels = np.zeros(int(max(node.table.n_codes)) + 2 * len(node.table.n_codes), np.int32)
    placed = split._replace(threshold=np.nan) if split.kind == SplitKind.THRESHOLD else split
    write_checked_split(  # type: ignore[no-untyped-call]
        placed, node, functions.sums, functions.intervals, levels, found
    )  # as in a training; thresholds are tested by another law
    return str(split) if found["kind"] == BAD_SPLIT else ""


THRESHOLD = Law(
    "threshold-lies-in-the-node",
    "A threshold separates two values of the node, and lies between them.",
    "`code_range(node, feature)`: the cut is in low .. high - 1; `threshold` below the next",
)


def _describe_misplacement(_: SplitterSubject, proposal: Proposal) -> str:
    made, split = proposal.made, proposal.split
    if split.kind != SplitKind.THRESHOLD:
        return ""
    low, high = code_range(made.node, split.feature)[:2]
    if not low <= split.cut < high:
        return f"cut {split.cut}; the node has codes {low} to {high}"
    table = made.node.table
    at = table.value_start[split.feature] + split.cut
    if np.isnan(split.threshold) or table.high[at] <= split.threshold < table.low[at + 1]:
        return ""
    return f"threshold {split.threshold}, not in {table.high[at]:g} <= t < {table.low[at + 1]:g}"


EMPTY = Law(
    "no-branch-is-empty",
    "Each branch of a split receives rows of the node.",
    "categories absent at the node have branch -1; a missing-value split needs rows of both kinds",
)


def _describe_empty_branch(_: SplitterSubject, proposal: Proposal) -> str:
    weights = proposal.made.sum_weights(proposal.children)
    return "" if (weights > 0.0).all() else f"branches of weight {weights.tolist()}"


def _describe_light_branches(_: SplitterSubject, proposal: Proposal) -> str:
    weights, least = (
        proposal.made.sum_weights(proposal.children),
        proposal.made.node.min_weight_leaf,
    )
    is_light = (weights >= least).sum() < 2 and (weights > 0.0).all()
    return f"branches of weight {weights.tolist()}" if is_light else ""


CLAIMED = Law(
    "claimed-score-is-the-criterion-s",
    "The score of a split is criterion.score of its branches.",
    "`scored(split, criterion.score(node.stats, branch_stats(node, split)))`, after missing_to",
)


def _describe_claim(_: SplitterSubject, proposal: Proposal) -> str:
    made, split = proposal.made, proposal.split
    if not np.isfinite(split.score):
        return ""
    branches = (proposal.children, branch_stats(made.node, split))
    scores = [float(made.criterion.score(made.node.stats, children)) for children in branches]
    is_true = any(abs(split.score - score) <= 1e-9 * max(1.0, abs(score)) for score in scores)
    return "" if is_true else f"score {split.score!r} for {scores[0]!r}"


FEATURES = Law(
    "max-features-is-obeyed",
    "The best of `node.n_try` random columns that are not constant is taken, drawn at each node.",
    "`draw_features(node, rng)`: stop after n_try columns that were not constant",
)


def _check_max_features(subject: SplitterSubject) -> None:
    _ = subject.proposals  # skips kernels
    table = make_small_table(80, 2).with_columns("x", "z", "c")
    made = prepare_node(table, "classification", subject.functions, n_try=1)
    splits = [subject.call_find(made, seed).split for seed in range(40)]
    features = {split.feature for split in splits if isinstance(split, Split)}
    if len(features) == 1 and all(split is not None for split in splits):
        call, name = f"find({made.text}, rng of seed 0 to 39)", made.names[features.pop()]
        break_law(call, f"column {name!r} every time", "different columns")


FINDS = Law(
    "finds-what-separates",
    "If one column separates the classes, a split is found.",
    "the conditions under which `find` returns None",
)


def _check_finds(subject: SplitterSubject) -> None:
    _ = subject.proposals  # skips kernels
    table = make_small_table(80, 2)
    separating = [0.0 if label == "class 0" else 1.0 for label in table.target]
    clear = SmallTable({"x": separating}, table.target, table.weights, "80 rows, x = the class")
    made = prepare_node(clear, "classification", subject.functions)
    if all(subject.call_find(made, seed).split is None for seed in range(10)):
        break_law(f"find({made.text})", "None", "a split of x")


def _check_training(subject: SplitterSubject) -> None:
    """Train on every small table, with minimum leaf weights and every kind of nominal split."""
    for by, table in iter_trainings(subject):
        train_tree(by, table)
        train_tree(by, table, min_weight_leaf=4.0)
    for by, table in list(iter_trainings(subject))[::3]:
        train_tree(by, table.with_columns("k"))
        train_tree(by, table, weighted=True, nominal_splits="multiway", max_features=1)
        train_tree(by, table, max_leaves=3)


def _check_gains(subject: SplitterSubject) -> None:
    """Compute the score of every split of a tree again, from the statistics of its nodes."""
    if subject.functions.intervals:
        skip_law("a split on intervals becomes nested thresholds, whose gains are not its score")
    for by, table in iter_trainings(subject):
        measure, _ = registry.make(registry.get("criterion", by.parts["criterion"]), {})
        if (tree := train_tree(by, table)) is None:
            continue
        sums = np.column_stack([tree.weight, tree.weight * tree.value[:, 0]])
        stats = tree.value if by.task == "classification" else sums
        for node in np.flatnonzero(tree.kind != SplitKind.LEAF):
            first, gain = tree.first_child[node], float(tree.gain[node])
            children = stats[first : first + tree.n_children[node]]
            wanted = float(measure.score(children.sum(axis=0), children))
            if abs(gain - wanted) > 1e-6 * max(1.0, abs(wanted)):
                break_law(f"training on {table}", f"node {node} has gain {gain!r}", repr(wanted))


def _check_calls(subject: SplitterSubject) -> None:
    _ = subject.proposals


_UNFIT: tuple[Describe, ...] = (_describe_type, _describe_fault)
_MISPLACED: tuple[Describe, ...] = (*_UNFIT, _describe_misplacement)
_PROPOSAL_LAWS: tuple[tuple[Law, Describe, str, tuple[Describe, ...]], ...] = (
    (PROPOSES, _describe_type, "a treekit.splitting.Split, or None", ()),
    (SCORED, _describe_score, "a finite number", (_describe_type,)),
    (LEGAL, _describe_fault, "a split of one of the node's columns", (_describe_type,)),
    (THRESHOLD, _describe_misplacement, "a cut within the node's values", _UNFIT),
    (EMPTY, _describe_empty_branch, "rows in each", _MISPLACED),
    (LEAF_WEIGHT, _describe_light_branches, "two of at least node.min_weight_leaf", _MISPLACED),
    (CLAIMED, _describe_claim, "the score of the criterion", _MISPLACED),
)
FIND_LAWS: Laws = (
    (_check_calls, ANSWERS, WRITES),
    (_check_repeated_calls, REPEATS),
    *(
        (partial(_check_proposals, describe=describe, expected=expected, first=first), law)
        for law, describe, expected, first in _PROPOSAL_LAWS
    ),
    (_check_max_features, FEATURES),
    (_check_finds, FINDS),
)
ROWS = replace(
    ROW_ORDER,
    look="row numbers and the order of `node.rows.ids`, which are the table's: use the codes of "
    "the columns (a search that samples rows declares this law)",
)
COPIES = replace(
    ROW_COPIES,
    look="`len(node.rows.ids)`: a row counts as its weight, which `node.stats` and `branch_stats` "
    "add up (a search that samples rows declares this law)",
)
TREE_LAWS: Laws = (
    (_check_training, TRAINS, LEAF_WEIGHT),
    (_check_gains, CLAIMED),
    (check_row_order, ROWS),
    (check_row_copies, COPIES),
    (check_bounds, BOUNDS),
)
SPLITTER_LAWS = (FIND_LAWS, TREE_LAWS)


# ---------------------------------------------------------------- prepared nodes


@dataclass(frozen=True, eq=False)
class PreparedNode:
    """A root node of a small table.

    Attributes
    ----------
    node : Node
    criterion : object
        As passed to a splitter, with the plain ``score`` of gini or of the squared error.
    text : str
        Description of the table and the limits, for an example.
    names : tuple of str
        Names of the columns.
    """

    node: Node
    criterion: Any
    text: str
    names: tuple[str, ...]

    def sum_weights(self, children: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the weights (branches,) of statistics (branches, S)."""
        return children.sum(axis=1) if len(self.node.rows.cells) else children[:, 0]


def prepare_node(
    table: SmallTable,
    task: Literal["classification", "regression"],
    functions: SplitterFunctions,
    *,
    min_weight_leaf: float = 1.0,
    n_try: int = 0,
    nominal_splits: str = "subset",
    weighted: bool = False,
) -> PreparedNode:
    """Prepare the root node of a table; raise `DataError` if treekit rejects the table."""
    by = Trainer({}, task, classes=(3 if task == "classification" else 0,))
    dataset = by.make_dataset(table, weighted)
    name = "gini" if task == "classification" else "squared_error"
    record = registry.get("criterion", name)
    measure, _ = registry.make(record, {})
    target = make_criterion_target(
        dataset, PlannedComponent(record, measure, {}, registry.origin(record)), False
    )
    schema = dataset.schema
    codes = encode_columns(
        dataset.columns, schema.n_levels, schema.nominal, functions.coding,
        nominal_splits=nominal_splits,  # type: ignore[arg-type]  # one of the known kinds
    )  # fmt: skip
    rows = target.select_rows(np.arange(dataset.n_rows, dtype=np.uint32), None)
    stats = target.sum_rows(rows)
    weight = float(stats[0] if target.is_dense else stats.sum())
    impurity = float(measure.impurity(stats)) if measure.impurity else 0.0
    tried = n_try or len(codes.n_codes)
    node = Node(codes, rows, stats, weight, impurity, 0, min_weight_leaf, tried, PLAIN_RULES, None)
    text = f"the root of {table}, min_weight_leaf={min_weight_leaf:g}, n_try={tried}"
    return PreparedNode(node, SimpleNamespace(score=measure.score), text, tuple(schema.names))


_TASKS: tuple[Literal["classification", "regression"], ...] = ("classification", "regression")


def iter_prepared_nodes(functions: SplitterFunctions) -> Iterator[PreparedNode]:
    """Yield roots of tables for classification and regression, small ones first."""
    for tables in zip(iter_small_tables(3), iter_small_tables(0), strict=True):
        for table, task in zip(tables, _TASKS, strict=True):
            for least, way in ((1.0, "subset"), (3.0, "multiway")):
                with contextlib.suppress(DataError):
                    yield prepare_node(
                        table, task, functions, min_weight_leaf=least, nominal_splits=way,
                        weighted=way == "multiway",
                    )  # fmt: skip
