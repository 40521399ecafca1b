"""Small lists of rules that between them need every phrase of the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, get_args

import numpy as np

from treekit.data.schema import Column, Output, Schema
from treekit.model.builder import (
    Node,
    Surrogate,
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    subset,
    threshold,
)
from treekit.model.links import Link
from treekit.model.model import make_model
from treekit.rules.conditions import ConditionTable
from treekit.rules.extract import rules
from treekit.rules.records import Rounding
from treekit.rules.rulelist import RuleList

__all__ = ["samples"]


@cache
def samples() -> tuple[RuleList, ...]:
    """Lists of every sort."""
    shortened = replace(next(_numbers()), rounding=Rounding(3, 9, 4, 1, 1000))
    return (*_classes(), *_numbers(), *_sums(), _ordered(), shortened, _decisions())


def _schema(**other: Any) -> Schema:
    colours = ("red", "green", "dark blue", "white")
    columns = [Column("size"), Column("colour", "nominal", colours), Column("no value")]
    columns.append(Column("void", "nominal"))
    return Schema(tuple(columns), **{"target": "ripe", "classes": ("yes", "no")} | other)


def _listed(schema: Schema, *nodes: Node, **policies: Any) -> RuleList:
    return rules(make_model(schema, [build_tree(node, schema) for node in nodes], **policies))


def _classes() -> Iterator[RuleList]:
    """Intervals, sets, missing values, costs, tests, divided rows, several targets."""
    schema, (a, b) = _schema(), (leaf([3, 1]), leaf([1, 4]))
    inner = threshold("size", 9, threshold("size", 10, a, b), leaf([0, 0.5]))
    bounds = threshold("size", 1.5, a, threshold("size", 4, b, inner, missing=0), missing=1)
    sets = subset("colour", ["red", "white", "green"], is_missing("size", a, b), b, missing=0)
    below = multiway("colour", {"red": leaf([3, 1]), "green": leaf([3, 1], 0)})
    yield _listed(schema, bounds, sets, is_missing("colour", a, b), below, leaf([1, 1]))
    yield _listed(schema, bounds, costs=[[0, 1], [9, 0]], missing="error", unknown="error")
    yield _listed(_schema(dtype="float64"), sets, voting="hard")
    wide: dict[int | str, float] = {"size": 0.5, "no value": -1.25}
    instead = [Surrogate("no value", 0.25, below=1), Surrogate("colour", levels={"red": 0})]
    instead.append(Surrogate("colour", levels={"red": 1, "green": 1, "white": 1}))
    stands_in = threshold("size", 2.5, a, b, missing=1, surrogates=instead)
    other = subset("colour", ["red"], a, b, surrogates=(Surrogate("size", 1.0),))
    sums = oblique(wide, 0.875, oblique(wide, 0.875, a, b), b, missing=1)
    long: dict[int | str, float] = {"size": 0.1234567, "no value": -1.7654321}
    yield _listed(schema, sums, oblique(long, 1 / 3, a, is_missing("size", a, b)))
    yield _listed(schema, stands_in, other, missing="surrogate")
    shades = multiway("colour", {"red": a, "white": b})
    yield _listed(schema, threshold("size", 2.5, a, shades), shades, missing="fractional")
    several = _schema(more=(Output("sort", (1, 2, 3)), Output("a b", ("x", "y z"))))
    split = threshold("size", 1, leaf([0, 1, 0, 1, 3, 1, 1]), leaf([1, 3, 3, 1, 0, 0, 2]))
    yield _listed(several, split)


def _ordered() -> RuleList:
    """Two rules, of which the last one asks nothing."""
    disjoint = _listed(_schema(), threshold("size", 0.5, leaf([3, 1]), leaf([1, 4])))
    first = slice(0, 1)
    conditions = ConditionTable._make(part[first] for part in disjoint.conditions)
    return replace(disjoint, order="first", end=np.array([1, 1]), conditions=conditions)


def _decisions() -> RuleList:
    """Labels without shares."""
    split = threshold("size", 0.5, leaf([3, 1]), leaf([1, 4]))
    return replace(_listed(_schema(), split, voting="hard"), decisions=True)


def _numbers() -> Iterator[RuleList]:
    """Means, of one tree, of several, of divided rows, and of several targets."""
    schema = _schema(classes=(), task="regression")
    split = threshold("size", 0.5, leaf(0.1), leaf(-1e9), missing=0)
    yield _listed(schema, split)
    yield _listed(schema, split, split)
    yield _listed(schema, split, missing="fractional")
    several = _schema(classes=(), task="regression", more=(Output("b"),))
    yield _listed(several, threshold("size", 0.5, leaf([0.1, 1e6]), leaf([1.5, -2.0])))


def _sums() -> Iterator[RuleList]:
    """Numbers and margins that are added up, and what they become."""
    schema = _schema(classes=(), task="regression")
    split = threshold("size", 0.5, leaf(0.1), leaf(-1e9), missing=0)
    yield _listed(schema, split, split, combine="sum", link="exp")
    schema = _schema(classes=("a", "b", "c d"))
    some, none = leaf([0.0, 0.5, -2.0], 1.0), leaf([0.0] * 3, 1.0)
    tree = build_tree(threshold("size", 1, some, none), schema, margins=True)
    for link in get_args(Link)[2:]:
        yield rules(make_model(schema, [tree], combine="sum", link=link))
