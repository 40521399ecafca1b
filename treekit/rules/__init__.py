"""Rule lists: extract rules from a model, merge, evaluate, write and parse them.

>>> text = str(rules(model))
>>> parse_rules(text).sums(rows)

Its modules, by what they hold:

- `rule_list`: `RuleList`, `Rule`, `Condition`
- `extract`, `merge`: rules of a model; merging of rules with equal predictions
- `evaluate`, `measure`: evaluation of rules on rows; support and precision
- `language`, `wording`: phrase catalogues; conditions as text
- `write_text`, `read_text`: rule text: writer, and parser of exact and of edited text
- `revise`: edited rules to a new model; differences between models
- `cover`: search for rows that no rule matches
"""

from __future__ import annotations

from treekit.contracts import Setting
from treekit.model.model import Model
from treekit.rules.extract import rules
from treekit.rules.language import ENGLISH
from treekit.rules.measure import (
    Measures,
    measured,
    table_measures,
    training_measures,
)
from treekit.rules.merge import joined_rules
from treekit.rules.read_text import parse_rules
from treekit.rules.rule_list import Answer, Condition, Rule, RuleList

__all__ = [
    "RULES_SETTINGS",
    "Answer",
    "Condition",
    "Measures",
    "Rule",
    "RuleList",
    "export_rules",
    "joined_rules",
    "measured",
    "parse_rules",
    "rules",
    "table_measures",
    "training_measures",
]

RULES_SETTINGS = (Setting("language", ENGLISH, "language of the text", choices=("en", "zh")),)


def export_rules(model: Model, name: str, language: str = ENGLISH) -> dict[str, bytes]:
    """Return ``{name + ".rules.txt": text}`` in UTF-8; see `treekit.rules.write_text`."""
    pieces = joined_rules(model).text(language=language)
    return {f"{name}.rules.txt": b"".join(piece.encode() for piece in pieces)}
