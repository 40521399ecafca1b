"""The conditions of a rule in words."""

from __future__ import annotations

import numpy as np

from treekit.model.model import Model
from treekit.model.tree import Tree
from treekit.plot.language import Language
from treekit.plot.words import either, number_text, shown_name

__all__ = ["condition_texts"]

_LETTERS = 24
"""Before further levels are counted rather than named."""


def condition_texts(
    model: Model, tree: Tree, node: int, language: Language, room: int | None = _LETTERS
) -> list[str]:
    """What each entry of a node of `Split.RULE` asks for; `room` None names all levels."""
    entries = range(int(tree.surrogate_start[node]), int(tree.surrogate_start[node + 1]))
    return [_condition(model, tree, at, language, room) for at in entries]


def _condition(model: Model, tree: Tree, at: int, language: Language, room: int | None) -> str:
    column = model.schema.columns[tree.surrogate_feature[at]]
    name, told = shown_name(column.name), []
    if column.kind == "numeric":
        threshold = number_text(tree.surrogate_threshold[at], model.schema.dtype)
        below, above = int(tree.surrogate_below[at]), int(tree.surrogate_above[at])
        if below < 0 or above < 0:
            told = [[language.is_known.format(name), f"{name} ≤ {threshold}"][above == 1]]
        if below == 1 and above < 0:
            told = [f"{name} > {threshold}"]
    else:
        start, stop = tree.surrogate_level_start[at : at + 2].tolist()
        codes = np.flatnonzero(tree.surrogate_level_branch[start:stop] < 0).tolist()
        levels = [shown_name(column.levels[code]) for code in codes]
        if len(codes) == stop - start and codes:
            told = [language.is_known.format(name)]
        elif codes:
            said = either(levels, language) if room is None else either(levels, language, room)
            told = [language.is_in.format(name, said)]
    if not told:
        return language.is_missing.format(name)
    missing_fits = tree.surrogate_lost[at] < 0 and model.missing != "error"
    return f"{told[0]} {language.or_missing}" if missing_fits else told[0]
