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
from treekit.rules.language import ENGLISH, Language, list_languages, load_language
from treekit.rules.wording import quote_label, quote_unsafe

if TYPE_CHECKING:
    import pandas as pd


# ---------------------------------------------------------------- frame


def list_columns(listing: Listing, words: Language) -> Iterator[tuple[str, list[Any]]]:
    """Yield the names and values of the columns of a listing as a table with one line per rule.

    `words` is the language of the names; in English they are as follows.

    The columns are ``rule`` and ``tree`` (counted from 1), ``node`` (from 0, as in the text),
    ``if``, the outcome for each target, the shares of its classes (or the amounts added to
    their margins), ``as_parent``, and the measures, for each target if there are several.
    """
    rules, measures, outputs = listing.rules, listing.measures, listing.rules.schema.outputs
    rule, tree, node, condition = _list_first_names(words)
    yield rule, list(range(1, len(rules) + 1))
    yield tree, (rules.tree + 1).tolist()
    yield node, rules.leaf.tolist()
    yield condition, format_rules(listing, 0, len(rules)) if len(rules) else []
    votes = rules.schema.task == "classification" and not rules.margins
    numbers = iter((compute_shares(rules) if votes else decode_numbers(rules)).T.tolist())
    labels = predict_rule_labels(rules) if votes else []

    def name(key: str, k: int, **fields: str) -> str:
        said = words.say(key, **fields)
        if len(outputs) == 1:
            return said
        return words.say("page_head_of", measure=said, target=quote_label(outputs[k].name))

    for k, output in enumerate(outputs):
        if votes:
            texts = list(map(quote_unsafe, output.classes))
            yield name("page_head_then", k), [texts[code] for code in labels[k].tolist()]
        elif not rules.margins:
            yield name("page_head_then", k), next(numbers)
        part = "table_head_share" if votes else "table_head_margin"
        for label in output.classes:
            yield name(part, k, label=quote_label(label)), next(numbers)
    yield words.say("table_head_as_parent"), rules.as_parent.tolist()
    if measures.rows is not None:
        yield words.say("page_head_rows"), measures.rows.tolist()
    yield words.say("page_head_support"), measures.weight.tolist()
    yield words.say("page_head_coverage"), measures.coverage.tolist()
    for key, k, values in list_target_measures(listing):
        yield name(f"page_head_{key}", k), values.tolist()


def _list_first_names(words: Language) -> tuple[str, ...]:
    """Return the names of the first columns of every table of rules."""
    keys = "page_head_rule", "page_head_tree", "table_head_node", "page_head_if"
    return tuple(map(words.say, keys))


def rules_to_frame(listing: Listing) -> pd.DataFrame:
    """Return a dataframe with one line per rule and the typed columns of the CSV form in English.

    Raises
    ------
    MissingExtraError
        If pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError("pandas", "pandas") from error
    names, columns = zip(*list_columns(listing, load_language(ENGLISH)), strict=True)
    frame = pd.DataFrame(dict(enumerate(map(pd.Series, columns))))
    frame.columns = names  # set last: column names may repeat
    return frame


# ---------------------------------------------------------------- csv
# Comma-separated values (RFC 4180), one line per rule.
#
# Spreadsheets read a cell that begins with ``=``, ``+``, ``-`` or ``@`` as a formula.  Names
# that could be read so, or mistaken for quoted text, are quoted as in the text form.

_RULES_PER_PIECE = 2048
_BYTE_ORDER_MARK = "\ufeff"


def list_table_heads() -> list[tuple[str, ...]]:
    """Return the first column names of tables of rules in each language."""
    return [_list_first_names(load_language(code)) for code in list_languages()]


def render_csv(listing: Listing) -> Iterator[str]:
    """Return a line of column names and one line per rule; numbers are exact, NaN is empty.

    A table that has other characters than those of ASCII begins with a byte order mark, without
    which Excel reads it in an older encoding.
    """
    names, columns = zip(*list_columns(listing, listing.language), strict=True)
    if not all(map(str.isascii, (*names, *_list_texts(listing)))):
        yield _BYTE_ORDER_MARK
    rows = itertools.chain([names], zip(*map(_replace_nan, columns), strict=True))
    while piece := list(itertools.islice(rows, _RULES_PER_PIECE)):
        lines = io.StringIO()
        csv.writer(lines).writerows(piece)
        yield lines.getvalue()


def _list_texts(listing: Listing) -> Iterator[str]:
    """Yield the names and the categories of the columns that the rules may test."""
    for column in listing.rules.schema.columns:
        yield column.name
        yield from column.levels


def _replace_nan(values: list[Any]) -> list[Any]:
    """Replace NaN by empty text; ``csv`` writes other numbers as ``repr``."""
    return ["" if isinstance(value, float) and math.isnan(value) else value for value in values]
