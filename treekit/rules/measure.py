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
from treekit.rules.evaluate import RuleMatches, matching_rules
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
        known = rules.value is not None and rules.combine == "mean"
        if known and rules.value is not None:
            mean = np.where(weight[:, None] > 0, rules.value, np.nan)
    elif not rules.margins:
        confidence, lift = _compute_confidence(rules)
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
    given = _WeightedRows(rules, matrix, targets, weight)
    tally = _NumberTally(rules) if rules.schema.task == "regression" else _LabelTally(rules, given)
    rows = np.zeros(len(rules), dtype=np.int64)
    mass = np.zeros(len(rules))
    for piece in matching_rules(rules, given.matrix):
        mine = given.weight[piece.row] * piece.mass / rules.mass
        _add_to_rules(rows, piece.rule, np.ones(len(mine)))
        _add_to_rules(mass, piece.rule, mine)
        tally.add_block(piece, given.targets[piece.row], mine)
    total = np.full(len(rules), given.weight[~rules.refused(given.matrix)].sum())
    return Measures("table", rows, mass, _divide_or_nan(mass, total), *tally.compute_measures())


class _WeightedRows:
    """Validated rows, targets and weights of a table."""

    def __init__(
        self, rules: RuleList, matrix: Any, targets: Any, weight: npt.ArrayLike | None
    ) -> None:
        self.matrix = np.array(matrix, dtype=np.float64, ndmin=2)
        n_rows, n_targets = len(self.matrix), len(rules.schema.outputs)
        # Codes are stored as doubles, which is exact: they are small.
        own = np.asarray(targets, dtype=np.float64)
        self.targets = own[:, None] if own.ndim == 1 else own
        self.weight = np.ones(n_rows) if weight is None else np.asarray(weight, dtype=np.float64)
        if self.targets.shape != (n_rows, n_targets) or self.weight.shape != (n_rows,):
            raise DataError(
                f"got {n_rows} rows with targets of shape {np.shape(targets)} and weights of "
                f"shape {self.weight.shape}; the rules need {n_targets} targets and one weight "
                "for each row"
            )
        if not (np.isfinite(self.weight) & (self.weight >= 0)).all():
            raise DataError("a weight is negative or not finite; weights must be numbers >= 0")


class _LabelTally:
    """Accumulator of the weight of rows whose class is the label of their rule."""

    def __init__(self, rules: RuleList, given: _WeightedRows) -> None:
        n_targets = len(rules.schema.outputs)
        self.rules = rules
        self.labels = compute_rule_labels(rules)
        self.right, self.known = np.zeros((2, len(rules), n_targets))
        usable = ~rules.refused(given.matrix)
        prior = []
        for k, (first, last) in enumerate(itertools.pairwise(rules.schema.blocks)):
            codes = given.targets[:, k]
            counted = usable & (codes != -1)
            mine = codes[counted]
            is_class = (mine >= 0) & (mine < last - first)
            weight = given.weight[counted]
            each = np.zeros(last - first)
            np.add.at(each, mine[is_class].astype(np.int64), weight[is_class])
            prior.append(_divide_or_nan(each, np.full(last - first, weight.sum())))
        self.prior = prior

    def add_block(self, piece: RuleMatches, codes: Numbers, weight: Numbers) -> None:
        """Add rows with their codes (pairs, targets) and weights."""
        for k in range(codes.shape[1]):
            mine = codes[:, k]
            right = mine == self.labels[piece.rule, k]
            _add_to_rules(self.known[:, k], piece.rule, np.where(mine != -1, weight, 0.0))
            _add_to_rules(self.right[:, k], piece.rule, np.where(right, weight, 0.0))

    def compute_measures(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Return confidence, lift, mean and spread."""
        empty = np.full(self.right.shape, np.nan)
        if self.rules.margins:
            return empty, empty, empty, empty
        confidence = _divide_or_nan(self.right, self.known)
        prior = np.stack([each[self.labels[:, k]] for k, each in enumerate(self.prior)], axis=1)
        return confidence, _divide_or_nan(confidence, prior), empty, empty


class _NumberTally:
    """Accumulator of the mean and spread of a rule's targets.

    Sums of squares are of differences from the mean, and blocks are merged as by Chan, Golub
    and LeVeque (1983), which avoids cancellation.
    """

    def __init__(self, rules: RuleList) -> None:
        self.weight, self.mean, self.squares = np.zeros((3, len(rules), len(rules.schema.outputs)))

    def add_block(self, piece: RuleMatches, numbers: Numbers, weight: Numbers) -> None:
        """Add rows with their targets (pairs, targets) and weights."""
        if not len(piece.rule):
            return
        first = int(piece.rule.min())
        n = int(piece.rule.max()) - first + 1
        own, some = piece.rule - first, slice(first, first + n)
        for k in range(numbers.shape[1]):
            known = np.isfinite(numbers[:, k])
            rule, y, w = own[known], numbers[known, k], weight[known]
            total = np.bincount(rule, w, n).astype(np.float64)
            mean = _divide_or_nan(np.bincount(rule, w * y, n).astype(np.float64), total)
            squares = np.bincount(rule, w * (y - mean[rule]) ** 2, n)
            mean = np.where(total > 0, mean, 0.0)
            before, away = self.weight[some, k], mean - self.mean[some, k]
            both = before + total
            moved = np.divide(total, both, out=np.zeros(n), where=both > 0)
            self.squares[some, k] += squares + away**2 * before * moved
            self.mean[some, k] += away * moved
            self.weight[some, k] = both

    def compute_measures(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Return confidence, lift, mean and spread."""
        empty = np.full(self.mean.shape, np.nan)
        mean = np.where(self.weight > 0, self.mean, np.nan)
        return empty, empty, mean, np.sqrt(_divide_or_nan(self.squares, self.weight))


def _add_to_rules(
    into: npt.NDArray[Any], rule: npt.NDArray[np.int64], values: npt.NDArray[np.float64]
) -> None:
    """Add to the cells of some rules, which are close together (`fired` works in blocks)."""
    if len(rule):
        first = int(rule.min())
        sums = np.bincount(rule - first, values)
        into[first : first + len(sums)] += sums.astype(into.dtype)


def compute_rule_labels(rules: RuleList) -> npt.NDArray[np.int64]:
    """Return (rules, targets) int64: the class code that each rule predicts."""
    blocks = itertools.pairwise(rules.schema.blocks)
    return np.stack([predict_labels(rules.units[:, a:b], rules.costs) for a, b in blocks], axis=1)


def _compute_confidence(rules: RuleList) -> tuple[Numbers, Numbers]:
    """Return confidence and lift of each rule's label for each target."""
    value = rules.value
    if value is None:  # parsed from text, which has only shares and support
        value = rules.units / rules.units_each * rules.support[:, None]
    totals = np.zeros((rules.n_trees, value.shape[1]))
    np.add.at(totals, rules.tree, value)
    found = []
    for first, last in itertools.pairwise(rules.schema.blocks):
        label = predict_labels(rules.units[:, first:last], rules.costs)[:, None]
        mine = value[:, first:last]
        reached = np.where(rules.support > 0, mine.sum(axis=1), 0.0)  # 0 gives NaN below
        own = _divide_or_nan(np.take_along_axis(mine, label, 1)[:, 0], reached)
        all_rows = totals[rules.tree, first:last]
        prior = _divide_or_nan(np.take_along_axis(all_rows, label, 1)[:, 0], all_rows.sum(axis=1))
        found.append((own, _divide_or_nan(own, prior)))
    confidence, lift = (np.stack(part, axis=1) for part in zip(*found, strict=True))
    return confidence, lift


def _divide_or_nan(some: Numbers, whole: Numbers) -> Numbers:
    """Return quotients; NaN where the divisor is not positive."""
    quotient = np.full(some.shape, np.nan)
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
    read = _as_table(table, rules.schema)
    known = read_labelled_rows(rules.schema, read, targets)
    weights = None if weight is None else _read_numbers(read, weight, "weight column")
    return table_measures(rules, known.matrix, known.targets, weights)


def read_labelled_rows(
    schema: Schema, table: Any, targets: Sequence[str] | None = None
) -> LabelledRows:
    """Return the rows of a table and their targets, by the columns of a schema.

    No row is refused here; `RuleList.refused` finds the rows that a list does not predict.
    """
    read = _as_table(table, schema)
    names = [output.name for output in schema.outputs] if targets is None else list(targets)
    if len(names) != len(schema.outputs):
        raise DataError(
            f"got {len(names)} target columns, but the rules have {len(schema.outputs)} targets: "
            f"{', '.join(repr(o.name) for o in schema.outputs[:8])}"
        )
    for name in names:
        read.find_column(name, "target column")
    columns = [
        _encode_target(read, name, output)
        for name, output in zip(names, schema.outputs, strict=True)
    ]
    return LabelledRows(encode_table(schema, read), np.stack(columns, axis=1))


def encode_table(schema: Schema, table: Any) -> Matrix:
    """Return (rows, features) float64; see `LabelledRows.matrix`."""
    from treekit.data.encoding import encode_rows
    from treekit.data.features import UNSEEN, encode_levels

    read = _as_table(table, schema)
    matrix = np.array(encode_rows(read, schema, missing_marks=read.missing), dtype=np.float64)
    for feature, column in enumerate(schema.columns):
        if column.kind == "nominal":
            unseen = (
                encode_levels(read, _find_column_name(read, schema, feature), column.levels)
                == UNSEEN
            )
            matrix[unseen, feature] = len(column.levels)
    return matrix


def _as_table(table: Any, schema: Schema) -> Table:
    from treekit.data.table import Table, read_table

    return table if isinstance(table, Table) else read_table(table, missing=schema.missing_marks)


def _find_column_name(table: Table, schema: Schema, feature: int) -> str:
    return schema.names[feature] if table.named else table.names[feature]


def _encode_target(table: Table, name: str, output: Output) -> npt.NDArray[np.float64]:
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
    """Return the rules without support, for rules that have not been measured yet."""
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
    table = rows if isinstance(rows, Table) else read_table(rows, missing=schema.missing_marks)
    if any(output.name not in table.names for output in schema.outputs):
        return drop_support(rules)
    known = read_labelled_rows(schema, table)
    support = np.zeros(len(rules))
    totals = np.zeros((len(rules), schema.n_values))
    weight = np.zeros((len(rules), len(schema.outputs)))
    numbers = schema.task == "regression"
    for piece in matching_rules(rules, known.matrix):
        mass = piece.mass / rules.mass
        np.add.at(support, piece.rule, mass)
        for k, (first, last) in enumerate(itertools.pairwise(schema.blocks)):
            target = known.targets[piece.row, k]
            is_known = ~np.isnan(target) if numbers else (target >= 0) & (target < last - first)
            rule, truth = piece.rule[is_known], target[is_known]
            np.add.at(weight[:, k], rule, mass[is_known])
            column = first if numbers else first + truth.astype(np.int64)
            np.add.at(totals, (rule, column), mass[is_known] * (truth if numbers else 1.0))
    reached: npt.NDArray[np.bool_] = np.all(weight > 0, axis=1)
    if numbers:
        totals = totals / np.where(reached[:, None], weight, 1.0)
    value = np.where(reached[:, None], totals, compute_values(rules))
    if rules.margins:  # margins are model parameters, and cannot be measured on rows
        value = compute_values(rules)
    return replace(rules, support=np.where(reached, support, 0.0), value=value)
