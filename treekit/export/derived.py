"""Derived columns as source: tables that a small function reads, or a test written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treekit.export.literals import Code, float_literal
from treekit.model.derived_features import DerivedColumns

__all__ = ["Term", "inline_terms", "words"]

Term = tuple[Code, Code]
"""Identifier of a column, and its weight."""

_INLINE = 8  # terms of a sum that people still read, and no parser finds deep
_SHOWN = 8  # tests, and categories of a set, that a comment lists


def inline_terms(
    derived: DerivedColumns, number: int, columns: Sequence[Code]
) -> list[Term] | None:
    """The terms of a derived column that is one short sum, else None."""
    first = int(derived.test_start[number])
    count = int(derived.term_start[first + 1] - derived.term_start[first])
    alone = derived.test_start[number + 1] == first + 1 and not _one_sided(derived, first)
    return _terms(derived, first, columns) if alone and 0 < count <= _INLINE else None


def words(derived: DerivedColumns, number: int, columns: Sequence[Code]) -> Code:
    """When a derived column says branch 0, for a comment; of identifiers only."""
    tests = range(int(derived.test_start[number]), int(derived.test_start[number + 1]))
    told = [_test_in_words(derived, test, columns) for test in tests[:_SHOWN]]
    told += ["..."] * (len(tests) > _SHOWN)
    rule = all(_one_sided(derived, test) for test in tests)
    return Code("unless " + ", or ".join(told) if rule else "; if unknown, ".join(told))


def _one_sided(derived: DerivedColumns, test: int) -> bool:
    """Whether a test is a condition of a rule, which says 1 or nothing."""
    by_level = derived.level_feature[test] >= 0
    branches = derived.level_branch[derived.level_start[test] : derived.level_start[test + 1]]
    said = branches if by_level else np.array([derived.below[test], derived.above[test]])
    return bool(derived.lost[test] >= 0 or not np.any(said == 0))


def _failing(derived: DerivedColumns, test: int, columns: Sequence[Code]) -> str:
    """When a condition of a rule fails."""
    at, column = float_literal(derived.threshold[test]), int(derived.level_feature[test])
    told = []
    if column >= 0:
        own = slice(int(derived.level_start[test]), int(derived.level_start[test + 1]))
        failing = derived.level_branch[own] == 1
        told += [f"{columns[column]} in {_codes(failing)}"] * bool(failing.any())
    else:
        column = int(derived.term_feature[derived.term_start[test]])
        told += [f"{columns[column]} <= {at}"] * bool(derived.below[test] == 1)
        told += [f"{columns[column]} > {at}"] * bool(derived.above[test] == 1)
    told += [f"{columns[column]} missing"] * bool(derived.lost[test] == 1)
    return " or ".join(told) or "never"


def _test_in_words(derived: DerivedColumns, test: int, columns: Sequence[Code]) -> str:
    if _one_sided(derived, test):
        return _failing(derived, test, columns)
    column = int(derived.level_feature[test])
    if column >= 0:
        branches = derived.level_branch[derived.level_start[test] : derived.level_start[test + 1]]
        return f"{columns[column]} in {_codes(branches == 0)}, known in {_codes(branches >= 0)}"
    terms = _terms(derived, test, columns)
    if len(terms) > _INLINE:
        total = f"a sum over {len(terms)} columns"
    else:
        total = " + ".join(name if w == "1.0" else f"{w} * {name}" for name, w in terms)
    relation = ">" if derived.below[test] else "<="
    return f"{total} {relation} {float_literal(derived.threshold[test])}"


def _codes(member: Any) -> str:
    codes = np.flatnonzero(member).tolist()
    shown = [str(code) for code in codes[:_SHOWN]] + ["..."] * (len(codes) > _SHOWN)
    return "{" + ", ".join(shown) + "}"


def _terms(derived: DerivedColumns, test: int, columns: Sequence[Code]) -> list[Term]:
    own = slice(int(derived.term_start[test]), int(derived.term_start[test + 1]))
    features, weights = derived.term_feature[own].tolist(), derived.term_weight[own].tolist()
    return [(columns[f], float_literal(w)) for f, w in zip(features, weights, strict=True)]
