"""Target "c": C99 source and header; no allocation, no library, reentrant."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.features import LevelIndex
from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.c.compact import make_compact_layout
from treekit.export.c.firmware import (
    estimate_flash,
    estimate_float_flash,
    estimate_form_difference,
    estimate_integer_saving,
    estimate_readable_flash,
)
from treekit.export.c.hybrid import make_hybrid_layout
from treekit.export.c.layouts import (
    INTERLEAVED_TREES,
    MAX_ARRAY_ELEMENTS,
    ROW_BYTES,
    CLayout,
    CTable,
    CTypes,
    choose_c_types,
    compute_size_values,
    make_c_table,
    make_fractional_layout,
    make_if_else_layout,
    make_packed_layout,
    make_struct_table,
    make_text_table,
    narrow_integers,
)
from treekit.export.literals import (
    BLANKS,
    Code,
    Language,
    float_literal,
    format_lines,
    identifier,
    identifiers,
    list_template_folders,
    render_from,
    string_literals,
)
from treekit.export.lowering import (
    FORM_REASON,
    LeafTable,
    LoweredTree,
    choose_form,
    leaf_table,
    lower_unless_fractional,
)
from treekit.export.readable import (
    ReadableLine,
    add_reason,
    comment_text,
    explain_replaced,
    explain_unreadable,
    readable_values,
    require_readable,
)
from treekit.export.template_values import format_exp_constants, needs_missing_markers
from treekit.model.fixed_point import floor_to_dtype, scale_units
from treekit.model.model import Model
from treekit.model.tree import DerivedColumns

# ---------------------------------------------------------------- c answers


def make_leaf_source(model: Model, leaves: LeafTable) -> tuple[str, dict[str, Any], list[CTable]]:
    """Return the template of leaf values (dense or nonzero entries), and its values and tables."""
    start, column, units = leaves.sparse()
    votes = model.schema.task == "classification" and not model.margins
    words = ", its votes" if votes else f", in steps of 2**{model.exponents[0]}"
    if not isinstance(model.exponent, int):
        words = ", in the step of each output"
    values: dict[str, Any] = {"grid_words": Code(words)}
    sparse = {
        "leaf_starts": narrow_integers(start),
        "leaf_columns": narrow_integers(column),
        "leaf_units": _narrow_signed(units),
    }
    whole = _narrow_signed(leaves.vectors.ravel())
    # Dense vectors need no lookup of their start, which is worth twice the bytes.
    if whole.nbytes > 2 * sum(part.nbytes for part in sparse.values()):
        return "leaves/sparse", values, [make_c_table(*part) for part in sparse.items()]
    if len(whole) > MAX_ARRAY_ELEMENTS:
        # Bytes of the differences to the smallest unit, the lowest byte first.
        least = int(whole.min())
        more = narrow_integers(whole.astype(np.int64) - least)
        width = more.itemsize
        values |= {"least_unit": Code(str(least)), "unit_width": width}
        values["units_a_row"] = ROW_BYTES // width
        octets = more.astype(f"<u{width}").view(np.uint8)
        return "leaves/text", values, [make_text_table("leaf_units", octets)]
    return "leaves/dense", values, [make_c_table("leaf_units", whole)]


def _narrow_signed(units: Any) -> Any:
    """Convert to the narrowest signed type, which C adds to signed sums without a warning."""
    return units.astype(np.min_scalar_type(int(-abs(units).max(initial=1))))


def compute_prediction_values(
    model: Model, types: CTypes
) -> tuple[dict[str, Any], list[CTable], set[str]]:
    """Return the template values, tables and helper functions that turn sums into predictions."""
    schema = model.schema
    classes, several = schema.task == "classification", bool(schema.more)
    labels = several and classes
    softmax = model.link == "softmax" and not types.integers_only
    exponents = [model.exponent] if isinstance(model.exponent, int) else model.exponent
    values: dict[str, Any] = {
        "kind": "number" if not classes else "labels" if several else "label",
        "votes": int(classes and not model.margins),
        "several": int(several),
        "softmax": int(softmax),
        "divides": int(model.missing == "fractional"),
        "floors": int(model.part_bits > 0),
        "integers_only": int(types.integers_only),
        "labels": len(schema.outputs) if labels else 1,
        "value": Code(_format_prediction(model, types)),
        "received": Code(_describe_output(model, types)),
        "unit_total": Code(str(model.unit_total)),
        "divisor": Code(str(model.divisor)),
        "exponent": Code(", ".join(map(str, exponents))),
        "one_step": int(isinstance(model.exponent, int)),
        "link": Code(model.link),
        "margins": int(model.margins),
    }
    tables, uses = [], set()
    if classes:
        uses.add("most_votes" if model.label_costs is None else "least_cost")
    if not isinstance(model.exponent, int) and not types.integers_only:
        tables.append(make_c_table("scales", scale_units(1.0, model.exponent)))
    if labels or softmax:
        uses.add("blocks")
        tables.append(make_c_table("blocks", np.array(schema.blocks, dtype=np.int32)))
    if model.label_costs is not None:
        tables.append(make_c_table("costs", model.label_costs.ravel().astype(np.int64)))
    if model.link != "identity" and not types.integers_only:
        uses |= {"exp", model.link}
        values["exp"] = format_exp_constants(Language("c"))
    return values, tables, uses


def _describe_output(model: Model, types: CTypes) -> str:
    """Return what a prediction writes to ``out``, in words."""
    if model.schema.task == "regression":
        return "integers, see below" if types.integers_only else "the number of each target"
    if model.margins:
        what = "the margin, as an integer," if types.integers_only else "the probability"
    else:
        what = "the votes" if types.integers_only else "the share of the votes"
    return f"{what} of each class"


def _format_prediction(model: Model, types: CTypes) -> str:
    """Return the prediction as an expression of ``sums[number]``."""
    if types.integers_only:
        return "sums[number]"
    if model.schema.task == "classification" and not model.margins:
        return f"(double)sums[number] / {model.unit_total}.0"
    by = "" if model.divisor == 1 else f" / {model.divisor}.0"
    scale: str = f"{types.prefix}_scales[number]"
    if isinstance(model.exponent, int):
        scale = float_literal(math.ldexp(1.0, model.exponent))
    number = f"(double)sums[number]{by} * {scale}"
    return f"{types.prefix}_{model.link}({number})" if model.link in ("exp", "sigmoid") else number


# ---------------------------------------------------------------- c derived columns
# Derived columns are tables, read by a small function.  Tests of one column compare
# ordered keys and tests of categories look up a branch; only real sums use doubles.


def make_derived_source(
    derived: DerivedColumns, schema: Schema, types: CTypes
) -> tuple[dict[str, Any], list[CTable], set[str]]:
    """Return values and tables of ``helpers/derived``, and the helpers that it calls."""
    by_level, first_term = derived.level_feature >= 0, derived.term_start[:-1]
    terms = np.diff(derived.term_start)
    sums = _find_sums(derived)
    alone = ~by_level & ~sums
    levels = np.diff(derived.level_start)
    column = np.where(by_level, derived.level_feature, -1)
    column[alone] = derived.term_feature[first_term[alone]]
    # The count encodes the kind of a test, see the comment in the template.
    count = np.where(by_level, -1 - levels, np.where(alone, 0, terms))
    first = np.where(by_level, derived.level_start[:-1], np.where(sums, first_term, 0))
    # The key of the threshold of one-column tests, the number of the limit of sums.
    limit = np.zeros(len(derived.threshold), dtype=types.key_dtype)
    limit[alone] = types.compute_keys(floor_to_dtype(derived.threshold[alone], schema.dtype))
    limit[sums] = np.arange(np.count_nonzero(sums))
    others = (derived.below, derived.above, derived.lost, column, first, count)
    members = [limit, *(member.astype(np.int32) for member in others)]
    tables = [
        make_c_table("test_starts", derived.test_start.astype(np.int32)),
        make_struct_table("tests", f"struct {types.prefix}_test", members),
    ]
    if sums.any():
        tables += [
            make_c_table("limits", derived.threshold[sums]),
            make_c_table("weights", derived.term_weight),
            make_c_table("terms", derived.term_feature.astype(np.int32)),
        ]
    if by_level.any():
        tables.append(make_c_table("test_branches", derived.level_branch.astype(np.int32)))
    # The helper that each kind of test calls.
    there = (("sum", "float32", sums), ("number", "number", alone), ("level", "is_level", by_level))
    kinds = [kind for kind, _, tests in there if tests.any()]
    return {"derived_kinds": kinds}, tables, {name for _, name, tests in there if tests.any()}


def _find_sums(derived: DerivedColumns) -> npt.NDArray[np.bool_]:
    """Return a mask (tests,) of tests that are not a single column compared with a threshold."""
    terms = np.diff(derived.term_start)
    alone = terms == 1
    alone[alone] = derived.term_weight[derived.term_start[:-1][alone]] == 1.0
    result: npt.NDArray[np.bool_] = (derived.level_feature < 0) & ~alone
    return result


# ---------------------------------------------------------------- readable c
# A struct of the tested columns, enums, and nested tests; see `treekit.export.readable`.

MAX_LEVELS = 100
"""Maximum number of categories of a column that is written as an enum."""

_MAX_ENUMERATOR = 60  # compilers need to tell 63 characters apart

_C = Language(
    "c",
    reserved=frozenset(
        """auto break case char const continue default do double else enum extern float for goto
        if inline int long register restrict return short signed sizeof static struct switch
        typedef union unsigned void volatile while row asm class new delete this template typename
        public private protected namespace using try catch throw bool true false virtual operator
        friend explicit export mutable and or not xor bitand bitor compl alignas alignof
        nullptr unix linux i386 errno""".split()  # noqa: SIM905
    ),
)
"""Identifiers avoid the words of C++, which may include the header."""


def explain_unreadable_c(model: Model, trees: tuple[LoweredTree, ...]) -> str:
    """Return the reason why a model has no readable form in C; empty if it has one."""
    most = max((len(column.levels) for column in model.schema.columns), default=0)
    return explain_unreadable(model, trees) or (
        f"a column has more than {MAX_LEVELS} categories" if most > MAX_LEVELS else ""
    )


def readable_c_values(model: Model, tree: LoweredTree, name: str) -> dict[str, Any]:
    """Compute the values of the templates ``c/readable_*.jinja``."""
    schema, prefix = model.schema, identifier(name, "model")
    values = readable_values(model, tree, name, _C)
    labels = [str(label) for label in schema.classes]
    taken = {f"{prefix.upper()}_H"}
    class_names = _name_constants(labels, prefix, taken)
    constants = dict(zip([_C.value(label) for label in schema.classes], class_names, strict=True))
    enumerators: dict[Code, dict[Code, Code]] = {}
    for column in values["columns"]:
        own = schema.columns[column["number"] - 1]
        start = f"{prefix}_{column['identifier']}"
        made = _name_constants(own.levels, start, taken)
        enumerators[column["identifier"]] = dict(zip(column["levels"], made, strict=True))
        if column["nominal"]:
            (missing,) = _name_constants(["missing"], start, taken)
            column["missing"] = missing
            column["enumerators"] = _write_enumerators(made, own.levels, missing)

    def convert_line(line: ReadableLine) -> ReadableLine:
        if line.kind == "leaf":
            return line._replace(prediction=constants.get(line.prediction, line.prediction))
        own = enumerators[line.column]
        return line._replace(levels=tuple(own[level] for level in line.levels))

    return values | {
        "flash": list(estimate_readable_flash(values["lines"], schema)),
        "lines": [convert_line(line) for line in values["lines"]],
        "class_names": _write_enumerators(class_names, labels),
        "p": prefix,
        "P": Code(prefix.upper()),
        "file_name": Code(name),
        "doubles": int(schema.dtype != "float32" or not labels),
        "cell": Code("float" if schema.dtype == "float32" else "double"),
        "result": Code(f"enum {prefix}_class" if labels else "double"),
    }


def _name_constants(texts: Sequence[str], prefix: str, taken: set[str]) -> list[Code]:
    """Make names of enumerators that are not taken by others, and add them to `taken`."""
    longest = max(_MAX_ENUMERATOR - len(prefix), 24)
    names = identifiers([text.upper() for text in texts], f"{prefix.upper()}_", "VALUE", longest)
    made = []
    for name in names:
        while name in taken:
            name += Code("_")  # noqa: PLW2901
        taken.add(name)
        made.append(name)
    return made


def _write_enumerators(names: Sequence[Code], texts: Sequence[str], missing: str = "") -> Code:
    """Write the enumerators of an enum, with the texts if a name has lost letters of its own."""
    first = [f"{missing} = -1"] if missing else []
    letters = [re.sub(r"[\W_]", "", text).upper() for text in texts]
    if not all(
        name.replace("_", "").endswith(own) and own
        for name, own in zip(names, letters, strict=True)
    ):
        lines = [f"    {line}," for line in first] + [
            f"    {name}, /* {comment_text(text)} */"
            for name, text in zip(names[:-1], texts, strict=False)
        ]
        return Code("\n".join(["", *lines, f"    {names[-1]} /* {comment_text(texts[-1])} */", ""]))
    all_names = ", ".join([*first, *names])
    if len(all_names) <= 68:
        return Code(f" {all_names} ")
    lines = textwrap.wrap(all_names, 92, break_long_words=False)
    return Code("\n" + "\n".join(f"    {line}" for line in lines) + "\n")


# ---------------------------------------------------------------- c

_MAX_CLASSES = 100_000  # the sums of the classes are on the stack
_HELPER_TEMPLATES = (
    *("is_level", "has_code", "order", "number", "is_missing", "float32", "derived"),
    *("refuses", "accepts", "most_votes", "least_cost", "exp", "sigmoid", "softmax"),
)
"""Templates of helper functions, in source order."""
_CALLED_HELPERS = {
    "refuses": {"is_level"},
    "is_missing": {"is_level", "number"},
    "number": {"order"},
}
_KEY_HELPERS = ("is_level", "has_code")
"""Helpers with a different template for integer cells."""


def export_c(
    model: Model,
    name: str,
    *,
    form: str = "auto",
    input: str = "double",  # noqa: A002 - the name of the setting
    arithmetic: str = "float",
    templates: str = "",
) -> dict[str, bytes]:
    """Write ``name.c`` and ``name.h``.

    Parameters
    ----------
    model : Model
    name : str
        Stem of the files; all global names begin with ``identifier(name, "model")``.
    form : {"auto", "readable", "full", "if_else", "hybrid", "table", "compact"}
        "readable": a single function with nested tests on the members of a struct, for a small
        tree; see `treekit.export.readable`.  The others have functions for predictions,
        batches of rows, leaves, names and category codes: nested if/else, or tables and a
        short loop; "hybrid": nested tests for the nodes that most training rows visit, tables
        for the others; "compact": tables of few bytes, for little flash, see
        `treekit.export.c.compact`; "full": the smaller of if/else and tables for integers,
        which is an estimate, else the faster, see `choose_c_layout`.  "auto": "readable" if
        the model has that form and the other settings have their defaults, else "full".
    input : {"double", "float"}
        Type of the cells of a row.
    arithmetic : {"float", "integer"}
        "integer": no floating point at all; rows are order-preserving integers, which a
        function of the source computes from IEEE 754 bits, and predictions are integer sums.
    templates : str
        Folder whose ``c/*.jinja`` replace the shipped ones; "" = none.

    Raises
    ------
    ExportError
        If a name cannot be a string in C, the model exceeds 32-bit tables, or it does not
        support the requested input type or arithmetic.
    """
    if not name.isprintable() or any(character in name for character in '"\\?/'):
        raise ExportError(
            f"{name!r} cannot be used in an #include line: choose a file name without quotes, "
            "slashes, question marks and control characters"
        )
    folders, unreadable = list_template_folders(templates), ""
    trees = lower_unless_fractional(model)
    usual = (input, arithmetic) == ("double", "float")
    if form == "readable" or (form == "auto" and usual):
        unreadable = "" if usual else "input or arithmetic is set"
        unreadable = unreadable or explain_unreadable_c(model, trees)
        unreadable = require_readable(form, unreadable or explain_replaced(folders, "c"))
        if not unreadable:
            values = readable_c_values(model, trees[0], name)
            return {
                f"{name}.{ending}": render_from(folders, f"c/readable_{part}.jinja", **values)
                for ending, part in (("c", "source"), ("h", "header"))
            }
    form = "auto" if form == "full" else form
    if model.schema.n_values > _MAX_CLASSES:
        raise ExportError(
            f"the target 'c' supports up to {_MAX_CLASSES} classes, got {model.schema.n_values}"
        )
    prefix = identifier(name, "model")
    types = choose_c_types(model, prefix, input, arithmetic)
    leaves, derived = leaf_table(model.units), model.derived
    if types.integers_only and _find_sums(derived).any():
        raise ExportError(
            "arithmetic='integer' does not support splits on sums of columns, which this model "
            "has: choose arithmetic='float', or train without oblique splits"
        )
    made = choose_c_layout(model, trees, leaves, form, types)
    leaf_template, values, leaf_tables = make_leaf_source(model, leaves)
    answers, answer_tables, uses = compute_prediction_values(model, types)
    schema = model.schema
    counts = np.where(schema.nominal, schema.n_levels, -1).astype(np.int32)
    tables = [make_c_table("levels", counts), *made.tables, *leaf_tables, *answer_tables]
    uses |= made.helpers | {"refuses" if "error" in (model.missing, model.unknown) else "accepts"}
    values |= types.make_values() | _compute_name_values(model, name, prefix)
    values |= answers | made.values
    if "derived" in uses:
        derived_values, derived_tables, helpers = make_derived_source(derived, schema, types)
        values |= derived_values
        tables += derived_tables
        uses |= helpers
    uses = _add_called_helpers(uses, types)
    reason = add_reason(Code(made.reason), unreadable)
    values |= {"form": Code(made.name), "reason": reason, "derived_count": derived.n_columns}
    count = _find_largest_count(model, made)
    values["beyond_int16"] = count if count > _MAX_INT16_COUNT else 0
    oblique = bool(_find_sums(derived).any())
    values["double_remedy"] = Code("" if oblique else ": export with arithmetic=integer")
    values["integer_saving"] = 0
    state_flash = estimate_flash if types.integers_only else estimate_float_flash
    values["flash"] = list(state_flash(model, made, tables, types, uses))
    if not types.integers_only and not oblique:
        chosen = form == "auto" and made.name == "if_else"
        packed = make_packed_layout(model, leaves, "", types) if chosen else None
        values["integer_saving"] = estimate_integer_saving(model, made, packed, types, uses)
    values["parts"] = _list_parts(made, leaf_template, uses, types)
    values |= compute_size_values(model, made, tables, types, uses)
    return {
        f"{name}.c": render_from(folders, "c/source.jinja", **values),
        f"{name}.h": render_from(folders, "c/header.jinja", **values),
    }


_MAX_INT16_COUNT = 2**15 - 1 - INTERLEAVED_TREES  # loops look so many trees ahead


def _find_largest_count(model: Model, made: CLayout) -> int:
    """Return the largest number that an int of the source and of its interface holds."""
    schema = model.schema
    labels = sum(len(output.classes) for output in schema.outputs)
    nodes = max(tree.n_nodes for tree in model.trees)  # a leaf is the number of a node
    levels = int(schema.n_levels.max(initial=0))
    deepest: int = made.values.get("deepest", 0)
    counts = (schema.n_features, schema.n_values, labels, model.n_trees, nodes, levels, deepest)
    return max(counts)


def _write_titles(names: Sequence[str]) -> Code:
    """Return names for a comment in plain ASCII, without trigraphs."""
    text = comment_text(", ".join(names))
    return Code(text.encode("ascii", "replace").decode().replace("?", "_"))


def _compute_name_values(model: Model, name: str, prefix: Code) -> dict[str, Any]:
    """Compute the template values of sizes, names and vocabularies."""
    schema = model.schema
    known = [LevelIndex(c.levels, schema.missing_marks) for c in schema.columns]
    # Code points sort in the same order as UTF-8 bytes.
    entries = [sorted(index.codes.items()) for index in known]
    starts = np.cumsum([0, *map(len, entries)]).tolist()
    texts = [text for own in entries for text, _ in own]
    codes = [code for own in entries for _, code in own]
    has_aliases = any(index.aliases for index in known)
    # No C string holds a NUL, and no UTF-8 half a surrogate pair.
    utf8 = (mark.encode(errors="ignore").decode() for mark in schema.missing_marks)
    marks = [mark for mark in utf8 if mark in schema.missing_marks and "\0" not in mark]
    labels = [str(label) for output in schema.outputs for label in output.classes]
    targets = [output.name for output in schema.outputs] if schema.more else []
    words = [*schema.names, *labels, *targets, *texts]
    tells_missing, long_texts = needs_missing_markers(model), list[Code]()
    return {
        "long_texts": long_texts,
        "p": prefix,
        "P": Code(prefix.upper()),
        "file_name": Code(name),
        "target_titles": _write_titles([output.name for output in schema.outputs]),
        "features": schema.n_features,
        "targets": len(schema.outputs),
        "classes": len(labels),
        "outputs": schema.n_values,
        "trees": model.n_trees,
        "feature_names": _write_texts(schema.names, prefix, long_texts),
        "class_names": _write_texts(labels, prefix, long_texts),
        "target_names": _write_texts(targets, prefix, long_texts),
        "has_aliases": int(has_aliases),
        "level_starts": format_lines(list(map(str, starts if has_aliases else starts[:-1]))),
        "level_texts": _write_texts(texts, prefix, long_texts),
        "level_codes": format_lines(list(map(str, [*codes, -1]))),
        "tells_missing": int(tells_missing),
        "missing_marks": _write_texts(marks if tells_missing else [], prefix, long_texts),
        "blanks": string_literals(BLANKS, "c"),
        "text_bytes": sum(len(word.encode(errors="surrogatepass")) + 1 for word in words)
        + 4 * (schema.n_features + has_aliases + len(codes) + 1),
        "pointers": len(words) + 2,
        "refuses_missing": int(model.missing == "error"),
        "refuses_unseen": int(model.unknown == "error"),
    }


_COMPOUND = "(const char[])"


def _write_texts(texts: Sequence[str], prefix: str, arrays: list[Code]) -> list[Code]:
    """Write texts as literals; long ones as names of arrays, which are added to `arrays`.

    C99 limits string literals, and C++ has no compound literals.
    """
    written = []
    for literal in string_literals(texts, "c"):
        if literal.startswith(_COMPOUND):
            name = Code(f"{prefix}_text_{len(arrays)}")
            arrays.append(Code(f"{name}[] = {literal.removeprefix(_COMPOUND)}"))
            written.append(name)
        else:
            written.append(literal)
    return written


def _add_called_helpers(uses: set[str], types: CTypes) -> set[str]:
    """Add the helpers that the helpers in use call."""
    for one, others in _CALLED_HELPERS.items():
        if one in uses:
            uses = uses | others
    if types.integers_only:
        uses = (uses | {"order"}) - {"number"}  # the caller computes keys with that function
    return uses


def _list_parts(made: CLayout, leaf_template: str, uses: set[str], types: CTypes) -> list[str]:
    """List the source's templates, in order."""
    return [
        *(
            f"helpers/{name}{'_key' if types.integers_only and name in _KEY_HELPERS else ''}"
            for name in _HELPER_TEMPLATES
            if name in uses
        ),
        *(["answers/blocks"] if "blocks" in uses else []),
        *(leaf_template, made.template, "answers/say", "answers/predict"),
        *(["walk/block", "walk/batch_blocks"] if made.block_rows else ["walk/batch_rows"]),
        "answers/names",
    ]


# ---------------------------------------------------------------- c forms


def choose_c_layout(
    model: Model, trees: tuple[LoweredTree, ...], leaves: LeafTable, wanted: str, types: CTypes
) -> CLayout:
    """Choose the layout of the source (nested tests, tables or both) and build it.

    Parameters
    ----------
    wanted : {"auto", "if_else", "hybrid", "table", "compact"}
        "auto" chooses nested tests for up to `treekit.export.lowering.MAX_IF_ELSE_NODES`
        nodes, which is still readable.  Larger models with fewer trees than are interleaved for a
        row (`treekit.export.c.layouts.INTERLEAVED_TREES`) become hybrids: a single traversal of a
        table stalls at each node, while nested tests benefit from branch prediction.  All others
        become tables, whose interleaved traversals overlap their stalls.  Integer arithmetic
        is for small processors with little branch prediction and memory: it uses no hybrids,
        and nested tests only where they are estimated to be smaller than a table.  With
        floating point, tables are smaller, but nested tests score ten small trees in a
        third of the time (measured on x86-64).

    Raises
    ------
    ExportError
        If the model cannot have that form, or exceeds 32-bit tables.
    """
    if wanted == "compact":
        return make_compact_layout(model, trees, leaves, FORM_REASON, types)
    if model.missing == "fractional":
        return make_fractional_layout(model, leaves, wanted, types)
    if wanted == "hybrid":
        return make_hybrid_layout(model, leaves, FORM_REASON, types)
    name, reason = choose_form(wanted, model.n_nodes)
    if name == "if_else":
        nested = make_if_else_layout(model, trees, leaves, reason, types)
        if wanted == "auto" and types.integers_only:
            packed = make_packed_layout(model, leaves, reason, types)
            return _choose_smaller(model, nested, packed, types)
        return nested
    if wanted == "auto" and model.n_trees < INTERLEAVED_TREES and not types.integers_only:
        reason = f"the model has {model.n_nodes} nodes, and fewer than {INTERLEAVED_TREES} trees"
        return make_hybrid_layout(model, leaves, reason, types)
    return make_packed_layout(model, leaves, reason, types)


def _choose_smaller(model: Model, nested: CLayout, packed: CLayout, types: CTypes) -> CLayout:
    """Return the layout that is smaller in flash, with the reason."""
    more = estimate_form_difference(model, nested, packed, types)
    chosen, other = (nested, "a table") if more <= 0 else (packed, "nested tests")
    reason = f"about {abs(more)} bytes smaller than {other} on a Cortex-M0"
    return replace(chosen, reason=reason)
