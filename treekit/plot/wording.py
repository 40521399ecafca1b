"""Texts of splits, branches, names and numbers in a picture."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from treekit.errors import SettingError
from treekit.model.model import Model
from treekit.model.tree import Split, Tree
from treekit.rules.wording import format_numbers, quote_label, quote_text

if TYPE_CHECKING:
    from treekit.data.schema import Label


# ---------------------------------------------------------------- splits

_QUESTION_LETTERS, _BRANCH_LETTERS = 44, 24
"""Characters after which further categories are counted instead of named."""


class BranchText(NamedTuple):
    """Branch of a split.

    Attributes
    ----------
    label : str
        ``yes``, ``no``, or categories.
    rest : str
        ``or missing`` for the branch of missing values; else empty.
    full : str
        Complete condition, with all categories.
    """

    label: str
    rest: str
    full: str


class SplitText(NamedTuple):
    """Split of a node.

    Attributes
    ----------
    text : str
    branches : tuple of Branch
    surrogates : tuple of str
        Surrogates in order, each the condition for branch 0.
    """

    text: str
    branches: tuple[BranchText, ...]
    surrogates: tuple[str, ...]


def describe_split(model: Model, tree: Tree, node: int, language: Language) -> SplitText:
    """Describe the split of an inner node of one of the model's trees."""
    kind = Split(int(tree.kind[node]))
    if kind == Split.RULE:
        return _describe_rule(model, tree, node, language)
    name = format_name(model.schema.names[tree.feature[node]])
    labels = [language.yes, language.no]
    absent = False
    if kind in (Split.SUBSET, Split.MULTIWAY):
        named = _list_branch_levels(model, tree, node)
        absent = bool(named.pop())
        fulls = [
            language.is_in.format(name, join_alternatives(levels, language)) for levels in named
        ]
        if kind == Split.SUBSET:
            room = max(_QUESTION_LETTERS - len(name), 0)
            text = language.is_in.format(name, join_alternatives(named[0], language, room))
        else:
            text = language.split_on.format(name)
            labels = [join_alternatives(levels, language, _BRANCH_LETTERS) for levels in named]
    elif kind == Split.MISSING:
        text = language.is_missing.format(name)
        fulls = [text, language.is_known.format(name)]
    else:
        side, threshold = _describe_threshold(model, tree, node)
        text = f"{side} ≤ {threshold}"
        fulls = [text, f"{side} > {threshold}"]
    rest = _describe_missing_branch(model, kind, absent, language)
    way = int(tree.missing[node])
    branches = tuple(
        BranchText(label, rest if b == way else "", full)
        for b, (label, full) in enumerate(zip(labels, fulls, strict=True))
    )
    return SplitText(text, branches, tuple(_list_surrogates(model, tree, node, language)))


def _describe_rule(model: Model, tree: Tree, node: int, language: Language) -> SplitText:
    """Describe a rule: as many conditions as fit, and the number of further ones."""
    shown = list_conditions(model, tree, node, language)
    text, n = shown[0], 1
    while n < len(shown) and len(text) + len(shown[n]) <= _QUESTION_LETTERS:
        text, n = text + language.comma + shown[n], n + 1
    text = text if n == len(shown) else language.and_more.format(text, len(shown) - n)
    full = language.comma.join(list_conditions(model, tree, node, language, room=None))
    branches = (
        BranchText(language.yes, "", full),
        BranchText(language.no, "", f"{language.no}: {full}"),
    )
    return SplitText(text, branches, ())


def _describe_missing_branch(model: Model, kind: Split, absent: bool, language: Language) -> str:
    """Describe the other values that take the branch of missing values."""
    if kind != Split.MISSING and model.missing in ("direction", "surrogate"):
        return language.or_missing
    # If missing values are refused, categories without training rows here still take it.
    return language.or_absent if absent and model.missing == "error" else ""


def _list_branch_levels(model: Model, tree: Tree, node: int) -> list[list[str]]:
    """List the categories of each branch, then those without training rows at this node."""
    named: list[list[str]] = [[] for _ in range(int(tree.n_children[node]) + 1)]
    levels = model.schema.columns[tree.feature[node]].levels
    for level, branch in zip(levels, tree.branches(node).tolist(), strict=True):
        named[branch].append(format_name(level))  # -1 is the last list
    return named


def _describe_threshold(model: Model, tree: Tree, node: int) -> tuple[str, str]:
    """Format the column or weighted sum that is compared, and the threshold, without rounding."""
    names = model.schema.names
    if tree.kind[node] == Split.THRESHOLD:
        threshold = format_number(tree.threshold[node], model.schema.dtype)
        return format_name(names[tree.feature[node]]), threshold
    own = slice(int(tree.term_offsets[node]), int(tree.term_offsets[node + 1]))
    text = ""
    terms = zip(tree.term_feature[own].tolist(), tree.term_weight[own].tolist(), strict=True)
    for feature, weight in terms:
        size = "" if abs(weight) == 1.0 else f"{format_number(abs(weight), 'float32')} × "
        sign = " − " if weight < 0 else " + "
        lead = text + sign if text else "-" if weight < 0 else ""
        text = f"{lead}{size}{format_name(names[feature])}"
    return text, format_number(tree.threshold[node])


def _list_surrogates(model: Model, tree: Tree, node: int, language: Language) -> list[str]:
    """List the surrogates of a node in order, each as the condition for branch 0."""
    texts = []
    for at in range(int(tree.surrogate_offsets[node]), int(tree.surrogate_offsets[node + 1])):
        column = model.schema.columns[tree.surrogate_feature[at]]
        name = format_name(column.name)
        if column.kind == "numeric":
            sign = "≤" if tree.surrogate_below[at] == 0 else ">"
            threshold = format_number(tree.surrogate_threshold[at], model.schema.dtype)
            texts.append(f"{name} {sign} {threshold}")
            continue
        start, stop = tree.surrogate_level_offsets[at : at + 2].tolist()
        codes = np.flatnonzero(tree.surrogate_level_branch[start:stop] == 0).tolist()
        levels = [format_name(column.levels[code]) for code in codes]
        texts.append(
            language.is_in.format(name, join_alternatives(levels, language, _BRANCH_LETTERS))
        )
    return texts


# ---------------------------------------------------------------- conditions of rules

_CONDITION_LETTERS = 24
"""Characters after which further categories are counted instead of named."""


def list_conditions(
    model: Model, tree: Tree, node: int, language: Language, room: int | None = _CONDITION_LETTERS
) -> list[str]:
    """List the conditions of a node of `Split.RULE`; with `room` None all categories are named."""
    entries = range(int(tree.surrogate_offsets[node]), int(tree.surrogate_offsets[node + 1]))
    return [_describe_condition(model, tree, at, language, room) for at in entries]


def _describe_condition(
    model: Model, tree: Tree, at: int, language: Language, room: int | None
) -> str:
    column = model.schema.columns[tree.surrogate_feature[at]]
    name, conditions = format_name(column.name), []
    if column.kind == "numeric":
        threshold = format_number(tree.surrogate_threshold[at], model.schema.dtype)
        below, above = int(tree.surrogate_below[at]), int(tree.surrogate_above[at])
        if below < 0 or above < 0:
            conditions = [[language.is_known.format(name), f"{name} ≤ {threshold}"][above == 1]]
        if below == 1 and above < 0:
            conditions = [f"{name} > {threshold}"]
    else:
        start, stop = tree.surrogate_level_offsets[at : at + 2].tolist()
        codes = np.flatnonzero(tree.surrogate_level_branch[start:stop] < 0).tolist()
        levels = [format_name(column.levels[code]) for code in codes]
        if len(codes) == stop - start and codes:
            conditions = [language.is_known.format(name)]
        elif codes:
            listed = (
                join_alternatives(levels, language)
                if room is None
                else join_alternatives(levels, language, room)
            )
            conditions = [language.is_in.format(name, listed)]
    if not conditions:
        return language.is_missing.format(name)
    missing_fits = tree.surrogate_lost[at] < 0 and model.missing != "error"
    return f"{conditions[0]} {language.or_missing}" if missing_fits else conditions[0]


# ---------------------------------------------------------------- language


class Language(NamedTuple):
    """Phrases of a picture in one language; braces are placeholders for names and numbers."""

    comma: str
    either: str
    more: str
    yes: str
    no: str
    split_on: str
    is_in: str
    is_missing: str
    is_known: str
    or_missing: str
    or_absent: str
    if_missing: str
    and_more: str
    hidden: str
    hidden_one: str
    no_rows: str
    others: str
    rows: str
    title: str
    of_tree: str
    cut: str
    path_only: str
    path_continues: str
    marked: str
    described: str
    missing: dict[str, str]


ENGLISH = Language(
    comma=", ",
    either=" or ",
    more="{} more",
    yes="yes",
    no="no",
    split_on="{} = ?",
    is_in="{} is {}",
    is_missing="{} is missing",
    is_known="{} is known",
    or_missing="or missing",
    or_absent="or any other",
    if_missing="if missing: {}",
    and_more="{} (+{})",
    hidden="… {} more leaves",
    hidden_one="… 1 more leaf",
    no_rows="no training rows",
    others="other classes",
    rows="{} of the training weight: {} of {}",
    title="Decision tree for {}",
    of_tree="tree {} of {}",
    cut="Cut at depth {}: {} of {} leaves are drawn.",
    path_only="Only the marked way and what branches off it is drawn: {} of {} leaves.",
    path_continues="The marked way goes on below depth {}.",
    marked="on the marked way",
    described="{} leaves, depth {}; {} asks first.",
    missing={
        "direction": "A missing value goes where “or missing” stands.",
        "surrogate": "Where a value is missing, the first known column after “if missing” decides; "
        "where none is known, “or missing”.",
        "fractional": "A row whose value is missing goes down every branch, "
        "in proportion to the training rows.",
        "error": "A missing value is refused.",
    },
)

CHINESE = Language(
    comma="、",
    either=" 或 ",
    more="其他 {} 个",
    yes="是",
    no="否",
    split_on="{} = ?",
    is_in="{} = {}",
    is_missing="{} 缺失",
    is_known="{} 已知",
    or_missing="或缺失",
    or_absent="或其他",
    if_missing="缺失时: {}",
    and_more="{} (+{})",
    hidden="… 另有 {} 个叶结点",
    hidden_one="… 另有 1 个叶结点",
    no_rows="无训练样本",
    others="其他类别",
    rows="占训练权重 {}: {} / {}",
    title="决策树: {}",
    of_tree="第 {} 棵, 共 {} 棵",
    cut="在深度 {} 处截断: 画出 {} / {} 个叶结点。",
    path_only="只画出标记的路径及其旁支: {} / {} 个叶结点。",
    path_continues="标记的路径在深度 {} 以下继续。",
    marked="在标记的路径上",
    described="{} 个叶结点, 深度 {}; 根结点: {}。",
    missing={
        "direction": "缺失值走标有“或缺失”的分支。",
        "surrogate": "缺失时依次改用“缺失时”后的划分; 都缺失则走标有“或缺失”的分支。",
        "fractional": "缺失值的样本按训练权重的比例进入每个分支。",
        "error": "不接受缺失值。",
    },
)

LANGUAGES = {"en": ENGLISH, "zh": CHINESE}


def get_language(name: str) -> Language:
    """Return the phrases of a language.

    Raises
    ------
    SettingError
        For an unsupported language.
    """
    if name not in LANGUAGES:
        raise SettingError(f"unknown language {name!r} of a picture; known: {', '.join(LANGUAGES)}")
    return LANGUAGES[name]


# ---------------------------------------------------------------- names and numbers
# Names are untrusted text: unprintable or ambiguous ones are quoted and escaped as in
# the text of rules (`treekit.rules.wording.quote_text`).  Thresholds are exact; shares and
# weights of training rows are rounded.

MAX_NAME_LENGTH, MAX_LIST_LENGTH = 200, 2000
"""Maximum characters of a name, and of a list of categories in a tooltip."""

_RIGHT_TO_LEFT = frozenset(("R", "AL", "AN"))
_ISOLATE, _POP = "\u2068", "\u2069"


def format_name(name: str) -> str:
    """Return a name, quoted and escaped if it is unprintable or ambiguous.

    Names in a right-to-left script are isolated, so that adjacent
    numbers and signs keep their positions.
    """
    text = name if len(name) <= MAX_NAME_LENGTH else name[: MAX_NAME_LENGTH - 1] + "…"
    plain = text.isprintable() and text == text.strip() and "  " not in text and text
    if not plain or text.startswith('"') or unicodedata.combining(text[0]):
        return quote_text(text)
    if any(unicodedata.bidirectional(char) in _RIGHT_TO_LEFT for char in text):
        return f"{_ISOLATE}{text}{_POP}"
    return text


def format_label(label: Label) -> str:
    """Return the text of a class label; numbers and bools are written as in the text of rules."""
    return format_name(label) if isinstance(label, str) else format_name(quote_label(label))


def join_alternatives(
    texts: Sequence[str], language: Language, letters: int = MAX_LIST_LENGTH
) -> str:
    """Join texts: ``a``, ``a or b``, ``a, b or c``; after about `letters`: ``a, b or 9 more``."""
    room, fit = letters, 0
    while fit < len(texts) and (fit == 0 or len(texts[fit]) + 2 <= room):
        room -= len(texts[fit]) + 2
        fit += 1
    shown = list(texts[:fit])
    if fit < len(texts):
        shown.append(language.more.format(len(texts) - fit))
    if len(shown) < 2:
        return shown[0] if shown else "—"
    return language.comma.join(shown[:-1]) + language.either + shown[-1]


def format_number(value: float, dtype: str = "float64") -> str:
    """Return the shortest text that round-trips to the number of that dtype."""
    return format_numbers(np.array([value]), "float32" if dtype == "float32" else "float64")[0]


def format_value(value: float) -> str:
    """Format a number: exact up to six digits, a longer one rounded and marked with ≈."""
    exact = format_number(value)
    if sum(char.isdigit() for char in exact.partition("e")[0].lstrip("-0.")) <= 6:
        return exact
    return f"≈ {value:.5g}".replace("e+", "e")


def format_weight(weight: float) -> str:
    """Format a sum of training weights, to four digits unless it is an integer."""
    if weight == round(weight) and weight < 1e15:
        return f"{weight:,.0f}"
    return f"{weight:.4g}".replace("e+", "e")


def format_percent(share: float) -> str:
    """Format a share of the training rows as a percentage, to three digits."""
    percent = 100.0 * share
    return "< 0.01%" if 0.0 < percent < 0.01 else f"{percent:.3g}%"
