"""Reading `treekit.forms.json`: strictly, and nothing taken on trust."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from treekit.errors import ModelFileError
from treekit.forms.json import FORMAT, VERSION
from treekit.forms.json_answers import Answers
from treekit.forms.json_conditions import Conditions
from treekit.forms.json_facts import without_rules
from treekit.forms.json_values import (
    At,
    JsonError,
    Numeral,
    flag,
    items,
    loads,
    members,
    numeral,
    string,
    whole,
)
from treekit.rules.read_edited import on_grid
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import read_numeral

__all__ = ["read_json"]

_REQUIRED = ("format", "version", "targets", "columns", "type", "missing", "unknown", "rules")
_OPTIONAL = (
    *("missing_marks", "voting", "order", "costs", "trees", "combine", "link", "exponent"),
    *("tests", "decisions", "rounding"),
)
_RULE, _RULE_OPTIONAL = ("if", "then"), ("tree", "node", "support", "as_parent")
_MOST_NODES = 2**31 - 1


def read_json(text: str) -> RuleList:
    """The list that a JSON text states.

    Raises
    ------
    ModelFileError
        For anything that `treekit.forms.json` does not describe; names the place in the text,
        as ``$.rules[3].if[0]`` (counted from 0).
    """
    try:
        with At():
            return _read(loads(text))
    except JsonError as fault:
        raise ModelFileError(
            f"{fault.place} of the rules cannot be read: {fault}; mend it, or write the rules "
            "again from their model"
        ) from fault


def _read(whole_text: Any) -> RuleList:
    facts = members(whole_text, _REQUIRED, _OPTIONAL)
    with At("format"):
        string(facts["format"], (FORMAT,))
    with At("version"):
        whole(facts["version"], VERSION, VERSION)
    listed = without_rules(facts)
    with At("rules"):
        return _rules(items(facts["rules"]), listed)


def _rules(stated: list[Any], listed: RuleList) -> RuleList:
    conditions, answers = Conditions(listed), Answers(listed)
    tree: list[int] = []
    leaf: list[int] = []
    support, as_parent, said, kept, end = [], [], [], [], [0]
    for number, value in enumerate(stated):
        with At(number):
            rule = members(value, _RULE, _RULE_OPTIONAL)
            tree.append(_tree(rule, tree[-1] if tree else -1, listed.n_trees))
            leaf.append(_node(rule, leaf[-1] if tree[-2:-1] == tree[-1:] else -1))
            support.append(_support(rule))
            as_parent.append(_flag(rule, "as_parent"))
            if as_parent[-1] and support[-1]:
                raise JsonError("a rule with support does not answer as the node above it")
            with At("if"):
                end.append(conditions.rule(rule["if"]))
            with At("then"):
                answer, training = answers.read(rule["then"])
            said.append(answer)
            kept.append(training)
    if not tree or tree[-1] != listed.n_trees - 1:
        raise JsonError(f"there are {listed.n_trees} trees, and each has at least one rule")
    if listed.order == "first":
        last = np.flatnonzero(np.diff(tree, append=-1))
        if (asks := last[np.diff(end)[last] > 0]).size:
            raise JsonError("the last rule of an ordered list asks nothing", (int(asks[0]), "if"))
    trees = np.array(tree, dtype=np.int32)
    units, exponent = on_grid(np.array(said, dtype=np.float64), trees, listed)
    return replace(
        listed,
        exponent=exponent,
        tree=trees,
        leaf=np.array(leaf, dtype=np.int32),
        support=np.array(support, dtype=np.float64),
        as_parent=np.array(as_parent, dtype=np.bool_),
        units=units,
        end=np.array(end[1:], dtype=np.int64),
        conditions=conditions.table(),
        value=None if None in kept else np.array(kept, dtype=np.float64),
    )


def _tree(rule: dict[str, Any], before: int, n_trees: int) -> int:
    with At("tree"):
        tree = whole(rule.get("tree", Numeral("1")), 1, n_trees) - 1
        if tree not in (before, before + 1) or tree < 0:
            raise JsonError("the rules of a tree stand together, and no tree is left out")
        return tree


def _node(rule: dict[str, Any], before: int) -> int:
    if "node" not in rule:
        return before + 1
    with At("node"):
        return whole(rule["node"], 0, _MOST_NODES)


def _support(rule: dict[str, Any]) -> float:
    if "support" not in rule:
        return 0.0
    with At("support"):
        support = read_numeral(numeral(rule["support"]))
        if support < 0:
            raise JsonError("support is not negative")
        return support


def _flag(rule: dict[str, Any], key: str) -> bool:
    if key not in rule:
        return False
    with At(key):
        return flag(rule[key])
