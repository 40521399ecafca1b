"""Laws of a pruner's `after`, judged on trees that were grown for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from treekit.components.pruning import Context
from treekit.contracts import Pruner, PrunerFunctions
from treekit.data.schema import Schema
from treekit.errors import DataError, ModelError, SettingError, TreekitWarning
from treekit.model.tree import Split, Tree
from treekit.model.validation import check_tree
from treekit.testing.bounds import BOUNDS, try_bounds
from treekit.testing.calls import ANSWERS, REPEATS, WRITES, look_at, said_by
from treekit.testing.criterion_training import doubled
from treekit.testing.laws import Test, broken, inapplicable
from treekit.testing.pruner_laws import DOUBLING, Subject
from treekit.testing.report import Law
from treekit.testing.subtree import is_subtree
from treekit.testing.tables import Small
from treekit.testing.training import TRAINS, Trainer, difference, trained
from treekit.training import fit

__all__ = ["AFTER_GATES", "AFTER_LAWS"]


@dataclass(frozen=True)
class Grown:
    """A tree that waits to be pruned."""

    tree: Tree
    context: Context
    schema: Schema
    text: str


def _grown(subject: Subject, by: Trainer, table: Small, **settings: Any) -> Grown | None:
    """The tree and the context that a training hands to the pruner."""
    caught: list[tuple[Tree, Context]] = []

    def spy(tree: Tree, context: Context) -> Tree:
        caught.append((tree, context))
        return tree

    holdout = subject.functions.holdout
    record = Pruner("spy", lambda: PrunerFunctions(after=spy, holdout=holdout))
    given = {key: value for key, value in by.parts.items() if not key.startswith("pruner")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TreekitWarning)
        try:
            dataset = by.dataset(table)
            fit(dataset, {**given, "pruner": record, **settings})
        except (DataError, SettingError):
            return None
    tree, context = caught[0]
    known: dict[int, Any] = {}  # the same folds whenever they are asked for

    def folds(k: int) -> Any:
        if k not in known:
            known[k] = context.folds(k)
        return known[k]

    return Grown(tree, replace(context, folds=folds), dataset.schema, str(table))


def _all_grown(subject: Subject) -> Iterator[Grown]:
    if subject.functions.after is None:
        inapplicable("it has no `after`")
    for by in subject.trainers:
        for table in by.tables():
            for settings in ({}, {"max_depth": 0}):
                grown = _grown(subject, by, table, **settings)
                if grown is not None:
                    yield grown


def _after(subject: Subject, grown: Grown) -> tuple[Any, str]:
    """What `after` makes of a tree, with breaches for raising and writing; None: refused."""
    call = f"after(the tree of {grown.tree.n_nodes} nodes grown on {grown.text})"
    watched = (grown.context.stats, grown.context.held_stats)
    before = [array.copy() for array in watched]
    try:
        assert subject.functions.after is not None  # noqa: S101 - `_all_grown` has seen to it
        pruned = subject.functions.after(grown.tree, grown.context)
    except (DataError, SettingError):
        return None, call
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        if isinstance(error, ValueError) and "read-only" in str(error):
            broken(call, said_by(error), "the tree as it was", law=WRITES.name,
                   look=look_at(error, WRITES))  # fmt: skip
        broken(call, said_by(error), "a tree", law=ANSWERS.name, look=look_at(error, ANSWERS))
    for array, was in zip(watched, before, strict=True):
        if not np.array_equal(array, was):
            broken(call, "context's statistics were changed", "as they were", law=WRITES.name)
    return pruned, call


def _answers(subject: Subject) -> None:
    for grown in _all_grown(subject):
        _after(subject, grown)


TREE = Law(
    "returns-a-tree",
    "`after` returns a well-formed Tree.",
    "`treekit.components.pruning.collapse(tree, cut)` makes one; children come after their parents",
)


def _tree(subject: Subject) -> None:
    for grown in _all_grown(subject):
        pruned, call = _after(subject, grown)
        if pruned is not None and (problem := _malformed(pruned, grown.schema)):
            broken(call, problem, "a tree")


def _malformed(tree: Any, schema: Schema) -> str:
    if not isinstance(tree, Tree):
        return f"a {type(tree).__name__}"
    try:
        check_tree(tree, schema)
    except ModelError as error:
        return str(error)
    return ""


def _repeats(subject: Subject) -> None:
    for grown in _all_grown(subject):
        (one, call), (other, _) = _after(subject, grown), _after(subject, grown)
        if isinstance(one, Tree) and isinstance(other, Tree) and (apart := difference(one, other)):
            broken(f"{call}, twice", apart, "the same tree")


SUBTREE = Law(
    "pruned-tree-is-a-subtree",
    "A pruned tree asks what the grown tree asked, in its order: nodes are cut off, or replaced by "
    "one below them.",
    "what makes the tree: `treekit.components.pruning` has `collapse` and `graft`",
)
VALUES = Law(
    "leaves-keep-their-values",
    "A leaf of a pruned tree says what that node of the grown tree said.",
    "`value` of nodes that become leaves (a pruner that smooths them declares this law)",
)


def _pruned(subject: Subject) -> Iterator[tuple[Grown, Tree, str]]:
    for grown in _all_grown(subject):
        pruned, call = _after(subject, grown)
        if isinstance(pruned, Tree) and not _malformed(pruned, grown.schema):
            yield grown, pruned, call


def _subtree(subject: Subject) -> None:
    for grown, pruned, call in _pruned(subject):
        if not is_subtree(pruned, grown.tree, values=False):
            asked = [Split(kind).name for kind in pruned.kind[:5]]
            broken(call, f"{pruned.n_nodes} nodes, {', '.join(asked)}, ...", "nodes of that tree")


def _values(subject: Subject) -> None:
    for grown, pruned, call in _pruned(subject):
        nested = is_subtree(pruned, grown.tree, values=False)
        if nested and not is_subtree(pruned, grown.tree, values=True):
            leaves = pruned.value[pruned.kind == Split.LEAF]
            broken(call, f"leaves that say {leaves[:3].tolist()}", "values of that tree's nodes")


def _trains(subject: Subject) -> None:
    for by in subject.trainers:
        for table in by.tables():
            trained(by, table)
            trained(by, table, weighted=True, nominal_splits="multiway", empty_branches=True)


def _doubled(subject: Subject) -> None:
    for by in subject.trainers:
        doubled(by)


def _bounds(subject: Subject) -> None:
    """Prune a few trees with every setting at its ends."""

    def use(functions: PrunerFunctions) -> None:
        other = replace(subject, functions=functions)
        if functions.after is not None:
            for grown in islice(_all_grown(other), 4, 12, 2):
                _after(other, grown)

    try_bounds(subject.record, subject.settings, use)


AFTER_GATES: tuple[tuple[Law, Test], ...] = (
    (ANSWERS, _answers),
    (WRITES, _answers),
    (TREE, _tree),
    (REPEATS, _repeats),
    (SUBTREE, _subtree),
    (VALUES, _values),
)
AFTER_LAWS: tuple[tuple[Law, Test], ...] = (
    (TRAINS, _trains),
    (DOUBLING, _doubled),
    (BOUNDS, _bounds),
)
