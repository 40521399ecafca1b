"""Support and precision of rules, on their training rows and on tables.

The measures are those of association rules (Agrawal, Imielinski and Swami 1993;
lift: Brin et al. 1997), with the rule's prediction as the consequent.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Output, Schema, level_text
from treekit.data.table import Table, read_table
from treekit.errors import DataError
from treekit.model.model import predict_labels
from treekit.rules.evaluate import matching_rules
from treekit.rules.rule_list import RuleList, compute_values

# ---------------------------------------------------------------- measure

Numbers = npt.NDArray[np.float64]


class Measures(NamedTuple):
    """Measures of the rules of a list on a set of rows.

    Attributes
    ----------
    source : {"training", "table"}
        Training rows, as the leaves of the model record them, or the rows of a table.
    rows : (rules,) int64, or None
        Number of rows that a rule predicts; None where only their weight is recorded.
    weight : (rules,) float64
        Weight of these rows (mass, for fractional instances).
    coverage : (rules,) float64
        That weight as a share of all weight in the rule's tree; for a table, of all rows that
        the policies accept, predicted or not.
    confidence : (rules, targets) float64
        Classification: share of the weight whose class is the rule's label.
    lift : (rules, targets) float64
        Confidence divided by the label's share of all weight.
    mean, spread : (rules, targets) float64
        Regression: mean and population standard deviation of the target.  A model does not
        record the spread of its training rows.

    Measures that do not apply or are unknown are NaN.
    """

    source: Literal["training", "table"]
    rows: npt.NDArray[np.int64] | None
    weight: Numbers
    coverage: Numbers
    confidence: Numbers
    lift: Numbers
    mean: Numbers
    spread: Numbers

    def of(self, rules: npt.NDArray[np.int64]) -> Measures:
        """Return the measures of some of the rules."""
        return Measures(
            self.source,
            None if self.rows is None else self.rows[rules],
            *(part[rules] for part in self[2:]),
        )


def training_measures(rules: RuleList) -> Measures:
    """Return the measures of the training rows that the model records."""
    weight = rules.support
    total: Numbers = np.bincount(rules.tree, weight, rules.n_trees).astype(np.float64)[rules.tree]
    empty = np.full((len(rules), len(rules.schema.outputs)), np.nan)
    confidence, lift, mean = empty, empty, empty
    if rules.schema.task == "regression":
        if rules.value is not None and rules.combine == "mean":
            mean = np.where(weight[:, None] > 0, rules.value, np.nan)
    elif not rules.margins:
        value = rules.value
        if value is None:  # parsed from text, which has only shares and support
            value = rules.units / rules.units_each * weight[:, None]
        totals = np.zeros((rules.n_trees, value.shape[1]))
        np.add.at(totals, rules.tree, value)
        sums = np.where(weight[:, None] > 0, _sum_targets(rules, value), 0.0)
        confidence, lift = _compute_confidence(rules, value, sums, totals[rules.tree])
    return Measures(
        "training", None, weight, _divide_or_nan(weight, total), confidence, lift, mean, empty
    )


def table_measures(
    rules: RuleList, matrix: Any, targets: Any, weight: npt.ArrayLike | None = None
) -> Measures:
    """Measure each rule on the rows of a table that it predicts.

    Parameters
    ----------
    rules : RuleList
        Disjoint, ordered or with fractional instances; of one or more trees.
    matrix : (rows, features) float64
        As for `RuleList.sums`.  Rows that the list refuses are ignored.
    targets : (rows,) or (rows, targets) array
        Classification: class codes; -1 for an unknown class, and any other number that is
        not a code for a class that the list lacks.  Regression: numbers, NaN for unknown.
        Rows whose target is unknown count only in `rows`, `weight` and `coverage`.
    weight : (rows,) float64, optional
        Default 1 each.

    Raises
    ------
    DataError
        If the shapes do not match, or a weight is negative or not finite.
    """
    matrix, targets, weights = _check_rows(rules, matrix, targets, weight)
    tally = _tally_rows(rules, matrix, targets, weights)
    usable = ~rules.refused(matrix)
    coverage = _divide_or_nan(tally.weight, np.full(len(rules), weights[usable].sum()))
    confidence, lift, mean, spread = np.full((4, *tally.known.shape), np.nan)
    if rules.schema.task == "regression":
        mean = np.where(tally.known > 0, tally.value, np.nan)
        spread = np.sqrt(_divide_or_nan(tally.squares, tally.known))
    elif not rules.margins:
        totals = np.zeros((1, rules.schema.n_values))
        for k, first in enumerate(rules.schema.blocks[:-1]):
            n_classes = len(rules.schema.outputs[k].classes)
            counted = usable & (targets[:, k] >= 0) & (targets[:, k] < n_classes)
            np.add.at(totals[0], first + targets[counted, k].astype(np.int64), weights[counted])
        known = weights @ (usable[:, None] & (targets != -1))
        every = np.broadcast_to(totals, tally.value.shape)
        confidence, lift = _compute_confidence(rules, tally.value, tally.known, every, known)
    return Measures("table", tally.rows, tally.weight, coverage, confidence, lift, mean, spread)


def _check_rows(
    rules: RuleList, matrix: Any, targets: Any, weight: npt.ArrayLike | None
) -> tuple[Numbers, Numbers, Numbers]:
    """Return rows, targets (rows, targets) and weights as arrays of doubles."""
    rows = np.array(matrix, dtype=np.float64, ndmin=2)
    # Codes are stored as doubles, which is exact: they are small.
    own = np.asarray(targets, dtype=np.float64)
    own = own[:, None] if own.ndim == 1 else own
    weights = np.ones(len(rows)) if weight is None else np.asarray(weight, dtype=np.float64)
    n_targets = len(rules.schema.outputs)
    if own.shape != (len(rows), n_targets) or weights.shape != (len(rows),):
        raise DataError(
            f"got {len(rows)} rows with targets of shape {np.shape(targets)} and weights of "
            f"shape {weights.shape}; the rules need {n_targets} targets and one weight for each row"
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise DataError("a weight is negative or not finite; weights must be numbers >= 0")
    return rows, own, weights


class _Tally(NamedTuple):
    """Counts and sums over the rows that each rule predicts.

    Attributes
    ----------
    rows : (rules,) int64
        Number of rows.
    weight : (rules,) float64
    known : (rules, targets) float64
        Weight of the rows whose target is known.
    value : (rules, values) float64
        Weight of each class, or mean of each target.
    squares : (rules, targets) float64
        Regression: weighted sum of squares around the mean.
    """

    rows: npt.NDArray[np.int64]
    weight: Numbers
    known: Numbers
    value: Numbers
    squares: Numbers


def _tally_rows(rules: RuleList, matrix: Numbers, targets: Numbers, weight: Numbers) -> _Tally:
    n, n_targets = len(rules), len(rules.schema.outputs)
    tally = _Tally(
        np.zeros(n, np.int64),
        np.zeros(n),
        np.zeros((n, n_targets)),
        np.zeros((n, rules.schema.n_values)),
        np.zeros((n, n_targets)),
    )
    for piece in matching_rules(rules, matrix):
        rule, mass = piece.rule, weight[piece.row] * piece.mass / rules.mass
        tally.rows[:] += np.bincount(rule, minlength=n)
        tally.weight[:] += np.bincount(rule, mass, n)
        for k, (first, last) in enumerate(itertools.pairwise(rules.schema.blocks)):
            target = targets[piece.row, k]
            if rules.schema.task == "regression":
                known = np.isfinite(target)
                _merge_means(tally, k, rule[known], target[known], mass[known])
                continue
            tally.known[:, k] += np.bincount(rule, np.where(target != -1, mass, 0.0), n)
            is_class = (target >= 0) & (target < last - first)
            cells = rule[is_class] * (last - first) + target[is_class].astype(np.int64)
            sums = np.bincount(cells, mass[is_class], n * (last - first))
            tally.value[:, first:last] += sums.reshape(n, -1)
    return tally


def _merge_means(
    tally: _Tally, k: int, rule: npt.NDArray[np.int64], number: Numbers, weight: Numbers
) -> None:
    """Add numbers of target k to the means and sums of squares of the rules.

    Sums of squares are of differences from the mean, and blocks are merged as by Chan, Golub
    and LeVeque (1983), which avoids cancellation.
    """
    n = len(tally.rows)
    total = np.bincount(rule, weight, n).astype(np.float64)
    mean = _divide_or_nan(np.bincount(rule, weight * number, n).astype(np.float64), total)
    squares = np.bincount(rule, weight * (number - mean[rule]) ** 2, n)
    mean = np.where(total > 0, mean, 0.0)
    before, away = tally.known[:, k], mean - tally.value[:, k]
    both = before + total
    moved = np.divide(total, both, out=np.zeros(n), where=both > 0)
    tally.squares[:, k] += squares + away**2 * before * moved
    tally.value[:, k] += away * moved
    tally.known[:, k] = both


def compute_rule_labels(rules: RuleList) -> npt.NDArray[np.int64]:
    """Return (rules, targets) int64: the class code that each rule predicts."""
    blocks = itertools.pairwise(rules.schema.blocks)
    return np.stack([predict_labels(rules.units[:, a:b], rules.costs) for a, b in blocks], axis=1)


def _compute_confidence(
    rules: RuleList,
    value: Numbers,
    known: Numbers,
    totals: Numbers,
    total: Numbers | None = None,
) -> tuple[Numbers, Numbers]:
    """Return confidence and lift of each rule's label for each target.

    Parameters
    ----------
    value : (rules, values) float64
        Weight of each class among the rows of a rule.
    known : (rules, targets) float64
        Weight of the rows of a rule whose target is known.
    totals : (rules, values) float64
        Weight of each class among all rows.
    total : (targets,) float64, optional
        Weight of all rows whose target is known; by default the sum of `totals` over the
        classes of each target.
    """
    all_rows = np.broadcast_to(_sum_targets(rules, totals) if total is None else total, known.shape)
    column = compute_rule_labels(rules) + rules.schema.blocks[:-1]
    confidence = _divide_or_nan(np.take_along_axis(value, column, 1), known)
    prior = _divide_or_nan(np.take_along_axis(totals, column, 1), all_rows)
    return confidence, _divide_or_nan(confidence, prior)


def _sum_targets(rules: RuleList, value: Numbers) -> Numbers:
    """Return (rules, targets) float64: sums of the values of each target."""
    blocks = itertools.pairwise(rules.schema.blocks)
    return np.stack([value[:, first:last].sum(axis=1) for first, last in blocks], axis=1)


def _divide_or_nan(some: Numbers, whole: Numbers) -> Numbers:
    """Return quotients; NaN where the divisor is not positive."""
    quotient = np.full(some.shape, np.nan)
    with np.errstate(over="ignore"):  # weights may be as small as 1e-308
        np.divide(some, whole, out=quotient, where=whole > 0)
    return quotient


# ---------------------------------------------------------------- tables

Matrix = npt.NDArray[np.float64]


class LabelledRows(NamedTuple):
    """The rows of a table with their targets.

    Attributes
    ----------
    matrix : (rows, features) float64
        As for `RuleList.sums`.  A category that the schema lacks has a code beyond the
        vocabulary, so that `RuleList.refused` detects it.
    targets : (rows, targets) float64
        As for `table_measures`.
    """

    matrix: Matrix
    targets: Matrix


def measured(
    rules: RuleList, table: Any, targets: Sequence[str] | None = None, weight: str | None = None
) -> Measures:
    """Measure each rule on a table; see `treekit.rules.measure.table_measures`.

    Parameters
    ----------
    rules : RuleList
    table : table
        Anything `treekit.data.table.read_table` accepts; columns are found by name.
    targets : sequence of str, optional
        Target columns, in the order of the schema; default the target names of the schema.
    weight : str, optional
        Column of row weights; default 1 each.

    Raises
    ------
    DataError
        If a column is absent, or a cell cannot be parsed.
    """
    read = as_table(table, rules.schema)
    known = read_labelled_rows(rules.schema, read, targets)
    weights = None if weight is None else _read_numbers(read, weight, "weight column")
    return table_measures(rules, known.matrix, known.targets, weights)


def read_labelled_rows(
    schema: Schema, table: Any, targets: Sequence[str] | None = None
) -> LabelledRows:
    """Return the rows of a table and their targets, by the columns of a schema.

    No row is refused here; `RuleList.refused` finds the rows that a list does not predict.
    """
    read = as_table(table, schema)
    names = [output.name for output in schema.outputs] if targets is None else list(targets)
    if len(names) != len(schema.outputs):
        raise DataError(
            f"got {len(names)} target columns, but the rules have {len(schema.outputs)} targets: "
            f"{', '.join(repr(o.name) for o in schema.outputs[:8])}"
        )
    for name in names:
        read.find_column(name, "target column")
    columns = [
        encode_target(read, name, output)
        for name, output in zip(names, schema.outputs, strict=True)
    ]
    return LabelledRows(encode_table(schema, read), np.stack(columns, axis=1))


def encode_table(schema: Schema, table: Any) -> Matrix:
    """Return (rows, features) float64; see `LabelledRows.matrix`."""
    from treekit.data.encoding import encode_rows
    from treekit.data.features import UNSEEN, encode_levels

    read = as_table(table, schema)
    matrix = np.array(encode_rows(read, schema, missing_marks=read.missing), dtype=np.float64)
    for feature, column in enumerate(schema.columns):
        if column.kind == "nominal":
            name = column.name if read.named else read.names[feature]
            unseen = encode_levels(read, name, column.levels, rounds=column.rounds) == UNSEEN
            matrix[unseen, feature] = len(column.levels)
    return matrix


def as_table(table: Any, schema: Schema) -> Table:
    """Return a table; cells that the schema takes for missing are missing."""
    return table if isinstance(table, Table) else read_table(table, missing=schema.missing_marks)


def encode_target(table: Table, name: str, output: Output) -> npt.NDArray[np.float64]:
    """Return (rows,) float64: codes of labels, or numbers."""
    if not output.classes:
        return _read_numbers(table, name, "target column")
    from treekit.data.features import encode_levels

    # Compared as texts: a file has no types.  Labels that the schema lacks get codes below -1.
    texts = [level_text(label) or "" for label in output.classes]
    return encode_levels(table, name, texts).astype(np.float64)


def _read_numbers(table: Table, name: str, role: str) -> npt.NDArray[np.float64]:
    from treekit.data.features import convert_to_numbers

    table.find_column(name, role)
    return np.asarray(convert_to_numbers(table, name), dtype=np.float64)


# ---------------------------------------------------------------- support measured on a table


def drop_support(rules: RuleList) -> RuleList:
    """Return a copy of the rules with support 0 and without values: not measured on any rows."""
    return replace(rules, support=np.zeros(len(rules)), value=None)


def measure_support(rules: RuleList, rows: Any) -> RuleList:
    """Return the rules with support and values measured on the rows of a table.

    Parameters
    ----------
    rules : RuleList
    rows : table
        Anything `treekit.data.table.read_table` accepts; nothing is measured without targets.

    Raises
    ------
    DataError
        If the table lacks a column of the rules.
    """
    schema = rules.schema
    table = as_table(rows, schema)
    if any(output.name not in table.names for output in schema.outputs):
        return drop_support(rules)
    known = read_labelled_rows(schema, table)
    tally = _tally_rows(rules, *known, np.ones(len(known.matrix)))
    classes = schema.task == "classification"
    weight = _sum_targets(rules, tally.value) if classes else tally.known
    reached: npt.NDArray[np.bool_] = np.all(weight > 0, axis=1)
    # Margins are model parameters, and cannot be measured on rows.
    known_value = reached[:, None] & (not rules.margins)
    value = np.where(known_value, tally.value, compute_values(rules))
    return replace(rules, support=np.where(reached, tally.weight, 0.0), value=value)
