"""C source as complete trees: tables without numbers of children, and loops of known length."""

from __future__ import annotations

import numpy as np

from treekit.export.c_form import CForm
from treekit.export.c_tables import c_table, hex_table, narrow
from treekit.export.c_types import CTypes
from treekit.export.heaps import CELL_SHIFT, Heaps
from treekit.export.literals import Code
from treekit.model.model import Model

__all__ = ["heap_form"]

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
