"""Slow oracle of predictions: one row through one model, directly by the definition.

It works on the n-ary trees with Python numbers, and shares no code with the scorer, the
lowering or the exporters.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from treekit.model.fixed_point import MASS, apportion
from treekit.model.model import Model
from treekit.model.tree import FIELD_DTYPES, Split, Tree

LEAF, THRESHOLD, MISSING, OBLIQUE, RULE = (
    int(kind) for kind in (Split.LEAF, Split.THRESHOLD, Split.MISSING, Split.OBLIQUE, Split.RULE)
)
_PLAIN: dict[int, tuple[Tree, dict[str, list[Any]]]] = {}
Cells = Sequence[float | None]

__all__ = ["Refused", "leaf_masses", "leaf_rows", "predict", "probabilities", "sums", "to_float32"]


class Refused(Exception):
    """Row rejected by the model's policies."""


def to_float32(x: float) -> float:
    """Round to the nearest float32, ties to even, to infinity on overflow."""
    if math.isnan(x) or math.isinf(x):
        return x
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)
    return rounded


def leaf_rows(model: Model, row: Sequence[float]) -> list[int]:
    """Return the row of ``model.units`` reached in each tree; nominal inputs are codes.

    For fractional instances, it is that of the largest part, the first one of equals.
    """
    return [max(masses, key=lambda leaf: (masses[leaf], -leaf)) for masses in _all(model, row)]


def leaf_masses(model: Model, row: Sequence[float]) -> dict[int, int]:
    """Return the instance's mass in each row of ``model.units``: 1, or parts of 2**24."""
    return {leaf: mass for masses in _all(model, row) for leaf, mass in masses.items()}


def sums(model: Model, row: Sequence[float]) -> list[int]:
    """Sum the integer leaf vectors of all trees, weighted by mass; parts of numbers round down."""
    total = [0] * model.schema.n_values
    numbers = model.missing == "fractional" and model.schema.task == "regression"
    for leaf, mass in leaf_masses(model, row).items():
        parts = [mass * int(b) // (MASS if numbers else 1) for b in model.units[leaf]]
        total = [a + b for a, b in zip(total, parts, strict=True)]
    return total


def probabilities(model: Model, row: Sequence[float]) -> list[float]:
    """Compute the probability of each class of each output.

    It is the class's share of the votes, rounded once, or the link function of the margins.
    """
    total = sums(model, row)
    if model.combine == "mean":
        return [float(Fraction(votes, model.unit_total)) for votes in total]
    return _linked(
        model, [math.ldexp(float(t), e) for t, e in zip(total, model.exponents, strict=True)]
    )


def predict(model: Model, row: Sequence[float]) -> Any:
    """Predict a class index or a number, or a list for several outputs.

    The class is the first with most votes, minimum expected cost, or the largest margin.
    """
    total = sums(model, row)
    schema = model.schema
    if schema.task == "classification":
        blocks = itertools.pairwise(schema.blocks)
        answers: list[Any] = [_label(model, total[a:b]) for a, b in blocks]
    else:
        divisor = len(model.trees) if model.combine == "mean" else 1
        pairs = zip(total, model.exponents, strict=True)
        means = [math.ldexp(float(Fraction(float(t)) / divisor), e) for t, e in pairs]
        answers = _linked(model, means)
    return answers if schema.more else answers[0]


def _linked(model: Model, numbers: list[float]) -> list[float]:
    """Apply the link function; every operation rounds once, none is fused."""
    if model.link == "exp":
        return [_exp(x) for x in numbers]
    if model.link == "sigmoid":
        return [_sigmoid(x) for x in numbers]
    if model.link == "softmax":
        parts = [_exp(x - max(numbers)) for x in numbers]
        whole = parts[0]
        for part in parts[1:]:
            whole += part
        return [part / whole for part in parts]
    return numbers


def _exp(x: float) -> float:
    """Compute exp(x) as 2**n times a Taylor polynomial of degree 13 by Horner's scheme."""
    x = min(max(x, -700.0), 700.0)
    n = math.floor(x * 1.4426950408889634 + 0.5)
    r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10
    p = 1 / math.factorial(13)
    for power in range(12, -1, -1):
        p = p * r + 1 / math.factorial(power)
    return math.ldexp(p, n)


def _sigmoid(m: float) -> float:
    e = _exp(-abs(m))
    return (1.0 if m >= 0 else e) / (1.0 + e)


def _label(model: Model, votes: list[int]) -> int:
    if model.costs is None or model.voting == "hard":  # leaves of hard votes include costs
        return votes.index(max(votes))
    costs = model.costs.tolist()
    classes = range(len(votes))
    expected = [sum(votes[i] * costs[i][said] for i in classes) for said in classes]
    return expected.index(min(expected))


def _all(model: Model, row: Sequence[float]) -> list[dict[int, int]]:
    """Return for each tree the positive masses by row of ``model.units``."""
    cells = [_cell(model, feature, float(x)) for feature, x in enumerate(row)]
    divides = model.missing == "fractional"
    found, offset = [], 0
    for tree in model.trees:
        is_leaf = tree.kind == Split.LEAF
        masses = _masses(tree, cells) if divides else {_walk(tree, cells): 1}
        found.append({offset + int(is_leaf[:leaf].sum()): mass for leaf, mass in masses.items()})
        offset += int(is_leaf.sum())
    return found


def _cell(model: Model, feature: int, x: float) -> float | None:
    """Convert a cell to the trees' input value; None = missing."""
    column = model.schema.columns[feature]
    if math.isnan(x):
        if model.missing == "error":
            raise Refused(column.name)
        return None
    if column.kind == "numeric":
        return to_float32(x) if model.schema.dtype == "float32" else x
    if x in range(len(column.levels)):
        return x
    if model.unknown == "error":
        raise Refused(column.name)
    if model.missing == "error":
        raise Refused(column.name)
    return None


def _walk(tree: Tree, cells: Cells) -> int:
    nodes = _plain(tree)
    node = 0
    while nodes["kind"][node] != LEAF:
        branch = _branch(nodes, node, cells)
        if branch is None:
            branch = nodes["missing"][node]
        node = nodes["first_child"][node] + branch
    return node


def _masses(tree: Tree, cells: Cells) -> dict[int, int]:
    """Distribute a fractional instance's mass of 2**24 over the leaves."""
    nodes = _plain(tree)
    reached, found = [(0, MASS)], {}
    for node, mass in reached:
        if nodes["kind"][node] == LEAF:
            found[node] = mass
            continue
        first, count = nodes["first_child"][node], nodes["n_children"][node]
        branch = _branch(nodes, node, cells)
        if branch is not None:
            reached.append((first + branch, mass))
            continue
        weights = nodes["weight"][first : first + count]
        shares = apportion(weights if any(weights) else [1.0] * count, MASS)[0].tolist()
        ends = list(itertools.accumulate(shares, initial=0))
        parts = [(mass * b) // MASS - (mass * a) // MASS for a, b in itertools.pairwise(ends)]
        assert sum(parts) == mass
        reached += [(first + b, part) for b, part in enumerate(parts) if part > 0]
    return found


def _branch(nodes: dict[str, list[Any]], node: int, cells: Cells) -> int | None:
    """Return the branch decided by the row's values, None if they are unknown."""
    x = cells[nodes["feature"][node]]
    kind = nodes["kind"][node]
    if kind == MISSING:
        return 0 if x is None else 1
    if kind == OBLIQUE:
        total = _total(nodes, node, cells)
        return None if math.isnan(total) else int(not total <= nodes["threshold"][node])
    entries = range(nodes["surrogate_offsets"][node], nodes["surrogate_offsets"][node + 1])
    if kind == RULE:
        return 1 if any(_surrogate(nodes, s, cells) == 1 for s in entries) else 0
    if kind == THRESHOLD:
        branch = None if x is None else int(not x <= nodes["threshold"][node])
    else:
        branch = _of_level(nodes["level_branch"], nodes["level_offsets"][node], x)
    return next(
        (b for b in (branch, *(_surrogate(nodes, s, cells) for s in entries)) if b is not None),
        None,
    )


def _total(nodes: dict[str, list[Any]], node: int, cells: Cells) -> float:
    total = 0.0
    for term in range(nodes["term_offsets"][node], nodes["term_offsets"][node + 1]):
        x = cells[nodes["term_feature"][term]]
        total += nodes["term_weight"][term] * (math.nan if x is None else x)
    return total


def _of_level(branches: list[int], start: int, x: float | None) -> int | None:
    branch = -1 if x is None else branches[start + int(x)]
    return None if branch == -1 else branch


def _surrogate(nodes: dict[str, list[Any]], number: int, cells: Cells) -> int | None:
    x = cells[nodes["surrogate_feature"][number]]
    at = nodes["surrogate_threshold"][number]
    if x is None:
        said = nodes["surrogate_lost"][number]
    elif math.isnan(at):
        start = nodes["surrogate_level_offsets"][number]
        return _of_level(nodes["surrogate_level_branch"], start, x)
    else:
        said = nodes["surrogate_below" if x <= at else "surrogate_above"][number]
    return None if said == -1 else said


def _plain(tree: Tree) -> dict[str, list[Any]]:
    """Convert the arrays of a tree to lists, once: NumPy scalars are slow."""
    if id(tree) not in _PLAIN:
        lists = {name: getattr(tree, name).tolist() for name in FIELD_DTYPES}
        _PLAIN[id(tree)] = tree, lists  # keeps the tree alive, so its id stays unique
    return _PLAIN[id(tree)][1]
