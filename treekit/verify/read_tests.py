"""Reading the nested tests of C source that stand above packed tables.

They compare numbers alone, and return the number of a node of the table:
see ``templates/c/tests.jinja``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.verify.read_numbers import of_literals
from treekit.verify.structure import Tables

__all__ = ["Tests", "tests_in", "with_tests"]

Array = npt.NDArray[Any]

_WHOLE = "(0|[1-9][0-9]{0,9})"  # C reads 010 as 8
_FUNCTION = re.compile(
    rf"^\w+_APART static int32_t \w+?_tree_{_WHOLE}_{_WHOLE}\(const (\w+) \*x\)\n"
    r"\{\n(.*?)\n\}$",
    re.MULTILINE | re.DOTALL,
)
_COLUMN = re.compile(rf"^    (\w+_in_\w+) = {_WHOLE},$", re.MULTILINE)
_NO, _YES = 0, 1  # of a missing value, and the kinds of `treekit.kernels.tree_equivalence.Binary`
_NUMBER = r"(-?[0-9][0-9.e+-]*f?)"  # `of_literals` reads it, and strictly
_KEY = r"(0x[0-9a-f]+u /\* -?[0-9][0-9.e+-]* \*/)"
"""Where rows are keys, a missing value is the largest of all, and not NaN."""
_TESTS = (
    (_YES, re.compile(rf"if \(!\(x\[(\w+)\] > {_NUMBER}\)\) \{{")),
    (_YES, re.compile(rf"if \(x\[(\w+)\] <= {_KEY} \|\| x\[\1\] == UINT(\d+)_MAX\) \{{")),
    (_NO, re.compile(rf"if \(x\[(\w+)\] <= {_NUMBER}\) \{{")),
    (_NO, re.compile(rf"if \(x\[(\w+)\] <= {_KEY}\) \{{")),
)
_CALL = re.compile(rf"return \w+?_tree_{_WHOLE}_{_WHOLE}\(x\);")
_LEAF = re.compile(rf"return {_WHOLE};")


@dataclass
class Tests:
    """Nested tests, a tree after the other, a parent before its children.

    Attributes
    ----------
    cell : str
        The type of a row's cells.
    feature, kind : list of int
    value : list of str
        Thresholds, as they are written.
    ends : list of [int, int]
        What follows yes and no: a test here, or ``-1 - node`` of the table.
    roots : list of int
        One a tree, in the same code.
    """

    cell: str = ""
    feature: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    value: list[str] = field(default_factory=list)
    ends: list[list[int]] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)


class _Place(NamedTuple):
    """Where what comes next belongs: a side of a test, or the root of a tree."""

    test: int
    side: int


def tests_in(text: str) -> Tests:
    """All functions of nested tests of a file; without trees if it has none.

    Raises
    ------
    VerificationError
        If a line is no line of treekit's, or functions are missing or not nested.
    """
    functions = _FUNCTION.findall(text)
    bodies = {(int(tree), int(part)): body for tree, part, _, body in functions}
    cells = {cell for *_, cell, _ in functions}
    if len(bodies) < len(functions) or len(cells) > 1:
        raise VerificationError("functions of tests that contradict each other")
    columns = {name: int(number) for name, number in _COLUMN.findall(text)}
    made = Tests("".join(cells))
    n_trees = sum(part == 0 for _, part in bodies)
    for tree in range(n_trees):
        made.roots.append(0)
        todo = [(_Place(-1, tree), (tree, 0))]
        while todo:
            place, called = todo.pop()
            if called not in bodies:
                raise VerificationError(f"the function of tests {called} is missing, or in a ring")
            todo += _read(made, bodies.pop(called).split("\n"), columns, place)
    if bodies:
        raise VerificationError("functions of tests that nothing calls")
    return made


def _read(
    made: Tests, lines: list[str], columns: dict[str, int], place: _Place
) -> list[tuple[_Place, tuple[int, int]]]:
    """Read a function whose value belongs at `place`; what it calls, and where."""
    open_sides: list[_Place] = []
    calls: list[tuple[_Place, tuple[int, int]]] = []
    waiting: _Place | None = place
    for line in (line.strip() for line in lines):
        if line == "(void)x;":
            continue
        if line in ("} else {", "}"):
            if waiting is not None or not open_sides:
                raise VerificationError("tests that are not nested")
            test, side = open_sides.pop()
            if side != (line == "}"):
                raise VerificationError("tests that are not nested")
            if side == 0:
                waiting = _Place(test, 1)
                open_sides.append(waiting)
            continue
        if waiting is None:
            raise VerificationError("lines that nothing reaches")
        if found := _LEAF.fullmatch(line):
            _put(made, waiting, -1 - int(found[1]))
            waiting = None
        elif found := _CALL.fullmatch(line):
            calls.append((waiting, (int(found[1]), int(found[2]))))
            waiting = None
        else:
            _put(made, waiting, len(made.feature))
            waiting = _test(made, line, columns)
            open_sides.append(waiting)
    if waiting is not None or open_sides:
        raise VerificationError("tests that are not nested")
    return calls


def _put(made: Tests, place: _Place, end: int) -> None:
    if place.test < 0:
        made.roots[place.side] = end
    else:
        made.ends[place.test][place.side] = end


def _test(made: Tests, line: str, columns: dict[str, int]) -> _Place:
    """Add the test of a line; the place of what follows yes."""
    for kind, pattern in _TESTS:
        found = pattern.fullmatch(line)
        if found and found[1] in columns and found.groups()[2:] in ((), (made.cell[4:-2],)):
            made.feature.append(columns[found[1]])
            made.kind.append(kind)
            made.value.append(found[2])
            made.ends.append([0, 0])
            return _Place(len(made.feature) - 1, 0)
    raise VerificationError(f"a test that is not treekit's: {line[:80]}")


def with_tests(tests: Tests, tables: Tables, ends: Array, schema: Schema) -> Tables:
    """Nested tests, and behind them the tables on whose nodes they go on."""
    count = len(tests.feature)

    def moved(at: Array) -> Array:
        return np.where(at < 0, at, at + count)

    def followed(own: list[int]) -> Array:
        at = np.array(own, dtype=np.int64)
        return np.where(at < 0, moved(ends[np.where(at < 0, -1 - at, 0)]), at)

    def both(own: Array, others: Array) -> Array:
        return np.concatenate([own, others])

    return Tables(
        feature=both(np.array(tests.feature, dtype=np.int64), tables.feature),
        kind=both(np.array(tests.kind, dtype=np.int64), tables.kind),
        value=both(of_literals(tests.value, tests.cell, schema), tables.value),
        yes=both(followed([yes for yes, _ in tests.ends]), moved(tables.yes)),
        no=both(followed([no for _, no in tests.ends]), moved(tables.no)),
        root=followed(tests.roots),
        set_start=both(np.zeros(count, dtype=np.int64), tables.set_start),
        set_codes=tables.set_codes,
        leaves=tables.leaves,
    )
