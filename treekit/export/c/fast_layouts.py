"""C source as complete trees: tables without numbers of children, and loops of known length."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.export.c.layouts import most_frames, packed_form, test_values
from treekit.export.c.tables import CForm, CTypes, c_table, hex_table, narrow
from treekit.export.literals import Code
from treekit.export.lowering import LeafTable, LoweredTree, Step
from treekit.model.concatenated import asks_levels, fill_levels, join, level_room
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model
from treekit.model.packing import make_tops, node_keys
from treekit.model.tree import MAX_DEPTH, Split, Tree, node_depths

__all__ = [
    "CELL_SHIFT",
    "Heaps",
    "heap_form",
    "heaps",
    "hot_trees",
    "hybrid_form",
]


# ---------------------------------------------------------------- c heaps

_BLOCK = 64
"""Rows of a block: 0.65 us a row where 128 take 0.71 and 256 0.77, whose cells fill the
first cache (measured: 100 trees of depth 8 over 28 columns, where a walk from node to
node takes 0.90, and row by row 1.30 where this one takes 1.08)."""
_GROUP = 8
_BLOCK_BYTES = 1 << 16


def heap_form(model: Model, found: Heaps, reason: str, types: CTypes, eight: int) -> CForm:
    """The source of complete trees, `eight` of which a row walks by turns."""
    nominal = np.flatnonzero(model.schema.nominal).astype(np.int32)
    n_cells, levels = 1 + 2 * model.schema.n_features, len(found.sets) > 0
    row = n_cells * types.key_type.itemsize
    block, block_bytes = _block(row, model.schema.n_values * (4 if types.sum == "int32_t" else 8))
    tables = [
        hex_table("heap", found.nodes),
        c_table("starts", found.start),
        c_table("depths", narrow(found.depth)),
        c_table("ends", narrow(found.ends)),
        c_table("end_nodes", narrow(found.end_nodes)),
        *([c_table("sets", found.sets)] if levels else []),
        *([c_table("nominal", nominal)] if len(nominal) else []),
    ]
    return CForm(
        name="table",
        reason=reason,
        template="heap",
        values={
            "node_parts": [f"c/heap/{'packed' if found.packed else 'wide'}.jinja"],
            "level_tables": ["c/walk/set_table.jinja"] if levels else [],
            "level_steps": ["c/walk/set.jinja"] if levels else [],
            "nominal_tables": ["c/walk/nominal_table.jinja"] if len(nominal) else [],
            "encode_levels": ["c/heap/encode_levels.jinja"] if len(nominal) else [],
            "eight_trees": ["c/heap/eight_trees.jinja"] if model.n_trees >= eight else [],
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
        uses={"number"} | ({"is_level"} if len(nominal) else set()),
        row_stack=row,
        batch_stack=block_bytes,
        block=block,
        batch=("heap/block",),
    )


def _block(row: int, sums: int) -> tuple[int, int]:
    """Rows that a batch scores together, and their bytes; 0 if they need too many."""
    block = min(_BLOCK_BYTES // (row + sums) // _GROUP * _GROUP, _BLOCK)
    return block, block * (row + sums)


# ---------------------------------------------------------------- heaps
# Trees as complete ones, whose nodes need no children's numbers.
#
# The layout of the in-process scorer's first levels (`treekit.model.packing`), down to
# the leaves.  A row has a cell that is always 0, and two for each column: in the
# *right* one a missing value is the largest key of all, in the *left* one it is 0.

CELL_SHIFT = 3
"""Where the number of a cell stands in a test: times 8, its place among eight rows."""
_MANY = 1 << 18  # nodes: trees that no cache holds gain nothing


@dataclass(frozen=True, slots=True)
class Heaps:
    """The nodes of all trees.

    Attributes
    ----------
    nodes : (places,) or (2 * places,) uint64
        Tree t's node h, from 1, is at ``start[t] + h``; its children are 2h and
        2h + 1.  Packed: a key below a test, 32 bits each.  Otherwise key and test
        by turns.  A test holds whether levels are asked, and from `CELL_SHIFT` on
        the number of the cell.
    packed : bool
    start : (trees,) uint32
    depth : (trees,) int64
        Levels, the same for all trees of a group.
    ends : (places,) int64
        What is said at end e of tree t, at ``start[t] + e``.
    end_nodes : (places,) int64
        The leaf there, as a node of its tree.
    sets : (bytes,) uint8
        Branches of questions to levels, as in `treekit.export.c.layouts.PackedNodes`.
    """

    nodes: npt.NDArray[np.uint64]
    packed: bool
    start: npt.NDArray[np.uint32]
    depth: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    end_nodes: npt.NDArray[np.int64]
    sets: npt.NDArray[np.uint8]


def heaps(model: Model, leaves: LeafTable, derived: DerivedColumns, together: int) -> Heaps | None:
    """The trees of a model, of which a row walks some `together`.

    None if they would have more than twice the places of their nodes, a node has
    other than two branches, some ask derived columns, or no cache would hold them.
    """
    if derived.n_columns or model.n_nodes > _MANY:
        return None
    nodes, roots = join(model.trees)
    leaf = nodes.kind == Split.LEAF
    depth = np.maximum.reduceat(node_depths(nodes, roots[:-1], MAX_DEPTH), roots[:-1])
    levels = _alike(depth, together)
    places = np.sum(1 << np.minimum(levels, _MANY.bit_length()))
    if places > 2 * len(leaf) or np.any(~leaf & (nodes.n_children != 2)):
        return None
    single = model.schema.dtype == "float32"
    key, cell, sets = _asked(nodes, derived, single)
    if len(sets) > _MANY:
        return None
    key[leaf] = np.arange(np.count_nonzero(leaf))
    tops = make_tops(nodes, roots, depth, key, cell, levels)
    key, test = tops.key.astype(np.uint64), tops.cell.astype(np.uint64)
    own = np.arange(len(leaf)) - np.repeat(roots[:-1], np.diff(roots))
    return Heaps(
        nodes=key | test << np.uint64(32) if single else np.stack([key, test], axis=1).ravel(),
        packed=single,
        start=tops.start.astype(np.uint32),
        depth=levels,
        ends=leaves.row[tops.ends],
        end_nodes=own[leaf][tops.ends],
        sets=np.packbits(sets, bitorder="little"),
    )


def _alike(depth: npt.NDArray[np.int64], together: int) -> npt.NDArray[np.int64]:
    """Depths of which each whole group has one, its largest."""
    levels, whole = depth.copy(), len(depth) // together * together
    levels[:whole] = np.repeat(depth[:whole].reshape(-1, together).max(axis=1), together)
    return levels


def _asked(
    nodes: Tree, derived: DerivedColumns, single: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint64], npt.NDArray[Any]]:
    """Key and test of each node, and the branches of questions to levels."""
    word, real = (np.uint32, np.float32) if single else (np.uint64, np.float64)
    key, left = node_keys(nodes, derived, np.dtype(word), np.dtype(real))
    key[left & (nodes.kind == Split.THRESHOLD)] -= word(1)  # cells are not moved up
    plain = derived.column < 0
    asks, sets = asks_levels(nodes, plain), level_room([nodes], plain)
    key[asks] = fill_levels(sets, 0, nodes, asks)[:-1]
    number = 1 + 2 * nodes.feature.astype(np.int64) + (left | asks)
    number[nodes.kind == Split.LEAF] = 0
    return key, (number << CELL_SHIFT | asks).astype(np.uint64), sets


# ---------------------------------------------------------------- c hybrid
# C source as nested tests above, and packed tables below.

_MOST = 5000
"""Nested tests: gcc 12 takes 1.4 s for them; 3 s for 13,000, which are 12% faster (measured)."""


def hybrid_form(
    model: Model, leaves: LeafTable, derived: DerivedColumns, reason: str, types: CTypes
) -> CForm:
    """Nest the tests that most training rows met; a table of all nodes has the others.

    A row is read as it is asked: few of its cells are.  Batches walk the table
    alone, eight rows by turns, which is faster still.
    """
    made = packed_form(model, leaves, derived, reason, types)
    values, functions = test_values(
        model,
        hot_trees(model.trees, derived, _MOST),
        replace(leaves, row=np.arange(sum(tree.n_nodes for tree in model.trees))),
        derived,
        types,
        "The upper tests of each tree; what they return is the number of the next node.",
    )
    in_blocks, nominal = made.block > 0, bool(made.values["nominal_tables"])
    last = f"{types.prefix.upper()}_FEATURES"
    asked = f"{types.prefix}_derived(x, (int32_t)number - {last} - 1)"
    encodes = ["c/walk/next.jinja", "c/walk/encode.jinja"] if in_blocks else []
    return replace(
        made,
        name="hybrid",
        values=made.values
        | values
        | {
            "walks": [
                *encodes,
                *("c/walk/reach.jinja", "c/tests.jinja", "c/walk/sums_tests.jinja"),
            ],
            "behind_columns": Code(f"number > {last} ? {asked} : 0" if derived.n_columns else "0"),
            "cell_levels": ["c/walk/cell_levels.jinja"] if nominal else [],
        },
        tables=[one for one in made.tables if in_blocks or one.name != "nominal"],
        row_stack=most_frames(functions),
    )


# ---------------------------------------------------------------- hot
# The tests that most training rows met, as trees of their own above the table of all nodes.
#
# A processor guesses where a test leads, and guesses best where each test is an
# instruction of its own: nested tests answer a row in half the time that a walk
# through a table takes, which waits for each node (see Asadi, Lin and de Vries,
# Runtime optimizations for tree-based machine learning models, IEEE TKDE 26, 2014).
# But compilers take a second for each four thousand of them.  So the tests that are
# met most often are nested, and a table has the others.

_NO_SETS: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)


def hot_trees(
    trees: tuple[Tree, ...], derived: DerivedColumns, most: int
) -> tuple[LoweredTree, ...]:
    """The heaviest nodes of all trees that compare a number, with all their ancestors.

    Parameters
    ----------
    trees : tuple of Tree
    derived : DerivedColumns
        Of the model of the trees: its columns are asked by tables alone.
    most : int
        Tests of all trees together.

    Returns
    -------
    tuple of LoweredTree
        One a tree, without sets.  ``leaf`` is the node that is asked next, or is
        the leaf, counted over all trees as `treekit.model.concatenated.join` counts.
    """
    nodes, roots = join(trees)
    hot = _heaviest(nodes, roots, (nodes.kind == Split.THRESHOLD) & (derived.column < 0), most)
    place = np.empty(nodes.n_nodes, dtype=np.int64)
    return tuple(_above(nodes, root, hot, place) for root in roots[:-1].tolist())


def _heaviest(
    nodes: Tree, roots: npt.NDArray[np.int64], may: npt.NDArray[np.bool_], most: int
) -> npt.NDArray[np.bool_]:
    """(nodes,) bool: `most` of those that `may` be chosen, each below chosen ones alone.

    Of nodes of one weight, as in models that lack weights, those nearest to a root.
    """
    chosen = np.zeros(nodes.n_nodes, dtype=np.bool_)
    # A heap of Python's numbers: a node is pushed once, and few of them are.
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


def _above(
    nodes: Tree, root: int, hot: npt.NDArray[np.bool_], place: npt.NDArray[np.int64]
) -> LoweredTree:
    """The chosen nodes of one tree, and what follows them as leaves; `place` (nodes,) is lent."""
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
