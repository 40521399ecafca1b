"""Estimates of the flash that C sources take in programs for small processors.

Sizes are those of programs for a Cortex-M0 that predict labels, or numbers if there are
no labels (gcc 12 at -Os, without the functions that they do not call).  The constants are
fitted by least squares to the programs of 83 float32 and 58 float64 models; those of
`estimate_flash`, also on a Cortex-M4, to 257 sources in integers, of which 256 are within 15%
plus 60 bytes.  Those of `estimate_float_flash` and `estimate_readable_flash` are the smallest
whose result is too small for none of 868 and 145 sources with floating point (linear
programming), whose tables are counted exactly; of other sources one in 30 is larger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from treekit.data.schema import Schema
from treekit.export.c.layouts import INTERLEAVED_TREES, CLayout, CTable, CTypes
from treekit.export.readable import ReadableLine
from treekit.model.model import Model

# ---------------------------------------------------------------- c firmware

_UNUSED_TABLES = ("leaf_nodes", "depths")  # of leaves and of batches
_MAX_NEAR_LINES = 8  # lines of a branch that a short jump passes over
_MAX_SMALL_NUMBER = 255  # of a leaf, which an instruction holds
_MAX_INLINE_SUM_BYTES = 8  # more are cleared by memset
_FORM_BYTES = {
    # fact: cells of 32 bits, of 64
    "always": (-121, -197),
    "several_trees": (-39, 30),
    "eight_trees": (-55, -210),
    "nominal": (-16, -145),
    "functions": (18, 17),
    "tests": (13, 18),
    "missing_yes": (2, 21),
    "thresholds": (2, 3),
    "codes": (1, 12),
    "sets": (19, 32),
    "missing_number": (62, 76),
    "missing_level": (-29, -85),
    "large_leaves": (2, 2),
    "far_branches": (9, 16),
}
"""Bytes of the code of nested tests beyond that of the loop over a table, both of integers."""
_FLOAT_BYTES = {
    # fact: tests of float; double of float32; double of float64; table of the same
    "always": (520, 729, 755, 36, 332, 58),
    "numbers": (3486, 3472, 3329, 3427, 3427, 3430),
    "means": (1859, 1885, 2011, 1957, 1957, 1946),
    "link": (3077, 2371, 4600, 3094, 445, 2451),
    "levels_of_numbers": (1389, 2273, 2503, 1683, 2820, 2845),
    "levels": (330, 359, 353, 1709, 2945, 4474),
    "sets_of_labels": (1246, 2244, 3350, 0, 0, 0),
    "derived": (35, 320, 0, 79, 111, 0),
    "tests": (0, 7, -10, 0, 0, 0),
    "codes": (13, 19, 6, 0, 0, 0),
    "missing": (-4, -4, 31, 0, 0, 0),
}
"""Bytes of floating point beyond integers, with the compiler's library."""
_FORMS = ("table", "compact", "if_else", "hybrid")
_PROGRAM_BYTES = {
    # fact: table, compact, if_else, hybrid on a Cortex-M0; the same on a Cortex-M4
    "always": ((216, 116, 30, 113), (141, 73, -27, 53)),
    "several_trees": ((12, 3, 31, 3), (18, 27, 42, 16)),
    "eight_trees": ((154, 0, 0, 0), (156, 0, 0, 0)),
    "nominal": ((2, 63, 40, 69), (46, 75, 93, 122)),
    "outputs": ((181, 203, 176, 137), (54, 78, 10, -7)),
    "more_than_two": ((6, 5, 18, 56), (148, 139, 169, 196)),
    "sparse": ((58, 71, 32, 52), (40, 42, 43, 78)),
    "costs": ((177, 183, 229, 101), (16, 32, 103, -62)),
    "refuses": ((30, 60, 31, 65), (48, 59, 27, 63)),
    "sets": ((54, 72, 0, 46), (22, 28, 0, 36)),
    "ranks": ((0, 77, 0, 0), (0, 33, 0, 0)),
    "direct": ((0, 50, 0, 0), (0, -3, 0, 0)),
    "derived": ((137, 0, 135, 115), (132, 0, 159, 121)),
    "wide": ((132, 70, 0, 111), (103, 69, 66, 88)),
    "wide_sums": ((-28, 20, -12, -38), (31, 82, 8, 21)),
    "labels": ((-5, 42, -21, -4), (36, 79, -20, 29)),
}
"""Bytes of the code of a program in integers that predicts a row, beside its tables."""
_LINE_BYTES = {
    # fact: cells of 32 bits, of 64 on a Cortex-M0; the same on a Cortex-M4
    "functions": ((26, 21), (16, 15)),
    "tests": ((14, 11), (13, 2)),
    "missing_yes": ((3, 27), (-2, 24)),
    "thresholds": ((1, 12), (4, 17)),
    "codes": ((0, 10), (1, 6)),
    "sets": ((12, 24), (20, 31)),
    "missing_number": ((74, 163), (104, 238)),
    "missing_level": ((-33, -78), (-58, -81)),
    "large_leaves": ((1, 1), (0, 1)),
    "far_branches": ((13, 5), (19, 5)),
}
"""The same of each line of nested tests."""

_MARGIN, _READABLE_MARGIN = (1.1, 40), (1.04, 12)
"""Factor of the bytes of code, and bytes added to them, for models unlike those of the fit."""
_FLOAT_PROGRAM_BYTES = {
    # fact: table, compact, if_else, hybrid on a Cortex-M0; the same on a Cortex-M4
    "always": ((256, 248, -182, 144), (205, 223, -182, 151)),
    "several_trees": ((30, 44, 10, 0), (22, 54, 19, 31)),
    "eight_trees": ((266, 0, 0, 0), (314, 0, 0, 0)),
    "nominal": ((134, 165, 1, 120), (133, 159, -13, 114)),
    "outputs": ((0, -7, 270, 59), (43, 0, 268, 31)),
    "more_than_two": ((26, 21, 20, 19), (34, 39, 34, 49)),
    "sparse": ((33, 48, 17, 27), (16, 30, -1, 15)),
    "costs": ((103, 70, 107, 92), (88, 88, 99, 54)),
    "refuses": ((46, 64, 124, 110), (57, 56, 129, 112)),
    "sets": ((25, 0, 0, 21), (21, 0, 0, 13)),
    "has_code": ((0, 0, 140, 0), (0, 0, 151, 0)),
    "ranks": ((0, 21, 0, 0), (0, 3, 0, 0)),
    "wide_sums": ((72, 108, -50, 51), (66, 103, -19, 47)),
    "labels": ((-92, -54, -3, -15), (-83, -66, -10, -35)),
    "numbers": ((-58, -81, 335, 10), (0, -55, 311, 17)),
    "scales": ((-31, -39, -224, 23), (-78, -39, -212, -8)),
    "cells_double": ((44, 44, 4, 28), (36, 36, 3, 25)),
    "cells_double64": ((144, 74, 100, 132), (104, 69, 76, 59)),
}
"""Largest bytes of the code of a program with floating point that predicts a row, beside its
tables and the compiler's functions for floating point."""
_FLOAT_LINE_BYTES = {
    # fact: tests of float; double of float32; double of float64; the same on a Cortex-M4
    "functions": ((24, 24, 37), (19, 23, 22)),
    "tests": ((18, 24, 12), (16, 15, 17)),
    "missing_yes": ((0, 0, 11), (3, 7, 4)),
    "thresholds": ((2, 4, 6), (9, 12, 12)),
    "codes": ((18, 22, 18), (18, 23, 16)),
    "sets": ((10, 14, 21), (9, 15, 38)),
    "missing_number": ((52, 62, 0), (47, 60, 12)),
    "missing_level": ((5, 9, 6), (12, 9, 52)),
    "large_leaves": ((2, 3, 2), (10, 12, 3)),
    "far_branches": ((0, 1, 15), (0, 0, 0)),
}
"""The same of each line of nested tests."""
_READABLE_BYTES = {
    # fact: tests of float, of double on a Cortex-M0; the same on a Cortex-M4
    "always": ((44, 36), (31, 38)),
    "returns_numbers": ((2, 2), (-4, -4)),
    "at_most": ((11, 11), (6, 7)),
    "or_missing": ((0, 0), (3, 0)),
    "missing": ((0, 4), (3, 4)),
    "among": ((3, 0), (0, 0)),
    "levels": ((0, 1), (0, 2)),
    "leaves": ((6, 9), (9, 6)),
    "thresholds": ((0, 4), (9, 16)),
    "numbers": ((12, 14), (14, 13)),
    "far_branches": ((8, 6), (0, 10)),
}
"""Largest bytes of a program of the readable form, and of each of its lines."""


def estimate_flash(
    model: Model, made: CLayout, tables: Sequence[CTable], types: CTypes, helpers: set[str]
) -> tuple[int, int]:
    """Estimate the flash of a program in integers on a Cortex-M0 and on a Cortex-M4.

    Returns (0, 0) for fractional instances.

    Parameters
    ----------
    made : CLayout
    tables : sequence of CTable
        All tables of the source.
    types : CTypes
    helpers : set of str
        Helpers of the source.
    """
    if model.missing == "fractional":
        return 0, 0
    wide = types.key_dtype.itemsize > 4
    facts = _list_facts(model, made, tables, types, helpers)
    lines = _count_lines(made) if "functions" in made.values else Counter[str]()
    form, own = _FORMS.index(made.name), _count_read_bytes(tables, helpers)
    on_m0, on_m4 = (
        own + code for code in _add_code(_PROGRAM_BYTES, _LINE_BYTES, facts, lines, form, wide)
    )
    return max(round(on_m0, -1), 10), max(round(on_m4, -1), 10)


def estimate_float_flash(
    model: Model, made: CLayout, tables: Sequence[CTable], types: CTypes, helpers: set[str]
) -> tuple[int, int]:
    """Return the flash, at most about, of a program with floating point, as `estimate_flash`.

    The compiler's functions for floating point are not included.  Returns (0, 0) for fractional
    instances, sums of columns, surrogates, rules and links, of which too few programs were
    measured.  See `estimate_flash` for the parameters.
    """
    derived = model.missing == "fractional" or model.derived.n_columns
    if derived or "exp" in helpers:
        return 0, 0
    facts = _list_facts(model, made, tables, types, helpers)
    lines = _count_lines(made) if "functions" in made.values else Counter[str]()
    form, own = _FORMS.index(made.name), _count_read_bytes(tables, helpers)
    cell = 0 if types.cell_type == "float" else 1 if types.is_float32 else 2
    code = _add_code(_FLOAT_PROGRAM_BYTES, _FLOAT_LINE_BYTES, facts, lines, form, cell)
    on_m0, on_m4 = (own + _add_margin(one, *_MARGIN) for one in code)
    return on_m0, on_m4


def estimate_readable_flash(lines: Sequence[ReadableLine], schema: Schema) -> tuple[int, int]:
    """Return the flash, as `estimate_float_flash`, of a source of the readable form."""
    numbers, wide = schema.task == "regression", schema.dtype != "float32"
    facts = Counter({"always": 1, "returns_numbers": int(numbers)})
    for at, line in enumerate(lines):
        facts["leaves" if line.kind == "leaf" else line.kind] += 1
        facts["or_missing"] += line.kind == "at_most" and line.or_missing
        facts["levels"] += len(line.levels)
        if line.kind != "leaf":
            far = lines[at + 1 : at + 1 + _MAX_NEAR_LINES]
            facts["far_branches"] += len(far) == _MAX_NEAR_LINES and all(
                other.depth > line.depth for other in far
            )
    facts["thresholds"] = len({line.threshold for line in lines if line.kind == "at_most"})
    facts["numbers"] = numbers * len({line.prediction for line in lines if line.kind == "leaf"})
    on_m0, on_m4 = (
        sum(each[at][wide] * facts[fact] for fact, each in _READABLE_BYTES.items()) for at in (0, 1)
    )
    return _add_margin(on_m0, *_READABLE_MARGIN), _add_margin(on_m4, *_READABLE_MARGIN)


def _add_margin(code: int, factor: float, spare: int) -> int:
    return round(factor * max(code, 0)) + spare


_Bytes = Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
"""Bytes of each fact on a Cortex-M0 and on a Cortex-M4, by form or type of a cell."""


def _add_code(
    program: _Bytes,
    line: _Bytes,
    facts: Mapping[str, int],
    lines: Counter[str],
    form: int,
    cell: int,
) -> tuple[int, int]:
    """Add up the bytes of code on a Cortex-M0 and on a Cortex-M4."""
    on_m0, on_m4 = (
        sum(each[at][form] * int(facts[fact]) for fact, each in program.items())
        + sum(each[at][cell] * lines[fact] for fact, each in line.items())
        for at in (0, 1)
    )
    return on_m0, on_m4


def _list_facts(
    model: Model, made: CLayout, tables: Sequence[CTable], types: CTypes, helpers: set[str]
) -> dict[str, int | bool]:
    """Return what adds to a program that predicts a row, beside its tables and nested tests."""
    schema, names = model.schema, {str(table.name) for table in tables}
    several = schema.n_values * types.sum_size
    return {
        "always": 1,
        "several_trees": model.n_trees > 1,
        "eight_trees": made.name == "table" and model.n_trees >= INTERLEAVED_TREES,
        "nominal": bool(schema.nominal.any()),
        "outputs": schema.n_values > 1,
        "more_than_two": several > _MAX_INLINE_SUM_BYTES,
        "sparse": "leaf_starts" in names,
        "costs": "least_cost" in helpers,
        "refuses": "refuses" in helpers,
        "sets": bool(made.values.get("levels") or made.values.get("sets")),
        "ranks": bool(made.values.get("ranks")),
        "direct": bool(made.values.get("direct")),
        "derived": "derived" in helpers,
        "wide": types.key_dtype.itemsize > 4,
        "wide_sums": types.sum_type == "int64_t",
        "labels": schema.task == "classification" and bool(schema.more),
        "has_code": "has_code" in helpers,
        "numbers": schema.task == "regression",
        "scales": "scales" in names,
        "cells_double": types.cell_type != "float" and types.is_float32,
        "cells_double64": types.cell_type != "float" and not types.is_float32,
    }


def _count_read_bytes(tables: Sequence[CTable], helpers: set[str]) -> int:
    """Count the bytes of the tables that a program for predictions reads."""
    unread = {*_UNUSED_TABLES, *({"levels"} if helpers.isdisjoint({"is_level", "refuses"}) else ())}
    return sum(table.size for table in tables if str(table.name) not in unread)


def estimate_form_difference(model: Model, nested: CLayout, packed: CLayout, types: CTypes) -> int:
    """Estimate how many more bytes nested tests need than a table, both in integers."""
    wide = types.key_dtype.itemsize > 4
    code = _estimate_nested_code(nested, wide) + sum(
        _FORM_BYTES[fact][wide] * there
        for fact, there in (
            ("always", True),
            ("several_trees", model.n_trees > 1),
            ("eight_trees", model.n_trees >= INTERLEAVED_TREES),
            ("nominal", bool(model.schema.nominal.any())),
        )
    )
    return code + _count_table_bytes(model, nested) - _count_table_bytes(model, packed)


def estimate_integer_saving(
    model: Model, made: CLayout, packed: CLayout | None, types: CTypes, helpers: set[str]
) -> int:
    """Estimate the bytes that ``arithmetic="integer"`` saves, in hundreds; 0 = none.

    Parameters
    ----------
    made : CLayout
        Layout of the source with floating point.
    packed : CLayout, optional
        Table that the source would be if it is smaller than nested tests.
    types : CTypes
    helpers : set of str
        Helpers of the source.
    """
    numbers = model.schema.task == "regression"
    levels = not helpers.isdisjoint({"is_level", "has_code"})
    lines = _count_lines(made) if made.name == "if_else" else Counter[str]()
    facts = {
        "always": 1,
        "numbers": numbers,
        "means": numbers and model.divisor & (model.divisor - 1) != 0,
        "link": numbers and "exp" in helpers,
        "levels_of_numbers": numbers and levels,
        "levels": not numbers and "is_level" in helpers,
        "sets_of_labels": not numbers and "has_code" in helpers,
        "derived": "derived" in helpers,
        "tests": lines["tests"],
        "codes": lines["codes"],
        "missing": lines["missing_number"] + lines["missing_level"],
    }
    at = 0 if types.cell_type == "float" else 1 if types.is_float32 else 2
    at += 0 if made.name == "if_else" else 3
    saving = sum(_FLOAT_BYTES[fact][at] * int(count) for fact, count in facts.items())
    if made.name == "hybrid":
        saving += _estimate_nested_code(made, types.key_dtype.itemsize > 4)
    elif packed is not None:
        saving += max(estimate_form_difference(model, made, packed, types), 0)
    return max(round(saving, -2), 0)


def _estimate_nested_code(made: CLayout, wide: bool) -> int:
    return sum(_FORM_BYTES[fact][wide] * count for fact, count in _count_lines(made).items())


def _count_table_bytes(model: Model, made: CLayout) -> int:
    """Count the bytes of the tables of a layout that a program for predictions reads."""
    own = sum(table.size for table in made.tables if table.name not in _UNUSED_TABLES)
    return own + 4 * model.schema.n_features * ("is_level" in made.helpers)


_FACTS_BY_OP: Mapping[str, tuple[str, ...]] = {
    "le_missing_no": ("tests",),
    "le_missing_yes": ("tests", "missing_yes"),
    "in_set": ("sets",),
    "missing_number": ("missing_number",),
    "missing_level": ("missing_level",),
    "call": ("functions",),
}


def _count_lines(made: CLayout) -> Counter[str]:
    """Count the lines of nested tests by what they add to a program."""
    facts: Counter[str] = Counter()
    for function in made.values["functions"]:
        thresholds: set[str] = set()
        open_tests: list[int] = []
        facts["functions"] += 1
        for at, line in enumerate(function.lines):
            facts.update(_FACTS_BY_OP.get(line.op, ()))
            if line.op.startswith("le_"):
                thresholds.add(line.value)
            elif line.op == "in_codes":
                facts["codes"] += len(line.codes)
            elif line.op == "leaf":
                facts["large_leaves"] += int(line.at) > _MAX_SMALL_NUMBER
            if line.op == "otherwise":
                facts["far_branches"] += at - open_tests.pop() > _MAX_NEAR_LINES
            elif line.op not in ("leaf", "call", "unused", "end"):
                open_tests.append(at)
        facts["thresholds"] += len(thresholds)
    return facts
