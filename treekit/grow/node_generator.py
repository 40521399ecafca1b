"""A numpy generator whose draws are those of the node that is searched, for splitter plugins.

`treekit.kernels.grow_tree` sets the state at each node, which costs a store; a generator of
numpy's own would have to be created again for every node.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.random_numbers import draw_integer


def make_node_generator(state: npt.NDArray[np.uint64]) -> np.random.Generator:
    """Return a generator whose state is the array `state`, (1,) uint64, which the caller sets."""
    return np.random.Generator(_NodeBits(state))  # type: ignore[arg-type]


class _CInterface(NamedTuple):
    """What `numpy.random.BitGenerator.ctypes` holds."""

    state_address: int
    state: ctypes.c_void_p
    next_uint64: Any
    next_uint32: Any
    next_double: Any
    bit_generator: ctypes.c_void_p


class _CStruct(ctypes.Structure):
    """numpy's ``bitgen_t``, of the header numpy/random/bitgen.h."""

    _fields_ = (
        ("state", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in ("next_uint64", "next_uint32")),
        *((name, ctypes.c_void_p) for name in ("next_double", "next_raw")),
    )


class _NodeBits:
    """A bit generator, as numpy documents them: a lock, and functions in a capsule."""

    def __init__(self, state: npt.NDArray[np.uint64]) -> None:
        integer, half, number = _compile_functions()
        at = state.ctypes.data
        self.lock = threading.Lock()
        self._struct = _CStruct(at, integer.address, half.address, number.address, integer.address)
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype = ctypes.py_object
        new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.capsule = new_capsule(ctypes.addressof(self._struct), b"BitGenerator", None)
        self.ctypes = _CInterface(
            at, ctypes.c_void_p(at), integer.ctypes, half.ctypes, number.ctypes,
            ctypes.c_void_p(ctypes.addressof(self._struct)),
        )  # fmt: skip
        self._state = state  # keeps the memory


@cache
def _compile_functions() -> tuple[Any, Any, Any]:
    """Compile the functions that return the next uint64, uint32 and number in [0, 1)."""
    import numba as nb
    from numba import types

    pointer = types.CPointer(types.uint64)

    @nb.cfunc(types.uint64(pointer))
    def next_integer(state):  # type: ignore[no-untyped-def]
        return draw_integer(nb.carray(state, 1))

    @nb.cfunc(types.uint32(pointer))
    def next_half(state):  # type: ignore[no-untyped-def]
        return np.uint32(draw_integer(nb.carray(state, 1)) >> np.uint64(32))

    @nb.cfunc(types.float64(pointer))
    def next_number(state):  # type: ignore[no-untyped-def]
        return np.float64(draw_integer(nb.carray(state, 1)) >> np.uint64(11)) * 2.0**-53

    return next_integer, next_half, next_number
