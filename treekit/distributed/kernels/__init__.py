"""Kernels of growth by levels: counts of keys and of codes, and splits by them."""
