"""A client of the protocol: rows of a table to a model on a server."""
