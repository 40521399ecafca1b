"""Compilation of plugins' functions, and of built-in components that the library lacks."""
