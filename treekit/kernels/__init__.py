"""Numba kernels: compiled loops over arrays, without input checks."""
