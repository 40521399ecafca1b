"""A model as rules: paths, merged conditions, text, and the text run again.

>>> text = str(rules(model))
>>> parse_rules(text).sums(rows)

| module | holds |
|---|---|
| `rule_list` | `RuleList`, `Rule`, `Condition` |
| `extract`, `merge` | the rules of a model, and rules of equal answers merged |
| `evaluate`, `measure` | rules run on rows, and their support and precision |
| `simplify_thresholds` | thresholds with fewer digits |
| `to_model` | a rule list as a model |
| `language`, `wording`, `check_catalogue` | catalogues of phrases, and conditions in words |
| `write_text`, `read_text` | rules as text, and the text read back |
| `read_edited`, `revise` | edited rules as a new model, and what changed |
| `analysis`, `drift` | overlapping rules, and rules compared on new rows |
"""

from __future__ import annotations

from treekit.contracts import Setting
from treekit.model.model import Model
from treekit.rules.analysis import Overlaps, overlapping_rules
from treekit.rules.drift import Against, rules_against
from treekit.rules.extract import rules
from treekit.rules.language import ENGLISH
from treekit.rules.measure import Measures, measured, table_measures, training_measures
from treekit.rules.merge import joined_rules
from treekit.rules.read_text import parse_rules
from treekit.rules.rule_list import Answer, Condition, Rule, RuleList
from treekit.rules.simplify_thresholds import rounded

__all__ = [
    "RULES_SETTINGS",
    "Against",
    "Answer",
    "Condition",
    "Measures",
    "Overlaps",
    "Rule",
    "RuleList",
    "export_rules",
    "joined_rules",
    "measured",
    "overlapping_rules",
    "parse_rules",
    "rounded",
    "rules",
    "rules_against",
    "table_measures",
    "training_measures",
]

RULES_SETTINGS = (Setting("language", ENGLISH, "en, zh, or a catalogue file that ends with .toml"),)


def export_rules(model: Model, name: str, language: str = ENGLISH) -> dict[str, bytes]:
    """``{name + ".rules.txt": text}``, UTF-8; see `treekit.rules.write_text`."""
    pieces = joined_rules(model).text(language=language)
    return {f"{name}.rules.txt": b"".join(piece.encode() for piece in pieces)}
