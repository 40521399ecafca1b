"""Compact layout of C source: each tree as bytes, for processors with little flash.

A row becomes cells of 8 or 16 bits: the number of the column's thresholds below the cell, which
gives the same comparisons as the number itself; or ordered keys, if the tables of thresholds take
more bytes than they save.  The nodes of a tree follow in pre-order, so that a node needs
its column, its code, and the distance to the second child only: 3 to 5 bytes with codes, and 1 or
2 for a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.c.layouts import (
    MAX_ARRAY_ELEMENTS,
    CLayout,
    CTypes,
    make_c_table,
    make_hex_table,
    narrow_integers,
)
from treekit.export.literals import Code
from treekit.export.lowering import LeafTable, LoweredTree, Step, concatenate_lowered
from treekit.model.model import Model

Ints = npt.NDArray[np.int64]

_OTHER_FORM = "choose form='table'"
_MAX_INT16_BYTES = 2**15 - 1
"""Largest array of processors whose int has 16 bits."""


@dataclass(frozen=True, slots=True)
class CompactNodes:
    """The nodes of all trees as bytes, tree after tree in pre-order.

    Attributes
    ----------
    octets : (bytes,) uint8
    roots : (trees,) int64
        First byte of each tree.
    leaf_nodes : (leaves,) int64
        Number of the node in its tree, in the order of the bytes.
    cell_dtype : dtype
        Of a cell of a row; the largest number is missing.
    thresholds : (thresholds,) uint32 or uint64
        Ordered keys, ascending in each column; none if cells are ordered keys, too.
    starts : (features + 1,) int64
        Thresholds of each column.
    test_bytes, leaf_bytes, skip_bytes : int
        Bytes of the test of an inner node, of a leaf, and of the distance to the second child.
    has_wraps, has_sets : bool
        Whether a test has a bit for missing values that take the first branch, and one for sets.
    """

    octets: npt.NDArray[np.uint8]
    roots: Ints
    leaf_nodes: Ints
    cell_dtype: np.dtype[Any]
    thresholds: npt.NDArray[Any]
    starts: Ints
    test_bytes: int
    leaf_bytes: int
    skip_bytes: int
    has_wraps: bool
    has_sets: bool

    @property
    def has_ranks(self) -> bool:
        """Whether cells are numbers of thresholds."""
        return len(self.starts) > 0

    @property
    def shift(self) -> int:
        """Bits of a test below the number of the column."""
        return 1 + self.has_wraps + self.has_sets

    @property
    def size(self) -> int:
        """Bytes of all tables that a prediction reads."""
        tables = (self.roots, self.starts) if self.has_ranks else (self.roots,)
        return (
            len(self.octets)
            + self.thresholds.nbytes
            + sum(narrow_integers(table).nbytes for table in tables)
        )


def make_compact_layout(
    model: Model, trees: tuple[LoweredTree, ...], leaves: LeafTable, reason: str, types: CTypes
) -> CLayout:
    """Make the compact layout.

    Raises
    ------
    ExportError
        If the model has fractional instances, or splits that need other columns, or is so
        large that other forms are the better choice.
    """
    if model.missing == "fractional" or model.derived.n_columns:
        what = "fractional instances" if model.missing == "fractional" else "surrogate splits"
        raise ExportError(
            f"form='compact' does not support {what}, or splits on sums of columns: {_OTHER_FORM}"
        )
    nodes = encode_nodes(model, trees, leaves, types)
    if len(nodes.octets) > MAX_ARRAY_ELEMENTS:
        raise ExportError(
            f"form='compact' is for small processors, and the nodes take {len(nodes.octets)} "
            f"bytes, more than {MAX_ARRAY_ELEMENTS}: {_OTHER_FORM}"
        )
    widths = (nodes.test_bytes, nodes.skip_bytes, nodes.cell_dtype.itemsize)
    test, skip, key = widths
    tables = [make_c_table("nodes", nodes.octets), make_c_table("roots", _narrow(nodes.roots))]
    tables.append(make_c_table("leaf_nodes", _narrow(nodes.leaf_nodes)))
    nominal = np.flatnonzero(model.schema.nominal).astype(np.int32)
    if nodes.has_ranks:
        make_table = make_c_table if types.is_float32 else make_hex_table
        tables.append(make_table("thresholds", nodes.thresholds))
        tables.append(make_c_table("threshold_starts", _narrow(nodes.starts)))
    elif len(nominal):
        tables.append(make_c_table("nominal", nominal))
    direct = types.integers_only and not nodes.has_ranks and not len(nominal)
    return CLayout(
        name="compact",
        reason=reason,
        template="walk/compact",
        values={
            "ranks": int(nodes.has_ranks),
            "direct": int(direct),
            "nominal": len(nominal),
            "cell": Code(f"{nodes.cell_dtype.name}_t"),
            "missing_cell": Code(f"{nodes.cell_dtype.name.upper()}_MAX"),
            "wraps": int(nodes.has_wraps),
            "sets": int(nodes.has_sets),
            "set_bit": Code(f"{2 << nodes.has_wraps}u"),
            "shift": nodes.shift,
            "beyond_array": len(nodes.octets) if len(nodes.octets) > _MAX_INT16_BYTES else 0,
            "leaf_bytes": nodes.leaf_bytes,
            "test_bytes": test,
            "head_bytes": test + skip,
            "node_bytes": sum(widths),
            "read_test": _write_reading(types.prefix, 0, test, "uint32_t"),
            "read_skip": _write_reading(types.prefix, test, skip, "uint32_t"),
            "read_key": _write_reading(types.prefix, test + skip, key, types.key_dtype.name + "_t"),
            "read_leaf": _write_reading(types.prefix, 0, nodes.leaf_bytes, "uint32_t"),
        },
        tables=tables,
        helpers=set() if direct else {"number"} | ({"is_level"} if len(nominal) else set()),
        row_stack=(model.schema.n_features + 1) * nodes.cell_dtype.itemsize * (not direct),
    )


def _narrow(numbers: Ints) -> npt.NDArray[Any]:
    return narrow_integers(numbers)


def _write_reading(prefix: str, offset: int, n_bytes: int, type_: str) -> Code:
    """Write the number of some bytes from ``at + offset``, the lowest first, as an expression."""
    parts = []
    for byte in range(n_bytes):
        place = "at" if offset + byte == 0 else f"(at) + {offset + byte}u"
        shift = f" << {8 * byte}" if byte else ""
        parts.append(f"({type_}){prefix}_nodes[{place if place != 'at' else '(at)'}]{shift}")
    return Code(" | ".join(parts) if n_bytes > 1 else parts[0])


# ---------------------------------------------------------------- bytes

_LEAF_BIT, _WRAP_BIT = 1, 2


def encode_nodes(
    model: Model, trees: tuple[LoweredTree, ...], leaves: LeafTable, types: CTypes
) -> CompactNodes:
    """Encode the nodes of all trees, with the cells that take the fewest bytes in total."""
    joined, roots = concatenate_lowered(trees)
    nodes = np.concatenate([tree.leaves for tree in model.trees])
    keys, starts, ranks = _rank_thresholds(joined, model.schema, types)
    largest = max(int(np.diff(starts).max(initial=0)), int(model.schema.n_levels.max(initial=0)))
    found = []
    for dtype in (np.dtype(np.uint8), np.dtype(np.uint16)):
        if largest < np.iinfo(dtype).max:  # the largest number is missing
            found.append(_Encoder(joined, roots, leaves, model.schema, ranks, dtype))
            break
    made = [encoder.encode(nodes, keys, starts) for encoder in found]
    own = np.zeros(joined.n_nodes, dtype=types.key_dtype)
    is_le = joined.kind == Step.LE
    own[is_le] = types.compute_keys(joined.threshold[is_le])
    plain = _Encoder(joined, roots, leaves, model.schema, own, types.key_dtype)
    made.append(plain.encode(nodes, keys[:0], starts[:0]))
    return min(made, key=lambda one: one.size)


def _rank_thresholds(
    nodes: LoweredTree, schema: Schema, types: CTypes
) -> tuple[npt.NDArray[Any], Ints, Ints]:
    """Return the distinct thresholds of each column, their starts, and the rank of each node."""
    at = np.flatnonzero(nodes.kind == Step.LE)
    feature = nodes.feature[at].astype(np.int64)
    key = types.compute_keys(nodes.threshold[at])
    order = np.lexsort([key, feature])
    pairs = np.stack([feature[order].astype(np.uint64), key[order].astype(np.uint64)])
    is_new = np.ones(len(at), dtype=np.bool_)
    is_new[1:] = np.any(pairs[:, 1:] != pairs[:, :-1], axis=0)
    number = np.cumsum(is_new) - 1
    starts = np.searchsorted(feature[order][is_new], np.arange(schema.n_features + 1))
    ranks = np.zeros(nodes.n_nodes, dtype=np.int64)
    ranks[at[order]] = number - starts[feature[order]]
    return key[order][is_new], starts.astype(np.int64), ranks


@dataclass(frozen=True, slots=True)
class _Encoder:
    """Encoder of nodes; `codes` (nodes,) are the keys of thresholds, in the cells' type."""

    nodes: LoweredTree
    roots: Ints
    leaves: LeafTable
    schema: Schema
    codes: npt.NDArray[Any]
    cell_dtype: np.dtype[Any]

    def encode(self, node_of_leaf: Ints, thresholds: Any, starts: Ints) -> CompactNodes:
        """Encode all nodes."""
        nodes, kind = self.nodes, self.nodes.kind
        is_leaf, is_set = kind == Step.LEAF, kind == Step.IN
        wrap = nodes.missing_yes & ~is_leaf & ~is_set
        has_wraps, has_sets = bool(wrap.any()), bool(is_set.any())
        feature = np.where(is_leaf, 0, nodes.feature).astype(np.int64)
        test = feature << (1 + has_wraps + has_sets)
        test |= (wrap * _WRAP_BIT) | (is_set * (_WRAP_BIT << has_wraps))
        leaf = np.where(is_leaf, self.leaves.row[nodes.leaf] << 1 | _LEAF_BIT, 0)
        test_bytes, leaf_bytes = _count_bytes(test), _count_bytes(leaf)
        set_bytes = (self.schema.n_levels[feature] + 8) // 8
        body = np.where(is_set, set_bytes, self.cell_dtype.itemsize)
        for skip_bytes in (1, 2, 4):
            sizes = np.where(is_leaf, leaf_bytes, test_bytes + skip_bytes + body)
            start = np.cumsum(sizes) - sizes
            skip = np.where(is_leaf, 0, start[nodes.no] - start)
            if int(skip.max(initial=0)) < 1 << 8 * skip_bytes:
                break
        octets = np.zeros(int(sizes.sum()), dtype=np.uint8)
        _put(octets, start[is_leaf], leaf[is_leaf], leaf_bytes)
        _put(octets, start[~is_leaf], test[~is_leaf], test_bytes)
        _put(octets, start[~is_leaf] + test_bytes, skip[~is_leaf], skip_bytes)
        head, is_code = test_bytes + skip_bytes, ~is_leaf & ~is_set
        code = self.codes + wrap.astype(self.codes.dtype)
        code[kind == Step.MISSING] = 0
        _put(octets, start[is_code] + head, code[is_code], self.cell_dtype.itemsize)
        for at in np.flatnonzero(is_set).tolist():
            bits = np.zeros(8 * int(set_bytes[at]), dtype=np.uint8)
            bits[nodes.codes(at) + 1] = 1  # the first bit is that of a missing value
            first = int(start[at]) + head
            octets[first : first + int(set_bytes[at])] = np.packbits(bits, bitorder="little")
        return CompactNodes(
            octets=octets,
            roots=start[self.roots],
            leaf_nodes=node_of_leaf[nodes.leaf[is_leaf]],
            cell_dtype=self.cell_dtype,
            thresholds=thresholds,
            starts=starts,
            test_bytes=test_bytes,
            leaf_bytes=leaf_bytes,
            skip_bytes=skip_bytes,
            has_wraps=has_wraps,
            has_sets=has_sets,
        )


def _count_bytes(numbers: Ints) -> int:
    return narrow_integers(numbers).itemsize


def _put(octets: npt.NDArray[np.uint8], at: Ints, numbers: npt.NDArray[Any], n_bytes: int) -> None:
    """Write numbers at some places, the lowest byte first."""
    parts = np.ascontiguousarray(numbers.astype("<u8")).view(np.uint8).reshape(-1, 8)
    for byte in range(n_bytes):
        octets[at + byte] = parts[:, byte]
