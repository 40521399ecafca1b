"""How many bytes the tables and the stack of C source take: computed, written, and read again."""

from __future__ import annotations

import re
from typing import Any

from treekit.export.c_form import CForm
from treekit.export.c_tables import CTable
from treekit.export.c_types import CTypes
from treekit.model.model import Model

__all__ = ["size_values", "sizes_in"]

_FRAMES = 1024
"""Bytes of what is on the stack but arrays, in a chain of calls, for any optimising compiler."""


def size_values(model: Model, made: CForm, tables: list[CTable], types: CTypes) -> dict[str, Any]:
    """The tables that scoring reads, what they take, and bounds of the stack."""
    row = made.row_stack + model.schema.n_values * (4 if types.sum == "int32_t" else 8) + _FRAMES
    return {
        "tables": {str(table.name): table for table in tables},
        "counted": [table.name for table in tables],
        "table_bytes": sum(table.size for table in tables),
        "stack": row,
        "batch_stack": max(row, made.batch_stack + _FRAMES) if made.block else row,
    }


def sizes_in(header: str) -> str:
    """What a generated header says of bytes, in words; empty if it is no such header."""
    told = {
        name: re.search(rf"^#define \w+?_{name} \(?([0-9]+)", header, re.MULTILINE)
        for name in ("TABLE_BYTES", "TEXT_BYTES", "STACK_BYTES", "BATCH_STACK_BYTES")
    }
    sizes = {name: f"{int(found[1]):,}" for name, found in told.items() if found is not None}
    if len(sizes) < len(told):
        return ""
    return (
        f"tables: {sizes['TABLE_BYTES']} bytes; names and vocabularies: {sizes['TEXT_BYTES']} "
        f"bytes and pointers; stack: at most {sizes['STACK_BYTES']} bytes a row, "
        f"{sizes['BATCH_STACK_BYTES']} a batch"
    )
