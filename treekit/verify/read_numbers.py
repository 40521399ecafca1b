"""Numbers as treekit's C source writes them."""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.model.portable import double_threshold

__all__ = ["of_keys", "of_literals", "table_numbers"]

Array = npt.NDArray[Any]


def table_numbers(content: str) -> Array:
    """Whole numbers, 64-bit ones of sixteen hexadecimal digits each, or the bytes of texts."""
    if content.startswith("0x"):
        digits = re.sub(r"0x|[,\s]+", "", content)
        return np.frombuffer(bytes.fromhex(digits), dtype=">u8").astype(np.uint64)
    if content.startswith('"'):  # escapes are those of Python's bytes
        lines = (line.rstrip(",") for line in content.split("\n"))
        return np.frombuffer(b"".join(ast.literal_eval("b" + line) for line in lines), np.uint8)
    return np.fromstring(content.replace("u", ""), dtype=np.int64, sep=",")


def of_keys(key: Array, schema: Schema) -> Array:
    """The doubles that ordered integers stand for; NaN where they are none."""
    if schema.dtype == "float64":
        top = np.uint64(1 << 63)
        number = np.where(key & top, key ^ top, ~key).astype(np.uint64).view(np.float64)
        return np.where(np.isfinite(number), number, np.nan)
    low = key.astype(np.uint32)
    bits = np.where(low >> np.uint32(31), low ^ np.uint32(1 << 31), ~low).astype(np.uint32)
    single = bits.view(np.float32)
    finite = np.isfinite(single)
    return np.where(finite, double_threshold(np.where(finite, single, 0)), np.nan)


def of_literals(literals: list[str], schema: Schema) -> Array:
    """Thresholds for inputs in double, of literals of doubles, floats, or keys."""
    if literals and literals[0].startswith("0x"):
        keys = [int(text.split("u", 1)[0], 16) for text in literals]
        return of_keys(np.array(keys, dtype=np.uint64), schema)
    if literals and literals[0].endswith("f"):
        single = np.array([np.float32(text[:-1]) for text in literals])
        return np.asarray(double_threshold(single))
    return np.array([float(text) for text in literals])
