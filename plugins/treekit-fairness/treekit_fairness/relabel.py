"""Leaf relabelling for equal group rates (Kamiran, Calders and Pechenizkiy 2010, section 4).

Relabelling a leaf costs accuracy and changes the rate of the class in each group.
Reaching a bound at the least cost is a knapsack problem. As in the paper, it is solved
greedily: the leaf with the largest decrease of disparity per misclassified row goes
first. At the end, leaves that the bound does not need are restored, costly ones first.
"""

from treekit import PrunerFunctions, Setting, SettingError

__all__ = ["EXEMPT", "RELABEL_SETTINGS", "relabel"]

RELABEL_SETTINGS = (
    Setting(
        "bound", 0.0,
        "largest tolerated difference between groups in the rate of a class",
        minimum=0.0, maximum=1.0,
    ),
    Setting(
        "holdout", 0.0,
        "share of training rows held out to choose the leaves; 0: choose them on the training "
        "rows",
        minimum=0.0, maximum=0.9,
    ),
)  # fmt: skip

EXEMPT = {"leaves-keep-their-values": "relabelling changes the class of leaves by design"}


def relabel(bound, holdout):
    """Return the pruner's functions; it requires the criterion `fairness`, which counts groups."""

    def after(tree, context):
        """Return the tree with the two class weights swapped in the relabelled leaves."""
        cells = _cells(context)
        import numpy as np

        stats = context.held_stats if holdout > 0.0 or context.validated else context.stats
        leaves = tree.leaves
        rows = stats[leaves].reshape(-1, 2, cells.groups)
        says = tree.value[leaves].argmax(axis=1)
        flipped, before, left = _choose(rows, says, bound)
        context.report["relabel"] = {
            "leaves": int(flipped.sum()), "disparity_before": before, "disparity": left,
        }  # fmt: skip
        value = tree.value.copy()
        other = value[leaves[flipped]][:, ::-1]
        # A tie predicts the first class: to predict the second, it needs the larger weight.
        value[leaves[flipped]] = np.where(other[:, :1] == other[:, 1:], [0.0, 1.0] * other, other)
        return tree.with_value(value)

    return PrunerFunctions(after=after, holdout=holdout)


def _cells(context):
    """Return the layout of the statistics, checked to have two classes."""
    cells = context.losses.layout.extra
    if cells.classes != 2:
        raise SettingError(f"relabel requires two classes, got {cells.classes}")
    return cells


def _choose(rows, says, bound):
    """Choose the leaves to relabel.

    Parameters
    ----------
    rows : (leaves, 2, groups) float64
        Weight of each class and group.
    says : (leaves,) int
        Predicted class of each leaf.
    bound : float

    Returns
    -------
    flipped : (leaves,) bool
    before, after : float
        Disparity before and after relabelling.
    """
    import numpy as np

    in_group = rows.sum(axis=1)
    # A group without rows has no rate and is not compared.
    held = in_group.sum(axis=0) > 0.0
    share = in_group[:, held] / in_group[:, held].sum(axis=0)
    rate = share[says == 1].sum(axis=0)
    move = np.where(says[:, None] == 1, -share, share)
    weight = rows.sum(axis=2)
    place = np.arange(len(rows))
    cost = np.maximum(weight[place, says] - weight[place, 1 - says], 0.0)
    flipped = np.zeros(len(rows), dtype=bool)
    before = after = float(np.ptp(rate))
    while after > bound:
        gain = after - np.ptp(rate + move, axis=1)
        open_ = ~flipped & (gain > 1e-12)
        if not open_.any():
            break
        worth = np.where(open_, gain / np.maximum(cost, 1e-300), -np.inf)
        best = int(worth.argmax())
        flipped[best] = True
        rate = rate + move[best]
        after = float(np.ptp(rate))
    for leaf in np.argsort(-cost, kind="stable"):
        # A large last step may have made earlier, costlier ones unnecessary.
        if flipped[leaf] and np.ptp(rate - move[leaf]) <= bound:
            flipped[leaf] = False
            rate = rate - move[leaf]
    return flipped, before, float(np.ptp(rate))
