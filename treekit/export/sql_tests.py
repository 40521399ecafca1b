"""The questions of lowered trees as conditions of SQL."""

from __future__ import annotations

import numpy as np
from sqlglot import exp

from treekit.errors import ExportError
from treekit.export.lower import LoweredTree, Step
from treekit.export.sql_cells import Cells
from treekit.export.sql_dialect import Dialect
from treekit.export.sql_syntax import Sql, call, cast, either, integer, is_null, one_of, when
from treekit.export.table import plain_thresholds
from treekit.model.derived_features import DerivedColumns
from treekit.model.fixed_point import double_threshold
from treekit.model.model import Model

__all__ = ["Tests", "derived_branch", "used_features"]

_MOST_TERMS = 450
"""Of a sum: each nests the one before by two, and engines nest up to 1,000."""


def derived_branch(
    model: Model, derived: DerivedColumns, number: int, cells: Cells, dialect: Dialect
) -> list[Sql]:
    """Tests of a derived column, in order: each 0 or 1, or NULL if it says nothing.

    Raises
    ------
    ExportError
        For a sum of more columns than the engines can add up in order.
    """
    own = range(int(derived.test_start[number]), int(derived.test_start[number + 1]))
    return [
        _level_test(derived, test, cells)
        if derived.level_feature[test] >= 0
        else _linear_test(model, derived, test, cells, dialect)
        for test in own
    ]


def _level_test(derived: DerivedColumns, test: int, cells: Cells) -> Sql:
    branch = derived.level_branch[derived.level_start[test] : derived.level_start[test + 1]]
    feature = int(derived.level_feature[test])
    tests: list[tuple[Sql, Sql]] = []
    for side in (0, 1):
        codes = np.flatnonzero(branch == side).tolist()
        if codes:
            tests.append((one_of(cells.of(feature), list(map(integer, codes))), integer(side)))
    if derived.lost[test] >= 0:
        tests.append((is_null(cells.of(feature)), integer(int(derived.lost[test]))))
    return when(tests) if tests else cast(exp.Null(), "BIGINT")


def _linear_test(
    model: Model, derived: DerivedColumns, test: int, cells: Cells, dialect: Dialect
) -> Sql:
    own = slice(int(derived.term_start[test]), int(derived.term_start[test + 1]))
    features, weights = derived.term_feature[own].tolist(), derived.term_weight[own].tolist()
    if len(features) > _MOST_TERMS:
        raise ExportError(
            f"SQL adds up to {_MOST_TERMS} columns in order, and a split of the model has "
            f"{len(features)}: export to another target"
        )
    threshold = float(derived.threshold[test])
    if len(features) == 1 and weights[0] == 1.0:
        value = cells.of(features[0])
        if model.schema.dtype == "float32":
            threshold = float(double_threshold(threshold))
    else:
        value = _sum(features, weights, cells, dialect)
    at_most = exp.LTE(this=value.copy(), expression=dialect.bound(threshold))
    above = exp.GT(this=value.copy(), expression=dialect.bound(threshold))
    said = (derived.below[test], derived.above[test], derived.lost[test])
    conditions: tuple[Sql, ...] = at_most, above, is_null(value)
    pairs = zip(conditions, map(int, said), strict=True)
    tests = [(condition, integer(branch)) for condition, branch in pairs if branch >= 0]
    return when(tests) if tests else cast(exp.Null(), "BIGINT")


def _sum(features: list[int], weights: list[float], cells: Cells, dialect: Dialect) -> Sql:
    """A chain of products and sums in double, in the order of the columns."""
    made: Sql | None = None
    for feature, weight in zip(features, weights, strict=True):
        term = exp.Mul(this=dialect.bound(weight), expression=cells.summed(feature))
        made = term if made is None else exp.Add(this=made, expression=term)
    assert made is not None  # noqa: S101 - a linear test has a term
    if len(features) == 1:
        return exp.Paren(this=made)
    return dialect.not_nan(exp.Paren(this=made))  # infinite terms of both signs


class Tests:
    """The conditions of one tree."""

    def __init__(
        self,
        model: Model,
        tree: LoweredTree,
        derived: DerivedColumns,
        cells: Cells,
        dialect: Dialect,
    ) -> None:
        self.model, self.tree, self.derived = model, tree, derived
        self.cells, self.dialect = cells, dialect
        self.thresholds = plain_thresholds(tree, model.schema).tolist()

    def condition(self, node: int, wanted: bool) -> Sql:
        """TRUE where the row takes the yes branch (the no branch if not `wanted`).

        Elsewhere FALSE or NULL, which a CASE takes alike.
        """
        kind, feature = self.tree.kind[node], int(self.tree.feature[node])
        if feature >= self.model.schema.n_features:
            return self._derived(node, feature - self.model.schema.n_features, wanted)
        value = self.cells.of(feature)
        if kind == Step.MISSING:
            gone = is_null(value)
            return gone if wanted else exp.Not(this=gone)
        if kind == Step.IN:
            inside = one_of(value, list(map(integer, self.tree.codes(node).tolist())))
            if wanted:
                return inside
            return either(exp.Not(this=inside), is_null(self.cells.of(feature)))
        missing = bool(self.tree.missing_yes[node])
        compared = (exp.LTE if wanted else exp.GT)(
            this=value, expression=self.dialect.bound(self.thresholds[node])
        )
        if missing == wanted:
            return either(compared, is_null(self.cells.of(feature)))
        return compared

    def _derived(self, node: int, number: int, wanted: bool) -> Sql:
        """A derived column is 0 in the yes branch; where nothing is known, the missing side."""
        tests = derived_branch(self.model, self.derived, number, self.cells, self.dialect)
        missing = integer(0 if self.tree.missing_yes[node] else 1)
        return exp.EQ(
            this=call("COALESCE", *tests, missing), expression=integer(0 if wanted else 1)
        )


def used_features(trees: tuple[LoweredTree, ...], derived: DerivedColumns, n: int) -> set[int]:
    """Columns of the row, of `n`, that the trees ask."""
    asked = [np.unique(tree.feature) for tree in trees]
    found = {int(f) for features in asked for f in features.tolist() if 0 <= f < n}
    found |= set(np.unique(derived.term_feature).tolist())
    return found | {f for f in np.unique(derived.level_feature).tolist() if f >= 0}
