"""One tree: rows, criterion and splitter in, a `Tree` out.

The builder sees records and arrays only: names were resolved at the edge.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from treekit.grow.assemble import assemble
from treekit.grow.blame import check_sizes, culprit, stopped
from treekit.grow.grid import grid_of
from treekit.grow.plugins import current
from treekit.grow.recipe import GrownTree, Recipe
from treekit.grow.scratch import make_scratch
from treekit.grow.surrogates import make_surrogacy
from treekit.kernels.grow_tree import NODE, PENDING, Grown, grow
from treekit.kernels.records import Rows, Table
from treekit.kernels.surrogate_splits import SURROGATE

__all__ = ["grow_held", "grow_tree"]


def grow_tree(
    recipe: Recipe,
    rows: Rows,
    held: Rows,
    rng: np.random.Generator,
    held_table: Table | None = None,
) -> GrownTree:
    """Grow one tree on `rows`; `held` rows travel along without shaping it.

    The held-out rows are rows of `held_table`, by default of the recipe's own;
    its codes are of the same type.

    Cost: about rows x columns tried x depth; memory a few words a row.
    """
    criterion, splitter, s = recipe.criterion, recipe.splitter, recipe.target.size
    most = max(len(rows.ids), len(held.ids))
    seed = int(rng.integers(0, 2**63))
    scratch = make_scratch(
        recipe.table, recipe.target, most, seed, splitter.options, recipe.signs,
        intervals=splitter.intervals, lines=recipe.lines,
    )  # fmt: skip
    nest = np.empty(PENDING, np.int64) if splitter.intervals else None
    sums = np.empty(0, np.int32) if splitter.sums else None
    spare = Rows(
        np.empty(most + 1, np.uint32),
        np.empty(0 if recipe.target.dense else most + 1, np.uint32),
        np.empty((most + 1, rows.values.shape[1])),
    )
    room = Grown(np.zeros(64, NODE), np.zeros((64, s)), np.zeros((64, s)), np.zeros(16, np.int32))
    surrogacy = None
    if recipe.surrogates is not None:
        surrogacy = make_surrogacy(recipe.surrogates, recipe.table, held_table, len(rows.ids))
        room = room._replace(found=np.zeros(16, SURROGATE), replies=np.zeros(16, np.int32))
    steps, noise = None, recipe.target.noise
    whole, kept = rows, held
    if recipe.fractional:
        steps = grid_of(rows.values, common=recipe.target.layout is not None)
        if recipe.target.counts_classes:
            steps[:] = steps[0]  # the parts of a class weigh what those of the row do
        noise += _noise_of_parts(rows.values, steps)
        # Growth cuts them up.
        whole, kept = _copied(rows), _copied(held)
    ways = recipe.ways._replace(
        levels_by_score=criterion.functions.levels_by_score,
        tolerance=float(criterion.functions.tolerance),
    )
    arguments = (
        recipe.table, rows, held_table or recipe.table, held, spare, room, recipe.limits,
        noise, recipe.target.quantile, steps, surrogacy, nest, sums, ways,
        splitter.coding == "exact",
        splitter.find, criterion.scan, criterion.many, criterion.key, criterion.choose,
        criterion.penalty, criterion.n_keys, criterion.use_choose, criterion.use_penalty,
        criterion.score, criterion.impurity, criterion.priority, criterion.use_priority,
        recipe.before, recipe.use_before, rng, scratch,
    )  # fmt: skip
    grown, n, status = _off_main_thread(_run, recipe, arguments)
    if status:
        raise stopped(recipe, status, grown, n, scratch.best)
    check_sizes(recipe, grown, n)
    return assemble(recipe, grown, n, whole, kept, held_table or recipe.table)


def _copied(rows: Rows) -> Rows:
    return Rows(rows.ids.copy(), rows.cells.copy(), rows.values.copy())


def _noise_of_parts(values: npt.NDArray[np.float64], steps: npt.NDArray[np.float64]) -> float:
    """Bound on the rounding of the dense statistics of parts of rows, cut time and again."""
    if values.shape[1] == 1 or not len(values):
        return 0.0
    largest = np.abs(values[:, 1:] / values[:, :1]).max(axis=0)
    return float(64.0 * (steps[1:] + largest * steps[0]).max())


def grow_held(recipe: Recipe, rows: Rows, held: Rows, rng: np.random.Generator) -> GrownTree:
    """`grow_tree`, where the rows of a validation table, if there is one, stand in for `held`."""
    if recipe.held is None:
        return grow_tree(recipe, rows, held, rng)
    return grow_tree(recipe, rows, recipe.held.rows(), rng, recipe.held.table)


def _run(recipe: Recipe, arguments: tuple[Any, ...]) -> Any:
    """What `grow` returns, or the error of the plugin that stopped it."""
    table, rows = arguments[:2]
    current.score, current.rng = recipe.criterion.score, arguments[-2]
    current.table, current.failures = table, []
    try:
        outcome = _compiled_grow(recipe, arguments)(*arguments)
    except Exception as error:
        told = current.failures[0] if current.failures else None
        raise told or culprit(recipe, error, _whole(recipe, rows)) from error
    if current.failures:
        raise current.failures[0]
    return outcome


def _whole(recipe: Recipe, rows: Rows) -> npt.NDArray[np.float64]:
    """(S,) statistics of all rows; of ranks, their weight alone."""
    if len(rows.cells):
        counts = np.bincount(rows.cells, rows.values[:, 0], minlength=recipe.target.size)
        return counts.astype(np.float64)
    if recipe.target.quantile is None:
        return np.asarray(rows.values.sum(axis=0))
    return np.array([rows.values[:, 0].sum(), 0.0, 0.0, 0.0])


def _off_main_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)``, never in the main thread.

    Ctrl-C reaches the main thread alone, between any two lines of Python.
    numba's passing of function pointers is Python, too: an exception there
    would leave a null pointer, and the call would crash the process.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*arguments)
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def target() -> None:
        try:
            outcome.append(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised again below
            failure.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def _compiled_grow(recipe: Recipe, arguments: tuple[Any, ...]) -> Any:
    """`grow` for a recipe's types, which all its trees share.

    Typing thirty arrays costs more than growing a small tree, so it is done once.
    """
    if not recipe.compiled:
        types = tuple(nb.typeof(argument) for argument in arguments)
        dispatcher: Any = grow
        dispatcher.compile(types)
        recipe.compiled.append(dispatcher.overloads[types].entry_point)
    return recipe.compiled[0]
