"""Loads on a running server; each module is a script of its own."""
