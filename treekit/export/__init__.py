"""Writing a model for other languages and runtimes."""
