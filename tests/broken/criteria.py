"""Criteria that each violate one law."""

import math
from dataclasses import replace

import numpy as np

from treekit import Criterion, CriterionExtras, CriterionFunctions, Setting
from treekit.components.criteria import make_squared_error


def gini(stats):
    total = 0.0
    squares = 0.0
    for k in range(stats.shape[0]):
        total += stats[k]
        squares += stats[k] * stats[k]
    return 1.0 - squares / (total * total)


def decrease(parent, children):
    left = 0.0
    for b in range(children.shape[0]):
        weight = children[b].sum()
        if weight > 0.0:
            left += weight * gini(children[b])
    return gini(parent) - left / parent.sum()


def of_classes(name, settings=(), exempt=(), make=None, **functions):
    make = make or (lambda **own: CriterionFunctions(**functions))
    return Criterion(name, "classification", make, settings, exempt=dict(exempt))


def entropy_without_a_guard(stats):
    total = stats.sum()
    return -sum(p / total * math.log(p / total) for p in stats)


def nothing_for_pure_nodes(stats):
    return gini(stats) if stats.max() < stats.sum() else None


def entropy_of_zeros(stats):
    shares = stats / stats.sum()
    return -(shares * np.log(shares)).sum()


def in_place(stats):
    stats /= stats.sum()
    return 1.0 - (stats * stats).sum()


calls = []


def changing_result(stats):
    calls.append(stats)
    return gini(stats) * (1.0 + 1e-3 * (len(calls) % 2))


def gini_plus_constant(stats):
    return gini(stats) + 0.1


def negative_gini(stats):
    return -gini(stats)


def squared(stats):
    shares = stats / stats.sum()
    return ((4.0 * shares * (1.0 - shares)) ** 2).sum()


def negative_for_four(stats):
    return gini(stats) if (stats > 0.0).sum() < 4 else -gini(stats)


def gini_plus_decrease(parent, children):
    return gini(parent) + decrease(parent, children)


def smaller_is_better(parent, children):
    return -decrease(parent, children)


def counts_rows(stats):
    return gini(stats) * stats.sum()


def first_class_first(stats):
    share = stats[0] / stats.sum()
    return gini(stats) + share * (1.0 - share)


def left_is_better(parent, children):
    return decrease(parent, children) * (1.0 + 0.01 * children[0].sum() / parent.sum())


def few_branches(parent, children):
    return decrease(parent, children) / children.shape[0]


def loss_of_weight_squared(stats, judged):
    return judged[0] * judged[0] + 0.0 * stats[0]


def choose_first_column(gains, scores, levels):
    return 0


def powered(power):
    scale = 1.0 / power

    def impurity(stats):
        return scale * gini(stats)

    return CriterionFunctions(impurity=impurity)


def beyond_64_bits(stats):
    large = 2**40 + int(stats.sum())
    return gini(stats) if float(large * large) > 1e20 else 2.0 * gini(stats)


def raises_at_80_rows(stats):
    if stats.sum() == 80.0 and stats[0] == 27.0:
        raise ValueError("80 rows")
    return gini(stats)


BROKEN = {
    "record-is-well-formed": Criterion("ranks", "ranking", powered),
    "makes-its-functions": of_classes("a_dict", make=lambda: {"impurity": gini}),
    "declares-laws-there-are": of_classes(
        "misspelt", exempt={"purity-is-nil": "a slip"}, impurity=gini
    ),
    "answers-every-node": of_classes("unguarded", impurity=entropy_without_a_guard),
    "returns-numbers": of_classes("none", impurity=nothing_for_pure_nodes),
    "finite-values": of_classes("nan", impurity=entropy_of_zeros),
    "inputs-are-not-written": of_classes("in_place", impurity=in_place),
    "same-input-same-answer": of_classes("changing_result", impurity=changing_result),
    "purity-is-zero": of_classes("gini_plus_constant", impurity=gini_plus_constant),
    "impurity-is-not-negative": of_classes("negative_gini", impurity=negative_gini),
    "useless-split-scores-zero": of_classes("gini_plus_decrease", score=gini_plus_decrease),
    "larger-is-better": of_classes("smaller", score=smaller_is_better),
    "doubling-weights-changes-nothing": of_classes("counts", impurity=counts_rows),
    "permuting-classes-changes-nothing": of_classes(
        "first_class_first", impurity=first_class_first
    ),
    "permuting-branches-changes-nothing": of_classes("left_is_better", score=left_is_better),
    "empty-branches-change-nothing": of_classes("few", score=few_branches),
    "loss-adds-up": Criterion(
        "squares", "regression", lambda: replace(make_squared_error(), loss=loss_of_weight_squared)
    ),
    "chooses-among-columns": of_classes(
        "first", impurity=gini, score=decrease, extras=CriterionExtras(choose=choose_first_column)
    ),
    "terms-give-the-score": of_classes(
        "halves",
        impurity=gini,
        score=decrease,
        extras=CriterionExtras(term=lambda w: 0.5 * w, term_score=decrease),
    ),
    "counts-give-the-score": of_classes(
        "third",
        impurity=gini,
        score=decrease,
        extras=CriterionExtras(count_score=lambda p, c: decrease(p, c) / 3.0),
    ),
    "settings-work-at-their-bounds": of_classes(
        "powered", (Setting("power", 1.0, "the power", minimum=0.0),), make=powered
    ),
    "compiled-equals-plain": of_classes("large", impurity=beyond_64_bits),
    "trains-on-small-tables": of_classes("raises_at_80_rows", impurity=raises_at_80_rows),
    "splitting-never-mixes": of_classes("squared", impurity=squared),
}
"""One criterion for each law, which breaks that law and no other."""

FURTHER = (("impurity-is-not-negative", of_classes("of_four", impurity=negative_for_four)),)
"""Laws, and criteria that break them where few would look."""
