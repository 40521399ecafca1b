"""Rules as dataframes, CSV and notebook tables."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import escape

from treekit.documents import Listing
from treekit.documents.layout import (
    DocumentRow,
    OutcomeText,
    RuleColumns,
    format_figure,
    iter_rows,
    make_layout,
    make_title,
)
from treekit.errors import MissingExtraError
from treekit.rules.measure import training_measures
from treekit.rules.rule_list import RuleList

if TYPE_CHECKING:
    import pandas as pd


# ---------------------------------------------------------------- frame


def rules_to_frame(listing: Listing) -> pd.DataFrame:
    """Return a dataframe with one line per rule and the typed columns of the CSV form.

    Raises
    ------
    MissingExtraError
        If pandas is not installed.
    """
    pandas = _import_pandas()
    columns = RuleColumns(listing)
    block = (
        columns.make_block(0, len(listing.rules))
        if len(listing.rules)
        else [[]] * len(columns.names)
    )
    series = {k: pandas.Series(values) for k, values in enumerate(block)}
    frame: pd.DataFrame = pandas.DataFrame(series)
    frame.columns = columns.names  # set last: column names may repeat
    return frame


def conditions_to_frame(rules: RuleList) -> pd.DataFrame:
    """Return a dataframe with one line per condition.

    Returns
    -------
    DataFrame
        ``rule`` (from 1), ``column`` (a name, or ``test 1``), ``low`` and ``high`` (``low < x <=
        high``, infinite where there is no bound), ``levels`` (tuples; None for numbers),
        ``known``, ``missing`` (whether known and missing values fit).

    Raises
    ------
    MissingExtraError
        If pandas is not installed.
    """
    pandas = _import_pandas()
    table, schema = rules.conditions, rules.schema
    names = [column.name for column in schema.columns]
    names += [f"test {number + 1}" for number in range(len(rules.tests))]
    column_ids = table.column.tolist()
    levels: list[Any] = [None] * len(column_ids)
    for at in np.flatnonzero(np.append(schema.nominal, [False] * len(rules.tests))[table.column]):
        vocabulary = schema.columns[column_ids[at]].levels
        levels[at] = tuple(vocabulary[code] for code in table.list_codes(int(at))[0])
    frame: pd.DataFrame = pandas.DataFrame(
        {
            "rule": np.repeat(np.arange(len(rules)) + 1, np.diff(rules.end, prepend=0)),
            "column": [names[column] for column in column_ids],
            "low": table.low,
            "high": table.high,
            "levels": pandas.Series(levels, dtype=object),
            "known": table.known,
            "missing": table.missing,
        }
    )
    return frame


def _import_pandas() -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError("pandas", "pandas") from error
    return pd


# ---------------------------------------------------------------- csv
# Comma-separated values (RFC 4180), one line per rule.
#
# Spreadsheets read a cell that begins with ``=``, ``+``, ``-`` or ``@`` as a formula.  Names
# that could be read so, or mistaken for quoted text, are quoted as in the text form.

_RULES_PER_PIECE = 2048


def render_csv(listing: Listing) -> Iterator[str]:
    """Return a line of column names and one line per rule; numbers are exact, NaN is empty."""
    columns = RuleColumns(listing)
    lines = io.StringIO()
    writer = csv.writer(lines)
    writer.writerow(columns.names)
    yield lines.getvalue()
    for first in range(0, len(listing.rules), _RULES_PER_PIECE):
        lines = io.StringIO()
        block = columns.make_block(first, min(first + _RULES_PER_PIECE, len(listing.rules)))
        csv.writer(lines).writerows(zip(*map(_replace_nan, block), strict=True))
        yield lines.getvalue()


def _replace_nan(values: list[Any]) -> list[Any]:
    """Replace NaN by empty text; ``csv`` writes other numbers as ``repr``."""
    return ["" if isinstance(value, float) and math.isnan(value) else value for value in values]


# ---------------------------------------------------------------- notebook
# The first rules of a list in a small HTML table, without scripts.

MAX_NOTEBOOK_RULES = 50
"""Maximum number of rules in a notebook table; the HTML page has all of them."""

_NOTEBOOK_STYLE = (
    ".treekit-rules{border-collapse:collapse}"
    ".treekit-rules th,.treekit-rules td{text-align:left;vertical-align:top;padding:.25em .75em}"
    ".treekit-rules .n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".treekit-rules td span{display:inline-block;margin-right:.75em}"
)


def render_notebook(rules: RuleList) -> str:
    """Return an HTML table of at most `SHOWN` rules, with escaped text and scoped styles."""
    listing = Listing(rules, training_measures(rules))
    say, page = listing.language.say, make_layout(listing)
    figures = page.figures
    texts = [format_figure(figure) for figure in figures]
    heads = [("n", say("page_head_rule")), ("", say("page_head_if")), ("", say("page_head_then"))]
    heads += [("", say("page_head_otherwise"))] * page.weighted
    heads += [("n", figure.heading) for figure in figures]
    rows = []
    for entry in iter_rows(page, 0, MAX_NOTEBOOK_RULES):
        always = say("page_otherwise" if entry.is_otherwise else "page_always")
        cells = [
            ("n", str(entry.rule + 1)),
            ("", _render_conditions(entry) or f"<em>{escape(always)}</em>"),
        ]
        cells += [("", _render_outcomes(entry.outcomes))] + [
            ("", _render_outcomes(entry.otherwise))
        ] * page.weighted
        cells += [("n", text[entry.rule]) for text in texts]
        rows.append("".join(f'<td class="{kind}">{cell}</td>' for kind, cell in cells))
    more = len(page.shown_rules) - len(rows)
    rest = f"<p>{escape(say('page_and_more', count=str(more)))}</p>" if more > 0 else ""
    head = "".join(f'<th class="{kind}">{escape(name)}</th>' for kind, name in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<div><style>{_NOTEBOOK_STYLE}</style><table class="treekit-rules">'
        f"<caption>{escape(make_title(listing))}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}</div>"
    )


def _render_conditions(entry: DocumentRow) -> str:
    return "".join(
        f"<span>{escape(a)}<b>{escape(b)}</b>{escape(c)}</span>" for a, b, c in entry.conditions
    )


def _render_outcomes(outcomes: tuple[OutcomeText, ...]) -> str:
    return "<br>".join(
        f"{escape(one.target)}: {escape(one.text)}" if one.target else str(escape(one.text))
        for one in outcomes
    )
