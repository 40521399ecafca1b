"""The importers that come with treekit, through the hook that plugins use."""

from __future__ import annotations

from treekit.contracts import Importer
from treekit.hookspecs import hookimpl
from treekit.interop.sklearn import read_sklearn, recognises_sklearn

__all__ = ["treekit_importers"]


@hookimpl
def treekit_importers() -> list[Importer]:
    """scikit-learn's trees and forests."""
    return [
        Importer(
            name="scikit-learn",
            recognises=recognises_sklearn,
            read=read_sklearn,
            summary="fitted decision trees, random forests and extra trees",
        )
    ]
