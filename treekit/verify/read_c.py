"""Reading back the packed tables of C source, to compare them with the model.

See ``templates/c/table.jinja`` for what a node is, `treekit.verify.read_packed` for reading
it, `treekit.verify.read_heaps` for those of complete trees, `treekit.verify.read_tests` for
nested tests above them, and `treekit.model.packing` for how numbers become keys.

A proof has two parts.  The tables are read, with nothing of the exporter, and compared with
the model on every path: that the exporter wrote the model.  And both files are, byte
for byte, what treekit writes of it (`treekit.verify.as_written`): that nothing was changed,
tables that are not read here (the nodes of ends, texts of categories) and the code around
them included.  What is left to rows is whether treekit's own templates compute what they
should, and the compiler.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.export.c import c_prefix
from treekit.model.model import Model
from treekit.verify.as_written import as_lines, is_as_written
from treekit.verify.read_heaps import heap_nodes
from treekit.verify.read_leaves import leaves_in
from treekit.verify.read_numbers import of_keys, tables_in
from treekit.verify.read_packed import ReadNodes, depths_of, packed_nodes
from treekit.verify.read_tests import tests_in, with_tests
from treekit.verify.structure import Structure, Tables, proved

__all__ = ["structure_of_c", "structure_of_tables"]

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

_HYBRID = re.compile(r"^static uint32_t \w+_reach\(uint32_t at, ", re.MULTILINE)
_PLACES = ("roots", "starts", "depths", "ends", "leaf_starts", "leaf_columns", "sets", "branches")
"""Tables whose numbers are none below 0."""
_LE_NO, _LE_YES, _IN, _MISSING = range(4)


def structure_of_c(path: Path, model: Model) -> Structure:
    """Compare what the file's tables say of trees with the model, on every path."""
    structure = structure_of_tables(path.read_bytes(), c_prefix(path.stem), model)
    if structure.proved and not is_as_written(path, model):
        return Structure(
            False,
            "not proved: its tables say what the model says, but its files are not what this "
            "version of treekit writes of it (another version or other templates wrote them, "
            "or they were changed)",
        )
    return structure


def structure_of_tables(source: bytes, prefix: str, model: Model) -> Structure:
    """Compare the tables of a source, whose names start with `prefix`, with the model."""
    try:
        return _compared(as_lines(source).decode("ascii"), prefix, model)
    except (VerificationError, LookupError, ValueError) as error:
        return Structure(False, f"not proved: its tables cannot be read ({error})")


def _compared(text: str, prefix: str, model: Model) -> Structure:
    arrays, schema = tables_in(text, prefix), model.schema
    if not arrays.keys() & {"nodes", "heap"} or model.missing == "fractional":
        raise VerificationError("of C source verify reads packed tables alone")
    _check(arrays, model)
    nodes = (heap_nodes if "heap" in arrays else packed_nodes)(text, arrays, schema)
    leaves, chains = leaves_in(text, arrays, schema), _Chains(nodes, arrays, schema)
    if np.any(nodes.key[nodes.leaf] >= len(leaves)):
        raise VerificationError("a leaf that says nothing")
    tables, ends = _tables(nodes, chains, leaves, schema)
    structure = proved(model, tables)
    in_blocks = "nodes" in arrays and "depths" in arrays
    if structure.proved and in_blocks and np.any(arrays["depths"] < depths_of(nodes, chains.size)):
        raise VerificationError("trees that are deeper than batches walk")
    if structure.proved and _HYBRID.search(text):  # rows start above, batches in the table
        structure = proved(model, with_tests(tests_in(text), tables, ends, schema))
    return structure


def _check(arrays: Arrays, model: Model) -> None:
    """Compare the tables that are no trees with the model."""
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
            raise VerificationError(f"the table {name!r} is not the model's")
    if any(np.any(arrays[name] < 0) for name in arrays.keys() & set(_PLACES)):
        raise VerificationError("places before a table's start")


def _tables(
    nodes: ReadNodes, chain: _Chains, leaves: Array, schema: Schema
) -> tuple[Tables, Array]:
    """Packed nodes as binary ones, and which of them, or which leaf, each node has become.

    A question to levels becomes one for each branch but one.
    """
    length = np.where(nodes.leaf, 0, np.where(nodes.levels, chain.length, 1))
    start = np.cumsum(length) - length
    ends = np.where(nodes.leaf, -1 - nodes.key.astype(np.int64), start)
    source = np.repeat(np.arange(len(length)), length)
    kind, value = _questions(nodes, schema)
    feature, kind, value = nodes.cell[source], kind[source], value[source]
    yes = ends[nodes.child[source]]
    no = ends[nodes.child[source] + ~nodes.levels[source]]
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
    size : (nodes,) int64
        Branches of each node that asks.

    Raises
    ------
    VerificationError
        If a question asks for levels that are not there.
    """

    def __init__(self, nodes: ReadNodes, arrays: Arrays, schema: Schema) -> None:
        at = np.flatnonzero(nodes.levels)
        table = arrays.get("branches", np.empty(0, np.int64))
        if "sets" in arrays:
            octets = arrays["sets"].astype(np.uint8)
            table = np.unpackbits(octets, bitorder="little").astype(np.int64)
        column = nodes.cell[at]
        if np.any(nodes.key[at] >= len(table)) or not np.all(schema.nominal[column]):
            raise VerificationError("a question to levels that are not there")
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
