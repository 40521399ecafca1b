"""Rules as a table of comma-separated values (RFC 4180), a line for each rule.

A spreadsheet takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula.  No
text of a name does so here: what could be taken for one, or could be mistaken for a quoted
text, is quoted as the text form quotes it.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from typing import Any

from treekit.forms import Listing
from treekit.forms.columns import Columns

__all__ = ["pieces"]

_RULES_A_PIECE = 2048


def pieces(listing: Listing) -> Iterator[str]:
    """A line of names, and one for each rule; numbers are exact, what is not known is empty."""
    columns = Columns(listing)
    lines = io.StringIO()
    writer = csv.writer(lines)
    writer.writerow(columns.names)
    yield lines.getvalue()
    for first in range(0, len(listing.rules), _RULES_A_PIECE):
        lines = io.StringIO()
        block = columns.block(first, min(first + _RULES_A_PIECE, len(listing.rules)))
        csv.writer(lines).writerows(zip(*map(_texts, block), strict=True))
        yield lines.getvalue()


def _texts(values: list[Any]) -> list[Any]:
    """Numbers as ``repr`` writes them; NaN empty."""
    return ["" if isinstance(value, float) and math.isnan(value) else value for value in values]
