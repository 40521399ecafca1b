"""Laws of a pruner's `before` and `after`, tested by calling them as plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from typing import Any

import numpy as np

from treekit import registry
from treekit.components.pruning import Context
from treekit.contracts import Criterion, CriterionFunctions, Pruner, PrunerFunctions, Task
from treekit.data.schema import Schema
from treekit.errors import DataError, ModelError, SettingError
from treekit.model.tree import Split, Tree
from treekit.model.validation import check_tree
from treekit.testing.check_criterion import make_task_setup
from treekit.testing.example_tables import (
    Counting,
    Example,
    SmallTable,
    make_counting,
    make_examples,
)
from treekit.testing.laws import (
    ANSWERS,
    BOUNDS,
    BRANCHES,
    DOUBLING,
    EMPTY,
    NUMBERS,
    REPEATS,
    WRITES,
    Laws,
    StatisticsSubject,
    add_empty_branch,
    blame_error,
    break_law,
    call_checked,
    check_bounds,
    check_invariance,
    double_weights,
    keep_statistics,
    reverse_branches,
    skip_law,
)
from treekit.testing.report import Law
from treekit.testing.training import (
    TRAINS,
    Trainer,
    check_doubled_weights,
    describe_difference,
    iter_trainings,
    make_trainer,
    train_tree,
)

# ---------------------------------------------------------------- pruner under test


@dataclass(frozen=True)
class PrunerSubject(StatisticsSubject):
    """A pruner, trainers with it, and how their rows are counted."""

    def iter_calls(self, *_names: str) -> Iterator[tuple[Counting, Example, str, tuple[Any, ...]]]:
        """Yield `before` with every example twice, without and with held-out rows."""
        if self.functions.before is None:
            skip_law("it has no `before`")
        for of in self.countings:
            for split in make_examples(of):
                no_rows = np.zeros_like(split.children)
                held = np.ascontiguousarray(split.children[::-1])
                yield of, split, "before", (split.parent, split.children, no_rows[0], no_rows)
                yield of, split, "before", (split.parent, split.children, split.parent, held)

    def call(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """Return the checked result of `before`."""
        is_kept: bool = call_checked(name, self.functions.before, *arguments, kind=bool)
        return is_kept

    def use_functions(self) -> None:
        """Call `before` for some splits, and `after` for a few trees."""
        if self.functions.before is not None:
            for _, _, name, arguments in islice(self.iter_calls(), 200):
                self.call(name, arguments)
        if self.functions.after is not None:
            for grown in islice(_iter_grown_trees(self), 4, 12, 2):
                _call_after(self, grown)


def make_pruner_subject(record: Pruner, given: Mapping[str, Any]) -> PrunerSubject:
    """Make the functions of a pruner, and trainers for its task."""
    functions, settings = registry.make(record, given)
    if isinstance(record.task, Task):
        ground = make_task_setup(_find_criterion(record.task, record.name), {}, None)
        own = make_trainer("pruner", record, settings, task=ground.trainers[0].task)
        by = replace(ground.trainers[0], parts={**ground.trainers[0].parts, **own.parts})
        return PrunerSubject(record, settings, functions, None, (by,), ground.countings)
    kinds = {"classification": (2, 3), "regression": (0,)}
    if record.task is not None:
        kinds = {record.task: kinds[record.task]}
    trainers = tuple(
        make_trainer("pruner", record, settings, task=task, classes=classes[-1:])
        for task, classes in kinds.items()
    )
    countings = tuple(
        make_counting(task, CriterionFunctions(), k)
        for task, classes in kinds.items()
        for k in classes
    )
    return PrunerSubject(record, settings, functions, None, trainers, countings)


def _find_criterion(task: Task, name: str) -> Criterion:
    """Return the first installed criterion of a task."""
    for component in registry.list("criterion").values():
        if isinstance(component.record, Criterion) and component.record.task == task:
            return component.record
    raise SettingError(
        f"pruner {name!r} is for {task.name}, but no installed criterion is; install a plugin "
        "with such a criterion"
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
    parts = {key: value for key, value in by.parts.items() if not key.startswith("pruner")}
    if train_tree(replace(by, parts={**parts, "pruner": record}), table, **settings) is None:
        return None
    tree, context = caught[0]
    folds = cache(context.folds)  # every call gets the same folds
    return GrownTree(tree, replace(context, folds=folds), by.make_dataset(table).schema, str(table))


def _iter_grown_trees(subject: PrunerSubject) -> Iterator[GrownTree]:
    if subject.functions.after is None:
        skip_law("it has no `after`")
    for by, table in iter_trainings(subject):
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
        pruned = subject.functions.after(grown.tree, grown.context)
    except (DataError, SettingError):
        return None, call
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        writes = isinstance(error, ValueError) and "read-only" in str(error)
        blame_error(call, error, "a tree", WRITES if writes else ANSWERS)
    for array, was in zip(statistics, before, strict=True):
        if not np.array_equal(array, was):
            break_law(call, "the context's statistics were changed", "unchanged", law=WRITES)
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
        both = isinstance(one, Tree) and isinstance(other, Tree)
        if both and (apart := describe_difference(one, other)):
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
    for by, table in iter_trainings(subject):
        train_tree(by, table)
        train_tree(by, table, weighted=True, nominal_splits="multiway", empty_branches=True)


KEEPS = replace(DOUBLING, sentence="With every weight doubled, the same splits are kept.")

GATES: Laws = (
    (PrunerSubject.check_calls, ANSWERS, NUMBERS, WRITES),
    (partial(check_invariance, change=keep_statistics), REPEATS),
    (_check_after_calls, ANSWERS, WRITES),
    (_check_tree_returned, TREE),
    (_check_repeated_pruning, REPEATS),
    (_check_subtree, SUBTREE),
    (_check_leaf_values, VALUES),
)
LAWS: Laws = (
    (partial(check_invariance, change=double_weights), KEEPS),
    (partial(check_invariance, change=reverse_branches), BRANCHES),
    (partial(check_invariance, change=add_empty_branch), EMPTY),
    (_check_training, TRAINS),
    (check_doubled_weights, KEEPS),
    (check_bounds, BOUNDS),
)
PRUNER_LAWS = (GATES, LAWS)


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
