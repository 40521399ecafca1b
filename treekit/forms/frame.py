"""Rules as dataframes: one line for each rule, and one for each condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from treekit.errors import MissingExtraError
from treekit.forms import Listing
from treekit.forms.columns import Columns
from treekit.rules.rule_list import RuleList

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["conditions_frame", "to_frame"]


def to_frame(listing: Listing) -> pd.DataFrame:
    """A line for each rule, with the columns of the CSV form, typed.

    Raises
    ------
    MissingExtraError
        If pandas is not installed.
    """
    pandas = _pandas()
    columns = Columns(listing)
    block = (
        columns.block(0, len(listing.rules)) if len(listing.rules) else [[]] * len(columns.names)
    )
    series = {k: pandas.Series(values) for k, values in enumerate(block)}
    frame: pd.DataFrame = pandas.DataFrame(series)
    frame.columns = columns.names  # set at last: hostile names may be equal
    return frame


def conditions_frame(rules: RuleList) -> pd.DataFrame:
    """A line for each condition.

    Returns
    -------
    DataFrame
        ``rule`` (from 1), ``column`` (a name, or ``test 1``), ``low`` and ``high`` (``low < x <=
        high``, infinite where there is no bound), ``levels`` (tuples; None for numbers),
        ``known``, ``missing`` (whether such values fit).

    Raises
    ------
    MissingExtraError
        If pandas is not installed.
    """
    pandas = _pandas()
    table, schema = rules.conditions, rules.schema
    names = [column.name for column in schema.columns]
    names += [f"test {number + 1}" for number in range(len(rules.tests))]
    asked = table.column.tolist()
    levels: list[Any] = [None] * len(asked)
    for at in np.flatnonzero(np.append(schema.nominal, [False] * len(rules.tests))[table.column]):
        vocabulary = schema.columns[asked[at]].levels
        levels[at] = tuple(vocabulary[code] for code in table.codes(int(at))[0])
    frame: pd.DataFrame = pandas.DataFrame(
        {
            "rule": np.repeat(np.arange(len(rules)) + 1, np.diff(rules.end, prepend=0)),
            "column": [names[column] for column in asked],
            "low": table.low,
            "high": table.high,
            "levels": pandas.Series(levels, dtype=object),
            "known": table.known,
            "missing": table.missing,
        }
    )
    return frame


def _pandas() -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError("pandas", "pandas") from error
    return pd
