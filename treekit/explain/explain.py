"""Entry point of explanations: from a model and a row to an `Explanation`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit.contracts import Explainer
from treekit.data.encoding import Absent
from treekit.data.table import read_table, suggest_names
from treekit.errors import ModelError, SettingError
from treekit.explain.contributions import compute_node_units, compute_unit_factor, sum_contributions
from treekit.explain.decision_path import Passage, list_deciding_columns, trace_row
from treekit.explain.explanation import Ending, Explanation, ExplanationCase, Step
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
from treekit.model.fixed_point import compute_mass_bounds, multiply_by_mass
from treekit.model.scoring import sum_leaf_values
from treekit.model.split_tests import TreeNodes
from treekit.settings import suggestion

if TYPE_CHECKING:
    from treekit.model.model import Model


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
    fixed: Collection[str] = (),
    table: Any = None,
    absent: Absent = "error",
    explainers: Iterable[str | Explainer] | None = None,
    **settings: Any,
) -> Explanation:
    """Explain a prediction; installed explainers add to it, such as counterfactuals.

    Parameters
    ----------
    model : Model
    row : mapping, (features,) array, or table of one row
        Columns that no tree tests may be absent.
    tree : int, optional
        Tree whose decision path is shown, from 0; default: a single tree, but none of a forest.
    fixed : collection of str
        Columns that counterfactuals must not change.
    table : table, optional
        Rows whose median absolute deviations scale changes of numbers, instead of the range
        of the model's thresholds.
    absent : {"error", "missing"}
        Whether other columns that the row does not have are an error, or missing.
    explainers : iterable of str or Explainer, optional
        Explainers to use; default all that are installed.
    **settings
        Settings of explainers, such as ``changes`` and ``wish`` of counterfactuals.

    Returns
    -------
    Explanation

    Raises
    ------
    DataError
        If the row, or the table, cannot be read.
    SettingError
        For an unknown tree, target, label, column or setting, and for an invalid range.
    PluginError
        If the explainer of a plugin fails.
    """
    if tree is not None and not 0 <= tree < model.n_trees:
        raise SettingError(f"there is no tree {tree}; expected 0 to {model.n_trees - 1}")
    for name in fixed:
        if name not in model.schema.names:
            hint = suggest_names(name, model.schema.names)
            raise SettingError(f"there is no column {name!r} to keep fixed; {hint}")
    chosen = _resolve_settings(explainers, settings)
    given = read_row(model, row, absent)
    found = Explanation((), given.cells, model.schema.dtype, model.n_trees)
    if found.refused:
        return found
    paths = [trace_tree(model, number, given.codes) for number in range(model.n_trees)]
    found, sums = _add_predictions(model, given, paths, found)
    if tree is None and model.n_trees == 1:
        tree = 0
    if tree is not None:
        found = _add_path(model, given, paths[tree], tree, found)
    rows = None if table is None else read_table(table, missing=model.schema.missing_marks)
    nodes = tuple((path.nodes, path.bounds) for path in paths)
    case = ExplanationCase(model, given, nodes, sums, found, frozenset(fixed), rows)
    parts = [
        (explainer.name, registry.call(explainer, explainer.explain, case, **values))
        for explainer, values in chosen
    ]
    return replace(found, parts=tuple((name, part) for name, part in parts if part is not None))


def _resolve_settings(
    wanted: Iterable[str | Explainer] | None, given: dict[str, Any]
) -> list[tuple[Explainer, dict[str, Any]]]:
    """Return the explainers to use and the settings of each."""
    records = [
        registry.get("explainer", x)
        for x in (registry.list("explainer") if wanted is None else wanted)
    ]
    known = {setting.name for record in records for setting in record.settings}
    for name, value in given.items():
        if name in known or (name, value) == ("changes", 0):
            continue
        if name in _COUNTERFACTUAL_SETTINGS:
            registry.get("explainer", "counterfactuals")  # raises an error that names the plugin
        raise SettingError(
            f"no explainer has a setting {name!r}{suggestion(name, known)}; settings: "
            f"{', '.join(sorted(known)) or 'none'}"
        )
    found = []
    for record in records:
        own = {s.name: given[s.name] for s in record.settings if s.name in given}
        found.append((record, registry.settings_of(record, own)))
    return found


_COUNTERFACTUAL_SETTINGS = ("changes", "wish", "target", "budget")


def trace_tree(model: Model, number: int, codes: list[float]) -> _RowPath:
    """Return the decision path of an encoded row in tree `number`, from 0."""
    tree = model.trees[number]
    bounds = compute_mass_bounds(tree) if model.missing == "fractional" else None
    nodes = TreeNodes(tree, model.schema)
    return _RowPath(nodes, *trace_row(nodes, codes, model.mass, bounds), bounds)


def _add_predictions(
    model: Model, given: ExplainedRow, paths: Sequence[_RowPath], found: Explanation
) -> tuple[Explanation, Any]:
    """Return `found` with predictions, votes and contributions, and the integer sums (values,)."""
    by_tree = np.zeros((model.n_trees, model.schema.n_values), dtype=np.int64)
    for number, path in enumerate(paths):
        leaves, mass = np.array(path.leaves, dtype=np.int64).T
        own = np.searchsorted(model.trees[number].leaves, leaves)
        units = model.tree_units(number)[own]
        by_tree[number] = multiply_by_mass(units, mass[:, None], model.part_bits).sum(axis=0)
    sums = by_tree.sum(axis=0)
    walks = [(compute_node_units(model, t), path.passages) for t, path in enumerate(paths)]
    parts = sum_contributions(model, walks, given.codes)
    added = describe_contributions(model, parts)
    _check_sums(model, given, sums, [one.total for one in added])
    asked = {c for path in paths for p in path.passages for q in p.node.tests for c in q.columns}
    cells = tuple(replace(cell, asked=c in asked) for c, cell in enumerate(given.cells))
    says, votes = describe_prediction(model, sums), count_votes(model, by_tree)
    return replace(found, says=says, row=cells, votes=votes, sums=added), sums


def _check_sums(
    model: Model, given: ExplainedRow, sums: npt.NDArray[np.int64], totals: list[int]
) -> None:
    """Check that the paths reproduce the model's scores, and that the contributions add up."""
    expected = sum_leaf_values(model, np.array([given.codes], dtype=model.schema.dtype))[0].tolist()
    factor = compute_unit_factor(model)
    if sums.tolist() != expected or totals != [factor * value for value in expected]:
        raise ModelError(
            f"the explanation adds up to {totals}, but the model predicts {expected}: a bug in "
            "treekit; please report it with the model and the row"
        )


def _add_path(
    model: Model, given: ExplainedRow, path: _RowPath, number: int, found: Explanation
) -> Explanation:
    def list_cells(columns: Iterable[int]) -> tuple[tuple[str, str | None], ...]:
        return tuple((model.schema.names[c], given.cells[c].text) for c in columns)

    steps = tuple(
        Step(
            passage.node_id,
            passage.reason,
            list_cells(passage.node.tests[0].columns),
            list_cells(list_deciding_columns(passage, given.codes)),
            make_step_clause(passage, model.schema),
            tuple((child, some / model.mass) for child, some in passage.child_masses if some),
        )
        for passage in path.passages
    )
    tree, units = model.trees[number], model.tree_units(number)
    leaves = []
    for leaf, mass in sorted(path.leaves, key=lambda one: (-one[1], one[0])):
        says = describe_tree_prediction(model, units[np.searchsorted(tree.leaves, leaf)])
        leaves.append(Ending(leaf, mass / model.mass, float(tree.weight[leaf]), says))
    rule = make_rule_clauses(model, number, leaves[0].node) if len(leaves) == 1 else ()
    return replace(found, tree=number, path=steps, leaves=tuple(leaves), rule=rule)
