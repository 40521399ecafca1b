"""Tests of treekit; `tests.reference` holds plain slow oracles."""
