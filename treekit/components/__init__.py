"""Built-in criteria, splitters and pruners, registered through the plugin hooks."""
