"""A model as rules: paths, merged conditions, text, and the text run again.

>>> text = str(rules(model))
>>> parse_rules(text).sums(rows)
"""

from __future__ import annotations

from treekit.contracts import Setting
from treekit.model.ensemble import Model
from treekit.rules.extract import rules
from treekit.rules.read import parse_rules
from treekit.rules.records import Answer, Condition, Rule
from treekit.rules.rounded import rounded
from treekit.rules.rulelist import RuleList

__all__ = [
    "RULES_SETTINGS",
    "Answer",
    "Condition",
    "Rule",
    "RuleList",
    "export_rules",
    "parse_rules",
    "rounded",
    "rules",
]

RULES_SETTINGS: tuple[Setting, ...] = ()
"""The text has one form only; there is nothing to set."""


def export_rules(model: Model, name: str) -> dict[str, bytes]:
    """``{name + ".rules.txt": text}``, UTF-8; see `treekit.rules.write`."""
    return {f"{name}.rules.txt": b"".join(piece.encode() for piece in rules(model).text())}
