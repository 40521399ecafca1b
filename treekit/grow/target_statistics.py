"""Targets as additive statistics whose sums are exact in any order.

Weights and ``weight * y`` are rounded to multiples of a power of two, so that splits do not
depend on row order, threads or the order of additions, and ``parent - left`` is exactly the
right side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from treekit.compiling.criterion import CompiledCriterion, TargetBlocks
from treekit.compiling.functions import call_checked
from treekit.contracts import Layout
from treekit.errors import DataError
from treekit.kernels.partition_rows import take_rows
from treekit.kernels.records import Rows
from treekit.registry.isolation import FOREIGN_ERRORS, call_isolated, describe_error

Numbers = npt.NDArray[np.float64]

# ---------------------------------------------------------------- target


@dataclass(frozen=True)
class TargetStatistics:
    """The contribution of each training row to a node's statistics, S numbers called cells.

    A row of a cell target, such as a class, adds its weight to one cell.  A row of a dense
    target, such as a number, adds to all S cells.  `scale` of a kind of target chooses the grids
    from all rows, and returns a target without rows, whose arrays have one row to show their
    types; `place` makes the statistics of all rows, or of some of them, on these grids.

    Attributes
    ----------
    cells : (rows,) uint32
        Index of the cell of each row, for cell targets; else empty.
    values : (rows, 1) or (rows, S) float64
        Weight of each row for cell targets; its statistics, weight first, for dense targets.
    size : int
        S, the number of cells of a node's statistics.
    noise : float
        Bound on the rounding of a row's dense statistics; 0 for integer weights.
    draw_weights : (rows,) float64 or None
        Bootstrap weights of rows, proportional to their probabilities; None if all are equal.
    draw_unit : float
        Weight of a row that is drawn once, before it is multiplied by its class weight.
    weight_step, factor_step : float
        Grid steps of row weights (0 if they are integers, and not rounded), and of weights
        that are multiplied by class weights.
    total_weight : float or None
        Weight of all training rows if these are only some of them.
    blocks : TargetBlocks or None
        Layout of the statistics of several targets; None for a single target.
    """

    cells: npt.NDArray[np.uint32]
    values: Numbers
    size: int
    noise: float = 0.0
    draw_weights: Numbers | None = None
    draw_unit: float = 1.0
    weight_step: float = 0.0
    factor_step: float = 1.0
    total_weight: float | None = None
    blocks: TargetBlocks | None = None

    is_additive: ClassVar[bool] = True
    """Whether statistics add up; those of ranks do not."""

    shares_steps: ClassVar[bool] = False
    """Whether numbers of similar size share a grid; see `choose_common_steps`."""

    @property
    def is_dense(self) -> bool:
        """Whether rows carry a vector of statistics rather than a cell."""
        return len(self.cells) == 0

    @property
    def has_class_weights(self) -> bool:
        """Whether statistics are class weights, not sums of numbers."""
        return not self.is_dense

    @property
    def n_values(self) -> int:
        """Number of values of a node: weights of all classes, or a number for each target."""
        return self.size - self.is_dense

    @property
    def quantile(self) -> float | None:
        """Quantile level of a rank target."""
        return None

    def place(
        self, y: npt.NDArray[Any], weights: Numbers | None, factors: Numbers | None = None
    ) -> Self:
        """Return the statistics of some rows, or of all, on the grids chosen from all rows.

        Parameters
        ----------
        y : (rows,) or (rows, targets)
            Class codes, numbers, or cells or statistics of a plugin's layout.
        weights, factors : (rows,) float64, or None = 1
        """
        w = np.ones(len(y)) if weights is None else round_weights_to_step(weights, self.weight_step)
        drawn = self.draw_weights is not None
        own = np.full(len(w), self.draw_unit) if drawn else w
        if factors is not None:
            own = multiply_weights(own, factors, self.factor_step)
        rows = self._place_rows(y, w, own)
        return replace(self, draw_weights=w if drawn else None, total_weight=None, **rows)

    def hold_out(self, y: npt.NDArray[Any], weights: Numbers | None) -> Self:
        """Return the statistics of validation rows on the scale of the training rows.

        They are not rounded: the grids were chosen from the training rows, and other numbers could
        be finer, or add up to more steps than a double counts.  Parameters are those of `place`.
        """
        w = np.ones(len(y)) if weights is None else weights
        return replace(self, draw_weights=None, **self._weigh_rows(y, w))

    def _place_rows(self, y: npt.NDArray[Any], w: Numbers, own: Numbers) -> dict[str, Any]:  # noqa: ARG002
        """Return fields of rows of weights `w`, which are `own` in their statistics."""
        return {"cells": y.astype(np.uint32), "values": own[:, None]}

    def _weigh_rows(self, y: npt.NDArray[Any], w: Numbers) -> dict[str, Any]:
        """Return fields of rows without rounding."""
        return self._place_rows(y, w, w)

    def select_rows(self, ids: npt.NDArray[np.integer[Any]], repeats: Numbers | None) -> Rows:
        """Return the rows of one tree; `repeats` (rows,) are bootstrap counts.

        Rows of weight zero are left out, since they must not shape the tree.
        """
        ids = ids.astype(np.uint32, copy=False)
        rows = allocate_rows(len(ids), self.values.shape[1], dense=self.is_dense)
        if not len(ids):
            return rows
        times = np.empty(0) if repeats is None else repeats
        n = take_rows(ids, times, self.cells, self.values, rows)
        return Rows(rows.ids[:n], rows.cells[:n], rows.values[:n])

    def sum_rows(self, rows: Rows) -> Numbers:
        """Return the statistics (S,) of rows."""
        if not self.is_dense:
            counts = np.bincount(rows.cells, rows.values[:, 0], minlength=self.size)
            return counts.astype(np.float64)
        return np.asarray(rows.values.sum(axis=0))

    def split_by_target(self, stats: Numbers) -> list[Numbers]:
        """Split the statistics (nodes, S) of nodes by target, as the criterion receives them."""
        blocks = self.blocks
        if blocks is None:
            return [stats]
        return [blocks.select_target(stats, k) for k in range(blocks.n_targets)]

    def choose_part_steps(self, values: Numbers) -> Numbers:
        """Return grid steps (columns,) of fractional instances of rows of statistics `values`."""
        steps = choose_part_steps(values, common=self.shares_steps)
        if self.has_class_weights:
            steps[:] = steps[0]  # one step: a part's class cells must equal its weight exactly
        return steps

    def compute_node_values(self, criterion: CompiledCriterion, stats: Numbers) -> Numbers:  # noqa: ARG002
        """Compute the values (nodes, values) of nodes from their statistics (nodes, S).

        Values are class weights, or a number for each target.
        """
        # A copy, not a view: the array of growth has room for more nodes.
        return stats[:, 1:] if self.is_dense else stats.copy()

    def get_key_columns(
        self, ids: npt.NDArray[np.uint32], *, per_weight: bool = False
    ) -> list[npt.NDArray[np.uint64]]:
        """Return columns (rows,) of the target of some rows, which are equal for equal targets.

        They are statistics before class weights, which must not change bootstrap samples.
        `per_weight` divides them by the weight of the row.
        """
        if not self.is_dense:
            return [self.cells[ids].astype(np.uint64)]
        stats = self._get_unweighted(per_weight=per_weight)
        return [(column[ids] + 0.0).view(np.uint64) for column in stats.T]

    def _get_unweighted(self, *, per_weight: bool) -> Numbers:
        if not per_weight:
            return self.values[:, 1:]
        shares = self.values[:, 1:] / np.maximum(self.values[:, :1], 1e-300)
        return shares.astype(np.float32).astype(np.float64)

    def _scale_factors(
        self, n_rows: int, weights: Numbers | None, factors: Values, known: WeightScale
    ) -> Self:
        """Choose the grid of weights that are multiplied by factors."""

        def weigh() -> Iterator[tuple[Numbers, float | Numbers, Numbers]]:
            """Yield weights, weights in statistics, and factors, block by block."""
            for rows in _iterate_slices(n_rows):
                w = round_weights_to_step(_get_weights(weights, rows), known.step)
                yield w, w if known.unit is None else known.unit, factors[rows]

        total = sum_blocks_upwards(lambda: (w * own for w, _, own in weigh()))
        largest = max(float((unit * own).max()) for _, unit, own in weigh())
        step = choose_step(bound_sums(total, largest))
        own_total = sum(float(multiply_weights(unit, own, step).sum()) for _, unit, own in weigh())
        return replace(self, factor_step=step, total_weight=own_total)


def copy_rows(rows: Rows) -> Rows:
    """Return a copy of rows, since growth permutes them."""
    return Rows(rows.ids.copy(), rows.cells.copy(), rows.values.copy())


def allocate_rows(size: int, width: int, *, dense: bool) -> Rows:
    """Allocate rows with `width` statistics each, and with cells unless they are `dense`."""
    cells = np.empty(0 if dense else size, np.uint32)
    return Rows(np.empty(size, np.uint32), cells, np.empty((size, width)))


class Values(Protocol):
    """An array of rows, or values that are computed for a slice of rows when they are read."""

    def __getitem__(self, rows: slice, /) -> npt.NDArray[Any]:
        """Return the values of some rows."""


# ---------------------------------------------------------------- classes


class ClassTarget(TargetStatistics):
    """A class: a cell target.  Several are dense: the weight, and a block of class weights each."""

    has_class_weights: ClassVar[bool] = True

    @classmethod
    def scale(
        cls,
        n_rows: int,
        n_classes: int | Sequence[int],
        weights: Numbers | None,
        factors: Values | None = None,
        *,
        drawn: bool = False,
    ) -> ClassTarget:
        """Choose the grid steps of one or several class targets; return the target without rows.

        Parameters
        ----------
        n_rows : int
        n_classes : int, or sequence of int
            Of several targets, those of each.
        weights : (rows,) float64, or None = 1
        factors : (rows,) float64, or None = 1
            Class weights: they multiply a row's statistics, but not its bootstrap probability.
        drawn : bool
            Whether rows will be drawn in proportion to their weight, not weighted by it.
        """
        known = measure_weights(n_rows, weights, drawn=drawn)
        if isinstance(n_classes, int):
            whole = cls(**known.make_fields(n_classes, dense=False))
        else:
            blocks = TargetBlocks(tuple(accumulate(n_classes, initial=0)), classes=True)
            whole = cls(**known.make_fields(blocks.n_cells), blocks=blocks)
        return whole if factors is None else whole._scale_factors(n_rows, weights, factors, known)

    def _place_rows(self, y: npt.NDArray[Any], w: Numbers, own: Numbers) -> dict[str, Any]:
        if self.blocks is None:
            return super()._place_rows(y, w, own)
        values = np.zeros((len(y), self.size))
        values[:, 0] = own
        for k, first in enumerate(self.blocks.first_cells):
            values[np.arange(len(y)), first + np.asarray(y, dtype=np.int32)[:, k]] = own
        return {"values": values}


# ---------------------------------------------------------------- numbers


@dataclass(frozen=True)
class NumberTarget(TargetStatistics):
    """One or several numbers: statistics ``(w, w * (y - center), ...)``.

    Attributes
    ----------
    center : float or (targets,) float64
        Constant subtracted from y before summation.
    step : float or (targets,) float64
        Grid step of numbers.
    """

    center: float | Numbers = 0.0
    step: float | Numbers = 1.0

    @classmethod
    def scale(
        cls, y: Numbers, weights: Numbers | None, *, drawn: bool = False, centred: bool = True
    ) -> NumberTarget:
        """Choose the center and the grid of one or several numbers (rows, targets).

        The center is the weighted median (0 unless `centred`).  It minimises
        ``sum(w * |y - center|)``, which allows the finest grid, and is the same number for any
        order of the rows and for repeated rows in place of weights.  The other parameters are those
        of `ClassTarget.scale`.

        Raises
        ------
        DataError
            If squares of the target, or weighted sums of them, are out of range for float64.
        """
        known = measure_weights(len(y), weights, drawn=drawn)
        if y.ndim == 1:
            center, step, noise = _scale_numbers(y, weights, known, centred=centred)
            return cls(**known.make_fields(2), noise=noise, center=center, step=step)
        each = [_scale_numbers(own, weights, known, centred=centred) for own in y.T]
        centers, steps, noises = map(np.array, zip(*each, strict=True))
        blocks = TargetBlocks(tuple(range(len(each) + 1)), classes=False)
        return cls(
            **known.make_fields(blocks.n_cells), noise=float(noises.max()), blocks=blocks,
            center=centers, step=steps,
        )  # fmt: skip

    def _place_rows(self, y: npt.NDArray[Any], w: Numbers, own: Numbers) -> dict[str, Any]:
        counted = (w > 0).reshape(-1, *[1] * (y.ndim - 1))  # rows of weight zero may have any y
        distance = np.subtract(y, self.center, out=np.zeros(y.shape), where=counted)
        if self.noise == 0.0:
            # Rounded before the product: w copies of a row must add up to the row of weight w.
            wy = (own * round_to_step(distance, self.step).T).T
        else:  # this would round y as coarsely as w * y
            wy = round_to_step((own * distance.T).T, self.step)
        return {"values": np.column_stack([own, wy])}

    def _weigh_rows(self, y: npt.NDArray[Any], w: Numbers) -> dict[str, Any]:
        return {"values": np.column_stack([w, (w * (y - self.center).T).T])}

    def compute_node_values(self, criterion: CompiledCriterion, stats: Numbers) -> Numbers:
        """Return the criterion's leaf values, or means."""
        leaf_value = criterion.functions.leaf_value
        if leaf_value is None:
            return self._compute_centers(stats)
        call = partial(call_checked, criterion.origin, "leaf_value", leaf_value)
        values = [[call(row) for row in own] for own in self.split_by_target(stats)]
        return np.stack(values, axis=1) + self.center

    def _compute_centers(self, stats: Numbers) -> Numbers:
        return np.asarray(stats[:, 1:] / stats[:, :1] + self.center)


def _scale_numbers(
    y: Numbers, weights: Numbers | None, known: WeightScale, *, centred: bool
) -> tuple[float, float, float]:
    """Return the center, grid step and noise of a number."""
    center = 0.0
    if centred:
        center = compute_weighted_median(
            y, None if weights is None else round_weights_to_step(weights, known.step)
        )
    low, high = math.inf, -math.inf
    for own, w in _iterate_blocks(y, weights):
        counted = own if w is None else own[w > 0]
        low, high = float(counted.min(initial=low)), float(counted.max(initial=high))
    check_target_range(low, high, center, known.total)
    spread = max(abs(low - center), abs(high - center))

    def measure_distances() -> Iterator[Numbers]:
        for own, w in _iterate_blocks(y, weights):
            if w is None:
                yield np.abs(own - center)
            else:
                counted = w > 0  # rows of weight zero may have any y
                yield np.abs(own[counted] - center) * round_weights_to_step(w[counted], known.step)

    whole = known.may_be_copies
    # Weight of a row, the same for a row of weight w as for each of w copies.
    one = 1.0 if whole else known.total / known.n_positive
    one = one if known.unit is None else known.unit
    step = choose_step(bound_sums(sum_blocks_upwards(measure_distances), one * spread))
    # Several steps: bootstrap counts multiply the rounding error of a row.
    return center, step, 0.0 if whole else 8 * step


@dataclass(frozen=True)
class RankTarget(NumberTarget):
    """A number for criteria of ranks, `treekit.contracts.Ranks`.

    Rows are ``(w, y, w * (y - center))``, and statistics those about a quantile.  The values of
    nodes are not centred.

    Attributes
    ----------
    level : float
        Quantile level.
    """

    level: float = 0.5

    is_additive: ClassVar[bool] = False
    n_values: ClassVar[int] = 1

    @classmethod
    def make(
        cls, y: Numbers, weights: Numbers | None, level: float, *, drawn: bool = False
    ) -> RankTarget:
        """Make the statistics of all rows; see `NumberTarget.scale`."""
        sums = NumberTarget.scale(y, weights, drawn=drawn).place(y, weights)
        values = np.insert(sums.values, 1, y, axis=1)
        fields = vars(sums) | {"values": values, "size": 4, "center": 0.0, "step": 0.0}
        return cls(**fields, level=level)

    @property
    def quantile(self) -> float | None:
        """Quantile level."""
        return self.level

    def _weigh_rows(self, y: npt.NDArray[Any], w: Numbers) -> dict[str, Any]:
        return {"values": np.column_stack([w, y, w * y])}

    def select_rows(self, ids: npt.NDArray[np.integer[Any]], repeats: Numbers | None) -> Rows:
        """Return the rows of one tree, sorted by y."""
        rows = super().select_rows(ids, repeats)
        rows.values[:, 1] = self.values[rows.ids, 1]
        order = np.argsort(rows.values[:, 1], kind="stable")
        return Rows(rows.ids[order], rows.cells, rows.values[order])

    def sum_rows(self, rows: Rows) -> Numbers:
        """Return the weight of rows, and zeros."""
        return np.array([rows.values[:, 0].sum(), 0.0, 0.0, 0.0])

    def _get_unweighted(self, *, per_weight: bool) -> Numbers:
        return super()._get_unweighted(per_weight=per_weight)[:, :1]

    def _compute_centers(self, stats: Numbers) -> Numbers:
        return stats[:, 1:2]


# ---------------------------------------------------------------- tasks of plugins


@dataclass(frozen=True, kw_only=True)
class TaskTarget(TargetStatistics):
    """The target of a plugin's task: a cell target, or dense.

    Attributes
    ----------
    layout : Layout
    n_answers : int
        V, the number of node values.
    step : (S,) float64 or None
        Grid steps of dense statistics.
    placed : (rows, S) float64 or None
        Dense statistics of rows, before they are multiplied by row and class weights.
    """

    layout: Layout
    n_answers: int
    step: Numbers | None = None
    placed: Numbers | None = None

    shares_steps: ClassVar[bool] = True

    @classmethod
    def scale(
        cls,
        n_rows: int,
        placed: Values,
        layout: Layout,
        n_answers: int,
        weights: Numbers | None,
        factors: Values | None = None,
        *,
        drawn: bool = False,
    ) -> TaskTarget:
        """Choose the grid steps; return the target without rows.

        Statistics of similar size, including weights, share a grid (`choose_common_steps`), so that
        equal quantities in two columns have equal sums.

        Parameters
        ----------
        placed : (rows,) int64 or (rows, S) float64
            Cell of each row, or its statistics.
        n_answers : int
            V, the number of node values.
        weights, factors, drawn
            See `ClassTarget.scale`.

        Raises
        ------
        DataError
            If squares of the statistics leave float64.
        """
        if placed[slice(0, 1)].ndim == 1:
            counting = ClassTarget.scale(n_rows, layout.size, weights, factors, drawn=drawn)
            return cls(**vars(counting), layout=layout, n_answers=n_answers)
        known = measure_weights(n_rows, weights, drawn=drawn)
        whole = cls(**known.make_fields(layout.size), layout=layout, n_answers=n_answers)
        if factors is not None:
            whole = whole._scale_factors(n_rows, weights, factors, known)

        def weigh() -> Iterator[tuple[Any, Numbers, Numbers]]:
            """Yield statistics, expected weights, and weights in statistics, block by block."""
            for rows in _iterate_slices(n_rows):
                expected = round_weights_to_step(_get_weights(weights, rows), known.step)
                own = expected if known.unit is None else np.full(len(expected), known.unit)
                if factors is not None:
                    own = multiply_weights(own, factors[rows], whole.factor_step)
                    expected = expected * factors[rows]
                # Rows of weight zero may have any values.
                yield np.where(own[:, None] > 0, placed[rows], 0.0), expected, own

        # As for numbers: copies of a row add up to one row of integer weight.
        copies = factors is None and known.may_be_copies
        one = 1.0 if copies else max(float(own.max()) for _, _, own in weigh())
        if not copies and known.unit is None and factors is None:
            one = known.total / known.n_positive
        total = sum(float(expected.sum()) for _, expected, _ in weigh())
        low = np.min([counted.min(axis=0) for counted, _, _ in weigh()], axis=0).tolist()
        high = np.max([counted.max(axis=0) for counted, _, _ in weigh()], axis=0).tolist()
        largest, needed = np.maximum(np.abs(low), np.abs(high)), []
        for k, most in enumerate(largest.tolist()):
            check_target_range(low[k], high[k], 0.0, total)

            def weigh_column(k: int = k) -> Iterator[Numbers]:
                return (np.abs(counted[:, k]) * expected for counted, expected, _ in weigh())

            needed.append(choose_step(bound_sums(sum_blocks_upwards(weigh_column), one * most)))
        steps = choose_common_steps(np.array(needed), largest, total)
        own_total = whole.total_weight
        if not copies:
            own_total = sum(
                float(round_weights_to_step(own, float(steps[0])).sum()) for _, _, own in weigh()
            )
        noise = 0.0 if copies else 8 * float(steps.max())
        return replace(whole, noise=noise, step=steps, total_weight=own_total)

    @property
    def n_values(self) -> int:
        """Number of values of the task."""
        return self.n_answers

    def _place_rows(self, y: npt.NDArray[Any], w: Numbers, own: Numbers) -> dict[str, Any]:
        if self.step is None:
            return super()._place_rows(y, w, own)
        placed = y.astype(np.float64, copy=False)
        counted = np.where(own[:, None] > 0, placed, 0.0)
        if self.noise == 0.0:
            values = np.asarray(own[:, None] * round_to_step(counted, self.step))
        else:
            own = round_weights_to_step(own, float(self.step[0]))
            values = round_to_step(own[:, None] * counted, self.step)
        return {"values": values, "placed": placed}

    def _weigh_rows(self, y: npt.NDArray[Any], w: Numbers) -> dict[str, Any]:
        return {"values": w[:, None] * y} if self.is_dense else self._place_rows(y, w, w)

    def compute_node_values(self, criterion: CompiledCriterion, stats: Numbers) -> Numbers:
        """Compute node values by the plugin's `answer`, and validate them."""
        origin, layout = criterion.origin, self.layout
        rows = stats.copy()
        rows.flags.writeable = False
        try:
            values = np.array(call_isolated(str(origin), layout.answer, rows), dtype=np.float64)
        except FOREIGN_ERRORS as error:
            raise origin.make_error(f"raised {describe_error(error)} in `answer`") from error
        if values.shape != (len(rows), self.n_answers):
            raise origin.make_error(
                f"returned an array of shape {values.shape} from `answer` for {len(rows)} nodes; "
                f"it must return shape ({len(rows)}, {self.n_answers})"
            )
        least = -np.inf if layout.names else 0.0
        wrong = ~(np.isfinite(values) & (values >= least)).all(axis=1)
        if not layout.names:
            wrong |= ~(values.sum(axis=1) > 0.0)
        if wrong.any():
            at = int(wrong.argmax())
            expected = "class weights, not negative and not all 0"
            expected = "finite numbers" if layout.names else expected
            raise origin.make_error(
                f"returned {values[at].tolist()} from `answer` for the statistics "
                f"{rows[at].tolist()}; it must return {expected}"
            )
        return values

    def _get_unweighted(self, *, per_weight: bool) -> Numbers:
        if self.placed is None:
            return super()._get_unweighted(per_weight=per_weight)
        return self.placed[:, min(1, self.size - 1) :]


# ---------------------------------------------------------------- exact sums
# Weights and numbers are rounded to multiples of a power of two (the step of a grid).
# Every sum over any of the training rows is an integer number of steps below 2**53, and
# therefore exact in any order.

MAX_COPIES = 16
"""Largest mean integer weight for which a bootstrap draws individual copies of rows."""

_EXACT_BITS = 52

_SHARED_BITS = 40
"""A column shares a coarser grid if its largest number, summed over all rows, reaches 2**40
steps of it."""

_MAX_COPY_WEIGHT = 2.0**24
"""Total integer weight up to which weights are always treated as copies of rows."""

_SMALLEST_SQUARES, _LARGEST_SQUARES = 1e-280, 1e300
"""Bounds of sums of squares, guaranteed to criteria."""


class WeightScale(NamedTuple):
    """The weights of all rows: their grid, and what a bootstrap needs to know.

    Attributes
    ----------
    n_rows, n_positive : int
    step : float
        Grid step; 0 for integers, which are not rounded.
    total : float
        Sum of the rounded weights.
    unit : float or None
        Weight of a draw; None if rows are not drawn in proportion to their weight.
    may_be_copies : bool
        Whether rows count as integer numbers of copies.
    """

    n_rows: int
    n_positive: int
    step: float
    total: float
    unit: float | None
    may_be_copies: bool

    def make_fields(self, size: int, *, dense: bool = True) -> dict[str, Any]:
        """Make the fields of a target of `size` cells whose arrays have one row to show types."""
        cells, values = np.zeros(1 - dense, np.uint32), np.zeros((1, size if dense else 1))
        made = {"cells": cells, "values": values, "size": size, "weight_step": self.step}
        if self.unit is None:
            return made | {"total_weight": self.total}
        total = self.unit * self.n_rows
        return made | {"draw_weights": np.zeros(1), "draw_unit": self.unit, "total_weight": total}


def measure_weights(n_rows: int, weights: Numbers | None, *, drawn: bool = False) -> WeightScale:
    """Choose the grid of weights, and the weight of a draw if rows are `drawn` by weight."""
    if weights is None:
        return WeightScale(n_rows, n_rows, 0.0, float(n_rows), None, True)
    step = choose_weight_step(weights)
    total, n_positive, whole = 0.0, 0, True
    for (own,) in _iterate_blocks(weights):
        w = round_weights_to_step(own, step)
        total += float(w.sum())
        n_positive += int(np.count_nonzero(w))
        whole = whole and bool(np.all(w == np.floor(w)))
    unit = None
    if drawn:
        unit = total / choose_draws(total, n_positive, whole=whole)
        if not whole and abs(unit - 1.0) < 2.0**-30:  # their mean was scaled to 1 and rounded
            unit = 1.0
        if unit != 1.0:
            unit = float(round_to_step(np.array([unit]), choose_step(total * 2))[0])
    heavy = total > max(_MAX_COPY_WEIGHT, float(MAX_COPIES * n_positive))
    copies = step == 0.0 and not heavy and (unit is None or unit == math.floor(unit))
    return WeightScale(n_rows, n_positive, step, total, unit, copies)


def check_target_range(low: float, high: float, center: float, total: float) -> None:
    """Raise `DataError` if squared errors of rows of this total weight overflow or underflow."""
    weight = max(total, 1.0)
    if max(abs(low), abs(high)) > math.sqrt(_LARGEST_SQUARES / weight):
        raise DataError(
            f"the target ranges from {low:g} to {high:g}, and its squares overflow float64; "
            "divide the target by a constant"
        )
    spread = max(abs(low - center), abs(high - center))
    if 0 < spread < math.sqrt(_SMALLEST_SQUARES / min(total, 1.0)):
        raise DataError(
            f"the target lies within {spread:g} of {center:g}, and squared differences underflow "
            "float64; multiply the target by a constant"
        )


def compute_weighted_median(y: Numbers, w: Numbers | None) -> float:
    """Return the lower weighted median; `w` None = 1, else weights on a grid."""
    if w is None or np.all(w == 1.0):
        middle = (len(y) - 1) // 2
        return float(np.partition(y, middle)[middle])
    half, below = float(w.sum()) / 2, 0.0
    while True:  # halve the numbers that may be the median
        middle = (len(y) - 1) // 2
        pivot = float(np.partition(y, middle)[middle])
        smaller = y < pivot
        upto = below + float(w[smaller].sum())
        if upto >= half:
            y, w = y[smaller], w[smaller]
            continue
        larger = y > pivot
        upto = below + float(w[~larger].sum())
        if upto >= half:
            return pivot
        y, w, below = y[larger], w[larger], upto


def count_draws(weights: Numbers) -> int:
    """Return the number of rows that a bootstrap sample draws.

    For integer weights, it is their sum: a row of weight w is drawn like w rows of the
    table.  For other weights, and for sums that would take long to draw one by one, it is
    the number of rows; each draw then has a larger weight.
    """
    whole = bool(np.all(weights == np.floor(weights)))
    return choose_draws(float(weights.sum()), int(np.count_nonzero(weights)), whole=whole)


def choose_draws(total: float, rows: int, *, whole: bool) -> int:
    """Return `count_draws` of `rows` positive weights; `whole`: whether they are integers."""
    return int(total) if whole and total <= MAX_COPIES * rows else rows


def round_weights(
    n: int, weights: npt.NDArray[np.float64] | None
) -> tuple[npt.NDArray[np.float64], bool]:
    """Return weights rounded to the grid, and whether they are integers; for plugins."""
    if weights is None:
        return np.ones(n), True
    step = choose_weight_step(weights)
    return round_weights_to_step(weights, step), step == 0.0


def choose_weight_step(weights: Numbers | None) -> float:
    """Return the grid step of weights; 0 for integers, which are not rounded."""
    if weights is None:
        return 0.0
    total = sum_upwards(weights)
    if not 1e-120 < total < 1e120:
        raise DataError(
            f"the weights add up to {total:g}, whose square is out of range for float64; "
            "multiply the weights by a constant"
        )
    whole = all(np.all(own == np.floor(own)) for (own,) in _iterate_blocks(weights))
    if whole and total < 2.0**_EXACT_BITS:
        return 0.0
    return choose_step(bound_sums(total, float(weights.max())))


def round_weights_to_step(weights: Numbers, step: float) -> Numbers:
    """Round weights to the grid; positive ones stay positive."""
    if step == 0.0:
        return weights.astype(np.float64, copy=False)
    return np.maximum(round_to_step(weights, step), np.where(weights > 0, step, 0.0))


def multiply_weights(unit: float | Numbers, factors: Numbers, step: float) -> Numbers:
    """Multiply weights by factors and round them to multiples of `step`; 0 stays 0."""
    product = unit * factors
    return np.maximum(round_to_step(product, step), np.where(product > 0, step, 0.0))


def bound_sums(total: float, largest: float) -> float:
    """Bound the sums of any bootstrap sample, which may draw the largest row many times."""
    return 2.0 * total + 32.0 * largest


def sum_upwards(numbers: Numbers) -> float:
    """Return an upper bound of the sum of non-negative numbers that does not depend on their order.

    Each is rounded up to a multiple of 2**-31 of the largest (at least of 2**-1000), so that
    partial sums of any division of the numbers add up to the same integer.
    """
    return sum_blocks_upwards(lambda: (own for (own,) in _iterate_blocks(numbers)))


def sum_blocks_upwards(make_blocks: Callable[[], Iterable[Numbers]]) -> float:
    """Return the bound of `sum_upwards` for numbers that are computed in blocks, twice."""
    largest = max((float(own.max(initial=0.0)) for own in make_blocks()), default=0.0)
    if not 0.0 < largest < math.inf:
        return largest
    unit = math.ldexp(1.0, max(math.frexp(largest)[1] - 31, -1000))
    return (
        float(sum(int(np.ceil(own / unit).astype(np.int64).sum()) for own in make_blocks())) * unit
    )


_BLOCK_ROWS = 1 << 18
"""Rows of a block: working memory of a few MB, however long the table."""


def _iterate_slices(n_rows: int) -> Iterator[slice]:
    for start in range(0, n_rows, _BLOCK_ROWS):
        yield slice(start, min(start + _BLOCK_ROWS, n_rows))


def _iterate_blocks(first: npt.NDArray[Any], *others: Any) -> Iterator[tuple[Any, ...]]:
    """Yield blocks of rows of arrays; None stays None."""
    for rows in _iterate_slices(len(first)):
        yield first[rows], *(None if own is None else own[rows] for own in others)


def _get_weights(weights: Numbers | None, rows: slice) -> Numbers:
    return np.ones(rows.stop - rows.start) if weights is None else weights[rows]


def choose_step(reach: float) -> float:
    """Return the smallest power of two of which `reach` is fewer than 2**52 steps."""
    if reach == 0.0:
        return 1.0
    return math.ldexp(1.0, max(math.frexp(reach)[1] - _EXACT_BITS, -1000))


def choose_common_steps(steps: Numbers, largest: Numbers, total: float) -> Numbers:
    """Choose a common grid, the coarsest needed, for columns whose sums are compared.

    Equal numbers in two columns are then rounded alike, so that equal columns have equal
    sums and sums of parts never exceed the total.  Columns of much smaller numbers, which
    the grid would round too coarsely, share the next finer one.

    Parameters
    ----------
    steps : (columns,) float64
        Grid step that each column needs.
    largest : (columns,) float64
        Largest absolute number of each column, for a row of weight 1.  It is 1 for weights
        and indicators, which therefore share a grid.
    total : float
        Weight of all rows.

    Returns
    -------
    (columns,) float64
    """
    shared, left = steps.copy(), np.ones(len(steps), np.bool_)
    while left.any():
        step = steps[left].max()
        fine = largest * total >= math.ldexp(step, _SHARED_BITS)
        members = left & (fine | (steps == step))
        shared[members] = step
        left &= ~members
    return shared


def choose_part_steps(values: Numbers, *, common: bool = False) -> Numbers:
    """Return grid steps (columns,) float64 for fractional instances of rows.

    The steps are powers of two, small enough that all sums of parts of `values` (rows,
    columns) are exact.  `common` applies `choose_common_steps`; the first column must then be
    positive weights.
    """
    steps = np.array([choose_step(2.0 * sum_upwards(np.abs(column))) for column in values.T])
    if not common or not len(values):
        return steps
    largest = np.array([float(np.abs(column / values[:, 0]).max()) for column in values.T])
    return choose_common_steps(steps, largest, float(values[:, 0].sum()))


def round_to_step(values: Numbers, step: float | Numbers) -> Numbers:
    """Round to the nearest multiples of `step`, ties to even."""
    return np.asarray(np.rint(values / step) * step)
