"""Trees as CASE expressions or tables, and sums of the votes of all trees.

A CASE follows the path to the heavier child, so that each nested CASE is at most
half as large: 20 levels are enough for a million leaves, and a chain of any depth is a single
flat CASE.  (Heavy paths: Sleator and Tarjan 1983, section 5.)
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from treekit.errors import ExportError
from treekit.export.fractional import DividedTable, build_fractional_table
from treekit.export.lowering import (
    LeafTable,
    LoweredTree,
    NodeTable,
    Step,
    compute_double_thresholds,
    leaf_table,
    node_table,
)
from treekit.model.fixed_point import MASS, to_double_threshold
from treekit.model.model import Model
from treekit.model.tree import expand_slices
from treekit_sql.conditions import (
    make_category_sides,
    make_category_test,
    make_interval_test,
    make_threshold_sides,
)
from treekit_sql.inputs import InputColumns
from treekit_sql.syntax import (
    Query,
    Sql,
    add_terms,
    as_sql,
    chain_terms,
    combine,
    make_binary,
    make_call,
    make_case,
    make_cast,
    make_null_test,
    make_select,
    make_switch,
)

# ---------------------------------------------------------------- sql case

_SUM_BITS = 31
"""Bits of each of two sums of votes that share a BIGINT."""


def group_values(model: Model) -> list[list[int]]:
    """Return the sums that each copy of the trees computes: one, or two in one BIGINT.

    The votes for the last class of a target follow from the others.
    """
    schema = model.schema
    votes = schema.task == "classification" and not model.margins
    size = 2 if votes and model.unit_total < 1 << _SUM_BITS else 1
    groups: list[list[int]] = []
    for first, last in pairwise(schema.blocks):
        start = first + 1 if model.margins and last - first == 2 else first  # its margin is 0
        own = range(start, last - 1 if votes else last)
        groups += [list(own[i : i + size]) for i in range(0, len(own), size)]
    return groups


def add_case_steps(query: Query, cells: InputColumns, trees: tuple[LoweredTree, ...]) -> None:
    """Add the steps from cells to the sums ``s0``, ``s1``, ... of the model's values."""
    model = cells.model
    groups = group_values(model)
    shift = np.array([1, 1 << _SUM_BITS])
    packed = [(model.units[:, own] * shift[: len(own)]).sum(axis=1).tolist() for own in groups]
    thresholds = [compute_double_thresholds(tree, model.schema).tolist() for tree in trees]
    sizes = [count_subtree_nodes(tree) for tree in trees]
    made: dict[str, Sql] = {}
    for number, values in enumerate(packed):
        terms = [
            # Without the cast, literals that fit 32 bits would overflow in sums.
            make_cast(_make_tree_case(cells, tree, own, size, values, 0), "BIGINT")
            for tree, own, size in zip(trees, thresholds, sizes, strict=True)
        ]
        made[f"g{number}"] = add_terms(terms)
    query.add_step("trees", made)
    query.add_step("sums", _unpack_sums(model, groups))


def _unpack_sums(model: Model, groups: list[list[int]]) -> dict[str, Sql]:
    """Return the sum of each of the model's values."""
    schema = model.schema
    made: dict[int, Sql] = {}
    for number, own in enumerate(groups):
        group = made[own[0]] = as_sql(f"g{number}")
        if len(own) == 2:
            made[own[0]] = make_binary(exp.BitwiseAnd, group, (1 << _SUM_BITS) - 1)
            made[own[1]] = make_binary(exp.BitwiseRightShift, group, _SUM_BITS)
    for first, last in pairwise(schema.blocks):
        others = [made[k].copy() for k in range(first, last) if k in made]
        if model.margins and len(others) < last - first:
            made[first] = make_cast(0, "BIGINT")
        elif len(others) < last - first:
            total = make_cast(model.unit_total, "BIGINT")
            if others:
                total = combine(exp.Sub, total, exp.Paren(this=add_terms(others)))
            made[last - 1] = total
    return {f"s{k}": made[k] for k in range(schema.n_values)}


def count_subtree_nodes(tree: LoweredTree) -> list[int]:
    """Count the nodes of the subtree of each node."""
    sizes = [1] * tree.n_nodes
    yes, no, kind = tree.yes.tolist(), tree.no.tolist(), tree.kind.tolist()
    for node in range(tree.n_nodes - 1, -1, -1):
        if kind[node] != Step.LEAF:
            sizes[node] = 1 + sizes[yes[node]] + sizes[no[node]]
    return sizes


def compute_nesting(tree: LoweredTree) -> int:
    """Compute the nesting depth of the CASE expression of a tree."""
    deep: npt.NDArray[np.int64] = np.zeros(tree.n_nodes, dtype=np.int64)
    sizes = count_subtree_nodes(tree)
    for node in range(tree.n_nodes - 1, -1, -1):
        if tree.kind[node] != Step.LEAF:
            light, heavy = order_children(tree, sizes, node)
            deep[node] = max(1, deep[light] + 1, deep[heavy])
    return int(deep[0])


def order_children(tree: LoweredTree, sizes: list[int], node: int) -> tuple[int, int]:
    """Return the lighter and the heavier child."""
    yes, no = int(tree.yes[node]), int(tree.no[node])
    return (yes, no) if sizes[yes] <= sizes[no] else (no, yes)


def _make_tree_case(
    cells: InputColumns,
    tree: LoweredTree,
    thresholds: list[float],
    sizes: list[int],
    values: list[int],
    node: int,
) -> Sql:
    found: list[tuple[Sql, Sql]] = []
    while tree.kind[node] != Step.LEAF:
        light, heavy = order_children(tree, sizes, node)
        condition = _make_condition(cells, tree, thresholds, node, light == int(tree.yes[node]))
        found.append((condition, _make_tree_case(cells, tree, thresholds, sizes, values, light)))
        node = heavy
    return make_case(found, values[int(tree.leaf[node])])


# ---------------------------------------------------------------- sql table
# A recursive query traverses tables: the size of its plan does not depend on the model.
#
# A step joins each row, in each tree, with its current node and evaluates the
# test of the node; the recursion ends at a negative number, which denotes a leaf.


def add_table_steps(query: Query, cells: InputColumns, trees: tuple[LoweredTree, ...]) -> None:
    """Add the steps from cells, numbered by `ROW`, to the sums ``s0``, ``s1``, ... of a row."""
    model, dialect, source = cells.model, cells.dialect, query.last_step
    leaves = leaf_table(model.units)
    if dialect.name == "sqlite":
        query.add_table("powers", _make_power_table())
    # One row for each nonzero entry of the distinct leaf vectors.
    start, position, units = leaves.sparse()
    leaf = np.repeat(np.arange(len(start) - 1), np.diff(start))
    listed = dialect.make_row_table(leaf=-1 - leaf, position=position, units=units)
    query.add_table("leaves", listed)
    if trees:
        _add_plain_steps(query, cells, node_table(trees, leaves, model.schema))
    else:
        _add_fractional_steps(query, cells, leaves)
    _add_sum_steps(query, model, source)


def _add_plain_steps(query: Query, cells: InputColumns, table: NodeTable) -> None:
    """Add the steps of a model without fractional instances."""
    kind = table.question % 4
    missing = np.where((kind == 1) | (kind == 3), table.yes, table.no)
    members = _make_member_texts(kind, table.set_start, table.set_codes)
    source = query.last_step
    query.add_table("roots", cells.dialect.make_row_table(node=table.root))
    query.add_table(
        "nodes",
        cells.dialect.make_row_table(
            node=np.arange(len(kind)),
            feature=table.question // 4,
            bound=np.where(kind == 2, 0.0, table.value),
            members=members,
            yes=np.where(kind == 3, table.no, table.yes),
            no=table.no,
            missing=missing,
        ),
    )
    asked = _select_cell(cells)
    in_set = combine(exp.EQ, extract_entry("members", asked, 1), cells.dialect.make_text("1"))
    listed = exp.Not(this=make_null_test("nodes.members"))
    yes, no = as_sql("nodes.yes"), as_sql("nodes.no")
    tests: list[tuple[Sql, Sql]] = [(make_null_test(asked), as_sql("nodes.missing"))]
    if any(member is not None for member in members):
        tests.append((listed, make_case([(in_set, yes)], no)))
    tests.append((combine(exp.LTE, asked, "nodes.bound"), yes))
    _add_traversal(query, source, {}, {"node": make_case(tests, no)})


def _make_member_texts(
    kind: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]
) -> list[str | None]:
    """Return for each node with a set a text with 1 at the positions of the members, else None."""
    made: list[str | None] = [None] * len(kind)
    nodes = np.flatnonzero(kind == 2).tolist()
    for node, (first, last) in zip(nodes, pairwise(starts.tolist()), strict=True):
        own = codes[first:last]
        flags = np.zeros(own[-1] + 1, dtype=np.uint8)
        flags[own] = 1
        made[node] = (flags + ord("0")).tobytes().decode("ascii")
    return made


def _add_sum_steps(query: Query, model: Model, source: str) -> None:
    units: Sql = as_sql("leaves.units")
    if model.missing == "fractional":
        units = _multiply_by_mass(units, model.part_bits)
    columns: dict[str, Sql] = {ROW_COLUMN: as_sql(f"steps.{ROW_COLUMN}")}
    for k in range(model.schema.n_values):
        term = make_switch("leaves.position", [(k, units)], 0)
        columns[f"s{k}"] = make_cast(make_call("SUM", term), "BIGINT")
    here = combine(exp.EQ, "leaves.leaf", "steps.node")
    ended = combine(exp.LT, "steps.node", 0)
    totals = (
        make_select(columns, "steps")
        .join(exp.to_table("leaves"), on=here, join_type="LEFT", copy=False)
        .where(ended, copy=False)
        .group_by(as_sql(f"steps.{ROW_COLUMN}"), copy=False)
    )
    query.append_query("totals", totals)
    made = {name: as_sql(f"{source}.{name}") for name in query.carried_columns}
    made |= {f"s{k}": as_sql(f"s{k}") for k in range(model.schema.n_values)}
    same = combine(exp.EQ, f"{source}.{ROW_COLUMN}", f"totals.{ROW_COLUMN}")
    sums = make_select(made, source).join(exp.to_table("totals"), on=same, copy=False)
    query.append_query("sums", sums)


def _multiply_by_mass(units: Sql, bits: int) -> Sql:
    """Multiply by the mass of a step; see `treekit.model.fixed_point.multiply_by_mass`."""
    if bits == 0:
        return combine(exp.Mul, "steps.mass", units)
    high = make_binary(exp.BitwiseRightShift, units, bits)
    low = make_binary(exp.BitwiseAnd, units, (1 << bits) - 1)
    low = make_binary(exp.Mul, "steps.mass", low)
    return combine(
        exp.Add, combine(exp.Mul, "steps.mass", high), make_binary(exp.BitwiseRightShift, low, bits)
    )


def _make_power_table() -> exp.Union:
    """Build the table of all powers of two that are doubles, exact by repeated multiplication."""
    start = {"exponent": "0", "up": "1.0", "down": "1.0"}
    begin = make_select({name: exp.Literal.number(number) for name, number in start.items()})
    following: dict[str, Sql] = {
        "exponent": combine(exp.Add, "exponent", 1),
        "up": combine(exp.Mul, "up", exp.Literal.number("2.0")),
        "down": combine(exp.Mul, "down", exp.Literal.number("0.5")),
    }
    more = combine(exp.LT, "exponent", 1074)
    return exp.union(
        begin, make_select(following, "powers").where(more, copy=False), distinct=False, copy=False
    )


# ---------------------------------------------------------------- sql traversal

ROW_COLUMN = "row_number"
"""Column that identifies the rows of the table."""


def _select_cell(cells: InputColumns) -> Sql:
    """Select the cell of the node's ``feature``, as a double."""
    n, d = len(cells.names), cells.derived.n_columns
    return _search_cell(cells, [*cells.used, *range(n, n + d)])


def _search_cell(cells: InputColumns, features: list[int]) -> Sql:
    """Select by binary search: few comparisons and shallow nesting for thousands of columns."""
    if not features:
        return make_cast(exp.Null(), "DOUBLE")
    if len(features) > 1:
        middle = len(features) // 2
        below = combine(exp.LT, "nodes.feature", features[middle])
        first = _search_cell(cells, features[:middle])
        return make_case([(below, first)], _search_cell(cells, features[middle:]))
    number = features[0] - len(cells.names)
    if number < 0:
        return make_cast(cells.get_column(features[0]), "DOUBLE")
    tests = make_derived_tests(cells, number)
    return make_cast(tests[0] if len(tests) == 1 else make_call("COALESCE", *tests), "DOUBLE")


def _add_traversal(
    query: Query,
    source: str,
    start: dict[str, Sql],
    step: dict[str, Sql],
    edges: tuple[Sql, ...] = (),
) -> None:
    """Add the recursive step from each row at the root of each tree, until no row moves.

    Parameters
    ----------
    source : str
        Step of the query that has the cells.
    start, step : dict
        Further columns of a row at a root, and its node and the others after a step.
    edges : tuple of Sql
        Conditions of the edges to which a row moves; empty if each row moves to one node.
    """
    columns = {ROW_COLUMN: as_sql(f"{source}.{ROW_COLUMN}"), "node": as_sql("roots.node")}
    roots = make_select(columns | start, source)
    roots = roots.join(exp.to_table("roots"), join_type="CROSS", copy=False)
    moved = make_select({ROW_COLUMN: as_sql(f"steps.{ROW_COLUMN}")} | step, "steps")
    here = combine(exp.EQ, "nodes.node", "steps.node")
    own = combine(exp.EQ, f"{source}.{ROW_COLUMN}", f"steps.{ROW_COLUMN}")
    moved = moved.join(exp.to_table("nodes"), on=here, copy=False)
    moved = moved.join(exp.to_table(source), on=own, copy=False)
    if edges:
        on = combine(exp.EQ, "edges.parent", "steps.node")
        moved = moved.join(exp.to_table("edges"), on=on, copy=False).where(*edges, copy=False)
    query.append_query("steps", exp.union(roots, moved, distinct=False, copy=False))


def extract_entry(name: str, code: Sql, width: int) -> Sql:
    """Build the entry of a category code in a text column of the node; "" beyond its end."""
    at = combine(exp.Mul, exp.Paren(this=make_cast(code, "BIGINT")), width)
    start = make_cast(combine(exp.Add, at, 1), "INT")
    return make_call("SUBSTR", f"nodes.{name}", start, width)


# ---------------------------------------------------------------- sql tests

_MAX_TERMS = 450
"""Maximum terms of a sum: each adds two levels of nesting, and engines allow 1,000."""


def make_derived_tests(cells: InputColumns, number: int) -> list[Sql]:
    """Build the tests of a derived column, in order: each 0, 1, or NULL if unknown.

    Raises
    ------
    ExportError
        For a sum of more columns than the engines can add in order.
    """
    derived = cells.derived
    own = range(int(derived.test_start[number]), int(derived.test_start[number + 1]))
    return [
        (_make_level_test if derived.level_feature[test] >= 0 else _make_linear_test)(cells, test)
        for test in own
    ]


def _make_level_test(cells: InputColumns, test: int) -> Sql:
    derived = cells.derived
    branch = derived.level_branch[derived.level_start[test] : derived.level_start[test + 1]]
    cell = cells.get_column(int(derived.level_feature[test]))
    return make_category_sides(cell, range(len(branch)), branch.tolist(), int(derived.lost[test]))


def _make_linear_test(cells: InputColumns, test: int) -> Sql:
    derived, dialect = cells.derived, cells.dialect
    own = slice(int(derived.term_start[test]), int(derived.term_start[test + 1]))
    features, weights = derived.term_feature[own].tolist(), derived.term_weight[own].tolist()
    if len(features) > _MAX_TERMS:
        raise ExportError(
            f"SQL supports sums of up to {_MAX_TERMS} columns; a split of the model has "
            f"{len(features)}: export to another target"
        )
    threshold = float(derived.threshold[test])
    if len(features) == 1 and weights[0] == 1.0:
        value = cells.get_column(features[0])
        if cells.model.schema.dtype == "float32":
            threshold = float(to_double_threshold(threshold))
    else:
        terms = [
            combine(
                exp.Mul,
                dialect.make_bound(weight),
                cells.rounded.get(feature, cells.names[feature]),
            )
            for feature, weight in zip(features, weights, strict=True)
        ]
        value = exp.Paren(this=chain_terms(terms))
        if len(features) > 1:
            value = dialect.replace_nan(value)  # infinite terms of both signs
    sides = (int(derived.below[test]), int(derived.above[test]), int(derived.lost[test]))
    return make_threshold_sides(value, dialect.make_bound(threshold), *sides)


def _make_condition(
    cells: InputColumns, tree: LoweredTree, thresholds: list[float], node: int, wanted: bool
) -> Sql:
    """Build the condition of the yes branch (the no branch if not `wanted`).

    It is TRUE if the row takes the branch, else FALSE or NULL, equivalent in a CASE.
    """
    kind, feature = tree.kind[node], int(tree.feature[node])
    missing = bool(tree.missing_yes[node])
    if feature >= len(cells.names):
        # 0 of a derived column is the yes branch, unknown the missing branch.
        tests = make_derived_tests(cells, feature - len(cells.names))
        side = make_call("COALESCE", *tests, 0 if missing else 1)
        return combine(exp.EQ, side, 0 if wanted else 1)
    value = cells.get_column(feature)
    if kind == Step.MISSING:
        return make_null_test(value) if wanted else exp.Not(this=make_null_test(value))
    if kind == Step.IN:
        codes = tree.codes(node).tolist()
        test = make_category_test(value, codes, outside=not wanted, or_missing=not wanted)
    else:
        bounds = [None, cells.dialect.make_bound(thresholds[node])]
        above, upto = bounds if wanted else bounds[::-1]
        test = make_interval_test(value, above, upto, or_missing=missing == wanted)
    return exp.Paren(this=test) if isinstance(test, exp.Or) else test


# ---------------------------------------------------------------- sql fractional instances

_BRANCH_DIGITS = 4
"""Digits of a branch in the text that lists the branches of a column's categories."""


def _add_fractional_steps(query: Query, cells: InputColumns, leaves: LeafTable) -> None:
    """Add the steps of a model with fractional instances: each branch gets a part of the mass."""
    dialect, source = cells.dialect, query.last_step
    table = build_fractional_table(cells.model, leaves)
    inner = np.flatnonzero(table.question >= 0)
    kind = table.question[inner] % 4
    counts = np.concatenate([tree.n_children for tree in cells.model.trees]).astype(np.int64)
    counts, first = counts[counts > 0], table.child[inner]
    edges = expand_slices(first, counts)
    goes = np.where(table.child < 0, table.child, np.arange(len(table.child)))
    texts = _make_branch_texts(cells.model, table, inner)
    query.add_table("roots", dialect.make_row_table(node=goes[table.root]))
    query.add_table(
        "nodes",
        dialect.make_row_table(
            node=inner,
            feature=table.question[inner] // 4,
            bound=np.where(kind == 2, 0.0, table.value[inner]),
            never=(kind == 3).astype(np.int64),
            branches=texts,
        ),
    )
    query.add_table(
        "edges",
        dialect.make_row_table(
            parent=np.repeat(inner, counts),
            branch=edges - np.repeat(first, counts),
            child=goes[edges],
            low=table.low[edges],
            high=table.high[edges],
        ),
    )
    taken = _make_taken_branch(cells, texts)
    bits = as_sql(MASS.bit_length() - 1)
    parts = [
        make_binary(exp.BitwiseRightShift, make_binary(exp.Mul, "steps.mass", f"edges.{end}"), bits)
        for end in ("high", "low")
    ]
    part = combine(exp.Sub, parts[0], parts[1])
    mass = make_case([(make_null_test(taken), part)], "steps.mass")
    goes_on = combine(exp.EQ, make_call("COALESCE", taken, "edges.branch"), "edges.branch")
    _add_traversal(
        *(query, source, {"mass": make_cast(MASS, "BIGINT")}),
        {"node": as_sql("edges.child"), "mass": mass},
        (combine(exp.GT, "steps.mass", 0), goes_on),
    )


def _make_branch_texts(
    model: Model, table: DividedTable, inner: npt.NDArray[np.int64]
) -> list[str | None]:
    """Return for each inner node the text of its category branches, None for other splits.

    Each category has its branch plus one in `_BRANCH_DIGITS` digits; 0: none.
    """
    question, value, level_branch = table.question, table.value, table.level_branch
    sizes = model.schema.n_levels
    made: list[str | None] = []
    for node in inner.tolist():
        if question[node] % 4 != 2:
            made.append(None)
            continue
        first = int(value[node])
        own = level_branch[first : first + int(sizes[question[node] // 4])]
        made.append("".join(f"{branch + 1:0{_BRANCH_DIGITS}d}" for branch in own.tolist()))
    return made


def _make_taken_branch(cells: InputColumns, texts: list[str | None]) -> Sql:
    """Build the branch that a row takes, NULL if the instance is divided."""
    asked = _select_cell(cells)
    gone = make_case([(make_null_test(asked), 0)], 1)
    never = combine(exp.EQ, "nodes.never", 1)
    tests: list[tuple[Sql, Sql]] = [(never, gone)]
    if any(text is not None for text in texts):
        branch = make_cast(extract_entry("branches", asked, _BRANCH_DIGITS), "BIGINT")
        known = make_call("NULLIF", combine(exp.Sub, branch, 1), -1)
        present = exp.Not(this=make_null_test("nodes.branches"))
        listed = make_case([(exp.Not(this=make_null_test(asked)), known)])
        tests.append((present, listed))
    tests.append((combine(exp.LTE, asked, "nodes.bound"), as_sql(0)))
    above = combine(exp.GT, asked, "nodes.bound")
    return make_case([*tests, (above, 1)])
