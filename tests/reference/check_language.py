"""Check that rule text in a language can be written, and parsed without ambiguity."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, get_args

import numpy as np

from treekit.data.schema import Column, Output, Schema
from treekit.model.builder import (
    Node,
    Surrogate,
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    subset,
    threshold,
)
from treekit.model.links import Link
from treekit.model.model import make_model
from treekit.rules.extract import rules
from treekit.rules.language import (
    ENGLISH,
    GRAMMAR_PREFIXES,
    Language,
    load_language,
)
from treekit.rules.rule_list import ConditionTable, RuleList

__all__ = [
    "NOTE_PREFIX",
    "check_language",
    "make_samples",
]


# ---------------------------------------------------------------- check language

NOTE_PREFIX = "note_"
DOCUMENT_PREFIX = "page_"
_MAX_LENGTH = 400
_MAX_LINES = 12
_TOUCHING_FIELDS = re.compile(r"\w\{[a-z_0-9]+\}|\{[a-z_0-9]+\}[\w{]")
# Fields that occur once: the parser looks for the text before and after them.
_SINGLE_FIELDS = {
    "rule_if": "condition",
    "rule_and": "condition",
    "rule_share": "share",
    "rule_target": "answer",
}
# Phrases are not escaped in documents: no Markdown markup and no spreadsheet formulas.
_MARKUP_SIGNS = frozenset("<>[]`|*_\\")
_FORMULA_SIGNS = frozenset("=+-@＝＋－＠")
_SEPARATORS = ("if_comma", "if_or", "rule_comma", "head_next", "test_otherwise")


def list_fields(phrase: str) -> set[str]:
    """Return the fields of a phrase."""
    return set(re.findall(r"\{([a-z_][a-z_0-9]*)\}", phrase))


def check_language(words: Language) -> None:
    """Check that rule text in a language is unambiguous, and is parsed as it was written.

    Raises
    ------
    ValueError, ModelFileError
        Names the key and the rule.
    """
    own = load_language(ENGLISH).phrases
    for key, text in words.phrases.items():
        if key.startswith((*GRAMMAR_PREFIXES, DOCUMENT_PREFIX)):
            _parse_phrase(key, text, own)
    _check_facts(words)
    _check_unambiguous(words)
    _check_round_trips(words)


def _format_value(value: object) -> str:
    """Return a value for a message; tables and lists may be nested too deep for `repr`."""
    return f"a {type(value).__name__}" if isinstance(value, dict | list) else repr(value)


def _parse_phrase(key: str, text: object, own: Mapping[str, str]) -> str:
    """Check a phrase and return it, its lines joined."""
    lines: list[Any] = text if isinstance(text, list) and key.startswith(NOTE_PREFIX) else [text]
    if not lines or len(lines) > _MAX_LINES:
        raise ValueError(f"{key} has {len(lines)} lines; give 1 to {_MAX_LINES}")
    for line in lines:
        if not isinstance(line, str):
            value = _format_value(line)
            raise ValueError(f"{key} is {value}; give a text (for a note, also a list of texts)")
        if len(line) > _MAX_LENGTH or not line.isprintable():
            raise ValueError(
                f"{key} is longer than {_MAX_LENGTH} characters, or contains a line break or "
                "another "
                "unprintable character; use plain spaces, and a list of lines for a note"
            )
    phrase = "\n".join(lines)
    if key in own and list_fields(phrase) != list_fields(own[key]):
        fields = ", ".join(f"{{{field}}}" for field in sorted(list_fields(own[key]))) or "no fields"
        raise ValueError(f"{key} is {phrase!r}; its fields must be {fields}")
    if key.startswith(GRAMMAR_PREFIXES):
        _check_grammar_phrase(key, phrase)
    if key.startswith(DOCUMENT_PREFIX) and (
        _MARKUP_SIGNS.intersection(phrase) or phrase[:1] in _FORMULA_SIGNS
    ):
        raise ValueError(
            f"{key} is {phrase!r}; leave out {' '.join(sorted(_MARKUP_SIGNS))}, and formula "
            "signs at "
            "its start"
        )
    return phrase


def _check_grammar_phrase(key: str, phrase: str) -> None:
    """Check a phrase that is next to names."""
    if '"' in phrase or "\\" in phrase:
        raise ValueError(
            f"{key} is {phrase!r}; double quotes and backslashes are reserved for names"
        )
    if _TOUCHING_FIELDS.search(phrase):
        raise ValueError(
            f"{key} is {phrase!r}; put a space or a sign between a field and a letter, a digit "
            "or another field"
        )
    field = _SINGLE_FIELDS.get(key)
    if field and phrase.count(f"{{{field}}}") != 1:
        raise ValueError(f"{key} is {phrase!r}; it must contain {{{field}}} once")
    if key in _SEPARATORS and ((len(phrase) < 2 and phrase.isspace()) or not phrase):
        raise ValueError(f"{key} is {phrase!r}; it must not be empty or a single space")
    if key in _SEPARATORS and (phrase[0].isalnum() or phrase[-1].isalnum()):
        raise ValueError(
            f"{key} is {phrase!r}; it must begin and end with a space or a punctuation mark"
        )


def _check_facts(words: Language) -> None:
    """Check that header keys differ from each other and from explanations."""
    keys = {key: text for key, text in words.phrases.items() if key.startswith("fact_")}
    for key, text in keys.items():
        if not text or text != text.strip() or "  " in text:
            raise ValueError(f"{key} is {text!r}; give one or a few words with single spaces")
        same = [other for other in keys if other != key and keys[other] == text]
        if same:
            raise ValueError(f"{key} and {same[0]} are both {text!r}; they must differ")


def _check_unambiguous(words: Language) -> None:
    """Check that no phrase is parsed as another one."""
    from treekit.rules.read_text import CORE_PHRASES, TAIL_PHRASES
    from treekit.rules.wording import (
        INTEGER_PATTERN,
        NUMBER_PATTERN,
        SHARE_PATTERN,
        FieldPatterns,
        PhrasePatterns,
    )

    atoms = FieldPatterns(words)
    known = atoms.by_field | {"answer": atoms.label, "shares": ".+", "support": NUMBER_PATTERN}
    known |= {"sum": atoms.name, "at": NUMBER_PATTERN, "label": atoms.label, "share": SHARE_PATTERN}
    known["outputs"] = atoms.name
    known |= dict.fromkeys(("rule", "rules", "tree", "trees", "node"), INTEGER_PATTERN)
    sample = {"name": "abc", "levels": "def", "others": "ghi", "low": "1", "high": "2"}
    sample |= {
        "outputs": "abc",
        "test": words.say("test_name", number="1"),
        "gist": "jkl",
        "condition": "mno",
    }
    for group in (
        CORE_PHRASES,
        (*TAIL_PHRASES, *CORE_PHRASES),
        ("test_above", "test_upto", "test_rather", "if_is"),
        ("head_number", "head_levels", "head_no_levels"),
        ("head_predicts_trees", "head_predicts"),
        ("rule_as_above", "rule_support"),
    ):
        patterns = PhrasePatterns(words, group, known)
        for key in group:
            fields = {field: sample.get(field, "3") for field in list_fields(words.phrases[key])}
            fields |= {"sum": "abc"} if "sum" in fields else {}
            text = words.say(key, **fields)
            found = patterns.match_phrase(text)
            if found != (key, fields):
                other = found[0] if found is not None else "nothing"
                raise ValueError(f"{text!r}, the text of {key}, is parsed as {other}")


def _check_round_trips(words: Language) -> None:
    """Check that rules of every kind are parsed as they were written."""
    from treekit.rules.read_text import parse_rules

    for sample in make_samples():
        text = "".join(sample.text(language=words))
        again = parse_rules(text, language=words)
        if "".join(again.text()) != "".join(sample.text()):
            raise ValueError("some rules are parsed as other rules: phrases are ambiguous")


# ---------------------------------------------------------------- samples
# Small rule lists that together use every phrase of the rule text.


@cache
def make_samples() -> tuple[RuleList, ...]:
    """Return small rule lists of every kind."""
    return (
        *_make_class_lists(),
        *_make_number_lists(),
        *_make_sum_lists(),
        _make_ordered_list(),
        _make_decision_list(),
    )


def _make_schema(**other: Any) -> Schema:
    colours = ("red", "green", "dark blue", "white")
    columns = [Column("size"), Column("colour", "nominal", colours), Column("no value")]
    columns.append(Column("void", "nominal"))
    return Schema(tuple(columns), **{"target": "ripe", "classes": ("yes", "no")} | other)


def _make_rules(schema: Schema, *nodes: Node, **policies: Any) -> RuleList:
    return rules(make_model(schema, [build_tree(node, schema) for node in nodes], **policies))


def _make_class_lists() -> Iterator[RuleList]:
    """Generate rule lists with every kind of condition, fractional instances and costs."""
    schema, (a, b) = _make_schema(), (leaf([3, 1]), leaf([1, 4]))
    inner = threshold("size", 9, threshold("size", 10, a, b), leaf([0, 0.5]))
    bounds = threshold("size", 1.5, a, threshold("size", 4, b, inner, missing=0), missing=1)
    sets = subset("colour", ["red", "white", "green"], is_missing("size", a, b), b, missing=0)
    below = multiway("colour", {"red": leaf([3, 1]), "green": leaf([3, 1], 0)})
    yield _make_rules(schema, bounds, sets, is_missing("colour", a, b), below, leaf([1, 1]))
    yield _make_rules(schema, bounds, costs=[[0, 1], [9, 0]], missing="error", unknown="error")
    yield _make_rules(_make_schema(dtype="float64"), sets, voting="hard")
    wide: dict[int | str, float] = {"size": 0.5, "no value": -1.25}
    instead = [Surrogate("no value", 0.25, below=1), Surrogate("colour", levels={"red": 0})]
    instead.append(Surrogate("colour", levels={"red": 1, "green": 1, "white": 1}))
    stands_in = threshold("size", 2.5, a, b, missing=1, surrogates=instead)
    other = subset("colour", ["red"], a, b, surrogates=(Surrogate("size", 1.0),))
    sums = oblique(wide, 0.875, oblique(wide, 0.875, a, b), b, missing=1)
    long: dict[int | str, float] = {"size": 0.1234567, "no value": -1.7654321}
    yield _make_rules(schema, sums, oblique(long, 1 / 3, a, is_missing("size", a, b)))
    either = oblique(wide, 0, a, b, missing=0), oblique(wide, 0, b, a, missing=1)
    yield _make_rules(schema, *either)
    yield _make_rules(schema, *either, missing="fractional")
    yield _make_rules(schema, stands_in, other, missing="surrogate")
    shades = multiway("colour", {"red": a, "white": b})
    yield _make_rules(schema, threshold("size", 2.5, a, shades), shades, missing="fractional")
    several = _make_schema(more=(Output("sort", (1, 2, 3)), Output("a b", ("x", "y z"))))
    split = threshold("size", 1, leaf([0, 1, 0, 1, 3, 1, 1]), leaf([1, 3, 3, 1, 0, 0, 2]))
    yield _make_rules(several, split)


def _make_ordered_list() -> RuleList:
    """Return two rules, the last one without conditions."""
    disjoint = _make_rules(_make_schema(), threshold("size", 0.5, leaf([3, 1]), leaf([1, 4])))
    first = slice(0, 1)
    conditions = ConditionTable._make(part[first] for part in disjoint.conditions)
    return replace(disjoint, order="first", end=np.array([1, 1]), conditions=conditions)


def _make_decision_list() -> RuleList:
    """Return rules with labels and without shares."""
    split = threshold("size", 0.5, leaf([3, 1]), leaf([1, 4]))
    return replace(_make_rules(_make_schema(), split, voting="hard"), decisions=True)


def _make_number_lists() -> Iterator[RuleList]:
    """Generate lists of means: one tree, several trees, fractional instances, several targets."""
    schema = _make_schema(classes=(), task="regression")
    split = threshold("size", 0.5, leaf(0.1), leaf(-1e9), missing=0)
    yield _make_rules(schema, split)
    yield _make_rules(schema, split, split)
    yield _make_rules(schema, split, missing="fractional")
    several = _make_schema(classes=(), task="regression", more=(Output("b"),))
    yield _make_rules(several, threshold("size", 0.5, leaf([0.1, 1e6]), leaf([1.5, -2.0])))


def _make_sum_lists() -> Iterator[RuleList]:
    """Generate lists of added numbers and margins, with every link function."""
    schema = _make_schema(classes=(), task="regression")
    split = threshold("size", 0.5, leaf(0.1), leaf(-1e9), missing=0)
    yield _make_rules(schema, split, split, combine="sum", link="exp")
    schema = _make_schema(classes=("a", "b", "c d"))
    some, none = leaf([0.0, 0.5, -2.0], 1.0), leaf([0.0] * 3, 1.0)
    tree = build_tree(threshold("size", 1, some, none), schema, margins=True)
    for link in get_args(Link)[2:]:
        yield rules(make_model(schema, [tree], combine="sum", link=link))
