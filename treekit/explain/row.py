"""The row to explain: its cells as given and as encoded, and records for its prediction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.encoding import encode_rows
from treekit.data.features import UNSEEN, encode_levels
from treekit.data.schema import Schema, level_text
from treekit.data.table import Table, make_object_array, make_table, read_table, suggest_names
from treekit.errors import DataError
from treekit.explain.contributions import Contributions, compute_unit_factor
from treekit.explain.decision_path import Passage, SplitTest
from treekit.explain.explanation import Clause, Given, Said, Sums, Votes
from treekit.model.links import convert_sums
from treekit.model.model import predict_labels
from treekit.model.scoring import compute_label_codes
from treekit.model.tree import Split
from treekit.rules.extract import rules

if TYPE_CHECKING:
    from treekit.model.model import Model


# ---------------------------------------------------------------- predictions
# Predictions, votes and contributions with names and labels, from the sums of a row.

Integers = npt.NDArray[np.int64]


def describe_prediction(model: Model, sums: Integers) -> tuple[Said, ...]:
    """Return the prediction for integer sums (values,), for each target."""
    schema = model.schema
    values = convert_sums(model, sums[None])[0].tolist()
    if schema.task == "regression":
        outputs = zip(schema.outputs, values, strict=True)
        return tuple(Said(output.name, value=value) for output, value in outputs)
    codes = compute_label_codes(model, sums[None])[0].tolist()
    blocks = itertools.pairwise(schema.blocks)
    return tuple(
        Said(
            output.name,
            output.classes[code],
            shares=tuple(zip(output.classes, values[a:b], strict=True)),
        )
        for output, code, (a, b) in zip(schema.outputs, codes, blocks, strict=True)
    )


def describe_tree_prediction(model: Model, units: Integers) -> tuple[Said, ...]:
    """Return the prediction of one tree, from integers (values,) of a row of mass 1.

    Empty for models that sum their trees.
    """
    schema = model.schema
    if model.combine == "sum":
        return ()
    if schema.task == "regression":
        values = np.ldexp(units.astype(np.float64), model.exponent).tolist()
        return tuple(Said(o.name, value=v) for o, v in zip(schema.outputs, values, strict=True))
    found = []
    for output, (a, b) in zip(schema.outputs, itertools.pairwise(schema.blocks), strict=True):
        code = int(predict_labels(units[None, a:b], model.label_costs)[0])
        shares = (units[a:b] / model.units_each).tolist()
        named = tuple(zip(output.classes, shares, strict=True))
        found.append(Said(output.name, output.classes[code], shares=named))
    return tuple(found)


def count_votes(model: Model, by_tree: Integers) -> tuple[Votes, ...]:
    """Return the votes of the trees, from integers (trees, values).

    Empty for single trees, and for models that sum their trees.
    """
    schema = model.schema
    if model.n_trees == 1 or model.combine == "sum":
        return ()
    found = []
    blocks = itertools.pairwise(schema.blocks)
    for k, (output, (a, b)) in enumerate(zip(schema.outputs, blocks, strict=True)):
        if schema.task == "regression":
            values = np.ldexp(by_tree[:, k] / model.mass, model.exponent)
            quantiles = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
            found.append(Votes(output.name, quantiles=tuple(quantiles)))
            continue
        codes = predict_labels(by_tree[:, a:b], model.label_costs)
        counts = np.bincount(codes, minlength=b - a).tolist()
        found.append(Votes(output.name, tuple(zip(output.classes, counts, strict=True))))
    return tuple(found)


def describe_contributions(
    model: Model, contributions: Contributions, names: Sequence[str]
) -> tuple[Sums, ...]:
    """Return the contributions to each value, with names and labels."""
    schema = model.schema
    votes = schema.task == "classification" and not model.margins
    divisor = model.unit_total * compute_unit_factor(model) if votes else model.divisor
    labels = [(o.name, label) for o in schema.outputs for label in (o.classes or (None,))]
    found = []
    for k, (target, label) in enumerate(labels):
        columns = [(names[column], own[k]) for column, own in contributions.by_column.items()]
        columns.sort(key=lambda one: -abs(one[1]))
        total = contributions.bias[k] + sum(value for _, value in columns)
        exponent = 0 if votes else model.exponent
        margin = model.margins or model.link != "identity"
        of = (target, label, margin, contributions.bias[k], total, divisor, exponent)
        found.append(Sums(*of, tuple(columns)))
    return tuple(found)


# ---------------------------------------------------------------- clauses
# Conditions of nodes and rules as records with names.


def make_step_clause(passage: Passage, schema: Schema) -> Clause | None:
    """Return the condition that holds on the branch taken.

    None if the row is split among all branches, and for rules, all of whose conditions hold.
    """
    if passage.reason in ("divided", "held"):
        return None
    question = passage.node.tests[max(passage.question_index, 0)]
    branch = passage.child_masses[0][0] - passage.node.children.start
    if passage.reason == "failed":
        return make_clause(question, 1, schema)
    if passage.node.kind == Split.MISSING:
        return _make_missing_clause(question, branch, schema)
    return make_clause(question, branch, schema)


def _make_missing_clause(question: SplitTest, branch: int, schema: Schema) -> Clause:
    name = (schema.names[question.columns[0]],)
    return Clause(name, known=branch == 1, missing=branch == 0)


def make_clause(question: SplitTest, branch: int, schema: Schema) -> Clause:
    """Return the values for which a question sends a row to a branch."""
    names = tuple(schema.names[column] for column in question.columns)
    missing = question.missing_branch == branch
    if not question.weights:
        levels = schema.columns[question.columns[0]].levels
        fits = tuple(
            level for level, to in zip(levels, question.branches, strict=True) if to == branch
        )
        return Clause(names, levels=fits, known=bool(fits), missing=missing)
    low = question.threshold if question.below != branch else -math.inf
    high = question.threshold if question.above != branch else math.inf
    weights = () if question.weights == (1.0,) else question.weights
    return Clause(names, weights, low, high, known=low < high, missing=missing)


def make_rule_clauses(model: Model, tree: int, leaf: int) -> tuple[Clause, ...]:
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
        Clause((one.column,), (), one.low, one.high, one.levels, one.known, one.missing)
        for one in listed[found].conditions
    )


# ---------------------------------------------------------------- row


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


def read_row(model: Model, given: Any) -> ExplainedRow:
    """Read a row of any supported kind.

    Parameters
    ----------
    model : Model
    given : mapping, (features,) array, row of a dataframe, or table of one row
        A mapping from columns to cells may omit columns, which are then missing, and may
        contain targets, which are ignored, but no other names.

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
    absent: set[str] = set()
    if table.named:
        absent = {name for name in schema.names if name not in table.names}
        table = _add_absent_columns(table, absent)
    # Policies are applied below, because refused rows are explained as well.
    codes = encode_rows(table, schema, missing_marks=table.missing)[0].astype(np.float64)
    cells = []
    for place, (column, code) in enumerate(zip(schema.columns, codes.tolist(), strict=True)):
        at = table.find_column(column.name) if table.named else place
        state: Any = "missing" if math.isnan(code) else "known"
        nominal = column.kind == "nominal"
        if nominal and encode_levels(table, table.names[at], column.levels)[0] == UNSEEN:
            state = "unseen"
        if column.name in absent:
            state = "absent"
        text = None if state in ("missing", "absent") else level_text(table.cells[at][0])
        refused = model.missing == "error" if state != "known" else False
        refused |= model.unknown == "error" and state == "unseen"
        cells.append(Given(column.name, text, state, refused=refused))
    return ExplainedRow(table, codes.tolist(), tuple(cells))


def replace_cells(row: ExplainedRow, model: Model, texts: Mapping[int, str]) -> npt.NDArray[Any]:
    """Return (1, features): the row with new texts in some columns, encoded as in a table."""
    cells, untyped = list(row.table.cells), set(row.table.untyped)
    for column, text in texts.items():
        name = model.schema.names[column]
        at = row.table.find_column(name) if row.table.named else column
        cells[at] = make_object_array([text])
        if model.schema.columns[column].kind == "numeric":
            untyped.add(row.table.names[at])
    table = Table(
        row.table.names,
        tuple(cells),
        row.table.levels,
        frozenset(untyped),
        row.table.named,
        row.table.missing,
    )
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


def _add_absent_columns(table: Table, absent: set[str]) -> Table:
    if not absent:
        return table
    names = (*table.names, *sorted(absent))
    cells = (*table.cells, *(np.array([np.nan]) for _ in absent))
    return Table(names, cells, table.levels, table.untyped, True, table.missing)
