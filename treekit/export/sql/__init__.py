"""Models as SQL queries, exact in each dialect: `treekit.export.sql.exporter`."""
