"""Comparisons with peers, both sides in one run; see README.md."""
