"""What all trees of one training have in common: coded columns, compiled parts, limits."""

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
    """Code the table, and the validation table, and compile the plan's parts for them."""
    schema, settings = dataset.schema, plan.settings
    if plan.splitter.functions.sums and schema.dtype != "float32":
        raise SettingError(
            f"splitter {plan.splitter.record.name!r} adds up columns, exactly in float32 models "
            f"alone, and the model's input type is {schema.dtype}: train with dtype='float32' "
            "(--dtype float32)"
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
    """The table in the codes that the splitter asks for, or in keys where these will do.

    `alone`: every tree has all rows, and there are no others.  Samples, held-out
    rows, surrogates, and parts of rows look up what a rank among a column's
    values says; keys have none.
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
    """What bins count: rows as they are, but none that adds to no statistics.

    Class factors would change bins, and with them the order that bootstrap samples draw by.
    """
    if dataset.factors is None or (dataset.factors > 0).all():
        return dataset.weights
    counted = (dataset.factors > 0).astype(np.float64)
    return counted if dataset.weights is None else np.asarray(dataset.weights * counted)


def _refuse_for_ranks(plan: Plan) -> None:
    """Refuse settings that need statistics which add up, by name."""
    for name, plain in (
        ("missing", "direction"), ("resolution", 0.0), ("nominal_splits", "subset"),
    ):  # fmt: skip
        wanted = plan.settings[name]
        if wanted in ("fractional", "one_vs_rest") or (name == "resolution" and wanted != plain):
            raise SettingError(
                f"{name}={wanted!r} needs a criterion whose statistics add up, and criterion "
                f"{plan.criterion.record.name!r} looks at quantiles; set {name}={plain!r}, or "
                "choose another criterion"
            )


def _limits(plan: Plan, *, rounded: bool) -> Limits:
    """The stopping rules; parts of rows, and class factors, meet them up to their rounding."""
    settings = plan.settings
    nearly = 1.0 - 1e-6 if rounded else 1.0
    bound = -1.0 if settings["min_impurity"] is None else float(settings["min_impurity"])
    own = plan.criterion.functions.impurity is not None
    numbers = isinstance(plan.criterion.functions.statistics, Sums)
    varies = numbers and plan.criterion.record.task == "regression"
    if not own and bound >= 0 and not varies:
        raise SettingError(
            f"min_impurity is {bound:g}, but criterion {plan.criterion.record.name!r} measures no "
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
# The dataset's target as the statistics that the criterion asks for.


def criterion_target(dataset: Dataset, criterion: Part, drawn: bool) -> Target:
    """Statistics of each row.

    Parameters
    ----------
    drawn : bool
        Rows will be drawn in proportion to their weight (a bootstrap), not weighted by it.

    Raises
    ------
    DataError
        For numbers that the criterion is not defined for, or whose squares leave float64.
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
            f"{y[row]:g} in row {row} (counting from 0; {int(below.sum())} such rows): drop or "
            "correct them, or choose another criterion"
        )


# ---------------------------------------------------------------- compiled
# Compiled parts, kept for the process: the second training compiles nothing.
#
# Keyed by what the functions compile to, by settings and the shape of the statistics, never
# by name alone: two plugins of one name stay apart, and so do a function before and after a
# constant that it names was changed.

MOST_KEPT = 256
"""Compiled parts that a process keeps; the oldest goes first."""

_kept: dict[Any, Any] = {}


def origin_of(part: Part) -> Origin:
    """Who a part comes from, as messages name it."""
    distribution = " ".join(part.origin[key] for key in ("distribution", "version")).strip()
    return Origin(part.origin["kind"], part.record.name, distribution)


def _keep(part: Part, shape: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    try:
        values = tuple((type(value), value) for value in part.settings.values())
        key = (origin_of(part), values, identity(_compiled_of(part.functions)), shape)
        kept = _kept.get(key)
    except (TypeError, ValueError):  # something in it cannot be hashed, or is not yet bound
        return make()
    if kept is None:
        if len(_kept) >= MOST_KEPT:
            del _kept[next(iter(_kept))]
        kept = _kept[key] = make()
    return kept


def _compiled_of(functions: Any) -> Any:
    """The functions without those that are called as Python."""
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
    """The criterion, compiled for the target's statistics; see `compile_criterion`."""

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
    """The splitter, compiled for the table's code type."""

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
    """The pruner's ``before``, compiled."""
    kept: Pointer = _keep(
        part, ("before",), lambda: compile_before(part.functions.before, origin_of(part))
    )
    return kept
