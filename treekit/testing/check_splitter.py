"""Laws of a splitter's `call_find`, tested by calling it as plain Python on prepared nodes."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit.contracts import Splitter, SplitterFunctions
from treekit.data.binning import encode_columns
from treekit.errors import DataError
from treekit.kernels.records import PLAIN_RULES, Node
from treekit.model.tree import Split as SplitKind
from treekit.model.tree import Tree
from treekit.splitting import Split, branch_stats, code_range, missing_to
from treekit.testing.check_criterion import ROW_COPIES as CRITERION_COPIES
from treekit.testing.check_criterion import ROW_ORDER as CRITERION_ROWS
from treekit.testing.check_criterion import check_row_copies as train_on_copies
from treekit.testing.check_criterion import check_row_order as train_on_permuted_rows
from treekit.testing.check_pruner import route_rows_to_nodes
from treekit.testing.example_tables import SmallTable, iter_small_tables, make_small_table
from treekit.testing.laws import (
    ANSWERS,
    BOUNDS,
    WRITES,
    LawTest,
    break_law,
    check_bounds,
    format_exception,
    format_hint,
    judge_laws,
    open_component,
    skip_law,
)
from treekit.testing.report import Law, Report
from treekit.testing.training import (
    LEAF_WEIGHT,
    TRAINS,
    Trainer,
    describe_difference,
    make_trainer,
    train_tree,
)
from treekit.training.plan import PlannedComponent
from treekit.training.prepare import make_criterion_target

# ---------------------------------------------------------------- laws of `call_find`

SEEDS = 3
"""Number of seeds with which `call_find` is called for each node."""


@dataclass(frozen=True)
class SplitterSubject:
    """A splitter and its functions."""

    record: Splitter
    functions: SplitterFunctions
    settings: dict[str, Any]
    proposed: list[tuple[PreparedNode, Any, str]] = field(default_factory=list)

    @property
    def is_python(self) -> bool:
        """Whether `call_find` is a plugin's function, not one of treekit's kernels."""
        from treekit.kernels.compile import SplitterKernel

        return not isinstance(self.functions.find, SplitterKernel)

    def list_proposals(self) -> list[tuple[PreparedNode, Any, str]]:
        """Return nodes, the proposal of `call_find` for each, and the call, made once."""
        if not self.is_python:
            skip_law("its search is a kernel of treekit, tested on the trees that it grows")
        if not self.proposed:
            self.proposed.extend(
                (made, self.call_find(made, seed), f"find({made.text}, rng of seed {seed})")
                for made in iter_prepared_nodes(self.functions)
                for seed in range(SEEDS)
            )
        return self.proposed

    def call_find(self, made: PreparedNode, seed: int) -> Any:
        """Call `find` for a node; raise `LawBroken` if it raises or changes the node."""
        core = getattr(self.functions.find, "py_func", self.functions.find)
        before = _copy_arrays(made.node)
        call = f"find({made.text}, rng of seed {seed})"
        try:
            split = core(made.node, made.criterion, np.random.default_rng(seed))
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            break_law(call, format_exception(error), "a split, or None", law=ANSWERS.name,
                   look=format_hint(error, ANSWERS))  # fmt: skip
        for name, array in _list_arrays(made.node):
            if not np.array_equal(array, before[name], equal_nan=True):
                break_law(call, f"node.{name} was changed", "the node unchanged", law=WRITES.name)
        return split


def _list_arrays(node: Any) -> list[tuple[str, Any]]:
    found = [(f"table.{name}", array) for name, array in node.table._asdict().items()]
    found += [(f"rows.{name}", array) for name, array in node.rows._asdict().items()]
    return [*found, ("stats", node.stats)]


def _copy_arrays(node: Any) -> dict[str, Any]:
    return {name: array.copy() for name, array in _list_arrays(node)}


def _check_calls(subject: SplitterSubject) -> None:
    for _ in subject.list_proposals():
        pass


PROPOSES = Law(
    "returns-a-split-or-none",
    "`find` returns a Split made by the functions of treekit.splitting, or None for a leaf.",
    "each `return` of `find`",
)


def _check_proposals(subject: SplitterSubject) -> None:
    for _, split, call in subject.list_proposals():
        if split is not None and not isinstance(split, Split):
            break_law(call, repr(split)[:80], "a treekit.splitting.Split, or None")


SCORED = Law(
    "finite-values",
    "The score of a split is neither NaN nor infinite.",
    "0 / 0 and log(0) on the way to `scored(split, score)`",
)


def _iter_splits(subject: SplitterSubject) -> Iterator[tuple[PreparedNode, Split, str]]:
    """Yield the proposals that are splits; others are tested by another law."""
    for made, split, call in subject.list_proposals():
        if isinstance(split, Split):
            yield made, split, call


def _check_scores(subject: SplitterSubject) -> None:
    for _, split, call in _iter_splits(subject):
        if not np.isfinite(split.score):
            break_law(call, f"score {split.score}", "a finite number")


REPEATS = Law(
    "reproducible-by-its-rng",
    "The same node and the same state of `rng` give the same split.",
    "np.random, random, sets, time: draw from `rng` only",
)


def _check_repeated_calls(subject: SplitterSubject) -> None:
    for seed, (made, split, call) in enumerate(subject.list_proposals()):
        again = subject.call_find(made, seed % SEEDS)
        if str(again) != str(split):
            break_law(call, f"{split}, then {again}", "one split")


LEGAL = Law(
    "split-fits-its-column",
    "A split tests a column of the table according to its kind, and has a branch for missing rows.",
    "the kind (threshold for numbers, level_split for categories), `levels`, `missing`, `branches`",
)


def _check_legal(subject: SplitterSubject) -> None:
    for made, split, call in _iter_splits(subject):
        problem = _describe_problem(made, split, subject.functions)
        if problem:
            break_law(call, problem, "a split of one of the node's columns")


def _describe_problem(made: PreparedNode, split: Split, functions: SplitterFunctions) -> str:
    table = made.node.table
    if not 0 <= split.feature < len(table.n_codes):
        return f"column {split.feature} of {len(table.n_codes)}"
    if split.kind == 5:
        declared = functions.sums
        return "" if declared else "an oblique split, undeclared; set SplitterFunctions(sums=True)"
    if split.kind == 6 and not functions.intervals:
        return "a split on intervals, undeclared; set SplitterFunctions(intervals=True)"
    if split.kind not in (1, 2, 3, 4, 6):
        return f"kind {split.kind}"
    nominal = table.nominal[split.feature] > 0
    if split.kind in (2, 3):
        if not nominal:
            return f"categories of the numeric column {made.names[split.feature]!r}"
        if len(split.levels) != table.n_codes[split.feature]:
            return f"{len(split.levels)} categories of {table.n_codes[split.feature]}"
        if ((split.levels < -1) | (split.levels >= split.branches)).any():
            return f"branches {split.levels.tolist()} of {split.branches}"
    if split.kind in (1, 6) and nominal:
        return f"a threshold of the nominal column {made.names[split.feature]!r}"
    if not -1 <= split.missing < split.branches:
        return f"missing rows sent to branch {split.missing} of {split.branches}"
    return ""


def _iter_legal_splits(subject: SplitterSubject) -> Iterator[tuple[PreparedNode, Split, str]]:
    for made, split, call in _iter_splits(subject):
        if not _describe_problem(made, split, subject.functions):
            yield made, split, call


THRESHOLD = Law(
    "threshold-lies-in-the-node",
    "A threshold separates two values of the node, and lies between them.",
    "`code_range(node, feature)`: the cut is in low .. high - 1; `threshold` below the next",
)


def _check_thresholds(subject: SplitterSubject) -> None:
    for made, split, call in _iter_legal_splits(subject):
        if split.kind == 1 and (problem := _describe_misplacement(made, split)):
            break_law(call, problem, "a cut within the node's values")


def _describe_misplacement(made: PreparedNode, split: Split) -> str:
    low, high, _ = code_range(made.node, split.feature)
    if not low <= split.cut < high:
        return f"cut {split.cut}; the node has codes {low} to {high}"
    table = made.node.table
    at = table.value_start[split.feature] + split.cut
    if np.isnan(split.threshold) or table.high[at] <= split.threshold < table.low[at + 1]:
        return ""
    return f"threshold {split.threshold}, not in {table.high[at]:g} <= t < {table.low[at + 1]:g}"


def _iter_placed_splits(subject: SplitterSubject) -> Iterator[tuple[PreparedNode, Split, str]]:
    """Yield legal splits whose threshold, if any, lies in the node."""
    for made, split, call in _iter_legal_splits(subject):
        if split.kind != 1 or not _describe_misplacement(made, split):
            yield made, split, call


EMPTY = Law(
    "no-branch-is-empty",
    "Each branch of a split receives rows of the node.",
    "categories absent at the node have branch -1; a missing-value split needs rows of both kinds",
)


def _check_empty_branches(subject: SplitterSubject) -> None:
    for made, split, call in _iter_placed_splits(subject):
        weights = made.sum_weights(made.compute_children(split))
        if not (weights > 0.0).all():
            break_law(call, f"branches of weight {weights.tolist()}", "rows in each")


def _check_leaf_weights(subject: SplitterSubject) -> None:
    for made, split, call in _iter_placed_splits(subject):
        children = made.compute_children(split)
        weights = made.sum_weights(children)
        heavy = int((weights >= made.node.min_weight_leaf).sum())
        if heavy < 2 and (weights > 0.0).all():
            break_law(call, f"branches of weight {weights.tolist()}",
                   f"two of at least {made.node.min_weight_leaf:g}")  # fmt: skip


CLAIMED = Law(
    "claimed-score-is-the-criterion-s",
    "The score of a split is criterion.score of its branches.",
    "`scored(split, criterion.score(node.stats, branch_stats(node, split)))`, after missing_to",
)


def _check_claimed_scores(subject: SplitterSubject) -> None:
    for made, split, call in _iter_placed_splits(subject):
        if not np.isfinite(split.score):
            continue
        wanted = [
            made.score(made.node.stats, children)
            for children in (made.compute_children(split), branch_stats(made.node, split))
        ]
        if not any(abs(split.score - w) <= 1e-9 * max(1.0, abs(w)) for w in wanted):
            break_law(call, f"score {split.score!r}", repr(float(wanted[0])))


FEATURES = Law(
    "max-features-is-obeyed",
    "The best of `node.n_try` random columns that are not constant is taken, drawn at each node.",
    "`draw_features(node, rng)`: stop after n_try columns that were not constant",
)


def _check_max_features(subject: SplitterSubject) -> None:
    if not subject.is_python:
        skip_law("its search is a kernel of treekit, tested on the trees that it grows")
    made = prepare_node(
        make_small_table(80, 2).with_columns("x", "z", "c"),
        "classification",
        subject.functions,
        n_try=1,
    )
    assert made is not None  # noqa: S101 - a table of 80 rows is accepted
    splits = [subject.call_find(made, seed) for seed in range(40)]
    features = {split.feature for split in splits if isinstance(split, Split)}
    if len(features) == 1 and all(split is not None for split in splits):
        name = made.names[features.pop()]
        break_law(f"find({made.text}, rng of seed 0 to 39)", f"column {name!r} every time",
               "different columns")  # fmt: skip


FINDS = Law(
    "finds-what-separates",
    "If one column separates the classes, a split is found.",
    "the conditions under which `find` returns None",
)


def _check_finds(subject: SplitterSubject) -> None:
    if not subject.is_python:
        skip_law("its search is a kernel of treekit, tested on the trees that it grows")
    table = make_small_table(80, 2)
    separating = [0.0 if label == "class 0" else 1.0 for label in table.target]
    clear = type(table)({"x": separating}, table.target, table.weights, "80 rows, x = the class")
    made = prepare_node(clear, "classification", subject.functions)
    assert made is not None  # noqa: S101 - as above
    if all(subject.call_find(made, seed) is None for seed in range(10)):
        break_law(f"find({made.text})", "None", "a split of x")


FIND_LAWS: tuple[tuple[Law, LawTest], ...] = (
    (ANSWERS, _check_calls),
    (WRITES, _check_calls),
    (PROPOSES, _check_proposals),
    (SCORED, _check_scores),
    (REPEATS, _check_repeated_calls),
    (LEGAL, _check_legal),
    (THRESHOLD, _check_thresholds),
    (EMPTY, _check_empty_branches),
    (LEAF_WEIGHT, _check_leaf_weights),
    (CLAIMED, _check_claimed_scores),
    (FEATURES, _check_max_features),
    (FINDS, _check_finds),
)


# ---------------------------------------------------------------- check


@dataclass(frozen=True)
class _TrainedSubject(SplitterSubject):
    """A splitter, and trainers with it."""

    growers: Growers = ()


def check_splitter(
    splitter: str | Splitter,
    settings: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Check that a splitter satisfies the laws of its contract; see `check_criterion`.

    Its ``call_find`` is called as plain Python on nodes of small tables, and trees
    for classification and regression are grown with it.
    """
    found = open_component("splitter", splitter, settings, strict)
    if not found.is_usable:
        return found.report.settled(fail=fail)
    growers = tuple(
        make_trainer(
            "splitter", found.record, found.settings, task=task, classes=classes,
            criterion=criterion,
        )
        for task, classes, criterion in (
            ("classification", (3,), "gini"),
            ("regression", (0,), "squared_error"),
        )
    )  # fmt: skip
    subject = _TrainedSubject(found.record, found.functions, found.settings, growers=growers)
    # A split on intervals becomes nested thresholds in the tree, so it is tested when proposed.
    nested = (LEAF_WEIGHT, CLAIMED) if found.functions.intervals else ()
    laws = [(law, _test_growers(test)) for law, test in GROWN_LAWS if law not in nested]
    laws.append((BOUNDS, _check_bounds))
    return judge_laws(
        found.report, subject, laws, found.record.exempt, first_laws=FIND_LAWS
    ).settled(fail=fail)


def _check_bounds(subject: _TrainedSubject) -> None:
    """Call `call_find` for a few nodes with every setting at its bounds."""

    def use_functions(functions: Any) -> None:
        if subject.is_python:
            for _ in replace(subject, functions=functions, proposed=[]).list_proposals():
                pass

    check_bounds(subject.record, subject.settings, use_functions)
    if not subject.is_python:
        skip_law("its search is a kernel of treekit, tested on the trees that it grows")


def _test_growers(test: LawTest) -> LawTest:
    return lambda subject: test(subject.growers)


# ---------------------------------------------------------------- trained trees
# Laws of a splitter, tested on trees that are trained with it.

Growers = tuple[Trainer, ...]
"""Trainers with the splitter: for classification, and for regression."""


def _iter_trees(growers: Growers, **settings: Any) -> Iterator[tuple[Trainer, SmallTable, Tree]]:
    for by in growers:
        for table in by.iter_tables():
            tree = train_tree(by, table, **settings)
            if tree is not None:
                yield by, table, tree


def check_training(growers: Growers) -> None:
    """Train on every small table, with every kind of nominal split."""
    for _ in _iter_trees(growers):
        pass
    for by in growers:
        for table in list(by.iter_tables())[::3]:
            train_tree(by, table.with_columns("k"))
            train_tree(by, table, weighted=True, nominal_splits="multiway", max_features=1)
            train_tree(by, table, max_leaves=3)


def check_leaf_weights(growers: Growers) -> None:
    """Grow trees with a minimum leaf weight, and check the weights of the branches."""
    for _, table, tree in _iter_trees(growers, min_weight_leaf=4.0):
        for node in np.flatnonzero(tree.kind != SplitKind.LEAF):
            first = tree.first_child[node]
            weights = tree.weight[first : first + tree.n_children[node]]
            if (weights >= 4.0).sum() < 2:
                break_law(f"training on {table} with min_weight_leaf=4",
                       f"node {node} has branches of weight {weights.tolist()}",
                       "two of at least 4")  # fmt: skip


def check_reproducible(growers: Growers) -> None:
    """Grow each tree twice."""
    for by, table, tree in _iter_trees(growers):
        again = train_tree(by, table)
        if again is not None and (apart := describe_difference(tree, again)):
            break_law(f"training on {table}, twice with seed 0", apart, "the same tree")


def check_gains(growers: Growers) -> None:
    """Route the rows through the tree, and compute the score of every split again."""
    for by, table, tree in _iter_trees(growers):
        measure, _ = registry.make(registry.criterion(by.parts["criterion"]), {})
        stats = _make_statistics(table, by.vocabulary)
        rows = route_rows_to_nodes(tree, by.make_dataset(table))
        for node in np.flatnonzero(tree.kind != SplitKind.LEAF):
            first = tree.first_child[node]
            branches = range(first, first + tree.n_children[node])
            children = np.array([stats[rows[child]].sum(axis=0) for child in branches])
            wanted = float(measure.score(children.sum(axis=0), children))
            gain = float(tree.gain[node])
            if abs(gain - wanted) > 1e-6 * max(1.0, abs(wanted)):
                break_law(f"training on {table}", f"node {node} has gain {gain!r}", repr(wanted))


def _make_statistics(table: SmallTable, classes: list[str] | None) -> Any:
    if classes is None:
        return np.array([[1.0, target] for target in table.target])
    return np.array([[float(target == name) for name in classes] for target in table.target])


ROWS = replace(
    CRITERION_ROWS,
    look="row numbers and the order of `node.rows.ids`, which are the table's: use the codes of "
    "the columns (a search that samples rows declares this law)",
)
COPIES = replace(
    CRITERION_COPIES,
    look="`len(node.rows.ids)`: a row counts as its weight, which `node.stats` and `branch_stats` "
    "add up (a search that samples rows declares this law)",
)


def check_row_order(growers: Growers) -> None:
    """Permute the rows of each table, with the same seed."""
    for by in growers:
        train_on_permuted_rows(by)


def check_row_copies(growers: Growers) -> None:
    """Repeat each row as many times as its weight."""
    for by in growers:
        train_on_copies(by)


def check_random_features(growers: Growers) -> None:
    """Grow stumps on one random column for many seeds."""
    table = make_small_table(80, 3).with_columns("x", "z", "c")
    by = growers[0]
    features = set()
    for seed in range(25):
        stump = train_tree(by, table, seed=seed, max_features=1, max_depth=1)
        features.add(-1 if stump is None else int(stump.feature[0]))
    if len(features) == 1 and -1 not in features:
        break_law(f"training stumps on {table} with max_features=1 and seeds 0 to 24",
               f"column {'xzc'[features.pop()]!r} every time", "different columns")  # fmt: skip


GROWN_LAWS: tuple[tuple[Law, LawTest], ...] = (
    (TRAINS, check_training),
    (LEAF_WEIGHT, check_leaf_weights),
    (REPEATS, check_reproducible),
    (ROWS, check_row_order),
    (COPIES, check_row_copies),
    (CLAIMED, check_gains),
    (FEATURES, check_random_features),
)


# ---------------------------------------------------------------- prepared nodes

PlainCriterion = namedtuple("PlainCriterion", ["score"])


@dataclass(frozen=True, eq=False)
class PreparedNode:
    """A root node of a small table.

    Attributes
    ----------
    node : Node
    score : callable
        Plain ``score(parent, children)`` of gini or of the squared error.
    text : str
        Description of the table and the limits, for an example.
    names : tuple of str
        Names of the columns.
    """

    node: Node
    score: Callable[..., float]
    text: str
    names: tuple[str, ...]

    @property
    def criterion(self) -> Any:
        """The criterion as passed to a splitter."""
        return PlainCriterion(self.score)

    def sum_weights(self, children: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the weights (branches,) of statistics (branches, S)."""
        return children.sum(axis=1) if len(self.node.rows.cells) else children[:, 0]

    def compute_children(self, split: Any) -> npt.NDArray[np.float64]:
        """Return the statistics (branches, S) of a proposed split, including missing rows."""
        children = branch_stats(self.node, split)
        if split.missing < 0:
            split = missing_to(split, int(np.argmax(self.sum_weights(children))))
            children = branch_stats(self.node, split)
        return children


def prepare_node(
    table: SmallTable,
    task: Literal["classification", "regression"],
    functions: SplitterFunctions,
    *,
    min_weight_leaf: float = 1.0,
    n_try: int = 0,
    nominal_splits: str = "subset",
    weighted: bool = False,
) -> PreparedNode | None:
    """Prepare the root node of a table; None if treekit rejects the table."""
    by = Trainer({}, task, classes=(3 if task == "classification" else 0,))
    try:
        dataset = by.make_dataset(table, weighted)
    except DataError:
        return None
    name = "gini" if task == "classification" else "squared_error"
    record = registry.criterion(name)
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
    stats = np.zeros(target.size)
    if target.is_dense:
        stats += rows.values.sum(axis=0)
    else:
        np.add.at(stats, rows.cells, rows.values[:, 0])
    weight = float(stats[0] if target.is_dense else stats.sum())
    impurity = float(measure.impurity(stats)) if measure.impurity else 0.0
    tried = n_try or len(codes.n_codes)
    node = Node(codes, rows, stats, weight, impurity, 0, min_weight_leaf, tried, PLAIN_RULES, None)
    text = f"the root of {table}, min_weight_leaf={min_weight_leaf:g}, n_try={tried}"
    return PreparedNode(node, measure.score, text, tuple(schema.names))


_TASKS: tuple[Literal["classification", "regression"], ...] = ("classification", "regression")


def iter_prepared_nodes(functions: SplitterFunctions) -> Iterator[PreparedNode]:
    """Yield roots of tables for classification and regression, small ones first."""
    for tables in zip(iter_small_tables(3), iter_small_tables(0), strict=True):
        for table, task in zip(tables, _TASKS, strict=True):
            for least, way in ((1.0, "subset"), (3.0, "multiway")):
                made = prepare_node(
                    table, task, functions, min_weight_leaf=least, nominal_splits=way,
                    weighted=way == "multiway",
                )  # fmt: skip
                if made is not None:
                    yield made
