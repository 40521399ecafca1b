"""Hypothesis strategies for schemas, trees of every kind of split, models, and probing rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from treekit.data.schema import Column, Dtype, Output, Schema
from treekit.model.builder import (
    Node,
    Surrogate,
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    rule,
    subset,
    threshold,
)
from treekit.model.fixed_point import floor_to_dtype
from treekit.model.model import Model, make_model
from treekit.model.tree import Split, Tree

__all__ = ["ALL_KINDS", "finite", "matrices", "models", "nodes", "rule_lists", "schemas"]

FLOAT32_MAX = float(np.finfo(np.float32).max)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 2.0**-126, FLOAT32_MAX, -FLOAT32_MAX, 16777217.0]
NEVER_CODES = [math.nan, -1.0, 0.5, 1e6, math.inf, -math.inf]

ALL_KINDS = frozenset({"oblique", "surrogates", "fractional", "outputs", "costs", "hard", "rules"})
"""Features that `models` may draw in addition to plain trees of one output with soft voting."""


def finite(dtype: Dtype) -> st.SearchStrategy[float]:
    """Draw finite numbers of the input type, often special ones."""
    width = 32 if dtype == "float32" else 64
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=width)
    return st.one_of(st.sampled_from(SPECIAL), numbers).map(
        lambda x: float(floor_to_dtype(x, dtype)) if math.isfinite(x) else x
    )


@st.composite
def schemas(draw: st.DrawFn, max_outputs: int = 1) -> Schema:
    """Draw one to four columns of both kinds, a task and an input type."""
    sizes = draw(st.lists(st.sampled_from([-1, -1, -1, 0, 1, 3, 6, 40]), min_size=1, max_size=4))
    columns = tuple(
        Column(f"x{i}")
        if size < 0
        else Column(f"x{i}", "nominal", tuple(f"level {k}" for k in range(size)))
        for i, size in enumerate(sizes)
    )
    dtype: Any = draw(st.sampled_from(["float32", "float64"]))
    n_classes = draw(st.integers(0, 4))
    n_more = draw(st.integers(0, max_outputs - 1))
    if n_classes == 0:
        more = tuple(Output(f"number {k}") for k in range(n_more))
        return Schema(columns=columns, task="regression", dtype=dtype, more=more)
    more = tuple(Output(f"label {k}", tuple(range(draw(st.integers(1, 3))))) for k in range(n_more))
    return Schema(
        columns=columns,
        classes=tuple(f"class {k}" for k in range(n_classes)),
        dtype=dtype,
        more=more,
    )


@st.composite
def leaves(draw: st.DrawFn, schema: Schema, weighed: bool = False) -> Node:
    """Draw a leaf with integer or fractional class weights, or a number, for each output."""
    weights_of_nodes = st.one_of(st.none(), st.integers(0, 9).map(float), st.floats(0, 1e6))
    weight = draw(weights_of_nodes) if weighed else None
    if schema.task == "regression":
        numbers = st.floats(-1e12, 1e12)
        size = schema.n_values
        return leaf(draw(st.lists(numbers, min_size=size, max_size=size)), weight)
    values: list[float] = []
    for output in schema.outputs:
        size = len(output.classes)
        weights = draw(
            st.lists(
                st.one_of(st.integers(0, 9).map(float), st.floats(0, 1e6)),
                min_size=size,
                max_size=size,
            )
        )
        values += weights if sum(weights) > 0 else [1.0] * size
    return leaf(values, weight)


@st.composite
def nodes(draw: st.DrawFn, schema: Schema, depth: int = 4, kinds: Collection[str] = ()) -> Node:
    """Draw a node of any kind of split, with up to `depth` levels below it."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(leaves(schema, "fractional" in kinds))
    feature = draw(st.integers(0, schema.n_features - 1))
    column = schema.columns[feature]
    below = nodes(schema, depth - 1, kinds)
    side = draw(st.integers(0, 1))
    if draw(st.integers(0, 4)) == 0:
        return is_missing(feature, draw(below), draw(below))
    others = draw(surrogates(schema)) if "surrogates" in kinds and draw(st.booleans()) else ()
    if column.kind == "numeric":
        at = draw(finite(schema.dtype))
        if "oblique" in kinds and schema.dtype == "float32" and draw(st.booleans()):
            return oblique(draw(terms(schema)), at, draw(below), draw(below), side)
        return threshold(feature, at, draw(below), draw(below), side, others)
    if column.levels and not others and draw(st.booleans()):
        named = draw(st.lists(st.sampled_from(column.levels), min_size=1, max_size=4, unique=True))
        branches = {level: draw(below) for level in named}
        return multiway(feature, branches, draw(st.integers(0, len(named) - 1)))
    routes = {level: draw(st.sampled_from([0, 1, -1])) for level in column.levels[:8]}
    left = [level for level, route in routes.items() if route == 0]
    absent = [level for level, route in routes.items() if route == -1]
    return subset(feature, left, draw(below), draw(below), side, absent, others)


@st.composite
def terms(draw: st.DrawFn, schema: Schema) -> dict[int | str, float]:
    """Draw numeric columns with weights, small integers and special numbers."""
    numeric = np.flatnonzero(~schema.nominal).tolist()
    chosen = draw(st.lists(st.sampled_from(numeric), min_size=1, unique=True))
    weight = st.one_of(st.sampled_from([1.0, -1.0, 2.0, 0.1]), finite("float32")).filter(bool)
    return {feature: draw(weight) for feature in chosen}


@st.composite
def surrogates(draw: st.DrawFn, schema: Schema) -> Sequence[Surrogate]:
    """Draw one to three surrogates on any columns."""
    made = []
    for feature in draw(st.lists(st.integers(0, schema.n_features - 1), min_size=1, max_size=3)):
        column = schema.columns[feature]
        if column.kind == "numeric":
            made.append(Surrogate(feature, draw(finite(schema.dtype)), draw(st.integers(0, 1))))
        else:
            replies = {level: draw(st.sampled_from([0, 1, -1])) for level in column.levels[:8]}
            made.append(Surrogate(feature, levels=replies))
    return made


@st.composite
def rule_lists(draw: st.DrawFn, schema: Schema, max_rules: int = 4) -> Node:
    """Draw a chain of up to `max_rules` rules and the default leaf."""
    node = draw(leaves(schema, weighed=True))
    for _ in range(draw(st.integers(0, max_rules))):
        asked = draw(st.lists(conditions(schema), min_size=1, max_size=3))
        node = rule(asked, draw(leaves(schema, weighed=True)), node)
    return node


@st.composite
def conditions(draw: st.DrawFn, schema: Schema) -> Surrogate:
    """Draw a condition that may fail for any numbers, categories or missing values."""
    fails = st.sampled_from([-1, 1])
    feature = draw(st.integers(0, schema.n_features - 1))
    column = schema.columns[feature]
    if column.kind == "nominal":
        levels = {level: draw(fails) for level in column.levels[:8]}
        return Surrogate(feature, levels=levels, lost=draw(fails))
    at = draw(finite(schema.dtype))
    return Surrogate(feature, at, draw(fails), above=draw(fails), lost=draw(fails))


@st.composite
def models(draw: st.DrawFn, max_trees: int = 3, kinds: Collection[str] = ()) -> Model:
    """Draw a model of one to `max_trees` random trees.

    Parameters
    ----------
    kinds : collection of str
        Additional features to draw, some of `ALL_KINDS`.  Default: plain models.
    """
    schema = draw(schemas(3 if "outputs" in kinds and draw(st.booleans()) else 1))
    policies: dict[str, Any] = {}
    known = {"surrogates": "surrogate", "fractional": "fractional"}
    choices = ["direction", *(known[kind] for kind in sorted(known.keys() & set(kinds)))]
    policies["missing"] = draw(st.sampled_from(choices))
    if schema.task == "classification":
        if "hard" in kinds:
            policies["voting"] = draw(st.sampled_from(["soft", "hard"]))
        if "costs" in kinds and not schema.more and draw(st.booleans()):
            policies["costs"] = draw(costs(len(schema.classes)))
    asked = set(kinds) if policies["missing"] == "surrogate" else set(kinds) - {"surrogates"}
    lists = "rules" in kinds and policies["missing"] != "fractional" and draw(st.booleans())
    below = rule_lists(schema) if lists else nodes(schema, kinds=frozenset(asked))
    roots = draw(st.lists(below, min_size=1, max_size=max_trees))
    return make_model(schema, [build_tree(root, schema) for root in roots], **policies)


@st.composite
def costs(draw: st.DrawFn, n_classes: int) -> np.ndarray:
    """Draw misclassification costs as (classes, classes) int64, 0 on the diagonal."""
    cost = st.sampled_from([0, 1, 1, 2, 5, 16384])
    size = n_classes * n_classes
    table = np.array(draw(st.lists(cost, min_size=size, max_size=size)), dtype=np.int64)
    table = table.reshape(n_classes, n_classes)
    np.fill_diagonal(table, 0)
    return table


def cells(model: Model, feature: int) -> st.SearchStrategy[float]:
    """Draw cells of a column: thresholds, their neighbours in both types, and special numbers."""
    column = model.schema.columns[feature]
    if column.kind == "nominal":
        codes = [*NEVER_CODES, -0.0, *(float(k) for k in range(len(column.levels) + 2))]
        return st.sampled_from(codes)
    probes = [0.0, -0.0, math.nan, math.inf, -math.inf]
    for tree in model.trees:
        for t in _asked(tree, feature):
            with np.errstate(over="ignore"):
                single = np.float32(t)
                beside = [float(np.nextafter(single, np.float32(s))) for s in (-np.inf, np.inf)]
            probes += [t, *beside, math.nextafter(t, -math.inf), math.nextafter(t, math.inf)]
            probes += [t / 2 + b / 2 for b in beside if math.isfinite(b)]
    return st.one_of(st.sampled_from(probes), st.floats())


def _asked(tree: Tree, feature: int) -> list[float]:
    """List the numbers of a column at which the outcome of some test may change."""
    asked = (tree.kind == Split.THRESHOLD) & (tree.feature == feature)
    instead = ~np.isnan(tree.surrogate_threshold) & (tree.surrogate_feature == feature)
    terms = np.flatnonzero(tree.term_feature == feature)
    owner = np.searchsorted(tree.term_offsets, terms, side="right") - 1
    with np.errstate(over="ignore"):
        alone = tree.threshold[owner] / tree.term_weight[terms]
    found = [tree.threshold[asked], tree.surrogate_threshold[instead], alone[np.isfinite(alone)]]
    return list(np.concatenate(found).tolist())


@st.composite
def matrices(draw: st.DrawFn, model: Model, max_rows: int = 12) -> np.ndarray:
    """Draw 0 to `max_rows` rows as (rows, features) float64, not rounded to the input type."""
    row = st.tuples(*(cells(model, f) for f in range(model.schema.n_features)))
    rows = draw(st.lists(row, max_size=max_rows))
    return np.array(rows, dtype=np.float64).reshape(len(rows), model.schema.n_features)
