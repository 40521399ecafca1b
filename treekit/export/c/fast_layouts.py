"""Fast layouts of C source: complete trees, and hybrids of nested tests and tables."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.export.c.layouts import (
    CLayout,
    CTypes,
    compute_nested_values,
    compute_stack_bytes,
    make_c_table,
    make_hex_table,
    make_packed_layout,
    narrow_integers,
)
from treekit.export.literals import Code
from treekit.export.lowering import LeafTable, LoweredTree, Step
from treekit.model.model import Model
from treekit.model.packing import compute_node_keys, make_tops
from treekit.model.tree import (
    MAX_DEPTH,
    DerivedColumns,
    Split,
    Tree,
    allocate_level_table,
    concatenate_trees,
    fill_level_table,
    find_level_splits,
    node_depths,
)

# ---------------------------------------------------------------- c complete trees

_BLOCK_ROWS = 64
"""Rows of a block: 0.65 us a row, against 0.71 with 128 and 0.77 with 256 rows, whose cells
fill the L1 cache (measured: 100 trees of depth 8 over 28 columns; packed nodes take 0.90;
row by row 1.08, packed nodes 1.30)."""
_INTERLEAVED_ROWS = 8
_BLOCK_BYTES = 1 << 16


def make_heap_layout(
    model: Model, found: CompleteTrees, reason: str, types: CTypes, eight: int
) -> CLayout:
    """Make the layout of complete trees, `eight` of which are traversed in turns for a row."""
    nominal = np.flatnonzero(model.schema.nominal).astype(np.int32)
    n_cells, levels = 1 + 2 * model.schema.n_features, len(found.sets) > 0
    row = n_cells * types.key_dtype.itemsize
    block, block_bytes = _size_block(
        row, model.schema.n_values * (4 if types.sum_type == "int32_t" else 8)
    )
    tables = [
        make_hex_table("heap", found.nodes),
        make_c_table("starts", found.offsets),
        make_c_table("depths", narrow_integers(found.depth)),
        make_c_table("ends", narrow_integers(found.end_vectors)),
        make_c_table("end_nodes", narrow_integers(found.end_nodes)),
        *([make_c_table("sets", found.sets)] if levels else []),
        *([make_c_table("nominal", nominal)] if len(nominal) else []),
    ]
    return CLayout(
        name="table",
        reason=reason,
        template="heap/tree",
        values={
            "node_parts": [f"heap/{'packed' if found.packed else 'wide'}"],
            "level_tables": ["walk/set_table"] if levels else [],
            "level_steps": ["walk/set"] if levels else [],
            "nominal_tables": ["walk/nominal_table"] if len(nominal) else [],
            "encode_levels": ["heap/encode_levels"] if len(nominal) else [],
            "eight_trees": ["heap/eight_trees"] if model.n_trees >= eight else [],
            "steps": {
                "alone": {"name": Code("next"), "place": Code("CELL")},
                "of_eight": {"name": Code("next_of_eight"), "place": Code("OF_EIGHT")},
            },
            "cell_shift": CELL_SHIFT,
            "no_flag": Code(" & ~7u" if levels else ""),
            "word": Code("uint32_t" if found.packed else "uint64_t"),
            "block": block,
        },
        tables=tables,
        helpers={"number"} | ({"is_level"} if len(nominal) else set()),
        row_stack=row,
        batch_stack=block_bytes,
        block_rows=block,
        batch_templates=("heap/block",),
    )


def _size_block(row: int, sums: int) -> tuple[int, int]:
    """Return the rows that a batch scores together, and their bytes; 0 if they need too many."""
    block = min(_BLOCK_BYTES // (row + sums) // _INTERLEAVED_ROWS * _INTERLEAVED_ROWS, _BLOCK_ROWS)
    return block, block * (row + sums)


# ---------------------------------------------------------------- complete trees
# Heap order: children are found by arithmetic, without child pointers.
#
# The layout of the in-process scorer's first levels (`treekit.model.packing`), down to
# the leaves.  A row has a cell that is always 0, and two for each column: in the
# *right* one a missing value is the largest key, in the *left* one it is 0.

CELL_SHIFT = 3
"""Shift of the cell number in a test: times 8, it is the offset for eight interleaved rows."""
_MAX_NODES = 1 << 18  # nodes; larger trees do not fit a cache and are not faster


@dataclass(frozen=True, slots=True)
class CompleteTrees:
    """Nodes of all trees, each as a complete binary tree.

    Attributes
    ----------
    nodes : (places,) or (2 * places,) uint64
        Node h of tree t, from 1, is at ``start[t] + h``; its children are 2h and
        2h + 1.  Packed: key in the lower and test in the upper 32 bits.  Otherwise key and test
        alternate.  Bit 0 of a test marks a categorical split; the cell number is stored
        from bit `CELL_SHIFT` on.
    packed : bool
    offsets : (trees,) uint32
    depth : (trees,) int64
        Depth, the same for all trees of a group.
    end_vectors : (places,) int64
        Leaf vector of end e of tree t, at ``start[t] + e``.
    end_nodes : (places,) int64
        Leaf of that end, as a node of its tree.
    sets : (bytes,) uint8
        Branches of categorical splits, as in `treekit.export.c.layouts.PackedNodes`.
    """

    nodes: npt.NDArray[np.uint64]
    packed: bool
    offsets: npt.NDArray[np.uint32]
    depth: npt.NDArray[np.int64]
    end_vectors: npt.NDArray[np.int64]
    end_nodes: npt.NDArray[np.int64]
    sets: npt.NDArray[np.uint8]


def build_complete_trees(
    model: Model, leaves: LeafTable, derived: DerivedColumns, together: int
) -> CompleteTrees | None:
    """Convert the trees of a model to complete trees, `together` of which are interleaved.

    Return None if the complete trees would have more than twice the nodes, a node does not have
    two branches, the model uses derived columns, or the trees do not fit a cache.
    """
    if derived.n_columns or model.n_nodes > _MAX_NODES:
        return None
    nodes, roots = concatenate_trees(model.trees)
    leaf = nodes.kind == Split.LEAF
    depth = np.maximum.reduceat(node_depths(nodes, roots[:-1], MAX_DEPTH), roots[:-1])
    levels = _equalize_depths(depth, together)
    places = np.sum(1 << np.minimum(levels, _MAX_NODES.bit_length()))
    if places > 2 * len(leaf) or np.any(~leaf & (nodes.n_children != 2)):
        return None
    single = model.schema.dtype == "float32"
    key, cell, sets = _compute_node_tests(nodes, derived, single)
    if len(sets) > _MAX_NODES:
        return None
    key[leaf] = np.arange(np.count_nonzero(leaf))
    tops = make_tops(nodes, roots, depth, key, cell, levels)
    key, test = tops.key.astype(np.uint64), tops.cell.astype(np.uint64)
    own = np.arange(len(leaf)) - np.repeat(roots[:-1], np.diff(roots))
    return CompleteTrees(
        nodes=key | test << np.uint64(32) if single else np.stack([key, test], axis=1).ravel(),
        packed=single,
        offsets=tops.offsets.astype(np.uint32),
        depth=levels,
        end_vectors=leaves.row[tops.ends],
        end_nodes=own[leaf][tops.ends],
        sets=np.packbits(sets, bitorder="little"),
    )


def _equalize_depths(depth: npt.NDArray[np.int64], together: int) -> npt.NDArray[np.int64]:
    """Set the depths of each complete group of trees to its largest depth."""
    levels, whole = depth.copy(), len(depth) // together * together
    levels[:whole] = np.repeat(depth[:whole].reshape(-1, together).max(axis=1), together)
    return levels


def _compute_node_tests(
    nodes: Tree, derived: DerivedColumns, single: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint64], npt.NDArray[Any]]:
    """Return key and test of each node, and the branches of categorical splits."""
    word, real = (np.uint32, np.float32) if single else (np.uint64, np.float64)
    key, left = compute_node_keys(nodes, derived, np.dtype(word), np.dtype(real))
    key[left & (nodes.kind == Split.THRESHOLD)] -= word(1)  # left cells are not incremented here
    plain = derived.column < 0
    asks, sets = find_level_splits(nodes, plain), allocate_level_table([nodes], plain)
    key[asks] = fill_level_table(sets, 0, nodes, asks)[:-1]
    number = 1 + 2 * nodes.feature.astype(np.int64) + (left | asks)
    number[nodes.kind == Split.LEAF] = 0
    return key, (number << CELL_SHIFT | asks).astype(np.uint64), sets


# ---------------------------------------------------------------- c hybrid

_MAX_NESTED_TESTS = 5000
"""Nested tests: gcc 12 compiles them in 1.4 s; 13,000 take 3 s and run 12% faster (measured)."""


def make_hybrid_layout(
    model: Model, leaves: LeafTable, derived: DerivedColumns, reason: str, types: CTypes
) -> CLayout:
    """Make the hybrid layout: nested tests for the most visited nodes, a table for the others.

    Cells are converted on demand, because a row needs few of them.  Batches use only the
    table, with eight rows in turns, which is faster still.
    """
    made = make_packed_layout(model, leaves, derived, reason, types)
    values, functions = compute_nested_values(
        model,
        extract_frequent_subtrees(model.trees, derived, _MAX_NESTED_TESTS),
        replace(leaves, row=np.arange(sum(tree.n_nodes for tree in model.trees))),
        derived,
        types,
        "The upper tests of each tree; what they return is the number of the next node.",
    )
    in_blocks, nominal = made.block_rows > 0, bool(made.values["nominal_tables"])
    last = f"{types.prefix.upper()}_FEATURES"
    asked = f"{types.prefix}_derived(x, (int32_t)number - {last} - 1)"
    encodes = ["walk/next", "walk/encode"] if in_blocks else []
    return replace(
        made,
        name="hybrid",
        values=made.values
        | values
        | {
            "walks": [
                *encodes,
                *("walk/reach", "walk/tests", "walk/sums_tests"),
            ],
            "behind_columns": Code(f"number > {last} ? {asked} : 0" if derived.n_columns else "0"),
            "cell_levels": ["walk/cell_levels"] if nominal else [],
        },
        tables=[one for one in made.tables if in_blocks or one.name != "nominal"],
        row_stack=compute_stack_bytes(functions),
    )


# ---------------------------------------------------------------- frequent subtrees
# The tests that most training rows visit are nested; a table has the others.
#
# Branch prediction works best if each test is an instruction of its own: nested tests
# score a row in half the time of a traversal of a table, which stalls at each node
# (see Asadi, Lin and de Vries, Runtime optimizations for tree-based machine learning
# models, IEEE TKDE 26, 2014).  But compilers take a second for every four thousand tests.

_NO_SETS: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)


def extract_frequent_subtrees(
    trees: tuple[Tree, ...], derived: DerivedColumns, most: int
) -> tuple[LoweredTree, ...]:
    """Extract the top of each tree: the numeric tests with the largest training weight.

    The ancestors of a chosen test are chosen as well.

    Parameters
    ----------
    trees : tuple of Tree
    derived : DerivedColumns
        Derived columns of the model; their tests remain in the table.
    most : int
        Maximum number of tests in all trees together.

    Returns
    -------
    tuple of LoweredTree
        One per tree, without sets.  ``leaf`` is the next node (a test or
        a leaf), numbered over all trees as in `treekit.model.tree.concatenate_trees`.
    """
    nodes, roots = concatenate_trees(trees)
    hot = _select_heaviest(
        nodes, roots, (nodes.kind == Split.THRESHOLD) & (derived.column < 0), most
    )
    place = np.empty(nodes.n_nodes, dtype=np.int64)
    return tuple(_build_subtree(nodes, root, hot, place) for root in roots[:-1].tolist())


def _select_heaviest(
    nodes: Tree, roots: npt.NDArray[np.int64], may: npt.NDArray[np.bool_], most: int
) -> npt.NDArray[np.bool_]:
    """Return a mask (nodes,) of the `most` heaviest nodes among `may` with chosen ancestors.

    Ties, as in models without weights, are broken by the distance to the root.
    """
    chosen = np.zeros(nodes.n_nodes, dtype=np.bool_)
    # A heap of Python numbers is fast enough: few nodes are pushed, each once.
    heap = [(-float(nodes.weight[root]), 0, root) for root in roots[:-1].tolist() if may[root]]
    heapq.heapify(heap)
    for _ in range(most):
        if not heap:
            break
        _, depth, at = heapq.heappop(heap)
        chosen[at] = True
        first = int(nodes.first_child[at])
        for child in (first, first + 1):
            if may[child]:
                heapq.heappush(heap, (-float(nodes.weight[child]), depth + 1, child))
    return chosen


def _build_subtree(
    nodes: Tree, root: int, hot: npt.NDArray[np.bool_], place: npt.NDArray[np.int64]
) -> LoweredTree:
    """Build a lowered tree of the chosen nodes, their other children as leaves.

    `place` (nodes,) is scratch memory.
    """
    order, todo = [], [root]
    while todo:
        at = todo.pop()
        order.append(at)
        if hot[at]:
            first = int(nodes.first_child[at])
            todo += [first + 1, first]
    own = np.array(order)
    place[own] = np.arange(len(own))
    inner = hot[own]
    yes = np.where(inner, place[nodes.first_child[own]], -1)
    no = np.where(inner, place[nodes.first_child[own] + inner], -1)
    return LoweredTree(
        kind=np.where(inner, Step.LE, Step.LEAF).astype(np.uint8),
        feature=np.where(inner, nodes.feature[own], -1).astype(np.int32),
        threshold=np.where(inner, nodes.threshold[own], np.nan),
        missing_yes=inner & (nodes.missing[own] == 0),
        yes=yes.astype(np.int32),
        no=no.astype(np.int32),
        leaf=np.where(inner, -1, own),
        set_start=np.zeros(len(own) + 1, dtype=np.int64),
        set_codes=_NO_SETS,
        depth=0,
    )
