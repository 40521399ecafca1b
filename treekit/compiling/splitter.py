"""Compile a splitter's ``find`` into the pointer that `grow_nodes` calls."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from treekit import splitting
from treekit.compiling.functions import (
    Origin,
    describe_place,
    format_statistics,
    get_python_function,
    make_read_only,
    parse_numba_error,
    thread_state,
    warn_of_python,
)
from treekit.compiling.identity import compute_fingerprint, copy_for_compilation
from treekit.contracts import SplitterFunctions
from treekit.data.binning import Coding
from treekit.errors import SettingError
from treekit.kernels.compile import SplitterKernel
from treekit.kernels.function_pointers import FunctionPointer, freeze_array
from treekit.kernels.library import copy_types, describe_function, describe_types
from treekit.kernels.quantile_statistics import summarise_rows
from treekit.kernels.records import (
    BAD_SCORE,
    BAD_SPLIT,
    PLAIN_RULES,
    SPLIT_DTYPE,
    Node,
    Rows,
    Scratch,
    Table,
)
from treekit.registry.isolation import FOREIGN_ERRORS, describe_error

# ---------------------------------------------------------------- splitter

CriterionView = namedtuple("CriterionView", ["score"])


@dataclass(frozen=True)
class CompiledSplitter:
    """A compiled splitter: its column coding, options and kinds of splits.

    `make_find` compiles the pointer to ``find``.
    """

    make_find: Callable[[], FunctionPointer]
    coding: Coding
    origin: Origin
    options: tuple[float, ...] = ()
    intervals: bool = False
    sums: bool = False
    uses_records: bool = False

    @cached_property
    def find(self) -> FunctionPointer:
        """The pointer to ``find``, compiled on first use: plain tables do not need it."""
        return self.make_find()


def compile_splitter(
    functions: SplitterFunctions,
    table: Table,
    rows: Rows,
    scratch: Scratch,
    origin: Origin,
    quantile: float | None = None,
) -> CompiledSplitter:
    """Compile a splitter for the types of one training.

    Built-in kernels come from the disk cache.  A plugin's ``find`` is compiled, or called
    as Python with one warning.  `quantile` is the quantile level of the target.
    """
    if isinstance(functions.find, SplitterKernel):
        find = functions.find
        own: Any = find.kernel if quantile is None else find.quantile_kernel
        if quantile is None and table.codes.dtype == np.uint8 and find.records_kernel is not None:
            own = find.records_kernel
        if own is None:
            raise SettingError(
                f"{origin} needs additive statistics, but the criterion uses quantiles; choose "
                "splitter 'exact' or 'histogram'"
            )
        return CompiledSplitter(
            partial(get_builtin_pointer, own, table, rows, scratch, quantile),
            functions.coding,
            origin,
            find.options,
            sums=functions.sums,
            uses_records=find.records_kernel is not None,
        )
    own = FunctionPointer(
        "find", lambda: _compile_find(functions, origin, table, rows, scratch, quantile)
    )
    return CompiledSplitter(
        lambda: own, functions.coding, origin, intervals=functions.intervals, sums=functions.sums
    )


def make_find_signature(
    table: Table, rows: Rows, scratch: Scratch, quantile: float | None = None
) -> Any:
    """Return numba's signature of ``find`` for the types of a training."""
    import numba as nb
    from numba import types

    from treekit.kernels.intrinsics import POINTERS_TYPE

    node = Node(table, rows, np.zeros(1), 1.0, 0.0, 0, 1.0, 1, PLAIN_RULES, quantile)
    return types.void(
        nb.typeof(node),
        nb.typeof(scratch),
        POINTERS_TYPE,
        nb.typeof(np.random.default_rng(0)),
        types.Array(nb.from_dtype(SPLIT_DTYPE), 1, "C"),
    )


_builtin_pointers: dict[str, FunctionPointer] = {}


def get_builtin_pointer(
    find: Any, table: Table, rows: Rows, scratch: Scratch, quantile: float | None = None
) -> FunctionPointer:
    """Return the pointer to a built-in kernel for the types of a training."""
    core = get_python_function(find)
    name = f"{describe_function(core)}:{describe_types((table, rows, scratch, quantile))}"
    if name not in _builtin_pointers:
        # Of the arrays only the types matter, and the pointer outlives them.
        kinds = copy_types((table, rows, scratch, quantile))
        _builtin_pointers[name] = FunctionPointer(
            "find",
            lambda: _compile_builtin_find(core, kinds),
            name,
            lambda: make_find_signature(*kinds),
        )
    return _builtin_pointers[name]


def _compile_builtin_find(core: Any, kinds: tuple[Any, ...]) -> Any:
    from treekit.kernels.intrinsics import CompiledPointer

    # Only kernels call it: unboxing its records for Python takes longer to compile than it.
    signature = make_find_signature(*kinds)
    return CompiledPointer(core, signature, cache=True, no_cpython_wrapper=True)


def _compile_find(functions: SplitterFunctions, origin: Origin, *kinds: Any) -> Any:
    """Compile the ``find`` of a plugin, or call it as Python with one warning."""
    from treekit.kernels.intrinsics import CompiledPointer

    core, signature = get_python_function(functions.find), make_find_signature(*kinds)
    try:
        _register_splitting_functions()
        options = functions.sums, functions.intervals
        call = _make_compiled_find(copy_for_compilation(core), *options)
        return CompiledPointer(call, signature, mark=compute_fingerprint(call, *options))
    except Exception as error:  # noqa: BLE001 - numba has errors outside its own hierarchy
        warn_of_python(origin, "find", core, parse_numba_error(error))
        return CompiledPointer(_make_python_find(core, functions, origin), signature)


def _make_compiled_find(core: Any, sums: bool, intervals: bool) -> Any:
    import numba as nb

    find = nb.njit(error_model="numpy", boundscheck=True)(core)
    write = nb.njit(error_model="numpy")(write_checked_split)
    freeze = nb.njit(error_model="numpy")(make_read_only_node)

    def call_find(node, scratch, criterion, rng, found):  # type: ignore[no-untyped-def]
        split = find(freeze(node), CriterionView(criterion.score), rng)
        found[0].kind = 0
        if split is not None:
            write(split, node, sums, intervals, scratch.levels, found[0])

    return call_find


def _make_python_find(core: Any, functions: SplitterFunctions, origin: Origin) -> Any:
    import numba as nb

    kinds = functions.sums, functions.intervals

    def call_guarded(node: Any, levels: Any, found: Any) -> None:
        if thread_state.failures:
            return
        try:
            view = CriterionView(make_score_function(thread_state.score))
            split = core(copy_node(node), view, thread_state.rng)
            if split is None:
                return
            if not isinstance(split, splitting.Split):
                raise TypeError(f"find returned a {type(split).__name__}, not a Split or None")
            write_checked_split(split, node, *kinds, levels, found[0])
        except FOREIGN_ERRORS as error:
            given = format_statistics((node.stats.copy(),))
            cause = f"raised {describe_error(error)} in find{describe_place(error, core)}"
            thread_state.failures.append(origin.make_error(f"{cause}, at a node of {given}"))

    @nb.njit  # a function of its own: the pointer's function releases the GIL
    def call_with_gil(node, levels, found):  # type: ignore[no-untyped-def]
        with nb.objmode():
            call_guarded(node, levels, found)

    def call_find(node, scratch, criterion, rng, found):  # type: ignore[no-untyped-def]
        found[0].kind = 0
        call_with_gil(node, scratch.levels, found)

    return call_find


@cache
def _register_splitting_functions() -> None:
    """Register the functions of `treekit.splitting` for compilation inside a plugin's find."""
    from numba.extending import overload, register_jitable

    for name in splitting.__all__:
        if name not in ("Node", "Split"):
            register_jitable(boundscheck=True)(getattr(splitting, name))
    for helper in (*splitting.HELPER_FUNCTIONS, are_valid_intervals, is_valid_sum):
        register_jitable(boundscheck=True)(helper)

    @overload(splitting.summarise_ranks)
    def summarise_ranks(values, order, count, quantile, stats):  # type: ignore[no-untyped-def]
        def summarise_compiled(values, order, count, quantile, stats):  # type: ignore[no-untyped-def]
            summarise_rows(values, order, 0, count, quantile, stats)

        return summarise_compiled


# ---------------------------------------------------------------- proposed splits
# Read-only nodes for splitter plugins, and validation of the splits that they return.
#
# The builder's arrays are shared with other nodes, trees and threads: a find can only
# read them, and its split is checked before it is written to them.


def is_valid_sum(split, table):  # type: ignore[no-untyped-def]
    """Check whether the terms of a plugin's oblique split are valid."""
    terms, bits = split.levels, split.levels.view(np.float32)
    if len(terms) < 2 or len(terms) % 2 or not abs(split.threshold) < np.inf:
        return False
    before = -1
    for j in range(0, len(terms), 2):
        weight = abs(bits[j + 1])
        if not before < terms[j] < len(table.n_codes) or not 0.0 < weight < np.inf:
            return False
        if table.nominal[terms[j]] > 0:
            return False
        before = terms[j]
    return True


def are_valid_intervals(split, table, room):  # type: ignore[no-untyped-def]
    """Check whether the cuts of a plugin's split on intervals are valid."""
    cuts, last = split.levels, np.int64(table.n_codes[split.feature]) - 2
    apart = split.branches - len(cuts) - 1
    if not 1 <= len(cuts) <= room or not 0 <= apart <= 1 or (apart == 1 and split.missing != 0):
        return False
    before = -1
    for j in range(len(cuts)):
        if not before < cuts[j] <= last:
            return False
        before = cuts[j]
    return table.nominal[split.feature] == 0


def write_checked_split(split, node, sums, intervals, levels, found):  # type: ignore[no-untyped-def]
    """Write a plugin's split where `grow_nodes` reads it, or mark it as invalid."""
    table = node.table
    found["kind"] = BAD_SPLIT  # numpy's records, in the interpreter, have no attributes
    if not 0 <= split.feature < len(table.n_codes) or not 1 <= split.kind <= 6:
        return
    if split.kind == 5 and not (sums and is_valid_sum(split, table)):
        return
    if split.kind == 6 and not (intervals and are_valid_intervals(split, table, len(levels))):
        return
    n_codes = np.int64(table.n_codes[split.feature])
    nominal = table.nominal[split.feature] > 0
    by_level = split.kind in (2, 3)
    if split.branches < 2 or not -1 <= split.missing < split.branches:
        return
    if split.kind not in (3, 6) and split.branches != 2:
        return
    if by_level and split.branches > n_codes + 1:  # one branch may be for missing values only
        return
    if split.kind == 1 and (nominal or not 0 <= split.cut < n_codes - 1):
        return
    if split.kind == 1 and not math.isnan(split.threshold):
        at = table.value_start[split.feature] + split.cut
        if not table.high[at] <= split.threshold < table.low[at + 1]:
            return
    if by_level and (not nominal or len(split.levels) != n_codes):
        return
    owned = len(split.levels) if by_level or split.kind >= 5 else 0
    for level in range(owned):
        branch = split.levels[level]
        if by_level and not -1 <= branch < split.branches:
            return
        levels[level] = branch
    found["kind"], found["feature"] = split.kind, split.feature
    found["cut"], found["after"] = split.cut, split.cut + 1
    found["missing"], found["branches"] = split.missing, split.branches
    found["levels"], found["score"] = owned, split.score
    found["threshold"] = np.nan if split.kind == 6 else split.threshold
    if split.missing < 0:
        children = splitting.branch_stats(node, split)
        heaviest, most = 0, -1.0
        for b in range(split.branches):
            weight = children[b, 0] if len(node.rows.cells) == 0 else children[b].sum()
            if weight > most:
                heaviest, most = b, weight
        found["missing"] = heaviest
    if not abs(split.score) < np.inf:
        found["kind"] = BAD_SCORE


def make_read_only_node(node):  # type: ignore[no-untyped-def]
    """Return a read-only view of a node for a compiled find: its arrays are shared."""
    table, rows = node.table, node.rows
    return Node(
        Table(
            freeze_array(table.codes), freeze_array(table.n_codes), freeze_array(table.nominal),
            freeze_array(table.value_start), freeze_array(table.low), freeze_array(table.high),
        ),
        Rows(freeze_array(rows.ids), freeze_array(rows.cells), freeze_array(rows.values)),
        freeze_array(node.stats), node.weight, node.impurity, node.depth, node.min_weight_leaf,
        node.n_try, node.rules, node.quantile,
    )  # fmt: skip


def copy_node(node: Node) -> Node:
    """Copy a node for a `find` that runs in the interpreter and may keep references to it."""
    ids, cells, values = node.rows
    rows, stats = Rows(ids.copy(), cells.copy(), values.copy()), node.stats.copy()
    copy: Node = make_read_only(node._replace(table=thread_state.table, rows=rows, stats=stats))
    return copy


def make_score_function(pointer: Any) -> Any:
    """Return a score function for a `find` in the interpreter, which may pass any array type."""

    def compute_score(parent: Any, children: Any) -> float:
        given = [np.array(stats, dtype=np.float64) for stats in (parent, children)]
        return float(pointer(*map(make_read_only, given)))

    return compute_score
