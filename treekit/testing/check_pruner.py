"""Laws of a pruner's `before` and `after`, tested by calling them as plain Python."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit.components.pruning import Context
from treekit.contracts import Criterion, CriterionFunctions, Pruner, PrunerFunctions, Task
from treekit.data.dataset import Dataset
from treekit.data.schema import Schema
from treekit.errors import DataError, ModelError, SettingError, TreekitWarning
from treekit.model.tree import Split, Tree
from treekit.model.validation import check_tree
from treekit.testing.check_criterion import check_doubled_weights, make_task_setup
from treekit.testing.example_tables import (
    Counting,
    Example,
    SmallTable,
    format_call,
    make_counting,
    make_examples,
)
from treekit.testing.laws import (
    ANSWERS,
    BOUNDS,
    NUMBERS,
    REPEATS,
    WRITES,
    LawTest,
    break_law,
    call_checked,
    check_bounds,
    format_exception,
    format_hint,
    judge_laws,
    open_component,
    skip_law,
)
from treekit.testing.report import Law, Report
from treekit.testing.training import TRAINS, Trainer, describe_difference, make_trainer, train_tree
from treekit.training import fit

# ---------------------------------------------------------------- check


def check_pruner(
    pruner: str | Pruner,
    settings: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Check that a pruner satisfies the laws of its contract; see `check_criterion`.

    Its ``before`` is called as plain Python on the statistics of small splits,
    its ``after`` on trees grown for it, and trees are trained with it.
    """
    found = open_component("pruner", pruner, settings, strict)
    if not found.is_usable:
        return found.report.settled(fail=fail)
    record = found.record
    trainers, countings = _make_trainings(record, found.settings)
    subject = PrunerSubject(record, found.functions, found.settings, trainers, countings)
    gates = (*BEFORE_GATES, *AFTER_GATES)
    laws = (*BEFORE_LAWS, *AFTER_LAWS)
    return judge_laws(found.report, subject, laws, record.exempt, first_laws=gates).settled(
        fail=fail
    )


def _make_trainings(
    record: Pruner, settings: Mapping[str, Any]
) -> tuple[tuple[Trainer, ...], tuple[Counting, ...]]:
    """Return trainings with the pruner, and how their rows are counted."""
    if isinstance(record.task, Task):
        ground = make_task_setup(_find_criterion(record.task, record.name), {}, None)
        own = make_trainer("pruner", record, settings, task=ground.trainer.task)
        parts = {**ground.trainer.parts, **own.parts}
        return (replace(ground.trainer, parts=parts),), (ground.counting,)
    kinds = [
        (task, classes)
        for task, classes in (("classification", (2, 3)), ("regression", (0,)))
        if record.task in (None, task)
    ]
    return (
        tuple(
            make_trainer("pruner", record, settings, task=task, classes=classes[-1:])
            for task, classes in kinds
        ),
        tuple(
            make_counting(task, CriterionFunctions(), k) for task, classes in kinds for k in classes
        ),
    )


def _find_criterion(task: Task, name: str) -> Criterion:
    """Return the first installed criterion of a task."""
    for component in registry.criteria().values():
        if isinstance(component.record, Criterion) and component.record.task == task:
            return component.record
    raise SettingError(
        f"pruner {name!r} is for {task.name}, but no installed criterion is; install a plugin "
        "with such a criterion"
    )


# ---------------------------------------------------------------- laws of `before`

Arguments = tuple[Any, Any, Any, Any]


@dataclass(frozen=True)
class PrunerSubject:
    """A pruner, its functions, trainers with it, and how their rows are counted."""

    record: Pruner
    functions: PrunerFunctions
    settings: dict[str, Any]
    trainers: tuple[Trainer, ...]
    countings: tuple[Counting, ...]

    def iter_arguments(self) -> Iterator[tuple[Counting, Example, Arguments]]:
        """Yield every example twice, without and with held-out rows; small ones come first."""
        if self.functions.before is None:
            skip_law("it has no `before`")
        for of in self.countings:
            for split in make_examples(of):
                no_stats = np.zeros_like(split.children)
                held = np.ascontiguousarray(split.children[::-1])
                yield of, split, (split.parent, split.children, no_stats[0], no_stats)
                yield of, split, (split.parent, split.children, split.parent, held)

    def call_before(self, arguments: Arguments) -> bool:
        """Return the checked result of `before`."""
        assert self.functions.before is not None  # noqa: S101 - checked by `iter_arguments`
        is_kept: bool = call_checked("before", self.functions.before, *arguments, kind=bool)
        return is_kept


def _check_calls(subject: PrunerSubject) -> None:
    for _, _, arguments in subject.iter_arguments():
        subject.call_before(arguments)


def _check_repeated_calls(subject: PrunerSubject) -> None:
    for _, _, arguments in subject.iter_arguments():
        first = subject.call_before(arguments)
        if subject.call_before(arguments) != first:
            break_law(
                format_call("before", *arguments), f"{first}, then {not first}", "the same value"
            )


DOUBLING = Law(
    "doubling-weights-changes-nothing",
    "With every weight doubled, the same splits are kept.",
    "absolute weights: compare shares (a test of significance declares this law)",
)


def _check_doubling(subject: PrunerSubject) -> None:
    for _, _, arguments in subject.iter_arguments():
        doubled: Any = tuple(2.0 * array for array in arguments)
        _check_same_decision(subject, arguments, doubled)


BRANCHES = Law(
    "permuting-branches-changes-nothing",
    "The order of its branches does not decide whether a split is made.",
    "children that are treated by their position",
)


def _check_branch_order(subject: PrunerSubject) -> None:
    for _, _, (parent, children, held, held_children) in subject.iter_arguments():
        reversed_branches = (
            np.ascontiguousarray(children[::-1]),
            held,
            np.ascontiguousarray(held_children[::-1]),
        )
        _check_same_decision(
            subject, (parent, children, held, held_children), (parent, *reversed_branches)
        )


EMPTY = Law(
    "empty-branches-change-nothing",
    "A branch without rows, training or held-out, does not decide whether a split is made.",
    "counts of branches (degrees of freedom): skip those of weight 0",
)


def _check_empty_branches(subject: PrunerSubject) -> None:
    for of, _, (parent, children, held, held_children) in subject.iter_arguments():
        none = np.zeros((1, of.size))
        more = (parent, np.vstack([children, none]), held, np.vstack([held_children, none]))
        _check_same_decision(subject, (parent, children, held, held_children), more)


def _check_same_decision(subject: PrunerSubject, one: Arguments, other: Arguments) -> None:
    first, second = subject.call_before(one), subject.call_before(other)
    if first != second:
        got = f"{first}, and {second} for {format_call('before', *other)}"
        break_law(format_call("before", *one), got, "the same")


def _check_bounds(subject: PrunerSubject) -> None:
    """Call `before` with every setting at its bounds."""

    def use_functions(functions: PrunerFunctions) -> None:
        other = replace(subject, functions=functions)
        if functions.before is not None:
            for _, _, arguments in islice(other.iter_arguments(), 200):
                other.call_before(arguments)

    check_bounds(subject.record, subject.settings, use_functions)


BEFORE_GATES: tuple[tuple[Law, LawTest], ...] = (
    (ANSWERS, _check_calls),
    (NUMBERS, _check_calls),
    (WRITES, _check_calls),
    (REPEATS, _check_repeated_calls),
)
BEFORE_LAWS: tuple[tuple[Law, LawTest], ...] = (
    (DOUBLING, _check_doubling),
    (BRANCHES, _check_branch_order),
    (EMPTY, _check_empty_branches),
    (BOUNDS, _check_bounds),
)


# ---------------------------------------------------------------- laws of `after`
# Tested on trees that were grown for the pruner.


@dataclass(frozen=True)
class GrownTree:
    """A tree to be pruned."""

    tree: Tree
    context: Context
    schema: Schema
    text: str


def _grow_tree(
    subject: PrunerSubject, by: Trainer, table: SmallTable, **settings: Any
) -> GrownTree | None:
    """Return the tree and the context that a training passes to the pruner."""
    caught: list[tuple[Tree, Context]] = []

    def record_tree(tree: Tree, context: Context) -> Tree:
        caught.append((tree, context))
        return tree

    holdout = subject.functions.holdout
    record = Pruner("spy", lambda: PrunerFunctions(after=record_tree, holdout=holdout))
    given = {key: value for key, value in by.parts.items() if not key.startswith("pruner")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TreekitWarning)
        try:
            dataset = by.make_dataset(table)
            fit(dataset, {**given, "pruner": record, **settings})
        except (DataError, SettingError):
            return None
    tree, context = caught[0]
    known: dict[int, Any] = {}  # every call gets the same folds

    def get_folds(k: int) -> Any:
        if k not in known:
            known[k] = context.folds(k)
        return known[k]

    return GrownTree(tree, replace(context, folds=get_folds), dataset.schema, str(table))


def _iter_grown_trees(subject: PrunerSubject) -> Iterator[GrownTree]:
    if subject.functions.after is None:
        skip_law("it has no `after`")
    for by in subject.trainers:
        for table in by.iter_tables():
            for settings in ({}, {"max_depth": 0}):
                grown = _grow_tree(subject, by, table, **settings)
                if grown is not None:
                    yield grown


def _call_after(subject: PrunerSubject, grown: GrownTree) -> tuple[Any, str]:
    """Call `after` for a tree: None if it rejects the tree, `LawBroken` if it fails or writes."""
    call = f"after(the tree of {grown.tree.n_nodes} nodes grown on {grown.text})"
    statistics = (grown.context.stats, grown.context.held_stats)
    before = [array.copy() for array in statistics]
    try:
        assert subject.functions.after is not None  # noqa: S101 - checked by `_iter_grown_trees`
        pruned = subject.functions.after(grown.tree, grown.context)
    except (DataError, SettingError):
        return None, call
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        if isinstance(error, ValueError) and "read-only" in str(error):
            break_law(call, format_exception(error), "the tree unchanged", law=WRITES.name,
                   look=format_hint(error, WRITES))  # fmt: skip
        break_law(
            call,
            format_exception(error),
            "a tree",
            law=ANSWERS.name,
            look=format_hint(error, ANSWERS),
        )
    for array, was in zip(statistics, before, strict=True):
        if not np.array_equal(array, was):
            break_law(call, "the context's statistics were changed", "unchanged", law=WRITES.name)
    return pruned, call


def _check_after_calls(subject: PrunerSubject) -> None:
    for grown in _iter_grown_trees(subject):
        _call_after(subject, grown)


TREE = Law(
    "returns-a-tree",
    "`after` returns a well-formed Tree.",
    "`treekit.components.pruning.collapse(tree, cut)` makes one; children come after their parents",
)


def _check_tree_returned(subject: PrunerSubject) -> None:
    for grown in _iter_grown_trees(subject):
        pruned, call = _call_after(subject, grown)
        if pruned is not None and (problem := _describe_fault(pruned, grown.schema)):
            break_law(call, problem, "a tree")


def _describe_fault(tree: Any, schema: Schema) -> str:
    if not isinstance(tree, Tree):
        return f"a {type(tree).__name__}"
    try:
        check_tree(tree, schema)
    except ModelError as error:
        return str(error)
    return ""


def _check_repeated_pruning(subject: PrunerSubject) -> None:
    for grown in _iter_grown_trees(subject):
        (one, call), (other, _) = _call_after(subject, grown), _call_after(subject, grown)
        if (
            isinstance(one, Tree)
            and isinstance(other, Tree)
            and (apart := describe_difference(one, other))
        ):
            break_law(f"{call}, twice", apart, "the same tree")


SUBTREE = Law(
    "pruned-tree-is-a-subtree",
    "A pruned tree has splits of the grown tree, in their order: nodes are cut off, or replaced by "
    "one below them.",
    "how the tree is made: `treekit.components.pruning` has `collapse` and `graft`",
)
VALUES = Law(
    "leaves-keep-their-values",
    "A leaf of a pruned tree has the value of that node of the grown tree.",
    "`value` of nodes that become leaves (a pruner that smooths them declares this law)",
)


def _iter_pruned_trees(subject: PrunerSubject) -> Iterator[tuple[GrownTree, Tree, str]]:
    for grown in _iter_grown_trees(subject):
        pruned, call = _call_after(subject, grown)
        if isinstance(pruned, Tree) and not _describe_fault(pruned, grown.schema):
            yield grown, pruned, call


def _check_subtree(subject: PrunerSubject) -> None:
    for grown, pruned, call in _iter_pruned_trees(subject):
        if not is_subtree(pruned, grown.tree, values=False):
            kinds = [Split(kind).name for kind in pruned.kind[:5]]
            break_law(
                call, f"{pruned.n_nodes} nodes, {', '.join(kinds)}, ...", "nodes of that tree"
            )


def _check_leaf_values(subject: PrunerSubject) -> None:
    for grown, pruned, call in _iter_pruned_trees(subject):
        nested = is_subtree(pruned, grown.tree, values=False)
        if nested and not is_subtree(pruned, grown.tree, values=True):
            leaves = pruned.value[pruned.kind == Split.LEAF]
            break_law(call, f"leaf values {leaves[:3].tolist()}", "values of that tree's nodes")


def _check_training(subject: PrunerSubject) -> None:
    for by in subject.trainers:
        for table in by.iter_tables():
            train_tree(by, table)
            train_tree(by, table, weighted=True, nominal_splits="multiway", empty_branches=True)


def _check_doubled_weights(subject: PrunerSubject) -> None:
    for by in subject.trainers:
        check_doubled_weights(by)


def _check_after_bounds(subject: PrunerSubject) -> None:
    """Prune a few trees with every setting at its bounds."""

    def use_functions(functions: PrunerFunctions) -> None:
        other = replace(subject, functions=functions)
        if functions.after is not None:
            for grown in islice(_iter_grown_trees(other), 4, 12, 2):
                _call_after(other, grown)

    check_bounds(subject.record, subject.settings, use_functions)


AFTER_GATES: tuple[tuple[Law, LawTest], ...] = (
    (ANSWERS, _check_after_calls),
    (WRITES, _check_after_calls),
    (TREE, _check_tree_returned),
    (REPEATS, _check_repeated_pruning),
    (SUBTREE, _check_subtree),
    (VALUES, _check_leaf_values),
)
AFTER_LAWS: tuple[tuple[Law, LawTest], ...] = (
    (TRAINS, _check_training),
    (DOUBLING, _check_doubled_weights),
    (BOUNDS, _check_after_bounds),
)


# ---------------------------------------------------------------- subtrees


def is_subtree(pruned: Tree, grown: Tree, *, values: bool) -> bool:
    """Whether `pruned` results from `grown` by cutting nodes off, or raising nodes below them.

    Parameters
    ----------
    pruned, grown : Tree
    values : bool
        Whether leaves must also have the values of the nodes that they stand
        for: the cut node, or the one raised in its place.

    Notes
    -----
    A node stands for a node of `grown`, or for one below it with the same split;
    its branches then stand for the branches of that one.  Each pair of nodes is
    tested once at most.
    """
    below = [_list_descendants(grown, node) for node in range(grown.n_nodes)]

    @cache
    def is_replacement(node: int, own: int) -> bool:
        if pruned.kind[node] == Split.LEAF:
            return not values or any(
                np.allclose(pruned.value[node], grown.value[at], rtol=1e-9, atol=1e-9)
                for at in below[own]
            )
        return any(_is_replacement_of(node, at) for at in below[own])

    def _is_replacement_of(node: int, at: int) -> bool:
        if not _has_same_split(pruned, node, grown, at):
            return False
        first, origin = int(pruned.first_child[node]), int(grown.first_child[at])
        return all(is_replacement(first + b, origin + b) for b in range(int(grown.n_children[at])))

    return is_replacement(0, 0)


def _list_descendants(tree: Tree, node: int) -> list[int]:
    """Return a node and all nodes below it, itself first."""
    found = [node]
    for at in found:
        first = int(tree.first_child[at])
        found += range(first, first + int(tree.n_children[at]))
    return found


def _has_same_split(one: Tree, a: int, other: Tree, b: int) -> bool:
    for name in ("kind", "feature", "n_children", "missing"):
        if getattr(one, name)[a] != getattr(other, name)[b]:
            return False
    if one.kind[a] == Split.THRESHOLD and one.threshold[a] != other.threshold[b]:
        return False
    mine = one.level_branch[one.level_offsets[a] : one.level_offsets[a + 1]]
    return np.array_equal(
        mine, other.level_branch[other.level_offsets[b] : other.level_offsets[b + 1]]
    )


# ---------------------------------------------------------------- routing
# A plain reference for the rows of a small table that reach each node of a tree.

Ids = npt.NDArray[np.int64]


def route_rows_to_nodes(tree: Tree, dataset: Dataset) -> dict[int, Ids]:
    """Return row numbers by node, without fractional instances."""
    columns = tuple(dataset.columns)  # read once, as they are used at many nodes
    reached: dict[int, Ids] = {0: np.arange(dataset.n_rows)}
    for node in range(tree.n_nodes):
        if tree.kind[node] == Split.LEAF:
            continue
        branch = _route_branches(tree, node, columns, reached[node])
        first = int(tree.first_child[node])
        for b in range(int(tree.n_children[node])):
            reached[first + b] = reached[node][branch == b]
    return reached


def _route_branches(tree: Tree, node: int, columns: Any, rows: Ids) -> Ids:
    """Return the branch of each row at a node."""
    kind, away = tree.kind[node], int(tree.missing[node])
    own = np.asarray(columns[tree.feature[node]])[rows]
    if own.dtype.kind == "i":
        known = own >= 0
        if kind == Split.MISSING:
            return np.asarray(known, np.int64)
        levels = tree.level_branch[tree.level_offsets[node] : tree.level_offsets[node + 1]]
        branch = np.where(known, levels[np.maximum(own, 0)], -1)
        return np.asarray(np.where(branch < 0, away, branch), np.int64)
    value = own.astype(np.float64)
    if kind == Split.MISSING:
        return np.asarray(value == value, np.int64)
    if kind == Split.OBLIQUE:
        value = np.zeros(len(rows))
        for term in range(tree.term_offsets[node], tree.term_offsets[node + 1]):
            own = np.asarray(columns[tree.term_feature[term]])[rows].astype(np.float64)
            value += tree.term_weight[term] * own
    branch = np.where(value <= tree.threshold[node], 0, 1)
    return np.asarray(np.where(value == value, branch, away), np.int64)
