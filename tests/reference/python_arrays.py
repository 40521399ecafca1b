"""Read and replace the arrays of an exported Python file."""

from __future__ import annotations

import base64
import re

import numpy as np
import numpy.typing as npt

__all__ = ["array_in", "with_arrays"]

_TYPES = {"_ints": "<i4", "_longs": "<i8", "_doubles": "<f8"}


def _found(text: str, name: str) -> re.Match[str] | None:
    return re.search(rf'^{name} = (_ints|_longs|_doubles)\("""\\\n([^"]*?)\n?"""\)', text, re.M)


def array_in(text: str, name: str) -> npt.NDArray[np.generic]:
    """Return a copy of an array, empty if there is no such array."""
    found = _found(text, name)
    if found is None:
        return np.empty(0)
    return np.frombuffer(base64.b64decode(found[2]), dtype=_TYPES[found[1]]).copy()


def with_arrays(text: str, **arrays: npt.NDArray[np.generic]) -> bytes:
    """Return the file with replaced arrays."""
    for name, numbers in arrays.items():
        found = _found(text, name)
        content = base64.encodebytes(numbers.astype(_TYPES[found[1]]).tobytes()).decode().rstrip()
        text = text[: found.start(2)] + content + text[found.end(2) :]
    return text.encode()
