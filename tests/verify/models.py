"""Small models with sums, surrogates and divided rows."""

from __future__ import annotations

from treekit.data.schema import Column, Schema
from treekit.model.builder import (
    Surrogate,
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    subset,
    threshold,
)
from treekit.model.model import make_model

SCHEMA = Schema(
    (Column("x"), Column("y"), Column("colour", "nominal", ("red", "green", "blue"))),
    classes=("no", "yes"),
)


def sums_model(**policies):
    inner = oblique({"x": 0.5, "y": -1.25}, 0.875, leaf([3, 1]), leaf([0, 4]), missing=1)
    outer = oblique({"x": 0.3, "y": 0.7}, -0.1, leaf([1, 1]), inner, missing=0)
    return make_model(SCHEMA, [build_tree(outer, SCHEMA)], **policies)


def surrogates_model():
    instead = (
        Surrogate("y", 0.25, below=1),
        Surrogate("colour", levels={"red": 0, "blue": 1}),
    )
    deeper = subset(
        "colour", ["red"], leaf([2, 1]), leaf([1, 2]), 1, surrogates=[Surrogate("y", 1)]
    )
    split = threshold("x", 2.5, leaf([3, 1]), deeper, missing=1, surrogates=instead)
    return make_model(SCHEMA, [build_tree(split, SCHEMA)], missing="surrogate")


def divided_model():
    colours = multiway("colour", {"red": leaf([1, 4]), "blue": leaf([2, 2])})
    known = is_missing("y", leaf([5, 1]), colours)
    root = threshold("x", 2.5, leaf([3, 1]), known)
    return make_model(SCHEMA, [build_tree(root, SCHEMA)] * 2, missing="fractional")
