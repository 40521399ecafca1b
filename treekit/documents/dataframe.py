"""Rules as dataframes and CSV tables."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from treekit.documents import Listing
from treekit.documents.layout import (
    compute_shares,
    decode_numbers,
    format_rules,
    list_target_measures,
    predict_rule_labels,
)
from treekit.errors import MissingExtraError
from treekit.rules.wording import quote_label, quote_unsafe

if TYPE_CHECKING:
    import pandas as pd


# ---------------------------------------------------------------- frame


def list_columns(listing: Listing) -> Iterator[tuple[str, list[Any]]]:
    """Yield the names and values of the columns of a listing as a table with one line per rule.

    The columns are ``rule`` and ``tree`` (counted from 1), ``node`` (from 0, as in the text),
    ``if``, the outcome for each target, the shares of its classes (or the amounts added to
    their margins), ``as_parent``, and the measures, for each target if there are several.
    """
    rules, measures, outputs = listing.rules, listing.measures, listing.rules.schema.outputs
    yield "rule", list(range(1, len(rules) + 1))
    yield "tree", (rules.tree + 1).tolist()
    yield "node", rules.leaf.tolist()
    yield "if", format_rules(listing, 0, len(rules)) if len(rules) else []
    behind = [f" of {quote_label(o.name)}" if len(outputs) > 1 else "" for o in outputs]
    votes = rules.schema.task == "classification" and not rules.margins
    numbers = iter((compute_shares(rules) if votes else decode_numbers(rules)).T.tolist())
    labels = predict_rule_labels(rules) if votes else []
    for k, output in enumerate(outputs):
        if votes:
            texts = list(map(quote_unsafe, output.classes))
            yield f"then{behind[k]}", [texts[code] for code in labels[k].tolist()]
        elif not rules.margins:
            yield f"then{behind[k]}", next(numbers)
        for label in output.classes:
            yield f"{'share' if votes else 'margin'} {quote_label(label)}{behind[k]}", next(numbers)
    yield "as_parent", rules.as_parent.tolist()
    if measures.rows is not None:
        yield "rows", measures.rows.tolist()
    yield "support", measures.weight.tolist()
    yield "coverage", measures.coverage.tolist()
    for key, k, values in list_target_measures(listing):
        yield f"{key}{behind[k]}", values.tolist()


def rules_to_frame(listing: Listing) -> pd.DataFrame:
    """Return a dataframe with one line per rule and the typed columns of the CSV form.

    Raises
    ------
    MissingExtraError
        If pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError("pandas", "pandas") from error
    names, columns = zip(*list_columns(listing), strict=True)
    frame = pd.DataFrame(dict(enumerate(map(pd.Series, columns))))
    frame.columns = names  # set last: column names may repeat
    return frame


# ---------------------------------------------------------------- csv
# Comma-separated values (RFC 4180), one line per rule.
#
# Spreadsheets read a cell that begins with ``=``, ``+``, ``-`` or ``@`` as a formula.  Names
# that could be read so, or mistaken for quoted text, are quoted as in the text form.

_RULES_PER_PIECE = 2048
CSV_START = b"rule,tree,node,if,"
"""Start of the first line of every table of rules."""


def render_csv(listing: Listing) -> Iterator[str]:
    """Return a line of column names and one line per rule; numbers are exact, NaN is empty."""
    names, columns = zip(*list_columns(listing), strict=True)
    rows = itertools.chain([names], zip(*map(_replace_nan, columns), strict=True))
    while piece := list(itertools.islice(rows, _RULES_PER_PIECE)):
        lines = io.StringIO()
        csv.writer(lines).writerows(piece)
        yield lines.getvalue()


def _replace_nan(values: list[Any]) -> list[Any]:
    """Replace NaN by empty text; ``csv`` writes other numbers as ``repr``."""
    return ["" if isinstance(value, float) and math.isnan(value) else value for value in values]
