"""Prepare a training: encode columns and target, and compile the components."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from treekit.compiling.criterion import (
    CompiledCriterion,
    compile_before,
    compile_criterion,
    get_unconditional_pointer,
)
from treekit.compiling.functions import Origin
from treekit.compiling.identity import compute_identity
from treekit.compiling.splitter import compile_splitter
from treekit.contracts import CriterionFunctions, Ranks, Sums
from treekit.data.binning import encode_columns
from treekit.data.dataset import Dataset
from treekit.data.schema import Dtype, Schema
from treekit.errors import DataError, SettingError
from treekit.grow.held_out import HeldOutRows, encode_held_table
from treekit.grow.recipe import Recipe, SurrogateRule
from treekit.grow.target_statistics import (
    ClassTarget,
    NumberTarget,
    RankTarget,
    TargetStatistics,
    TaskTarget,
    Values,
    choose_weight_step,
    round_weights_to_step,
)
from treekit.grow.tree_builder import allocate_scratch
from treekit.kernels.compile import SplitterKernel
from treekit.kernels.records import Limits, SplitRules, Table
from treekit.kernels.thresholds import MIDPOINT, READABLE_FLOAT32, READABLE_FLOAT64, VALUE_BELOW
from treekit.model.tree import MAX_DEPTH
from treekit.training.plan import Plan, PlannedComponent
from treekit.training.target_precision import check_target_precision

# ---------------------------------------------------------------- recipe


@dataclass(frozen=True, eq=False)
class EncodedData:
    """Encoded tables and the plan to train on them by; other processes can unpickle it.

    Attributes
    ----------
    schema : Schema
        That of the training table.
    plan : Plan
    table : Table
        Codes of the training columns; may be without rows.
    target : TargetStatistics
    rounded : bool
        Whether weights are rounded by class factors or fractional instances.
    held_out : HeldOutRows, optional
        The rows of a validation table.
    needs_exact_means : bool
        Whether the sums of growth are too coarse for values of nodes.
    """

    schema: Schema
    plan: Plan
    table: Table
    target: TargetStatistics
    rounded: bool
    held_out: HeldOutRows | None = None
    needs_exact_means: bool = False

    def __call__(self) -> Recipe:
        """Return the recipe, compiled once in each process."""
        with _lock:
            if self not in _recipes:
                _recipes[self] = _compile_recipe(self)
            return _recipes[self]


_recipes: WeakKeyDictionary[EncodedData, Recipe] = WeakKeyDictionary()
_lock = threading.Lock()


def make_recipe(dataset: Dataset, plan: Plan, validation: Dataset | None = None) -> Recipe:
    """Encode the training and validation tables, and compile the plan's components for them."""
    return _compile_recipe(encode_data(dataset, plan, validation))


def encode_data(dataset: Dataset, plan: Plan, validation: Dataset | None = None) -> EncodedData:
    """Encode the training and validation tables."""
    schema, settings = dataset.schema, plan.settings
    if plan.splitter.functions.sums and schema.dtype != "float32":
        raise SettingError(
            f"splitter {plan.splitter.record.name!r} uses sums of columns, which are exact only "
            f"for float32 inputs, but the input type is {schema.dtype}; train with "
            "dtype='float32' (--dtype float32)"
        )
    table = _encode_table(dataset, plan, alone=validation is None and not plan.draws_rows)
    target = make_criterion_target(dataset, plan.criterion, plan.draws_rows)
    needs_exact_means = check_target_precision(dataset, plan, target)
    placement = get_placement(plan, schema.dtype)
    held = None
    if validation is not None:
        coding = plan.splitter.functions.coding
        table, other = encode_held_table(validation.columns, table, coding, schema.dtype, placement)
        y = plan.criterion.place_rows(validation)
        held = HeldOutRows(other, target.hold_out(y, validation.statistical_weights))
    if not target.is_additive:
        _check_rank_settings(plan)
    weighed = dataset.factors is not None or plan.balances_bags
    rounded = settings["missing"] == "fractional" or weighed
    return EncodedData(schema, plan, table, target, rounded, held, needs_exact_means)


def get_placement(plan: Plan, dtype: Dtype) -> int:
    """Return the place of thresholds between values; see `treekit.kernels.thresholds`."""
    places = {
        "midpoint": MIDPOINT,
        "value_below": VALUE_BELOW,
        "readable": READABLE_FLOAT32 if dtype == "float32" else READABLE_FLOAT64,
    }
    return places[plan.settings["thresholds"]]


def _compile_recipe(data: EncodedData) -> Recipe:
    """Compile the plan's components for encoded tables."""
    plan, table, target, dtype = data.plan, data.table, data.target, data.schema.dtype
    settings = plan.settings
    before = plan.pruner and plan.pruner.functions.before
    fractional = settings["missing"] == "fractional"
    surrogate = settings["missing"] == "surrogate"
    known_only = fractional or surrogate
    nominal = bool((table.nominal > 0).any())
    options: dict[str, Any] = {
        "known_only": known_only,
        "blocks": target.blocks,
        "nominal": nominal,
    }

    def compile_own(functions: CriterionFunctions, origin: Origin) -> CompiledCriterion:
        if not origin.is_foreign:
            return compile_criterion(functions, target.size, target.is_dense, origin, **options)
        from treekit.compiling.settings import compile_for_all_values  # imports numba

        own = plan.criterion.settings
        return compile_for_all_values(
            functions, target.size, target.is_dense, origin, own, **options
        )

    criterion: CompiledCriterion = _get_compiled(
        plan.criterion,
        (target.size, target.is_dense, *options.values()),
        compile_own,
    )
    return Recipe(
        table=table,
        target=target,
        dtype=dtype,
        # Functions that are called as Python are not part of the cache's key.
        criterion=replace(criterion, functions=plan.criterion.functions),
        splitter=_get_compiled(
            plan.splitter,
            (table.codes.dtype.str, target.is_additive),
            lambda functions, origin: compile_splitter(
                functions,
                table,
                target.select_rows(np.empty(0, np.uint32), None),
                allocate_scratch(table, target, 1, 1),
                origin,
                target.quantile,
            ),
        ),
        before=get_unconditional_pointer()
        if before is None or plan.pruner is None
        else _get_compiled(
            plan.pruner,
            ("before",),
            lambda functions, origin: compile_before(functions.before, origin),
        ),
        use_before=before is not None,
        limits=_make_limits(plan, rounded=data.rounded or target.weight_step > 0.0),
        split_rules=SplitRules(
            known_only=known_only,
            empty_branches=settings["empty_branches"],
            min_side_share=0.1 / target.size if settings["numeric_side"] == "c45" else 0.0,
            resolution=float(settings["resolution"]),
            placement=get_placement(plan, dtype),
            exact_levels=settings["exact_levels"],
            right_if_even=settings["min_gain"] is None and not known_only,
        ),
        fractional=fractional,
        balance_bags=plan.balances_bags,
        surrogates=SurrogateRule(
            most=settings["surrogates"],
            of_known=settings["surrogate_agreement"] == "known",
            right_and_wrong=settings["nominal_surrogates"] == "rpart",
        )
        if surrogate
        else None,
        held_out=data.held_out,
        monotonic_signs=plan.monotonic_signs,
        needs_exact_means=data.needs_exact_means,
    )


def _encode_table(dataset: Dataset, plan: Plan, *, alone: bool) -> Table:
    """Encode the table in the splitter's coding, or as sortable keys of the values if possible.

    Keys are not ranks among a column's values, which samples, held-out rows, surrogates and
    fractional instances need.

    Parameters
    ----------
    alone : bool
        Whether every tree is grown on all rows of the table, without hold-out rows.
    """
    schema, settings, functions = dataset.schema, plan.settings, plan.splitter.functions
    find = functions.find
    keyed = (
        isinstance(find, SplitterKernel)
        and find.supports_keys
        and schema.dtype == "float32"
        and alone
        and plan.pruner is None
        and settings["missing"] not in ("fractional", "surrogate")
    )
    return encode_columns(
        dataset.columns,
        schema.n_levels,
        schema.nominal,
        "keys" if keyed else functions.coding,
        nominal_splits=settings["nominal_splits"],
        max_bins=settings["max_bins"],
        weights=get_coding_weights(dataset, choose_weight_step(dataset.weights)),
        n_rows=dataset.n_rows,
        n_jobs=settings["n_jobs"],
    )


def get_coding_weights(dataset: Dataset, step: float) -> npt.NDArray[np.float64] | None:
    """Return the row weights for binning, whose sums are exact; 0 for rows of class factor 0.

    Class factors themselves would change the bins, and with them the row order from which
    bootstrap samples are drawn.  `step` is the grid step of all rows' weights.
    """
    weights = dataset.weights
    if weights is not None:
        weights = round_weights_to_step(weights, step)
    if dataset.factors is None or (dataset.factors > 0).all():
        return weights
    counted = (dataset.factors > 0).astype(np.float64)
    return counted if weights is None else np.asarray(weights * counted)


def _check_rank_settings(plan: Plan) -> None:
    """Raise `SettingError` for settings that need additive statistics."""
    settings = plan.settings
    for name, refused, plain in (
        ("missing", settings["missing"] == "fractional", "direction"),
        ("resolution", settings["resolution"] != 0.0, 0.0),
        ("nominal_splits", settings["nominal_splits"] == "one_vs_rest", "subset"),
    ):
        if refused:
            raise SettingError(
                f"{name}={settings[name]!r} needs a criterion with additive statistics, but "
                f"criterion {plan.criterion.record.name!r} uses quantiles; set {name}={plain!r}, "
                "or choose another criterion"
            )


_NO_GAIN = -1e-300
"""`min_gain` that a score of 0 exceeds."""


def _make_limits(plan: Plan, *, rounded: bool) -> Limits:
    """Return the stopping rules, with a tolerance if weights are `rounded`."""
    settings = plan.settings
    nearly = 1.0 - 1e-6 if rounded else 1.0
    bound = -1.0 if settings["min_impurity"] is None else float(settings["min_impurity"])
    own = plan.criterion.functions.impurity is not None
    numbers = isinstance(plan.criterion.functions.statistics, Sums)
    varies = numbers and plan.criterion.record.task == "regression"
    if not own and bound >= 0 and not varies:
        raise SettingError(
            f"min_impurity is {bound:g}, but criterion {plan.criterion.record.name!r} defines no "
            "impurity; choose another criterion, or set min_gain"
        )
    return Limits(
        max_depth=MAX_DEPTH if settings["max_depth"] is None else settings["max_depth"],
        min_weight_split=nearly * float(settings["min_weight_split"]),
        min_weight_leaf=nearly * float(settings["min_weight_leaf"]),
        min_gain=_NO_GAIN if settings["min_gain"] is None else float(settings["min_gain"]),
        max_leaves=settings["max_leaves"] or 0,
        n_try=plan.n_try,
        min_impurity=bound if own else -1.0,
        min_variance=-1.0 if own else bound,
        min_decrease=float(settings["min_impurity_decrease"]),
    )


# ---------------------------------------------------------------- target


def make_criterion_target(
    dataset: Dataset, criterion: PlannedComponent, drawn: bool
) -> TargetStatistics:
    """Return the target as the statistics that the criterion needs.

    Parameters
    ----------
    drawn : bool
        Rows will be drawn in proportion to their weight (a bootstrap), not weighted by it.

    Raises
    ------
    DataError
        For numbers for which the criterion is not defined, or whose squares leave float64.
    """
    statistics = criterion.functions.statistics
    if isinstance(statistics, Ranks):
        y = np.asarray(dataset.y, dtype=np.float64)
        return RankTarget.make(y, dataset.weights, statistics.quantile, drawn=drawn)
    placed = criterion.place_rows(dataset)
    whole = scale_criterion_target(dataset, criterion, drawn, placed, dataset.factors)
    return whole.place(placed, dataset.weights, dataset.factors)


def scale_criterion_target(
    dataset: Dataset,
    criterion: PlannedComponent,
    drawn: bool,
    placed: Values,
    factors: Values | None,
) -> TargetStatistics:
    """Choose the grids of the statistics of all rows; return the target without rows.

    `placed` are the cells or statistics of a plugin's task, by which its rows are read;
    `factors` those of the dataset.  The other parameters are those of `make_criterion_target`.
    """
    schema, weights, n = dataset.schema, dataset.weights, dataset.n_rows
    if criterion.layout is not None:
        n_answers = len(criterion.layout.names) or len(schema.classes)
        return TaskTarget.scale(
            n, placed, criterion.layout, n_answers, weights, factors, drawn=drawn
        )
    if schema.task == "classification":
        sizes = [len(output.classes) for output in schema.outputs]
        return ClassTarget.scale(
            n, sizes if schema.more else sizes[0], weights, factors, drawn=drawn
        )
    statistics = criterion.functions.statistics
    if statistics.smallest is not None:
        columns: Any = dataset.y.reshape(n, -1).T
        for output, own in zip(schema.outputs, columns, strict=True):
            below = own < statistics.smallest
            if below.any():
                row = int(below.argmax())
                raise DataError(
                    f"criterion {criterion.record.name!r} needs a target of at least "
                    f"{statistics.smallest:g}, but {output.name!r} is {own[row]:g} in row {row} "
                    f"(counting from 0; {int(below.sum())} such rows); drop or correct them, or "
                    "choose another criterion"
                )
    y = np.asarray(dataset.y, dtype=np.float64)
    return NumberTarget.scale(y, weights, drawn=drawn, centred=statistics.centred)


# ---------------------------------------------------------------- compilation cache
# Compiled components, cached for the process: a second training compiles nothing.  The growth
# kernel is cached by `treekit.grow.tree_builder`: it takes components as pointers.
#
# Keys are the settings, the shape of the statistics and, for a plugin, the identity of its
# functions, never only a name: plugins of the same name are distinguished, and so is a function
# before and after a change of a constant that it uses.

MAX_CACHED_COMPONENTS = 256
"""Number of compiled components cached by a process; the oldest is dropped first."""

_cached_components: dict[Any, Any] = {}


def get_origin(part: PlannedComponent) -> Origin:
    """Return the origin of a component, as named in messages."""
    distribution = " ".join(part.origin[key] for key in ("distribution", "version")).strip()
    return Origin(part.origin["kind"], part.record.name, distribution)


def _identify(functions: Any) -> Any:
    """Return the identity of a plugin's functions, without those that are called as Python."""
    if isinstance(functions, CriterionFunctions):
        functions = replace(functions, loss=None, leaf_value=None)
    return compute_identity(functions)


def _get_compiled(
    part: PlannedComponent, shape: tuple[Any, ...], compile_part: Callable[[Any, Origin], Any]
) -> Any:
    """Return ``compile_part(functions, origin)``, or the result of an earlier training."""
    functions, origin = part.functions, get_origin(part)
    try:
        values = tuple((type(value), value) for value in part.settings.values())
        known = _identify(functions) if origin.is_foreign else ()
        key = (origin, values, known, shape)
        kept = _cached_components.get(key)
    except (TypeError, ValueError):  # the key cannot be hashed, or a closure cell is not bound
        return compile_part(functions, origin)
    if kept is None:
        if len(_cached_components) >= MAX_CACHED_COMPONENTS:
            del _cached_components[next(iter(_cached_components))]
        kept = _cached_components[key] = compile_part(functions, origin)
    return kept
