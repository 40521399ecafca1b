"""A splitter's ``find``, compiled into the pointer that `grow` calls."""

from __future__ import annotations

import math
import warnings
from collections import namedtuple
from dataclasses import dataclass
from functools import cache
from typing import Any

import numba as nb
import numpy as np
from numba import types
from numba.core.errors import NumbaError
from numba.extending import register_jitable

from treekit import splitting
from treekit.contracts import SplitterFunctions
from treekit.data.matrix import Coding
from treekit.errors import TreekitWarning
from treekit.grow import criterion as criteria
from treekit.grow.plugins import Origin, numba_complaint
from treekit.kernels.axis import find_axis
from treekit.kernels.node import Limits, Node, Rows, Scratch, Table
from treekit.kernels.pointers import Pointer

__all__ = ["CompiledSplitter", "compile_splitter"]

CriterionView = namedtuple("CriterionView", ["score"])


@dataclass(frozen=True)
class CompiledSplitter:
    """The pointer to ``find`` and how columns are coded for it."""

    find: Any
    coding: Coding
    origin: Origin


def compile_splitter(
    functions: SplitterFunctions, table: Table, rows: Rows, scratch: Scratch, origin: Origin
) -> CompiledSplitter:
    """Compile a splitter for the types of one training.

    `find_axis`, the built-in one, comes from the disk cache; a plugin's
    ``find`` is compiled with its names, or called as Python with one warning.
    """
    node_type = nb.typeof(
        Node(table, rows, np.zeros(1), 1.0, 0.0, 0, 1.0, 1, scratch)
    )
    signature = types.void(
        node_type,
        *(types.FunctionType(s) for s in (
            criteria.SCAN, criteria.MANY, criteria.KEY, criteria.CHOOSE,
        )),
        types.int64, types.boolean, types.FunctionType(criteria.SCORE),
        nb.typeof(np.random.default_rng(0)),
        types.Array(types.int64, 1, "C"), types.Array(types.float64, 1, "C"),
    )  # fmt: skip
    if functions.find is find_axis:
        return CompiledSplitter(_cached_pointer(signature), functions.coding, origin)
    _register_makers()
    core = getattr(functions.find, "py_func", functions.find)
    try:
        find = Pointer(_compiled_find(core), signature)
    except NumbaError as error:
        warnings.warn(
            f"{origin} does not compile and runs as Python, slower: {numba_complaint(error)}",
            TreekitWarning,
            stacklevel=2,
        )
        find = Pointer(_python_find(core, origin), signature)
    return CompiledSplitter(find, functions.coding, origin)


def _cached_pointer(signature: Any) -> Pointer:
    known = _POINTERS.get(signature)
    if known is None:
        known = _POINTERS[signature] = Pointer(find_axis.py_func, signature, cache=True)
    return known


_POINTERS: dict[Any, Pointer] = {}


def _write(split, node, out, numbers):  # type: ignore[no-untyped-def]
    """Put a plugin's split where `grow` reads it; -3 marks an impossible one."""
    out[0] = split.kind
    out[1] = split.feature
    out[2] = split.cut
    out[3] = split.missing
    out[4] = split.branches
    out[5] = len(split.levels)
    out[6] = split.cut + 1
    numbers[0] = split.threshold
    numbers[1] = split.score
    table = node.table
    if not 0 <= split.feature < len(table.n_codes):
        out[0] = -3
        return
    n_codes = np.int64(table.n_codes[split.feature])
    nominal = table.nominal[split.feature] > 0
    if split.branches < 2 or not 0 <= split.missing < split.branches:
        out[0] = -3
    elif split.kind == 1 and (nominal or not 0 <= split.cut < n_codes - 1):
        out[0] = -3
    elif split.kind == 1 and not math.isnan(split.threshold):
        at = table.value_start[split.feature] + split.cut
        if not table.high[at] <= split.threshold < table.low[at + 1]:
            out[0] = -3
    elif split.kind in (2, 3):
        if not nominal or len(split.levels) != n_codes:
            out[0] = -3
        else:
            for level in range(n_codes):
                branch = split.levels[level]
                if not -1 <= branch < split.branches:
                    out[0] = -3
                node.scratch.best_levels[level] = branch
    elif split.kind not in (1, 2, 3, 4):
        out[0] = -3
    if math.isnan(split.score):
        out[0] = -1


def _compiled_find(core: Any) -> Any:
    find = nb.njit(error_model="numpy")(core)
    write = nb.njit(error_model="numpy")(_write)

    def call(  # type: ignore[no-untyped-def]
        node, scan, many, key, choose, n_keys, use_choose, score, rng, out, numbers
    ):
        split = find(node, CriterionView(score), rng)
        out[0] = 0
        if split is not None:
            write(split, node, out, numbers)

    return call


def _python_find(core: Any, origin: Origin) -> Any:
    def guarded(node: Any, score: Any, rng: Any, out: Any, numbers: Any) -> None:
        if origin.failures:
            return
        try:
            split = core(node, CriterionView(score), rng)
            if split is not None:
                _write(split, node, out, numbers)
        except Exception as error:  # a plugin may raise anything; the host reports it
            origin.failures.append(error)

    def call(  # type: ignore[no-untyped-def]
        node, scan, many, key, choose, n_keys, use_choose, score, rng, out, numbers
    ):
        out[0] = 0
        with nb.objmode():
            guarded(node, score, rng, out, numbers)

    return call


@cache
def _register_makers() -> None:
    """Let the plain functions of `treekit.splitting` compile inside a plugin's find."""
    makers = [getattr(splitting, name) for name in splitting.__all__ if name != "Split"]
    for maker in [*makers, splitting._stats_between]:
        register_jitable(maker)
