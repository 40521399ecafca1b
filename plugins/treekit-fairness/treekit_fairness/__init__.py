"""Fair trees: the criterion `fairness` and the pruner `relabel` for treekit, and disparities.

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
    """Offer the criterion to treekit."""
    return [Criterion("fairness", FAIRNESS, make, SETTINGS, "classes, but not groups")]


@hookimpl
def treekit_pruners():
    """Offer the pruner to treekit."""
    return [
        Pruner(
            "relabel", relabel, RELABEL_SETTINGS, "leaves change sides until groups fare alike",
            task=FAIRNESS, costs=False, exempt=EXEMPT,
        ),
    ]  # fmt: skip


def __getattr__(name):
    # What needs NumPy waits until it is used: treekit reads this page whenever it starts.
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
