"""Components that each violate one law, to test that each is reported under that law."""
