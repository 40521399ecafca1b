"""Prepare a training: encode columns and target, and compile the components."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.contracts import CriterionFunctions, Ranks, Sums
from treekit.data.binning import make_key_table, make_table
from treekit.data.dataset import Dataset
from treekit.data.out_of_core import lines_of
from treekit.errors import DataError, SettingError
from treekit.grow.compile_criterion import (
    CompiledCriterion,
    always,
    compile_before,
    compile_criterion,
)
from treekit.grow.compile_plugin import Origin
from treekit.grow.compile_splitter import CompiledSplitter, compile_splitter
from treekit.grow.function_identity import identity
from treekit.grow.held_out import Held, held_table, held_target
from treekit.grow.recipe import Recipe, SurrogateRule
from treekit.grow.target_statistics import (
    Target,
    class_target,
    classes_target,
    layout_target,
    number_target,
    numbers_target,
    rank_target,
)
from treekit.grow.tree_builder import make_scratch
from treekit.kernels.compile import Finder
from treekit.kernels.function_pointers import Pointer
from treekit.kernels.records import Limits, Table, Ways
from treekit.model.tree import MAX_DEPTH
from treekit.training.plan import Part, Plan
from treekit.training.tasks import place_rows

__all__ = [
    "before_pointer",
    "criterion_pointers",
    "criterion_target",
    "make_recipe",
    "origin_of",
    "splitter_pointer",
]


# ---------------------------------------------------------------- recipe


def make_recipe(dataset: Dataset, plan: Plan, validation: Dataset | None = None) -> Recipe:
    """Encode the training and validation tables, and compile the plan's components for them."""
    schema, settings = dataset.schema, plan.settings
    if plan.splitter.functions.sums and schema.dtype != "float32":
        raise SettingError(
            f"splitter {plan.splitter.record.name!r} uses sums of columns, which are exact only "
            f"for float32 inputs, but the input type is {schema.dtype}; train with "
            "dtype='float32' (--dtype float32)"
        )
    drawn = settings["ensemble"] == "forest" and settings["bootstrap"]
    table = _coded(dataset, plan, alone=validation is None and not drawn)
    target = criterion_target(dataset, plan.criterion, drawn)
    held = None
    if validation is not None:
        coding = plan.splitter.functions.coding
        table, other = held_table(validation.columns, table, coding, schema.dtype)
        y: Any = validation.y
        if plan.criterion.layout is not None:
            y = place_rows(plan.criterion.record, plan.criterion.layout, validation)
        held = Held(other, held_target(target, y, validation.statistical_weights))
    if target.quantile is not None:
        _refuse_for_ranks(plan)
    before = plan.pruner.functions.before if plan.pruner else None
    fractional = settings["missing"] == "fractional"
    surrogate = settings["missing"] == "surrogate"
    known_only = fractional or surrogate
    return Recipe(
        table=table,
        target=target,
        dtype=schema.dtype,
        criterion=criterion_pointers(
            plan.criterion,
            target,
            known_only=known_only,
            bounded=plan.signs is not None,
            nominal=bool((table.nominal > 0).any()),
        ),
        splitter=splitter_pointer(plan.splitter, table, target),
        before=always() if before is None or plan.pruner is None else before_pointer(plan.pruner),
        use_before=before is not None,
        limits=_limits(plan, rounded=fractional or dataset.factors is not None),
        ways=Ways(
            known_only=known_only,
            empty=settings["empty_branches"],
            side=0.1 / target.size if settings["numeric_side"] == "c45" else 0.0,
            resolution=float(settings["resolution"]),
            value_below=settings["thresholds"] == "value_below",
            exact_levels=settings["exact_levels"],
        ),
        fractional=fractional,
        lines=lines_of(table.codes),
        held=held,
        surrogates=SurrogateRule(
            most=settings["surrogates"],
            of_known=settings["surrogate_agreement"] == "known",
            right_and_wrong=settings["nominal_surrogates"] == "rpart",
        )
        if surrogate
        else None,
        signs=plan.signs,
    )


def _coded(dataset: Dataset, plan: Plan, *, alone: bool) -> Table:
    """Encode the table in the splitter's coding, or in keys where these are sufficient.

    `alone`: all trees use all rows, and there are no other rows.  Samples, held-out rows,
    surrogates and fractional instances need ranks among a column's values, which keys do
    not provide.
    """
    schema, settings, functions = dataset.schema, plan.settings, plan.splitter.functions
    find = functions.find
    if (
        isinstance(find, Finder)
        and find.keys
        and schema.dtype == "float32"
        and alone
        and plan.pruner is None
        and settings["missing"] not in ("fractional", "surrogate")
    ):
        return make_key_table(
            dataset.columns,
            schema.n_levels,
            schema.nominal,
            nominal_splits=settings["nominal_splits"],
            n_rows=dataset.n_rows,
        )
    return make_table(
        dataset.columns,
        schema.n_levels,
        schema.nominal,
        functions.coding,
        nominal_splits=settings["nominal_splits"],
        max_bins=settings["max_bins"],
        weights=_coding_weights(dataset),
        n_rows=dataset.n_rows,
        n_jobs=settings["n_jobs"],
    )


def _coding_weights(dataset: Dataset) -> npt.NDArray[np.float64] | None:
    """Return the weights for bins: row weights, but zero for rows with a factor of zero.

    Class factors themselves would change the bins, and with them the row order from which
    bootstrap samples are drawn.
    """
    if dataset.factors is None or (dataset.factors > 0).all():
        return dataset.weights
    counted = (dataset.factors > 0).astype(np.float64)
    return counted if dataset.weights is None else np.asarray(dataset.weights * counted)


def _refuse_for_ranks(plan: Plan) -> None:
    """Raise `SettingError` for settings that need additive statistics."""
    for name, plain in (
        ("missing", "direction"), ("resolution", 0.0), ("nominal_splits", "subset"),
    ):  # fmt: skip
        wanted = plan.settings[name]
        if wanted in ("fractional", "one_vs_rest") or (name == "resolution" and wanted != plain):
            raise SettingError(
                f"{name}={wanted!r} needs a criterion with additive statistics, but criterion "
                f"{plan.criterion.record.name!r} uses quantiles; set {name}={plain!r}, or "
                "choose another criterion"
            )


def _limits(plan: Plan, *, rounded: bool) -> Limits:
    """Return the stopping rules, with a tolerance for fractional instances and class factors."""
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
        min_gain=float(settings["min_gain"]),
        max_leaves=settings["max_leaves"] or 0,
        n_try=plan.n_try,
        min_impurity=bound if own else -1.0,
        min_variance=-1.0 if own else bound,
    )


# ---------------------------------------------------------------- target


def criterion_target(dataset: Dataset, criterion: Part, drawn: bool) -> Target:
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
    schema, weights = dataset.schema, dataset.weights
    if criterion.layout is not None:
        placed = place_rows(criterion.record, criterion.layout, dataset)
        n_answers = len(criterion.layout.names) or len(schema.classes)
        return layout_target(
            placed, criterion.layout, n_answers, weights, dataset.factors, drawn=drawn
        )
    if schema.task == "classification":
        codes = np.asarray(dataset.y, dtype=np.int32)
        if schema.more:
            sizes = [len(output.classes) for output in schema.outputs]
            return classes_target(codes, sizes, weights, dataset.factors, drawn=drawn)
        return class_target(codes, len(schema.classes), weights, dataset.factors, drawn=drawn)
    functions: CriterionFunctions = criterion.functions
    statistics = functions.statistics
    y = np.asarray(dataset.y, dtype=np.float64)
    if isinstance(statistics, Ranks):
        return rank_target(y, weights, statistics.quantile, drawn=drawn)
    if statistics.smallest is not None:
        for output, own in zip(schema.outputs, y.reshape(len(y), -1).T, strict=True):
            _refuse_below(statistics.smallest, own, output.name, criterion.record.name)
    if schema.more:
        return numbers_target(y, weights, drawn=drawn, centred=statistics.centred)
    return number_target(y, weights, drawn=drawn, centred=statistics.centred)


def _refuse_below(smallest: float, y: npt.NDArray[np.float64], target: str, criterion: str) -> None:
    below = y < smallest
    if below.any():
        row = int(below.argmax())
        raise DataError(
            f"criterion {criterion!r} needs a target of at least {smallest:g}, but {target!r} is "
            f"{y[row]:g} in row {row} (counting from 0; {int(below.sum())} such rows); drop or "
            "correct them, or choose another criterion"
        )


# ---------------------------------------------------------------- compilation cache
# Compiled components, cached for the process: a second training compiles nothing.
#
# Keys are the identity of the functions, the settings and the shape of the statistics, never
# only a name: plugins of the same name are distinguished, and so is a function before and
# after a change of a constant that it uses.

MOST_KEPT = 256
"""Number of compiled components cached by a process; the oldest is dropped first."""

_kept: dict[Any, Any] = {}


def origin_of(part: Part) -> Origin:
    """Return the origin of a component, as named in messages."""
    distribution = " ".join(part.origin[key] for key in ("distribution", "version")).strip()
    return Origin(part.origin["kind"], part.record.name, distribution)


def _keep(part: Part, shape: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    try:
        values = tuple((type(value), value) for value in part.settings.values())
        key = (origin_of(part), values, identity(_compiled_of(part.functions)), shape)
        kept = _kept.get(key)
    except (TypeError, ValueError):  # the key cannot be hashed, or a closure cell is not bound
        return make()
    if kept is None:
        if len(_kept) >= MOST_KEPT:
            del _kept[next(iter(_kept))]
        kept = _kept[key] = make()
    return kept


def _compiled_of(functions: Any) -> Any:
    """Return the functions without those that are called as Python."""
    if not isinstance(functions, CriterionFunctions):
        return functions
    return replace(functions, loss=None, leaf_value=None)


def criterion_pointers(
    part: Part,
    target: Target,
    *,
    known_only: bool = False,
    bounded: bool = False,
    nominal: bool = True,
) -> CompiledCriterion:
    """Compile the criterion for the target's statistics; see `compile_criterion`."""

    def make() -> CompiledCriterion:
        return compile_criterion(
            part.functions,
            target.size,
            target.dense,
            origin_of(part),
            known_only=known_only,
            blocks=target.blocks,
            bounded=bounded,
            nominal=nominal,
        )

    kept: CompiledCriterion = _keep(
        part, (target.size, target.dense, known_only, target.blocks, bounded, nominal), make
    )
    return replace(kept, functions=part.functions)


def splitter_pointer(part: Part, table: Table, target: Target) -> CompiledSplitter:
    """Compile the splitter for the table's code type."""

    def make() -> CompiledSplitter:
        rows = target.rows(np.empty(0, np.uint32), None)
        scratch = make_scratch(table, target, 1, 1)
        return compile_splitter(
            part.functions, table, rows, scratch, origin_of(part), target.quantile
        )

    levels = bool((table.nominal > 0).any())
    kept: CompiledSplitter = _keep(
        part, (table.codes.dtype.str, target.quantile is None, levels), make
    )
    return kept


def before_pointer(part: Part) -> Pointer:
    """Compile the pruner's ``before``."""
    kept: Pointer = _keep(
        part, ("before",), lambda: compile_before(part.functions.before, origin_of(part))
    )
    return kept
