"""Target "sql": models as SQL queries, exact in each dialect."""
