"""A model as rules: paths, merged conditions, text, and the text run again.

>>> text = str(rules(model))
>>> parse_rules(text).sums(rows)
"""

from __future__ import annotations

from treekit.contracts import Setting
from treekit.model.ensemble import Model
from treekit.rules.extract import rules
from treekit.rules.language import ENGLISH
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

RULES_SETTINGS = (Setting("language", ENGLISH, "en, zh, or a catalogue file that ends with .toml"),)


def export_rules(model: Model, name: str, language: str = ENGLISH) -> dict[str, bytes]:
    """``{name + ".rules.txt": text}``, UTF-8; see `treekit.rules.write`."""
    pieces = rules(model).text(language=language)
    return {f"{name}.rules.txt": b"".join(piece.encode() for piece in pieces)}
