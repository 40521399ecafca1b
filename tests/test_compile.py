"""The one decorator of all kernels."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from treekit.kernels import predict
from treekit.kernels.compile import kernel


def from_nowhere():
    """A function of no file: numba finds no folder for its cache, as on a read-only disk."""
    names: dict = {}
    exec(compile("def ratio(a, b):\n    return a / b\n", "<nowhere>", "exec"), names)
    return names["ratio"]


def test_a_kernel_compiles_where_no_cache_can_be_written():
    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(cache=True)(from_nowhere())
    assert kernel(from_nowhere())(1.0, 4.0) == 0.25


def test_kernels_divide_as_ieee_says():
    ratio = kernel(from_nowhere())
    assert ratio(1.0, 0.0) == np.inf
    assert np.isnan(ratio(0.0, 0.0))


def test_kernels_release_the_lock_of_the_interpreter_and_are_cached():
    options = predict.add_units.targetoptions
    assert options["nogil"]
    assert options["error_model"] == "numpy"
    assert predict.add_units._cache.cache_path
