"""Tables of numbers and texts as templates get them: literals, or packed into text.

A compiler reads a million literals of an array in a minute and gigabytes
(rustc 1.95: 22 s and 2 GB for four million numbers, go 1.19: 63 s and 3.6 GB;
javac refuses some thousands), and the same numbers as text of their bytes in
two seconds, which the program decodes when it starts, or as it goes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError
from treekit.export.language import Language
from treekit.export.literals import Code, byte_literal, string_literals

__all__ = ["Array", "Tables", "Texts"]

NumberType = Literal["f64", "i32", "i64", "u32"]
_DTYPES: dict[NumberType, str] = {"f64": "<f8", "i32": "<i4", "i64": "<i8", "u32": "<u4"}
_SMALL = 64
"""Arrays of so few numbers are written as literals, whatever the others are."""
_WHOLE = 24
"""Bytes of packed pieces are multiples of it: no number and no base64 group is divided."""


@dataclass
class Tables:
    """Makes the arrays of one file, which share the limits of its language."""

    language: Language
    elements: int = 0
    packable: int = 0

    def __call__(self, numbers: npt.NDArray[Any], number_type: NumberType | None = None) -> Array:
        """An array; doubles as they are, whole numbers as 32-bit integers unless told.

        Raises
        ------
        ExportError
            If a number outgrows its type, or the file its limits.
        """
        kind: NumberType = number_type or ("f64" if numbers.dtype.kind == "f" else "i32")
        if kind == "i64" and self.language.wide == "double":
            kind, numbers = "f64", numbers.astype(np.float64)
        if kind == "u32" and not self.language.unsigned:
            kind, numbers = "i32", numbers.astype(np.uint32).view(np.int32)
        if kind == "i32" and len(numbers) and not -(2**31) <= _extent(numbers) < 2**31:
            raise ExportError("the model needs more than 2**31 table entries: train fewer trees")
        made = np.ascontiguousarray(numbers, dtype=_DTYPES[kind])
        self.elements += len(made)
        self.packable += made.nbytes
        if self.packable > (most := self.language.limits.table_bytes) and self.language.packed:
            raise ExportError(
                f"the tables of the model take more than the {most} bytes that this target "
                "compiles: train fewer or smaller trees, or export to another target"
            )
        return Array(made, kind, self)

    def texts(self, texts: Iterable[str]) -> Texts:
        """Texts, whose lengths are an array if they are packed."""
        made = Texts(list(texts), self)
        if made.form == "packed":
            units = [len(text.encode("utf-16-le", "surrogatepass")) // 2 for text in made.texts]
            made.lengths = self(np.array(units, dtype=np.int64))
        return made


@dataclass
class Array:
    """An array; written in a template by itself it is its elements.

    Attributes
    ----------
    numbers : (length,) of `type`, little-endian
    type : {"f64", "i32", "i64", "u32"}
    tables : Tables
        The file's, whose limits it shares.
    """

    numbers: npt.NDArray[Any]
    type: NumberType
    tables: Tables = field(repr=False)

    @property
    def form(self) -> Code:
        """``elements`` or ``packed``: how the language is to write it."""
        language, many = self.tables.language, self.tables.elements
        packs = language.packed and many > language.limits.elements
        return Code("packed" if packs and len(self.numbers) > _SMALL else "elements")

    @property
    def length(self) -> int:
        """How many literals `elements` holds: at least the 1 that stands for none."""
        return max(len(self.numbers), 1)

    @cached_property
    def elements(self) -> Code:
        """The elements, separated by commas; a 0 where there are none."""
        language = self.tables.language
        if self.type == "i64":
            return language.wide_array(self.numbers)
        return language.array(self.numbers)

    @property
    def each(self) -> int:
        """Numbers in each literal of `packed`, but the last."""
        limit = self.tables.language.limits.literal
        raw = limit * 3 // 4 if self.tables.language.packed == "base64" else limit
        return max(raw // _WHOLE, 1) * _WHOLE // self.numbers.itemsize

    @cached_property
    def packed(self) -> list[Code]:
        """String literals that hold the bytes, little-endian, in order."""
        pieces = [
            self.numbers[at : at + self.each].tobytes()
            for at in range(0, len(self.numbers), self.each)
        ]
        if self.tables.language.packed == "base64":
            return [Code(f'"{base64.b64encode(piece).decode("ascii")}"') for piece in pieces]
        return [byte_literal(piece) for piece in pieces]

    def __html__(self) -> str:
        return str(self.elements)


def _extent(numbers: npt.NDArray[Any]) -> int:
    """The number farthest from zero."""
    return max(int(numbers.max()), -int(numbers.min()) - 1)


@dataclass
class Texts:
    """Texts of a file as literals, or joined in few.

    Attributes
    ----------
    texts : list of str
    lengths : Array, or None
        UTF-16 units of each, if they are packed.
    tables : Tables
        The file's, whose limits they share.
    """

    texts: list[str]
    tables: Tables = field(repr=False)
    lengths: Array | None = None

    @property
    def form(self) -> Code:
        """``elements`` or ``packed``."""
        language = self.tables.language
        long = max(map(len, self.texts), default=0) * 6 > language.limits.literal
        return Code("packed" if long or len(self.texts) > language.limits.texts else "elements")

    @cached_property
    def literals(self) -> list[Code]:
        """A literal each."""
        return string_literals(self.texts, self.tables.language.strings)

    @cached_property
    def packed(self) -> list[Code]:
        """Literals of all texts joined; a literal may begin and end inside of a text."""
        # A UTF-16 unit takes up to three bytes in a class file; a character two units.
        joined, each = "".join(self.texts), max(self.tables.language.limits.literal // 6, 1)
        pieces = [joined[at : at + each] for at in range(0, len(joined), each)]
        return string_literals(pieces, self.tables.language.strings)
