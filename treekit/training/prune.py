"""A grown tree handed to the plan's pruner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from treekit.components.pruning import Context, losses_of
from treekit.contracts import CriterionFunctions
from treekit.data.dataset import Dataset
from treekit.errors import DataError, ModelError, PluginError, SettingError
from treekit.grow.compile_criterion import plain_mean
from treekit.grow.compile_plugin import asked, frozen
from treekit.grow.recipe import GrownTree, Recipe
from treekit.grow.tree_builder import constrained, is_monotonic
from treekit.isolation import FOREIGN, cause
from treekit.model.json_values import to_json
from treekit.model.tree import Tree
from treekit.model.validation import check_tree
from treekit.training.compiled import origin_of
from treekit.training.plan import Plan

__all__ = ["prune"]


def prune(
    dataset: Dataset,
    plan: Plan,
    recipe: Recipe,
    grown: GrownTree,
    folds: Callable[[int], list[GrownTree]],
    report: dict[str, Any],
) -> Tree:
    """The tree that the pruner makes of `grown`; what it chose goes into `report`."""
    pruner = plan.pruner
    if pruner is None or pruner.functions.after is None:
        return grown.tree
    origin = origin_of(pruner)
    context = _context(dataset, plan, recipe, grown, folds, report)
    if origin.foreign:  # its arrays are everybody's
        context = replace(context, grown=frozen(grown), table=frozen(recipe.table))
    tree: Tree
    try:
        tree = pruner.functions.after(grown.tree, context)
        _check_pruned(tree, dataset, report)
    except (DataError, PluginError, SettingError):
        raise
    except FOREIGN as error:
        raise origin.error(f"failed in after with {cause(error)}") from error
    if recipe.signs is not None and not is_monotonic(tree, recipe.signs):
        tree = constrained(tree, recipe.signs)
    return tree


def _context(
    dataset: Dataset,
    plan: Plan,
    recipe: Recipe,
    grown: GrownTree,
    folds: Callable[[int], list[GrownTree]],
    report: dict[str, Any],
) -> Context:
    functions, blocks = _judged(plan), recipe.target.blocks
    impurity = functions.impurity
    if impurity is not None and blocks is not None:
        impurity = plain_mean(impurity, blocks)
    layout, dense = recipe.target.layout, recipe.target.dense
    return Context(
        grown,
        recipe.table,
        losses_of(dataset.schema, functions, plan.costs, layout, dense=dense),
        folds,
        impurity=impurity,
        fractional=recipe.fractional,
        validated=recipe.held is not None,
        report=report,
    )


def _judged(plan: Plan) -> CriterionFunctions:
    """The criterion's functions, of which a stranger's are judged by what they answer."""
    functions: CriterionFunctions = plan.criterion.functions
    origin = origin_of(plan.criterion)
    if not origin.foreign:
        return functions
    loss, impurity = functions.loss, functions.impurity
    return replace(
        functions,
        loss=loss and partial(asked, origin, "loss", loss, infinite=True),
        impurity=impurity and partial(asked, origin, "impurity", impurity),
    )


def _check_pruned(tree: Any, dataset: Dataset, report: dict[str, Any]) -> None:
    """Raise unless a pruner returned a tree of this schema, and reports what a file can hold."""
    if not isinstance(tree, Tree):
        raise TypeError(f"after returned {tree!r:.80}, not a Tree")
    check_tree(tree, dataset.schema)
    if not np.isfinite(tree.gain).all():
        raise ValueError("after returned a tree with a gain that is NaN or infinite")
    for key, value in report.items():
        try:
            to_json({key: value})
        except (ModelError, RecursionError) as error:
            raise ValueError(f"context.report[{key!r}] cannot be saved: {error}") from None
