"""Numba decorator for the plugin's loops, with a disk cache.

treekit compiles a splitter's ``find``, with the plain functions it calls, for the
types of each training. Nearly all of CHAID does not depend on those types; it is
compiled here once, and later processes load it from disk.
"""

from __future__ import annotations

from numba import njit

__all__ = ["compiled"]

compiled = njit(cache=True, nogil=True, error_model="numpy")
