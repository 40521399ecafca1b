"""Tests of treekit; `tests.reference` contains simple, slow oracles."""
