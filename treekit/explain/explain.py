"""Entry point of explanations: from a model and a row to an `Explanation`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from treekit.data.table import read_table, suggest_names
from treekit.errors import ModelError, SettingError
from treekit.explain.contributions import NodeUnits, compute_unit_factor, sum_contributions
from treekit.explain.counterfactuals import find_counterfactuals
from treekit.explain.decision_path import Passage, TreeNodes, list_deciding_columns, trace_row
from treekit.explain.explanation import Ending, Explanation, Step
from treekit.explain.row import (
    ExplainedRow,
    count_votes,
    describe_contributions,
    describe_prediction,
    describe_tree_prediction,
    make_rule_clauses,
    make_step_clause,
    read_row,
)
from treekit.model.fixed_point import compute_mass_bounds

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = [
    "explain",
]


class _RowPath(NamedTuple):
    """Decision path of a row in one tree."""

    nodes: TreeNodes
    passages: list[Passage]
    leaves: list[tuple[int, int]]
    bounds: Any


def explain(
    model: Model,
    row: Any,
    *,
    tree: int | None = None,
    changes: int = 2,
    wish: str | None = None,
    target: str | None = None,
    fixed: Collection[str] = (),
    table: Any = None,
    budget: int = 50_000_000,
) -> Explanation:
    """Explain a prediction, and find counterfactuals that change it.

    Parameters
    ----------
    model : Model
    row : mapping, (features,) array, or table of one row
        Columns absent from a mapping are missing.
    tree : int, optional
        Tree whose decision path is shown, from 0; default: a single tree, but none of a forest.
    changes : {0, 1, 2}
        Maximum number of columns that a counterfactual changes; 0: no search.
    wish : str, optional
        Desired prediction: a label, or a range such as ``>= 10``; default any other label, and
        no search for numbers.
    target : str, optional
        Target of the wish; default the first.
    fixed : collection of str
        Columns that must not change.
    table : table, optional
        Rows whose median absolute deviations scale changes of numbers, instead of the range
        of the model's thresholds.
    budget : int
        Maximum number of cells to search for changes of two columns.

    Returns
    -------
    Explanation

    Raises
    ------
    DataError
        If the row, or the table, cannot be read.
    SettingError
        For an unknown tree, target, label or column, and for an invalid range.
    """
    if changes not in (0, 1, 2):
        raise SettingError(f"changes is {changes!r}; expected 0, 1 or 2")
    if tree is not None and not 0 <= tree < model.n_trees:
        raise SettingError(f"there is no tree {tree}; expected 0 to {model.n_trees - 1}")
    for name in fixed:
        if name not in model.schema.names:
            hint = suggest_names(name, model.schema.names)
            raise SettingError(f"there is no column {name!r} to keep fixed; {hint}")
    given = read_row(model, row)
    found = Explanation((), given.cells, model.schema.dtype, model.n_trees)
    if found.refused:
        return found
    paths = [_trace_row(model, number, given.codes) for number in range(model.n_trees)]
    found, sums = _add_predictions(model, given, paths, found)
    if tree is None and model.n_trees == 1:
        tree = 0
    if tree is not None:
        found = _add_path(model, given, paths[tree], tree, found)
    if changes == 0:
        return found
    spread = None if table is None else read_table(table, missing=model.schema.missing_marks)
    free = [place for place, name in enumerate(model.schema.names) if name not in fixed]
    nodes = [(way.nodes, way.bounds) for way in paths]
    best = find_counterfactuals(
        model, given, nodes, sums, free, changes, (wish, target), spread, budget
    )
    return replace(found, changes=best)


def _trace_row(model: Model, number: int, codes: list[float]) -> _RowPath:
    tree = model.trees[number]
    bounds = compute_mass_bounds(tree) if model.missing == "fractional" else None
    nodes = TreeNodes(tree, model.schema)
    return _RowPath(nodes, *trace_row(nodes, codes, model.mass, bounds), bounds)


def _add_predictions(
    model: Model, given: ExplainedRow, ways: Sequence[_RowPath], found: Explanation
) -> tuple[Explanation, Any]:
    """Add predictions, votes and contributions; return also the integer sums (values,)."""
    by_tree = np.zeros((model.n_trees, model.schema.n_values), dtype=np.int64)
    for number, way in enumerate(ways):
        own = np.searchsorted(model.trees[number].leaves, [leaf for leaf, _ in way.leaves])
        mass = np.array([part for _, part in way.leaves], dtype=np.int64)
        by_tree[number] = (model.tree_units(number)[own] * mass[:, None]).sum(axis=0)
    sums = by_tree.sum(axis=0)
    walks = [(NodeUnits(model, t), way.passages, model.mass) for t, way in enumerate(ways)]
    parts = sum_contributions(walks, given.codes, model.schema.n_values)
    added = describe_contributions(model, parts, model.schema.names)
    check_sums(model, given, sums.tolist(), [one.total for one in added])
    asked = {c for way in ways for p in way.passages for q in p.node.tests for c in q.columns}
    cells = tuple(replace(cell, asked=c in asked) for c, cell in enumerate(given.cells))
    said_now, votes = describe_prediction(model, sums), count_votes(model, by_tree)
    return replace(found, says=said_now, row=cells, votes=votes, sums=added), sums


def check_sums(model: Model, given: ExplainedRow, sums: list[int], totals: list[int]) -> None:
    """Check that the paths reproduce the model's scores, and that the contributions add up."""
    from treekit.model.scoring import sum_leaf_values as scored

    codes = np.array([given.codes], dtype=model.schema.dtype)
    theirs = scored(model, codes)[0].tolist()
    fine = compute_unit_factor(model)
    if sums != theirs or totals != [fine * value for value in theirs]:
        raise ModelError(
            f"the explanation adds up to {totals}, but the model predicts {theirs}: a bug in "
            "treekit; please report it with the model and the row"
        )


def _add_path(
    model: Model, given: ExplainedRow, way: _RowPath, number: int, found: Explanation
) -> Explanation:
    names, cells = model.schema.names, given.cells
    steps = []
    for passage in way.passages:
        decided = list_deciding_columns(passage, given.codes)
        steps.append(
            Step(
                passage.node_id,
                passage.reason,
                tuple((names[c], cells[c].text) for c in passage.node.tests[0].columns),
                tuple((names[c], cells[c].text) for c in decided),
                make_step_clause(passage, model.schema),
                tuple((child, some / model.mass) for child, some in passage.child_masses if some),
            )
        )
    tree, units = model.trees[number], model.tree_units(number)
    order = sorted(way.leaves, key=lambda one: (-one[1], one[0]))
    leaves = tuple(
        Ending(
            leaf,
            mass / model.mass,
            float(tree.weight[leaf]),
            describe_tree_prediction(model, units[np.searchsorted(tree.leaves, leaf)]),
        )
        for leaf, mass in order
    )
    rule = make_rule_clauses(model, number, leaves[0].node) if len(leaves) == 1 else ()
    return replace(found, tree=number, path=tuple(steps), leaves=leaves, rule=rule)
