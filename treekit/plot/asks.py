"""What a node asks and what its branches stand for, in words."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from treekit.model.model import Model
from treekit.model.tree import Split, Tree
from treekit.plot.conditions import condition_texts
from treekit.plot.language import Language
from treekit.plot.words import either, number_text, shown_name

__all__ = ["Branch", "Question", "question"]

_QUESTION_LETTERS, _BRANCH_LETTERS = 44, 24
"""Before further levels are counted rather than named."""


class Branch(NamedTuple):
    """One answer to a question.

    Attributes
    ----------
    label : str
        ``yes``, or some levels.
    rest : str
        ``or missing`` at the branch that missing values take; else empty.
    full : str
        The condition as a sentence, with all levels.
    """

    label: str
    rest: str
    full: str


class Question(NamedTuple):
    """What a node asks.

    Attributes
    ----------
    text : str
    branches : tuple of Branch
    instead : tuple of str
        Surrogates in order, each the condition under which a row takes branch 0.
    """

    text: str
    branches: tuple[Branch, ...]
    instead: tuple[str, ...]


def question(model: Model, tree: Tree, node: int, language: Language) -> Question:
    """The question of an inner node of one of the model's trees."""
    kind = Split(int(tree.kind[node]))
    if kind == Split.RULE:
        return _rule(model, tree, node, language)
    name = shown_name(model.schema.names[tree.feature[node]])
    labels = [language.yes, language.no]
    absent = False
    if kind in (Split.SUBSET, Split.MULTIWAY):
        named = _levels_by_branch(model, tree, node)
        absent = bool(named.pop())
        fulls = [language.is_in.format(name, either(levels, language)) for levels in named]
        if kind == Split.SUBSET:
            room = max(_QUESTION_LETTERS - len(name), 0)
            text = language.is_in.format(name, either(named[0], language, room))
        else:
            text = language.asks.format(name)
            labels = [either(levels, language, _BRANCH_LETTERS) for levels in named]
    elif kind == Split.MISSING:
        text = language.is_missing.format(name)
        fulls = [text, language.is_known.format(name)]
    else:
        side, threshold = _number_asked(model, tree, node)
        text = f"{side} ≤ {threshold}"
        fulls = [text, f"{side} > {threshold}"]
    rest = _rest(model, kind, absent, language)
    way = int(tree.missing[node])
    branches = tuple(
        Branch(label, rest if b == way else "", full)
        for b, (label, full) in enumerate(zip(labels, fulls, strict=True))
    )
    return Question(text, branches, tuple(_instead(model, tree, node, language)))


def _rule(model: Model, tree: Tree, node: int, language: Language) -> Question:
    """Of a rule as many conditions as there is room for, and how many more there are."""
    shown = condition_texts(model, tree, node, language)
    text, n = shown[0], 1
    while n < len(shown) and len(text) + len(shown[n]) <= _QUESTION_LETTERS:
        text, n = text + language.comma + shown[n], n + 1
    text = text if n == len(shown) else language.and_more.format(text, len(shown) - n)
    full = language.comma.join(condition_texts(model, tree, node, language, room=None))
    branches = Branch(language.yes, "", full), Branch(language.no, "", f"{language.no}: {full}")
    return Question(text, branches, ())


def _rest(model: Model, kind: Split, absent: bool, language: Language) -> str:
    """What else takes the branch of missing values."""
    if kind != Split.MISSING and model.missing in ("direction", "surrogate"):
        return language.or_missing
    # Where no value may be missing, levels that no training row had here still may come.
    return language.or_absent if absent and model.missing == "error" else ""


def _levels_by_branch(model: Model, tree: Tree, node: int) -> list[list[str]]:
    """Levels of each branch; one list more holds those that no training row had here."""
    named: list[list[str]] = [[] for _ in range(int(tree.n_children[node]) + 1)]
    levels = model.schema.columns[tree.feature[node]].levels
    for level, branch in zip(levels, tree.branches(node).tolist(), strict=True):
        named[branch].append(shown_name(level))  # -1 is the last list
    return named


def _number_asked(model: Model, tree: Tree, node: int) -> tuple[str, str]:
    """What a threshold is compared with, and the threshold; both exact."""
    names = model.schema.names
    if tree.kind[node] == Split.THRESHOLD:
        threshold = number_text(tree.threshold[node], model.schema.dtype)
        return shown_name(names[tree.feature[node]]), threshold
    own = slice(int(tree.term_start[node]), int(tree.term_start[node + 1]))
    text = ""
    terms = zip(tree.term_feature[own].tolist(), tree.term_weight[own].tolist(), strict=True)
    for feature, weight in terms:
        size = "" if abs(weight) == 1.0 else f"{number_text(abs(weight), 'float32')} × "
        sign = " − " if weight < 0 else " + "
        lead = text + sign if text else "-" if weight < 0 else ""
        text = f"{lead}{size}{shown_name(names[feature])}"
    return text, number_text(tree.threshold[node])


def _instead(model: Model, tree: Tree, node: int, language: Language) -> list[str]:
    """Surrogates of a node: the conditions for branch 0, in the order they are asked."""
    texts = []
    for at in range(int(tree.surrogate_start[node]), int(tree.surrogate_start[node + 1])):
        column = model.schema.columns[tree.surrogate_feature[at]]
        name = shown_name(column.name)
        if column.kind == "numeric":
            sign = "≤" if tree.surrogate_below[at] == 0 else ">"
            threshold = number_text(tree.surrogate_threshold[at], model.schema.dtype)
            texts.append(f"{name} {sign} {threshold}")
            continue
        start, stop = tree.surrogate_level_start[at : at + 2].tolist()
        codes = np.flatnonzero(tree.surrogate_level_branch[start:stop] == 0).tolist()
        levels = [shown_name(column.levels[code]) for code in codes]
        texts.append(language.is_in.format(name, either(levels, language, _BRANCH_LETTERS)))
    return texts
