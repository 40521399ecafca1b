"""Laws of a splitter's `find`, tested by calling it as plain Python on prepared nodes."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit.contracts import Splitter, SplitterFunctions
from treekit.data.binning import make_table
from treekit.errors import DataError
from treekit.kernels.records import PLAIN, Node
from treekit.model.tree import Split as SplitKind
from treekit.model.tree import Tree
from treekit.splitting import Split, branch_stats, code_range, missing_to
from treekit.testing.check_criterion import COPIES as CRITERION_COPIES
from treekit.testing.check_criterion import ROWS as CRITERION_ROWS
from treekit.testing.check_criterion import copies as train_on_copies
from treekit.testing.check_criterion import rows as train_on_permuted_rows
from treekit.testing.check_pruner import rows_of_nodes
from treekit.testing.example_tables import Small, small_table, small_tables
from treekit.testing.laws import (
    ANSWERS,
    BOUNDS,
    WRITES,
    Test,
    broken,
    inapplicable,
    judge,
    look_at,
    opened,
    said_by,
    try_bounds,
)
from treekit.testing.report import Law, Report
from treekit.testing.training import LEAF_WEIGHT, TRAINS, Trainer, difference, trained, trainer
from treekit.training.plan import Part
from treekit.training.prepare import criterion_target

__all__ = [
    "CLAIMED",
    "FEATURES",
    "FIND_LAWS",
    "GROWN_LAWS",
    "REPEATS",
    "Grower",
    "Prepared",
    "Subject",
    "check_splitter",
    "prepared",
    "prepared_nodes",
]


# ---------------------------------------------------------------- laws of `find`

SEEDS = 3
"""Number of seeds with which `find` is called for each node."""


@dataclass(frozen=True)
class Subject:
    """A splitter and its functions."""

    record: Splitter
    functions: SplitterFunctions
    settings: dict[str, Any]
    proposed: list[tuple[Prepared, Any, str]] = field(default_factory=list)

    @property
    def is_python(self) -> bool:
        """Whether `find` is a plugin's function, not one of treekit's kernels."""
        from treekit.kernels.compile import Finder

        return not isinstance(self.functions.find, Finder)

    def proposals(self) -> list[tuple[Prepared, Any, str]]:
        """Return nodes, the proposal of `find` for each, and the call; each call is made once."""
        if not self.is_python:
            inapplicable("its search is a kernel of treekit, tested on the trees that it grows")
        if not self.proposed:
            self.proposed.extend(
                (made, self.find(made, seed), f"find({made.text}, rng of seed {seed})")
                for made in prepared_nodes(self.functions)
                for seed in range(SEEDS)
            )
        return self.proposed

    def find(self, made: Prepared, seed: int) -> Any:
        """Call `find`; raise `Broken` if it raises or writes."""
        core = getattr(self.functions.find, "py_func", self.functions.find)
        before = _copied(made.node)
        call = f"find({made.text}, rng of seed {seed})"
        try:
            split = core(made.node, made.judge, np.random.default_rng(seed))
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            broken(call, said_by(error), "a split, or None", law=ANSWERS.name,
                   look=look_at(error, ANSWERS))  # fmt: skip
        for name, array in _arrays(made.node):
            if not np.array_equal(array, before[name], equal_nan=True):
                broken(call, f"node.{name} was changed", "the node unchanged", law=WRITES.name)
        return split


def _arrays(node: Any) -> list[tuple[str, Any]]:
    found = [(f"table.{name}", array) for name, array in node.table._asdict().items()]
    found += [(f"rows.{name}", array) for name, array in node.rows._asdict().items()]
    return [*found, ("stats", node.stats)]


def _copied(node: Any) -> dict[str, Any]:
    return {name: array.copy() for name, array in _arrays(node)}


def _all(subject: Subject) -> None:
    for _ in subject.proposals():
        pass


PROPOSES = Law(
    "returns-a-split-or-none",
    "`find` returns a Split made by the functions of treekit.splitting, or None for a leaf.",
    "each `return` of `find`",
)


def _proposes(subject: Subject) -> None:
    for _, split, call in subject.proposals():
        if split is not None and not isinstance(split, Split):
            broken(call, repr(split)[:80], "a treekit.splitting.Split, or None")


SCORED = Law(
    "finite-values",
    "The score of a split is neither NaN nor infinite.",
    "0 / 0 and log(0) on the way to `scored(split, score)`",
)


def _splits(subject: Subject) -> Iterator[tuple[Prepared, Split, str]]:
    """Yield the proposals that are splits; others are tested by another law."""
    for made, split, call in subject.proposals():
        if isinstance(split, Split):
            yield made, split, call


def _scored(subject: Subject) -> None:
    for _, split, call in _splits(subject):
        if not np.isfinite(split.score):
            broken(call, f"score {split.score}", "a finite number")


REPEATS = Law(
    "reproducible-by-its-rng",
    "The same node and the same state of `rng` give the same split.",
    "np.random, random, sets, time: draw from `rng` only",
)


def _repeats(subject: Subject) -> None:
    for seed, (made, split, call) in enumerate(subject.proposals()):
        again = subject.find(made, seed % SEEDS)
        if str(again) != str(split):
            broken(call, f"{split}, then {again}", "one split")


LEGAL = Law(
    "split-fits-its-column",
    "A split tests a column of the table according to its kind, and has a branch for missing rows.",
    "the kind (threshold for numbers, level_split for categories), `levels`, `missing`, `branches`",
)


def _legal(subject: Subject) -> None:
    for made, split, call in _splits(subject):
        problem = _problem(made, split, subject.functions)
        if problem:
            broken(call, problem, "a split of one of the node's columns")


def _problem(made: Prepared, split: Split, functions: SplitterFunctions) -> str:
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


def _legal_splits(subject: Subject) -> Iterator[tuple[Prepared, Split, str]]:
    for made, split, call in _splits(subject):
        if not _problem(made, split, subject.functions):
            yield made, split, call


THRESHOLD = Law(
    "threshold-lies-in-the-node",
    "A threshold separates two values of the node, and lies between them.",
    "`code_range(node, feature)`: the cut is in low .. high - 1; `threshold` below the next",
)


def _threshold(subject: Subject) -> None:
    for made, split, call in _legal_splits(subject):
        if split.kind == 1 and (problem := _misplaced(made, split)):
            broken(call, problem, "a cut within the node's values")


def _misplaced(made: Prepared, split: Split) -> str:
    low, high, _ = code_range(made.node, split.feature)
    if not low <= split.cut < high:
        return f"cut {split.cut}; the node has codes {low} to {high}"
    table = made.node.table
    at = table.value_start[split.feature] + split.cut
    if np.isnan(split.threshold) or table.high[at] <= split.threshold < table.low[at + 1]:
        return ""
    return f"threshold {split.threshold}, not in {table.high[at]:g} <= t < {table.low[at + 1]:g}"


def _placed(subject: Subject) -> Iterator[tuple[Prepared, Split, str]]:
    """Yield legal splits whose threshold, if any, lies in the node."""
    for made, split, call in _legal_splits(subject):
        if split.kind != 1 or not _misplaced(made, split):
            yield made, split, call


EMPTY = Law(
    "no-branch-is-empty",
    "Each branch of a split receives rows of the node.",
    "categories absent at the node have branch -1; a missing-value split needs rows of both kinds",
)


def _empty(subject: Subject) -> None:
    for made, split, call in _placed(subject):
        weights = made.weights(made.children(split))
        if not (weights > 0.0).all():
            broken(call, f"branches of weight {weights.tolist()}", "rows in each")


def _leaf_weight(subject: Subject) -> None:
    for made, split, call in _placed(subject):
        children = made.children(split)
        weights = made.weights(children)
        heavy = int((weights >= made.node.min_weight_leaf).sum())
        if heavy < 2 and (weights > 0.0).all():
            broken(call, f"branches of weight {weights.tolist()}",
                   f"two of at least {made.node.min_weight_leaf:g}")  # fmt: skip


CLAIMED = Law(
    "claimed-score-is-the-criterion-s",
    "The score of a split is criterion.score of its branches.",
    "`scored(split, criterion.score(node.stats, branch_stats(node, split)))`, after missing_to",
)


def _claimed(subject: Subject) -> None:
    for made, split, call in _placed(subject):
        if not np.isfinite(split.score):
            continue
        wanted = [
            made.score(made.node.stats, children)
            for children in (made.children(split), branch_stats(made.node, split))
        ]
        if not any(abs(split.score - w) <= 1e-9 * max(1.0, abs(w)) for w in wanted):
            broken(call, f"score {split.score!r}", repr(float(wanted[0])))


FEATURES = Law(
    "max-features-is-obeyed",
    "The best of `node.n_try` random columns that are not constant is taken, drawn at each node.",
    "`draw_features(node, rng)`: stop after n_try columns that were not constant",
)


def _features(subject: Subject) -> None:
    if not subject.is_python:
        inapplicable("its search is a kernel of treekit, tested on the trees that it grows")
    made = prepared(
        small_table(80, 2).with_columns("x", "z", "c"), "classification", subject.functions, n_try=1
    )
    assert made is not None  # noqa: S101 - a table of 80 rows is accepted
    splits = [subject.find(made, seed) for seed in range(40)]
    features = {split.feature for split in splits if isinstance(split, Split)}
    if len(features) == 1 and all(split is not None for split in splits):
        name = made.names[features.pop()]
        broken(f"find({made.text}, rng of seed 0 to 39)", f"column {name!r} every time",
               "different columns")  # fmt: skip


FINDS = Law(
    "finds-what-separates",
    "If one column separates the classes, a split is found.",
    "the conditions under which `find` returns None",
)


def _finds(subject: Subject) -> None:
    if not subject.is_python:
        inapplicable("its search is a kernel of treekit, tested on the trees that it grows")
    table = small_table(80, 2)
    separating = [0.0 if label == "class 0" else 1.0 for label in table.target]
    clear = type(table)({"x": separating}, table.target, table.weights, "80 rows, x = the class")
    made = prepared(clear, "classification", subject.functions)
    assert made is not None  # noqa: S101 - as above
    if all(subject.find(made, seed) is None for seed in range(10)):
        broken(f"find({made.text})", "None", "a split of x")


FIND_LAWS: tuple[tuple[Law, Test], ...] = (
    (ANSWERS, _all),
    (WRITES, _all),
    (PROPOSES, _proposes),
    (SCORED, _scored),
    (REPEATS, _repeats),
    (LEGAL, _legal),
    (THRESHOLD, _threshold),
    (EMPTY, _empty),
    (LEAF_WEIGHT, _leaf_weight),
    (CLAIMED, _claimed),
    (FEATURES, _features),
    (FINDS, _finds),
)


# ---------------------------------------------------------------- check


@dataclass(frozen=True)
class _Both(Subject):
    """A splitter, and trainers with it."""

    growers: Grower = ()


def check_splitter(
    splitter: str | Splitter,
    settings: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Check that a splitter satisfies the laws of its contract; see `check_criterion`.

    Its ``find`` is called as plain Python on nodes of small tables, and trees
    for classification and regression are grown with it.
    """
    found = opened("splitter", splitter, settings, strict)
    if not found.usable:
        return found.report.settled(fail=fail)
    growers = tuple(
        trainer(
            "splitter", found.record, found.settings, task=task, classes=classes,
            criterion=criterion,
        )
        for task, classes, criterion in (
            ("classification", (3,), "gini"),
            ("regression", (0,), "squared_error"),
        )
    )  # fmt: skip
    subject = _Both(found.record, found.functions, found.settings, growers=growers)
    # A split on intervals becomes nested thresholds in the tree, so it is tested when proposed.
    nested = (LEAF_WEIGHT, CLAIMED) if found.functions.intervals else ()
    laws = [(law, _of_trees(test)) for law, test in GROWN_LAWS if law not in nested]
    laws.append((BOUNDS, _bounds))
    return judge(found.report, subject, laws, found.record.exempt, gates=FIND_LAWS).settled(
        fail=fail
    )


def _bounds(subject: _Both) -> None:
    """Call `find` for a few nodes with every setting at its bounds."""

    def use(functions: Any) -> None:
        if subject.is_python:
            for _ in replace(subject, functions=functions, proposed=[]).proposals():
                pass

    try_bounds(subject.record, subject.settings, use)
    if not subject.is_python:
        inapplicable("its search is a kernel of treekit, tested on the trees that it grows")


def _of_trees(test: Test) -> Test:
    return lambda subject: test(subject.growers)


# ---------------------------------------------------------------- trained trees
# Laws of a splitter, tested on trees that are trained with it.

Grower = tuple[Trainer, ...]
"""Trainers with the splitter: for classification, and for regression."""


def _trees(growers: Grower, **settings: Any) -> Iterator[tuple[Trainer, Small, Tree]]:
    for by in growers:
        for table in by.tables():
            tree = trained(by, table, **settings)
            if tree is not None:
                yield by, table, tree


def trains(growers: Grower) -> None:
    """Train on every small table, with every kind of nominal split."""
    for _ in _trees(growers):
        pass
    for by in growers:
        for table in list(by.tables())[::3]:
            trained(by, table.with_columns("k"))
            trained(by, table, weighted=True, nominal_splits="multiway", max_features=1)
            trained(by, table, max_leaves=3)


def heavy(growers: Grower) -> None:
    """Grow trees with a minimum leaf weight, and check the weights of the branches."""
    for _, table, tree in _trees(growers, min_weight_leaf=4.0):
        for node in np.flatnonzero(tree.kind != SplitKind.LEAF):
            first = tree.first_child[node]
            weights = tree.weight[first : first + tree.n_children[node]]
            if (weights >= 4.0).sum() < 2:
                broken(f"training on {table} with min_weight_leaf=4",
                       f"node {node} has branches of weight {weights.tolist()}",
                       "two of at least 4")  # fmt: skip


def seeded(growers: Grower) -> None:
    """Grow each tree twice."""
    for by, table, tree in _trees(growers):
        again = trained(by, table)
        if again is not None and (apart := difference(tree, again)):
            broken(f"training on {table}, twice with seed 0", apart, "the same tree")


def gains(growers: Grower) -> None:
    """Route the rows through the tree, and compute the score of every split again."""
    for by, table, tree in _trees(growers):
        measure, _ = registry.make(registry.criterion(by.parts["criterion"]), {})
        stats = _statistics(table, by.vocabulary)
        rows = rows_of_nodes(tree, by.dataset(table))
        for node in np.flatnonzero(tree.kind != SplitKind.LEAF):
            first = tree.first_child[node]
            branches = range(first, first + tree.n_children[node])
            children = np.array([stats[rows[child]].sum(axis=0) for child in branches])
            wanted = float(measure.score(children.sum(axis=0), children))
            gain = float(tree.gain[node])
            if abs(gain - wanted) > 1e-6 * max(1.0, abs(wanted)):
                broken(f"training on {table}", f"node {node} has gain {gain!r}", repr(wanted))


def _statistics(table: Small, classes: list[str] | None) -> Any:
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


def permuted(growers: Grower) -> None:
    """Permute the rows of each table, with the same seed."""
    for by in growers:
        train_on_permuted_rows(by)


def copied(growers: Grower) -> None:
    """Repeat each row as many times as its weight."""
    for by in growers:
        train_on_copies(by)


def tried(growers: Grower) -> None:
    """Grow stumps on one random column for many seeds."""
    table = small_table(80, 3).with_columns("x", "z", "c")
    by = growers[0]
    features = set()
    for seed in range(25):
        stump = trained(by, table, seed=seed, max_features=1, max_depth=1)
        features.add(-1 if stump is None else int(stump.feature[0]))
    if len(features) == 1 and -1 not in features:
        broken(f"training stumps on {table} with max_features=1 and seeds 0 to 24",
               f"column {'xzc'[features.pop()]!r} every time", "different columns")  # fmt: skip


GROWN_LAWS: tuple[tuple[Law, Test], ...] = (
    (TRAINS, trains),
    (LEAF_WEIGHT, heavy),
    (REPEATS, seeded),
    (ROWS, permuted),
    (COPIES, copied),
    (CLAIMED, gains),
    (FEATURES, tried),
)


# ---------------------------------------------------------------- prepared nodes

Judge = namedtuple("Judge", ["score"])


@dataclass(frozen=True, eq=False)
class Prepared:
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
    def judge(self) -> Any:
        """The criterion as passed to a splitter."""
        return Judge(self.score)

    def weights(self, children: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the weights (branches,) of statistics (branches, S)."""
        return children.sum(axis=1) if len(self.node.rows.cells) else children[:, 0]

    def children(self, split: Any) -> npt.NDArray[np.float64]:
        """Return the statistics (branches, S) of a proposed split, including missing rows."""
        children = branch_stats(self.node, split)
        if split.missing < 0:
            split = missing_to(split, int(np.argmax(self.weights(children))))
            children = branch_stats(self.node, split)
        return children


def prepared(
    table: Small,
    task: Literal["classification", "regression"],
    functions: SplitterFunctions,
    *,
    min_weight_leaf: float = 1.0,
    n_try: int = 0,
    nominal_splits: str = "subset",
    weighted: bool = False,
) -> Prepared | None:
    """Prepare the root node of a table; None if treekit rejects the table."""
    by = Trainer({}, task, classes=(3 if task == "classification" else 0,))
    try:
        dataset = by.dataset(table, weighted)
    except DataError:
        return None
    name = "gini" if task == "classification" else "squared_error"
    record = registry.criterion(name)
    measure, _ = registry.make(record, {})
    target = criterion_target(dataset, Part(record, measure, {}, registry.origin(record)), False)
    schema = dataset.schema
    codes = make_table(
        dataset.columns, schema.n_levels, schema.nominal, functions.coding,
        nominal_splits=nominal_splits,  # type: ignore[arg-type]  # one of the known kinds
    )  # fmt: skip
    rows = target.rows(np.arange(dataset.n_rows, dtype=np.uint32), None)
    stats = np.zeros(target.size)
    if target.dense:
        stats += rows.values.sum(axis=0)
    else:
        np.add.at(stats, rows.cells, rows.values[:, 0])
    weight = float(stats[0] if target.dense else stats.sum())
    impurity = float(measure.impurity(stats)) if measure.impurity else 0.0
    tried = n_try or len(codes.n_codes)
    node = Node(codes, rows, stats, weight, impurity, 0, min_weight_leaf, tried, PLAIN, None)
    text = f"the root of {table}, min_weight_leaf={min_weight_leaf:g}, n_try={tried}"
    return Prepared(node, measure.score, text, tuple(schema.names))


_TASKS: tuple[Literal["classification", "regression"], ...] = ("classification", "regression")


def prepared_nodes(functions: SplitterFunctions) -> Iterator[Prepared]:
    """Yield roots of tables for classification and regression, small ones first."""
    for tables in zip(small_tables(3), small_tables(0), strict=True):
        for table, task in zip(tables, _TASKS, strict=True):
            for least, way in ((1.0, "subset"), (3.0, "multiway")):
                made = prepared(
                    table, task, functions, min_weight_leaf=least, nominal_splits=way,
                    weighted=way == "multiway",
                )  # fmt: skip
                if made is not None:
                    yield made
