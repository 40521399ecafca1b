"""A grown tree handed to the plan's pruner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treekit.data.dataset import Dataset
from treekit.errors import DataError, PluginError, SettingError
from treekit.grow.blocks import plain_mean
from treekit.grow.monotonic import constrained, is_monotonic
from treekit.grow.recipe import GrownTree, Recipe
from treekit.model.check import check_tree
from treekit.model.tree import Tree
from treekit.pruners.context import Context
from treekit.pruners.losses import losses_of
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
    impurity, blocks = plan.criterion.functions.impurity, recipe.target.blocks
    if impurity is not None and blocks is not None:
        impurity = plain_mean(impurity, blocks)
    context = Context(
        grown,
        recipe.table,
        losses_of(
            dataset.schema,
            plan.criterion.functions,
            plan.costs,
            recipe.target.layout,
            dense=recipe.target.dense,
        ),
        folds,
        impurity=impurity,
        fractional=recipe.fractional,
        validated=recipe.held is not None,
        report=report,
    )
    try:
        tree = pruner.functions.after(grown.tree, context)
        if not isinstance(tree, Tree):
            raise TypeError(f"after() returned a {type(tree).__name__}, not a Tree")
        check_tree(tree, dataset.schema)
        if recipe.signs is not None and not is_monotonic(tree, recipe.signs):
            tree = constrained(tree, recipe.signs)
    except (DataError, PluginError, SettingError):
        raise
    except Exception as error:
        raise PluginError(
            f"pruner {pruner.record.name!r} failed with {type(error).__name__}: {error}; "
            "no model was made"
        ) from error
    return tree
