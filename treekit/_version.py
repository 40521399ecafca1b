"""The version, read by the build and by `treekit.__version__`."""

__version__ = "0.1.0"
