"""Components that break one law each, kept to see that each is reported under that law."""
