"""Whether a catalogue of a user's own can be written, and read back without doubt.

Such a file is untrusted text: phrases are filled in and matched literally, are short,
and hold nothing that could break a line or a quoted name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from treekit.errors import ModelFileError, SettingError
from treekit.rules.language import (
    ENGLISH,
    GRAMMAR,
    Language,
    fields_of,
    known_languages,
    language,
)

__all__ = ["NOTE", "checked"]

NOTE = "note_"
DOCUMENT = "page_"
_LONGEST = 400
_MOST_LINES = 12
# Language, script, region, private use (RFC 5646): what browsers sort by, too.
_CODE = re.compile(
    r"[a-z]{2,3}(?:-[A-Z][a-z]{3})?(?:-(?:[A-Z]{2}|[0-9]{3}))?(?:-x(?:-[A-Za-z0-9]{1,8}){1,3})?"
)
_TOUCHED = re.compile(r"\w\{[a-z_0-9]+\}|\{[a-z_0-9]+\}[\w{]")
# Of which the reader looks for what stands before and after it.
_ONCE = {
    "rule_if": "condition",
    "rule_and": "condition",
    "rule_share": "share",
    "rule_target": "answer",
}
# Documents say these as they are: what Markdown, or a spreadsheet, would take for its own.
_MARKUP = frozenset("<>[]`|*_\\")
_FORMULA = frozenset("=+-@＝＋－＠")
_SEPARATORS = ("if_comma", "if_or", "rule_comma", "test_otherwise")


def checked(table: Mapping[str, Any], file: str) -> Language:
    """The language of a catalogue file.

    Parameters
    ----------
    table : mapping
        What the file says.
    file : str
        Its name, for messages.

    Raises
    ------
    SettingError
        Names the file, the key and the rule.
    """
    try:
        own = language(ENGLISH).phrases
        code = _code(table.get("code"))
        said = {key: _phrase(key, text, own) for key, text in table.items() if key != "code"}
        needed = [key for key in own if key.startswith((*GRAMMAR, NOTE))]
        missing = [key for key in needed if key not in said]
        if missing:
            raise ValueError(f"it lacks {', '.join(missing[:5])}; it needs all of en.toml")
        words = Language(code, own | said)
        _facts(words)
        _told_apart(words)
        _round_trips(words)
        return words
    except (ValueError, ModelFileError) as error:
        raise SettingError(f"the catalogue {file!r} cannot be used: {error}") from error


def _code(code: object) -> str:
    if not isinstance(code, str) or not _CODE.fullmatch(code) or code in known_languages():
        raise ValueError(
            f'code is {_told(code)}; it is that of a language, as in code = "fr", '
            f"and none that treekit brings ({', '.join(known_languages())}; "
            'a variant is, for example, "en-x-mine")'
        )
    return code


def _told(value: object) -> str:
    """A value for a message; tables and lists may be nested too deep to be told."""
    return f"a {type(value).__name__}" if isinstance(value, dict | list) else repr(value)


def _phrase(key: str, text: object, own: Mapping[str, str]) -> str:
    """A phrase, its lines joined."""
    lines: list[Any] = text if isinstance(text, list) and key.startswith(NOTE) else [text]
    if not lines or len(lines) > _MOST_LINES:
        raise ValueError(f"{key} has {len(lines)} lines; a note has 1 to {_MOST_LINES}")
    for line in lines:
        if not isinstance(line, str):
            told = _told(line)
            raise ValueError(f"{key} is {told}; it is a text (or, of a note, a list of texts)")
        if len(line) > _LONGEST or not line.isprintable():
            raise ValueError(
                f"{key} is longer than {_LONGEST} characters, or has a line break or another "
                "character that does not print; write plain spaces, and a note as a list of lines"
            )
    phrase = "\n".join(lines)
    if key in own and fields_of(phrase) != fields_of(own[key]):
        fields = ", ".join(f"{{{field}}}" for field in sorted(fields_of(own[key]))) or "no fields"
        raise ValueError(f"{key} is {phrase!r}; it needs {fields}, and no others")
    if key.startswith(GRAMMAR):
        _beside_names(key, phrase)
    if key.startswith(DOCUMENT) and (_MARKUP.intersection(phrase) or phrase[:1] in _FORMULA):
        raise ValueError(
            f"{key} is {phrase!r}; documents take none of {' '.join(sorted(_MARKUP))} in it, and "
            "no sign of a formula at its start"
        )
    return phrase


def _beside_names(key: str, phrase: str) -> None:
    """What a phrase that stands beside names must be."""
    if '"' in phrase or "\\" in phrase:
        raise ValueError(f"{key} is {phrase!r}; double quotes and backslashes belong to names")
    if _TOUCHED.search(phrase):
        raise ValueError(
            f"{key} is {phrase!r}; a space or a sign stands between a field and a letter, a "
            "digit or another field"
        )
    field = _ONCE.get(key)
    if field and phrase.count(f"{{{field}}}") != 1:
        raise ValueError(f"{key} is {phrase!r}; it says {{{field}}} once")
    if key in _SEPARATORS and ((len(phrase) < 2 and phrase.isspace()) or not phrase):
        raise ValueError(f"{key} is {phrase!r}; it is more than a space")
    if key in _SEPARATORS and (phrase[0].isalnum() or phrase[-1].isalnum()):
        raise ValueError(f"{key} is {phrase!r}; a space or a sign stands beside names")


def _facts(words: Language) -> None:
    """Keys of the header are told apart, and from explanations."""
    keys = {key: text for key, text in words.phrases.items() if key.startswith("fact_")}
    for key, text in keys.items():
        if not text or text != text.strip() or "  " in text:
            raise ValueError(f"{key} is {text!r}; it is a word or a few, with single spaces")
        same = [other for other in keys if other != key and keys[other] == text]
        if same:
            raise ValueError(f"{key} and {same[0]} are both {text!r}")


def _told_apart(words: Language) -> None:
    """No phrase reads as another one does."""
    from treekit.rules.patterns import NUMBER, SHARE, WHOLE, Atoms, Patterns
    from treekit.rules.read_phrases import CORE, TAILS

    atoms = Atoms(words)
    known = atoms.known | {"answer": atoms.label, "shares": ".+", "support": NUMBER}
    known |= {"sum": atoms.name, "at": NUMBER, "label": atoms.label, "share": SHARE}
    known |= dict.fromkeys(("rule", "rules", "tree", "trees", "node"), WHOLE)
    sample = {"name": "abc", "levels": "def", "others": "ghi", "low": "1", "high": "2"}
    sample |= {"test": words.say("test_name", number="1"), "gist": "jkl", "condition": "mno"}
    for group in (
        CORE,
        (*TAILS, *CORE),
        ("test_above", "test_upto", "test_rather", "if_is"),
        ("head_number", "head_levels", "head_no_levels"),
        ("rule_as_above", "rule_support"),
    ):
        patterns = Patterns(words, group, known)
        for key in group:
            fields = {field: sample.get(field, "3") for field in fields_of(words.phrases[key])}
            fields |= {"sum": "abc"} if "sum" in fields else {}
            text = words.say(key, **fields)
            found = patterns.read(text)
            if found != (key, fields):
                other = found[0] if found is not None else "nothing"
                raise ValueError(f"{text!r}, which {key} says, is read as {other}")


def _round_trips(words: Language) -> None:
    """Every sort of rule is read back as it is written."""
    from treekit.rules.read import parse_rules
    from treekit.rules.samples import samples

    for rules in samples():
        text = "".join(rules.text(language=words))
        again = parse_rules(text, language=words)
        if "".join(again.text()) != "".join(rules.text()):
            raise ValueError("some rules are read back as others: phrases cannot be told apart")
