"""Compile a criterion's functions into the pointers that the kernels call.

The user writes a scalar function of one node or one split.  It is wrapped in the loop
over a batch of cuts, so that one pointer call scores those of several columns of a node.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.compiling.functions import Origin, compile_function, get_python_function
from treekit.compiling.identity import compute_fingerprint, copy_for_compilation
from treekit.contracts import MAX_COUNT, CriterionExtras, CriterionFunctions, Ranks
from treekit.errors import PluginError
from treekit.kernels.axis_splits import score_on_first_component
from treekit.kernels.compile import LinkedFunction, jitted
from treekit.kernels.function_pointers import (
    FunctionPointer,
    allocate_stack_cells,
    allocate_stack_matrix,
    freeze_array,
    load_cell,
    store_cell,
)  # fmt: skip
from treekit.kernels.library import describe_functions
from treekit.kernels.records import TOLERANCE, CriterionPointers, is_finite

# ---------------------------------------------------------------- criterion

N_COMPONENTS = 2
"""Category orders tried besides one by each class's share; see
`treekit.compiling.criterion.order_by_share`.
"""

MAX_STACK_CELLS = 64
"""Largest number of cells kept on the stack: compile time is quadratic in them."""


MAX_OWN_CELLS = 10
"""Largest number of classes for which a built-in score has machine code of its own."""


MIN_TERM_CELLS = 5
"""Smallest number of classes for which `term` replaces `score`.

With fewer classes `score` is faster in histogram searches, and up to a quarter slower in exact
ones (measured).
"""


@dataclass(frozen=True)
class CompiledCriterion:
    """A compiled criterion: its pointers, and the functions that they were compiled from."""

    pointers: CriterionPointers
    origin: Origin
    functions: CriterionFunctions


def compile_criterion(
    functions: CriterionFunctions,
    cells: int,
    dense: bool,
    origin: Origin,
    *,
    known_only: bool = False,
    blocks: TargetBlocks | None = None,
    nominal: bool = True,
) -> CompiledCriterion:
    """Compile a criterion for node statistics of `cells` cells.

    Parameters
    ----------
    functions : CriterionFunctions
        Valid, see `treekit.registry.kinds.check_functions`.
    cells : int
        S, the length of a node's statistics.
    dense : bool
        Whether cell 0 is the weight (regression); otherwise the weight is the sum of cells.
    origin : Origin
        Named in errors and warnings.
    known_only : bool
        Score splits by the rows whose value is known; rows with a missing value may be
        in no branch.  See `CriterionFunctions`.
    blocks : TargetBlocks, optional
        Layout of the (`dense`) statistics of several targets.  The criterion is called
        with the statistics of one target at a time, and its results are averaged.
    nominal : bool
        Whether there are nominal columns; without them additive statistics need no `key`.
    """
    code = _CriterionCode(functions, cells, dense, origin, known_only, blocks)
    if origin.is_foreign:  # so that a plugin's warnings come in this order
        _ = functions.impurity and code.impurity, code.score
    ranked = isinstance(functions.statistics, Ranks)
    ordered = dense or functions.order is not None or cells <= 2
    attempts = 1 if ordered else cells + N_COMPONENTS
    if blocks is not None:
        attempts = cells - 1 if functions.order is None else blocks.n_targets
    pointers = CriterionPointers(
        score_cuts=code.make_pointer("cuts", code.compile_cuts, code.own_cells, ranked),
        branch_score=code.make_pointer(
            "branch_score", lambda: _make_branch_score(code.branches, code.final)
        ),
        category_keys=_make_keys_pointer(functions, dense, origin, blocks)
        if nominal or ranked
        else get_default_pointer(leave_keys_unset, "keys"),
        choose=_make_choice_pointer(functions.extras, origin),
        penalty=_make_penalty_pointer(functions.extras, origin),
        n_category_orders=attempts,
        use_choose=functions.extras.choose is not None,
        use_penalty=functions.extras.penalty is not None,
        score=code.make_pointer("score", lambda: _make_split_score(code.whole)),
        impurity=_make_value_pointer(functions.impurity, blocks, origin, lambda: code.impurity),
        priority=_make_priority_pointer(functions, origin, blocks),
        use_priority=functions.priority is not None,
        row_scan=_make_row_scan_pointer(functions, cells, dense, origin),
        use_terms=functions.extras.term is not None and not dense and cells >= MIN_TERM_CELLS,
    )
    return CompiledCriterion(pointers, origin, functions)


class _CriterionCode:
    """The compiled parts of a criterion, made when a pointer to one is not in the library."""

    def __init__(
        self,
        functions: CriterionFunctions,
        cells: int,
        dense: bool,
        origin: Origin,
        known_only: bool,
        blocks: TargetBlocks | None,
    ) -> None:
        self.functions, self.origin, self.blocks = functions, origin, blocks
        self.dense = dense
        self.own_cells = cells if origin.is_foreign or cells <= MAX_OWN_CELLS else None
        self.ranked = isinstance(functions.statistics, Ranks)
        # Ranks do not add up: the kernel computes them from the rows.
        self.known_only = known_only and not self.ranked
        chooses = functions.extras.choose is not None
        self.names = _name_parts(
            origin,
            functions.score,
            functions.impurity if functions.score is None or chooses else None,
            blocks and (blocks.ends, blocks.classes),
            dense if functions.score is None or chooses or self.known_only else None,
            self.known_only,
            chooses,
        )

    def make_pointer(self, kind: str, make: Callable[[], Any], *parts: Any) -> FunctionPointer:
        """Return the pointer to a closure over the score; `make` returns it, or its pointer."""
        name = self.names and f"{kind}:{self.names}:{parts}"
        return FunctionPointer(kind, lambda: _compile_closure(kind, make()), name)

    @cached_property
    def impurity(self) -> Any:
        """The impurity, averaged over targets."""
        made = compile_function(
            self.functions.impurity, (_frozen_cells(),), self.origin, "impurity"
        )
        return _average_blocks(made, self.blocks, _make_block_impurity)

    @cached_property
    def score(self) -> Any:
        """The criterion's own score, or None."""
        if self.functions.score is None:
            return None
        kinds = _frozen_cells(), _frozen_matrix()
        made = compile_function(self.functions.score, kinds, self.origin, "score")
        return _average_blocks(made, self.blocks, _make_block_score)

    @cached_property
    def gain(self) -> Any:
        """The decrease of the impurity, or None."""
        return None if self.functions.impurity is None else _make_gain(self.impurity, self.dense)

    @cached_property
    def rank(self) -> Any:
        """The score by which the splits of a column are compared."""
        return self.gain if self.functions.extras.choose is not None else self._score

    @property
    def _score(self) -> Any:
        return self.score if self.score is not None else self.gain

    @cached_property
    def branches(self) -> Any:
        """`rank`, of the rows with a known value."""
        return _restrict_to_known(self.rank, self.dense) if self.known_only else self.rank

    @cached_property
    def final(self) -> Any:
        """The score of a column's best split."""
        if self.known_only and self.functions.extras.choose is None:
            return self.branches
        return self._score

    @cached_property
    def whole(self) -> Any:
        """The score of all branches together, as splitter plugins call it."""
        if not self.known_only:
            return self.final
        if self.functions.extras.choose is None:
            return self.branches
        return _restrict_to_known(self._score, self.dense)

    def compile_cuts(self) -> Any:
        """Compile the loop that scores a batch of cuts."""
        extras = self.functions.extras
        is_score = self.score is not None and extras.choose is None and self.blocks is None
        plain = self.functions.score if self.origin.is_foreign and is_score else None
        count_score = None
        if extras.count_score is not None and is_score and not self.dense:
            kinds = _frozen_cells(), _frozen_matrix()
            count_score = compile_function(extras.count_score, kinds, self.origin, "count_score")
        return _compile_cuts(self.rank, plain, count_score, self.own_cells, two_sided=self.ranked)


def _frozen_cells() -> Any:
    from treekit.kernels.intrinsics import FROZEN_CELLS

    return FROZEN_CELLS


def _frozen_matrix() -> Any:
    from treekit.kernels.intrinsics import FROZEN_MATRIX

    return FROZEN_MATRIX


def _name_parts(origin: Origin, *parts: Any) -> str | None:
    """Return a name of built-in functions and plain values; None for those of a plugin."""
    return None if origin.is_foreign else describe_functions(*parts)


def _compile_closure(kind: str, function: Any, **options: Any) -> Any:
    """Compile a closure over a criterion's functions, cached on disk if possible."""
    from treekit.kernels.intrinsics import SIGNATURES, CompiledPointer

    if isinstance(function, CompiledPointer):
        return function
    return CompiledPointer(
        function, SIGNATURES[kind], mark=compute_fingerprint(function), **options
    )


def _make_gain(impurity: Any, dense: bool) -> Any:
    """Return the impurity decrease as a score function (Breiman et al. 1984, section 2.4)."""

    @LinkedFunction
    def compute_gain(parent, children):  # type: ignore[no-untyped-def]
        weight = parent[0] if dense else parent.sum()
        left = 0.0
        for b in range(children.shape[0]):
            share = children[b, 0]
            if not dense:
                for k in range(1, children.shape[1]):
                    share += children[b, k]
            if share > 0.0:
                left += share * impurity(children[b])
        return impurity(parent) - left / weight

    return compute_gain


def _restrict_to_known(rank: Any, dense: bool) -> Any:
    """Return a score of the rows with a known value, times their share of the node's weight."""

    @LinkedFunction
    def score_known_rows(parent, children):  # type: ignore[no-untyped-def]
        known = np.zeros(len(parent))
        for b in range(children.shape[0]):
            for k in range(len(parent)):
                known[k] += children[b, k]
        share = known[0] / parent[0] if dense else known.sum() / parent.sum()
        return share * rank(freeze_array(known), children)

    return score_known_rows


def _choose_allocators(cells: int) -> tuple[Any, Any]:
    """Return the functions that allocate an array of cells, and one of rows of cells."""
    if cells <= MAX_STACK_CELLS:
        return allocate_stack_cells, allocate_stack_matrix
    return _allocate_cells, _allocate_matrix


def _make_allocation(cells: int | None) -> Any:
    """Return a function that allocates the statistics of two branches, and of their node."""
    if cells is None:

        def allocate(size):  # type: ignore[no-untyped-def]
            return np.empty((2, size)), np.empty(size)

    else:
        new_cells, new_matrix = _choose_allocators(cells)

        def allocate(size):  # type: ignore[no-untyped-def]
            return new_matrix(2, cells), new_cells(cells)

    return _njit(allocate, inline="always")


@jitted
def _allocate_matrix(rows, columns):  # type: ignore[no-untyped-def]
    return np.empty((rows, columns))


@jitted
def _allocate_cells(cells):  # type: ignore[no-untyped-def]
    return np.empty(cells)


def _njit(function: Callable[..., Any], **options: Any) -> Any:
    from numba import njit

    return njit(error_model="numpy", **options)(function)


def _compile_cuts(
    rank: Any,
    plain: Callable[..., float] | None,
    count_score: Any,
    cells: int | None,
    *,
    two_sided: bool,
) -> Any:
    """Compile the loop that scores a batch of cuts.

    A linked function has been optimised without the number of cells: LLVM cannot compute one with
    loops and conditions, such as the Hellinger distance, in vectors.  Inlined, the function of a
    plugin takes up to an eighth of the time (measured).

    Parameters
    ----------
    rank : callable
        Compiled score.
    plain : callable, optional
        The score as Python, if it may be inlined.
    count_score : callable, optional
        Compiled; for sums that are counts.
    cells : int or None
        S, the length of a node's statistics; None: the code is for any number.
    two_sided : bool
        Whether the sums are those of both sides.
    """
    from treekit.kernels import numba_compiler

    def compile_loop(loop: Any, **options: Any) -> Any:
        if count_score is not None:
            loop = _make_count_scores(count_score, loop, cells)
        return _compile_closure("cuts", loop, **options)

    if plain is not None and isinstance(rank, numba_compiler.LinkedFunction):
        loop = _make_inlined_scores(plain, cells, two_sided=two_sided)
        # What numba compiles alone, it may not inline: generators, some closures.
        with contextlib.suppress(Exception):
            return compile_loop(loop, boundscheck=True)
    return compile_loop(_make_cut_scores(rank, cells, two_sided=two_sided))


def _make_count_scores(count_score: Any, score: Any, cells: int | None) -> Any:
    """Return the loop that scores a batch of cuts by `count_score` if all sums are counts.

    Parameters
    ----------
    count_score : callable
        Compiled `CriterionExtras.count_score`.
    score : callable
        The loop for other sums.
    cells : int or None
        As in `_compile_cuts`.
    """
    counts = _make_cut_scores(count_score, cells, two_sided=False)
    score_counts, score_others = (_njit(loop, inline="always") for loop in (counts, score))
    limit = float(MAX_COUNT)

    def score_cuts(sums, n, totals, scores):  # type: ignore[no-untyped-def]
        weight, others = 0.0, False
        for k in range(np.uint64(len(totals))):
            weight += totals[k]
            others |= totals[k] != np.floor(totals[k])
        others |= weight > limit
        if not others:
            for k in range(np.uint64(len(totals))):
                total = totals[k]
                for j in range(np.uint64(n)):
                    left = load_cell(sums, k, j)
                    others |= (left != np.floor(left)) | (left < 0.0) | (left > total)
        if others:
            score_others(sums, n, totals, scores)
        else:
            score_counts(sums, n, totals, scores)

    return score_cuts


def uses_vectors(score: Callable[..., float], rank: Any, cells: int) -> bool:
    """Return whether LLVM scores cuts by a plugin's function in vectors.

    Parameters
    ----------
    score : callable
        The score as Python.
    rank : callable
        The same, compiled.
    cells : int
        S, the length of a node's statistics.
    """
    from treekit.kernels.intrinsics import CUTS_SIGNATURE, CompiledPointer

    loops: tuple[tuple[Any, dict[str, Any]], ...] = (
        (_make_inlined_scores(score, cells, two_sided=False), {"boundscheck": True}),
        (_make_cut_scores(rank, cells, two_sided=False), {}),
    )
    for loop, options in loops:
        with contextlib.suppress(Exception):  # as for training
            made = CompiledPointer(loop, CUTS_SIGNATURE, **options)  # cached code has no source
            code = "".join(made.inspect_llvm().values())
            vectors = re.search(r"\bf(?:add|sub|mul|div)\b[^\n]*<\d+ x double>", code)
            return vectors is not None and "NRT_MemInfo_alloc" not in code  # of array expressions
    return False


def _make_inlined_scores(score: Callable[..., float], cells: int | None, *, two_sided: bool) -> Any:
    from numba import njit

    core = copy_for_compilation(get_python_function(score))
    inlined = njit(error_model="numpy", inline="always")(core)
    return _make_cut_scores(inlined, cells, two_sided=two_sided)


def _make_cut_scores(rank: Any, cells: int | None, *, two_sided: bool) -> Any:
    """Return the loop that scores a batch of cuts.

    ``score_cuts(sums, n, totals, scores)``: `sums` (S, cuts) are the statistics of the left side
    of each cut, and if `two_sided`, (2 * S, cuts), those of both sides; `totals` (S,) is their
    sum; `scores` receives n numbers.  `cells` is S, or None for code for any number.
    """
    allocate = _make_allocation(cells)

    def score_cuts(sums, n, totals, scores):  # type: ignore[no-untyped-def]
        children, own = allocate(len(totals))
        view, parent = freeze_array(children), freeze_array(own)
        zero, one, size = np.uint64(0), np.uint64(1), np.uint64(len(own))
        for k in range(size):
            own[k] = totals[k]
        for j in range(np.uint64(n)):
            for k in range(size):
                left = load_cell(sums, k, j)
                children[zero, k] = left
                if two_sided:
                    children[one, k] = load_cell(sums, k + size, j)
                else:
                    children[one, k] = own[k] - left
            store_cell(scores, j, 1.0 * rank(parent, view))

    return score_cuts


def _make_row_scan_pointer(
    functions: CriterionFunctions, cells: int, dense: bool, origin: Origin
) -> FunctionPointer:
    extras = functions.extras
    if extras.term is None or dense or cells < MIN_TERM_CELLS:
        return get_default_pointer(return_no_cut, "row_scan")
    if extras.term_score is None or functions.score is None:
        raise PluginError(f"{origin} defines term, which requires score and term_score")

    def compile_scan() -> Any:
        from numba import types

        term = compile_function(extras.term, (types.float64,), origin, "term")
        kinds = _frozen_cells(), _frozen_matrix()
        score = compile_function(extras.term_score, kinds, origin, "term_score")
        return _compile_closure("row_scan", _make_row_scan(term, score, extras.tolerance))

    name = _name_parts(origin, extras.term, extras.term_score, extras.tolerance)
    return FunctionPointer("row_scan", compile_scan, name and f"row_scan:{name}")


def _make_row_scan(term: Any, score: Any, tolerance: float) -> Any:
    """Return the loop over the cuts of one column at one node, row by row.

    ``scan(order, codes, cells, values, last, start, totals, limit, impurity, best)``: `order`
    are positions of rows in ascending order of their `codes`; `cells` and `values` are their
    classes and weights, by position; `start` is on the left before the first cut.  The result
    is the position in `order` of the last row on the left of the best cut, below `last`, or
    negative as for `treekit.kernels.cut_batches.scan_cuts`; `best` receives score and left weight.

    A row changes one class on either side: its terms before are subtracted, those after
    added.  Sums of integers are exact, and the scores those of `score_cuts`, bit for bit.

    Cost: a few operations per row, for any number of classes.
    """

    def scan_rows(  # type: ignore[no-untyped-def]
        order, codes, cells, values, last, start, totals, limit, impurity, best
    ):
        sides, whole = allocate_stack_matrix(2, 2), allocate_stack_cells(2)
        view, parent = freeze_array(sides), freeze_array(whole)
        zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
        weight, left_weight, left, right, all_terms = 0.0, 0.0, 0.0, 0.0, 0.0
        for k in range(np.uint64(len(totals))):
            own = start[k]
            best[k + two] = own
            weight += totals[k]
            left_weight += own
            left += term(own)
            right += term(totals[k] - own)
            all_terms += term(totals[k])
        whole[zero], whole[one] = weight, all_terms
        best_at = np.int64(-1)
        best_score, bar, best_left = -np.inf, -np.inf, 0.0
        position = np.uint64(order[zero])
        code = codes[position]
        for i in range(np.uint64(last)):
            cell, own = np.uint64(cells[position]), values[position, zero]
            before = best[cell + two]
            after = before + own
            best[cell + two] = after
            left += term(after) - term(before)
            right += term(totals[cell] - after) - term(totals[cell] - before)
            left_weight += own
            following = i + one
            if following < np.uint64(len(order)):
                position = np.uint64(order[following])
                previous, code = code, codes[position]
                if code == previous:
                    continue
            if left_weight < limit or weight - left_weight < limit:  # sums are exact
                continue
            sides[zero, zero], sides[zero, one] = left_weight, left
            sides[one, zero], sides[one, one] = weight - left_weight, right
            value = 1.0 * score(parent, view)
            if value > bar and value < np.inf:
                best_score, best_at, best_left = value, np.int64(i), left_weight
                bar = value + max(TOLERANCE * max(abs(value), impurity), tolerance)
            elif not is_finite(value):
                best_at, best_left = np.int64(-2), left_weight
                break
        best[zero] = best_score
        best[one] = best_left
        return best_at

    return scan_rows


def _make_branch_score(rank: Any, final: Any) -> Any:
    def score_branches(parent, children, which):  # type: ignore[no-untyped-def]
        if which == 0:
            return 1.0 * rank(freeze_array(parent), freeze_array(children))
        return 1.0 * final(freeze_array(parent), freeze_array(children))

    return score_branches


def _make_split_score(final: Any) -> Any:
    def score_split(parent, children):  # type: ignore[no-untyped-def]
        return 1.0 * final(parent, children)

    return score_split


def _make_value_pointer(
    function: Any, blocks: TargetBlocks | None, origin: Origin, compile_part: Callable[[], Any]
) -> FunctionPointer:
    if function is None:
        return get_default_pointer(return_zero_value, "value")

    def compile_value() -> Any:
        value = compile_part()

        def compute_value(stats):  # type: ignore[no-untyped-def]
            return 1.0 * value(freeze_array(stats))

        return _compile_closure("value", compute_value)

    name = _name_parts(origin, function, blocks and (blocks.ends, blocks.classes))
    return FunctionPointer("value", compile_value, name and f"value:{name}")


def _make_priority_pointer(
    functions: CriterionFunctions, origin: Origin, blocks: TargetBlocks | None
) -> FunctionPointer:
    def compile_priority() -> Any:
        made = compile_function(functions.priority, (_frozen_cells(),), origin, "priority")
        return _average_blocks(made, blocks, _make_block_impurity)

    return _make_value_pointer(functions.priority, blocks, origin, compile_priority)


def _make_keys_pointer(
    functions: CriterionFunctions, dense: bool, origin: Origin, blocks: TargetBlocks | None
) -> FunctionPointer:
    """Return the pointer to the sort keys of categories for subset splits."""
    if functions.order is None:
        default = order_by_cell if dense else order_by_share
        if blocks is None and isinstance(functions.statistics, Ranks):
            default = order_by_quantile
        return get_default_pointer(default, "keys")

    def compile_keys() -> Any:
        order = compile_function(functions.order, (_frozen_cells(),), origin, "order")
        if blocks is not None:
            return _compile_closure("keys", make_block_keys(order, blocks).py_func)

        def compute_keys(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
            for i in range(np.uint64(count)):
                keys[i] = 1.0 * order(freeze_array(rows[i]))

        return _compile_closure("keys", compute_keys)

    name = _name_parts(origin, functions.order, blocks and (blocks.ends, blocks.classes))
    return FunctionPointer("keys", compile_keys, name and f"keys:{name}")


def _make_choice_pointer(extras: CriterionExtras, origin: Origin) -> FunctionPointer:
    if extras.choose is None:
        return get_default_pointer(return_no_choice, "choice")

    def compile_choice() -> Any:
        kinds = (_frozen_cells(),) * 3
        choose = compile_function(extras.choose, kinds, origin, "choose", int)

        def choose_column(gains, scores, levels):  # type: ignore[no-untyped-def]
            return np.int64(choose(freeze_array(gains), freeze_array(scores), freeze_array(levels)))

        return _compile_closure("choice", choose_column)

    name = _name_parts(origin, extras.choose)
    return FunctionPointer("choice", compile_choice, name and f"choice:{name}")


def _make_penalty_pointer(extras: CriterionExtras, origin: Origin) -> FunctionPointer:
    if extras.penalty is None:
        return get_default_pointer(return_zero_penalty, "penalty")

    def compile_penalty() -> Any:
        from treekit.kernels.intrinsics import PENALTY_SIGNATURE

        penalty = compile_function(extras.penalty, PENALTY_SIGNATURE.args, origin, "penalty")

        def compute_penalty(candidates, weight):  # type: ignore[no-untyped-def]
            return 1.0 * penalty(candidates, weight)

        return _compile_closure("penalty", compute_penalty)

    name = _name_parts(origin, extras.penalty)
    return FunctionPointer("penalty", compile_penalty, name and f"penalty:{name}")


# ---------------------------------------------------------------- defaults
# Fallbacks for a criterion's optional functions.
#
# They are at module level so that their machine code comes from the disk cache: a new
# process compiles only the functions of the criterion itself.


@cache
def get_default_pointer(function: Callable[..., Any], kind: str) -> FunctionPointer:
    """Return the pointer to a function of this module, cached for the process."""

    def compile_default() -> Any:
        from treekit.kernels.intrinsics import SIGNATURES, CompiledPointer

        return CompiledPointer(function, SIGNATURES[kind], cache=True)

    return FunctionPointer(kind, compile_default, f"{kind}:{describe_functions(function)}")


def return_zero_value(stats):  # type: ignore[no-untyped-def]
    """Return 0.0: the impurity or priority of a criterion without one."""
    return 0.0


def return_zero_penalty(candidates, weight):  # type: ignore[no-untyped-def]
    """Return 0.0 (placeholder, never called): cuts have no penalty."""
    return 0.0


def return_no_cut(  # type: ignore[no-untyped-def]
    order, codes, cells, values, last, start, totals, limit, impurity, best
):
    """Return -1 (placeholder, never called): there are no terms."""
    return -1


def return_no_choice(gains, scores, levels):  # type: ignore[no-untyped-def]
    """Return -1 (placeholder, never called): the column with the best score is chosen."""
    return -1


def leave_keys_unset(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
    """Do nothing (placeholder, never called): there are no nominal columns."""


def order_by_quantile(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
    """Order categories by the quantile of the target: not always optimal for its loss."""
    for i in range(np.uint64(count)):
        keys[i] = rows[i, np.uint64(1)]


def order_by_cell(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
    """Order categories by one cell after the weight per attempt: a mean, or a class share.

    The only attempt for a single target is its mean: exact for squared error (Fisher 1958).
    """
    cell = np.uint64(attempt) + np.uint64(1)
    for i in range(np.uint64(count)):
        keys[i] = rows[i, cell] / rows[i, np.uint64(0)]


def order_by_share(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
    """Order categories by the share of one class, or along the first component of all shares.

    With two classes, order by the share of the second: this order contains the best
    subset if the impurity is concave (Breiman et al. 1984, theorem 4.5).  With more
    classes, try the share of each class and then two components, a heuristic: on random
    tables of 12 categories and 3 to 10 classes its Gini gain was on average 0.9998 of
    the best subset's (shares alone 0.995), its entropy gain 0.996 (0.98).
    """
    cells = np.uint64(rows.shape[1])
    if attempt >= rows.shape[1]:
        score_on_first_component(rows, count, attempt > rows.shape[1], keys)
        return
    cell = np.uint64(1) if cells == np.uint64(2) else np.uint64(attempt)
    for i in range(np.uint64(count)):
        total = 0.0
        for k in range(cells):
            total += rows[i, k]
        keys[i] = rows[i, cell] / total


# ---------------------------------------------------------------- blocks
# Single-target criteria applied to several targets: to each block of statistics, averaged.
#
# Statistics of several targets are ``[w | block 1 | block 2 ...]``: the weight of each
# class of a target, or one ``w * y``.

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TargetBlocks:
    """Layout of the statistics of several targets.

    Attributes
    ----------
    ends : tuple of int
        Start of the first block and end of each block, not counting the weight:
        (0, 3, 5) are targets of 3 and of 2 classes.
    classes : bool
        Whether blocks are class weights; otherwise each is one ``w * y``.
    """

    ends: tuple[int, ...]
    classes: bool

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return len(self.ends) - 1

    @property
    def n_cells(self) -> int:
        """S, the number of cells of a node's statistics: the weight and all blocks."""
        return 1 + self.ends[-1]

    @property
    def first_cells(self) -> tuple[int, ...]:
        """First cell of each block in a node's statistics."""
        return tuple(1 + end for end in self.ends[:-1])

    @property
    def first_cells_by_size(self) -> dict[int, tuple[int, ...]]:
        """For each block size, the first cell of every block of this size, -1 for other blocks.

        Code is compiled once per size, not once per target.
        """
        sizes = [b - a for a, b in pairwise(self.ends)]
        return {
            size: tuple(
                start if own == size else -1
                for own, start in zip(sizes, self.first_cells, strict=True)
            )
            for size in sorted(set(sizes))
        }

    def select_target(self, stats: Numbers, k: int) -> Numbers:
        """Select the statistics (nodes, cells) of target k from those of all targets (nodes, S)."""
        first, last = self.first_cells[k], 1 + self.ends[k + 1]
        columns = range(first, last) if self.classes else (0, first)
        return np.ascontiguousarray(stats[:, columns])


def make_python_mean_impurity(
    impurity: Callable[[Numbers], float], blocks: TargetBlocks
) -> Callable[[Numbers], float]:
    """Return the mean of an impurity over all targets as plain Python, for a few nodes."""

    def average_impurity(stats: Numbers) -> float:
        own = (blocks.select_target(stats[None, :], k)[0] for k in range(blocks.n_targets))
        return sum(float(impurity(each)) for each in own) / blocks.n_targets

    return average_impurity


def _average_blocks(
    function: Any, blocks: TargetBlocks | None, make_block: Callable[..., Any]
) -> Any:
    """Return an impurity or a score as the mean over several targets, if there are several.

    `make_block` is `_make_block_impurity` or `_make_block_score`.
    """
    if blocks is None:
        return function
    total: Any = _return_zero
    for size, starts in blocks.first_cells_by_size.items():
        firsts = tuple(first for first in starts if first >= 0)
        total = _add_blocks(total, make_block(function, size, blocks.classes), firsts)
    count = float(blocks.n_targets)

    @_njit
    def average(*stats):  # type: ignore[no-untyped-def]
        return total(*stats) / count

    return average


def make_block_keys(order: Any, blocks: TargetBlocks) -> Any:
    """Return sort keys of categories by a criterion's `order`, one target per attempt."""
    key: Any = _leave_block_keys_unset
    for size, starts in blocks.first_cells_by_size.items():
        key = _add_block_keys(key, _make_block_impurity(order, size, blocks.classes), starts)
    return key


@jitted
def _return_zero(*stats):  # type: ignore[no-untyped-def]
    return 0.0


@jitted
def _leave_block_keys_unset(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
    pass


def _add_blocks(before: Any, block: Any, firsts: tuple[int, ...]) -> Any:
    @_njit
    def sum_blocks(*stats):  # type: ignore[no-untyped-def]
        value = before(*stats)
        for first in firsts:
            value += block(np.uint64(first), *stats)
        return value

    return sum_blocks


def _add_block_keys(otherwise: Any, block: Any, starts: tuple[int, ...]) -> Any:
    @_njit
    def compute_keys(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
        first = starts[attempt]
        if first >= 0:
            for i in range(np.uint64(count)):
                keys[i] = block(np.uint64(first), rows[i])
        else:
            otherwise(rows, count, attempt, keys)

    return compute_keys


def _make_block_impurity(impurity: Any, size: int, classes: bool) -> Any:
    """Return ``block(first, stats)``: the impurity of the block of `size` cells at `first`."""
    cells, shift = (size, 0) if classes else (2, 1)  # of a number: the weight, then ``w * y``
    new_cells, _ = _choose_allocators(cells)

    @_njit
    def compute_block_impurity(first, stats):  # type: ignore[no-untyped-def]
        own = new_cells(cells)
        own[np.uint64(0)] = stats[np.uint64(0)]  # a number's weight
        for k in range(np.uint64(shift), np.uint64(cells)):
            own[k] = stats[first + k - np.uint64(shift)]
        return 1.0 * impurity(freeze_array(own))

    return compute_block_impurity


def _make_block_score(score: Any, size: int, classes: bool) -> Any:
    """Return ``block(first, parent, children)``: the score of the `size` cells at `first`."""
    cells, shift = (size, 0) if classes else (2, 1)
    new_cells, new_matrix = _choose_allocators(cells)

    @_njit
    def copy_block(parent, children, first, own, sides):  # type: ignore[no-untyped-def]
        zero = np.uint64(0)
        branches = np.uint64(children.shape[0])
        own[zero] = parent[zero]
        for b in range(branches):
            sides[b, zero] = children[b, zero]
        for k in range(np.uint64(shift), np.uint64(cells)):
            at = first + k - np.uint64(shift)
            own[k] = parent[at]
            for b in range(branches):
                sides[b, k] = children[b, at]

    @_njit
    def compute_block_score(first, parent, children):  # type: ignore[no-untyped-def]
        own = new_cells(cells)
        if children.shape[0] == 2:
            pair = new_matrix(2, cells)
            copy_block(parent, children, first, own, pair)
            return 1.0 * score(freeze_array(own), freeze_array(pair))
        sides = _allocate_matrix(children.shape[0], cells)
        copy_block(parent, children, first, own, sides)
        return 1.0 * score(freeze_array(own), freeze_array(sides))

    return compute_block_score


# ---------------------------------------------------------------- pre-pruning
# A pruner's `before` function, compiled into the pointer that `grow_nodes` calls.


def get_unconditional_pointer() -> FunctionPointer:
    """Return the pointer that allows every split."""
    return get_default_pointer(_allow_split, "before")


def _allow_split(parent, children, held_parent, held_children):  # type: ignore[no-untyped-def]
    return True


def compile_before(function: Callable[..., bool], origin: Origin) -> FunctionPointer:
    """Compile ``before(parent, children, held_parent, held_children)``."""

    def compile_pointer() -> Any:
        shapes = (_frozen_cells(), _frozen_matrix()) * 2
        inner: Any = compile_function(function, shapes, origin, "before", bool)

        def call_before(parent, children, held_parent, held_children):  # type: ignore[no-untyped-def]
            return bool(
                inner(
                    freeze_array(parent), freeze_array(children),
                    freeze_array(held_parent), freeze_array(held_children),
                )
            )  # fmt: skip

        return _compile_closure("before", call_before)

    name = _name_parts(origin, function)
    pointer = FunctionPointer("before", compile_pointer, name and f"before:{name}")
    pointer.origin = origin
    return pointer


def __getattr__(name: str) -> Any:
    """Return a type or signature of `treekit.kernels.intrinsics`, which imports numba."""
    if not name.isupper():
        raise AttributeError(name)
    from treekit.kernels import intrinsics

    return getattr(intrinsics, name)
