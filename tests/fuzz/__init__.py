"""Damaged files: how they are damaged, and what a reader is allowed to do with them."""
