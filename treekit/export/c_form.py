"""What a form of C source says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from treekit.export.c_tables import CTable

__all__ = ["CForm"]


@dataclass(frozen=True)
class CForm:
    """A form of source for one model.

    Attributes
    ----------
    name : {"if_else", "hybrid", "table"}
    reason : str
    template : str
        Of ``c/``.
    values : dict
        Of its templates, tables apart.
    tables : list of CTable
    uses : set of str
        Templates of ``c/helpers`` that it calls.
    row_stack, batch_stack : int
        Bytes of its arrays on the stack, and of the frames of a chain of calls,
        for a row and for a block of a batch.
    block : int
        Rows that a batch scores together; 0 = each alone.
    batch : tuple of str
        Templates of how it does.
    leaves : bool
        Whether it tells the leaf of each tree.
    """

    name: str
    reason: str
    template: str
    values: dict[str, Any]
    tables: list[CTable]
    uses: set[str]
    row_stack: int = 0
    batch_stack: int = 0
    block: int = 0
    batch: tuple[str, ...] = ("block", "batch_blocks")
    leaves: bool = True
