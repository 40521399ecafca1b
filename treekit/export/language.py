"""How a language writes the literals and arrays that templates are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit.export.literals import Code, StringStyle, float_literal, hex_literal, string_literal

__all__ = ["Language"]


@dataclass(frozen=True)
class Language:
    """How a language writes what templates cannot.

    Attributes
    ----------
    strings : {"c", "python", "bytes", "json"}
        Style of string literals, see `treekit.export.literals`.
    floats : {"shortest", "hex"}
        The shortest decimal that reads back equal, or hexadecimal: exact, for
        compilers that read decimals into a wider type first and round twice.
    per_line : int
        Numbers on a line of an array.
    """

    strings: StringStyle
    floats: Literal["shortest", "hex"] = "shortest"
    per_line: int = 8

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
        write = self.number if numbers.dtype.kind == "f" else repr
        texts = [str(write(number)) for number in numbers.tolist()]
        rows = [texts[i : i + self.per_line] for i in range(0, len(texts), self.per_line)]
        return Code(",\n".join(", ".join(row) for row in rows))
