"""Read the trees of C sources back from their tables and nested tests: an oracle."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.export.c.layouts import ROW_BYTES
from treekit.model.fixed_point import to_double_threshold
from treekit.model.model import Model
from treekit.verify.tree_equivalence import (
    BinaryTables,
    StructureComparison,
    compare_paths,
    normalize_line_ends,
)

# ---------------------------------------------------------------- read c

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

_HYBRID = re.compile(r"^static uint32_t \w+_reach\(uint32_t at, ", re.MULTILINE)
_NONNEGATIVE_TABLES = (
    "roots",
    "depths",
    "leaf_starts",
    "leaf_columns",
    "sets",
    "branches",
)
"""Tables without negative numbers."""
_LE_NO, _LE_YES, _IN, _MISSING = range(4)


def compare_table_structure(source: bytes, prefix: str, model: Model) -> StructureComparison:
    """Compare the tables of a source, whose names start with `prefix`, with the model."""
    try:
        return _compare_tables(normalize_line_ends(source).decode("ascii"), prefix, model)
    except (VerificationError, LookupError, ValueError) as error:
        return StructureComparison(False, f"not proved: its tables cannot be read ({error})")


def _compare_tables(text: str, prefix: str, model: Model) -> StructureComparison:
    arrays, schema = parse_tables(text, prefix), model.schema
    if "nodes" not in arrays or model.missing == "fractional":
        raise VerificationError("unsupported C source: only packed tables can be read")
    _check_constant_tables(arrays, model)
    nodes = parse_packed_nodes(text, arrays, schema)
    leaves, chains = parse_leaf_values(text, arrays, schema), _CategoryChains(nodes, arrays, schema)
    if np.any(nodes.key[nodes.leaf] >= len(leaves)):
        raise VerificationError("a leaf without a value")
    tables, ends = _make_binary_tables(nodes, chains, leaves, schema)
    structure = compare_paths(model, tables)
    if (
        structure.proved
        and "depths" in arrays
        and np.any(arrays["depths"] < compute_depths(nodes, chains.size))
    ):
        raise VerificationError("a tree is deeper than its entry in the table of depths")
    # In hybrid source single rows start in nested tests above the table, batches in the table.
    if structure.proved and _HYBRID.search(text):
        structure = compare_paths(
            model, prepend_tests(parse_nested_tests(text), tables, ends, schema)
        )
    return structure


def _check_constant_tables(arrays: Arrays, model: Model) -> None:
    """Compare the tables other than trees with the model."""
    schema = model.schema
    costs = np.zeros(0) if model.label_costs is None else model.label_costs.ravel()
    wanted = {
        "levels": np.where(schema.nominal, schema.n_levels, -1),
        "nominal": np.flatnonzero(schema.nominal),
        "blocks": np.array(schema.blocks),
        "costs": costs,
    }
    for name in wanted.keys() & (arrays.keys() | {"levels"}):
        if not np.array_equal(arrays[name], wanted[name]):
            raise VerificationError(f"the table {name!r} differs from the model's")
    if any(np.any(arrays[name] < 0) for name in arrays.keys() & set(_NONNEGATIVE_TABLES)):
        raise VerificationError("a table of positions has a negative number")


def _make_binary_tables(
    nodes: PackedNodes, chain: _CategoryChains, leaves: Array, schema: Schema
) -> tuple[BinaryTables, Array]:
    """Convert packed nodes to binary ones; also return the binary node or leaf of each node.

    A split on categories becomes one binary node for each branch but one.
    """
    length = np.where(nodes.leaf, 0, np.where(nodes.levels, chain.length, 1))
    start = np.cumsum(length) - length
    ends = np.where(nodes.leaf, -1 - nodes.key.astype(np.int64), start)
    source = np.repeat(np.arange(len(length)), length)
    kind, value = _decode_comparisons(nodes, schema)
    feature, kind, value = nodes.cell[source], kind[source], value[source]
    yes = ends[nodes.child[source]]
    no = ends[nodes.child[source] + ~nodes.levels[source]]
    at = np.flatnonzero(nodes.levels[source])
    last = np.append(source[1:] != source[:-1], True)[at]
    elsewhere = ends[nodes.child[source[at]] + chain.missing[source[at]]]
    asked = chain.asked  # those of `at` that test for a branch; splits of one branch have none
    kind[at] = np.where(asked, _IN, _MISSING)
    yes[at] = np.where(asked, ends[nodes.child[source[at]] + chain.branch], elsewhere)
    no[at] = np.where(last, elsewhere, at + 1)
    sizes = np.zeros(len(source), dtype=np.int64)
    sizes[at[asked]] = chain.sizes
    tables = BinaryTables(
        feature=feature,
        kind=kind,
        value=value,
        yes=yes,
        no=no,
        root=ends[nodes.root],
        set_start=np.cumsum(np.append(0, sizes)),
        set_codes=chain.codes,
        leaves=leaves,
    )
    return tables, ends


class _CategoryChains:
    """Chains of binary tests for splits on categories.

    Attributes
    ----------
    length, missing : (nodes,) int64
        Number of binary tests for a split on categories, at least one, and its
        branch of missing values; 0 elsewhere.
    asked : (tests,) bool
        Whether each of them tests for a branch.
    branch : (tests,) int64
    sizes : (tests for a branch,) int64
        Of the sets of categories that lead there.
    codes : (categories,) int64
    size : (nodes,) int64
        Number of branches of each split.

    Raises
    ------
    VerificationError
        If a split tests categories that do not exist.
    """

    def __init__(self, nodes: PackedNodes, arrays: Arrays, schema: Schema) -> None:
        at = np.flatnonzero(nodes.levels)
        table = arrays.get("branches", np.empty(0, np.int64))
        if "sets" in arrays:
            octets = arrays["sets"].astype(np.uint8)
            table = np.unpackbits(octets, bitorder="little").astype(np.int64)
        column = nodes.cell[at]
        if np.any(nodes.key[at] >= len(table)) or not np.all(schema.nominal[column]):
            raise VerificationError("a split on categories that do not exist")
        first = nodes.key[at].astype(np.int64)
        counts = schema.n_levels[column]
        self.missing = np.zeros(len(nodes.leaf), dtype=np.int64)
        self.missing[at] = table[first]
        owner = np.repeat(np.arange(len(at)), counts)
        code = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        branch = table[first[owner] + 1 + code]
        self.size = np.full(len(nodes.leaf), 2)
        self.size[at] = table[first] + 1
        np.maximum.at(self.size, at[owner], branch + 1)
        own = branch != table[first][owner]
        owner, code, branch = owner[own], code[own], branch[own]
        order = np.lexsort((code, branch, owner))
        owner, self.codes, branch = owner[order], code[order], branch[order]
        begins = np.append(True, (owner[1:] != owner[:-1]) | (branch[1:] != branch[:-1]))
        begins = np.flatnonzero(begins[: len(owner)])
        self.sizes = np.diff(begins, append=len(owner))
        sets = np.bincount(owner[begins], minlength=len(at))
        self.length = np.zeros(len(nodes.leaf), dtype=np.int64)
        self.length[at] = np.maximum(sets, 1)
        self.asked = np.repeat(sets > 0, np.maximum(sets, 1))
        self.branch = np.zeros(len(self.asked), dtype=np.int64)
        self.branch[self.asked] = branch[begins]


def _decode_comparisons(nodes: PackedNodes, schema: Schema) -> tuple[Array, Array]:
    """Return kind and threshold of each node that compares: ``cell + wrap > key`` is branch 1."""
    key = np.where(nodes.wrap, np.maximum(nodes.key, 1) - np.uint64(1), nodes.key)
    kind = np.where(nodes.wrap, np.where(nodes.key == 0, _MISSING, _LE_YES), _LE_NO)
    compares = ~nodes.leaf & ~nodes.levels & (kind != _MISSING)
    value = np.zeros(len(key))
    column = np.where(compares, nodes.cell, 0)
    codes, numbers = compares & schema.nominal[column], compares & ~schema.nominal[column]
    value[codes] = key[codes]
    with np.errstate(invalid="ignore", over="ignore"):
        value[numbers] = decode_keys(key[numbers], schema)
    return kind, value


# ---------------------------------------------------------------- leaf values
# See ``templates/c/leaves_dense.jinja``, ``leaves_sparse.jinja`` and ``leaves_text.jinja``.


def parse_leaf_values(text: str, arrays: dict[str, Array], schema: Schema) -> Array:
    """Read the value of each leaf, (leaves, values) int64.

    Raises
    ------
    VerificationError, LookupError, ValueError
        If the tables of leaves were not written by treekit.
    """
    units, n_values = arrays["leaf_units"], schema.n_values
    if units.dtype == np.uint8:  # stored as differences from the least value
        width = re.search(r"_leaf_units\[i / \d+\] \+ i % \d+ \* ([1248]);", text)
        least = re.search(r"\)more \+ \((-?\d{1,19})\);", text)
        if width is None or least is None:
            raise VerificationError("leaves not written by treekit")
        units = units.view(f"<u{width[1]}").astype(np.int64) + int(least[1])
    if "leaf_starts" not in arrays:
        return units.reshape(-1, n_values)
    start = arrays["leaf_starts"]
    values = np.zeros((len(start) - 1, n_values), dtype=np.int64)
    row = np.repeat(np.arange(len(values)), np.diff(start))
    at = np.arange(start[0], start[-1])
    np.add.at(values, (row, arrays["leaf_columns"][at]), units[at])
    return values


# ---------------------------------------------------------------- constant tables
# Numbers exactly as treekit writes them in C source.
#
# Text that C would read differently from this module is refused: each number must have
# the spelling of the exporter and fit its table's type, and each table the declared length.

_DECIMAL = r"(?:0|-?[1-9][0-9]{0,18})"  # within 64 bits; C would read 061 as 49
_DECIMAL_LIST = re.compile(f"{_DECIMAL}(?:, {_DECIMAL})*")
_WORD = "0x[0-9a-f]{16}"
_WORD_LIST = re.compile(f"{_WORD}(?:, {_WORD})*")
_BYTES = r"[ !#-&(->@-\[\]-~]|\\[0-3][0-7]{2}|\\[0-7]{1,2}(?![0-7])"
_TEXTS = re.compile(rf'"(?:{_BYTES})+"(?:\n"(?:{_BYTES})+")*')
"""Bytes of a text, in one or several lines: letters other than quotes, \\ and ?, octal escapes."""

_DOUBLE = r"-?(?:0|[1-9][0-9]*)(?:\.(?:0|[0-9]*[1-9])(?:e[+-]?[0-9]+)?|e[+-]?[0-9]+)"
_LITERALS = {
    "double": re.compile(_DOUBLE),
    "float": re.compile(f"{_DOUBLE}f"),
    "uint32_t": re.compile(rf"0x[0-9a-f]{{8}}u /\* {_DOUBLE} \*/"),
    "uint64_t": re.compile(rf"0x[0-9a-f]{{16}}u /\* {_DOUBLE} \*/"),
}


def parse_tables(text: str, prefix: str) -> dict[str, Array]:
    """Read the constant tables of integers that a source declares, by name.

    Parameters
    ----------
    text : str
    prefix : str
        Start of all names of the source.

    Returns
    -------
    dict of str to array
        Int64 for decimals, uint64 for words, and uint8 for texts, whose rows are
        concatenated.

    Raises
    ------
    VerificationError
        If a table was not written by treekit, or its length or type differs from
        its declaration.
    """
    table = re.compile(
        rf"^static const (?:{prefix.upper()}_ADDRESS_SPACE )?"
        rf"(unsigned char|u?int(?:8|16|32|64)_t) {prefix}_(\w+?)"
        r"\[([1-9][0-9]*)\](?:\[([1-9][0-9]*)\])? = \{\n(.*?)\n\};$",
        re.MULTILINE | re.DOTALL,
    )
    tables: dict[str, Array] = {}
    for type_, name, length, width, content in table.findall(text):
        if name in tables:
            raise VerificationError(f"duplicate table {name!r}")
        lines = content.split(",\n")
        if width:
            count, tables[name] = _parse_byte_rows(lines, type_, int(width))
        else:
            tables[name] = _parse_integers(lines, type_)
            count = len(tables[name])
        if count != int(length):
            raise VerificationError(
                f"the table {name!r} has {count} entries, but declares {length}; "
                "export the model again"
            )
    return tables


def _parse_integers(lines: list[str], type_: str) -> Array:
    """Parse integers: decimals, or 64-bit words of sixteen hexadecimal digits."""
    if all(map(_WORD_LIST.fullmatch, lines)) and type_ == "uint64_t":
        digits = re.sub(r"0x|, ", "", "".join(lines))
        return np.frombuffer(bytes.fromhex(digits), dtype=">u8").astype(np.uint64)
    if type_ == "unsigned char" or not all(map(_DECIMAL_LIST.fullmatch, lines)):
        raise VerificationError("numbers not written by treekit")
    try:
        numbers = np.array(", ".join(lines).split(", "), dtype=np.int64)
    except OverflowError:
        raise VerificationError("numbers not written by treekit") from None
    limits = np.iinfo(type_.removesuffix("_t"))
    if numbers.min() < limits.min or numbers.max() > limits.max:
        raise VerificationError("numbers out of range for the type of their table")
    return numbers


def _parse_byte_rows(rows: list[str], type_: str, width: int) -> tuple[int, Array]:
    """Parse rows of texts: their number, and their bytes; all rows but the last are full."""
    if type_ != "unsigned char" or width != ROW_BYTES + 1 or not all(map(_TEXTS.fullmatch, rows)):
        raise VerificationError("texts not written by treekit")
    # Escapes end with a literal in C; Python drops the backslash and newline that join two.
    read = [row[1:-1].replace('"\n"', "\\\n").encode().decode("unicode_escape") for row in rows]
    if any(len(row) != ROW_BYTES for row in read[:-1]) or len(read[-1]) > ROW_BYTES:
        raise VerificationError("texts of an invalid length")
    return len(rows), np.frombuffer("".join(read).encode("latin-1"), np.uint8)


def decode_keys(key: Array, schema: Schema) -> Array:
    """Convert ordered integers to doubles; NaN for those of no finite number."""
    if schema.dtype == "float64":
        top = np.uint64(1 << 63)
        number = np.where(key & top, key ^ top, ~key).astype(np.uint64).view(np.float64)
        return np.where(np.isfinite(number), number, np.nan)
    low = key.astype(np.uint32)
    bits = np.where(low >> np.uint32(31), low ^ np.uint32(1 << 31), ~low).astype(np.uint32)
    single = bits.view(np.float32)
    finite = np.isfinite(single)
    return np.where(finite, to_double_threshold(np.where(finite, single, 0)), np.nan)


def decode_literals(literals: list[str], cell: str, schema: Schema) -> Array:
    """Convert literals of the type of a row's cells to thresholds for inputs in double.

    Raises
    ------
    VerificationError
        If one was not written by treekit, or is infinite.
    """
    if cell not in _LITERALS or not all(map(_LITERALS[cell].fullmatch, literals)):
        raise VerificationError("thresholds not written by treekit")
    if cell.startswith("uint"):
        keys = [int(text.split("u", 1)[0], 16) for text in literals]
        return decode_keys(np.array(keys, dtype=np.uint64), schema)
    number = np.array([float(text.removesuffix("f")) for text in literals])
    if cell == "float":
        with np.errstate(over="ignore"):
            number = number.astype(np.float32)
    if not np.isfinite(number).all():
        raise VerificationError("thresholds out of range for their type")
    return to_double_threshold(number) if cell == "float" else number


# ---------------------------------------------------------------- packed nodes
# See ``templates/c/table.jinja`` for the layout of a node, and `treekit.export.c.layouts`.

_MASK = re.compile(r"_CELL\(test\) \(\(uint32_t\)\(\(test\) >> 2\) & (\d{1,10})u\)$", re.MULTILINE)
_SHIFT = re.compile(r"_STEP\(test\) \(\(uint32_t\)\(\(test\) >> (\d{1,2})\)\)$", re.MULTILINE)


@dataclass(frozen=True)
class PackedNodes:
    """Packed nodes, split into fields.

    Attributes
    ----------
    leaf, wrap, levels : (nodes,) bool
    key : (nodes,) uint64
        For leaves the number of their value.
    cell, child : (nodes,) int64
        The branches lead to `child` and the node after it.
    root : (trees,) int64
    """

    leaf: Array
    wrap: Array
    levels: Array
    key: Array
    cell: Array
    child: Array
    root: Array


def parse_packed_nodes(text: str, arrays: dict[str, Array], schema: Schema) -> PackedNodes:
    """Read all nodes of all trees, including leaves.

    Raises
    ------
    VerificationError
        If the traversal of the source, or a test, was not written by treekit.
    """
    mask, shift = _MASK.search(text), _SHIFT.search(text)
    if mask is None or shift is None:
        raise VerificationError("a walk that is not treekit's")
    words = arrays["nodes"]
    if words.dtype == np.uint8:
        words = words.view("<u8").astype(np.uint64)
    if re.search(r"^#define \w+_TEST\(at\) \(\(uint32_t\)", text, re.MULTILINE):
        key, test = words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)
    else:
        key, test = words[0::2], words[1::2]
    step = (test >> np.uint64(int(shift[1]))).astype(np.int64)
    nodes = PackedNodes(
        leaf=step == 0,
        wrap=(test & np.uint64(1)).astype(np.bool_),
        levels=(test >> np.uint64(1) & np.uint64(1)).astype(np.bool_),
        key=key,
        cell=(test >> np.uint64(2) & np.uint64(int(mask[1]))).astype(np.int64),
        child=np.arange(len(key)) + step,
        root=arrays["roots"],
    )
    _check_packed_nodes(nodes, schema)
    return nodes


def _check_packed_nodes(nodes: PackedNodes, schema: Schema) -> None:
    """Reject nodes for which the traversal and `PackedNodes` differ."""
    asks = ~nodes.leaf
    if np.any(nodes.cell[asks] >= schema.n_features):
        raise VerificationError(
            "unsupported C source: oblique splits, surrogates and rules cannot be read"
        )
    # The traversal tests leaves, too, and stays there only if the cell is the one that is always 0.
    moves = nodes.wrap | nodes.levels | (nodes.cell != schema.n_features)
    most = get_largest_key(schema)
    by_key = asks & ~nodes.levels
    if (
        np.any(nodes.leaf & moves)
        or np.any(nodes.levels & ~nodes.wrap)  # without a place for missing values
        or np.any(nodes.key > most)
        or np.any(by_key & ~nodes.wrap & (nodes.key == most))
    ):
        raise VerificationError("a test that treekit does not write")


def get_largest_key(schema: Schema) -> np.uint64:
    """Return the largest key, which stands for a missing value."""
    return np.uint64(2**32 - 1 if schema.dtype == "float32" else 2**64 - 1)


def compute_depths(nodes: PackedNodes, n_branches: Array) -> Array:
    """Return the number of steps from each root to its deepest leaf, (trees,) int64.

    Parameters
    ----------
    nodes : PackedNodes
    n_branches : (nodes,) int64
        Number of branches of nodes that are not leaves.
    """
    n_nodes = len(nodes.leaf)
    depth = np.zeros(len(nodes.root), dtype=np.int64)
    tree, at = np.arange(len(depth)), nodes.root
    while np.any(asks := ~nodes.leaf[at]):
        tree, at = tree[asks], at[asks]
        depth[tree] += 1
        size = n_branches[at]
        branch = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        reached = np.repeat(nodes.child[at], size) + branch
        # Unique, as a damaged table may reach one node by many paths.
        tree, at = np.divmod(np.unique(np.repeat(tree, size) * n_nodes + reached), n_nodes)
    return depth


# ---------------------------------------------------------------- nested tests
# The nested tests of C source above packed tables.
#
# They compare numbers only, and return the number of a node of the table:
# see ``templates/c/tests.jinja``.

_INTEGER = "(0|[1-9][0-9]{0,9})"  # C reads 010 as 8
_FUNCTION = re.compile(
    rf"^\w+_APART static int32_t \w+?_tree_{_INTEGER}_{_INTEGER}\(const (\w+) \*x\)\n"
    r"\{\n(.*?)\n\}$",
    re.MULTILINE | re.DOTALL,
)
_COLUMN = re.compile(rf"^    (\w+_in_\w+) = {_INTEGER},$", re.MULTILINE)
_NO, _YES = (
    0,
    1,
)  # branch of a missing value; kinds as in `treekit.verify.kernels.tree_equivalence.BinaryNodes`
_NUMBER = r"(-?[0-9][0-9.e+-]*f?)"  # `decode_literals` checks it strictly
_KEY = r"(0x[0-9a-f]+u /\* -?[0-9][0-9.e+-]* \*/)"
"""Where cells are keys, a missing value is the largest key, not NaN."""
_TESTS = (
    (_YES, re.compile(rf"if \(!\(x\[(\w+)\] > {_NUMBER}\)\) \{{")),
    (_YES, re.compile(rf"if \(x\[(\w+)\] <= {_KEY} \|\| x\[\1\] == UINT(\d+)_MAX\) \{{")),
    (_NO, re.compile(rf"if \(x\[(\w+)\] <= {_NUMBER}\) \{{")),
    (_NO, re.compile(rf"if \(x\[(\w+)\] <= {_KEY}\) \{{")),
)
_CALL = re.compile(rf"return \w+?_tree_{_INTEGER}_{_INTEGER}\(x\);")
_LEAF = re.compile(rf"return {_INTEGER};")


@dataclass
class NestedTests:
    """Nested tests, tree by tree, a parent before its children.

    Attributes
    ----------
    cell : str
        Type of a row's cells.
    feature, kind : list of int
    value : list of str
        Thresholds as text.
    ends : list of [int, int]
        Targets of yes and no: a test here, or ``-1 - node`` of the table.
    roots : list of int
        One a tree, encoded as `ends`.
    """

    cell: str = ""
    feature: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    value: list[str] = field(default_factory=list)
    ends: list[list[int]] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)


class _TargetPlace(NamedTuple):
    """Position of the next target: a side of a test, or the root of a tree."""

    test: int
    side: int


def parse_nested_tests(text: str) -> NestedTests:
    """Read all functions of nested tests of a file; without trees if it has none.

    Raises
    ------
    VerificationError
        If a line was not written by treekit, or functions are missing or not nested.
    """
    functions = _FUNCTION.findall(text)
    bodies = {(int(tree), int(part)): body for tree, part, _, body in functions}
    cells = {cell for *_, cell, _ in functions}
    if len(bodies) < len(functions) or len(cells) > 1:
        raise VerificationError("contradictory functions of tests")
    columns = {name: int(number) for name, number in _COLUMN.findall(text)}
    tests = NestedTests("".join(cells))
    n_trees = sum(part == 0 for _, part in bodies)
    for tree in range(n_trees):
        tests.roots.append(0)
        todo = [(_TargetPlace(-1, tree), (tree, 0))]
        while todo:
            place, called = todo.pop()
            if called not in bodies:
                raise VerificationError(f"function of tests {called} is missing or called twice")
            todo += _parse_function(tests, bodies.pop(called).split("\n"), columns, place)
    if bodies:
        raise VerificationError("functions of tests without a call")
    return tests


def _parse_function(
    tests: NestedTests, lines: list[str], columns: dict[str, int], place: _TargetPlace
) -> list[tuple[_TargetPlace, tuple[int, int]]]:
    """Read a function whose value belongs at `place`; return its calls and their places."""
    open_sides: list[_TargetPlace] = []
    calls: list[tuple[_TargetPlace, tuple[int, int]]] = []
    waiting: _TargetPlace | None = place
    for line in (line.strip() for line in lines):
        if line == "(void)x;":
            continue
        if line in ("} else {", "}"):
            if waiting is not None or not open_sides:
                raise VerificationError("tests that are not nested")
            test, side = open_sides.pop()
            if side != (line == "}"):
                raise VerificationError("tests that are not nested")
            if side == 0:
                waiting = _TargetPlace(test, 1)
                open_sides.append(waiting)
            continue
        if waiting is None:
            raise VerificationError("unreachable lines")
        if found := _LEAF.fullmatch(line):
            _set_target(tests, waiting, -1 - int(found[1]))
            waiting = None
        elif found := _CALL.fullmatch(line):
            calls.append((waiting, (int(found[1]), int(found[2]))))
            waiting = None
        else:
            _set_target(tests, waiting, len(tests.feature))
            waiting = _parse_test(tests, line, columns)
            open_sides.append(waiting)
    if waiting is not None or open_sides:
        raise VerificationError("tests that are not nested")
    return calls


def _set_target(tests: NestedTests, place: _TargetPlace, end: int) -> None:
    if place.test < 0:
        tests.roots[place.side] = end
    else:
        tests.ends[place.test][place.side] = end


def _parse_test(tests: NestedTests, line: str, columns: dict[str, int]) -> _TargetPlace:
    """Add the test of a line; return the place of its target of yes."""
    for kind, pattern in _TESTS:
        found = pattern.fullmatch(line)
        if found and found[1] in columns and found.groups()[2:] in ((), (tests.cell[4:-2],)):
            tests.feature.append(columns[found[1]])
            tests.kind.append(kind)
            tests.value.append(found[2])
            tests.ends.append([0, 0])
            return _TargetPlace(len(tests.feature) - 1, 0)
    raise VerificationError(f"a test not written by treekit: {line[:80]}")


def prepend_tests(
    tests: NestedTests, tables: BinaryTables, ends: Array, schema: Schema
) -> BinaryTables:
    """Return nested tests followed by the tables that they lead to."""
    count = len(tests.feature)

    def shift_nodes(at: Array) -> Array:
        return np.where(at < 0, at, at + count)

    def resolve_targets(own: list[int]) -> Array:
        at = np.array(own, dtype=np.int64)
        return np.where(at < 0, shift_nodes(ends[np.where(at < 0, -1 - at, 0)]), at)

    def concatenate_tables(own: Array, others: Array) -> Array:
        return np.concatenate([own, others])

    return BinaryTables(
        feature=concatenate_tables(np.array(tests.feature, dtype=np.int64), tables.feature),
        kind=concatenate_tables(np.array(tests.kind, dtype=np.int64), tables.kind),
        value=concatenate_tables(decode_literals(tests.value, tests.cell, schema), tables.value),
        yes=concatenate_tables(
            resolve_targets([yes for yes, _ in tests.ends]), shift_nodes(tables.yes)
        ),
        no=concatenate_tables(
            resolve_targets([no for _, no in tests.ends]), shift_nodes(tables.no)
        ),
        root=resolve_targets(tests.roots),
        set_start=concatenate_tables(np.zeros(count, dtype=np.int64), tables.set_start),
        set_codes=tables.set_codes,
        leaves=tables.leaves,
    )
