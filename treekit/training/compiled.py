"""Compiled parts, kept for the process: the second training compiles nothing.

Keyed by what the functions compile to, by settings and the shape of the statistics, never
by name alone: two plugins of one name stay apart, and so do a function before and after a
constant that it names was changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from treekit.contracts import CriterionFunctions
from treekit.grow.compile_criterion import CompiledCriterion, compile_before, compile_criterion
from treekit.grow.compile_plugin import Origin
from treekit.grow.compile_splitter import CompiledSplitter, compile_splitter
from treekit.grow.function_identity import identity
from treekit.grow.target_statistics import Target
from treekit.grow.tree_builder import make_scratch
from treekit.kernels.function_pointers import Pointer
from treekit.kernels.records import Table
from treekit.training.part import Part

__all__ = ["before_pointer", "criterion_pointers", "origin_of", "splitter_pointer"]

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
