"""Nested plain values as JSON and back, infinities and NaN included.

JSON has no infinite numbers, so ``inf`` is written ``{"$float": "inf"}``; a
key that starts with ``$`` gets a second one, so that nothing is ambiguous.
Tuples come back as lists.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treekit.errors import ModelError

__all__ = [
    "from_json",
    "to_json",
]


def to_json(value: Any) -> Any:
    """Return `value` with JSON's types only.

    Raises
    ------
    ModelError
        If something in it is not None, bool, int, float, str, list, tuple or
        dict of text keys.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"$" + key if key[:1] == "$" else key: to_json(v) for key, v in value.items()}
    raise ModelError(
        f"{value!r} is a {type(value).__name__}; settings and provenance hold plain values: "
        "None, bools, numbers, text, lists, and dicts of text keys"
    )


def from_json(value: Any) -> Any:
    """Undo `to_json`; ValueError if `value` cannot come from it."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if (text := value.get("$float")) is not None:
        if len(value) != 1 or text not in ("inf", "-inf", "nan"):
            raise ValueError(f"{value!r} is not a number")
        return float(text)
    if strange := [key for key in value if key[:1] == "$" and key[:2] != "$$"]:
        raise ValueError(f"unknown mark {strange[0]!r}")
    return {key[1:] if key[:1] == "$" else key: from_json(item) for key, item in value.items()}
