"""Reading back the packed tables of C source, to compare them with the model.

See ``templates/c/table.jinja`` for what a node is, `treekit.verify.read_heaps` for those of
complete trees, `treekit.verify.read_tests` for
nested tests above them, and `treekit.model.pack` for how numbers become keys.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.model.ensemble import Model
from treekit.verify.read_heaps import ReadNodes, heap_nodes
from treekit.verify.read_numbers import of_keys, table_numbers
from treekit.verify.read_tests import tests_in, with_tests
from treekit.verify.structure import Structure, Tables, proved

__all__ = ["structure_of_c"]

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

_TABLE = re.compile(
    r"^static const [\w ]+ \w+?_(leaf_nodes|leaf_rows|leaf_units|leaf_starts|leaf_columns"
    r"|nodes|roots|sets|branches|heap|starts|depths|ends)\[\d+\](?:\[\d+\])? = \{\n(.*?)\n\};$",
    re.MULTILINE | re.DOTALL,
)
_HYBRID = re.compile(r"^static uint32_t \w+_reach\(uint32_t at, ", re.MULTILINE)
_LE_NO, _LE_YES, _IN, _MISSING = range(4)


def structure_of_c(path: Path, model: Model) -> Structure:
    """Compare what the file's tables say of trees with the model, on every path."""
    try:
        text = path.read_text(encoding="ascii")
        contents = dict(_TABLE.findall(text))
        if not contents.keys() & {"nodes", "heap"} or model.missing == "fractional":
            raise VerificationError("of C source verify reads packed tables alone")
        arrays = {name: table_numbers(content) for name, content in contents.items()}
        leaves = _leaves(text, arrays, model.schema)
        read = heap_nodes if "heap" in contents else _nodes
        tables, ends = _tables(read(text, arrays, model.schema), leaves, arrays, model.schema)
        structure = proved(model, tables)
        if structure.proved and _HYBRID.search(text):  # rows start above, batches in the table
            structure = proved(model, with_tests(tests_in(text), tables, ends, model.schema))
        return structure
    except (VerificationError, LookupError, SyntaxError, ValueError) as error:
        return Structure(False, f"not proved: its tables cannot be read ({error})")


def _nodes(text: str, arrays: Arrays, schema: Schema) -> ReadNodes:
    mask = re.search(
        r"_CELL\(test\) \(\(uint32_t\)\(\(test\) >> 2\) & (\d+)u\)$", text, re.MULTILINE
    )
    shift = re.search(r"_STEP\(test\) \(\(uint32_t\)\(\(test\) >> (\d+)\)\)$", text, re.MULTILINE)
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
    leaf = step == 0
    nodes = ReadNodes(
        leaf=leaf,
        wrap=(test & np.uint64(1)).astype(np.bool_),
        levels=(test >> np.uint64(1) & np.uint64(1)).astype(np.bool_) & ~leaf,
        key=key,
        cell=(test >> np.uint64(2) & np.uint64(int(mask[1]))).astype(np.int64),
        child=np.arange(len(key)) + step,
        root=arrays["roots"],
    )
    if np.any(nodes.cell[~leaf] >= schema.n_features):
        raise VerificationError("of C source verify reads no sums and surrogates")
    if np.any(nodes.levels & ~nodes.wrap):
        raise VerificationError("a question to levels without a place for missing ones")
    return nodes


def _tables(
    nodes: ReadNodes, leaves: Array, arrays: Arrays, schema: Schema
) -> tuple[Tables, Array]:
    """Packed nodes as binary ones, and which of them, or which leaf, each node has become.

    A question to levels becomes one for each branch but one.
    """
    chain = _Chains(nodes, arrays, schema)
    length = np.where(nodes.leaf, 0, np.where(nodes.levels, chain.length, 1))
    start = np.cumsum(length) - length
    ends = np.where(nodes.leaf, -1 - nodes.key.astype(np.int64), start)
    source = np.repeat(np.arange(len(length)), length)
    kind, value = _questions(nodes, schema)
    feature, kind, value = nodes.cell[source], kind[source], value[source]
    yes = ends[nodes.child[source]]
    no = ends[np.minimum(nodes.child[source] + 1, len(ends) - 1)]
    at = np.flatnonzero(nodes.levels[source])
    last = np.append(source[1:] != source[:-1], True)[at]
    elsewhere = ends[nodes.child[source[at]] + chain.missing[source[at]]]
    asked = chain.asked  # of `at`, those that ask for a branch; others have none to ask for
    kind[at] = np.where(asked, _IN, _MISSING)
    yes[at] = np.where(asked, ends[nodes.child[source[at]] + chain.branch], elsewhere)
    no[at] = np.where(last, elsewhere, at + 1)
    sizes = np.zeros(len(source), dtype=np.int64)
    sizes[at[asked]] = chain.sizes
    tables = Tables(
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


class _Chains:
    """The branches of questions to levels.

    Attributes
    ----------
    length, missing : (nodes,) int64
        Binary questions that a question to levels needs, at least one, and its
        branch of missing values; 0 elsewhere.
    asked : (questions,) bool
        Whether each of them asks for a branch.
    branch : (questions,) int64
    sizes : (asked questions,) int64
        Of the sets of levels that lead there.
    codes : (levels,) int64
    """

    def __init__(self, nodes: ReadNodes, arrays: Arrays, schema: Schema) -> None:
        at = np.flatnonzero(nodes.levels)
        table = arrays.get("branches", np.empty(0, np.int64))
        if "sets" in arrays:
            octets = arrays["sets"].astype(np.uint8)
            table = np.unpackbits(octets, bitorder="little").astype(np.int64)
        first = nodes.key[at].astype(np.int64)
        counts = schema.n_levels[nodes.cell[at]]
        self.missing = np.zeros(len(nodes.leaf), dtype=np.int64)
        self.missing[at] = table[first]
        owner = np.repeat(np.arange(len(at)), counts)
        code = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        branch = table[first[owner] + 1 + code]
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


def _questions(nodes: ReadNodes, schema: Schema) -> tuple[Array, Array]:
    """Kind and threshold of each node that compares: ``cell + wrap > key`` is branch 1."""
    key = np.where(nodes.wrap, np.maximum(nodes.key, 1) - np.uint64(1), nodes.key)
    kind = np.where(nodes.wrap, np.where(nodes.key == 0, _MISSING, _LE_YES), _LE_NO)
    compares = ~nodes.leaf & ~nodes.levels & (kind != _MISSING)
    value = np.zeros(len(key))
    column = np.where(compares, nodes.cell, 0)
    codes, numbers = compares & schema.nominal[column], compares & ~schema.nominal[column]
    value[codes] = key[codes]
    with np.errstate(invalid="ignore", over="ignore"):
        value[numbers] = of_keys(key[numbers], schema)
    return kind, value


def _leaves(text: str, arrays: Arrays, schema: Schema) -> Array:
    """(leaves, values) int64: what each leaf says."""
    units, n_values = arrays["leaf_units"], schema.n_values
    if units.dtype == np.uint8:  # each what it is more than the least
        width = re.search(r"_leaf_units\[i / \d+\] \+ i % \d+ \* (\d+);", text)
        least = re.search(r"\)more \+ \((-?\d+)\);", text)
        if width is None or least is None:
            raise VerificationError("leaves that are not treekit's")
        units = units.view(f"<u{width[1]}").astype(np.int64) + int(least[1])
    if "leaf_starts" not in arrays:
        return units.reshape(-1, n_values)
    start = arrays["leaf_starts"]
    said = np.zeros((len(start) - 1, n_values), dtype=np.int64)
    row = np.repeat(np.arange(len(said)), np.diff(start))
    said[row, arrays["leaf_columns"][: len(row)]] = units[: len(row)]
    return said
