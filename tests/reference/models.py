"""Random models and edge-case rows for tests of exporters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treekit.data.schema import Column, Schema
from treekit.model.builder import Node, build_tree, is_missing, leaf, multiway, subset, threshold
from treekit.model.model import Model, make_model
from treekit.model.tree import Split

__all__ = ["chain", "mixed_schema", "probe_rows", "random_model", "text_row"]

FLOAT32_MAX = float(np.finfo(np.float32).max)
NAN, INF = float("nan"), float("inf")


def mixed_schema(classes: Sequence[Any] = ("no", "yes"), **other: Any) -> Schema:
    """Make a schema of two numeric columns, and nominal ones of 3, 70 and 0 categories."""
    columns = (
        Column("size"),
        Column("colour", "nominal", ("red", "green", "blue")),
        Column("age"),
        Column("town", "nominal", tuple(f"town {i}" for i in range(70))),
        Column("void", "nominal"),
    )
    if not classes:
        other["task"] = "regression"
    return Schema(columns, classes=tuple(classes), **other)


def random_model(
    seed: int, schema: Schema, n_trees: int = 3, n_splits: int = 25, **policies: Any
) -> Model:
    """Make trees of all kinds of splits, missing branches, absent categories, odd thresholds."""
    rng = np.random.default_rng(seed)
    trees = [build_tree(_random_node(rng, schema, n_splits), schema) for _ in range(n_trees)]
    return make_model(schema, trees, **policies)


def chain(depth: int, schema: Schema, side: int = 1) -> Model:
    """Make a degenerate tree, a chain of thresholds on column 0."""
    node = _leaf_of(depth, schema)
    for level in range(depth - 1, -1, -1):
        other, at = _leaf_of(level, schema), float(level if side else depth - level)
        children = (other, node) if side else (node, other)
        node = threshold(0, at, *children, missing=side)
    return make_model(schema, [build_tree(node, schema)])


def probe_rows(model: Model, n_random: int = 60, seed: int = 0) -> list[list[float]]:
    """Make rows at, next to and far from every threshold, with valid and invalid codes."""
    rng = np.random.default_rng(seed)
    choices = [_probes(model, feature) for feature in range(model.schema.n_features)]
    rows = [[values[i % len(values)] for values in choices] for i in range(max(map(len, choices)))]
    rows += [[values[rng.integers(len(values))] for values in choices] for _ in range(n_random)]
    return rows


def text_row(schema: Schema, row: Sequence[float]) -> list[Any]:
    """Decode a row: categories as text, missing values as None."""
    return [_cell(column, x) for column, x in zip(schema.columns, row, strict=True)]


def _cell(column: Column, x: float) -> Any:
    if x != x:
        return None
    if column.kind == "numeric":
        return x
    return column.levels[int(x)] if x in range(len(column.levels)) else f"unseen {x}"


def _leaf_of(number: int, schema: Schema) -> Node:
    if schema.task == "regression":
        return leaf(1e9 if number == 0 else number * 0.3 - 7)
    weights = [0.0] * schema.n_values
    weights[number % schema.n_values] = number + 1.0
    weights[0] += number % 3 + 0.5
    return leaf(weights)


def _random_node(rng: np.random.Generator, schema: Schema, splits: int) -> Node:
    if splits < 1:
        return _leaf_of(int(rng.integers(50)), schema)
    feature = int(rng.integers(schema.n_features))
    levels = schema.columns[feature].levels
    kind = rng.integers(10)
    if kind == 0 or (schema.columns[feature].kind == "nominal" and not levels):
        return is_missing(feature, *_children(rng, schema, splits, 2))
    if not levels:
        at = _random_threshold(rng, schema.dtype)
        return threshold(
            feature, at, *_children(rng, schema, splits, 2), missing=int(rng.integers(2))
        )
    if kind < 6:
        sides = rng.integers(3, size=len(levels))
        left = [level for level, side in zip(levels, sides, strict=True) if side == 0]
        absent = [level for level, side in zip(levels, sides, strict=True) if side == 2]
        yes, no = _children(rng, schema, splits, 2)
        return subset(feature, left, yes, no, missing=int(rng.integers(2)), absent=absent)
    named = list(rng.permutation(list(levels))[: rng.integers(1, min(len(levels), 6) + 1)])
    branches = dict(zip(named, _children(rng, schema, splits, len(named)), strict=True))
    return multiway(feature, branches, missing=int(rng.integers(len(named))))


def _children(rng: np.random.Generator, schema: Schema, splits: int, n: int) -> list[Node]:
    shares = rng.multinomial(splits - 1, rng.dirichlet(np.ones(n)))
    return [_random_node(rng, schema, int(share)) for share in shares]


def _random_threshold(rng: np.random.Generator, dtype: str) -> float:
    tiny = 1e-45 if dtype == "float32" else 5e-324
    largest = FLOAT32_MAX if dtype == "float32" else float(np.finfo(np.float64).max)
    odd = [0.0, tiny, -tiny, largest, -largest, 1.0, 0.1, 16777216.0]
    at = odd[rng.integers(len(odd))] if rng.random() < 0.4 else float(rng.normal() * 10)
    return float(np.float32(at)) if dtype == "float32" else at


def _probes(model: Model, feature: int) -> list[float]:
    column = model.schema.columns[feature]
    if column.kind == "nominal":
        n = len(column.levels)
        return [NAN, *map(float, range(n)), -0.0, -1.0, 0.5, float(n), 1e300, INF, -INF, 2.0**31]
    thresholds = {0.0, 1.5}
    for tree in model.trees:
        asked = (tree.kind == Split.THRESHOLD) & (tree.feature == feature)
        thresholds |= set(tree.threshold[asked].tolist())
    near = itertools.chain.from_iterable(map(_near, sorted(thresholds)))
    return [NAN, INF, -INF, -0.0, 5e-324, -5e-324, 1e-46, 3.5e38, 1e308, *near]


def _near(t: float) -> list[float]:
    """Return `t`, the adjacent float32 numbers, midpoints, and the doubles adjacent to all."""
    with np.errstate(over="ignore", under="ignore"):
        up = float(np.nextafter(np.float32(t), np.float32(INF)))
        down = float(np.nextafter(np.float32(t), np.float32(-INF)))
    points = [t, up, down, t / 2 + up / 2, t / 2 + down / 2]
    return [x for p in points for x in (p, math.nextafter(p, INF), math.nextafter(p, -INF))]
