"""Compilation: the library of kernels, made when the package is built."""
