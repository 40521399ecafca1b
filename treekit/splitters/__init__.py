"""The built-in ways to find a split."""
