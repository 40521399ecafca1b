"""Lowering of n-ary trees to the plain binary nodes that every target writes.

A lowered node is a leaf or one of three tests.  The test also covers missing values,
unseen categories and categories absent from the node's training rows: a value that
`Step.IN` does not list takes the no branch.

Oblique splits and splits with surrogates become tests of derived columns
(see `treekit.model.tree`), which follow the columns of the row.
Fractional instances are written by `treekit.export.fractional`.  Below: lowered trees as
nested if/else, in functions of bounded depth and size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.literals import Code, float_literal
from treekit.model.fixed_point import to_double_threshold
from treekit.model.model import Model
from treekit.model.tree import MAX_DEPTH, DerivedColumns, Split, Tree

# ---------------------------------------------------------------- lower

_MAX_NODES = 2**31 - 1


class Step(IntEnum):
    """Kind of a lowered node."""

    LEAF = 0
    LE = 1
    """``x[feature] <= threshold``: yes.  Missing: yes if `LoweredTree.missing_yes`."""
    IN = 2
    """The category code of ``x[feature]`` is in the node's set: yes.  Otherwise,
    missing and unseen values included: no."""
    MISSING = 3
    """``x[feature]`` is missing: yes.  In a nominal column every value that is
    not an integer in ``[0, levels)`` is missing."""


@dataclass(frozen=True, slots=True)
class LoweredTree:
    """A tree of m binary nodes in pre-order, the yes branch first.

    Attributes
    ----------
    kind : (m,) uint8
        A `Step`.
    feature : (m,) int32
        Split feature; -1 in leaves.  With F input columns, F + d is
        derived column d: 0.0, 1.0 or missing, tested by LE nodes only.
    threshold : (m,) float64
        LE nodes: a finite number of the model's input dtype, 0.0 for derived
        columns; NaN elsewhere.
    missing_yes : (m,) bool
        LE nodes: whether a missing value takes the yes branch; True in MISSING
        nodes, False elsewhere.
    yes, no : (m,) int32
        Child nodes, -1 in leaves; ``yes`` of an inner node is the node after it.
    leaf : (m,) int64
        Row of `Model.units`; -1 in inner nodes.
    set_start : (m + 1,) int64
        IN node i owns ``set_codes[set_start[i]:set_start[i + 1]]``.
    set_codes : (codes,) int32
        Category codes, ascending within a node, at least one in each IN node.
    depth : int
        Edges from the root to the deepest leaf; each node of a chain of IN nodes counts.
    """

    kind: npt.NDArray[np.uint8]
    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    missing_yes: npt.NDArray[np.bool_]
    yes: npt.NDArray[np.int32]
    no: npt.NDArray[np.int32]
    leaf: npt.NDArray[np.int64]
    set_start: npt.NDArray[np.int64]
    set_codes: npt.NDArray[np.int32]
    depth: int

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @property
    def n_nodes(self) -> int:
        """Number of nodes, leaves included."""
        return len(self.kind)

    @property
    def set_sizes(self) -> npt.NDArray[np.int64]:
        """Number of codes of each IN node."""
        sizes: npt.NDArray[np.int64] = np.diff(self.set_start)[self.kind == Step.IN]
        return sizes

    def codes(self, node: int) -> npt.NDArray[np.int32]:
        """Return the category codes of an IN node (a view)."""
        return self.set_codes[self.set_start[node] : self.set_start[node + 1]]


def lower(model: Model) -> tuple[LoweredTree, ...]:
    """Lower the trees of a model to plain binary nodes.

    A multiway split becomes a chain of IN nodes, one for each branch that some
    category takes; the chain ends in the missing branch.  A split
    whose categories all take the missing branch is dropped.

    Raises
    ------
    ExportError
        If the model uses fractional instances, which such nodes cannot express, or
        a tree has too many nodes.
    """
    if model.missing == "fractional":
        raise ExportError(
            "this target sends each row to one leaf, and the model uses fractional instances "
            "(missing='fractional'): export to another target, or train with "
            "missing='direction'"
        )
    columns = model.derived.column
    ends = np.cumsum([tree.n_nodes for tree in model.trees]).tolist()
    return tuple(
        _lower_tree(tree, int(offset), columns[end - tree.n_nodes : end], model.schema.n_features)
        for tree, offset, end in zip(model.trees, model.leaf_offsets[:-1], ends, strict=True)
    )


def lower_unless_fractional(model: Model) -> tuple[LoweredTree, ...]:
    """Lower the trees of a model; return no trees if it uses fractional instances."""
    return () if model.missing == "fractional" else lower(model)


def concatenate_lowered(
    trees: tuple[LoweredTree, ...],
) -> tuple[LoweredTree, npt.NDArray[np.int64]]:
    """Concatenate lowered trees; return the nodes, and the root (trees,) int64 of each tree."""
    sizes = np.array([tree.n_nodes for tree in trees], dtype=np.int64)
    roots = np.cumsum(sizes) - sizes
    joined = {
        field.name: np.concatenate([getattr(tree, field.name) for tree in trees])
        for field in fields(LoweredTree)
        if field.name not in ("set_start", "depth")
    }
    first = np.where(joined["kind"] == Step.LEAF, 0, np.repeat(roots, sizes))
    set_sizes = np.concatenate([np.diff(tree.set_start) for tree in trees])
    joined |= {
        "yes": joined["yes"] + first,
        "no": joined["no"] + first,
        "set_start": np.cumsum(np.append(0, set_sizes)),
    }
    return LoweredTree(**joined, depth=max(tree.depth for tree in trees)), roots


def require_depth(trees: tuple[LoweredTree, ...], target: str) -> None:
    """Raise `ExportError` if a lowered tree is deeper than `MAX_DEPTH`."""
    deepest = max((tree.depth for tree in trees), default=0)
    if deepest > MAX_DEPTH:
        raise ExportError(
            f"{target} supports trees up to {MAX_DEPTH} binary splits deep; this model needs "
            f"{deepest} (a multiway split counts one for each branch): set max_depth"
        )


def _lower_tree(
    tree: Tree, first_row: int, column: npt.NDArray[np.int64], n_features: int
) -> LoweredTree:
    """Lower one tree; `column` (n,) is the derived column of each node, -1 = none."""
    from treekit.export.kernels import lower_nodes

    asks_derived = column >= 0
    inner = tree.kind != Split.LEAF
    bound = tree.n_leaves + int((tree.n_children[inner].astype(np.int64) - 1).sum())
    if bound > _MAX_NODES:
        raise ExportError(f"a tree has more than {_MAX_NODES} binary nodes: set max_depth")
    kind, source, no, set_start, set_codes, depth = lower_nodes(
        np.where(asks_derived, np.uint8(Split.THRESHOLD), tree.kind),
        tree.first_child,
        tree.n_children,
        tree.missing,
        tree.level_offsets,
        tree.level_branch.astype(np.int32),
        bound,
    )
    row_of_node = first_row - 1 + np.cumsum(~inner)
    is_leaf, is_le = kind == Step.LEAF, kind == Step.LE
    feature = np.where(asks_derived, n_features + column, tree.feature).astype(np.int32)
    threshold = np.where(asks_derived, 0.0, tree.threshold)
    return LoweredTree(
        kind=kind,
        feature=feature[source],
        threshold=np.where(is_le, threshold[source], np.nan),
        missing_yes=(is_le & (tree.missing[source] == 0)) | (kind == Step.MISSING),
        yes=np.where(is_leaf, -1, np.arange(1, len(kind) + 1)).astype(np.int32),
        no=no,
        leaf=np.where(is_leaf, row_of_node[source], -1),
        set_start=set_start,
        set_codes=set_codes,
        depth=int(depth),
    )


# ---------------------------------------------------------------- tables
# Flat tables, traversed by a short loop in any language and for any depth.


class TestKind(IntEnum):
    """Kind of the test of a node of `NodeTable`."""

    LE_MISSING_NO = 0
    LE_MISSING_YES = 1
    IN = 2
    MISSING = 3


@dataclass(frozen=True, slots=True)
class LeafTable:
    """Distinct leaf vectors of a model.

    Attributes
    ----------
    row : (leaves,) int64
        Index of the distinct vector of each row of `Model.units`.
    vectors : (distinct, outputs) int64
        Vectors in order of first appearance.
    """

    row: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.int64]

    def sparse(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the nonzero entries as CSR arrays ``(start, column, units)``."""
        vector, column = np.nonzero(self.vectors)
        start = np.searchsorted(vector, np.arange(len(self.vectors) + 1))
        return start, column, self.vectors[vector, column]


@dataclass(frozen=True, slots=True)
class NodeTable:
    """Inner nodes of all trees, in pre-order, tree after tree.

    Attributes
    ----------
    value : (nodes,) float64
        Threshold of a test, for inputs in double; index of the set
        of an IN node; otherwise 0.
    question : (nodes,) int64
        ``4 * feature + k``, where features beyond those of the row are derived
        columns: k = 0 ``x <= value``, missing no; 1 ``x <= value``,
        missing yes; 2 in the set; 3 missing.
    yes, no : (nodes,) int64
        Child node, or ``-1 - v`` for the leaf vector v.
    root : (trees,) int64
        Root of each tree, in the same encoding.
    set_start : (sets + 1,) int64
    set_codes : (codes,) int64
        Members of each set, ascending.
    """

    value: npt.NDArray[np.float64]
    question: npt.NDArray[np.int64]
    yes: npt.NDArray[np.int64]
    no: npt.NDArray[np.int64]
    root: npt.NDArray[np.int64]
    set_start: npt.NDArray[np.int64]
    set_codes: npt.NDArray[np.int64]


def compute_double_thresholds(tree: LoweredTree, schema: Schema) -> npt.NDArray[np.float64]:
    """Return thresholds (m,) for unrounded inputs in double; 0 for other nodes.

    Tests of derived columns have 0, too.
    """
    result = np.zeros(tree.n_nodes)
    at = (tree.kind == Step.LE) & (tree.feature < schema.n_features)
    t = tree.threshold[at]
    result[at] = to_double_threshold(t) if schema.dtype == "float32" else t
    return result


def check_table_size(entries: int) -> None:
    """Raise `ExportError` if a table has more entries than 32 bits can number."""
    if entries > _MAX_NODES:
        raise ExportError(
            f"the model needs more than {_MAX_NODES} table entries: train fewer trees"
        )


def leaf_table(units: npt.NDArray[np.int64]) -> LeafTable:
    """Find the distinct rows of ``Model.units``, shape (leaves, outputs).

    In fully grown forests most leaves are pure and share a few vectors.
    """
    # Sorting complete rows is slow for many classes, so rows are compared by a
    # hash; if two different rows collide, all rows are kept.
    factors = np.random.default_rng(0).integers(1, 2**62, size=units.shape[1]) * 2 + 1
    _, first, inverse = np.unique(units @ factors, return_index=True, return_inverse=True)
    if not np.array_equal(units[first[inverse]], units):
        first = inverse = np.arange(len(units))
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return LeafTable(rank[inverse], units[first[order]])


def node_table(trees: tuple[LoweredTree, ...], leaves: LeafTable, schema: Schema) -> NodeTable:
    """Build one table of the inner nodes of all trees.

    Raises
    ------
    ExportError
        If the number of nodes or leaves exceeds 32 bits.
    """
    nodes, roots = concatenate_lowered(trees)
    inner = nodes.kind != Step.LEAF
    columns = int(nodes.feature.max()) + 1
    check_table_size(max(int(np.count_nonzero(inner)), len(leaves.vectors), 4 * columns))
    code = np.where(inner, np.cumsum(inner) - 1, -1 - leaves.row[nodes.leaf])
    by_step = np.array([0, TestKind.LE_MISSING_NO, TestKind.IN, TestKind.MISSING])
    missing_yes = (nodes.kind == Step.LE) & nodes.missing_yes
    kinds = np.where(missing_yes, TestKind.LE_MISSING_YES, by_step[nodes.kind])[inner]
    value = compute_double_thresholds(nodes, schema)[inner]
    is_set = kinds == TestKind.IN
    value[is_set] = np.arange(np.count_nonzero(is_set))
    return NodeTable(
        value=value,
        question=4 * nodes.feature[inner].astype(np.int64) + kinds,
        yes=code[nodes.yes[inner]],
        no=code[nodes.no[inner]],
        root=code[roots],
        set_start=np.cumsum(np.append(0, nodes.set_sizes)),
        set_codes=nodes.set_codes.astype(np.int64),
    )


# ---------------------------------------------------------------- bitsets


def set_words(
    starts: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Pack sets of category codes as bit masks into one table of 32-bit words.

    Parameters
    ----------
    starts : (sets + 1,) int64
        Set s owns ``codes[starts[s]:starts[s + 1]]``, ascending, at least one.
    codes : (codes,) int64

    Returns
    -------
    words : (words,) uint32
        A set is stored as the index of its first mask word, the number of mask words, and the
        mask words, 32 codes each; words outside this range are 0.
    offsets : (sets,) int64
        Start of each set in `words`.
    """
    if len(starts) < 2:
        return np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.int64)
    first, last = codes[starts[:-1]] >> 5, codes[starts[1:] - 1] >> 5
    sizes = last - first + 3
    offsets = np.cumsum(sizes) - sizes
    if sizes.sum() >= 2**31:
        raise ExportError("the category sets of the model need more than 2**31 words of C")
    words = np.zeros(sizes.sum(), dtype=np.uint32)
    words[offsets], words[offsets + 1] = first, sizes - 2
    owner = np.repeat(np.arange(len(sizes)), np.diff(starts))
    bits = np.left_shift(np.uint32(1), (codes & 31).astype(np.uint32))
    np.bitwise_or.at(words, offsets[owner] + 2 + (codes >> 5) - first[owner], bits)
    return words, offsets


# ---------------------------------------------------------------- nesting

Form = Literal["if_else", "table"]
FORM_REASON = "set by form"
"""Reason of a form that the user set."""
MAX_IF_ELSE_NODES = 2000
"""Maximum number of nodes that `choose_form` writes as if/else.

20 trees of 1,158 nodes take 0.35 (Go), 0.46 (Rust) and 0.5 (Java, JavaScript) of the time of
tables (measured).
"""


def choose_form(wanted: str, n_nodes: int, most: int = MAX_IF_ELSE_NODES) -> tuple[Form, str]:
    """Choose the form of the source; return the form and the reason in words."""
    if wanted != "auto":
        return cast(Form, wanted), FORM_REASON
    nodes = f"the model has {n_nodes} nodes"
    if n_nodes <= most:
        return "if_else", f"{nodes}, at most {most}"
    return "table", f"{nodes}; with more than {most}, tables are smaller and compile faster"


# ---------------------------------------------------------------- derived columns

Term = tuple[Code, Code]
"""Identifier of a column and its weight."""

_MAX_INLINE_TERMS = 8  # terms of a sum written inline: readable, not too deep for parsers
_MAX_SHOWN = 8  # tests, and categories of a set, listed in a comment


def list_inline_terms(
    derived: DerivedColumns, number: int, columns: Sequence[Code]
) -> list[Term] | None:
    """Return the terms of a derived column that is a single short sum, else None."""
    first = int(derived.test_start[number])
    terms = _list_terms(derived, first, columns)
    alone = derived.test_start[number + 1] == first + 1 and not _is_one_sided(derived, first)
    return terms if alone and 0 < len(terms) <= _MAX_INLINE_TERMS else None


def describe_derived_column(derived: DerivedColumns, number: int, columns: Sequence[Code]) -> Code:
    """Describe when a derived column takes branch 0, for a comment in the source.

    The text contains identifiers only, no raw names.
    """
    tests = range(int(derived.test_start[number]), int(derived.test_start[number + 1]))
    texts = [_describe_test(derived, test, columns) for test in tests[:_MAX_SHOWN]]
    texts += ["..."] * (len(tests) > _MAX_SHOWN)
    rule = all(_is_one_sided(derived, test) for test in tests)
    return Code("unless " + ", or ".join(texts) if rule else "; if unknown, ".join(texts))


def _is_one_sided(derived: DerivedColumns, test: int) -> bool:
    """Return whether a test is a condition of a rule, which gives 1 or unknown, never 0."""
    by_level = derived.level_feature[test] >= 0
    branches = derived.level_branch[derived.level_start[test] : derived.level_start[test + 1]]
    results = branches if by_level else np.array([derived.below[test], derived.above[test]])
    return bool(derived.lost[test] >= 0 or not np.any(results == 0))


def _describe_failure(derived: DerivedColumns, test: int, columns: Sequence[Code]) -> str:
    """Describe when a condition of a rule fails."""
    at, column = float_literal(derived.threshold[test]), int(derived.level_feature[test])
    cases = []
    if column >= 0:
        own = slice(int(derived.level_start[test]), int(derived.level_start[test + 1]))
        failing = derived.level_branch[own] == 1
        cases += [f"{columns[column]} in {_format_codes(failing)}"] * bool(failing.any())
    else:
        column = int(derived.term_feature[derived.term_start[test]])
        cases += [f"{columns[column]} <= {at}"] * bool(derived.below[test] == 1)
        cases += [f"{columns[column]} > {at}"] * bool(derived.above[test] == 1)
    cases += [f"{columns[column]} missing"] * bool(derived.lost[test] == 1)
    return " or ".join(cases) or "never"


def _describe_test(derived: DerivedColumns, test: int, columns: Sequence[Code]) -> str:
    if _is_one_sided(derived, test):
        return _describe_failure(derived, test, columns)
    column = int(derived.level_feature[test])
    if column >= 0:
        branches = derived.level_branch[derived.level_start[test] : derived.level_start[test + 1]]
        members, known = _format_codes(branches == 0), _format_codes(branches >= 0)
        return f"{columns[column]} in {members}, known in {known}"
    terms = _list_terms(derived, test, columns)
    if len(terms) > _MAX_INLINE_TERMS:
        total = f"a sum over {len(terms)} columns"
    else:
        total = " + ".join(name if w == "1.0" else f"{w} * {name}" for name, w in terms)
    relation = ">" if derived.below[test] else "<="
    return f"{total} {relation} {float_literal(derived.threshold[test])}"


def _format_codes(member: Any) -> str:
    codes = np.flatnonzero(member).tolist()
    shown = [str(code) for code in codes[:_MAX_SHOWN]] + ["..."] * (len(codes) > _MAX_SHOWN)
    return "{" + ", ".join(shown) + "}"


def _list_terms(derived: DerivedColumns, test: int, columns: Sequence[Code]) -> list[Term]:
    own = slice(int(derived.term_start[test]), int(derived.term_start[test + 1]))
    features, weights = derived.term_feature[own].tolist(), derived.term_weight[own].tolist()
    return [(columns[f], float_literal(w)) for f, w in zip(features, weights, strict=True)]


# ---------------------------------------------------------------- source lines
# A template has one macro for each kind of line.


class SourceLine(NamedTuple):
    """Line of source, ready to be written by a template.

    Attributes
    ----------
    op : str
        Macro of the template: ``le_missing_no``, ``le_missing_yes``,
        ``sum_missing_no``, ``sum_missing_yes``, ``derived_missing_no``,
        ``derived_missing_yes``, ``in_codes``,
        ``missing_number``, ``missing_level``, ``otherwise``, ``end``, ``leaf``,
        ``call``, and ``unused`` in a function that ignores its row.
    indent : Code
    column : Code
        Identifier of the split feature.
    value : Code
        Threshold, for inputs in double.
    codes : list of int
        Members of the tested set.
    levels : int
        Number of categories of the column.
    terms : list of (Code, Code)
        Columns of a sum and their weights.
    words : Code
        Description of a derived column.
    tree, at : int
        Vector of a leaf, number of a derived column, or tree and number of the called function.
    """

    op: str
    indent: Code
    column: Code = Code()
    value: Code = Code()
    codes: Sequence[int] = ()
    levels: int = 0
    terms: Sequence[Term] = ()
    words: Code = Code()
    tree: int = 0
    at: int = 0


@dataclass(frozen=True, slots=True)
class SourceFunction:
    """Function number `part` of tree number `tree`; part 0 is the tree itself."""

    tree: int
    part: int
    lines: tuple[SourceLine, ...]


def write_source_functions(
    trees: tuple[LoweredTree, ...],
    schema: Schema,
    leaves: LeafTable,
    columns: Sequence[Code],
    derived: DerivedColumns,
    deepest: int,
    most: int,
    thresholds: Callable[[LoweredTree], Sequence[Code]] | None = None,
    *,
    indent: str = "    ",
    outer: int = 1,
) -> list[SourceFunction]:
    """Write each tree as functions of nested tests, callees before callers.

    Parameters
    ----------
    columns : sequence of Code
        Identifier of each input column.
    deepest : int
        Maximum nesting depth of the tests in one function.
    most : int
        Maximum number of tests in one function.
    thresholds : callable, optional
        Returns the threshold of each node as a literal; default: doubles,
        for unrounded rows.
    indent, outer : str, int
        One level of indentation, and the number of levels around a function's body.
    """
    make_thresholds = thresholds or partial(format_double_thresholds, schema)
    made: list[SourceFunction] = []
    for number, tree in enumerate(trees):
        own = (number, tree, schema, leaves, columns, derived, make_thresholds(tree))
        made += reversed(_TreeWriter(*own, deepest, most, indent, outer).write())
    return made


def format_double_thresholds(schema: Schema, tree: LoweredTree) -> list[Code]:
    """Write the threshold of each node for unrounded inputs in double."""
    return list(map(float_literal, compute_double_thresholds(tree, schema).tolist()))


@dataclass(frozen=True)
class _TreeWriter:
    """Writer of one tree; the parameters are those of `write_source_functions`."""

    number: int
    tree: LoweredTree
    schema: Schema
    leaves: LeafTable
    columns: Sequence[Code]
    derived: DerivedColumns
    thresholds: Sequence[Code]
    deepest: int
    most: int
    indent: str
    outer: int

    def write(self) -> list[SourceFunction]:
        """Write the functions, callers before callees; function 0 is the root.

        Subtrees at depth `deepest` become separate functions.  If a function would have more
        than `most` tests, the subtrees farthest from its root become separate functions, too.
        """
        roots = [0]
        functions: list[SourceFunction] = []
        for part, root in enumerate(roots):  # which grows
            lines = tuple(self._write_subtree(root, 0, self._find_nearest_tests(root), roots))
            if lines[0].op == "leaf":
                lines = (SourceLine("unused", lines[0].indent), *lines)
            functions.append(SourceFunction(self.number, part, lines))
        return functions

    def _find_nearest_tests(self, root: int) -> set[int]:
        """Find the `most` tests of a subtree that are nearest to its root."""
        tree, todo = self.tree, deque([root])
        found: set[int] = set()
        while todo and len(found) < self.most:
            at = todo.popleft()
            if tree.kind[at] != Step.LEAF:
                found.add(at)
                todo += [int(tree.yes[at]), int(tree.no[at])]
        return found

    def _write_subtree(
        self, at: int, depth: int, own: set[int], roots: list[int]
    ) -> Iterator[SourceLine]:
        """Yield the lines of a subtree; append those that become separate functions to `roots`.

        The position in `roots` is the number of a function.
        """
        tree, indent = self.tree, Code(self.indent * (depth + self.outer))
        if tree.kind[at] == Step.LEAF:
            yield SourceLine("leaf", indent, at=int(self.leaves.row[tree.leaf[at]]))
        elif depth == self.deepest or at not in own:
            roots.append(at)
            yield SourceLine("call", indent, tree=self.number, at=len(roots) - 1)
        else:
            yield self._write_test(at, indent)
            yield from self._write_subtree(int(tree.yes[at]), depth + 1, own, roots)
            yield SourceLine("otherwise", indent)
            yield from self._write_subtree(int(tree.no[at]), depth + 1, own, roots)
            yield SourceLine("end", indent)

    def _write_test(self, node: int, indent: Code) -> SourceLine:
        feature = int(self.tree.feature[node])
        if feature >= self.schema.n_features:
            return self._write_derived_test(node, feature - self.schema.n_features, indent)
        name, levels = self.columns[feature], len(self.schema.columns[feature].levels)
        kind = self.tree.kind[node]
        if kind == Step.IN:
            return SourceLine("in_codes", indent, name, codes=self.tree.codes(node).tolist())
        if kind == Step.MISSING:
            nominal = self.schema.columns[feature].kind == "nominal"
            op = "missing_level" if nominal else "missing_number"
            return SourceLine(op, indent, name, levels=levels)
        op = "le_missing_yes" if self.tree.missing_yes[node] else "le_missing_no"
        return SourceLine(op, indent, name, value=self.thresholds[node])

    def _write_derived_test(self, node: int, number: int, indent: Code) -> SourceLine:
        """Write a test of a derived column: a short sum inline, any other as a call."""
        side = "missing_yes" if self.tree.missing_yes[node] else "missing_no"
        terms = list_inline_terms(self.derived, number, self.columns)
        if terms is None:
            comment = describe_derived_column(self.derived, number, self.columns)
            return SourceLine(f"derived_{side}", indent, words=comment, at=number)
        threshold = self.derived.threshold[self.derived.test_start[number]]
        return SourceLine(f"sum_{side}", indent, value=float_literal(threshold), terms=terms)


# ---------------------------------------------------------------- sets
# Tests of large category sets become lookups in one table.


def replace_large_sets(
    functions: Sequence[SourceFunction], most: int
) -> tuple[list[SourceFunction], npt.NDArray[np.uint32]]:
    """Replace the tests of sets of more than `most` codes by lookups, ``in_set``.

    Returns
    -------
    functions : list of SourceFunction
        ``at`` of such a line is the start of its set in the packed words.
    words : (words,) uint32
        Packed sets, see `treekit.export.lowering.set_words`.
    """
    sets = [line.codes for f in functions for line in f.lines if len(line.codes) > most]
    starts = np.cumsum([0, *map(len, sets)])
    words, offsets = set_words(starts, np.array([c for codes in sets for c in codes], np.int64))
    offset = iter(offsets.tolist())

    def replace_set(line: SourceLine) -> SourceLine:
        asks_set = len(line.codes) > most
        return line._replace(op="in_set", at=next(offset)) if asks_set else line

    return [replace(f, lines=tuple(map(replace_set, f.lines))) for f in functions], words
