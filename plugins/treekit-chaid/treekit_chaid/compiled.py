"""How the plugin's own loops are compiled: once, and kept on disk.

treekit compiles a splitter's ``find`` for the types of each training, with the
plain functions it names.  What does not depend on those types, which is nearly
all of CHAID, is compiled here and loaded by later processes in no time.
"""

from __future__ import annotations

from numba import njit

__all__ = ["compiled"]

compiled = njit(cache=True, nogil=True, error_model="numpy")
