"""What a model says beside its trees: policies, links, costs and the integers of its leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from treekit.errors import ModelError
from treekit.model.tree import Split

if TYPE_CHECKING:
    from treekit.model.ensemble import Model

__all__ = ["MAX_COST", "check_policies", "check_units"]

MAX_COST = 2**14
"""Largest cost: sums of votes times costs stay within 62 bits."""

_LOWEST_EXPONENT, _HIGHEST_EXPONENT = -960, 1024


def check_policies(model: Model) -> None:
    """Raise `ModelError` unless the policies are known and fit the trees and the schema."""
    schema = model.schema
    for what, value, known in (
        ("missing policy", model.missing, ("direction", "fractional", "surrogate", "error")),
        ("policy for unseen categories", model.unknown, ("missing", "error")),
        ("voting", model.voting, ("soft", "hard")),
        ("way to combine trees", model.combine, ("mean", "sum")),
        ("link", model.link, ("identity", "exp", "sigmoid", "softmax")),
    ):
        if value not in known:
            raise ModelError(f"unknown {what} {value!r}; known: {', '.join(known)}")
    _check_missing(model)
    if schema.task == "regression" and (model.voting == "hard" or model.costs is not None):
        raise ModelError("hard voting and costs are for classification")
    _check_link(model)
    if model.costs is None:
        return
    if schema.more:
        raise ModelError("costs are for models of one output")
    k = len(schema.classes)
    if model.costs.shape != (k, k) or model.costs.dtype != np.int64:
        raise ModelError(f"costs are a table of {k} x {k} whole numbers, not {model.costs.shape}")
    if np.any(np.diagonal(model.costs) != 0):
        raise ModelError("the cost of a right answer is 0")
    if np.any((model.costs < 0) | (model.costs > MAX_COST)):
        raise ModelError(f"a cost lies between 0 and {MAX_COST}")


def _check_missing(model: Model) -> None:
    """Surrogates and rules say themselves what a missing value does."""
    asks = [tree for tree in model.trees if len(tree.surrogate_feature)]
    rules = [tree for tree in asks if Split.RULE in tree.kind]
    if len(rules) < len(asks) and model.missing != "surrogate":
        raise ModelError(f"trees with surrogates need missing='surrogate', not {model.missing!r}")
    if not rules:
        return
    if model.missing == "fractional":
        raise ModelError("rows do not divide at the conditions of rules: missing='direction'")
    if any(tree.n_leaves > 1 and Split.RULE not in tree.kind for tree in model.trees):
        raise ModelError("a model of rules has other splits: all of its trees are lists of rules")


def _check_link(model: Model) -> None:
    schema = model.schema
    links: tuple[str, ...] = ("identity", "exp", "sigmoid")
    if model.combine == "sum" and model.missing == "fractional":
        raise ModelError("sums of trees are for rows that do not divide: missing='direction'")
    if schema.task == "classification":
        links = ("softmax", "sigmoid") if model.margins else ("identity",)
        if model.margins and (model.costs is not None or model.voting == "hard"):
            raise ModelError("hard voting and costs are for votes, and sums are of margins")
        if model.margins and (schema.more or len(schema.classes) < 2):
            raise ModelError("margins are for models of one output with two classes or more")
    if model.link not in links:
        raise ModelError(
            f"the link {model.link!r} does not fit: it is one of {', '.join(links)} for this task "
            f"and combine={model.combine!r}"
        )


def check_units(model: Model, n_leaves: int) -> None:
    """Refuse integers of leaves that `make_model` could not have made."""
    schema, units = model.schema, model.units
    if units.shape != (n_leaves, schema.n_values) or units.dtype != np.int64:
        raise ModelError(f"units has shape {units.shape}, not {(n_leaves, schema.n_values)}")
    if schema.task == "classification" and not model.margins:
        total = model.units_each
        fits = model.exponent == 0 and bool(np.all((units >= 0) & (units <= total)))
        sums = np.add.reduceat(units, schema.blocks[:-1], axis=1)
        if not fits or not bool(np.all(sums == total)):
            raise ModelError(f"the votes of a leaf do not share {total} units")
        return
    if not _LOWEST_EXPONENT <= model.exponent <= _HIGHEST_EXPONENT:
        raise ModelError(f"the grid's exponent {model.exponent} is out of range")
    bound = model.grid.bound
    if not bool(np.all((units >= -bound) & (units <= bound))):
        raise ModelError(f"a leaf's integer lies beyond the grid's {bound}")
    if model.combine == "sum":
        # Each within 2**53, and at most 100,000 trees: their sums in float are near enough.
        largest = np.maximum.reduceat(np.abs(units), model.leaf_offsets[:-1], axis=0)
        if float(largest.sum(axis=0, dtype=np.float64).max()) > bound:
            raise ModelError(f"the leaves' integers add up to more than the grid's {bound}")
