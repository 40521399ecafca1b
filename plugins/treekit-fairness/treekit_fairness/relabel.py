"""Leaves change sides until groups fare alike (Kamiran, Calders and Pechenizkiy 2010, section 4).

A leaf that answers the other class costs accuracy and moves the rate of that class in
each group.  To reach a bound at the least cost is a knapsack problem; as in the paper,
the leaf goes first that lowers the disparity most for each row that it gets wrong; at
the end those go back that the bound does not need, costly ones first.
"""

from treekit import PrunerFunctions, Setting, SettingError

__all__ = ["EXEMPT", "RELABEL_SETTINGS", "relabel"]

RELABEL_SETTINGS = (
    Setting(
        "bound", 0.0,
        "largest difference between groups in the rate of a class that is left alone",
        minimum=0.0, maximum=1.0,
    ),
    Setting(
        "holdout", 0.0,
        "share of the training rows that is set aside to choose the leaves by; 0: all are trained "
        "on, and choose",
        minimum=0.0, maximum=0.9,
    ),
)  # fmt: skip

EXEMPT = {"leaves-keep-their-values": "a relabelled leaf says the other class: that is the point"}


def relabel(bound, holdout):
    """The pruner; it asks for the criterion `fairness`, by whose cells it counts groups."""

    def after(tree, context):
        """The same tree, in some leaves of which the weights of the two classes change places."""
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
        # Of a tie the first class is the label: only a lead makes it the second.
        value[leaves[flipped]] = np.where(other[:, :1] == other[:, 1:], [0.0, 1.0] * other, other)
        return tree.with_value(value)

    return PrunerFunctions(after=after, holdout=holdout)


def _cells(context):
    """How the statistics lie, for two classes."""
    cells = context.losses.layout.extra
    if cells.classes != 2:
        raise SettingError(f"relabel chooses between two classes, and there are {cells.classes}")
    return cells


def _choose(rows, says, bound):
    """Which leaves to relabel.

    Parameters
    ----------
    rows : (leaves, 2, groups) float64
        Weight of each class and group.
    says : (leaves,) int
        The class that each leaf answers.
    bound : float

    Returns
    -------
    flipped : (leaves,) bool
    before, after : float
        The disparity.
    """
    import numpy as np

    in_group = rows.sum(axis=1)
    # A group that has no rows here has no rate, and is not compared.
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
        # A large step at the end may have made costly ones before it needless.
        if flipped[leaf] and np.ptp(rate - move[leaf]) <= bound:
            flipped[leaf] = False
            rate = rate - move[leaf]
    return flipped, before, float(np.ptp(rate))
