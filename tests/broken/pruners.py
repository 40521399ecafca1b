"""Pruners that each violate one law."""

import itertools
from dataclasses import replace

import numpy as np

from treekit import Pruner, PrunerFunctions, Setting
from treekit.components.pruning import collapse


def share_of_largest(parent, children, held_parent, held_children):
    return children.max() / parent.sum()


turns = itertools.count()


def alternating(parent, children, held_parent, held_children):
    return next(turns) % 2 == 0


def enough_rows(parent, children, held_parent, held_children):
    return bool(parent.sum() > 3.0)


def first_is_larger(parent, children, held_parent, held_children):
    return bool(children[0].sum() > 0.3 * parent.sum())


def two_branches(parent, children, held_parent, held_children):
    return children.shape[0] <= 2


def first_held_class(parent, children, held_parent, held_children):
    raise KeyError(f"{held_parent[0]} held-out rows")


def scales_in_place(parent, children, held_parent, held_children):
    children /= parent.sum()
    return True


def moved(tree, context):
    return replace(tree, threshold=np.floor(tree.threshold) - 1.0)


def smoothed(tree, context):
    return replace(tree, value=tree.value + 1.0)


def clears_statistics(tree, context):
    context.stats[:] = 0.0
    return tree


def returns_a_mask(tree, context):
    return tree.gain > 0.0


def half(tree, context):
    cut = np.zeros(tree.n_nodes, bool)
    cut[next(turns) % tree.n_nodes] = True
    return collapse(tree, cut)


def make_with_share(share):
    bar = 1.0 / share

    def before(parent, children, held_parent, held_children):
        return bool(children.max() * bar > 0.0)

    return PrunerFunctions(before=before)


def before(function):
    return Pruner(
        function.__name__, lambda: PrunerFunctions(before=function), task="classification"
    )


def after(function):
    return Pruner(function.__name__, lambda: PrunerFunctions(after=function), task="classification")


BROKEN = [
    ("answers-every-node", before(first_held_class)),
    ("returns-numbers", before(share_of_largest)),
    ("inputs-are-not-written", before(scales_in_place)),
    ("inputs-are-not-written", after(clears_statistics)),
    ("same-input-same-answer", before(alternating)),
    ("same-input-same-answer", after(half)),
    ("doubling-weights-changes-nothing", before(enough_rows)),
    ("permuting-branches-changes-nothing", before(first_is_larger)),
    ("empty-branches-change-nothing", before(two_branches)),
    ("returns-a-tree", after(returns_a_mask)),
    ("pruned-tree-is-a-subtree", after(moved)),
    ("leaves-keep-their-values", after(smoothed)),
    (
        "settings-work-at-their-bounds",
        Pruner("shares", make_with_share, (Setting("share", 0.5, "a share", minimum=0.0),)),
    ),
]
"""Pruners, each with the one law that it breaks."""
