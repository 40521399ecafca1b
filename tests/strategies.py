"""Hypothesis strategies: schemas, trees of every split kind, models, and rows that probe them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from treekit.data.schema import Column, Dtype, Schema
from treekit.model.build import Node, build_tree, is_missing, leaf, multiway, subset, threshold
from treekit.model.ensemble import Model, make_model
from treekit.model.portable import floor_to
from treekit.model.tree import Split

__all__ = ["finite", "matrices", "models", "nodes", "schemas"]

FLOAT32_MAX = float(np.finfo(np.float32).max)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 2.0**-126, FLOAT32_MAX, -FLOAT32_MAX, 16777217.0]
NEVER_CODES = [math.nan, -1.0, 0.5, 1e6, math.inf, -math.inf]


def finite(dtype: Dtype) -> st.SearchStrategy[float]:
    """Finite numbers of the input type, the awkward ones often."""
    width = 32 if dtype == "float32" else 64
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=width)
    return st.one_of(st.sampled_from(SPECIAL), numbers).map(
        lambda x: float(floor_to(x, dtype)) if math.isfinite(x) else x
    )


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """One to four columns of both kinds; both tasks; both input types."""
    sizes = draw(st.lists(st.sampled_from([-1, -1, -1, 0, 1, 3, 6, 40]), min_size=1, max_size=4))
    columns = tuple(
        Column(f"x{i}")
        if size < 0
        else Column(f"x{i}", "nominal", tuple(f"level {k}" for k in range(size)))
        for i, size in enumerate(sizes)
    )
    dtype: Any = draw(st.sampled_from(["float32", "float64"]))
    n_classes = draw(st.integers(0, 4))
    if n_classes == 0:
        return Schema(columns=columns, task="regression", dtype=dtype)
    return Schema(
        columns=columns, classes=tuple(f"class {k}" for k in range(n_classes)), dtype=dtype
    )


@st.composite
def leaves(draw: st.DrawFn, schema: Schema) -> Node:
    """A leaf with whole or fractional class weights, or a number."""
    if schema.task == "regression":
        return leaf(draw(st.floats(-1e12, 1e12)))
    weights = draw(
        st.lists(
            st.one_of(st.integers(0, 9).map(float), st.floats(0, 1e6)),
            min_size=schema.n_values,
            max_size=schema.n_values,
        )
    )
    return leaf(weights if sum(weights) > 0 else [1.0] * schema.n_values)


@st.composite
def nodes(draw: st.DrawFn, schema: Schema, depth: int = 4) -> Node:
    """A node with up to `depth` levels below it, of every kind of split."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(leaves(schema))
    feature = draw(st.integers(0, schema.n_features - 1))
    column = schema.columns[feature]
    below = nodes(schema, depth - 1)
    side = draw(st.integers(0, 1))
    if draw(st.integers(0, 4)) == 0:
        return is_missing(feature, draw(below), draw(below))
    if column.kind == "numeric":
        at = draw(finite(schema.dtype))
        return threshold(feature, at, draw(below), draw(below), side)
    if column.levels and draw(st.booleans()):
        named = draw(st.lists(st.sampled_from(column.levels), min_size=1, max_size=4, unique=True))
        branches = {level: draw(below) for level in named}
        return multiway(feature, branches, draw(st.integers(0, len(named) - 1)))
    routes = {level: draw(st.sampled_from([0, 1, -1])) for level in column.levels[:8]}
    left = [level for level, route in routes.items() if route == 0]
    absent = [level for level, route in routes.items() if route == -1]
    return subset(feature, left, draw(below), draw(below), side, absent)


@st.composite
def models(draw: st.DrawFn, max_trees: int = 3) -> Model:
    """A model of one to `max_trees` random trees."""
    schema = draw(schemas())
    roots = draw(st.lists(nodes(schema), min_size=1, max_size=max_trees))
    return make_model(schema, [build_tree(root, schema) for root in roots])


def cells(model: Model, feature: int) -> st.SearchStrategy[float]:
    """Cells of a column: its thresholds, an ulp to either side in both types, and odd ones."""
    column = model.schema.columns[feature]
    if column.kind == "nominal":
        codes = [*NEVER_CODES, -0.0, *(float(k) for k in range(len(column.levels) + 2))]
        return st.sampled_from(codes)
    probes = [0.0, -0.0, math.nan, math.inf, -math.inf]
    for tree in model.trees:
        asked = (tree.kind == Split.THRESHOLD) & (tree.feature == feature)
        for t in tree.threshold[asked].tolist():
            with np.errstate(over="ignore"):
                single = np.float32(t)
                beside = [float(np.nextafter(single, np.float32(s))) for s in (-np.inf, np.inf)]
            probes += [t, *beside, math.nextafter(t, -math.inf), math.nextafter(t, math.inf)]
            probes += [t / 2 + b / 2 for b in beside if math.isfinite(b)]
    return st.one_of(st.sampled_from(probes), st.floats())


@st.composite
def matrices(draw: st.DrawFn, model: Model, max_rows: int = 12) -> np.ndarray:
    """(rows, features) float64, not yet rounded to the input type; 0 to `max_rows` rows."""
    row = st.tuples(*(cells(model, f) for f in range(model.schema.n_features)))
    rows = draw(st.lists(row, max_size=max_rows))
    return np.array(rows, dtype=np.float64).reshape(len(rows), model.schema.n_features)
