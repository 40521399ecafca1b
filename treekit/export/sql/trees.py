"""Trees as CASE expressions or tables, and sums of the votes of all trees.

A CASE follows the path to the heavier child, so that each nested CASE is at most
half as large: 20 levels are enough for a million leaves, and a chain of any depth is a single
flat CASE.  (Heavy paths: Sleator and Tarjan 1983, section 5.)
"""

from __future__ import annotations

import itertools
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from treekit.errors import ExportError
from treekit.export.fractional import DividedTable, build_fractional_table
from treekit.export.lowering import (
    LeafTable,
    LoweredTree,
    Step,
    compute_double_thresholds,
    leaf_table,
    lower,
    node_table,
)
from treekit.export.sql.dialects import Dialect
from treekit.export.sql.inputs import InputColumns
from treekit.export.sql.syntax import (
    Query,
    Sql,
    add_terms,
    make_binary,
    make_call,
    make_case,
    make_cast,
    make_column,
    make_integer,
    make_membership_test,
    make_null_test,
    make_or,
    make_select,
    make_switch,
)
from treekit.model.fixed_point import MASS, to_double_threshold
from treekit.model.model import Model
from treekit.model.tree import DerivedColumns

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
    for first, last in itertools.pairwise(schema.blocks):
        if votes:
            own = range(first, last - 1)
        elif model.margins and last - first == 2:
            own = range(first + 1, last)  # the first one's margin is 0
        else:
            own = range(first, last)
        groups += [list(own[i : i + size]) for i in range(0, len(own), size)]
    return groups


def add_case_steps(
    query: Query,
    model: Model,
    trees: tuple[LoweredTree, ...],
    derived: DerivedColumns,
    cells: InputColumns,
    dialect: Dialect,
) -> None:
    """Add the steps from cells to the sums ``s0``, ``s1``, ... of the model's values."""
    groups = group_values(model)
    shift = np.array([1, 1 << _SUM_BITS])
    packed = [(model.units[:, own] * shift[: len(own)]).sum(axis=1).tolist() for own in groups]
    tests = [TreeConditions(model, tree, derived, cells, dialect) for tree in trees]
    sizes = [_count_subtree_nodes(tree) for tree in trees]
    made: dict[str, Sql] = {}
    for number, values in enumerate(packed):
        terms = [
            # Without the cast, literals that fit 32 bits would overflow in sums.
            make_cast(_make_tree_case(own, size, values, 0), "BIGINT")
            for own, size in zip(tests, sizes, strict=True)
        ]
        made[f"g{number}"] = add_terms(terms)
    query.add_step("trees", made)
    query.add_step("sums", _unpack_sums(model, groups))


def _unpack_sums(model: Model, groups: list[list[int]]) -> dict[str, Sql]:
    """Return the sum of each of the model's values."""
    schema = model.schema
    made: dict[int, Sql] = {}
    for number, own in enumerate(groups):
        group = make_column(f"g{number}")
        if len(own) == 1:
            made[own[0]] = group
            continue
        low = make_integer((1 << _SUM_BITS) - 1)
        made[own[0]] = exp.Paren(this=exp.BitwiseAnd(this=group, expression=low))
        made[own[1]] = exp.Paren(
            this=exp.BitwiseRightShift(this=group.copy(), expression=make_integer(_SUM_BITS))
        )
    for first, last in itertools.pairwise(schema.blocks):
        others = [made[k].copy() for k in range(first, last) if k in made]
        if model.margins and len(others) < last - first:
            made[first] = make_cast(make_integer(0), "BIGINT")
        elif len(others) < last - first:
            total = make_cast(make_integer(model.unit_total), "BIGINT")
            if others:
                total = exp.Sub(this=total, expression=exp.Paren(this=add_terms(others)))
            made[last - 1] = total
    return {f"s{k}": made[k] for k in range(schema.n_values)}


def _count_subtree_nodes(tree: LoweredTree) -> list[int]:
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
    sizes = _count_subtree_nodes(tree)
    for node in range(tree.n_nodes - 1, -1, -1):
        if tree.kind[node] != Step.LEAF:
            light, heavy = _order_children(tree, sizes, node)
            deep[node] = max(1, deep[light] + 1, deep[heavy])
    return int(deep[0])


def _order_children(tree: LoweredTree, sizes: list[int], node: int) -> tuple[int, int]:
    """Return the lighter and the heavier child."""
    yes, no = int(tree.yes[node]), int(tree.no[node])
    return (yes, no) if sizes[yes] <= sizes[no] else (no, yes)


def _make_tree_case(tests: TreeConditions, sizes: list[int], values: list[int], node: int) -> Sql:
    tree = tests.tree
    found: list[tuple[Sql, Sql]] = []
    while tree.kind[node] != Step.LEAF:
        light, heavy = _order_children(tree, sizes, node)
        condition = tests.make_condition(node, light == int(tree.yes[node]))
        found.append((condition, _make_tree_case(tests, sizes, values, light)))
        node = heavy
    return make_case(found, make_integer(values[int(tree.leaf[node])]))


# ---------------------------------------------------------------- sql table
# A recursive query traverses tables: the size of its plan does not depend on the model.
#
# A step joins each row, in each tree, with its current node and evaluates the
# test of the node; the recursion ends at a negative number, which denotes a leaf.


def add_table_steps(
    query: Query,
    model: Model,
    derived: DerivedColumns,
    cells: InputColumns,
    dialect: Dialect,
    used: set[int],
) -> None:
    """Add the steps from cells, numbered by `ROW`, to the sums ``s0``, ``s1``, ... of a row."""
    leaves = leaf_table(model.units)
    walk = Traversal(query.last_step, model, derived, cells, dialect, used)
    source = query.last_step
    if dialect.name == "sqlite":
        query.add_table("powers", _make_power_table())
    _add_leaf_table(query, leaves, dialect)
    if model.missing == "fractional":
        add_fractional_steps(query, walk, leaves)
    else:
        _add_plain_steps(query, walk, leaves)
    query.recursive = True
    _add_sum_steps(query, model, source)


def _add_plain_steps(query: Query, walk: Traversal, leaves: LeafTable) -> None:
    """Add the steps of a model without fractional instances."""
    model = walk.model
    table = node_table(lower(model, walk.derived), leaves, model.schema)
    kind = table.question % 4
    missing = np.where((kind == 1) | (kind == 3), table.yes, table.no)
    members = _make_member_texts(kind, table.set_start, table.set_codes)
    query.add_table("roots", walk.dialect.make_row_table(node=table.root))
    query.add_table(
        "nodes",
        walk.dialect.make_row_table(
            node=np.arange(len(kind)),
            feature=table.question // 4,
            bound=np.where(kind == 2, 0.0, table.value),
            members=members,
            yes=np.where(kind == 3, table.no, table.yes),
            no=table.no,
            missing=missing,
        ),
    )
    asked = walk.select_cell()
    in_set = exp.EQ(
        this=extract_entry("members", asked.copy(), 1), expression=walk.dialect.make_text("1")
    )
    listed = exp.Not(this=make_null_test(make_column("members", "nodes")))
    yes, no = make_column("yes", "nodes"), make_column("no", "nodes")
    tests: list[tuple[Sql, Sql]] = [(make_null_test(asked.copy()), make_column("missing", "nodes"))]
    if any(member is not None for member in members):
        tests.append((listed, make_case([(in_set, yes.copy())], no.copy())))
    tests.append((walk.make_threshold_test(asked), yes))
    add_recursive_step(
        query, walk.select_roots({}), walk.select_next_nodes({"node": make_case(tests, no)})
    )


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


def _add_leaf_table(query: Query, leaves: LeafTable, dialect: Dialect) -> None:
    """Add the table of nonzero entries of the distinct leaf vectors, one row per entry."""
    start, position, units = leaves.sparse()
    leaf = np.repeat(np.arange(len(start) - 1), np.diff(start))
    query.add_table(
        "leaves", dialect.make_row_table(leaf=-1 - leaf, position=position, units=units)
    )


def _add_sum_steps(query: Query, model: Model, source: str) -> None:
    units: Sql = make_column("units", "leaves")
    if model.missing == "fractional":
        units = exp.Mul(this=make_column("mass", "steps"), expression=units)
    columns: dict[str, Sql] = {ROW_COLUMN: make_column(ROW_COLUMN, "steps")}
    for k in range(model.schema.n_values):
        own = [(make_integer(k), units.copy())]
        term = make_switch(make_column("position", "leaves"), own, make_integer(0))
        columns[f"s{k}"] = make_cast(make_call("SUM", term), "BIGINT")
    here = exp.EQ(this=make_column("leaf", "leaves"), expression=make_column("node", "steps"))
    ended = exp.LT(this=make_column("node", "steps"), expression=make_integer(0))
    totals = (
        make_select(columns, "steps")
        .join(exp.to_table("leaves"), on=here, join_type="LEFT", copy=False)
        .where(ended, copy=False)
        .group_by(make_column(ROW_COLUMN, "steps"), copy=False)
    )
    query.append_query("totals", totals)
    made = {name: make_column(name, source) for name in query.carried_columns}
    made |= {f"s{k}": make_column(f"s{k}") for k in range(model.schema.n_values)}
    same = exp.EQ(
        this=make_column(ROW_COLUMN, source), expression=make_column(ROW_COLUMN, "totals")
    )
    query.append_query(
        "sums", make_select(made, source).join(exp.to_table("totals"), on=same, copy=False)
    )


def _make_power_table() -> exp.Union:
    """Build the table of all powers of two that are doubles, exact by repeated multiplication."""
    start = {"exponent": "0", "up": "1.0", "down": "1.0"}
    begin = make_select({name: exp.Literal.number(number) for name, number in start.items()})
    following: dict[str, Sql] = {
        "exponent": exp.Add(this=make_column("exponent"), expression=make_integer(1)),
        "up": exp.Mul(this=make_column("up"), expression=exp.Literal.number("2.0")),
        "down": exp.Mul(this=make_column("down"), expression=exp.Literal.number("0.5")),
    }
    more = exp.LT(this=make_column("exponent"), expression=make_integer(1074))
    return exp.union(
        begin, make_select(following, "powers").where(more, copy=False), distinct=False, copy=False
    )


# ---------------------------------------------------------------- sql traversal

ROW_COLUMN = "row_number"
"""Column that identifies the rows of the table."""


class Traversal:
    """Expressions of a recursive step, which evaluates the test of each row's current node.

    Attributes
    ----------
    source : str
        Step of the query that has the cells.
    """

    def __init__(
        self,
        source: str,
        model: Model,
        derived: DerivedColumns,
        cells: InputColumns,
        dialect: Dialect,
        used: set[int],
    ) -> None:
        self.source, self.model, self.dialect = source, model, dialect
        self.derived, self.cells, self.used = derived, cells, sorted(used)

    def select_cell(self) -> Sql:
        """Select the cell of the node's ``feature``, as a double."""
        n, d = self.model.schema.n_features, self.derived.n_columns
        return self._search_cell([*self.used, *range(n, n + d)])

    def _search_cell(self, features: list[int]) -> Sql:
        """Select by binary search: few comparisons and shallow nesting for thousands of columns."""
        if not features:
            return make_cast(exp.Null(), "DOUBLE")
        if len(features) == 1:
            return self._make_cell(features[0])
        middle = len(features) // 2
        below = exp.LT(
            this=make_column("feature", "nodes"), expression=make_integer(features[middle])
        )
        return make_case(
            [(below, self._search_cell(features[:middle]))], self._search_cell(features[middle:])
        )

    def _make_cell(self, feature: int) -> Sql:
        n = self.model.schema.n_features
        if feature < n:
            return make_cast(self.cells.get_column(feature), "DOUBLE")
        tests = make_derived_tests(self.model, self.derived, feature - n, self.cells, self.dialect)
        value = tests[0] if len(tests) == 1 else make_call("COALESCE", *tests)
        return make_cast(value, "DOUBLE")

    def make_threshold_test(self, asked: Sql) -> Sql:
        """Build ``asked <= bound``."""
        return exp.LTE(this=asked, expression=make_column("bound", "nodes"))

    def select_roots(self, more: dict[str, Sql]) -> exp.Select:
        """Select each row at the root of each tree."""
        columns = {
            ROW_COLUMN: make_column(ROW_COLUMN, self.source),
            "node": make_column("node", "roots"),
        } | more
        return make_select(columns, self.source).join(
            exp.to_table("roots"), join_type="CROSS", copy=False
        )

    def select_next_nodes(self, columns: dict[str, Sql]) -> exp.Select:
        """Select each row joined with its current node and its cells."""
        made = make_select({ROW_COLUMN: make_column(ROW_COLUMN, "steps")} | columns, "steps")
        here = exp.EQ(this=make_column("node", "nodes"), expression=make_column("node", "steps"))
        own = exp.EQ(
            this=make_column(ROW_COLUMN, self.source), expression=make_column(ROW_COLUMN, "steps")
        )
        made = made.join(exp.to_table("nodes"), on=here, copy=False)
        return made.join(exp.to_table(self.source), on=own, copy=False)


def extract_entry(name: str, code: Sql, width: int) -> Sql:
    """Build the entry of a category code in a text column of the node; "" beyond its end."""
    at = exp.Mul(this=exp.Paren(this=make_cast(code, "BIGINT")), expression=make_integer(width))
    start = make_cast(exp.Add(this=at, expression=make_integer(1)), "INT")
    return make_call("SUBSTR", make_column(name, "nodes"), start, make_integer(width))


def add_recursive_step(query: Query, start: exp.Select, moved: exp.Select) -> None:
    """Add the recursive step that begins with `start` and repeats `moved` until no row moves."""
    query.append_query("steps", exp.union(start, moved, distinct=False, copy=False))


# ---------------------------------------------------------------- sql tests

_MAX_TERMS = 450
"""Maximum terms of a sum: each adds two levels of nesting, and engines allow 1,000."""


def make_derived_tests(
    model: Model, derived: DerivedColumns, number: int, cells: InputColumns, dialect: Dialect
) -> list[Sql]:
    """Build the tests of a derived column, in order: each 0, 1, or NULL if unknown.

    Raises
    ------
    ExportError
        For a sum of more columns than the engines can add in order.
    """
    own = range(int(derived.test_start[number]), int(derived.test_start[number + 1]))
    return [
        _make_level_test(derived, test, cells)
        if derived.level_feature[test] >= 0
        else _make_linear_test(model, derived, test, cells, dialect)
        for test in own
    ]


def _make_level_test(derived: DerivedColumns, test: int, cells: InputColumns) -> Sql:
    branch = derived.level_branch[derived.level_start[test] : derived.level_start[test + 1]]
    feature = int(derived.level_feature[test])
    tests: list[tuple[Sql, Sql]] = []
    for side in (0, 1):
        codes = np.flatnonzero(branch == side).tolist()
        if codes:
            tests.append(
                (
                    make_membership_test(cells.get_column(feature), list(map(make_integer, codes))),
                    make_integer(side),
                )
            )
    if derived.lost[test] >= 0:
        tests.append(
            (make_null_test(cells.get_column(feature)), make_integer(int(derived.lost[test])))
        )
    return make_case(tests) if tests else make_cast(exp.Null(), "BIGINT")


def _make_linear_test(
    model: Model, derived: DerivedColumns, test: int, cells: InputColumns, dialect: Dialect
) -> Sql:
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
        if model.schema.dtype == "float32":
            threshold = float(to_double_threshold(threshold))
    else:
        value = _make_weighted_sum(features, weights, cells, dialect)
    at_most = exp.LTE(this=value.copy(), expression=dialect.make_bound(threshold))
    above = exp.GT(this=value.copy(), expression=dialect.make_bound(threshold))
    branches = (derived.below[test], derived.above[test], derived.lost[test])
    conditions: tuple[Sql, ...] = at_most, above, make_null_test(value)
    pairs = zip(conditions, map(int, branches), strict=True)
    tests = [(condition, make_integer(branch)) for condition, branch in pairs if branch >= 0]
    return make_case(tests) if tests else make_cast(exp.Null(), "BIGINT")


def _make_weighted_sum(
    features: list[int], weights: list[float], cells: InputColumns, dialect: Dialect
) -> Sql:
    """Build a weighted sum in double, in the order of the columns."""
    made: Sql | None = None
    for feature, weight in zip(features, weights, strict=True):
        term = exp.Mul(this=dialect.make_bound(weight), expression=cells.get_summed_column(feature))
        made = term if made is None else exp.Add(this=made, expression=term)
    assert made is not None  # noqa: S101 - a linear test has a term
    if len(features) == 1:
        return exp.Paren(this=made)
    return dialect.replace_nan(exp.Paren(this=made))  # NaN: infinite terms of both signs


class TreeConditions:
    """SQL conditions of the tests of one tree."""

    def __init__(
        self,
        model: Model,
        tree: LoweredTree,
        derived: DerivedColumns,
        cells: InputColumns,
        dialect: Dialect,
    ) -> None:
        self.model, self.tree, self.derived = model, tree, derived
        self.cells, self.dialect = cells, dialect
        self.thresholds = compute_double_thresholds(tree, model.schema).tolist()

    def make_condition(self, node: int, wanted: bool) -> Sql:
        """Build the condition of the yes branch (the no branch if not `wanted`).

        It is TRUE if the row takes the branch, else FALSE or NULL, equivalent in a CASE.
        """
        kind, feature = self.tree.kind[node], int(self.tree.feature[node])
        if feature >= self.model.schema.n_features:
            return self._make_derived_condition(
                node, feature - self.model.schema.n_features, wanted
            )
        value = self.cells.get_column(feature)
        if kind == Step.MISSING:
            gone = make_null_test(value)
            return gone if wanted else exp.Not(this=gone)
        if kind == Step.IN:
            inside = make_membership_test(
                value, list(map(make_integer, self.tree.codes(node).tolist()))
            )
            if wanted:
                return inside
            return make_or(exp.Not(this=inside), make_null_test(self.cells.get_column(feature)))
        missing = bool(self.tree.missing_yes[node])
        compared = (exp.LTE if wanted else exp.GT)(
            this=value, expression=self.dialect.make_bound(self.thresholds[node])
        )
        if missing == wanted:
            return make_or(compared, make_null_test(self.cells.get_column(feature)))
        return compared

    def _make_derived_condition(self, node: int, number: int, wanted: bool) -> Sql:
        """Build the test of a derived column: 0 is the yes branch, unknown the missing branch."""
        tests = make_derived_tests(self.model, self.derived, number, self.cells, self.dialect)
        missing = make_integer(0 if self.tree.missing_yes[node] else 1)
        return exp.EQ(
            this=make_call("COALESCE", *tests, missing), expression=make_integer(0 if wanted else 1)
        )


def find_used_features(trees: tuple[LoweredTree, ...], derived: DerivedColumns, n: int) -> set[int]:
    """Return the input columns, of `n`, that the trees use."""
    asked = [np.unique(tree.feature) for tree in trees]
    found = {int(f) for features in asked for f in features.tolist() if 0 <= f < n}
    found |= set(np.unique(derived.term_feature).tolist())
    return found | {f for f in np.unique(derived.level_feature).tolist() if f >= 0}


# ---------------------------------------------------------------- sql fractional instances

_BRANCH_DIGITS = 4
"""Digits of a branch in the text that lists the branches of a column's categories."""


def add_fractional_steps(query: Query, walk: Traversal, leaves: LeafTable) -> None:
    """Add the steps of a model with fractional instances: each branch gets a part of the mass."""
    dialect = walk.dialect
    table = build_fractional_table(walk.model, leaves, walk.derived)
    inner = np.flatnonzero(table.question >= 0)
    kind = table.question[inner] % 4
    branches, edges = _list_branches(walk.model, table.child[inner])
    goes = np.where(table.child < 0, table.child, np.arange(len(table.child)))
    texts = _make_branch_texts(walk.model, table, inner)
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
            parent=np.repeat(inner, branches),
            branch=np.concatenate([np.arange(n) for n in branches]) if len(inner) else inner,
            child=goes[edges],
            low=table.low[edges],
            high=table.high[edges],
        ),
    )
    taken = _make_taken_branch(walk, texts)
    bits = make_integer(MASS.bit_length() - 1)
    parts = [
        exp.Paren(
            this=exp.BitwiseRightShift(
                this=make_binary(exp.Mul, make_column("mass", "steps"), make_column(end, "edges")),
                expression=bits.copy(),
            )
        )
        for end in ("high", "low")
    ]
    part = exp.Sub(this=parts[0], expression=parts[1])
    mass = make_case([(make_null_test(taken), part)], make_column("mass", "steps"))
    moved = walk.select_next_nodes({"node": make_column("child", "edges"), "mass": mass})
    here = exp.EQ(this=make_column("parent", "edges"), expression=make_column("node", "steps"))
    goes_on = exp.EQ(
        this=make_call("COALESCE", taken.copy(), make_column("branch", "edges")),
        expression=make_column("branch", "edges"),
    )
    moved = moved.join(exp.to_table("edges"), on=here, copy=False).where(
        exp.GT(this=make_column("mass", "steps"), expression=make_integer(0)), goes_on, copy=False
    )
    add_recursive_step(
        query, walk.select_roots({"mass": make_cast(make_integer(MASS), "BIGINT")}), moved
    )


def _list_branches(
    model: Model, first: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the number of branches of each inner node, and the node of each branch."""
    counts = np.concatenate([tree.n_children for tree in model.trees]).astype(np.int64)
    counts = counts[counts > 0]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return counts, np.repeat(first, counts) + within


def _make_branch_texts(
    model: Model,
    table: DividedTable,
    inner: npt.NDArray[np.int64],
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


def _make_taken_branch(walk: Traversal, texts: list[str | None]) -> Sql:
    """Build the branch that a row takes, NULL if the instance is divided."""
    asked = walk.select_cell()
    gone = make_case([(make_null_test(asked), make_integer(0))], make_integer(1))
    never = exp.EQ(this=make_column("never", "nodes"), expression=make_integer(1))
    tests: list[tuple[Sql, Sql]] = [(never, gone)]
    if any(text is not None for text in texts):
        branch = make_cast(extract_entry("branches", asked.copy(), _BRANCH_DIGITS), "BIGINT")
        known = make_call(
            "NULLIF", exp.Sub(this=branch, expression=make_integer(1)), make_integer(-1)
        )
        present = exp.Not(this=make_null_test(make_column("branches", "nodes")))
        listed = make_case([(exp.Not(this=make_null_test(asked.copy())), known)])
        tests.append((present, listed))
    tests.append((walk.make_threshold_test(asked.copy()), make_integer(0)))
    above = exp.GT(this=asked.copy(), expression=make_column("bound", "nodes"))
    return make_case([*tests, (above, make_integer(1))])
