"""Functions of nested tests in C."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from treekit.export.c_types import CTypes
from treekit.export.literals import Code, identifiers
from treekit.export.lower import LoweredTree
from treekit.export.source import SourceFunction, SourceLine, source_functions
from treekit.export.table import LeafTable
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model

__all__ = ["most_frames", "test_values"]

_DEEPEST = 24  # far below the 127 nested blocks that C99 5.2.4.1 promises
_LARGEST = 200
"""Tests in one function: compilers take twice as long for four times as many (measured, gcc 12)."""
_BY_KEY = ("le_missing_yes", "missing_number")
"""Lines that are written otherwise where a missing value is not NaN but a number."""
_ENUM = 1000  # C99 5.2.4.1 promises 1023 constants in one enumeration
_FRAME = 192  # bytes of a call on the stack; s390x saves 160 of registers


def test_values(
    model: Model,
    trees: tuple[LoweredTree, ...],
    leaves: LeafTable,
    derived: DerivedColumns,
    types: CTypes,
    told: str,
) -> tuple[dict[str, Any], list[SourceFunction]]:
    """Values of ``c/tests.jinja``, and the functions among them.

    Parameters
    ----------
    leaves : LeafTable
        Whose ``row`` tells what a function returns for each leaf of `trees`.
    told : str
        What a function is, in words.
    """
    columns = identifiers(model.schema.names, f"{types.prefix}_in_")
    functions = source_functions(
        *(trees, model.schema, leaves, columns, derived, _DEEPEST),
        thresholds=lambda tree: types.thresholds(model, tree),
        most=_LARGEST,
    )
    if types.whole:
        functions = [replace(f, lines=tuple(map(_by_key, f.lines))) for f in functions]
    numbered = list(enumerate(columns))
    values = {
        "columns": [numbered[i : i + _ENUM] for i in range(0, len(numbered), _ENUM)],
        "functions": functions,
        "functions_are": Code(told),
    }
    return values, functions


def _by_key(line: SourceLine) -> SourceLine:
    return replace(line, op=f"{line.op}_by_key") if line.op in _BY_KEY else line


def most_frames(functions: list[SourceFunction]) -> int:
    """Bytes on the stack of the longest chain of calls; one that is called comes first."""
    height: dict[tuple[int, int], int] = {}
    for function in functions:
        called = [height[line.tree, line.at] for line in function.lines if line.op == "call"]
        height[function.tree, function.part] = 1 + max(called, default=0)
    return _FRAME * max(height.values())
