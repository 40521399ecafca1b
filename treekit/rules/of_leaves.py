"""The rules of a few leaves as texts that stand alone, without those of all others.

The conditions of a leaf depend on nothing but the nodes above it.  So the trees of a large
forest are cut down to the ways to the leaves that are wanted, and their rules are those of
any model.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from treekit.model.tree import Tree
from treekit.rules.extract import rules
from treekit.rules.language import Language, language
from treekit.rules.phrases import condition_texts
from treekit.rules.rulelist import RuleList
from treekit.rules.taken import taken

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = ["LeafRules", "joinable_texts", "joined_texts"]

Index = npt.NDArray[np.int64]


class LeafRules:
    """Says the rule of any leaf of a model.

    The rules of a model of no more than `most` conditions are made and kept; a larger one is
    cut down to the ways to the leaves that are asked for, each time.

    Parameters
    ----------
    model : Model
    most : int
        A condition takes some 50 bytes.
    """

    def __init__(self, model: Model, most: int = 1 << 20) -> None:
        self._model = model
        self._listed: RuleList | None = None
        self._rules: dict[tuple[int, int], int] = {}
        if model.n_leaves * max(model.depth, 1) <= most:
            self._listed = rules(model)
            self._rules = _by_leaf(self._listed, range(model.n_trees))

    def texts(
        self, wanted: Mapping[int, Sequence[int]], words: Language | None = None
    ) -> dict[tuple[int, int], str]:
        """The rule of each leaf, by the numbers of its tree and node.

        Of a list of rules: the rule whose answer the leaf is.

        Parameters
        ----------
        wanted : mapping of int to sequence of int
            For some trees the nodes of some leaves.
        words : Language, optional
            Default English.
        """
        if not wanted:
            return {}
        listed, places = self._cut(wanted) if self._listed is None else (self._listed, self._rules)
        pairs = [(tree, leaf) for tree, own in wanted.items() for leaf in own]
        which = np.array([places[pair] for pair in pairs], dtype=np.int64)
        return dict(zip(pairs, joined_texts(listed, which, words), strict=True))

    def _cut(
        self, wanted: Mapping[int, Sequence[int]]
    ) -> tuple[RuleList, dict[tuple[int, int], int]]:
        model, numbers = self._model, list(wanted)
        nodes = [_ways(model.trees[t], np.unique(np.array(wanted[t], np.int64))) for t in numbers]
        trees = tuple(_cut(model.trees[t], own) for t, own in zip(numbers, nodes, strict=True))
        n_leaves = sum(tree.n_leaves for tree in trees)
        units = np.zeros((n_leaves, model.schema.n_values), np.int64)  # no condition asks them
        listed = rules(replace(model, trees=trees, units=units))
        leaf = [int(nodes[t][n]) for t, n in zip(listed.tree, listed.leaf, strict=True)]
        return listed, _by_leaf(replace(listed, leaf=np.array(leaf, np.int32)), numbers)


def _by_leaf(listed: RuleList, numbers: Sequence[int]) -> dict[tuple[int, int], int]:
    """The number of each rule by those of its tree, in the order of `numbers`, and leaf."""
    pairs = zip(listed.tree.tolist(), listed.leaf.tolist(), strict=True)
    return {(numbers[tree], leaf): rule for rule, (tree, leaf) in enumerate(pairs)}


def joined_texts(listed: RuleList, which: Index, words: Language | None = None) -> list[str]:
    """The conditions of each of the rules `which` in one line, tests in full.

    ``a > 60 and b is c``; where a condition ends in "or is missing", ``; and`` tells what
    that "or" is about.
    """
    return ["".join(conditions) for conditions in joinable_texts(listed, which, words)]


def joinable_texts(
    listed: RuleList, which: Index, words: Language | None = None
) -> list[list[str]]:
    """For each rule its conditions, and between them what joins them; see `joined_texts`."""
    words = words or language()
    some = taken(listed, which)
    table = some.conditions
    texts = condition_texts(some, 0, len(table.column), words, whole=True)
    # Of a test, and of what follows a part of a row, the words hold a semicolon or a colon.
    long = table.missing | (table.column >= listed.schema.n_features)
    plain, marked = f" {words.say('page_and')} ", words.say("page_and_also")
    always, otherwise = words.say("page_always"), words.say("page_otherwise")
    behind = (which > 0) & (listed.tree[which - 1] == listed.tree[which])
    behind &= listed.order == "first"
    said = []
    ends = itertools.pairwise([0, *some.end.tolist()])
    for (a, b), last in zip(ends, behind.tolist(), strict=True):
        between = marked if long[a:b].any() else plain
        one = [part for text in texts[a:b] for part in (between, text)][1:]
        said.append(one or [otherwise if last else always])
    return said


def _ways(tree: Tree, leaves: Index) -> Index:
    """The nodes on the ways to some leaves with all their siblings, ascending."""
    parent, kept = tree.parent, np.zeros(tree.n_nodes, np.bool_)
    kept[0] = True
    above = parent[leaves]
    asked = np.zeros(tree.n_nodes, np.bool_)
    while len(above := np.unique(above[above >= 0])):
        above = above[~asked[above]]
        asked[above] = True
        above = parent[above]
    inner = np.flatnonzero(asked)
    counts = tree.n_children[inner].astype(np.int64)
    first = np.repeat(tree.first_child[inner].astype(np.int64), counts)
    kept[first + np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)] = True
    return np.flatnonzero(kept)


def _cut(tree: Tree, nodes: Index) -> Tree:
    """The tree of these nodes; those whose children are not among them are leaves."""
    kept = np.zeros(tree.n_nodes + 1, np.bool_)
    kept[nodes] = True
    closed = ~kept[np.where(tree.first_child[nodes] < 0, tree.n_nodes, tree.first_child[nodes])]
    return tree.take(nodes, closed)
