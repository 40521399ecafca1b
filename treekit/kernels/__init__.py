"""The compiled loops: plain functions over arrays, no checks, no strings."""
