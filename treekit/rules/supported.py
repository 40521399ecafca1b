"""Rules with the support of a table's rows in the place of those of training."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.table import Table, read_table
from treekit.rules.as_model import said_values
from treekit.rules.fired import fired
from treekit.rules.rulelist import RuleList
from treekit.rules.tables import known_rows

__all__ = ["supported", "unsupported"]


def unsupported(rules: RuleList) -> RuleList:
    """The rules without a row behind them: nobody has measured these yet."""
    return replace(rules, support=np.zeros(len(rules)), value=None)


def supported(rules: RuleList, rows: Any) -> RuleList:
    """The rules with what the rows say that each of them answers.

    Parameters
    ----------
    rules : RuleList
    rows : table
        Anything `treekit.data.table.read_table` takes; without the targets, nothing is measured.

    Raises
    ------
    DataError
        If the table lacks a column of the rules.
    """
    schema = rules.schema
    table = rows if isinstance(rows, Table) else read_table(rows, missing=schema.missing_marks)
    if any(output.name not in table.names for output in schema.outputs):
        return unsupported(rules)
    known = known_rows(schema, table)
    support = np.zeros(len(rules))
    said = np.zeros((len(rules), schema.n_values))
    weight = np.zeros((len(rules), len(schema.outputs)))
    numbers = schema.task == "regression"
    for piece in fired(rules, known.matrix):
        mass = piece.mass / rules.mass
        np.add.at(support, piece.rule, mass)
        for k, (first, last) in enumerate(itertools.pairwise(schema.blocks)):
            target = known.targets[piece.row, k]
            stated = ~np.isnan(target) if numbers else (target >= 0) & (target < last - first)
            rule, what = piece.rule[stated], target[stated]
            np.add.at(weight[:, k], rule, mass[stated])
            column = first if numbers else first + what.astype(np.int64)
            np.add.at(said, (rule, column), mass[stated] * (what if numbers else 1.0))
    reached: npt.NDArray[np.bool_] = np.all(weight > 0, axis=1)
    if numbers:
        said = said / np.where(reached[:, None], weight, 1.0)
    value = np.where(reached[:, None], said, said_values(rules))
    if rules.margins:  # what is added is no figure of rows
        value = said_values(rules)
    return replace(rules, support=np.where(reached, support, 0.0), value=value)
