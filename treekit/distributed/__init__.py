"""Training on a Dask cluster; `treekit.train` and the command line call it."""
