"""Phrase catalogues of rule text, one small TOML file per language.

A catalogue contains phrases with fields in braces.  Each phrase is filled in once, field
by field: field values are never interpreted as phrases, and cannot extend beyond their
field.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

from treekit.errors import SettingError

ENGLISH = "en"
FIRST_LINE = "treekit rules, format 4"
GRAMMAR_PREFIXES = ("fact_", "head_", "if_", "test_", "rule_")
"""Prefixes of the keys of phrases that are next to names, and are parsed."""

_FIELD_PATTERN = re.compile(r"\{([a-z_][a-z_0-9]*)\}")
_ESCAPED_FIELD_PATTERN = re.compile(r"\{(\{[a-z_][a-z_0-9]*\})\}")
_WORD_PATTERN = re.compile(r"[^\W\d]\w*")
# Names that other parsers could take for a number, a bool or null.
_ALWAYS_RESERVED = frozenset(("false", "inf", "infinity", "nan", "none", "null", "treekit", "true"))


@dataclass(frozen=True, eq=False)
class Language:
    """The phrases of one language.

    Attributes
    ----------
    code : str
        BCP 47 code: ``en``, ``zh``.
    phrases : dict of str to str
        Multi-line texts where the catalogue has a list.
    """

    code: str
    phrases: dict[str, str]

    def say(self, key: str, **fields: object) -> str:
        """Return the phrase of `key` with each ``{field}`` replaced; further fields are ignored."""
        return self.sayer(key)(**fields)

    def sayer(self, key: str) -> Callable[..., str]:
        """Return the function that `say` calls for one phrase."""
        if key not in self._formatters:
            literal = self.phrases[key].replace("{", "{{").replace("}", "}}")
            self._formatters[key] = _ESCAPED_FIELD_PATTERN.sub(r"\1", literal).format
        return self._formatters[key]

    @cached_property
    def _formatters(self) -> dict[str, Callable[..., str]]:
        return {}

    def lines(self, key: str, **fields: object) -> list[str]:
        """Return the lines of the phrase of `key`, with each ``{field}`` replaced."""
        return self.say(key, **fields).split("\n")

    def around(self, key: str, field: str, **fields: str) -> tuple[str, str]:
        """Return the texts before and after a field that occurs once in a phrase."""
        before, _, after = self.say(key, **fields, **{field: "\n"}).partition("\n")
        return before, after

    @property
    def first_line(self) -> str:
        """The first line of a rule text."""
        return FIRST_LINE + ("" if self.code == ENGLISH else f", language {self.code}")

    @cached_property
    def facts(self) -> dict[str, str]:
        """The keys of the lines of facts, padded to the widest plus two columns."""
        keys = {key[5:]: text for key, text in self.phrases.items() if key.startswith("fact_")}
        widest = max(map(measure_width, keys.values())) + 2
        return {key: text + " " * (widest - measure_width(text)) for key, text in keys.items()}

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of the phrases that are next to names, as written."""
        texts = [text for key, text in self.phrases.items() if key.startswith(GRAMMAR_PREFIXES)]
        return frozenset(
            word for text in texts for word in _WORD_PATTERN.findall(_FIELD_PATTERN.sub(" ", text))
        )

    @cached_property
    def reserved(self) -> frozenset[str]:
        """Casefolded texts that are quoted when they are names."""
        return _ALWAYS_RESERVED | {word.casefold() for word in self.words}


def measure_width(text: str) -> int:
    """Return the number of terminal columns of a text; East Asian wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


@cache
def list_languages() -> tuple[str, ...]:
    """Return the codes of the languages that treekit includes."""
    folder = files("treekit.rules").joinpath("catalogue")
    return tuple(sorted(p.name[:-5] for p in folder.iterdir() if p.name.endswith(".toml")))


def load_language(code: str | Language = ENGLISH) -> Language:
    """Return the phrases of a language.

    Raises
    ------
    SettingError
        If treekit does not include the language.
    """
    if isinstance(code, Language):
        return code
    if code in list_languages():
        return _load_included(str(code))
    raise SettingError(f"unknown language {str(code)!r}; known: {', '.join(list_languages())}")


@cache
def _load_included(code: str) -> Language:
    place = files("treekit.rules").joinpath("catalogue", f"{code}.toml")
    table = tomllib.loads(place.read_text(encoding="utf-8"))
    texts = {key: text if isinstance(text, str) else "\n".join(text) for key, text in table.items()}
    own = _load_included(ENGLISH).phrases if code != ENGLISH else {}
    return Language(code, own | texts)


@cache
def load_phrases(language: Language, package: str) -> Language:
    """Return a language with the phrases of a plugin.

    Parameters
    ----------
    language : Language
    package : str
        Package with a folder ``phrases`` of files ``en.toml``, ``zh.toml``, ...; English is
        used for other languages.
    """
    folder = files(package).joinpath("phrases")
    phrases: dict[str, str] = {}
    for code in dict.fromkeys((ENGLISH, language.code)):
        place = folder.joinpath(f"{code}.toml")
        if place.is_file():
            phrases |= tomllib.loads(place.read_text(encoding="utf-8"))
    return Language(language.code, language.phrases | phrases)
