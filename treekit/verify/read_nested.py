"""Reading nested tests of Python source as tables of binary nodes."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.model.derived_features import DerivedColumns
from treekit.verify.structure import Tables

__all__ = ["nested_tables"]

_LONGEST = 20_000_000
"""Characters; parsing takes some hundred bytes for each."""

Question = tuple[int, int, float, tuple[int, ...]]
"""Feature, kind and value as in `treekit.kernels.tree_equivalence.Binary`, and the set."""


def nested_tables(text: str, schema: Schema, derived: DerivedColumns | None) -> Tables:
    """The tables that an exported file of nested tests stands for.

    Raises
    ------
    VerificationError
        If it holds what no exported file does, or sums that are written out.
    """
    if len(text) > _LONGEST:
        raise VerificationError("the file is too long to be parsed")
    try:
        module = ast.parse(text)
    except (SyntaxError, RecursionError) as error:
        raise VerificationError(f"it is no Python: {error}") from error
    return _Reader(module, schema).tables(derived)


class _Reader:
    """The functions and constants of a module, and the nodes read so far."""

    def __init__(self, module: ast.Module, schema: Schema) -> None:
        self.schema = schema
        self.functions = {f.name: f.body for f in module.body if isinstance(f, ast.FunctionDef)}
        self.numbers: dict[str, Any] = {}
        self.trees: list[str] = []
        for line in module.body:
            if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                name = line.targets[0].id
                if isinstance(line.value, ast.Constant):
                    self.numbers[name] = line.value.value
                elif name == "_TREES" and isinstance(line.value, ast.Tuple):
                    self.trees = [one.id for one in line.value.elts if isinstance(one, ast.Name)]
            elif isinstance(line, ast.AnnAssign) and ast.unparse(line.target) == "_LEAVES":
                self.leaves = ast.literal_eval(line.value or ast.Tuple([]))
        self.questions: list[Question] = []
        self.ends: list[list[int]] = []

    def tables(self, derived: DerivedColumns | None) -> Tables:
        """Every tree, a parent before its children."""
        roots = [self._tree(name) for name in self.trees]
        said = np.zeros((len(self.leaves), self.schema.n_values), dtype=np.int64)
        for leaf, (_, pairs) in enumerate(self.leaves):
            for position, units in pairs:
                said[leaf, position] += units
        ends = np.array(self.ends, dtype=np.int64).reshape(-1, 2)
        sizes = [len(question[3]) for question in self.questions]
        return Tables(
            feature=np.array([question[0] for question in self.questions], dtype=np.int64),
            kind=np.array([question[1] for question in self.questions], dtype=np.int64),
            value=np.array([question[2] for question in self.questions]),
            yes=ends[:, 0],
            no=ends[:, 1],
            root=np.array(roots, dtype=np.int64),
            set_start=np.cumsum([0, *sizes]),
            set_codes=np.array([c for q in self.questions for c in q[3]], dtype=np.int64),
            leaves=said,
            derived=derived,
        )

    def _tree(self, name: str) -> int:
        """Read a function and those that it calls; its first node, or leaf."""
        root = [0]
        waiting: list[tuple[list[ast.stmt], list[int], int]] = [(self.functions[name], root, 0)]
        while waiting:
            body, above, side = waiting.pop()
            match [line for line in body if not _is_text(line)]:
                case [ast.If(test=test, body=yes, orelse=no)] if no:
                    above[side] = len(self.questions)
                    ends = [0, 0]
                    self.questions.append(self._question(test))
                    self.ends.append(ends)
                    waiting += [(no, ends, 1), (yes, ends, 0)]
                case [ast.Return(value=ast.Constant(value=int(leaf)))]:
                    above[side] = -1 - leaf
                case [ast.Return(value=ast.Call(func=ast.Name(id=called)))]:
                    waiting.append((self.functions[called], above, side))
                case _:
                    raise VerificationError(f"{name} is no tree of tests")
        return root[0]

    def _question(self, test: ast.expr) -> Question:
        """What an if asks; ``not x > t`` is true for NaN."""
        match test:
            case ast.Compare(left=asked, ops=[ast.LtE()], comparators=[value]):
                return self._column(asked), 0, _number(value), ()
            case ast.UnaryOp(
                op=ast.Not(),
                operand=ast.Compare(left=asked, ops=[ast.Gt()], comparators=[value]),
            ):
                return self._column(asked), 1, _number(value), ()
            case ast.Compare(left=asked, ops=[ast.In()], comparators=[ast.Set(elts=codes)]):
                return self._column(asked), 2, 0.0, tuple(sorted(int(_number(c)) for c in codes))
            case ast.Compare(left=asked, ops=[ast.NotEq()], comparators=[same]):
                if ast.dump(asked) == ast.dump(same):
                    return self._column(asked), 3, 0.0, ()
        raise VerificationError(f"a question of another kind: {ast.unparse(test)[:80]}")

    def _column(self, asked: ast.expr) -> int:
        match asked:
            case ast.Subscript(value=ast.Name(id="x"), slice=ast.Name(id=name)):
                return int(self.numbers[name])
            case ast.Call(func=ast.Name(id="_derived"), args=[_, ast.Constant(value=int(number))]):
                return self.schema.n_features + number
        raise VerificationError(f"sums that are written out: {ast.unparse(asked)[:80]}")


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def _number(value: ast.expr) -> float:
    number = ast.literal_eval(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise VerificationError(f"{number!r} is no number")
    return float(number)
