"""Pairs of models that answer some row differently: whoever writes both writes two things."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from treekit.data.schema import Schema
from treekit.model.builder import Surrogate, is_missing, leaf, multiway, subset, threshold
from treekit.model.model import Model
from treekit.testing.models import COLUMNS, NUMBER, YES_NO, cut, made

__all__ = ["Pair", "answer_pairs", "missing_pairs", "unseen_pairs"]

FEW, MANY = leaf([5.0, 0.0]), leaf([1.0, 6.0])
AT = 0.5


class Pair(NamedTuple):
    """What differs, in words, and the two models."""

    what: str
    one: Model
    other: Model


def _pair(what: str, models: Iterable[Model]) -> Pair:
    return Pair(what, *models)


def missing_pairs() -> Iterator[Pair]:
    """Models that differ in what a missing value does."""
    yield _pair("the side that missing numbers take", (made(YES_NO, cut(AT, s)) for s in (0, 1)))
    sets = [subset("colour", ["red"], FEW, MANY, side) for side in (0, 1)]
    yield _pair("the side that missing levels take", (made(YES_NO, node) for node in sets))
    branches = {"red": FEW, "green": MANY, "blue": MANY}
    ways = [multiway("colour", branches, missing) for missing in (0, 1)]
    yield _pair("the branch that missing levels take", (made(YES_NO, node) for node in ways))
    asked = [is_missing("size", FEW, MANY), is_missing("size", MANY, FEW)]
    yield _pair("the side of a split by what is missing", (made(YES_NO, node) for node in asked))
    sided, level = made(YES_NO, cut(AT)), made(YES_NO, sets[0])
    yield Pair("missing numbers take a side or are an error",
               sided, made(YES_NO, cut(AT), missing="error"))  # fmt: skip
    yield Pair("missing levels take a side or are an error",
               level, made(YES_NO, sets[0], missing="error"))  # fmt: skip
    yield Pair("missing numbers take a side or divide the row",
               sided, made(YES_NO, cut(AT), missing="fractional"))  # fmt: skip
    spare = [(Surrogate("age", 2.5, below=side),) for side in (0, 1)]
    nodes = [threshold("size", AT, FEW, MANY, 1, own) for own in spare]
    yield _pair("what a surrogate answers", (made(YES_NO, n, missing="surrogate") for n in nodes))


def unseen_pairs() -> Iterator[Pair]:
    """Models that differ in what a text outside the vocabulary does, or a level not seen there."""
    node = subset("colour", ["red"], FEW, MANY, 0)
    yield Pair("unseen levels are missing or an error",
               made(YES_NO, node), made(YES_NO, node, unknown="error"))  # fmt: skip
    sides = [subset("colour", ["red"], FEW, MANY, 0, absent) for absent in ((), ["blue"])]
    yield _pair("the side of a level that a split never saw", (made(YES_NO, n) for n in sides))


def answer_pairs() -> Iterator[Pair]:
    """Models that differ in a threshold, a leaf, a level or a label."""
    up = float(np.nextafter(np.float32(AT), np.float32(1)))
    one = made(YES_NO, cut(AT))
    yield Pair("a threshold, by its last bit", one, made(YES_NO, cut(up)))
    yield Pair("the column that is asked", one, made(YES_NO, cut(AT, column="age")))
    sets = [subset("colour", own, FEW, MANY) for own in (["red"], ["red", "blue"])]
    yield _pair("a level of a set", (made(YES_NO, node) for node in sets))
    leaves = [threshold("size", AT, FEW, leaf([1.0, weight])) for weight in (6.0, 6.0001)]
    yield _pair("the shares of a leaf", (made(YES_NO, node) for node in leaves))
    numbers = [threshold("size", AT, leaf(1.0), leaf(value)) for value in (0.1, 0.1 + 1e-9)]
    yield _pair("the number of a leaf", (made(NUMBER, node) for node in numbers))
    yield Pair("a tree more", one, made(YES_NO, cut(AT), cut(2.0)))
    other, wide = (
        Schema(COLUMNS, "y", classes=("no", "maybe")),
        Schema(COLUMNS, "y", classes=("no", "yes"), dtype="float64"),
    )
    yield Pair("a label", one, made(other, cut(AT)))
    yield Pair("the type of the inputs", one, made(wide, cut(AT)))
    trees = cut(AT), cut(2.0), cut(-1.0)
    yield Pair("soft votes or hard ones",
               made(YES_NO, *trees), made(YES_NO, *trees, voting="hard"))  # fmt: skip
    costs = np.array([[0, 1], [9, 0]], dtype=np.int64)
    yield Pair("what mistakes cost", one, made(YES_NO, cut(AT), costs=costs))
