"""The built-in importers, registered through the plugin hook."""

from __future__ import annotations

from treekit.contracts import Importer
from treekit.hookspecs import hookimpl
from treekit.interop.sklearn import read_sklearn, recognises_sklearn
from treekit.interop.tree_assembly import ANSWER_SETTING, DTYPE_SETTING


@hookimpl
def treekit_importers() -> list[Importer]:
    """Return the importer of scikit-learn."""
    return [
        Importer(
            name="scikit-learn",
            recognises=recognises_sklearn,
            read=read_sklearn,
            settings=(DTYPE_SETTING, ANSWER_SETTING),
            summary="fitted scikit-learn trees, forests, bagged and boosted trees",
        ),
    ]
