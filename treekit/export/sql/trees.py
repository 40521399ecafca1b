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
from treekit.export.fractional import DividedTable, divided_table
from treekit.export.lowering import (
    LeafTable,
    LoweredTree,
    Step,
    leaf_table,
    lower,
    node_table,
    plain_thresholds,
)
from treekit.export.sql.dialects import Dialect
from treekit.export.sql.inputs import Cells
from treekit.export.sql.syntax import (
    Query,
    Sql,
    added,
    binary,
    call,
    cast,
    column,
    either,
    integer,
    is_null,
    one_of,
    select,
    switch,
    when,
)
from treekit.model.derived_features import DerivedColumns
from treekit.model.fixed_point import MASS, double_threshold
from treekit.model.model import Model

__all__ = [
    "ROW",
    "Tests",
    "Walk",
    "add_case_sums",
    "add_divided",
    "add_table_sums",
    "character",
    "derived_branch",
    "nesting",
    "recurse",
    "used_features",
    "value_groups",
]


# ---------------------------------------------------------------- sql case

_BITS = 31
"""Bits of each of two sums of votes that share a BIGINT."""


def value_groups(model: Model) -> list[list[int]]:
    """Return the sums that each copy of the trees computes: one, or two in one BIGINT.

    The votes for the last class of a target follow from the others.
    """
    schema = model.schema
    votes = schema.task == "classification" and not model.margins
    size = 2 if votes and model.unit_total < 1 << _BITS else 1
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


def add_case_sums(
    query: Query,
    model: Model,
    trees: tuple[LoweredTree, ...],
    derived: DerivedColumns,
    cells: Cells,
    dialect: Dialect,
) -> None:
    """Add the steps from cells to the sums ``s0``, ``s1``, ... of the model's values."""
    groups = value_groups(model)
    shift = np.array([1, 1 << _BITS])
    packed = [(model.units[:, own] * shift[: len(own)]).sum(axis=1).tolist() for own in groups]
    tests = [Tests(model, tree, derived, cells, dialect) for tree in trees]
    sizes = [_sizes(tree) for tree in trees]
    made: dict[str, Sql] = {}
    for number, values in enumerate(packed):
        terms = [
            # Without the cast, literals that fit 32 bits would overflow in sums.
            cast(_case(own, size, values, 0), "BIGINT")
            for own, size in zip(tests, sizes, strict=True)
        ]
        made[f"g{number}"] = added(terms)
    query.step("trees", made)
    query.step("sums", _unpacked(model, groups))


def _unpacked(model: Model, groups: list[list[int]]) -> dict[str, Sql]:
    """Return the sum of each of the model's values."""
    schema = model.schema
    made: dict[int, Sql] = {}
    for number, own in enumerate(groups):
        group = column(f"g{number}")
        if len(own) == 1:
            made[own[0]] = group
            continue
        low = integer((1 << _BITS) - 1)
        made[own[0]] = exp.Paren(this=exp.BitwiseAnd(this=group, expression=low))
        made[own[1]] = exp.Paren(
            this=exp.BitwiseRightShift(this=group.copy(), expression=integer(_BITS))
        )
    for first, last in itertools.pairwise(schema.blocks):
        others = [made[k].copy() for k in range(first, last) if k in made]
        if model.margins and len(others) < last - first:
            made[first] = cast(integer(0), "BIGINT")
        elif len(others) < last - first:
            total = cast(integer(model.unit_total), "BIGINT")
            if others:
                total = exp.Sub(this=total, expression=exp.Paren(this=added(others)))
            made[last - 1] = total
    return {f"s{k}": made[k] for k in range(schema.n_values)}


def _sizes(tree: LoweredTree) -> list[int]:
    """Count the nodes of the subtree of each node."""
    sizes = [1] * tree.n_nodes
    yes, no, kind = tree.yes.tolist(), tree.no.tolist(), tree.kind.tolist()
    for node in range(tree.n_nodes - 1, -1, -1):
        if kind[node] != Step.LEAF:
            sizes[node] = 1 + sizes[yes[node]] + sizes[no[node]]
    return sizes


def nesting(tree: LoweredTree) -> int:
    """Compute the nesting depth of the CASE expression of a tree."""
    deep: npt.NDArray[np.int64] = np.zeros(tree.n_nodes, dtype=np.int64)
    sizes = _sizes(tree)
    for node in range(tree.n_nodes - 1, -1, -1):
        if tree.kind[node] != Step.LEAF:
            light, heavy = _sides(tree, sizes, node)
            deep[node] = max(1, deep[light] + 1, deep[heavy])
    return int(deep[0])


def _sides(tree: LoweredTree, sizes: list[int], node: int) -> tuple[int, int]:
    """Return the lighter and the heavier child."""
    yes, no = int(tree.yes[node]), int(tree.no[node])
    return (yes, no) if sizes[yes] <= sizes[no] else (no, yes)


def _case(tests: Tests, sizes: list[int], values: list[int], node: int) -> Sql:
    tree = tests.tree
    found: list[tuple[Sql, Sql]] = []
    while tree.kind[node] != Step.LEAF:
        light, heavy = _sides(tree, sizes, node)
        condition = tests.condition(node, light == int(tree.yes[node]))
        found.append((condition, _case(tests, sizes, values, light)))
        node = heavy
    return when(found, integer(values[int(tree.leaf[node])]))


# ---------------------------------------------------------------- sql table
# A recursive query traverses tables: the size of its plan does not depend on the model.
#
# A step joins each row, in each tree, with its current node and evaluates the
# test of the node; the recursion ends at a negative number, which denotes a leaf.


def add_table_sums(
    query: Query,
    model: Model,
    derived: DerivedColumns,
    cells: Cells,
    dialect: Dialect,
    used: set[int],
) -> None:
    """Add the steps from cells, numbered by `ROW`, to the sums ``s0``, ``s1``, ... of a row."""
    leaves = leaf_table(model.units)
    walk = Walk(query.last, model, derived, cells, dialect, used)
    source = query.last
    if dialect.name == "sqlite":
        query.beside("powers", _powers())
    _add_leaves(query, leaves, dialect)
    if model.missing == "fractional":
        add_divided(query, walk, leaves)
    else:
        _add_plain(query, walk, leaves)
    query.recursive = True
    _add_sums(query, model, source)


def _add_plain(query: Query, walk: Walk, leaves: LeafTable) -> None:
    """Add the steps of a model without fractional instances."""
    model = walk.model
    table = node_table(lower(model, walk.derived), leaves, model.schema)
    kind = table.question % 4
    missing = np.where((kind == 1) | (kind == 3), table.yes, table.no)
    members = _members(kind, table.set_start, table.set_codes)
    query.beside("roots", walk.dialect.rows(node=table.root))
    query.beside(
        "nodes",
        walk.dialect.rows(
            node=np.arange(len(kind)),
            feature=table.question // 4,
            bound=np.where(kind == 2, 0.0, table.value),
            members=members,
            yes=np.where(kind == 3, table.no, table.yes),
            no=table.no,
            missing=missing,
        ),
    )
    asked = walk.asked()
    in_set = exp.EQ(this=character("members", asked.copy(), 1), expression=walk.dialect.text("1"))
    listed = exp.Not(this=is_null(column("members", "nodes")))
    yes, no = column("yes", "nodes"), column("no", "nodes")
    tests: list[tuple[Sql, Sql]] = [(is_null(asked.copy()), column("missing", "nodes"))]
    if any(member is not None for member in members):
        tests.append((listed, when([(in_set, yes.copy())], no.copy())))
    tests.append((walk.at_most(asked), yes))
    recurse(query, walk.start({}), walk.moved({"node": when(tests, no)}))


def _members(
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


def _add_leaves(query: Query, leaves: LeafTable, dialect: Dialect) -> None:
    """Add the table of nonzero entries of the distinct leaf vectors, one row per entry."""
    start, position, units = leaves.sparse()
    leaf = np.repeat(np.arange(len(start) - 1), np.diff(start))
    query.beside("leaves", dialect.rows(leaf=-1 - leaf, position=position, units=units))


def _add_sums(query: Query, model: Model, source: str) -> None:
    units: Sql = column("units", "leaves")
    if model.missing == "fractional":
        units = exp.Mul(this=column("mass", "steps"), expression=units)
    columns: dict[str, Sql] = {ROW: column(ROW, "steps")}
    for k in range(model.schema.n_values):
        own = [(integer(k), units.copy())]
        term = switch(column("position", "leaves"), own, integer(0))
        columns[f"s{k}"] = cast(call("SUM", term), "BIGINT")
    here = exp.EQ(this=column("leaf", "leaves"), expression=column("node", "steps"))
    ended = exp.LT(this=column("node", "steps"), expression=integer(0))
    totals = (
        select(columns, "steps")
        .join(exp.to_table("leaves"), on=here, join_type="LEFT", copy=False)
        .where(ended, copy=False)
        .group_by(column(ROW, "steps"), copy=False)
    )
    query.put("totals", totals)
    made = {name: column(name, source) for name in query.carried}
    made |= {f"s{k}": column(f"s{k}") for k in range(model.schema.n_values)}
    same = exp.EQ(this=column(ROW, source), expression=column(ROW, "totals"))
    query.put("sums", select(made, source).join(exp.to_table("totals"), on=same, copy=False))


def _powers() -> exp.Union:
    """Build the table of all powers of two that are doubles, exact by repeated multiplication."""
    start = {"exponent": "0", "up": "1.0", "down": "1.0"}
    begin = select({name: exp.Literal.number(number) for name, number in start.items()})
    following: dict[str, Sql] = {
        "exponent": exp.Add(this=column("exponent"), expression=integer(1)),
        "up": exp.Mul(this=column("up"), expression=exp.Literal.number("2.0")),
        "down": exp.Mul(this=column("down"), expression=exp.Literal.number("0.5")),
    }
    more = exp.LT(this=column("exponent"), expression=integer(1074))
    return exp.union(
        begin, select(following, "powers").where(more, copy=False), distinct=False, copy=False
    )


# ---------------------------------------------------------------- sql traversal

ROW = "row_number"
"""Column that identifies the rows of the table."""


class Walk:
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
        cells: Cells,
        dialect: Dialect,
        used: set[int],
    ) -> None:
        self.source, self.model, self.dialect = source, model, dialect
        self.derived, self.cells, self.used = derived, cells, sorted(used)

    def asked(self) -> Sql:
        """Select the cell of the node's ``feature``, as a double."""
        n, d = self.model.schema.n_features, self.derived.n_columns
        return self._search([*self.used, *range(n, n + d)])

    def _search(self, features: list[int]) -> Sql:
        """Select by binary search: few comparisons and shallow nesting for thousands of columns."""
        if not features:
            return cast(exp.Null(), "DOUBLE")
        if len(features) == 1:
            return self._cell(features[0])
        middle = len(features) // 2
        below = exp.LT(this=column("feature", "nodes"), expression=integer(features[middle]))
        return when([(below, self._search(features[:middle]))], self._search(features[middle:]))

    def _cell(self, feature: int) -> Sql:
        n = self.model.schema.n_features
        if feature < n:
            return cast(self.cells.of(feature), "DOUBLE")
        tests = derived_branch(self.model, self.derived, feature - n, self.cells, self.dialect)
        value = tests[0] if len(tests) == 1 else call("COALESCE", *tests)
        return cast(value, "DOUBLE")

    def at_most(self, asked: Sql) -> Sql:
        """Build ``asked <= bound``."""
        return exp.LTE(this=asked, expression=column("bound", "nodes"))

    def start(self, more: dict[str, Sql]) -> exp.Select:
        """Select each row at the root of each tree."""
        columns = {ROW: column(ROW, self.source), "node": column("node", "roots")} | more
        return select(columns, self.source).join(
            exp.to_table("roots"), join_type="CROSS", copy=False
        )

    def moved(self, columns: dict[str, Sql]) -> exp.Select:
        """Select each row joined with its current node and its cells."""
        made = select({ROW: column(ROW, "steps")} | columns, "steps")
        here = exp.EQ(this=column("node", "nodes"), expression=column("node", "steps"))
        own = exp.EQ(this=column(ROW, self.source), expression=column(ROW, "steps"))
        made = made.join(exp.to_table("nodes"), on=here, copy=False)
        return made.join(exp.to_table(self.source), on=own, copy=False)


def character(name: str, code: Sql, width: int) -> Sql:
    """Build the entry of a category code in a text column of the node; "" beyond its end."""
    at = exp.Mul(this=exp.Paren(this=cast(code, "BIGINT")), expression=integer(width))
    start = cast(exp.Add(this=at, expression=integer(1)), "INT")
    return call("SUBSTR", column(name, "nodes"), start, integer(width))


def recurse(query: Query, start: exp.Select, moved: exp.Select) -> None:
    """Add the recursive step that begins with `start` and repeats `moved` until no row moves."""
    query.put("steps", exp.union(start, moved, distinct=False, copy=False))


# ---------------------------------------------------------------- sql tests

_MOST_TERMS = 450
"""Maximum terms of a sum: each adds two levels of nesting, and engines allow 1,000."""


def derived_branch(
    model: Model, derived: DerivedColumns, number: int, cells: Cells, dialect: Dialect
) -> list[Sql]:
    """Build the tests of a derived column, in order: each 0, 1, or NULL if unknown.

    Raises
    ------
    ExportError
        For a sum of more columns than the engines can add in order.
    """
    own = range(int(derived.test_start[number]), int(derived.test_start[number + 1]))
    return [
        _level_test(derived, test, cells)
        if derived.level_feature[test] >= 0
        else _linear_test(model, derived, test, cells, dialect)
        for test in own
    ]


def _level_test(derived: DerivedColumns, test: int, cells: Cells) -> Sql:
    branch = derived.level_branch[derived.level_start[test] : derived.level_start[test + 1]]
    feature = int(derived.level_feature[test])
    tests: list[tuple[Sql, Sql]] = []
    for side in (0, 1):
        codes = np.flatnonzero(branch == side).tolist()
        if codes:
            tests.append((one_of(cells.of(feature), list(map(integer, codes))), integer(side)))
    if derived.lost[test] >= 0:
        tests.append((is_null(cells.of(feature)), integer(int(derived.lost[test]))))
    return when(tests) if tests else cast(exp.Null(), "BIGINT")


def _linear_test(
    model: Model, derived: DerivedColumns, test: int, cells: Cells, dialect: Dialect
) -> Sql:
    own = slice(int(derived.term_start[test]), int(derived.term_start[test + 1]))
    features, weights = derived.term_feature[own].tolist(), derived.term_weight[own].tolist()
    if len(features) > _MOST_TERMS:
        raise ExportError(
            f"SQL supports sums of up to {_MOST_TERMS} columns; a split of the model has "
            f"{len(features)}: export to another target"
        )
    threshold = float(derived.threshold[test])
    if len(features) == 1 and weights[0] == 1.0:
        value = cells.of(features[0])
        if model.schema.dtype == "float32":
            threshold = float(double_threshold(threshold))
    else:
        value = _sum(features, weights, cells, dialect)
    at_most = exp.LTE(this=value.copy(), expression=dialect.bound(threshold))
    above = exp.GT(this=value.copy(), expression=dialect.bound(threshold))
    branches = (derived.below[test], derived.above[test], derived.lost[test])
    conditions: tuple[Sql, ...] = at_most, above, is_null(value)
    pairs = zip(conditions, map(int, branches), strict=True)
    tests = [(condition, integer(branch)) for condition, branch in pairs if branch >= 0]
    return when(tests) if tests else cast(exp.Null(), "BIGINT")


def _sum(features: list[int], weights: list[float], cells: Cells, dialect: Dialect) -> Sql:
    """Build a weighted sum in double, in the order of the columns."""
    made: Sql | None = None
    for feature, weight in zip(features, weights, strict=True):
        term = exp.Mul(this=dialect.bound(weight), expression=cells.summed(feature))
        made = term if made is None else exp.Add(this=made, expression=term)
    assert made is not None  # noqa: S101 - a linear test has a term
    if len(features) == 1:
        return exp.Paren(this=made)
    return dialect.not_nan(exp.Paren(this=made))  # NaN: infinite terms of both signs


class Tests:
    """SQL conditions of the tests of one tree."""

    def __init__(
        self,
        model: Model,
        tree: LoweredTree,
        derived: DerivedColumns,
        cells: Cells,
        dialect: Dialect,
    ) -> None:
        self.model, self.tree, self.derived = model, tree, derived
        self.cells, self.dialect = cells, dialect
        self.thresholds = plain_thresholds(tree, model.schema).tolist()

    def condition(self, node: int, wanted: bool) -> Sql:
        """Build the condition of the yes branch (the no branch if not `wanted`).

        It is TRUE if the row takes the branch, else FALSE or NULL, equivalent in a CASE.
        """
        kind, feature = self.tree.kind[node], int(self.tree.feature[node])
        if feature >= self.model.schema.n_features:
            return self._derived(node, feature - self.model.schema.n_features, wanted)
        value = self.cells.of(feature)
        if kind == Step.MISSING:
            gone = is_null(value)
            return gone if wanted else exp.Not(this=gone)
        if kind == Step.IN:
            inside = one_of(value, list(map(integer, self.tree.codes(node).tolist())))
            if wanted:
                return inside
            return either(exp.Not(this=inside), is_null(self.cells.of(feature)))
        missing = bool(self.tree.missing_yes[node])
        compared = (exp.LTE if wanted else exp.GT)(
            this=value, expression=self.dialect.bound(self.thresholds[node])
        )
        if missing == wanted:
            return either(compared, is_null(self.cells.of(feature)))
        return compared

    def _derived(self, node: int, number: int, wanted: bool) -> Sql:
        """Build the test of a derived column: 0 is the yes branch, unknown the missing branch."""
        tests = derived_branch(self.model, self.derived, number, self.cells, self.dialect)
        missing = integer(0 if self.tree.missing_yes[node] else 1)
        return exp.EQ(
            this=call("COALESCE", *tests, missing), expression=integer(0 if wanted else 1)
        )


def used_features(trees: tuple[LoweredTree, ...], derived: DerivedColumns, n: int) -> set[int]:
    """Return the input columns, of `n`, that the trees use."""
    asked = [np.unique(tree.feature) for tree in trees]
    found = {int(f) for features in asked for f in features.tolist() if 0 <= f < n}
    found |= set(np.unique(derived.term_feature).tolist())
    return found | {f for f in np.unique(derived.level_feature).tolist() if f >= 0}


# ---------------------------------------------------------------- sql fractional instances

_DIGITS = 4
"""Digits of a branch in the text that lists the branches of a column's categories."""


def add_divided(query: Query, walk: Walk, leaves: LeafTable) -> None:
    """Add the steps of a model with fractional instances: each branch gets a part of the mass."""
    dialect = walk.dialect
    table = divided_table(walk.model, leaves, walk.derived)
    inner = np.flatnonzero(table.question >= 0)
    kind = table.question[inner] % 4
    branches, edges = _branches(walk.model, table.child[inner])
    goes = np.where(table.child < 0, table.child, np.arange(len(table.child)))
    texts = _branch_texts(walk.model, table, inner)
    query.beside("roots", dialect.rows(node=goes[table.root]))
    query.beside(
        "nodes",
        dialect.rows(
            node=inner,
            feature=table.question[inner] // 4,
            bound=np.where(kind == 2, 0.0, table.value[inner]),
            never=(kind == 3).astype(np.int64),
            branches=texts,
        ),
    )
    query.beside(
        "edges",
        dialect.rows(
            parent=np.repeat(inner, branches),
            branch=np.concatenate([np.arange(n) for n in branches]) if len(inner) else inner,
            child=goes[edges],
            low=table.low[edges],
            high=table.high[edges],
        ),
    )
    taken = _taken(walk, texts)
    bits = integer(MASS.bit_length() - 1)
    parts = [
        exp.Paren(
            this=exp.BitwiseRightShift(
                this=binary(exp.Mul, column("mass", "steps"), column(end, "edges")),
                expression=bits.copy(),
            )
        )
        for end in ("high", "low")
    ]
    part = exp.Sub(this=parts[0], expression=parts[1])
    mass = when([(is_null(taken), part)], column("mass", "steps"))
    moved = walk.moved({"node": column("child", "edges"), "mass": mass})
    here = exp.EQ(this=column("parent", "edges"), expression=column("node", "steps"))
    goes_on = exp.EQ(
        this=call("COALESCE", taken.copy(), column("branch", "edges")),
        expression=column("branch", "edges"),
    )
    moved = moved.join(exp.to_table("edges"), on=here, copy=False).where(
        exp.GT(this=column("mass", "steps"), expression=integer(0)), goes_on, copy=False
    )
    recurse(query, walk.start({"mass": cast(integer(MASS), "BIGINT")}), moved)


def _branches(
    model: Model, first: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the number of branches of each inner node, and the node of each branch."""
    counts = np.concatenate([tree.n_children for tree in model.trees]).astype(np.int64)
    counts = counts[counts > 0]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return counts, np.repeat(first, counts) + within


def _branch_texts(
    model: Model,
    table: DividedTable,
    inner: npt.NDArray[np.int64],
) -> list[str | None]:
    """Return for each inner node the text of its category branches, None for other splits.

    Each category has its branch plus one in `_DIGITS` digits; 0: none.
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
        made.append("".join(f"{branch + 1:0{_DIGITS}d}" for branch in own.tolist()))
    return made


def _taken(walk: Walk, texts: list[str | None]) -> Sql:
    """Build the branch that a row takes, NULL if the instance is divided."""
    asked = walk.asked()
    gone = when([(is_null(asked), integer(0))], integer(1))
    never = exp.EQ(this=column("never", "nodes"), expression=integer(1))
    tests: list[tuple[Sql, Sql]] = [(never, gone)]
    if any(text is not None for text in texts):
        branch = cast(character("branches", asked.copy(), _DIGITS), "BIGINT")
        known = call("NULLIF", exp.Sub(this=branch, expression=integer(1)), integer(-1))
        present = exp.Not(this=is_null(column("branches", "nodes")))
        listed = when([(exp.Not(this=is_null(asked.copy())), known)])
        tests.append((present, listed))
    tests.append((walk.at_most(asked.copy()), integer(0)))
    above = exp.GT(this=asked.copy(), expression=column("bound", "nodes"))
    return when([*tests, (above, integer(1))])
