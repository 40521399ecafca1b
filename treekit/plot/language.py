"""The few words of a picture, in the languages that it speaks."""

from __future__ import annotations

from typing import NamedTuple

from treekit.errors import SettingError

__all__ = ["LANGUAGES", "Language", "language_named"]


class Language(NamedTuple):
    """Words; braces stand for names and numbers."""

    comma: str
    either: str
    more: str
    yes: str
    no: str
    asks: str
    is_in: str
    is_missing: str
    is_known: str
    or_missing: str
    or_absent: str
    instead: str
    and_more: str
    hidden: str
    hidden_one: str
    nobody: str
    others: str
    rows: str
    title: str
    of_tree: str
    cut: str
    along: str
    goes_on: str
    marked: str
    described: str
    missing: dict[str, str]


ENGLISH = Language(
    comma=", ",
    either=" or ",
    more="{} more",
    yes="yes",
    no="no",
    asks="{} = ?",
    is_in="{} is {}",
    is_missing="{} is missing",
    is_known="{} is known",
    or_missing="or missing",
    or_absent="or any other",
    instead="if missing: {}",
    and_more="{} (+{})",
    hidden="… {} more leaves",
    hidden_one="… 1 more leaf",
    nobody="no training rows",
    others="other classes",
    rows="{} of the training weight: {} of {}",
    title="Decision tree for {}",
    of_tree="tree {} of {}",
    cut="Cut at depth {}: {} of {} leaves are drawn.",
    along="Only the marked way and what branches off it is drawn: {} of {} leaves.",
    goes_on="The marked way goes on below depth {}.",
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
    asks="{} = ?",
    is_in="{} = {}",
    is_missing="{} 缺失",
    is_known="{} 已知",
    or_missing="或缺失",
    or_absent="或其他",
    instead="缺失时: {}",
    and_more="{} (+{})",
    hidden="… 另有 {} 个叶结点",
    hidden_one="… 另有 1 个叶结点",
    nobody="无训练样本",
    others="其他类别",
    rows="占训练权重 {}: {} / {}",
    title="决策树: {}",
    of_tree="第 {} 棵, 共 {} 棵",
    cut="在深度 {} 处截断: 画出 {} / {} 个叶结点。",
    along="只画出标记的路径及其旁支: {} / {} 个叶结点。",
    goes_on="标记的路径在深度 {} 以下继续。",
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


def language_named(name: str) -> Language:
    """The words of a language.

    Raises
    ------
    SettingError
        For a language that pictures do not speak.
    """
    if name not in LANGUAGES:
        raise SettingError(f"unknown language {name!r} of a picture; known: {', '.join(LANGUAGES)}")
    return LANGUAGES[name]
