"""The kernels that Python calls, with the types of arguments for which the library has them.

A type is written as `treekit.kernels.library.describe_types` does: ``u4`` is a number, ``f8**`` a
matrix, ``f8*A`` an array with gaps; ``Rows`` stands for the record in `_RECORDS`, ``Table:u1`` for
one whose codes have that type, ``node*`` for an array of a structured type in `_DTYPES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import chain
from typing import Any

import numpy as np

from treekit.kernels.function_pointers import FunctionPointer

_DTYPES = {
    "condition": "rules.kernels.CONDITION_DTYPE",
    "column": "rules.kernels.COLUMN_DTYPE",
    "frame": "rules.kernels.FRAME_DTYPE",
    "grown": "grow_tree.NODE_DTYPE",
    "split": "records.SPLIT_DTYPE",
    "surrogate": "surrogate_splits.SURROGATE_DTYPE",
    "walked": "rules.kernels.NODE_DTYPE",
}
"""Structured types of arrays, and where they are; see `find_place`."""

_SCRATCH = (
    "i8* u8* u8* u8* u2* u8* u4** u4* f8** f8* f8** f8* f8* f8* f8** f8** i4* f8* C* u8* "
    "split* i8** records.CutBatch records.CutBatch"
)

_RECORDS = {
    "grow_tree.GrowthArrays": "grown* f8** f8** i4* i8* f8** None None",
    "grow_tree.RareParts": "f8* surrogate_splits.SurrogateSearch:C i8* grow_tree.SideColumns:C",
    "grow_tree.SideColumns": "C* C*",
    "grow_tree.TreeArrays": "u1* i4* i4* i4* i4* f8* f8* f8*",
    "distributed.kernels.levels.ColumnDraws": "i8* u8* u8* i8* i8",
    "distributed.kernels.levels.CountedNodes": "Table:u1 Rows None Rows f8* f8*",
    "pruning.ErrorBound": "f8 f8 b f8**",
    "rules.kernels.TreeWalk": "walked* i4* column* i8* frame*",
    "records.CriterionPointers": (
        "cuts branch_score keys choice penalty i8 b b score value value b row_scan b"
    ),
    "records.CutBatch": "f8** f8* u4** f8* u8**",
    "records.GrowthRules": "records.Limits records.SplitRules before b",
    "records.Limits": "i8 f8 f8 f8 i8 i8 f8 f8 f8 f8",
    "records.Rows": "u4* u4* f8**",
    "records.Scratch": _SCRATCH,
    "records.SplitRules": "b b f8 f8 i8 i8 b f8 b b",
    "records.SplitSearch": "find None records.CriterionPointers rng",
    "records.Table": "C** u4* u1* i8* f8* f8*",
    "route_rows.CodedSplits": "u1* i4* f8* i8* i4* i4* i4* i8* i4* i8* i4* i8* i8** i4*",
    "route_rows.RoutedTree": "route_rows.CodedSplits records.Table:C f8* b C* u4*",
    "row_records.Records": "u8* u1* f8* u8* u8*",
    "score_batch.CompleteLevels": "u8* u8* b1* C* u4* u4*",
    "score_batch.PackedDerivedColumns": "u8* f8* u1* u1* u1* u8* u8* f8* u8* u8* u1*",
    "surrogate_splits.SurrogateSearch": "i8 b b u4* u4* f8** C** C** f8* i8**",
}
"""Fields of the records; ``C`` is the type of codes that a variant names."""

_RECORD_PLACES = {name.rpartition(".")[2]: name for name in _RECORDS}


# ---------------------------------------------------------------- kernels

_KEYS = "u4*", "u8*"
"""Keys of float32 and of float64 numbers."""

_FEW = {
    "export.kernels.lower_nodes": ["u1* i4* i4* i4* i8* i4* i8"],
    "feature_codes.assign_bins": [
        f"{key} u8 u8 {key} i8 {codes}" for key in _KEYS for codes in ("u1*", "u4*")
    ],
    "feature_codes.assign_ranks": [
        "u4* u4* u4* u4*",
        "u4* u4* u1* u4*",
        "u8* u4* u4* u8*",
        "u8* u4* u1* u8*",
    ],
    "feature_codes.find_bin_starts": [f"{key} u4* f8* f8 i8* i8*" for key in _KEYS],
    "feature_codes.rank_columns": [
        f"{key}** u8 u8 {key}** u4** u4** {codes}** i8* {key}*"
        for key in ("u4", "u8")
        for codes in ("u1", "u4")
    ],
    "feature_codes.sort_keys": [
        "u4* u8 u8 f8* u4* u4* u4* u4* u4**",
        "u8* u8 u8 f8* u8* u4* u8* u4* u4**",
    ],
    "grow_tree.write_tree_arrays": ["grown* i8* f8* b TreeArrays i8*"],
    "distributed.kernels.key_counts.count_next_digits": [
        "u4* u8 u8 f8* u8 u8 u8* f8**",
        "u8* u8 u8 f8* u8 u8 u8* f8**",
    ],
    "distributed.kernels.key_counts.find_lowest_keys": [
        f"{key} u8 u8 f8* u1* u8*" for key in _KEYS
    ],
    "distributed.kernels.key_counts.summarise_keys": [
        f"{key} u8 u8 f8* u8 f8* u8* u8*" for key in _KEYS
    ],
    "distributed.kernels.levels.count_codes": ["Table:u1 Rows i8** ColumnDraws f8**"],
    "distributed.kernels.levels.find_ranges": ["f8** i8** f8 f8***"],
    "distributed.kernels.levels.locate_counts": ["ColumnDraws u4* i8*"],
    "distributed.kernels.levels.move_rows": ["Table:u1 Rows Rows grown* i4* i8** u4*"],
    "distributed.kernels.levels.order_nodes": ["grown* i8 i8* i8*"],
    "distributed.kernels.levels.split_nodes": [
        "CountedNodes GrowthArrays b1* GrowthRules SplitSearch Scratch:u1",
    ],
    "monotonic.clip_to_bounds": ["u1* i4* i4* i4* f8* f8*"],
    "monotonic.is_tree_monotonic": ["u1* i4* i4* i4* f8* f8*"],
    "partition_rows.take_rows": ["u4* f8* u4* f8** Rows", "u4*A f8* u4* f8** Rows"],
    "pruning.estimate_node_errors": ["f8** ErrorBound"],
    "pruning.find_breaking_links": ["u1* i8* f8*"],
    "pruning.find_cheapest_cuts": ["u1* i4* i4* f8* f8* f8 b"],
    "pruning.find_weakest_links": ["u1* i4* i4* f8* f8**"],
    "pruning.sum_leaves_below": ["u1* i4* i4* f8*"],
    "random_numbers.draw_bag": ["u8* u8* i8* u8* u8* u8 f8*"],
    "route_rows.sum_votes": ["u4* i8* f8** f8**"],
    "row_records._are_short": ["f8*"],
    "row_records.fill_records": ["Records u8** u4* u4* f8**"],
    "rules.kernels.merge_leaf_conditions": ["TreeWalk i8* i8* i8* condition* i4*"],
    "thresholds.place_readable_thresholds": ["f8* f8* i8"],
}
"""Kernels with few variants."""


_USUAL = frozenset(
    {
        "export.kernels.lower_nodes", "feature_codes.assign_ranks", "feature_codes.rank_columns",
        "feature_codes.sort_keys",
        "grow_tree.write_tree_arrays", "partition_rows.take_rows", "pruning.find_weakest_links",
        "pruning.sum_leaves_below", "random_numbers.draw_bag", "route_rows.find_row_leaves",
        "route_rows.sum_votes", "rules.kernels.merge_leaf_conditions", "score_batch.add_leaf_units",
        "score_batch.gather_leaf_values", "score_batch.gather_unpacked_values", "score_row.sum_row",
        "thresholds.place_readable_thresholds",
    }
)  # fmt: skip
"""Kernels of a usual build, besides `grow_nodes`: those of ``treekit demo`` and of a server."""


def iterate_kernels(*, usual: bool = False) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the kernels and the arguments, arrays of one cell, of each of their variants."""
    for form in _iterate_growth(usual=usual):  # takes longest
        yield "grow_tree.grow_nodes", _type_search(parse_types(form))
    for name, forms in _FEW.items():
        for form in forms:
            if not usual or name in _USUAL:
                yield name, _type_search(parse_types(form))
    for codes in ("u1",) if usual else ("u1", "u4"):
        for name, form in _OF_CODES.items():
            if not usual or name in _USUAL:
                own = " ".join(_replace_codes(field, codes) for field in form.split(" "))
                yield name, parse_types(own, codes)
    for name, form in _iterate_scoring(usual=usual):
        if not usual or name in _USUAL:
            yield name, parse_types(form)


def _type_search(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments whose pointer to a splitter, if any, has its signature."""
    from treekit.compiling.splitter import make_find_signature
    from treekit.kernels.records import Rows, Scratch, SplitSearch, Table

    def find_record(kind: type, values: tuple[Any, ...]) -> Any:
        for value in values:
            if isinstance(value, kind):
                return value
            if isinstance(value, tuple) and (inner := find_record(kind, value)) is not None:
                return inner
        return None

    table, rows, scratch = (find_record(kind, arguments) for kind in (Table, Rows, Scratch))
    quantile = getattr(arguments[0], "quantile", None)
    find = FunctionPointer(
        "find", _refuse, "example", lambda: make_find_signature(table, rows, scratch, quantile)
    )
    return tuple(
        value._replace(find=find) if isinstance(value, SplitSearch) and value.find else value
        for value in arguments
    )


_OF_CODES = {
    "pruning.prune_and_raise": "RoutedTree:C Rows ErrorBound f8**",
    "route_rows.find_row_leaves": "CodedSplits u4* C* u8 u8 u4* i8*",
    "route_rows.route_rows": "RoutedTree:C Rows f8* b i8 b1* f8** grown*",
}
"""Kernels with a variant for each type of codes."""


def _iterate_growth(*, usual: bool) -> Iterator[str]:
    """Yield the variants of `grow_nodes`: plain, of records, with rare parts, and of ranks."""
    plain = {
        "records": "None", "arrays": "GrowthArrays", "quantile": "None", "rare": "None",
        "search": "SplitSearch",
    }  # fmt: skip
    moved = {"records": "Records"}
    kinds: list[tuple[str, dict[str, str]]] = [("u1", {})]
    if not usual:
        kinds += [
            ("u1", moved),
            ("u1", moved | {"search": "SplitSearch(None,b,CriterionPointers,rng)"}),
            ("u1", moved | {"search": "SplitSearch(None,None,CriterionPointers,rng)"}),
            ("u4", {}),
        ]
        for codes in ("u1", "u4"):
            grown = "GrowthArrays(grown*,f8**,f8**,i4*,i8*,f8**,surrogate*,i4*)"
            rare = {"rare": f"RareParts:{codes}", "arrays": grown}
            kinds += [(codes, rare), (codes, rare | {"quantile": "f8"})]
    for codes, own in kinds:
        part = plain | own
        yield (
            f"grow_tree.Sample(Table:{codes},Table:{codes},{codes}*,{codes}*,Rows,Rows,Rows,"
            f"{part['quantile']}) {part['records']} {part['arrays']} GrowthRules {part['rare']} "
            f"{part['search']} Scratch:{codes}"
        )


def _iterate_scoring(*, usual: bool) -> Iterator[tuple[str, str]]:
    """Yield the variants of the kernels that score rows: of float32 and float64."""
    for number, word in (("f4", "u4"),) if usual else (("f4", "u4"), ("f8", "u8")):
        yield "score_batch.gather_unpacked_values", f"{number}* u4* u8 u8 i4* {number}** i4*"
        for nominal in ("None", "u1*") if usual else ("None", "u1*", "u4*"):
            rest = f"{word}** u8* {nominal} u8 u8* u8* u8* u8 i8** i8*"
            yield "score_row.sum_row", f"{number}* {rest}"
            for derived in ("None",) if usual else ("None", "PackedDerivedColumns"):
                if derived != "None" and nominal == "None":
                    continue
                packed = (
                    f"PackedTrees({word}**,u8*,CompleteLevels:{word},{nominal},{derived},u8,u8,"
                    "u8*,u8*,u8)"
                )
                rows = f"{packed} {number}** u8"
                yield "score_batch.add_leaf_units", f"{rows} i8** i8**"
                yield "score_batch.gather_leaf_values", f"{rows} i4* i4**"
                if derived != "None":  # of the shares of fractional instances
                    yield "score_batch.add_fractional_units", f"{rows} i8** i8** u8 u8 i8**"
                    yield "score_batch.gather_heaviest_leaf_values", f"{rows} i4* i8** u8 i4**"


# ---------------------------------------------------------------- types


def parse_types(form: str, codes: str = "") -> tuple[Any, ...]:
    """Return arguments of the types that a form names, with arrays of one cell."""
    parts: list[Any] = []
    depth, start = 0, 0
    separated = form.replace(" ", ",") + ","
    for at, letter in enumerate(separated):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(_parse_type(separated[start:at], codes))
            start = at + 1
    return tuple(parts)


def _parse_type(form: str, codes: str) -> Any:
    """Return a value of a type."""
    if form[0].isupper() or "." in form:
        return _parse_record(form, codes)
    name, stars = form.rstrip("A").rstrip("*"), form.count("*")
    if not stars:
        return _parse_number(name)
    place = _DTYPES.get(name)
    dtype: Any = np.dtype("?" if name == "b1" else name) if place is None else find_place(place)
    array = np.zeros((1,) * stars, dtype)
    return np.zeros(4, dtype)[::2] if form.endswith("A") else array


def _parse_number(name: str) -> Any:
    plain: dict[str, Any] = {"i8": 0, "f8": 0.0, "b": False}
    if name == "rng":
        return np.random.default_rng(0)
    if name in plain:
        return plain[name]
    if name[0] in "iuf" and name[1:].isdigit():
        return np.dtype(name).type(0)
    return FunctionPointer(name, _refuse, name="example")


def _refuse() -> Any:
    raise RuntimeError("this pointer only stands for a type")


def _parse_record(form: str, codes: str) -> Any:
    if form == "None":
        return None
    name, bracket, inside = form.partition("(")
    name, _, own = name.partition(":")
    place = name if "." in name else _RECORD_PLACES.get(name, f"score_batch.{name}")
    own = codes if own == "C" else own
    fields = inside[:-1] if bracket else _RECORDS[place]
    if own:
        fields = " ".join(_replace_codes(field, own) for field in fields.split(" "))
    return find_place(place)(*parse_types(fields, own or codes))


def _replace_codes(field: str, codes: str) -> str:
    """Return a field with the type of codes in place of ``C``."""
    if field.startswith("C*"):
        return codes + field[1:]
    return field.removesuffix("C") + codes if field.endswith(":C") else field


@cache
def find_place(place: str) -> Any:
    """Return a kernel or a type by its place: in `treekit.kernels`, or the kernels of another room.

    The name of a kernel in the library is its place.
    """
    module, _, name = place.rpartition(".")
    room = "treekit" if ".kernels" in module else "treekit.kernels"
    return getattr(import_module(f"{room}.{module}"), name)


# ---------------------------------------------------------------- functions called by pointers


def iterate_pointers(*, usual: bool = False) -> Iterator[FunctionPointer]:
    """Yield the functions of built-in components that kernels call by pointers."""
    seen: set[str] = set()
    chosen = (
        _iterate_searches(usual=usual),  # take longest
        _iterate_criteria(usual=usual),
        _iterate_rules(usual=usual),
    )
    for pointer in chain.from_iterable(chosen):
        if pointer.name is not None and pointer.name not in seen:
            seen.add(pointer.name)
            yield pointer


def _iterate_criteria(*, usual: bool) -> Iterator[FunctionPointer]:
    from treekit.compiling.criterion import MAX_OWN_CELLS, compile_criterion
    from treekit.compiling.functions import Origin
    from treekit.components import criteria

    origin = Origin("criterion", "built in", "treekit ")
    many = range(2, MAX_OWN_CELLS + 2)  # the last one stands for any larger number
    kinds: list[tuple[Any, range, bool]] = [
        (criteria.make_gini(), many, False),
        (criteria.make_entropy(), many, False),
        (criteria.make_misclassification(), many, False),
        (criteria.make_twoing(), many, False),
        (criteria.make_gain_ratio(), many, False),
        (criteria.make_gain_ratio(**C45_SETTINGS), many, False),
        (criteria.make_squared_error(), range(2, 3), True),
        (criteria.make_friedman(), range(2, 3), True),
        (criteria.make_poisson(), range(2, 3), True),
        (criteria.make_absolute_error(), range(4, 5), True),
        (criteria.make_quantile_loss(), range(4, 5), True),
    ]
    if usual:
        kinds = [(criteria.make_gini(), range(2, 3), False)]
    for functions, sizes, dense in kinds:
        for cells in sizes:
            for known_only in (False,) if usual else (False, True):
                for nominal in (False, True):
                    made = compile_criterion(
                        functions, cells, dense, origin, known_only=known_only, nominal=nominal
                    )
                    yield from (p for p in made.pointers if isinstance(p, FunctionPointer))


C45_SETTINGS: dict[str, Any] = {"slack": 1e-3, "mdl": True, "many_levels": 0.3}
"""Settings of the gain ratio in the algorithm ``c45``."""


def _iterate_rules(*, usual: bool) -> Iterator[FunctionPointer]:
    """Yield the functions of pruners that decide before a split is made."""
    from treekit.compiling.criterion import compile_before, get_unconditional_pointer
    from treekit.compiling.functions import Origin
    from treekit.components.pruners import make_chi_squared, make_holdout

    yield get_unconditional_pointer()
    if usual:
        return
    origin = Origin("pruner", "built in", "treekit ")
    for pruner in (make_chi_squared(0.05), make_holdout(0.3)):
        if pruner.before is not None:
            yield compile_before(pruner.before, origin)


def _iterate_searches(*, usual: bool) -> Iterator[FunctionPointer]:
    """Yield the searches of built-in splitters, for their types of codes."""
    from treekit.compiling.splitter import get_builtin_pointer
    from treekit.distributed.kernels import levels
    from treekit.kernels import axis_splits, oblique_splits, quantile_splits, random_splits

    small, large = ("u1",), ("u1", "u4")
    chosen: list[tuple[Any, tuple[str, ...], float | None]] = [
        (oblique_splits.find_oblique_split, large, None),
        (random_splits.find_random_split, large, None),
        (axis_splits.find_binned_split, small, None),
        (quantile_splits.find_quantile_split, large, 0.5),
        (axis_splits.find_axis_split, large, None),
        (levels.search_counts, small, None),
    ]
    if usual:
        chosen = [(axis_splits.find_axis_split, small, None)]
    for kernel, sizes, quantile in chosen:
        for codes in sizes:
            table, rows, scratch = parse_types(f"Table:{codes} Rows Scratch:{codes}")
            yield get_builtin_pointer(kernel, table, rows, scratch, quantile)
