"""The types and the arithmetic of one C source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError
from treekit.export.literals import Code, float_literal
from treekit.export.lower import LoweredTree, Step
from treekit.export.table import plain_thresholds
from treekit.model.model import Model
from treekit.model.packing import ordered_keys

__all__ = ["CTypes", "c_types"]


@dataclass(frozen=True, slots=True)
class CTypes:
    """How a source computes.

    Attributes
    ----------
    prefix : Code
    single : bool
        The model's input type is float32.
    whole : bool
        No floating point: rows are ordered keys, answers are integer sums.
    cell : {"double", "float", "uint32_t", "uint64_t"}
        Type of a row's cells.
    sum : {"int32_t", "int64_t"}
        Type of the integer sums.
    """

    prefix: Code
    single: bool
    whole: bool
    cell: Code
    sum: Code

    @property
    def key_type(self) -> np.dtype[Any]:
        """Of numbers as integers in their order."""
        return np.dtype(np.uint32 if self.single else np.uint64)

    @property
    def key(self) -> Code:
        """That type in C."""
        return Code(f"uint{8 * self.key_type.itemsize}_t")

    @property
    def number(self) -> Code:
        """What is written before ``(cell)`` for the key of a number."""
        return Code("" if self.whole else f"{self.prefix}_number")

    def keys(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Keys of numbers of the input type."""
        return ordered_keys((numbers + 0.0).astype(np.float32 if self.single else np.float64))

    def thresholds(self, model: Model, tree: LoweredTree) -> list[Code]:
        """What rows are compared with in each node, as literals of the cells' type."""
        if self.cell == "double":
            return [float_literal(t) for t in plain_thresholds(tree, model.schema).tolist()]
        asks = (tree.kind == Step.LE) & (tree.feature < model.schema.n_features)
        own = np.where(asks, tree.threshold, 0.0) + 0.0
        if self.cell == "float":
            return [Code(f"{text}f") for text in map(_shortest_float, own.astype(np.float32))]
        keys = self.keys(own).tolist()
        digits = self.key_type.itemsize * 2
        return [
            Code(f"0x{key:0{digits}x}u /* {float_literal(t)} */")
            for key, t in zip(keys, own.tolist(), strict=True)
        ]

    def values(self) -> dict[str, Any]:
        """What templates write of it."""
        bits = self.key_type.itemsize * 8
        missing = Code(f"UINT{bits}_MAX")
        code_end = Code({"double": ".0", "float": ".0f"}.get(str(self.cell), "u"))
        return {
            "x": self.cell,
            "key": self.key,
            "sum": self.sum,
            "out": self.sum if self.whole else Code("double"),
            "missing": missing,
            "top": Code(f"0x8{'0' * (bits // 4 - 1)}u"),
            "infinity": Code("0x7f800000u" if self.single else "0x7ff0000000000000u"),
            "real": Code("float" if self.single else "double"),
            "number": self.number,
            "order": Code(f"{self.prefix}_{'key' if self.whole else 'order'}"),
            "order_is": Code("" if self.whole else "static "),
            "zero": Code("0.0f" if self.cell == "float" else "0.0"),
            "beyond": Code("2147483648.0f" if self.cell == "float" else "2147483648.0"),
            "w": {"p": self.prefix, "missing": missing, "code_end": code_end},
            "is_nan": Code(
                f"x[feature] == {missing}" if self.whole else "x[feature] != x[feature]"
            ),
        }


def c_types(model: Model, prefix: Code, cells: str, arithmetic: str) -> CTypes:
    """Choose the types for a model.

    Parameters
    ----------
    cells : {"double", "float"}
    arithmetic : {"float", "integer"}

    Raises
    ------
    ExportError
        If float cells would round what the model distinguishes, or there are
        no cells of floating point.
    """
    single = model.schema.dtype == "float32"
    whole = arithmetic == "integer"
    if cells == "float" and not single:
        raise ExportError(
            "input='float' would round the rows, and the model tells numbers apart that are one "
            "float (its input type is float64): choose input='double', or train with "
            "dtype='float32'"
        )
    if whole and cells == "float":
        raise ExportError(
            "input='float' is for rows of floating point, and with arithmetic='integer' rows are "
            "integer keys: leave input out"
        )
    if whole:
        cells = "uint32_t" if single else "uint64_t"
    # Votes of a float32 model stay within 2**24, all other sums within 2**53.
    votes = model.schema.task == "classification" and not model.margins
    narrow = votes and model.missing != "fractional" and model.unit_total < 2**31
    return CTypes(prefix, single, whole, Code(cells), Code("int32_t" if narrow else "int64_t"))


def _shortest_float(number: np.float32) -> str:
    """The shortest decimal that reads back as the same float."""
    text = str(number)
    return text if "." in text or "e" in text else f"{text}.0"
