"""Errors for growth that was stopped by a plugin: function, plugin and arguments.

A kernel only reports that a number is invalid.  To find the cause, the plugin's functions
are called again as plain Python with the statistics of the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.discovery import describe_error
from treekit.errors import DataError, PluginError, SettingError
from treekit.grow.compile_plugin import Origin, call_checked, format_statistics
from treekit.grow.recipe import Recipe
from treekit.kernels.grow_tree import GrowthArrays
from treekit.kernels.records import (
    BAD_CHOICE,
    BAD_NUMBER,
    BAD_ORDER,
    BAD_PENALTY,
    BAD_PRIORITY,
    BAD_SCORE,
    Limits,
)

__all__ = [
    "attribute_exception",
    "check_branch_weights",
    "error_for_status",
]

Numbers = npt.NDArray[np.float64]
_NOT_FINITE = "is NaN or infinite"


def error_for_status(
    recipe: Recipe, status: int, grown: GrowthArrays, node: int, best: Numbers
) -> PluginError | DataError | SettingError:
    """Return the error for growth that ended with a status below 0 at a node.

    Parameters
    ----------
    status : int
        As in `treekit.kernels.records`.
    best : (S + 6,) float64
        The candidate split that the kernel left in `treekit.kernels.records.Scratch.best`.
    """
    criterion, splitter = recipe.criterion.origin, recipe.splitter.origin
    parent, functions = grown.stats[node], recipe.criterion.functions
    branch = best[2 : 2 + recipe.target.size].copy()
    if status == BAD_NUMBER:
        return _find_failing_call(
            recipe, _iterate_calls(recipe, parent, branch)
        ) or criterion.make_error(
            "returned NaN or an infinite number; the statistics it was given were "
            f"{format_statistics((branch,))}, of a node of {format_statistics((parent,))}"
        )
    if status == BAD_ORDER:
        calls = [("order", functions.order, (own,)) for own in _split_by_target(recipe, branch)]
        return _find_failing_call(recipe, iter(calls)) or criterion.make_error(
            f"returned a category key from order that {_NOT_FINITE}; the statistics it was given "
            f"were {format_statistics((branch,))}"
        )
    if status == BAD_PRIORITY:
        calls = [
            ("priority", functions.priority, (own,)) for own in _split_by_target(recipe, parent)
        ]
        return _find_failing_call(recipe, iter(calls)) or criterion.make_error(
            f"returned a priority that {_NOT_FINITE}; the statistics it was given were "
            f"{format_statistics((parent,))}"
        )
    if status == BAD_PENALTY:
        weight = float(grown.nodes["weight"][node])
        return criterion.make_error(
            f"returned a penalty that {_NOT_FINITE}, for {int(best[0])} candidates at a node of "
            f"weight {weight!r}"
        )
    if status == BAD_CHOICE:
        return criterion.make_error(
            "chose a column that does not exist, or has no split; choose must return the position "
            "of a gain that is not NaN, or -1"
        )
    if status == BAD_SCORE:
        return splitter.make_error(
            "returned a split whose score is NaN or infinite, at a node of "
            f"{format_statistics((parent,))}; "
            f"a score returned by criterion.score comes from {criterion}"
        )
    known = ""
    if recipe.fractional or recipe.surrogates is not None:
        way = "fractional" if recipe.fractional else "surrogate"
        known = (
            f", and make sure that every branch has rows whose value is known: missing='{way}' "
            "does not send rows with a missing value to one branch"
        )
    return splitter.make_error(
        "returned a split with an empty branch or an impossible column, or of a kind that its "
        "SplitterFunctions do not declare (sums, intervals), at a node of "
        f"{format_statistics((parent,))}; "
        f"create splits with the functions of treekit.splitting{known}"
    )


def attribute_exception(recipe: Recipe, error: Exception, whole: Numbers) -> Exception:
    """Attribute an exception raised in compiled code to the plugin that raised it.

    `whole` are the statistics (S,) of all rows, with which the functions are called again.
    """
    if isinstance(error, (MemoryError, PluginError)):
        return error
    origins = [recipe.criterion.origin, recipe.splitter.origin]
    origins += [recipe.before.origin] if recipe.use_before else []
    foreign = [origin for origin in origins if origin.is_foreign]
    if recipe.criterion.origin in foreign:
        found = _find_failing_call(recipe, _iterate_calls(recipe, whole, whole * 0.5))
        if found is not None and type(error).__name__ in str(found):
            return found
    names = " or ".join(str(origin) for origin in foreign or origins)
    remedy = ""
    if isinstance(error, IndexError):
        remedy = f" (a node's statistics have {recipe.target.size} cells)"
    return PluginError(
        f"{names} raised {describe_error(error)}{remedy}; training was stopped and no model was "
        "made"
    )


def check_branch_weights(recipe: Recipe, grown: GrowthArrays, n: int) -> None:
    """Raise `PluginError` if a plugin's splitter made branches that are too light.

    At least two branches of each split must weigh ``min_weight_leaf``, as
    `treekit.splitting.heavy_enough` checks.  The branches of a split on intervals are
    those of all its nested tests (see `treekit.kernels.grow_tree`).
    """
    if not recipe.splitter.origin.is_foreign or not (grown.nodes["kind"][:n] != 0).any():
        return
    nodes, limits = grown.nodes[:n], recipe.limits
    branches, split = _find_branches(nodes)
    heavy = np.bincount(split, _are_heavy_enough(nodes["weight"][branches], limits), minlength=n)
    is_split = np.zeros(n, np.bool_)
    is_split[split] = True
    light = is_split & (heavy < 2)
    if light.any():
        node = int(light.argmax())
        weights = nodes["weight"][branches[split == node]]
        raise recipe.splitter.origin.make_error(
            f"split a node of {format_statistics((grown.stats[node],))} into branches of the "
            "weights "
            f"{format_statistics((weights,))}, and min_weight_leaf is "
            f"{limits.min_weight_leaf:g}; check "
            "candidate splits with treekit.splitting.heavy_enough"
        )


def _find_branches(
    nodes: npt.NDArray[np.void],
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return every node that is a branch of a split, and the node that was split.

    The inner tests of a split on intervals are no branches; they have the depth of their
    children.
    """
    inner = np.flatnonzero(nodes["kind"] != 0)
    first, count = nodes["first_child"][inner].astype(np.intp), nodes["n_children"][inner]
    children = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
    parent = np.zeros(len(nodes), np.intp)
    parent[children] = np.repeat(inner, count)
    within = np.zeros(len(nodes), np.bool_)
    within[inner] = nodes["depth"][first] == nodes["depth"][inner]
    branches = children[~within[children]]
    split = parent[branches]
    while within[split].any():  # at most log2(cuts) times: nested tests halve the cuts
        split = np.where(within[split], parent[split], split)
    return branches, split


def _are_heavy_enough(weights: Numbers, limits: Limits) -> npt.NDArray[np.bool_]:
    return np.asarray((weights >= limits.min_weight_leaf * (1.0 - 1e-9)) & (weights > 0.0))


def _iterate_calls(
    recipe: Recipe, parent: Numbers, left: Numbers
) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Yield the calls that a criterion may have received for a node and one of its branches."""
    functions = recipe.criterion.functions
    ranked = recipe.target.quantile is not None
    sides = [left] if ranked else [left, parent - left]  # rank statistics cannot be subtracted
    for name in ("impurity", "priority", "order"):
        for stats in (parent, *sides):
            for own in _split_by_target(recipe, stats):
                yield name, getattr(functions, name), (own,)
    if not ranked:
        parts = zip(*(_split_by_target(recipe, stats) for stats in (parent, *sides)), strict=True)
        for own, *branches in parts:
            yield "score", functions.score, (own, np.array(branches))


def _split_by_target(recipe: Recipe, stats: Numbers) -> list[Numbers]:
    """Split statistics by target, as the criterion receives them."""
    blocks = recipe.target.blocks
    if blocks is None:
        return [stats]
    return [blocks.select_target(stats[None, :], k)[0] for k in range(blocks.n_targets)]


def _find_failing_call(
    recipe: Recipe, calls: Iterator[tuple[str, Any, tuple[Any, ...]]]
) -> PluginError | DataError | SettingError | None:
    """Return the error of the first call that fails, or None."""
    origin: Origin = recipe.criterion.origin
    for name, function, arguments in calls:
        if function is not None:
            try:
                call_checked(origin, name, function, *arguments)
            except (DataError, PluginError, SettingError) as error:
                return error
    return None
