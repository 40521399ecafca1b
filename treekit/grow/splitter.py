"""A splitter's ``find``, compiled into the pointer that `grow` calls."""

from __future__ import annotations

import warnings
from collections import namedtuple
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numba as nb
import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from treekit import splitting
from treekit.contracts import SplitterFunctions
from treekit.data.binning import Coding
from treekit.errors import SettingError, TreekitWarning
from treekit.grow import criterion as criteria
from treekit.grow.asking import shown
from treekit.grow.copies import fresh
from treekit.grow.fingerprint import fingerprint
from treekit.grow.identity import identity
from treekit.grow.plugins import Origin, current, numba_complaint, plain
from treekit.grow.proposed import (
    are_intervals,
    copied_node,
    frozen_node,
    is_sum,
    score_of,
    write_split,
)
from treekit.isolation import FOREIGN, cause
from treekit.kernels.compile import Finder
from treekit.kernels.function_pointers import Pointer
from treekit.kernels.quantile_statistics import summarise
from treekit.kernels.records import KIND, PLAIN, Node, Rows, Scratch, Table

__all__ = ["CompiledSplitter", "compile_splitter"]

CriterionView = namedtuple("CriterionView", ["score"])


@dataclass(frozen=True)
class CompiledSplitter:
    """The pointer to ``find``, how columns are coded for it, its options, its kinds of split."""

    find: Any
    coding: Coding
    origin: Origin
    options: tuple[float, ...] = ()
    intervals: bool = False
    sums: bool = False


def compile_splitter(
    functions: SplitterFunctions,
    table: Table,
    rows: Rows,
    scratch: Scratch,
    origin: Origin,
    quantile: float | None = None,
) -> CompiledSplitter:
    """Compile a splitter for the types of one training.

    Built-in kernels come from the disk cache; a plugin's ``find`` is compiled
    with its names, or called as Python with one warning.  `quantile` is that of
    the target.
    """
    node_type = nb.typeof(Node(table, rows, np.zeros(1), 1.0, 0.0, 0, 1.0, 1, PLAIN, quantile))
    signature = types.void(
        node_type,
        nb.typeof(scratch),
        types.FunctionType(criteria.SCAN),
        types.FunctionType(criteria.MANY),
        types.FunctionType(criteria.KEY),
        types.FunctionType(criteria.CHOOSE),
        types.FunctionType(criteria.PENALTY),
        types.int64, types.boolean, types.boolean, types.FunctionType(criteria.SCORE),
        nb.typeof(np.random.default_rng(0)),
        types.Array(types.int64, 1, "C"), types.Array(types.float64, 1, "C"),
    )  # fmt: skip
    if isinstance(functions.find, Finder):
        own = functions.find.kernel if quantile is None else functions.find.ranked
        if quantile is None and not (table.nominal > 0).any():
            own = functions.find.numbers or own
        if own is None:
            raise SettingError(
                f"{origin} adds statistics up, and the criterion looks at quantiles; choose "
                "splitter 'exact' or 'histogram'"
            )
        find = _own(own, signature)
        return CompiledSplitter(
            find, functions.coding, origin, functions.find.options, sums=functions.sums
        )
    core = plain(functions.find)
    try:
        find = _known_pointer(core, functions.sums, functions.intervals, signature)
    except Exception as error:  # noqa: BLE001 - numba has errors outside its own hierarchy
        warnings.warn(
            f"{origin} does not compile and runs as Python, slower: {numba_complaint(error)}",
            TreekitWarning,
            stacklevel=2,
        )
        find = Pointer(_python_find(core, functions, origin), signature)
    return CompiledSplitter(
        find, functions.coding, origin, intervals=functions.intervals, sums=functions.sums
    )


def _known_pointer(core: Any, sums: bool, intervals: bool, signature: Any) -> Pointer:
    """The pointer to a plugin's find; the same function is compiled once in a process."""
    try:
        own = identity(core)
        hash(own)
    except (TypeError, ValueError):  # its closure holds what cannot be told by value
        own = ("alone", object())
    return _plugin_pointer(own, _Same(core), sums, intervals, signature)


class _Same:
    """A function whose `identity` is a part of the key already."""

    def __init__(self, core: Any) -> None:
        self.core = core

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=64)
def _plugin_pointer(
    own: tuple[Any, ...], find: _Same, sums: bool, intervals: bool, signature: Any
) -> Pointer:
    del own  # the key
    _register_makers()
    call = _compiled_find(fresh(find.core), sums, intervals)
    return Pointer(call, signature, mark=fingerprint(call, sums, intervals))


def _own(find: Any, signature: Any) -> Pointer:
    """The pointer to a built-in kernel, from the disk cache."""
    plain: Any = getattr(find, "py_func", find)
    known = _POINTERS.get((plain, signature))
    if known is None:
        known = _POINTERS[plain, signature] = Pointer(plain, signature, cache=True)
    return known


_POINTERS: dict[Any, Pointer] = {}


def _compiled_find(core: Any, sums: bool, intervals: bool) -> Any:
    find = nb.njit(error_model="numpy", boundscheck=True)(core)
    write = nb.njit(error_model="numpy")(write_split)
    freeze = nb.njit(error_model="numpy")(frozen_node)

    def call(  # type: ignore[no-untyped-def]
        node,
        scratch,
        scan,
        many,
        key,
        choose,
        penalty,
        n_keys,
        use_choose,
        use_penalty,
        score,
        rng,
        out,
        numbers,
    ):
        split = find(freeze(node), CriterionView(score), rng)
        out[KIND] = 0
        if split is not None:
            write(split, node, sums, intervals, scratch.levels, out, numbers)

    return call


def _python_find(core: Any, functions: SplitterFunctions, origin: Origin) -> Any:
    kinds = functions.sums, functions.intervals

    def guarded(node: Any, levels: Any, out: Any, numbers: Any) -> None:
        if current.failures:
            return
        try:
            view = CriterionView(score_of(current.score))
            split = core(copied_node(node), view, current.rng)
            if split is None:
                return
            if not isinstance(split, splitting.Split):
                raise TypeError(f"find returned a {type(split).__name__}, not a Split or None")
            write_split(split, node, *kinds, levels, out, numbers)
        except FOREIGN as error:
            given = shown((node.stats.copy(),))
            current.failures.append(
                origin.error(f"raised {cause(error)} in find, at a node of {given}")
            )

    @nb.njit  # apart from the pointer, which releases the GIL
    def with_gil(node, levels, out, numbers):  # type: ignore[no-untyped-def]
        with nb.objmode():
            guarded(node, levels, out, numbers)

    def call(  # type: ignore[no-untyped-def]
        node,
        scratch,
        scan,
        many,
        key,
        choose,
        penalty,
        n_keys,
        use_choose,
        use_penalty,
        score,
        rng,
        out,
        numbers,
    ):
        out[KIND] = 0
        with_gil(node, scratch.levels, out, numbers)

    return call


@cache
def _register_makers() -> None:
    """Let the plain functions of `treekit.splitting` compile inside a plugin's find."""
    for name in splitting.__all__:
        if name not in ("Node", "Split"):
            register_jitable(boundscheck=True)(getattr(splitting, name))
    for helper in (*splitting.HELPERS, are_intervals, is_sum):
        register_jitable(boundscheck=True)(helper)

    @overload(splitting.summarise_ranks)
    def summarise_ranks(values, order, count, quantile, stats):  # type: ignore[no-untyped-def]
        def compiled(values, order, count, quantile, stats):  # type: ignore[no-untyped-def]
            summarise(values, order, 0, count, quantile, stats)

        return compiled
