"""A model as rules: paths, merged conditions, text, and the text run again.

>>> text = str(rules(model))
>>> parse_rules(text).sums(rows)

Where what is done:

- lists: `rulelist`, `conditions`, `records`, `clauses`; from a model `extract` (`divided`,
  `listed`), with equal answers joined `joined` (`collapsed`, `merging`); to a model `as_model`;
  run `evaluate` (`cells`, `policies`), rule by rule `fired`; shortened numbers `rounded`; of
  some leaves alone `of_leaves`;
- words: `language` (`catalogue/`, `check_language`, `samples`), `words`, `phrases`, `patterns`;
  written by `header` and `write`, read by `read` (`read_header`, `read_phrases`,
  `read_answers`);
- edited by hand: `edited` (`edited_answers`) reads, `matched` and `revised` make the model,
  `supported` measures it, `changed` tells;
- judged: `measure`, `tables`; on new rows `against` (`drift`); by each other `overlaps`
  (`spaces`, `meeting`, `covering`);
- `learn/`: short lists; `explain/`: one row.  Documents are `treekit.documents`.
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
