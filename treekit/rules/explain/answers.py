"""Sums of a row as answers, votes and contributions with names and labels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from treekit.model.links import values_of
from treekit.model.model import least_cost
from treekit.model.scoring import label_codes
from treekit.rules.explain.contributions import Contributions, fineness
from treekit.rules.explain.records import Said, Sums, Votes

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = ["said", "said_by_tree", "sums_of", "votes_of"]

Integers = npt.NDArray[np.int64]


def said(model: Model, sums: Integers) -> tuple[Said, ...]:
    """What the model answers for integer sums (values,), for each target."""
    schema = model.schema
    values = values_of(model, sums[None])[0].tolist()
    if schema.task == "regression":
        outputs = zip(schema.outputs, values, strict=True)
        return tuple(Said(output.name, value=value) for output, value in outputs)
    codes = label_codes(model, sums[None])[0].tolist()
    blocks = itertools.pairwise(schema.blocks)
    return tuple(
        Said(
            output.name,
            output.classes[code],
            shares=tuple(zip(output.classes, values[a:b], strict=True)),
        )
        for output, code, (a, b) in zip(schema.outputs, codes, blocks, strict=True)
    )


def said_by_tree(model: Model, units: Integers) -> tuple[Said, ...]:
    """What one tree says, of integers (values,) of a row of mass 1; nothing for margins."""
    schema = model.schema
    if model.combine == "sum":
        return ()
    if schema.task == "regression":
        values = np.ldexp(units.astype(np.float64), model.exponent).tolist()
        return tuple(Said(o.name, value=v) for o, v in zip(schema.outputs, values, strict=True))
    found = []
    for output, (a, b) in zip(schema.outputs, itertools.pairwise(schema.blocks), strict=True):
        code = int(least_cost(units[None, a:b], model.label_costs)[0])
        shares = (units[a:b] / model.units_each).tolist()
        named = tuple(zip(output.classes, shares, strict=True))
        found.append(Said(output.name, output.classes[code], shares=named))
    return tuple(found)


def votes_of(model: Model, by_tree: Integers) -> tuple[Votes, ...]:
    """The votes of the trees, of integers (trees, values); none of single trees and of sums."""
    schema = model.schema
    if model.n_trees == 1 or model.combine == "sum":
        return ()
    found = []
    blocks = itertools.pairwise(schema.blocks)
    for k, (output, (a, b)) in enumerate(zip(schema.outputs, blocks, strict=True)):
        if schema.task == "regression":
            values = np.ldexp(by_tree[:, k] / model.mass, model.exponent)
            quantiles = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
            found.append(Votes(output.name, quantiles=tuple(quantiles)))
            continue
        codes = least_cost(by_tree[:, a:b], model.label_costs)
        counts = np.bincount(codes, minlength=b - a).tolist()
        found.append(Votes(output.name, tuple(zip(output.classes, counts, strict=True))))
    return tuple(found)


def sums_of(model: Model, shared: Contributions, names: Sequence[str]) -> tuple[Sums, ...]:
    """The contributions to each value, with names and labels."""
    schema = model.schema
    votes = schema.task == "classification" and not model.margins
    divisor = model.unit_total * fineness(model) if votes else model.divisor
    labels = [(o.name, label) for o in schema.outputs for label in (o.classes or (None,))]
    found = []
    for k, (target, label) in enumerate(labels):
        columns = [(names[column], own[k]) for column, own in shared.by_column.items()]
        columns.sort(key=lambda one: -abs(one[1]))
        total = shared.bias[k] + sum(value for _, value in columns)
        exponent = 0 if votes else model.exponent
        margin = model.margins or model.link != "identity"
        of = (target, label, margin, shared.bias[k], total, divisor, exponent)
        found.append(Sums(*of, tuple(columns)))
    return tuple(found)
