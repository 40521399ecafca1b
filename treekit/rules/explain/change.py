"""The nearest changes of a row as texts that somebody can give, each of them predicted again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.table import Table
from treekit.errors import ModelError
from treekit.model.scoring import sums as scored
from treekit.rules.explain.answers import said
from treekit.rules.explain.nearest import Cell, Problem, nearest_pair, nearest_single
from treekit.rules.explain.questions import TreeNodes, thresholds_of
from treekit.rules.explain.reach import Reach, Setting, is_known, reach
from treekit.rules.explain.records import Change, Changed, Changes
from treekit.rules.explain.row import Row, with_cells
from treekit.rules.explain.scales import round_numeral, scales
from treekit.rules.explain.wish import wish_of

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = ["change_rows"]

_STEPS = 2_000_000
"""Nodes that the search may look at in all trees: some seconds."""

Nodes = Sequence[tuple[TreeNodes, Any]]


def change_rows(
    model: Model,
    row: Row,
    nodes: Nodes,
    sums: npt.NDArray[np.int64],
    free: Sequence[int],
    most: int,
    wished: tuple[str | None, str | None],
    table: Table | None,
    budget: int,
) -> Changes | None:
    """The nearest changes that a wish asks for; None without a wish for a number.

    Parameters
    ----------
    model : Model
    row : Row
    nodes : sequence of (TreeNodes, (nodes, 2) int64 or None)
        Of each tree, and what parts of a row its nodes get.
    sums : (values,) int64
        Of the row.
    free : sequence of int
        Columns that may change.
    most : int
        1 or 2 columns at once.
    wished : (str or None, str or None)
        The wish and its target; see `treekit.rules.explain.wish.wish_of`.
    table : Table, optional
    budget : int
    """
    wish = wish_of(model, *wished, sums)
    if wish is None:
        return None
    target = model.schema.outputs[wish.target].name
    if bool(wish.met(model, sums[None])[0]):
        return Changes(target, wish.text, True, most)
    schema = model.schema
    scale = scales(schema, row.codes, thresholds_of(model.trees, schema), table)
    setting = Setting(schema, row.codes, frozenset(free), 1, scale)
    compared = [x if is_known(setting, c) else math.nan for c, x in enumerate(row.codes)]
    problem = Problem(model, wish, compared, scale, free)
    found = _reached(model, nodes, setting)
    if found is None:
        return Changes(target, wish.text, False, most, complete=False)
    single = nearest_single(problem, found)
    told = Changes(
        target, wish.text, False, most, tuple(_change(model, row, c, problem) for c in single)
    )
    if most == 1:
        return told
    bound = single[0].size if single else math.inf
    found = _reached(model, nodes, setting._replace(changes=2, bound=bound))
    if found is None:
        return replace(told, complete=False)
    pair = nearest_pair(problem, found, bound, budget)
    change = None if pair.cell is None else _change(model, row, pair.cell, problem)
    return replace(told, pair=change, apart=pair.apart, complete=pair.complete)


def _reached(model: Model, nodes: Nodes, setting: Setting) -> list[Reach] | None:
    """What each tree reaches; None if that is too much."""
    found, left = [], _STEPS
    for own, bounds in nodes:
        found.append(reach(own, setting, model.mass, bounds, left))
        left -= found[-1].steps
        if not found[-1].complete:
            return None
    return found


def _change(model: Model, row: Row, cell: Cell, problem: Problem) -> Change:
    scale = problem.scale
    texts = {}
    for column, interval, code in zip(cell.columns, cell.intervals, cell.codes, strict=True):
        if code >= 0:
            texts[column] = model.schema.columns[column].levels[code]
        else:
            low, high = interval
            at = float(scale[column].nearest(np.array([low]), np.array([high]))[0])
            texts[column] = round_numeral(scale[column], low, high, at)
    sums = scored(model, with_cells(row, model, texts))
    if not bool(problem.wish.met(model, sums)[0]):
        raise ModelError(
            f"a change to {texts!r} does not alter the answer as it should: a fault of treekit, "
            "please report it with the model and the row"
        )
    changed = tuple(
        Changed(model.schema.names[column], row.cells[column].text, text)
        for column, text in texts.items()
    )
    return Change(changed, cell.size, said(model, sums[0]))
