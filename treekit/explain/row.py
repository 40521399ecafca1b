"""The row to explain: its cells as given and as encoded, and records for its prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.cells import make_object_array
from treekit.data.encoding import Absent, encode_rows, fill_absent_columns
from treekit.data.features import UNSEEN, encode_levels
from treekit.data.schema import Column, Schema, level_text
from treekit.data.table import (
    Table,
    list_similar_names,
    make_table,
    read_table,
    suggest_names,
)
from treekit.errors import DataError
from treekit.explain.contributions import Contributions, compute_unit_factor
from treekit.explain.decision_path import Passage
from treekit.explain.explanation import Given, Said, Sums, Votes
from treekit.model.fixed_point import scale_units
from treekit.model.links import convert_sums
from treekit.model.scoring import compute_label_codes
from treekit.model.split_tests import BranchCondition, describe_branch
from treekit.model.tree import Split
from treekit.rules.extract import rules

if TYPE_CHECKING:
    from treekit.model.model import Model


# ---------------------------------------------------------------- predictions
# Predictions, votes and contributions with names and labels, from the sums of a row.

Integers = npt.NDArray[np.int64]


def describe_prediction(model: Model, sums: Integers) -> tuple[Said, ...]:
    """Return the prediction for integer sums (values,), for each target."""
    return _name_outputs(model, sums, convert_sums(model, sums[None])[0].tolist())


def describe_tree_prediction(model: Model, units: Integers) -> tuple[Said, ...]:
    """Return the prediction of one tree, from integers (values,) of a row of mass 1.

    Empty for models that sum their trees.
    """
    if model.combine == "sum":
        return ()
    if model.schema.task == "regression":
        return _name_outputs(model, units, scale_units(units, model.exponent).tolist())
    return _name_outputs(model, units, (units / model.units_each).tolist())


def _name_outputs(model: Model, units: Integers, values: list[float]) -> tuple[Said, ...]:
    schema = model.schema
    if schema.task == "regression":
        outputs = zip(schema.outputs, values, strict=True)
        return tuple(Said(output.name, value=value) for output, value in outputs)
    codes = compute_label_codes(model, units[None])[0].tolist()
    shares = iter(values)
    return tuple(
        Said(o.name, o.classes[code], shares=tuple((label, next(shares)) for label in o.classes))
        for o, code in zip(schema.outputs, codes, strict=True)
    )


def count_votes(model: Model, by_tree: Integers) -> tuple[Votes, ...]:
    """Count the votes of the trees, whose leaf values are the integers `by_tree` (trees, values).

    The result is empty for single trees, and for models that sum their trees.
    """
    outputs = model.schema.outputs
    if model.n_trees == 1 or model.combine == "sum":
        return ()
    if model.schema.task == "regression":
        values = scale_units(by_tree, model.exponent)
        quantiles = np.quantile(values, [0, 0.25, 0.5, 0.75, 1], axis=0).T.tolist()
        pairs = zip(outputs, quantiles, strict=True)
        return tuple(Votes(output.name, quantiles=tuple(own)) for output, own in pairs)
    found = []
    for output, codes in zip(outputs, compute_label_codes(model, by_tree).T, strict=True):
        counts = np.bincount(codes, minlength=len(output.classes)).tolist()
        found.append(Votes(output.name, tuple(zip(output.classes, counts, strict=True))))
    return tuple(found)


def describe_contributions(model: Model, contributions: Contributions) -> tuple[Sums, ...]:
    """Return the contributions to each value, with names and labels."""
    schema = model.schema
    votes = schema.task == "classification" and not model.margins
    divisor = model.unit_total * compute_unit_factor(model) if votes else model.divisor
    labels = [(o.name, label) for o in schema.outputs for label in (o.classes or (None,))]
    found = []
    for k, (target, label) in enumerate(labels):
        columns = [
            (schema.names[column], own[k]) for column, own in contributions.by_column.items()
        ]
        columns.sort(key=lambda one: -abs(one[1]))
        total = contributions.bias[k] + sum(value for _, value in columns)
        exponent = 0 if votes else model.exponents[k]
        margin = model.margins or model.link != "identity"
        of = (target, label, margin, contributions.bias[k], total, divisor, exponent)
        found.append(Sums(*of, tuple(columns)))
    return tuple(found)


# ---------------------------------------------------------------- clauses
# Conditions of nodes and rules as records with names.


def make_step_clause(passage: Passage, schema: Schema) -> BranchCondition | None:
    """Return the condition that holds on the branch taken.

    None if the row is split among all branches, and for rules, all of whose conditions hold.
    """
    if passage.reason in ("divided", "held"):
        return None
    test = passage.node.tests[max(passage.question_index, 0)]
    return describe_branch(test, passage.child_masses[0][0] - passage.node.children.start, schema)


def make_rule_clauses(model: Model, tree: int, leaf: int) -> tuple[BranchCondition, ...]:
    """Return the conditions of a leaf's rule, merged to one per column.

    Empty for rule lists, fractional instances, surrogates and oblique splits.
    """
    own = model.trees[tree]
    asks_more = len(own.surrogate_feature) > 0 or bool((own.kind == Split.OBLIQUE).any())
    if asks_more or model.missing == "fractional":
        return ()
    alone = replace(model, trees=(own,), units=model.tree_units(tree))
    listed = rules(alone)
    found = int(np.flatnonzero(listed.leaf == leaf)[0])
    return tuple(
        BranchCondition((one.column,), (), one.low, one.high, one.levels, one.known, one.missing)
        for one in listed[found].conditions
    )


# ---------------------------------------------------------------- row


_MAX_COMPARED = 1000
"""Most categories that are compared with an unseen one."""


class ExplainedRow(NamedTuple):
    """A row to explain.

    Attributes
    ----------
    table : Table
        One row, with all columns of the model.
    codes : (features,) list of float
        Encoded; see `treekit.data.encoding`.
    cells : tuple of Given
    """

    table: Table
    codes: list[float]
    cells: tuple[Given, ...]


def read_row(model: Model, given: Any, absent: Absent = "error") -> ExplainedRow:
    """Read a row of any supported kind.

    Parameters
    ----------
    model : Model
    given : mapping, (features,) array, row of a dataframe, or table of one row
        A mapping from columns to cells may contain targets, which are ignored, but no other
        names.
    absent : {"error", "missing"}
        Treatment of columns that are not given; see `treekit.data.encoding.fill_absent_columns`.

    Raises
    ------
    DataError
        For unknown columns, not exactly one row, and cells that cannot be read.
    """
    schema = model.schema
    if hasattr(given, "to_dict") and getattr(given, "ndim", 2) == 1:  # a row of a dataframe
        given = {name: cell for name, cell in given.to_dict().items() if name in schema.names}
    if isinstance(given, Mapping) and not any(map(_is_column, given.values())):
        table = _make_row_table(model, given)
    else:
        if isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype.names is None:
            given = given[None]
        table = read_table(given, missing=schema.missing_marks)
    if table.n_rows != 1:
        raise DataError(f"expected one row to explain, got {table.n_rows}")
    filled: dict[str, float] = {}
    if table.named:
        filled = fill_absent_columns(schema, table.names, absent, model.tested, "the row")
        columns = {column.name: column for column in schema.columns}
        cells = [_make_absent_cell(columns[name], value) for name, value in filled.items()]
        table = replace(table, names=(*table.names, *filled), cells=(*table.cells, *cells))
    # Policies are applied below, because refused rows are explained as well.
    codes = encode_rows(table, schema, missing_marks=table.missing)[0].astype(np.float64)
    given_cells = []
    for place, (column, code) in enumerate(zip(schema.columns, codes.tolist(), strict=True)):
        at = table.find_column(column.name) if table.named else place
        given_cells.append(_describe_cell(model, table, at, column, code, column.name in filled))
    return ExplainedRow(table, codes.tolist(), tuple(given_cells))


def _make_absent_cell(column: Column, value: float) -> npt.NDArray[Any]:
    """Return the cell (1,) of a column that the row does not have, encoded as `value`."""
    if value == 0.0 and column.levels:
        return make_object_array([column.levels[0]])
    return np.array([value])


def _describe_cell(
    model: Model, table: Table, at: int, column: Column, code: float, is_absent: bool
) -> Given:
    """Describe the cell of a row, at position `at` of its table."""
    is_missing = math.isnan(code)
    if is_absent:
        return Given(column.name, None, "absent", refused=is_missing and model.missing == "error")
    state: Any = "missing" if is_missing else "known"
    if is_missing and column.kind == "nominal":
        codes = encode_levels(table, table.names[at], column.levels, rounds=column.rounds)
        state = "unseen" if codes[0] == UNSEEN else state
    text = None if state == "missing" else level_text(table.cells[at][0])
    refused = model.missing == "error" and is_missing
    similar = []
    if state == "unseen" and text is not None:
        refused |= model.unknown == "error"
        similar = list_similar_names(text, column.levels[:_MAX_COMPARED])
    return Given(column.name, text, state, refused=refused, similar=next(iter(similar), None))


def replace_cells(row: ExplainedRow, model: Model, texts: Mapping[int, str]) -> npt.NDArray[Any]:
    """Return (1, features): the row with new texts in some columns, encoded as in a table."""
    cells, untyped = list(row.table.cells), set(row.table.untyped)
    for column, text in texts.items():
        name = model.schema.names[column]
        at = row.table.find_column(name) if row.table.named else column
        cells[at] = make_object_array([text])
        if model.schema.columns[column].kind == "numeric":
            untyped.add(row.table.names[at])
    table = replace(row.table, cells=tuple(cells), untyped=frozenset(untyped))
    return encode_rows(table, model.schema, missing_marks=table.missing)


def _is_column(value: Any) -> bool:
    return not isinstance(value, str) and hasattr(value, "__len__")


def _make_row_table(model: Model, given: Mapping[Any, Any]) -> Table:
    schema = model.schema
    known = {*schema.names, *(output.name for output in schema.outputs)}
    for name in given:
        if name not in known:
            hint = suggest_names(str(name), schema.names)
            raise DataError(f"the model has no column {str(name)!r}; {hint}")
    names = [name for name in given if name in schema.names]
    if not names:
        first = schema.names[0]
        raise DataError(f"the row has no column of the model, such as {first!r}")
    untyped = all(isinstance(given[name], str) for name in names)
    columns = [make_object_array([given[name]]) for name in names]
    table = make_table(names, columns, untyped=untyped)
    return read_table(table, missing=schema.missing_marks)
