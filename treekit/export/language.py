"""How a language writes the literals and arrays that templates are given, and its bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit.export.literals import (
    Code,
    StringStyle,
    float_literal,
    hex_literal,
    identifier,
    identifiers,
    lines,
    string_literal,
)

__all__ = ["Language", "Limits"]


@dataclass(frozen=True)
class Limits:
    """What compilers of a language bear; beyond, source is written otherwise or refused.

    Attributes
    ----------
    elements : int
        Numbers written as literals in one file; tables of more are packed into
        text, if the language packs.
    texts : int
        String literals of names in one array initialiser; more are packed, too.
    literal : int
        Bytes of one string literal.
    table_bytes : int
        Of all packed tables of a file; a larger model is refused by name.
    depth : int
        Levels of tests nested in one function.
    function_nodes : int
        Tests in one function.
    if_else_nodes : int
        Nodes of a model that is written as nested tests.
    """

    elements: int = 2**31 - 1
    texts: int = 2**31 - 1
    literal: int = 2**31 - 1
    table_bytes: int = 2**31 - 1
    depth: int = 16
    function_nodes: int = 500
    if_else_nodes: int = 100_000


@dataclass(frozen=True)
class Language:
    """How a language writes what templates cannot.

    Attributes
    ----------
    strings : {"bytes", "c", "java", "json", "python", "rust"}
        Style of string literals, see `treekit.export.literals`.
    floats : {"shortest", "hex"}
        The shortest decimal that reads back equal, or hexadecimal: exact, for
        compilers that read decimals into a wider type first and round twice.
    per_line : int
        Numbers on a line of an array.
    wide : {"integer", "double"}
        What holds whole numbers up to 2**53: 64-bit integers, or doubles where
        a language has no such integers.
    wide_suffix : str
        Behind the literal of a 64-bit integer, such as ``L``.
    unsigned : bool
        Whether 32-bit words are unsigned; else those from 2**31 on are written
        as the negative number of the same bits.
    packed : {"", "base64", "bytes"}
        How large tables become string literals: not at all, base64 of
        little-endian bytes, or the bytes themselves.
    indent : str
        One level of indentation.
    outer : int
        Levels around the body of a function.
    column, case : str
        What identifiers of columns begin with, and ``"upper"`` or ``""`` (as they are).
    reserved : frozenset of str
        Words that cannot be identifiers.
    limits : Limits
    """

    strings: StringStyle
    floats: Literal["shortest", "hex"] = "shortest"
    per_line: int = 8
    wide: Literal["integer", "double"] = "integer"
    wide_suffix: str = ""
    unsigned: bool = True
    packed: Literal["", "base64", "bytes"] = ""
    indent: str = "    "
    outer: int = 1
    column: str = "in_"
    case: Literal["", "upper"] = ""
    reserved: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)

    def text(self, text: str) -> Code:
        """A string literal."""
        return string_literal(text, self.strings)

    def number(self, number: float) -> Code:
        """A finite double."""
        return hex_literal(number) if self.floats == "hex" else float_literal(number)

    def array(self, numbers: npt.NDArray[Any]) -> Code:
        """The elements of an array, separated by commas; a 0 where there are none.

        Not every language has empty arrays, and no loop reads that element.
        """
        if len(numbers) == 0:
            numbers = np.zeros(1, numbers.dtype)
        if numbers.dtype.kind == "f" and self.floats == "hex":
            texts = map(float.hex, numbers.tolist())
            return _joined(list(texts), self.per_line)
        return lines(numbers, per_line=self.per_line)

    def wide_array(self, numbers: npt.NDArray[Any]) -> Code:
        """The same of 64-bit integers, with the language's suffix."""
        texts = [f"{number}{self.wide_suffix}" for number in numbers.tolist() or [0]]
        return _joined(texts, self.per_line)

    def name(self, text: str, fallback: str) -> Code:
        """An identifier that looks like `text` and is no reserved word."""
        made = identifier(text, fallback)
        return Code(made + "_") if made in self.reserved else made

    def column_names(self, names: tuple[str, ...]) -> list[Code]:
        """Distinct identifiers of columns."""
        if self.case == "upper":
            # Before they are told apart: `a` and `A` are two columns.
            return identifiers([name.upper() for name in names], self.column, "COLUMN")
        return identifiers(names, self.column)


def _joined(texts: list[str], per_line: int) -> Code:
    rows = [texts[i : i + per_line] for i in range(0, len(texts), per_line)]
    return Code(",\n".join(", ".join(row) for row in rows))
