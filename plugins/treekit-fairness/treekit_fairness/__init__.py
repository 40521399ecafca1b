"""Fair trees for treekit: criterion `fairness`, pruner `relabel` and disparity measures.

F. Kamiran, T. Calders and M. Pechenizkiy, "Discrimination aware decision tree
learning", IEEE International Conference on Data Mining, 2010, pp. 869-874.
"""

from treekit import Criterion, Pruner, hookimpl
from treekit_fairness.criterion import SETTINGS, make
from treekit_fairness.disparity import (
    demographic_parity_difference,
    equalised_odds_difference,
)
from treekit_fairness.relabel import EXEMPT, RELABEL_SETTINGS, relabel
from treekit_fairness.tables import adult
from treekit_fairness.task import FAIRNESS

__all__ = ["adult", "demographic_parity_difference", "equalised_odds_difference"]

treekit_contract = 2


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
