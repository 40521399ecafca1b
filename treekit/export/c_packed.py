"""C source as packed tables and a short loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from treekit.export.c_form import CForm
from treekit.export.c_tables import MANY, CTable, c_table, hex_table, narrow, text_table
from treekit.export.c_types import CTypes
from treekit.export.literals import Code
from treekit.export.packed import PackedNodes, packed_nodes
from treekit.export.table import LeafTable
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model

__all__ = ["EIGHT", "packed_form"]

_BLOCK = 256  # rows that stay in the first cache while a tree is walked
_LEAST_BLOCK = 16
_BLOCK_BYTES = 1 << 16
_SMALL_BLOCK_BYTES = 1 << 13  # of processors without floating point, whose stack is small
EIGHT = 8
"""Trees that a row walks by turns: 1.29 us where four take 1.69 (measured)."""


def packed_form(
    model: Model, leaves: LeafTable, derived: DerivedColumns, reason: str, types: CTypes
) -> CForm:
    """Pack each tree; rows become cells of integers first."""
    packed = packed_nodes(model, leaves, derived)
    nominal = np.flatnonzero(model.schema.nominal).astype(np.int32)
    levels = "" if not len(packed.levels) else "set" if packed.binary else "branch"
    text = _text(packed.levels) if packed.binary else ""
    block, block_bytes = (0, 0) if derived.n_columns else _block(model, types)
    uses = {"number"}
    if len(nominal):
        uses.add("is_level")
    if derived.n_columns:
        uses.add("derived")
    return CForm(
        name="table",
        reason=reason,
        template="table",
        values={
            "node_parts": [
                f"c/walk/nodes{_text(packed.nodes)}.jinja",
                f"c/walk/{'packed' if packed.packed else 'wide'}.jinja",
            ],
            "level_tables": [f"c/walk/{levels}_table{text}.jinja"] if levels else [],
            "level_steps": [f"c/walk/{levels}.jinja"] if levels else [],
            "nominal_tables": ["c/walk/nominal_table.jinja"] if len(nominal) else [],
            "encode_levels": ["c/walk/encode_levels.jinja"] if len(nominal) else [],
            "eight_trees": ["c/walk/eight_trees.jinja"] if model.n_trees >= EIGHT else [],
            "cell_bits": packed.cell_bits,
            "cell_mask": Code(f"{(1 << packed.cell_bits) - 1}u"),
            "step_shift": 2 + packed.cell_bits,
            "word": Code("uint32_t" if packed.packed else "uint64_t"),
            "block": block,
            "walks": [f"c/walk/{name}.jinja" for name in ("next", "encode", "sums_cells")],
        }
        | _cells(derived, types),
        tables=_tables(packed, levels, nominal, bool(block)),
        uses=uses,
        row_stack=(model.schema.n_features + 1) * types.key_type.itemsize,
        batch_stack=block_bytes,
        block=block,
    )


def _tables(packed: PackedNodes, levels: str, nominal: Any, in_blocks: bool) -> list[CTable]:
    if _text(packed.nodes):
        nodes = text_table("nodes", packed.nodes.astype("<u8").view(np.uint8))
    else:
        nodes = hex_table("nodes", packed.nodes)
    tables = [nodes, c_table("roots", packed.root)]
    if in_blocks:
        tables.append(c_table("depths", narrow(packed.depth)))
    if levels == "set":
        write = text_table if _text(packed.levels) else c_table
        tables.append(write("sets", packed.levels))
    if levels == "branch":
        tables.append(c_table("branches", narrow(packed.levels)))
    if len(nominal):
        tables.append(c_table("nominal", nominal))
    return tables


def _text(numbers: Any) -> str:
    """What the name of the template of a table ends in."""
    return "_text" if len(numbers) > MANY else ""


def _cells(derived: DerivedColumns, types: CTypes) -> dict[str, Code]:
    """How a node finds its cell: derived columns are evaluated when a row comes to ask one."""
    cells = f"const {types.key} *cells"
    if not derived.n_columns:
        return {
            "row_parameters": Code(cells),
            "row": Code("cells"),
            "cell": Code("cells[number]"),
        }
    last = f"{types.prefix.upper()}_FEATURES"
    asked = f"{types.prefix}_derived(x, (int32_t)number - {last} - 1)"
    return {
        "row_parameters": Code(f"const {types.cell} *x, {cells}"),
        "row": Code("x, cells"),
        "cell": Code(f"(number > {last} ? {asked} : cells[number])"),
    }


def _block(model: Model, types: CTypes) -> tuple[int, int]:
    """Rows that a batch scores together, and their bytes; 0 if so few would gain nothing."""
    row = (model.schema.n_features + 1) * types.key_type.itemsize
    row += model.schema.n_values * (4 if types.sum == "int32_t" else 8)
    most = _SMALL_BLOCK_BYTES if types.whole else _BLOCK_BYTES
    block = min(most // row // 8 * 8, _BLOCK)
    return (block, block * row) if block >= _LEAST_BLOCK else (0, 0)
