"""Criteria of tasks whose layouts each violate one law."""

from functools import partial

import numpy as np

from tests.broken.criteria import decrease
from treekit import Criterion, CriterionFunctions, Layout, Setting, Task

SETTINGS = (Setting("arm", "arm", "column of the arms"),)


def shares(stats):
    return stats[:, :1] / stats.sum(axis=1, keepdims=True)


def by_arm(labels, target, columns):
    return columns["arm"].codes(labels)


def criterion(name, lay_out, answers="regression"):
    task = Task(name, "classification", answers, lay_out, ("arm",), SETTINGS)
    return Criterion(name, task, lambda layout: CriterionFunctions(score=decrease))


def with_answer(answer, **options):
    """A criterion whose nodes answer so."""

    def lay_out(target, columns):
        labels = columns["arm"].labels
        return Layout(len(labels), partial(by_arm, labels), answer, ("share",))

    return criterion(answer.__name__, lay_out, **options)


def with_constant(constant):
    """A criterion whose answers hold a number of the training rows."""

    def lay_out(target, columns):
        labels, more = columns["arm"].labels, constant(target, columns)

        def answer(stats):
            return shares(stats) + more

        return Layout(len(labels), partial(by_arm, labels), answer, ("share",))

    return criterion(constant.__name__, lay_out)


def with_place(place):
    """A criterion whose rows are placed so."""
    return criterion(place.__name__, lambda target, columns: Layout(2, place, shares, ("share",)))


def kept(stats):
    return shares(stats)


def misses(stats):
    return shares(stats)[:, 0]


def numbered(stats):
    return shares(stats) + np.arange(len(stats))[:, None]


def relative(stats):
    return shares(stats) - shares(stats).mean()


def only_one(stats):
    return shares(stats) if len(stats) == 1 else shares(stats)[::-1]


calls = []


def counter(stats):
    calls.append(len(stats))
    return shares(stats) + len(calls)


def absolute(stats):
    return stats[:, :1].copy()


def rows_counted(target, columns):
    return len(target.values)


def first_row(target, columns):
    return float(columns["arm"].values[0])


hidden = np.random.default_rng(0)


def drawn(target, columns):
    return hidden.random()


def most_frequent(target, columns):
    cells = columns["arm"].values.astype(int)
    return (cells == np.bincount(cells).argmax()).astype(int)


def own_labels(target, columns):
    return columns["arm"].codes(columns["arm"].labels)


def by_number(target, columns):
    return np.arange(len(target.values)) % 2


def empty_arm(target, columns):
    def answer(stats):
        return stats - 1.0

    labels = columns["arm"].labels
    return Layout(len(labels), partial(by_arm, labels), answer)


SOUND = with_answer(kept)
BROKEN = (
    ("layout-answers-every-node", criterion("arms", empty_arm, answers="classification")),
    ("layout-answers-every-node", with_answer(misses)),
    ("layout-answers-each-node-alone", with_answer(numbered)),
    ("layout-answers-each-node-alone", with_answer(relative)),
    ("layout-answers-each-node-alone", with_answer(only_one)),
    ("same-input-same-answer", with_answer(counter)),
    ("doubling-weights-changes-nothing", with_answer(absolute)),
    ("integer-weights-equal-repeated-rows", with_constant(rows_counted)),
    ("permuting-rows-changes-nothing", with_constant(first_row)),
    ("same-input-same-answer", with_constant(drawn)),
    ("layout-places-each-row-alone", with_place(most_frequent)),
    ("layout-places-each-row-alone", with_place(own_labels)),
    ("layout-places-each-row-alone", with_place(by_number)),
)
"""Laws, and criteria that break that law and no other."""
