"""What all trees of one training have in common: coded columns, compiled parts, limits."""

from __future__ import annotations

from treekit.data.dataset import Dataset
from treekit.data.matrix import make_table
from treekit.grow.before import always
from treekit.grow.builder import Recipe, max_depth_limit
from treekit.kernels.node import Limits
from treekit.training.compiled import before_pointer, criterion_pointers, splitter_pointer
from treekit.training.plan import Plan
from treekit.training.target import criterion_target

__all__ = ["make_recipe"]


def make_recipe(dataset: Dataset, plan: Plan) -> Recipe:
    """Code the table and compile the plan's parts for it."""
    schema, settings = dataset.schema, plan.settings
    table = make_table(
        dataset.columns,
        schema.n_levels,
        schema.nominal,
        plan.splitter.functions.coding,
        multiway=settings["nominal_splits"] == "multiway",
        max_bins=settings["max_bins"],
        weights=dataset.weights,
    )
    drawn = settings["ensemble"] == "forest" and settings["bootstrap"]
    target = criterion_target(dataset, plan.criterion, drawn)
    before = plan.pruner.functions.before if plan.pruner else None
    return Recipe(
        table=table,
        target=target,
        dtype=schema.dtype,
        criterion=criterion_pointers(plan.criterion, target),
        splitter=splitter_pointer(plan.splitter, table, target),
        before=always() if before is None or plan.pruner is None else before_pointer(plan.pruner),
        use_before=before is not None,
        limits=Limits(
            max_depth=max_depth_limit(settings["max_depth"]),
            min_weight_split=float(settings["min_weight_split"]),
            min_weight_leaf=float(settings["min_weight_leaf"]),
            min_gain=float(settings["min_gain"]),
            max_leaves=settings["max_leaves"] or 0,
            n_try=plan.n_try,
        ),
    )
