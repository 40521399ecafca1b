"""Convert nested plain values to JSON and back, including infinities and NaN.

JSON has no infinite numbers, so ``inf`` is written ``{"$float": "inf"}``; a
key that starts with ``$`` is escaped by a second ``$``.  Tuples become lists.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treekit.errors import ModelError


def to_json(value: Any) -> Any:
    """Return `value` converted to JSON types.

    Raises
    ------
    ModelError
        If `value` contains anything but None, bool, int, float, str, list, tuple
        and dicts with text keys.
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
        f"{value!r} is a {type(value).__name__}; settings and provenance must be plain values: "
        "None, bools, numbers, text, lists, and dicts with text keys"
    )


def from_json(value: Any) -> Any:
    """Convert the output of `to_json` back; raise ValueError if `value` is not such output."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if (text := value.get("$float")) is not None:
        if len(value) != 1 or text not in ("inf", "-inf", "nan"):
            raise ValueError(f"{value!r} is not a number")
        return float(text)
    if strange := [key for key in value if key[:1] == "$" and key[:2] != "$$"]:
        raise ValueError(f"unknown $ key {strange[0]!r}")
    return {key[1:] if key[:1] == "$" else key: from_json(item) for key, item in value.items()}
