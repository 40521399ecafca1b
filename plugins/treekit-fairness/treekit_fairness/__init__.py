"""Fair trees for treekit: criterion `fairness`, pruner `relabel` and disparity measures.

F. Kamiran, T. Calders and M. Pechenizkiy, "Discrimination aware decision tree
learning", IEEE International Conference on Data Mining, 2010, pp. 869-874.
"""

import importlib

from treekit import Criterion, Pruner, hookimpl
from treekit_fairness.criterion import SETTINGS, make
from treekit_fairness.relabel import EXEMPT, RELABEL_SETTINGS, relabel
from treekit_fairness.task import FAIRNESS

__all__ = ["adult", "demographic_parity_difference", "equalised_odds_difference"]

treekit_contract = 2

_MODULE_OF = {
    "adult": "tables",
    "demographic_parity_difference": "disparity",
    "equalised_odds_difference": "disparity",
}


@hookimpl
def treekit_criteria():
    """Register the criterion."""
    return [Criterion("fairness", FAIRNESS, make, SETTINGS, "separates classes, not groups")]


@hookimpl
def treekit_pruners():
    """Register the pruner."""
    return [
        Pruner(
            "relabel", relabel, RELABEL_SETTINGS, "relabels leaves until group rates are close",
            task=FAIRNESS, costs=False, exempt=EXEMPT,
        ),
    ]  # fmt: skip


def __getattr__(name):
    # Imported on first use: treekit imports this module at start-up, and NumPy is slow to import.
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
