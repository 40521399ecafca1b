"""Training and scoring on a Dask cluster; `treekit.train` and the command line call it.

`cluster` runs tasks, and `failures` explains what stops them.  `whole_trees` and `levels` train;
`collections` and `score_files` predict; `parquet_files` reads and writes tables.
"""
