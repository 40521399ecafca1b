"""Loops over trees and rows for verification, compiled as those of `treekit.kernels`."""
