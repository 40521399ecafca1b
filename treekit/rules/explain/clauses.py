"""The conditions of nodes and of rules as records with names."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from treekit.data.schema import Schema
from treekit.model.tree import Split
from treekit.rules.explain.questions import Question
from treekit.rules.explain.records import Clause
from treekit.rules.explain.walk import Passage
from treekit.rules.extract import rules

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = ["clause_of", "clause_of_step", "rule_of"]


def clause_of_step(passage: Passage, schema: Schema) -> Clause | None:
    """What holds on the branch that a row took.

    None where parts of it take each branch, and for rules that hold: all of their conditions do.
    """
    if passage.why in ("divided", "held"):
        return None
    question = passage.node.questions[max(passage.decided, 0)]
    branch = passage.goes[0][0] - passage.node.children.start
    if passage.why == "failed":
        return clause_of(question, 1, schema)
    if passage.node.kind == Split.MISSING:
        return _of_absence(question, branch, schema)
    return clause_of(question, branch, schema)


def _of_absence(question: Question, branch: int, schema: Schema) -> Clause:
    name = (schema.names[question.columns[0]],)
    return Clause(name, known=branch == 1, missing=branch == 0)


def clause_of(question: Question, branch: int, schema: Schema) -> Clause:
    """The values for which a question sends a row to a branch."""
    names = tuple(schema.names[column] for column in question.columns)
    missing = question.lost == branch
    if not question.weights:
        levels = schema.columns[question.columns[0]].levels
        fits = tuple(
            level for level, to in zip(levels, question.branches, strict=True) if to == branch
        )
        return Clause(names, levels=fits, known=bool(fits), missing=missing)
    low = question.threshold if question.below != branch else -math.inf
    high = question.threshold if question.above != branch else math.inf
    weights = () if question.weights == (1.0,) else question.weights
    return Clause(names, weights, low, high, known=low < high, missing=missing)


def rule_of(model: Model, tree: int, leaf: int) -> tuple[Clause, ...]:
    """The conditions of a leaf's rule, merged to one a column; of tests none are said.

    Empty for lists of rules, rows that divide and nodes whose questions are several.
    """
    own = model.trees[tree]
    asks_more = len(own.surrogate_feature) > 0 or bool((own.kind == Split.OBLIQUE).any())
    if asks_more or model.missing == "fractional":
        return ()
    alone = replace(model, trees=(own,), units=model.tree_units(tree))
    listed = rules(alone)
    found = int(np.flatnonzero(listed.leaf == leaf)[0])
    return tuple(
        Clause((one.column,), (), one.low, one.high, one.levels, one.known, one.missing)
        for one in listed[found].conditions
    )
