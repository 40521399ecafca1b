"""A pruner's say before a split, compiled into the pointer that `grow` calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import types

from treekit.grow.criterion import FROZEN_CELLS, FROZEN_MATRIX
from treekit.grow.fingerprint import fingerprint
from treekit.grow.plugins import Origin, compiled
from treekit.kernels.function_pointers import CELLS, MATRIX, Pointer, read_only

__all__ = ["always", "compile_before"]

BEFORE = types.boolean(CELLS, MATRIX, CELLS, MATRIX)


@cache
def always() -> Pointer:
    """The pointer that allows every split."""
    return Pointer(_yes, BEFORE, cache=True)


def _yes(parent, children, held_parent, held_children):  # type: ignore[no-untyped-def]
    return True


def compile_before(function: Callable[..., bool], origin: Origin) -> Pointer:
    """Compile ``before(parent, children, held_parent, held_children)``."""
    shapes = (FROZEN_CELLS, FROZEN_MATRIX, FROZEN_CELLS, FROZEN_MATRIX)
    inner: Any = compiled(function, shapes, origin, "before", bool)

    def before(parent, children, held_parent, held_children):  # type: ignore[no-untyped-def]
        return bool(
            inner(
                read_only(parent), read_only(children),
                read_only(held_parent), read_only(held_children),
            )
        )  # fmt: skip

    pointer = Pointer(before, BEFORE, mark=fingerprint(before))
    pointer.origin = origin
    return pointer
