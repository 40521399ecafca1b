"""The built-in criteria, splitters and pruners, registered as a plugin's are."""
